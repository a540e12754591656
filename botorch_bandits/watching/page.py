"""One page about a run: its progress, its best results, pending queries and guarantee.

The page is one file without scripts and without anything loaded from elsewhere. Everything that
comes from a history is escaped. While a run continues, the page asks the browser to reload it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Box
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.markup import Markup, element, table
from botorch_bandits.plotting.style import ORIGINS, axis_names, native_ticks
from botorch_bandits.queries import point_text
from botorch_bandits.spaces import Categorical, Space
from botorch_bandits.watching.charts import Axis, Chart, numbers_axis

MOST_MARKS = 1500
"""The largest number of rewards that are drawn one by one; the best so far is always complete."""

MOST_ROWS = 30
"""The largest number of rows of a table, which has the last ones."""

MOST_MAPPED = 4
"""The largest number of parameters for which each pair of them has a map."""

MOST_PARAMETERS = 12
"""The largest number of parameters that have a picture of rewards over their values."""

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --soft: #5f6368; --line: #d9dce1;
  --mark: #0b57d0; --best: #08306b; --warn: #b3261e; --other: #b4540a; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e6e6e6; --soft: #a3a8b0;
  --line: #3a3f47; --mark: #8ab4f8; --best: #d2e3fc; --warn: #f2b8b5; --other: #fdb777; } }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif;
  margin: 0 auto; max-width: 900px; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; margin: 0 0 .3rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
.soft, figcaption { color: var(--soft); font-size: .87rem; } figure { margin: 0 0 .8rem; }
table { border-collapse: collapse; font-size: .87rem; display: block; overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .15rem .9rem .15rem 0; }
thead th, tbody th { color: var(--soft); font-weight: 500; overflow-wrap: normal; }
tbody tr { border-top: 1px solid var(--line); } progress { width: 100%; accent-color: var(--mark); }
.maps { display: flex; flex-wrap: wrap; gap: .6rem; } .maps figure { flex: 1 1 380px; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--line); } .tick { stroke: var(--soft); }
.reset { stroke: var(--other); stroke-dasharray: 5 4; stroke-width: 1.5; }
.told { fill: var(--mark); stroke: var(--mark); } .old { fill: none; stroke: var(--soft); }
.over, .failed { fill: none; stroke: var(--warn); stroke-width: 1.8; }
.pending { fill: var(--back); stroke: var(--other); stroke-width: 2; }
.best { fill: none; stroke: var(--best); stroke-width: 2.2; } .line { fill: none; }
.first { stroke: var(--best); stroke-width: 1.8; }
.limit { stroke: var(--warn); stroke-dasharray: 3 3; }
.yes { color: var(--mark); font-weight: 600; } .no { color: var(--other); font-weight: 600; }
"""


