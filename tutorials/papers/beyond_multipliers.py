"""Beyond the papers: multipliers that change once an epoch or every round.

The rule with epochs is from Shi and Eryilmaz 2022, on one model of the penalized reward or on
separate models of reward and constraint; the rule that updates every round is from Zhou and Ji
2022, on separate models. Each family has five settings, none of which was chosen by its result:
epoch lengths, or the constants of the theory and a grid of four step sizes. The problems, constants
and grids of arms are those of ``shi-gardner`` and ``shi-rates``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from botorch_bandits.acquisition import ImprovedUpperConfidenceBound
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs, PrimalDual
from botorch_bandits.problems import GardnerProblem
from papers.constrained_study import ConstrainedMethod, play_with_constraints
from papers.environments import RatesProblem
from papers.results import write_csv
from papers.shi import NOISE_STD, RATE_NOISE, STEP_SIZE, Setting, panel, tabulate_violation
from papers.trials import ArmsExperiment, ArmsStudy, Curves

EPOCH_LENGTHS = (1, 5, 10, 20, 35)
STEP_SIZES = (0.05, 0.2, 1.0, 5.0)
"""Values of ``1 / V`` of the rule that updates every round."""

MAX_MULTIPLIER = 20.0
"""The largest multiplier with these steps; the optimal multipliers are 3.2 and 0.75."""

FAMILIES = {"every round": "o", "epochs, separate": "s", "epochs, relabeled": "^"}
"""The beginnings of the names of methods, and their markers in the figure."""

LARGEST_MULTIPLIER = 1e40
"""The cap on multipliers. With short epochs on one model, they would otherwise grow until penalized
outcomes exceed the 1e50 that a loop accepts."""


def multipliers(
    num_trials: int = 20,
    num_rounds: int = 350,
    seed: int = 0,
    num_points: tuple[int, int] = (41, 7),
) -> list[ArmsExperiment]:
    """Return a panel for each problem, with and without noise on the constraint.

    Args:
        num_trials: The number of runs of each method.
        num_rounds: The horizon.
        seed: Seeds noise, initial points and draws; a trial's are the same for every method.
        num_points: The number of points of the two grids per dimension.
    """
    steps = ((20, 2), (20, 2))  # belongs to a method that is not played here
    gardner = (7.0, 1.95, 0.05), num_points[0]
    rates = (4.0, 3.2, 2.0), num_points[1]
    cases = (
        ("gardner-exact", GardnerProblem(NOISE_STD), gardner),
        ("gardner-noisy", GardnerProblem(NOISE_STD, NOISE_STD), gardner),
        ("rates-exact", RatesProblem(NOISE_STD), rates),
        ("rates-noisy", RatesProblem(NOISE_STD, RATE_NOISE), rates),
    )
    panels = []
    for kind, box, (bounds, points) in cases:
        setting = Setting("beyond-multipliers", box, points, steps, bounds, num_rounds)
        problem = "small feasible region" if kind.startswith("gardner") else "data rates"
        observed = "observed exactly" if kind.endswith("exact") else "observed with noise"
        methods = _methods(setting, kind.endswith("exact"))
        made = panel(setting, kind, f"{problem}, {observed}", "", methods, num_trials, seed)
        further = {"max_multiplier": MAX_MULTIPLIER, "bounds": bounds}
        panels.append(
            replace(
                made,
                player=play_and_sum,
                tabulated=("violation", "rectified"),
                settings={**(made.settings or {}), **further},
            )
        )
    return panels


def _methods(setting: Setting, exact: bool) -> list[ConstrainedMethod]:
    methods = [replace(setting.every_round(), name="every round, theory")]
    reward, constraint, _ = setting.bounds
    for step in STEP_SIZES:
        rule = PrimalDual(1, MAX_MULTIPLIER, 1.0 / step, reward, constraint)
        methods.append(setting.separate(f"every round, step {step:g}", rule))
    for surrogate in ("separate", "relabeled"):
        for length in EPOCH_LENGTHS:
            epochs = _epochs(exact, length, surrogate)
            name = f"epochs, {surrogate}, S = {length}"
            if surrogate == "separate":
                methods.append(setting.separate(name, epochs))
            else:
                methods.append(setting.loop(name, epochs, ImprovedUpperConfidenceBound))
    return methods


def _epochs(exact: bool, length: int, surrogate: str) -> MultiplicativeEpochs | AdditiveEpochs:
    if exact:
        return MultiplicativeEpochs(
            1, length, surrogate=surrogate, max_multiplier=LARGEST_MULTIPLIER
        )
    return AdditiveEpochs(1, length, step_size=STEP_SIZE, surrogate=surrogate)


def play_and_sum(
    study: ArmsStudy, method: ConstrainedMethod, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play a study and add the averages ``violation`` and ``rectified`` to its arrays.

    Args:
        study: See :func:`play_with_constraints`, also for the other arguments.
        method: The method to play.
        on_round: Called after each round.
    """
    played = play_with_constraints(study, method, on_round)
    constraint = played["constraint"]
    return {
        **played,
        "violation": constraint.mean(-1).clip(min=0.0),
        "rectified": constraint.clip(min=0.0).mean(-1),
    }


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Print regret and violation halfway and at the end.

    Writes ``violation.csv``, which also combines regret and violation in one number, priced by the
    optimal multiplier.

    Args:
        experiments: The panels.
        curves: Their results.
        folder: The folder for the files.
    """
    rows = tabulate_violation(experiments, curves)
    known = {
        (experiment.name, name): (experiment, curve)
        for experiment, results in zip(experiments, curves, strict=True)
        for name, curve in results.items()
    }
    for row in rows:
        priced = _priced(*known[row["experiment"], row["method"]], row["round"])
        row["priced_mean"] = float(priced.mean())
        row["priced_standard_error"] = float(
            priced.std(correction=0) / max(len(priced) - 1, 1) ** 0.5
        )
    write_csv(folder / "violation.csv", rows)
    print(f"\n{'time averages: mean (standard error)':<60}{'round':>6}", end="")
    quantities = ("regret", "violation", "rectified", "priced")
    print("".join(f"{quantity:>16}" for quantity in quantities))
    for row in rows:
        name = f"{row['experiment']}, {row['method']}"
        cells = [f"{row[f'{q}_mean']:.3f} ({row[f'{q}_standard_error']:.3f})" for q in quantities]
        print(f"{name:<60}{row['round']:>6}" + "".join(f"{cell:>16}" for cell in cells))


def _priced(experiment: ArmsExperiment, curve: Curves, num_rounds: int) -> Tensor:
    """Return the priced regret per round of each trial: regret and violation in one number.

    It is the mean of ``max_x (f - price g)(x) - (f - price g)(x_t)`` with the optimal multiplier of
    the box as the price, which is never negative.
    """
    assert experiment.settings is not None
    settings = experiment.settings
    shift = settings["largest_priced_value_of_grid"] - settings["optimal_value_of_grid"]
    played = slice(num_rounds)
    constraint: Tensor = curve.others["constraint"][:, played].mean(-1)
    return shift + curve.regret[:, played].mean(-1) + settings["price"] * constraint
