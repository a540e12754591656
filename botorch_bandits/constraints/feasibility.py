"""Two warnings about constraints: no point seems to meet one, or its values are too noisy.

:func:`recognize_infeasibility` considers lower confidence bounds and multipliers, and
:func:`warn_if_noisy` repeated points under a rule that is for exact values. Neither changes what a
rule does.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

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
    if multipliers.shape[-2] <= num_epochs:
        return torch.zeros_like(smallest_lower_bounds, dtype=torch.bool)
    grew = multipliers[..., -num_epochs - 1 :, :].diff(dim=-2) > 0.0
    if largest is not None:  # taking a logarithm and exponentiating may round
        grew = grew | (multipliers[..., -num_epochs:, :] >= largest * (1.0 - 1e-9))
    return grew.all(dim=-2) & (smallest_lower_bounds > 0.0)


def warn_if_noisy(
    rule: MultiplierRule, first: Sequence[float], again: Sequence[float], stacklevel: int = 2
) -> bool:
    """Warn if a rule for exact constraint values is given noisy ones.

    Values are noisy if the same point was observed with two different values. Noise that never
    shows at a repeated point is not detected.

    Args:
        rule: The rule in use.
        first: ``num_constraints`` observed values at a point.
        again: Later ones at the same point.
        stacklevel: The caller whose line the warning names; see :func:`warnings.warn`.

    Returns:
        Whether it warned.

    Warns:
        NoisyConstraintsWarning: Naming the constraint and the rule for noisy values.
    """
    noisy = [
        j
        for j, (a, b) in enumerate(zip(first, again, strict=True))
        if abs(a - b) > 1e-12 * max(1.0, abs(a), abs(b))  # rounding of an exact value is no noise
    ]
    if not (rule.expects_exact_constraints and noisy):
        return False
    warnings.warn(
        f"constraint {noisy[0] + 1} was observed with different values at one point, but "
        f"{type(rule).__name__} is for exact values: psi amplifies noise. Use AdditiveEpochs.",
        NoisyConstraintsWarning,
        stacklevel=stacklevel,
    )
    return True
