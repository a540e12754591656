"""The methods of the league by name: who plays which kind of problem, and how.

Loops of this package have what its documentation says for a situation, and no more.
"""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import torch
from botorch.acquisition import (
    AcquisitionFunction,
    LogExpectedImprovement,
    UpperConfidenceBound,
    qLogNoisyExpectedImprovement,
)
from botorch.models import SingleTaskGP

from benchmarks.league_players import (
    AxPlayer,
    BayesOptPlayer,
    BoTorchPlayer,
    LoopPlayer,
    NoisyBoTorchPlayer,
    OptunaPlayer,
    Player,
    RandomPlayer,
)
from benchmarks.league_problems import MAX_DELAY, NUM_INITIAL, Situation
from botorch_bandits import (
    AdditiveEpochs,
    BanditLoop,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    Censored,
    EvidenceRestart,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    SlidingWindow,
)
from botorch_bandits.models import DefaultCandidates

WINDOW = 20
"""Rounds that sliding windows keep."""

EPOCH = 5
"""Rounds of an epoch of multipliers, as in the documentation."""

AX = "ax"
"""The name of the method that is named with the interpreter of its environment."""


def log_expected_improvement(
    model: SingleTaskGP, inputs: torch.Tensor, outcomes: torch.Tensor
) -> AcquisitionFunction:
    """Return BoTorch's LogEI over the best observed value."""
    return LogExpectedImprovement(model, best_f=outcomes.max())


def noisy_expected_improvement(
    model: SingleTaskGP, inputs: torch.Tensor, outcomes: torch.Tensor
) -> AcquisitionFunction:
    """Return BoTorch's qLogNEI over the observed points."""
    return qLogNoisyExpectedImprovement(model, X_baseline=inputs, prune_baseline=True)


def upper_confidence_bound(
    model: SingleTaskGP, inputs: torch.Tensor, outcomes: torch.Tensor
) -> AcquisitionFunction:
    """Return BoTorch's upper confidence bound, the mean plus two standard deviations."""
    return UpperConfidenceBound(model, beta=4.0)


def loop(situation: Situation, seed: int, **more: Any) -> BanditLoop:
    """Return a loop with the defaults that earn reward on the way.

    Args:
        situation: What is played.
        seed: Of the loop.
        **more: Arguments of the loop.
    """
    settings: dict[str, Any] = {"num_initial": NUM_INITIAL, "seed": seed}
    if "acquisition" not in more:
        settings["acquisition"] = "earned"
    if situation.contexts:
        settings["context_dim"] = len(situation.contexts)
    return BanditLoop(situation.domain(), **{**settings, **more})


def default_candidates(situation: Situation, **more: Any) -> DefaultCandidates:
    """Return the default list of priors for a problem."""
    return DefaultCandidates([(p.low, p.high) for p in situation.parameters], **more)


def listed(situation: Situation, seed: int, acquisition: Any) -> BanditLoop:
    """Return a loop with the default list of priors, whose scales the first points choose."""
    model = default_candidates(situation, num_first=NUM_INITIAL)
    return loop(situation, seed, model=model, acquisition=acquisition)


def restarting(situation: Situation, seed: int) -> BanditLoop:
    """Return a loop that restarts by the evidence of all outcomes, on the default list."""
    restart = EvidenceRestart(candidates=default_candidates(situation))
    return loop(situation, seed, restart=restart)


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


Maker = Callable[[Situation, int], Player]


def of_loop(make: Callable[[Situation, int], BanditLoop]) -> Maker:
    """Return how a loop plays.

    Args:
        make: Makes the loop from the problem and the seed.
    """
    return partial(LoopPlayer, make=make)


class MissingMethodError(ImportError):
    """A method cannot be played here: a package is missing."""


@dataclass(frozen=True)
class Method:
    """A method of the league.

    Attributes:
        name: As the command line has it.
        package: The distribution that it is.
        makes: Begins a run, by kind of problem.
        is_core: Whether it plays problems that stay where no method is named.
        found: The version of its package, where that is in another environment.
    """

    name: str
    package: str
    makes: dict[str, Maker] = field(repr=False)
    is_core: bool = True
    found: str | None = None

    @property
    def version(self) -> str:
        """The package and its version."""
        return f"{self.package} {self.found or version(self.package)}"

    def check(self) -> None:
        """Raise if it cannot be played here.

        Raises:
            MissingMethodError: With what is to be installed.
        """
        module = {"bayesian-optimization": "bayes_opt"}.get(self.package, self.package)
        if importlib.util.find_spec(module) is None:
            raise MissingMethodError(
                f"{self.name} needs {self.package}: pip install 'botorch_bandits[league]'"
            )


