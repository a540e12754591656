"""Draws the pictures of the documentation: ``python docs/make_images.py`` (about two minutes).

Those of the page on figures are made by its own code, and those of experiments are kept from the
runs of ``python tutorials/papers NAME``. Everything is seeded, so the numbers are the same on every
run on one platform.
"""

from __future__ import annotations

import io
import re
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel
from matplotlib.axes import Axes
from PIL import Image

from botorch_bandits import (
    AcquisitionRecipe,
    Arms,
    BanditGP,
    BanditLoop,
    ImprovedUpperConfidenceBound,
    RandomSearch,
    run,
)
from botorch_bandits.cli import main as command_line
from botorch_bandits.plotting import LINE_STYLES, new_figure, plot_posterior, plot_run
from botorch_bandits.problems import ArmsProblem, RKHSFunction

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from benchmarks.league import Rows, quartiles_of
from benchmarks.league_problems import PROBLEMS

IMAGES = Path(__file__).parent / "images"
BOUNDS = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
CHOICES = torch.linspace(0, 1, 201, dtype=torch.float64).unsqueeze(-1)
NORM, NOISE, ROUNDS, SEEDS = 2.0, 0.1, 100, 20
LATE_ROUND = 40  # of the picture of the posterior
PAGE_PART = re.compile(r"^```python\n(.*?)^```$|^!\[[^]]*\]\((.*?)\)$", re.MULTILINE | re.DOTALL)


def make_kernel() -> Kernel:
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = torch.tensor(0.15, dtype=torch.float64)
    return kernel


def make_problem(seed: int) -> RKHSFunction:
    return RKHSFunction(make_kernel(), BOUNDS, rkhs_norm=NORM, seed=seed, noise_std=NOISE)


def igp_ucb() -> AcquisitionRecipe:
    return ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=NORM, noise_bound=NOISE, delta=0.1, any_lambda=True
    )


def make_loop(acquisition: AcquisitionRecipe | RandomSearch, seed: int) -> BanditLoop:
    model = BanditGP.with_kernel(make_kernel(), noise=NOISE**2)
    return BanditLoop(Arms(CHOICES), model, acquisition, seed=seed)


def on_arms(problem: RKHSFunction) -> ArmsProblem:
    return ArmsProblem(CHOICES, problem(CHOICES, noise=False), problem.noise_std)


def draw_posterior(ax: Axes, num_rounds: int, seed: int = 1) -> None:
    problem = make_problem(seed)
    loop = make_loop(igp_ucb(), seed)
    run(loop, on_arms(problem), num_rounds, progress=False)
    width = float(ImprovedUpperConfidenceBound(loop.current_model(), **igp_ucb().options).width)
    plot_posterior(
        loop.current_model(),
        0.0,
        1.0,
        width=width,
        history=loop.history,
        function=lambda X: problem(X, noise=False),
        ax=ax,
    )
    ax.set_title(f"after {num_rounds} rounds of IGP-UCB (width {width:.1f})", fontsize=10)
    ax.set_ylim(-4.7, 4.9)


def draw_regret(ax: Axes) -> None:
    rounds = torch.arange(1, ROUNDS + 1)
    for name, acquisition, style in (
        ("random search", RandomSearch(), LINE_STYLES[1]),
        ("IGP-UCB", igp_ucb(), LINE_STYLES[0]),
    ):
        regret = torch.stack(
            [
                run(
                    make_loop(acquisition, seed),
                    on_arms(make_problem(seed)),
                    ROUNDS,
                    progress=False,
                ).cumulative_regret
                for seed in range(SEEDS)
            ]
        )
        middle = regret.median(0).values
        low, high = regret.quantile(0.25, dim=0), regret.quantile(0.75, dim=0)
        ax.fill_between(rounds, low, high, color=style["color"], alpha=0.18, lw=0)
        ax.plot(rounds, middle, lw=1.5, label=name, **style)
        print(f"{name}: median cumulative regret after {ROUNDS} rounds {float(middle[-1]):.1f}")
    ax.set_title(f"median of {SEEDS} functions, middle half shaded", fontsize=10)
    ax.set_xlabel("round")
    ax.set_ylabel("cumulative regret")
    ax.margins(x=0.0)
    ax.legend(fontsize=9)


