"""Weighted sums of a model's outputs, for objectives and constraints defined elsewhere.

:class:`AffineOutcomes` converts metrics that a model has in another order, sign or scale, as Ax
passes them, into the reward and the constraints ``g_j <= 0`` that this package expects.
"""

from __future__ import annotations

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_double, check_finite
from botorch_bandits.models.reading import JointMoments


def select_output(index: int, num_outputs: int) -> ScalarizedPosteriorTransform:
    """Return the transform that keeps one output unchanged and drops the others.

    Args:
        index: The output's number, from 0.
        num_outputs: How many outputs the model has.
    """
    weights = torch.zeros(num_outputs, dtype=DTYPE)
    weights[index] = 1.0
    return ScalarizedPosteriorTransform(weights)


class AffineOutcomes(PosteriorTransform):
    r"""Turns ``m`` outputs into ``W y + c``; each row of ``W`` gives one new output.

    The Lagrangian acquisition functions expect the reward first, followed by constraints
    ``g_j <= 0``. To convert a model of raw metrics, put the objective's weights in the first row
    and ``A y - b`` in the others. The prior of each row can still be read, so widths from theorems
    still work.

    Args:
        weights: ``num_rows x m``, float64; no row may contain only zeros.
        offsets: ``num_rows``, float64; zeros if omitted.

    Raises:
        TypeError: If a tensor is not float64.
        ValueError: If a shape is wrong, a number is not finite or a row has only zeros.

    Example:
        >>> from botorch.models import ModelListGP
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> build = FittedSingleTaskGP([[0.0], [1.0]])
        >>> model = ModelListGP(build(X, X.sin()), build(X, X.cos()))
        >>> weights = torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        >>> model.posterior(X, posterior_transform=AffineOutcomes(weights)).mean.shape
        torch.Size([3, 2])
    """

    scalarize: bool = False
    weights: Tensor
    offsets: Tensor

    def __init__(self, weights: Tensor, offsets: Tensor | None = None) -> None:
        """See the class."""
        super().__init__()
        check_finite("weights", check_double("weights", weights))
        if weights.dim() != 2 or weights.numel() == 0:
            raise ValueError(
                f"weights must be num_rows x m, got shape {tuple(weights.shape)}. Turn a "
                "single row into a matrix with weights.unsqueeze(0)."
            )
        empty = [j for j, row in enumerate(weights.tolist()) if not any(row)]
        if empty:
            raise ValueError(f"weights has only zeros in row {empty[0]}; leave the row out.")
        offsets = torch.zeros(len(weights), dtype=DTYPE) if offsets is None else offsets
        check_finite("offsets", check_double("offsets", offsets))
        if offsets.shape != weights.shape[:1]:
            raise ValueError(
                f"offsets has shape {tuple(offsets.shape)}; it must have one number for each of "
                f"the {len(weights)} rows of weights."
            )
        self.register_buffer("weights", weights.detach().clone())
        self.register_buffer("offsets", offsets.detach().clone())

    def row(self, index: int) -> ScalarizedPosteriorTransform:
        """Return the transform that keeps only one of the new outputs.

        Args:
            index: The number of the row.
        """
        return ScalarizedPosteriorTransform(self.weights[index], float(self.offsets[index]))

    def evaluate(self, Y: Tensor, X: Tensor | None = None) -> Tensor:
        """Transform outcomes.

        Args:
            Y: ``... x m`` outcomes.
            X: Not used.

        Returns:
            ``... x num_rows``.
        """
        return Y @ self.weights.to(Y).mT + self.offsets.to(Y)

    def forward(self, posterior: Posterior, X: Tensor | None = None) -> GPyTorchPosterior:
        """Return the joint posterior of the new outputs.

        Args:
            posterior: Gaussian, at ``batch_shape x q`` points, with ``m`` outputs.
            X: Not used.

        Raises:
            UnsupportedError: If the posterior is not jointly Gaussian.
            ValueError: If it does not have ``m`` outputs.
        """
        if not isinstance(posterior, GPyTorchPosterior) or isinstance(
            posterior, MultitaskGPPosterior
        ):
            raise UnsupportedError(
                "weighted sums of outputs need their joint Gaussian posterior, got "
                f"{type(posterior).__name__}. Leave out outcome transforms that are not affine, "
                "such as Log, or use a ModelListGP."
            )
        moments = JointMoments.of(posterior, "the model")
        m, W = moments.mean.shape[-1], self.weights.to(moments.mean)
        if m != W.shape[-1]:
            raise ValueError(f"weights is for {W.shape[-1]} outputs, but the model has {m}.")
        # ``... x q x m x q x m`` to ``... x q x rows x q x rows``
        covariance = torch.einsum("ji,...piqk,lk->...pjql", W, moments.covariance, W)
        mean = self.evaluate(moments.mean)
        return JointMoments(mean, covariance, moments.is_mixture).posterior()
