"""What decides the claims of Chowdhury and Gopalan 2017 that are not reproduced, by factor.

The panels of Figures 1 to 3 are those of the judged experiments, with further methods. Those of
Figure 4 are also played with other kernels, rewards and units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.acquisition import (
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
)
from botorch_bandits.confidence import GainBound, RateGain, WaterFillingGain
from papers.chowdhury import (
    DELTA,
    ConstantGain,
    estimate_norms,
    figure_methods,
    functions,
    rkhs,
    sensor_tables,
)
from papers.environments import SensorData
from papers.factors import Claim, Factor, Kind, report_factors
from papers.trials import ArmsExperiment, ArmsStudy, Method

UCB, IGP, TS, EI, PI = "GP-UCB (Theorem 3)", "IGP-UCB", "GP-TS", "GP-EI", "GP-PI"
WITH_WIDTH = (IGP, TS, UCB)
ALMOST_NOTHING = 1e-9
"""Replaces a part of a width that is left out, because bounds must be positive."""
SENSORS_SHARE = 0.05
"""The noise variance, as a share of the average variance of sensors."""
SECTION = "section 6"
PRINTED = "section 6: B^2 = f' K f"


def _printed_norms(study: ArmsStudy) -> Tensor:
    """Return ``sqrt(f' K f)`` of each function, as the paper prints it."""
    return (study.values @ study.kernel_matrix * study.values).sum(-1).sqrt()


def _lower_bounds(study: ArmsStudy) -> Tensor:
    return estimate_norms(study.kernel_matrix, study.values, _noise(study) ** 2)


def _noise(study: ArmsStudy) -> Tensor:
    return torch.as_tensor(study.noise_std, dtype=torch.float64)


def _with_widths(
    study: ArmsStudy, words: str, bound: Tensor, gain: GainBound | None, names: Sequence[str]
) -> list[Method]:
    """Return methods whose width has another norm or gain, the realized gain if omitted."""
    noise = _noise(study)
    known: dict[str, Any] = {"rkhs_bound": bound, "delta": DELTA}
    known |= {} if gain is None else {"information_gain": gain}
    recipes = {
        IGP: ImprovedUpperConfidenceBound.with_options(**known, noise_bound=noise),
        TS: GPThompsonSampling.with_options(**known, noise_bound=noise),
    }
    if gain is not None:  # Theorem 3 is not proven with the realized gain
        recipes[UCB] = GPUpperConfidenceBound.with_options(**known)
    return [Method(f"{name}, {words}", recipes[name], noise**2) for name in names]


def _draws(study: ArmsStudy, bound: Tensor, gain: GainBound) -> list[Method]:
    """Return GP-TS with other scales ``v_t`` of its draws."""
    noise = _noise(study)
    known: dict[str, Any] = {"information_gain": gain, "delta": DELTA}
    scales: dict[str, dict[str, Any]] = {
        "v = B": known | {"rkhs_bound": bound, "noise_bound": ALMOST_NOTHING},
        "v without B": known | {"rkhs_bound": ALMOST_NOTHING, "noise_bound": noise},
        "v = 1": {"width": 1.0},
    }
    return [
        Method(f"{TS}, {words}", GPThompsonSampling.with_options(**options), noise**2)
        for words, options in scales.items()
    ]


def _improvements(study: ArmsStudy) -> list[Method]:
    """Return EI and PI with other incumbents and margins."""
    margins = (0.0, 0.1)
    recipes = {
        f"{EI}, best outcome": LogExpectedImprovement.with_options(incumbent="observed"),
        f"{PI}, best outcome": LogProbabilityOfImprovement.with_options(
            incumbent="observed", margin=0.01
        ),
        f"{EI}, margin 0.01": LogExpectedImprovement.with_options(margin=0.01),
        **{
            f"{PI}, margin {margin:g}": LogProbabilityOfImprovement.with_options(margin=margin)
            for margin in margins
        },
    }
    lam = _noise(study) ** 2
    return [Method(name, recipe, lam) for name, recipe in recipes.items()]


# --- Figures 1 and 2 ------------------------------------------------------------------------------

KERNELS = {"se": "squared exponential", "matern": "Matern 5/2"}
SHORT, MORE_TRIALS = 3000, 100


def _rkhs_panels(num_trials: int | None, num_rounds: int | None, seed: int) -> list[ArmsExperiment]:
    """Return the judged panels, and shorter ones with further methods or more functions."""
    known = num_trials or 25
    judged = rkhs(known, num_rounds or 30000, seed)
    short = rkhs(known, num_rounds or SHORT, seed)
    more = rkhs(num_trials or MORE_TRIALS, num_rounds or SHORT, seed)
    incumbents = (IGP, EI, PI, f"{EI}, best outcome", f"{PI}, best outcome")
    return [
        *(replace(p, make_methods=partial(_named, p, incumbents)) for p in judged),
        *(
            replace(p, name=f"{p.name}-short", make_methods=partial(_rkhs_methods, p))
            for p in short
        ),
        *(
            replace(p, name=f"{p.name}-more", make_methods=partial(_named, p, (IGP, EI)))
            for p in more
            if p.name.endswith("figure2")
        ),
    ]


def _named(panel: ArmsExperiment, names: Sequence[str], study: ArmsStudy) -> list[Method]:
    return [method for method in panel.make_methods(study) if method.name in names]


def _rkhs_methods(panel: ArmsExperiment, study: ArmsStudy) -> list[Method]:
    """Return the judged methods that the claims need, and further methods."""
    kernel = str((panel.settings or {})["kernel"])
    rate = RateGain("rbf", 1) if kernel == "se" else RateGain("matern", 1, nu=2.5)
    return [
        *_named(panel, (IGP, EI, PI), study),
        *(m for m in _improvements(study) if "margin" in m.name),
        *_with_widths(study, "B^2 = f' K f", _printed_norms(study), rate, (IGP,)),
    ]


def _rkhs_factors() -> list[Factor]:
    rows = []
    for figure in (1, 2):
        for other, changes in ((EI, _EI_CHANGES), (PI, _PI_CHANGES)):
            for end, factor, setting, more in changes:
                if end == "-more" and figure == 1:
                    continue  # a single function dominates in Figure 2 only
                rows += [
                    Factor(
                        f"chowdhury-{figure}",
                        factor,
                        setting,
                        f"chowdhury-rkhs-{short}-figure{figure}{end}",
                        (Claim(Kind.AHEAD, IGP, (other,), words),),
                        **more,
                    )
                    for short, words in KERNELS.items()
                ]
    return rows


_FEWER = f"{SHORT}"
_NORM: dict[str, Any] = {"source": PRINTED, "methods": {IGP: f"{IGP}, B^2 = f' K f"}}
# the end of the panel's name, the factor, its setting, and further entries of a row
_EI_CHANGES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("", "as judged", "30000 rounds, best posterior mean, no margin of EI", {"source": SECTION}),
    ("", "incumbent of EI", "best noisy outcome", {"methods": {EI: f"{EI}, best outcome"}}),
    ("", "rounds", "300", {"num_rounds": 300}),
    ("", "rounds", _FEWER, {"num_rounds": SHORT}),
    (
        "-short",
        "two changes: rounds, margin of EI",
        f"{_FEWER}, 0.01",
        {"methods": {EI: f"{EI}, margin 0.01"}},
    ),
    ("-short", "two changes: rounds, norm", f"{_FEWER}, B^2 = f' K f as printed", _NORM),
    (
        "-more",
        "two changes: rounds, number of functions",
        f"{_FEWER}, {MORE_TRIALS}",
        {},
    ),
)
_PI_CHANGES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("", "as judged", "30000 rounds, best posterior mean, margin 0.01", {"source": SECTION}),
    ("", "incumbent of PI", "best noisy outcome", {"methods": {PI: f"{PI}, best outcome"}}),
    ("", "rounds", _FEWER, {"num_rounds": SHORT}),
    *(
        (
            "-short",
            "two changes: rounds, margin of PI",
            f"{_FEWER}, {margin}",
            {"methods": {PI: f"{PI}, margin {margin}"}},
        )
        for margin in ("0", "0.1")
    ),
    ("-short", "two changes: rounds, norm", f"{_FEWER}, B^2 = f' K f as printed", _NORM),
)


