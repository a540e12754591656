r"""One draw of a posterior, as a function of points that stays the same until it is drawn again.

**On a finite set** of ``n`` points, a draw is :math:`\mu + R z` with standard normal ``z`` and a
root :math:`R R^\top` of the posterior covariance. It is exact, and any number of draws share ``R``.

**On a box**, a draw of a Gaussian process with known waves is a draw of the prior, corrected for
the data by Matheron's rule:

.. math::
   f(x) = m + f_0(x) + \sum_j c_j k(x, x_j), \qquad
   f_0(x) = \sum_i r_i \cos(\omega_i^\top x + \varphi_i), \qquad
   c = (K + \Lambda)^{-1} (y - m - f_0 - \varepsilon)

with :math:`\varepsilon` simulated noise. The frequencies :math:`\omega_i` come from the spectral
density of the kernel: those of a product are the sums of its factors' frequencies, and a sum has
the waves of all its terms. With ``n`` rows, ``p`` waves and ``b`` points, values and gradients cost
``b (n + p)`` operations.

BoTorch draws such paths for batches, ensembles and variational models. Kernels without random
features are drawn on finite sets only.

Sources: Rahimi and Recht, *Random features for large-scale kernel machines*, NIPS 2007; Wilson et
al., *Pathwise conditioning of Gaussian processes*, JMLR 2021.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from botorch.sampling.pathwise.features import KernelFeatureMap, gen_kernel_features
from botorch.sampling.pathwise.utils import get_train_inputs
from botorch.utils.transforms import is_ensemble
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.acquisition.base import (
    BanditAcquisition,
    check_columns,
    check_points,
    copy_pending,
)
from botorch_bandits.checks import DTYPE, check_integer
from botorch_bandits.core.box import BoxPosterior
from botorch_bandits.core.priors import root_of
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.models.bandit_gp import closed_form_of
from botorch_bandits.models.reading import JointMoments, submodels
from botorch_bandits.random_streams import generator, seeded_globally

Draw = Callable[[Tensor, bool], tuple[Tensor, ...]]
"""A draw and the posterior mean, computed on request, as a function of ``... x n x d`` points; both
are ``... x n x m``."""


class SeededDraw(BanditAcquisition):
    """One draw used in every evaluation, determined by the model, the seed and the draw count.

    The draw is omitted from pickles and drawn again when needed. The posterior on ``choices`` is
    factorized once for each model, when it is first needed.
    """

    from_domain: ClassVar[tuple[str, ...]] = ("choices",)
    pending_as = "left out"
    stream: ClassVar[str]
    """The name of the random stream; under another name, the same seed gives other numbers."""

    model: Model
    arms: Arms | None
    seed: int
    posterior_transform: PosteriorTransform | None
    _drawn: dict[int, Any]
    _on_choices: dict[Model, list[JointPosterior]]

    def _prepare_draws(self, choices: Tensor | None, seed: int | None) -> None:
        """Store the points to draw on, if there are any, and the seed; nothing is drawn yet."""
        self.arms = None if choices is None else Arms(choices)
        if self.arms is not None:
            check_columns("choices", self.arms.choices, self.model)
        random = int(torch.randint(2**62, ())) if seed is None else seed
        self.seed = check_integer("seed", random, minimum=0)
        self._num_draws = -1
        self._drawn, self._on_choices = {}, {}

    @property
    def choices(self) -> Tensor | None:
        """The finite set of points that can be evaluated, if there is one."""
        return None if self.arms is None else self.arms.choices

    def __getstate__(self) -> dict[str, Any]:
        """Leave the draw out."""
        return {**self.__dict__, "_drawn": {}, "_on_choices": {}}

    @classmethod
    def check_options(cls, options: Mapping[str, Any], domain: Domain | None) -> None:
        if options.get("choices") is not None:
            Arms(options["choices"])
        super().check_options(options, domain)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points and draw again.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
        """
        AcquisitionFunction.set_X_pending(self, copy_pending(X_pending, self.model))
        self._begin_draw()

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the draw.

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is a sum over
                draws: the first point has this draw, and each further point has its own draw, the
                one that follows when pending points are set.

        Returns:
            ``batch_shape`` values.

        Raises:
            TypeError: If ``X`` is not float64.
        """
        check_points(self, X)
        # as BoTorch's analytic functions do, ``_evaluate`` refuses q = 0, which is one part, too
        each = [self._evaluate(part, ahead) for ahead, part in enumerate(X.split(1, dim=-2))]
        return torch.stack(each).sum(0)

    @abstractmethod
    def _evaluate(self, X: Tensor, ahead: int = 0) -> Tensor:
        """Return the values of single points after some further draws."""

    def _forget(self) -> None:
        super()._forget()
        self._drawn, self._on_choices = {}, {}

    def _begin_draw(self) -> None:
        self._num_draws += 1
        self._drawn = {}

    def _generator(self, purpose: str, ahead: int) -> torch.Generator:
        """Return the random numbers of one purpose, after some further draws."""
        return generator(self.seed, self._num_draws + ahead, f"{self.stream} {purpose}")

    def _member(self, ahead: int = 0, again: str = "") -> int | None:
        """Return the ensemble member that is drawn from; None if the model is no ensemble."""
        if not is_ensemble(self.model):
            return None
        numbers = self._generator(f"member{again}", ahead)
        return int(torch.randint(self.model.batch_shape[-1], (), generator=numbers))

    def _scaled(self, X: Tensor, width: Tensor, ahead: int = 0) -> Tensor:
        """Evaluate the draw with its deviations from the posterior mean multiplied by a width.

        Args:
            X: ``... x n x d`` points.
            width: Broadcasts against the values.
            ahead: The number of further draws after the present one.

        Returns:
            ``... x n x m`` values of the outputs, or of the results of ``posterior_transform``.
        """
        if ahead not in self._drawn:
            draw = self._draw_on_box if self.arms is None else self._draw_on_choices
            self._drawn[ahead] = draw(ahead)
        is_scaled = bool((width != 1.0).any())
        values, mean = self._drawn[ahead](X, is_scaled)
        return mean + width * (values - mean) if is_scaled else values

    def _draw_on_choices(self, ahead: int) -> Draw:
        mean, values = self._values_on_choices(ahead)
        return lambda X, with_mean: self._looked_up(X, values, mean)

    def _looked_up(self, X: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        """Return entries of ``batch_shape x num_points x m`` tables, at ``... x n x d`` points."""
        assert self.arms is not None
        index = self.arms.index_of(X.flatten(0, -2)).reshape(*X.shape[:-1], 1)
        # a batched model has values of its own in each batch
        shape = torch.broadcast_shapes(index.shape[:-2], tables[0].shape[:-2])
        index = index.expand(*shape, -1, -1)
        return tuple(each.expand(*shape, -1, -1).take_along_dim(index, dim=-2) for each in tables)

    def _values_on_choices(self, ahead: int, again: str = "") -> tuple[Tensor, Tensor]:
        """Return the mean and a draw, ``batch_shape x num_points x m`` each.

        Args:
            ahead: The number of further draws after the present one.
            again: Distinguishes draws of the same number.
        """
        member, numbers = self._member(ahead, again), self._generator(f"arms{again}", ahead)
        each = [joint.draw(numbers, member) for joint in self._posteriors_on_choices()]
        mean, values = (torch.cat(parts, dim=-1) for parts in zip(*each, strict=True))
        return mean, values

    def _posteriors_on_choices(self) -> list[JointPosterior]:
        """Return the posteriors of outputs that do not depend on one another."""
        model, transform, choices = self.model, self.posterior_transform, self.choices
        if model not in self._on_choices:
            parts = submodels(model) if transform is None else (model,)
            with torch.no_grad():
                joint = [JointPosterior(part, choices, transform) for part in parts]
            self._on_choices = {model: joint}
        return self._on_choices[model]

    def _draw_on_box(self, ahead: int) -> Draw:
        numbers, member = self._generator("path", ahead), self._member(ahead)
        outputs = [draw_on_box(part, numbers, member) for part in submodels(self.model)]
        transform = self.posterior_transform

        def joined(parts: tuple[Tensor, ...], X: Tensor) -> Tensor:
            values = torch.cat(parts, dim=-1)
            if transform is None:
                return values
            values = transform.evaluate(values, X)
            return values.unsqueeze(-1) if transform.scalarize else values

        def draw(X: Tensor, with_mean: bool) -> tuple[Tensor, Tensor]:
            values, means = zip(*(output(X, with_mean) for output in outputs), strict=True)
            return joined(values, X), joined(means, X)

        return draw


class JointPosterior:
    """A Gaussian posterior on a finite set of points, factorized once for any number of draws.

    Args:
        model: Any model.
        choices: ``n x d`` points.
        transform: Applied to the posterior, if given.

    Raises:
        UnsupportedError: If the posterior is not Gaussian.
    """

    def __init__(self, model: Model, choices: Any, transform: PosteriorTransform | None) -> None:
        """See the class."""
        self._roots: dict[int | None, Tensor] = {}
        closed = closed_form_of(model) if transform is None else None
        if closed is not None:
            mean, covariance = closed.mean_and_covariance(choices)
            self.moments = JointMoments(mean.unsqueeze(-1), covariance[:, None, :, None])
        else:
            posterior = model.posterior(choices, posterior_transform=transform)
            if not isinstance(posterior, GPyTorchPosterior):
                raise UnsupportedError(
                    f"an exact draw needs a Gaussian posterior, got {type(posterior).__name__}. "
                    "Pass a model that has one, such as SingleTaskGP."
                )
            self.moments = JointMoments.of(posterior, type(model).__name__)

    def draw(self, numbers: torch.Generator, member: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean and a draw, ``batch_shape x n x m`` each.

        The cost of the first draw is cubic in ``n m``; the cost of further draws is quadratic.

        Args:
            numbers: The random numbers, which are the same on every device.
            member: Which member of an ensemble to draw from; the result then lacks the last batch
                dimension.
        """
        moments = self.moments.selected(member)
        if member not in self._roots:
            self._roots[member] = root_of(moments.matrix)
        root = self._roots[member]  # batch_shape x n m x rank
        normal = torch.randn(root.shape[:-1], dtype=root.dtype, generator=numbers)
        deviation = root @ normal[..., : root.shape[-1]].to(root.device).unsqueeze(-1)
        return moments.mean, moments.mean + deviation.reshape(moments.mean.shape)


