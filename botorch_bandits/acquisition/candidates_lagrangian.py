r"""A penalized reward with lists of priors, when the priors of reward and constraints are unknown.

.. math:: U(x) = U_0(x) - \sum_j \kappa_j (\psi(L_j(x)) - 1), \qquad g_j(x) \le 0
   \text{ is feasible}

The survivors of a list give the bounds :math:`L_j \le g_j \le U_j`, with ``j = 0`` for the reward.
Each output has its own copy of the list, its own evidence and its own share
:math:`\delta / (1 + J)`.

Suppose that all bounds hold, and let :math:`x^*` be the best point that meets the constraints. On
arms, :math:`L_j(x^*) \le 0`, so that :math:`U(x^*) \ge f(x^*)` for :math:`\kappa \ge 0`. The regret
of the maximizer :math:`x_t` of ``U``, relative to :math:`x^*`, is therefore at most
:math:`U(x_t) - L_0(x_t)`. On a box, the same holds at the point of the discretization next to
:math:`x^*`, where each function differs from its value at :math:`x^*` by at most :math:`s_j / t^2`,
with the prior standard deviation :math:`s_j`, so that

.. math:: U(x_t) - L_0(x_t) + \frac{s_0}{t^2} + \sum_j \kappa_j (\psi(s_j / t^2) - 1)

is a bound.

The evidence of each output predicts it from the past of that output alone. For the evidence to be a
martingale although queries depend on all outputs, the outputs must be independent draws with
independent noise.

Sources: Shi and Eryilmaz 2022 and Zhou and Ji 2022 for the penalized reward; the bounds are those
of ``candidates.py``, combined by a union bound. The combination is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model, ModelList
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor
from torch.nn import ModuleList

from botorch_bandits.acquisition.base import (
    BanditAcquisition,
    check_pending,
    check_points,
    of_acquisition,
)
from botorch_bandits.acquisition.candidates import CandidatesUpperConfidenceBound
from botorch_bandits.acquisition.candidates_widths import with_pending
from botorch_bandits.acquisition.output_widths import check_maximizes, of_minus_the_reward
from botorch_bandits.acquisition.scores import ArmsRule
from botorch_bandits.checks import check_one_of, check_probability, counted
from botorch_bandits.confidence import Guarantee, RegretStatement, Statement
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Domain
from botorch_bandits.penalties import (
    Linear,
    Penalty,
    check_multipliers,
    check_no_overflow,
    check_penalty,
)

OF_PARTS = (
    "form",
    "delta",
    "num_arms",
    "smoothness_a",
    "smoothness_b",
    "dim",
    "side_length",
    "width",
    "assume",
)
"""Options that each output's bound has, too."""

INDEPENDENT_OUTPUTS = "reward and constraints are independent of each other, and so is their noise"
"""What several lists assume in addition to the assumptions of each one."""


