"""Faults that ``guarantee()`` once had, each put back by a patch; the campaign must find them all.

A fault is found if the settings that can show it are refuted, or, where it is one of words or of
arguments that were accepted, if a look at the text finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from unittest import mock

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import botorch_bandits.loop.chooser
import botorch_bandits.loop.guarantees
from botorch_bandits.acquisition.rules import Player as ArmsPlayer
from botorch_bandits.confidence import (
    CandidateEvidence,
    DesignGain,
    GainBound,
    Guarantee,
    igp_ucb,
)
from botorch_bandits.confidence import theorems as words
from botorch_bandits.confidence.facts import Facts
from botorch_bandits.confidence.igp_ucb import KernelizedWidth, RKHSWidth
from botorch_bandits.confidence.width_rules import PriorSummary
from botorch_bandits.core.posterior import Rows
from claims.campaign import tally
from claims.judging import REFUTED
from claims.running import Player, Run
from claims.settings import AXES, LIST, Setting

chooser: Any = botorch_bandits.loop.chooser
guarantees: Any = botorch_bandits.loop.guarantees

BOX = "box, d = 1"

EARLY_LOOKS = {10: 0.1 * REFUTED, 20: 0.1 * REFUTED}
"""Numbers of runs after which most faults are found already, and the level of each look."""

LAST_LEVEL = REFUTED - sum(EARLY_LOOKS.values())
"""All looks together are as rarely wrong as a single one at ``REFUTED`` (Bonferroni)."""

Patch = Callable[[], contextlib.AbstractContextManager[Any]]


def setting(**values: Any) -> Setting:
    """Return an ordinary setting but for some values.

    Args:
        **values: Of fields of :class:`~claims.settings.Setting`.
    """
    fields: dict[str, Any] = {axis: next(iter(AXES[axis])) for axis in AXES}
    fields.update(number=0, method="IGP-UCB, any lam", delta="0.1", lam="0.1", num_arms=8)
    fields.update(num_rounds=40, lengthscale=0.2, norm=1.0, noise_bound=0.3, offset=5.0)
    return Setting(**{**fields, **values})


_LATE: dict[str, Any] = {"num_rounds": 14, "delays": "geometric", "failures": "random"}
_NOW: dict[str, Any] = {"num_rounds": 14}

RUNS = {
    "printed": setting(method="IGP-UCB, printed", lam="1", **_LATE),
    "ignored": setting(feedback="ignored", output_scale="large", lam="0.5", **_LATE),
    "contexts": setting(contexts="random", attached="random", num_initial="3", **_NOW),
    "prior mean": setting(prior_mean="stated", restart="oracle", **_NOW),
    "variation": setting(variation="by arm", **_NOW),
    "AMM": setting(method="AMM", output_scale="small", **_LATE),
    "DMM": setting(method="DMM", noise_bound=0.1, **_LATE),
    "Theorem 1": setting(method="Theorem 1", restart="oracle", **_LATE),
    "Theorem 2": setting(method="Theorem 2", domain=BOX, lengthscale=0.8, num_rounds=5),
    "Theorem 3": setting(method="Theorem 3", output_scale="small", **_NOW),
    "list": setting(method=LIST, **_LATE),
    "censored, printed": setting(
        method="IGP-UCB, printed", lam="1", feedback="censored, window all", **_LATE
    ),
    "censored": setting(feedback="censored, any lam", output_scale="large", lam="30", **_LATE),
    "fill": setting(feedback="censored, middle", **_LATE),
    "separate": setting(
        method="Lagrangian UCB",
        constraints="additive, separate, two",
        num_rounds=14,
        delays="geometric",
    ),
    "Algorithm 2": setting(constraints="multiplicative, fresh, two", **_NOW),
    "Algorithm 3": setting(constraints="additive, fresh, two", **_NOW),
    "Algorithm 3, horizon": setting(
        constraints="additive, fresh, two", horizon="told", output_scale="large", **_NOW
    ),
}
"""Short runs whose numbers are compared with an independent computation."""


@dataclass(frozen=True)
class Fault:
    """A fault and what shows it.

    Attributes:
        name: What is wrong with it.
        patch: Puts it back.
        settings: That can show it.
        is_seen: Looks at the last run of a setting where counting cannot tell; None counts.
    """

    name: str
    patch: Patch
    settings: tuple[Setting, ...]
    is_seen: Callable[[Run], bool] | None = None

    def is_found(self, num_runs: int = 50, seed: int = 0) -> bool:
        """Return whether the campaign finds it.

        Args:
            num_runs: Of each setting, at most.
            seed: Of all runs.
        """
        with self.patch():
            return any(self._shows(each, num_runs, seed) for each in self.settings)

    def is_quiet_without(self, num_runs: int = 50, seed: int = 0) -> bool:
        """Return whether nothing is found in the same settings without the patch.

        Args:
            num_runs: Of each setting.
            seed: Of all runs.
        """
        return not any(self._shows(each, num_runs, seed) for each in self.settings)

    def _shows(self, each: Setting, num_runs: int, seed: int) -> bool:
        player = Player(each, seed)
        if self.is_seen is not None:
            return self.is_seen(player.play(0))
        looks = {look: level for look, level in EARLY_LOOKS.items() if look < num_runs}
        runs: list[Run] = []
        for look, level in {**looks, num_runs: LAST_LEVEL}.items():
            runs += [player.play(run) for run in range(len(runs), look)]
            if any(found.p_value < level for found in tally(runs).values()):
                return True
        return False


# --- patches ------------------------------------------------------------------------------------


@contextmanager
def _patched(*targets: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace functions, and raise an error if none of them is called: then they have moved."""
    called: set[str] = set()

    def noted(name: str, function: Any) -> Any:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            called.add(name)
            return function(*args, **kwargs)

        return call

    with ExitStack() as stack:
        for owner, name, value in targets:
            stack.enter_context(mock.patch.object(owner, name, noted(name, value)))
        yield
    if not called:
        names = ", ".join(f"{owner.__name__}.{name}" for owner, name, _ in targets)
        raise RuntimeError(f"no run calls {names}: patch the function that took its place")


