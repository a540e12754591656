"""``--stop-below`` and ``--prior``: runs that end with a certificate, shown and resumed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from botorch_bandits import BanditLoop, Box, StopRun, run
from botorch_bandits.cli import main
from botorch_bandits.cli.arguments import build_parser
from botorch_bandits.cli.options import Prior
from botorch_bandits.journal import Journal
from botorch_bandits.spaces import Categorical, Float, Space

FUNCTION = """
def reward(x):
    return 1.0 - 4.0 * (x[0] - 0.3) ** 2

def cost(x):
    return -reward(x)
"""

OPTIMIZE = ["optimize", "certain_module:reward", "--bounds", "0:1", "--initial", "2", "--quiet"]
KNOWN = ["--method", "igp-ucb", "--rkhs-bound", "2", "--noise-bound", "0.2"]
PRIOR = ["--prior", "0.5:1:0.2"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "certain_module.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "certain_module", raising=False)
    return tmp_path


def result_in(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def kinds(path: Path) -> list[str]:
    return [record["kind"] for record in Journal.read(path).records()]


def test_a_run_stops_is_shown_and_goes_on_if_asked_for_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = ["--journal", "run.journal", "--out", "run"]
    arguments = [*OPTIMIZE, *KNOWN, *PRIOR, *journal, "--rounds", "40"]
    assert main([*arguments, "--stop-below", "2.5"]) == 0
    told = capsys.readouterr().out
    stopped = result_in(folder / "run")["stopped"]
    assert stopped.startswith("certificate ")
    certificate = float(stopped.split()[1])
    assert certificate <= 2.5
    played = result_in(folder / "run")["num_rounds"]
    assert 2 < played < 40
    found = result_in(folder / "run")["recommended"]
    assert found["certificate"] == found["best_possible"] - found["lower_bound"] > 0.0
    assert re.search(r"^certificate +no point is better than this one by more than", told, re.M)
    statements = result_in(folder / "run")["guarantee"]["statements"]
    assert statements["regret"]["num_rounds"] == played - 2
    assert statements["regret"]["bound"] > 0.0
    assert stopped in " ".join(told.split())
    assert "resume run.journal --rounds 40 --stop-below 1.25" in told
    assert kinds(folder / "run.journal")[-1] == "stopped"
    assert kinds(folder / "run.journal").count("stopped") == 1
    assert main(["show", "run.journal"]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"^stopped +{re.escape(stopped)}$", shown, re.MULTILINE)
    # it is over, and stays so unless more is asked for; nothing is written twice
    for more in ([], ["--rounds", "60"]):
        assert main(["resume", "--trust", "run.journal", "--quiet", *more]) == 0
        assert f"after {played} rounds, where it had stopped: {stopped}" in capsys.readouterr().err
        assert result_in(folder / "run")["num_rounds"] == played
        assert result_in(folder / "run")["stopped"] == stopped
    assert kinds(folder / "run.journal").count("stopped") == 1
    assert main(["resume", "--trust", "run.journal", "--quiet", "--stop-below", "1.5"]) == 0
    later = result_in(folder / "run")
    assert later["num_rounds"] > played
    assert float(later["stopped"].split()[1]) <= 1.5
    assert kinds(folder / "run.journal").count("stopped") == 2
    # the choices are those of a run that was not interrupted
    whole = ["--journal", "whole.journal", "--out", "whole", "--rounds", "40"]
    assert main([*OPTIMIZE, *KNOWN, *PRIOR, *whole, "--stop-below", "1.5"]) == 0
    points = [
        [r["x"] for r in Journal.read(folder / name).records() if r["kind"] == "asked"]
        for name in ("run.journal", "whole.journal")
    ]
    assert points[0] == points[1]
    # with a further round the run has not stopped any more
    capsys.readouterr()
    further = ["--stop-below", "1e-6", "--rounds", str(len(points[0]) + 1)]
    assert main(["resume", "--trust", "whole.journal", "--quiet", *further]) == 0
    assert main(["show", "whole.journal"]) == 0
    assert "stopped " not in capsys.readouterr().out


def test_a_cost_and_the_folder_without_a_journal(folder: Path) -> None:
    least = ["optimize", "certain_module:cost", "--minimize", *OPTIMIZE[2:]]
    for arguments, name in ((OPTIMIZE, "up"), (least, "down")):
        given = [*arguments, *KNOWN, *PRIOR, "--rounds", "30", "--stop-below", "2.5"]
        assert main([*given, "--out", name]) == 0
    up, down = (result_in(folder / name) for name in ("up", "down"))
    assert up["stopped"].split()[1] == down["stopped"].split()[1]
    assert up["num_rounds"] == down["num_rounds"]
    assert up["best_reward"] == -down["best_reward"]


REFUSED = {
    "a fitted model": ([*KNOWN], "the model is fitted to the same outcomes.*Give --prior"),
    "no bounds": (["--method", "igp-ucb", *PRIOR], "this loop cannot have a certificate"),
    "no width": (["--method", "ei", *PRIOR], "this loop cannot have a certificate"),
    "random": (["--method", "random", *PRIOR], "random search has no model"),
    "a number": ([*KNOWN, *PRIOR, "--stop-below", "-1"], "--stop-below is -1"),
    "no prior": ([*KNOWN, "--prior", "0.2:1"], "--prior is '0.2:1'; it must be LENGTHSCALE"),
    "a scale of 0": ([*KNOWN, "--prior", "0.2:0:0.1"], "--prior, SCALE, is 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_certified_is_refused_before_anything_is_written(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, match = REFUSED[name]
    given = [*OPTIMIZE, "--stop-below", "0.5", "--out", "run", "--journal", "run.journal"]
    assert main([*given, *arguments]) == 2
    assert re.search(match, capsys.readouterr().err)
    assert not (folder / "run").exists()
    assert not (folder / "run.journal").exists()


def test_the_prior_is_that_of_the_text_on_boxes_and_spaces() -> None:
    prior = Prior.read("0.2:3:0.5:7")
    assert prior == Prior(0.2, 3.0, 0.5, 7.0)
    space = Space({"x": Float(0.0, 4.0), "kind": Categorical(["a", "b", "c"])})
    for domain, apart in ((Box([[0.0, 0.0], [4.0, 2.0]]), 0.5), (space, 2.0**0.5)):
        recipe = prior.recipe(domain)
        assert (recipe.noise, recipe.prior_mean) == (pytest.approx(0.25), 7.0)
        ends = np.array([[1.0, 0.0], [1.0, 1.0]])
        X = recipe.input_transform(torch.from_numpy(ends))
        r = 5.0**0.5 * apart / 0.2
        value = 9.0 * (1.0 + r + r * r / 3.0) * np.exp(-r)
        K = recipe.kernel(X).to_dense().detach().numpy()
        assert np.allclose(K, [[9.0, value], [value, 9.0]], atol=1e-8)
    assert Prior.read(None) is None


def test_what_was_typed_short_means_what_it_did() -> None:
    parser = build_parser()
    for short in ("--sto", "--stop", "--stop-"):
        options = parser.parse_args(["optimize", "a:b", short, "5", "--p", "x=float:0:1"])
        assert (options.stop_after_no_gain, options.stop_below) == (5, None)
        assert options.param == ["x=float:0:1"]


def test_python_runs_write_down_why_they_stopped(tmp_path: Path) -> None:
    def stop(query: Any, event: Any) -> None:
        if event.reward > 0.9:
            raise StopRun("good enough")

    def settings() -> Any:
        path = tmp_path / "run.journal"
        return BanditLoop(Box([[0.0], [1.0]]), None, None, journal=path, num_initial=30)

    with settings() as loop:
        result = run(loop, lambda x: float(x), 30, on_round=stop, progress=False)
        assert result.stopped == "good enough"
        again = loop.ask()  # the loop goes on where it was
        assert again.id == len(result.rewards)
    assert kinds(tmp_path / "run.journal")[-2:] == ["stopped", "asked"]
    with settings() as loop:
        assert loop.history.num_pending == 1
