"""What guarantees say about a model's prior: what they assume, and what voids them.

A theorem needs a kernel, noise and units that were fixed before the data, and a bound on the norm
of the reward minus the prior mean. :class:`~.width_rules.PriorSummary` reads those of these facts
that a model shows.
"""

from __future__ import annotations

from dataclasses import replace

from botorch_bandits.confidence.facts import Facts
from botorch_bandits.confidence.hypotheses import BOUNDED_CENTERED_NORM, BOUNDED_NORM
from botorch_bandits.confidence.prior_reading import UnreadablePriorError
from botorch_bandits.confidence.width_rules import Bound, PriorSummary


def prior_gaps(summary: PriorSummary) -> list[str]:
    """Return the reasons why the prior voids a theorem: it is unreadable, or was learned."""
    try:
        priors = summary.active_priors
    except UnreadablePriorError as error:
        return [f"the prior cannot be read ({error})"]
    learned = sorted({what for prior in priors for what in prior.learned})
    if learned:
        return [
            f"learned from the same data, or free to be learned: {', '.join(learned)}; a theorem "
            "needs them fixed in advance (BanditGP.with_kernel(...) does that)"
        ]
    if "fixed prior" not in summary.assume and not all(prior.is_given for prior in priors):
        return [
            "the model's parameters are frozen, but they may have been fitted to the same data "
            'before; if they were fixed before the data, say so with assume="fixed prior"'
        ]
    return []


def norm_assumption(
    summary: PriorSummary, facts: Facts
) -> tuple[str, tuple[str, ...], dict[str, float]]:
    """Return the assumption that a bound on the norm makes, its gaps, and its constants.

    The theorems bound the norm of the reward less the prior mean. If that mean is not 0, a bound
    for the reward itself does not imply one, so the user must say which one was given.

    Args:
        summary: The prior summary of the model.
        facts: What is known of its use.
    """
    is_of_outputs = summary.posterior_transform is not None or summary.num_outputs > 1
    if is_of_outputs and not facts.function:
        facts = replace(facts, function="each output of the model")
    bounded, centered = facts.say(BOUNDED_NORM), facts.say(BOUNDED_CENTERED_NORM)
    priors = summary.readable.values()
    means = [
        None if prior.prior_mean is None else facts.as_told(prior.prior_mean) for prior in priors
    ]
    if any(prior.learned for prior in priors) or all(mean == 0.0 for mean in means):
        return bounded, (), {}  # a learned prior voids theorems anyway
    told = {
        "prior_mean" if len(means) == 1 else f"prior_mean_{j}": mean
        for j, mean in enumerate(means)
        if mean is not None
    }
    if "centered bound" in summary.assume:
        return centered, (), told
    value = "not 0" if None in means else ", ".join(f"{mean:g}" for mean in means)
    return (
        centered,
        (
            f"the prior mean is {value}, and the theorem needs a bound on the norm of the function "
            "less the prior mean; if rkhs_bound= bounds that, state it with "
            'assume="centered bound"',
        ),
        told,
    )


def kernel_assumptions(summary: PriorSummary, is_at_most_one: bool = False) -> tuple[str, ...]:
    """Return what a kernel of unit variance means if the kernel is not stationary.

    Args:
        summary: The prior summary of the model.
        is_at_most_one: Whether the theorem needs ``k(x, x) <= 1``.
    """
    priors = summary.readable.values()
    if any(prior.has_tasks for prior in priors):
        return (
            "the bound on the norm is for the functions of all tasks together, in the model's "
            "kernel of inputs and tasks, divided by the prior variance of the output task",
        )
    if all(prior.is_stationary for prior in priors):
        return ()
    needed = (
        "the kernel divided by its output scale has k(x, x) <= 1 at all points of the domain",
    )
    return (
        "the kernel is not stationary; its unit-variance form is the kernel divided by its output "
        "scale (1 without one)",
        *(needed if is_at_most_one else ()),
    )


def largest_regret(
    summary: PriorSummary,
    rkhs_bound: Bound,
    in_prior_units: bool,
    not_given: tuple[str, ...] = (),
) -> float | None:
    """Return ``2 B``, the largest difference of two values of the reward; None if it is unknown.

    A function of norm ``B`` is at most ``B sqrt(k(x, x))``, and ``k(x, x) = 1`` for stationary
    kernels. A constant prior mean does not change differences.

    Args:
        summary: The prior summary of the model.
        rkhs_bound: ``B``.
        in_prior_units: Whether it is a multiple of the prior standard deviation.
        not_given: The names of bounds that are defaults: a default for ``B`` bounds nothing.
    """
    if "rkhs_bound" in not_given:
        return None
    if summary.posterior_transform is not None or not isinstance(rkhs_bound, float):
        return None
    priors = list(summary.readable.values())
    if len(priors) != 1 or not priors[0].is_stationary or priors[0].prior_mean is None:
        return None
    unit = float(priors[0].standard_deviation.max()) if in_prior_units else 1.0
    return 2.0 * rkhs_bound * unit
