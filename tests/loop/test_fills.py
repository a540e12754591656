"""Censored feedback with other fills than the minimum; each round is in ``test_rounds``."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredUpperConfidenceBound,
    GPUpperConfidenceBound,
)
from botorch_bandits.acquisition import BelowMinimumWarning
from botorch_bandits.cli import main
from tests.models.textbook import double, posterior, squared_exponential

from .rounds import ARRIVING, LENGTHS, MINIMUM, NOISE, SPAN, Setting


def arriving(mean: float, delay: float) -> float:
    """A cumulative distribution function."""
    return 1.0 - math.exp(-delay / mean)


def test_a_storage_has_a_function_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting, path = Setting(feedback="soft"), tmp_path / "run.db"
    feedback = Censored(MINIMUM, SPAN, 6, fill="soft", delay_distribution=partial(arriving, 3.0))
    for start in (0, 4):
        with setting.loop(feedback=feedback, storage=path) as loop:
            assert loop.history.num_queries == start
            for _ in range(4):
                setting.tell(loop)
                setting.ask(loop)
    assert main(["show", str(path)]) == 0
    assert "fill=soft" in capsys.readouterr().out
    with pytest.raises(ValueError, match="fill"):
        Setting(feedback="middle").loop(storage=path)


def fixed_model(X: Tensor, Y: Tensor) -> SingleTaskGP:
    return SingleTaskGP(X, Y, torch.full_like(Y, 0.1), outcome_transform=None).eval()


@pytest.mark.parametrize("fill", ["middle", "soft", "lower_bound"])
@pytest.mark.filterwarnings("ignore")
def test_a_users_model_is_that_of_the_drop_in(fill: str) -> None:
    distribution = ARRIVING if fill == "soft" else None
    options: dict[str, Any] = {
        "fill": fill,
        "delay_distribution": distribution,
        "max_delay": 3,
    }
    loop = BanditLoop(
        Box([[0.0], [1.0]], num_restarts=2, raw_samples=16),
        fixed_model,
        GPUpperConfidenceBound.with_options(width=1.0),
        feedback=Censored(MINIMUM, SPAN, **options),
        num_initial=6,
        seed=2,
    )
    queries = []
    for _ in range(6):
        queries.append(query := loop.ask())
        if query.id in (1, 3):
            loop.tell(query.id, math.sin(7.0 * float(query.x)))
    X = torch.stack([query.x for query in queries])
    told = X[[1, 3]]
    acqf = CensoredUpperConfidenceBound(
        fixed_model(told, (7.0 * told).sin()),
        minimum=MINIMUM,
        outcome_bound=SPAN,
        width=1.0,
        X_pending=X[[0, 2, 4, 5]],
        **options,
    )
    assert acqf.filled_values is not None
    found = loop.current_model().train_targets[2:]
    assert found.tolist() == pytest.approx(acqf.filled_values.squeeze(-1).tolist(), abs=1e-10)
    assert found[:2].tolist() == [MINIMUM] * 2  # three rounds old and more: given up
    assert max(found.tolist()) > MINIMUM + 0.1
    query = loop.ask()
    value = float(acqf(query.x.unsqueeze(0)).detach())
    assert query.diagnostics["width"] == pytest.approx(float(acqf.width), abs=1e-8)
    assert query.diagnostics["acquisition_value"] == pytest.approx(value, abs=1e-8)


@pytest.mark.filterwarnings("ignore")
def test_hyperparameters_are_learned_from_what_arrived() -> None:
    """A recipe that learns does so from outcomes, not from what stands in for them."""
    learned = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=0.3, refit_every=4)
    setting = Setting("box", feedback="soft")
    loop = setting.loop(model=learned)
    for _ in range(16):
        setting.tell(loop)
        setting.ask(loop)
    view = loop.feedback_view()
    told = [o.query_id for o in loop.history.outcomes if view.rewards[o.query_id] is not None]
    X = torch.stack([loop.history.query(i).x for i in told])
    Y = double([view.rewards[i] for i in told]).unsqueeze(-1)
    alone = loop.settings.model.builder(1)(X, Y)  # type: ignore[union-attr]
    model = loop.current_model()
    assert model.likelihood.noise.item() == alone.likelihood.noise.item()
    assert model.covar_module.lengthscale.item() == alone.covar_module.lengthscale.item()


def test_arms_with_contexts_have_a_model_between_rounds() -> None:
    """What fills in pending queries is asked for in their contexts, and not in that of a round."""
    loop = BanditLoop(
        Arms(torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)),
        BanditGP.with_kernel(RBFKernel(), noise=NOISE, prior_mean=MINIMUM),
        GPUpperConfidenceBound.with_options(width=2.0),
        feedback=Censored(MINIMUM, SPAN, 6, fill="soft", delay_distribution=ARRIVING),
        context_dim=1,
    )
    loop.tell(loop.ask([0.2]).id, MINIMUM + 0.5 * SPAN)
    loop.ask([0.4])
    assert loop.current_model().train_targets.tolist()[1] > MINIMUM


def test_seconds_count_ages_by_the_times_of_events() -> None:
    feedback = Censored(
        MINIMUM,
        SPAN,
        10.0,
        unit="seconds",
        fill="soft",
        delay_distribution=partial(arriving, 4.0),
    )
    loop = Setting("box").loop(feedback=feedback)
    first, second = loop.ask(at=0.0), loop.ask(at=0.0)
    loop.tell(first.id, 1.5, at=2.5)
    kernel = squared_exponential(LENGTHS[0])
    residual = double([1.5 - MINIMUM])
    height, _ = posterior(kernel, first.x[None], residual, NOISE, second.x[None])
    come = [arriving(4.0, t) for t in (2.5, 10.0)]
    fill = MINIMUM + (come[1] - come[0]) / (1.0 - come[0]) * float(height)
    assert loop.current_model().train_targets.tolist() == pytest.approx([1.5, fill], abs=1e-9)
    loop.ask(at=11.0)  # the second one is given up
    assert loop.current_model().train_targets.tolist()[:2] == [1.5, MINIMUM]


def test_outcomes_below_the_minimum_are_a_gap() -> None:
    feedback = Censored(MINIMUM, SPAN, 6, fill="soft", tolerance=1.0)
    loop = Setting().loop(
        feedback=feedback,
        model=BanditGP.with_kernel(RBFKernel(), noise=NOISE, prior_mean=MINIMUM),
    )
    first = loop.ask()
    assert loop.guarantee().holds
    with pytest.warns(BelowMinimumWarning, match="below minimum"):
        loop.tell(first.id, MINIMUM - 0.2)
    gaps = loop.guarantee().gaps
    assert any("1 outcomes lie below the minimum, but fill='soft' needs" in gap for gap in gaps)
    published = Censored(MINIMUM, SPAN, 6, fill="soft", **Censored.as_published)
    loop = Setting(method="ucb").loop(feedback=published)
    loop.ask()
    gaps = loop.guarantee().gaps
    assert any("published code has no fill='soft'" in gap for gap in gaps)


def test_a_function_that_fails_is_named_before_anything_is_recorded() -> None:
    values = {1.0: 0.2, 2.0: 0.4}

    def strange(delay: float) -> float:
        return 1.7 if delay == 3.0 else values.get(delay, min(delay, 1.0))

    feedback = Censored(MINIMUM, SPAN, 9, fill="soft", delay_distribution=strange)
    loop = Setting().loop(feedback=feedback)
    for _ in range(3):
        loop.ask()
    with pytest.raises(ValueError, match=r"delay_distribution gives 1\.7 at"):
        loop.ask()
    assert loop.history.num_queries == 3
