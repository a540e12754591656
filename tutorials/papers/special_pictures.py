"""Pictures other than the curves of one panel: fitted powers, boxes, points, and chosen methods.

Like all pictures, they are drawn from the tables of an experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from botorch_bandits.plotting import LINE_STYLES, label_points
from papers.beyond_forgetting import NEVER
from papers.beyond_multipliers import FAMILIES
from papers.pictures import (
    UNITS,
    Picture,
    Row,
    Written,
    curve_picture,
    curve_pictures,
    curves_of,
    title_of,
    with_quantity,
)
from papers.shi import BOXES_TABLE, EPOCH_LENGTHS

GROUPS = {
    "restarting": (NEVER, "explores", "restart"),
    "forgetting": (NEVER, "window", "weights", "time kernel"),
}
"""The beginnings of the names of methods in each picture of beyond-forgetting."""


def forgetting_pictures(written: Written) -> list[Picture]:
    """Return two pictures per panel: methods that restart, and methods that forget.

    Args:
        written: The tables of beyond-forgetting.
    """
    found = []
    for panel in written.settings.get("panels", ()):
        for quantity, lines in curves_of(written, (panel["name"],)).items():
            for group, words in GROUPS.items():
                chosen = {name: rows for name, rows in lines.items() if name.startswith(words)}
                title = f"{title_of(panel)}: {group}"
                name = f"{panel['name']}-{group}"
                names, changes = (panel["name"],), panel["name"].endswith("-abrupt")
                picture = curve_picture(name, names, title, quantity, chosen, written, changes)
                found.append(picture)
    return found


AXES = {"T": "horizon T (rounds)", "K": "stationary periods K"}
"""Axis labels by the letter of the variable."""


def power_pictures(written: Written) -> list[Picture]:
    """Return the picture of mean regrets with the fitted and the published power.

    Args:
        written: The tables of avanesov-horizon or avanesov-periods.
    """
    rows = written.tables.get("table", ())
    fits = written.tables.get("power", ())
    if not rows or not fits:
        return []
    letter = fits[0]["variable"]
    name = rows[0]["experiment"].rsplit("-", 1)[0]
    words = [
        f"{fit['source']}: {float(fit['constant']):.3g} {letter}^{float(fit['power']):.3g}"
        for fit in fits
    ]
    ends = [f"{row['experiment'].rsplit('-', 1)[1]}: {float(row['mean']):.0f}" for row in rows]
    title = f"Regret of GP-UCB-CPD against the {AXES[letter].rsplit(' ', 1)[0].strip()}"
    alt = (
        f"{title} on logarithmic axes: mean regrets with standard errors ({', '.join(ends)}), and "
        f"two straight lines, {' and '.join(words)}."
    )
    panels = tuple(row["experiment"] for row in rows)
    draw = partial(_draw_power, rows=rows, fits=fits, names=words, letter=letter)
    return [Picture(name, panels, title, alt, draw)]


def _draw_power(
    ax: Any, rows: Sequence[Row], fits: Sequence[Row], names: Sequence[str], letter: str
) -> None:
    sizes = [int(row["experiment"].rsplit("-", 1)[1]) for row in rows]
    means = [float(row["mean"]) for row in rows]
    errors = [float(row["standard_error"]) for row in rows]
    ax.errorbar(sizes, means, errors, fmt="o", color="black", capsize=3, label="_")
    for fit, name, style in zip(fits, names, LINE_STYLES[1:], strict=False):
        curve = [float(fit["constant"]) * size ** float(fit["power"]) for size in sizes]
        ax.plot(sizes, curve, label=name, lw=1.5, **style)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    low, high = ax.get_ylim()
    steps = [10**power * step for power in range(1, 5) for step in (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)]
    shown = [int(step) for step in steps if low <= step <= high]
    ax.set_yticks(shown, [str(step) for step in shown])
    ax.minorticks_off()
    ax.set_xlabel(AXES[letter])
    ax.set_ylabel(f"cumulative regret\n({UNITS['cumulative regret']})")


KINDS = {"noiseless": "constraint observed exactly", "noisy": "constraint observed with noise"}
PROBLEMS = {"shi-gardner": "Small feasible region", "shi-rates": "Data rates"}


def constraint_pictures(written: Written) -> list[Picture]:
    """Return means of regret and violation, box plots over runs, and the epochs' trade.

    Args:
        written: The tables of shi-gardner or shi-rates.
    """
    name = str(written.settings.get("experiment", ""))
    known = {panel["name"] for panel in written.settings.get("panels", ())}
    found: list[Picture] = []
    for kind, observed in KINDS.items():
        start = f"{PROBLEMS[name]}, {observed}"
        compared = (f"{name}-{kind}", f"{name}-{kind}-slow")
        fresh = (f"{name}-{kind}-surrogates",)
        for panels, title in ((compared, start), (fresh, f"{start}: forms of the epochs")):
            for quantity, lines in curves_of(written, panels).items():
                file = with_quantity(panels[0], quantity)
                picture = curve_picture(file, panels, title, quantity, lines, written)
                found.append(picture)
        found += _box_pictures(written, compared[0], start)
    epochs = f"{name}-epochs"
    if epochs in known:
        found.append(_epochs_picture(written, epochs, PROBLEMS[name]))
    return found


def _box_pictures(written: Written, panel: str, start: str) -> list[Picture]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in written.tables.get(BOXES_TABLE, ()):
        if row["experiment"] == panel:
            groups.setdefault((row["quantity"], row["method"]), []).append(row)
    found = []
    for (quantity, method), rows in groups.items():
        plain = "".join(c if c.isalnum() else "-" for c in method.lower()).replace("--", "-")
        title = f"{start}: {quantity} of {method}"
        alt = (
            f"{title}, box plots over runs at {len(rows)} rounds. The median goes from "
            f"{float(rows[0]['median']):.3g} at round {rows[0]['round']} to "
            f"{float(rows[-1]['median']):.3g} at round {rows[-1]['round']}; the whiskers there end "
            f"at {float(rows[-1]['least']):.3g} and {float(rows[-1]['largest']):.3g}."
        )
        name = with_quantity(f"{panel}-boxes-{plain}", quantity)
        draw = partial(_draw_boxes, rows=rows, quantity=quantity)
        found.append(Picture(name, (panel,), title, alt, draw, 2.6, is_detail=True))
    return found


def _draw_boxes(ax: Any, rows: Sequence[Row], quantity: str) -> None:
    """Draw boxes whose whiskers end at the smallest and the largest value over runs."""
    keys = {"med": "median", "q1": "lower_quartile", "q3": "upper_quartile"}
    keys |= {"whislo": "least", "whishi": "largest"}
    boxes = [{short: float(row[key]) for short, key in keys.items()} for row in rows]
    ax.bxp(boxes, showfliers=False, medianprops={"color": LINE_STYLES[1]["color"], "lw": 1.5})
    ax.set_xticks(range(1, len(rows) + 1), [row["round"] for row in rows])
    ax.axhline(0.0, color="0.6", lw=0.9, zorder=0)
    ax.set_xlabel("round (boxes: quartiles over runs; whiskers: all runs)")
    ax.set_ylabel(f"{quantity}\n({UNITS[quantity]})")


def _epochs_picture(written: Written, panel: str, problem: str) -> Picture:
    last = {
        row["method"]: row
        for row in written.tables.get("violation", ())
        if row["experiment"] == panel
    }
    rows = [last[f"S = {S}"] for S in EPOCH_LENGTHS if f"S = {S}" in last]
    title = f"{problem}: regret against violation for epochs of S rounds"
    ends = "; ".join(
        f"{row['method']}: violation {float(row['violation_mean']):.3g}, regret "
        f"{float(row['regret_mean']):.3g}"
        for row in rows
    )
    alt = f"{title}, time averages at the end with standard errors. {ends}."
    return Picture(panel, (panel,), title, alt, partial(_draw_epochs, rows=rows))


def _draw_epochs(ax: Any, rows: Sequence[Row]) -> None:
    """Draw a point per epoch length, as in the paper's Figure 1."""
    x, y, x_error, y_error = (
        [float(row[f"{quantity}_{what}"]) for row in rows]
        for what in ("mean", "standard_error")
        for quantity in ("violation", "regret")
    )
    ax.errorbar(x, y, y_error, x_error, fmt="o", color="black", capsize=3, label="_")
    ax.set_xlabel(f"time-averaged violation ({UNITS['time-averaged violation']})")
    ax.set_ylabel(f"time-averaged regret\n({UNITS['time-averaged regret']})")
    ax.margins(x=0.15)
    label_points(ax, list(zip(x, y, strict=True)), [row["method"] for row in rows])


