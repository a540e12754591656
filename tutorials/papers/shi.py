"""Experiments of Shi and Eryilmaz 2022, appendix E (Figures 1 to 9): long-term constraints.

Our methods play a grid of arms, and their regret is against the grid's own optimum. Methods of
other authors that need a box play the box itself. The paper does not specify ``B``, ``R``, ``lam``,
``delta`` or the lengthscale; here they are 1, 0.1 (the standard deviation of the reward's noise),
0.01, 0.1 and 1, on a model with prior mean 0 and prior variance 1, which is not rescaled with the
multipliers. No theorem covers these runs, because 1 does not bound a norm here and ``lam`` is below
1. A panel with other values shows their effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.checks import DTYPE
from botorch_bandits.constraints import (
    SURROGATES,
    AdditiveEpochs,
    MultiplicativeEpochs,
    MultiplierRule,
    PrimalDual,
)
from botorch_bandits.domains import Arms
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import ArmsPrior, BanditGP, double_kernel
from botorch_bandits.problems import GardnerProblem
from botorch_bandits.random_streams import generator
from papers.constrained_methods import ADMMBO, BanditSaddlePoint, ConstrainedImprovement
from papers.constrained_study import (
    ConstrainedMethod,
    PlayedLoop,
    SeparateArms,
    play_with_constraints,
)
from papers.environments import RatesProblem
from papers.results import write_csv
from papers.trials import ArmsExperiment, ArmsStudy, Curves

NOISE_STD = 0.1
"""The standard deviation of the reward's noise in both experiments."""

NUM_INITIAL = 1
"""The number of uniformly drawn rounds, so that each run starts at a different point."""


