"""Penalised outcomes: what a surrogate is fitted to."""

from __future__ import annotations

import torch
from torch import Tensor

from botorch_bandits.checks import check_double
from botorch_bandits.penalties import Penalty

LARGEST_TARGET = 1e150
"""Sums of squares of what is smaller are finite in float64."""


class MultiplierOverflowError(OverflowError):
    """A multiplier or a penalised outcome is too large for float64."""


def penalise(penalty: Penalty, rewards: Tensor, constraints: Tensor, multipliers: Tensor) -> Tensor:
    """Return ``f - sum_j kappa_j (psi(g_j) - 1)``.

    Args:
        penalty: ``psi``.
        rewards: ``batch_shape x n``.
        constraints: ``batch_shape x n x num_constraints``.
        multipliers: ``batch_shape x num_constraints``.

    Returns:
        ``batch_shape x n``.

    Raises:
        TypeError: If a tensor is not float64.
        ValueError: If shapes do not fit.
        MultiplierOverflowError: If the result of finite outcomes is not finite, or so large that
            sums of its squares are not.
    """
    check_double("rewards", rewards)
    check_double("constraints", constraints)
    check_double("multipliers", multipliers)
    m = multipliers.shape[-1]
    if constraints.shape != (*rewards.shape, m):
        raise ValueError(
            f"rewards {tuple(rewards.shape)}, constraints {tuple(constraints.shape)} and "
            f"multipliers {tuple(multipliers.shape)} do not fit: they must be batch x n, "
            f"batch x n x {m} and batch x {m}."
        )
    targets = rewards - (multipliers.unsqueeze(-2) * penalty.excess(constraints)).sum(dim=-1)
    known = torch.isfinite(rewards) & torch.isfinite(constraints).all(dim=-1)
    if bool((known & ~(targets.abs() < LARGEST_TARGET)).any()):
        raise MultiplierOverflowError(
            "a penalised outcome is too large for float64 (largest multiplier "
            f"{float(multipliers.max()):.3g}). Use penalty=Polynomial(c, n), which grows more "
            "slowly, or a smaller c."
        )
    return targets
