"""Faults that are planted by a patch each; all of them must be found.

Those that ``guarantee()`` once had are found by play: the settings that can show one are refuted,
or, where it is one of words or of arguments that were accepted, a look at the text finds it.
Others change a formula, or the set of rounds that a statement covers, by so little that no number
moves by more than 30 percent or one round. The oracle finds them: an independent computation of the
numbers that a short run prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import botorch_bandits.acquisition.lagrangian
import botorch_bandits.loop.chooser
import botorch_bandits.loop.guarantees
from botorch_bandits.acquisition.rules import Player as ArmsPlayer
from botorch_bandits.change_points import Restart
from botorch_bandits.confidence import (
    CandidateEvidence,
    DesignGain,
    GainBound,
    Guarantee,
    RidgeConfidenceSet,
    gp_ucb,
    igp_ucb,
)
from botorch_bandits.confidence import theorems as words
from botorch_bandits.confidence.dmm import RidgeTerms
from botorch_bandits.confidence.igp_ucb import BoundedNorm, KernelizedWidth, RKHSWidth
from botorch_bandits.confidence.width_rules import PriorSummary
from botorch_bandits.core.posterior import Rows
from botorch_bandits.history import History
from claims.building import Plan
from claims.campaign import tally
from claims.judging import REFUTED
from claims.oracle import deviations
from claims.running import Player, Run
from claims.settings import AXES, LIST, Setting

chooser: Any = botorch_bandits.loop.chooser
guarantees: Any = botorch_bandits.loop.guarantees
lagrangian: Any = botorch_bandits.acquisition.lagrangian

BOX = "box, d = 1"

EARLY_LOOKS = {10: 0.1 * REFUTED, 20: 0.1 * REFUTED}
"""Numbers of runs after which most faults are found already, and the level of each look."""

LAST_LEVEL = REFUTED - sum(EARLY_LOOKS.values())
"""All looks together are as rarely wrong as a single one at ``REFUTED`` (Bonferroni)."""

Patch = tuple[Any, str, Callable[..., Any]]
"""What has a function, the name of the function, and what takes its place."""


def setting(**values: Any) -> Setting:
    """Return an ordinary setting but for some values.

    Args:
        **values: Of fields of :class:`~claims.settings.Setting`.
    """
    fields: dict[str, Any] = {axis: next(iter(AXES[axis])) for axis in AXES}
    fields.update(number=0, method="IGP-UCB, any lam", delta="0.1", lam="0.1", num_arms=8)
    fields.update(num_rounds=40, lengthscale=0.2, norm=1.0, noise_bound=0.3, offset=5.0)
    return Setting(**{**fields, **values})


def _late(**values: Any) -> Setting:
    return _at_once(delays="geometric", failures="random", **values)


def _at_once(**values: Any) -> Setting:
    return setting(num_rounds=14, **values)


RUNS = {
    "printed": _late(method="IGP-UCB, printed", lam="1"),
    "ignored": _late(feedback="ignored", output_scale="large", lam="0.5"),
    "contexts": _at_once(contexts="random", attached="random", num_initial="3"),
    "prior mean": _at_once(prior_mean="stated", restart="oracle"),
    "variation": _at_once(variation="by arm"),
    "AMM": _late(method="AMM", output_scale="small"),
    "DMM": _late(method="DMM", noise_bound=0.1),
    "Theorem 1": _late(method="Theorem 1", restart="oracle"),
    "Theorem 2": setting(method="Theorem 2", domain=BOX, lengthscale=0.8, num_rounds=5),
    "Theorem 3": _at_once(method="Theorem 3", output_scale="small"),
    "list": _late(method=LIST),
    "window": _late(method="IGP-UCB, printed", lam="1", feedback="censored, window all"),
    "censored": _late(feedback="censored, any lam", output_scale="large", lam="50"),
    "fill": _late(feedback="censored, middle"),
    "separate": _at_once(
        method="Lagrangian UCB", constraints="additive, separate, two", delays="geometric"
    ),
    "Algorithm 2": _at_once(constraints="multiplicative, fresh, two"),
    "Algorithm 3": _at_once(constraints="additive, fresh, two"),
    "horizon": _at_once(constraints="additive, fresh, two", horizon="told", output_scale="large"),
}
"""Short runs whose numbers are compared with an independent computation."""

FILL = Plan(RUNS["fill"]).minimum + 0.5 * Plan(RUNS["fill"]).outcome_bound
"""What pending queries count as there."""


@dataclass(frozen=True)
class Fault:
    """A fault and what shows it.

    Attributes:
        name: What is wrong with it.
        patch: Plants it; see :func:`_patched`.
        settings: That can show it in play; empty if it is too small.
        is_seen: Looks at the last run of a setting where counting cannot tell; None counts.
        run: The name of one of :data:`RUNS`, in which the oracle finds it; empty if none has.
    """

    name: str
    patch: Patch
    settings: tuple[Setting, ...] = ()
    is_seen: Callable[[Run], bool] | None = None
    run: str = ""

    def moved(self) -> dict[str, tuple[float, float]]:
        """Return the numbers that it moves in its run, as printed and as they should be."""
        with _patched(*self.patch):
            return deviations(RUNS[self.run])

    def found_by(self, seed: int = 0) -> list[str]:
        """Return what finds it: the oracle, play, or both.

        Args:
            seed: Of all runs.
        """
        by = {
            "oracle": self.run and self.moved(),
            "play": self.settings and self.is_found(seed=seed),
        }
        return [name for name, is_found in by.items() if is_found]

    def is_found(self, num_runs: int = 50, seed: int = 0) -> bool:
        """Return whether the campaign finds it.

        Args:
            num_runs: Of each setting, at most.
            seed: Of all runs.
        """
        with _patched(*self.patch):
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
def _patched(owner: Any, name: str, change: Callable[..., Any]) -> Iterator[None]:
    """Change a function, and raise an error if it is never called: then it has moved.

    Args:
        owner: What has the function.
        name: Of the function.
        change: Is called with the original function, and the arguments.
    """
    original, called = getattr(owner, name), set()

    @wraps(original)
    def call(*args: Any, **given: Any) -> Any:
        called.add(name)
        return change(original, *args, **given)

    with mock.patch.object(owner, name, call):
        yield
    if not called:
        where = f"{owner.__name__}.{name}"
        raise RuntimeError(f"no run calls {where}: patch the function that took its place")


def gain_of(rows_of: Callable[[Rows], Rows]) -> Patch:
    """Return a patch in which the information gain is that of other rows.

    Args:
        rows_of: Returns them from the rows of the posterior.
    """

    def other_gain(original: Any, player: ArmsPlayer, group: int = 0) -> Tensor:
        rows, posterior = rows_of(player.rows), player.posterior
        K = posterior.prior.among(rows.index)[group] / posterior.lam[group]
        return 0.5 * torch.logdet(torch.eye(len(K)) + K)

    return ArmsPlayer, "gain", other_gain


def stale_radius(original: Any, terms: Any, rows: Any, *given: Any) -> Any:
    """Return the confidence set of DMM with the radius of one row less."""
    found = original(terms, rows, *given)
    if not rows.places.shape[-2]:
        return found
    parts = {"places": rows.places, "counts": rows.counts, "outcomes": rows.outcomes}
    fewer = replace(rows, **{name: part[:-1] for name, part in parts.items()})
    before, ridges = original(terms, fewer, *given), found.ridges.ridges
    now, then = (each.radicands[-1] + each.ridges.fits[-1] for each in (found, before))
    return replace(found, radicands=found.radicands + ridges[-1] * (then - now) / ridges)


def one_missing(original: Any, history: History, *given: Any) -> Any:
    """Return the rounds, and count the first one in which just one outcome was missing."""
    rounds = original(history, *given)
    is_one = [len(history.pending_in(query.round_number)) == 1 for query in history.queries]
    rounds.has_all[is_one.index(True)] = True
    return rounds


def unclamped(original: Any, guarantee: Guarantee, settings: Any, history: History, *a: Any) -> Any:
    """Return the guarantee of epochs with the norm of summed constraints of both signs."""
    told, norm = original(guarantee, settings, history, *a), history.constraints().sum(0).norm()
    return replace(told, violation=replace(told.violation, bound=float(norm)))


def evenly_weighted(original: Any, evidence: CandidateEvidence, new: Any) -> None:
    """Add outcomes to the evidence as if all priors had one weight."""
    evidence.weights = 0.0 * evidence.weights + 1.0 / len(evidence.weights)
    original(evidence, new)


def every_round_counted(original: Any, guarantee: Guarantee, rounds: Any) -> Any:
    """The statement on regret counts rounds that the method did not choose with all at hand."""
    told = original(guarantee, rounds)
    if told.regret is None or told.regret.num_rounds is None:
        return told
    counts = {"num_rounds": len(rounds.round), "num_others": 0, "bound_of_others": None}
    return replace(told, regret=replace(told.regret, **counts))


def assumptions_dropped(*names: str) -> Patch:
    """Return a patch without some of the assumptions that a loop adds.

    Args:
        *names: Of constants.
    """
    dropped = {getattr(words, name) for name in names}

    def forget(original: Any, *given: Any) -> Guarantee:
        told = original(*given)
        kept = tuple(each for each in told.assumptions if each not in dropped)
        return replace(told, assumptions=kept)

    return guarantees, "_of_acquisition", forget


def facts_believed(**believed: Any) -> Patch:
    """Return a patch with other facts of the prior of a model.

    Args:
        **believed: These facts.
    """
    return (
        PriorSummary,
        "known_to",
        lambda own, *args, **given: replace(own(*args, **given), **believed),
    )


def gaps_believed(word: str, owner: Any, name: str) -> Patch:
    """Return a patch without the gaps in which a word occurs.

    Args:
        word: In the text of the gaps.
        owner: Of a function that returns a guarantee.
        name: Of this function.
    """

    def kept(each: Any) -> Any:
        return replace(each, gaps=tuple(gap for gap in each.gaps if word not in gap))

    def believe(original: Any, *given: Any) -> Any:
        told = kept(original(*given))
        return replace(told, **{name: kept(each) for name, each in told.statements.items()})

    return owner, name, believe


def only_the_most_probable(original: Any, evidence: CandidateEvidence, level: float) -> Any:
    """Of a list of priors the most probable one is taken for the true one."""
    return evidence.posterior_weights == evidence.posterior_weights.max()


def predicted_in_hindsight(original: Any, player: ArmsPlayer, rows: Rows) -> None:
    """The evidence counts how well an outcome is predicted by who has seen it."""
    evidence, known = player.evidence.copied(), len(player._weighed)
    original(player, rows)
    for i in range(known, len(rows)):
        player.posterior = posterior = player.posterior.at(rows[: i + 1])
        arm, outcome = int(rows.index[i]), float(rows.Y[i, 0])
        variance = posterior.variance[:, arm] + posterior.lam
        moments = (posterior.mean[:, 0, arm].numpy(), variance.numpy())
        evidence.update(player.recipe.groups.log_densities(outcome, *moments))
    player.evidence = evidence


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
        facts_believed(prior_means=()),
        (
            setting(prior_mean="unstated", num_rounds=15),
            setting(prior_mean="unstated", method="AMM", num_rounds=15),
            setting(prior_mean="unstated", method="DMM", num_rounds=15),
        ),
    ),
    Fault(
        "rounds with pending outcomes count for the regret",
        (guarantees, "with_regret", every_round_counted),
        (
            setting(feedback="hallucinated", delays="fixed", num_rounds=15),
            setting(method="IRGP-UCB", delays="fixed", num_rounds=15),
        ),
    ),
    Fault(
        "initial rounds count as played by the method",
        (guarantees, "with_regret", every_round_counted),
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
        facts_believed(is_frozen=False),
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
        gaps_believed("gain", KernelizedWidth, "guarantee"),
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
        (GainBound, "gaps_on", lambda *given: []),
        (setting(method="Theorem 3", domain=BOX, num_rounds=6),),
        is_seen=lambda run: run.holds,
    ),
    Fault(
        "theorems on constraints are claimed with contexts",
        gaps_believed("none is stated here with contexts", guarantees, "_of_epochs"),
        (setting(constraints="additive, fresh", contexts="random", num_rounds=6),),
        is_seen=lambda run: run.holds,
    ),
    Fault(
        "functions that vary do not widen the band",
        (igp_ucb, "width_of_variation", lambda own, v, rows, lam: torch.zeros_like(lam)),
        (setting(variation="against the band", noise_bound=0.05, norm=0.5),),
    ),
    Fault(
        "the models of earlier epochs are not asked",
        (chooser, "other_epochs", lambda *given: []),
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
        (DesignGain, "on", lambda own, choices, kernel, lam: own(choices, kernel, 100.0 * lam)),
        (setting(horizon="told", num_rounds=20),),
    ),
    Fault(
        "restarts by a detector take nothing away",
        (guarantees, "_of_restarts", lambda *given: {}),
        (setting(restart="change points", norm=5.0, noise_bound=0.05, lam="0.01", num_rounds=40),),
    ),
    Fault(
        "the printed width is believed below lam = 1",
        gaps_believed("is below 1", KernelizedWidth, "guarantee"),
        (setting(method="IGP-UCB, printed", lam="0.01", noise_bound=1.0, norm=0.5, num_rounds=25),),
    ),
    Fault(
        "of a list of priors the most probable one is taken for the true one",
        (CandidateEvidence, "in_force", only_the_most_probable),
        (_listed(num_arms=20, lengthscale=0.1, num_rounds=8),),
    ),
    Fault(
        "the evidence of a list of priors looks at outcomes before it predicts them",
        (ArmsPlayer, "_weigh", predicted_in_hindsight),
        (_listed(num_arms=20, lengthscale=0.1, num_rounds=40, lam="0.01", delta="0.2"),),
    ),
    Fault(
        "IGP-UCB's gain is one row short",
        gain_of(lambda rows: rows[:-1]),
        run="printed",
    ),
    Fault(
        "R is not divided by the root of lam",
        (
            BoundedNorm,
            "width_at",
            lambda own, norm, gain: own(
                replace(norm, noise_bound=norm.noise_bound * norm.lam**0.5), gain
            ),
        ),
        (setting(lam="0.01", noise_bound=1.0, norm=0.5, num_rounds=25),),
        run="ignored",
    ),
    Fault(
        "AMM's determinant is that of the distinct arms",
        gain_of(Rows.collapsed),
        run="AMM",
    ),
    Fault(
        "the radius of DMM is one row stale",
        (RidgeTerms, "confidence_set", stale_radius),
        run="DMM",
    ),
    Fault(
        "the ridge search leaves out its smallest ridge",
        (
            RidgeConfidenceSet,
            "bounds",
            lambda own, found, *given: own(
                replace(
                    found, radicands=found.radicands.index_fill(-1, torch.tensor(0), torch.inf)
                ),
                *given,
            ),
        ),
        run="DMM",
    ),
    Fault(
        "Theorem 1 is one round behind",
        (
            gp_ucb,
            "gp_ucb_finite_width",
            lambda own, round_number, **given: own(round_number=max(round_number - 1, 1), **given),
        ),
        run="Theorem 1",
    ),
    Fault(
        "Theorem 2 has the lengthscale in place of its inverse",
        (
            gp_ucb,
            "gp_ucb_compact_width",
            lambda own, smoothness_b, **given: own(smoothness_b=2.0 / smoothness_b, **given),
        ),
        run="Theorem 2",
    ),
    Fault(
        "Theorem 3 has the norm in units of outcomes",
        (
            RKHSWidth,
            "width",
            lambda own, rule, summary, t: own(
                replace(rule, rkhs_bound=rule.rkhs_bound * summary.scalar_variance**0.5), summary, t
            ),
        ),
        run="Theorem 3",
    ),
    Fault(
        "the noise of censored feedback leaves out B_y",
        (
            BoundedNorm,
            "width_at",
            lambda own, norm, gain: own(replace(norm, outcome_bound=0.0), gain),
        ),
        (
            setting(
                feedback="censored, any lam",
                failures="random",
                lam="0.01",
                noise_bound=0.01,
                num_arms=3,
                num_rounds=40,
            ),
        ),
        run="censored",
    ),
    Fault(
        "a fill's gain is that of observed rows",
        gain_of(lambda rows: rows[(rows.Y[:, 0] - FILL).abs() > 1e-9]),
        run="fill",
    ),
    Fault(
        "segments share delta like 1 / k",
        (
            Restart,
            "share_of_delta",
            lambda own, rule, delta, segment: own(rule, delta, 0) / (segment + 1),
        ),
        run="Theorem 1",
    ),
    Fault(
        "delta is not split over outputs",
        (
            lagrangian,
            "output_rules",
            lambda own, name, n, given: own(name, n, {**given, "delta": n * given["delta"]}),
        ),
        run="separate",
    ),
    Fault(
        "the regret of Algorithm 3 leaves out the noise of multipliers",
        (
            guarantees,
            "_largest_noise_sum",
            lambda own, squares, R, delta: own(squares, R if delta < 0.025 else 0.0, delta),
        ),
        run="Algorithm 3",
    ),
    Fault(
        "constraints that are met lower the violation no more than they raise it",
        (guarantees, "with_epochs", unclamped),
        run="Algorithm 2",
    ),
    Fault(
        "the evidence leaves out the weights of a list",
        (CandidateEvidence, "_add", evenly_weighted),
        run="list",
    ),
    Fault(
        "a round with one missing outcome counts",
        (guarantees, "rounds_of", one_missing),
        (setting(delays="fixed", num_rounds=15),),
        run="AMM",
    ),
    Fault(
        "functions that vary add their variation once",
        (
            igp_ucb,
            "guarantee_of",
            lambda own, theorem, facts, *args, **given: own(
                theorem, replace(facts, variation=0.5 * facts.variation), *args, **given
            ),
        ),
        (
            setting(
                variation="against the band",
                delta="0.01",
                norm=0.01,
                noise_bound=0.001,
                lam="10",
                num_rounds=3,
            ),
        ),
        run="variation",
    ),
)
"""All faults."""
