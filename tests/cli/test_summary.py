"""The closing lines of a run, of what ``result.json`` has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from botorch_bandits import BanditLoop, Box, RandomSearch
from botorch_bandits.cli.summary import (
    against_random_search,
    best_at_the_start,
    closing_lines,
    expected_at,
    next_steps,
    recommended_by,
    rounds_in,
    with_numbers,
)
from botorch_bandits.random_baseline import RandomBaseline

RESULT: dict[str, Any] = {
    "num_rounds": 40,
    "num_arrived": 40,
    "num_pending": 0,
    "num_lost": 0,
    "num_late": 0,
    "num_failed": 0,
    "stopped": None,
    "interrupted": False,
    "seconds": 7.123,
    "best_reward": 0.984179,
    "best_round": 12,
    "best_parameters": {"C": 9.957643, "depth": 3, "kernel": "rbf"},
    "mean_reward": 0.92,
    "reference": {"name": "scikit-learn's default", "reward": 0.977146},
    "random_search": None,
    "start": None,
    "expected_at_best": {"mean": 0.9836, "standard_deviation": 0.0006},
    "recommended": None,
    "guarantee": {
        "holds": False,
        "verdict": "no guarantee",
        "theorem": None,
        "statements": {},
        "gaps": ["the prior mean is not constant", "it forgets"],
    },
}


def lines_of(result: dict[str, Any], **settings: Any) -> dict[str, str]:
    steps = next_steps(result, settings.pop("arguments", ["tune"]), 40)
    text = closing_lines("an svm", result, 40, "runs/x", [], steps, **settings)
    rows = [line.strip().split("  ", 1) for line in text.splitlines() if "  " in line.strip()]
    return {name.strip(): value.strip() for name, value in rows}


def test_what_was_found_against_what_and_how_sure() -> None:
    baseline = RandomBaseline([*[0.9] * 190, *[0.98] * 8, *[0.9842] * 2])
    search = against_random_search(baseline, 40, 0.984179)
    lines = lines_of({**RESULT, "random_search": search})
    assert lines["rounds"] == "40 of 40 in 7.1 s"
    assert lines["best reward"] == "0.984179, in round 12"
    assert (lines["C"], lines["depth"], lines["kernel"]) == ("9.95764", "3", "rbf")
    assert lines["scikit-learn's default"] == "0.977146"
    mean = baseline.expected_best(40)
    share = round(100 * baseline.chance(40, 0.984179))
    text = (
        f"{mean:.6g} on average after 40 rounds; {share} of 100 such searches find as much, which"
    )
    assert lines["random search"].startswith(text[:60])
    assert "takes 100 rounds" in closing_text({**RESULT, "random_search": search})
    assert lines["on the way"].startswith("0.92 a round, random search 0.90")
    assert lines["the model expects"].startswith("0.9836 +- 0.0012 there (two standard deviat")
    known = "deviations; this leaves out what your function holds fixed, such as data or folds)"
    assert known in closing_text(RESULT)
    tuned = closing_text({**RESULT, "settings": {"task": "svm"}})
    assert "deviations; with other folds, it can differ by far more)" in tuned
    assert lines["guarantee"] == "none: the prior mean is not constant (1 more in result.json)"


def closing_text(result: dict[str, Any]) -> str:
    text = closing_lines("an svm", result, 40, "runs/x", [], next_steps(result, ["tune"], 40))
    return " ".join(text.split())


def test_what_random_search_never_found_is_said() -> None:
    search = against_random_search(RandomBaseline([0.1] * 50), 40, 0.9)
    assert search is not None
    assert search["rounds_to_as_good"] is None
    text = closing_text({**RESULT, "random_search": search})
    assert "none of 50 random points is as good" in text
    # of more rounds than there are points, no more can be said
    longer = against_random_search(RandomBaseline([0.1] * 50), 80, 0.9)
    assert longer is not None
    assert longer["num_rounds"] == 50
    assert against_random_search(None, 40, 0.9) is None
    assert against_random_search(RandomBaseline([0.1]), 0, None) is None


def test_the_next_command_goes_on_from_what_was_typed() -> None:
    typed = ["optimize", "m:f", "--bounds", "0:1", "--rounds", "30", "--overwrite", "--out", "a b"]
    assert with_numbers(typed, {"--rounds": 60}) == [*typed[:4], "--out", "a b", "--rounds", "60"]
    assert with_numbers(["tune", "--round=8", "--rkhs-bound", "2"], {"--rounds": 9}) == [
        *("tune", "--rkhs-bound", "2", "--rounds", "9")
    ]
    over = dict(next_steps(RESULT, typed, 40, in_python="{'x': 0.5}"))
    assert over["more rounds"].endswith("--out 'a b' --rounds 80")
    assert over["in Python"] == "{'x': 0.5}"
    assert "your function" not in over
    short = dict(next_steps({**RESULT, "num_rounds": 7}, ["tune"], 40))
    assert short["go on"] == "botorch-bandits tune --rounds 40"
    assert short["your data"].startswith("botorch-bandits tune --data")
    failed = {**RESULT, "num_failed": 40, "num_arrived": 0}
    assert dict(next_steps(failed, typed, 40))["start over"].endswith("'a b' --overwrite")
    assert list(dict(next_steps(failed, typed, 40, journal="a"))) == ["look at it"]
    assert "more rounds" in dict(next_steps({**failed, "num_arrived": 1}, typed, 40))
    kept = dict(next_steps(RESULT, ["tune"], 40, journal="a.journal"))
    assert kept["more rounds"] == "botorch-bandits resume a.journal --rounds 80"
    assert kept["look at it"] == "botorch-bandits show a.journal"
    ended = {**RESULT, "num_rounds": 7, "stopped": "no gain in 5 rounds"}
    typed = ["tune", "--stop-after-no", "5", "--step-size=1"]
    longer = dict(next_steps(ended, typed, 40, no_gain=5))["go on"]
    assert longer == "botorch-bandits tune --step-size=1 --rounds 40 --stop-after-no-gain 10"
    longer = dict(next_steps(ended, typed, 40, journal="a", no_gain=5))["go on"]
    assert longer == "botorch-bandits resume a --rounds 40 --stop-after-no-gain 10"


def test_what_is_typed_is_never_broken() -> None:
    arguments = ["optimize", "m:f", *(f"--param=x{i}=float:0:1" for i in range(20))]
    steps = next_steps(RESULT, arguments, 40, in_python=repr([0.5] * 40))
    text = closing_lines("f", RESULT, 40, "runs/x", [], steps)
    (line,) = [line for line in text.splitlines() if "more rounds" in line]
    assert line.endswith("--rounds 80")
    assert repr([0.5] * 40) in text


@pytest.mark.parametrize(
    ("change", "name", "expected"),
    [
        ({"num_pending": 2, "num_late": 1, "num_lost": 1}, "outcomes", "40 arrived (1 late), 2 p"),
        ({"num_pending": 2}, "outcomes", "40 arrived, 2 pending"),
        ({"num_rounds_before": 12}, "rounds", "40 of 40, 28 of them now, in 7.1 s"),
        (
            {"settings": {"method": "best", "rkhs_bound": None, "noise_bound": None}},
            "guarantee",
            "none: no theorem says how close to optimal this is; that takes --prior,",
        ),
        (
            {"settings": {"method": "gp-ts", "prior": "1", "rkhs_bound": 1.0, "noise_bound": 1.0}},
            "guarantee",
            "none: the prior mean is not constant (1 more in result.json)",
        ),
        ({"stopped": "no gain in 10 rounds"}, "stopped", "no gain in 10 rounds"),
        ({"num_failed": 1}, "failed", "1 evaluation (reasons"),
        ({"num_failed": 3}, "failed", "3 evaluations (reasons"),
        ({"interrupted": True, "num_rounds": 7}, "rounds", "7 of 40 in 7.1 s, interrupted"),
        (
            {"guarantee": {"holds": True, "theorem": "Theorem 2"}},
            "guarantee",
            "yes: Theorem 2",
        ),
        (
            {
                "guarantee": {
                    "holds": False,
                    "verdict": "guaranteed in part",
                    "theorem": "Theorem 2",
                    "statements": {"bands": {"holds": False}, "regret": {"holds": True}},
                }
            },
            "guarantee",
            "in part (regret, but not confidence bounds): Theorem 2 (why",
        ),
        (
            {
                "guarantee": {
                    "holds": False,
                    "verdict": "guaranteed in part",
                    "theorem": "Theorem 2",
                    "statements": {
                        "bands": {"holds": False, "num_rounds": None, "num_other_rounds": 0},
                        "regret": {"holds": True, "num_rounds": 0, "num_other_rounds": 25},
                    },
                }
            },
            "guarantee",
            "in part (regret in 0 of 25 rounds, but not confidence bounds): Theorem",
        ),
        ({"num_failed": 3}, "rounds", "40 of 40 (3 failed) in"),
    ],
)
def test_what_only_some_runs_have(change: dict[str, Any], name: str, expected: str) -> None:
    assert name in ("rounds", "guarantee") or name not in lines_of(RESULT)
    assert lines_of({**RESULT, **change})[name].startswith(expected)


def test_the_recommended_point_need_not_be_the_best_one() -> None:
    found = {
        "parameters": {"C": 2.0},
        "round": 7,
        "is_penalized": False,
        "mean": 0.98,
        "standard_deviation": 0.001,
        "certificate": 0.25,
        "delta": 0.1,
    }
    result = {**RESULT, "recommended": found}
    text = closing_text(result)
    assert "the point of round 7 (best confidence bound among the points that were" in text
    assert "where the model expects 0.98 +- 0.002 C 2 certificate no point is better than" in text
    assert "by more than 0.25, with probability 0.9" in text
    assert "confidence bounds 0.9" not in text
    found |= {"lower_bound": 0.9, "upper_bound": 1.1, "trivial_certificate": 4.0}
    assert "confidence bounds 0.9 to 1.1 at that point, with probability 0.9" in closing_text(
        result
    )
    found |= {"trivial_certificate": 0.25}
    assert "by more than 0.25, but that is 2 B" in closing_text(result)
    found |= {"certificate": None, "parameters": RESULT["best_parameters"]}
    assert lines_of(result)["recommended"].startswith("the same point (best posterior mean among")
    assert "certificate" not in lines_of(result)
    loop = BanditLoop(Box([(0.0, 1.0)]), num_initial=3)
    assert recommended_by(loop) is None
    for _ in range(4):
        query = loop.ask()
        loop.tell(query.id, float(query.x))
    told = recommended_by(loop)
    assert told is not None
    assert told["round"] == loop.best()[0].round_number  # type: ignore[index]
    assert told["certificate"] is None
    assert told["reasons"]
    random = BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch())
    random.tell(random.ask().id, 1.0)
    assert recommended_by(random) is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tune"], 40),
        (["tune", "--rounds", "12", "--seed", "3"], 12),
        (["tune", "--roun=9", "--rounds", "x"], 9),
        (["tune", "--rounds"], 40),
    ],
)
def test_the_rounds_of_a_command_are_read_as_typed(arguments: list[str], expected: int) -> None:
    assert rounds_in(arguments) == expected


def test_without_a_record_the_random_points_of_the_run_are_what_it_is_compared_with() -> None:
    loop = BanditLoop(Box([(0.0, 1.0)]), num_initial=3)
    assert best_at_the_start(loop.history) is None
    for reward in (0.25, 0.5, 0.125, 0.75):
        loop.tell(loop.ask().id, reward)
    start = best_at_the_start(loop.history)
    assert start == {"num_rounds": 3, "num_without_reward": 0, "best_reward": 0.5}
    expected = "0.5, the best of the 3 with which the run began"
    assert lines_of({**RESULT, "start": start})["random points"] == expected
    is_random = {"settings": {"method": "random"}}
    assert "random points" not in lines_of({**RESULT, "start": start, **is_random})
    expected = "none, because random search has no model"
    assert lines_of({**RESULT, "start": start, **is_random})["recommended"] == expected
    failing = BanditLoop(Box([(0.0, 1.0)]), num_initial=3)
    failing.tell_failed(failing.ask().id, "no memory")
    failing.tell(failing.ask().id, 0.25)
    failing.ask()
    start = best_at_the_start(failing.history)
    expected = "0.25, the best of the 1 with a reward, of the 3 with which the run began"
    assert lines_of({**RESULT, "start": start})["random points"] == expected
    known = against_random_search(RandomBaseline([0.1] * 50), 40, 0.9)
    assert "random points" not in lines_of({**RESULT, "start": start, "random_search": known})


def test_a_run_that_found_nothing_says_so() -> None:
    nothing = {"best_reward": None, "best_round": None, "best_parameters": None}
    result = {**RESULT, **nothing, "expected_at_best": None, "num_rounds": 0}
    lines = lines_of(result)
    assert "best reward" not in lines
    assert "the model expects" not in lines


def test_what_the_model_expects_is_its_posterior() -> None:
    loop = BanditLoop(Box([(0.0, 1.0)]), num_initial=3)
    for _ in range(5):
        query = loop.ask()
        loop.tell(query.id, float(query.x))
    best = loop.best()
    assert best is not None
    posterior = loop.current_model().posterior(best[0].x.unsqueeze(0))
    expected = expected_at(loop, best[0])
    assert expected is not None
    assert expected["mean"] == pytest.approx(float(posterior.mean))
    assert expected["standard_deviation"] == pytest.approx(float(posterior.variance) ** 0.5)
    random = BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch())
    random.tell(random.ask().id, 1.0)
    assert expected_at(random, random.history.queries[0]) is None
    assert torch.isfinite(posterior.mean).all()


@pytest.mark.parametrize("page", ["README.md", "docs/tuning.md"])
def test_the_pages_show_the_guarantee_as_it_is_printed(page: str) -> None:
    settings = {"task": "svm", "method": "best", "rkhs_bound": None, "noise_bound": None}
    lines = lines_of({**RESULT, "settings": settings})
    text = " ".join((Path(__file__).parents[2] / page).read_text(encoding="utf-8").split())
    assert " ".join(lines["guarantee"].split()) in text
    assert lines["the model expects"].partition(" there ")[2] in text