# --- on boxes -------------------------------------------------------------------------------------


def draw_on_box(model: Model, numbers: torch.Generator, member: int | None = None) -> Draw:
    """Draw a function from a model's posterior.

    Args:
        model: A BoTorch model, which is not a list.
        numbers: The random numbers, which are the same on every device.
        member: Which member to draw from, if the model is an ensemble.

    Raises:
        UnsupportedError: If there is no draw of this model on a box.
    """
    closed = closed_form_of(model)
    if closed is not None and closed.kernel.terms:
        return WaveDraw(closed, numbers)
    seed = int(torch.randint(2**62, (), generator=numbers))
    member = member if is_ensemble(model) else None
    try:
        values = _path_of_botorch(model, seed, member)
    except NotImplementedError as error:
        raise UnsupportedError(
            "BoTorch has no pathwise draws for this model: its kernel has no random features, or "
            "it is conditioned on pending points. Pass choices=, a finite set of points, for exact "
            "draws; or Arms as the domain; or RBF and Matern kernels, behind "
            "Space.input_transform() if there are categories; or pending='redraw'. (BoTorch: "
            f"{error})"
        ) from error

    def draw(X: Tensor, with_mean: bool) -> tuple[Tensor, Tensor]:
        drawn = values(X)
        if not with_mean:
            return drawn, drawn
        mean: Tensor = model.posterior(X).mean
        return drawn, mean if member is None else mean.select(-3, member)

    return draw