# --- Figure 3 -------------------------------------------------------------------------------------

HARTMANN, ROSENBROCK = "chowdhury-hartmann3", "chowdhury-rosenbrock"
RATE = RateGain("rbf", 3)
IN_SHORT = "two changes: 1000 rounds, "
"""Prefix of settings that are played for 1000 rounds, a thirtieth of the judged ones."""


def _function_panels(
    num_trials: int | None, num_rounds: int | None, seed: int
) -> list[ArmsExperiment]:
    """Return the judged panels, and for Hartmann one with more rounds and one with less noise."""
    judged = functions(num_trials or 25, num_rounds or 1000, seed)
    (rosenbrock,) = (panel for panel in judged if panel.name == ROSENBROCK)
    (panel,) = (panel for panel in judged if panel.name == HARTMANN)
    lasting = functions(num_trials or 25, num_rounds or 30000, seed)
    (long,) = (panel for panel in lasting if panel.name == HARTMANN)
    return [
        replace(rosenbrock, make_methods=partial(_with_incumbents, rosenbrock)),
        replace(panel, make_methods=partial(_hartmann_methods, panel)),
        replace(long, name=f"{HARTMANN}-long", make_methods=partial(_named, long, (UCB, TS))),
        replace(
            panel,
            name=f"{HARTMANN}-quiet",
            make_study=partial(_quiet, panel.make_study),
            make_methods=lambda study: [
                m for m in figure_methods(0.01, RATE, study) if m.name in (UCB, TS)
            ],
        ),
    ]


