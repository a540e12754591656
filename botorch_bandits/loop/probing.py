r"""Where a round looks for a change that a policy would not notice: probing.

A policy that has found the optimum plays close to it and hardly anywhere else, so that no outcome
shows a new peak elsewhere. In a copy of the model whose function drifts, the uncertainty grows
again at points that have not been visited for a long time. In some rounds, the maximizer of the
copy's upper bound :math:`\mu_t(x) + 2 \sigma_t(x)` is played, with the time kernel

.. math:: k(x, x') (1 - \epsilon)^{|t - t'| / 2}, \qquad \epsilon = 0.01 .

The copy only chooses inputs. Evidence of a change is counted by the model itself, in probing rounds
as in all others.

Source: the kernel is from Bogunovic, Scarlett and Cevher, *Time-varying Gaussian process bandit
optimization*, AISTATS 2016; how often a round probes is Avanesov's rule of exploration (arXiv
1908.07636, Algorithm 2). The combination of the two is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from botorch_bandits.acquisition import GPUpperConfidenceBound
from botorch_bandits.checks import DTYPE
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Feedback, Ignored
from botorch_bandits.forgetting import TimeVaryingKernel
from botorch_bandits.history import History, Query
from botorch_bandits.models.bandit_gp import BanditGPRecipe
from botorch_bandits.models.forgetting import ForgettingModels

PROBING_RATE = 0.01
"""The drift rate of the copy: the covariance over time halves in 138 rounds."""

PROBING_WIDTH = 2.0
"""The number of the copy's standard deviations by which the bound exceeds its mean."""


def probing_point(
    prior: BanditGPRecipe,
    domain: Domain,
    observed: tuple[Tensor, Tensor, Tensor],
    round_number: int,
    context: Tensor | None = None,
    pending: tuple[Tensor, Tensor] | None = None,
    seed: int = 0,
) -> Tensor:
    """Return the point that a round probes, ``d``.

    Args:
        prior: The prior of the model whose copy drifts, with fixed hyperparameters.
        domain: The domain from which points are chosen.
        observed: ``n x (c + d)`` inputs, contexts first, ``n x 1`` outcomes and the ``n`` rounds in
            which they were asked.
        round_number: The number of the round that is chosen, counted like those rounds.
        context: ``c``, the context of the round, if there are contexts.
        pending: ``p x (c + d)`` inputs and ``p`` rounds of queries without an outcome.
        seed: The seed of the maximization on a box.
    """
    copies = ForgettingModels(prior, TimeVaryingKernel(PROBING_RATE))
    model = copies.build(*observed, round_number)
    fixed = [torch.tensor([float(round_number)], dtype=DTYPE)]
    fixed += [] if context is None else [context]
    there = domain.in_context(torch.cat(fixed))
    bound = GPUpperConfidenceBound.with_options(width=PROBING_WIDTH).build(
        model,
        there,
        round_number=round_number,
        X_pending=None if pending is None else copies.inputs(*pending),
    )
    whole, _ = there.maximize(bound, seed=seed)
    return whole[-domain.dim :]


def probe(
    prior: BanditGPRecipe,
    domain: Domain,
    history: History,
    feedback: Feedback,
    context: Tensor | None,
    seed: int,
) -> Tensor:
    """Return the point that the next round of a history probes, ``d``.

    Args:
        prior: See :func:`probing_point`.
        domain: See :func:`probing_point`.
        history: The history of the segment.
        feedback: How queries without an outcome are treated: they are avoided or ignored.
        context: The context of the round, if there are contexts.
        seed: See :func:`probing_point`.
    """
    X, Y = history.arrived()
    rounds = _rounds([history.query(outcome.query_id) for outcome in history.outcomes])
    pending = None
    if not isinstance(feedback, Ignored) and (avoided := history.queries_to_avoid()):
        pending = history.inputs_to_avoid(), _rounds(avoided)
    observed, next_round = (X, Y, rounds), history.num_queries + 1
    return probing_point(prior, domain, observed, next_round, context, pending, seed)


def _rounds(queries: Sequence[Query]) -> Tensor:
    return torch.tensor([query.round_number for query in queries], dtype=torch.long)
