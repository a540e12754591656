"""Loops whose tests are those of a detector alone, and what they play."""

from __future__ import annotations

import pytest
from gpytorch.kernels import MaternKernel
from models.textbook import line

from botorch_bandits import Arms, BanditGP, GPUpperConfidenceBound

GRID = Arms(line(0.0, 5.0, 40))
PRIOR = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.0025, lengthscale=1.0)
UCB = GPUpperConfidenceBound.with_options(width=2.0)


def assert_tests_as(stream, loop, keep="since_change", num_skipped=0):
    """A loop's tests are those of a stream that is told the same rewards.

    Args:
        stream: Of a detector, before the first outcome.
        loop: After its run.
        keep: Of the restart.
        num_skipped: How many of the first outcomes chose the list of priors, and are not tested.
    """
    found = []
    for n, (query, outcome) in enumerate(
        zip(loop.history.queries, loop.history.outcomes, strict=True)
    ):
        weight = outcome.weight(stream.noise)
        test = stream.tell(stream.issue(query.x), outcome.reward, weight=weight)
        if n < num_skipped:
            assert test is None
            continue
        found.append(test)
        if test.detected:
            stream.reset(test.change if keep == "since_change" else None)
    for one, other in zip(found, loop.change_tests, strict=True):
        assert other.statistic == pytest.approx(one.statistic, abs=1e-10)
        assert (other.threshold, other.change_round) == (one.threshold, one.change)
