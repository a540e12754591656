r"""DMM, the tightest of the known confidence bounds, as an acquisition function and on arms.

.. math:: U(x) = \min_a \; \mu_a(x) + s_a(x) \sqrt{(r_t^2 + a B^2 - a y^\top (K + a I)^{-1} y) / a}

over a grid of ridges ``a`` that includes infinity; both forms use
:mod:`botorch_bandits.confidence.dmm`, which gives the derivation. On arms, observations of one arm
enter through their mean: with ``N`` the counts of the distinct arms, the nonzero eigenvalues of the
kernel matrix of all observations are those of ``N^1/2 K N^1/2``, and the variation among the
outcomes of one arm cancels in the radicand.

Source: Flynn and Reeb, *Tighter confidence bounds for sequential kernel regression*, arXiv
2403.12732, 2024.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble, t_batch_mode_transform
from torch import Tensor

from botorch_bandits.acquisition.base import (
    HallucinatesPending,
    check_model,
    check_points,
    copy_pending,
    of_acquisition,
)
from botorch_bandits.acquisition.rules import ArmsRule, Seen
from botorch_bandits.acquisition.scores import (
    Bounds,
    prior_variance_of_scalar,
    scale_in_outcomes,
)
from botorch_bandits.acquisition.wide_confidence import WarnsOfWideness
from botorch_bandits.checks import (
    check_integer,
    check_nonnegative,
    check_one_of,
    check_positive,
    check_probability,
    counted,
)
from botorch_bandits.confidence import (
    Guarantee,
    PriorSummary,
    RidgeConfidenceSet,
    UnreadablePriorError,
)
from botorch_bandits.confidence.dmm import (
    OutputData,
    RidgeTerms,
    RowsOfOutput,
    narrow,
    read_data,
)
from botorch_bandits.confidence.guarantee import (
    AS_OBSERVED,
    RegretStatement,
    Statement,
    of_any_round,
)
from botorch_bandits.confidence.igp_ucb import (
    FIRST_ROW,
    check_noise_bound,
    complete_bounds,
    gaps_of_defaults,
    noise_assumptions,
    told_in_prior_units,
)
from botorch_bandits.confidence.prior_assumptions import (
    kernel_assumptions,
    largest_regret,
    norm_assumption,
    prior_gaps,
)
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE, check_assume, check_bounds
from botorch_bandits.core.ridges import largest_first
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.reading import OneByOneModel, hallucinate, on_device_of, variance_of

SMALLEST_RADICAND = 0.05
"""Below this share of the squared norm the set is nearly empty: ends may cross, and a bound at one
ridge need not be above the bound."""

MARGIN = 1e-6
"""Arms this close to the largest bound are evaluated, in prior standard deviations."""


class _ArmsRows(NamedTuple):
    """What a round knows, in outcome units less the prior mean; ``A`` arms.

    Attributes:
        rows: The rows; their places are the numbers of arms, then their fronts.
        columns: Maps places and ``k`` arms to their ``batch_shape x n x k`` covariances.
        prior_variance: ``A``.
    """

    rows: RowsOfOutput
    columns: Callable[[Tensor, Tensor], Tensor]
    prior_variance: Tensor


def _rows_of(seen: Seen) -> _ArmsRows:
    """Return the rows of a round: the only place that knows where they are kept."""
    posterior, prior = seen.posterior, seen.posterior.prior
    if seen.batch_shape:
        return _rows_of_replicates(seen)
    rows = posterior.collapsed
    index = rows.index.unsqueeze(-1).to(rows.Y)

    def parts(places: Tensor) -> tuple[Tensor, Tensor | None]:
        return places[:, 0].long(), None if rows.front is None else places[:, 1:]

    return _ArmsRows(
        RowsOfOutput(
            seen.summary.active_priors[0],
            index if rows.front is None else torch.cat([index, rows.front], dim=-1),
            rows.noise.reciprocal(),
            rows.Y[:, 0] - seen.prior_mean,
            lambda places, others: prior.block(*parts(places), *parts(others))[0],
            seen.player.memo,
        ),
        lambda places, at: prior.columns(*parts(places), seen.now)[0][:, at],
        prior.variances(seen.now)[0],
    )


def _rows_of_replicates(seen: Seen) -> _ArmsRows:
    prior, rows = seen.posterior.prior, seen.player.rows_of_draw(seen.posterior)
    counts = rows.noise.reciprocal()  # num_replicates x number of arms
    order = (counts > 0.0).to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
    order = order[:, : int((counts > 0.0).sum(-1).max())]
    counts = counts.gather(-1, order)  # 0 where a replicate played fewer arms
    means = rows.Y[..., 0].gather(-1, order)

    def columns(places: Tensor, at: Tensor) -> Tensor:
        return prior.columns(places.squeeze(-1).long())[..., at]

    def covariance(places: Tensor, others: Tensor) -> Tensor:
        whole = prior.columns(places.squeeze(-1).long())
        at = others.squeeze(-1).long().unsqueeze(-2)
        return whole.gather(-1, at.expand(*whole.shape[:-1], at.shape[-1]))

    return _ArmsRows(
        RowsOfOutput(
            seen.summary.active_priors[0],
            rows.index[order].unsqueeze(-1).to(means),
            counts,
            means - seen.prior_mean,
            covariance,
            None,
        ),
        columns,
        prior.variances()[0],
    )


@dataclass(frozen=True, eq=False)
class _DMMRound:
    """The confidence set of a round, and the arms.

    Attributes:
        found: The set.
        arms: Its rows and the arms.
        prior_mean: What was subtracted from the outcomes.
    """

    found: RidgeConfidenceSet
    arms: _ArmsRows
    prior_mean: float

    def ends(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bound of ``k`` arms, ``batch_shape x k`` each."""
        cross = self.arms.columns(self.found.ridges.places, index).mT
        prior = self.arms.prior_variance[index].expand(*cross.shape[:-1])
        lower, upper = self.found.bounds(cross, prior)
        return lower + self.prior_mean, upper + self.prior_mean

    @cached_property
    def of_all(self) -> tuple[Tensor, Tensor]:
        """The bounds of all arms, ``batch_shape x A`` each."""
        prior = self.arms.prior_variance
        return self.ends(torch.arange(len(prior), device=prior.device))

    @property
    def is_nearly_empty(self) -> bool:
        """Whether the set is so small that its ends may meet."""
        share = self.found.radicands.amin(-1) / self.found.rkhs_bound**2
        return bool((share < SMALLEST_RADICAND).any())


