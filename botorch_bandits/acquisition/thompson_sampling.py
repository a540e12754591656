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

from collections.abc import Mapping
from typing import Any, ClassVar

from botorch.acquisition.objective import ExpectationPosteriorTransform, PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from botorch_bandits.acquisition.base import check_model
from botorch_bandits.acquisition.draws import SeededDraw
from botorch_bandits.acquisition.rules import (
    ArmsRule,
    ThompsonArmsRule,
)
from botorch_bandits.acquisition.upper_confidence_bound import WidthAcquisition
from botorch_bandits.checks import (
    check_one_of,
    check_probability,
)
from botorch_bandits.confidence import (
    GainBound,
    Guarantee,
    WidthRule,
)
from botorch_bandits.confidence.guarantee import at_posterior_mean
from botorch_bandits.confidence.ingredients import kernelized_rule
from botorch_bandits.confidence.prior_assumptions import kernel_assumptions
from botorch_bandits.confidence.prior_reading import UnreadablePriorError
from botorch_bandits.confidence.width_rules import (
    PLAIN_WIDTH,
    check_scale,
)
from botorch_bandits.models.reading import hallucinate, on_device_of

PENDING = ("redraw", "hallucinate")
"""The ways in which a draw can treat pending points."""


class GPThompsonSampling(WidthAcquisition, SeededDraw):
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
            In a loop on arms, they are the arms. The posterior there is computed once: build a new
            function after changing the model. Without choices, the draw is pathwise (random Fourier
            features for the prior, Matheron's rule for the data), or point by point if the kernel
            has no such features.
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
        >>> import torch
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = GPThompsonSampling(model, seed=0)
        >>> bool((acqf(X.unsqueeze(-2)) == acqf(X.unsqueeze(-2))).all())
        True
    """

    defines_rule = True
    of_ensemble: ClassVar[str] = "the draw is from one member of an ensemble"
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
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        pending: str = "redraw",
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    def _initialize(self, given: Mapping[str, Any]) -> None:
        """Call the constructor with its arguments, or with those of a subclass, by name."""
        model, transform = given["model"], given["posterior_transform"]
        super().__init__(check_model(model))
        self._read_arguments(given)
        self.pending = check_one_of("pending", given.get("pending", "redraw"), PENDING)
        if transform is None and model.num_outputs != 1:
            raise UnsupportedError(
                f"model has {model.num_outputs} outputs; pass a posterior_transform that "
                "combines them into one."
            )
        if given["choices"] is None and isinstance(transform, ExpectationPosteriorTransform):
            raise UnsupportedError(
                "posterior_transform is an ExpectationPosteriorTransform, but a pathwise draw has "
                "no perturbed inputs. Pass choices=, a finite set of points, for an exact draw."
            )
        self.delta = check_probability("delta", given["delta"])
        self.rule, self.scale = self.width_rule(given), check_scale(given.get("scale", 1.0))
        self.register_buffer("width", on_device_of(model, self._width_in(1)))
        self._prepare_draws(given["choices"], given["seed"])
        self.set_X_pending(given["X_pending"])
        self.warn_if_wide()

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
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        scale, rule = check_scale(options["scale"]), cls.width_rule(options)
        pending = check_one_of("pending", options["pending"], PENDING)
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
        super().set_X_pending(X_pending)
        if self.pending == "hallucinate":
            base, points = self.base_model, self.X_pending
            self.model = base if points is None else hallucinate(base, points)

    def set_rule(self, rule: WidthRule) -> None:
        """Set another rule for the scale of the draw.

        Args:
            rule: The rule that computes the scale from now on.
        """
        self.rule = rule
        self.width = self._width_in(1).to(self.width)
        self.warn_if_wide()

    @t_batch_mode_transform(expected_q=1)
    def _evaluate(self, X: Tensor, ahead: int = 0) -> Tensor:
        member, width = self._member(ahead), self.width
        if member is not None and width.dim():
            width = width[..., member]
        values = self._scaled(X, width[..., None, None].to(X), ahead).squeeze(-1).squeeze(-1)
        return self._sign * values

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this draw with this model, or why none does."""
        of_width = self.rule.guarantee(self._summary, 1)
        guarantee = of_width.for_draws("GP-TS", self.delta, **drawn_on(self))
        if guarantee.theorem is not None:
            needed = kernel_assumptions(self._summary, is_at_most_one=True)
            against = () if self.arms is None else ("regret is against the best of the choices",)
            guarantee = guarantee.with_assumptions(*against, *needed)
        if self.arms is None:
            guarantee = guarantee.with_gaps(
                "Theorem 4 draws on a finite set in each round; a pathwise draw approximates a "
                "draw on the whole box",
                of="regret",
            )
        return self._as_used(guarantee)

    def _gap_of_pending(self, count: int) -> str | None:
        if self.pending == "hallucinate":
            return at_posterior_mean(count)
        return super()._gap_of_pending(count)


def drawn_on(acquisition: GPThompsonSampling) -> dict[str, Any]:
    """Return what the regret bound for draws needs; empty if there is no such bound.

    Args:
        acquisition: The acquisition function. There is no bound on a whole box.
    """
    arms = acquisition.arms
    if arms is None:
        return {}
    try:
        priors = acquisition._summary.active_priors
    except UnreadablePriorError:  # the width's guarantee has a gap for it
        return {}
    deviation = priors[0].standard_deviation
    if len(priors) != 1 or deviation.numel() != 1:
        return {}
    return {"num_points": len(arms.choices), "prior_deviation": float(deviation)}
