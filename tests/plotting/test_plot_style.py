"""One style: legible in black and white, without a screen, and without side effects."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
import torch
from gpytorch.kernels import RBFKernel
from matplotlib.colors import to_rgb

from botorch_bandits import Arms, BanditGP, Float, History, Space
from botorch_bandits.constraints import Ledger
from botorch_bandits.plotting import (
    LINE_STYLES,
    new_figure,
    plot_diagnostic,
    plot_information_gain,
    plot_ledger,
    plot_pending,
    plot_posterior,
    plot_regret,
    plot_rewards,
    plot_run,
    plot_timeline,
    plot_width_against_error,
    style,
)
from botorch_bandits.plotting.style import line_style

DOUBLE = torch.float64
GRAY_STEP, WIDTH_RATIO = 0.09, 1.3
ORIGINS = ("initial", "exploration", "acquisition", "attached", "random")


def history() -> History:
    table = History(dim=1)
    for i in range(30):
        known = {"segment": float(i > 14), "width": 2.0, "information_gain": math.log(1 + i)}
        x = torch.tensor([i / 30], dtype=DOUBLE)
        table.add_query(x, ORIGINS[i % 5], 0.0, None, known)
        earlier = i - i % 5  # so that some wait, and longer than others
        if i % 7 == 3:
            table.add_failure(i, 0.0)
        elif table.state(earlier) == "pending":
            table.add_outcome(earlier, math.sin(i), 0.0)
        elif i % 10 != 9:
            table.add_outcome(i, math.sin(i), 0.0)
    return table


def readings() -> list[Any]:
    return [
        SimpleNamespace(
            after_round=t, statistic=0.1 * (j + 1), threshold=0.2 * (j + 1), detected=t == 15,
            quantity=f"quantity {j}",
        )
        for t in range(3, 30, 3)
        for j in range(5)
    ]  # fmt: skip


def gp(dim: int) -> BanditGP:
    X = torch.rand(5, dim, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    return BanditGP(X, X[:, :1], kernel=RBFKernel().double(), noise=0.01)


def ledger() -> Ledger:
    values = torch.rand(12, 6, generator=torch.Generator().manual_seed(1), dtype=DOUBLE) - 0.5
    epochs = torch.arange(12) // 3 + 1
    return Ledger(values, epochs, torch.rand(4, 6, dtype=DOUBLE))


def regrets(count: int) -> dict[str, torch.Tensor]:
    rounds = torch.ones(2, 9, dtype=DOUBLE)
    return {f"method {i}": rounds * (i + 1) for i in range(count)}


RESETS = [SimpleNamespace(after_round=15, change_round=12)]
FIGURES: dict[str, Callable[[], Any]] = {
    "regret": lambda: plot_regret(regrets(20)),
    "fitted regret": lambda: plot_regret(regrets(8), logarithmic=True, fit_from=3),
    "run": lambda: plot_run(
        history(), "run", 0.2, change_points=[10], random_search=[0.1 * i for i in range(80)]
    ),
    "run with a model": lambda: plot_run(
        history(), "run", model=gp(1), domain=Space({"C": Float(1e-3, 1.0)})
    ),
    "rewards": lambda: plot_rewards(history(), reference=0.1, random_search=[0.1, 0.2, 0.3]),
    "diagnostic": lambda: plot_diagnostic(history(), "width"),
    "information gain": lambda: plot_information_gain(
        history(), {f"bound {i}": (lambda n, i=i: float(n * i)) for i in range(1, 5)}
    ),
    "pending": lambda: plot_pending(history(), max_delay=3),
    "timeline": lambda: plot_timeline(history(), RESETS, readings(), [10]),
    "ledger": lambda: plot_ledger(ledger()),
    "posterior": lambda: plot_posterior(
        gp(1), 0.0, 1.0, 2.0, history(), torch.sin, next_query=[0.3], constraint=lambda X: X - 0.4
    ),
    "posterior on arms": lambda: plot_posterior(
        gp(1), Arms([[0.1], [0.6]]), history=history(), function=torch.sin
    ),
    "posterior plane": lambda: plot_posterior(
        gp(2), [[0.0, 0.0], [1.0, 1.0]], function=lambda X: X[:, 0], constraint=lambda X: X[:, 1]
    ),
    "width": lambda: plot_width_against_error(
        gp(1), torch.rand(9, 1, dtype=DOUBLE), lambda X: X.squeeze(-1), 0.1
    ),
}


def axes_of(drawn: Any) -> list[Any]:
    first = drawn if hasattr(drawn, "figure") else drawn[0]
    return list(first.figure.axes)


def gray(color: Any) -> float:
    """Return the luminance of a color: what a black and white printer makes of it."""
    if color == "none":
        return 1.0
    red, green, blue = to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def look_of(line: Any) -> tuple[Any, ...]:
    """Return what can be seen of a line in print."""
    is_joined = str(line.get_linestyle()) not in ("None", "none", " ", "")
    has_marker = str(line.get_marker()) not in ("None", "none", " ", "")
    return (
        line._unscaled_dash_pattern if is_joined else None,
        line.get_marker() if has_marker else None,
        gray(line.get_color()),
        gray(line.get_markerfacecolor()) if has_marker else None,
        line.get_linewidth() if is_joined else None,
    )


def are_told_apart(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    if first[:2] != second[:2]:  # dashes and markers
        return True
    if abs(first[2] - second[2]) >= GRAY_STEP:
        return True
    if first[3] is not None and abs(first[3] - second[3]) >= GRAY_STEP:
        return True
    if first[4] is None or second[4] is None:
        return False
    return max(first[4], second[4]) / min(first[4], second[4]) >= WIDTH_RATIO


@pytest.mark.parametrize("name", FIGURES)
def test_lines_can_be_told_apart_without_color(name: str) -> None:
    for ax in axes_of(FIGURES[name]()):
        shown = {
            line.get_label(): look_of(line)
            for line in ax.get_lines()
            if not str(line.get_label()).startswith("_")
        }
        for (first, a), (second, b) in itertools.combinations(shown.items(), 2):
            assert are_told_apart(a, b), (first, second)


def test_the_check_itself_finds_two_hues_of_one_gray() -> None:
    ax = new_figure()[1][0, 0]
    a, b, c = (ax.plot([0, 1], [0, 1], color=color)[0] for color in ("#0072b2", "#b2470b", "0.9"))
    assert not are_told_apart(look_of(a), look_of(b))
    assert are_told_apart(look_of(a), look_of(c))


@pytest.mark.parametrize("blind", [None, "red", "green", "blue"])
def test_styles_are_told_apart_by_dashes_or_by_gray_with_any_color_vision(
    blind: str | None,
) -> None:
    """Two lines of the same dashes differ in lightness, and all hues are seen on white."""

    def seen(color: str) -> list[float]:
        channels = dict(zip(("red", "green", "blue"), to_rgb(color), strict=True))
        return [value for name, value in channels.items() if name != blind]

    for first, second in itertools.combinations(LINE_STYLES, 2):
        if str(first["ls"]) == str(second["ls"]):
            distance = max(
                abs(a - b) for a, b in zip(seen(first["color"]), seen(second["color"]), strict=True)
            )
            assert distance >= GRAY_STEP
            assert abs(gray(first["color"]) - gray(second["color"])) >= 2 * GRAY_STEP
    assert all(gray(each["color"]) <= 0.75 for each in LINE_STYLES)


def test_line_styles_repeat_with_markers() -> None:
    styles = [line_style(i) for i in range(48)]
    assert [{k: s[k] for k in ("color", "ls")} for s in styles[:8]] == list(LINE_STYLES)
    assert len({tuple(sorted(map(str, s.items()))) for s in styles}) == 48
    with pytest.raises(ValueError, match="more than 48 lines"):
        line_style(48)


@pytest.mark.parametrize("name", FIGURES)
def test_axes_have_labels_and_every_name_is_written(name: str) -> None:
    axes = axes_of(FIGURES[name]())
    figure = axes[0].figure
    for ax in axes:
        assert ax.get_ylabel()
        named = {str(n) for n in ax.get_legend_handles_labels()[1]}
        legends = [legend for legend in (ax.get_legend(), *figure.legends) if legend is not None]
        beside = {text.get_text().replace("\n", " ") for text in ax.texts}
        if not legends and not named <= beside:
            assert name in ("ledger", "diagnostic", "pending"), named
            continue
        written = {text.get_text() for legend in legends for text in legend.get_texts()}
        assert named <= written | beside, named - written
    assert any(ax.get_xlabel() for ax in axes)


@pytest.mark.parametrize("name", FIGURES)
def test_global_settings_stay_as_they_are(name: str) -> None:
    before = dict(matplotlib.rcParams)
    FIGURES[name]()
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plot_regret(regrets(1), ax=ax),
        lambda ax: plot_rewards(history(), ax=ax),
        lambda ax: plot_diagnostic(history(), "width", ax=ax),
        lambda ax: plot_information_gain(history(), ax=ax),
        lambda ax: plot_posterior(gp(1), 0.0, 1.0, ax=ax),
        lambda ax: plot_width_against_error(
            gp(1), torch.rand(3, 1, dtype=DOUBLE), torch.zeros(3, dtype=DOUBLE), 1.0, ax=ax
        ),
    ],
    ids=["regret", "rewards", "diagnostic", "gain", "posterior", "width"],
)
def test_one_panel_is_drawn_where_one_asks_for_it(draw: Callable[[Any], Any]) -> None:
    import matplotlib.pyplot as plt

    ax = new_figure(1, 2)[1][0, 1]
    assert draw(ax) is ax
    assert len(plt.get_fignums()) == 1


def test_no_screen_is_needed() -> None:
    # the file alone, for the package takes long to import
    program = (
        "import io, runpy, sys; content = io.BytesIO();"
        "runpy.run_path(sys.argv[1])['new_figure']()[0].savefig(content);"
        "print(len(content.getvalue()))"
    )
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", program, style.__file__],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert int(done.stdout) > 1000