@dataclass(frozen=True)
class PageFacts:
    """The content of a page.

    Attributes:
        history: The queries and their outcomes.
        title: The title of the run.
        settings: Names and descriptions of the settings.
        domain: The domain of the points, for axes; None if it is unknown.
        now: The time in seconds, by the clock of the history.
        best: The query that is best now and its outcome, if there is one.
        resets: The rounds after which the loop started over, and why.
        guarantee: The guarantee, or why the page does not have it.
        multipliers: The multipliers in force, one per constraint.
        constraint_names: The names of the constraints; missing ones are shown by number.
        given_up: The ids of pending queries that are no longer waited for.
        wanted: The planned number of rounds, if it is known.
        further: Further names and values for the table at the top.
        refresh: After how many seconds a browser reloads the page; None if nothing will change.
    """

    history: History
    title: str
    now: float
    settings: Sequence[Sequence[Any]] = ()
    domain: Any = None
    best: tuple[Query, Outcome] | None = None
    resets: Sequence[tuple[int, str]] = ()
    guarantee: Guarantee | str = ""
    multipliers: Sequence[float] = ()
    constraint_names: Sequence[str] = ()
    given_up: frozenset[int] = frozenset()
    wanted: int | None = None
    further: Sequence[tuple[str, Any]] = ()
    refresh: float | None = None
    told: tuple[tuple[Query, Outcome], ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        """Look up each query's outcome once."""
        pairs = ((query, self.history.outcome(query.id)) for query in self.history.queries)
        told = tuple((query, outcome) for query, outcome in pairs if outcome is not None)
        object.__setattr__(self, "told", told)

    @property
    def since(self) -> int:
        """The round after which the current segment began."""
        return max((after for after, _ in self.resets), default=0)


def render_page(facts: PageFacts) -> str:
    """Return the page.

    Args:
        facts: The content of the page.
    """
    refresh = [] if facts.refresh is None else [f"{max(1, round(facts.refresh))}"]
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # nothing is loaded, regardless of the rest of the page
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'",
        ),
        *(element("meta", http_equiv="refresh", content=seconds) for seconds in refresh),
        element("title", facts.title),
        element("style", Markup(STYLE)),
    ]
    parts = [_heading(facts), _rewards(facts), _map(facts), _pending(facts), _failures(facts)]
    parts += [_retractions(facts), _resets(facts), _constraints(facts), _confidence(facts)]
    parts += [_guarantee(facts), _last_rounds(facts), _settings(facts)]
    body = element("body", element("main", *(part for part in parts if part)))
    return f"<!doctype html>\n{element('html', element('head', *head), body, lang='en')}\n"


def _section(title: str, *parts: Any) -> Markup:
    return element("section", element("h2", title), *parts)


def _picture(chart: Chart, caption: str = "") -> Markup:
    told = [element("figcaption", caption)] if caption else []
    return element("figure", chart.svg(), *told)


def _soft(text: str) -> Markup:
    return element("p", text, class_="soft")


def _number(value: float) -> str:
    return f"{value:.6g}"


def _heading(facts: PageFacts) -> Markup:
    history = facts.history
    moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    goes_on = facts.refresh is not None
    state = f"as of {moment}; the page loads itself again" if goes_on else f"as of {moment}"
    counts = [f"{history.num_arrived} told", f"{history.num_pending} pending"]
    counts += [f"{history.num_failed} failed"] if history.num_failed else []
    counts += [f"{history.num_retracted} retracted"] if history.num_retracted else []
    rows: list[tuple[str, Any]] = [("queries", f"{history.num_queries}: {', '.join(counts)}")]
    if facts.best is not None:
        query, outcome = facts.best
        found = f"{_number(outcome.reward)} in round {query.round_number}, at {point_text(query)}"
        rows.append(("best now", found))
    largest = history.best()
    if largest is not None and (
        facts.best is None or history.is_better(largest[1].reward, facts.best[1].reward)
    ):
        found = f"{_number(largest[1].reward)} in round {largest[0].round_number}"
        rows.append(("largest reward" if history.maximize else "least cost", found))
    if history.num_arrived:
        mean = math.fsum(outcome.reward for outcome in history.outcomes) / history.num_arrived
        rows.append((f"mean {history.outcome_name}", _number(mean)))
        ago = facts.now - history.outcomes[-1].arrived_at
        rows.append(("last outcome", f"{ago:.0f} s ago"))
    bar = []
    if facts.wanted:
        done = min(history.num_queries, facts.wanted)
        bar = [element("progress", value=done, max=facts.wanted)]
        rows.insert(0, ("rounds", f"{history.num_queries} of {facts.wanted}"))
    title = element("h1", facts.title)
    return element("header", title, _soft(state), *bar, table((), [*rows, *facts.further]))


def _crosses(history: History) -> list[str]:
    """Return the explanation of crosses, if there are any."""
    return [] if all(map(_is_met, history.outcomes)) else ["crosses: a constraint was not met"]


def _is_met(outcome: Outcome) -> bool:
    return all(g <= 0.0 for g in outcome.constraints)