def multiplier_pictures(written: Written) -> list[Picture]:
    """Return one picture per panel: regret against violation, with a point per method and setting.

    Args:
        written: The tables of beyond-multipliers.
    """
    found = []
    for panel in written.settings.get("panels", ()):
        name = panel["name"]
        rows = [
            row
            for row in written.tables.get("violation", ())
            if row["experiment"] == name and int(row["round"]) == panel["rounds"]
        ]
        if not rows:
            continue
        least = min(rows, key=lambda row: float(row["violation_mean"]))
        title = f"{title_of(panel)}, after {panel['rounds']} rounds"
        alt = (
            f"{title}: regret a round against violation a round, a point for each of {len(rows)} "
            f"settings of {len(FAMILIES)} kinds of multipliers, with two standard errors on either "
            f"side. Least violation: {least['method']}, {float(least['violation_mean']):.3g} at "
            f"regret {float(least['regret_mean']):.3g}."
        )
        found.append(Picture(name, (name,), title, alt, partial(_draw_points, rows=rows), 4.6))
    return found


POINTS = {
    family: (marker, style["color"])
    for (family, marker), style in zip(FAMILIES.items(), LINE_STYLES, strict=False)
}
"""The marker and color of each family of methods."""


def _draw_points(ax: Any, rows: Sequence[Row]) -> None:
    points: list[tuple[float, float]] = []
    names: list[str] = []
    for family, (marker, color) in POINTS.items():
        shown = [row for row in rows if row["method"].startswith(family)]
        x, y = ([float(row[f"{q}_mean"]) for row in shown] for q in ("violation", "regret"))
        dx, dy = (
            [2.0 * float(row[f"{q}_standard_error"]) for row in shown]
            for q in ("violation", "regret")
        )
        look = {"fmt": marker, "color": color, "ms": 5, "elinewidth": 0.8}
        container = ax.errorbar(x, y, dy, dx, label=family, **look)
        container[0].set_label(
            "_"
        )  # a family has no end of a curve next to which its name could be placed
        points += zip(x, y, strict=True)
        names += [row["method"].rsplit(", ", 1)[1].replace("step ", "") for row in shown]
    ax.axhline(0.0, color="0.6", lw=0.9, zorder=0)
    ax.set_xscale("symlog", linthresh=0.01)
    ax.set_yscale("symlog", linthresh=0.1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
    ax.set_xlim(-0.001, 3.0 * ax.get_xlim()[1])  # names are to the right of their points
    ax.set_ylim(top=1.4 * ax.get_ylim()[1])
    ax.set_xlabel(f"violation a round ({UNITS['time-averaged violation']})")
    ax.set_ylabel(f"regret a round\n({UNITS['time-averaged regret']})")
    ax.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    label_points(ax, points, names)


def combined_pictures(written: Written) -> list[Picture]:
    """Return cumulative regret and cumulative cost, with the change in the middle.

    Args:
        written: The tables of beyond-combined.
    """
    found = []
    for picture in curve_pictures(written):
        rounds = written.settings["panels"][0]["rounds"]
        alt = f"{picture.alt} A vertical line marks the change after round {rounds // 2}."
        draw = partial(_with_change, draw=picture.draw, last=rounds // 2)
        found.append(_changed(picture, alt=alt, draw=draw))
    return found


def _changed(picture: Picture, **others: Any) -> Picture:
    known: Mapping[str, Any] = {**vars(picture), **others}
    return Picture(**known)


def _with_change(ax: Any, draw: Any, last: int) -> None:
    draw(ax)
    ax.axvline(last + 0.5, color="0.6", lw=0.9, zorder=0)
    ax.axhline(0.0, color="0.6", lw=0.9, zorder=0)


STORED = {
    "verma-tuning-svm-ucb-poisson": {
        "GP-UCB-SDF": ((35, 0.271), (105, 0.243)),
        "GP-UCB": ((35, 0.331), (105, 0.290)),
        "GP-BUCB": ((35, 0.288), (105, 0.267)),
    }
}
"""Validation errors that the authors store with their released code, after 30 and 100 rounds. The 5
initial points before these rounds are counted here."""


def tuning_pictures(written: Written) -> list[Picture]:
    """Return the curves of each panel, with the stored results of the released code where known.

    Args:
        written: The tables of verma-tuning.
    """
    found = []
    for picture in curve_pictures(written):
        stored = STORED.get(picture.name, {})
        picture = _changed(picture, draw=partial(_with_error, draw=picture.draw))
        lines = next(iter(curves_of(written, picture.panels).values()))
        shown = {name: points for name, points in stored.items() if name in lines}
        if not shown:
            found.append(picture)
            continue
        words = "; ".join(
            f"{name} {' and '.join(f'{value:g} at round {t}' for t, value in points)}"
            for name, points in shown.items()
        )
        alt = f"{picture.alt} Circles are stored results of the released code: {words}."
        draw = partial(_with_stored, draw=picture.draw, stored=shown)
        found.append(_changed(picture, alt=alt, draw=draw))
    return found


def _with_error(ax: Any, draw: Any) -> None:
    """Label regret as validation error, because it is relative to an accuracy of 1."""
    draw(ax)
    ax.set_ylabel("simple regret\n(validation error)")


def _with_stored(ax: Any, draw: Any, stored: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    draw(ax)
    colors = {line.get_label(): line.get_color() for line in ax.get_lines()}
    look = {"ls": "none", "marker": "o", "mfc": "white", "ms": 6, "mew": 1.5}
    last = ax.get_xlim()[1]
    for name, points in stored.items():
        inside = [point for point in points if point[0] <= last]
        if inside:
            ax.plot(*zip(*inside, strict=True), color=colors[name], label="_", zorder=4, **look)
    handle = ax.plot([], [], color="black", label="_", **look)
    words = "stored results of the released code, in the color of the method"
    ax.legend(handle, [words], fontsize=9, loc="upper right")
