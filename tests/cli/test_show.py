"""What ``show`` reads from the header of a journal, and builds again from it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from benchmarks.fault_cases import SETTING_NAMES, build, play
from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    Exponential,
    Float,
    GPUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    OracleRestart,
    PrimalDual,
    RandomSearch,
    Space,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.cli import main
from botorch_bandits.cli.show import (
    censored_feedback,
    describe,
    describe_setting,
    read_history,
    rebuild_ledger,
    reset_reason,
)
from botorch_bandits.fingerprints import fingerprint
from botorch_bandits.history import History
from botorch_bandits.journal import Journal

matplotlib.use("Agg")


def described(setting: Any) -> str:
    return describe_setting(fingerprint({"it": setting})["it"])


def test_kernels_are_described_with_their_parameters() -> None:
    kernel = ScaleKernel(RBFKernel(active_dims=(0,)) * MaternKernel(nu=1.5, ard_num_dims=2))
    kernel.outputscale = 2.0
    kernel.base_kernel.kernels[1].lengthscale = torch.tensor([0.25, 0.5])
    assert described(kernel.double()) == (
        "ScaleKernel(ProductKernel(RBFKernel(active_dims=0, lengthscale=0.693147), "
        "MaternKernel(ard_num_dims=2, nu=1.5, lengthscale=[0.25, 0.5])), outputscale=2)"
    )


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        (Box([[0.0], [2.0]]), "Box(bounds=[[0], [2]], num_restarts=10, raw_samples=256)"),
        (Arms([[float(i)] for i in range(20)]), "Arms(choices=20 x 1)"),
        (GPUpperConfidenceBound.with_options(width=2.5), "GPUpperConfidenceBound(width=2.5)"),
        (RandomSearch(), "RandomSearch"),
        (None, "None"),
        (
            MultiplicativeEpochs(2, 5, penalty=Exponential()),
            "MultiplicativeEpochs(epoch_length=5, num_constraints=2, penalty=Exponential(c=1), ",
        ),
    ],
    ids=["box", "arms", "acquisition", "random", "none", "constraints"],
)
def test_settings_are_described_as_they_are_written(setting: Any, wanted: str) -> None:
    assert described(setting).startswith(wanted)


def test_long_lists_and_many_failures_are_short(tmp_path: Path) -> None:
    priors = [BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=s) for s in range(1, 17)]
    told = described(EvidenceRestart(candidates=priors))
    assert "lengthscale=1)" in told
    assert "lengthscale=16)" in told
    assert "lengthscale=2)" not in told
    assert "(16 in all)" in told
    assert described(EvidenceRestart(candidates=priors[:3])).count("BanditGP") == 3
    path = tmp_path / "run.journal"
    domain = Box([[0.0], [1.0]])
    with BanditLoop.open(path, domain, None, RandomSearch()) as loop:
        for k in range(10):
            loop.tell_failed(loop.ask().id, reason="never came" if k % 3 else "broke")
        reader = Journal.read(path)
        shown = describe(reader, loop.history, 0.0)
        assert len(re.findall(r"^\d +\d+ +never came$", shown, re.MULTILINE)) == 6
        loop.tell_failed(loop.ask().id, reason="never came")
        shown = describe(Journal.read(path), loop.history, 0.0)
    assert re.search(r"^4 +1 to 10 +broke\n7 +2 to 11 +never came$", shown, re.MULTILINE)


def test_detectors_have_a_row_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    detector = ChangePointDetector(
        MaternKernel(nu=2.5), lengthscale=0.5, ridge=0.25, threshold=PowerThreshold(scale=3.0)
    )
    with BanditLoop.open(
        path,
        Box([[0.0], [1.0]]),
        BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.125, lengthscale=0.75, refit_every=7),
        GPUpperConfidenceBound.with_options(width=2.0),
        restart=ChangePointRestart(detector=detector),
        horizon=50,
    ):
        pass
    shown = describe(Journal.read(path), History(1), 0.0)
    for row in (
        r"model +BanditGP\(noise=0\.125, prior_mean=0, refit_every=7\)",
        r"kernel +MaternKernel\(nu=2\.5, lengthscale=0\.75\)",
        r"restart +ChangePointRestart\(exploration=1\.73205, .*\)",
        r"detector +ChangePointDetector\(kernel=MaternKernel\(nu=2\.5, lengthscale=0\.5\), .*"
        r"ridge=0\.25, .*threshold=PowerThreshold\(exponent=-?[\d.]+, scale=3\)\)",
        r"horizon +50",
        r"seed +0",
    ):
        assert re.search(rf"^{row}$", shown, re.MULTILINE), row


@pytest.mark.parametrize("unit", ["rounds", "seconds"])
def test_late_is_what_censored_feedback_calls_late(tmp_path: Path, unit: str) -> None:
    now = [0.0]
    feedback = Censored(minimum=0.0, max_delay=3, unit=unit)
    path = tmp_path / "run.journal"
    with (
        BanditLoop.open(
            path,
            Box([[0.0], [1.0]]),
            BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.1),
            GPUpperConfidenceBound.with_options(width=2.0),
            feedback=feedback,
            clock=lambda: now[0],
        ) as loop,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        for i in range(8):
            now[0] += 0.5 + i % 2
            loop.ask()
            if i in (2, 4, 6):
                loop.tell(i // 2 - 1, 1.0)
        late = loop.feedback_view().late
        lost = set(loop.feedback_view().lost) - set(late)
        history = loop.history
    assert censored_feedback(Journal.read(path).header["settings"]) == feedback
    shown = describe(Journal.read(path), history, now[0])
    assert f"({history.num_arrived} after later ones were asked, {len(late)} late: " in shown
    assert late
    assert lost
    for query in history.queries:
        row = re.search(rf"^{query.round_number} +acquisition +(.*?)  ", shown, re.MULTILINE)
        assert row is not None
        state = history.state(query.id) + " late" * (query.id in late)
        assert row[1] == state
        if state == "pending":
            row = re.search(rf"^{query.id} +{query.round_number} +(.*)$", shown, re.MULTILINE)
            assert row is not None
            assert row[1].endswith("given up") == (query.id in lost)


RULES = {
    "additive": AdditiveEpochs(num_constraints=2, epoch_length=3),
    "fresh": AdditiveEpochs(num_constraints=2, epoch_length=3, surrogate="fresh"),
    "multiplicative": MultiplicativeEpochs(2, 3, penalty=Exponential(), max_multiplier=50.0),
    "every round": PrimalDual(num_constraints=2, max_multiplier=10.0, divisor=2.0),
}


WITH_RESTARTS = [f"{name}, restart" for name in RULES if name != "fresh"]


@pytest.mark.parametrize("name", [*RULES, *WITH_RESTARTS])
def test_the_ledger_is_that_of_the_loop(tmp_path: Path, name: str) -> None:
    name, _, restarts = name.partition(", ")
    rule, restart = RULES[name], OracleRestart(change_points=(7,)) if restarts else None
    engine = (
        LagrangianUpperConfidenceBound.with_options(width=2.0)
        if rule.surrogate_in_use == "separate"
        else GPUpperConfidenceBound.with_options(width=2.0)
    )
    with BanditLoop(
        Arms([[0.1 * i] for i in range(8)]),
        BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.1, lengthscale=0.3),
        engine,
        constraints=rule,
        restart=restart,
        journal=tmp_path / "run.journal",
    ) as loop:
        waiting = []
        for i in range(14):
            waiting.append(loop.ask())
            if i % 3:
                query = waiting.pop(0)
                x = float(query.x)
                loop.tell(query.id, x, [x - 0.3, 0.2 - x])
        settings = Journal.read(tmp_path / "run.journal").header["settings"]
        ledger = rebuild_ledger(settings, loop.history)
        assert ledger is not None
        assert ledger.to_records() == loop.ledger().to_records()
        assert reset_reason(settings) == ("oracle" if restart else "")


def test_the_ledger_of_a_loop_with_a_detector(tmp_path: Path) -> None:
    """An outcome between a detection and the next query aside, it is the loop's own."""
    detector = ChangePointDetector(
        MaternKernel(nu=2.5), lengthscale=0.3, ridge=0.3, threshold=PowerThreshold(scale=0.5)
    )
    with BanditLoop(
        Arms([[0.1 * i] for i in range(8)]),
        BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.1, lengthscale=0.3),
        GPUpperConfidenceBound.with_options(width=2.0),
        constraints=RULES["additive"],
        restart=ChangePointRestart(detector=detector),
        journal=tmp_path / "run.journal",
    ) as loop:
        for i in range(40):
            query = loop.ask()
            x = float(query.x)
            loop.tell(query.id, x if i < 20 else -x, [x - 0.3, 0.2 - x])
        assert loop.resets
        settings = Journal.read(tmp_path / "run.journal").header["settings"]
        ledger = rebuild_ledger(settings, loop.history)
        assert ledger is not None
        assert ledger.to_records() == loop.ledger().to_records()
        assert reset_reason(settings) == "detection"