@dataclass(frozen=True, eq=False)
class DMMArmsRule(ArmsRule):
    """The upper bound by DMM, or minus the lower one when minimizing.

    Attributes:
        terms: What is known of the function and the noise.
        maximize: If False, the reward is minimized.
    """

    terms: RidgeTerms
    maximize: bool

    def prepare(self, seen: Seen) -> _DMMRound:
        """Return the set of the observed data; whether these refute the assumptions is reported."""
        arms = _rows_of(seen)
        found, _ = self.terms.confidence_set(arms.rows)
        if not self.terms.doubles and bool(found.is_refuted.any()):
            smallest = float(found.smallest_rkhs_bound.max())
            self.terms.report_refutation(smallest * seen.prior_deviation, smallest)
        return _DMMRound(found, arms, seen.prior_mean)

    def scores(self, seen: Seen) -> Tensor:
        known = seen.prepared
        if seen.batch_shape or seen.pending is not None or known.is_nearly_empty:
            lower, upper = self.bounds(seen)
            return upper if self.maximize else -lower
        # the bound at the ridge of the model, whose posterior is at hand, is above the bound
        sign = 1.0 if self.maximize else -1.0
        furthest = known.found.rkhs_bound * known.arms.prior_variance.sqrt()
        half = (seen.variance * known.found.radicands[-1]).sqrt()
        centered = sign * (seen.mean - seen.prior_mean)
        scores = torch.minimum(centered + half, furthest) + sign * seen.prior_mean
        among = torch.arange(len(scores)) if seen.among is None else seen.among

        def exact(some: Tensor) -> Tensor:
            lower, upper = known.ends(among[some])
            return upper if self.maximize else -lower

        scores[among] = largest_first(scores[among], exact, MARGIN * seen.prior_deviation)
        return scores

    def bounds(self, seen: Seen) -> tuple[Tensor, Tensor]:
        lower, upper = seen.prepared.of_all
        if seen.pending is not None:
            observed = seen.player.outside(seen.posterior.variance).clamp_min(0.0)
            unit = seen.prior_deviation**2
            lower, upper = narrow(lower, upper, observed / unit, seen.variance / unit)
        return lower, upper

    def describe(self, seen: Seen, arm: Tensor) -> dict[str, Tensor | float]:
        index = arm.unsqueeze(-1)
        if seen.pending is not None:
            ends = [each.gather(-1, index) for each in self.bounds(seen)]
        else:
            ends = list(seen.prepared.ends(index))
        lower, upper = (each.squeeze(-1) for each in ends)
        smallest = seen.prior_share(MINIMUM_VARIANCE)
        deviation = max(seen.variance_at(int(arm)), smallest) ** 0.5
        found = seen.prepared.found
        return {
            "is_refuted": found.is_refuted.to(upper),
            "width": 0.5 * (upper - lower) / deviation,
            "information_gain": found.ridges.information_gain,
        }