def _with_incumbents(panel: ArmsExperiment, study: ArmsStudy) -> list[Method]:
    """Return the methods that the claims on EI and PI need, with both incumbents."""
    others = [method for method in _improvements(study) if "best outcome" in method.name]
    return [*_named(panel, (IGP, EI, PI), study), *others]


def _quiet(make_study: Callable[[int, int], ArmsStudy], first: int, count: int) -> ArmsStudy:
    return replace(make_study(first, count), noise_std=0.01)


def _hartmann_methods(panel: ArmsExperiment, study: ArmsStudy) -> list[Method]:
    lower = _lower_bounds(study)
    water = WaterFillingGain(study.kernel_matrix, float(_noise(study)) ** 2)
    norms = {"B^2 = f' K f": _printed_norms(study), "B = largest reward": _largest(study)}
    return [
        *_named(panel, (UCB, TS), study),
        *_with_incumbents(panel, study),
        *(m for words, b in norms.items() for m in _with_widths(study, words, b, RATE, (TS, UCB))),
        *_with_widths(study, "water-filling gain", lower, water, (TS, UCB)),
        *_with_widths(study, "realized gain", lower, None, (TS,)),
        *_draws(study, lower, RATE),
    ]


def _largest(study: ArmsStudy) -> Tensor:
    return study.values.abs().amax(-1)


def _stand_in(words: str, *names: str) -> dict[str, str]:
    return {name: f"{name}, {words}" for name in names}


_INCUMBENTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("rounds", "1000, best posterior mean", {}),
    (
        f"{IN_SHORT}incumbent of EI and PI",
        "best noisy outcome",
        {"methods": {name: f"{name}, best outcome" for name in (EI, PI)}},
    ),
)


