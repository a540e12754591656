"""The figure of a run: what is drawn agrees with what was told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from models.textbook import double

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    Float,
    GPUpperConfidenceBound,
    History,
    Integer,
    OracleRestart,
    RandomSearch,
    SlidingWindow,
    Space,
    TimeVaryingKernel,
    run,
)
from botorch_bandits.plotting import plot_run
from botorch_bandits.random_baseline import RandomBaseline

BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
SPACE = Space(
    {
        "rate": Float(1e-4, 1.0, log=True),
        "depth": Integer(1, 5),
        "kind": Categorical(["tree", "line", "net"]),
    }
)
UCB = GPUpperConfidenceBound.with_options(width=2.0)


def prior() -> Any:
    from gpytorch.kernels import MaternKernel

    return BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3)


def lines(ax: Any) -> dict[str, Any]:
    return {str(line.get_label()): line for line in ax.get_lines()}


def drawn(ax: Any, label: str) -> list[tuple[float, float]]:
    return [(x, y) for x, y in lines(ax)[label].get_xydata().tolist()]


def told_loop(rewards: list[float], **settings: Any) -> BanditLoop:
    loop = BanditLoop(BOX, None, RandomSearch(), seed=0, **settings)
    for reward in rewards:
        loop.tell(loop.ask().id, reward)
    return loop


@pytest.mark.parametrize("maximize", [True, False])
def test_outcomes_and_the_best_so_far(maximize: bool) -> None:
    loop = told_loop([1.0, 3.0, 2.0, 0.5], maximize=maximize)
    loop.fail(loop.ask().id, "no license")
    waiting = loop.ask()
    rewards, points = plot_run(loop, "a title", reference=("the default", 1.25))
    name = "reward" if maximize else "cost"
    assert drawn(rewards, name) == [(1, 1.0), (2, 3.0), (3, 2.0), (4, 0.5)]
    best = [1.0, 3.0, 3.0, 3.0, 3.0, 3.0] if maximize else [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]
    steps = drawn(rewards, f"best so far: {best[-1]:.4g}")
    assert steps == list(zip(range(1, 7), best, strict=True))
    assert drawn(rewards, "pending") == [(6, 0.0)]
    assert drawn(rewards, "failed") == [(5, 0.0)]
    assert set(lines(rewards)["the default: 1.25"].get_ydata()) == {1.25}
    assert rewards.get_ylabel() == name
    assert rewards.figure.get_suptitle() == "a title"
    tried = [float(query.x) for query in loop.history.queries[:4]]
    assert drawn(points, "told") == list(zip(tried, [1.0, 3.0, 2.0, 0.5], strict=True))
    assert drawn(points, "pending") == [(float(waiting.x), 0.0)]
    query, outcome = loop.history.best()  # type: ignore[misc]
    assert drawn(points, "best point") == [(float(query.x), outcome.reward)]


@pytest.mark.parametrize("maximize", [True, False])
def test_the_model_along_each_parameter(maximize: bool) -> None:
    box = Box([[0.0, -1.0], [1.0, 3.0]], num_restarts=2, raw_samples=16)
    loop = BanditLoop(box, prior(), UCB, seed=0, maximize=maximize)
    run(loop, lambda x: float(x[0] + x[1].sin()), 5, progress=False)
    panels = plot_run(loop)
    center = loop.history.best()[0].x  # type: ignore[index]
    for i, ax in enumerate(panels[1:]):
        (line,) = [v for k, v in lines(ax).items() if k.startswith("what the model expects")]
        x, y = (torch.tensor(np.array(v)) for v in line.get_data())
        X = center.repeat(len(x), 1)
        X[:, i] = x
        posterior = loop.current_model().posterior(X)
        wanted = posterior.mean.detach().squeeze(-1) * (1.0 if maximize else -1.0)
        assert torch.allclose(y, wanted)
        edges = ax.collections[0].get_paths()[0].vertices
        half = 2.0 * posterior.variance.detach().sqrt().squeeze(-1)
        assert edges[:, 1].max() == pytest.approx(float((wanted + half).max()))
        assert ax.get_xlabel() == f"x{i + 1}"
        assert (float(x[0]), float(x[-1])) == tuple(box.bounds[:, i].tolist())


def test_names_and_native_values_of_a_space() -> None:
    loop = BanditLoop(SPACE, None, RandomSearch(), seed=0)
    run(loop, lambda p: p["depth"] + math.log10(p["rate"]), 6, progress=False)
    _, rate, depth, kind = plot_run(loop)
    assert [ax.get_xlabel() for ax in (rate, depth, kind)] == ["rate", "depth", "kind"]
    ticks = dict(
        zip(rate.get_xticks(), (t.get_text() for t in rate.get_xticklabels()), strict=True)
    )
    assert ticks == {-4.0: "0.0001", -3.0: "0.001", -2.0: "0.01", -1.0: "0.1", 0.0: "1"}
    assert [t.get_text() for t in kind.get_xticklabels()] == ["tree", "line", "net"]
    found = [query.parameters["kind"] for query in loop.history.queries]  # type: ignore[index]
    assert [["tree", "line", "net"][round(x)] for x, _ in drawn(kind, "told")] == found
    assert all(float(tick).is_integer() for tick in depth.get_xticks())


def test_constraints_and_multipliers() -> None:
    rule = AdditiveEpochs(num_constraints=2, epoch_length=2, step_size=1.0)
    loop = BanditLoop(Arms([[0.0], [0.5], [1.0]]), prior(), UCB, constraints=rule, seed=0)
    run(loop, lambda x: (float(x), [float(x) - 0.3, 0.1]), 9, progress=False)
    rewards, averages, multipliers, _ = plot_run(loop)
    ledger = loop.ledger()
    g = ledger.constraints
    for j in range(2):
        for values, what in ((g, "average"), (g.clamp_min(0.0), "rectified average")):
            points = drawn(averages, f"constraint {j + 1}, {what}")
            means = [float(values[: t + 1, j].mean()) for t in range(9)]
            assert [y for _, y in points] == pytest.approx(means)
        played = ledger.multipliers.repeat_interleave(2, dim=0)[:9, j].tolist()
        assert [y for _, y in drawn(multipliers, f"constraint {j + 1}")] == pytest.approx(played)
    assert len(drawn(rewards, "a constraint not met")) == 9  # the second never is
    assert not any(label.startswith("best so far") for label in lines(rewards))
    outcomes = [outcome.reward for outcome in loop.history.outcomes]
    assert [y for _, y in drawn(rewards, "a constraint not met")] == outcomes


def test_restarts_changes_and_what_came_before() -> None:
    restart = OracleRestart(change_points=[4], exploration=None)
    loop = BanditLoop(Arms([[0.0], [1.0]]), prior(), UCB, restart=restart, seed=0)
    for reward in (9.0, 8.0, 9.5, 9.0, 1.0, 2.0, 1.5):
        loop.tell(loop.ask().id, reward)
    rewards, points = plot_run(loop, change_points=[4, 20])
    assert set(lines(rewards)["restart"].get_xdata()) == {4.5}
    assert set(lines(rewards)["true change"].get_xdata()) == {4.5}
    assert [y for _, y in drawn(rewards, "best so far: 2")][-3:] == [1.0, 2.0, 2.0]
    assert math.isnan(drawn(rewards, "best so far: 2")[5][1])
    assert [y for _, y in drawn(points, "told")] == [1.0, 2.0, 1.5]
    assert [y for _, y in drawn(points, "told elsewhere")] == [9.0, 8.0, 9.5, 9.0]
    # a history tells its restarts, too
    assert set(lines(plot_run(loop.history)[0])["restart"].get_xdata()) == {4.5}


@pytest.mark.parametrize("forgetting", [SlidingWindow(4), TimeVaryingKernel(0.1)])
def test_a_loop_that_forgets_has_no_best_so_far(forgetting: Any) -> None:
    loop = BanditLoop(BOX, prior(), UCB, forgetting=forgetting, context_dim=1, seed=0)
    contexts = double([[0.5], [0.25], [0.5], [0.5]])
    run(loop, lambda x: float(x[0]), 4, contexts=contexts, progress=False)
    rewards, points = plot_run(loop)
    assert not any(label.startswith("best so far") for label in lines(rewards))
    assert len(drawn(points, "told")) == 3
    assert len(drawn(points, "told elsewhere")) == 1
    assert any(label.startswith("what the model expects") for label in lines(points))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_much_worse_outcomes_are_cut_off_and_counted(sign: float) -> None:
    values = [sign * y for y in (0.9, 0.8, -100.0, 0.95, 1.0, -50.0, 0.85)]
    ax = plot_run(told_loop(values, maximize=sign > 0.0), reference=sign * 0.5)[0]
    low, high = ax.get_ylim()
    inside = {y for y in values if low < y < high}
    assert inside == set(values) - {sign * -100.0, sign * -50.0}
    assert low < sign * 0.5 < high
    assert f"2 outcomes are {'below' if sign > 0.0 else 'above'} this axis" in lines(ax)
    whole = plot_run(told_loop([sign * y for y in (0.0, 1.0, 2.0, 3.0)], maximize=sign > 0.0))[0]
    assert not any("this axis" in label for label in lines(whole))


def test_random_search_beside_a_run() -> None:
    baseline = RandomBaseline([0.0, 1.0, 2.0, 3.0])
    rewards = plot_run(told_loop([1.0, 3.0]), random_search=baseline)[0]
    mean = drawn(rewards, f"random search: {baseline.expected_best(2):.4g}")
    assert [y for _, y in mean] == pytest.approx([1.5, 7 / 3])
    with pytest.raises(ValueError, match="random_search has maximize=True"):
        plot_run(told_loop([1.0], maximize=False), random_search=baseline)


def test_only_the_parameters_along_which_the_model_varies_most() -> None:
    box = Box([[0.0] * 10, [1.0] * 10], num_restarts=1, raw_samples=8)
    loop = BanditLoop(box, prior(), RandomSearch(), seed=0)
    run(loop, lambda x: float(3.0 * x[9]), 6, progress=False)
    panels = plot_run(loop)
    assert len(panels) == 1 + 8
    assert len(plot_run(History(dim=2))) == 3  # nothing was asked
    with pytest.raises(TypeError, match="run"):
        plot_run([1.0])
