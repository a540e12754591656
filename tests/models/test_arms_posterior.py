"""The running posterior on arms equals dense algebra at every step."""

from __future__ import annotations

import pytest
import torch

from botorch_bandits.models.arms_posterior import ArmsPosterior

POINTS = torch.linspace(0, 1, 15, dtype=torch.float64).unsqueeze(-1)
KERNEL = torch.exp(-(torch.cdist(POINTS, POINTS) ** 2) / (2 * 0.2**2))


@pytest.mark.parametrize("lam", [1e-4, 0.1, 1.5])
def test_running_posterior_equals_dense_algebra(lam: float) -> None:
    generator = torch.Generator().manual_seed(0)
    posterior = ArmsPosterior(KERNEL, lam, batch_shape=(3,))
    arms = torch.randint(15, (3, 40), generator=generator)
    outcomes = torch.randn(3, 40, dtype=torch.float64, generator=generator)
    for t in range(40):
        posterior.observe(arms[:, t], outcomes[:, t])
        if t % 13 not in (0, 12):
            continue
        for b in range(3):
            played = arms[b, : t + 1]
            K, k = KERNEL[played][:, played], KERNEL[:, played]
            regularised = K + lam * torch.eye(t + 1, dtype=torch.float64)
            mean = k @ torch.linalg.solve(regularised, outcomes[b, : t + 1])
            covariance = KERNEL - k @ torch.linalg.solve(regularised, k.T)
            gain = 0.5 * torch.logdet(torch.eye(t + 1, dtype=torch.float64) + K / lam)
            assert torch.allclose(posterior.mean[b], mean, atol=1e-8, rtol=0)
            assert torch.allclose(posterior.covariance[b], covariance, atol=1e-8, rtol=0)
            assert float(posterior.information_gain[b]) == pytest.approx(float(gain), abs=1e-8)


def test_single_stream_equals_a_batch_of_one() -> None:
    single, batch = ArmsPosterior(KERNEL, 0.1), ArmsPosterior(KERNEL, 0.1, (1,))
    for arm, outcome in ((3, 1.0), (3, 0.5), (9, -1.0)):
        value = torch.tensor(outcome, dtype=torch.float64)
        single.observe(torch.tensor(arm), value)
        batch.observe(torch.tensor([arm]), value.unsqueeze(0))
    assert torch.allclose(single.mean, batch.mean[0], atol=1e-12, rtol=0)
    assert torch.allclose(single.covariance, batch.covariance[0], atol=1e-12, rtol=0)


def test_draws_have_the_posterior_moments() -> None:
    posterior = ArmsPosterior(KERNEL, 0.1)
    posterior.observe(torch.tensor(4), torch.tensor(2.0, dtype=torch.float64))
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(20_000, 15, dtype=torch.float64, generator=generator)
    draws = torch.stack([posterior.sample(z) for z in normal[:1]])
    # the root does not depend on the draw: take all at once through linearity
    root = torch.stack([posterior.sample(e) - posterior.mean for e in torch.eye(15).double()])
    assert torch.allclose(draws[0], posterior.mean + normal[0] @ root, atol=1e-9, rtol=0)
    assert torch.allclose(root.T @ root, posterior.covariance, atol=1e-9, rtol=0)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 15\)"):
        ArmsPosterior(KERNEL[:3], 0.1)
    with pytest.raises(TypeError, match="float64"):
        ArmsPosterior(KERNEL.float(), 0.1)
    with pytest.raises(ValueError, match=r"lam is -1"):
        ArmsPosterior(KERNEL, -1.0)
