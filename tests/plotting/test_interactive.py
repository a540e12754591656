"""Interactive figures show what the run holds, and what a query is under the cursor."""

import math

import pytest
import torch

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    Float,
    GPUpperConfidenceBound,
    History,
    RandomSearch,
    Space,
    run,
)
from botorch_bandits.models import candidate_grid
from botorch_bandits.plotting import interactive

pytest.importorskip("plotly")


def played(num_rounds: int = 6, **settings: object) -> BanditLoop:
    space = Space({"<C>": Float(1e-3, 1e3, log=True), "gamma": Float(0.0, 1.0)})
    loop = BanditLoop(space, None, RandomSearch(), seed=0, **settings)
    run(loop, lambda p: p["gamma"] - abs(math.log10(p["<C>"])), num_rounds, progress=False)
    return loop


def trace(figure, name: str):
    (found,) = [each for each in figure.data if each.name == name]
    return found


def test_run_has_rewards_and_the_best_so_far() -> None:
    loop = played()
    loop.ask()
    loop.tell_failed(loop.ask().id, reason="broke")
    figure = interactive.plot_run(loop, title="run")
    rewards = loop.history.arrived()[1].squeeze(-1).tolist()
    assert list(trace(figure, "random").y) == rewards
    best = trace(figure, "best so far")
    assert list(best.y)[:6] == [max(rewards[: t + 1]) for t in range(6)]
    assert list(trace(figure, "pending").x) == [7]
    assert list(trace(figure, "failed").x) == [8]
    assert figure.layout.title.text == "run"


def test_points_show_native_values_and_no_html() -> None:
    loop = played(1)
    (text,) = trace(interactive.plot_run(loop), "random").hovertext
    (query,) = loop.history.queries
    assert f"&lt;C&gt; = {query.parameters['<C>']:.6g}" in text
    assert "<C>" not in text
    assert "query 0, round 1, random" in text


def test_costs_go_down() -> None:
    loop = played(maximize=False)
    rewards = loop.history.arrived()[1].squeeze(-1).tolist()
    best = trace(interactive.plot_run(loop.history), "best so far")
    assert list(best.y)[:6] == [min(rewards[: t + 1]) for t in range(6)]


def test_map_has_the_posterior_mean_in_the_background() -> None:
    box = Box([[0.0, -1.0, 0.0], [1.0, 1.0, 1.0]])
    from gpytorch.kernels import RBFKernel

    model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.4)
    policy = GPUpperConfidenceBound.with_options(width=2.0)
    loop = BanditLoop(box, model, policy, num_initial=6, seed=0)
    run(loop, lambda x: float(x[0] - x[1] ** 2), 7, progress=False)
    figure = interactive.plot_map(loop, parameters=(1, 0))
    (background,) = [each for each in figure.data if each.type == "heatmap"]
    best = loop.best()[0].x
    i, j = 10, 50
    point = best.clone()
    point[1], point[0] = background.x[j], background.y[i]
    with torch.no_grad():
        posterior = loop.current_model().posterior(point.unsqueeze(0))
    assert background.z[i][j] == pytest.approx(float(posterior.mean), abs=1e-10)
    expected = float(posterior.variance.sqrt())
    assert background.customdata[i][j] == pytest.approx(expected, abs=1e-8)
    (star,) = trace(figure, "best point").x
    assert star == float(best[1])


def test_map_of_arms_and_of_a_history_without_model() -> None:
    from gpytorch.kernels import RBFKernel

    arms = Arms(torch.rand(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.4)
    loop = BanditLoop(arms, model, GPUpperConfidenceBound.with_options(width=2.0), seed=0)
    run(loop, lambda x: float(x.sum()), 4, progress=False)
    figure = interactive.plot_map(loop)
    with torch.no_grad():
        mean = loop.current_model().posterior(arms.choices).mean.squeeze(-1)
    assert trace(figure, "arms").marker.color == pytest.approx(tuple(mean.tolist()))
    figure = interactive.plot_map(loop.history)
    assert [each.name for each in figure.data if each.name not in ("chosen", "best point")] == []


@pytest.mark.parametrize("parameters", [("gamma", "gamma"), ("gamma", "delta"), (0,), (0, 5)])
def test_map_refuses_what_is_no_pair(parameters) -> None:
    with pytest.raises(ValueError, match=r"give two different ones of <C>, gamma"):
        interactive.plot_map(played(), parameters=parameters)


def test_map_refuses_a_line() -> None:
    with pytest.raises(ValueError, match="one dimension"):
        interactive.plot_map(History(1))


def test_evidence_has_a_line_for_each_prior() -> None:
    choices = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1)
    priors = candidate_grid([0.05, 0.2], scales=[0.1, 1.0])
    loop = BanditLoop(
        Arms(choices),
        BanditGP.with_candidates(priors),
        CandidatesUpperConfidenceBound.with_options(delta=0.1),
    )
    run(loop, lambda x: float((9 * x).sin()), 8, progress=False)
    table = loop.evidence()
    figure = interactive.plot_evidence(table, num_named=2)
    assert len(figure.data) == len(priors)
    assert sum(bool(each.showlegend) for each in figure.data) == min(
        2, sum(row.survives for row in table)
    )
    paths = {each.name: list(each.y) for each in figure.data}
    for k, row in enumerate(table):
        assert paths[row.name] == table.path[:, k].tolist()
    assert figure.layout.shapes[0].y0 == table.threshold
    with pytest.raises(TypeError, match=r"loop\.evidence"):
        interactive.plot_evidence(loop)


def test_timeline_has_tests_and_restarts() -> None:
    class Test:
        def __init__(self, after_round: int, statistic: float, detected: bool) -> None:
            self.after_round, self.statistic, self.threshold = after_round, statistic, 2.0
            self.detected = detected

    loop = played()
    tests = [Test(2, 1.0, False), Test(4, 3.0, True)]
    figure = interactive.plot_timeline(loop.history, [4], tests, [3])
    assert list(trace(figure, "statistic").y) == [1.0]
    assert list(trace(figure, "detection").x) == [4]
    assert sorted(shape.x0 for shape in figure.layout.shapes)[0] == 3.5
    assert figure.layout.yaxis2.type == "log"
    assert figure.layout.xaxis2.title.text == "round"
    of_loop = interactive.plot_timeline(loop)  # which has no tests, and did not start over
    assert list(trace(of_loop, "random").y) == list(trace(figure, "random").y)
    assert not of_loop.layout.shapes
    with pytest.raises(TypeError, match=r"Pass the loop, its history"):
        interactive.plot_timeline([])


def test_without_plotly_the_remedy_is_named(monkeypatch) -> None:
    import builtins

    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("plotly"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"botorch_bandits\[interactive\]"):
        interactive.plot_run(History(1))