def test_a_ledger_that_cannot_be_told_is_not_made_up(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    rule = AdditiveEpochs(num_constraints=1, epoch_length=2)
    with BanditLoop.open(path, Box([[0.0], [1.0]]), None, RandomSearch(), constraints=rule) as loop:
        for _ in range(6):
            loop.tell(loop.ask().id, 0.0, [1.0])
        settings = Journal.read(path).header["settings"]
        own = {**settings, "constraints": {**settings["constraints"], "class": "mine:Rule"}}
        assert rebuild_ledger(own, loop.history) is None
        # multipliers that are on record contradict the rule
        other = {**settings, "constraints": {**settings["constraints"], "step_size": 0.125}}
        assert rebuild_ledger(other, loop.history) is None
        assert rebuild_ledger(settings, loop.history) is not None
        rule = fingerprint({"it": MultiplicativeEpochs(1, 2)})["it"]
        rule["penalty"] = {"class": "botorch_bandits:CustomPenalty", "function": "mine:function"}
        assert rebuild_ledger({**settings, "constraints": rule}, loop.history) is None


def test_epochs_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.journal"
    rule = AdditiveEpochs(num_constraints=1, epoch_length=2, step_size=0.5)
    with BanditLoop.open(path, Box([[0.0], [1.0]]), None, RandomSearch(), constraints=rule) as loop:
        for value in (0.5, -0.25, 1.0, 1.0, 0.0):
            loop.tell(loop.ask().id, 0.0, [value])
        multipliers = [q.diagnostics["multiplier_1"] for q in loop.history.queries]
    assert main(["show", str(path)]) == 0
    assert "epoch  constraint" not in capsys.readouterr().out
    assert main(["show", str(path), "--epochs"]) == 0
    shown = capsys.readouterr().out
    table = shown[shown.index("epoch  constraint") :].splitlines()
    rows = [[float(cell) for cell in line.split()] for line in table[1:4]]
    assert rows == [
        [1, 1, 2, 0.25, 0.5, multipliers[0]],
        [2, 1, 2, 2.0, 2.0, pytest.approx(multipliers[2], rel=1e-5)],
        [3, 1, 1, 0.0, 0.0, pytest.approx(multipliers[4], rel=1e-5)],
    ]
    unconstrained = tmp_path / "other.journal"
    with BanditLoop.open(unconstrained, Box([[0.0], [1.0]]), None, RandomSearch()) as loop:
        loop.ask()
    assert main(["show", str(unconstrained), "--epochs"]) == 0
    assert "there are no constraints" in capsys.readouterr().out


def test_constraints_without_outcomes_are_not_denied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.journal"
    rule = AdditiveEpochs(num_constraints=1, epoch_length=2)
    with BanditLoop.open(path, Box([[0.0], [1.0]]), None, RandomSearch(), constraints=rule) as loop:
        loop.tell_failed(loop.ask().id, reason="first line\n  second line")
    assert main(["show", str(path), "--epochs"]) == 0
    shown = capsys.readouterr().out
    assert "epochs: none yet, because no outcome has been told" in shown
    assert "first line second line" in shown  # one row of the table
    (heading,) = (line.split() for line in shown.splitlines() if line.startswith("failed"))
    assert heading == ["failed", "round", "reason"]
    assert "0       1      first line" in shown


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_every_kind_of_loop_is_shown(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.journal"
    with warnings.catch_warnings(), build(name, journal=path) as loop:
        warnings.simplefilter("ignore")
        play(loop, 25)
        constraints, history = loop.settings.constraints, loop.history
    reader = Journal.read(path)
    shown = describe(reader, read_history(reader), 0.0, with_epochs=True)
    assert f"{history.num_queries}: {history.num_arrived} told" in shown
    assert re.search(r"^kernel +\w+\(.*lengthscale=0\.3", shown, re.MULTILINE)
    assert "?" not in shown
    if constraints is not None:
        ledger = rebuild_ledger(reader.header["settings"], history)
        assert ledger is not None
        assert ledger.to_records() == loop.ledger().to_records()


def test_resets_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    path = tmp_path / "run.journal"
    with build("arms, restarts", journal=path) as loop:
        play(loop, 60)
        wanted = len(loop.resets)
    assert wanted
    drawn = []
    monkeypatch.setattr(plt, "close", lambda figure: drawn.append(figure))
    assert main(["show", str(path), "--plot", str(tmp_path / "run.png")]) == 0
    (figure,) = drawn
    over_rounds = [ax for ax in figure.axes if ax.get_xlabel() == "round"]
    assert over_rounds
    for ax in over_rounds:
        solid = [
            line
            for line in ax.get_lines()
            if len(line.get_xdata()) == 2 and line.get_xdata()[0] == line.get_xdata()[1]
        ]
        assert [line.get_xdata()[0] % 1 for line in solid] == [0.5] * wanted
    monkeypatch.undo()
    plt.close("all")


@pytest.mark.parametrize(
    ("domain", "names"),
    [
        (
            Space({"C": Float(1e-3, 10.0, log=True), "kind": Categorical(["a", "b"])}),
            ["C", "kind"],
        ),
        (Box([(0.0, 1.0), (0.0, 3.0)], integer_dims=[1]), ["x1", "x2"]),
    ],
    ids=["space", "box"],
)
def test_points_are_drawn_in_the_parameters_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, domain: Box, names: list[str]
) -> None:
    import matplotlib.pyplot as plt

    path = tmp_path / "run.journal"
    with BanditLoop.open(path, domain, None, RandomSearch()) as loop:
        for _ in range(3):
            query = loop.ask()
            loop.tell(query.id, float(query.x.sum()))
    drawn = []
    monkeypatch.setattr(plt, "close", lambda figure: drawn.append(figure))
    assert main(["show", str(path), "--plot", str(tmp_path / "run.png")]) == 0
    first, second = drawn[0].axes[1:]
    assert [first.get_xlabel(), second.get_xlabel()] == names
    if isinstance(domain, Space):
        assert [t.get_text() for t in second.get_xticklabels()] == ["a", "b"]
    low, high = domain.bounds[:, 0].tolist()
    assert first.get_xlim()[0] < low < high < first.get_xlim()[1]
    monkeypatch.undo()
    plt.close("all")


def test_what_was_found_and_what_can_be_typed_next_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, picture = tmp_path / "a run.journal", tmp_path / "run.png"
    domain = Space({"C": Float(1e-3, 10.0, log=True), "kind": Categorical(["a", "b"])})
    with BanditLoop.open(path, domain, num_initial=2) as loop:
        for reward in (0.25, 0.125, 0.5):
            best = loop.ask()
            loop.tell(best.id, reward)
    assert main(["show", str(path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    found = lines.index("best reward 0.5 in round 3")
    assert best.parameters is not None
    assert lines[found + 1 : found + 4] == [
        f"C {best.parameters['C']:.6g}",
        f"kind {best.parameters['kind']}",
        "random points 0.25, the best of the 2 with which the run began",
    ]
    assert lines[-3:] == [
        "next",
        f"go on, in Python BanditLoop.open('{path}', ...)",
        f"picture botorch-bandits show '{path}' --plot run.png",
    ]
    assert main(["show", str(path), "--plot", str(picture)]) == 0
    assert "--plot" not in capsys.readouterr().out
    Path(f"{path}.scores").touch()  # the second file of BanditSearchCV
    assert main(["show", str(path)]) == 0
    assert f"BanditSearchCV(..., journal='{path}').fit(X, y)" in capsys.readouterr().out
    (tmp_path / "result.json").touch()
    assert main(["show", str(tmp_path)]) == 2
    assert "the numbers are in its result.json" in capsys.readouterr().err


def test_the_next_commands_of_a_run_are_those_that_continue_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_to_show.py").write_text("def f(x):\n    return float(x[0])\n")
    arguments = "optimize mine_to_show:f --bounds 0:1 --rounds 2 --quiet --journal a.journal"
    assert main(arguments.split()) == 0
    assert main(["show", "a.journal"]) == 0
    shown = capsys.readouterr().out.split("picture: ")[0]
    step = "botorch-bandits resume a.journal --rounds 4"
    assert shown.count(step) == 2  # of the run itself, and of show
    assert main([*step.split()[1:], "--trust"]) == 0
    assert "4 of 4" in capsys.readouterr().out
