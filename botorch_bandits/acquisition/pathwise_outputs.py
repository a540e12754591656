r"""Pathwise draws of several outputs at once on a box, and functions of them in closed form.

Each output of the same rows has its own draw, a sum of waves and kernel values; see
:mod:`botorch_bandits.acquisition.pathwise`. If a weighted sum of outputs that share their
hyperparameters is maximized, the sum is itself such a draw:

.. math::
   \sum_j w_j f_j(x) = \sum_j w_j m_j + \sum_{j, i} w_j r_{ji} \cos(\omega_{ji}^\top x
   + \varphi_{ji}) + \sum_i \Bigl( \sum_j w_j c_{ji} \Bigr) k(x, x_i).

The gradient of any other function of the outputs follows from the chain rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.sampling.pathwise import GeneralizedLinearPath
from botorch.sampling.pathwise.features import KernelEvaluationMap
from botorch.sampling.pathwise.paths import PathList
from botorch.sampling.pathwise.posterior_samplers import MatheronPath
from botorch.sampling.pathwise.utils import get_input_transform, get_train_inputs
from torch import Tensor

from botorch_bandits.acquisition.pathwise import (
    NUM_FEATURES,
    ClosedFormDraw,
    draw_features,
    weights_of_features,
)
from botorch_bandits.models.several_outputs import JointOutputs

FromDraws = Callable[[Tensor], Tensor]
"""Maps the draws of all outputs, ``b x m``, to ``b`` values."""


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
            weight=each.factored.solve(each.train_targets - values),
        )
        paths.append(MatheronPath(prior_paths=prior, update_paths=update))
    return PathList(paths)


class ClosedFormOfDraws:
    """Values and gradients of a function of the draws of several outputs.

    Args:
        draws: One per output.
        function: A differentiable function from the draws to values.
    """

    def __init__(self, draws: Sequence[ClosedFormDraw], function: FromDraws) -> None:
        """See the class."""
        self._draws, self._function = draws, function

    @property
    def has_cheap_gradients(self) -> bool:
        """See :class:`~botorch_bandits.acquisition.scores.ClosedFormBound`."""
        return all(draw.has_cheap_gradients for draw in self._draws)

    def value(self, X: Tensor) -> Tensor:
        """Return the ``b`` values at ``b x d`` points."""
        return self._function(torch.stack([draw.value(X) for draw in self._draws], dim=-1))

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ``b`` values and ``b x d`` gradients at ``b x d`` points."""
        values, slopes = zip(*(draw.value_and_gradient(X) for draw in self._draws), strict=True)
        with torch.enable_grad():
            drawn = torch.stack(values, dim=-1).requires_grad_()
            value = self._function(drawn)
            (outer,) = torch.autograd.grad(value.sum(), drawn)
        return value.detach(), torch.einsum("bm,bmd->bd", outer, torch.stack(slopes, dim=1))


def draws_of_outputs(model: Model, path: Any, widths: Sequence[float]) -> list[Any] | None:
    """Return the closed form of the draw of each output.

    Args:
        model: The model that they were drawn from.
        path: The draw, unscaled.
        widths: The factors of its deviations from the posterior means.

    Returns:
        None if an output has none.
    """
    if not isinstance(model, ModelListGP) or not isinstance(path, PathList):
        return None
    if not len(model.models) == len(path.paths) == len(widths):
        return None
    found = [
        ClosedFormDraw.of_path(each, of_output, width, 1.0)
        for each, of_output, width in zip(model.models, path.paths, widths, strict=True)
    ]
    return None if any(each is None for each in found) else found


def weighted_draw(draws: Sequence[ClosedFormDraw], weights: Sequence[float]) -> Any:
    """Return a weighted sum of draws, as one draw if they share rows and hyperparameters.

    Args:
        draws: One per output.
        weights: One each.
    """
    first, *others = (draw.posterior for draw in draws)
    if all(each is first or first.shares_factor_with(each) for each in others):
        return ClosedFormDraw(
            replace(first, prior_mean=_sum([draw.posterior.prior_mean for draw in draws], weights)),
            _sum([draw.coefficients for draw in draws], weights),
            torch.cat([draw.frequencies for draw in draws]),
            torch.cat([draw.phases for draw in draws]),
            torch.cat([w * draw.amplitudes for draw, w in zip(draws, weights, strict=True)]),
            1.0,
        )
    return ClosedFormOfDraws(draws, lambda drawn: drawn @ drawn.new_tensor(weights))


def _sum(terms: Sequence[Any], weights: Sequence[float]) -> Any:
    return sum(weight * term for weight, term in zip(weights, terms, strict=True))
