"""When does filling pending queries at the minimum make the posterior ring, and what helps?

The experiment uses random functions on the unit square with values between 0 and 4.5. Fifteen
random points are observed, and four queries near the optimum are pending. The theory of censored
feedback (Verma, Dai and Low 2022) has ``lam > 1``, whereas the models used in practice learn a
noise variance close to 0 and must pass through every pseudo-value. The experiment measures the
largest posterior mean before and after the pending queries are filled in, and the rewards of the
next four choices (mean plus two standard deviations).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits.models import (
    RINGING_TOLERANCE,
    BanditGP,
    condition,
    hallucinate,
    posterior_rise,
    probe_points,
)
from botorch_bandits.random_streams import derive_seed, generator, seeded_globally

TOP, LENGTHSCALE = 4.5, 0.25
"""The reward lies between 0 and ``TOP``; it is a draw of a squared exponential process."""

NUM_OBSERVED, NUM_PENDING, NUM_CHOICES = 15, 4, 4
SPREAD = 0.04
"""Standard deviation of the pending points around the optimum."""

WIDTH = 2.0
GRID_SIZE = 61

Build = Callable[[Tensor, Tensor, int], Model]
Fill = Callable[[Model, Tensor], Model]


def _reward(stream: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Draw the process by random Fourier features, scaled to ``[0, TOP]`` on the grid."""
    frequencies = torch.randn(2, 200, dtype=torch.float64, generator=stream) / LENGTHSCALE
    phases = 2.0 * torch.pi * torch.rand(200, dtype=torch.float64, generator=stream)
    weights = torch.randn(200, dtype=torch.float64, generator=stream)

    def draw(X: Tensor) -> Tensor:
        return torch.cos(X @ frequencies + phases) @ weights

    values = draw(_grid())
    low, high = values.min(), values.max()
    return lambda X: TOP * (draw(X) - low) / (high - low)


def _grid() -> Tensor:
    ticks = torch.linspace(0.0, 1.0, GRID_SIZE, dtype=torch.float64)
    return torch.cartesian_prod(ticks, ticks)


def _learned(X: Tensor, Y: Tensor, seed: int, prior_mean: float | None = None) -> Model:
    """Return BoTorch's default model, fitted, with the given prior mean if there is one."""
    model = SingleTaskGP(X, Y)
    if prior_mean is not None:
        transform = model.outcome_transform
        model.mean_module.constant.data.copy_(
            ((prior_mean - transform.means) / transform.stdvs).squeeze()
        )
        model.mean_module.requires_grad_(False)
    with warnings.catch_warnings(), seeded_globally(derive_seed(seed, 0, "fit")):
        warnings.simplefilter("ignore", BotorchWarning)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


def _given(lam: float, prior_mean: float = 0.0) -> Build:
    """Return the correct kernel's model, where ``lam`` is the noise over the prior variance."""
    variance = (TOP / 4.0) ** 2

    def build(X: Tensor, Y: Tensor, seed: int) -> Model:
        kernel = ScaleKernel(RBFKernel()).double()
        kernel.outputscale = torch.tensor(variance, dtype=torch.float64)
        kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
        return BanditGP(X, Y, kernel=kernel, noise=lam * variance, prior_mean=prior_mean)

    return build


def _fill(noise_share: float = 0.0) -> Fill:
    """Fill in 0, with this many prior variances of extra noise on the pseudo-rows."""

    def fill(model: Model, X: Tensor) -> Model:
        pseudo = torch.zeros_like(X[:, :1])
        return condition(model, X, pseudo, extra_noise=noise_share, noise_unit="prior")

    return fill


def _learned_at_the_minimum(X: Tensor, Y: Tensor, seed: int) -> Model:
    return _learned(X, Y, seed, prior_mean=0.0)


def _ignore(model: Model, X: Tensor) -> Model:
    return model


CASES: tuple[tuple[str, str, Build, Fill], ...] = (
    ("learned", "fill", _learned, _fill()),
    ("learned", "fill, extra noise 0.1 s^2", _learned, _fill(0.1)),
    ("learned", "fill, extra noise s^2", _learned, _fill(1.0)),
    ("learned", "fill, prior mean 0", _learned_at_the_minimum, _fill()),
    ("learned", "fill, prior mean 0, extra noise s^2", _learned_at_the_minimum, _fill(1.0)),
    ("learned", "hallucinate", _learned, hallucinate),
    ("learned", "ignore", _learned, _ignore),
    ("given, lam = 1e-4", "fill", _given(1e-4, TOP / 2.0), _fill()),
    ("given, lam = 1e-4", "fill, extra noise s^2", _given(1e-4, TOP / 2.0), _fill(1.0)),
    ("given, lam = 1e-4", "fill, prior mean 0", _given(1e-4), _fill()),
    ("given, lam = 1e-4", "hallucinate", _given(1e-4, TOP / 2.0), hallucinate),
    ("given, lam = 0.1", "fill, prior mean 0", _given(0.1), _fill()),
    ("given, lam = 0.1", "hallucinate", _given(0.1, TOP / 2.0), hallucinate),
    ("given, lam = 1.1", "fill, prior mean 0", _given(1.1), _fill()),
    ("given, lam = 1.1", "hallucinate", _given(1.1), hallucinate),
)
"""The model, the remedy, how the model is built, and how pending queries enter it."""