def prior_mean_ignored() -> contextlib.AbstractContextManager[Any]:
    """Bounds on the norm are taken for those of the reward less the prior mean."""

    return facts_of_priors_believed(prior_means=())


def every_round_counted() -> contextlib.AbstractContextManager[Any]:
    """The statement on regret counts rounds that the method did not choose with all at hand."""
    original = guarantees.with_regret

    def believe(guarantee: Guarantee, rounds: Any) -> Guarantee:
        told = original(guarantee, rounds)
        if told.regret is None or told.regret.num_rounds is None:
            return told
        regret = replace(
            told.regret, num_rounds=len(rounds.round), num_others=0, bound_of_others=None
        )
        return replace(told, regret=regret)

    return _patched((guarantees, "with_regret", believe))


def assumptions_dropped(*names: str) -> Patch:
    """Return a patch without some of the assumptions that a loop adds.

    Args:
        *names: Of constants.
    """

    def patch() -> contextlib.AbstractContextManager[Any]:
        original = guarantees._of_acquisition
        dropped = {getattr(words, name) for name in names}

        def forget(*args: Any, **kwargs: Any) -> Guarantee:
            told = original(*args, **kwargs)
            kept = tuple(each for each in told.assumptions if each not in dropped)
            return replace(told, assumptions=kept)

        return _patched((guarantees, "_of_acquisition", forget))

    return patch


def frozen_believed() -> contextlib.AbstractContextManager[Any]:
    """Frozen parameters are taken for parameters that were fixed before the data."""
    return facts_of_priors_believed(is_frozen=False)


