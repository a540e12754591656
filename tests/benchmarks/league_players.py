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

    Args:
        situation: What is played.
        seed: Of what the method draws.

    Attributes:
        inputs: The context and the point of each round, without those that were given up.
        outcomes: What is known of them.
        seconds_elsewhere: Processor time that a process of its own has taken for it.
    """

    def __init__(self, situation: Situation, seed: int) -> None:
        """See the class."""
        self.situation, self.seed = situation, seed
        self.inputs: dict[int, Coordinates] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.seconds_elsewhere = 0.0

    def attach(self, t: int, x: Coordinates, context: Coordinates, outcome: Outcome) -> None:
        """Learn one of the first rounds, which nobody asked for."""
        self.inputs[t], self.outcomes[t] = (*context, *x), outcome

    def ask(self, t: int, context: Coordinates) -> Coordinates:
        """Return the point of a round."""
        x = self.suggestion(t, context)
        self.inputs[t] = (*context, *x)
        return x

    @abstractmethod
    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        """Choose the point of a round."""

    def tell(self, t: int, outcome: Outcome) -> None:
        """Learn the outcome of an earlier round."""
        self.outcomes[t] = outcome

    def give_up(self, t: int) -> None:
        """Learn that the outcome of a round will not come."""
        del self.inputs[t]

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what the run held."""


class LoopPlayer(Player):
    """A loop of this package.

    Args:
        situation: What is played.
        seed: Of the loop.
        make: Makes the loop from both.
    """

    def __init__(
        self, situation: Situation, seed: int, make: Callable[[Situation, int], BanditLoop]
    ) -> None:
        """See the class."""
        super().__init__(situation, seed)
        self._loop = make(situation, seed)
        self._ids: dict[int, int] = {}

    def attach(self, t: int, x: Coordinates, context: Coordinates, outcome: Outcome) -> None:
        """See the base class."""
        given, known = _loop_context(context), _constraints(outcome)
        self._loop.attach(list(x), outcome.reward, context=given, **known)

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        query = self._loop.ask(context=_loop_context(context))
        self._ids[t] = query.id
        return tuple(query.x.tolist())

    def tell(self, t: int, outcome: Outcome) -> None:
        """See the base class."""
        self._loop.tell(self._ids[t], outcome.reward, **_constraints(outcome))

    def give_up(self, t: int) -> None:
        """See the base class."""
        self._loop.fail(self._ids[t], "it did not come")


def _loop_context(context: Coordinates) -> list[float] | None:
    return list(context) if context else None


def _constraints(outcome: Outcome) -> dict[str, Any]:
    return {} if outcome.constraint is None else {"constraints": [outcome.constraint]}


class BoTorchPlayer(Player):
    """The ordinary way with BoTorch: a model fitted in each round, and ``optimize_acqf``.

    Args:
        situation: What is played; it stays, and its outcomes come at once.
        seed: Seeds the optimizer of the acquisition function.
        acquisition: Makes the acquisition function from the model, inputs and outcomes.
    """

    def __init__(
        self, situation: Situation, seed: int, acquisition: Callable[..., AcquisitionFunction]
    ) -> None:
        """See the class."""
        super().__init__(situation, seed)
        self._acquisition = acquisition

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        parameters, bounds = self.situation.parameters, self.situation.bounds
        inputs = _tensor(list(self.inputs.values()))
        outcomes = _tensor([(outcome.reward,) for outcome in self.outcomes.values()])
        by_kind = {
            kind: {i: p.values for i, p in enumerate(parameters) if p.kind == kind}
            for kind in ("integer", "choice")
        }
        with seeded_globally(derive_seed(self.seed, len(inputs), "botorch")):
            model = self._fitted(inputs, outcomes, list(by_kind["choice"]))
            function = self._acquisition(model, inputs, outcomes)
            settings: dict[str, Any] = {"q": 1, "num_restarts": 10, "raw_samples": 256}
            if all(not p.is_whole for p in parameters):
                x, _ = optimize_acqf(function, bounds, **settings)
            else:
                kinds = {"discrete_dims": by_kind["integer"], "cat_dims": by_kind["choice"]}
                x, _ = optimize_acqf_mixed_alternating(function, bounds, **kinds, **settings)
        return tuple(x.squeeze(0).tolist())

    def _fitted(self, inputs: Tensor, outcomes: Tensor, choices: list[int]) -> SingleTaskGP:
        dim, bounds = inputs.shape[-1], self.situation.bounds
        model: SingleTaskGP
        if choices:
            others = [i for i in range(dim) if i not in choices]
            scaled = Normalize(dim, indices=others, bounds=bounds[:, others])
            model = MixedSingleTaskGP(
                inputs,
                outcomes,
                cat_dims=choices,
                input_transform=scaled,
                outcome_transform=Standardize(m=1),
            )
        else:
            model = _single(inputs, outcomes, bounds)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model


