"""The methods in the situations of the league, each as the documentation of its package has it.

A player is told the first rounds, then asked in each round, and told outcomes when they arrive,
which may be several rounds later or never.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from botorch.acquisition import (
    AcquisitionFunction,
    UpperConfidenceBound,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf, optimize_acqf_discrete
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from torch import Tensor

from benchmarks.league_methods import (
    AX,
    AxProcess,
    ax_version,
    check_packages,
    package_version,
    range_of,
)
from benchmarks.league_problems import NUM_INITIAL, Coordinates
from benchmarks.league_situations import MAX_DELAY, Situation, bounds_of
from botorch_bandits import (
    AdditiveEpochs,
    BanditLoop,
    Censored,
    EvidenceRestart,
    SlidingWindow,
)
from botorch_bandits.models import DefaultCandidates
from botorch_bandits.random_streams import derive_seed, generator, seeded_globally

WINDOW = 20
"""Rounds that sliding windows keep."""

EPOCH = 5
"""Rounds of an epoch of multipliers, as in the documentation."""


@dataclass(frozen=True)
class Outcome:
    """What a method is told of a round.

    Attributes:
        reward: With noise.
        constraint: Likewise, to be at most 0 on average; None without a budget.
    """

    reward: float
    constraint: float | None = None


class SituationPlayer(ABC):
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

    @abstractmethod
    def give_up(self, round_number: int) -> None:
        """Learn that the outcome of a round will not come."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what the run held."""


class LoopPlayer(SituationPlayer):
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


class BoTorchPlayer(SituationPlayer):
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
        if self._situation.has_budget:
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
        if self._situation.has_budget:
            more = {
                "objective": GenericMCObjective(lambda samples, X=None: samples[..., 0]),
                "constraints": [lambda samples: samples[..., 1]],
            }
        return qLogNoisyExpectedImprovement(
            model, X_baseline=baseline, X_pending=pending, prune_baseline=True, **more
        )


