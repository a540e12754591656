r"""The joint value of ``q`` points: the sum of the values of one point after the other.

.. math:: a(x_1, \dots, x_q) = \sum_i a(x_i \mid \text{pending points}, x_1, \dots, x_{i-1})

Every point is valued as if those before it were pending. A bound therefore uses the remaining
variances (GP-BUCB) and the width of the round in which the point would be chosen, and the value
depends on the order of the points. Gradients propagate through all of it. No theorem is stated for
the maximizer.

Source: Desautels, Krause and Burdick, *Parallelizing exploration-exploitation tradeoffs in Gaussian
process bandit optimization*, JMLR 2014, for the bounds and for points that are chosen one by one.
"""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor
from torch.nn import Module

from botorch_bandits.models.pending import shape_of_batch

_M = TypeVar("_M", bound=Module)


def sum_one_by_one(acquisition: Any, X: Tensor) -> Tensor:
    """Evaluate an acquisition function at several points, one after the other.

    Args:
        acquisition: It must have ``_evaluate``, the values of single points, ``_one_by_one``, their
            posteriors, and ``_look_ahead``, which informs a view of it that each point comes after
            others.
        X: ``batch_shape x q x d`` points, float64.

    Returns:
        ``batch_shape`` values; with a batched model, one for each member.

    Raises:
        UnsupportedError: If the posterior of the model has no joint Gaussian moments.
    """
    ahead = acquisition._one_by_one(X if X.dim() > 2 else X.unsqueeze(0))
    view = view_of(acquisition)
    view.model = ahead
    acquisition._look_ahead(view, ahead)
    each: Tensor = view._evaluate(ahead.points)
    depth = 0 if ahead._is_ensemble else len(shape_of_batch(ahead))
    return each.sum(dim=-1 - depth)


def view_of(module: _M) -> _M:
    """Return a copy whose attributes, buffers and submodules can be replaced; nothing is cloned.

    Args:
        module: The module, which is not changed.
    """
    view = object.__new__(type(module))
    state = {
        name: dict(value) if name in ("_modules", "_buffers", "_parameters") else value
        for name, value in module.__dict__.items()
    }
    view.__dict__.update(state)
    return view