def _single(inputs: Tensor, outcomes: Tensor, bounds: Tensor) -> SingleTaskGP:
    return SingleTaskGP(
        inputs,
        outcomes,
        input_transform=Normalize(inputs.shape[-1], bounds=bounds),
        outcome_transform=Standardize(m=1),
    )


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
        super().__init__(situation, seed)
        self._window, self._beta = window, beta
        self._bounds = bounds_of((*situation.contexts, *situation.parameters))

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        with seeded_globally(derive_seed(self.seed, t, "botorch")):
            return self._chosen(0 if self._window is None else t - self._window, context)

    def _chosen(self, first: int, context: Coordinates) -> Coordinates:
        rounds = [r for r in self.outcomes if r >= first]
        inputs = _tensor([self.inputs[r] for r in rounds])
        pending = [x for r, x in self.inputs.items() if r not in self.outcomes]
        model = self._fitted(inputs, [self.outcomes[r] for r in rounds])
        given = torch.tensor(context, dtype=torch.float64)
        baseline = inputs.clone()
        baseline[:, : len(context)] = given
        function = self._acquisition(model, baseline, _tensor(pending) if pending else None)
        choices = self.situation.choices
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
        columns = [[(o.reward,) for o in outcomes]]
        if self.situation.kind == "budget":
            columns.append([(float(o.constraint or 0.0),) for o in outcomes])
        models = [_single(inputs, _tensor(column), self._bounds) for column in columns]
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
        if self.situation.kind == "budget":
            more = {
                "objective": GenericMCObjective(lambda samples, X=None: samples[..., 0]),
                "constraints": [lambda samples: samples[..., 1]],
            }
        return qLogNoisyExpectedImprovement(
            model, X_baseline=baseline, X_pending=pending, prune_baseline=True, **more
        )


def _tensor(rows: Sequence[Coordinates]) -> Tensor:
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

        super().__init__(situation, seed)

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

    def attach(self, t: int, x: Coordinates, context: Coordinates, outcome: Outcome) -> None:
        """See the base class."""
        self._study.enqueue_trial(self.situation.native(x))
        self.suggestion(t, context)
        self.tell(t, outcome)

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        trial = self._trials[t] = self._study.ask(self._distributions)
        return self.situation.coordinates(trial.params)

    def tell(self, t: int, outcome: Outcome) -> None:
        """See the base class."""
        trial = self._trials.pop(t)
        if outcome.constraint is not None:
            if self._at_trial:
                trial.set_constraint("budget", outcome.constraint)
            else:
                trial.set_user_attr("constraints", (outcome.constraint,))
        self._study.tell(trial, outcome.reward)

    def give_up(self, t: int) -> None:
        """See the base class."""
        self._study.tell(self._trials.pop(t), state=self._failed)


