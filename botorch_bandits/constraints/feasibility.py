"""Two warnings about constraints: no point seems to meet one, or its values are too noisy.

:func:`recognize_infeasibility` considers lower confidence bounds and multipliers, and
:func:`warn_if_noisy` repeated points under a rule that is for exact values. Neither changes what a
rule does.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from botorch_bandits.checks import check_double, check_integer
from botorch_bandits.constraints.rules import MultiplierRule


class NoisyConstraintsWarning(UserWarning):
    """Constraint values are noisy, but the rule in use is for exact ones."""


class InfeasibleConstraintsWarning(UserWarning):
    """No point seems to meet a constraint; see :func:`recognize_infeasibility`."""


def recognize_infeasibility(
    multipliers: Tensor,
    smallest_lower_bounds: Tensor,
    num_epochs: int = 3,
    largest: float | None = None,
) -> Tensor:
    """Return which constraints no point seems to meet.

    A constraint is reported if its smallest lower confidence bound over the domain is positive, and
    its multiplier grew in each of the last ``num_epochs`` updates. The first condition alone
    implies, if the confidence bound holds, that no point meets the constraint; the second shows
    that the rule pursues a target that it cannot reach. Constraints that exclude each other, each
    of which some point meets, are not recognized.

    Args:
        multipliers: ``batch_shape x num_epochs_so_far x num_constraints``.
        smallest_lower_bounds: ``batch_shape x num_constraints``; for each constraint the minimum
            over the domain of ``mean - width * standard_deviation``.
        num_epochs: The number of consecutive updates that must have raised the multiplier.
        largest: The largest value, if the rule caps multipliers; a capped multiplier counts as
            growing.

    Returns:
        ``batch_shape x num_constraints`` booleans. All are False before ``num_epochs`` updates.

    Example:
        >>> kappa = torch.tensor([[1.0], [2.0], [4.0], [8.0]], dtype=torch.float64)
        >>> recognize_infeasibility(kappa, torch.tensor([0.3], dtype=torch.float64))
        tensor([True])
    """
    check_double("multipliers", multipliers)
    check_double("smallest_lower_bounds", smallest_lower_bounds)
    smallest_lower_bounds = smallest_lower_bounds.to(multipliers.device)
    num_epochs = check_integer("num_epochs", num_epochs, minimum=1)
    wanted = (*multipliers.shape[:-2], multipliers.shape[-1])
    if smallest_lower_bounds.shape != wanted:
        raise ValueError(
            f"smallest_lower_bounds has shape {tuple(smallest_lower_bounds.shape)}, not {wanted}."
        )
    if multipliers.shape[-2] <= num_epochs:
        return torch.zeros_like(smallest_lower_bounds, dtype=torch.bool)
    grew = multipliers[..., -num_epochs - 1 :, :].diff(dim=-2) > 0.0
    if largest is not None:  # taking a logarithm and exponentiating may round
        grew = grew | (multipliers[..., -num_epochs:, :] >= largest * (1.0 - 1e-9))
    return grew.all(dim=-2) & (smallest_lower_bounds > 0.0)


def warn_if_noisy(
    rule: MultiplierRule, X: Tensor, constraints: Tensor, stacklevel: int = 2
) -> bool:
    """Warn if a rule for exact constraint values is given noisy ones.

    Values are noisy if the same point was observed with two different values. Noise that never
    shows at a repeated point is not detected.

    Args:
        rule: The rule in use.
        X: ``n x d`` points (contexts included).
        constraints: ``n x num_constraints`` observed values.
        stacklevel: The caller whose line the warning names; see :func:`warnings.warn`.

    Returns:
        Whether it warned.

    Warns:
        NoisyConstraintsWarning: Naming the constraint and the rule for noisy values.
    """
    if not rule.expects_exact_constraints or len(X) < 2:
        return False
    _, which = torch.unique(X, dim=0, return_inverse=True)
    index = which.unsqueeze(-1).expand_as(constraints)
    shape = (int(which.max()) + 1, constraints.shape[-1])
    largest = constraints.new_full(shape, -torch.inf).scatter_reduce(0, index, constraints, "amax")
    smallest = constraints.new_full(shape, torch.inf).scatter_reduce(0, index, constraints, "amin")
    size = torch.maximum(largest.abs(), smallest.abs()).clamp_min(1.0)
    spread = (largest - smallest) / size
    if float(spread.max()) <= 1e-12:
        return False
    j = int(spread.amax(dim=0).argmax())
    warnings.warn(
        f"constraint {j + 1} was observed with different values at one point, but "
        f"{type(rule).__name__} is for exact values: psi amplifies noise. Use AdditiveEpochs.",
        NoisyConstraintsWarning,
        stacklevel=stacklevel,
    )
    return True
