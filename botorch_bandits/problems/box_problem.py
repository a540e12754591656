"""Problems on a box whose optimum is found numerically."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.domains import Box
from botorch_bandits.problems.reward_problem import RewardProblem

_NUM_SOBOL_POINTS = 4096
_NUM_STARTS = 16
_CHUNK_SIZE = 1024

FloatArray = NDArray[np.float64]


class BoxProblem(RewardProblem):
    """A reward function on a box. Subclasses call ``_find_optimum`` when they are built.

    Attributes:
        optimal_value: The largest reward found on the box. It is numerical: a lower
            bound on the true maximum, tight unless the function has a peak so narrow
            that every start missed it.
        optimizers: The point at which it was found (buffer, ``1 x d``).
    """

    # The optimum may lie on the boundary, where the gradient need not vanish.
    _check_grad_at_opt = False
    optimal_value: float
    optimizers: Tensor

    def __init__(self, bounds: Tensor, noise_std: float | None) -> None:
        """Check and store the box."""
        bounds = Box(bounds).bounds
        self.dim = bounds.shape[1]
        self.continuous_inds = list(range(self.dim))
        self._bounds = [(lower, upper) for lower, upper in bounds.T.tolist()]
        super().__init__(noise_std=noise_std)
        self.to(bounds.device)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return self._evaluate_rows(X.reshape(-1, self.dim)).reshape(X.shape[:-1])

    def _evaluate_rows(self, points: Tensor) -> Tensor:
        """Rewards ``(n,)`` at points ``n x d``."""
        raise NotImplementedError

    def _find_optimum(self, seed: int, extra_points: Tensor | None = None) -> None:
        """Set ``optimal_value`` and ``optimizers``."""
        point, value = maximise_on_box(self._evaluate_rows, self.bounds, seed, extra_points)
        self.optimal_value = value
        self.register_buffer("optimizers", point.unsqueeze(0))


def maximise_on_box(
    function: Callable[[Tensor], Tensor],
    bounds: Tensor,
    seed: int,
    extra_points: Tensor | None = None,
) -> tuple[Tensor, float]:
    """Maximise a differentiable function on a box from many starts.

    The function is evaluated on a dense Sobol set. L-BFGS-B then climbs from the
    best points that are apart from each other.

    Args:
        function: Maps points ``n x d`` to values ``(n,)``.
        bounds: The box, ``2 x d``.
        seed: Seed of the scrambled Sobol set; the global random state is not used.
        extra_points: Further candidates, ``m x d``, e.g. known centers of peaks.

    Returns:
        The best point found, ``(d,)``, and its value.
    """
    lower, width = bounds[0], bounds[1] - bounds[0]
    engine = SobolEngine(bounds.shape[1], scramble=True, seed=seed)
    unit = engine.draw(_NUM_SOBOL_POINTS, dtype=torch.float64).to(bounds.device)
    if extra_points is not None:
        unit = torch.cat([unit, (extra_points - lower) / width])

    def from_unit(unit_points: Tensor) -> Tensor:
        # Rounding can push a point past the upper corner by one unit in the last place.
        return (lower + width * unit_points).clamp(min=bounds[0], max=bounds[1])

    with torch.no_grad():
        values = torch.cat([function(from_unit(part)) for part in torch.split(unit, _CHUNK_SIZE)])
    # Tolerances of L-BFGS-B are absolute, so put the values on a common scale.
    spread = (values.max() - values.min()).item()
    scale = spread if spread > 0.0 else 1.0

    def climb(starts: Tensor) -> Tensor:
        shape = starts.shape

        def loss_and_gradient(entries: FloatArray) -> tuple[float, FloatArray]:
            with torch.enable_grad():
                # The copy matters: SciPy reuses the memory of its argument.
                points = torch.tensor(entries, dtype=torch.float64, device=bounds.device)
                points.requires_grad_(True)
                loss = -function(lower + width * points.reshape(shape)).sum() / scale
                (gradient,) = torch.autograd.grad(loss, points)
            return loss.item(), gradient.cpu().numpy()

        result = minimize(
            loss_and_gradient,
            starts.reshape(-1).cpu().numpy(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * starts.numel(),
            options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 500},
        )
        return torch.tensor(result.x, dtype=torch.float64, device=bounds.device).reshape(shape)

    # The sum over all starts is one smooth problem, which is cheaper than a run for
    # each. A run for the winner alone then settles its last digits.
    starts = unit[_separated_best(unit, values)]
    candidates = torch.cat([starts, climb(starts)])
    with torch.no_grad():
        winner = candidates[function(from_unit(candidates)).argmax()].unsqueeze(0)
    ends = from_unit(torch.cat([winner, climb(winner)]))
    with torch.no_grad():
        end_values = function(ends)
    best = int(end_values.argmax().item())
    return ends[best], float(end_values[best].item())


def _separated_best(unit: Tensor, values: Tensor) -> list[int]:
    """Pick the best points of the unit cube, skipping those close to a better one.

    The plain best points would often all sit on the same peak.
    """
    radius = 0.25 * _NUM_STARTS ** (-1.0 / unit.shape[1])
    is_open = torch.ones_like(values, dtype=torch.bool)
    chosen: list[int] = []
    while len(chosen) < _NUM_STARTS and bool(is_open.any()):
        best = int(values.masked_fill(~is_open, -torch.inf).argmax().item())
        chosen.append(best)
        is_open &= (unit - unit[best]).norm(dim=-1) > radius
    return chosen
