"""The widths of a list of priors, what is proved about their bounds, and what the data say to it.

:class:`CandidateWidths` are the widths of Srinivas et al. at half of delta; the other half
eliminates priors. The functions here add to a guarantee what pending points, entries that may have
been learned and outcomes that no prior predicts mean for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import (
    check_integer,
    check_nonnegative,
    check_positive,
    check_probability,
)
from botorch_bandits.confidence.gp_ucb import gp_ucb_compact_width, gp_ucb_finite_width
from botorch_bandits.confidence.guarantee import (
    DRAWN_FROM_LIST,
    FIXED_AFTER_FIRST,
    FIXED_LIST,
    GAUSSIAN_NOISE_ON_LIST,
    Guarantee,
    RegretStatement,
    Statement,
    at_posterior_mean,
)
from botorch_bandits.models.candidates import CandidatesModel
from botorch_bandits.models.model_check import check_model

FORMS = ("survivors", "mixture")
"""The forms: the largest bound of the survivors, or the bound of the mixture."""

INGREDIENTS = ("num_arms", "smoothness_a", "smoothness_b", "dim", "side_length")
"""The ingredients of widths with a theorem."""

MIXTURE_WIDTH = 2.0
"""The number of deviations of the mixture that are added if no width is given."""

MOST_ROWS_CHECKED = 2000
"""With more outcomes, a guarantee does not compare them with what the priors predicted."""


CONSTANT_WIDTH = (
    "the width is a constant (given as width=, or 2 because nothing else is given), which no "
    "theorem covers; on a box pass smoothness_a= and smoothness_b= (Theorem 2), on arms num_arms= "
    "(Theorem 1), which a loop on Arms fills in unless width= is given"
)
"""Why a constant width has no guarantee, whether it was given or is the default on a box."""


class CandidateWidths:
    """The widths of the confidence bands of a list of priors, in each round.

    Args:
        num_arms: ``|D|`` of Theorem 1.
        smoothness_a: ``a`` of Theorem 2, one number or one per prior.
        smoothness_b: ``b`` of Theorem 2, in raw outcome units per unit of input; one number or one
            per prior.
        dim: ``d`` of Theorem 2.
        side_length: ``r`` of Theorem 2.
        width: A constant width.
        delta: The failure probability of survivors and bands together; each gets half of it.

    Raises:
        ValueError: If ingredients of more than one width are given, or only some of the ingredients
            of Theorem 2.
    """

    def __init__(
        self,
        num_arms: int | None,
        smoothness_a: float | Sequence[float] | None,
        smoothness_b: float | Sequence[float] | None,
        dim: int | None,
        side_length: float | None,
        width: float | None,
        delta: float,
    ) -> None:
        """See the class."""
        self.delta = check_probability("delta", delta)
        of_box = {
            "smoothness_a": smoothness_a,
            "smoothness_b": smoothness_b,
            "dim": dim,
            "side_length": side_length,
        }
        missing = [name for name, value in of_box.items() if value is None]
        on_box = len(missing) < len(of_box)
        kinds = (num_arms is not None) + on_box + (width is not None)
        if kinds != 1 or (on_box and missing):
            raise ValueError(
                "give the ingredients of exactly one width: num_arms= (finitely many arms); "
                "smoothness_a=, smoothness_b=, dim= and side_length= (a box); or width= (a "
                f"constant, without a theorem). Got num_arms={num_arms}, width={width}, "
                + ", ".join(f"{name}={value}" for name, value in of_box.items())
                + "."
            )
        self.num_arms = None if num_arms is None else check_integer("num_arms", num_arms, minimum=1)
        self.width = None if width is None else check_nonnegative("width", width)
        self.on_box = on_box
        self._of_box = of_box

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
        if self.width is not None:
            return self.width
        if self.num_arms is not None:
            return float(gp_ucb_finite_width(self.num_arms, round_number, self.level))
        a = one_each("smoothness_a", self._of_box["smoothness_a"], len(scales))  # type: ignore[arg-type]
        b = one_each("smoothness_b", self._of_box["smoothness_b"], len(scales))  # type: ignore[arg-type]
        dim, side_length = self._of_box["dim"], self._of_box["side_length"]
        known: dict[tuple[float, float], float] = {}
        widths = []
        for key in zip(a.tolist(), (b / np.sqrt(scales)).tolist(), strict=True):
            if key not in known:
                known[key] = float(
                    gp_ucb_compact_width(dim, round_number, self.level, side_length, *key)  # type: ignore[arg-type]
                )
            widths.append(known[key])
        return np.array(widths)

    def guarantee(self, model: CandidatesModel, round_number: int) -> Guarantee:
        """Return what is proved about the bands of the survivors.

        Args:
            model: The list and the outcomes that have arrived.
            round_number: ``t``.
        """
        count = model.recipe.num_candidates
        if self.width is not None:
            return Guarantee(
                method="upper confidence bound of a list of priors",
                gaps=(CONSTANT_WIDTH,),
            )
        where = (
            "at the point of the round and on a discretization that grows with it; not at all "
            "points at once"
            if self.on_box
            else "on all arms (with contexts: at the context of each round)"
        )
        in_force = model.evidence.numpy_in_force(self.level)
        tail = float(np.sqrt(model.recipe.groups.scales[in_force]).max()) if self.on_box else 0.0
        added = ", plus the prior standard deviation times 1 / t^2" if self.on_box else ""
        constants = {
            "delta": self.delta,
            "delta_of_survivors": self.level,
            "delta_of_bands": self.level,
            "num_candidates": float(count),
            "num_survivors": float(model.evidence.numpy_survivors(self.level).sum()),
        }
        if self.num_arms is not None:
            constants["num_arms"] = float(self.num_arms)
        skipped = model.recipe.num_skipped
        fixed: tuple[str, ...] = (FIXED_LIST,)
        if skipped:
            fixed = (
                f"everything is conditional on the first {skipped} outcomes, which chose the list; "
                "the rounds until then are not covered",
                FIXED_AFTER_FIRST,
            )
        assumptions: list[str] = [DRAWN_FROM_LIST, *fixed, GAUSSIAN_NOISE_ON_LIST]
        if self.on_box:
            assumptions += [
                "for each dimension j the largest |df/dx_j| over the box (and over all contexts, "
                "if there are any) exceeds L with probability at most a exp(-(L/b)^2), for every "
                "L, with the smoothness_a and smoothness_b of the true prior for a and b",
                "the acquisition is maximized over a box of at most dim dimensions, with sides of "
                "at most side_length, fixed before the data",
            ]
        else:
            assumptions.append(
                "the acquisition is maximized over at most num_arms arms, fixed before the data"
            )
        theorem = "Theorem 2" if self.on_box else "Theorem 1"
        guarantee = Guarantee(
            method="upper confidence bound of the survivors of a list of priors",
            theorem=f"Ville's inequality and Srinivas et al. 2010, {theorem}, each at delta / 2",
            bands=Statement(
                "with {probability} the reward lies between the least lower and the largest upper "
                f"bound of the priors that survive, in all rounds, {where}",
                delta=self.delta,
                reach=None if self.on_box else "arms",
            ),
            regret=RegretStatement(
                "with {probability}, on the same event, the regret of every round t that "
                "maximizes the upper confidence bound is at most the distance of the bounds at the "
                "point that it chose, which is twice the effective width times standard deviation"
                + added,
                delta=self.delta,
                factor=2.0,
                tail=tail,
            ),
            assumptions=tuple(assumptions),
            constants=constants,
        )
        after = model.evidence.refuted_after(self.level)
        if after is not None:
            guarantee = guarantee.with_gaps(
                f"after {after} outcomes all {count} priors on the list were refuted at level "
                f"{self.level:g}"
            )
        return replace(guarantee, notes=notes_on_list(model))


def one_each(name: str, value: float | Sequence[float], count: int) -> NDArray[np.float64]:
    """Return one positive number for each prior on a list.

    Args:
        name: The name of the argument, for error messages.
        value: One number for all, or one per prior.
        count: The number of priors.

    Raises:
        ValueError: If the number of entries differs, or one is not positive.
    """
    values = np.asarray(value)
    if values.ndim and len(values) != count:
        raise ValueError(
            f"{name} has {len(values)} entries, but {count} priors are on the list; give one "
            "number for all, or one per prior."
        )
    return np.array([check_positive(name, each) for each in np.broadcast_to(values, count)])


def notes_on_list(model: CandidatesModel) -> tuple[str, ...]:
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
    z, notes = check.one_step, []
    name = model.evidence.names[int(model.evidence.posterior_weights.argmax())]
    if check.is_uncorrelated:
        notes.append(
            f"under {name!r}, the likeliest prior on the list, half of the points have a "
            f"correlation of at most {check.nearest_correlation:.2g} with every other, so that "
            "outcomes say nothing about other points; lengthscales must be in the units of the "
            "inputs, and candidate_grid takes one for each input"
        )
    if check.finding == "overconfident":
        told = f"outcomes vary {float(z.square().mean().sqrt()):.3g} times as much as it predicts"
    elif check.finding == "changed" and check.growth is not None:
        grown = float(z[slice(*check.growth)].square().mean().sqrt())
        told = (
            f"from outcome {check.growth[0] + 1} on, outcomes vary {grown:.3g} times as much as it "
            "predicts, as they do after a change of the reward"
        )
    elif check.finding == "mean off":
        told = (
            f"outcomes lie {abs(float(z.mean())):.3g} predicted standard deviations from its mean "
            "on average, all to one side"
        )
    else:
        return tuple(notes)
    return (
        f"the data speak against the list as a whole: of its priors {name!r} is the likeliest, and "
        f"{told} (models.check_model has the details); if none of the priors is the true one, "
        "nothing above is guaranteed",
        *notes,
    )


def with_pending(guarantee: Guarantee, X_pending: Tensor | None, remedy: str = "") -> Guarantee:
    """Return what remains of the guarantee of a list while points are pending.

    Pending points choose the next point, but they do not enter ``bounds(X)``, which remain valid
    for whatever point is chosen.

    Args:
        guarantee: The guarantee without pending points.
        X_pending: The pending points, or None.
        remedy: What bounds the regret all the same.
    """
    if X_pending is None:
        return guarantee
    gap = at_posterior_mean(len(X_pending))
    if guarantee.theorem is None:
        return guarantee.with_gaps(gap)
    by = "computed from the outcomes that have arrived (as bounds(X) does), in all rounds"
    return guarantee.with_wording("bands", "in all rounds", by).with_gaps(
        f"{gap}, so the point that is chosen need not have the largest upper bound{remedy}",
        of="regret",
    )


def make_widths(
    form: str, ingredients: tuple[Any, ...], width: float | None, delta: float
) -> CandidateWidths:
    """Return the widths of a form; a constant width if nothing is given.

    Args:
        form: One of :data:`FORMS`.
        ingredients: The arguments in :data:`INGREDIENTS`, None for those that were left out.
        width: A constant width, or None.
        delta: The failure probability of survivors and bands together.

    Raises:
        ValueError: If ingredients do not match the form, or belong to more than one width.
    """
    if form == "mixture":
        if any(each is not None for each in ingredients):
            raise ValueError(
                "form='mixture' has a constant width; leave num_arms=, smoothness_a=, "
                "smoothness_b=, dim= and side_length= out."
            )
        return CandidateWidths(
            None, None, None, None, None, MIXTURE_WIDTH if width is None else width, delta
        )
    if width is None and all(each is None for each in ingredients):
        width = MIXTURE_WIDTH
    num_arms, smoothness_a, smoothness_b, dim, side_length = ingredients
    return CandidateWidths(num_arms, smoothness_a, smoothness_b, dim, side_length, width, delta)


def reasons_learned(learned: Sequence[str], assume: tuple[str, ...]) -> list[str]:
    """Return why an entry of a list is not a prior that was fixed before the data.

    Args:
        learned: What was, or could have been, learned from the same data.
        assume: The assumptions that the user vouches for.
    """
    return [
        f"hyperparameters may have been learned from the same outcomes: {each}"
        for each in learned
        if not (each == "frozen parameters" and "fixed prior" in assume)
    ]
