"""The closing lines of a run: the result, comparisons, its certainty, and the next steps.

They are derived only from ``result.json`` and the typed command.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError

from botorch_bandits.cli.arguments import DEFAULT_ROUNDS
from botorch_bandits.cli.options import parameters_of, show_value
from botorch_bandits.confidence import Guarantee
from botorch_bandits.history import History, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.random_baseline import RandomBaseline

Rows = list[tuple[str, str]]

WIDTH = 100
"""The width at which lines of text wrap; commands to be typed never wrap."""


def against_random_search(
    baseline: RandomBaseline | None, num_rounds: int, best: float | None
) -> dict[str, Any] | None:
    """Return the results of random search with as many rounds; None if they are unknown.

    Args:
        baseline: The rewards of random points, if there are any.
        num_rounds: The number of outcomes of the run.
        best: The best reward of the run.
    """
    if baseline is None or best is None or num_rounds < 1:
        return None
    n = min(num_rounds, len(baseline))
    return {
        "num_points": len(baseline),
        "num_rounds": n,
        "mean_best_reward": baseline.expected_best(n),
        "share_as_good": baseline.chance(n, best),
        "rounds_to_as_good": baseline.rounds_to(best),
        "mean_reward": sum(baseline.rewards) / len(baseline),
    }


def expected_at(loop: BanditLoop, query: Query) -> dict[str, float] | None:
    """Return what the loop's model expects at a query; None without a model of the reward.

    Args:
        loop: A loop without constraints, contexts and forgetting.
        query: Any of its queries.
    """
    if loop.settings.model is None:
        return None
    with torch.no_grad():
        posterior = loop.current_model().posterior(query.x.unsqueeze(0))
    variance = float(posterior.variance.clamp_min(0.0))
    sign = 1.0 if loop.settings.maximize else -1.0  # the model is of minus the cost
    return {"mean": sign * float(posterior.mean), "standard_deviation": variance**0.5}


def guarantee_as_record(guarantee: Guarantee) -> dict[str, Any]:
    """Return what ``result.json`` says about a guarantee.

    Args:
        guarantee: The guarantee of a loop after the run.

    Returns:
        The verdict, the reasons against it, each statement with its numbers, and the notes. A
        number that does not exist, or is infinite, is None.
    """
    return {
        "holds": guarantee.holds,
        "verdict": guarantee.verdict,
        "method": guarantee.method,
        "theorem": guarantee.theorem,
        "gaps": list(guarantee.reasons),
        "statements": {
            name: {
                "holds": statement.holds,
                "text": statement.text,
                "gaps": list(statement.gaps),
                "bound": _finite(statement.bound),
                "num_rounds": statement.num_rounds,
                "num_other_rounds": statement.num_others,
                "bound_of_other_rounds": _finite(statement.bound_of_others),
            }
            for name, statement in guarantee.statements.items()
        },
        "assumptions": [str(assumption) for assumption in guarantee.assumptions],
        "constants": {name: _finite(value) for name, value in guarantee.constants.items()},
        "notes": list(guarantee.notes),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def recommended_by(loop: BanditLoop) -> dict[str, Any] | None:
    """Return the played point to deploy, as :meth:`.BanditLoop.recommend` finds it.

    Args:
        loop: A loop without contexts.

    Returns:
        The point, the round in which it was last played, what the model expects there (of the
        reward, or of the penalized one), and the certificate or the reasons why there is none. None
        without a model or an outcome.
    """
    try:
        found = loop.recommend(among="played")
    except (RuntimeError, UnsupportedError):
        return None
    told = (loop.history.query(outcome.query_id) for outcome in loop.history.outcomes)
    query = max((q for q in told if torch.equal(q.x, found.x)), key=lambda q: q.id)
    rule = loop.settings.constraints
    is_penalized = rule is not None and rule.surrogate_in_use != "separate"
    numbers = {
        "mean": found.mean,
        "standard_deviation": found.standard_deviation,
        "lower_bound": found.lower_bound,
        "upper_bound": found.upper_bound,
        "best_possible": found.best_possible,
        "certificate": found.certificate,
        "trivial_certificate": found.trivial_certificate,
        "delta": found.delta,
    }
    return {
        "parameters": parameters_of(query),
        "round": query.round_number,
        "is_penalized": is_penalized,
        **{name: _finite(value) for name, value in numbers.items()},
        "theorem": found.theorem,
        "reasons": list(found.reasons),
    }


def best_at_the_start(history: History) -> dict[str, Any] | None:
    """Return the best reward of the random points at the start; None if none was told.

    Args:
        history: The history of a run without constraints and changes.
    """
    origins = {query.id: query.origin for query in history.queries}
    told = [o for o in history.outcomes if origins[o.query_id] == "initial"]
    if not told:
        return None
    return {
        "num_rounds": len(told),
        "num_without_reward": list(origins.values()).count("initial") - len(told),
        "best_reward": max(told, key=history.rank).reward,
    }


SHORTEST = {"--rounds": "--ro", "--stop-after-no-gain": "--sto", "--stop-below": "--stop-b"}
"""Options that are typed again with another value, and their shortest unique beginnings."""


def with_numbers(arguments: Sequence[str], numbers: Mapping[str, float]) -> list[str]:
    """Return the arguments of a command with other values of options of :data:`SHORTEST`.

    Args:
        arguments: The arguments typed after ``botorch-bandits``.
        numbers: The values by option.
    """
    kept: list[str] = []
    skip = False
    for argument in arguments:
        name, is_joined, _ = argument.partition("=")
        if skip:
            skip = False
        elif any(o.startswith(name) and name.startswith(SHORTEST[o]) for o in numbers):
            skip = not is_joined
        elif argument != "--overwrite":  # this option would start over
            kept.append(argument)
    return [*kept, *(str(part) for item in numbers.items() for part in item)]


def rounds_in(arguments: Sequence[str]) -> int:
    """Return how many rounds a command line asks for, as the parser would, but without it.

    Args:
        arguments: The recorded arguments of ``tune`` or ``optimize``, which may be malformed.
    """
    found = DEFAULT_ROUNDS
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, is_joined, value = argument.partition("=")
        if "--rounds".startswith(name) and name.startswith(SHORTEST["--rounds"]):
            value = value if is_joined else following
            found = int(value) if value.isdecimal() and len(value) < 10 else found
    return found


def next_steps(
    result: Mapping[str, Any],
    arguments: Sequence[str],
    wanted: int,
    journal: str | None = None,
    in_python: str | None = None,
    no_gain: int | None = None,
    stop_below: float | None = None,
) -> Rows:
    """Return commands that can be typed next.

    Args:
        result: The content of ``result.json``.
        arguments: The arguments typed after ``botorch-bandits``.
        wanted: The intended number of rounds of the run.
        journal: The journal of the run, if there is one.
        in_python: The point to use as a Python expression, if there is one.
        no_gain: After how many rounds without a better reward the run ends, if ever.
        stop_below: The certificate at which the run ends, if there is one.
    """
    is_over = result["num_rounds"] >= wanted
    numbers: dict[str, float] = {"--rounds": 2 * wanted if is_over else wanted}
    if result["stopped"] is not None and no_gain is not None:
        numbers["--stop-after-no-gain"] = 2 * no_gain
    if result["stopped"] is not None and stop_below is not None:
        numbers["--stop-below"] = 0.5 * stop_below
    given = with_numbers(arguments if journal is None else ["resume", journal], numbers)
    rows = [("more rounds" if is_over else "go on", shlex.join(["botorch-bandits", *given]))]
    if is_over and result["num_failed"] and not (result["num_arrived"] or result["num_pending"]):
        # more rounds would avoid the points at which a wrong function failed
        kept = [argument for argument in arguments if argument != "--overwrite"]
        again = shlex.join(["botorch-bandits", *kept, "--overwrite"])
        rows = [("start over", again)] if journal is None else []
    if journal is not None:
        rows.append(("look at it", shlex.join(["botorch-bandits", "show", journal])))
    if in_python is not None:
        rows.append(("in Python", in_python))
    if arguments[:1] == ["tune"]:
        if "--data" not in arguments:
            rows.append(("your data", "botorch-bandits tune --data FILE.csv --target COLUMN"))
        function = "botorch-bandits optimize MODULE:FUNCTION --param NAME=float:LOW:HIGH"
        rows.append(("your function", function))
    return rows


def _found(result: Mapping[str, Any], name: str) -> Rows:
    if result["best_reward"] is None:
        return []
    reward, number = result["best_reward"], result["best_round"]
    rows = [(name, f"{reward:.6g}, in round {number}")]
    return rows + [(f"  {k}", show_value(v)) for k, v in result["best_parameters"].items()]


def _compared(result: Mapping[str, Any]) -> Rows:
    """Return comparisons of the best reward."""
    rows: Rows = []
    if result["reference"] is not None:
        rows.append((result["reference"]["name"], f"{result['reference']['reward']:.6g}"))
    search, start = result["random_search"], result["start"]
    if search is None:
        if start is not None and _setting(result, "method") != "random":
            rows.append(("random points", random_points(start)))
        return rows
    text = f"{search['mean_best_reward']:.6g} on average after {search['num_rounds']} rounds"
    if search["rounds_to_as_good"] is None:
        text += f"; none of {search['num_points']} random points is as good"
    else:
        share = max(1, round(100 * search["share_as_good"]))
        text += f"; {share} of 100 such searches find as much, "
        # with few points that are as good, only one digit is known
        text += f"which takes {float(format(search['rounds_to_as_good'], '.1g')):.0f} rounds"
    rows.append(("random search", text))
    means = f"{result['mean_reward']:.6g} a round, random search {search['mean_reward']:.6g}"
    rows.append(("on the way", means))
    return rows


def random_points(start: Mapping[str, Any]) -> str:
    """Return the best reward of the random points at the start of a run as text.

    Args:
        start: See :func:`best_at_the_start`.
    """
    number, num_others = start["num_rounds"], start.get("num_without_reward", 0)
    which = f"{number} with a reward, of the {number + num_others}" if num_others else f"{number}"
    return f"{start['best_reward']:.6g}, the best of the {which} with which the run began"


def _setting(result: Mapping[str, Any], name: str) -> Any:
    """Return an option with which the run began; None if it is unknown."""
    return result.get("settings", {}).get(name)


def _how_sure(result: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    expected = result["expected_at_best"]
    if expected is not None:
        text = f"{expected['mean']:.6g} +- {2.0 * expected['standard_deviation']:.2g} there "
        text += "(two standard deviations; "
        if _setting(result, "task") is not None:
            text += "with other folds, it can differ by far more)"
        else:
            text += "this leaves out what your function holds fixed, such as data or folds)"
        rows.append(("the model expects", text))
    rows += _recommended(result)
    told = result["guarantee"]
    if told["holds"]:
        text = f"yes: {told['theorem']} (in numbers in result.json)"
    elif told["verdict"] == "guaranteed in part":
        statements = told["statements"].items()
        held = [f"{NAMES[name]}{_coverage(each)}" for name, each in statements if each["holds"]]
        others = [NAMES[name] for name, each in statements if not each["holds"]]
        text = f"in part ({' and '.join(held)}, but not {' and '.join(others)}): "
        text += f"{told['theorem']} (why, and in numbers: result.json)"
    else:
        text = f"none: {_why_none(result)}"
    rows.append(("guarantee", text))
    return rows


def _coverage(statement: Mapping[str, Any]) -> str:
    """Return how many rounds a statement covers, if it counts rounds and leaves some out."""
    covered, others = statement.get("num_rounds"), statement.get("num_other_rounds", 0)
    return f" in {covered} of {covered + others} rounds" if covered is not None and others else ""


def _why_none(result: Mapping[str, Any]) -> str:
    """Return why there is no guarantee: every option that it lacks or, with these, the reasons."""
    if _setting(result, "method") is not None:
        missing = [] if _setting(result, "prior") else ["--prior"]
        if _setting(result, "method") not in ("igp-ucb", "gp-ts"):
            missing.append("--method igp-ucb or gp-ts")
        for name in ("rkhs_bound", "noise_bound"):
            if _setting(result, name) is None:
                missing.append(f"--{name.replace('_', '-')}")
        if missing:
            needed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
            return f"no theorem says how close to optimal this is; that takes {needed}"
    gaps = result["guarantee"].get("gaps", [])
    if not gaps:
        return "no theorem says how close to optimal this is (why: result.json)"
    more = f" ({len(gaps) - 1} more in result.json)" if len(gaps) > 1 else ""
    return f"{gaps[0]}{more}"


NAMES = {"bands": "confidence bounds", "regret": "regret", "violation": "violation"}
"""The statements of a guarantee, in words."""


def _recommended(result: Mapping[str, Any]) -> Rows:
    """Return the played point to deploy, which need not be the one with the best outcome."""
    found = result["recommended"]
    if found is None:
        if _setting(result, "method") == "random" and result["best_reward"] is not None:
            return [("recommended", "none, because random search has no model")]
        return []
    side = "posterior mean" if found["certificate"] is None else "confidence bound"
    penalized = " of the penalized reward" if found["is_penalized"] else ""
    why = f"best {side}{penalized} among the points that were played"
    rows: Rows = []
    if found["parameters"] == result["best_parameters"]:
        rows.append(("recommended", f"the same point ({why})"))
    else:
        text = f"the point of round {found['round']} ({why})"
        if result["expected_at_best"] is not None:  # otherwise the model is not of the reward
            mean, deviation = found["mean"], found["standard_deviation"]
            text += f", where the model expects {mean:.6g} +- {2.0 * deviation:.2g}"
        rows.append(("recommended", text))
        rows += [(f"  {name}", show_value(value)) for name, value in found["parameters"].items()]
    if found["certificate"] is not None:
        probability = f"with probability {1.0 - found['delta']:.6g}"
        text = f"no point is better than this one by more than {found['certificate']:.6g}"
        if found["certificate"] == found.get("trivial_certificate"):
            text += ", but that is 2 B, by which no two points can differ more: the outcomes say "
            rows.append(("certificate", text + "nothing beyond that yet"))
        else:
            rows.append(("certificate", f"{text}, {probability}"))
        if found.get("lower_bound") is not None and found.get("upper_bound") is not None:
            text = f"{found['lower_bound']:.6g} to {found['upper_bound']:.6g} at that point, "
            text += f"{probability}; +- is in posterior standard deviations, without that claim"
            rows.append(("confidence bounds", text))
    return rows


def closing_lines(
    title: str,
    result: Mapping[str, Any],
    wanted: int,
    files: str,
    further: Rows,
    next_rows: Rows,
    waits: bool = False,
    has_budgets: bool = False,
    has_picture: bool = True,
) -> str:
    """Return the lines that end a run.

    Args:
        title: A description of the run.
        result: The content of ``result.json``.
        wanted: The intended number of rounds of the run.
        files: The folder of its files.
        further: The rows of budgets and changes.
        next_rows: See :func:`next_steps`.
        waits: Whether queries can be pending.
        has_budgets: Whether costs must be within budgets.
        has_picture: Whether ``run.png`` was drawn.
    """
    stopped = ", interrupted" if result["interrupted"] else ""
    played = f"{result['num_rounds']} of {max(wanted, result['num_rounds'])}"
    if result["num_failed"]:
        played += f" ({result['num_failed']} failed)"
    before = result.get("num_rounds_before", 0)
    here = f", {result['num_rounds'] - before} of them now," if before else ""
    rows: Rows = [("rounds", f"{played}{here} in {result['seconds']:.1f} s{stopped}")]
    if waits or result["num_pending"]:
        counts = f"{result['num_arrived']} arrived, {result['num_pending']} pending"
        if _setting(result, "feedback") == "censored" or result["num_late"] or result["num_lost"]:
            counts = counts.replace("arrived", f"arrived ({result['num_late']} late)")
            counts += f", {result['num_lost']} lost"
        rows.append(("outcomes", counts))
    if result["stopped"] is not None:
        rows.append(("stopped", result["stopped"]))
    if result["num_failed"]:
        what = "evaluation" if result["num_failed"] == 1 else "evaluations"
        rows.append(("failed", f"{result['num_failed']} {what} (reasons: history.csv)"))
    name = result.get("outcome_name", "reward")
    rows += _found(result, "best within budget" if has_budgets else f"best {name}")
    rows += further
    rows += _compared(result)
    rows += _how_sure(result)
    rows.append(("files", f"{files} (run.png is the picture)" if has_picture else files))
    size = max(len(name) for name, _ in (*rows, *((f"  {n}", c) for n, c in next_rows)))
    lines = ["", title, ""]
    for name, value in rows:
        parts = textwrap.wrap(value, max(WIDTH - size - 2, 40)) or [""]
        lines.append(f"{name:<{size}}  {parts[0]}")
        lines += [f"{'':<{size}}  {part}" for part in parts[1:]]
    return "\n".join(lines + table_of_commands(next_rows, size))


def table_of_commands(rows: Rows, size: int = 0) -> list[str]:
    """Return the lines of commands that can be typed next, each in one piece.

    Args:
        rows: A description and a command each.
        size: The least width of the first column.
    """
    size = max([size, *(len(name) + 2 for name, _ in rows)])
    return ["next", *(f"{'  ' + name:<{size}}  {command}" for name, command in rows)]
