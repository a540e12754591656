r"""Multiplier rules: how the price of each constraint follows from its observed values.

:class:`MultiplicativeEpochs` and :class:`AdditiveEpochs` (Shi and Eryilmaz 2022) change multipliers
once per epoch, :class:`PrimalDual` (after Zhou and Ji 2022) in every round. A rule turns constraint
values into multipliers ``kappa``, and multipliers into the penalized outcomes to which a surrogate
is fitted,

.. math:: F(x) = f(x) - \sum_j \kappa_j (\psi(g_j(x)) - 1).

Rules are folds over tensors: ``init(batch_shape) -> state`` and ``step(state, values) -> state``
serve both a single live stream (``batch_shape`` is ``()``) and replicates that get outcomes in the
same rounds. They do not depend on the loop, the model or the acquisition function.

Sources: Shi and Eryilmaz, *A Bayesian approach for stochastic continuum-armed bandit with long-term
constraints*, AISTATS 2022; Zhou and Ji, *On kernelized multi-armed bandits with constraints*,
NeurIPS 2022.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_finite,
    check_instance,
    check_integer,
    check_nonnegative,
    check_number,
    check_one_of,
    check_positive,
    check_probability,
    store_bounds,
    store_checked,
)
from botorch_bandits.confidence import BoundedNorm, Forecast, Guarantee
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.horizon import (
    Run,
    forecasts_of_exact_epochs,
    forecasts_of_noisy_epochs,
)
from botorch_bandits.confidence.theorems import (
    EXACT_CONSTRAINTS,
    NO_RUN_OF_MODELS,
    NOISY_CONSTRAINTS,
    OF_EPOCHS,
    Theorem,
    guarantee_of,
)
from botorch_bandits.models.bandit_gp import BanditGPRecipe
from botorch_bandits.penalties import (
    Exponential,
    Linear,
    Penalty,
    check_penalty,
    check_penalty_properties,
)


@dataclass(frozen=True, eq=False)
class MultiplierState:
    """The state of a rule, for one stream (``batch_shape`` is ``()``) or for replicates.

    Attributes:
        levels: ``batch_shape x num_constraints``; what the rule updates: multipliers, or their
            logarithms. :meth:`MultiplierRule.multipliers` turns levels into multipliers.
        sums: ``batch_shape x num_constraints``; sums of the observed constraint values of the
            running epoch.
        rounds: ``batch_shape``; the number of completed rounds of the running epoch.
        epochs: ``batch_shape``; the number of completed epochs. The running epoch has number
            ``epochs + 1``.
    """

    levels: Tensor
    sums: Tensor
    rounds: Tensor
    epochs: Tensor

    @property
    def epoch(self) -> Tensor:
        """``batch_shape``; the number ``l`` of the running epoch, from 1."""
        return self.epochs + 1


LARGEST_TARGET = 1e150
"""Sums of squares of smaller numbers are finite in float64."""


WAY_ON = (
    "To continue from the recorded outcomes with another rule, attach them to a new loop: "
    "attach(x, reward, constraints), with a storage of its own if it has one."
)
"""The remedy after multipliers overflowed; outcomes are recorded without multipliers."""


class MultiplierOverflowError(OverflowError):
    """A multiplier or a penalized outcome is too large for float64.

    Recorded outcomes are not lost, because they are recorded without multipliers: attach them to a
    loop with another rule. This can be the same rule with ``max_multiplier=``, which caps the
    multipliers.

    Example:
        >>> from botorch_bandits import Arms, BanditLoop, MultiplicativeEpochs, RandomSearch
        >>> arms = Arms([[0.0], [1.0]])
        >>> exact = dict(num_constraints=1, epoch_length=2)
        >>> rule = MultiplicativeEpochs(**exact)
        >>> loop = BanditLoop(arms, None, RandomSearch(), constraints=rule)
        >>> query_ids = [loop.ask().id, loop.ask().id]
        >>> outcome = loop.tell(query_ids[0], 0.5, [60.0])
        >>> loop.tell(query_ids[1], 0.5, [60.0])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: constraints is [60.0], which MultiplicativeEpochs turns into a multiplier ...
        >>> rule = MultiplicativeEpochs(**exact, max_multiplier=1e6)
        >>> other = BanditLoop(arms, None, RandomSearch(), constraints=rule)
        >>> for outcome in loop.history.outcomes:
        ...     x = loop.history.query(outcome.query_id).x
        ...     attached = other.attach(x, outcome.reward, outcome.constraints)
        >>> attached = other.attach(loop.pending[0].x, 0.5, [60.0])
        >>> query = other.ask()
        >>> round(other.multipliers[0])
        1000000
    """


SURROGATES = ("relabeled", "fresh", "separate")
"""The function that the Gaussian process models.

