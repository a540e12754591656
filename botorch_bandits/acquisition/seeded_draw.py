"""What acquisition functions have in common that maximise one draw of the posterior."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.posterior import Posterior
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from torch import Tensor

from botorch_bandits.acquisition.recipe import BanditAcquisition
from botorch_bandits.checks import check_integer
from botorch_bandits.domains import Arms
from botorch_bandits.random_streams import derive_seed, seeded_globally


class SeededDraw(BanditAcquisition):
    """One draw answers every evaluation; it is a function of model, seed and count of draws.

    So it need not be kept: it is left out of pickles and drawn again when it is needed.
    """

    stream: ClassVar[str]
    """Names the random numbers: classes with another name draw others from the same seed."""

    model: Model
    arms: Arms | None
    seed: int
    _path: GenericDeterministicModel | None
    _values: Tensor | None

    def _prepare_draws(self, choices: Tensor | None, seed: int | None) -> None:
        """Take the points to draw on, if there are any, and the seed; nothing is drawn yet."""
        self.arms = None if choices is None else Arms(choices)
        self.seed = (
            int(torch.randint(2**62, ()))
            if seed is None
            else check_integer("seed", seed, minimum=0)
        )
        self._num_draws = -1

    @property
    def choices(self) -> Tensor | None:
        """The finite set of points that can be evaluated, if there is one."""
        return None if self.arms is None else self.arms.choices

    def __getstate__(self) -> dict[str, Any]:
        """Leave the draw out."""
        return {**self.__dict__, "_path": None, "_values": None}

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._forget_draw()
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._forget_draw()  # it lives where the model lived
        return super()._apply(fn, recurse)

    def _begin_draw(self) -> None:
        self._num_draws += 1
        self._forget_draw()

    def _forget_draw(self) -> None:
        self._path = None
        self._values = None

    def _current_path(self) -> GenericDeterministicModel:
        """Return the pathwise draw."""
        path = self._draw_path() if self._path is None else self._path
        # not registered as a module: a draw is no part of the state
        object.__setattr__(self, "_path", path)
        return path

    def _draw_path(self) -> GenericDeterministicModel:
        try:
            with torch.no_grad(), seeded_globally(self._seed_of("path")):
                return get_matheron_path_model(self.model)
        except NotImplementedError as error:
            raise UnsupportedError(
                "BoTorch has no pathwise draws for this model. Pass choices=, a finite set of "
                f"points, to draw on exactly, or Arms as the domain. (BoTorch: {error})"
            ) from error

    def _seed_of(self, purpose: str) -> int:
        return derive_seed(self.seed, self._num_draws, f"{self.stream} {purpose}")


def check_gaussian(posterior: Posterior) -> GPyTorchPosterior:
    """Return a posterior if it can be drawn from exactly.

    Raises:
        UnsupportedError: If it is not Gaussian.
    """
    if not isinstance(posterior, GPyTorchPosterior):
        raise UnsupportedError(
            f"an exact draw needs a Gaussian posterior, got {type(posterior).__name__}. Pass a "
            "model that has one, such as SingleTaskGP."
        )
    return posterior


def draw_deviation(covariance: Tensor, seed: int) -> Tensor:
    """Draw from the normal distribution with mean 0.

    Covariances of smooth kernels are singular to rounding: Cholesky would fail, eigenvectors do
    not.

    Args:
        covariance: ``batch_shape x n x n``.
        seed: Of the draw; the numbers are the same on every device.

    Returns:
        ``batch_shape x n``.
    """
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(eigenvalues.shape, dtype=covariance.dtype, generator=generator)
    root = eigenvectors * eigenvalues.clamp_min(0.0).sqrt().unsqueeze(-2)
    return (root @ normal.to(covariance.device).unsqueeze(-1)).squeeze(-1)