def _rewards(facts: PageFacts) -> Markup:
    history = facts.history
    if not history.num_queries:
        return _section(_title(facts), _soft("No query has been asked yet."))
    rewards = [outcome.reward for _, outcome in facts.told]
    rounds = numbers_axis([0.5, history.num_queries + 0.5], "round", whole=True, pad=0.01)
    chart = Chart(
        rounds, _reward_axis(facts, rewards), f"{_title(facts)} and the best so far, by round"
    )
    foot = chart.y.low if history.maximize else chart.y.high
    _draw_resets(chart, facts)
    shapes = {origin: shape for origin, shape, _ in ORIGINS}
    out = "v" if history.maximize else "^"
    step = math.ceil(len(facts.told) / MOST_MARKS)
    for query, outcome in facts.told[:: max(step, 1)]:
        met = _is_met(outcome)
        title = f"round {query.round_number}: {_number(outcome.reward)} at {point_text(query)}"
        is_low = history.is_better(foot, outcome.reward)
        shape = out if is_low else shapes.get(query.origin, "o") if met else "x"
        kind = "old" if is_low else "told" if met else "over"
        chart.mark(query.round_number, outcome.reward, shape, kind, title, 3.0, 0.35)
    waiting = [(query, "o", "pending") for query in history.pending()]
    failed = [(history.query(failure.query_id), "x", "failed") for failure in history.failures]
    for query, shape, kind in [*waiting, *failed]:
        title = f"round {query.round_number}: {kind}, at {point_text(query)}"
        chart.mark(query.round_number, chart.y.low, shape, kind, title, 3.5)
    chart.steps(_best_so_far(facts), "best")
    used = {query.origin for query, _ in facts.told}
    names = {"o": "circles", "s": "squares", "^": "triangles", "v": "triangles", "D": "diamonds"}
    words = [f"{names[shape]}: {label}" for origin, shape, label in ORIGINS if origin in used]
    words += ["line: best so far"]
    words += (
        ["crosses: a constraint was not met"] if not all(map(_is_met, history.outcomes)) else []
    )
    if waiting or failed:
        words.append("at the foot: pending (open) and failed (crosses)")
    if any(history.is_better(foot, reward) for reward in rewards):
        words.append(
            "triangles at the foot: rewards below this axis"
            if history.maximize
            else "triangles at the top: costs above this axis"
        )
    if step > 1:
        words.append(f"one of {step} {history.outcome_name}s is drawn")
    return _section(_title(facts), _picture(chart, "; ".join(words) + "."))


def _title(facts: PageFacts) -> str:
    """Return what the outcomes are called, at the beginning of a line."""
    return f"{facts.history.outcome_name.capitalize()}s"


