"""Pictures, pages, tables and commands of a loop that minimizes have costs as they were told."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

import botorch_bandits as bb
from botorch_bandits.plotting import plot_posterior, plot_rewards, plot_run
from botorch_bandits.random_baseline import RandomBaseline
from botorch_bandits.watching import LivePage

MODEL = bb.BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3)
UCB = bb.GPUpperConfidenceBound.with_options(width=2.0)
LINE = bb.Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
PLANE = bb.Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=2, raw_samples=16)
GRID = bb.Arms(torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 4, dtype=torch.float64)] * 2))


def cost(x: torch.Tensor) -> float:
    return 5.0 + float((x - 0.3).square().sum())


def pair(domain: bb.Domain, num_rounds: int = 9, **settings: object) -> tuple[bb.BanditLoop, ...]:
    """Return a loop that was told costs, and one that was told minus these."""
    loops = []
    for maximize, sign in ((False, 1.0), (True, -1.0)):
        loop = bb.BanditLoop(
            domain, MODEL, UCB, num_initial=3, seed=2, maximize=maximize, **settings
        )
        bb.run(loop, lambda x, sign=sign: sign * cost(x), num_rounds, progress=False)
        loops.append(loop)
    return tuple(loops)


@pytest.mark.parametrize("domain", [LINE, PLANE, GRID], ids=["line", "plane", "arms"])
def test_panels_are_mirrored(domain: bb.Domain) -> None:
    low, high = pair(domain)
    panels = [
        plot_run(loop, random_search=[s * y for y in (5.1, 5.6, 6.0)])
        for loop, s in ((low, 1.0), (high, -1.0))
    ]
    assert panels[0][0].get_ylabel() == "cost"
    for one, other in zip(*panels, strict=True):
        lines = [
            {str(line.get_label()).partition(":")[0]: line for line in ax.get_lines()}
            for ax in (one, other)
        ]
        for name in lines[0]:
            if name in ("below this axis", "above this axis", "values that were tried"):
                continue
            values = [
                np.asarray(each[name].get_ydata(), dtype=float) for each in lines if name in each
            ]
            if one is panels[0][0] or (isinstance(domain, bb.Box) and domain.dim == 1):
                np.testing.assert_allclose(values[0], -values[1], atol=1e-12)
    if domain is GRID:  # the best arms, the best first
        found = [ax.get_yticklabels()[-1].get_text() for ax in (panels[0][-1], panels[1][-1])]
        assert found[0] == found[1]
        assert panels[0][-1].get_xlabel() == "cost"
    star = [line for line in panels[0][0].get_lines() if "best so far" in str(line.get_label())]
    assert float(star[0].get_ydata()[-1]) == low.best()[1].reward
    plt.close("all")


def test_the_axis_is_cut_off_above() -> None:
    history = bb.History(1, maximize=False)
    for t, y in enumerate((900.0, 3.0, 2.5, 2.2, 2.1, 500.0, 2.0, 1.9)):
        query = history.add_query(torch.tensor([0.1 * t], dtype=torch.float64), "random", 0.0)
        history.add_outcome(query.id, y, 0.0)
    ax = plot_rewards(history, zoom=True)
    bottom, top = ax.get_ylim()
    assert bottom < 1.9
    assert 2.1 < top < 100.0
    above = next(line for line in ax.get_lines() if line.get_label() == "above this axis")
    assert [int(t) for t in above.get_xdata()] == [1, 2, 6]
    with pytest.raises(ValueError, match=r"random_search has maximize=True"):
        plot_rewards(history, random_search=RandomBaseline([1.0, 2.0]))
    plt.close("all")


@pytest.mark.parametrize("domain", [LINE, PLANE], ids=["line", "plane"])
def test_the_posterior_is_that_of_the_cost(domain: bb.Box) -> None:
    low, high = pair(domain)
    axes = []
    for loop in (low, high):
        axes.append(plot_posterior(loop.current_model(), domain, history=loop.history))
    if domain is LINE:
        curves = [
            next(line for line in ax.get_lines() if line.get_label() == "posterior mean")
            for ax in axes
        ]
        np.testing.assert_array_equal(curves[0].get_ydata(), -curves[1].get_ydata())
        assert axes[0].get_ylabel() == "cost"
        X = torch.tensor(curves[0].get_xdata(), dtype=torch.float64).unsqueeze(-1)
        told = -high.current_model().posterior(X).mean.detach().squeeze(-1)
        np.testing.assert_allclose(curves[0].get_ydata(), told.numpy(), atol=1e-10)
    else:
        assert axes[0][0].get_title() == "posterior mean (units of the cost)"
    plt.close("all")


def test_random_search_for_the_least_cost() -> None:
    low, high = (
        RandomBaseline([1.0, 2.0, 3.0, 4.0], maximize=False),
        RandomBaseline([-1.0, -2.0, -3.0, -4.0]),
    )
    for n in (1, 2, 4):
        assert low.expected_best(n) == pytest.approx(-high.expected_best(n))
        for level in (0.1, 0.5, 0.9):
            assert low.quantile(n, level) == -high.quantile(n, level)
        assert low.chance(n, 2.0) == high.chance(n, -2.0)
    # of two of four points: the least of all six pairs, by hand
    assert low.expected_best(2) == pytest.approx((1.0 * 3 + 2.0 * 2 + 3.0) / 6.0)
    assert low.rounds_to(2.0) == 2.0
    assert low.rounds_to(0.5) is None
    assert repr(low) == "RandomBaseline(4 costs, the least 1)"


@pytest.mark.parametrize("domain", [LINE, PLANE, GRID], ids=["line", "plane", "arms"])
def test_the_page_speaks_of_costs(tmp_path: Path, domain: bb.Domain) -> None:
    low, _ = pair(domain)
    path = tmp_path / "page.html"
    LivePage(low, path, "a run").close()
    text = path.read_text(encoding="utf-8")
    assert "<h2>Costs</h2>" in text
    assert "Rewards" not in text
    assert re.search(rf"best now</th><td>{low.best()[1].reward:.6g} in round", text)
    assert "mean cost" in text
    assert "least cost" not in text or "least cost, in every" in text


def test_optuna_gets_a_study_to_be_minimized() -> None:
    pytest.importorskip("optuna")
    from botorch_bandits.watching import to_optuna

    low, _ = pair(LINE)
    study = to_optuna(low)
    assert study.direction.name == "MINIMIZE"
    assert study.best_value == low.best()[1].reward