def _tensor(rows: list[Coordinates]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


class OptunaPlayer(SituationPlayer):
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
        if situation.has_budget and not self._at_trial:  # the way of versions before 5
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
            low, high = range_of(p)
            self._distributions[p.name] = (
                optuna.distributions.IntDistribution(low, high)
                if p.kind == "integer"
                else optuna.distributions.FloatDistribution(low, high, log=p.kind == "log")
            )

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


class AxPlayer(SituationPlayer):
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
            has_budget=situation.has_budget,
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


class RandomPlayer(SituationPlayer):
    """Points drawn uniformly at random.

    Args:
        situation: What is played.
        seed: Of the draws.
    """

    def __init__(self, situation: Situation, seed: int) -> None:
        """See the class."""
        self._parameters = situation.parameters
        self._stream = generator(seed, 0, "random search")

    def attach(
        self, round_number: int, x: Coordinates, context: Coordinates, outcome: Outcome
    ) -> None:
        """See the base class."""

    def ask(self, round_number: int, context: Coordinates) -> Coordinates:
        """See the base class."""
        shares = torch.rand(len(self._parameters), generator=self._stream, dtype=torch.float64)
        return tuple(p.at(u) for p, u in zip(self._parameters, shares.tolist(), strict=True))

    def tell(self, round_number: int, outcome: Outcome) -> None:
        """See the base class."""

    def give_up(self, round_number: int) -> None:
        """See the base class."""


# ----------------------------------------------------------------------------------- loops of ours


def loop(situation: Situation, seed: int, **more: Any) -> BanditLoop:
    """Return a loop with what the documentation says for a situation, and no more.

    Args:
        situation: What is played.
        seed: Of the loop.
        **more: Arguments of the loop.
    """
    settings: dict[str, Any] = {"objective": "earned", "num_initial": NUM_INITIAL, "seed": seed}
    if situation.contexts:
        settings["context_dim"] = len(situation.contexts)
    return BanditLoop(situation.domain(), **{**settings, **more})


def restarting(situation: Situation, seed: int) -> BanditLoop:
    """Return a loop that restarts by the evidence of all outcomes, on the default list."""
    sides = [(p.low, p.high) for p in situation.parameters]
    return loop(situation, seed, restart=EvidenceRestart(candidates=DefaultCandidates(sides)))


def within_budget(
    situation: Situation, seed: int, surrogate: str = "relabeled", epoch_length: int = EPOCH
) -> BanditLoop:
    """Return a loop with a multiplier for the budget."""
    rule = AdditiveEpochs(num_constraints=1, epoch_length=epoch_length, surrogate=surrogate)
    return loop(situation, seed, constraints=rule)


def censoring(situation: Situation, seed: int) -> BanditLoop:
    """Return a loop whose pending queries are at the least reward."""
    assert situation.least is not None
    return loop(situation, seed, feedback=Censored(situation.least, max_delay=MAX_DELAY))


Maker = Callable[[Situation, int], SituationPlayer]


def of_loop(make: Callable[[Situation, int], BanditLoop]) -> Maker:
    """Return how a loop plays.

    Args:
        make: Makes the loop from the situation and the seed.
    """
    return lambda situation, seed: LoopPlayer(make(situation, seed))


@dataclass(frozen=True)
class SituationMethod:
    """A method of the league in situations.

    Attributes:
        name: As the command line has it.
        titles: What it is, in words, by kind of situation; it plays in these.
        makes: Begins a run, by kind of situation.
        packages: The distributions that it needs, the first being the one that it is.
    """

    name: str
    titles: dict[str, str]
    makes: dict[str, Maker] = field(repr=False)
    packages: tuple[str, ...]

    @property
    def version(self) -> str:
        """The package and its version."""
        return package_version(self.packages[0])

    def check(self) -> None:
        """Raise if it cannot be played here.

        Raises:
            MissingMethodError: With what is to be installed.
        """
        check_packages(self.name, self.packages)


def _method(
    name: str, package: str, made: dict[str, tuple[str, Maker]] | tuple[str, Maker]
) -> SituationMethod:
    if isinstance(made, tuple):
        made = dict.fromkeys(("delays", "changes", "budget", "contexts"), made)
    titles = {kind: title for kind, (title, _) in made.items()}
    return SituationMethod(name, titles, {kind: m for kind, (_, m) in made.items()}, (package,))


EARNED = '`BanditLoop(domain, objective="earned")`'

METHODS: dict[str, SituationMethod] = {
    method.name: method
    for method in (
        _method(
            "ours",
            "botorch_bandits",
            {
                "delays": (f"{EARNED}: pending queries are hallucinated", of_loop(loop)),
                "changes": (
                    f"{EARNED} with `EvidenceRestart(candidates=DefaultCandidates(sides))`",
                    of_loop(restarting),
                ),
                "budget": (
                    f"{EARNED} with `AdditiveEpochs(1, epoch_length=5)`",
                    of_loop(within_budget),
                ),
                "contexts": (f"{EARNED} with `context_dim=`", of_loop(loop)),
            },
        ),
        _method(
            "ours-best",
            "botorch_bandits",
            {
                "delays": (
                    '`BanditLoop(domain)`: `objective="best"`',
                    of_loop(partial(loop, objective="best")),
                )
            },
        ),
        _method(
            "ours-censored",
            "botorch_bandits",
            {
                "delays": (
                    f"{EARNED} with `Censored(least, max_delay={MAX_DELAY})`",
                    of_loop(censoring),
                )
            },
        ),
        _method(
            "ours-window",
            "botorch_bandits",
            {
                "changes": (
                    f"{EARNED} with `forgetting=SlidingWindow({WINDOW})`",
                    of_loop(partial(loop, forgetting=SlidingWindow(WINDOW))),
                )
            },
        ),
        _method(
            "ours-still",
            "botorch_bandits",
            {"changes": (f"{EARNED}, as if nothing changed", of_loop(loop))},
        ),
        _method(
            "ours-separate",
            "botorch_bandits",
            {
                "budget": (
                    f'{EARNED} with `AdditiveEpochs(1, epoch_length=5, surrogate="separate")`',
                    of_loop(partial(within_budget, surrogate="separate")),
                )
            },
        ),
        _method(
            "ours-short",
            "botorch_bandits",
            {
                "budget": (
                    f"{EARNED} with `AdditiveEpochs(1, epoch_length=1)`",
                    of_loop(partial(within_budget, epoch_length=1)),
                )
            },
        ),
        _method(
            "botorch",
            "botorch",
            {
                "delays": (
                    "`qLogNoisyExpectedImprovement` with `X_pending`",
                    BoTorchPlayer,
                ),
                "changes": ("`qLogNoisyExpectedImprovement` on all outcomes", BoTorchPlayer),
                "budget": (
                    "`qLogNoisyExpectedImprovement` with `constraints`",
                    BoTorchPlayer,
                ),
                "contexts": (
                    "`qLogNoisyExpectedImprovement` with the context fixed, in it and in its "
                    "baseline",
                    BoTorchPlayer,
                ),
            },
        ),
        _method(
            "botorch-window",
            "botorch",
            {
                "changes": (
                    f"the same on the last {WINDOW} outcomes",
                    partial(BoTorchPlayer, window=WINDOW),
                )
            },
        ),
        _method(
            "botorch-ucb",
            "botorch",
            {
                "contexts": (
                    "`UpperConfidenceBound(beta=4)` with the context fixed",
                    partial(BoTorchPlayer, beta=4.0),
                )
            },
        ),
        _method(
            "optuna-gp",
            "optuna",
            ("Optuna's `GPSampler`", partial(OptunaPlayer, sampler="GPSampler")),
        ),
        _method(
            "optuna-tpe",
            "optuna",
            ("Optuna's `TPESampler`", partial(OptunaPlayer, sampler="TPESampler")),
        ),
        _method("random", "botorch_bandits", ("uniform points", RandomPlayer)),
    )
}
"""The methods by name, but for Ax, which needs an environment of its own."""


@dataclass(frozen=True)
class AxSituationMethod(SituationMethod):
    """Ax in another environment; its version is found there."""

    @property
    def version(self) -> str:
        """The package and its version."""
        return f"ax-platform {self.packages[0]}"

    def check(self) -> None:
        """It was found when this was made."""


@cache
def situation_method_of(text: str) -> SituationMethod:
    """Return the method that a text names.

    Args:
        text: A key of :data:`METHODS`, or ``ax=INTERPRETER``.

    Raises:
        MissingMethodError: If it cannot be played here.
        ValueError: If there is none of this name.
    """
    if text.startswith(f"{AX}="):
        python = text.removeprefix(f"{AX}=")
        made = _method(AX, "", ("Ax's `Client`", partial(AxPlayer, python=python)))
        return AxSituationMethod(AX, made.titles, made.makes, (ax_version(python),))
    if text not in METHODS:
        raise ValueError(f"method is {text!r}; it must be one of {', '.join([*METHODS, AX])}.")
    METHODS[text].check()
    return METHODS[text]
