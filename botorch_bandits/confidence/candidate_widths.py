"""The confidence bands of a list of priors, and what is proved about them.

:mod:`botorch_bandits.confidence.candidates` has the evidence, the survivors and the proof;
:class:`~botorch_bandits.CandidatesUpperConfidenceBound` uses the bands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_one_of, check_positive, check_probability
from botorch_bandits.confidence.diagnosis import check_model
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.gp_ucb import gp_ucb_compact_width
from botorch_bandits.confidence.guarantee import Guarantee, RegretStatement, Statement
from botorch_bandits.confidence.hypotheses import (
    DRAWN_FROM_LIST,
    FIXED_AFTER_FIRST,
    FIXED_LIST,
    GAUSSIAN_NOISE_ON_LIST,
)
from botorch_bandits.confidence.ingredients import THEOREMS, ingredients

FORMS = ("survivors", "mixture")
"""The forms: the largest bound of the survivors, or the bound of the mixture."""

SMOOTHNESS = ("smoothness_a", "smoothness_b")
"""The ingredients of the width of Theorem 2 that may differ between priors."""

MIXTURE_WIDTH = 2.0
"""The constant width if no ingredient of a width is given."""

MOST_ROWS_CHECKED = 2000
"""With more outcomes, a guarantee does not compare them with what the priors predicted."""


CONSTANT_WIDTH = (
    "the width is a constant (given as width=, or 2 because nothing else is given), which no "
    "theorem covers; on a box pass smoothness_a= and smoothness_b= (Theorem 2), on arms num_arms= "
    "(Theorem 1), which a loop on Arms fills in unless width= is given"
)
"""Why a constant width has no guarantee, whether it was given or is the default on a box."""


class CandidateWidths:
    """The confidence bands of a list of priors, in each round.

    Args:
        options: The arguments of :class:`~botorch_bandits.CandidatesUpperConfidenceBound` by name,
            None for those that were left out; survivors and bands get half of ``delta`` each.

    Raises:
        ValueError: If ingredients do not match the form, belong to more than one width, or some of
            those of Theorem 2 are missing.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """See the class."""
        self.form = form = check_one_of("form", options["form"], FORMS)
        self.delta = check_probability("delta", options["delta"])
        given = ingredients("CandidatesUpperConfidenceBound", options)
        if form == "mixture" and given.keys() - {"width"}:
            raise ValueError(
                "form='mixture' has a constant width; leave num_arms=, smoothness_a=, "
                "smoothness_b=, dim= and side_length= out."
            )
        self.given = given or {"width": MIXTURE_WIDTH}
        self.num_arms, self.on_box = given.get("num_arms"), "dim" in given
        self._rule: Any = None  # on a box, the width differs between priors
        if not self.on_box:
            self._rule = THEOREMS[tuple(self.given)](delta=self.level, **self.given)

    @property
    def level(self) -> float:
        """The level of the survivors, half of ``delta``; the bands have the other half."""
        return 0.5 * self.delta

    def in_round(self, round_number: int, scales: NDArray[np.float64]) -> float | NDArray[Any]:
        """Return the width of each prior's band, or one for all.

        Args:
            round_number: ``t``, from 1.
            scales: The output scale of each prior.
        """
        if self._rule is not None:
            return float(self._rule.width(None, round_number))
        a, b = (one_each(name, self.given[name], len(scales)) for name in SMOOTHNESS)
        dim, side_length = self.given["dim"], self.given["side_length"]
        b = b / torch.from_numpy(scales).sqrt()
        return gp_ucb_compact_width(dim, round_number, self.level, side_length, a, b).numpy()

    def bounds(
        self,
        model: Any,
        mean: Tensor,
        variance: Tensor,
        width: float | NDArray[np.float64],
    ) -> tuple[Tensor, Tensor]:
        """Return the lower and the upper bound, ``...`` each.

        Args:
            model: What has the evidence, and the ``recipe`` of the list: a model or a player.
            mean: ``G x ...`` posterior means of the groups of priors.
            variance: ``G x ...`` posterior variances.
            width: The result of :meth:`in_round`.
        """
        groups, evidence = model.recipe.groups, model.evidence
        if self.form == "survivors":
            return groups.bounds(mean, variance, width, evidence.numpy_in_force(self.level))
        center, spread = groups.mixture(mean, variance, evidence.numpy_posterior_weights())
        half = spread.sqrt() * float(width)
        return center - half, center + half

    def guarantee(self, model: Any, assume: Collection[str], facts: Facts = ALONE) -> Guarantee:
        """Return what is proved about the bands.

        Args:
            model: The list and the outcomes that have arrived.
            assume: The assumptions that a user vouches for; see :data:`.ASSUMABLE`.
            facts: What is known of the use.
        """
        if self.form == "mixture":
            return Guarantee(
                method="upper confidence bound of the mixture of a list of priors",
                gaps=("no theorem covers the mixture; form='survivors' has one",),
            )
        count = model.recipe.num_candidates
        if "width" in self.given:
            return Guarantee(
                method="upper confidence bound of a list of priors",
                gaps=(CONSTANT_WIDTH,),
            )
        constants = {
            "delta": self.delta,
            "delta_of_survivors": self.level,
            "delta_of_bands": self.level,
            "num_candidates": float(count),
            "num_survivors": float(model.evidence.numpy_survivors(self.level).sum()),
        }
        fixed: tuple[str, ...] = (FIXED_LIST,)
        if model.recipe.num_skipped:
            fixed = (
                f"everything is conditional on the first {model.recipe.num_skipped} outcomes, "
                "which chose the list; the rounds until then are not covered",
                FIXED_AFTER_FIRST,
            )
        theorem, tail, added = "Theorem 1", 0.0, ""
        where = "on all arms (with contexts: at the context of each round)"
        needed: tuple[str, ...] = (
            "the acquisition is maximized over at most num_arms arms, fixed before the data",
        )
        if self.num_arms is not None:
            constants["num_arms"] = float(self.num_arms)
        else:
            in_force = model.evidence.numpy_in_force(self.level)
            theorem = "Theorem 2"
            tail = float(np.sqrt(model.recipe.groups.scales[in_force]).max())
            added = ", plus the prior standard deviation times 1 / t^2"
            where = (
                "at the point of the round and on a discretization that grows with it; not at all "
                "points at once"
            )
            needed = (
                "for each dimension j the largest |df/dx_j| over the box (and over all contexts, "
                "if there are any) exceeds L with probability at most a exp(-(L/b)^2), for every "
                "L, with the smoothness_a and smoothness_b of the true prior for a and b",
                "the acquisition is maximized over a box of at most dim dimensions, with sides of "
                "at most side_length, fixed before the data",
            )
        guarantee = Guarantee(
            method="upper confidence bound of the survivors of a list of priors",
            theorem=f"Ville's inequality and Srinivas et al. 2010, {theorem}, each at delta / 2",
            bands=Statement(
                facts.say(
                    "with {probability} {subject} lies between the least lower and the largest "
                    "upper bound of the priors that survive, {computed}in {rounds}, {where}",
                    where=where,
                ),
                delta=self.delta,
                reach=None if self.on_box else "arms",
            ),
            regret=RegretStatement(
                facts.say(
                    "with {probability}, on the same event, {regret_of} every round t that "
                    "{optimizes} is at most the distance of the bounds at the point that it chose, "
                    "which is twice the effective width times standard deviation{added}",
                    added=added,
                ),
                delta=self.delta,
                factor=2.0,
                tail=tail,
            ),
            assumptions=(facts.say(DRAWN_FROM_LIST), *fixed, GAUSSIAN_NOISE_ON_LIST, *needed),
            constants=constants,
            is_drawn=True,
        )
        after = model.evidence.refuted_after(self.level)
        if after is not None:
            guarantee = guarantee.with_gaps(
                f"after {after} outcomes all {count} priors on the list were refuted at level "
                f"{self.level:g}"
            )
        reasons = (
            f"hyperparameters may have been learned from the same outcomes: {each}"
            for learned in model.recipe.learned
            for each in learned
            if not (each == "frozen parameters" and "fixed prior" in assume)
        )
        return replace(guarantee.with_gaps(*reasons), notes=notes_on_list(model))


