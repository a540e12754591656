"""How ingredients, as users give them by name, become width rules.

The constructors of acquisition functions and the settings of loops have the same options; here they
are read, and only here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from botorch_bandits.checks import (
    check_nonnegative,
    check_one_of,
    check_probability,
    entries_of,
    in_lists,
)
from botorch_bandits.confidence.censored import CensoredWidth
from botorch_bandits.confidence.dmm import RidgeTerms
from botorch_bandits.confidence.gp_ucb import CompactBoxWidth, FiniteArmsWidth
from botorch_bandits.confidence.igp_ucb import (
    DEFAULT_RKHS_BOUND,
    KernelizedWidth,
    RKHSWidth,
)
from botorch_bandits.confidence.width_rules import (
    DEFAULT_WIDTH,
    MODEL_NOISE,
    ConstantWidth,
    WidthRule,
    pick_bound,
)

THEOREMS: dict[tuple[str, ...], Callable[..., WidthRule]] = {
    ("num_arms",): FiniteArmsWidth,
    ("smoothness_a", "smoothness_b", "dim", "side_length"): CompactBoxWidth,
    ("rkhs_bound", "information_gain"): lambda rkhs_bound, information_gain, delta: RKHSWidth(
        rkhs_bound, information_gain, delta
    ),
    ("width",): lambda width, delta: ConstantWidth(width),
    ("beta",): lambda beta, delta: ConstantWidth(
        tuple(math.sqrt(check_nonnegative("beta", each)) for each in entries_of(in_lists(beta)))
    ),
}
"""The ingredients of each width, and the function that makes a rule of them."""


def wanted_by_theorem(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a domain fills in: the number of arms, or the shape of a box, for a theorem.

    Args:
        options: Constructor arguments by name, None for those that were left out.
    """
    given = [name for each in THEOREMS for name in each if options.get(name) is not None]
    if not given:
        return ("num_arms",)
    return ("dim", "side_length") if "smoothness_b" in given else ()