``"relabeled"``: one GP on the penalized outcomes of ALL queries so far, with the multipliers of the
running epoch. ``"fresh"``: one GP on the penalized outcomes of the running epoch only.
``"separate"``: one GP for ``f`` and one for each ``g_j``, on all queries.
"""


class MultiplierRule(ABC):
    """How multipliers follow from constraint values.

    Attributes:
        num_constraints: The number of constraints, at least 1.
        epoch_length: The number of rounds between two updates of the multipliers.
        penalty: The penalty that is charged for a violation.
        surrogate: One of :data:`SURROGATES`.
        models: The recipes of epochs 1, 2, ... and all further ones; empty if one model serves all.
        max_multiplier: The value at which multipliers are capped; None if they are not.
        reward_bound: Where upper bounds on the reward are clipped; None if they are not.
        constraint_bound: The same for lower bounds on the constraints.
        expects_exact_constraints: Whether the rule is for constraint values without noise.
        observes: What :meth:`step` takes: ``"outcomes"`` (observed ``g``) or ``"lower_bounds"``
            (lower confidence bounds of ``g`` at the point that was played).
    """

    num_constraints: int
    epoch_length: int
    penalty: Penalty
    surrogate: str
    models: Sequence[BanditGPRecipe] = ()
    max_multiplier: float | None = None
    reward_bound: float | None = None
    constraint_bound: float | None = None
    expects_exact_constraints: ClassVar[bool] = False
    observes: ClassVar[str] = "outcomes"

    def __post_init__(self) -> None:
        """Check the number of constraints."""
        number = check_integer("num_constraints", self.num_constraints, minimum=1)
        store_checked(self, num_constraints=number)

    def largest_step(self, size: float) -> float:
        """Return a bound on how much an update adds to a multiplier; infinite if none is known.

        Args:
            size: A bound on the sums of the epoch's constraint values.
        """
        return math.inf

    def of_one_model(self) -> Self:
        """Return the rule without the recipes of epochs."""
        return self

    @abstractmethod
    def update(self, levels: Tensor, mean: Tensor) -> Tensor:
        """Return the levels of the next epoch.

        Args:
            levels: ``batch_shape x num_constraints``.
            mean: ``batch_shape x num_constraints``; the sums of the epoch divided by its length.
        """

    def multipliers(self, state: MultiplierState) -> Tensor:
        """Return the multipliers in force, ``batch_shape x num_constraints``.

        Args:
            state: A state from :meth:`init` or :meth:`step`.

        Raises:
            MultiplierOverflowError: If one of them is too large for float64.
        """
        return state.levels

    @abstractmethod
    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return which theorem bounds regret and violation under this rule, or why none does.

        Args:
            facts: What is known of its use.
        """

    def forecasts(self, run: Run) -> Iterator[Forecast]:
        """Yield what is known of regret and violation before a run, if anything.

        Args:
            run: The run.
        """
        return iter(())

    # --- the fold ---------------------------------------------------------------------------

    def init(
        self,
        batch_shape: tuple[int, ...] = (),
        device: torch.device | str | None = None,
    ) -> MultiplierState:
        """Return the state before the first round.

        Args:
            batch_shape: The shape of the replicates; ``()`` for a live loop.
            device: The device of its tensors.
        """
        sums = torch.zeros(*batch_shape, self.num_constraints, dtype=DTYPE, device=device)
        none = torch.zeros(batch_shape, dtype=torch.int64, device=device)
        return MultiplierState(sums, sums, none, none)

    def step(self, state: MultiplierState, values: Tensor | None) -> MultiplierState:
        """Return the state after one more round.

        The outcomes that arrived in the round each count once in the running epoch, regardless of
        the round in which they were queried. The multipliers change after the epoch's last round.

        Args:
            state: The state before the round.
            values: The outcomes that arrived: ``batch_shape x num_constraints`` for one outcome,
                ``batch_shape x k x num_constraints`` for ``k``. None if nothing arrived.

        Raises:
            TypeError: If the values are not float64.
            ValueError: If the shape is wrong or a value is not finite.
        """
        return self.advance(state if values is None else self.observe(state, values))

    def observe(self, state: MultiplierState, values: Tensor) -> MultiplierState:
        """Count outcomes in the running epoch without ending a round.

        Args:
            state: The state before they arrived.
            values: See :meth:`step`.
        """
        check_double("values", values)
        shape = tuple(state.sums.shape)
        if values.shape == shape:
            values = values.unsqueeze(-2)
        if (*values.shape[:-2], values.shape[-1]) != shape:
            raise ValueError(
                f"constraint values have shape {tuple(values.shape)}; they must be {shape} for one "
                f"outcome or {(*shape[:-1], 'k', shape[-1])} for k outcomes ({shape[-1]} "
                "constraints)."
            )
        check_finite("values", values)
        return replace(state, sums=state.sums + values.sum(dim=-2))

    def advance(self, state: MultiplierState) -> MultiplierState:
        """Complete a round; after the last round of an epoch, the multipliers change.

        Args:
            state: The state before the end of the round.
        """
        rounds = state.rounds + 1
        ended = rounds >= self.epoch_length  # batch_shape
        by_constraint = ended.unsqueeze(-1)
        # first the mean, then psi: constraint values of both signs cancel within an epoch
        updated = self.update(state.levels, state.sums / self.epoch_length)
        return MultiplierState(
            levels=torch.where(by_constraint, updated, state.levels),
            sums=torch.where(by_constraint, 0.0, state.sums),
            rounds=torch.where(ended, 0, rounds),
            epochs=state.epochs + ended,
        )

    def reset(self, state: MultiplierState, keep_multipliers: bool = False) -> MultiplierState:
        """Return the state after a restart: the running epoch is cut short, without an update.

        Args:
            state: The state before the restart.
            keep_multipliers: Whether the multipliers are kept; the number of the epoch is then kept
                as well.
        """
        fresh = self.init(tuple(state.rounds.shape), state.levels.device)
        if not keep_multipliers:
            return fresh
        return replace(fresh, levels=state.levels, epochs=state.epochs)

    # --- penalized outcomes -----------------------------------------------------------------

    def penalized(self, rewards: Tensor, constraints: Tensor, multipliers: Tensor) -> Tensor:
        """Return the targets ``f - sum_j kappa_j (psi(g_j) - 1)`` of stored outcomes.

        Targets are recomputed from rewards and constraint values whenever multipliers change,
        because earlier targets are then of no use.

        Args:
            rewards: ``batch_shape x n``.
            constraints: ``batch_shape x n x num_constraints``.
            multipliers: ``batch_shape x num_constraints``.

        Returns:
            ``batch_shape x n`` targets.

        Raises:
            TypeError: If a tensor is not float64.
            ValueError: If shapes do not match.
            MultiplierOverflowError: If a target of finite outcomes is not finite, or so large that
                sums of squares are not.
        """
        check_double("rewards", rewards)
        check_double("constraints", constraints)
        check_double("multipliers", multipliers)
        constraints, multipliers = constraints.to(rewards.device), multipliers.to(rewards.device)
        m = multipliers.shape[-1]
        if constraints.shape != (*rewards.shape, m):
            raise ValueError(
                f"rewards {tuple(rewards.shape)}, constraints {tuple(constraints.shape)} and "
                f"multipliers {tuple(multipliers.shape)} do not match: they must be batch x n, "
                f"batch x n x {m} and batch x {m}."
            )
        # batch_shape x n x m, the last dimension summed
        charges = multipliers.unsqueeze(-2) * self.penalty.excess(constraints)
        targets = rewards - charges.sum(dim=-1)
        known = torch.isfinite(rewards) & torch.isfinite(constraints).all(dim=-1)
        if bool((known & ~(targets.abs() < LARGEST_TARGET)).any()):
            raise MultiplierOverflowError(
                "a penalized outcome is too large for float64 (largest multiplier "
                f"{float(multipliers.max()):.3g}). Use penalty=Polynomial(c, n), which grows more "
                f"slowly, or a smaller c. {WAY_ON}"
            )
        return targets

    # --- constants of the inner algorithm ---------------------------------------------------

    def noise_factor(self, multipliers: Tensor) -> Tensor:
        """Return the factor of the noise bound ``R`` for penalized outcomes.

        Args:
            multipliers: ``batch_shape x num_constraints``.

        Returns:
            ``batch_shape``; 1 if constraints are observed exactly.
        """
        return torch.ones_like(multipliers[..., 0])

    def delta(self, delta: float, epoch: int = 1, num_epochs: int | None = None) -> float:
        """Return the share of ``delta`` that the confidence bound of one epoch gets.

        Args:
            delta: The failure probability of all epochs together.
            epoch: The number ``l`` of the running epoch, from 1.
            num_epochs: ``L``. If it is not known, epoch ``l`` gets ``6 delta / (pi^2 l^2)``, and
                these shares sum to ``delta``.

        Returns:
            ``delta`` itself for separate surrogates, whose bounds hold for all multipliers at once;
            the acquisition function splits it between ``f`` and the constraints.
        """
        delta = check_probability("delta", delta)
        epoch = check_integer("epoch", epoch, minimum=1)
        if self.surrogate == "separate":
            return delta
        if num_epochs is None:
            return 6.0 * delta / (math.pi * epoch) ** 2
        if epoch > check_integer("num_epochs", num_epochs, minimum=1):
            raise ValueError(f"epoch is {epoch}, but num_epochs is {num_epochs}.")
        return delta / num_epochs


