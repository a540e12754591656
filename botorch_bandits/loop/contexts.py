"""Contexts of a run, one a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor

from botorch_bandits.checks import check_matrix

Contexts: TypeAlias = Tensor | Callable[[int], Tensor]
"""``num_rounds x context_dim``, or a function from the round (from 1) to its context."""


def check_contexts(
    contexts: Any, context_dim: int, num_known: int, num_rounds: int
) -> Contexts | None:
    """Return the contexts of a run if they fit the loop.

    Args:
        contexts: A matrix with one row a round, a function from the round to its context, or None.
        context_dim: The loop's.
        num_known: How many rounds the loop has been asked for.
        num_rounds: How many are to be played.

    Raises:
        TypeError: If they are neither numbers nor a function, or a tensor of another dtype.
        ValueError: If they are missing or not wanted, not finite rows of ``context_dim`` numbers,
            or too few.
    """
    if context_dim == 0:
        if contexts is not None:
            raise ValueError(
                "contexts are given, but the loop has context_dim=0. Build it with context_dim= "
                "set to the number of context features, or leave contexts= out."
            )
        return None
    if num_rounds == 0:
        return None  # queries that were left pending have theirs
    if contexts is None:
        raise ValueError(
            f"contexts is missing: the loop has context_dim={context_dim}. Pass a matrix with one "
            "row a round, or a function from the round to its context."
        )
    if callable(contexts):
        function: Contexts = contexts
        return function
    rows = check_matrix("contexts", contexts, context_dim)
    if num_known + num_rounds > len(rows):
        raise ValueError(
            f"contexts has {len(rows)} rows, but rounds up to {num_known + num_rounds} are to be "
            "played; give one row a round, counted from the loop's first."
        )
    return rows


def context_of(contexts: Contexts | None, round_number: int) -> Tensor | None:
    """Return the context of a round, or None without contexts.

    Args:
        contexts: What :func:`check_contexts` returned.
        round_number: From 1, counted from the loop's first round.
    """
    if contexts is None:
        return None
    return contexts[round_number - 1] if isinstance(contexts, Tensor) else contexts(round_number)
