r"""Pathwise draws from a posterior on a box: how they are made, and how they are evaluated.

A draw is the sum of two parts: a draw from the prior, which is a sum of waves from random Fourier
features, and a correction for the data by Matheron's rule:

.. math::
   f(x) = m + \sum_i r_i \cos(\omega_i^\top x + \varphi_i) + \sum_j c_j k(x, x_j), \qquad
   c = (K + \lambda I)^{-1} (y - f_0 - \varepsilon)

with :math:`f_0` the prior draw at the data and :math:`\varepsilon` simulated noise. The gradient
follows from the sums term by term. With ``n`` rows, ``p`` waves and ``b`` points, values and
gradients cost ``b (n + p)`` operations.

The random numbers are those of BoTorch's ``draw_matheron_paths``; numbers that are drawn there but
not used are skipped. Features for products and sums of stationary kernels, which BoTorch lacks, are
provided here: the frequencies of a product are the sums of its factors' frequencies, and a sum has
the waves of all its terms.

Sources: Rahimi and Recht, *Random features for large-scale kernel machines*, NIPS 2007; Wilson et
al., *Pathwise conditioning of Gaussian processes*, JMLR 2021.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.sampling.pathwise import GeneralizedLinearPath, draw_kernel_feature_paths
from botorch.sampling.pathwise.features import (
    KernelEvaluationMap,
    KernelFeatureMap,
    gen_kernel_features,
)
from botorch.sampling.pathwise.paths import PathList
from botorch.sampling.pathwise.posterior_samplers import MatheronPath
from botorch.sampling.pathwise.update_strategies import gaussian_update
from botorch.sampling.pathwise.utils import TensorTransform, get_input_transform, get_train_inputs
from botorch.utils.sampling import draw_sobol_normal_samples
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.distributions import Gamma
from torch.quasirandom import SobolEngine

from botorch_bandits.core.box import BoxPosterior
from botorch_bandits.core.kernels import StationaryKernel, read_products
from botorch_bandits.models.growing import IncrementalGP, read_standardization, units_of_columns
from botorch_bandits.models.several_outputs import JointOutputs
from botorch_bandits.random_streams import USUAL_DTYPE

FEWEST_WAVES = 128
"""The least number of waves of each term of a sum of products."""

MOST_TERMS = 8
"""The number of terms of such a sum; with more, BoTorch's general method is used."""


def draw_prior_paths(model: Model, sample_shape: torch.Size) -> GeneralizedLinearPath:
    """Draw a function from a model's prior, with the random numbers of BoTorch.

    Args:
        model: An exact Gaussian process.
        sample_shape: The number of draws.

    Raises:
        NotImplementedError: If there are no random features for the kernel.
    """
    num_columns = get_train_inputs(model, transformed=True)[0].shape[-1]

    def generate(kernel: Kernel, num_inputs: int, num_outputs: int) -> KernelFeatureMap:
        # features of the columns that the kernel sees: an encoding of categories adds some
        return draw_features(kernel, num_columns, num_outputs)

    return draw_kernel_feature_paths(
        model,
        sample_shape=sample_shape,
        map_generator=generate,
        weight_generator=weights_of_features,
    )


NUM_FEATURES = 1024
"""The number of sines and cosines of a draw, which is BoTorch's default."""


