"""Pictures of an experiment, one per panel, drawn from the tables that it wrote.

Nothing is played for a picture, so all pictures can be redrawn from the committed tables.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from botorch_bandits.cli import write_atomically
from botorch_bandits.plotting import LINE_STYLES, label_lines, new_figure
from botorch_bandits.problems import evenly_spaced_change_points
from papers.curves import CURVES_TABLE

Row = Mapping[str, str]

FOLDER = "images"
"""The folder of pictures within an experiment's folder."""

WIDTH, HEIGHT = 7.0, 3.5
"""Size of a picture in inches, as wide as a page's column; its text has 9 points or more."""

NAME_HEIGHT = 0.17
"""Height in inches of a name beside the axes; many names make a picture taller."""

TEXT = 9
"""The smallest font size, in points."""

TITLE_LETTERS = 70
"""Letters of a title that fit in one line above the axes."""

UNITS = {
    "cumulative regret": "units of the reward",
    "mean regret a round": "units of the reward",
    "simple regret": "units of the reward",
    "time-averaged regret": "units of the reward",
    "time-averaged violation": "units of the constraint",
    "cumulative cost": "units of the constraint",
}


@dataclass(frozen=True)
class Written:
    """The files that an experiment has written.

    Attributes:
        tables: Rows by the name of their file, without ``.csv``.
        settings: The contents of ``settings.json``.
    """

    tables: Mapping[str, Sequence[Row]]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """One panel of a figure.

    Attributes:
        name: The name of its file, without the suffix.
        panels: The panels of the experiment that it shows.
        title: A title in words.
        alt: The alternative text.
        draw: Draws the picture on axes.
        height: The height in inches.
        is_detail: Whether a page shows it only on demand.
    """

    name: str
    panels: tuple[str, ...]
    title: str
    alt: str
    draw: Callable[[Any], None]
    height: float = HEIGHT
    is_detail: bool = False


def curve_pictures(written: Written) -> list[Picture]:
    """Return one picture of curves per panel and quantity, with bands of one standard error.

    Args:
        written: The tables of an experiment; without a table of curves there are none.
    """
    found = []
    for panel in written.settings.get("panels", ()):
        quantities = curves_of(written, (panel["name"],))
        for quantity, lines in quantities.items():
            name = panel["name"] if len(quantities) == 1 else with_quantity(panel["name"], quantity)
            found.append(
                curve_picture(name, (panel["name"],), title_of(panel), quantity, lines, written)
            )
    return found


def no_pictures(written: Written) -> list[Picture]:
    """Return nothing, for experiments that are read from a table.

    Args:
        written: Not used.
    """
    return []


Lines = Mapping[str, Sequence[Row]]
"""The rows of each method by its name, one per round."""


def curves_of(written: Written, panels: Sequence[str]) -> dict[str, dict[str, list[Row]]]:
    """Return the curves of panels by quantity and method.

    Args:
        written: The tables of an experiment.
        panels: Names of panels, whose methods have different names.
    """
    found: dict[str, dict[str, list[Row]]] = {}
    for row in written.tables.get(CURVES_TABLE, ()):
        if row["experiment"] in panels:
            found.setdefault(row["quantity"], {}).setdefault(row["method"], []).append(row)
    return found


def with_quantity(panel: str, quantity: str) -> str:
    """Return the name of a picture that shows one of a panel's quantities.

    Args:
        panel: Its name.
        quantity: The quantity in words, of which the last one is used.
    """
    return f"{panel}-{quantity.split()[-1]}"


def title_of(panel: Mapping[str, Any]) -> str:
    """Return the title of a panel, beginning with a capital letter.

    Args:
        panel: What the settings say about it.
    """
    title = str(panel["title"])
    return title[:1].upper() + title[1:]


