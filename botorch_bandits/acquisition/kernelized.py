"""The width options that IGP-UCB and GP-TS share."""

from __future__ import annotations

from typing import Any

from botorch_bandits.checks import check_one_of, check_probability
from botorch_bandits.confidence import ConstantWidth, GainBound, KernelizedWidth, WidthRule
from botorch_bandits.confidence.widths import check_scale

KERNELIZED_OPTIONS = (
    "rkhs_bound",
    "noise_bound",
    "delta",
    "any_lambda",
    "information_gain",
    "units",
    "width",
)


def check_kernelized_options(name: str, options: dict[str, Any]) -> None:
    """Raise what :func:`kernelized_rule` raises for these options, and check the scale."""
    check_scale(options.get("scale", 1.0))
    kernelized_rule_of(name, options)


def kernelized_rule_of(name: str, options: dict[str, Any]) -> WidthRule:
    """Return what :func:`kernelized_rule` makes of those options that concern it."""
    return kernelized_rule(name, **{k: v for k, v in options.items() if k in KERNELIZED_OPTIONS})


def kernelized_rule(
    name: str,
    rkhs_bound: float | tuple[float, ...] | None = None,
    noise_bound: float | tuple[float, ...] | None = None,
    delta: float = 0.1,
    any_lambda: bool = False,
    information_gain: float | GainBound | None = None,
    units: str = "outcome",
    width: float | None = None,
) -> WidthRule:
    """Return the rule of IGP-UCB and GP-TS from the ingredients or an explicit width.

    Args:
        name: The acquisition class, for errors.
        rkhs_bound: See :class:`ImprovedUpperConfidenceBound`.
        noise_bound: See :class:`ImprovedUpperConfidenceBound`.
        delta: See :class:`ImprovedUpperConfidenceBound`.
        any_lambda: See :class:`ImprovedUpperConfidenceBound`.
        information_gain: See :class:`ImprovedUpperConfidenceBound`.
        units: See :class:`ImprovedUpperConfidenceBound`.
        width: See :class:`ImprovedUpperConfidenceBound`.

    Raises:
        ValueError: If neither the two bounds nor ``width`` is given, or both are.
    """
    delta = check_probability("delta", delta)
    check_one_of("any_lambda", any_lambda, (True, False))
    if width is not None:
        if rkhs_bound is not None or noise_bound is not None or information_gain is not None:
            raise ValueError(
                f"{name} takes either width= or rkhs_bound= and noise_bound=, not both; "
                f"got width={width}."
            )
        return ConstantWidth(width)
    if rkhs_bound is None or noise_bound is None:
        raise ValueError(
            f"{name} needs rkhs_bound= and noise_bound= (or a constant width=), got "
            f"rkhs_bound={rkhs_bound} and noise_bound={noise_bound}."
        )
    return KernelizedWidth(rkhs_bound, noise_bound, delta, any_lambda, information_gain, units)
