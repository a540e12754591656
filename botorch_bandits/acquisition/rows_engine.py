"""Plays a rule on arms with contexts, windows, weights or time, without a BoTorch model.

:class:`RowsEngine` is to such a loop what :class:`~botorch_bandits.acquisition.engines.ArmsEngine`
is to a plain one: it provides a rule on arms with the exact posterior of the round. The rows are
those of :mod:`botorch_bandits.models.arms_rows`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform, Normalize
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe
from botorch_bandits.acquisition.dmm import DMMArmsRule
from botorch_bandits.acquisition.engines import keeps_arms
from botorch_bandits.acquisition.scores import (
    ArmsRound,
    ArmsRule,
    ImprovementArmsRule,
    OneMomentArmsRule,
    RandomizedArmsRule,
    RoundWidth,
    ThompsonArmsRule,
    WidthArmsRule,
    along_arms,
    half_width,
)
from botorch_bandits.acquisition.thompson_sampling import HallucinatedThompsonArmsRule
from botorch_bandits.acquisition.top_two import TopTwoArmsRule
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    RunningPriorSummary,
    prior_variance_of,
)
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.domains import Arms, first_of_the_largest
from botorch_bandits.forgetting import Forgetting, TimeVaryingKernel
from botorch_bandits.models import BanditGP, BanditGPRecipe
from botorch_bandits.models.arms_rows import (
    FEW_OPERATIONS,
    GrowingRows,
    Rows,
    RowsPosterior,
)
from botorch_bandits.models.changed_rows import (
    FEWEST_ROWS,
    ChangedRowsPosterior,
    Record,
    changes_of,
    collapsed_rows,
    kept_of,
)
from botorch_bandits.models.forgetting import NEGLIGIBLE_WEIGHT
from botorch_bandits.models.front_kernels import (
    Array,
    FrontCovariance,
    SumOfProducts,
    front_covariance,
)
from botorch_bandits.models.row_factors import FreshFactor
from botorch_bandits.random_streams import RandomBlocks, generator

_BOUNDS = (WidthArmsRule, RandomizedArmsRule)
_DRAWS = (ThompsonArmsRule, HallucinatedThompsonArmsRule, TopTwoArmsRule)
_WIDTH = "width in numbers"


@dataclass(eq=False)
class RowsRound(ArmsRound):
    """What a rule sees; the deviations already account for pending outcomes.

    An upper bound needs exact deviations only for the arms that may have the largest bound; those
    of the other arms are overestimated here, but not by enough to change the choice.

    Attributes:
        record: The record of observations.
        memo: What rules keep from round to round, a function of the history and the round.
    """

    record: Record | None = None
    memo: dict[str, Any] = field(default_factory=dict)

    def redrawn(self, number: int) -> ArmsRound:
        """See the base class; the random numbers of the rows are different, too."""
        posterior: Any = self.posterior
        other = super().redrawn(number)
        return other if number == 0 else replace(other, posterior=posterior.redrawn(number))

    @cached_property
    def prepared(self) -> Any:
        rule = self.rule
        if type(rule) not in _BOUNDS or rule.predictive:  # type: ignore[attr-defined]
            return rule.prepare(self)
        assert isinstance(rule, WidthArmsRule)
        width = self._width_of(rule)
        smallest = self.prior_share(MINIMUM_VARIANCE)
        mean = self.mean if rule.maximize else -self.mean
        variance = self.posterior.screened_variance(  # type: ignore[attr-defined]
            mean.numpy(), float(width), smallest, self.value_scale.tolerance, self.among
        )
        deviation = variance.clamp_min(smallest).sqrt_()
        return RoundWidth(width, half_width(deviation, along_arms(width), in_place=True))

    def _width_of(self, rule: WidthArmsRule) -> Tensor:
        """Return the width of the round; as a number unless it is drawn, to save calls."""
        if type(rule) is not WidthArmsRule:
            return rule.width(self)
        known = self.memo.get(_WIDTH)
        if known is None or known[0] is not rule.rule:
            known = self.memo[_WIDTH] = (rule.rule, rule.rule.in_numbers(self.summary))
        width = known[1](self.round_number)
        return torch.tensor(rule.scale * width, dtype=torch.float64)

    @cached_property
    def variance(self) -> Tensor:
        """``num_arms``; pending rows count as known."""
        return self.posterior.variance

    def standard_deviation(self, smallest_share: float) -> Tensor:
        return self.variance.clamp_min(self.prior_share(smallest_share)).sqrt_()


class RowsSummary(RunningPriorSummary):
    """A view of an engine that lets width rules work on it as on any model.

    Args:
        engine: The engine, which is read again at each access.
        noise_variance: The noise variance of one outcome.
        prior_variance: The prior variance, the unit of bounds.
    """

    def __init__(self, engine: RowsEngine, noise_variance: float, prior_variance: float) -> None:
        """See the class."""
        self._engine = engine
        noise = torch.tensor(noise_variance, dtype=torch.float64)
        super().__init__(engine, noise, prior_variance)

    def kernel_matrix(self) -> Tensor:
        """Return the prior covariance of the rows, ``n x n``."""
        rows = self._engine.rows
        return torch.from_numpy(self._engine.covariance.among(rows.arms, rows.fronts))

    @property
    def num_rows(self) -> int:
        """The number of observations that count."""
        return self._engine.num_observations


class RowsEngine:
    """A rule, its rows and its random numbers.

    Args:
        rule: The rule that scores the arms in every round that does not have its own; None if only
            the posterior is needed.
        covariance: The prior.
        lam: The noise variance of one outcome.
        prior_variance: The unit of bounds on the norm.
        seed: The seed of all draws.
        prior_mean: A constant, in outcome units.

    Attributes:
        covariance: The prior.
        rows: The rows of the last round that was evaluated.
        num_observations: The number of observations that counted then.
        seed: The seed of all draws.
        rule_domain: The arms behind a front, for rules that depend on the domain.
        transform: The transform of the model's inputs, or None.
    """

    rule_domain: Arms
    transform: InputTransform | None = None

    def __init__(
        self,
        rule: ArmsRule | None,
        covariance: FrontCovariance,
        lam: float,
        prior_variance: float,
        seed: int,
        prior_mean: float = 0.0,
    ) -> None:
        """See the class."""
        self.rule, self.covariance, self.prior_mean = rule, covariance, prior_mean
        self._lam, self.seed = lam, seed
        self._deviation = math.sqrt(prior_variance) if 0.0 < prior_variance < math.inf else 1.0
        self.summary = RowsSummary(self, lam, prior_variance)
        self.rows = Rows(
            np.zeros(0, dtype=np.int64), np.zeros((0, covariance.num_front)), np.zeros(0)
        )
        self.num_observations = 0
        self._posterior: RowsPosterior | None = None
        self._memo: dict[str, Any] = {}
        self._growing, self._version = GrowingRows(covariance, lam), 0
        self._blocks: dict[str, RandomBlocks] = {}

    @property
    def covariances(self) -> tuple[FrontCovariance, ...]:
        """The prior, as a group of one."""
        return (self.covariance,)

    @property
    def num_front(self) -> int:
        """The number of columns in front of the arms."""
        return self.covariance.num_front

    @property
    def information_gain(self) -> Tensor:
        """A scalar; the realized information gain of the observations, in nats."""
        if self._posterior is None:
            return torch.zeros((), dtype=torch.float64)
        return self._posterior.information_gain

    def look(
        self,
        round_number: int,
        front: Array,
        record: Record,
        pending: Rows | None = None,
        draw_round: int | None = None,
        rule: ArmsRule | None = None,
        posterior: RowsPosterior | None = None,
    ) -> RowsRound:
        """Return what the rule sees in a round.

        Args:
            round_number: The number of the round, from 1; widths grow with it.
            front: ``num_front``; the current front of the arms.
            record: The record of observations.
            pending: The arms whose outcomes have not arrived, or None.
            draw_round: The round whose random numbers are drawn; ``round_number`` if omitted.
            rule: The rule for this round alone; the engine's own rule if omitted.
            posterior: The result of :meth:`posterior_of` for the same rows, if it was computed
                before.
        """
        rule = self.rule if rule is None else rule
        assert rule is not None
        draw_round = round_number if draw_round is None else draw_round
        if posterior is None:
            posterior = self.posterior_of(
                front,
                record,
                pending if rule.takes_pending else None,
                partial(self.normal, draw_round),
                isinstance(rule, _DRAWS),
            )
        ends, arms = (math.inf, -math.inf), None
        if rule.needs_extremes and len(record.outcomes):
            ends = record.outcomes.min(), record.outcomes.max()
        if pending is not None and len(pending.arms) and isinstance(rule, ImprovementArmsRule):
            arms = torch.from_numpy(pending.arms)
        return RowsRound(
            rule=rule,
            posterior=posterior,  # type: ignore[arg-type]
            summary=self.summary,
            round_number=round_number,
            largest_outcome=torch.tensor(ends[1], dtype=torch.float64),
            smallest_outcome=torch.tensor(ends[0], dtype=torch.float64),
            draw=partial(self.draw, draw_round),
            pending=arms,
            prior_mean=self.prior_mean,
            prior_deviation=self._deviation,
            record=replace(record, outcomes=record.outcomes - self.prior_mean),
            memo=self._memo,
        )

    def posterior_of(
        self,
        front: Array,
        record: Record,
        pending: Rows | None = None,
        normal: Callable[..., Array] | None = None,
        draws: bool = False,
    ) -> RowsPosterior:
        """Return the posterior of all arms, with the columns in front of them in a round.

        Args:
            front: ``num_front``; the current front of the arms.
            record: The record of observations.
            pending: The arms whose outcomes count as known although they have not arrived, or None.
            normal: A function that returns the requested number of standard normal numbers of the
                round, for draws.
            draws: Whether draws from it are needed, which requires a factorization of the rows.
        """
        record = replace(record, outcomes=record.outcomes - self.prior_mean)
        if record.weights is None:
            factor, self.rows, means = self._grown(record, record.outcomes)
            self.num_observations = len(record.outcomes)
            self._posterior = RowsPosterior(
                self.covariance,
                front,
                self.rows,
                means,
                factor,
                self._lam,
                pending,
                normal,
                self._growing.matrices,
                record.arms,
            )
        else:
            self._posterior = self._of_weights(front, record, pending, normal, draws)
        return self._posterior

    def _of_weights(
        self,
        front: Array,
        record: Record,
        pending: Rows | None,
        normal: Callable[..., Array] | None,
        draws: bool,
    ) -> RowsPosterior:
        """Return the posterior of rows that leave or fade."""
        assert record.weights is not None
        is_kept = record.weights > NEGLIGIBLE_WEIGHT
        weights = record.weights[is_kept]
        self.rows, means = collapsed_rows(
            record.arms[is_kept],
            record.fronts[is_kept],
            record.pairs[is_kept],
            record.outcomes[is_kept],
            weights,
            self._lam,
        )
        self.num_observations = int(weights.sum())
        has_pending = pending is not None and len(pending.arms) > 0
        if not (draws or has_pending or self.num_front):
            fewest = max(FEWEST_ROWS, math.isqrt(int(FEW_OPERATIONS) // self.covariance.num_arms))
            changes = changes_of(self.rows, means, self._lam, record, fewest)
            if changes.base is not self.rows:
                kept = kept_of(self.covariance, changes, self._lam, self._memo)
                return ChangedRowsPosterior(
                    self.covariance,
                    self.rows,
                    means,
                    lambda: FreshFactor(self._covariance_of_rows()),
                    self._lam,
                    normal,
                    None,
                    record.arms,
                    changes,
                    kept,
                )
        among = self._covariance_of_rows()
        return RowsPosterior(
            self.covariance,
            front,
            self.rows,
            means,
            FreshFactor(among),
            self._lam,
            pending,
            normal,
            partial(self._matrices, among),
            record.arms,
        )

    def _covariance_of_rows(self) -> Array:
        among = self.covariance.among(self.rows.arms, self.rows.fronts)
        among[np.diag_indices_from(among)] += self.rows.noise
        return among

    def transformed_contexts(self, contexts: Tensor) -> Array:
        """Return contexts in the form that the kernel expects.

        Args:
            contexts: ``n x num_contexts``.
        """
        if self.transform is not None and contexts.shape[-1]:
            num_arm_columns = self.rule_domain.dim - self.covariance.num_front
            whole = torch.cat(
                [contexts, contexts.new_zeros(len(contexts), num_arm_columns)], dim=-1
            )
            with torch.no_grad():
                contexts = self.transform(whole)[..., : contexts.shape[-1]]
        numbers: Array = contexts.numpy()
        return numbers

    def choose(self, seen: RowsRound) -> int:
        """Return the arm to play.

        Args:
            seen: The round, from :meth:`look`.
        """
        return int(first_of_the_largest(seen.scores, True, seen.value_scale, seen.among))

    def describe(self, seen: RowsRound, arm: int) -> dict[str, float]:
        """Return the diagnostics of an arm, by name.

        Args:
            seen: What the rule saw when it chose.
            arm: The arm.
        """
        assert self._posterior is not None
        variance = float(self._posterior.variance_at(np.array([arm]))[0])
        known = {
            "mean": float(seen.mean[arm]),
            "standard_deviation": max(variance, seen.prior_share(MINIMUM_VARIANCE)) ** 0.5,
            "acquisition_value": float(seen.scores[arm]),
        }
        described = seen.rule.describe(seen, torch.tensor(arm))
        return {**known, **{name: float(value) for name, value in described.items()}}

    def _grown(self, record: Record, outcomes: Array) -> tuple[Any, Rows, Array]:
        """Add new rows to the existing ones, which stay."""
        if record.version != self._version:
            self._version = record.version  # relabeled outcomes do not change the rows
            if not self._growing.is_start_of(record.arms, record.fronts):
                self._growing = GrowingRows(self.covariance, self._lam)
        growing = self._growing
        for i in range(growing.num_observations, len(record.arms)):
            growing.observe(int(record.arms[i]), record.fronts[i])
        return growing.factor, growing.rows, growing.mean_outcomes(outcomes)

    def _matrices(self, among: Array) -> tuple[Array, list[Array]]:
        """See :meth:`GrowingRows.matrices`; here for rows that do not stay."""
        covariance, arms = self.covariance, self.rows.arms
        if not isinstance(covariance, SumOfProducts):
            return among, []
        numbers = range(len(covariance.priors))
        return among, [covariance.block_of(number, arms, arms) for number in numbers]

    def normal(self, draw_round: int, count: int, purpose: str = "thompson rows") -> Array:
        """Return the standard normal numbers of a round that the rows need in a draw.

        Args:
            draw_round: The round whose random numbers they are.
            count: How many.
            purpose: The purpose; different purposes have different numbers.
        """
        stream = generator(self.seed, draw_round, purpose)
        numbers: Array = torch.randn(count, dtype=torch.float64, generator=stream).numpy()
        return numbers

    def draw(
        self,
        draw_round: int,
        purpose: str,
        shape: tuple[int, ...],
        distribution: str,
        transform: Any = None,
    ) -> Tensor:
        """Return the random numbers of a round; see :meth:`.ArmsEngine.draw`.

        Args:
            draw_round: The round.
            purpose: The purpose; different purposes have different numbers.
            shape: The shape of the numbers.
            distribution: See ``botorch_bandits.random_streams.RandomBlocks``.
            transform: What to do with whole blocks of rounds.
        """
        if purpose not in self._blocks:
            self._blocks[purpose] = RandomBlocks(
                [self.seed], purpose, shape, distribution, "cpu", transform
            )
        return self._blocks[purpose].at(draw_round)[0]


def build_rows_engine(
    model: BanditGPRecipe,
    acquisition: AcquisitionRecipe,
    domain: Arms,
    num_contexts: int,
    forgetting: Forgetting | None,
    seed: int,
    covariance: FrontCovariance | None = None,
) -> RowsEngine | None:
    """Return an engine that plays these settings on arms without a BoTorch model.

    Args:
        model: Kernel and noise.
        acquisition: The acquisition function to play.
        domain: The arms.
        num_contexts: The number of context columns.
        forgetting: How old outcomes are forgotten.
        seed: The seed of all draws.
        covariance: The covariance of an earlier engine with the same model and domain, to save its
            computation.

    Returns:
        None if the settings need the model itself: hyperparameters or an input scale that are
        learned, a subclass of :class:`~botorch_bandits.BanditGP`, a batch of kernels, an input
        transform that mixes columns, another device than the CPU, or an acquisition function that
        uses more than means and deviations here.
    """
    if acquisition.options.get("choices") is not None:
        return None
    num_front = num_contexts + isinstance(forgetting, TimeVaryingKernel)
    rule_domain = domain
    if num_front:
        rule_domain = domain.in_context(torch.zeros(num_front, dtype=torch.float64))
    rule = acquisition.arms_rule(rule_domain)
    known = (*_BOUNDS, *_DRAWS, OneMomentArmsRule, DMMArmsRule)
    if type(rule) not in known and not (num_front == 0 and type(rule) is ImprovementArmsRule):
        return None
    assert rule is not None
    return build_rows(model, rule, domain, num_contexts, forgetting, seed, covariance)


def build_rows(
    model: BanditGPRecipe,
    rule: ArmsRule | None,
    domain: Arms,
    num_contexts: int,
    forgetting: Forgetting | None,
    seed: int,
    covariance: FrontCovariance | None = None,
) -> RowsEngine | None:
    """Return the rows of one kernel, and the rule that is played on them.

    Args:
        model: See :func:`build_rows_engine`; the same holds for the other arguments.
        rule: The rule that scores the arms; None if only the posterior is needed.
        domain: The arms.
        num_contexts: The number of context columns.
        forgetting: How old outcomes are forgotten.
        seed: The seed of all draws.
        covariance: The covariance of an earlier engine with the same kernel and domain.

    Returns:
        None if the model itself is needed; see :func:`build_rows_engine`.
    """
    transform = model.input_transform
    is_plain = model.model_class is BanditGP and model.refit_every is None
    if (
        not is_plain
        or model.kernel.batch_shape
        or not keeps_arms(transform)
        or not (num_contexts == 0 or transform is None or type(transform) is Normalize)
        or domain.choices.device.type != "cpu"
    ):
        return None
    rate = forgetting.rate if isinstance(forgetting, TimeVaryingKernel) else None
    num_front = num_contexts + (rate is not None)
    rule_domain = domain
    if num_front:
        rule_domain = domain.in_context(torch.zeros(num_front, dtype=torch.float64))
    with torch.no_grad():
        kernel = copy.deepcopy(model.kernel).double()
        if covariance is None:
            points = _transformed(transform, domain.choices, num_contexts)
            covariance = front_covariance(kernel, points, num_contexts, rate)
        whole = kernel if rate is None else TimeDecayKernel(kernel, rate)
        empty = torch.empty(0, rule_domain.dim, dtype=torch.float64)
        variance = float(prior_variance_of(whole, empty))
    engine = RowsEngine(rule, covariance, model.noise, variance, seed, model.prior_mean)
    engine.rule_domain = rule_domain
    engine.transform = None if transform is None else copy.deepcopy(transform).eval()
    return engine


def _transformed(transform: InputTransform | None, choices: Tensor, num_contexts: int) -> Tensor:
    """Return arms as the kernel expects them; the transform works column by column."""
    if transform is None:
        return choices
    whole = torch.cat([choices.new_zeros(len(choices), num_contexts), choices], dim=-1)
    inner = copy.deepcopy(transform).eval()
    found: Tensor = inner(whole)[..., num_contexts:]
    return found.contiguous()