def draw_features(
    kernel: Kernel, num_columns: int, num_features: int = NUM_FEATURES
) -> KernelFeatureMap:
    """Draw random features of a kernel.

    Args:
        kernel: A kernel, with or without a batch of outputs.
        num_columns: The number of columns that the kernel sees.
        num_features: The number of sines and cosines.

    Raises:
        NotImplementedError: If there are none for the kernel.
    """
    try:
        return gen_kernel_features(kernel, num_inputs=num_columns, num_outputs=num_features)
    except NotImplementedError:
        products = read_products(kernel, num_columns)
        found = None
        if products is not None:
            found = _features(kernel, products, num_columns, num_features // 2)
        if found is None:
            raise
        return found


def update_paths(model: Any, sample_values: Tensor, **options: Any) -> GeneralizedLinearPath:
    """Correct prior draws for the data, like BoTorch's ``gaussian_update``, with the known factor.

    Args:
        model: An exact Gaussian process.
        sample_values: Its prior draws at its inputs.
        **options: Further arguments of ``gaussian_update``.
    """
    closed_form = model.factored if isinstance(model, IncrementalGP) else None
    if closed_form is None or sample_values.dim() != 1:
        return gaussian_update(model=model, sample_values=sample_values, **options)
    (points,) = get_train_inputs(model, transformed=True)
    normal = torch.randn_like(sample_values)
    levels = model.likelihood.noise_covar(shape=points.shape[:-1]).diagonal(dim1=-1, dim2=-2)
    errors = model.train_targets - (sample_values + levels.sqrt() * normal)
    unit = _unit(model)
    return GeneralizedLinearPath(
        feature_map=KernelEvaluationMap(
            kernel=model.covar_module, points=points, input_transform=get_input_transform(model)
        ),
        weight=closed_form.inverse_times(errors) * unit**2,
    )


def weights_of_features(shape: torch.Size) -> Tensor:
    """Draw the numbers that multiply the features: points of one scrambled sequence.

    Args:
        shape: The number of functions, in any shape, followed by the number of features.
    """
    num_points, dim = shape[:-1].numel(), shape[-1]
    if num_points <= MOST_POINTS and dim <= SobolEngine.MAXDIM:
        whole = first_sobol_normals(num_points, dim)
    else:
        whole = draw_sobol_normal_samples(n=num_points, d=dim, dtype=torch.float64)
    return whole.reshape(shape)


MOST_POINTS = 16
"""For up to this many points, a sequence is scrambled only at these points."""


def first_sobol_normals(num_points: int, dim: int) -> Tensor:
    """Return the first points of a scrambled Sobol sequence, made normal as in BoTorch.

    They depend on only a few of the random numbers that a scrambled sequence takes; the others are
    skipped. BoTorch's ``draw_sobol_normal_samples`` takes ten times as long for the same points,
    and needs twenty times the memory.

    Args:
        num_points: The number of points.
        dim: The dimension of each.

    Returns:
        ``num_points x dim``.
    """
    bits = SobolEngine.MAXBIT
    powers = 2 ** torch.arange(bits)
    shift = torch.randint(2, (dim, bits)) @ powers
    mixing = torch.empty(dim, bits, bits, dtype=torch.bool).random_()
    # the first point is in float32, as torch has it
    uniform = [(shift.to(USUAL_DTYPE) / 2**bits).to(torch.float64)]
    if num_points > 1:
        directions = _scrambled_directions(mixing, (num_points - 1).bit_length()) @ powers.flip(0)
        point = shift
        for i in range(num_points - 1):
            changed = (~i & (i + 1)).bit_length() - 1  # the order of Gray's code
            point = point ^ directions[changed]
            uniform.append(point.to(torch.float64) / 2**bits)
    inside = 0.5 + (1.0 - torch.finfo(torch.float64).eps) * (torch.stack(uniform) - 0.5)
    return torch.erfinv(2.0 * inside - 1.0) * math.sqrt(2.0)


def _scrambled_directions(mixing: Tensor, count: int) -> Tensor:
    """Return the bits of the first direction numbers, the highest first, ``count x dim x bits``.

    Args:
        mixing: ``dim x bits x bits``; the entries below the diagonal determine how bits are mixed.
        count: The number of direction numbers.
    """
    dim, bits, _ = mixing.shape
    # the first numbers have nothing in the lower bits, so only the first columns are mixed in
    columns = mixing[:, :, :count].tril().long()
    columns.diagonal(dim1=-2, dim2=-1).fill_(1)
    given = SobolEngine(dim).sobolstate[:, :count]
    own = (given.unsqueeze(1) >> torch.arange(bits - 1, bits - 1 - count, -1).unsqueeze(-1)) & 1
    return ((columns @ own) % 2).permute(2, 0, 1)


class _Waves(TensorTransform):
    """Sines and cosines, each with its own amplitude."""

    def __init__(self, amplitudes: Tensor) -> None:
        super().__init__()
        self.register_buffer("amplitudes", amplitudes)

    def forward(self, values: Tensor, **kwargs: Any) -> Tensor:
        return torch.cat([self.amplitudes * values.sin(), self.amplitudes * values.cos()], dim=-1)


def _features(
    kernel: Kernel, terms: list[tuple[StationaryKernel, ...]], dim: int, num_waves: int
) -> KernelFeatureMap | None:
    if len(terms) > MOST_TERMS:
        return None
    count = max(FEWEST_WAVES, num_waves // len(terms))
    frequencies, amplitudes = [], []
    for parts in terms:
        frequency = torch.zeros(count, dim, dtype=torch.float64)
        scale = torch.ones((), dtype=torch.float64)
        for part in parts:
            columns = torch.tensor(part.columns)
            frequency.index_add_(-1, columns, _frequencies(part, count).cpu())
            scale = scale * part.outputscale.cpu()
        frequencies.append(frequency)
        amplitudes.append((scale / count).sqrt().expand(count))
    like = terms[0][0].lengthscale
    return KernelFeatureMap(
        kernel=kernel,
        weight=torch.cat(frequencies).to(like),
        output_transform=_Waves(torch.cat(amplitudes).to(like)),
    )


def _frequencies(part: StationaryKernel, count: int) -> Tensor:
    """Draw from the spectral density of a part, ``count x d``."""
    normal = draw_sobol_normal_samples(d=len(part.columns), n=count, dtype=torch.float64)
    nu = part.smoothness
    if math.isfinite(nu):
        shape = torch.tensor(nu, dtype=torch.float64)
        normal = Gamma(shape, shape).rsample((count, 1)).rsqrt() * normal
    return normal.to(part.lengthscale) / part.lengthscale


def _unit(model: SingleTaskGP) -> float:
    """Return the number of raw outcome units in one unit of the model."""
    scale = read_standardization(model._modules.get("outcome_transform"))
    assert scale is not None
    return scale.unit


class WavesAndRows:
    """A draw as a sum of waves and of kernel values with the rows, in raw inputs and outcomes.

    Args:
        posterior: The closed form from which the draw is made.
        coefficients: ``n`` coefficients that multiply the kernel values with the rows.
        frequencies: ``p x d``.
        phases: ``p``.
        amplitudes: ``p``.
    """

    def __init__(
        self,
        posterior: BoxPosterior,
        coefficients: Tensor,
        frequencies: Tensor,
        phases: Tensor,
        amplitudes: Tensor,
    ) -> None:
        """See the class."""
        self._posterior, self._coefficients = posterior, coefficients
        self._corrected = posterior.with_coefficients(coefficients)
        self._frequencies, self._phases, self._amplitudes = frequencies, phases, amplitudes

    @classmethod
    def read(cls, model: Model, path: Any) -> WavesAndRows | None:
        """Read a draw that BoTorch made.

        Args:
            model: The model that it was drawn from.
            path: The draw.

        Returns:
            None if the model has no closed form in raw inputs, or the draw is of another kind.
        """
        if not isinstance(model, IncrementalGP) or not isinstance(path, MatheronPath):
            return None
        posterior = model.closed_form
        prior, update = path.paths["prior_paths"], path.paths["update_paths"]
        features = getattr(prior, "feature_map", None)
        if (
            posterior is None
            or not isinstance(features, KernelFeatureMap)
            or not isinstance(update.feature_map, KernelEvaluationMap)
            or features.weight.dim() != 2
            or features.bias is not None
            or prior.weight.dim() != 1
        ):
            return None
        unit, transform = _unit(model), model._modules.get("input_transform")
        dim = model.train_inputs[0].shape[-1]
        with torch.no_grad():
            # the map before the waves is linear: it is read at the origin and the unit vectors
            points = torch.cat([features.weight.new_zeros(1, dim), torch.eye(dim).to(prior.weight)])
            before = features.input_transform
            seen = points if before is None else before(points)
            seen = seen @ features.weight.mT
            phases, frequencies = seen[0], (seen[1:] - seen[0]).mT
            if transform is not None:
                units = units_of_columns(transform, model._original_train_inputs[0])
                if units is None:
                    return None
                frequencies = frequencies / units[0]
                phases = phases - frequencies @ units[1]
            count = len(phases)
            assert features.output_transform is not None
            amplitudes = features.output_transform(torch.zeros_like(phases))[count:]
            # s sin(u) + c cos(u) = hypot(s, c) cos(u - atan2(s, c))
            sines, cosines = prior.weight[:count], prior.weight[count:]
            phases = phases - torch.atan2(sines, cosines)
            amplitudes = unit * amplitudes * torch.hypot(sines, cosines)
            return cls(posterior, update.weight / unit, frequencies, phases, amplitudes)

    def about_mean(self, width: float) -> WavesAndRows:
        """Return ``mean + width * (draw - mean)``, with the posterior mean.

        Args:
            width: The factor on the deviations from the mean.
        """
        coefficients = (1.0 - width) * self._posterior.coefficients + width * self._coefficients
        waves = (self._frequencies, self._phases, width * self._amplitudes)
        return WavesAndRows(self._posterior, coefficients, *waves)

    def __call__(self, X: Tensor) -> Tensor:
        """Evaluate the draw; it can be differentiated once.

        Args:
            X: ``... x d`` points.

        Returns:
            ``...`` values.
        """
        points = X.reshape(-1, X.shape[-1])
        waves = torch.addmm(self._phases, points, self._frequencies.mT).cos()  # b x p
        values = waves @ self._amplitudes + self._corrected.mean(points)
        return values.reshape(X.shape[:-1])


def draw_joint_paths(model: JointOutputs) -> PathList:
    """Draw all outputs of one model, with the random numbers of BoTorch's model of all outputs.

    Args:
        model: A model whose outputs have closed forms and random features.

    Returns:
        One draw per output.
    """
    models = list(model.models)
    (points,) = get_train_inputs(models[0], transformed=True)
    frequencies = draw_features(model.joint_kernel, points.shape[-1]).weight
    shape = torch.Size([len(models), NUM_FEATURES])
    weights = weights_of_features(shape).to(points)
    state = torch.get_rng_state()
    priors = [
        GeneralizedLinearPath(
            feature_map=draw_features(each.covar_module, points.shape[-1]),
            weight=weight,
            bias_module=each.mean_module,
            input_transform=get_input_transform(each),
        )
        for each, weight in zip(models, weights, strict=True)
    ]
    torch.set_rng_state(state)  # discards the numbers that were drawn for one output
    for prior, own in zip(priors, frequencies, strict=True):
        prior.feature_map.weight = own
    # ``forward`` takes points that are transformed already
    drawn = torch.stack([prior.forward(points) for prior in priors])
    noise = torch.stack([each.likelihood.noise.detach().reshape(1) for each in models])
    simulated = drawn + noise.sqrt() * torch.randn_like(drawn)
    paths = []
    for each, prior, values in zip(models, priors, simulated, strict=True):
        update = GeneralizedLinearPath(
            feature_map=KernelEvaluationMap(
                kernel=each.covar_module, points=points, input_transform=get_input_transform(each)
            ),
            weight=each.factored.inverse_times(each.train_targets - values),
        )
        paths.append(MatheronPath(prior_paths=prior, update_paths=update))
    return PathList(paths)