def _function_factors() -> list[Factor]:
    claims = (Claim(Kind.FAR_AHEAD, TS, (UCB,), "Hartmann3"),)
    make = partial(Factor, "chowdhury-3", panel=HARTMANN, claims=claims)
    long = f"{HARTMANN}-long"
    rounds = [
        make("rounds", "300", num_rounds=300),
        make("rounds", "1000"),
        *(make("rounds", f"{n}", panel=long, num_rounds=n) for n in (3000, 10000)),
    ]
    return [
        make(
            "as judged",
            "30000 rounds, lower bound on the norm, rate",
            panel=long,
            source=f"{SECTION}: all parameters as in the previous experiment",
        ),
        *rounds,
        make(
            f"{IN_SHORT}norm",
            "B^2 = f' K f as printed",
            source=PRINTED,
            methods=_stand_in("B^2 = f' K f", TS, UCB),
        ),
        make(f"{IN_SHORT}norm", "largest reward", methods=_stand_in("B = largest reward", TS, UCB)),
        make(
            f"{IN_SHORT}information gain",
            "water-filling",
            methods=_stand_in("water-filling gain", TS, UCB),
        ),
        make(
            f"{IN_SHORT}information gain of GP-TS",
            "realized",
            methods=_stand_in("realized gain", TS),
        ),
        make(f"{IN_SHORT}scale of GP-TS", "v_t = B", methods=_stand_in("v = B", TS)),
        make(f"{IN_SHORT}scale of GP-TS", "v_t without B", methods=_stand_in("v without B", TS)),
        make(f"{IN_SHORT}scale of GP-TS", "v = 1", methods=_stand_in("v = 1", TS)),
        replace(
            make(f"{IN_SHORT}noise", "R is 1% of the range, not R^2"), panel=f"{HARTMANN}-quiet"
        ),
        *(
            Factor(
                "chowdhury-3",
                factor,
                setting,
                panel,
                tuple(Claim(Kind.AHEAD, name, (IGP,), where) for name in (EI, PI)),
                **more,
            )
            for factor, setting, more in _INCUMBENTS
            for panel, where in ((ROSENBROCK, "Rosenbrock"), (HARTMANN, "Hartmann3"))
        ),
    ]


# --- Figure 4 -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sensors:
    """How readings are turned into rewards and a kernel.

    Attributes:
        kernel: ``"covariance"``, ``"correlation"`` (then rewards are in each sensor's own standard
            deviations) or ``"second moments"`` about zero.
        centered: Whether each sensor's past mean is subtracted from its rewards.
        ridge: The ridge on the kernel's diagonal, as a share of its mean.
        is_scaled: Whether rewards are in average standard deviations rather than in raw units.
        noise_share: The noise variance, as a share of the average variance.
        repeats: The number of times each reward function is played, with fresh noise.
        num_rounds: The number of rounds.
    """

    kernel: str = "covariance"
    centered: bool = True
    ridge: float = 0.01
    is_scaled: bool = True
    noise_share: float = SENSORS_SHARE
    repeats: int = 1
    num_rounds: int = 200

    def kernel_and_rewards(self, table: SensorData) -> tuple[Tensor, Tensor, float]:
        """Return the kernel matrix, the reward functions and the noise's standard deviation.

        Args:
            table: The readings.
        """
        means, deviations = table.past.mean(0), table.past.std(0)
        rewards = table.rewards(self.centered)
        covariance = table.kernel_matrix()
        if self.kernel == "second moments":
            count = len(table.past)
            covariance = covariance * (count - 1) / count + means[:, None] * means
        if self.kernel == "correlation":
            covariance = covariance / deviations[:, None] / deviations
            rewards = rewards / deviations
        average = float(covariance.diagonal().mean())
        identity = torch.eye(len(covariance), dtype=covariance.dtype)
        covariance = covariance + self.ridge * average * identity
        unit = average if self.is_scaled else 1.0
        noise_std = (self.noise_share * average / unit) ** 0.5
        return covariance / unit, rewards / unit**0.5, noise_std


CHANGED_SENSORS = {
    "": Sensors(),
    "correlation": Sensors(kernel="correlation"),
    "moments": Sensors(kernel="second moments"),
    "small-ridge": Sensors(ridge=1e-6),
    "large-ridge": Sensors(ridge=0.1),
    "raw-units": Sensors(is_scaled=False),
    "uncentered": Sensors(centered=False),
    "small-noise": Sensors(noise_share=SENSORS_SHARE**2),
    "large-noise": Sensors(noise_share=SENSORS_SHARE**0.5),
    "repeated": Sensors(repeats=10),
    "short": Sensors(num_rounds=50),
    "long": Sensors(num_rounds=1000),
    "as-printed": Sensors(is_scaled=False, centered=False),
}
"""The ways to use the readings, by the end of the panel's name."""