def _path_of_botorch(model: Model, seed: int, member: int | None) -> Callable[[Tensor], Tensor]:
    """Return BoTorch's pathwise draw, with features of the columns that the kernel sees.

    BoTorch counts the columns before the input transform, but an encoding of categories adds some.

    Raises:
        NotImplementedError: If BoTorch has no random features for the kernel.
    """

    def features(kernel: Kernel, num_inputs: int, num_outputs: int) -> KernelFeatureMap:
        (seen,) = get_train_inputs(model, transformed=True)
        return gen_kernel_features(kernel, num_inputs=seen.shape[-1], num_outputs=num_outputs)

    sampler = partial(draw_kernel_feature_paths, map_generator=features)
    with torch.no_grad(), seeded_globally(seed):
        path = draw_matheron_paths(model, torch.Size(), prior_sampler=sampler)

    def values(X: Tensor) -> Tensor:
        if member is None:
            alone = model.num_outputs == 1
            return path(X).unsqueeze(-1) if alone else path(X.unsqueeze(-3)).mT
        # ... x members x n; if each has a copy of the training inputs, BoTorch draws one update for
        # each copy, too: they differ only in the simulated noise, and one is enough
        found: Tensor = path(X.unsqueeze(-3)).select(-2, member)
        while found.dim() >= X.dim():
            found = found.select(-2, 0)
        return found.unsqueeze(-1)

    return values