LEAGUE_CURVES = {  # color, line, whether the middle half is shaded
    "ours-best": ("#c1272d", "-", True),
    "ours-earned": ("#e08214", "--", False),
    "botorch-logei": ("#2166ac", "-.", False),
    "optuna-gp": ("black", ":", True),
    "optuna-tpe": ("#4d9221", (0, (5, 1, 1, 1, 1, 1)), False),
    "random": ("0.6", "-", False),
}


def draw_league(path: Path) -> None:
    """Draw median simple regret against evaluations, a panel a problem that has curves."""
    rows = Rows()
    played = {
        name: {m: runs for m in LEAGUE_CURVES if len(runs := rows.of(name, m)) > 1}
        for name in PROBLEMS
    }
    played = {name: curves for name, curves in played.items() if curves}
    columns = min(4, len(played))
    height = -(-len(played) // columns)
    figure, axes = plt.subplots(
        height, columns, figsize=(3.1 * columns, 2.7 * height), layout="constrained"
    )
    panels = list(axes.flat) if len(played) > 1 else [axes]
    for (name, curves), ax in zip(played.items(), panels, strict=False):
        for method, runs in curves.items():
            color, line, is_shaded = LEAGUE_CURVES[method]
            low, middle, high = zip(*quartiles_of(PROBLEMS[name], runs), strict=True)
            numbers = range(1, len(middle) + 1)
            if is_shaded:
                ax.fill_between(numbers, low, high, color=color, alpha=0.15, lw=0)
            ax.plot(numbers, middle, color=color, ls=line, lw=1.5, label=method)
        ax.set_yscale("log")
        ax.set_title(name, fontsize=10)
        ax.axvline(5, color="0.85", lw=0.8, zorder=0)  # the initial points end here
    for ax in panels[len(played) :]:
        ax.axis("off")
    panels[0].set_ylabel("simple regret (median)")
    panels[0].set_xlabel("evaluation")
    handles, labels = max(
        (ax.get_legend_handles_labels() for ax in panels), key=lambda x: len(x[0])
    )
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(6, 2 * columns), fontsize=8
    )
    figure.savefig(path, dpi=90)
    print(path.name)


def save_small(path: Path) -> None:
    """Save the current figure with few colors, or shades of gray where it has no color."""
    content = io.BytesIO()
    plt.gcf().savefig(content, dpi=85)
    picture = Image.open(content).convert("RGB")
    red, green, blue = (np.asarray(band, dtype=int) for band in picture.split())
    is_gray = max(abs(red - green).max(), abs(green - blue).max()) == 0
    few = picture.convert("L").quantize(32) if is_gray else picture.quantize(96)
    few.save(path, optimize=True)
    print(path.name)


def draw_page(page: Path) -> None:
    """Run the Python blocks of a page; a picture is what the block before it drew last.

    The blocks run in a temporary folder, because some of them write files.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    page = page.resolve()
    text = page.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder, chdir(folder):
        for block, picture in PAGE_PART.findall(text):
            if block:
                plt.close("all")
                exec(compile(block, page.name, "exec"), namespace)
            else:
                save_small(page.parent / picture)
    plt.close("all")


def draw_first_command(path: Path) -> None:
    """Draw what the first command of README.md draws."""
    with TemporaryDirectory() as folder:
        command_line(["tune", "--dataset", "digits", "--quiet", "--out", folder])
        picture = Image.open(Path(folder) / "run.png").convert("RGB")
        picture.quantize(96).save(path, optimize=True)


def main() -> None:
    matplotlib.use("Agg")
    IMAGES.mkdir(exist_ok=True)
    draw_page(Path(__file__).parent / "plotting.md")
    draw_league(IMAGES / "league.png")
    draw_first_command(IMAGES / "first-command.png")
    figure, axes = new_figure(1, 3, width=11.0, height=3.4)
    draw_posterior(axes[0, 0], 8)
    draw_posterior(axes[0, 1], LATE_ROUND)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncol=4)
    for ax in axes[0, :2]:
        ax.get_legend().remove()  # it would lie over the band
    draw_regret(axes[0, 2])
    figure.savefig(IMAGES / "overview.png", dpi=110)

    loop = make_loop(igp_ucb(), seed=1)
    problem = on_arms(make_problem(1))
    run(loop, problem, LATE_ROUND, progress=False)
    panels = plot_run(loop, "IGP-UCB on one reward function")
    panels[0].figure.savefig(IMAGES / "run.png", dpi=90)


if __name__ == "__main__":
    main()