def ringing(num_trials: int = 40, seed: int = 0) -> list[dict[str, Any]]:
    """Run the experiment.

    Args:
        num_trials: The number of random functions, each of which meets all cases with the same
            data.
        seed: Seeds functions, data and pending queries.

    Returns:
        One row per case: the median of the largest posterior mean without pending queries
        (``top_before``), with them (``top_after``; also the worst), and after four further choices
        (``top_later``); the shares of trials in which it rose by more than the tolerance of
        :class:`~botorch_bandits.models.censoring.RingingWarning` (``rings``), in which the warning
        would have been issued (``warns``) and in which both agree (``agree``); the median rewards
        of the next choice and of the best of four; and the median distance of the next choice to
        the nearest pending query.
    """
    trials: dict[tuple[str, str], list[dict[str, float]]] = {}
    for trial in range(num_trials):
        for name, outcome in _play_trial(seed, trial):
            trials.setdefault(name, []).append(outcome)
    return [
        {"model": model, "pending": remedy, "trials": len(runs), **_summarize(runs)}
        for (model, remedy), runs in trials.items()
    ]


def _play_trial(seed: int, trial: int) -> Iterator[tuple[tuple[str, str], dict[str, float]]]:
    stream = generator(seed, trial, "ringing")
    reward = _reward(stream)
    grid = _grid()
    X = torch.rand(NUM_OBSERVED, 2, dtype=torch.float64, generator=stream)
    best = grid[reward(grid).argmax()]
    noise = torch.randn(NUM_PENDING, 2, dtype=torch.float64, generator=stream)
    pending = (best + SPREAD * noise).clamp(0.0, 1.0)
    models: dict[Build, tuple[Model, float]] = {}
    for name, remedy, build, fill in CASES:
        if build not in models:
            model = build(X, reward(X).unsqueeze(-1), seed)
            models[build] = model, _top(model, grid)
        yield (name, remedy), _measure(*models[build], fill, reward, X, pending)


def _measure(
    base: Model,
    top_before: float,
    fill: Fill,
    reward: Callable[[Tensor], Tensor],
    X: Tensor,
    pending: Tensor,
) -> dict[str, float]:
    grid, waiting = _grid(), pending
    outcome = {"top_before": top_before}
    rewards: list[float] = []
    for _ in range(NUM_CHOICES):
        model = fill(base, waiting)
        with torch.no_grad():
            posterior = model.posterior(grid.unsqueeze(-2))
            mean = posterior.mean
            values = mean + WIDTH * posterior.variance.clamp_min(0.0).sqrt()
        chosen = grid[values.reshape(-1).argmax()]
        if not rewards:
            outcome["top_after"] = float(mean.max())
            rise = posterior_rise(base, model, probe_points(pending, X), 0.0)
            outcome["probed"] = rise.share
            outcome["distance"] = float((chosen - pending).norm(dim=-1).min())
        rewards.append(float(reward(chosen.unsqueeze(0))))
        waiting = torch.cat([waiting, chosen.unsqueeze(0)])
    outcome["top_later"] = _top(fill(base, waiting), grid)
    outcome |= {"next_reward": rewards[0], "best_reward": max(rewards)}
    return outcome


def _top(model: Model, grid: Tensor) -> float:
    with torch.no_grad():
        return float(model.posterior(grid.unsqueeze(-2)).mean.max())


def _summarize(runs: list[dict[str, float]]) -> dict[str, float]:
    rings = [r["top_after"] - r["top_before"] > RINGING_TOLERANCE * r["top_before"] for r in runs]
    warns = [r["probed"] > RINGING_TOLERANCE for r in runs]
    agree = sum(a == b for a, b in zip(rings, warns, strict=True))
    return {
        "top_before": median(r["top_before"] for r in runs),
        "top_after": median(r["top_after"] for r in runs),
        "worst_top_after": max(r["top_after"] for r in runs),
        "top_later": median(r["top_later"] for r in runs),
        "rings": sum(rings) / len(runs),
        "warns": sum(warns) / len(runs),
        "agree": agree / len(runs),
        "next_reward": median(r["next_reward"] for r in runs),
        "best_reward": median(r["best_reward"] for r in runs),
        "distance": median(r["distance"] for r in runs),
    }