@dataclass(frozen=True)
class EpochRule(MultiplierRule):
    """The common base of the two rules with epochs.

    Attributes:
        num_constraints: See :class:`MultiplierRule`.
        epoch_length: ``S``, the number of rounds in an epoch.
        surrogate: One of :data:`SURROGATES`.
        models: The recipes of the models of epochs 1, 2, ..., the last one also for all further
            epochs (Assumptions 3 and 5 of Shi and Eryilmaz 2022: the penalized function of each
            epoch has its own kernel, fixed before the outcomes of the epoch). It takes the place of
            the loop's model and needs ``surrogate="fresh"``. Empty if one model serves all epochs.
    """

    num_constraints: int
    epoch_length: int
    surrogate: str = field(default="relabeled", kw_only=True)
    models: Sequence[BanditGPRecipe] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        length = check_integer("epoch_length", self.epoch_length, minimum=1)
        store_checked(self, epoch_length=length)
        check_one_of("surrogate", self.surrogate, SURROGATES)
        remedy = "Pass a list, models=[BanditGP.with_kernel(...), ...], one recipe for each epoch."
        check_instance("models", self.models, (list, tuple), remedy)
        for index, recipe in enumerate(self.models):
            check_instance(f"models[{index}]", recipe, BanditGPRecipe, remedy)
        store_checked(self, models=tuple(self.models))
        if self.models and self.surrogate != "fresh":
            raise ValueError(
                f"models has {len(self.models)} recipes, but surrogate is {self.surrogate!r}: only "
                "epochs that begin without data have models of their own. Pass surrogate='fresh', "
                "or leave out models=."
            )

    def of_one_model(self) -> Self:
        """See :class:`MultiplierRule`."""
        return replace(self, models=())

    def forecasts(self, run: Run) -> Iterator[Forecast]:
        if self.surrogate != "fresh" or run.norm is None:
            return iter(())
        if self.models:
            return iter((NO_RUN_OF_MODELS.of(),))
        return self._forecasts(run, run.norm)

    @abstractmethod
    def _forecasts(self, run: Run, norm: BoundedNorm) -> Iterator[Forecast]:
        """Yield what is known before a run of epochs with one model."""

    def _guarantee(self, theorem: Theorem, facts: Facts) -> Guarantee:
        facts = replace(
            facts,
            surrogate=self.surrogate,
            is_capped=self.max_multiplier is not None,
            is_linear_beyond=not self.penalty.is_linear and self.penalty.is_linear_beyond,
        )
        constants = {**facts.constants, "epoch_length": float(self.epoch_length)}
        assumed = self.penalty.assumed
        return guarantee_of(theorem, facts, constants, assumptions=assumed, of_use=OF_EPOCHS)


