r"""Upper confidence bounds and Thompson sampling on a list of priors, one of which is true.

**Survivors.** The widths :math:`w_t` of Srinivas et al. at level :math:`\delta / 2` and the priors
``S`` that survive at level :math:`\delta / 2` give the bounds

.. math::
   U_t(x) = \max_{\theta \in S} \mu_\theta(x) + w_t \sigma_\theta(x), \qquad
   L_t(x) = \min_{\theta \in S} \mu_\theta(x) - w_t \sigma_\theta(x).

``U`` is maximized. With probability :math:`1 - \delta` the reward lies between the two in all
rounds, as :mod:`botorch_bandits.confidence.candidates` proves: on all arms, or on a box in the
sense stated by :meth:`CandidatesUpperConfidenceBound.guarantee`. The regret of a round that played
:math:`x_t`, chosen by any rule, is therefore at most :math:`\max_x U_t(x) - L_t(x_t)`.

**Mixture.** The posterior weights :math:`p_\theta` give the moments of the mixture

.. math::
   m = \sum_\theta p_\theta \mu_\theta, \qquad
   v = \sum_\theta p_\theta \bigl( \sigma_\theta^2 + (\mu_\theta - m)^2 \bigr)

and :math:`m + w \sqrt v` is maximized. No theorem covers it.

**Thompson sampling.** A prior is drawn according to the posterior weights, then a function is drawn
from its posterior.

Sources: Srinivas, Krause, Kakade and Seeger, ICML 2010, for the widths; Ville 1939 for the
survivors. Other rules on lists: Ziomek, Adachi and Osborne 2024; Sandberg and Chehreghani 2025.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.acquisition.base import (
    BanditAcquisition,
    check_columns,
    check_model,
    check_points,
    copy_pending,
    of_acquisition,
)
from botorch_bandits.acquisition.draws import SeededDraw
from botorch_bandits.acquisition.rules import ArmsRule, ListArmsRule
from botorch_bandits.acquisition.scores import Bounds
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling
from botorch_bandits.acquisition.upper_confidence_bound import (
    THEOREMS,
    ingredients,
    wanted_by_theorem,
)
from botorch_bandits.checks import (
    check_double,
    check_one_of,
    check_positive,
    check_probability,
    counted,
)
from botorch_bandits.confidence import PriorSummary
from botorch_bandits.confidence.diagnosis import check_model as check_predictions
from botorch_bandits.confidence.gp_ucb import gp_ucb_compact_width
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
from botorch_bandits.confidence.width_rules import check_assume
from botorch_bandits.models.candidates import CandidatesModel
from botorch_bandits.models.reading import LEAST_VARIANCE
from botorch_bandits.random_streams import derive_seed

if TYPE_CHECKING:
    from botorch_bandits.acquisition.player import Player


def check_list_model(model: Model) -> CandidatesModel:
    """Check that a model has a list of priors, and return it.

    Raises:
        TypeError: If it is not a list of priors, or not float64.
    """
    if not isinstance(model, CandidatesModel):
        raise TypeError(
            f"model is a {type(model).__name__}, but a list of priors is needed. Build it with "
            "BanditGP.with_candidates([...])(X, Y), or CandidatesModel.from_models([...])."
        )
    check_model(model)
    return model


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


REMEDY = "; regret_bound(x, choices) bounds the regret of this round for any choice"
"""What bounds the regret on arms while points are pending."""


class CandidateWidths:
    """The confidence bands of a list of priors, in each round.

    Args:
        options: The arguments of :class:`CandidatesUpperConfidenceBound` by name, None for those
            that were left out; the survivors and the bands each get half of ``delta``.

    Raises:
        ValueError: If ingredients do not match the form, belong to more than one width, or some of
            those of Theorem 2 are missing.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """See the class."""
        self.form = form = check_one_of("form", options["form"], FORMS)
        self.delta = check_probability("delta", options["delta"])
        given = ingredients(CandidatesUpperConfidenceBound, options)
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
        # many priors have the same width
        pairs, which = np.unique(np.stack([a, b / np.sqrt(scales)]), axis=1, return_inverse=True)
        each = [
            float(gp_ucb_compact_width(dim, round_number, self.level, side_length, *pair))
            for pair in pairs.T.tolist()
        ]
        return np.array(each)[which]

    def bounds(
        self,
        model: CandidatesModel | Player,
        mean: Tensor,
        variance: Tensor,
        width: float | NDArray[np.float64],
    ) -> tuple[Tensor, Tensor]:
        """Return the lower and the upper bound, ``...`` each.

        Args:
            model: What has the evidence, and the ``recipe`` of the list.
            mean: ``G x ...`` posterior means of the groups of priors.
            variance: ``G x ...`` posterior variances.
            width: The result of :meth:`in_round`.
        """
        groups, evidence = model.recipe.groups, model.evidence
        if self.form == "survivors":
            return groups.bounds(mean, variance, width, evidence.numpy_in_force(self.level))
        center, spread = groups.mixture(mean, variance, evidence.numpy_posterior_weights())
        half = spread.clamp_min(LEAST_VARIANCE).sqrt() * float(width)
        return center - half, center + half

    def guarantee(self, model: CandidatesModel) -> Guarantee:
        """Return what is proved about the bands.

        Args:
            model: The list and the outcomes that have arrived.
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
        check = check_predictions(model)
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


class CandidatesUpperConfidenceBound(BanditAcquisition):
    r"""Upper confidence bound on a list of priors: the largest bound among those that survive.

    Hyperparameters may be learned within the list: :meth:`guarantee` holds although the same
    outcomes select among the priors. The prior from which the reward is drawn must be on the list.

    Pending points shrink the deviations used to choose the next point, under each prior, but do not
    count as evidence. :meth:`bounds` and :meth:`regret_bound`, which certify regret, use only the
    outcomes that have arrived; they remain valid while points are pending, with the width of the
    round after the pending ones.

    Args:
        model: From :meth:`BanditGP.with_candidates`, or ``CandidatesModel.from_models``.
        form: ``"survivors"``, which has a theorem, or ``"mixture"``, which has none and uses the
            mean and deviation of the mixture of all priors with their posterior weights.
        delta: The bounds fail with at most this probability: half of it for eliminating the true
            prior, half for its band.
        num_arms: ``|D|`` of Theorem 1; in a loop on arms it may be omitted.
        smoothness_a: ``a`` of Theorem 2: partial derivatives of a draw from a prior exceed ``L``
            with probability at most ``a exp(-(L/b)^2)``; one number, or one per prior.
        smoothness_b: ``b`` of Theorem 2, in raw outcome units per unit of input; one number, or one
            per prior.
        dim: ``d`` of Theorem 2; in a loop on a box it may be omitted.
        side_length: ``r`` of Theorem 2, the longest side; in a loop on a box it may be omitted.
        width: A constant width instead of one from a theorem; 2 if no ingredient is given, or with
            ``form="mixture"``.
        round_number: The round ``t`` of the first point that is chosen: outcomes plus pending
            points plus 1 if omitted.
        maximize: If False, the reward is minimized: the value is minus the least lower bound.
        assume: Assumptions that you vouch for because they cannot be read from a model.
            ``"fixed prior"``: the frozen parameters of your own models were fixed before the data.
        X_pending: ``n x d`` points whose outcomes have not arrived.

    Raises:
        TypeError: If ``model`` is not a list of priors, or a tensor is not float64.
        ValueError: If ingredients of more than one width are given, or only some of the ingredients
            of one width.

    Warns:
        RefutedListWarning: If no prior survives. All priors are then used, and nothing is
            guaranteed.

    Example:
        >>> from botorch_bandits import BanditGP
        >>> from botorch_bandits.models import candidate_grid
        >>> X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
        >>> model = BanditGP.with_candidates(candidate_grid([0.1, 0.5], scales=[1.0, 4.0]))(X, X**2)
        >>> acqf = CandidatesUpperConfidenceBound(model, num_arms=100, delta=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([5])
        >>> acqf.guarantee().holds
        True
    """

    defines_rule: ClassVar[bool] = True
    base_model: CandidatesModel
    maximize: bool

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        form: str = "survivors",
        delta: float = 0.1,
        num_arms: int | None = None,
        smoothness_a: float | Sequence[float] | None = None,
        smoothness_b: float | Sequence[float] | None = None,
        dim: int | None = None,
        side_length: float | None = None,
        width: float | None = None,
        round_number: int | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        given = {**locals()}
        listed = check_list_model(model)
        super().__init__(listed)
        self.base_model = listed
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self.assume = check_assume(assume)
        self.widths = CandidateWidths(given)
        self._summary = PriorSummary(model, None, self.assume)
        self._start_rounds(round_number, X_pending)
        self.set_X_pending(X_pending)

    @classmethod
    def wanted_from_domain(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the number of arms, or the shape of the box, if the theorem in use needs it.

        Args:
            options: See the base class.
        """
        return () if options["form"] == "mixture" else wanted_by_theorem(options)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule:
        check_one_of("maximize", options["maximize"], (True, False))
        check_assume(options["assume"])
        return ListArmsRule(CandidateWidths(options), options["maximize"])

    @property
    def is_refuted(self) -> bool:
        """Whether no prior on the list survives."""
        return not bool(self.survivors.any())

    @property
    def survivors(self) -> Tensor:
        """Which priors on the list survive, one ``bool`` each."""
        return self.base_model.evidence.survivors(self.widths.level)

    @property
    def X_baseline(self) -> Tensor:
        """``n x d`` points near which an optimizer should also start; the name is BoTorch's.

        Raises:
            AttributeError: If there are none yet.
        """
        if self.base_model.num_rows == 0:
            raise AttributeError("without data there are no points to start near.")
        return self.base_model.X_baseline

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points, starting again from the model of the outcomes that have arrived.

        The widths are then for the round after the pending ones.

        Args:
            X_pending: ``n x d`` points; None for none.

        Raises:
            TypeError: If the points are not float64.
            ValueError: If the shape is not ``n x d``, or a number is not finite.

        Warns:
            RefutedListWarning: If none of the priors whose evidence counts survives.
        """
        pending = copy_pending(X_pending, self.base_model)
        self.model = self.base_model if pending is None else self.base_model.hallucinated(pending)
        AcquisitionFunction.set_X_pending(self, pending)
        scales = self.base_model.recipe.groups.scales
        self._width_in_round = self.widths.in_round(self.round_number, scales)
        if self.widths.form == "survivors":
            self.base_model.evidence.in_force(self.widths.level)  # warns if all are refuted

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            X: ``batch_shape x q x d`` points, float64. With ``q > 1``, the value is the sum of the
                bounds of the points, each computed as if the points before it were pending.

        Returns:
            Values in outcome units, ``batch_shape``.

        Raises:
            TypeError: If ``X`` is not float64.
        """
        check_points(self, X)
        return self._evaluate(X)

    @t_batch_mode_transform(assert_output_shape=False)
    def _evaluate(self, X: Tensor) -> Tensor:
        return self._values(X).sum(-1)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and the upper confidence bound from the outcomes that have arrived.

        Args:
            X: ``... x d`` points.

        Returns:
            ``...`` each, in outcome units.

        Raises:
            TypeError: If ``X`` is not float64.
            ValueError: If its columns differ from those of the model.
        """
        check_columns("X", check_double("X", X), self.base_model)
        return self._bounds(self.base_model, X)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self.base_model.mixture(X)
        return mean, variance.clamp_min(0.0).sqrt()

    def known_at(self, X: Tensor) -> Bounds:
        return Bounds(*self.moments(X), *self.bounds(X))

    def _values(self, X: Tensor) -> Tensor:
        """Return ``batch_shape x q`` values, each as if the points before it were pending."""
        if X.shape[-2] == 1:
            lower, upper = self._bounds(self.model, X)
            return upper if self.maximize else -lower
        mean, variance = self.model.group_moments_one_by_one(X)
        scales, each = self.base_model.recipe.groups.scales, []
        for i in range(X.shape[-2]):
            width = self.widths.in_round(self.round_number + i, scales)
            here = (mean[..., i], variance[..., i])
            lower, upper = self.widths.bounds(self.model, *here, width)
            each.append(upper if self.maximize else -lower)
        return torch.stack(each, dim=-1)

    def regret_bound(self, x: Tensor, choices: Tensor | None = None) -> float:
        r"""Return the bound on the regret of this round if a given point is played.

        It is :math:`\max_x U_t(x) - L_t(x_t)`, computed from the outcomes that have arrived, and it
        holds no matter which rule chose the point, and while points are pending as well. If
        ``guarantee().bands`` does not hold, it is not a bound. If it is no smaller than the
        difference between the largest and the smallest outcome, it says no more than they do.

        Args:
            x: The point that is played, ``d``-dimensional.
            choices: ``num_arms x d`` arms; the regret is against the best of them. None if the
                point maximizes the upper bound, as it does on a box if no points are pending; the
                term that Theorem 2 adds is included.

        Raises:
            TypeError: If a tensor is not float64.
            ValueError: If points are pending and ``choices`` are left out, there are more of them
                than ``num_arms``, or ``x`` is none of them.
        """
        if choices is not None:
            self._check_choice(x, choices)
        elif self.X_pending is not None:
            raise ValueError(
                f"{counted(len(self.X_pending), 'point is', 'points are')} pending, so x need not "
                "maximize the upper bound of the outcomes that have arrived. Pass the arms as "
                "choices=."
            )
        with torch.no_grad():
            lower, upper = self.bounds(x)
            best, worst = float(upper), float(lower)
            if choices is not None:
                lowest, highest = self.bounds(choices)
                best = float(highest.max())
                if not self.maximize:
                    best, worst = float(upper), float(lowest.min())
        return best - worst + self.tail

    def _check_choice(self, x: Tensor, choices: Tensor) -> None:
        """Raise an error unless a point is one of the arms for which the bounds hold."""
        check_columns("choices", check_double("choices", choices), self.base_model)
        num_arms = self.widths.num_arms
        if num_arms is None:
            return
        if len(choices) > num_arms:
            raise ValueError(
                f"choices has {len(choices)} points, but the width is for num_arms={num_arms}. "
                "Build the acquisition function with the number of all arms."
            )
        if not bool((choices == x.reshape(1, -1)).all(-1).any()):
            raise ValueError(
                f"x is {x.reshape(-1).tolist()}, which is none of the {len(choices)} choices, so "
                "the bounds need not hold there. Pass one of the choices."
            )

    @property
    def tail(self) -> float:
        """The amount that the discretization adds to the regret of this round; 0 on arms."""
        if not self.widths.on_box:
            return 0.0
        scales = self.base_model.recipe.groups.scales
        scales = scales[self.base_model.evidence.numpy_in_force(self.widths.level)]
        return math.sqrt(float(scales.max())) / self.round_number**2

    def _bounds(self, model: CandidatesModel, X: Tensor) -> tuple[Tensor, Tensor]:
        return self.widths.bounds(model, *model.group_moments(X), self._width_in_round)

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this bound with this list, or why none does."""
        guarantee = self.widths.guarantee(self.base_model)
        if guarantee.theorem is not None:
            reasons = [
                f"hyperparameters may have been learned from the same outcomes: {each}"
                for learned in self.base_model.recipe.learned
                for each in learned
                if not (each == "frozen parameters" and "fixed prior" in self.assume)
            ]
            guarantee = guarantee.with_gaps(*reasons)
        if self.X_pending is not None:
            gap = at_posterior_mean(len(self.X_pending))
            if guarantee.theorem is None:
                guarantee = guarantee.with_gaps(gap)
            else:  # pending points choose the next one, but bounds(X) are those of what arrived
                guarantee = guarantee.with_wording(
                    "bands",
                    "in all rounds",
                    "computed from the outcomes that have arrived (as bounds(X) does), in all "
                    "rounds",
                ).with_gaps(
                    f"{gap}, so the point that is chosen need not have the largest upper bound"
                    f"{'' if self.widths.on_box else REMEDY}",
                    of="regret",
                )
        guarantee = guarantee if self.maximize else guarantee.for_minimizing()
        return of_acquisition(self, guarantee)

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean and deviation of the mixture, effective width, bounds and survivors.

        A mixture is never refuted. The effective width is half the distance between the bounds, in
        deviations of the mixture.

        Args:
            x: A ``d``-dimensional point.
        """
        known = super().describe(x)
        with torch.no_grad():
            lower, upper = (float(bound) for bound in self.bounds(x))
        deviation = max(known["standard_deviation"], math.sqrt(LEAST_VARIANCE))
        return {
            **known,
            "width": 0.5 * (upper - lower) / deviation,
            "lower_bound": lower,
            "upper_bound": upper,
            "num_survivors": float(self.survivors.sum()),
            "is_refuted": float(self.widths.form == "survivors" and self.is_refuted),
        }


class CandidatesThompsonSampling(SeededDraw):
    """Thompson sampling on a list of priors: it draws a prior by posterior weight, then a function.

    The same draw is used in every evaluation until pending points are set, which triggers a new
    draw of the prior and the function. No theorem is stated for this rule here.

    Args:
        model: From :meth:`BanditGP.with_candidates`, or ``CandidatesModel.from_models``.
        choices: ``num_points x d`` points for exact draws; only these points can then be evaluated.
            In a loop on arms, they are the arms. Without choices, the draw is pathwise.
        maximize: If False, the value is minus the value of the draw.
        X_pending: ``n x d`` points whose outcomes have not arrived.
        seed: Makes the draws reproducible; taken from torch's global generator if omitted.

    Raises:
        TypeError: If ``model`` is not a list of priors, or a tensor is not float64.
        UnsupportedError: If the kernel of the prior that is drawn has no pathwise draws in BoTorch
            (in that case, pass ``choices``).

    Attributes:
        entry: The number of the prior that was drawn.

    Example:
        >>> from botorch_bandits import BanditGP
        >>> from botorch_bandits.models import candidate_grid
        >>> X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
        >>> model = BanditGP.with_candidates(candidate_grid([0.1, 0.5]))(X, X**2)
        >>> acqf = CandidatesThompsonSampling(model, choices=X, seed=0)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([5])
    """

    defines_rule: ClassVar[bool] = True
    pending: ClassVar[str] = "redraw"

    def __init__(
        self,
        model: Model,
        *,
        choices: Tensor | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        listed = check_list_model(model)
        super().__init__(listed)
        self.base_model = listed
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self._prepare_draws(choices, seed)
        self.set_X_pending(X_pending)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule:
        return ListArmsRule(None, check_one_of("maximize", options["maximize"], (True, False)))

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Draw again, both the prior and the function; see the base class.

        Args:
            X_pending: ``n x d`` points, or None.
        """
        super().set_X_pending(X_pending)
        self.entry, self.draw = self._function(0)

    def _function(self, num_redraws: int) -> tuple[int, GPThompsonSampling]:
        """Return the prior and the function after the given number of further draws."""
        if num_redraws not in self._drawn:
            draw = derive_seed(self.seed, self._num_draws + num_redraws, "candidate")
            generator = torch.Generator().manual_seed(draw)
            weights = self.base_model.evidence.posterior_weights
            entry = int(torch.multinomial(weights, 1, generator=generator))
            drawn = GPThompsonSampling(
                self.base_model.member(entry),
                width=1.0,
                choices=self.choices,
                maximize=self.maximize,
                seed=draw,
            )
            self._drawn[num_redraws] = entry, drawn
        found: tuple[int, GPThompsonSampling] = self._drawn[num_redraws]
        return found

    def _evaluate(self, X: Tensor, ahead: int = 0) -> Tensor:
        return self._function(ahead)[1](X)

    def guarantee(self) -> Guarantee:
        """Report that no theorem is stated."""
        return Guarantee(
            method="Thompson sampling on a list of priors",
            gaps=("no theorem is claimed for a draw of the prior by its posterior weight",),
        )

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return what is known about the draw at one point.

        Args:
            x: A ``d``-dimensional point.
        """
        check_points(self, x.unsqueeze(0))
        return {**self.draw.describe(x), "candidate": float(self.entry)}