KINDS = ("still", "delays", "changes", "budget", "contexts")
OURS, BOTORCH = "botorch_bandits", "botorch"


def everywhere(make: Maker, kinds: Sequence[str] = KINDS) -> dict[str, Maker]:
    """Return one way to play problems of some kinds, or of all."""
    return dict.fromkeys(kinds, make)


def _of_bound(acquisition: Any) -> dict[str, Maker]:
    return {"still": of_loop(partial(loop, acquisition=acquisition.with_options()))}


def _of_list(acquisition: Any) -> dict[str, Maker]:
    return {"still": of_loop(partial(listed, acquisition=acquisition))}


BEST = of_loop(partial(loop, acquisition="best"))
MIXTURE_BOUND = CandidatesUpperConfidenceBound.with_options(form="mixture")
"""The mean of the mixture of the priors plus two of its standard deviations."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("ours-best", OURS, everywhere(BEST, ("still", "delays"))),
        Method("ours-earned", OURS, {"still": of_loop(loop)}),
        Method(
            "ours",
            OURS,
            {
                "delays": of_loop(loop),
                "changes": of_loop(restarting),
                "budget": of_loop(within_budget),
                "contexts": of_loop(loop),
            },
        ),
        Method("ours-censored", OURS, {"delays": of_loop(censoring)}),
        Method(
            "ours-window",
            OURS,
            {"changes": of_loop(partial(loop, forgetting=SlidingWindow(WINDOW)))},
        ),
        Method("ours-still", OURS, {"changes": of_loop(loop)}),
        Method(
            "ours-separate", OURS, {"budget": of_loop(partial(within_budget, surrogate="separate"))}
        ),
        Method("ours-short", OURS, {"budget": of_loop(partial(within_budget, epoch_length=1))}),
        Method("igp-ucb", OURS, _of_bound(ImprovedUpperConfidenceBound)),
        Method("gp-ts", OURS, _of_bound(GPThompsonSampling)),
        Method("candidates-ucb", OURS, _of_list(MIXTURE_BOUND), is_core=False),
        Method(
            "candidates-ts",
            OURS,
            _of_list(CandidatesThompsonSampling.with_options()),
            is_core=False,
        ),
        Method("botorch", BOTORCH, everywhere(NoisyBoTorchPlayer, KINDS[1:])),
        Method("botorch-window", BOTORCH, {"changes": partial(NoisyBoTorchPlayer, window=WINDOW)}),
        Method(
            "botorch-logei",
            BOTORCH,
            {"still": partial(BoTorchPlayer, acquisition=log_expected_improvement)},
        ),
        Method(
            "botorch-qlognei",
            BOTORCH,
            {"still": partial(BoTorchPlayer, acquisition=noisy_expected_improvement)},
            is_core=False,
        ),
        Method(
            "botorch-ucb",
            BOTORCH,
            {
                "still": partial(BoTorchPlayer, acquisition=upper_confidence_bound),
                "contexts": partial(NoisyBoTorchPlayer, beta=4.0),
            },
            is_core=False,
        ),
        Method("optuna-gp", "optuna", everywhere(partial(OptunaPlayer, sampler="GPSampler"))),
        Method("optuna-tpe", "optuna", everywhere(partial(OptunaPlayer, sampler="TPESampler"))),
        Method("random", OURS, everywhere(RandomPlayer)),
        Method("bayes-opt", "bayesian-optimization", {"still": BayesOptPlayer}, is_core=False),
    )
}
"""The methods by name, but for Ax, which needs an environment of its own."""


def ax_version(python: str) -> str:
    """Return the version of Ax that another interpreter has.

    Args:
        python: The interpreter.

    Raises:
        MissingMethodError: If it cannot import Ax.
    """
    line = "import importlib.metadata, ax.api.client; print(importlib.metadata.version('{}'))"
    try:
        return subprocess.run(
            [python, "-c", line.format("ax-platform")], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingMethodError(
            f"ax={python!r} cannot import Ax; make an environment with "
            "pip install -c constraints.txt -e '.[ax]' and name its interpreter"
        ) from error


@cache
def method_of(text: str) -> Method:
    """Return the method that a text names.

    Args:
        text: A key of :data:`METHODS`, or ``ax=INTERPRETER``.

    Raises:
        MissingMethodError: If it cannot be played here.
        ValueError: If there is none of this name.
    """
    if text.startswith(f"{AX}="):
        python = text.removeprefix(f"{AX}=")
        ways = everywhere(partial(AxPlayer, python=python))
        return Method(AX, "ax-platform", ways, False, ax_version(python))
    if text not in METHODS:
        raise ValueError(f"method is {text!r}; it must be one of {', '.join([*METHODS, AX])}.")
    METHODS[text].check()
    return METHODS[text]
