r"""Thompson sampling with the scale of GP-TS, as a drop-in acquisition function.

In round ``t`` a function is drawn from the posterior with its standard deviations multiplied by
``v_t``, jointly over all points, and maximized:

.. math:: f_t \sim GP(\mu_{t-1}, v_t^2 k_{t-1}), \qquad x_t = \arg\max_x f_t(x)

On finite sets of points, the draw is exact; on a box, a pathwise draw is scaled,
``mu + v_t (path - mu)``. Pending queries either lead to a new draw, or keep the mean unchanged and
shrink the covariance as if their outcomes were known (GP-BTS).

Sources: Chowdhury and Gopalan, *On kernelized multi-armed bandits*, ICML 2017, Algorithm 2 and
Theorem 4; Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022,
the baseline GP-BTS; Desautels, Krause and Burdick, *Parallelizing exploration-exploitation
tradeoffs in Gaussian process bandit optimization*, JMLR 2014, the rule for pending queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import ExpectationPosteriorTransform, PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble, t_batch_mode_transform
from torch import Tensor

from botorch_bandits.acquisition.base import (
    check_model,
    check_points,
    check_round,
    copy_pending,
    kernelized_rule,
    of_acquisition,
)
from botorch_bandits.acquisition.draws import Path, SeededDraw
from botorch_bandits.acquisition.rules import (
    ArmsRule,
    ThompsonArmsRule,
    along_arms,
)
from botorch_bandits.acquisition.scores import (
    Bounds,
    deviation_of,
    half_width,
    scale_in_outcomes,
    score,
)
from botorch_bandits.acquisition.wide_confidence import WarnsOfWideness
from botorch_bandits.checks import (
    check_integer,
    check_nonnegative,
    check_one_of,
    check_positive,
    check_probability,
    store_checked,
)
from botorch_bandits.confidence import (
    ConstantWidth,
    GainBound,
    Guarantee,
    PriorSummary,
    WidthRule,
)
from botorch_bandits.confidence.guarantee import at_posterior_mean, outcomes_pending
from botorch_bandits.confidence.prior_assumptions import kernel_assumptions
from botorch_bandits.confidence.prior_reading import UnreadablePriorError
from botorch_bandits.confidence.width_rules import (
    PLAIN_WIDTH,
    WIDTH,
    check_assume,
    check_scale,
    fit_to_batch,
)
from botorch_bandits.domains import Arms, Box, Domain, ValueScale
from botorch_bandits.models.reading import (
    check_outcomes,
    hallucinate,
    on_device_of,
    provides,
    read_moments,
    read_noise,
    shape_of_batch,
)


@dataclass(frozen=True)
class GrowingDiscretization:
    r"""A grid that is so fine in round ``t`` that rounding to it costs at most ``1 / t^2``.

    A function whose slope along each axis is at most ``B L`` differs by at most ``1 / t^2`` between
    a point and the nearest point of a grid with ``ceil(B L r d t^2)`` points per side, where ``r``
    is the longest side.

    Source: Chowdhury and Gopalan 2017, the decision sets ``D_t`` of Theorem 4. They are a device of
    the proof; the grid grows so fast that it is soon truncated to ``max_points``, which
    :meth:`is_cut` reports.

    Attributes:
        lipschitz: ``L``; a function of norm 1 has slopes of at most ``L``, in prior standard
            deviations per unit of input.
        max_points: The largest number of points, which is limited because the cost of an exact draw
            is cubic in it.
        box: The box that the grid covers; a loop on a box fills it in.
    """

    lipschitz: float
    max_points: int = 1000
    box: Box | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        store_checked(self, lipschitz=check_positive("lipschitz", self.lipschitz))
        store_checked(self, max_points=check_integer("max_points", self.max_points, minimum=2))
        if self.box is not None and self.box.discrete_dims:
            raise ValueError(
                f"box has discrete dimensions {self.box.discrete_dims}; list its points as Arms."
            )
        if self.box is not None and self.box.constraints:
            raise ValueError(
                f"box has {', '.join(self.box.constraints)}, but the grid covers all of it. Leave "
                "discretization= out: the draw is then maximized over the feasible points."
            )

    def on(self, box: Box) -> GrowingDiscretization:
        """Return the same discretization of this box."""
        return replace(self, box=box)

    def points(self, round_number: int, rkhs_bound: float) -> Tensor:
        """Return the grid of one round, ``num_points x d``.

        Args:
            round_number: ``t``, from 1.
            rkhs_bound: ``B``, in prior standard deviations.

        Raises:
            ValueError: If no box is known.
        """
        box = self._box
        size = min(self._wanted(round_number, rkhs_bound), self._affordable)
        lower, sides = box.bounds[0], box.bounds[1] - box.bounds[0]
        # the centers of equal cells: no point of the box is farther away than half a cell
        middles = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        unit = torch.cartesian_prod(*[middles] * box.dim).reshape(-1, box.dim)
        return lower + sides * unit

    def is_cut(self, round_number: int, rkhs_bound: float) -> bool:
        """Return whether the theorem's grid would have had more than ``max_points``.

        Args:
            round_number: The round ``t``, from 1.
            rkhs_bound: The bound on the norm, in prior standard deviations.
        """
        return self._wanted(round_number, rkhs_bound) > self._affordable

    @property
    def _box(self) -> Box:
        if self.box is None:
            raise ValueError("discretization has no box; pass discretization.on(Box(bounds)).")
        return self.box

    @property
    def _affordable(self) -> int:
        return max(int(self.max_points ** (1.0 / self._box.dim) + 1e-9), 1)

    def _wanted(self, round_number: int, rkhs_bound: float) -> int:
        box = self._box
        longest = float((box.bounds[1] - box.bounds[0]).max())
        slope = max(rkhs_bound, 1e-12) * self.lipschitz
        return max(math.ceil(slope * longest * box.dim * round_number**2), 1)


PENDING = ("redraw", "hallucinate")
"""The ways in which a draw can treat pending points."""


class GPThompsonSampling(WarnsOfWideness, SeededDraw):
    r"""GP-TS (Chowdhury and Gopalan 2017): one draw from the posterior, scaled by ``v_t``.

    .. math:: v_t = B + R \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

    The scale multiplies the standard deviation. The same draw is used in every evaluation until
    :meth:`set_X_pending` is called: each pending set has its own draw, so sequential optimizers
    with ``q > 1`` return one maximizer for each draw. The user's model is never changed.

    If you know neither bound, omit both: the scale is then 1, which is plain Thompson sampling. No
    theorem covers this case, as :meth:`guarantee` reports. Giving only one bound is an error,
    except with ``units="prior"``, where the other bound takes the default of
    :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.

    Args:
        model: A fitted BoTorch model in float64.
        rkhs_bound: ``B``, a bound on the reward's norm in the unit-variance kernel, in raw outcome
            units, unless ``units`` says otherwise.
        noise_bound: ``R`` of R-sub-Gaussian noise, in raw outcome units, unless ``units`` says
            otherwise. ``"model"``: see :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.
        delta: The confidence bound fails with at most this probability.
        any_lambda: Use the form of the width that holds for every ``lam``.
        information_gain: An explicit gain instead of the realized one, in nats.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation (models that learn the scale of the outcomes).
        width: A constant scale instead of the one above; 1 gives plain Thompson sampling.
        scale: A factor on the scale.
        choices: ``num_points x d`` points for exact draws; only these points can then be evaluated.
            In a loop on arms, they are the arms. Without choices, the draw is pathwise (random
            Fourier features for the prior, Matheron's rule for the data), or point by point if
            BoTorch has no features for the kernel.
        discretization: The paper's growing grid on a box, for exact draws on it instead of a
            pathwise draw; see :class:`~botorch_bandits.acquisition.GrowingDiscretization`.
        round_number: The round ``t`` of the discretization; at least the number of the model's rows
            plus 1, which is the default.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimized: the value is minus the value of the draw.
        pending: How pending points are treated. With ``"redraw"``, they do not enter the model, but
            each set of them leads to a new draw (asynchronous Thompson sampling). With
            ``"hallucinate"``, the draw is from the posterior conditioned on the posterior mean at
            these points, so that its mean is unchanged and its covariance shrinks (GP-BTS); the
            scale is computed from the observed data. A loop with ``Hallucinated()`` feedback, which
            is its default, uses the latter unless another value is given.
        assume: Assumptions that you vouch for because they cannot be read from the model:
            ``"fixed prior"``, ``"centered bound"`` or both; see
            :class:`~botorch_bandits.WidthUpperConfidenceBound`.
        X_pending: ``n x d`` points whose outcomes have not arrived.
        seed: Makes the draws reproducible; taken from torch's global generator if omitted.

    Raises:
        TypeError: If the model, ``choices`` or ``X_pending`` is not float64.
        ValueError: If bounds and ``width`` are both given, or only one bound is given in raw
            outcome units.
        UnsupportedError: If the posterior is not Gaussian, the model cannot be conditioned on
            pending points, or BoTorch has no pathwise draws for the kernel of an ensemble or a
            multi-task model (in that case, pass ``choices``).

    Example:
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = GPThompsonSampling(model, seed=0)
        >>> bool((acqf(X.unsqueeze(-2)) == acqf(X.unsqueeze(-2))).all())
        True
    """

    defines_rule: ClassVar[bool] = True
    stream = "thompson"
    width: Tensor

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | str | tuple[float | str, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        width: float | None = None,
        scale: float = 1.0,
        choices: Tensor | None = None,
        discretization: GrowingDiscretization | None = None,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        pending: str = "redraw",
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        given = dict(locals())
        super().__init__(check_model(model))
        self.base_model = model
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self.pending = check_one_of("pending", pending, PENDING)
        if posterior_transform is None and model.num_outputs != 1:
            raise UnsupportedError(
                f"model has {model.num_outputs} outputs; pass a posterior_transform that "
                "combines them into one."
            )
        self.posterior_transform = on_device_of(model, posterior_transform)
        self.delta = check_probability("delta", delta)
        self.rule = self._first_rule(given)
        self.assume = check_assume(assume)
        self._summary = PriorSummary(model, posterior_transform, self.assume)
        self.scale = check_scale(scale)
        width_tensor = self.scale * self.rule.width(self._summary, 1)
        if width_tensor.dim():
            width_tensor = fit_to_batch(WIDTH, width_tensor, model.batch_shape)
            width_tensor = width_tensor.to(next(model.parameters(), width_tensor).device)
        self.register_buffer("width", width_tensor)
        if round_number is not None:
            check_round(round_number, self._summary)
        self._is_cut = False
        self._lipschitz = None if discretization is None else discretization.lipschitz
        if discretization is not None:
            if choices is not None:
                raise ValueError("pass either choices= or discretization=, not both.")
            choices = self._discretize(discretization, round_number, rkhs_bound, units)
        self._prepare_draws(choices, seed)
        self._check_outcomes()
        self.set_X_pending(X_pending)
        self.warn_if_wide()

    @classmethod
    def options_from_domain(
        cls, options: Mapping[str, Any], domain: Domain | None
    ) -> dict[str, Any]:
        """Return the arms as the points to draw on, or the discretization of this box."""
        discretization = options.get("discretization")
        if discretization is None:
            return super().options_from_domain(options, domain)
        if isinstance(domain, Arms):
            raise ValueError("discretization= is for boxes; on arms the draw is exact already.")
        return {"discretization": discretization.on(domain)} if domain is not None else {}

    @classmethod
    def wanted_from_domain(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("choices",)

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        """Return the rule of the scale of the draw.

        Theorem 4 spends half of ``delta`` on the confidence bound and half on the draw.

        Args:
            options: Constructor arguments by name, at least all that the scale depends on.

        Raises:
            ValueError: If an ingredient is missing or infeasible.
        """
        delta = check_probability("delta", options["delta"])
        return kernelized_rule(
            cls.__name__, {**options, "delta": delta / 2, "default_width": PLAIN_WIDTH}
        )

    @classmethod
    def _first_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        """Return the initial rule; a subclass with other options may replace it later."""
        return cls.width_rule(options)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        scale, rule = check_scale(options["scale"]), cls.width_rule(options)
        pending = check_one_of("pending", options["pending"], PENDING)
        if options["choices"] is not None:
            Arms(options["choices"])
        if options["discretization"] is not None and options["rkhs_bound"] is None:
            raise ValueError("discretization= needs rkhs_bound=: the grid depends on it.")
        maximize = check_one_of("maximize", options["maximize"], (True, False))
        return ThompsonArmsRule(rule, scale, maximize, hallucinates=pending == "hallucinate")

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points and draw again.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If they are to be hallucinated and the model cannot be conditioned.
        """
        points = copy_pending(X_pending, self.base_model)
        if self.pending == "hallucinate":
            base = self.base_model
            self.model = base if points is None else hallucinate(base, points)
        AcquisitionFunction.set_X_pending(self, points)
        self._begin_draw()

    @property
    def value_scale(self) -> ValueScale | None:
        return scale_in_outcomes(self._summary, self._sign)

    def set_rule(self, rule: WidthRule) -> None:
        """Set another rule for the scale of the draw.

        Args:
            rule: The rule that computes the scale from now on.
        """
        self.rule = rule
        if not self._is_plain:
            check_outcomes(type(self).__name__, self.base_model, "moments")
        self.width = (self.scale * rule.width(self._summary, 1)).to(self.width)
        self._forget_draw()  # the same random numbers, scaled again
        self.warn_if_wide()

    def _widths_of_outputs(self) -> Iterable[tuple[str, Tensor, PriorSummary]]:
        return [("", self.width, self._summary)]

    @property
    def width_rules(self) -> tuple[WidthRule, ...]:
        return (self.rule,)

    def known_at(self, X: Tensor) -> Bounds:
        return self.known_with(X, self.width)

    @property
    def _sign(self) -> float:
        return 1.0 if self.maximize else -1.0

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the draw.

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is a sum over
                draws: the first point has this draw, and each further point has its own draw, as if
                the points before it were pending.

        Returns:
            ``batch_shape`` values of the scaled posterior draw, or minus these when minimizing.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If ``q > 1`` and earlier points enter the model, but its posterior has
                no joint Gaussian moments or several outputs are drawn on ``choices``.
        """
        check_points(self, X)
        if X.shape[-2] <= 1:
            values: Tensor = self._evaluate(X)
            return self._sign * values
        X = X if X.dim() > 2 else X.unsqueeze(0)
        if self.pending == "hallucinate":
            return self._sum_conditioned(X, None, read_noise(self.base_model, X), self.width)
        each = [self._after(i)._evaluate(X[..., i : i + 1, :]) for i in range(X.shape[-2])]
        return self._sign * torch.stack(each).sum(0)

    def _sum_conditioned(
        self, X: Tensor, outcomes: Tensor | None, noise: Tensor, width: Tensor
    ) -> Tensor:
        """Return the sum of draws, each conditioned on the outcomes at the points before its own.

        Args:
            X: ``batch_shape x q x d``.
            outcomes: The ``m`` outcomes that are assumed at each point; its posterior mean if None.
            noise: Their observation variances.
            width: The scale; if it differs from point to point, ``batch_shape x q`` in front of the
                model's own batch shape.
        """
        transform = self.posterior_transform
        if self.arms is not None and transform is not None:
            raise UnsupportedError(
                "draws on choices= through a posterior_transform cannot be conditioned on one "
                "another, so q > 1 points cannot be valued together. Ask for one point at a time "
                '(sequential=True in optimize_acqf), or use pending="redraw".'
            )
        batch = () if is_ensemble(self.model) else shape_of_batch(self.model)
        X = X.expand(*torch.broadcast_shapes(X.shape[:-2], batch), *X.shape[-2:])
        joint = read_moments(self.model, X)
        noise = noise.expand(joint.mean.shape)
        total: Tensor | float = 0.0
        for i in range(X.shape[-2]):
            later = self._after(i)
            member = later._member
            moments = joint.selected(member)
            levels = noise if member is None else noise.select(-3, member)
            own_width = width
            if width.dim() and member is not None:
                own_width = width[..., member]
            if own_width.dim() > len(batch):
                own_width = own_width.select(-1 - len(batch), i)
            away = None if outcomes is None else outcomes - moments.mean
            mean = moments.one_by_one(levels, away).mean.squeeze(-2)
            drawn = later._unscaled(X, moments.mean)
            generator = torch.Generator().manual_seed(later._seed_of("noise of earlier points"))
            normal = torch.randn(levels.shape[-2:], dtype=levels.dtype, generator=generator)
            simulated = drawn + levels.sqrt() * normal.to(levels)
            # Matheron's rule: what the earlier points explain of a simulated outcome is taken off
            later_mean = moments.one_by_one(levels, -simulated).mean.squeeze(-2)
            deviation = drawn + later_mean - moments.mean
            here, change = mean[..., i : i + 1, :], deviation[..., i : i + 1, :]
            ends = [
                each.squeeze(-1) if transform is None else transform.evaluate(each, X)
                for each in (here, here + change)
            ]
            middle, end = (each.squeeze(-1) for each in ends)
            total = total + score(middle, half_width(end - middle, own_width))
        return self._sign * torch.as_tensor(total)

    def _unscaled(self, X: Tensor, mean: Tensor) -> Tensor:
        """Return the difference between the unscaled draw and the mean, ``batch_shape x q x m``."""
        if self.arms is None:
            return self._evaluate_path(self._current_path(), X) - mean
        _, deviation = self._drawn_on_arms()
        index = self.arms.index_of(X.reshape(-1, X.shape[-1])).reshape(X.shape[:-1])
        deviation = deviation.unsqueeze(-2).expand(*X.shape[:-1], -1)
        return deviation.gather(-1, index.unsqueeze(-1))

    @t_batch_mode_transform(expected_q=1)
    def _evaluate(self, X: Tensor) -> Tensor:
        if self.arms is not None:
            if self._values is None:
                self._values = self._draw_on_arms()
            index = self.arms.index_of(X.reshape(-1, X.shape[-1])).reshape(X.shape[:-2])
            # a batched model has one row of values per batch
            index = index.expand(torch.broadcast_shapes(index.shape, self._values.shape[:-1]))
            values = self._values.expand(*index.shape, self._values.shape[-1])
            return values.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        path = self._current_path()
        if self.posterior_transform is None and not self._is_plain:
            scaled = path.about_mean(self.width)
            if scaled is not None:
                return scaled(X).squeeze(-1).squeeze(-1)
        values = self._evaluate_path(path, X)  # ``batch_shape x 1 x m``
        if self.posterior_transform is None:
            values = values.squeeze(-1)  # ``batch_shape x 1``
        else:
            values = self.posterior_transform.evaluate(values, X)
        values = values.squeeze(-1)
        if self._is_plain:
            return values
        posterior = self.model.posterior(X, posterior_transform=self.posterior_transform)
        mean = self._select_member(posterior.mean, event_dims=2).squeeze(-1).squeeze(-1)
        return score(mean, half_width(values - mean, self._width_of_member()))

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this draw with this model, or why none does."""
        of_width = self.rule.guarantee(self._summary, 1)
        guarantee = of_width.for_draws("GP-TS", self.delta, **drawn_on(self))
        if guarantee.theorem is not None:
            needed = kernel_assumptions(self._summary, is_at_most_one=True)
            guarantee = guarantee.with_assumptions(*self._assumptions, *needed)
        if self.scale != 1.0:
            guarantee = guarantee.with_gaps(f"the scale is multiplied by {self.scale:g}")
        if is_ensemble(self.base_model):
            guarantee = guarantee.with_gaps("the draw is from one member of an ensemble")
        if self._is_cut:
            guarantee = guarantee.with_gaps(
                "the discretization is cut at max_points, coarser than in Theorem 4", of="regret"
            )
        if self.arms is None:
            guarantee = guarantee.with_gaps(
                "Theorem 4 draws on a finite set in each round; a pathwise draw approximates a "
                "draw on the whole box",
                of="regret",
            )
        return self._as_used(guarantee)

    def _as_used(self, guarantee: Guarantee) -> Guarantee:
        """Return the guarantee that remains with pending points, worded for this use."""
        if self.X_pending is not None:
            count = len(self.X_pending)
            guarantee = guarantee.with_gaps(
                at_posterior_mean(count)
                if self.pending == "hallucinate"
                else outcomes_pending(count)
            )
        if self.posterior_transform is not None:
            guarantee = guarantee.of_weighted_sum()
        guarantee = guarantee if self.maximize else guarantee.for_minimizing()
        return of_acquisition(self, guarantee)

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean, standard deviation, scale and information gain at one point.

        The first two are omitted if BoTorch does not provide them, as with the outcome transform
        ``Bilog``.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        with torch.no_grad():
            value = self(x.unsqueeze(0))
            posterior = self.model.posterior(
                x.unsqueeze(0), posterior_transform=self.posterior_transform
            )
        known = {"width": float(self.width.mean()), "acquisition_value": float(value)}
        if provides(self.base_model, "moments"):
            deviation = deviation_of(posterior, self._summary, 0.0)
            known = {
                "mean": float(posterior.mean.mean()),
                "standard_deviation": float(deviation.mean()),
                **known,
            }
        gain = self.rule.information_gain(self._summary)
        if gain is not None:
            known["information_gain"] = float(gain.mean())
        return known

    def _discretize(
        self,
        discretization: GrowingDiscretization,
        round_number: int | None,
        rkhs_bound: float | tuple[float, ...] | None,
        units: str,
    ) -> Tensor:
        if rkhs_bound is None or isinstance(rkhs_bound, tuple):
            raise ValueError(
                f"discretization= needs one number as rkhs_bound=, got {rkhs_bound}: the grid "
                "depends on it."
            )
        (prior,) = self._summary.active_priors
        rkhs_bound = check_nonnegative("rkhs_bound", rkhs_bound)
        bound = rkhs_bound if units == "prior" else rkhs_bound / float(prior.standard_deviation)
        t = self._summary.num_rows + 1 if round_number is None else int(round_number)
        self._is_cut = discretization.is_cut(t, bound)
        return discretization.points(t, bound)

    def _evaluate_path(self, path: Path, X: Tensor) -> Tensor:
        member = self._member
        if member is None:
            return path(X)
        # The members are at dimension -3. If each has a copy of the training inputs, BoTorch draws
        # one update for each copy, too; they differ only in the simulated noise, and one is enough.
        values = path(X.unsqueeze(-3)).select(-3, member)
        while values.dim() > X.dim():
            values = values.select(-3, 0)
        return values

    def _draw_on_arms(self) -> Tensor:
        mean, deviation = self._drawn_on_arms()
        return score(mean, half_width(deviation, along_arms(self._width_of_member())))

    def _drawn_on_arms(self) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of the unscaled draw."""
        with torch.no_grad():
            (joint,) = self._posteriors_on_arms(self.posterior_transform, groups=False)
            mean, deviation = joint.draw(self._seed_of("arms"), self._member)
            return mean.squeeze(-1), deviation.squeeze(-1)

    @property
    def _assumptions(self) -> tuple[str, ...]:
        if self._lipschitz is not None:
            return (f"functions of norm 1 have slopes of at most lipschitz = {self._lipschitz:g}",)
        return () if self.arms is None else ("regret is against the best of the choices",)

    def _check_outcomes(self) -> None:
        """Raise an error unless the model provides what this draw needs."""
        needs = "draws" if self.arms is None and self._is_plain else "gaussian"
        check_outcomes(type(self).__name__, self.base_model, needs, self.posterior_transform)
        if self.arms is None and isinstance(
            self.posterior_transform, ExpectationPosteriorTransform
        ):
            raise UnsupportedError(
                "posterior_transform is an ExpectationPosteriorTransform, but a pathwise draw has "
                "no perturbed inputs. Pass choices=, a finite set of points, for an exact draw."
            )

    @property
    def _is_plain(self) -> bool:
        return isinstance(self.rule, ConstantWidth) and self.rule.value * self.scale == 1.0

    @property
    def _member(self) -> int | None:
        """The ensemble member of this draw; None if the model is not an ensemble."""
        if not is_ensemble(self.model):
            return None
        generator = torch.Generator().manual_seed(self._seed_of("member"))
        return int(torch.randint(self.model.batch_shape[-1], (), generator=generator))

    def _select_member(self, values: Tensor, event_dims: int) -> Tensor:
        """Pick the draw's ensemble member from ``... x members x (event_dims)``."""
        member = self._member
        return values if member is None else values.select(-event_dims - 1, member)

    def _width_of_member(self) -> Tensor:
        member = self._member
        return self.width if member is None or self.width.dim() == 0 else self.width[..., member]


def drawn_on(acquisition: GPThompsonSampling) -> dict[str, Any]:
    """Return what the regret bound for draws needs; empty if there is no such bound.

    Args:
        acquisition: The acquisition function. There is no bound on a grid that grows with the
            round, or on a whole box.
    """
    arms = acquisition.arms
    if arms is None or acquisition._lipschitz is not None:
        return {}
    try:
        priors = acquisition._summary.active_priors
    except UnreadablePriorError:  # the width's guarantee has a gap for it
        return {}
    deviation = priors[0].standard_deviation
    if len(priors) != 1 or deviation.numel() != 1:
        return {}
    return {"num_points": len(arms.choices), "prior_deviation": float(deviation)}