@dataclass(frozen=True)
class Constants:
    """The constants that the paper does not specify.

    Attributes:
        rkhs_bound: ``B``.
        noise_bound: ``R``.
        lam: The regularization of the model.
        delta: The failure probability of all epochs together.
        lengthscale: The lengthscale of the Matern 5/2 kernel, in units of the box.
    """

    rkhs_bound: float = 1.0
    noise_bound: float = NOISE_STD
    lam: float = 0.01
    delta: float = 0.1
    lengthscale: float = 1.0

    @property
    def kernel(self) -> Kernel:
        """The kernel, with prior variance 1."""
        return double_kernel(MaternKernel(nu=2.5), lengthscale=self.lengthscale)

    @property
    def model(self) -> Any:
        """The recipe of the model."""
        return BanditGP.with_kernel(
            MaternKernel(nu=2.5), noise=self.lam, lengthscale=self.lengthscale
        )

    @property
    def widths(self) -> dict[str, float]:
        """Options of IGP-UCB and GP-TS."""
        return {
            "rkhs_bound": self.rkhs_bound,
            "noise_bound": self.noise_bound,
            "delta": self.delta,
        }


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem with and without noise on its constraint.

    Attributes:
        name: A name for files.
        box: The problem on its box.
        num_points: The number of grid points per dimension.
        admm_steps: The queries of ADMMBO's subproblems, as in its authors' code.
        bounds: ``B``, ``G`` and the Slater gap of the rule that updates every round.
        num_rounds: The horizon, on which IGP-UCB's share of ``delta`` and some constants depend.
    """

    name: str
    box: GardnerProblem | RatesProblem
    num_points: int
    admm_steps: tuple[tuple[int, int], tuple[int, int]]
    bounds: tuple[float, float, float]
    num_rounds: int

    @property
    def grid(self) -> Any:
        """The problem on its grid of arms."""
        return _grid(self.box, self.num_points)

    def loop(
        self,
        name: str,
        rule: MultiplierRule,
        acquisition: type = ImprovedUpperConfidenceBound,
        constants: Constants | None = None,
        num_rounds: int | None = None,
    ) -> ConstrainedMethod:
        """Return a method that the loop plays on the grid."""
        known, grid = constants or Constants(), self.grid
        recipe: AcquisitionRecipe = acquisition.with_options(**known.widths)  # type: ignore[attr-defined]
        domain = Arms(grid.choices)

        def build(seed: int) -> PlayedLoop:
            loop = BanditLoop(
                domain,
                known.model,
                recipe,
                constraints=rule,
                horizon=num_rounds or self.num_rounds,
                num_initial=NUM_INITIAL,
                seed=seed,
                clock=lambda: 0.0,
            )
            return PlayedLoop(loop)

        return ConstrainedMethod(name, grid, build)

    def separate(
        self, name: str, rule: MultiplicativeEpochs | AdditiveEpochs | PrimalDual
    ) -> ConstrainedMethod:
        """Return a method with separate models of reward and constraint, on the grid."""
        known, grid = Constants(), self.grid

        def build(seed: int) -> SeparateArms:
            return SeparateArms(
                grid.choices,
                known.kernel,
                known.lam,
                rule,
                num_initial=NUM_INITIAL,
                seed=seed,
                prior=_prior(self.box, self.num_points),
                **known.widths,
            )

        return ConstrainedMethod(name, grid, build)

    def every_round(self) -> ConstrainedMethod:
        """Return the rule that changes multipliers every round."""
        reward, constraint, gap = self.bounds
        rule = PrimalDual.with_constants(
            1,
            reward_bound=reward,
            constraint_bound=constraint,
            slater_gap=gap,
            horizon=self.num_rounds,
        )
        return self.separate("update every round", rule)

    def others(self) -> list[ConstrainedMethod]:
        """Return bandit online convex optimization and ADMMBO, on the box."""
        box, model = self.box, Constants().model
        objective, feasibility = self.admm_steps
        return [
            ConstrainedMethod(
                "OCO, saddle point", box, lambda seed: BanditSaddlePoint(box.bounds, seed=seed)
            ),
            ConstrainedMethod(
                "ADMMBO",
                box,
                lambda seed: ADMMBO(
                    box.bounds,
                    model,
                    objective_steps=objective,
                    feasibility_steps=feasibility,
                    seed=seed,
                ),
            ),
        ]

    def improvement(self) -> ConstrainedMethod:
        """Return constrained expected improvement, on the grid."""
        model, grid = Constants().model, self.grid
        domain = Arms(grid.choices)
        return ConstrainedMethod(
            "constrained EI",
            grid,
            lambda seed: ConstrainedImprovement(domain, model, num_initial=NUM_INITIAL, seed=seed),
        )


@cache
def _grid(box: GardnerProblem | RatesProblem, num_points: int) -> Any:
    return box.on_grid(num_points)


@cache
def _prior(box: GardnerProblem | RatesProblem, num_points: int) -> ArmsPrior:
    return ArmsPrior.from_kernel(Constants().kernel, _grid(box, num_points).choices)


NUM_RESAMPLES = 2000
"""The number of resamples of the bootstrap."""

NUM_BOXES = 10
BOXES_TABLE = "boxes"
"""The name of the table of box plots, without ``.csv``."""

BOX = ("least", "lower_quartile", "median", "upper_quartile", "largest")
"""The columns of that table that have numbers."""


@dataclass(frozen=True)
class Growth:
    """A fitted power with its 95% interval.

    Attributes:
        power: The power in ``mean total = constant * rounds ** power``.
        lower: Lower end of the interval.
        upper: Upper end of the interval.
    """

    power: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Averages:
    """The time averages of one method, each ``num_trials x num_rounds``.

    Attributes:
        regret: The regret, which can be negative if the constraint is violated.
        violation: The signed violation: the positive part of the sum, divided by the rounds.
        rectified: The sum of positive parts, divided by the rounds.
        stopped: ``num_trials``; the round after which the method had stopped.
    """

    regret: Tensor
    violation: Tensor
    rectified: Tensor
    stopped: Tensor

    def at(self, name: str, round_number: int) -> Tensor:
        """Return a quantity after a round, or at the stop of runs that stopped earlier.

        Args:
            name: ``"regret"``, ``"violation"`` or ``"rectified"``.
            round_number: From 1.
        """
        rows = self.stopped.clamp_max(round_number) - 1
        values: Tensor = getattr(self, name)
        return values.gather(1, rows.unsqueeze(1)).squeeze(1)

    @property
    def last_round(self) -> int:
        """The last round in which at least half of the runs had not stopped."""
        return int(self.stopped.sort(descending=True).values[(len(self.stopped) - 1) // 2])

    def running_mean(self, name: str) -> Tensor:
        """Return the mean over runs that have not stopped, up to :attr:`last_round`.

        Args:
            name: As for :meth:`at`.
        """
        values: Tensor = getattr(self, name)[:, : self.last_round]
        runs = torch.arange(1, self.last_round + 1) <= self.stopped.unsqueeze(1)
        return (values * runs).sum(0) / runs.sum(0)


def averages(curve: Curves) -> Averages:
    """Return the time averages of a result of ``play_with_constraints``."""
    rounds = torch.arange(1, curve.regret.shape[1] + 1, dtype=DTYPE)
    constraint = curve.others["constraint"]
    return Averages(
        curve.regret.cumsum(1) / rounds,
        constraint.cumsum(1).clamp_min(0.0) / rounds,
        constraint.clamp_min(0.0).cumsum(1) / rounds,
        curve.others["stopped"],
    )


def fit_growth(sizes: Sequence[int], totals: Tensor, seed: int = 0) -> Growth | None:
    """Fit ``log(mean total) = log(constant) + power * log(size)`` by least squares.

    The interval is that of the percentile bootstrap over runs. Sizes are rounds of the same runs,
    so each resampled run keeps all of its sizes.

    Args:
        sizes: At least two different ones.
        totals: ``num_runs x len(sizes)``.
        seed: Seeds the bootstrap.

    Returns:
        None if a mean is not positive, in the data or in more than 2.5% of the resamples, because
        no power can then be fitted.
    """
    logs = torch.tensor(sizes, dtype=DTYPE).log()
    centered = logs - logs.mean()
    weights = centered / centered.square().sum()
    means = totals.mean(0)
    if not bool((means > 0.0).all()):
        return None
    rows = torch.randint(
        len(totals), (NUM_RESAMPLES, len(totals)), generator=generator(seed, 0, "bootstrap")
    )
    drawn = totals[rows].mean(1)
    usable = (drawn > 0.0).all(-1)
    if float(usable.to(DTYPE).mean()) < 0.975:
        return None
    slopes = drawn[usable].log() @ weights
    lower, upper = slopes.quantile(torch.tensor([0.025, 0.975], dtype=DTYPE)).tolist()
    return Growth(float(means.log() @ weights), lower, upper)


def tabulate_violation(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]]
) -> list[dict[str, Any]]:
    """Return two rows per panel and method, one halfway and one at the end."""
    rows = []
    for experiment, results in zip(experiments, curves, strict=True):
        for name, curve in results.items():
            known = averages(curve)
            for t in sorted({max(experiment.num_rounds // 2, 1), experiment.num_rounds}):
                row: dict[str, Any] = {
                    "experiment": experiment.name,
                    "method": name,
                    "trials": len(curve.regret),
                    "round": t,
                }
                for quantity in ("regret", "violation", "rectified"):
                    values = known.at(quantity, t)
                    row[f"{quantity}_mean"] = float(values.mean())
                    row[f"{quantity}_standard_error"] = _standard_error(values)
                    row[f"{quantity}_median"] = float(values.quantile(0.5))
                row["mean_stop"] = float(known.stopped.clamp_max(t).to(DTYPE).mean())
                multiplier = curve.others["multiplier"]
                row["median_last_multiplier"] = (
                    "" if bool(multiplier.isnan().any()) else float(multiplier.quantile(0.5))
                )
                rows.append(row)
    return rows


def tabulate_growth(experiment: ArmsExperiment, results: Mapping[str, Curves]) -> list[Any]:
    """Return the powers of a panel, fitted over a quarter, half and all of its rounds.

    Three totals are fitted: the positive part of each run's regret, the signed violation, and the
    priced regret ``sum_t max_x (f - price g)(x) - (f - price g)(x_t)`` with the optimal multiplier
    of the box as the price, which is never negative.
    """
    assert experiment.settings is not None
    sizes = [experiment.num_rounds // 4, experiment.num_rounds // 2, experiment.num_rounds]
    rows = []
    for name, curve in results.items():
        regret, constraint = curve.regret.cumsum(1), curve.others["constraint"].cumsum(1)
        price = experiment.settings["price"]
        # the grid's optimum for our methods; on the box, the largest priced value is optimal
        shift = 0.0
        if not name.startswith("OCO"):
            largest = experiment.settings["largest_priced_value_of_grid"]
            shift = largest - experiment.settings["optimal_value_of_grid"]
        rounds = torch.arange(1, regret.shape[1] + 1, dtype=DTYPE)
        totals = {
            "regret": regret.clamp_min(0.0),
            "violation": constraint.clamp_min(0.0),
            "priced regret": shift * rounds + regret + price * constraint,
        }
        for quantity, values in totals.items():
            at = values[:, [size - 1 for size in sizes]]
            fit = fit_growth(sizes, at)
            means = {f"mean_total_{i + 1}": float(v) for i, v in enumerate(at.mean(0))}
            rows.append(
                {
                    "experiment": experiment.name,
                    "method": name,
                    "quantity": quantity,
                    "trials": len(at),
                    "first_round": sizes[0],
                    "last_round": sizes[-1],
                    **means,
                    "power": "" if fit is None else fit.power,
                    "lower": "" if fit is None else fit.lower,
                    "upper": "" if fit is None else fit.upper,
                }
            )
    return rows


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Print regrets, violations and the fitted powers.

    Writes ``violation.csv``, ``growth.csv`` and ``boxes.csv``.

    Args:
        experiments: The panels of ``shi-gardner`` or ``shi-rates``.
        curves: Their results.
        folder: The folder for the files.
    """
    rows = tabulate_violation(experiments, curves)
    write_csv(folder / "violation.csv", rows)
    quantities = ("regret", "violation", "rectified")
    print(f"\n{'time averages: mean (standard error)':<58}{'round':>6}", end="")
    print("".join(f"{quantity:>18}" for quantity in quantities))
    for row in rows:
        cells = [f"{row[f'{q}_mean']:.3f} ({row[f'{q}_standard_error']:.3f})" for q in quantities]
        name = f"{row['experiment']}, {row['method']}"
        print(f"{name:<58}{row['round']:>6}" + "".join(f"{cell:>18}" for cell in cells))
    growth = [
        row
        for experiment, results in zip(experiments, curves, strict=True)
        if experiment.name.endswith("-powers") and experiment.num_rounds >= 4
        for row in tabulate_growth(experiment, results)
    ]
    if growth:
        write_csv(folder / "growth.csv", growth)
        print("\nfitted powers of totals, with 95% intervals (bootstrap over runs)")
        for row in growth:
            words = "not positive throughout: no power"
            if row["power"] != "":
                words = f"{row['power']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"
            print(f"{row['method']:<24}{row['quantity']:<16}{words}")
    write_csv(folder / f"{BOXES_TABLE}.csv", tabulate_boxes(experiments, curves))


