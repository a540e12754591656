"""One picture of a run: the gain, where the points were, and what the model expects."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    EvidenceRestart,
    Float,
    GPUpperConfidenceBound,
    Integer,
    OracleRestart,
    RandomSearch,
    Space,
    run,
)
from botorch_bandits.forgetting import TimeVaryingKernel
from botorch_bandits.plotting import plot_run
from botorch_bandits.plotting.overview import MOST_SLICES

DOUBLE = torch.float64
MODEL = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.5)
UCB = GPUpperConfidenceBound.with_options(width=2.0)


def lines_of(ax: Axes) -> dict[str, Any]:
    return {str(line.get_label()): line for line in ax.get_lines()}


def names_of(panels: Any) -> set[str]:
    return {text.get_text() for text in panels[0].figure.legends[0].get_texts()}


def points_of(ax: Axes) -> dict[str, PathCollection]:
    return {str(c.get_label()): c for c in ax.collections if isinstance(c, PathCollection)}


def attached(domain: Any, points: list[list[float]], rewards: list[float], **settings: Any) -> Any:
    """Return a loop that knows these outcomes, and nothing that an acquisition chose."""
    loop = BanditLoop(domain, settings.pop("model", MODEL), UCB, **settings)
    for x, reward in zip(points, rewards, strict=True):
        loop.attach(torch.tensor(x, dtype=DOUBLE), reward)
    return loop


@pytest.fixture
def mixed() -> BanditLoop:
    space = Space(
        {
            "rate": Float(1e-4, 1.0, log=True),
            "momentum": Float(0.0, 1.0),
            "depth": Integer(2, 6),
            "kernel": Categorical(["rbf", "poly", "none"]),
        },
        num_restarts=2,
        raw_samples=16,
    )
    points = space.sample(20, torch.Generator().manual_seed(0)).tolist()
    rewards = [-0.3 * (x[0] + 2.0) ** 2 - 0.6 * x[3] for x in points]
    model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=2.0)
    loop = attached(space, points, rewards, model=model)
    loop.ask()
    return loop


def test_the_two_parameters_that_matter_are_on_the_map_in_native_values(mixed: BanditLoop) -> None:
    gain, plane, *slices = plot_run(mixed)
    assert gain.get_xlabel() == "round"
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("rate", "kernel")
    assert [t.get_text() for t in plane.get_xticklabels()] == [
        "0.0001",
        "0.001",
        "0.01",
        "0.1",
        "1",
    ]
    assert [t.get_text() for t in plane.get_yticklabels()] == ["rbf", "poly", "none"]
    assert [ax.get_xlabel() for ax in slices] == ["rate", "momentum", "depth", "kernel"]


def test_colors_are_rewards_and_the_background_is_the_models_mean(mixed: BanditLoop) -> None:
    best, outcome = mixed.best()  # type: ignore[misc]
    plane = plot_run(mixed)[1]
    told = points_of(plane)["attached"]
    X = torch.stack([q.x for q in mixed.history.queries[:20]])
    assert told.get_offsets()[:, 0].tolist() == X[:, 0].tolist()
    # categories stand beside each other, but nearest to their own name
    assert np.abs(told.get_offsets()[:, 1] - X[:, 3].numpy()).max() <= 0.3
    assert told.get_array().tolist() == [o.reward for o in mixed.history.outcomes]
    (mesh,) = [c for c in plane.collections if isinstance(c, QuadMesh)]
    values = mesh.get_array()
    assert values.shape[0] == 3
    rates = torch.linspace(-4.0, 0.0, values.shape[1], dtype=DOUBLE)
    at = best.x.repeat(len(rates), 1)
    at[:, 0], at[:, 3] = rates, 1.0
    mean = mixed.current_model().posterior(at).mean.detach().squeeze(-1)
    assert values[1].tolist() == pytest.approx(mean.tolist(), abs=1e-12)
    star = lines_of(plane)["best point"]
    assert star.get_xdata()[0] == float(best.x[0])
    assert mesh.norm.vmax >= outcome.reward
    pending = mixed.history.pending()[0]
    assert lines_of(plane)["pending"].get_xdata().tolist() == [float(pending.x[0])]


def test_slices_go_through_the_best_point(mixed: BanditLoop) -> None:
    best, outcome = mixed.best()  # type: ignore[misc]
    panels = plot_run(mixed)
    expected = "what the model expects, ± 2 standard deviations"
    rate, _, depth, kernel = panels[2:]
    line = lines_of(rate)[expected]
    at = best.x.repeat(len(line.get_xdata()), 1)
    at[:, 0] = torch.as_tensor(line.get_xdata())
    posterior = mixed.current_model().posterior(at)
    mean = posterior.mean.detach().squeeze(-1)
    assert line.get_ydata().tolist() == pytest.approx(mean.tolist(), abs=1e-12)
    top = float((mean + 2.0 * posterior.variance.detach().squeeze(-1).sqrt()).max())
    assert rate.collections[0].get_paths()[0].vertices[:, 1].max() == pytest.approx(top, abs=1e-12)
    for ax, values in ((depth, [2, 3, 4, 5, 6]), (kernel, [0, 1, 2])):
        bars = ax.containers[0]
        assert bars[0].get_xdata().tolist() == values
        i = panels[2:].tolist().index(ax)
        at = best.x.repeat(len(values), 1)
        at[:, i] = torch.tensor(values, dtype=DOUBLE)
        mean = mixed.current_model().posterior(at).mean.detach().squeeze(-1)
        assert bars[0].get_ydata().tolist() == pytest.approx(mean.tolist(), abs=1e-12)
    star = lines_of(rate)["best point"]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (float(best.x[0]), outcome.reward)
    tried = lines_of(kernel)["values that were tried"].get_xdata()
    assert sorted(set(tried)) == [0.0, 1.0, 2.0]
    assert {expected, "best point", "pending", "values that were tried"} <= names_of(panels)


def test_legend_and_titles_lie_within_the_figure(mixed: BanditLoop) -> None:
    mixed.ask()
    panels = plot_run(mixed, reference=("the default of the library", -1.0), random_search=[-1.0])
    figure = panels[0].figure
    figure.canvas.draw()
    texts = [figure.legends[0], *(panel.title for panel in panels)]
    for extent in (text.get_window_extent() for text in texts):
        assert figure.bbox.x0 <= extent.x0
        assert extent.x1 <= figure.bbox.x1


def test_in_one_dimension_the_points_lie_on_the_slice() -> None:
    loop = attached(Box([(0.0, 2.0)]), [[0.1], [0.9], [1.7]], [0.0, 1.0, 0.2])
    query = loop.ask()
    panels = plot_run(loop)
    assert len(panels) == 2
    lines = lines_of(panels[1])
    assert lines["attached"].get_xdata().tolist() == [0.1, 0.9, 1.7]
    assert lines["attached"].get_ydata().tolist() == [0.0, 1.0, 0.2]
    mean = loop.current_model().posterior(query.x.unsqueeze(0)).mean
    assert lines["pending"].get_ydata().tolist() == pytest.approx([float(mean)])


def test_arms_in_the_plane_have_the_best_ones_beside_the_map() -> None:
    choices = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    rewards = (-(choices - 0.4).square().sum(-1)).tolist()
    loop = attached(Arms(choices), choices[:9].tolist(), rewards[:9])
    _, plane, best = plot_run(loop)
    posterior = loop.current_model().posterior(choices)
    mean = posterior.mean.detach().squeeze(-1)
    squares = points_of(plane)["_child0"]
    assert squares.get_array().tolist() == pytest.approx(mean.tolist(), abs=1e-12)
    bars = best.containers[0][0]
    assert bars.get_xdata().tolist() == pytest.approx(mean.topk(10).values.flip(0).tolist())
    x, y = choices[int(mean.argmax())].tolist()
    assert best.get_yticklabels()[-1].get_text() == f"{x:.3g}, {y:.3g}"


def test_of_many_parameters_those_that_matter_have_a_slice() -> None:
    dim = MOST_SLICES + 3
    X = torch.rand(40, dim, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    model = BanditGP.with_kernel(RBFKernel(ard_num_dims=dim), noise=1e-3, lengthscale=1.5)
    rewards = (3.0 * X[:, 9] - 2.0 * X[:, 4]).tolist()
    panels = plot_run(attached(Box([(0.0, 1.0)] * dim), X.tolist(), rewards, model=model))
    assert (panels[1].get_xlabel(), panels[1].get_ylabel()) == ("x5", "x10")
    assert len(panels) == 2 + MOST_SLICES
    assert {"x5", "x10"} <= {ax.get_xlabel() for ax in panels[2:]}


def test_after_a_restart_the_present_is_shown() -> None:
    box = Box([(0.0, 1.0), (0.0, 1.0)], num_restarts=2, raw_samples=16)
    rule = OracleRestart(change_points=(6,), exploration=1.0)
    loop = BanditLoop(box, MODEL, UCB, restart=rule)
    run(loop, lambda x: float(x.sum()), 10, progress=False)
    panels = plot_run(loop, change_points=[6])
    shown = sum(len(points.get_offsets()) for points in points_of(panels[1]).values())
    assert shown == 4
    assert panels[1].get_title().endswith("since round 7")
    best = max(loop.history.outcomes[6:], key=lambda o: o.reward)
    x = loop.history.query(best.query_id).x
    assert lines_of(panels[1])["best point"].get_xdata()[0] == float(x[0])


def test_after_a_restart_what_it_kept_is_shown() -> None:
    loop = BanditLoop(Box([(0.0, 1.0)]), MODEL, UCB, restart=EvidenceRestart(robust=False))
    run(loop, lambda x: 0.5 if loop.history.num_queries <= 8 else -3.0, 14, progress=False)
    (reset,) = loop.resets
    assert reset.num_kept > 0
    panels = plot_run(loop)
    drawn = [panel for panel in panels if panel.get_title().endswith("since round 9")]
    assert drawn
    assert reset.num_before == 8


def test_in_contexts_the_last_one_is_shown() -> None:
    box = Box([(0.0, 1.0), (0.0, 1.0)], num_restarts=2, raw_samples=16)
    loop = BanditLoop(box, MODEL, UCB, context_dim=1)
    for i in range(7):
        query = loop.ask(context=torch.tensor([float(i % 2)], dtype=DOUBLE))
        loop.tell(query.id, float(query.x.sum()) + i % 2)
    panels = plot_run(loop)
    assert sum(len(points.get_offsets()) for points in points_of(panels[1]).values()) == 4
    assert panels[1].get_title().endswith("in the last context")
    line = lines_of(panels[2])["what the model expects, ± 2 standard deviations"]
    best = max((o for o in loop.history.outcomes if o.query_id % 2 == 0), key=lambda o: o.reward)
    at = loop.history.query(best.query_id).x.repeat(len(line.get_xdata()), 1)
    at[:, 0] = torch.as_tensor(line.get_xdata())
    at = torch.cat([torch.zeros(len(at), 1, dtype=DOUBLE), at], dim=-1)
    mean = loop.current_model().posterior(at).mean.detach().squeeze(-1)
    assert line.get_ydata().tolist() == pytest.approx(mean.tolist(), abs=1e-12)


def test_a_drifting_reward_is_shown_as_of_the_next_round() -> None:
    loop = BanditLoop(Box([(0.0, 1.0)]), MODEL, UCB, forgetting=TimeVaryingKernel(0.1))
    run(loop, lambda x: float(x), 4, progress=False)
    line = lines_of(plot_run(loop)[1])["what the model expects, ± 2 standard deviations"]
    x = torch.as_tensor(line.get_xdata()).unsqueeze(-1)
    at = torch.cat([torch.full_like(x, 5.0), x], dim=-1)
    mean = loop.current_model().posterior(at).mean.detach().squeeze(-1)
    assert line.get_ydata().tolist() == pytest.approx(mean.tolist(), abs=1e-12)


def test_with_constraints_fills_are_in_the_legend() -> None:
    rule = AdditiveEpochs(1, epoch_length=2, step_size=1.0)
    loop = BanditLoop(Box([(0.0, 1.0)] * 2), MODEL, UCB, constraints=rule)
    for t in range(4):
        loop.tell(loop.ask().id, 0.5 * t, [0.5 - t])
    assert {"constraints met", "constraints not met"} <= names_of(plot_run(loop))


def test_with_constraints_the_model_is_of_what_is_maximized() -> None:
    box = Box([(0.0, 1.0), (0.0, 1.0)], num_restarts=2, raw_samples=16)
    loop = BanditLoop(box, MODEL, UCB, constraints=AdditiveEpochs(1, epoch_length=2))
    run(loop, lambda x: (float(x.sum()), [float(x[0] - 0.5)]), 6, progress=False)
    panels = plot_run(loop)
    assert panels[2].get_ylabel() == "penalized\nreward"
    best = loop.best()
    assert best is not None
    star = lines_of(panels[1])["best point"]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == tuple(best[0].x.tolist())


def test_failed_points_are_on_the_map_and_titles_within_the_figure() -> None:
    loop = BanditLoop(Box([(0.0, 1.0)] * 2), MODEL, UCB)
    for fails in (False, True, False):
        query = loop.ask()
        loop.tell_failed(query.id) if fails else loop.tell(query.id, float(query.x.sum()))
    search = [0.125, 0.25, 0.5, 0.75]
    panels = plot_run(loop, reference=("the default of scikit-learn", 0.5), random_search=search)
    at = loop.history.queries[1].x.tolist()
    failed = lines_of(panels[1])["failed"]
    assert (failed.get_xdata().tolist(), failed.get_ydata().tolist()) == ([at[0]], [at[1]])
    assert [lines_of(ax)["failed"].get_xdata().tolist() for ax in panels[2:]] == [[x] for x in at]
    figure = panels[0].figure
    figure.draw_without_rendering()
    for text in (*(ax.title for ax in panels), figure.legends[0]):
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1


def test_without_a_model_rewards_are_drawn_by_parameter() -> None:
    space = Space({"rate": Float(1e-4, 1.0, log=True), "size": Float(0.0, 1.0)})
    loop = BanditLoop(space, None, RandomSearch())
    run(loop, lambda p: p["size"], 5, progress=False)
    rewards = [o.reward for o in loop.history.outcomes]
    for drawn in (loop, loop.history):
        panels = plot_run(drawn, domain=space)
        assert [ax.get_xlabel() for ax in panels] == ["round", "rate", "rate", "size"]
        assert lines_of(panels[3])["random"].get_ydata().tolist() == rewards
        assert lines_of(panels[3])["random"].get_xdata().tolist() == pytest.approx(rewards)
        assert points_of(panels[1])["random"].get_array().tolist() == rewards


def test_nothing_told_is_said() -> None:
    loop = BanditLoop(Box([(0.0, 1.0), (0.0, 1.0)]), MODEL, UCB)
    loop.ask()
    panels = plot_run(loop, "nothing")
    assert [text.get_text() for text in panels[0].texts] == ["no reward yet"]
    assert names_of(panels) == {"pending"}
    assert len(plot_run(BanditLoop(Box([(0.0, 1.0)]), MODEL, UCB))) == 2


def test_colors_leave_out_what_is_far_below() -> None:
    points = [[0.05 * i, 0.5] for i in range(20)]
    rewards = [-1000.0 if i < 3 else math.sin(0.3 * i) for i in range(20)]
    plane = plot_run(attached(Box([(0.0, 1.0)] * 2), points, rewards))[1]
    assert points_of(plane)["attached"].norm.vmin > -100.0


def test_a_reward_that_changes_is_drawn_in_full() -> None:
    """Earlier rewards are no failures to improve, and the largest of a drifting reward is luck."""
    arms = Arms(torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1))
    jumps = {"restart": OracleRestart(change_points=(9,), exploration=None)}
    for settings, has_line in (
        (jumps, True),
        ({"forgetting": TimeVaryingKernel(0.01)}, False),
    ):
        loop = BanditLoop(arms, MODEL, UCB, **settings)
        for t in range(16):
            loop.tell(loop.ask().id, -5.0 - t if t < 9 else 1.0 + 0.01 * t)
        rewards = plot_run(loop)[0]
        assert rewards.get_ylim()[0] < -13.0
        labels = [line.get_label() for line in rewards.get_lines()]
        assert "below this axis" not in labels
        assert any(label.startswith("best so far") for label in labels) is has_line


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Pass the loop, its history"):
        plot_run([1.0, 2.0])


def test_a_model_that_expects_the_same_everywhere_is_drawn():
    """After one round the penalized reward has no spread, and levels of color have to have some."""
    rule = AdditiveEpochs(num_constraints=1, epoch_length=2)
    loop = BanditLoop(Box([(0.0, 1.0)] * 2), num_initial=1, constraints=rule, seed=0)
    loop.tell(loop.ask().id, 0.92, constraints=[0.5])
    low, high = plot_run(loop)[1].collections[0].get_clim()
    assert low < high