NUM_WAVES = 512
"""The number of waves of each term of a kernel, with BoTorch's number of sines and cosines."""


class WaveDraw:
    """A draw from a posterior in closed form, as waves and kernel values with the rows.

    Args:
        posterior: The posterior of one output; its kernel is a sum of products.
        numbers: The random numbers.
    """

    def __init__(self, posterior: BoxPosterior, numbers: torch.Generator) -> None:
        """See the class."""
        normal = partial(torch.randn, dtype=DTYPE, generator=numbers)
        terms = posterior.kernel.terms
        count, dim, like = NUM_WAVES, posterior.X.shape[-1], posterior.X
        frequencies, amplitudes = [], []
        for term in terms:
            frequency, variance = torch.zeros(count, dim, dtype=DTYPE), 1.0 / count
            for factor in term:
                own, nu = normal(count, len(factor.columns)), factor.smoothness
                if math.isfinite(nu):  # Student's t with 2 nu degrees of freedom
                    own = own / normal(count, int(2.0 * nu)).square().mean(-1, True).sqrt()
                own = own / factor.lengthscale.cpu()
                frequency.index_add_(-1, torch.tensor(factor.columns), own)
                variance *= float(factor.outputscale)
            frequencies.append(frequency)
            # a cos(u) + b sin(u) with normal a and b is a wave with any phase
            amplitudes.append(variance**0.5 * normal(2, count).norm(dim=0))
        turns = torch.rand(count * len(terms), dtype=DTYPE, generator=numbers)
        self._frequencies = torch.cat(frequencies).to(like)  # p x d
        self._phases = (2.0 * math.pi * turns).to(like)
        self._amplitudes = torch.cat(amplitudes).to(like)
        self._posterior = posterior
        # Matheron's rule: c = (K + Lambda)^-1 (y - m - f_0 - noise)
        noise = posterior.row_noise.sqrt() * normal(posterior.num_rows).to(like)
        missed = posterior.residuals - self._waves(posterior.X) - noise
        drawn = posterior.inverse_times(missed)
        self._coefficients = torch.stack([drawn, posterior.coefficients], dim=-1)  # n x 2

    def __call__(self, X: Tensor, with_mean: bool) -> tuple[Tensor, Tensor]:
        """Return draw and posterior mean, ``... x n x 1`` each, differentiable once in ``X``."""
        posterior, points = self._posterior, X.reshape(-1, X.shape[-1])
        if posterior.transform is not None:
            points = posterior.transform(points)
        kernel_values = posterior.kernel(points, posterior.X)  # b x n
        both = kernel_values @ self._coefficients + posterior.prior_mean  # b x 2
        values, mean = both.unbind(-1)
        shape = (*X.shape[:-1], 1)
        return (values + self._waves(points)).reshape(shape), mean.reshape(shape)

    def _waves(self, points: Tensor) -> Tensor:
        """Return the prior draw at ``b x d`` points as the kernel sees them, ``b``."""
        angles = torch.addmm(self._phases, points, self._frequencies.mT)  # b x p
        return angles.cos() @ self._amplitudes