@dataclass(frozen=True)
class MultiplicativeEpochs(EpochRule):
    r"""Algorithm 2 of Shi and Eryilmaz 2022, for constraints observed exactly.

    .. math:: \kappa_j^1 = 1, \qquad
        \kappa_j^{l+1} = \kappa_j^l \, \psi\Big(\frac{1}{S} \sum_{s=1}^S g_j(x_l^s)\Big)

    Multipliers are kept as logarithms, so that the update itself cannot overflow. They never
    decrease.

    Attributes:
        num_constraints: ``m``.
        epoch_length: ``S``, the number of rounds in an epoch.
        penalty: ``psi``.
        max_multiplier: Multipliers are capped at this value, which is at least 1. No theorem covers
            this cap. If None, a multiplier beyond float64 is an error.
        unconstrained_gap: ``Delta``, a bound on how much the largest reward of all exceeds the
            reward of the best feasible point. Only the bound on violation before a run needs it
            (12).
        surrogate: One of :data:`SURROGATES`.
        models: See :class:`EpochRule`.

    Raises:
        PenaltyPropertyError: If the penalty is linear, or lacks another required property.

    Example:
        >>> import torch
        >>> rule = MultiplicativeEpochs(num_constraints=1, epoch_length=2)
        >>> state = rule.init()
        >>> for g in (1.0, 2.0):
        ...     state = rule.step(state, torch.tensor([g], dtype=torch.float64))
        >>> rule.multipliers(state).log()
        tensor([1.5000], dtype=torch.float64)
    """

    penalty: Penalty = field(default_factory=Exponential)
    max_multiplier: float | None = None
    unconstrained_gap: float | None = None

    expects_exact_constraints: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        check_penalty(self.penalty)
        if self.penalty.is_linear:
            check_penalty_properties(self.penalty, largest=0.5)  # it is not 1 for x <= 0
        gap = self.unconstrained_gap
        if gap is not None:
            store_checked(self, unconstrained_gap=check_nonnegative("unconstrained_gap", gap))
        if self.max_multiplier is None:
            return
        store_checked(self, max_multiplier=check_number("max_multiplier", self.max_multiplier))
        if self.max_multiplier < 1.0:
            raise ValueError(
                f"max_multiplier is {self.max_multiplier}; multipliers start at 1, so it must be "
                "at least 1."
            )

    def update(self, levels: Tensor, mean: Tensor) -> Tensor:
        """Add ``ln psi`` of the mean to the logarithms; see :class:`MultiplierRule`."""
        levels = levels + self.penalty.log_value(mean)
        if self.max_multiplier is None:
            return levels
        return levels.clamp_max(math.log(self.max_multiplier))

    def multipliers(self, state: MultiplierState) -> Tensor:
        multipliers = state.levels.exp()
        if not bool(torch.isfinite(multipliers).all()):
            raise MultiplierOverflowError(
                f"the logarithm of a multiplier is {float(state.levels.max()):.4g}, too large for "
                "float64. Use penalty=Polynomial(c, n), which grows more slowly, a smaller c, "
                "longer epochs, or max_multiplier=. If all points violate the constraint, no "
                f"multiplier will do: see Ledger and recognize_infeasibility. {WAY_ON}"
            )
        return multipliers

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return what Theorem 1 says about regret and violation, and whether it applies.

        Args:
            facts: What is known of its use.
        """
        return self._guarantee(EXACT_CONSTRAINTS, facts)

    def _forecasts(self, run: Run, norm: BoundedNorm) -> Iterator[Forecast]:
        known = self.epoch_length, self.num_constraints, self.penalty, self.unconstrained_gap
        return forecasts_of_exact_epochs(run, norm, *known)


@dataclass(frozen=True)
class AdditiveEpochs(EpochRule):
    r"""Algorithm 3 of Shi and Eryilmaz 2022, for constraints observed with noise.

    .. math:: \kappa_j^1 = 0, \qquad \kappa_j^{l+1} = \Big[\kappa_j^l
        + \mu \frac{1}{S} \sum_{s=1}^S (g_j(x_l^s) + \varepsilon_{l,j}^s)\Big]^+

    The penalty is linear, so a penalized outcome has the noise of the reward and that of each
    constraint: its noise bound is ``R sqrt(1 + sum_j kappa_j^2)`` (the paper's box prints ``R``
    inside the root), and each epoch gets ``delta / (2 L)``.

    Attributes:
        num_constraints: ``m``.
        epoch_length: ``S``, the number of rounds in an epoch.
        step_size: ``mu``, of order ``1 / sqrt(L)`` in the theorem; 0.5 in the paper's experiments.
        slater_margin: ``epsilon``: at some point, every constraint is at most ``-epsilon``. Only
            the bounds before a run need this and the next two values.
        largest_reward: ``Q``, a bound on the absolute value of the reward.
        largest_constraint: ``M``, a bound on the absolute value of each constraint.
        surrogate: One of :data:`SURROGATES`.
        models: See :class:`EpochRule`.

    Example:
        >>> import torch
        >>> rule = AdditiveEpochs(num_constraints=1, epoch_length=2, step_size=0.5)
        >>> state = rule.init()
        >>> for g in (1.0, 2.0):
        ...     state = rule.step(state, torch.tensor([g], dtype=torch.float64))
        >>> rule.multipliers(state)
        tensor([0.7500], dtype=torch.float64)
    """

    step_size: float = 0.5
    slater_margin: float | None = None
    largest_reward: float | None = None
    largest_constraint: float | None = None

    penalty = Linear()

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        store_checked(self, step_size=check_positive("step_size", self.step_size))
        store_bounds(
            self,
            slater_margin=self.slater_margin,
            largest_reward=self.largest_reward,
            largest_constraint=self.largest_constraint,
        )

    def update(self, levels: Tensor, mean: Tensor) -> Tensor:
        """Take a step along the mean, not below 0; see :class:`MultiplierRule`."""
        return (levels + self.step_size * mean).clamp_min(0.0)

    def largest_step(self, size: float) -> float:
        return self.step_size / self.epoch_length * size

    def noise_factor(self, multipliers: Tensor) -> Tensor:
        """Return ``sqrt(1 + sum_j kappa_j^2)``; see :class:`MultiplierRule`."""
        return (1.0 + multipliers.square().sum(dim=-1)).sqrt()

    def delta(self, delta: float, epoch: int = 1, num_epochs: int | None = None) -> float:
        """Return half of an epoch's share; the other half is for the noise of the updates.

        Args:
            delta: See :class:`MultiplierRule`.
            epoch: See :class:`MultiplierRule`.
            num_epochs: See :class:`MultiplierRule`.
        """
        share = super().delta(delta, epoch, num_epochs)
        return share if self.surrogate == "separate" else share / 2.0

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return what Theorem 2 says about regret and violation, and whether it applies.

        Args:
            facts: What is known of its use.
        """
        return self._guarantee(NOISY_CONSTRAINTS, facts)

    def _forecasts(self, run: Run, norm: BoundedNorm) -> Iterator[Forecast]:
        known = self.epoch_length, self.num_constraints, self.step_size
        sizes = self.slater_margin, self.largest_reward, self.largest_constraint
        return forecasts_of_noisy_epochs(run, norm, *known, *sizes)


