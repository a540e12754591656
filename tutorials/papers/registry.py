"""The experiments by name: how each is built, which data it reads and what it reports.

The command line, the page of all experiments and the documentation take their names from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers import (
    avanesov,
    avanesov_factors,
    beyond_changes,
    beyond_changes_hard,
    beyond_combined,
    beyond_fills,
    beyond_forgetting,
    beyond_multipliers,
    beyond_priors,
    beyond_varying,
    chowdhury,
    chowdhury_factors,
    coverage,
    identification,
    ringing,
    shi,
    shi_factors,
    shi_varying,
    srinivas,
    srinivas_factors,
    verma,
    verma_contextual,
    verma_factors,
    verma_tuning,
    verma_tuning_factors,
)
from papers.pictures import Picture, Written, curve_pictures, no_pictures
from papers.special_pictures import (
    combined_pictures,
    constraint_pictures,
    forgetting_pictures,
    multiplier_pictures,
    power_pictures,
    tuning_pictures,
)
from papers.trials import ArmsExperiment

FACTORS = "-factors"
"""Suffix of the names of experiments that change one setting of a paper's figures at a time."""


@dataclass(frozen=True)
class Entry:
    """How an experiment is built.

    Attributes:
        build: Takes the data files, then ``num_trials``, ``num_rounds`` and ``seed`` by name.
        description: What it reproduces.
        data: What each data file is; empty if none is needed.
        num_required: The number of required data files.
        report: Takes the panels, their results and the folder; prints and writes what is not in
            the table.
        pictures: Maps the tables to pictures; one picture of curves per panel if omitted.
    """

    build: Callable[..., list[ArmsExperiment]]
    description: str
    data: tuple[str, ...] = ()
    num_required: int = 0
    report: Callable[..., None] | None = None
    pictures: Callable[[Written], list[Picture]] = curve_pictures


EXPERIMENTS = {
    "coverage": Entry(
        coverage.coverage,
        "what a guarantee costs: coverage and regret of widths",
    ),
    "srinivas-synthetic": Entry(srinivas.synthetic, "Srinivas et al. 2010, Figure 5a"),
    "srinivas-sensors": Entry(
        srinivas.sensors,
        "Srinivas et al. 2010, Figure 5b",
        ("temperatures (.npz, array 'temperature': times x sensors)",),
        1,
    ),
    "srinivas-traffic": Entry(
        srinivas.traffic,
        "Srinivas et al. 2010, Figure 5c",
        ("road speeds (CSV: time, then one column per sensor)",),
        1,
    ),
    "srinivas-factors": Entry(
        srinivas_factors.factors,
        "what decides the claims of Srinivas et al. 2010 on MPI and EI",
        ("temperatures (.npz, array 'temperature': times x sensors)",),
        report=srinivas_factors.report,
        pictures=no_pictures,
    ),
    "chowdhury-rkhs": Entry(chowdhury.rkhs, "Chowdhury and Gopalan 2017, Figures 1 and 2"),
    "chowdhury-functions": Entry(chowdhury.functions, "Chowdhury and Gopalan 2017, Figure 3"),
    "chowdhury-sensors": Entry(
        chowdhury.sensors,
        "Chowdhury and Gopalan 2017, Figure 4",
        (
            "temperatures (.npz, array 'temperature': 7 days of 144 times x sensors)",
            "light (.npz, arrays 'train_raw' and 'test_raw')",
        ),
        1,
    ),
    "chowdhury-factors": Entry(
        chowdhury_factors.factors,
        "what decides the claims of Chowdhury and Gopalan 2017 that do not reproduce",
        (
            "temperatures (.npz, array 'temperature': 7 days of 144 times x sensors)",
            "light (.npz, arrays 'train_raw' and 'test_raw')",
        ),
        1,
        report=chowdhury_factors.report,
        pictures=no_pictures,
    ),
    "verma-synthetic": Entry(verma.synthetic, "Verma, Dai and Low 2022, Figures 1 and 5"),
    "verma-tuning": Entry(
        verma_tuning.tuning,
        "Verma, Dai and Low 2022, Figures 2 and 3",
        ("Pima Indians diabetes (CSV with the class in the column 'Outcome')",),
        report=verma_tuning.report,
        pictures=tuning_pictures,
    ),
    "verma-contextual": Entry(
        verma_contextual.contextual,
        "Verma, Dai and Low 2022, Figure 4",
        (
            "SVM tasks (.npz, arrays 'accuracy', 'hyperparameters' and 'context')",
            "growing data (CSV with the classes in the column 'Outcome')",
        ),
        1,
    ),
    "verma-factors": Entry(
        verma_tuning_factors.factors,
        "Verma, Dai and Low 2022 with one factor changed",
        (
            "Pima Indians diabetes (CSV with the class in the column 'Outcome')",
            "SVM tasks (.npz, arrays 'accuracy', 'hyperparameters' and 'context')",
        ),
        report=verma_factors.report,
        pictures=no_pictures,
    ),
    "avanesov-horizon": Entry(
        avanesov.horizon,
        "Avanesov 2020, Figure 1",
        report=avanesov.report_power,
        pictures=power_pictures,
    ),
    "avanesov-periods": Entry(
        avanesov.periods,
        "Avanesov 2020, Figure 2",
        report=avanesov.report_power,
        pictures=power_pictures,
    ),
    "avanesov-compare": Entry(
        avanesov.compare, "Avanesov 2020, Figure 3", report=avanesov.report_comparison
    ),
    "avanesov-constants": Entry(
        avanesov.constants,
        "what Avanesov 2020 does not specify, in the setting of Figure 3",
        report=avanesov.report_comparison,
    ),
    "avanesov-factors": Entry(
        avanesov_factors.factors,
        "claims of Avanesov 2020 with one factor changed",
        report=avanesov_factors.report,
        pictures=no_pictures,
    ),
    "shi-gardner": Entry(
        shi.gardner,
        "Shi and Eryilmaz 2022, Figures 1 to 5",
        report=shi.report,
        pictures=constraint_pictures,
    ),
    "shi-rates": Entry(
        shi.rates,
        "Shi and Eryilmaz 2022, Figures 6 to 9, with substitute constants",
        report=shi.report,
        pictures=constraint_pictures,
    ),
    "shi-factors": Entry(
        shi_factors.factors,
        "claims of Shi and Eryilmaz 2022 with one factor changed",
        report=shi_factors.report,
        pictures=no_pictures,
    ),
    "shi-varying": Entry(
        shi_varying.varying,
        "Shi and Eryilmaz 2022, Appendices B and D: realized rewards and constraints",
        report=shi_varying.report,
    ),
    "beyond-multipliers": Entry(
        beyond_multipliers.multipliers,
        "multipliers: once an epoch against every round",
        report=beyond_multipliers.report,
        pictures=multiplier_pictures,
    ),
    "beyond-forgetting": Entry(
        beyond_forgetting.forgetting,
        "restarting against models that forget",
        pictures=forgetting_pictures,
    ),
    "beyond-priors": Entry(
        beyond_priors.priors,
        "a prior that is not known: lists of priors, marginal likelihood and the oracle",
        report=beyond_priors.report,
    ),
    "beyond-priors-sampled": Entry(
        beyond_priors.sampled,
        "a prior that is not known, beside BoTorch's fully Bayesian model (needs JAX and NumPyro)",
        report=beyond_priors.report,
    ),
    "beyond-changes": Entry(
        beyond_changes.changes,
        "the evidence of all outcomes against other ways to follow changes",
        report=avanesov.report_comparison,
    ),
    "beyond-changes-hard": Entry(
        beyond_changes_hard.hard,
        "changes that are frequent, faint or hidden, in two dimensions, and a drift",
        report=avanesov.report_comparison,
    ),
    "beyond-calm": Entry(
        beyond_changes_hard.calm,
        "false alarms of the evidence of all outcomes where nothing changes",
        report=avanesov.report_comparison,
    ),
    "beyond-misspecified": Entry(
        beyond_changes_hard.misspecified,
        "false alarms of the evidence where the noise or the functions are not those of the model",
        report=avanesov.report_comparison,
    ),
    "beyond-fills": Entry(
        beyond_fills.fills,
        "what pending queries are filled in with: the minimum, something else, or nothing",
    ),
    "beyond-combined": Entry(
        beyond_combined.combined,
        "delay, change, constraint and context at once, each switched off in turn",
        report=beyond_combined.report,
        pictures=combined_pictures,
    ),
}


