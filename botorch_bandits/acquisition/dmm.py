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
    deviation_of,
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
from botorch_bandits.confidence.dmm import narrow, read_data, report_refutation
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
    units_of_bounds,
)
from botorch_bandits.confidence.prior_assumptions import (
    kernel_assumptions,
    largest_regret,
    norm_assumption,
    prior_gaps,
)
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    check_assume,
    check_bounds,
    fit_to_batch,
)
from botorch_bandits.core.ridges import Ridges, largest_first
from botorch_bandits.core.round_posterior import RoundPosterior
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.reading import OneByOneModel, hallucinate, on_device_of, variance_of

SMALLEST_RADICAND = 0.05
"""Below this share of the squared norm the set is nearly empty: ends may cross, and a bound at one
ridge need not be above the bound."""

MARGIN = 1e-6
"""Arms this close to the largest bound are evaluated, in prior standard deviations."""


class _Rows(NamedTuple):
    """What a round knows, in outcome units less the prior mean; ``n`` rows, ``A`` arms.

    Attributes:
        places: ``batch_shape x n x c``; the numbers of arms, then their fronts.
        weight: ``batch_shape x n`` multiples of the precision of one outcome.
        outcomes: ``batch_shape x n``.
        covariance: Maps two sets of places to their covariances.
        columns: Maps places to their ``batch_shape x n x k`` covariances with some arms.
        prior_variance: ``A``.
        kept: Where eigenvectors are kept from round to round; None with replicates.
    """

    places: Tensor
    weight: Tensor
    outcomes: Tensor
    covariance: Callable[[Tensor, Tensor], Tensor]
    columns: Callable[[Tensor, Tensor], Tensor]
    prior_variance: Tensor
    kept: dict[str, Any] | None


def _rows_of(seen: Seen) -> _Rows:
    """Return the rows of a round, the only place that knows where they are kept."""
    posterior, prior = seen.posterior, seen.posterior.prior
    if seen.batch_shape:
        return _rows_of_replicates(seen)
    rows = posterior.rows if isinstance(posterior, RoundPosterior) else seen.collapsed
    index = rows.index.unsqueeze(-1).to(rows.Y)
    places = index if rows.front is None else torch.cat([index, rows.front], dim=-1)

    def parts(some: Tensor) -> tuple[Tensor, Tensor | None]:
        return some[:, 0].long(), some[:, 1:] if rows.front is not None else None

    return _Rows(
        places,
        rows.noise.reciprocal(),
        rows.Y[:, 0] - seen.prior_mean,
        lambda some, others: prior.block(*parts(some), *parts(others))[0],
        lambda some, at: prior.columns(*parts(some), seen.now)[0][:, at],
        prior.variances(seen.now)[0],
        seen.player.memo,
    )


def _rows_of_replicates(seen: Seen) -> _Rows:
    prior, rows = seen.posterior.prior, seen.collapsed
    counts = rows.noise.reciprocal()  # num_replicates x number of arms
    order = (counts > 0.0).to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
    order = order[:, : int((counts > 0.0).sum(-1).max())]
    weight = counts.gather(-1, order)  # 0 where a replicate played fewer arms
    sums = rows.Y.gather(-1, order)

    def columns(places: Tensor, at: Tensor) -> Tensor:
        return prior.columns(places.squeeze(-1).long())[..., at]

    def covariance(places: Tensor, others: Tensor) -> Tensor:
        whole = prior.columns(places.squeeze(-1).long())
        at = others.squeeze(-1).long().unsqueeze(-2)
        return whole.gather(-1, at.expand(*whole.shape[:-1], at.shape[-1]))

    return _Rows(
        rows.index[order].unsqueeze(-1).to(sums),
        weight,
        sums / weight.masked_fill(weight == 0.0, 1.0) - seen.prior_mean,
        covariance,
        columns,
        prior.variances()[0],
        None,
    )


