"""Replicates are the same for every number of workers."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    ChangePointDetector,
    ChangePointRestart,
    GPUpperConfidenceBound,
    Policy,
    simulate,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.problems import BraninReward, ConstrainedArmsProblem, switching_gp_draws

CHOICES = torch.linspace(0, 1, 15, dtype=torch.float64).unsqueeze(-1)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.05, lengthscale=0.25)
UCB = GPUpperConfidenceBound.with_options(width=2.0)
RESTART = ChangePointRestart(
    detector=ChangePointDetector(
        RBFKernel(), lengthscale=0.25, threshold=PowerThreshold(scale=0.02, exponent=-0.5)
    )
)
SWITCHING = switching_gp_draws(RBFKernel(), Arms(CHOICES), [9], seed=0, noise_std=0.1)
CONSTRAINED = ConstrainedArmsProblem(
    CHOICES, CHOICES[:, 0].sin(), 0.6 - CHOICES, noise_std=0.1, constraint_noise_std=0.1
)
CASES: dict[str, tuple[Any, Policy]] = {
    "arms": (SWITCHING, Policy(MODEL, UCB, num_initial=2)),
    "restarts": (SWITCHING, Policy(MODEL, UCB, num_initial=2, restart=RESTART)),
    "box": (BraninReward(0.1), Policy(MODEL, UCB, num_initial=2)),
    "constraints": (CONSTRAINED, Policy(MODEL, UCB, constraints=AdditiveEpochs(1, 5))),
    "both": (CONSTRAINED, Policy(MODEL, UCB, constraints=AdditiveEpochs(1, 5), restart=RESTART)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_workers_play_what_one_process_plays(name: str) -> None:
    problem, policy = CASES[name]
    num_rounds = 4 if name == "box" else 25
    one, two = (
        simulate(problem, policy, num_rounds, 3, seed=1, num_workers=n, progress=False)
        for n in (1, 2)
    )
    for field, expected in vars(one).items():
        found = getattr(two, field)
        if isinstance(expected, torch.Tensor):
            close = 1e-6 if name == "box" else 1e-12
            torch.testing.assert_close(found, expected, rtol=0.0, atol=close)
        else:
            assert found == expected or field == "resets"
    if policy.restart is not None:
        rounds = [[[r.after_round for r in own] for own in each.resets] for each in (one, two)]
        assert rounds[0] == rounds[1]
        assert any(rounds[0])


def test_what_workers_need_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, policy = CASES["arms"]
    with pytest.raises(ValueError, match="num_workers is 0"):
        simulate(problem, policy, 3, 2, num_workers=0, progress=False)
    with pytest.raises(ValueError, match="num_workers is 2, but"):
        simulate(problem, policy, 3, 2, num_workers=2, device="meta", progress=False)
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(ImportError, match=r"num_workers is 2.*pip install"):
        simulate(problem, policy, 3, 2, num_workers=2, progress=False)
