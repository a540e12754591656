"""Maximise an acquisition function from all starting points at once, with closed-form gradients.

A generator for ``optimize_acqf(..., gen_candidates=gen_candidates_batched)``, where BoTorch's own
is L-BFGS-B with automatic gradients (Byrd, Lu, Nocedal and Zhu, *A limited memory algorithm for
bound constrained optimization*, SIAM J. Scientific Computing 1995).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.generation import gen_candidates_scipy
from botorch.optim.utils import columnwise_clamp
from torch import Tensor

from botorch_bandits.acquisition.projected_quasi_newton import (
    Array,
    Index,
    minimize_on_unit_cube,
)

MAXIMUM_DIMENSION = 20
"""Above it the eigenvalues of the curvature cost more than they save."""

MAXIMUM_ITERATIONS = 2000
"""The default of BoTorch's own generator."""


def gen_candidates_batched(
    initial_conditions: Tensor,
    acquisition_function: AcquisitionFunction,
    lower_bounds: float | Tensor | None = None,
    upper_bounds: float | Tensor | None = None,
    inequality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
    equality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
    nonlinear_inequality_constraints: list[tuple[Callable[..., Any], bool]] | None = None,
    options: dict[str, Any] | None = None,
    fixed_features: Mapping[int, float | Tensor] | None = None,
    timeout_sec: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Maximise an acquisition function locally from all starting points; BoTorch's interface.

    The best restart stops later than BoTorch's ``gen_candidates_scipy`` would stop it by default;
    one that is near a worse local maximum may be left there unfinished. Local searches that differ
    can climb different hills: where hills abound, neither generator always finds the highest.

    What it does not know is handed over to ``gen_candidates_scipy`` unchanged: acquisition
    functions without ``closed_form`` (see :attr:`WidthUpperConfidenceBound.closed_form`),
    ``q > 1``, constraints, more than 20 dimensions, no bounds, options other than ``maxiter``, and
    numbers that are not finite.

    Args:
        initial_conditions: ``b x 1 x d`` starting points within the bounds.
        acquisition_function: What to maximise.
        lower_bounds: A lower bound, or one for each dimension.
        upper_bounds: An upper bound, or one for each dimension.
        inequality_constraints: Handed over.
        equality_constraints: Handed over.
        nonlinear_inequality_constraints: Handed over.
        options: ``maxiter`` limits the steps (2000 if omitted).
        fixed_features: Values of dimensions that do not move. Values that differ between restarts
            are handed over.
        timeout_sec: Stop after this many seconds with the best points so far.

    Returns:
        ``b x 1 x d`` points within the bounds, to the last bit, and their ``b`` values.

    Example:
        >>> from botorch.optim import optimize_acqf
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP, GPUpperConfidenceBound
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> acqf = GPUpperConfidenceBound(BanditGP(X, X.sin(), kernel=RBFKernel()), width=2.0)
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> candidate, value = optimize_acqf(
        ...     acqf, bounds, 1, 2, 8, gen_candidates=gen_candidates_batched
        ... )
        >>> candidate.shape
        torch.Size([1, 1])
    """
    start = time.monotonic()
    options, fixed = options or {}, fixed_features or {}
    closed_form = getattr(acquisition_function, "closed_form", None)
    is_constrained = (
        inequality_constraints or equality_constraints or nonlinear_inequality_constraints
    )
    if (
        closed_form is not None
        and not is_constrained
        and initial_conditions.dim() == 3
        and initial_conditions.shape[-2] == 1
        and initial_conditions.shape[-1] <= MAXIMUM_DIMENSION
        and initial_conditions.dtype == torch.float64
        and lower_bounds is not None
        and upper_bounds is not None
        and options.keys() <= {"maxiter"}
        and all(torch.as_tensor(value).numel() == 1 for value in fixed.values())
    ):
        X, lower, upper = _points_and_bounds(initial_conditions, lower_bounds, upper_bounds, fixed)
        found = maximize_locally(
            lambda points, _: closed_form.value_and_gradient(
                torch.from_numpy(points).to(initial_conditions.device)
            ),
            X,
            lower,
            upper,
            int(options.get("maxiter", MAXIMUM_ITERATIONS)),
            None if timeout_sec is None else start + timeout_sec,
            closed_form.has_cheap_gradients,
        )
        if found is not None:
            candidates, values = (torch.from_numpy(a).to(initial_conditions) for a in found)
            return candidates.unsqueeze(-2), values
    candidates, values = gen_candidates_scipy(
        initial_conditions,
        acquisition_function,
        lower_bounds=lower_bounds,
        upper_bounds=upper_bounds,
        inequality_constraints=inequality_constraints,
        equality_constraints=equality_constraints,
        nonlinear_inequality_constraints=nonlinear_inequality_constraints,
        options=options,
        fixed_features=fixed_features,
        timeout_sec=timeout_sec,
    )
    return candidates, values


def _points_and_bounds(
    initial_conditions: Tensor,
    lower_bounds: float | Tensor,
    upper_bounds: float | Tensor,
    fixed: Mapping[int, float | Tensor],
) -> tuple[Array, Array, Array]:
    """Return points and bounds, each ``b x d``; a fixed feature has equal bounds."""
    X = initial_conditions.detach().squeeze(-2).cpu()
    lower, upper = (
        torch.as_tensor(bounds).detach().to(X).expand_as(X)
        for bounds in (lower_bounds, upper_bounds)
    )
    if fixed:
        X, lower, upper = X.clone(), lower.clone(), upper.clone()
        for i, value in fixed.items():
            X[:, i] = lower[:, i] = upper[:, i] = float(value)
    X = columnwise_clamp(X, lower, upper, raise_on_violation=True)
    return X.numpy(), lower.numpy(), upper.numpy()


def maximize_locally(
    value_and_gradient: Callable[[Array, Index], tuple[Tensor, Tensor]],
    X: Array,
    lower: Array,
    upper: Array,
    max_iterations: int = MAXIMUM_ITERATIONS,
    deadline: float | None = None,
    has_cheap_gradients: bool = False,
    num_functions: int = 1,
) -> tuple[Array, Array] | None:
    """Climb from starting points in a box; see :func:`minimize_on_unit_cube`.

    Args:
        value_and_gradient: Maps ``b x d`` points, and the number of the function that each belongs
            to, to ``b`` values and ``b x d`` gradients.
        X: ``b x d`` starting points.
        lower: ``b x d`` lower bounds, the same in all rows but for fixed features.
        upper: ``b x d`` upper bounds, likewise.
        max_iterations: At most this many steps.
        deadline: On the clock of ``time.monotonic``.
        has_cheap_gradients: Take the curvature from ``d`` further gradients at each point.
        num_functions: Of how many functions ``X`` has starting points, in equal shares.

    Returns:
        ``b x d`` points and their ``b`` values; None if there is a number not finite.
    """
    # fixed features have no side: their slopes vanish, and they never move
    side = upper[:1] - lower[:1]
    if not np.isfinite(side).all():
        return None
    origin = lower[:1]

    def evaluate(unit: Array, function: Index) -> tuple[Array, Array]:
        value, gradient = value_and_gradient(origin + side * unit, function)
        return -value.cpu().numpy(), gradient.cpu().numpy() * -side

    unit = (X - lower) / np.where(side > 0.0, side, 1.0)
    with torch.no_grad():
        found = minimize_on_unit_cube(
            evaluate,
            np.clip(unit, 0.0, 1.0),
            max_iterations,
            deadline,
            has_cheap_gradients=has_cheap_gradients,
            num_functions=num_functions,
        )
    if found is None:
        return None
    unit, losses = found
    points = np.clip(lower + side * unit, lower, upper)
    return np.where(unit == 1.0, upper, points), -losses