def tabulate_boxes(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]]
) -> list[dict[str, Any]]:
    """Return quartiles and extremes over runs at ten rounds, for the compared methods.

    Runs that have stopped before a round are excluded from it.

    Args:
        experiments: The panels.
        curves: Their results.
    """
    rows = []
    for experiment, results in zip(experiments, curves, strict=True):
        if experiment.name.split("-", 2)[2] not in ("noiseless", "noisy"):
            continue
        for name, curve in results.items():
            known = averages(curve)
            last = known.last_round
            for quantity in ("regret", "violation"):
                for t in sorted({max(last * i // NUM_BOXES, 1) for i in range(1, NUM_BOXES + 1)}):
                    values = known.at(quantity, t)[known.stopped >= t]
                    numbers = [float(f"{values.quantile(p):.5g}") for p in (0, 0.25, 0.5, 0.75, 1)]
                    key: dict[str, Any] = {"experiment": experiment.name, "method": name}
                    key |= {"quantity": f"time-averaged {quantity}", "round": t}
                    rows.append(key | dict(zip(BOX, numbers, strict=True)))
    return rows


def _standard_error(values: Tensor) -> float:
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else 0.0


EPOCH_LENGTH, STEP_SIZE = 20, 0.5
EPOCH_LENGTHS = (5, 10, 20, 35, 70)
RATE_NOISE = 0.2

SLOW_TRIALS, FURTHER_TRIALS, EPOCH_TRIALS = 5, 10, 20
"""The largest numbers of trials of methods that take seconds per run, of further panels, and of
epochs of several lengths, for which the paper has 20."""

LONG = 4
"""The longest horizon of the fitted powers, in units of the usual one."""


def gardner(
    num_trials: int = 100, num_rounds: int = 350, seed: int = 0, num_points: int = 41
) -> list[ArmsExperiment]:
    """Return Figures 1 to 5: the problem with a small feasible region, on a grid of arms.

    Args:
        num_trials: The number of runs; further panels have fewer.
        num_rounds: The horizon, which is four times as long for the fitted powers.
        seed: Seeds noise, initial points and draws; a trial's are the same for every method.
        num_points: The number of grid points per dimension.
    """
    steps = ((10, 5), (50, 5))
    exact = Setting(
        "shi-gardner", GardnerProblem(NOISE_STD), num_points, steps, (7.0, 1.95, 0.05), num_rounds
    )
    noisy = replace(exact, box=GardnerProblem(NOISE_STD, NOISE_STD))
    lengths = [exact.loop(f"S = {S}", MultiplicativeEpochs(1, S)) for S in EPOCH_LENGTHS]
    other = {
        "B = 3": Constants(rkhs_bound=3.0),
        "B = 10": Constants(rkhs_bound=10.0),
        "lengthscale 0.5": Constants(lengthscale=0.5),
        "lengthscale 2": Constants(lengthscale=2.0),
        "lam = 1": Constants(lam=1.0),
    }
    unsaid = [
        exact.loop(name, _rule(2, "relabeled"), constants=constants)
        for name, constants in other.items()
    ]
    compared = _comparisons(exact, noisy, num_trials, seed, ("Figures 2 and 3", "Figures 4 and 5"))
    return [
        *compared[:2],
        panel(
            exact,
            "epochs",
            "Algorithm 2 with epochs of several lengths",
            "Figure 1: more frequent updates, less violation and, for some, more regret",
            lengths,
            min(num_trials, EPOCH_TRIALS),
            seed,
        ),
        panel(
            exact,
            "unsaid",
            "Algorithm 2 with other constants",
            "",
            unsaid,
            min(num_trials, SLOW_TRIALS),
            seed,
        ),
        *_long(exact, noisy, num_trials, seed),
        *compared[2:],
    ]


def rates(
    num_trials: int = 100, num_rounds: int = 350, seed: int = 0, num_points: int = 7
) -> list[ArmsExperiment]:
    """Return Figures 6 to 9: data rates with SUBSTITUTE constants, on a grid of arms.

    The paper's constants could not be obtained; see
    :class:`~papers.environments.RatesProblem`. The arguments are those of :func:`gardner`.
    """
    steps = ((20, 2), (20, 2))
    exact = Setting(
        "shi-rates", RatesProblem(NOISE_STD), num_points, steps, (4.0, 3.2, 2.0), num_rounds
    )
    noisy = replace(exact, box=RatesProblem(NOISE_STD, RATE_NOISE))
    # GP-TS and constrained EI are slow on so many arms and are only in the other experiment
    figures = ("Figures 6 and 7", "Figures 8 and 9")
    return _comparisons(exact, noisy, num_trials, seed, figures, with_slow=False)


def _comparisons(
    exact: Setting,
    noisy: Setting,
    num_trials: int,
    seed: int,
    figures: tuple[str, str],
    with_slow: bool = True,
) -> list[ArmsExperiment]:
    """Return the panels with and without noise on the constraint, and further ones of ours."""
    falls = "averages of regret and violation fall to 0, not those of OCO and ADMMBO"
    panels: list[ArmsExperiment] = []
    later: list[ArmsExperiment] = []
    for kind, setting, figure, number in (
        ("noiseless", exact, figures[0], 2),
        ("noisy", noisy, figures[1], 3),
    ):
        name = f"Algorithm {number}"
        rules = {surrogate: _rule(number, surrogate) for surrogate in SURROGATES}
        words = f"constraint observed {'exactly' if kind == 'noiseless' else 'with noise'}"
        compared = [setting.loop(name, rules["relabeled"]), *setting.others()]
        slow = [
            setting.loop(f"{name}, GP-TS", rules["relabeled"], GPThompsonSampling),
            setting.improvement(),
        ]
        surrogates = [
            setting.loop(f"{name}, fresh", rules["fresh"]),
            setting.separate(f"{name}, separate", rules["separate"]),
            setting.every_round(),
        ]
        published = f"{figure}: {name}'s {falls}"
        panels.append(panel(setting, kind, words, published, compared, num_trials, seed))
        count = min(num_trials, SLOW_TRIALS)
        if with_slow:
            title = f"{words}, slow methods"
            later.append(panel(setting, f"{kind}-slow", title, "", slow, count, seed))
        count = min(num_trials, FURTHER_TRIALS)
        title = f"{words}, other surrogates"
        later.append(panel(setting, f"{kind}-surrogates", title, "", surrogates, count, seed))
    return [*panels, *later]


def _rule(number: int, surrogate: str) -> MultiplicativeEpochs | AdditiveEpochs:
    """Return the rule of Algorithm 2 or 3."""
    if number == 2:
        return MultiplicativeEpochs(1, EPOCH_LENGTH, surrogate=surrogate)
    return AdditiveEpochs(1, EPOCH_LENGTH, step_size=STEP_SIZE, surrogate=surrogate)


def _long(exact: Setting, noisy: Setting, num_trials: int, seed: int) -> list[ArmsExperiment]:
    """Return the panel of the fitted powers."""
    num_rounds = LONG * exact.num_rounds
    methods = [
        exact.loop("Algorithm 2", _rule(2, "relabeled"), num_rounds=num_rounds),
        noisy.loop("Algorithm 3", _rule(3, "relabeled"), num_rounds=num_rounds),
        exact.others()[0],
    ]
    count = min(num_trials, FURTHER_TRIALS)
    return [panel(exact, "powers", "long horizon", "", methods, count, seed, num_rounds)]


def panel(
    setting: Setting,
    kind: str,
    title: str,
    published: str,
    methods: Sequence[ConstrainedMethod],
    num_trials: int,
    seed: int,
    num_rounds: int | None = None,
) -> ArmsExperiment:
    """Return a panel of methods that are played in turns.

    Args:
        setting: The problem, whose name begins the panel's name.
        kind: The end of the panel's name.
        title: A title in words.
        published: The statement of the paper.
        methods: The methods that are played, on the box of the setting or its grid.
        num_trials: The number of runs of each method.
        seed: Seeds everything.
        num_rounds: The number of rounds; that of the setting if omitted.
    """
    rounds = num_rounds or setting.num_rounds
    box, grid = setting.box, setting.grid
    price = float(box.optimal_multiplier)
    lagrangian = grid.values - price * grid.constraint_table[:, 0]

    def make_study(first: int, count: int) -> ArmsStudy:
        # the methods have the problem; the study only gives the number of trials and their seeds
        nothing = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(nothing, nothing.new_zeros(count, 1), NOISE_STD, rounds, seed, first)

    make_methods: Callable[[ArmsStudy], Any] = lambda study: list(methods)  # noqa: E731
    return ArmsExperiment(
        name=f"{setting.name}-{kind}",
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=rounds,
        make_study=make_study,
        make_methods=make_methods,
        average=True,
        player=play_with_constraints,
        settings={
            "seed": seed,
            "num_points": setting.num_points,
            "horizon": setting.num_rounds,
            "constants": vars(Constants()),
            "num_initial": NUM_INITIAL,
            "epoch_length": EPOCH_LENGTH,
            "step_size": STEP_SIZE,
            "optimal_value_of_box": float(box.optimal_value),
            "optimal_value_of_grid": float(grid.optimal_value),
            "price": price,
            "largest_priced_value_of_grid": float(lagrangian.max()),
        },
    )