def _sensor_panels(
    tables: dict[str, SensorData], num_trials: int | None, num_rounds: int | None, seed: int
) -> list[ArmsExperiment]:
    panels = []
    for name, table in tables.items():
        for short, sensors in CHANGED_SENSORS.items():
            if short == "repeated" and name != "temperature":
                continue  # there are 192 functions of light
            kernel_matrix, rewards, noise_std = sensors.kernel_and_rewards(table)
            rounds = num_rounds or sensors.num_rounds
            panels.append(
                ArmsExperiment(
                    name=_panel_name(name, short),
                    title=f"{name} sensors (Figure 4), {short.replace('-', ' ') or 'as judged'}",
                    published="",
                    num_trials=num_trials or len(rewards) * sensors.repeats,
                    num_rounds=rounds,
                    make_study=partial(
                        _sensor_study, kernel_matrix, rewards, noise_std, rounds, seed
                    ),
                    make_methods=partial(_sensor_methods, short),
                    chunk=200,
                    settings={
                        "seed": seed,
                        "noise_std": noise_std,
                        "data": float(kernel_matrix.sum() + rewards.sum()),
                    },
                )
            )
    return panels


def _panel_name(name: str, short: str) -> str:
    return f"chowdhury-factors-{name}{'-' if short else ''}{short}"


def _sensor_study(
    kernel_matrix: Tensor,
    rewards: Tensor,
    noise_std: float,
    num_rounds: int,
    seed: int,
    first: int,
    count: int,
) -> ArmsStudy:
    rows = torch.arange(first, first + count) % len(rewards)
    return ArmsStudy(kernel_matrix, rewards[rows], noise_std, num_rounds, seed, first)


def _sensor_methods(short: str, study: ArmsStudy) -> list[Method]:
    """Return the methods of the figure, and further methods if the panel combines changes."""
    gain = ConstantGain(1.0)
    judged = figure_methods(float(_noise(study)), gain, study)
    if short in ("raw-units", "as-printed"):
        printed = _printed_norms(study)
        return [*judged, *_with_widths(study, "B^2 = f' K f", printed, gain, WITH_WIDTH)]
    if short == "uncentered":
        two = torch.full_like(study.values[:, 0], 2.0)
        return [
            *judged,
            *_with_widths(study, "B = 2", two, gain, WITH_WIDTH),
            *(m for m in _draws(study, two, gain) if m.name.endswith("v = 1")),
        ]
    if short:
        return judged
    lower = _lower_bounds(study)
    norms = {
        "B^2 = f' K f": _printed_norms(study),
        "B^2 = f' K^-1 f": estimate_norms(study.kernel_matrix, study.values, ALMOST_NOTHING),
        "B = largest reward": _largest(study),
        **{f"B = {b:g}": torch.full_like(lower, b) for b in (1.0, 2.0)},
    }
    water = WaterFillingGain(study.kernel_matrix, float(_noise(study)) ** 2)
    lam = 1.0 + 2.0 / study.num_rounds
    return [
        *judged,
        *_draws(study, lower, gain),
        *(m for w, b in norms.items() for m in _with_widths(study, w, b, gain, WITH_WIDTH)),
        *_with_widths(study, "water-filling gain", lower, water, WITH_WIDTH),
        *_with_widths(study, "realized gain", lower, None, (IGP, TS)),
        *_with_widths(study, "rate", lower, RateGain("rbf", 2), WITH_WIDTH),
        *(Method(f"{method.name}, lam = 1 + 2/T", method.acquisition, lam) for method in judged),
        *(m for m in _improvements(study) if not m.name.startswith(f"{EI}, margin")),
    ]


