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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.base import (
    Bounds,
    TwoSidedAcquisition,
    check_model,
    check_points,
)
from botorch_bandits.acquisition.rules import ArmsRule, Seen
from botorch_bandits.confidence import (
    Guarantee,
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
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.ingredients import ridge_terms
from botorch_bandits.confidence.theorems import DMM
from botorch_bandits.confidence.width_rules import Assumed, bound_constants
from botorch_bandits.core.ridges import Ridges
from botorch_bandits.models.reading import read_noise

SMALLEST_RADICAND = 0.05
"""Below this share of the squared norm the set is nearly empty: ends may cross, and a bound at one
ridge need not be above the bound."""

FIRST = 32
"""Arms whose bounds are computed first, where the largest is sought."""

MARGIN = 1e-6
"""Arms this close to the largest bound are evaluated, in prior standard deviations."""

Given = dict[int, tuple[Ridges, Callable[..., Tensor]]]
"""The posterior of each output in the model, and what pending points explain there; see
:meth:`.OutputData.given`."""


def _rows_of(seen: Seen) -> RowsOfOutput:
    """Return the rows of a round in outcome units; their places are numbers of arms and fronts."""
    rows, prior = seen.player.collapsed(seen.posterior), seen.posterior.prior

    def covariance(places: Tensor, others: Tensor) -> Tensor:
        first, second = (
            (each[..., 0].long(), each[..., 1:] if prior.num_front else None)
            for each in (places, others)
        )
        return prior.block(*first, *second)[0]  # there is one prior, also of replicates

    return RowsOfOutput(
        seen.player.summaries[0].priors[0],
        _places(rows.index, rows.front),
        rows.noise.reciprocal(),  # 0 where a replicate played fewer arms than others
        rows.Y[..., 0] - seen.player.prior_mean,
        covariance,
        None if seen.player.batch_shape else seen.player.memo,
    )


def _places(index: Tensor, front: Tensor | None) -> Tensor:
    """Return ``... x k x (1 + c)`` numbers of arms and their fronts."""
    numbers = index.unsqueeze(-1).double()
    return numbers if front is None else torch.cat([numbers, front], dim=-1)


@dataclass(frozen=True, eq=False)
class DMMArmsRule(ArmsRule):
    """The upper bound by DMM, or minus the lower one when minimizing.

    Attributes:
        terms: What is known of the function and the noise.
        maximize: If False, the reward is minimized.
    """

    terms: RidgeTerms
    maximize: bool

    def prepare(self, seen: Seen) -> tuple[RowsOfOutput, RidgeConfidenceSet]:
        """Return the rows and their set; whether they refute the assumptions is reported."""
        rows = _rows_of(seen)
        found = self.terms.confidence_set(rows)
        self.terms.report_refutation(found, seen.player.prior_deviation)
        return rows, found

    def scores(self, seen: Seen) -> Tensor:
        _, found = seen.prepared

        def exact(some: Tensor) -> Tensor:
            lower, upper = self._ends(seen, some)
            return upper if self.maximize else -lower

        every, share = _every(seen), found.radicands.amin(-1) / found.rkhs_bound**2
        if seen.player.batch_shape or bool((share < SMALLEST_RADICAND).any()):
            return exact(every)
        # the bound at the ridge of the model, whose posterior is at hand, is above the bound
        width, sign = float(found.radicands[-1].sqrt()), 1.0 if self.maximize else -1.0
        scores = sign * seen.mean + width * seen.deviation_for(width, seen.posterior)
        among = every if seen.among is None else seen.among
        scores[among] = largest_first(
            scores[among], lambda some: exact(among[some]), MARGIN * seen.player.prior_deviation
        )
        return scores

    def known(self, seen: Seen) -> Bounds:
        lower, upper = self._ends(seen, _every(seen))
        return super().known(seen)._replace(lower=lower, upper=upper)

    def describe(self, seen: Seen, arm: int) -> dict[str, Tensor | float]:
        (_, found), described = seen.prepared, super().describe(seen, arm)
        at = torch.tensor([arm], device=seen.posterior.lam.device)
        lower, upper = (each.squeeze(-1) for each in self._ends(seen, at))
        return {
            **described,
            "is_refuted": found.is_refuted.to(upper),
            "width": 0.5 * (upper - lower) / described["standard_deviation"],
            "information_gain": found.ridges.information_gain,
        }

    def _ends(self, seen: Seen, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bound of ``k`` arms, ``batch_shape x k`` each."""
        rows, found = seen.prepared
        arms = index.expand(*seen.player.batch_shape, -1)
        front = None if seen.now is None else seen.now.expand(len(index), -1)
        cross = rows.covariance(_places(arms, front), found.ridges.places)
        lower, upper, _ = found.bounds(cross, seen.posterior.prior.variances(seen.now)[0][arms])
        if seen.pending is not None:
            before, after = (
                each.variance_at(index)[seen.player.every] / seen.player.prior_variance
                for each in (seen.posterior, seen.view)
            )
            lower, upper = narrow(lower, upper, before, after)
        return lower + seen.player.prior_mean, upper + seen.player.prior_mean


def _every(seen: Seen) -> Tensor:
    """Return the numbers of all arms."""
    return torch.arange(seen.posterior.prior.num_points, device=seen.posterior.lam.device)


def largest_first(scores: Tensor, exact: Callable[[Tensor], Tensor], margin: float) -> Tensor:
    """Replace upper bounds on scores by scores, as long as one of the others may be the largest.

    Args:
        scores: ``A`` upper bounds on scores.
        exact: Maps the numbers of some of them to their scores.
        margin: Bounds this close to the largest score are replaced, too.

    Returns:
        ``A`` numbers: one that is not a score is below the largest score by more than the margin.
    """
    scores = scores.clone()
    some = scores.topk(min(FIRST, len(scores))).indices
    scores[some] = exact(some)
    some = (scores >= scores[some].max() - margin).nonzero().squeeze(-1)
    scores[some] = exact(some)
    return scores


class DMMUpperConfidenceBound(TwoSidedAcquisition):
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
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation.
        double_rkhs_bound: If the data refute ``rkhs_bound``, use the first of ``2 B, 4 B, ...``
            that they do not refute. This is a heuristic for an unknown norm and has no theorem.
        posterior_transform: A linear scalarization, required for a model with several outputs.
        maximize: If False, the reward is minimized: the value is minus the lower bound.
        assume: Assumptions that you vouch for because they cannot be read from the model:
            ``"fixed prior"``, ``"centered bound"`` or both; see
            :class:`~botorch_bandits.WidthUpperConfidenceBound`.
        X_pending: ``n x d`` points whose outcomes have not arrived. They shrink the deviations of
            each output, while mean and radius remain those of the observed data. No theorem covers
            the bound in that case.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If an ingredient is infeasible, or the model cannot be read.

    Warns:
        AssumptionRefutedWarning: If the data refute the assumptions.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=0.01)
        >>> acqf = DMMUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule = True
    pending_as = "shrinking"
    _given: Given | None = None
    """What pending points explain, once it is needed."""

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        rkhs_bound: float | None = None,
        noise_bound: float | str | None = None,
        delta: float = 0.1,
        units: str = "outcome",
        double_rkhs_bound: bool = False,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        given = {**locals()}
        super().__init__(check_model(model))
        self._read_arguments(given)
        self.terms = ridge_terms(type(self).__name__, given)
        for data, found in self._outputs.values():
            self.terms.report_refutation(found, data.prior.standard_deviation)
        self.set_X_pending(X_pending)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        return DMMArmsRule(ridge_terms(cls.__name__, options), options["maximize"])

    @cached_property
    def _outputs(self) -> dict[int, tuple[OutputData, RidgeConfidenceSet]]:
        """The rows and the set of each output with a weight, by its number."""
        model, transform = self.base_model, self.posterior_transform
        try:
            active = self._summary.weights[0]
            if transform is None and model.num_outputs != 1:
                raise UnreadablePriorError(
                    f"it has {model.num_outputs} outputs and no posterior_transform"
                )
            read = read_data(model)
        except UnreadablePriorError as error:
            raise error.in_method(
                "DMM works with the kernel and data of the model",
                "Use BanditGP or SingleTaskGP, or ImprovedUpperConfidenceBound with an explicit "
                "width=",
            ) from error
        return {j: (read[j], self.terms.confidence_set(read[j], len(active))) for j in active}

    @property
    def rkhs_bounds(self) -> dict[int, float]:
        """The norm bound of each output in raw outcome units, after doubling."""
        return {
            j: _in_outcomes(data, found.rkhs_bound) for j, (data, found) in self._outputs.items()
        }

    @property
    def is_refuted(self) -> bool:
        """Whether the data refute kernel, norm bound and noise bound at level ``delta``."""
        return any(bool(found.is_refuted.any()) for _, found in self._outputs.values())

    @property
    def smallest_rkhs_bound(self) -> float:
        """The smallest norm bound that the data do not refute, in raw outcome units."""
        outputs = self._outputs.values()
        return max(_in_outcomes(data, found.smallest_rkhs_bound) for data, found in outputs)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and upper confidence bound at some points.

        Args:
            X: ``n x d`` points, float64.

        Returns:
            Two tensors of ``n`` values in raw outcome units; for an ensemble the averages of its
            members' bounds.
        """
        check_points(self, X)
        lower, upper = self._ends(X.unsqueeze(-2))
        return lower.squeeze(-1), upper.squeeze(-1)

    def _ends(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounds at each of several points, those before it pending, ``batch_shape x q``."""
        flat, q = X.reshape(-1, X.shape[-1]), X.shape[-2]  # b q x d
        weights, offset = self._summary.weights
        given: Given = {}
        if q > 1 or self.X_pending is not None:
            given = self._given = self._given or self._read_given(flat[:1])
        # without data a stationary prior does not depend on X; its zero gradient must exist
        lower = upper = offset + 0.0 * flat.sum(-1)
        for j, (data, found) in self._outputs.items():
            points, prior = data.points(flat)
            cross = data.covariance(points, found.ridges.places)
            low, high, before = found.bounds(cross, prior)
            if given:
                own, explained = given[j]
                if own is not found.ridges:
                    cross = data.covariance(points, own.places)
                    before = prior - own.moments(cross)[1][..., -1]
                after, unit = before - explained(points, cross, q), data.prior.prior_variance
                low, high = narrow(
                    low, high, *(each / unit.unsqueeze(-1) for each in (before, after))
                )
            first, second = weights[j] * data.to_raw(torch.stack([low, high]), points)
            lower = lower + torch.minimum(first, second)
            upper = upper + torch.maximum(first, second)
        if is_ensemble(self.base_model):
            lower, upper = lower.mean(0), upper.mean(0)
        return lower.reshape(X.shape[:-1]), upper.reshape(X.shape[:-1])

    @torch.no_grad()
    def _read_given(self, x: Tensor) -> Given:
        noise, given = read_noise(self.base_model, x).squeeze(-2), {}
        for j, (data, found) in self._outputs.items():
            own = found.ridges
            if data.prior.row_noise is not None and not self.terms.is_by_noise:
                own = data.ridges(by_noise=True)
            level = noise[..., j] / data.prior.outcome_scale.square()
            given[j] = own, data.given(own, self.X_pending, level)
        return given

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        super().set_X_pending(X_pending)
        self._given = None

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers this bound with this model, or why none does.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        gaps = ["the data refute the assumptions at this level"] if self.is_refuted else []
        if self.terms.doubles:
            gaps.append("the norm bound is guessed and doubled")
        norms = tuple(self.rkhs_bounds.values())
        constants = {
            **bound_constants(delta=self.terms.delta, rkhs_bound=norms),
            "smallest_rkhs_bound": self.smallest_rkhs_bound,
        }
        guarantee = self.terms.guarantee_of(DMM, self._summary, self._facts(facts), gaps=gaps)
        constants["information_gain"] = self._information_gain
        return replace(guarantee, constants={**guarantee.constants, **constants})

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean, standard deviation, effective width and gain at one point.

        The effective width is half the distance between the bounds, in posterior standard
        deviations.

        Args:
            x: A ``d``-dimensional point.
        """
        known = {"is_refuted": float(self.is_refuted), "information_gain": self._information_gain}
        return {**super().describe(x), **known}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is read from the model, which cannot be pickled, and is read again."""
        left_out = ("_outputs", "_given")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def _forget(self) -> None:
        super()._forget()
        self._given = None
        self.__dict__.pop("_outputs", None)

    @property
    def _information_gain(self) -> float:
        each = (found.ridges.information_gain for _, found in self._outputs.values())
        return sum(float(gain.mean()) for gain in each)


def _in_outcomes(data: OutputData, norm: Tensor) -> float:
    """Return a norm in raw outcome units, the largest of an ensemble."""
    return float((norm * data.prior.standard_deviation).max())
