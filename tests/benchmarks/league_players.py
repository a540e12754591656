"""The players of the league, each through the public interface that its users have.

A player is told the common first points, then it is asked for a point in each round and told its
outcome when it comes, which may be several rounds later or never. What a package recommends is left
as it is, but for the number of random points at the start, which is that of the common ones.
"""

from __future__ import annotations

import json
import subprocess
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from botorch.acquisition import (
    AcquisitionFunction,
    UpperConfidenceBound,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP, ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from torch import Tensor

from benchmarks.league_problems import (
    NUM_INITIAL,
    Coordinates,
    Parameter,
    Situation,
    bounds_of,
)
from botorch_bandits import BanditLoop
from botorch_bandits.random_streams import derive_seed, generator, seeded_globally


@dataclass(frozen=True)
class Outcome:
    """What a method is told of a round.

    Attributes:
        reward: With noise.
        constraint: Likewise, to be at most 0 on average; None without a budget.
    """

    reward: float
    constraint: float | None = None


class Player(ABC):
    """One run of a method. Rounds are known by their numbers.

    Attributes:
        seconds_elsewhere: Processor time that a process of its own has taken for it.
    """

    seconds_elsewhere: float = 0.0

    @abstractmethod
    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """Learn one of the first rounds, which nobody asked for."""

    @abstractmethod
    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """Return the point of a round."""

    @abstractmethod
    def tell(self, round_number: int, outcome: Outcome) -> None:
        """Learn the outcome of an earlier round."""

    def give_up(self, round_number: int) -> None:  # noqa: B027 - many never hear of it
        """Learn that the outcome of a round will not come."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what the run held."""


class LoopPlayer(Player):
    """A loop of this package.

    Args:
        loop: Newly made.
    """

    def __init__(self, loop: BanditLoop) -> None:
        """See the class."""
        self._loop = loop
        self._ids: dict[int, int] = {}

    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """See the base class."""
        more: dict[str, Any] = {"context": list(context)} if context else {}
        self._loop.attach(list(x), outcome.reward, **more, **_constraints(outcome))

    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        query = self._loop.ask(context=list(context)) if context else self._loop.ask()
        self._ids[round_number] = query.id
        return tuple(query.x.tolist())

    def tell(self, round_number: int, outcome: Outcome) -> None:
        """See the base class."""
        self._loop.tell(self._ids[round_number], outcome.reward, **_constraints(outcome))

    def give_up(self, round_number: int) -> None:
        """See the base class."""
        self._loop.tell_failed(self._ids[round_number], "it did not come")


def _constraints(outcome: Outcome) -> dict[str, Any]:
    return {} if outcome.constraint is None else {"constraints": [outcome.constraint]}


class BoTorchPlayer(Player):
    """The ordinary way with BoTorch: a model fitted in each round, and ``optimize_acqf``.

    Args:
        problem: What is played; it stays, and its outcomes come at once.
        seed: Seeds the optimizer of the acquisition function.
        acquisition: Makes the acquisition function from the model, inputs and outcomes.
    """

    def __init__(
        self, problem: Situation, seed: int, acquisition: Callable[..., AcquisitionFunction]
    ) -> None:
        """See the class."""
        self._parameters, self._bounds, self._seed = problem.parameters, problem.bounds, seed
        self._acquisition = acquisition
        self._inputs: list[Coordinates] = []
        self._outcomes: list[float] = []

    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """See the base class."""
        self._inputs.append(x)
        self._outcomes.append(outcome.reward)

    def tell(self, round_number: int, outcome: Outcome) -> None:
        """See the base class."""
        self._outcomes.append(outcome.reward)

    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        inputs = _tensor(self._inputs)
        outcomes = torch.tensor(self._outcomes, dtype=torch.float64).unsqueeze(-1)
        with seeded_globally(derive_seed(self._seed, len(inputs), "botorch")):
            self._inputs.append(self._suggestion(inputs, outcomes))
        return self._inputs[-1]

    def _suggestion(self, inputs: torch.Tensor, outcomes: torch.Tensor) -> Coordinates:
        dim, bounds = inputs.shape[-1], self._bounds
        choices = [i for i, p in enumerate(self._parameters) if p.kind == "choice"]
        others = [i for i in range(dim) if i not in choices]
        transforms = {
            "input_transform": Normalize(dim, indices=others, bounds=bounds[:, others])
            if choices
            else Normalize(dim, bounds=bounds),
            "outcome_transform": Standardize(m=1),
        }
        model: SingleTaskGP
        if choices:
            model = MixedSingleTaskGP(inputs, outcomes, cat_dims=choices, **transforms)
        else:
            model = SingleTaskGP(inputs, outcomes, **transforms)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        function = self._acquisition(model, inputs, outcomes)
        settings: dict[str, Any] = {"q": 1, "num_restarts": 10, "raw_samples": 256}
        if all(not p.is_whole for p in self._parameters):
            x, _ = optimize_acqf(function, bounds, **settings)
        else:
            by_kind = {
                kind: {i: p.values for i, p in enumerate(self._parameters) if p.kind == kind}
                for kind in ("integer", "choice")
            }
            x, _ = optimize_acqf_mixed_alternating(
                function,
                bounds,
                discrete_dims=by_kind["integer"],
                cat_dims=by_kind["choice"],
                **settings,
            )
        return tuple(x.squeeze(0).tolist())


class NoisyBoTorchPlayer(Player):
    """A loop as the tutorials of BoTorch have it: a model fitted in each round.

    The acquisition function is ``qLogNoisyExpectedImprovement``: pending points are its
    ``X_pending``, a budget is one of its ``constraints``, the context is fixed when it is
    optimized, and its baseline are then all points in that context.

    Args:
        situation: What is played.
        seed: Of the optimizer of the acquisition function.
        window: How many of the last rounds the model sees; None for all.
        beta: If given, the acquisition function is ``UpperConfidenceBound(beta=...)``.
    """

    def __init__(
        self,
        situation: Situation,
        seed: int,
        window: int | None = None,
        beta: float | None = None,
    ) -> None:
        """See the class."""
        self._situation, self._seed = situation, seed
        self._window, self._beta = window, beta
        self._bounds = bounds_of((*situation.contexts, *situation.parameters))
        self._inputs: dict[int, Coordinates] = {}
        self._outcomes: dict[int, Outcome] = {}

    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """See the base class."""
        self._inputs[round_number] = (*context, *x)
        self._outcomes[round_number] = outcome

    def tell(self, round_number: int, outcome: Outcome) -> None:
        """See the base class."""
        self._outcomes[round_number] = outcome

    def give_up(self, round_number: int) -> None:
        """See the base class."""
        del self._inputs[round_number]

    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        with seeded_globally(derive_seed(self._seed, round_number, "botorch")):
            x = self._suggestion(round_number, context)
        self._inputs[round_number] = (*context, *x)
        return x

    def _suggestion(self, round_number: int, context: Coordinates) -> Coordinates:
        first = 0 if self._window is None else round_number - self._window
        rounds = [r for r in self._outcomes if r >= first]
        inputs = _tensor([self._inputs[r] for r in rounds])
        pending = [x for r, x in self._inputs.items() if r not in self._outcomes]
        model = self._fitted(inputs, [self._outcomes[r] for r in rounds])
        given = torch.tensor(context, dtype=torch.float64)
        baseline = inputs.clone()
        baseline[:, : len(context)] = given
        function = self._acquisition(model, baseline, _tensor(pending) if pending else None)
        choices = self._situation.choices
        if choices is not None:
            rows = torch.cat([given.expand(len(choices), -1), choices], dim=-1)
            x, _ = optimize_acqf_discrete(function, q=1, choices=rows)
        else:
            x, _ = optimize_acqf(
                function,
                self._bounds,
                q=1,
                num_restarts=10,
                raw_samples=256,
                fixed_features=dict(enumerate(context)) or None,
            )
        return tuple(x.squeeze(0)[len(context) :].tolist())

    def _fitted(self, inputs: Tensor, outcomes: list[Outcome]) -> SingleTaskGP | ModelListGP:
        columns = [[o.reward for o in outcomes]]
        if self._situation.kind == "budget":
            columns.append([float(o.constraint or 0.0) for o in outcomes])
        models = [
            SingleTaskGP(
                inputs,
                torch.tensor(column, dtype=torch.float64).unsqueeze(-1),
                input_transform=Normalize(inputs.shape[-1], bounds=self._bounds),
                outcome_transform=Standardize(m=1),
            )
            for column in columns
        ]
        if len(models) == 1:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(models[0].likelihood, models[0]))
            return models[0]
        both = ModelListGP(*models)
        fit_gpytorch_mll(SumMarginalLogLikelihood(both.likelihood, both))
        return both

    def _acquisition(
        self, model: SingleTaskGP | ModelListGP, baseline: Tensor, pending: Tensor | None
    ) -> AcquisitionFunction:
        if self._beta is not None:
            return UpperConfidenceBound(model, beta=self._beta)
        more: dict[str, Any] = {}
        if self._situation.kind == "budget":
            more = {
                "objective": GenericMCObjective(lambda samples, X=None: samples[..., 0]),
                "constraints": [lambda samples: samples[..., 1]],
            }
        return qLogNoisyExpectedImprovement(
            model, X_baseline=baseline, X_pending=pending, prune_baseline=True, **more
        )