def curve_picture(
    name: str,
    panels: tuple[str, ...],
    title: str,
    quantity: str,
    lines: Lines,
    written: Written,
    has_changes: bool = True,
) -> Picture:
    """Return a picture of curves; changes of the reward are vertical lines.

    Args:
        name: The name of the picture.
        panels: The panels that it shows.
        title: A title in words.
        quantity: The quantity of the curves.
        lines: The curves.
        written: The files whose settings say whether axes are logarithmic and where the reward
            changes.
        has_changes: Whether the reward changes, if the settings have periods.
    """
    panel = next(p for p in written.settings["panels"] if p["name"] == panels[0])
    settings = written.settings.get("settings", {}).get(panels[0], {})
    changes: tuple[int, ...] = ()
    if has_changes and settings.get("num_periods", panel["rounds"] + 1) <= panel["rounds"]:
        changes = evenly_spaced_change_points(panel["rounds"], int(settings["num_periods"]))
    is_logarithmic = bool(panel.get("logarithmic"))
    draw = partial(
        draw_curves, quantity=quantity, lines=lines, logarithmic=is_logarithmic, changes=changes
    )
    axes = " on logarithmic axes" if is_logarithmic else ""
    dotted = f" Vertical lines mark {len(changes)} changes of the reward." if changes else ""
    alt = (
        f"{title}: {quantity} over {panel['rounds']} rounds{axes}, a line for each of "
        f"{len(lines)} methods. {ends_in_words(lines)}{dotted}"
    )
    return Picture(name, panels, title, alt, draw, height_for(lines))


def height_for(lines: Lines) -> float:
    """Return the height that a picture needs for the names beside its axes.

    Args:
        lines: The curves.
    """
    return max(HEIGHT, 1.0 + NAME_HEIGHT * sum(1 + len(name) // 28 for name in lines))


def ends_in_words(lines: Lines) -> str:
    """Return the last values of curves in words, from the smallest to the largest.

    Args:
        lines: The curves.
    """
    ends = sorted((float(rows[-1]["mean"]), name) for name, rows in lines.items())
    return "At the end: " + "; ".join(f"{name} {value:.3g}" for value, name in ends) + "."


def draw_curves(
    ax: Any,
    quantity: str,
    lines: Lines,
    logarithmic: bool = False,
    changes: Sequence[int] = (),
) -> None:
    """Draw the mean of each method over the rounds, with a band of one standard error.

    Args:
        ax: Axes.
        quantity: The quantity that is drawn.
        lines: The curves.
        logarithmic: Whether both axes are logarithmic.
        changes: The last rounds before the reward changes.
    """
    for (name, rows), style in zip(lines.items(), cycle(LINE_STYLES)):
        rounds = [int(row["round"]) for row in rows]
        means = [float(row["mean"]) for row in rows]
        errors = [float(row["standard_error"] or 0.0) for row in rows]
        if any(errors):
            low = [mean - error for mean, error in zip(means, errors, strict=True)]
            high = [mean + error for mean, error in zip(means, errors, strict=True)]
            ax.fill_between(rounds, low, high, color=style["color"], alpha=0.18, lw=0)
        ax.plot(rounds, means, label=name, lw=1.5, **style)
    for last in changes:
        ax.axvline(last + 0.5, color="0.6", lw=0.9, zorder=0)
    if logarithmic:
        ax.set_xscale("log")
        ax.set_yscale("log")
    elif all(float(row["mean"]) >= 0.0 for rows in lines.values() for row in rows):
        ax.set_ylim(bottom=0.0)
    else:
        ax.axhline(0.0, color="0.6", lw=0.9, zorder=0)
    ax.margins(x=0.0)
    ax.set_xlabel("round")
    unit = UNITS.get(quantity)
    ax.set_ylabel(f"{quantity}\n({unit})" if unit else quantity)


def save_picture(picture: Picture, path: Path) -> None:
    """Draw a picture and save it as an SVG file with text kept as text, replacing the whole file.

    Args:
        picture: The picture to draw.
        path: The file.
    """
    import matplotlib.pyplot as plt

    figure, axes = new_figure(width=WIDTH, height=picture.height)
    ax = axes[0, 0]
    picture.draw(ax)
    ax.set_title(textwrap.fill(picture.title, TITLE_LETTERS), fontsize=TEXT + 1, loc="left")
    ax.tick_params(labelsize=TEXT)
    ax.xaxis.label.set_size(TEXT)
    ax.yaxis.label.set_size(TEXT)
    label_lines(ax, TEXT)
    content = io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": picture.name}):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, small_svg(content.getvalue()))


def small_svg(text: str) -> str:
    """Return an SVG without what a browser does not need: digits, metadata and comments.

    Args:
        text: The output of matplotlib.
    """
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", lambda tag: _with_few_digits(tag[0]), text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*sans-serif", "'DejaVu Sans', Verdana, sans-serif", text)
    return re.sub(r"\s*\n\s*", "\n", text).strip() + "\n"


def _with_few_digits(tag: str) -> str:
    """Round the numbers of a tag, which are lengths in points; text between tags is unchanged."""
    tag = re.sub(r"-?\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}", tag)
    return re.sub(r"\n([LQC]) ", r"\1", tag)
