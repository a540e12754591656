"""``tune``: what it finds, prints and writes, and which options it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from botorch_bandits.cli import main

pytest.importorskip("sklearn")
SHORT = ["tune", "--dataset", "iris", "--rounds", "6", "--quiet", "--out", "run"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def result(folder="run"):
    return json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))


def test_summary_and_files_have_what_was_found(capsys):
    pytest.importorskip("matplotlib")
    assert main(SHORT) == 0
    text, found = capsys.readouterr().out, result()
    assert text.splitlines()[1].startswith("svm on iris, the default")
    for name in ("rounds", "best reward", "scikit-learn's default", "random search"):
        assert any(line.startswith(name) for line in text.splitlines()), name
    assert f"{found['best_reward']:.6g}, in round {found['best_round']}" in text
    assert "that takes --prior, --method igp-ucb or gp-ts, --rkhs-bound, --noise-bound" in " ".join(
        text.split()
    )
    assert "--rounds 12" in text
    assert "SVC(C=" in text
    rows = Path("run/history.csv").read_text(encoding="utf-8").splitlines()
    rewards = [float(row.split(",")[rows[0].split(",").index("reward")]) for row in rows[1:]]
    assert len(rewards) == found["num_rounds"] == 6
    assert found["best_reward"] == max(rewards)
    assert found["mean_reward"] == pytest.approx(sum(rewards) / 6)
    assert 0.9 < found["reference"]["reward"] <= 1.0
    assert found["random_search"]["num_rounds"] == 6
    assert Path("run/run.png").stat().st_size > 1000
    best = found["recommended"]
    assert len(best["folds"]) == 5
    assert np.mean(best["folds"]) == pytest.approx(rewards[best["round"] - 1], abs=1e-12)
    wanted = f"on single folds the accuracy is {min(best['folds']):.3g} to {max(best['folds']):.3g}"
    assert wanted in " ".join(text.split())


def test_the_same_command_goes_on_to_the_points_of_one_run(capsys):
    assert main([*SHORT, "--out", "whole", "--rounds", "8"]) == 0
    assert main(SHORT) == 0
    assert main([*SHORT, "--rounds", "8"]) == 0
    assert "continuing run after 6 rounds" in capsys.readouterr().err
    assert result()["num_rounds_before"] == 6
    for name in ("best_parameters", "recommended", "mean_reward"):
        assert result()[name] == result("whole")[name]


def test_show_prints_the_rounds_of_a_folder_and_of_a_storage(capsys):
    assert main([*SHORT, "--method", "random"]) == 0
    capsys.readouterr()
    assert main(["show", "run"]) == 0
    text = capsys.readouterr().out
    assert "6: 6 told, 0 pending, 0 failed, 0 retracted" in text
    assert f"{result()['best_reward']:.6g} in round {result()['best_round']}" in text
    assert "C=Float(low=0.0001, high=100, log=True)" in text
    assert main(["show", "run/run.db"]) == 0
    assert capsys.readouterr().out == text


def test_a_prior_and_bounds_give_a_guarantee(capsys):
    known = ["--method", "igp-ucb", "--prior", "0.3:0.05:0.01:0.9"]
    known += ["--rkhs-bound", "3", "--noise-bound", "0.2"]
    assert main([*SHORT, *known]) == 0
    found = result()
    assert found["guarantee"]["holds"]
    assert found["recommended"]["certificate"] > 0.0
    text = capsys.readouterr().out
    assert "guarantee" in text
    assert "yes: " in text
    assert f"more than {found['recommended']['certificate']:.6g}" in " ".join(text.split())


def test_own_data_are_tuned(capsys):
    pytest.importorskip("pandas")
    rows = [f"{i % 7}%,{(3 * i) % 5},{'yes' if i % 7 > 3 else 'no'}" for i in range(60)]
    Path("own.csv").write_text("\n".join(["a,b,kind", *rows]), encoding="utf-8")
    own = ["--data", "own.csv", "--target", "kind", "--method", "random", "--seed", "2"]
    assert main(["tune", *own, "--rounds", "2", "--quiet"]) == 0
    found = result("runs/tune-svm-own-random-2")
    assert found["random_search"] is None
    assert found["settings"]["target"] == "kind"
    said = capsys.readouterr()
    assert "--data FILE.csv" not in said.out
    assert "note: column 'a' of own.csv is read as numbers without the unit '%'" in said.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--rounds", "0"], ["--rounds", "0", "at least 1"]),
        (["--seed", "-1"], ["--seed", "-1"]),
        (["--workers", "0"], ["--workers", "0"]),
        (["--rkhs-bound", "1"], ["--rkhs-bound", "1", "best", "igp-ucb or gp-ts"]),
        (["--prior", "0.3:1"], ["--prior", "'0.3:1'", "LENGTHSCALE:SCALE:NOISE"]),
        (["--prior", "0.3:-1:0.1"], ["--prior, SCALE", "-1"]),
        (["--data", "own.csv"], ["--data", "own.csv", "--target", "give both"]),
        (["--data", "none.csv", "--target", "y"], ["none.csv", "CSV"]),
        (["--method", "igp-ucb", "--rkhs-bound", "-1"], ["rkhs_bound", "-1"]),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(options, named, capsys):
    assert main([*SHORT, *options]) == 2
    said = capsys.readouterr().err
    assert [word for word in named if word not in said] == []
    assert len(said.splitlines()) == 1
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--dataset", "nonsense"], ["--dataset", "'nonsense'", "digits"]),
        (["--budget", "fit_seconds<=1"], ["--budget"]),
        (["--rounds", "many"], ["--rounds", "'many'"]),
    ],
)
def test_arguments_that_the_parser_refuses(options, named, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tune", *options])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert [word for word in named if word not in said] == []


def test_a_folder_with_other_settings_is_refused(capsys):
    short = [*SHORT, "--method", "random"]
    assert main(short) == 0
    before = Path("run/run.db").read_bytes()
    for other in (["--seed", "1"], ["--task", "logistic-regression"], ["--dataset", "wine"]):
        assert main([*short, *other]) == 2
        said = capsys.readouterr().err
        assert "run holds a run with" in said
        assert other[1] in said
        assert "--out" in said
    assert Path("run/run.db").read_bytes() == before


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_a_damaged_folder_is_refused(content, capsys):
    Path("run").mkdir()
    Path("run/settings.json").write_text(content, encoding="utf-8")
    assert main(SHORT) == 2
    assert "--out" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder_is_refused(capsys):
    Path("run").write_text("", encoding="utf-8")
    assert main(SHORT) == 2
    assert "output folder run" in capsys.readouterr().err


def test_show_refuses_what_is_no_storage(capsys):
    Path("text").write_text("no storage\n", encoding="utf-8")
    for path in ("nowhere", ".", "text"):
        assert main(["show", path]) == 2
        assert path in capsys.readouterr().err
