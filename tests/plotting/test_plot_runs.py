"""Plots draw the numbers that the history holds."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from gpytorch.kernels import RBFKernel
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    GPUpperConfidenceBound,
    History,
    OracleRestart,
    RandomSearch,
    run,
)
from botorch_bandits.change_points import PowerThreshold, Restart
from botorch_bandits.constraints import Ledger
from botorch_bandits.plotting import (
    plot_diagnostic,
    plot_ledger,
    plot_pending,
    plot_posterior,
    plot_rewards,
    plot_run,
    plot_timeline,
)
from botorch_bandits.problems import ArmsProblem, ConstantDelay, SwitchingProblem
from botorch_bandits.random_baseline import RandomBaseline

CHOICES = torch.linspace(0, 1, 7, dtype=torch.float64).unsqueeze(-1)


def lines_of(ax: Axes) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in ax.get_lines()}


@pytest.fixture
def loop() -> BanditLoop:
    loop = BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        GPUpperConfidenceBound.with_options(),
        num_initial=2,
    )
    run(loop, ArmsProblem(CHOICES, CHOICES.squeeze(-1).cos(), noise_std=0.1), 6, progress=False)
    loop.ask()  # pending: not drawn
    return loop


def test_rewards_and_best_so_far(loop: BanditLoop) -> None:
    rewards = [outcome.reward for outcome in loop.history.outcomes]
    best = torch.tensor(rewards, dtype=torch.float64).cummax(0).values.tolist()
    for reference, name in ((0.25, "reference"), (("as it was", 0.25), "as it was")):
        lines = lines_of(plot_rewards(loop.history, reference=reference))
        assert lines["initial, random"].get_ydata().tolist() == rewards[:2]
        assert lines["chosen"].get_ydata().tolist() == rewards[2:]
        # up to the query that is pending
        assert lines[f"best so far: {best[-1]:.4g}"].get_ydata().tolist() == [*best, best[-1]]
        assert lines[f"{name}: 0.25"].get_ydata()[0] == 0.25
        assert lines["pending"].get_xdata().tolist() == [7]


def test_the_best_so_far_begins_anew_and_meets_all_constraints() -> None:
    history = History(dim=1, num_constraints=1)
    for i, (reward, g) in enumerate([(3.0, 1.0), (1.0, 0.0), (2.0, -1.0), (0.0, 0.0), (5.0, 2.0)]):
        history.add_query(torch.zeros(1, dtype=torch.float64), "random", 0.0)
        history.add_outcome(i, reward, 0.0, (g,))
    lines = lines_of(plot_rewards(history))
    assert lines["best so far: 2"].get_xdata().tolist() == [2, 3, 4, 5]
    assert lines["best so far: 2"].get_ydata().tolist() == [1.0, 2.0, 2.0, 2.0]
    assert lines["a constraint not met"].get_xdata().tolist() == [1, 5]
    line = lines_of(plot_rewards(history, restarts=[3]))["best so far: 0"]
    assert line.get_xdata().tolist() == [2, 3, 3.5, 3.5, 4, 5]
    y = line.get_ydata().tolist()
    assert (y[:3], math.isnan(y[3]), y[4:]) == ([1.0, 2.0, 2.0], True, [0.0, 0.0])


def test_random_search_is_drawn_on_average_and_with_a_band() -> None:
    history = History(dim=1)
    for i in range(6):
        history.add_query(torch.zeros(1, dtype=torch.float64), "random", 0.0)
        history.add_outcome(i, float(i), 0.0)
    rewards = [float(i % 7) for i in range(20)]
    baseline = RandomBaseline(rewards)
    for given in (rewards, baseline):
        ax = plot_rewards(history, random_search=given)
        label = f"random search, on average: {baseline.expected_best(6):.4g}"
        line = lines_of(ax)[label]
        assert line.get_xdata().tolist() == [1, 2, 3, 4, 5, 6]
        assert line.get_ydata().tolist() == [baseline.expected_best(n) for n in range(1, 7)]
        (band,) = ax.collections
        heights = band.get_paths()[0].vertices
        assert {y for x, y in heights if x == 4} == {
            baseline.quantile(4, 0.1),
            baseline.quantile(4, 0.9),
        }
    few = plot_rewards(history, random_search=[0.0, 1.0, 2.0, 3.0])
    assert lines_of(few)["random search, on average: 3"].get_xdata().tolist() == [1, 2, 3, 4]
    assert few.collections[0].get_paths()[0].vertices[:, 0].max() == 2  # half of the points


def test_the_axis_is_cut_off_where_it_would_hide_the_gain() -> None:
    history = History(dim=1)
    rewards = [0.1, 0.2, 0.90, 0.3, 0.91, 0.92, 0.1, 0.93]
    for i, reward in enumerate(rewards):
        history.add_query(torch.zeros(1, dtype=torch.float64), "random", 0.0)
        history.add_outcome(i, reward, 0.0)
    whole = plot_rewards(history)
    assert whole.get_ylim()[0] < 0.1
    ax = plot_rewards(history, zoom=True)
    low, high = ax.get_ylim()
    assert 0.89 < low < 0.90
    assert 0.93 < high < 0.94
    assert lines_of(ax)["below this axis"].get_xdata().tolist() == [1, 2, 4, 7]
    # what it is compared with is always in sight
    assert plot_rewards(history, reference=0.7, zoom=True).get_ylim()[0] < 0.7


def test_at_most_half_of_the_rewards_are_cut_off() -> None:
    history = History(dim=1)
    for i in range(35):
        history.add_query(torch.zeros(1, dtype=torch.float64), "random", 0.0)
        history.add_outcome(i, (0.9 if i % 3 == 2 else 0.0) + 0.01 * i, 0.0)
    below = lines_of(plot_rewards(history, zoom=True))["below this axis"].get_xdata()
    assert 12 <= len(below) <= 17


def test_width_over_rounds(loop: BanditLoop) -> None:
    line = plot_diagnostic(loop.history, "width").get_lines()[0]
    played = [q for q in loop.history.queries if q.origin == "acquisition"]
    assert line.get_xdata().tolist() == [q.round_number for q in played]
    assert line.get_ydata().tolist() == [q.diagnostics["width"] for q in played]


def test_posterior_band_is_width_standard_deviations(loop: BanditLoop) -> None:
    model = loop.current_model()
    ax = plot_posterior(model, 0.0, 1.0, width=3.0, history=loop.history, function=torch.cos)
    lines = {line.get_label(): line for line in ax.get_lines()}
    X = torch.linspace(0, 1, 400, dtype=torch.float64).unsqueeze(-1)
    posterior = model.posterior(X)
    mean = posterior.mean.detach().squeeze(-1)
    assert lines["posterior mean"].get_ydata() == pytest.approx(mean.numpy(), abs=1e-12)
    top = ax.collections[0].get_paths()[0].vertices[:, 1].max()
    upper = mean + 3 * posterior.variance.detach().squeeze(-1).sqrt()
    assert top == pytest.approx(float(upper.max()), abs=1e-12)
    assert len(lines["told"].get_xdata()) == 6


def test_pending_queries_and_their_ages() -> None:
    loop = BanditLoop(Arms(CHOICES), None, RandomSearch())
    problem = ArmsProblem(CHOICES, CHOICES.squeeze(-1).cos())
    run(loop, problem, 8, delays=ConstantDelay(3), progress=False)
    count, ages = plot_pending(loop.history, "delays")
    (step,) = count.get_lines()
    assert step.get_ydata().tolist() == [0, 1, 2, 2, 2, 2, 2, 2]
    (share,) = next(ax for ax in count.figure.axes if ax not in (count, ages)).get_lines()
    assert share.get_ydata()[-1] == pytest.approx(2 / 7)
    lines = ages.get_lines()[:8]
    assert lines[0].get_xdata().tolist() == [1, 4]
    assert lines[0].get_ydata().tolist() == [3, 3]
    assert lines[-1].get_xdata().tolist() == [8, 9]  # pending at the end
    ends = {line.get_label(): line for line in ages.get_lines()[8:]}
    assert ends["told"].get_xdata().tolist() == [4, 5, 6, 7, 8, 9]
    assert ends["told"].get_ydata().tolist() == [3] * 6
    assert ends["pending, delay so far"].get_ydata().tolist() == [2, 1]


def test_counts_and_delays_have_whole_numbers_and_the_share_stays_inside() -> None:
    loop = BanditLoop(Arms(CHOICES), None, RandomSearch())
    for _ in range(3):
        loop.ask()
    above, below = plot_pending(loop.history)
    for ax in (above, below):
        assert all(float(at).is_integer() for at in ax.get_yticks())
    share = next(ax for ax in above.figure.axes if ax not in (above, below))
    assert share.get_ylim()[1] > max(share.get_lines()[0].get_ydata()) == 1.0


def test_late_means_after_max_delay_as_for_censored_feedback() -> None:
    history = History(dim=1)
    point = torch.zeros(1, dtype=torch.float64)
    for i in range(6):
        history.add_query(point, "acquisition", 0.0)
        if i == 2:
            history.add_outcome(0, 1.0, 0.0)  # after round 3: a delay of 3
        if i == 4:
            history.add_outcome(1, 1.0, 0.0)  # of 4
    history.add_outcome(5, 1.0, 0.0)
    feedback = Censored(minimum=0.0, max_delay=3)
    view = feedback.view(history, 7, 0.0)
    assert view.late == (1,)
    ages = plot_pending(history, max_delay=3)[1]
    ends = {line.get_label(): line for line in ages.get_lines()}
    assert ends["told"].get_ydata().tolist() == [3, 1]
    assert (ends["told late"].get_xdata().tolist(), ends["told late"].get_ydata().tolist()) == (
        [6],
        [4],
    )
    assert list(ends["max_delay = 3"].get_ydata()) == [3, 3]
    names = [text.get_text() for text in ages.get_legend().get_texts()]
    assert names == ["told", "told late", "pending, delay so far", "max_delay = 3"]
    with pytest.raises(ValueError, match="max_delay is 0"):
        plot_pending(history, max_delay=0)


def changing_loop(restart: Restart) -> BanditLoop:
    loop = BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3),
        GPUpperConfidenceBound.with_options(width=2.0),
        restart=restart,
    )
    values = (4.0 * CHOICES.squeeze(-1)).sin()
    parts = [ArmsProblem(CHOICES, sign * values, noise_std=0.05) for sign in (1.0, -1.0)]
    run(loop, SwitchingProblem(parts, [30]), 60, progress=False)
    return loop


def test_timeline_of_a_detector() -> None:
    detector = ChangePointDetector(
        RBFKernel(), lengthscale=0.3, ridge=0.3, threshold=PowerThreshold(scale=1.0)
    )
    loop = changing_loop(ChangePointRestart(detector=detector))
    (reset,) = loop.resets
    rewards, tests = plot_timeline(loop.history, loop.resets, loop.change_tests, [30], "restarts")
    assert rewards.figure._suptitle.get_text() == "restarts"
    from_the_loop = plot_timeline(loop, change_points=[30])
    for drawn, given in zip(from_the_loop, (rewards, tests), strict=True):
        lines = zip(drawn.get_lines(), given.get_lines(), strict=True)
        assert all(repr(a.get_xydata()) == repr(b.get_xydata()) for a, b in lines)  # with NaN
    above, below = ({line.get_label(): line for line in ax.get_lines()} for ax in (rewards, tests))
    for name, origin in (("exploration, random", "exploration"), ("chosen", "acquisition")):
        queries = [q for q in loop.history.queries if q.origin == origin]
        assert above[name].get_xdata().tolist() == [q.round_number for q in queries]
        outcomes = [loop.history.outcome(q.id) for q in queries]
        assert above[name].get_ydata().tolist() == [o.reward for o in outcomes if o is not None]
    for lines in (above, below):
        assert list(lines["true change"].get_xdata()) == [30.5, 30.5]
        assert list(lines["restart"].get_xdata()) == [reset.after_round + 0.5] * 2
        assert list(lines["estimated change"].get_xdata()) == [reset.change_round]
    change_tests = loop.change_tests
    thresholds = below["threshold"].get_ydata().tolist()
    before = [r.threshold for r in change_tests if r.after_round <= reset.after_round]
    after = [r.threshold for r in change_tests if r.after_round > reset.after_round]
    assert thresholds[: len(before)] == before
    assert math.isnan(thresholds[len(before)])  # not joined across the restart
    assert thresholds[len(before) + 1 :] == after
    assert before
    assert after
    quiet = [r.statistic for r in change_tests if not r.detected]
    assert below["statistic"].get_ydata().tolist() == quiet
    assert below["detection"].get_xdata().tolist() == [reset.after_round]
    assert below["detection"].get_ydata().tolist() == [reset.statistic]
    assert tests.get_yscale() == "log"


def test_a_loop_stands_for_its_history(loop) -> None:
    for plot in (plot_rewards, lambda run: plot_diagnostic(run, "width"), plot_pending):
        drawn, given = (plot(run) for run in (loop, loop.history))
        pairs = zip(*(getattr(a, "flat", [a]) for a in (drawn, given)), strict=True)
        for one, other in pairs:
            lines = zip(one.get_lines(), other.get_lines(), strict=True)
            assert all(repr(a.get_xydata()) == repr(b.get_xydata()) for a, b in lines)
    with pytest.raises(TypeError, match=r"history is \[\]\. Pass the loop, its history"):
        plot_timeline([])


def test_timeline_without_tests() -> None:
    loop = changing_loop(OracleRestart(change_points=(30,)))
    rewards, tests = plot_timeline(loop.history, loop.resets)
    assert tests.texts[0].get_text() == "no test for a change"
    assert tests.get_ylabel() == ""
    labels = {line.get_label() for line in rewards.get_lines()}
    assert "restart" in labels
    assert not labels & {"true change", "estimated change"}


def test_ledger_by_epoch() -> None:
    ledger = Ledger(
        constraints=torch.tensor(
            [[1.0, -1.0], [0.0, -1.0], [-2.0, 0.5], [3.0, -1.0]], dtype=torch.float64
        ),
        epochs=torch.tensor([1, 1, 2, 4]),
        multipliers=torch.tensor(
            [[0.0, 0.0], [0.5, 0.0], [0.25, 0.1], [0.0, 0.2]], dtype=torch.float64
        ),
    )
    above, below = plot_ledger(ledger, ["seconds<=1", "bytes<=2"], "a run")
    lines = {line.get_label(): line for line in above.get_lines()}
    assert lines["seconds<=1"].get_xdata().tolist() == [1, 2, 3, 4]
    assert lines["seconds<=1"].get_ydata().tolist() == pytest.approx([1.0, 0.5, -1.0 / 3.0, 0.5])
    assert lines["bytes<=2"].get_ydata().tolist() == [-1.0, -1.0, -0.5, -0.625]  # budget is left
    rectified = [line for line in above.get_lines() if line.get_label() == "_rectified"]
    assert rectified[0].get_ydata().tolist() == pytest.approx([1.0, 0.5, 1.0 / 3.0, 1.0])
    means = [line for line in above.get_lines() if line.get_label() == "_epochs"]
    assert means[0].get_xdata().tolist() == [2, 3, 4]  # the third epoch has no outcome
    assert means[0].get_ydata().tolist() == [0.5, -2.0, 3.0]
    multipliers = {line.get_label(): line for line in below.get_lines()}
    assert multipliers["seconds<=1"].get_ydata().tolist() == [0.0, 0.0, 0.5, 0.0]
    assert multipliers["bytes<=2"].get_ydata().tolist() == [0.0, 0.0, 0.0, 0.2]
    assert above.figure.get_suptitle() == "a run"
    names = [text.get_text() for text in above.get_legend().get_texts()]
    assert names[:2] == ["seconds<=1", "bytes<=2"]
    assert names[2:] == ["average so far (thick)", "rectified average (thin)", "epoch mean"]
    thick, thin, circle = above.get_legend().get_lines()[2:]
    assert thick.get_linewidth() == lines["seconds<=1"].get_linewidth()
    assert thin.get_linewidth() == rectified[0].get_linewidth()
    assert circle.get_marker() == means[0].get_marker() == "o"
    assert means[1].get_marker() != "o"


def test_a_ledger_of_one_constraint_has_one_entry_a_line() -> None:
    ledger = Ledger(
        constraints=torch.tensor([[1.0], [0.0]], dtype=torch.float64),
        epochs=torch.tensor([1, 1]),
        multipliers=torch.tensor([[0.0]], dtype=torch.float64),
    )
    above, _ = plot_ledger(ledger, ["bytes<=2"])
    names = [text.get_text() for text in above.get_legend().get_texts()]
    assert names == [
        "bytes<=2, average so far (thick)",
        "bytes<=2, rectified average (thin)",
        "epoch mean",
    ]


def test_ticks_of_evidence_go_as_far_as_it_does() -> None:
    """They were 1, 0 and -1 where the statistic went to -40."""
    known = {"quantity": "evidence", "threshold": 5.0}
    tests = [
        SimpleNamespace(after_round=t, statistic=y, detected=y > 5.0, **known)
        for t, y in enumerate([-40.0, -2.0, 1.0, 300.0], 1)
    ]
    _, ax = plot_timeline(History(1), (), tests)
    shown = [float(at) for at in ax.get_yticks()]
    assert shown == sorted(shown)
    assert {-20.0, -10.0, 0.0, 100.0} <= set(shown)
    low, high = ax.get_ylim()
    assert low <= shown[0] <= -40.0
    assert 100.0 <= shown[-1] <= high


def test_masked_rows_of_a_ledger_are_left_out() -> None:
    values = torch.tensor([[1.0], [torch.nan], [-0.5]], dtype=torch.float64)
    ledger = Ledger(
        values,
        torch.tensor([1, 1, 2]),
        torch.tensor([[0.0], [0.5]], dtype=torch.float64),
        mask=torch.tensor([True, False, True]),
    )
    above, below = plot_ledger(ledger)
    line = {line.get_label(): line for line in above.get_lines()}["constraint 1"]
    assert line.get_xdata().tolist() == [1, 2]
    assert line.get_ydata().tolist() == [1.0, 0.25]
    assert below.get_lines()[0].get_ydata().tolist() == [0.0, 0.5]


def test_a_ledger_of_replicates_is_refused() -> None:
    ledger = Ledger(
        constraints=torch.zeros(2, 3, 1, dtype=torch.float64),
        epochs=torch.ones(2, 3, dtype=torch.int64),
        multipliers=torch.zeros(2, 1, 1, dtype=torch.float64),
    )
    with pytest.raises(ValueError, match="draw one replicate at a time"):
        plot_ledger(ledger)


def test_a_ledger_of_a_loop_has_its_restarts_between_outcomes() -> None:
    """The axis counts outcomes: the last query before the reset is still pending."""
    loop = BanditLoop(
        Arms(CHOICES),
        None,
        RandomSearch(),
        constraints=AdditiveEpochs(1, 2),
        restart=OracleRestart(change_points=(4,), exploration=None),
    )
    for t in range(8):
        query = loop.ask()
        if t != 3:
            loop.tell(query.id, 0.0, constraints=[-0.5])
    for ax in plot_ledger(loop):
        (mark,) = [line for line in ax.get_lines() if line.get_label() == "restart"]
        assert list(mark.get_xdata()) == [3.5, 3.5]
    names = [text.get_text() for text in plot_ledger(loop)[0].get_legend().get_texts()]
    assert names[-1] == "restart"
    assert float(loop.ledger().average) == -0.5
    assert loop.ledger().running_average.tolist() == [[-0.5]] * 7
    with pytest.raises(TypeError, match=r"loop with constraints=, or loop\.ledger\(\)"):
        plot_ledger(loop.history)


def test_an_unknown_diagnostic_lists_the_known_ones(loop: BanditLoop) -> None:
    text = plot_diagnostic(loop.history, "multipliers").texts[0].get_text()
    assert "this method has none" in text
    assert "width" in text


def test_what_is_not_met_and_what_failed_look_different() -> None:
    history = History(dim=1, num_constraints=1)
    for _ in range(2):
        history.add_query(torch.zeros(1, dtype=torch.float64), "random", 0.0)
    history.add_outcome(0, 1.0, 0.0, (1.0,))
    history.add_failure(1, 0.0)
    lines = lines_of(plot_rewards(history))
    assert lines["failed"].get_marker() != lines["a constraint not met"].get_marker()
    assert not any(name.startswith("best") for name in lines_of(plot_rewards(history, best=False)))


def test_failed_queries_end() -> None:
    history = History(dim=1)
    for i in range(4):
        history.add_query(torch.tensor([0.1 * i], dtype=torch.float64), "initial", 0.0)
        if i == 1:
            history.add_failure(0, 0.0, "broke")
    history.add_outcome(1, 1.0, 0.0)
    lines = {line.get_label(): line for line in plot_pending(history)[1].get_lines()}
    assert lines["failed"].get_marker() == "x"
    assert lines["failed"].get_xdata().tolist() == [3]  # told after round 2


def test_each_quantity_has_a_marker_and_thresholds_end_at_a_restart() -> None:
    def reading(after_round: int, quantity: str, threshold: float) -> SimpleNamespace:
        return SimpleNamespace(
            after_round=after_round,
            statistic=0.1 * after_round,
            threshold=threshold,
            detected=(after_round, quantity) == (3, "constraint 1"),
            quantity=quantity,
        )

    history = History(dim=1)
    for _ in range(6):
        history.add_query(torch.zeros(1, dtype=torch.float64), "initial", 0.0)
    change_tests = [
        reading(t, name, level)
        for t in (2, 3, 5)
        for name, level in (("reward", 1.0), ("constraint 1", 9.0))
    ]
    resets = [SimpleNamespace(after_round=3, change_round=2)]
    tests = plot_timeline(history, resets, change_tests, change_points=None)[1]
    lines = {line.get_label(): line for line in tests.get_lines()}
    for name, level in (("reward", 1.0), ("constraint 1", 9.0)):
        x, y = (
            lines[f"threshold, {name}"].get_xdata().tolist(),
            lines[f"threshold, {name}"].get_ydata().tolist(),
        )
        assert (x[:2], x[3:]) == ([2.0, 3.0], [5.0])
        assert (y[:2], y[3:]) == ([level] * 2, [level])
        assert math.isnan(x[2])
    assert lines["statistic, reward"].get_xdata().tolist() == [2, 3, 5]
    assert lines["statistic, constraint 1"].get_xdata().tolist() == [2, 5]
    assert lines["detection, constraint 1"].get_xdata().tolist() == [3]
    assert "detection, reward" not in lines
    markers = [
        lines[name].get_marker()
        for name in ("statistic, reward", "statistic, constraint 1", "detection, constraint 1")
    ]
    assert markers == ["o", "s", "s"]
    assert lines["detection, constraint 1"].get_mfc() == "black"
    assert lines["statistic, constraint 1"].get_mfc() == "white"
    names = [text.get_text() for text in tests.get_legend().get_texts()]
    assert sorted(names) == sorted(name for name in lines if not name.startswith("_"))


def test_a_run_marks_restarts_and_changes() -> None:
    history = History(dim=1)
    for t in range(1, 7):
        known = {"segment": float(t > 4), "width": 1.0 + t}
        history.add_query(torch.zeros(1, dtype=torch.float64), "acquisition", 0.0, None, known)
    for panels in (
        plot_run(history, change_points=[3]),  # read off the segments
        plot_run(history, resets=[SimpleNamespace(after_round=4)], change_points=[3]),
    ):
        lines = lines_of(panels[0])
        assert list(lines["restart"].get_xdata()) == [4.5, 4.5]
        assert list(lines["true change"].get_xdata()) == [3.5, 3.5]
        assert lines["restart"].get_linestyle() != lines["true change"].get_linestyle()
        names = {text.get_text() for text in panels[0].figure.legends[0].get_texts()}
        assert {"true change", "restart", "pending"} <= names
    assert "restart" not in lines_of(plot_run(history, resets=[])[0])
    (line,) = plot_diagnostic(history, "width").get_lines()
    widths = line.get_ydata().tolist()
    assert widths[:4] + widths[5:] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert math.isnan(widths[4])


def test_a_ledger_has_one_name_a_constraint() -> None:
    values = torch.zeros(2, 2, dtype=torch.float64)
    ledger = Ledger(values, torch.tensor([1, 2]), torch.ones(2, 2, dtype=torch.float64))
    for names in (["a"], ["a", "b", "c"], "ab"):
        with pytest.raises(ValueError, match="one name for each of the 2"):
            plot_ledger(ledger, names)
    assert len(plot_ledger(ledger, ["a", "b"])) == 2