def ingredients(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ingredients of a width among some options; empty if none are given.

    Args:
        name: The acquisition class, for errors.
        options: Constructor arguments by name, None for those that were left out.

    Raises:
        ValueError: If they are not those of exactly one width.
    """
    known = [each for theorem in THEOREMS for each in theorem]
    given = {each: options[each] for each in known if options.get(each) is not None}
    if given and tuple(given) not in THEOREMS:
        theorems = "; ".join(" and ".join(f"{name}=" for name in each) for each in THEOREMS)
        raise ValueError(
            f"{name} takes the ingredients of exactly one width ({theorems}), got "
            f"{', '.join(f'{n}={v}' for n, v in given.items())}. On a box, "
            "ImprovedUpperConfidenceBound has a width with a theorem that needs only rkhs_bound= "
            "and noise_bound=."
        )
    return given


def theorem_rule(name: str, options: Mapping[str, Any]) -> WidthRule:
    """Return the rule of GP-UCB from its ingredients; a constant if there are none.

    Args:
        name: The acquisition class, for errors.
        options: Constructor arguments by name, None for those that were left out.

    Raises:
        ValueError: If the ingredients are not those of exactly one width, or one is infeasible.
    """
    delta, given = check_probability("delta", options["delta"]), ingredients(name, options)
    if not given:
        return ConstantWidth(DEFAULT_WIDTH, is_default=True)
    return THEOREMS[tuple(given)](delta=delta, **given)


def bounds_of(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of :class:`.NormBounds` by name, with defaults for what was not given.

    The default of the norm is in prior standard deviations regardless of ``units``; the default of
    the noise is :data:`.MODEL_NOISE`, or 0 if ``bounded_outcomes`` make it needless. A single bound
    in the units of the outcomes is taken for a mistake, because the default of the other one would
    be in other units.

    Args:
        name: The acquisition class, for errors.
        options: Constructor arguments by name.

    Raises:
        ValueError: If only one bound is given in outcome units.
    """
    units, needs_noise = options["units"], not options.get("bounded_outcomes", False)
    defaults = {
        "rkhs_bound": DEFAULT_RKHS_BOUND,
        "noise_bound": MODEL_NOISE if needs_noise else 0.0,
    }
    bounds = {key: options[key] for key in defaults}
    missing = [key for key, bound in bounds.items() if bound is None]
    if len(missing) == 1 and units != "prior" and needs_noise:
        raise ValueError(
            f"{name} needs rkhs_bound= and noise_bound= (or neither), got "
            f"rkhs_bound={bounds['rkhs_bound']} and noise_bound={bounds['noise_bound']}. Give "
            f"{missing[0]}= in the units of the outcomes too; or leave both out to use "
            f"{DEFAULT_RKHS_BOUND:g} prior standard deviation and the noise of the model."
        )
    return {
        **bounds,
        **{key: defaults[key] for key in missing},
        "delta": check_probability("delta", options["delta"]),
        "units": check_one_of("units", units, ("outcome", "prior")),
        "not_given": tuple(key for key in missing if needs_noise or key == "rkhs_bound"),
    }


def mixture_rule(name: str, options: Mapping[str, Any]) -> WidthRule:
    """Return the rule of AMM; bounds that are not given have defaults.

    Args:
        name: The acquisition class, for errors.
        options: Constructor arguments by name.

    Raises:
        ValueError: If only one bound is given in outcome units, or an ingredient is infeasible.
    """
    return KernelizedWidth(**bounds_of(name, options), is_mixture=True)


def kernelized_rule(name: str, options: Mapping[str, Any]) -> WidthRule:
    """Return the rule of IGP-UCB and GP-TS from the ingredients or an explicit width.

    Bounds that are not given have defaults; see :func:`bounds_of`.

    Args:
        name: The acquisition class, for errors.
        options: Constructor arguments, from which this function takes ``rkhs_bound``,
            ``noise_bound``, ``delta``, ``any_lambda``, ``information_gain``, ``units``,
            ``variation`` (0 if left out) and ``width``; see
            :class:`~botorch_bandits.ImprovedUpperConfidenceBound`. If there is a ``default_width``,
            a constant, it is the width when none of these is given.

    Raises:
        ValueError: If bounds and ``width`` are both given, only one bound is given in outcome
            units, or ``variation`` is given without bounds.
    """
    bounds, gain = (options["rkhs_bound"], options["noise_bound"]), options["information_gain"]
    width, has_none = options["width"], all(each is None for each in (*bounds, gain))
    variation = check_nonnegative("variation", options.get("variation", 0.0))
    if variation and None in bounds:
        raise ValueError(
            f"{name} has variation={variation:g}, which is added only to a width that follows "
            "from bounds. Pass rkhs_bound= and noise_bound=, or leave variation= out."
        )
    if width is not None and not has_none:
        raise ValueError(
            f"{name} takes either width= or rkhs_bound= and noise_bound=, not both; "
            f"got width={width}."
        )
    any_lambda = check_one_of("any_lambda", options["any_lambda"], (True, False))
    complete = bounds_of(name, options)
    if width is not None:
        return ConstantWidth(width)
    has_default = options.get("default_width") is not None
    if has_none and has_default and not options.get("bounded_outcomes", False):
        return ConstantWidth(options["default_width"], is_default=True)
    return KernelizedWidth(
        **complete, any_lambda=any_lambda, explicit_gain=gain, variation=variation
    )


PER_OUTPUT = ("rkhs_bound", "noise_bound", "width")
"""Options that may be tuples with one entry per output."""


def output_rules(name: str, num_outputs: int, options: Mapping[str, Any]) -> tuple[WidthRule, ...]:
    """Return a width rule for each output, with an equal share of ``delta`` each.

    Each output always gets ``delta / num_outputs``, even if its multiplier is 0: the bounds then
    hold for all multipliers, and in all rounds, at once.

    Args:
        name: The name of the acquisition class, for error messages.
        num_outputs: The number of outputs, the reward and the constraints.
        options: Constructor arguments, at least those of :func:`kernelized_rule`.
    """
    delta = check_probability("delta", options["delta"]) / num_outputs
    return tuple(
        kernelized_rule(
            name,
            {
                **options,
                "delta": delta,
                **{key: pick_bound(key, options[key], j, num_outputs) for key in PER_OUTPUT},
            },
        )
        for j in range(num_outputs)
    )


def censored_width_rule(
    name: str, options: Mapping[str, Any], delta: float, default_width: float | None = None
) -> CensoredWidth:
    """Return the width rule that a constructor's options describe.

    Args:
        name: The acquisition class, for errors.
        options: All options, by their names in the constructor; ``width`` is the constant.
        delta: The width's share of delta.
        default_width: The constant to use if neither norm nor noise is known. If it is None, the
            two have defaults instead.
    """
    own = {**options, "delta": delta, "default_width": default_width, "information_gain": None}
    check_one_of("bounded_outcomes", own["bounded_outcomes"], (True, False))
    names = ("outcome_bound", "units", "any_lambda", "bounded_outcomes", "fill")
    return CensoredWidth(kernelized_rule(name, own), **{key: own[key] for key in names})


def ridge_terms(name: str, options: Mapping[str, Any]) -> RidgeTerms:
    """Return what DMM knows of the function and the noise.

    Args:
        name: The acquisition class, for errors.
        options: The options of :class:`~botorch_bandits.DMMUpperConfidenceBound` by name.

    Raises:
        ValueError: If an ingredient is infeasible.
    """
    bounds = bounds_of(name, options)
    doubles = options["double_rkhs_bound"] or "rkhs_bound" in bounds["not_given"]
    return RidgeTerms(**bounds, doubles=doubles)
