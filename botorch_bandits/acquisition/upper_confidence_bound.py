r"""Upper confidence bounds with theory-backed widths, as drop-ins for BoTorch's.

.. math:: a_t(x) = \mu_{t-1}(x) + w_t \, \sigma_{t-1}(x)

The classes subclass BoTorch's ``UpperConfidenceBound`` and only compute its ``beta``, which is
``w_t ** 2``: what BoTorch can do with UCB it can do with them. Beyond it they honour
``X_pending``, so that ``q > 1`` works in every sequential optimiser.
"""

from __future__ import annotations

from typing import Any

from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.kernelized import check_kernelized_options, kernelized_rule
from botorch_bandits.acquisition.width_upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.confidence import ConstantWidth, FiniteArmsWidth, WidthRule
from botorch_bandits.confidence.widths import check_scale
from botorch_bandits.domains import Arms, Domain


class GPUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""GP-UCB (Srinivas et al. 2010): Theorem 1's width, or a constant one.

    .. math:: w_t = \sqrt{2 \ln(|D| t^2 \pi^2 / (6 \delta))}

    It multiplies the standard deviation (the paper's ``beta_t`` is its square). Theorem 1 assumes
    that the reward is a draw from the model's prior, on finitely many arms.

    Args:
        model: A fitted BoTorch model in float64.
        num_arms: ``|D|``; in a loop on arms it may be omitted.
        delta: The bound fails with at most this probability.
        width: A constant width in place of the theorem's.
        scale: A factor on the width (the paper's experiments use ``5 ** -0.5``).
        round_number: See :class:`WidthUpperConfidenceBound`.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Raises:
        ValueError: If not exactly one of ``num_arms`` and ``width`` is given.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = SingleTaskGP(X, X.sin())
        >>> acqf = GPUpperConfidenceBound(model, num_arms=100, delta=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    def __init__(
        self,
        model: Model,
        *,
        num_arms: int | None = None,
        delta: float = 0.1,
        width: float | None = None,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            model,
            self._rule(num_arms=num_arms, delta=delta, width=width),
            scale=scale,
            round_number=round_number,
            posterior_transform=posterior_transform,
            maximize=maximize,
            X_pending=X_pending,
        )

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Take the number of arms from the domain; see the base class."""
        if options.get("num_arms") is None and options.get("width") is None:
            if isinstance(domain, Arms):
                options["num_arms"] = domain.num_arms
            elif domain is None:
                return options
        check_scale(options.get("scale", 1.0))
        cls._rule(options.get("num_arms"), options.get("delta", 0.1), options.get("width"))
        return options

    @staticmethod
    def _rule(num_arms: int | None, delta: float, width: float | None) -> WidthRule:
        if (num_arms is None) == (width is None):
            raise ValueError(
                "GPUpperConfidenceBound takes exactly one of num_arms= (Theorem 1, finitely many "
                f"arms) and width= (a constant), got num_arms={num_arms} and width={width}. On a "
                "box, ImprovedUpperConfidenceBound has a width with a theorem."
            )
        if width is not None:
            return ConstantWidth(width)
        assert num_arms is not None
        return FiniteArmsWidth(num_arms, delta)


class ImprovedUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""IGP-UCB (Chowdhury and Gopalan 2017), with the realised information gain.

    .. math:: w_t = B + R \sqrt{2 (\gamma_{t-1} + 1 + \ln(1/\delta))}

    It multiplies the standard deviation (the paper's ``beta_t`` is the width itself). ``B`` bounds
    the norm of the reward in the UNIT-VARIANCE kernel and ``R`` the noise, both in raw outcome
    units; the model's prior variance and outcome transform are taken into account. The printed
    width is a bound for ``lam >= 1`` only; ``any_lambda=True`` gives
    ``B + R / sqrt(lam) * sqrt(2 (gain + ln(1/delta)))``, which is one for every ``lam``.

    Args:
        model: A fitted BoTorch model in float64.
        rkhs_bound: ``B``. One number, or one an output.
        noise_bound: ``R``, a standard deviation for Gaussian noise. One number, or one an output.
        delta: The bound fails with at most this probability.
        any_lambda: Use the form for every ``lam``.
        information_gain: An explicit gain in place of the realised one, in nats. Models whose
            prior cannot be read need it or ``width``.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation (models that learn the scale of the outcomes).
        width: A constant width in place of all this.
        scale: A factor on the width.
        round_number: See :class:`WidthUpperConfidenceBound`.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Raises:
        ValueError: If neither the two bounds nor ``width`` is given, or both are.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> from botorch.optim import optimize_acqf
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = SingleTaskGP(X, X.sin())
        >>> acqf = ImprovedUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> candidate, value = optimize_acqf(acqf, bounds, q=1, num_restarts=2, raw_samples=8)
        >>> candidate.shape
        torch.Size([1, 1])
    """

    def __init__(
        self,
        model: Model,
        *,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | tuple[float, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | None = None,
        units: str = "outcome",
        width: float | None = None,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            model,
            kernelized_rule(
                type(self).__name__,
                rkhs_bound=rkhs_bound,
                noise_bound=noise_bound,
                delta=delta,
                any_lambda=any_lambda,
                information_gain=information_gain,
                units=units,
                width=width,
            ),
            scale=scale,
            round_number=round_number,
            posterior_transform=posterior_transform,
            maximize=maximize,
            X_pending=X_pending,
        )

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Check the ingredients; see the base class."""
        check_kernelized_options(cls.__name__, options)
        return options