@dataclass(frozen=True)
class TableEntry:
    """An experiment that is not played on arms and yields only a table.

    Attributes:
        tabulate: Takes ``num_trials`` and ``seed`` by name; returns the rows.
        description: What it shows.
    """

    tabulate: Callable[..., list[dict[str, Any]]]
    description: str


TABLES = {
    "avanesov-calibration": TableEntry(
        avanesov_factors.calibration,
        "alarms of the threshold of Avanesov 2020 for several ridges, without a change and after",
    ),
    "beyond-varying": TableEntry(
        beyond_varying.varying, "rewards and constraints that vary with the round"
    ),
    "identification": TableEntry(
        identification.identification, "the best of finitely many arms: found, and certified"
    ),
    "ringing": TableEntry(
        ringing.ringing, "when pending queries at the minimum make the posterior ring"
    ),
}


def build_experiments(
    name: str,
    data: Sequence[Path] = (),
    num_trials: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
    **options: Any,
) -> list[ArmsExperiment]:
    """Return the panels of an experiment.

    Args:
        name: A key of ``EXPERIMENTS``.
        data: Data files, in the entry's order.
        num_trials: The paper's number if omitted.
        num_rounds: The paper's number if omitted.
        seed: Seeds everything that is drawn.
        options: Further settings of some experiments, such as ``center`` and ``ridge``.

    Raises:
        ValueError: If the name is unknown, or data files are missing or too many.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment is {name!r}; it must be one of {', '.join(EXPERIMENTS)}.")
    entry = EXPERIMENTS[name]
    if not entry.num_required <= len(data) <= len(entry.data):
        files = "; ".join(entry.data) or "no files"
        raise ValueError(f"{name} takes --data with {files}; got {len(data)} files.")
    given = {"num_trials": num_trials, "num_rounds": num_rounds, "seed": seed, **options}
    return entry.build(*data, **{k: v for k, v in given.items() if v is not None})