def one_each(name: str, value: float | Sequence[float], count: int) -> Tensor:
    """Return one number for each prior on a list.

    Args:
        name: The name of the argument, for error messages.
        value: One number for all, or one per prior.
        count: The number of priors.

    Raises:
        ValueError: If the number of entries differs.
    """
    given: Any = value if np.ndim(value) else [value]
    entries = [check_positive(name, each) for each in given]
    if np.ndim(value) and len(entries) != count:
        raise ValueError(
            f"{name} has {len(entries)} entries, but {count} priors are on the list; give one "
            "number for all, or one per prior."
        )
    return torch.tensor(entries, dtype=DTYPE).expand(count)


def notes_on_list(model: Any) -> tuple[str, ...]:
    """Return what the outcomes say against the likeliest prior on a list, if anything.

    Evidence compares priors with the list as a whole, so that it does not tell whether all of them
    are wrong; how well the likeliest predicted the outcomes does.

    Args:
        model: The list and the outcomes that have arrived.
    """
    if model.num_rows > MOST_ROWS_CHECKED:
        return ()
    try:
        check = check_model(model)
    except (TypeError, ValueError, RuntimeError):
        return ()  # the likeliest is a model of the user's own, whose prior cannot be read
    name, notes = model.evidence.names[int(model.evidence.posterior_weights.argmax())], []
    if check.finding in ("overconfident", "changed", "mean off"):
        notes.append(
            f"the data speak against the list as a whole, of whose priors {name!r} is the "
            f"likeliest. {check.verdict} If none of the priors is the true one, nothing above is "
            "guaranteed"
        )
    if check.is_uncorrelated:
        notes.append(
            f"under {name!r}, the likeliest prior on the list, half of the points have a "
            f"correlation of at most {check.nearest_correlation:.2g} with every other, so that "
            "outcomes say nothing about other points; lengthscales must be in the units of the "
            "inputs, and candidate_grid takes one for each input"
        )
    return tuple(notes)
