"""What a run says at its end, and the command ``show``, which reads a storage.

The closing lines are derived only from the content of ``result.json`` and the typed command.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import shlex
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError

from botorch_bandits.cli.command_line import printable
from botorch_bandits.cli.descriptions import setting_rows
from botorch_bandits.confidence import Guarantee
from botorch_bandits.history import History, Query, flatten_records
from botorch_bandits.loop import BanditLoop, StorageError
from botorch_bandits.loop.loop import read_history
from botorch_bandits.random_baseline import RandomBaseline
from botorch_bandits.version import __version__

Rows = list[tuple[str, str]]

WIDTH = 100
"""The width at which lines of text wrap; commands to be typed never wrap."""

NUM_SHOWN = 20
"""How many rounds ``show`` prints, the last ones."""

STATEMENTS = {"bands": "confidence bounds", "regret": "regret", "violation": "violation"}
"""The statements of a guarantee, in words."""


def result_of(
    loop: BanditLoop, reference: tuple[str, float] | None, random_search: RandomBaseline | None
) -> dict[str, Any]:
    """Return what ``result.json`` says about a loop.

    Args:
        loop: A loop without constraints and contexts.
        reference: A reward to compare with, and its name.
        random_search: What random search finds, if it is known.

    Returns:
        Entries that JSON can hold. A number that does not exist, or is infinite, is None.
    """
    history, best = loop.history, loop.best()
    rewards = [outcome.reward for outcome in history.outcomes]
    return {
        "version": __version__,
        "num_rounds": history.num_queries,
        "num_arrived": history.num_arrived,
        "num_pending": history.num_pending,
        "num_failed": history.num_failed,
        "outcome_name": history.outcome_name,
        "best_reward": None if best is None else best[1].reward,
        "best_round": None if best is None else best[0].round_number,
        "best_parameters": None if best is None else best[0].parameters,
        "mean_reward": statistics.fmean(rewards) if rewards else None,
        "recommended": _recommended_by(loop),
        "random_search": _against_random_search(random_search, rewards),
        "reference": None if reference is None else {"name": reference[0], "reward": reference[1]},
        "guarantee": _guarantee_as_record(loop.guarantee()),
    }


def table_of(history: History) -> str:
    """Return a CSV table with a row for each query: point, reward, rounds, times, diagnostics."""
    rows = flatten_records(history.to_records())
    text = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _against_random_search(
    baseline: RandomBaseline | None, rewards: Sequence[float]
) -> dict[str, Any] | None:
    """Return the results of random search with as many rounds; None if they are unknown."""
    if baseline is None or not rewards:
        return None
    n, best = min(len(rewards), len(baseline)), max(rewards)
    return {
        "num_points": len(baseline),
        "num_rounds": n,
        "mean_best_reward": baseline.expected_best(n),
        "share_as_good": baseline.chance(n, best),
        "mean_reward": statistics.fmean(baseline.rewards),
    }


def _recommended_by(loop: BanditLoop) -> dict[str, Any] | None:
    """Return the played point to deploy; None without a model or an outcome."""
    try:
        found = loop.recommend(among="played")
    except (RuntimeError, UnsupportedError):
        return None
    told = (loop.history.query(outcome.query_id) for outcome in loop.history.outcomes)
    query = max((q for q in told if torch.equal(q.x, found.x)), key=lambda q: q.id)
    return {
        "parameters": query.parameters,
        "round": query.round_number,
        "mean": _finite(found.mean),
        "standard_deviation": _finite(found.standard_deviation),
        "certificate": _finite(found.certificate),
        "delta": _finite(found.delta),
        "theorem": found.theorem,
        "reasons": list(found.reasons),
    }


def _guarantee_as_record(guarantee: Guarantee) -> dict[str, Any]:
    """Return the verdict of a guarantee, the reasons against it, and its statements."""
    return {
        "holds": guarantee.holds,
        "verdict": guarantee.verdict,
        "theorem": guarantee.theorem,
        "gaps": list(guarantee.reasons),
        "statements": {
            name: {
                "holds": statement.holds,
                "text": statement.text,
                "gaps": list(statement.gaps),
                "bound": _finite(statement.bound),
            }
            for name, statement in guarantee.statements.items()
        },
        "assumptions": [str(assumption) for assumption in guarantee.assumptions],
        "constants": {name: _finite(value) for name, value in guarantee.constants.items()},
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def closing_lines(
    result: Mapping[str, Any],
    options: argparse.Namespace,
    files: str,
    in_python: Callable[[Mapping[str, Any]], str],
) -> str:
    """Return the lines that end a run.

    Args:
        result: The content of ``result.json``.
        options: The options of ``tune`` or ``optimize``.
        files: The folder of its files.
        in_python: A function from parameters to a Python expression.
    """
    rows = [("rounds", _played(result, options.rounds))]
    if result["best_reward"] is not None:
        found = f"{result['best_reward']:.6g}, in round {result['best_round']}"
        rows.append((f"best {result['outcome_name']}", found))
        rows += _parameter_rows(result["best_parameters"])
    rows += [*_compared(result), *_recommended(result)]
    rows += [("guarantee", _guaranteed(result)), ("files", files)]
    steps = [(f"  {name}", step) for name, step in _next_steps(result, options, in_python)]
    size = max(len(name) for name, _ in (*rows, *steps))
    lines = ["", result["title"], ""]
    for name, value in rows:
        first, *others = textwrap.wrap(value, WIDTH - size - 2) or [""]
        lines.append(f"{name:<{size}}  {first}")
        lines += [f"{'':<{size}}  {other}" for other in others]
    return "\n".join([*lines, "next", *(f"{name:<{size}}  {step}" for name, step in steps)])


def _played(result: Mapping[str, Any], wanted: int) -> str:
    number, before = result["num_rounds"], result["num_rounds_before"]
    text = f"{number} of {max(wanted, number)}"
    if result["num_failed"]:
        text += f" ({result['num_failed']} failed)"
    if result["num_pending"]:
        text += f" ({result['num_pending']} without an outcome)"
    if before:
        text += f", {number - before} of them now,"
    return f"{text} in {result['seconds']:.1f} s{', interrupted' * result['interrupted']}"


def _parameter_rows(parameters: Mapping[str, Any]) -> Rows:
    return [(f"  {name}", _shown(value)) for name, value in parameters.items()]


def _shown(value: Any) -> str:
    """Return a value of a parameter in the form in which tables show it."""
    return f"{value:.6g}" if type(value) is float else str(value)


def _compared(result: Mapping[str, Any]) -> Rows:
    """Return comparisons of the best reward."""
    rows: Rows = []
    if result["reference"] is not None:
        rows.append((result["reference"]["name"], f"{result['reference']['reward']:.6g}"))
    search = result["random_search"]
    if search is not None:
        text = f"{search['mean_best_reward']:.6g} on average after {search['num_rounds']} rounds; "
        share = search["share_as_good"]
        if share:
            text += f"{max(1, round(100 * share))} of 100 such searches find as much"
        else:
            text += f"none of {search['num_points']} random points is as good"
        rows.append(("random search", text))
        means = f"{result['mean_reward']:.6g} a round, random search {search['mean_reward']:.6g}"
        rows.append(("on the way", means))
    return rows


def _recommended(result: Mapping[str, Any]) -> Rows:
    """Return the played point to deploy, which need not be the one with the best outcome."""
    found = result["recommended"]
    if found is None:
        return []
    text = f"the point of round {found['round']} among the points that were played"
    if found["mean"] is not None:
        deviation = 2.0 * (found["standard_deviation"] or 0.0)
        text += f", where the model expects {found['mean']:.6g} +- {deviation:.2g} (two standard "
        text += "deviations)"
    if folds := found.get("folds"):
        text += f"; on single folds the accuracy is {min(folds):.3g} to {max(folds):.3g}"
    rows = [("recommended", text), *_parameter_rows(found["parameters"])]
    if found["certificate"] is not None:
        text = f"no point is better than this one by more than {found['certificate']:.6g}, with "
        rows.append(("certificate", f"{text}probability {1.0 - found['delta']:.6g}"))
    return rows


def _guaranteed(result: Mapping[str, Any]) -> str:
    """Return whether a theorem holds; if none does, the options that it takes, or the reasons."""
    told, settings = result["guarantee"], result["settings"]
    if told["holds"]:
        return f"yes: {told['theorem']} (in numbers in result.json)"
    held = [STATEMENTS[name] for name, each in told["statements"].items() if each["holds"]]
    if held:
        return f"in part ({' and '.join(held)}): {told['theorem']} (why: result.json)"
    missing = [] if settings["prior"] else ["--prior"]
    if settings["method"] not in ("igp-ucb", "gp-ts"):
        missing.append("--method igp-ucb or gp-ts")
    bounds = ("rkhs_bound", "noise_bound")
    missing += [f"--{name.replace('_', '-')}" for name in bounds if settings[name] is None]
    if missing:
        return f"none: no theorem covers this run; that takes {', '.join(missing)}"
    return f"none: {'; '.join(told['gaps'][:1])} (all reasons: result.json)"


def _next_steps(
    result: Mapping[str, Any],
    options: argparse.Namespace,
    in_python: Callable[[Mapping[str, Any]], str],
) -> Rows:
    """Return commands that can be typed next."""
    is_over = result["num_rounds"] >= options.rounds
    again = _with_rounds(options.arguments, options.rounds * (2 if is_over else 1))
    rows = [("more rounds" if is_over else "go on", shlex.join(["botorch-bandits", *again]))]
    parameters = result["best_parameters"]
    if result["recommended"] is not None:
        parameters = result["recommended"]["parameters"]
    if parameters is not None:
        rows.append(("in Python", in_python(parameters)))
    if options.command == "tune":
        if options.data is None:
            rows.append(("your data", "botorch-bandits tune --data FILE.csv --target COLUMN"))
        function = "botorch-bandits optimize MODULE:FUNCTION --param NAME=float:LOW:HIGH"
        rows.append(("your function", function))
    return rows


def _with_rounds(arguments: Sequence[str], rounds: int) -> list[str]:
    """Return the arguments of a command with another number of rounds."""
    kept = [argument for argument in arguments if not argument.startswith("--rounds=")]
    if "--rounds" in kept:
        i = kept.index("--rounds")
        del kept[i : i + 2]
    return [*kept, "--rounds", str(rounds)]


def show(options: argparse.Namespace) -> int:
    """Print the content of a run; returns the exit code.

    Args:
        options: The option ``path``, the folder of a run or the storage of a loop.

    Raises:
        StorageError: If it is not the storage of a loop.
        ValueError: If there is no run.
    """
    path, storage = Path(options.path), str(options.path)
    if path.is_dir():
        path /= "run.db"
        storage = str(path)
    if "://" not in storage and not path.exists():
        raise ValueError(
            f"FOLDER is {options.path}, but there is no file {path}. Name the folder of a run of "
            "tune or optimize, or the storage of a loop."
        )
    try:
        print(printable(describe(storage)))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StorageError(
            f"{storage} is not what a loop writes ({error!r:.300}). Was it written by a later "
            "version of the package, or by another program?"
        ) from error
    return 0


def describe(storage: str) -> str:
    """Return what ``show`` prints about a run.

    Args:
        storage: The storage of a loop.
    """
    settings, history = read_history(storage)
    heading = [["storage", storage], *setting_rows(settings)]
    counts = f"{history.num_arrived} told, {history.num_pending} pending, "
    counts += f"{history.num_failed} failed, {history.num_retracted} retracted"
    heading.append(["rounds", f"{history.num_queries}: {counts}"])
    best = history.best()
    if best is not None:
        found = f"{best[1].reward:.6g} in round {best[0].round_number}"
        heading.append([f"best {history.outcome_name}", found])
    shown = [_table(heading), _table(_round_rows(history))]
    for failure in history.failures:
        number = history.query(failure.query_id).round_number
        reason = (failure.reason or "no reason given").partition("\n")[0]  # a traceback follows
        shown.append(f"round {number} failed: {reason}")
    for retraction in history.retractions:
        number = history.query(retraction.query_id).round_number
        shown.append(f"round {number} was retracted: {' '.join(retraction.reason.split())}")
    return "\n\n".join(shown)


def _round_rows(history: History) -> list[list[str]]:
    """Return a row for each of the last rounds, below the names of the columns."""
    rows = [["round", "state", history.outcome_name, "point"]]
    for query in history.queries[-NUM_SHOWN:]:
        outcome = history.outcome(query.id)
        told = "" if outcome is None else f"{outcome.reward:.6g}"
        row = [str(query.round_number), history.state(query.id), told, _point(query)]
        rows.append(row)
    return rows


def _point(query: Query) -> str:
    values = query.parameters or {f"x{i}": value for i, value in enumerate(query.x.tolist())}
    return ", ".join(f"{name}={_shown(value)}" for name, value in values.items())


def _table(rows: Sequence[Sequence[str]]) -> str:
    sizes = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{size}}" for cell, size in zip(row, sizes, strict=True)).rstrip()
        for row in rows
    )