def _sensor_factors(name: str, figure: str, claims: tuple[Claim, ...]) -> list[Factor]:
    def changed(factor: str, setting: str, short: str, **more: Any) -> Factor:
        return Factor(figure, factor, setting, _panel_name(name, short), claims, **more)

    def played(factor: str, setting: str, words: str, *names: str, **more: Any) -> Factor:
        return changed(factor, setting, "", methods=_stand_in(words, *names), **more)

    lam = "lam = 1 + 2/T"
    rows = [
        changed("as judged", "200 rounds, lower bound on the norm, gain 1", "", source=SECTION),
        played("scale of GP-TS", "v_t = B", "v = B", TS),
        played("scale of GP-TS", "v_t without B", "v without B", TS),
        played("scale of GP-TS", "v = 1", "v = 1", TS),
        played("norm", "B^2 = f' K f as printed", "B^2 = f' K f", *WITH_WIDTH, source=PRINTED),
        played("norm", "B^2 = f' K^-1 f", "B^2 = f' K^-1 f", *WITH_WIDTH),
        played("norm", "largest reward", "B = largest reward", *WITH_WIDTH),
        played("norm", "B = 2", "B = 2", *WITH_WIDTH),
        played("norm", "B = 1", "B = 1", *WITH_WIDTH),
        played("information gain", "water-filling", "water-filling gain", *WITH_WIDTH),
        played("information gain of IGP-UCB and GP-TS", "realized", "realized gain", IGP, TS),
        played("information gain", "(ln t)^3, a rate in the plane", "rate", *WITH_WIDTH),
        played("lam", lam, lam, *WITH_WIDTH, EI, PI, source="Theorems 2 and 4"),
        changed("noise", "R is 5% of the average deviation", "small-noise"),
        changed("noise", "R^2 is 22% of the average variance, the root of 5%", "large-noise"),
        changed("kernel", "correlations", "correlation"),
        changed("kernel", "second moments about zero", "moments"),
        changed("ridge of the kernel", "0.0001% of the average variance", "small-ridge"),
        changed("ridge of the kernel", "10% of the average variance", "large-ridge"),
        changed("units", "as in the data", "raw-units"),
        changed("rewards", "not centered", "uncentered"),
        changed("rounds", "50", "short"),
        changed("rounds", "1000", "long"),
        played("incumbent of EI and PI", "best noisy outcome", "best outcome", EI, PI),
        played("margin of PI", "0", "margin 0", PI),
        played("margin of PI", "0.1", "margin 0.1", PI),
        changed(
            "two changes: units, norm",
            "as in the data, B^2 = f' K f",
            "raw-units",
            methods=_stand_in("B^2 = f' K f", *WITH_WIDTH),
            source=PRINTED,
        ),
        changed(
            "three changes: units, rewards, norm",
            "as in the data, not centered, B^2 = f' K f",
            "as-printed",
            methods=_stand_in("B^2 = f' K f", *WITH_WIDTH),
            source=PRINTED,
        ),
        changed(
            "two changes: rewards, norm",
            "not centered, B = 2",
            "uncentered",
            methods=_stand_in("B = 2", *WITH_WIDTH),
        ),
        changed(
            "two changes: rewards, scale of GP-TS",
            "not centered, v = 1",
            "uncentered",
            methods=_stand_in("v = 1", TS),
        ),
    ]
    if name == "temperature":
        more = changed("number of trials", "each function 10 times, with fresh noise", "repeated")
        rows.insert(-4, more)
    return rows


BEST = Claim(Kind.BEST, TS, (IGP, UCB, EI, PI))
FACTORS = (
    *_rkhs_factors(),
    *_function_factors(),
    *_sensor_factors("temperature", "chowdhury-4a", (BEST, Claim(Kind.ALIKE, IGP, (UCB,)))),
    *_sensor_factors("light", "chowdhury-4b", (BEST, Claim(Kind.AHEAD, IGP, (EI,)))),
)
"""The rows of the table, figure by figure."""


def factors(
    temperature: Path,
    light: Path | None = None,
    num_trials: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
) -> list[ArmsExperiment]:
    """Return the judged panels with further methods, and Figure 4 with other interpretations.

    Args:
        temperature: See :func:`papers.chowdhury.sensors`.
        light: See :func:`papers.chowdhury.sensors`.
        num_trials: The number of trials of every panel; as in the judged figures if omitted.
        num_rounds: The number of rounds of every panel; as in the judged figures if omitted.
        seed: Seeds everything that is drawn.
    """
    return [
        *_rkhs_panels(num_trials, num_rounds, seed),
        *_function_panels(num_trials, num_rounds, seed),
        *_sensor_panels(sensor_tables(temperature, light), num_trials, num_rounds, seed),
    ]


report = partial(report_factors, FACTORS)
