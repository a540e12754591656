"""The posterior over one and two dimensions: values, slices, names and queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel
from models.textbook import double, uniform

from botorch_bandits import Arms, BanditGP, BanditLoop, Box, Float, History, Integer, Space
from botorch_bandits.plotting import plot_posterior

DTYPE = torch.float64


def model(dim: int) -> BanditGP:
    X = uniform(6, dim, seed=0)
    Y = X.sum(dim=-1, keepdim=True).sin()
    return BanditGP(X, Y, kernel=MaternKernel(nu=2.5).double(), noise=0.01)


def expected(of: Any, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        posterior = of.posterior(X)
    return posterior.mean.squeeze(-1), posterior.variance.sqrt().squeeze(-1)


@pytest.mark.parametrize("domain", [(0.0, 2.0), ([[0.0], [2.0]],), (Box([[0.0], [2.0]]),)])
def test_mean_band_and_function_on_a_line(domain: tuple[Any, ...]) -> None:
    of = model(1)
    ax = plot_posterior(of, *domain, width=3.0, function=lambda X: X.sum(dim=-1).sin())
    mean, truth = ax.get_lines()
    x = torch.tensor(np.array(mean.get_xdata()))
    wanted, deviation = expected(of, x.unsqueeze(-1))
    assert (float(x[0]), float(x[-1])) == (0.0, 2.0)
    assert np.allclose(mean.get_ydata(), wanted)
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert edges.max() == pytest.approx(float((wanted + 3.0 * deviation).max()))
    assert edges.min() == pytest.approx(float((wanted - 3.0 * deviation).min()))
    assert np.allclose(truth.get_ydata(), x.sin())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "reward")


def test_arms_and_queries_in_another_context() -> None:
    arms = Arms([[0.0], [0.5], [1.0]])
    of = model(2)
    history = History(dim=1, context_dim=1)
    loop = BanditLoop(arms, None, context_dim=1, num_initial=3, seed=0, maximize=False)
    for z, cost in ((0.25, 1.0), (0.75, 2.0), (0.25, 3.0)):
        query = loop.ask(double([z]))
        loop.tell(query.id, cost)
    history = loop.history
    ax = plot_posterior(of, arms, width=1.0, history=history, context=[0.25])
    mean, deviation = expected(of, torch.cat([torch.full((3, 1), 0.25).double(), arms.choices], -1))
    (bars,) = ax.containers
    assert np.allclose(bars.lines[0].get_ydata(), -mean)  # the model is of minus the cost
    ends = np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
    assert np.allclose(ends[:, 1] - ends[:, 0], 2.0 * deviation)
    labels = {str(line.get_label()): line for line in ax.get_lines()}
    assert labels["told"].get_ydata().tolist() == [1.0, 3.0]
    assert labels["told elsewhere"].get_ydata().tolist() == [2.0]
    assert ax.get_ylabel() == "cost"


def test_two_dimensions_have_mean_and_deviation() -> None:
    of = model(2)
    box = Box([[0.0, 1.0], [1.0, 4.0]])
    loop = BanditLoop(box, None, num_initial=3, seed=0)
    loop.tell(loop.ask().id, 1.0)
    loop.ask()
    panels = plot_posterior(of, box, history=loop.history)
    for ax, pick in zip(panels, (0, 1), strict=True):
        (mesh,) = ax.collections
        z = np.asarray(mesh.get_array())
        sides = [
            torch.linspace(*box.bounds[:, i].tolist(), n, dtype=DTYPE)
            for i, n in ((0, 61), (1, 61))
        ]
        wanted = expected(of, torch.cartesian_prod(*sides))[pick]
        assert np.allclose(z.reshape(-1), wanted)
        assert ax.get_xlim()[1] < 1.1 < 4.0 < ax.get_ylim()[1]
        labels = {str(line.get_label()): line for line in ax.get_lines()}
        x = [query.x.tolist() for query in loop.history.queries]
        assert labels["told"].get_xydata().tolist() == x[:1]
        assert labels["pending"].get_xydata().tolist() == x[1:]
    square = plot_posterior(of, Arms([[0.0, 0.0], [0.5, 1.0]]))[0]
    means = expected(of, double([[0.0, 0.0], [0.5, 1.0]]))[0]
    assert np.allclose(square.collections[0].get_array(), means)


def test_a_slice_of_a_space() -> None:
    space = Space(
        {"rate": Float(1e-2, 1.0, log=True), "depth": Integer(1, 3), "x": Float(0.0, 1.0)}
    )
    of = model(3)
    loop = BanditLoop(space, None, num_initial=2, seed=0)
    inside = loop.attach({"rate": 0.1, "depth": 2, "x": 0.5}, 1.0)
    loop.attach({"rate": 0.1, "depth": 2, "x": 0.75}, 2.0)
    ax = plot_posterior(of, space, history=loop.history, at={"depth": 2, "x": 0.5})
    line = ax.get_lines()[0]
    X = double([[v, 2.0, 0.5] for v in line.get_xdata()])
    assert np.allclose(line.get_ydata(), expected(of, X)[0])
    labels = {str(each.get_label()): each for each in ax.get_lines()}
    assert labels["told"].get_xydata().tolist() == [[-1.0, 1.0]]
    assert labels["told elsewhere"].get_ydata().tolist() == [2.0]
    assert inside is not None
    assert ax.get_xlabel() == "rate"
    texts = [text.get_text() for text in ax.get_xticklabels()]
    assert texts == ["0.01", "0.1", "1"]
    panels = plot_posterior(of, space, at={"x": 0.5})
    assert (panels[0].get_xlabel(), panels[0].get_ylabel()) == ("rate", "depth")
    assert np.asarray(panels[0].collections[0].get_array()).size == 61 * 3


def test_wrong_arguments() -> None:
    of, box = model(1), Box([[0.0], [1.0]])
    space = Space({"a": Float(0.0, 1.0), "b": Float(0.0, 1.0), "c": Float(0.0, 1.0)})
    both = SingleTaskGP(torch.rand(4, 1, dtype=DTYPE), torch.rand(4, 2, dtype=DTYPE))
    for match, kind, call in (
        ("width", ValueError, lambda: plot_posterior(of, box, width=-1.0)),
        ("2 columns.*context", ValueError, lambda: plot_posterior(model(2), box)),
        ("3 of the 3 dimensions", ValueError, lambda: plot_posterior(model(3), space)),
        ("0 of the 3", ValueError, lambda: plot_posterior(of, space, at={"a": 0, "b": 0, "c": 0})),
        ("at is", TypeError, lambda: plot_posterior(of, box, at={"a": 0.5})),
        ("2 dimensions", ValueError, lambda: plot_posterior(of, box, history=History(dim=2))),
        ("history", TypeError, lambda: plot_posterior(of, box, history=[1.0])),  # type: ignore[arg-type]
        ("subset_output", ValueError, lambda: plot_posterior(both, box)),
        ("ax is 3", TypeError, lambda: plot_posterior(of, box, ax=3)),
        ("pair", ValueError, lambda: plot_posterior(model(2), Box([[0.0] * 2, [1.0] * 2]), ax=[1])),
    ):
        with pytest.raises(kind, match=match):
            call()
