"""BoTorch's tutorials with one objective run with one line changed."""

from __future__ import annotations

import warnings

import pytest
import torch

from botorch_bandits import GPThompsonSampling

from .cases import uniform
from .tutorials import DRAWS, EQUAL, INSIDE, OUTSIDE, RUNS, SAMPLED, Loop, Tutorial


def check_candidates(loop: Loop, candidates: torch.Tensor, values: torch.Tensor) -> None:
    assert candidates.shape == (loop.q, loop.bounds.shape[-1])
    assert candidates.dtype == torch.float64
    assert (loop.bounds[0] <= candidates).all()
    assert (candidates <= loop.bounds[1]).all()
    assert values.isfinite().all()
    if loop.choices is not None:
        assert all((row == loop.choices).all(-1).any() for row in candidates)
        assert len(candidates.unique(dim=0)) == loop.q


def check_law(loop: Loop) -> None:
    """Draws with many seeds have the mean and the covariance of BoTorch's posterior."""
    assert loop.choices is not None
    model, few = loop.theirs.model, loop.choices[:2]
    posterior = model.posterior(few)
    mean = posterior.mean.squeeze(-1).detach()
    covariance = posterior.distribution.covariance_matrix.detach()
    drawn = torch.stack(
        [
            GPThompsonSampling(model, choices=few, seed=seed)(few.unsqueeze(-2)).detach()
            for seed in range(150)
        ]
    )
    deviations = covariance.diagonal().sqrt()
    assert ((drawn.mean(0) - mean).abs() < 4.0 / 150**0.5 * deviations + 1e-9).all()
    found = (drawn - mean).T @ (drawn - mean) / 150
    assert ((found - covariance).abs() < 0.5 * deviations.outer(deviations) + 1e-9).all()


def outcome_of(tutorial: Tutorial) -> str:
    """Run a step of a tutorial as it is and with the changed line; return what came out."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        loop = tutorial.build()
        candidates = []
        for acqf, optimize in (
            (loop.theirs, loop.optimize_theirs or loop.optimize),
            (loop.ours, loop.optimize),
        ):
            torch.manual_seed(1)
            found, values = optimize(acqf)
            check_candidates(loop, found.detach(), values.detach())
            candidates.append(found.detach())
        assert getattr(loop.ours, "X_pending", None) is None
        if tutorial.result == RUNS:
            return RUNS
        if tutorial.result == DRAWS:
            check_law(loop)
            return DRAWS
        span = loop.bounds[1] - loop.bounds[0]
        points = loop.bounds[0] + span * uniform(64, 1, len(span), seed=9)
        expected = loop.theirs(points).detach()
        if tutorial.result == SAMPLED:  # expected improvement, perhaps its logarithm
            is_log = type(loop.theirs).__name__.startswith("qLog")
            expected = expected.exp() if is_log else expected
            away = (loop.ours(points).detach().exp() - expected).abs().max()
            assert away < 0.03 * expected.max()
            return SAMPLED
        torch.testing.assert_close(loop.ours(points).detach(), expected, rtol=1e-8, atol=1e-8)
        worst = float(expected.max() - expected.min())
        best, ours = (float(loop.theirs(each).detach()) for each in candidates)
        assert ours >= best - 1e-3 * worst
        return EQUAL


@pytest.mark.slow
@pytest.mark.parametrize("tutorial", INSIDE, ids=lambda each: each.build.__name__)
def test_it_runs_with_one_line_changed(tutorial: Tutorial) -> None:
    assert outcome_of(tutorial) == tutorial.result


def test_each_tutorial_of_botorch_is_listed() -> None:
    listed = {each.name for each in INSIDE} | set(OUTSIDE)
    assert len(listed) == 38  # of BoTorch 0.18
    assert {each.name for each in INSIDE} & set(OUTSIDE) == {"composite_bo_with_hogp"}  # in part
