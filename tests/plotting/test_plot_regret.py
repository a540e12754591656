"""Regret curves: the values that are drawn, and the style that all figures share."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from models.textbook import double

from botorch_bandits import BanditLoop, Box, RandomSearch, run
from botorch_bandits.plotting import LINE_STYLES, new_figure, plot_regret, plot_run
from botorch_bandits.problems import RKHSFunction

REGRET = double([[1.0, 0.5, 0.0], [3.0, 0.5, 1.0], [2.0, 0.5, 2.0]])
TOTAL = np.array([[1.0, 1.5, 1.5], [3.0, 3.5, 4.5], [2.0, 2.5, 4.5]])
CURVES = {
    "cumulative": TOTAL,
    "average": TOTAL / np.array([1.0, 2.0, 3.0]),
    "simple": np.array([[1.0, 0.5, 0.0], [3.0, 0.5, 0.5], [2.0, 0.5, 0.5]]),
}


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("band", [None, (0.25, 0.75)])
def test_lines_and_bands(kind: str, band: tuple[float, float] | None) -> None:
    ax = plot_regret({"ours": REGRET, "one run": list(REGRET[:1])}, kind, band=band)
    ours, one = ax.get_lines()
    values = CURVES[kind]
    error = values.std(axis=0, ddof=1) / 3**0.5
    middle, low, high = (
        values.mean(axis=0),
        values.mean(axis=0) - error,
        values.mean(axis=0) + error,
    )
    if band is not None:
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    assert np.allclose(ours.get_ydata(), middle)
    assert ours.get_xdata().tolist() == [1, 2, 3]
    assert np.allclose(one.get_ydata(), values[0])
    (shade,) = ax.collections  # a single replicate has no band
    edges = shade.get_paths()[0].vertices
    assert edges[:, 1].min() == pytest.approx(low.min())
    assert edges[:, 1].max() == pytest.approx(high.max())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ours", "one run"]


def test_results_of_runs_and_logarithmic_axes() -> None:
    from gpytorch.kernels import MaternKernel

    kernel = MaternKernel(nu=2.5).double()
    bounds = double([[0.0], [1.0]])
    problem = RKHSFunction(kernel, bounds, rkhs_norm=1.0, seed=0, noise_std=0.1)
    results = [
        run(BanditLoop(Box(bounds), None, RandomSearch(), seed=s), problem, 4, progress=False)
        for s in (0, 1)
    ]
    ax = plot_regret({"random": results}, "simple", logarithmic=True)
    wanted = torch.stack([result.simple_regret for result in results]).mean(dim=0)
    assert np.allclose(ax.get_lines()[0].get_ydata(), wanted)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    zeros = plot_regret({"none": torch.zeros(3, dtype=torch.float64)}, logarithmic=True)
    assert np.isnan(zeros.get_lines()[0].get_ydata()).all()


def test_wrong_results() -> None:
    nine: Any = dict.fromkeys("abcdefghi", REGRET)
    for match, kind, results, more in (
        ("results", TypeError, [REGRET], {}),
        ("results has 0", ValueError, {}, {}),
        ("results has 9", ValueError, nine, {}),
        (r"results\['a'\] is a dict", TypeError, {"a": {}}, {}),
        (r"\[2, 3\] rounds", ValueError, {"a": [REGRET, REGRET[:, :2]]}, {}),
        (r"shape \(0,\)", ValueError, {"a": REGRET[0, :0]}, {}),
        ("float64", TypeError, {"a": REGRET.float()}, {}),
        ("regret of", ValueError, {"a": REGRET * torch.inf}, {}),
        ("kind", ValueError, {"a": REGRET}, {"kind": "total"}),
        ("band", ValueError, {"a": REGRET}, {"band": (0.6, 0.9)}),
    ):
        with pytest.raises(kind, match=match):
            plot_regret(results, **more)


def test_matplotlib_is_imported_only_when_used_and_named_when_missing() -> None:
    code = """
import sys
sys.modules["matplotlib"] = sys.modules["matplotlib.pyplot"] = None
from botorch_bandits import History
from botorch_bandits.plotting import plot_run
try:
    plot_run(History(dim=1))
except ImportError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "botorch_bandits[plot]" in result.stdout, result.stderr


def test_no_global_setting_is_changed_and_lines_differ_without_color() -> None:
    before = dict(mpl.rcParams)
    figure, axes = new_figure(2, 3, width=8.0, height=4.0)
    assert axes.shape == (2, 3)
    assert figure.get_size_inches().tolist() == [8.0, 4.0]
    assert plot_regret({"a": REGRET}, ax=axes[0, 1]) is axes[0, 1]
    loop = BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch(), seed=0)
    plot_run(loop)[0].figure.canvas.draw()
    assert dict(mpl.rcParams) == before
    assert len({style["color"] for style in LINE_STYLES}) == len(LINE_STYLES)
    light = [mpl.colors.rgb_to_hsv(mpl.colors.to_rgb(style["color"]))[2] for style in LINE_STYLES]
    pairs = {(str(style["ls"]), round(v, 1)) for style, v in zip(LINE_STYLES, light, strict=True)}
    assert len(pairs) == len(LINE_STYLES)
