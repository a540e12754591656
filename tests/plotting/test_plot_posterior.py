"""Pictures of the posterior show the model's own numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    EvidenceRestart,
    Float,
    GPUpperConfidenceBound,
    History,
    Integer,
    Space,
    TimeVaryingKernel,
)
from botorch_bandits.plotting import new_figure, plot_posterior

DOUBLE = torch.float64


def gp(dim: int) -> BanditGP:
    X = torch.rand(6, dim, generator=torch.Generator().manual_seed(dim), dtype=DOUBLE)
    return BanditGP(X, X.sum(-1, keepdim=True).sin(), kernel=RBFKernel().double(), noise=0.01)


def reading(model: Any, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    posterior = model.posterior(X)
    variance = posterior.variance.detach().squeeze(-1)
    return posterior.mean.detach().squeeze(-1), variance.sqrt()


def history_of(points: list[list[float]], contexts: list[float] | None = None) -> History:
    """Return a history whose second query is pending and whose third failed."""
    history = History(len(points[0]), 0 if contexts is None else 1)
    for i, x in enumerate(points):
        context = None if contexts is None else torch.tensor([contexts[i]], dtype=DOUBLE)
        history.add_query(torch.tensor(x, dtype=DOUBLE), "acquisition", 0.0, context)
    for i in range(len(points)):
        if i == 2:
            history.add_failure(i, 0.0)
        elif i != 1:
            history.add_outcome(i, 0.5 + i, 0.0)
    return history


def lines_of(ax: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in ax.get_lines()}


@pytest.mark.parametrize(
    "domain",
    [Box([[0.0], [2.0]]), [[0.0], [2.0]], torch.tensor([[0.0], [2.0]], dtype=DOUBLE)],
    ids=["box", "lists", "tensor"],
)
def test_a_line_by_domain_or_by_its_ends(domain: Any) -> None:
    by_domain = plot_posterior(gp(1), domain, width=1.5)
    by_ends = plot_posterior(gp(1), 0.0, 2.0, 1.5)
    X = torch.linspace(0, 2, 400, dtype=DOUBLE).unsqueeze(-1)
    mean, deviation = reading(gp(1), X)
    for ax in (by_domain, by_ends):
        line = lines_of(ax)["posterior mean"]
        assert line.get_xdata() == pytest.approx(X.squeeze(-1).numpy(), abs=1e-12)
        assert line.get_ydata() == pytest.approx(mean.numpy(), abs=1e-9)
        bottom = ax.collections[0].get_paths()[0].vertices[:, 1].min()
        assert bottom == pytest.approx(float((mean - 1.5 * deviation).min()), abs=1e-9)


def test_queries_on_a_line() -> None:
    history = history_of([[0.1], [0.2], [0.3], [0.4]])
    lines = lines_of(plot_posterior(gp(1), 0.0, 1.0, history=history, next_query=[0.7]))
    told, pending, star = lines["told"], lines["pending (at the mean)"], lines["next query"]
    assert told.get_xdata() == pytest.approx([0.1, 0.4])
    assert list(told.get_ydata()) == [0.5, 3.5]
    assert pending.get_xdata() == pytest.approx([0.2])
    mean, _ = reading(gp(1), torch.tensor([[0.2], [0.7]], dtype=DOUBLE))
    assert [float(pending.get_ydata()[0]), float(star.get_ydata()[0])] == pytest.approx(
        mean.tolist()
    )
    assert (told.get_mfc(), pending.get_mfc(), star.get_marker()) == ("black", "white", "*")


def test_what_a_constraint_excludes_on_a_line() -> None:
    ax = plot_posterior(gp(1), 0.0, 1.0, constraint=lambda X: X.squeeze(-1) - 0.3)
    edges = [line.get_xdata()[0] for line in ax.get_lines() if line.get_linestyle() == "-."]
    assert edges == pytest.approx([0.3], abs=1e-9)  # exact where the constraint is a line
    hatched = next(c for c in ax.collections if c.get_label() == "not feasible")
    x = hatched.get_paths()[0].vertices[:, 0]
    assert x.min() == pytest.approx(0.3, abs=1 / 399)
    assert x.max() == pytest.approx(1.0)
    assert hatched.get_hatch() == "//"


def test_a_penalized_reward_is_called_that() -> None:
    X = torch.linspace(0.0, 1.0, 5, dtype=DOUBLE).unsqueeze(-1)
    history, reward, cost = History(1, num_constraints=1), X.sin(), X**2
    for i in range(5):
        history.add_query(X[i], "acquisition", 0.0)
        history.add_outcome(i, float(reward[i]), 0.0, [float(cost[i])])
    kernel = RBFKernel().double()
    for Y, name in (
        (reward - 0.5 * cost, "penalized reward (points: reward)"),
        (reward, "reward"),
        ((reward - reward.mean()) / reward.std(), "reward"),
    ):
        model = BanditGP(X, Y, kernel=kernel, noise=0.01)
        assert plot_posterior(model, 0.0, 1.0, history=history).get_ylabel() == name


def test_arms_on_a_line_have_a_bar_each() -> None:
    arms = Arms([[0.0], [0.5], [2.0]])
    ax = plot_posterior(gp(1), arms, width=2.0, constraint=lambda X: X - 1.0)
    mean, deviation = reading(gp(1), arms.choices)
    (bars,) = ax.containers
    assert bars.lines[0].get_xdata().tolist() == [0.0, 0.5, 2.0]
    assert bars.lines[0].get_ydata() == pytest.approx(mean.numpy())
    segments = bars.lines[2][0].get_segments()
    ends = [(s[0][1], s[1][1]) for s in segments]
    wanted = torch.stack([mean - 2 * deviation, mean + 2 * deviation], -1)
    assert torch.tensor(ends, dtype=DOUBLE).sub(wanted).abs().max() < 1e-9
    assert lines_of(ax)["not feasible"].get_xdata().tolist() == [2.0]


def test_a_plane_has_mean_and_deviation() -> None:
    model, box = gp(2), Box([[0.0, -1.0], [1.0, 1.0]])
    history = history_of([[0.1, 0.0], [0.2, 0.1], [0.3, 0.2], [0.4, 0.3]])
    panels = plot_posterior(
        model,
        box,
        history=history,
        next_query=[0.9, -0.9],
        function=lambda X: X[:, 0],
        constraint=lambda X: X[:, 0] - 0.5,
    )
    assert len(panels) == 2
    grid = torch.cartesian_prod(
        torch.linspace(0, 1, 60, dtype=DOUBLE), torch.linspace(-1, 1, 60, dtype=DOUBLE)
    )
    for ax, values in zip(panels, reading(model, grid), strict=True):
        lines = lines_of(ax)
        assert lines["told"].get_xdata() == pytest.approx([0.1, 0.4])
        assert lines["told"].get_ydata() == pytest.approx([0.0, 0.3])
        assert lines["told"].get_mfc() == "black"
        assert lines["pending"].get_xdata() == pytest.approx([0.2])
        assert lines["pending"].get_mfc() == "white"
        assert list(lines["next query"].get_ydata()) == [-0.9]
        filled, contours, *_ = ax.collections
        assert filled.levels[0] <= float(values.min())
        assert filled.levels[-1] >= float(values.max())
        # along a contour the surface has the contour's value, up to the grid's width
        surface = values.reshape(60, 60)
        for level, path in zip(contours.levels, contours.get_paths(), strict=True):
            for x, y in path.vertices:
                i, j = min(int(x * 59), 58), min(int((y + 1) / 2 * 59), 58)
                corners = surface[i : i + 2, j : j + 2]
                assert float(corners.min()) - 1e-6 <= level <= float(corners.max()) + 1e-6
        edge = next(c for c in ax.collections if list(getattr(c, "levels", [])) == [0.0])
        assert edge.get_paths()[0].vertices[:, 0] == pytest.approx(0.5, abs=1e-9)
        assert ax.texts  # the contours have labels
    names = [t.get_text() for t in panels[0].figure.legends[0].get_texts()]
    assert names == ["limit of the constraint", "told", "pending", "next query", "reward function"]


def test_a_plane_on_given_axes_and_a_constant_posterior() -> None:
    _, axes = new_figure(1, 2)
    kernel = RBFKernel().double()
    prior = BanditGP(
        torch.empty(0, 2, dtype=DOUBLE), torch.empty(0, 1, dtype=DOUBLE), kernel=kernel, noise=0.1
    )
    panels = plot_posterior(prior, [[0.0, 0.0], [1.0, 1.0]], ax=axes)
    assert list(panels) == list(axes.reshape(-1))
    with pytest.raises(ValueError, match="a pair of axes"):
        plot_posterior(prior, [[0.0, 0.0], [1.0, 1.0]], ax=axes[0, 0])


def test_arms_on_a_plane_are_points() -> None:
    arms = Arms([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    panels = plot_posterior(gp(2), arms, constraint=lambda X: X[:, 1] - 1.0)
    for ax, values in zip(panels, reading(gp(2), arms.choices), strict=True):
        points = ax.collections[0]
        assert points.get_offsets().data.tolist() == arms.choices.tolist()
        assert points.get_array().data == pytest.approx(values.numpy())
        assert lines_of(ax)["not feasible"].get_ydata().tolist() == [2.0]


def test_columns_in_front_are_fixed() -> None:
    history = history_of([[0.1], [0.2], [0.3], [0.4]], contexts=[0.5, 0.5, 0.5, 0.9])
    ax = plot_posterior(gp(2), 0.0, 1.0, history=history, context=[0.5])
    X = torch.linspace(0, 1, 400, dtype=DOUBLE)
    mean, _ = reading(gp(2), torch.stack([torch.full_like(X, 0.5), X], -1))
    lines = lines_of(ax)
    assert lines["posterior mean"].get_ydata() == pytest.approx(mean.numpy(), abs=1e-9)
    assert lines["told"].get_xdata() == pytest.approx([0.1])
    assert lines["told in another context"].get_xdata() == pytest.approx([0.4])


def test_the_round_in_front_of_the_context_is_no_part_of_it() -> None:
    history = history_of([[0.1], [0.2], [0.3], [0.4]], contexts=[0.5, 0.5, 0.5, 0.9])
    lines = lines_of(plot_posterior(gp(3), 0.0, 1.0, history=history, context=[7.0, 0.5]))
    assert lines["told"].get_xdata() == pytest.approx([0.1])
    assert lines["told in another context"].get_xdata() == pytest.approx([0.4])
    assert lines["pending (at the mean)"].get_xdata() == pytest.approx([0.2])


@pytest.mark.parametrize("keep", ["since_change", "nothing"])
def test_a_kernel_that_varies_in_time_is_drawn_in_the_next_round(keep: Any) -> None:
    """Its rounds count from the reset, which the caller does not have to know."""
    arms = Arms(torch.linspace(0, 1, 5, dtype=DOUBLE).unsqueeze(-1))
    loop = BanditLoop(
        arms,
        BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3),
        GPUpperConfidenceBound.with_options(width=2.0),
        forgetting=TimeVaryingKernel(0.01),
        restart=EvidenceRestart(drift_rate=0.01, keep=keep),
    )
    for y in [0.5] * 15 + [-3.0] * 8:
        loop.tell(loop.ask().id, y)
    assert loop.resets
    now = 24 - loop.resets[-1].num_before
    for played in (False, True):
        if played:
            loop.ask()  # pending, so that the rows stay the same
            now += 1
        model = loop.current_model()
        bars = plot_posterior(model, arms, history=loop.history).containers[0].lines[0]
        rounds = torch.full((5, 1), float(now), dtype=DOUBLE)
        mean, _ = reading(model, torch.cat([rounds, arms.choices], -1))
        assert bars.get_ydata() == pytest.approx(mean.numpy(), abs=1e-12)
        found = loop.recommend()
        assert float(mean.max()) == pytest.approx(found.mean, abs=1e-9)
        first = plot_posterior(model, arms, context=[3.0]).containers[0].lines[0]
        assert abs(first.get_ydata() - mean.numpy()).max() > 1e-3


def single() -> SingleTaskGP:
    return SingleTaskGP(torch.rand(4, 1), torch.rand(4, 1))


def two_outputs() -> SingleTaskGP:
    X = torch.rand(4, 1, dtype=DOUBLE)
    return SingleTaskGP(X, torch.cat([X, -X], -1))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((gp(2), 0.0, 1.0), {}, ValueError, r"2 columns.*context= with the values of the 1"),
        ((gp(1), [[0.0, 0.0], [1.0, 1.0]]), {}, ValueError, "1 columns, but the domain has 2"),
        ((gp(3), Box([[0.0] * 3, [1.0] * 3])), {}, ValueError, "domain has 3 dimensions"),
        ((gp(1), 0.0), {}, TypeError, "both ends of an interval"),
        ((gp(1), Box([[0.0], [1.0]]), 2.0), {}, TypeError, "pass width= by its name"),
        ((gp(1), 1.0, 0.0), {}, ValueError, "the lower bound must be below"),
        ((gp(1), [[0.0], [1.0], [2.0]]), {}, ValueError, "must have shape 2 x d"),
        ((gp(1), 0.0, math.nan), {}, ValueError, "high is nan"),
        ((gp(1), 0.0, 1.0), {"width": -1.0}, ValueError, "width is -1.0"),
        ((gp(1), 0.0, 1.0), {"function": 3}, TypeError, "function is 3"),
        ((gp(1), 0.0, 1.0), {"constraint": lambda X: X[:3, 0]}, ValueError, r"constraint\(X\)"),
        ((gp(1), 0.0, 1.0), {"next_query": [0.1, 0.2]}, ValueError, "next_query"),
        ((gp(1), 0.0, 1.0), {"history": History(2)}, ValueError, "history has points of 2"),
        ((gp(1), 0.0, 1.0), {"history": 3}, TypeError, "history is 3"),
        ((two_outputs(), 0.0, 1.0), {}, ValueError, "one output"),
        ((single(), 0.0, 1.0), {}, TypeError, r"model.train_inputs\[0\] has dtype torch.float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
def test_what_is_wrong_is_named(
    arguments: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plot_posterior(*arguments, **options)


# --- named parameters -----------------------------------------------------------------------

SPACE = Space(
    {
        "C": Float(1e-2, 1e2, log=True),
        "depth": Integer(2, 6),
        "kernel": Categorical(["rbf", "poly", "linear"]),
    }
)


def model_on(space: Space) -> BanditGP:
    X = space.sample(12, torch.Generator().manual_seed(0))
    kernel = RBFKernel(ard_num_dims=space.num_columns).double()
    transform = space.input_transform()
    return BanditGP(X, X.sum(-1, keepdim=True), kernel, noise=0.01, input_transform=transform)


def texts_of(axis: Any) -> list[str]:
    axis.figure.canvas.draw()
    return [label.get_text() for label in axis.get_ticklabels()]


def test_a_section_of_a_space_has_its_name_and_native_values() -> None:
    model = model_on(SPACE)
    ax = plot_posterior(model, SPACE, at={"depth": 3, "kernel": "poly"})
    assert ax.get_xlabel() == "C"
    assert texts_of(ax.xaxis) == ["0.01", "0.1", "1", "10", "100"]
    line = lines_of(ax)["posterior mean"]
    x = torch.as_tensor(line.get_xdata(), dtype=DOUBLE).unsqueeze(-1)
    X = torch.cat([x, torch.tensor([[3.0, 1.0]], dtype=DOUBLE).expand(len(x), 2)], dim=-1)
    assert line.get_ydata() == pytest.approx(reading(model, X)[0].numpy(), abs=1e-12)


def test_categories_are_drawn_as_arms() -> None:
    model = model_on(SPACE)
    ax = plot_posterior(model, SPACE, at={"depth": 3, "C": 0.1})
    assert ax.get_xlabel() == "kernel"
    assert texts_of(ax.xaxis) == ["rbf", "poly", "linear"]
    (container,) = ax.containers
    X = torch.tensor([[-1.0, 3.0, k] for k in range(3)], dtype=DOUBLE)
    assert container[0].get_ydata() == pytest.approx(reading(model, X)[0].numpy(), abs=1e-12)


def test_a_plane_of_a_number_and_a_category_has_a_row_of_points_a_category() -> None:
    panels = plot_posterior(model_on(SPACE), SPACE, at={"depth": 3})
    for ax in panels:
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("C", "kernel")
        assert texts_of(ax.yaxis) == ["rbf", "poly", "linear"]
        (points,) = ax.collections
        assert sorted(set(points.get_offsets()[:, 1])) == [0.0, 1.0, 2.0]
    contours = plot_posterior(model_on(SPACE), SPACE, at={"kernel": "rbf"})
    assert (contours[0].get_xlabel(), contours[0].get_ylabel()) == ("C", "depth")
    assert all(float(text).is_integer() for text in texts_of(contours[0].yaxis))


def test_queries_of_a_section_are_told_from_those_elsewhere() -> None:
    history = History(3)
    for values in ({"C": 1.0, "depth": 3}, {"C": 10.0, "depth": 3}, {"C": 10.0, "depth": 4}):
        x = SPACE.encode({**values, "kernel": "rbf"})
        history.add_query(x, "attached", 0.0)
    for i in (0, 2):
        history.add_outcome(i, float(i), 0.0)
    ax = plot_posterior(
        model_on(SPACE),
        SPACE,
        history=history,
        at={"depth": 3, "kernel": "rbf"},
        next_query={"C": 0.1, "depth": 3, "kernel": "rbf"},
    )
    lines = lines_of(ax)
    assert lines["told"].get_xdata() == pytest.approx([0.0])
    assert lines["pending (at the mean)"].get_xdata() == pytest.approx([1.0])
    assert lines["told elsewhere"].get_xdata() == pytest.approx([1.0])
    assert lines["next query"].get_xdata() == pytest.approx([-1.0])


@pytest.mark.parametrize(
    ("domain", "at", "message"),
    [
        (SPACE, None, r"3 parameters of the space vary \(C, depth, kernel\), but a figure draws"),
        (SPACE, {"C": 1.0, "depth": 3, "kernel": "rbf"}, r"at holds all .* Leave those out of at"),
        (SPACE, {"C": 1.0, "depth": 3, "gama": 1, "kernel": "rbf"}, "'gama' is not known; the"),
        (SPACE, ["C"], r"at is \['C'\]. Pass a dict of values by name"),
        (SPACE, {"depth": 3, "kernel": "sigmoid"}, "parameter 'kernel' is 'sigmoid'; it must be"),
        (SPACE, {"depth": 3, "gamma": 1.0}, "parameter 'gamma' is not known"),
        (Box([[0.0], [1.0]]), {"C": 1.0}, r"at is \{'C': 1.0\}, but the domain has no names"),
    ],
)
def test_a_section_that_is_none_is_refused(domain: Any, at: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plot_posterior(model_on(SPACE), domain, at=at)