class AxPlayer(Player):
    """Ax's client with its defaults, in a process of another environment.

    Trials that run are known to it, a budget is an outcome constraint, and contexts are parameters
    that are fixed in each round (``fixed_parameters``). :mod:`benchmarks.league_ax` answers there.

    Args:
        situation: What is played.
        seed: Of the client.
        python: The interpreter of an environment with Ax.
    """

    def __init__(self, situation: Situation, seed: int, python: str) -> None:
        """Start the process."""
        super().__init__(situation, seed)
        script = Path(__file__).with_name("league_ax.py")
        self._process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        made: list[dict[str, Any]] = []
        for p in (*situation.contexts, *situation.parameters):
            one: dict[str, Any] = {"name": p.name, "kind": p.kind, "choices": p.choices}
            if p.kind != "choice":
                one["low"], one["high"] = range_of(p)
            made.append(one)
        self._call(begin=made, seed=seed, has_budget=situation.kind == "budget")

    def _call(self, **message: Any) -> Any:
        """Send a message, as :meth:`benchmarks.league_ax.AxServer.answer` takes it."""
        pipe = self._process
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        pipe.stdin.write(json.dumps(message) + "\n")
        pipe.stdin.flush()
        line = pipe.stdout.readline()
        if not line:
            raise RuntimeError(f"the process with Ax ended with exit code {pipe.wait()}.")
        answer = json.loads(line)
        self.seconds_elsewhere += answer["seconds"]
        return answer["answer"]

    def attach(self, t: int, x: Coordinates, context: Coordinates, outcome: Outcome) -> None:
        """See the base class."""
        self._call(attach=self.situation.native(x, context), outcome=_metrics(outcome))

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        names = [p.name for p in self.situation.contexts]
        given = dict(zip(names, context, strict=True))
        return self.situation.coordinates(self._call(ask=t, given=given))

    def tell(self, t: int, outcome: Outcome) -> None:
        """See the base class."""
        self._call(tell=t, outcome=_metrics(outcome))

    def give_up(self, t: int) -> None:
        """See the base class."""
        self._call(fail=t)

    def close(self) -> None:
        """End the process."""
        with self._process as process:  # closes the pipes and waits
            assert process.stdin is not None


def _metrics(outcome: Outcome) -> dict[str, float]:
    more = {} if outcome.constraint is None else {"cost": outcome.constraint}
    return {"value": outcome.reward, **more}


class RandomPlayer(Player):
    """Points drawn uniformly at random."""

    def __init__(self, situation: Situation, seed: int) -> None:
        """See the base class."""
        super().__init__(situation, seed)
        self._stream = generator(seed, 0, "random search")

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        size = len(self.situation.parameters)
        return self.situation.at(torch.rand(size, generator=self._stream, dtype=torch.float64))


class BayesOptPlayer(Player):
    """The package ``bayesian-optimization`` with its defaults; it has no logarithmic scale."""

    def __init__(self, situation: Situation, seed: int) -> None:
        """See the base class."""
        from bayes_opt import BayesianOptimization

        super().__init__(situation, seed)
        sides: dict[str, Any] = {}
        for p in situation.parameters:
            side: Any = (*range_of(p), int) if p.kind == "integer" else (p.low, p.high)
            sides[p.name] = p.choices if p.kind == "choice" else side
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # integers and choices are experimental
            self._optimizer = BayesianOptimization(
                None, sides, random_state=seed, verbose=0, allow_duplicate_points=True
            )

    def attach(self, t: int, x: Coordinates, context: Coordinates, outcome: Outcome) -> None:
        """See the base class."""
        super().attach(t, x, context, outcome)
        self.tell(t, outcome)

    def suggestion(self, t: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        values = self._optimizer.suggest()
        return tuple(
            p.coordinate(values[p.name])
            if p.is_whole
            else min(max(float(values[p.name]), p.low), p.high)
            for p in self.situation.parameters
        )

    def tell(self, t: int, outcome: Outcome) -> None:
        """See the base class."""
        params = {
            p.name: p.native(c) if p.is_whole else c
            for p, c in zip(self.situation.parameters, self.inputs[t], strict=True)
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