class _Known(NamedTuple):
    """What is read from a model: the data, sets and norm bounds of its outputs."""

    data: tuple[OutputData, ...]
    sets: dict[int, RidgeConfidenceSet]
    rkhs_bounds: dict[int, float]


class DMMUpperConfidenceBound(WarnsOfWideness, HallucinatesPending):
    r"""Upper confidence bound by DMM (Flynn and Reeb 2024), the minimum over ridges.

    Recommended when bounds on norm and noise are known: it is never looser than AMM at the model's
    ridge, and far tighter than the widths of the original papers. The noise level of the model
    enters only as ``a_0`` (through ``c = R^2 / lam``, fixed before any data).

    If you know neither bound, omit both. The norm bound is then guessed as 1 prior standard
    deviation and doubled until the data do not refute it, and the noise bound is taken from the
    model. No theorem covers this case, as :meth:`guarantee` reports.

    Args:
        model: An exact Gaussian-process model in float64 without a batch dimension. For an
            ensemble, the value is the average of the bounds of its members.
        rkhs_bound: ``B`` of each output in its unit-variance kernel, in raw outcome units unless
            ``units`` says otherwise. If omitted, 1 prior standard deviation, doubled if needed.
        noise_bound: ``R`` of each output, in the same units; ``"model"`` if omitted. With
            ``"model"``, the noise of each row is bounded by the square root of its noise variance
            in the model (``train_Yvar``); see
            :class:`~botorch_bandits.ImprovedUpperConfidenceBound`. With a number, ``a_0`` is the
            ``lam`` of the first row if the rows differ.
        delta: The bound fails with at most this probability.
        num_ridges: Size of the grid of ridges.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation.
        double_rkhs_bound: If the data refute ``rkhs_bound``, use the first of ``2 B, 4 B, ...``
            that they do not refute. This is a heuristic for an unknown norm and has no theorem.
        on_refuted: ``"warn"`` or ``"raise"``: what to do when the data refute the assumptions.
        posterior_transform: A linear scalarization, required for a model with several outputs.
        maximize: If False, the reward is minimized: the value is minus the lower bound.
        assume: Assumptions that you vouch for because they cannot be read from the model:
            ``"fixed prior"``, ``"centered bound"`` or both; see
            :class:`~botorch_bandits.WidthUpperConfidenceBound`.
        X_pending: ``n x d`` points whose outcomes have not arrived. They shrink the deviations,
            while mean and radius remain those of the observed data. No theorem covers the bound in
            that case.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If an ingredient is infeasible, the model cannot be read, or the assumptions
            are refuted and ``on_refuted="raise"``.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=0.01)
        >>> acqf = DMMUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule: ClassVar[bool] = True

    has_kinks: ClassVar[bool] = True
    """The tightest ridge changes from place to place."""
    _is_narrowed: bool = False
    """Whether some points come after others, which reduces their deviations."""

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        rkhs_bound: float | None = None,
        noise_bound: float | str | None = None,
        delta: float = 0.1,
        units: str = "outcome",
        num_ridges: int = 48,
        double_rkhs_bound: bool = False,
        on_refuted: str = "warn",
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(check_model(model))
        self.terms = _terms_of(
            type(self).__name__,
            rkhs_bound,
            noise_bound,
            delta=delta,
            units=units,
            num_ridges=num_ridges,
            double_rkhs_bound=double_rkhs_bound,
            on_refuted=on_refuted,
        )
        # tensors with one number per replicate are for replicates on arms
        check_positive("rkhs_bound", self.terms.rkhs_bound)
        if not isinstance(self.terms.noise_bound, str):
            check_nonnegative("noise_bound", self.terms.noise_bound)
        self.base_model = model
        self.posterior_transform = on_device_of(model, posterior_transform)
        self.maximize = maximize
        self.assume = check_assume(assume)
        self._summary = PriorSummary(model, self.posterior_transform, self.assume)
        if self.is_refuted:
            smallest = max(float(s.smallest_rkhs_bound.max()) for s in self._known.sets.values())
            self.terms.report_refutation(self.smallest_rkhs_bound, smallest)
        self.set_X_pending(X_pending)
        self.warn_if_wide()

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        names = (
            "rkhs_bound",
            "noise_bound",
            "delta",
            "units",
            "num_ridges",
            "double_rkhs_bound",
            "on_refuted",
        )
        terms = _terms_of(cls.__name__, **{name: options[name] for name in names})
        return DMMArmsRule(terms, options["maximize"])

    @cached_property
    def _known(self) -> _Known:
        """What is read from the model."""
        model = self.base_model
        try:
            active = self._summary.active_outputs
            if self.posterior_transform is None and model.num_outputs != 1:
                raise UnreadablePriorError(
                    f"it has {model.num_outputs} outputs and no posterior_transform"
                )
            data = read_data(model)
        except UnreadablePriorError as error:
            raise error.in_method(
                "DMM works with the kernel and data of the model",
                "Use BanditGP or SingleTaskGP, or ImprovedUpperConfidenceBound with an explicit "
                "width=",
            ) from error
        found = {j: self.terms.confidence_set(data[j], len(active)) for j in active}
        return _Known(
            data,
            {j: confidence_set for j, (confidence_set, _) in found.items()},
            {
                j: float((confidence_set.doubling * self.terms.rkhs_bound * unit).max())
                for j, (confidence_set, unit) in found.items()
            },
        )

    @property
    def delta(self) -> float:
        """The bound fails with at most this probability."""
        return self.terms.delta

    @property
    def rkhs_bounds(self) -> dict[int, float]:
        """The norm bound of each output in raw outcome units, after doubling."""
        return self._known.rkhs_bounds

    @property
    def is_optimistic(self) -> bool:
        return True

    @property
    def value_scale(self) -> ValueScale | None:
        return scale_in_outcomes(self._summary, 1.0 if self.maximize else -1.0)

    @property
    def is_refuted(self) -> bool:
        """Whether the data refute kernel, norm bound and noise bound at level ``delta``."""
        return any(bool(each.is_refuted.any()) for each in self._known.sets.values())

    @property
    def smallest_rkhs_bound(self) -> float:
        """The smallest norm bound that the data do not refute, in raw outcome units."""
        return max(
            float((s.smallest_rkhs_bound * self._known.data[j].prior.standard_deviation).max())
            for j, s in self._known.sets.items()
        )

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the upper bound (minus the lower one when minimizing).

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is the sum of
                their bounds, each computed as if the points before it were pending. No theorem is
                stated for that.

        Returns:
            ``batch_shape`` values in raw outcome units.

        Raises:
            TypeError: If ``X`` is not float64.
        """
        was_training = self.base_model.training
        values = self._value(X)
        if was_training:  # joint posteriors put it into evaluation mode
            self.base_model.train()
        return values

    def _look_ahead(self, view: Any, ahead: OneByOneModel) -> None:
        view._is_narrowed = True

    @t_batch_mode_transform(expected_q=1)
    def _evaluate(self, X: Tensor) -> Tensor:
        lower, upper = self.bounds(X.reshape(-1, X.shape[-1]))
        return (upper if self.maximize else -lower).reshape(X.shape[:-2])

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper confidence bound at some points.

        Args:
            X: ``n x d`` points, float64.

        Returns:
            Two tensors of ``n`` values in raw outcome units; for an ensemble the averages of its
            members' bounds.
        """
        check_points(self, X)
        # without data a stationary prior does not depend on X; its zero gradient must exist
        transform: Any = self.posterior_transform
        offset = 0.0 if transform is None else float(transform.offset)
        total_lower = total_upper = offset + 0.0 * X.sum(-1)
        for j, confidence_set in self._known.sets.items():
            data = self._known.data[j]
            weight = 1.0 if transform is None else float(transform.weights[j])
            points, prior_variance = data.points(X)
            cross = data.covariance(points, confidence_set.ridges.places)
            ends = confidence_set.bounds(cross, prior_variance)
            lower, upper = (data.to_raw(end, points) for end in ends)
            low, high = (lower, upper) if weight > 0 else (upper, lower)
            total_lower = total_lower + weight * low
            total_upper = total_upper + weight * high
        if self._is_narrowed or self.X_pending is not None:
            unit = prior_variance_of_scalar(self._summary) or 1.0
            posteriors = (
                model.posterior(X.unsqueeze(-2), posterior_transform=self.posterior_transform)
                for model in (*self._observed, self.model)
            )
            before, after = (
                variance_of(each, unit).reshape(len(X), *self.base_model.batch_shape) / unit
                for each in posteriors
            )
            total_lower, total_upper = narrow(
                total_lower, total_upper, before.movedim(0, -1), after.movedim(0, -1)
            )
        if is_ensemble(self.base_model):
            return total_lower.mean(0), total_upper.mean(0)
        return total_lower, total_upper

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points, starting again from the user's model.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If the model cannot be conditioned.
        """
        pending = copy_pending(X_pending, self.base_model)
        base = self.base_model
        if pending is not None and base.training:
            base = copy.deepcopy(base)  # BoTorch would put the user's into evaluation mode
        self.model = base if pending is None else hallucinate(base, pending)
        self._observed = (base,)  # not part of the state
        AcquisitionFunction.set_X_pending(self, pending)

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this bound with this model, or why none does."""
        gaps = [*prior_gaps(self._summary), *gaps_of_defaults(self.terms.not_given)]
        if self.is_refuted:
            gaps.append("the data refute the assumptions at this level")
        if is_ensemble(self.base_model):
            gaps.append("the bound is averaged over the members of an ensemble")
        if self.terms.doubles:
            gaps.append("the norm bound is guessed and doubled")
        if self.X_pending is not None:
            shrink = ("pending point shrinks", "pending points shrink")
            gaps.append(f"{counted(len(self.X_pending), *shrink)} the deviations")
        constants = {"delta": self.delta, "smallest_rkhs_bound": self.smallest_rkhs_bound}
        for j, bound in self.rkhs_bounds.items():
            constants["rkhs_bound" if len(self.rkhs_bounds) == 1 else f"rkhs_bound_{j}"] = bound
        constants["information_gain"] = self._information_gain
        norm, norm_gaps, of_mean = norm_assumption(self._summary)
        most = largest_regret(self._summary, max(self.rkhs_bounds.values()), False)
        guarantee = Guarantee(
            method="DMM",
            theorem="Flynn and Reeb 2024, mixture-martingale confidence set, over a grid of ridges",
            bands=Statement(
                "with {probability} the reward lies between the bounds, at all points and in all "
                "rounds",
                delta=self.delta,
                reach="everywhere",
            ),
            regret=RegretStatement(
                "with {probability}, on the same event, the regret of every round that maximizes "
                "the upper confidence bound is at most the distance of the bounds at the "
                "point that it chose, which is twice the effective width times standard deviation"
                f"{of_any_round(most)}",
                delta=self.delta,
                factor=2.0,
                largest=most,
            ),
            assumptions=(
                norm,
                *kernel_assumptions(self._summary),
                *noise_assumptions(self._summary, self.terms.noise_bound, of_rows=(FIRST_ROW,)),
                *(
                    (told_in_prior_units(self.terms.noise_bound),)
                    if self.terms.are_relative
                    else ()
                ),
                AS_OBSERVED,
            ),
            constants={**constants, **of_mean},
            gaps=(*gaps, *norm_gaps),
        )
        guarantee = of_acquisition(self, guarantee)
        if self.posterior_transform is not None:
            guarantee = guarantee.of_weighted_sum()
        return guarantee if self.maximize else guarantee.for_minimizing()

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean, standard deviation, effective width and gain at one point.

        The effective width is half the distance between the bounds, in posterior standard
        deviations.

        Args:
            x: A ``d``-dimensional point.
        """
        was_training = self.model.training
        with torch.no_grad():
            value = self(x.unsqueeze(0))
            mean, deviation = (float(e.mean()) for e in self._mean_and_sigma(x.unsqueeze(0)))
            lower, upper = self.bounds(x.unsqueeze(0))
        self.model.train(was_training)
        return {
            "mean": mean,
            "standard_deviation": deviation,
            "is_refuted": float(self.is_refuted),
            "width": 0.5 * float(upper - lower) / deviation,
            "acquisition_value": float(value),
            "information_gain": self._information_gain,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is read from the model, which cannot be pickled, and is read again."""
        return {name: value for name, value in self.__dict__.items() if name != "_known"}

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.__dict__.pop("_known", None)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        # both are read again on the device where the model now is
        self._summary.forget()
        self.__dict__.pop("_known", None)
        if self.X_pending is not None and self._observed[0] is not self.base_model:
            self.set_X_pending(self.X_pending)
        return self

    def _widths_of_outputs(self) -> Iterable[tuple[str, Tensor, PriorSummary]]:
        # without data, the bounds follow from the bound on the norm
        return [
            (
                " of the norm bound",
                bound / self._known.data[j].prior.standard_deviation,
                self._summary,
            )
            for j, bound in self.rkhs_bounds.items()
        ]

    def _values_and_optimism(self, X: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self.bounds(X.reshape(-1, X.shape[-1]))
        return (upper if self.maximize else -lower), 0.5 * (upper - lower)

    def known_at(self, X: Tensor) -> Bounds:
        return Bounds(*self.moments(X), *self.bounds(X))

    @property
    def _information_gain(self) -> float:
        return sum(float(s.ridges.information_gain.mean()) for s in self._known.sets.values())


def _terms_of(
    name: str,
    rkhs_bound: Any,
    noise_bound: Any,
    *,
    delta: float,
    units: str,
    num_ridges: int,
    double_rkhs_bound: bool,
    on_refuted: str,
) -> RidgeTerms:
    """Return the checked options of a class; see :class:`DMMUpperConfidenceBound`."""
    check_one_of("units", units, ("outcome", "prior"))
    rkhs_bound, noise_bound, not_given = complete_bounds(name, rkhs_bound, noise_bound, units)
    rkhs_bound = check_bounds(rkhs_bound=rkhs_bound)["rkhs_bound"]
    check_noise_bound(noise_bound)
    if not isinstance(rkhs_bound, Tensor):  # one per replicate, on arms
        check_positive("rkhs_bound", rkhs_bound)
    check_one_of("on_refuted", on_refuted, ("warn", "raise"))
    return RidgeTerms(
        rkhs_bound,
        noise_bound,
        check_probability("delta", delta),
        check_integer("num_ridges", num_ridges, minimum=1),
        double_rkhs_bound or "rkhs_bound" in not_given,
        units,
        not_given,
        on_refuted,
    )
