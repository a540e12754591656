"""BoTorch loops of one's own: late outcomes are censored, and a detector drops old rows."""

from __future__ import annotations

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    BanditGP,
    Box,
    CensoredUpperConfidenceBound,
    EvidenceDetector,
)

DELAY, CHANGE = 3, 30
BOUNDS = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
PRIOR = BanditGP.with_kernel(RBFKernel(), noise=0.1, lengthscale=0.15)


def reward(x: torch.Tensor, t: int) -> float:
    """Between 0 and 1; the peak moves from .25 to .8 after round ``CHANGE``."""
    peak = 0.25 if t <= CHANGE else 0.8
    return float(torch.exp(-(((x[0] - peak) / 0.15) ** 2)))


def fitted(X: torch.Tensor, Y: torch.Tensor) -> SingleTaskGP:
    """An ordinary BoTorch model with the hyperparameters of the prior."""
    likelihood = PRIOR(X, Y).likelihood
    model = SingleTaskGP(X, Y, likelihood=likelihood, covar_module=PRIOR.kernel)
    return model.eval()


pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.models.censoring.RingingWarning")


@pytest.mark.parametrize("model_of", [PRIOR, fitted], ids=["BanditGP", "SingleTaskGP"])
def test_a_loop_with_late_outcomes_and_a_change(model_of):
    torch.manual_seed(0)
    stream = EvidenceDetector(robust=False).on(Box(BOUNDS), PRIOR).stream()
    points, rows, resets = {}, {}, []  # rows: point and outcome of each query that counts
    for t in range(1, 51):
        x = torch.rand(1, 1, dtype=torch.float64)
        if len(rows) >= 2:
            X, Y = (torch.stack(column) for column in zip(*rows.values(), strict=True))
            pending = torch.stack([points[q] for q in points if q not in rows])
            acqf = CensoredUpperConfidenceBound(
                model_of(X, Y), minimum=0.0, width=2.0, X_pending=pending
            )
            x, _ = optimize_acqf(acqf, BOUNDS, q=1, num_restarts=2, raw_samples=32)
        points[stream.issue(x[0])] = x[0]
        late = t - DELAY  # whose outcome comes now
        if late in points:
            y = reward(points[late], late)
            test = stream.tell(late, y)
            rows[late] = points[late], torch.tensor([y], dtype=torch.float64)
            if test.detected:
                stream.reset(test.change)
                points = {q: x for q, x in points.items() if q >= test.change}
                rows = {q: row for q, row in rows.items() if q >= test.change}
                resets.append((t, test.change))
    assert len(resets) == 1
    assert CHANGE < resets[0][1] <= resets[0][0] <= CHANGE + DELAY + 6
    assert min(rows) == resets[0][1]
    # it finds the new peak, with the rows since the change only
    assert abs(float(x[0, 0]) - 0.8) < 0.1
