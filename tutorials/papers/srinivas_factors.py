"""What decides the claims of Srinivas et al. 2010 on MPI and EI, one factor at a time.

The panels are those of the judged experiments with further methods, and the synthetic one with
other noise and with more functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
)
from papers.factors import Claim, Factor, Kind, report_factors
from papers.srinivas import DELTA, MARGIN, figure_methods, sensors, synthetic
from papers.trials import ArmsExperiment, ArmsStudy, Method

UCB, EI, MPI = "GP-UCB (beta / 5)", "EI", "MPI"
MARGINS = (0.0, 0.01, 0.03, 0.3)
"""Margins of MPI other than the judged one, as shares of the prior's standard deviation."""
MORE_TRIALS = 200
SYNTHETIC, SENSORS = "srinivas-synthetic", "srinivas-sensors"
SECTION = "section 6"


def _margins(unit: float, lam: float) -> list[Method]:
    return [
        Method(
            f"{MPI}, margin {share:g}",
            LogProbabilityOfImprovement.with_options(margin=share * unit),
            lam,
        )
        for share in MARGINS
    ]


def _named(panel: ArmsExperiment, names: Sequence[str], study: ArmsStudy) -> list[Method]:
    return [method for method in panel.make_methods(study) if method.name in names]


def _synthetic_methods(panel: ArmsExperiment, study: ArmsStudy) -> list[Method]:
    lam = float(study.noise_std) ** 2
    others: dict[str, AcquisitionRecipe] = {
        f"{EI}, best outcome": LogExpectedImprovement.with_options(incumbent="observed"),
        f"{MPI}, best outcome": LogProbabilityOfImprovement.with_options(
            incumbent="observed", margin=MARGIN
        ),
        f"{UCB}, beta": GPUpperConfidenceBound.with_options(delta=DELTA),
    }
    return [
        *_named(panel, (UCB, EI, MPI), study),
        *_margins(1.0, lam),
        *(Method(name, recipe, lam) for name, recipe in others.items()),
    ]


def _sensor_methods(panel: ArmsExperiment, study: ArmsStudy) -> list[Method]:
    unit = float((panel.settings or {})["margin"]) / MARGIN
    return [
        *_named(panel, (UCB, EI, MPI), study),
        *_margins(unit, float(study.noise_std) ** 2),
    ]


def _loud_methods(study: ArmsStudy) -> list[Method]:
    return figure_methods(float(study.noise_std) ** 2, MARGIN, study)[:3]


def _louder(make_study: Callable[[int, int], ArmsStudy], first: int, count: int) -> ArmsStudy:
    return replace(make_study(first, count), noise_std=0.05**0.5)


def factors(
    temperature: Path | None = None,
    num_trials: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
) -> list[ArmsExperiment]:
    """Return Figures 5a and 5b with other margins, and 5a with more functions and other noise.

    Args:
        temperature: See :func:`papers.srinivas.sensors`; without it Figure 5b is left out.
        num_trials: The number of trials of every panel; as in the judged figures, or
            :data:`MORE_TRIALS`, if omitted.
        num_rounds: The number of rounds of every panel; as in the judged figures if omitted.
        seed: Seeds everything that is drawn.
    """
    (judged,) = synthetic(num_trials or 30, num_rounds or 1000, seed)
    (more,) = synthetic(num_trials or MORE_TRIALS, num_rounds or 1000, seed)
    loud = {**(judged.settings or {}), "noise_variance": 0.05}
    panels = [
        replace(judged, make_methods=partial(_synthetic_methods, judged)),
        replace(
            more,
            name=f"{SYNTHETIC}-more",
            title=f"{more.title}, more functions",
            make_methods=lambda study: [
                m
                for m in _synthetic_methods(more, study)
                if m.name in (UCB, EI, f"{MPI}, margin 0.01")
            ],
        ),
        replace(
            judged,
            name=f"{SYNTHETIC}-loud",
            title=f"{judged.title}, noise variance 0.05",
            make_study=partial(_louder, judged.make_study),
            make_methods=_loud_methods,
            settings=loud,
        ),
    ]
    if temperature is not None:
        (panel,) = sensors(temperature, num_trials or 2000, num_rounds, seed)
        panels.append(replace(panel, make_methods=partial(_sensor_methods, panel)))
    return panels


def _table() -> tuple[Factor, ...]:
    ei, mpi = Claim(Kind.ALIKE, UCB, (EI,)), Claim(Kind.ALIKE, UCB, (MPI,))
    make = partial(Factor, "srinivas-5a", panel=SYNTHETIC)
    both: dict[str, Any] = {"claims": (ei, mpi)}
    outcome = {name: f"{name}, best outcome" for name in (EI, MPI)}
    rows = [
        make("as judged", "30 functions, margin 0.1", source=SECTION, **both),
        *(
            make("margin of MPI", f"{share:g}", claims=(mpi,), methods=_margin(share))
            for share in MARGINS
        ),
        make("incumbent of EI and MPI", "best noisy outcome", methods=outcome, **both),
        make(
            "width of GP-UCB",
            "beta, not divided by 5",
            methods={UCB: f"{UCB}, beta"},
            source="Theorem 1",
            **both,
        ),
        make("number of functions", f"{MORE_TRIALS}", panel=f"{SYNTHETIC}-more", claims=(ei,)),
        make(
            "two changes: number of functions, margin of MPI",
            f"{MORE_TRIALS}, 0.01",
            claims=(mpi,),
            panel=f"{SYNTHETIC}-more",
            methods=_margin(0.01),
        ),
        make(
            "noise variance",
            "0.05, which is 5% of the prior variance",
            source=f"{SECTION}: 5% of the signal variance",
            panel=f"{SYNTHETIC}-loud",
            **both,
        ),
    ]
    sensor = partial(Factor, "srinivas-5b", panel=SENSORS)
    beaten = tuple(Claim(Kind.AHEAD, name, (MPI,)) for name in (UCB, EI))
    rows += [
        sensor("as judged", "margin 0.1", claims=beaten, source=SECTION),
        *(
            sensor("margin of MPI", f"{share:g}", claims=beaten, methods=_margin(share))
            for share in MARGINS
        ),
    ]
    return tuple(rows)


def _margin(share: float) -> dict[str, str]:
    return {MPI: f"{MPI}, margin {share:g}"}


FACTORS = _table()
"""The rows of the table, figure by figure."""

report = partial(report_factors, FACTORS)