def _reward_axis(facts: PageFacts, rewards: Sequence[float]) -> Axis:
    """Return an axis that contains the better rewards; those far below their middle are cut off.

    For costs, those far above are cut off.
    """
    sign = 1.0 if facts.history.maximize else -1.0
    found = sorted(sign * reward for reward in rewards)
    if found:
        middle, top = found[len(found) // 2], found[-1]
        floor = top - 4.0 * (top - middle)
        if floor < top:
            found = [reward for reward in found if reward >= floor]
    return numbers_axis([sign * y for y in found], facts.history.outcome_name)


def _best_so_far(facts: PageFacts) -> list[tuple[float, float | None]]:
    """Return rounds and the best reward that met all constraints; it starts over after resets."""
    worst = -math.inf if facts.history.maximize else math.inf
    begins, best = sorted(after for after, _ in facts.resets), worst
    steps: list[tuple[float, float | None]] = []
    for query, outcome in facts.told:
        while begins and begins[0] < query.round_number:
            after, best = begins.pop(0), worst
            steps += [(after + 0.5, None)] if steps else []
        if _is_met(outcome) and facts.history.is_better(outcome.reward, best):
            best = outcome.reward
            steps.append((query.round_number, best))
    if steps:
        steps.append((facts.history.num_queries + 0.5, steps[-1][1]))
    return steps


def _draw_resets(chart: Chart, facts: PageFacts) -> None:
    for after, reason in facts.resets:
        chart.upright(after + 0.5, "reset", f"started over after round {after}: {reason}")


def _coordinate_axis(facts: PageFacts, i: int) -> Axis:
    """Return the axis of one parameter, with native values at its ticks."""
    domain, dim = facts.domain, facts.history.dim
    label = axis_names(domain, dim)[i]
    if not isinstance(domain, Box):
        values = [float(query.x[i]) for query in facts.history.queries]
        return numbers_axis(values, label)
    whole = i in domain.integer_dims
    low, high = domain.bounds[:, i].tolist()
    room = 0.5 if _is_category(domain, i) else 0.0
    known = numbers_axis([low - room, high + room], label, whole=whole, pad=0.03)
    ticks = native_ticks(domain, i) if isinstance(domain, Space) else None
    return known if ticks is None else Axis(known.low, known.high, label, tuple(ticks))


def _is_category(domain: Any, i: int) -> bool:
    if not isinstance(domain, Space):
        return False
    return isinstance(domain.parameters[domain.names[i]], Categorical)


def _at(facts: PageFacts, query: Query, i: int) -> float:
    """Return a coordinate; within a category, marks are spread so that none hides another."""
    value = float(query.x[i])
    if _is_category(facts.domain, i):
        value += 0.6 * ((query.round_number * 0.6180339887498949) % 1.0 - 0.5)
    return value


def _map(facts: PageFacts) -> Markup:
    history = facts.history
    if not history.num_queries:
        return Markup("")
    dim = history.dim
    shown = range(min(dim, MOST_PARAMETERS))
    charts = []
    if 1 < dim <= MOST_MAPPED:
        charts = [_map_of(facts, i, j) for i, j in combinations(range(dim), 2)]
    if dim != 2:
        charts += [_slice_of(facts, i) for i in shown]
    better = "larger" if history.maximize else "less"
    words = [f"the stronger the color, the {better} the {history.outcome_name}"]
    words += ["open circles: before the last reset"] if facts.since else []
    words += (
        ["crosses: a constraint was not met"] if not all(map(_is_met, history.outcomes)) else []
    )
    words += ["open and orange: pending"] if history.num_pending else []
    words += ["contexts differ from mark to mark"] if history.context_dim else []
    if len(shown) < dim:
        words.append(f"the first {len(shown)} of {dim} parameters")
    note = _soft("; ".join(words).capitalize() + ".")
    return _section("Map of points", note, element("div", *charts, class_="maps"))


def _marks(facts: PageFacts) -> list[tuple[Query, Outcome, str, str, float | None]]:
    """Return told queries with shape, kind and strength, the weakest first."""
    current = [pair for pair in facts.told if pair[0].round_number > facts.since]
    sign = 1.0 if facts.history.maximize else -1.0  # a sort keeps the order of equals
    order = {p[0].id: k for k, p in enumerate(sorted(current, key=lambda p: sign * p[1].reward))}
    marks: list[tuple[Query, Outcome, str, str, float | None]] = []
    for query, outcome in facts.told[-MOST_MARKS:]:
        rank = order.get(query.id)
        if not _is_met(outcome):
            marks.append((query, outcome, "x", "over", None))
        elif rank is None:
            marks.append((query, outcome, "o", "old", None))
        else:
            share = (rank + 1.0) / len(order)
            marks.append((query, outcome, "o", "told", 0.05 + 0.95 * share**2))
    return sorted(marks, key=lambda mark: -1.0 if mark[4] is None else mark[4])


def _map_of(facts: PageFacts, i: int, j: int) -> Markup:
    x, y = _coordinate_axis(facts, i), _coordinate_axis(facts, j)
    chart = Chart(x, y, f"Points by {x.label} and {y.label}", 430.0, 320.0)
    for query, outcome, shape, kind, strength in _marks(facts):
        title = f"round {query.round_number}: {_number(outcome.reward)} at {point_text(query)}"
        at = (_at(facts, query, i), _at(facts, query, j))
        chart.mark(*at, shape, kind, title, 4.5, strength)
    for query in facts.history.pending():
        at = (_at(facts, query, i), _at(facts, query, j))
        chart.mark(*at, "o", "pending", f"round {query.round_number}: pending")
    if facts.best is not None:
        query = facts.best[0]
        chart.mark(_at(facts, query, i), _at(facts, query, j), "D", "best", "best now", 9.0)
    return _picture(chart)


def _slice_of(facts: PageFacts, i: int) -> Markup:
    x = _coordinate_axis(facts, i)
    y = _reward_axis(facts, [outcome.reward for _, outcome in facts.told])
    chart = Chart(x, y, f"{_title(facts)} by {x.label}", 430.0, 240.0)
    for query, outcome, shape, kind, strength in _marks(facts):
        title = f"round {query.round_number}: {_number(outcome.reward)} at {point_text(query)}"
        chart.mark(_at(facts, query, i), outcome.reward, shape, kind, title, 4.0, strength)
    for query in facts.history.pending():
        title = f"round {query.round_number}: pending"
        chart.mark(_at(facts, query, i), y.low, "o", "pending", title)
    if facts.best is not None:
        query, outcome = facts.best
        chart.mark(_at(facts, query, i), outcome.reward, "D", "best", "best now", 8.0)
    return _picture(chart)


def _last(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> list[Markup]:
    """Return a table of the last rows, with a note if earlier ones are left out."""
    left_out = len(rows) - MOST_ROWS
    note = [_soft(f"{left_out} earlier rows are left out.")] if left_out > 0 else []
    return [*note, table(names, rows[-MOST_ROWS:])]


def _pending(facts: PageFacts) -> Markup:
    history = facts.history
    rows = [
        [
            query.id,
            query.round_number,
            history.num_queries + 1 - query.round_number,
            f"{facts.now - query.asked_at:.0f} s",
            point_text(query),
            "given up" if query.id in facts.given_up else "",
        ]
        for query in history.pending()
    ]
    names = ["query", "round", "age in rounds", "age", "point", ""]
    return _section("Pending", *_last(rows, names)) if rows else Markup("")


def _failures(facts: PageFacts) -> Markup:
    rows = [
        [
            failure.query_id,
            facts.history.query(failure.query_id).round_number,
            point_text(facts.history.query(failure.query_id)),
            failure.reason or "",
        ]
        for failure in facts.history.failures
    ]
    return (
        _section("Failed", *_last(rows, ["query", "round", "point", "reason"]))
        if rows
        else (Markup(""))
    )


def _retractions(facts: PageFacts) -> Markup:
    rows = [
        [
            retraction.query_id,
            _number(retraction.outcome.reward),
            retraction.retracted_round,
            retraction.reason,
        ]
        for retraction in facts.history.retractions
    ]
    names = ["query", facts.history.outcome_name, "after round", "reason"]
    return _section("Retracted", *_last(rows, names)) if rows else Markup("")


def _resets(facts: PageFacts) -> Markup:
    rows = [[after, k + 2, reason] for k, (after, reason) in enumerate(facts.resets)]
    names = ["after round", "segment that began", "reason"]
    return _section("Resets", *_last(rows, names)) if rows else Markup("")


def _constraints(facts: PageFacts) -> Markup:
    history = facts.history
    count = history.num_constraints
    if not count:
        return Markup("")
    if not history.num_arrived:
        return _section("Constraints", _soft("No outcome has been told yet."))
    known = facts.constraint_names
    names = [known[j] if j < len(known) else f"constraint {j + 1}" for j in range(count)]
    rows, charts = [], []
    for j, name in enumerate(names):
        sums, averages, over = 0.0, [], 0.0
        for k, outcome in enumerate(history.outcomes):
            sums += outcome.constraints[j]
            over += max(outcome.constraints[j], 0.0)
            averages.append((k + 1.0, sums / (k + 1)))
        multiplier = _number(facts.multipliers[j]) if j < len(facts.multipliers) else ""
        met = (
            element("span", "kept", class_="yes")
            if sums <= 0.0
            else (element("span", "exceeded", class_="no"))
        )
        rows.append(
            [
                name,
                met,
                _number(averages[-1][1]),
                _number(max(sums, 0.0)),
                _number(over),
                multiplier,
            ]
        )
        step = math.ceil(len(averages) / MOST_MARKS)
        thinned = [*averages[::step], averages[-1]]
        x = numbers_axis([1.0, float(len(averages))], "outcomes", whole=True)
        y = numbers_axis([0.0, *(value for _, value in thinned)], "average")
        chart = Chart(x, y, f"Average of {name} so far", 430.0, 220.0)
        chart.across(0.0, "limit")
        chart.line(list(thinned), "first")
        charts.append(_picture(chart, f"{name}: the average so far; at most 0 is within the limit"))
    columns = ["constraint", "on average", "average", "signed violation", "rectified violation"]
    return _section(
        "Constraints",
        table([*columns, "multiplier"], rows),
        element("div", *charts, class_="maps"),
    )


def _confidence(facts: PageFacts) -> Markup:
    """Return the widths of confidence bounds and the information gain, if they are on record."""
    labels = {"width": "width (standard deviations)", "information_gain": "information gain (nats)"}
    charts = []
    for name, label in labels.items():
        on_record = ((q.round_number, q.diagnostics.get(name)) for q in facts.history.queries)
        points: list[tuple[float, float | None]] = [
            (float(t), v) for t, v in on_record if v is not None and math.isfinite(v)
        ]
        if not points:
            continue
        points = [*points[:: math.ceil(len(points) / MOST_MARKS)], points[-1]]
        breaks = [(after + 0.5, None) for after, _ in facts.resets]
        x = numbers_axis([1.0, float(facts.history.num_queries)], "round", whole=True)
        y = numbers_axis([v for _, v in points if v is not None], label)
        chart = Chart(x, y, f"{label} by round", 430.0, 220.0)
        _draw_resets(chart, facts)
        chart.line(sorted([*points, *breaks], key=lambda point: point[0]), "first")
        charts.append(_picture(chart))
    if not charts:
        return Markup("")
    return _section("Confidence", element("div", *charts, class_="maps"))


def _guarantee(facts: PageFacts) -> Markup:
    guarantee = facts.guarantee
    if not isinstance(guarantee, Guarantee):
        return _section("Guarantee", _soft(guarantee)) if guarantee else Markup("")
    verdict = str(guarantee).partition("\n")[0].removeprefix(f"{guarantee.method}: ")
    shown = element("span", verdict, class_="yes" if guarantee.holds else "no")
    rows: list[tuple[str, Any]] = [("method", guarantee.method), ("verdict", shown)]
    rows += [("theorem", guarantee.theorem)] if guarantee.theorem else []
    bound = guarantee.regret_bound
    rows += [("regret so far, at most", _number(bound))] if bound is not None else []
    rows += [(name, _number(value)) for name, value in guarantee.constants.items()]
    return _section("Guarantee", table((), rows), *guarantee.parts_as_markup())


def _last_rounds(facts: PageFacts) -> Markup:
    history, rows = facts.history, []
    for query in history.queries[-MOST_ROWS:]:
        outcome = history.outcome(query.id)
        reward = "" if outcome is None else _number(outcome.reward)
        row = [query.round_number, query.origin, history.state(query.id), reward, point_text(query)]
        if history.context_dim:
            context = query.context
            row.append("" if context is None else ", ".join(map(_number, context.tolist())))
        rows.append(row)
    names = ["round", "origin", "state", history.outcome_name, "point"]
    names += ["context"] if history.context_dim else []
    return _section("Last rounds", table(names, rows[::-1])) if rows else Markup("")


def _settings(facts: PageFacts) -> Markup:
    return _section("Settings", table((), facts.settings)) if facts.settings else Markup("")