class CandidatesLagrangianUpperConfidenceBound(BanditAcquisition):
    r"""Upper confidence bound of ``f - sum_j kappa_j (psi(g_j) - 1)`` on lists of priors.

    Each output has its own list of priors, its own evidence and ``delta / (1 + J)`` for its bounds,
    which hold for all multipliers at once; see :class:`CandidatesUpperConfidenceBound`. The outputs
    must be independent draws with independent noise.

    Args:
        model: ``ModelList`` of ``1 + num_constraints`` lists of priors, the reward first, as
            :meth:`BanditGP.with_candidates` makes it of ``n x (1 + num_constraints)`` outcomes.
        multipliers: ``kappa``, one nonnegative number for each constraint. In a loop, they come
            from the multiplier rule in use.
        penalty: The penalty for a violation; see :mod:`botorch_bandits.penalties`.
        form: See :class:`CandidatesUpperConfidenceBound`; the same holds for the following
            arguments.
        delta: The bounds of all outputs together fail with at most this probability.
        num_arms: ``|D|`` of Theorem 1.
        smoothness_a: ``a`` of Theorem 2, one number, or one per prior; the same for all outputs.
        smoothness_b: ``b`` of Theorem 2, in raw outcome units per unit of input; one number, or one
            per prior.
        dim: ``d`` of Theorem 2.
        side_length: ``r`` of Theorem 2.
        width: A constant width instead of one from a theorem.
        round_number: The round ``t`` of the first point that is chosen.
        maximize: If False, the reward is minimized: ``-f`` replaces ``f``.
        assume: The assumptions that you vouch for, for every output.
        X_pending: ``n x d`` points whose outcomes have not arrived.

    Raises:
        TypeError: If an output is not a list of priors, or a tensor is not float64.
        ValueError: If the number of outputs is wrong, or ingredients of more than one width are
            given.

    Warns:
        RefutedListWarning: If no prior survives for some output.

    Example:
        >>> from botorch_bandits import BanditGP
        >>> from botorch_bandits.models import candidate_grid
        >>> X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
        >>> priors = BanditGP.with_candidates(candidate_grid([0.1, 0.5]))
        >>> model = priors(X, torch.cat([X.sin(), X - 0.5], dim=-1))
        >>> acqf = CandidatesLagrangianUpperConfidenceBound(model, multipliers=[2.0], num_arms=5)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([5])
    """

    defines_rule: ClassVar[bool] = True

    multipliers: Tensor

    def __init__(
        self,
        model: Model,
        *,
        multipliers: Tensor | Sequence[float],
        penalty: Penalty | None = None,
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
        super().__init__(model)
        self.penalty = Linear() if penalty is None else check_penalty(penalty)
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self.delta = check_probability("delta", delta)
        checked = check_multipliers(multipliers)
        models = list(model.models) if isinstance(model, ModelList) else [model]
        if len(models) != 1 + len(checked):
            raise ValueError(
                f"multipliers has {counted(len(checked), 'entry', 'entries')}, so the model must "
                f"be a ModelList of {1 + len(checked)} lists of priors (the reward first, then "
                f"each constraint), but it has {len(models)}. "
                "BanditGP.with_candidates([...])(X, Y) makes one from a Y with that many columns."
            )
        self.register_buffer("multipliers", checked.to(models[0].train_inputs[0].device))
        self._parts = ModuleList(
            CandidatesUpperConfidenceBound(
                each,
                form=form,
                delta=self.delta / len(models),
                num_arms=num_arms,
                smoothness_a=smoothness_a,
                smoothness_b=smoothness_b,
                dim=dim,
                side_length=side_length,
                width=width,
                round_number=round_number,
                maximize=j == 0 and maximize,
                assume=assume,
                X_pending=X_pending,
            )
            for j, each in enumerate(models)
        )
        AcquisitionFunction.set_X_pending(self, check_pending(X_pending, model))

    @property
    def parts(self) -> tuple[CandidatesUpperConfidenceBound, ...]:
        """The bound of the reward, to be maximized, and minus the lower bounds of constraints."""
        return tuple(cast(Iterable[CandidatesUpperConfidenceBound], self._parts))

    @property
    def num_constraints(self) -> int:
        """The number of constraints."""
        return len(self.multipliers)

    @property
    def X_baseline(self) -> Tensor:
        """``n x d`` points near which an optimizer should also start; the name is BoTorch's.

        Raises:
            AttributeError: If there are none yet.
        """
        return self.parts[0].X_baseline

    @classmethod
    def options_from_domain(
        cls, options: Mapping[str, Any], domain: Domain | None
    ) -> dict[str, Any]:
        """Return the number of arms, or the shape of the box, if the theorem in use needs it.

        Args:
            options: All constructor arguments.
            domain: The domain on which the acquisition will be maximized; None if it is not known
                yet.
        """
        return CandidatesUpperConfidenceBound.options_from_domain(options, domain)

    @classmethod
    def check_options(cls, options: Mapping[str, Any], domain: Domain | None) -> None:
        """See the base class."""
        if options.get("penalty") is not None:
            check_penalty(options["penalty"])
        if options.get("multipliers") is not None:
            check_multipliers(options["multipliers"])
        check_maximizes(cls.__name__, options)
        of_parts = {name: value for name, value in options.items() if name in OF_PARTS}
        CandidatesUpperConfidenceBound.check_options(of_parts, domain)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        """Return None: there is no rule on arms.

        Args:
            options: All constructor arguments.
        """
        return None

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points, starting again from the models of the outcomes that have arrived.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
        """
        pending = check_pending(X_pending, self.model)
        for part in self.parts:
            part.set_X_pending(pending)
        AcquisitionFunction.set_X_pending(self, pending)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is the sum of
                their bounds, each computed as if the points before it were pending.

        Returns:
            ``batch_shape`` values.

        Raises:
            TypeError: If ``X`` is not float64.
            OverflowError: If a penalty is too large for float64.
        """
        check_points(self, X)
        return check_no_overflow(self._evaluate(X))

    @t_batch_mode_transform(assert_output_shape=False)
    def _evaluate(self, X: Tensor) -> Tensor:
        upper, *lowered = [part._values(X) for part in self.parts]
        return self._penalized(upper, -torch.stack(lowered, dim=-1)).sum(-1)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return lower and upper bounds of all outputs from the outcomes that have arrived.

        Args:
            X: ``... x d`` points.

        Returns:
            ``... x (1 + num_constraints)`` each.
        """
        each = [part.bounds(X) for part in self.parts]
        lower, upper = (torch.stack([pair[side] for pair in each], dim=-1) for side in (0, 1))
        return lower, upper

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers these bounds with these lists, or why none does."""
        each = [part.guarantee() for part in self.parts]
        gaps: dict[str, list[str]] = {}
        names = ["reward", *(f"constraint {j}" for j in range(1, len(each)))]
        for name, guarantee in zip(names, each, strict=True):
            for gap in guarantee.gaps:
                gaps.setdefault(gap, []).append(name)
        told = tuple(
            gap if len(who) == len(each) else f"{', '.join(who)}: {gap}"
            for gap, who in gaps.items()
        )
        method = "the upper confidence bound of the penalized reward (from lists of priors)"
        combined = Guarantee(method=method, constants={"delta": self.delta}, gaps=told)
        if all(guarantee.theorem is not None for guarantee in each):
            combined = self._of_theorems(combined, each)
        told = tuple(
            f"{name}: {note}"
            for name, guarantee in zip(names, each, strict=True)
            for note in guarantee.notes
        )
        combined = with_pending(replace(combined, notes=told), self.X_pending)
        if not self.maximize:
            combined = of_minus_the_reward(combined)
        return of_acquisition(self, combined)

    def _of_theorems(self, combined: Guarantee, each: Sequence[Guarantee]) -> Guarantee:
        count, on_box = len(each), self.parts[0].widths.on_box
        constants = dict(combined.constants)
        for j, guarantee in enumerate(each):
            constants.update({f"{name}_{j}": value for name, value in guarantee.constants.items()})
        theorem = "Theorem 2" if on_box else "Theorem 1"
        where = (
            "at the point of the round and on a discretization that grows with it; not at all "
            "points at once"
            if on_box
            else "on all arms (with contexts: at the context of each round)"
        )
        added = ", plus what the discretization costs" if on_box else ""
        assumptions = [
            assumption
            for guarantee in each
            for assumption in guarantee.about("each function").assumptions
        ]
        return replace(
            combined,
            constants=constants,
            theorem=f"Ville's inequality and Srinivas et al. 2010, {theorem}, for reward and "
            f"constraints at delta / {count} each (union bound), half of it for each",
            bands=Statement(
                "with {probability} the reward and each constraint lie between the least lower and "
                f"the largest upper bound of their priors that survive, in all rounds, {where}",
                delta=self.delta,
                reach=None if on_box else "arms",
            ),
            regret=RegretStatement(
                "with {probability}, on the same event, the regret of every round that maximizes "
                "the bound of the penalized reward, against the best point that meets the "
                "constraints, is at most the value of that bound less the lower confidence bound "
                f"of the reward, at the point that it chose{added}",
                delta=self.delta,
            ),
            violation=Statement(
                "with {probability}, on the same event, each constraint is at most its upper "
                "confidence bound at the points that were chosen, so that the norm of the "
                "positive part of summed constraint values is at most that of summed bounds",
                delta=self.delta,
            ),
            assumptions=tuple(dict.fromkeys([*assumptions, INDEPENDENT_OUTPUTS])),
        )

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return bounds of all outputs at a point, and the bound on regret.

        Args:
            x: A ``d``-dimensional point.
        """
        with torch.no_grad():
            value = float(self(x.unsqueeze(0)))
        of_each = [part.describe(x) for part in self.parts]
        known = {**of_each[0], "acquisition_value": value}
        known["is_refuted"] = max(described["is_refuted"] for described in of_each)
        for j, described in enumerate(of_each[1:], start=1):
            known[f"constraint_mean_{j}"] = described["mean"]
            known[f"constraint_lower_bound_{j}"] = described["lower_bound"]
            known[f"constraint_upper_bound_{j}"] = described["upper_bound"]
        least = known["lower_bound"] if self.maximize else -known["upper_bound"]
        known["regret_bound"] = value - least + self._tail()
        return known

    def _tail(self) -> float:
        """Return the amount that a box's discretization adds to the regret of this round."""
        tails = torch.tensor([part.tail for part in self.parts], dtype=torch.float64)
        tails = tails.to(self.multipliers)
        return float(tails[0] - self._penalized(torch.zeros_like(tails[0]), tails[1:]))

    def _penalized(self, reward: Tensor, constraints: Tensor) -> Tensor:
        """Return ``f - sum_j kappa_j (psi(g_j) - 1)``.

        Args:
            reward: ``batch_shape`` values.
            constraints: ``batch_shape x num_constraints`` values.
        """
        return reward - (self.multipliers * self.penalty.excess(constraints)).sum(dim=-1)


fill_in_docstrings(__name__)