@dataclass(frozen=True, eq=False)
class _DMMRound:
    """The confidence set of a round, and the arms.

    Attributes:
        found: The set.
        rows: Its rows.
        prior_mean: What was subtracted from the outcomes.
    """

    found: RidgeConfidenceSet
    rows: _Rows
    prior_mean: float

    def ends(self, arms: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bound of ``k`` arms, ``batch_shape x k`` each."""
        cross = self.rows.columns(self.found.ridges.places, arms).mT
        prior = self.rows.prior_variance[arms].expand(*cross.shape[:-1])
        lower, upper = self.found.bounds(cross, prior)
        return lower + self.prior_mean, upper + self.prior_mean

    @cached_property
    def of_all(self) -> tuple[Tensor, Tensor]:
        """The bounds of all arms, ``batch_shape x A`` each."""
        prior = self.rows.prior_variance
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
        rkhs_bound: ``B``; a number, or one per replicate.
        noise_bound: ``R`` of R-sub-Gaussian noise; ``"model"`` for the root of the modeled noise
            variance.
        delta: The bounds fail with at most this probability.
        num_ridges: Size of the grid of ridges.
        doubles: Whether a refuted ``B`` is doubled until it is not refuted.
        on_refuted: ``"warn"`` or ``"raise"``.
        maximize: If False, the reward is minimized.
        of_norm: The units of ``rkhs_bound``, ``"outcome"`` or ``"prior"``.
        of_noise: The units of ``noise_bound``, ``"outcome"`` or ``"prior"``.
    """

    rkhs_bound: float | Tensor
    noise_bound: float | Tensor | str
    delta: float
    num_ridges: int
    doubles: bool
    on_refuted: str
    maximize: bool
    of_norm: str = "outcome"
    of_noise: str = "outcome"

    def prepare(self, seen: Seen) -> _DMMRound:
        """Return the set of the observed data; whether these refute the assumptions is reported."""
        rows, unit = _rows_of(seen), float(seen.summary.active_priors[0].standard_deviation)
        noise_variance = seen.player.outside(seen.posterior.lam).to(rows.outcomes)
        ridges = Ridges(
            rows.places,
            rows.weight,
            rows.outcomes,
            rows.covariance,
            noise_variance,
            self.num_ridges,
            rows.kept,
        )
        norm, noise = (
            self._per_replicate("rkhs_bound", self.rkhs_bound, seen),
            noise_variance.sqrt(),
        )
        norm = norm if self.of_norm == "prior" else norm / unit
        if not isinstance(self.noise_bound, str):
            noise = self._per_replicate("noise_bound", self.noise_bound, seen)
            noise = noise * unit if self.of_noise == "prior" else noise
        found = RidgeConfidenceSet.of(ridges, norm, noise, self.delta, self.doubles)
        if not self.doubles and bool(found.is_refuted.any()):
            stated = self.noise_bound if isinstance(self.noise_bound, str) else noise
            smallest = float(found.smallest_rkhs_bound.max()) * unit
            report_refutation(self.delta, norm * unit, stated, smallest, self.on_refuted)
        return _DMMRound(found, rows, seen.prior_mean)

    @staticmethod
    def _per_replicate(name: str, level: float | Tensor, seen: Seen) -> Tensor:
        level = torch.as_tensor(level, dtype=torch.float64, device=seen.posterior.lam.device)
        return fit_to_batch(name, level, seen.batch_shape)

    def scores(self, seen: Seen) -> Tensor:
        known = seen.prepared
        if seen.batch_shape or seen.pending is not None or known.is_nearly_empty:
            lower, upper = self.bounds(seen)
            return upper if self.maximize else -lower
        # the bound at the ridge of the model, whose posterior is at hand, is above the bound
        sign = 1.0 if self.maximize else -1.0
        prior = known.rows.prior_variance
        furthest = known.found.rkhs_bound * prior.sqrt()
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
        check_one_of("units", units, ("outcome", "prior"))
        known, noise, self._not_given = complete_bounds(
            type(self).__name__, rkhs_bound, noise_bound, units
        )
        delta, num_ridges = _check_ingredients(known, noise, delta, num_ridges, on_refuted)
        # a tensor with one number per replicate is for replicates on arms
        rkhs_bound = check_positive("rkhs_bound", known)
        noise_bound = noise if isinstance(noise, str) else check_nonnegative("noise_bound", noise)
        self._units = units
        self.base_model = model
        self.posterior_transform = on_device_of(model, posterior_transform)
        self.maximize = maximize
        self.delta = delta
        self.doubled = double_rkhs_bound or "rkhs_bound" in self._not_given
        self.assume = check_assume(assume)
        self._summary = PriorSummary(model, posterior_transform, self.assume)
        try:
            active = self._summary.active_outputs
            if posterior_transform is None and model.num_outputs != 1:
                raise UnreadablePriorError(
                    f"it has {model.num_outputs} outputs and no posterior_transform"
                )
            read_data(model)
        except UnreadablePriorError as error:
            raise error.in_method(
                "DMM works with the kernel and data of the model",
                "Use BanditGP or SingleTaskGP, or ImprovedUpperConfidenceBound with an explicit "
                "width=",
            ) from error
        weights = (
            torch.ones(1, dtype=torch.float64)
            if posterior_transform is None
            else posterior_transform.weights
        )
        self._weights = {j: float(weights[j]) for j in active}
        self._offset = float(getattr(posterior_transform, "offset", 0.0))
        self._ingredients = (rkhs_bound, noise_bound, delta / len(active), num_ridges)
        self._sets: dict[int, RidgeConfidenceSet] = {}
        self._read_again()
        if self.is_refuted:
            is_relative = self._is_relative
            smallest = max(float(each.smallest_rkhs_bound.max()) for each in self._sets.values())
            report_refutation(
                delta,
                rkhs_bound,
                noise_bound,
                smallest if is_relative else self.smallest_rkhs_bound,
                on_refuted,
                in_prior_units=is_relative,
            )
        self.set_X_pending(X_pending)
        self.warn_if_wide()

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        units = check_one_of("units", options["units"], ("outcome", "prior"))
        rkhs_bound, noise_bound, not_given = complete_bounds(
            cls.__name__, options["rkhs_bound"], options["noise_bound"], units
        )
        names = ("delta", "num_ridges", "on_refuted")
        delta, num_ridges = _check_ingredients(
            rkhs_bound, noise_bound, *(options[name] for name in names)
        )
        of_norm, of_noise = (
            "prior" if name in not_given else units for name in ("rkhs_bound", "noise_bound")
        )
        return DMMArmsRule(
            rkhs_bound,  # type: ignore[arg-type]
            noise_bound,  # type: ignore[arg-type]
            delta,
            num_ridges,
            options["double_rkhs_bound"] or "rkhs_bound" in not_given,
            options["on_refuted"],
            options["maximize"],
            of_norm,
            of_noise,
        )

    @property
    def is_optimistic(self) -> bool:
        return True

    @property
    def value_scale(self) -> ValueScale | None:
        return scale_in_outcomes(self._summary, 1.0 if self.maximize else -1.0)

    @property
    def is_refuted(self) -> bool:
        """Whether the data refute kernel, norm bound and noise bound at level ``delta``."""
        return any(bool(each.is_refuted.any()) for each in self._sets.values())

    @property
    def smallest_rkhs_bound(self) -> float:
        """The smallest norm bound that the data do not refute, in raw outcome units."""
        return max(
            float((s.smallest_rkhs_bound * self._data[j].prior.standard_deviation).max())
            for j, s in self._sets.items()
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
        total_lower = total_upper = self._offset + 0.0 * X.sum(-1)
        for j, confidence_set in self._sets.items():
            data, weight = self._data[j], self._weights[j]
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
        gaps = [*prior_gaps(self._summary), *gaps_of_defaults(self._not_given)]
        if self.is_refuted:
            gaps.append("the data refute the assumptions at this level")
        if is_ensemble(self.base_model):
            gaps.append("the bound is averaged over the members of an ensemble")
        if self.doubled:
            gaps.append("the norm bound is guessed and doubled")
        if self.X_pending is not None:
            shrink = ("pending point shrinks", "pending points shrink")
            gaps.append(f"{counted(len(self.X_pending), *shrink)} the deviations")
        constants = {"delta": self.delta, "smallest_rkhs_bound": self.smallest_rkhs_bound}
        for j, bound in self.rkhs_bounds.items():
            constants["rkhs_bound" if len(self.rkhs_bounds) == 1 else f"rkhs_bound_{j}"] = bound
        constants["information_gain"] = sum(
            float(s.ridges.information_gain.mean()) for s in self._sets.values()
        )
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
                *noise_assumptions(self._summary, self._ingredients[1], of_rows=(FIRST_ROW,)),
                *((told_in_prior_units(self._ingredients[1]),) if self._is_relative else ()),
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
            posterior = self.model.posterior(
                x.unsqueeze(0), posterior_transform=self.posterior_transform
            )
            lower, upper = self.bounds(x.unsqueeze(0))
        self.model.train(was_training)
        deviation = float(deviation_of(posterior, self._summary, MINIMUM_VARIANCE).mean())
        return {
            "mean": float(posterior.mean.mean()),
            "standard_deviation": deviation,
            "is_refuted": float(self.is_refuted),
            "width": 0.5 * float(upper - lower) / deviation,
            "acquisition_value": float(value),
            "information_gain": self._information_gain,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the data of the model, which cannot be pickled and are read again."""
        left_out = ("_data", "_summary", "_sets")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the model again."""
        super().__setstate__(state)
        self._read_again()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load hyperparameters into the model and read it again.

        Args:
            args: Passed on to ``torch.nn.Module.load_state_dict``; the state comes first.
            kwargs: Passed on as well: ``strict`` and ``assign``.
        """
        keys = super().load_state_dict(*args, **kwargs)
        self._read_again()
        return keys

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._read_again()  # on the device where the model now is
        if self.X_pending is not None and self._observed[0] is not self.base_model:
            self.set_X_pending(self.X_pending)
        return self

    def _widths_of_outputs(self) -> Iterable[tuple[str, Tensor, PriorSummary]]:
        # without data, the bounds follow from the bound on the norm
        return [
            (" of the norm bound", bound / self._data[j].prior.standard_deviation, self._summary)
            for j, bound in self.rkhs_bounds.items()
        ]

    def _values_and_optimism(self, X: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self.bounds(X.reshape(-1, X.shape[-1]))
        return (upper if self.maximize else -lower), 0.5 * (upper - lower)

    def _remedy(self) -> str:
        if "rkhs_bound" in self._not_given:
            return (
                "No norm bound was given, and the outcomes refute smaller ones. Use "
                "ImprovedUpperConfidenceBound without bounds, or width=2.0."
            )
        return (
            "Leave rkhs_bound= and noise_bound= out, give smaller ones, or use "
            "ImprovedUpperConfidenceBound without bounds."
        )

    @property
    def _is_relative(self) -> bool:
        """Whether bounds are multiples of the prior standard deviation."""
        return self._units == "prior" or bool(self._not_given)

    @property
    def _information_gain(self) -> float:
        return sum(float(s.ridges.information_gain.mean()) for s in self._sets.values())

    def _read_again(self) -> None:
        self._summary = PriorSummary(self.base_model, self.posterior_transform, self.assume)
        self._data = read_data(self.base_model)
        self.rkhs_bounds: dict[int, float] = {}
        self._sets = {j: self._build_set(j) for j in self._weights}

    def _build_set(self, output: int) -> RidgeConfidenceSet:
        rkhs_bound, noise_bound, delta, num_ridges = self._ingredients
        data, by_noise = self._data[output], isinstance(noise_bound, str)
        of_norm, of_noise = units_of_bounds(data.prior, self._units, self._not_given)
        noise = torch.ones((), dtype=torch.float64)
        if not isinstance(noise_bound, str):
            noise = noise_bound / of_noise * data.prior.prior_variance.sqrt()
        confidence_set = RidgeConfidenceSet.of(
            data.ridges(num_ridges, by_noise), rkhs_bound / of_norm, noise, delta, self.doubled
        )
        in_outcomes = data.prior.standard_deviation / of_norm * confidence_set.doubling
        self.rkhs_bounds[output] = rkhs_bound * float(in_outcomes.max())
        return confidence_set


def _check_ingredients(
    rkhs_bound: Any, noise_bound: Any, delta: Any, num_ridges: Any, on_refuted: Any
) -> tuple[float, int]:
    check_bounds(rkhs_bound=rkhs_bound)
    check_noise_bound(noise_bound)
    if not isinstance(rkhs_bound, Tensor):  # one per replicate, on arms
        check_positive("rkhs_bound", rkhs_bound)
    check_one_of("on_refuted", on_refuted, ("warn", "raise"))
    return check_probability("delta", delta), check_integer("num_ridges", num_ridges, minimum=1)