@dataclass(frozen=True)
class PrimalDual(MultiplierRule):
    r"""A multiplier update in every round, after Zhou and Ji 2022.

    Each round plays the maximizer of ``UCB_f(x) - sum_j phi_j LCB_j(x)``, with ``UCB_f`` clipped
    to ``[-B, B]`` and ``LCB_j`` to ``[-G, G]``, on separate models of ``f`` and each ``g_j``, and
    then takes a step along the lower confidence bounds at the point played:

    .. math:: \phi_j \leftarrow \min\{\max\{\phi_j + \mathrm{LCB}_j(x_t) / V, 0\}, \rho\}

    The rule observes lower bounds, not outcomes (:attr:`observes`), so delays do not affect it. The
    form and its constants were not compared with the paper.

    Attributes:
        num_constraints: ``m``.
        max_multiplier: ``rho``.
        divisor: ``V``.
        reward_bound: ``B``, or None for no clipping of ``UCB_f``.
        constraint_bound: ``G``, or None for no clipping of ``LCB_j``.

    Example:
        >>> import torch
        >>> rule = PrimalDual(num_constraints=1, max_multiplier=2.0, divisor=4.0)
        >>> state = rule.step(rule.init(), torch.tensor([1.0], dtype=torch.float64))
        >>> rule.multipliers(state)
        tensor([0.2500], dtype=torch.float64)
    """

    num_constraints: int
    max_multiplier: float = field()  # without the default of the base class
    divisor: float
    reward_bound: float | None = None
    constraint_bound: float | None = None

    observes: ClassVar[str] = "lower_bounds"
    epoch_length, penalty, surrogate = 1, Linear(), "separate"

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        store_checked(self, max_multiplier=check_positive("max_multiplier", self.max_multiplier))
        store_checked(self, divisor=check_positive("divisor", self.divisor))
        store_bounds(self, reward_bound=self.reward_bound, constraint_bound=self.constraint_bound)

    @classmethod
    def with_constants(
        cls,
        num_constraints: int,
        *,
        reward_bound: float,
        constraint_bound: float,
        slater_gap: float,
        horizon: int,
    ) -> PrimalDual:
        """Return the rule with ``rho = 4 B / gap`` and ``V = G sqrt(T) / rho``.

        These constants, after Zhou and Ji 2022, were not compared with the paper.

        Args:
            num_constraints: ``m``.
            reward_bound: ``B``, a bound on the absolute value of ``f``.
            constraint_bound: ``G``, a bound on the absolute value of each ``g_j``.
            slater_gap: Some point has ``g_j <= -slater_gap`` for all ``j``.
            horizon: ``T``, the number of rounds.
        """
        bound = check_positive("reward_bound", reward_bound)
        largest = 4.0 * bound / check_positive("slater_gap", slater_gap)
        rounds = check_integer("horizon", horizon, minimum=1)
        divisor = check_positive("constraint_bound", constraint_bound) * math.sqrt(rounds) / largest
        return cls(num_constraints, largest, divisor, reward_bound, constraint_bound)

    def update(self, levels: Tensor, mean: Tensor) -> Tensor:
        """Take a step along the clipped lower bounds; see :class:`MultiplierRule`."""
        if self.constraint_bound is not None:
            mean = mean.clamp(-self.constraint_bound, self.constraint_bound)
        return (levels + mean / self.divisor).clamp(0.0, self.max_multiplier)

    def largest_step(self, size: float) -> float:
        return 0.0  # it observes lower bounds, not outcomes

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return that no theorem is claimed, because its constants were not checked.

        Args:
            facts: What is known of its use.
        """
        return Guarantee(
            method="primal-dual multipliers, every round",
            constants={"max_multiplier": self.max_multiplier, "divisor": self.divisor},
            gaps=("form and constants are from memory of Zhou and Ji 2022, not checked",),
        )


# --- Two warnings about constraints: no point seems to meet one, or its values are too noisy ------
# :func:`recognize_infeasibility` considers lower confidence bounds and multipliers, and
# :func:`warn_if_noisy` repeated points under a rule that is for exact values. Neither changes
# what a rule does.


class NoisyConstraintsWarning(UserWarning):
    """Constraint values are noisy, but the rule in use is for exact ones."""


class InfeasibleConstraintsWarning(UserWarning):
    """No point seems to meet a constraint; see :func:`recognize_infeasibility`."""


def recognize_infeasibility(
    multipliers: Tensor,
    smallest_lower_bounds: Tensor,
    num_epochs: int = 3,
    largest: float | None = None,
) -> Tensor:
    """Return which constraints no point seems to meet.

    A constraint is reported if its smallest lower confidence bound over the domain is positive, and
    its multiplier grew in each of the last ``num_epochs`` updates. The first condition alone
    implies, if the confidence bound holds, that no point meets the constraint; the second shows
    that the rule pursues a target that it cannot reach. Constraints that exclude each other, each
    of which some point meets, are not recognized.

    Args:
        multipliers: ``batch_shape x num_epochs_so_far x num_constraints``.
        smallest_lower_bounds: ``batch_shape x num_constraints``; for each constraint the minimum
            over the domain of ``mean - width * standard_deviation``.
        num_epochs: The number of consecutive updates that must have raised the multiplier.
        largest: The largest value, if the rule caps multipliers; a capped multiplier counts as
            growing.

    Returns:
        ``batch_shape x num_constraints`` booleans. All are False before ``num_epochs`` updates.

    Example:
        >>> kappa = torch.tensor([[1.0], [2.0], [4.0], [8.0]], dtype=torch.float64)
        >>> recognize_infeasibility(kappa, torch.tensor([0.3], dtype=torch.float64))
        tensor([True])
    """
    if multipliers.shape[-2] <= num_epochs:
        return torch.zeros_like(smallest_lower_bounds, dtype=torch.bool)
    grew = multipliers[..., -num_epochs - 1 :, :].diff(dim=-2) > 0.0
    if largest is not None:  # taking a logarithm and exponentiating may round
        grew = grew | (multipliers[..., -num_epochs:, :] >= largest * (1.0 - 1e-9))
    return grew.all(dim=-2) & (smallest_lower_bounds > 0.0)


def warn_if_noisy(
    rule: MultiplierRule, first: Sequence[float], again: Sequence[float], stacklevel: int = 2
) -> bool:
    """Warn if a rule for exact constraint values is given noisy ones.

    Values are noisy if the same point was observed with two different values. Noise that never
    shows at a repeated point is not detected.

    Args:
        rule: The rule in use.
        first: ``num_constraints`` observed values at a point.
        again: Later ones at the same point.
        stacklevel: The caller whose line the warning names; see :func:`warnings.warn`.

    Returns:
        Whether it warned.

    Warns:
        NoisyConstraintsWarning: Naming the constraint and the rule for noisy values.
    """
    noisy = [
        j
        for j, (a, b) in enumerate(zip(first, again, strict=True))
        if abs(a - b) > 1e-12 * max(1.0, abs(a), abs(b))  # rounding of an exact value is no noise
    ]
    if not (rule.expects_exact_constraints and noisy):
        return False
    warnings.warn(
        f"constraint {noisy[0] + 1} was observed with different values at one point, but "
        f"{type(rule).__name__} is for exact values: psi amplifies noise. Use AdditiveEpochs.",
        NoisyConstraintsWarning,
        stacklevel=stacklevel,
    )
    return True