def facts_of_priors_believed(**believed: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a patch with other facts of the prior of a model.

    Args:
        **believed: These facts.
    """
    original = PriorSummary.known_to

    def believe(self: PriorSummary, *args: Any, **kwargs: Any) -> Facts:
        return replace(original(self, *args, **kwargs), **believed)

    return _patched((PriorSummary, "known_to", believe))


def without_gaps(guarantee: Guarantee, word: str) -> Guarantee:
    """Return a guarantee without the gaps in which a word occurs.

    Args:
        guarantee: Of a width.
        word: In the text of the gaps.
    """

    def kept(gaps: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(gap for gap in gaps if word not in gap)

    statements: dict[str, Any] = {
        name: replace(each, gaps=kept(each.gaps)) for name, each in guarantee.statements.items()
    }
    return replace(guarantee, gaps=kept(guarantee.gaps), **statements)


def gaps_believed(word: str, *owners: tuple[Any, str]) -> Patch:
    """Return a patch without the gaps in which a word occurs.

    Args:
        word: In the text of the gaps.
        *owners: Of functions that return guarantees, and their names.
    """

    def believing(original: Callable[..., Guarantee]) -> Callable[..., Guarantee]:
        return lambda *args: without_gaps(original(*args), word)

    return lambda: _patched(
        *((owner, name, believing(getattr(owner, name))) for owner, name in owners)
    )


def any_points_believed() -> contextlib.AbstractContextManager[Any]:
    """A bound on the gain of a few points is believed on a box."""
    return _patched((GainBound, "gaps_on", lambda self, *args: []))


def restarts_believed() -> contextlib.AbstractContextManager[Any]:
    """Restarts by a detector take nothing away."""
    return _patched((guarantees, "_of_restarts", lambda *args: {}))


def only_the_most_probable() -> contextlib.AbstractContextManager[Any]:
    """Of a list of priors the most probable one is taken for the true one."""

    def believe(self: CandidateEvidence, level: float) -> Any:
        weights = self.posterior_weights
        return weights == weights.max()

    return _patched((CandidateEvidence, "in_force", believe))


def predicted_in_hindsight() -> contextlib.AbstractContextManager[Any]:
    """The evidence counts how well an outcome is predicted by who has seen it."""
    original = ArmsPlayer._weigh

    def believe(self: ArmsPlayer, rows: Rows) -> None:
        evidence, known = self.evidence.copied(), len(self._weighed)
        original(self, rows)
        for i in range(known, len(rows)):
            self.posterior = posterior = self.posterior.at(rows[: i + 1])
            arm, outcome = int(rows.index[i]), float(rows.Y[i, 0])
            variance = posterior.variance[:, arm] + posterior.lam
            moments = (posterior.mean[:, 0, arm].numpy(), variance.numpy())
            evidence.update(self.recipe.groups.log_densities(outcome, *moments))
        self.evidence = evidence

    return _patched((ArmsPlayer, "_weigh", believe))


def variation_ignored() -> contextlib.AbstractContextManager[Any]:
    """Functions that vary do not widen the band."""
    return _patched((igp_ucb, "width_of_variation", lambda v, rows, lam: torch.zeros_like(lam)))


def earlier_models_believed() -> contextlib.AbstractContextManager[Any]:
    """What the models of earlier epochs lack is not asked."""
    return _patched((chooser, "other_epochs", lambda *args: []))


def gain_of_another_noise() -> contextlib.AbstractContextManager[Any]:
    """The gain before a run is that of observations with a hundred times the noise."""
    original = DesignGain.on

    def believe(choices: Tensor, kernel: Kernel, lam: float) -> DesignGain:
        return original(choices, kernel, 100.0 * lam)

    return _patched((DesignGain, "on", believe))


def _drawn(**values: Any) -> Setting:
    return setting(
        method="Theorem 1", kernel="Matern 1/2", lengthscale=0.1, num_rounds=12, **values
    )


def _listed(**values: Any) -> Setting:
    return setting(**{"method": LIST, "delta": "0.3", "num_rounds": 20, **values})


_FEW = {
    "method": "DMM",
    "num_arms": 5,
    "num_rounds": 120,
    "noise_bound": 1.0,
    "norm": 0.5,
    "noise": "two-point",
}
"""Where outcomes are left out by their noise, few arms show it soonest."""

FAULTS = (
    Fault(
        "a prior mean is ignored",
        prior_mean_ignored,
        (
            setting(prior_mean="unstated", num_rounds=15),
            setting(prior_mean="unstated", method="AMM", num_rounds=15),
            setting(prior_mean="unstated", method="DMM", num_rounds=15),
        ),
    ),
    Fault(
        "rounds with pending outcomes count for the regret",
        every_round_counted,
        (
            setting(feedback="hallucinated", delays="fixed", num_rounds=15),
            setting(method="IRGP-UCB", delays="fixed", num_rounds=15),
        ),
    ),
    Fault(
        "initial rounds count as played by the method",
        every_round_counted,
        (
            setting(num_initial="3", num_rounds=15),
            setting(method="Theorem 2", domain=BOX, num_initial="3", num_rounds=6),
        ),
    ),
    Fault(
        "failures may depend on the noise",
        assumptions_dropped("FAILURES_IGNORE_NOISE"),
        (setting(failures="by noise", **_FEW),),
    ),
    Fault(
        "arrivals may depend on the noise",
        assumptions_dropped("ARRIVALS_IGNORE_NOISE"),
        (setting(delays="by noise", feedback="ignored", **_FEW),),
    ),
    Fault(
        "attached outcomes may depend on the noise",
        assumptions_dropped("ATTACHED_IGNORE_NOISE"),
        (setting(attached="by noise", **_FEW),),
    ),
    Fault(
        "contexts may reveal a function that is drawn",
        assumptions_dropped("CONTEXTS_IGNORE_FUNCTION"),
        (_drawn(contexts="adversarial", num_arms=5, delta="0.3"),),
    ),
    Fault(
        "frozen parameters are believed to be fixed before the data",
        frozen_believed,
        (
            setting(model="fitted, frozen", method="Theorem 1", lengthscale=0.1, num_rounds=12),
            setting(
                model="fitted, frozen",
                method="AMM",
                lengthscale=0.1,
                num_rounds=12,
                noise_bound=0.05,
                lam="0.01",
                norm=5.0,
            ),
        ),
    ),
    Fault(
        "a bound on the gain below the realized gain is believed",
        gaps_believed("gain", (KernelizedWidth, "guarantee"), (RKHSWidth, "guarantee")),
        (
            setting(
                method="IGP-UCB, gain too small",
                num_arms=40,
                lengthscale=0.1,
                noise_bound=1.0,
                norm=0.5,
                lam="0.01",
                noise="Gaussian",
                num_rounds=60,
            ),
        ),
    ),
    Fault(
        "a bound on the gain of a few points is believed on a box",
        any_points_believed,
        (setting(method="Theorem 3", domain=BOX, num_rounds=6),),
        is_seen=lambda run: run.holds,
    ),
    Fault(
        "theorems on constraints are claimed with contexts",
        gaps_believed("none is stated here with contexts", (guarantees, "_of_epochs")),
        (setting(constraints="additive, fresh", contexts="random", num_rounds=6),),
        is_seen=lambda run: run.holds,
    ),
    Fault(
        "functions that vary do not widen the band",
        variation_ignored,
        (setting(variation="against the band", noise_bound=0.05, norm=0.5),),
    ),
    Fault(
        "the models of earlier epochs are not asked",
        earlier_models_believed,
        (
            setting(
                models="of epochs",
                constraints="multiplicative, fresh",
                method="IGP-UCB, printed",
                kernel="Matern 1/2",
                lam="0.5",
                num_rounds=8,
            ),
        ),
        is_seen=lambda run: "violation, guaranteed" in run.text,
    ),
    Fault(
        "the gain before a run is that of another noise",
        gain_of_another_noise,
        (setting(horizon="told", num_rounds=20),),
    ),
    Fault(
        "restarts by a detector take nothing away",
        restarts_believed,
        (setting(restart="change points", norm=5.0, noise_bound=0.05, lam="0.01", num_rounds=40),),
    ),
    Fault(
        "the printed width is believed below lam = 1",
        gaps_believed("is below 1", (KernelizedWidth, "guarantee")),
        (setting(method="IGP-UCB, printed", lam="0.01", noise_bound=1.0, norm=0.5, num_rounds=25),),
    ),
    Fault(
        "of a list of priors the most probable one is taken for the true one",
        only_the_most_probable,
        (_listed(num_arms=20, lengthscale=0.1, num_rounds=8),),
    ),
    Fault(
        "the evidence of a list of priors looks at outcomes before it predicts them",
        predicted_in_hindsight,
        (_listed(num_arms=20, lengthscale=0.1, num_rounds=40, lam="0.01", delta="0.2"),),
    ),
)
"""All faults."""