def _tensor(rows: list[Coordinates]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


class OptunaPlayer(Player):
    """A study of Optuna, asked and told; it is told of no context, for it has none.

    Trials that run are known to the samplers, which keep away from them. Constraint values are
    set at the trial.

    Args:
        situation: What is played.
        seed: Of the sampler.
        sampler: The name of its class in ``optuna.samplers``.
    """

    def __init__(self, situation: Situation, seed: int, sampler: str) -> None:
        """See the class."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        settings: dict[str, Any] = {"seed": seed, "n_startup_trials": NUM_INITIAL}
        if sampler == "TPESampler":
            settings["constant_liar"] = True  # the default since version 5
        self._at_trial = hasattr(optuna.trial.Trial, "set_constraint")
        if situation.kind == "budget" and not self._at_trial:  # the way of versions before 5
            settings["constraints_func"] = lambda trial: trial.user_attrs["constraints"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts of the samplers are marked experimental
            made = getattr(optuna.samplers, sampler)(**settings)
        self._failed = optuna.trial.TrialState.FAIL
        self._situation = situation
        self._study = optuna.create_study(direction="maximize", sampler=made)
        self._trials: dict[int, Any] = {}
        self._distributions: dict[str, Any] = {}
        for p in situation.parameters:
            if p.kind == "choice":
                made_of: Any = optuna.distributions.CategoricalDistribution(p.choices)
            elif p.kind == "integer":
                made_of = optuna.distributions.IntDistribution(*range_of(p))
            else:
                made_of = optuna.distributions.FloatDistribution(*range_of(p), log=p.kind == "log")
            self._distributions[p.name] = made_of

    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """See the base class."""
        self._study.enqueue_trial(self._situation.native(x))
        self.ask(round_number, context)
        self.tell(round_number, outcome)

    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        trial = self._trials[round_number] = self._study.ask(self._distributions)
        return self._situation.coordinates(trial.params)

    def tell(self, round_number: int, outcome: Outcome) -> None:
        """See the base class."""
        trial = self._trials.pop(round_number)
        if outcome.constraint is not None:
            if self._at_trial:
                trial.set_constraint("budget", outcome.constraint)
            else:
                trial.set_user_attr("constraints", (outcome.constraint,))
        self._study.tell(trial, outcome.reward)

    def give_up(self, round_number: int) -> None:
        """See the base class."""
        self._study.tell(self._trials.pop(round_number), state=self._failed)


class AxProcess:
    """Ax's client in a process of another environment; :mod:`benchmarks.league_ax` answers there.

    Args:
        python: The interpreter of an environment with Ax.
        parameters: What is asked for or given.
        seed: Of the client.
        has_budget: Whether the outcome ``cost`` must be at most 0.

    Attributes:
        seconds: Processor time that the process has taken.
    """

    def __init__(
        self,
        python: str,
        parameters: Sequence[Parameter],
        seed: int,
        has_budget: bool = False,
    ) -> None:
        """Start the process."""
        self.seconds = 0.0
        script = Path(__file__).with_name("league_ax.py")
        self._process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        made: list[dict[str, Any]] = []
        for p in parameters:
            if p.kind == "choice":
                made.append({"name": p.name, "kind": p.kind, "choices": p.choices})
            else:
                low, high = range_of(p)
                made.append({"name": p.name, "kind": p.kind, "low": low, "high": high})
        self.call(begin=made, seed=seed, has_budget=has_budget)

    def call(self, **message: Any) -> Any:
        """Send a message and return the answer.

        Args:
            **message: What :meth:`benchmarks.league_ax.AxServer.answer` takes.

        Raises:
            RuntimeError: If the process has ended.
        """
        pipe = self._process
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        pipe.stdin.write(json.dumps(message) + "\n")
        pipe.stdin.flush()
        line = pipe.stdout.readline()
        if not line:
            raise RuntimeError(f"the process with Ax ended with exit code {pipe.wait()}.")
        answer = json.loads(line)
        self.seconds += answer["seconds"]
        return answer["answer"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class AxPlayer(Player):
    """Ax's client with its defaults, in a process of another environment.

    Trials that run are known to it, a budget is an outcome constraint, and contexts are parameters
    that are fixed in each round (``fixed_parameters``).

    Args:
        situation: What is played.
        seed: Of the client.
        python: The interpreter of an environment with Ax.
    """

    def __init__(self, situation: Situation, seed: int, python: str) -> None:
        """See the class."""
        self._situation = situation
        self._process = AxProcess(
            python,
            (*situation.contexts, *situation.parameters),
            seed,
            has_budget=situation.kind == "budget",
        )

    @property
    def seconds_elsewhere(self) -> float:  # type: ignore[override]
        """Processor time of the other process."""
        return self._process.seconds

    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """See the base class."""
        point = self._situation.native(x, context)
        self._process.call(attach=point, outcome=_metrics(outcome))

    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        names = [p.name for p in self._situation.contexts]
        given = dict(zip(names, context, strict=True))
        found = self._process.call(ask=round_number, given=given)
        return self._situation.coordinates(found)

    def tell(self, round_number: int, outcome: Outcome) -> None:
        """See the base class."""
        self._process.call(tell=round_number, outcome=_metrics(outcome))

    def give_up(self, round_number: int) -> None:
        """See the base class."""
        self._process.call(fail=round_number)

    def close(self) -> None:
        """End the process."""
        self._process.close()


def _metrics(outcome: Outcome) -> dict[str, float]:
    more = {} if outcome.constraint is None else {"cost": outcome.constraint}
    return {"value": outcome.reward, **more}


class RandomPlayer(Player):
    """Points drawn uniformly at random.

    Args:
        situation: What is played.
        seed: Of the draws.
    """

    def __init__(self, situation: Situation, seed: int) -> None:
        """See the class."""
        self._situation = situation
        self._stream = generator(seed, 0, "random search")

    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """See the base class."""

    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        size = len(self._situation.parameters)
        return self._situation.at(torch.rand(size, generator=self._stream, dtype=torch.float64))

    def tell(self, round_number: int, outcome: Outcome) -> None:
        """See the base class."""


class BayesOptPlayer(Player):
    """The package ``bayesian-optimization`` with its defaults; it has no logarithmic scale.

    Args:
        problem: What is played.
        seed: Of its random numbers.
    """

    def __init__(self, problem: Situation, seed: int) -> None:
        """See the class."""
        from bayes_opt import BayesianOptimization

        self._parameters = problem.parameters
        sides: dict[str, Any] = {}
        for p in problem.parameters:
            side: Any = (*range_of(p), int) if p.kind == "integer" else (p.low, p.high)
            sides[p.name] = p.choices if p.kind == "choice" else side
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # integers and choices are experimental
            self._optimizer = BayesianOptimization(
                None, sides, random_state=seed, verbose=0, allow_duplicate_points=True
            )

    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """See the base class."""
        self._x = x
        self.tell(round_number, outcome)

    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        values = self._optimizer.suggest()
        self._x = tuple(
            p.coordinate(values[p.name])
            if p.is_whole
            else min(max(float(values[p.name]), p.low), p.high)
            for p in self._parameters
        )
        return self._x

    def tell(self, round_number: int, outcome: Outcome) -> None:
        """See the base class."""
        params = {
            p.name: p.native(c) if p.is_whole else c
            for p, c in zip(self._parameters, self._x, strict=True)
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of points that are told twice
            self._optimizer.register(params, outcome.reward)


def range_of(parameter: Parameter) -> tuple[Any, Any]:
    """Return the least and the largest native value of a parameter that is no choice.

    Args:
        parameter: Any but a choice.
    """
    return parameter.native(parameter.low), parameter.native(parameter.high)
