"""What options of the command line mean: methods, functions, budgets, changes and late outcomes.

Each group of options is read into the settings of a loop that it stands for, and what does not go
together is refused with the names of the options.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from botorch.models import ModelListGP
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    RandomSearch,
)
from botorch_bandits.change_points import (
    CalibratedThreshold,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    NeverRestart,
    OracleRestart,
    PowerThreshold,
    Restart,
    Threshold,
    calibrate_threshold,
)
from botorch_bandits.change_points.thresholds import rate_exponent
from botorch_bandits.checks import DTYPE, check_integer, check_positive, check_probability
from botorch_bandits.constraints import (
    AdditiveEpochs,
    MultiplicativeEpochs,
    MultiplierRule,
    PrimalDual,
)
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Box
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.settings import OBJECTIVES, check_feedback, default_acquisition
from botorch_bandits.models import (
    BanditGP,
    CandidatesRecipe,
    FittedSingleTaskGP,
    candidate_grid,
    lengthscale_ladder,
)
from botorch_bandits.penalties import Polynomial
from botorch_bandits.problems import Delays, parse_delays
from botorch_bandits.problems.tuning import COSTS, Budget
from botorch_bandits.spaces import Space

METHODS = {
    "best": "the default for the best point (expected improvement)",
    "earned": "the default for reward on the way (a narrow confidence bound)",
    "igp-ucb": "IGP-UCB (Chowdhury and Gopalan 2017)",
    "gp-ucb": "GP-UCB with a constant width (Srinivas et al. 2010)",
    "gp-ts": "GP-TS (Chowdhury and Gopalan 2017)",
    "ei": "expected improvement (BoTorch's LogEI)",
    "random": "random search",
}

METHOD_SETTINGS = {
    "rkhs_bound": (None, ("igp-ucb", "gp-ts")),
    "noise_bound": (None, ("igp-ucb", "gp-ts")),
    "delta": (0.1, ("igp-ucb", "gp-ts")),
    "width": (2.0, ("gp-ucb",)),
}
"""Settings of single methods: their defaults, and the methods that read them."""


def build_acquisition(
    method: str,
    rkhs_bound: float | None,
    noise_bound: float | None,
    delta: float,
    width: float,
    weighs_constraints: bool = False,
    is_censored: bool = False,
) -> AcquisitionRecipe | RandomSearch:
    """Return the acquisition of a method by name.

    The command line does not know the scale of anybody's reward: the bounds are multiples of
    the prior standard deviation, which the model learns.

    Args:
        method: A key of ``METHODS``.
        rkhs_bound: For ``igp-ucb`` and ``gp-ts``; None: nobody knows it.
        noise_bound: For ``igp-ucb`` and ``gp-ts``.
        delta: For ``igp-ucb`` and ``gp-ts``.
        width: For ``gp-ucb``.
        weighs_constraints: Whether reward and constraints are modeled separately (``igp-ucb``
            and ``gp-ucb``; ``best`` and ``earned`` become a bound that weighs them).
        is_censored: Whether pending outcomes are censored; ``best`` becomes a bound then.
    """
    if method in OBJECTIVES:
        return default_acquisition(
            method, is_censored=is_censored, weighs_constraints=weighs_constraints
        )
    bounds = {"rkhs_bound": rkhs_bound, "noise_bound": noise_bound}
    kernelized: dict[str, Any] = {
        **{name: bound for name, bound in bounds.items() if bound is not None},
        "delta": delta,
        "units": "prior",
    }
    if weighs_constraints:
        options = {"width": width} if method == "gp-ucb" else kernelized
        return LagrangianUpperConfidenceBound.with_options(**options)
    if method == "igp-ucb":
        return ImprovedUpperConfidenceBound.with_options(**kernelized)
    if method == "gp-ts":
        return GPThompsonSampling.with_options(**kernelized)
    if method == "gp-ucb":
        return GPUpperConfidenceBound.with_options(width=width)
    if method == "ei":
        return LogExpectedImprovement.with_options()
    if method == "random":
        return RandomSearch()
    raise ValueError(f"method is {method!r}; it must be one of {', '.join(METHODS)}.")


def build_loop(
    box: Box,
    acquisition: AcquisitionRecipe | RandomSearch,
    num_initial: int,
    seed: int,
    history: History | None = None,
    feedback: Feedback | None = None,
    restart: Restart | None = None,
    constraints: MultiplierRule | None = None,
    journal: str | None = None,
) -> BanditLoop:
    """Return a loop on a box with the model of practitioners."""
    # torch imports much at this function's first call, which fits make, and an interrupt in the
    # middle leaves modules that are half imported: better now than during the run
    torch.broadcast_shapes((1,), (1,))
    is_separate = constraints is not None and constraints.surrogate_in_use == "separate"
    return BanditLoop(
        box,
        FittedSingleTaskGP.for_domain(box) if not is_separate else FittedOutputs(box),
        acquisition,
        num_initial=num_initial,
        seed=seed,
        history=history,
        feedback=feedback,
        restart=restart,
        constraints=constraints,
        journal=journal,
    )


class FittedOutputs:
    """Builds a fitted model of each outcome: the reward, then each constraint.

    Args:
        box: Where points are chosen.
    """

    def __init__(self, box: Box) -> None:
        """See the class."""
        self._build = FittedSingleTaskGP.for_domain(box)

    def __call__(self, X: Tensor, Y: Tensor) -> ModelListGP:
        """Build and fit the models.

        Args:
            X: ``n x d`` inputs.
            Y: ``n x m`` outcomes.
        """
        return ModelListGP(*(self._build(X, y) for y in Y.split(1, dim=-1)))


@dataclass(frozen=True)
class NamedFunction:
    """A user's function by its name, so that a worker process can import it for itself.

    Attributes:
        name: ``MODULE:FUNCTION``.
        folder: Modules in this folder can be named too, as with ``python -m``.
    """

    name: str
    folder: str

    @classmethod
    def in_current_folder(cls, name: str) -> NamedFunction:
        """Return the function of this name.

        Raises:
            ValueError: If it cannot be imported.
        """
        function = cls(name, str(Path.cwd()))
        function.load()
        return function

    def load(self) -> Callable[[Any], Any]:
        """Import the function.

        Raises:
            ValueError: If the name is none, or names nothing that can be imported and called.
        """
        module_name, colon, function_name = self.name.partition(":")
        if not (module_name and colon and function_name):
            raise ValueError(
                f"function is {self.name!r}; it must be MODULE:FUNCTION, as in mymodule:reward."
            )
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ValueError(f"module {module_name!r} cannot be imported: {error}.") from error
        function: Any = getattr(module, function_name, None)
        if not callable(function):
            raise ValueError(f"module {module_name!r} has no function {function_name!r}.")
        checked: Callable[[Any], Any] = function
        return checked

    def __call__(self, argument: Any) -> Any:
        """Return what the function returns for the argument that ``run`` would give it."""
        return self.load()(argument)


@dataclass(frozen=True)
class AtAnyRound:
    """A function that is the same in every round.

    Attributes:
        function: Of a point alone.
    """

    function: Callable[[Any], Any]

    def __call__(self, argument: Any, round_number: int) -> Any:
        """Return what the function returns for its argument."""
        return self.function(argument)


def parse_box(bounds: str, integer: str) -> Box:
    """Return the box that ``--bounds`` and ``--integer`` describe.

    Args:
        bounds: As in ``0:1,-5:5``.
        integer: As in ``0,2``, or empty.

    Raises:
        ValueError: If they describe none.
    """
    pairs = []
    for part in bounds.split(","):
        low, _, high = part.partition(":")
        try:
            pairs.append((float(low), float(high)))
        except ValueError:
            raise ValueError(
                f"--bounds has the part {part!r}; each part must be low:high, as in 0:1,-5:5."
            ) from None
    try:
        dims = [int(i) for i in integer.split(",") if i.strip()]
    except ValueError:
        raise ValueError(f"--integer is {integer!r}; it must be numbers as in 0,2.") from None
    return Box([[low for low, _ in pairs], [high for _, high in pairs]], integer_dims=dims)


def read_domain(options: argparse.Namespace) -> Box:
    """Return where ``optimize`` chooses: a box, or a space of named parameters.

    Args:
        options: ``--bounds`` and ``--integer``, or ``--param``.

    Raises:
        ValueError: If both are given, neither is, or they describe nothing.
    """
    if (options.bounds is None) == (options.param is None):
        given = "both are there" if options.param else "neither is there"
        raise ValueError(
            f"optimize needs --bounds or --param, and {given}. Give --bounds low:high,... for a "
            "function of a tensor, or --param NAME=KIND:... for each parameter of a function of a "
            "dict, as in --param C=log:1e-3:1e3 --param depth=int:2:12."
        )
    if options.param is None:
        return parse_box(options.bounds, options.integer)
    if options.integer:
        raise ValueError(
            f"--integer is {options.integer!r}, but it goes with --bounds only. Write "
            "--param NAME=int:LOW:HIGH for a whole number."
        )
    try:
        return Space.parse(options.param)
    except ValueError as error:
        raise ValueError(f"--param: {error}") from error


def parameters_of(query: Query) -> dict[str, Any]:
    """Return the point of a query by name; without names they are ``x0``, ``x1``, ..."""
    named = query.parameters
    return {f"x{i}": v for i, v in enumerate(query.x.tolist())} if named is None else named


def show_value(value: Any) -> str:
    """Return a native value as a table shows it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


RULES = ("additive", "multiplicative", "primal-dual")

EPOCH_LENGTH = 5
STEP_SIZE = 0.5
LARGEST_PRIMAL_DUAL = 1.0
"""``rho`` of the primal-dual rule: being over budget by all of it costs as much as accuracy 1."""


@dataclass(frozen=True)
class Budgets:
    """The budgets of a run and what keeps them.

    Attributes:
        budgets: One a constraint.
        rule: How multipliers follow from the constraint values; None without budgets.
        settings: The effective options that determine the run, by name.
    """

    budgets: tuple[Budget, ...] = ()
    rule: MultiplierRule | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def averages(self, loop: BanditLoop) -> list[float] | None:
        """Return the average of each cost over the outcomes so far; None before the first."""
        if not self.budgets or loop.history.num_arrived == 0:
            return None
        means = loop.ledger().constraints.mean(dim=0).tolist()
        return [budget.amount(g) for budget, g in zip(self.budgets, means, strict=True)]

    def shown(self, loop: BanditLoop) -> dict[str, str]:
        """Return what the progress bar shows: average against limit, and the multiplier."""
        averages = self.averages(loop)
        if averages is None:
            return {}
        return {
            budget.cost: f"{average:.3g}/{budget.limit:g} (multiplier {multiplier:.3g})"
            for budget, average, multiplier in zip(
                self.budgets, averages, loop.multipliers, strict=True
            )
        }

    def result(self, loop: BanditLoop) -> dict[str, Any]:
        """Return what ``result.json`` says: averages, costs of the best query, the ledger."""
        if not self.budgets:
            return {}
        best = loop.best()
        averages = self.averages(loop)
        entries = []
        for j, budget in enumerate(self.budgets):
            average = None if averages is None else averages[j]
            entries.append(
                {
                    "cost": budget.cost,
                    "limit": budget.limit,
                    "average": average,
                    "is_kept": None if average is None else average <= budget.limit,
                    "of_best": None if best is None else budget.amount(best[1].constraints[j]),
                    "multiplier": loop.multipliers[j],
                }
            )
        return {"budgets": entries, "ledger": loop.ledger().to_records()}

    def rows(self, result: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the lines of the summary."""
        if not self.budgets:
            return []
        rows = []
        for entry in result["budgets"]:
            if entry["of_best"] is None:
                rows.append(("best reward", "none: no evaluation is within all budgets"))
                break
            rows.append((f"  {entry['cost']}", f"{entry['of_best']:.6g}"))
        for entry in result["budgets"]:
            if entry["average"] is not None:
                word = "kept" if entry["is_kept"] else "exceeded"
                rows.append(
                    (
                        entry["cost"],
                        f"{entry['average']:.4g} on average, budget {entry['limit']:g}: {word} "
                        f"(multiplier {entry['multiplier']:.3g})",
                    )
                )
        return rows


def read_budgets(options: argparse.Namespace) -> Budgets:
    """Return what the options say, before any file is written.

    Args:
        options: Those of ``add_budget_arguments``, and ``--method``.

    Raises:
        ValueError: If they name no budgets, contradict each other, or do not go with the method.
    """
    if not options.budget:
        for name in ("multiplier_rule", "epoch_length", "step_size"):
            if getattr(options, name) is not None:
                raise ValueError(
                    f"--{name.replace('_', '-')} is {getattr(options, name)}, but it goes with "
                    "--budget only. Add --budget, or leave it out."
                )
        return Budgets()
    budgets = tuple(Budget.parse(text) for text in options.budget)
    name = options.multiplier_rule or "additive"
    settings: dict[str, Any] = {
        "budget": [str(budget) for budget in budgets],
        "multiplier_rule": name,
    }
    length, step = options.epoch_length, options.step_size
    if name == "primal-dual" and length is not None:
        raise ValueError(
            f"--epoch-length is {length}, but the primal-dual rule has no epochs: it changes the "
            "multipliers in every round. Leave it out."
        )
    if name == "multiplicative" and step is not None:
        raise ValueError(
            f"--step-size is {step}, but the multiplicative rule has none. Leave it out."
        )
    if name != "primal-dual":
        length = EPOCH_LENGTH if length is None else check_integer("--epoch-length", length, 1)
        settings["epoch_length"] = length
    if name != "multiplicative":
        step = STEP_SIZE if step is None else check_positive("--step-size", step)
        settings["step_size"] = step
    if name == "additive":
        rule: MultiplierRule = AdditiveEpochs(len(budgets), length, step_size=step)
    elif name == "multiplicative":
        noisy = [budget.cost for budget in budgets if not COSTS[budget.cost].is_exact]
        if noisy:
            raise ValueError(
                f"--multiplier-rule multiplicative is for exact costs, and {', '.join(noisy)} is "
                "measured with noise, which its penalty amplifies. Use additive."
            )
        rule = MultiplicativeEpochs(len(budgets), length, penalty=Polynomial(1.0, 2.0))
    else:
        if options.method not in (*OBJECTIVES, "igp-ucb", "gp-ucb"):
            raise ValueError(
                "--multiplier-rule primal-dual goes with --objective and the methods igp-ucb and "
                f"gp-ucb, whose bounds it follows, not with {options.method}. Use additive."
            )
        rule = PrimalDual(len(budgets), LARGEST_PRIMAL_DUAL, divisor=1.0 / step)
    return Budgets(budgets, rule, settings)


RESTARTS = ("evidence", "cpd", "oracle", "never")

SMOOTHNESS = 2.5
"""``nu`` of the detector's kernel."""

NOISE_SHARE = 0.1
"""Standard deviation of the noise in calibrations, in units of ``--reward-scale``."""

NUM_SIMULATIONS = 500

DETECTOR_DEFAULTS = {"ridge": 0.03, "lengthscale": 0.5, "false_alarm_rate": 0.1}
EXPLORATION = 3.0

NOISE_RATIOS = (0.001, 0.01, 0.1)
"""Noise variance over output scale of the candidates for evidence."""

SCALE_SHARES = (0.1, 0.3, 1.0)
"""Prior standard deviations of the candidates, in units of ``--reward-scale``."""


@dataclass(frozen=True)
class Changes:
    """What may change in a run, and what is done about it.

    Attributes:
        restart: When the loop begins anew, if ever.
        change_points: The last round before each change that is known.
        settings: The effective options that determine the run, by name.
    """

    restart: Restart | None = None
    change_points: tuple[int, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def are_possible(self) -> bool:
        """Whether there is anything to report."""
        return self.restart is not None or bool(self.change_points)

    def beginnings(self, loop: BanditLoop) -> list[int]:
        """Return the first rounds since the last known change and since the last reset, if any."""
        last = loop.history.num_queries
        changes = [tau for tau in self.change_points if tau < last]
        resets = [r.after_round - r.num_kept for r in loop.resets if r.after_round < last]
        return sorted({max(rounds) + 1 for rounds in (changes, resets) if rounds})

    def best(self, loop: BanditLoop) -> tuple[int, tuple[Query, Outcome] | None]:
        """Return the first round that counts now, and the best query since then, if any.

        That is the round after the last reset or the last known change, whichever came later.
        """
        first = max([1, *self.beginnings(loop)])
        return first, loop.best() if first == 1 else self.best_since(loop, first)

    def best_since(self, loop: BanditLoop, round_number: int) -> tuple[Query, Outcome] | None:
        """Return the query with the largest reward among those from a round on, if any.

        With budgets it is among those that met them, as :meth:`BanditLoop.best` is.
        """
        best: tuple[Query, Outcome] | None = None
        for query in loop.history.queries_since(round_number - 1):
            outcome = loop.history.outcome(query.id)
            if outcome is None or max(outcome.constraints, default=0.0) > 0.0:
                continue
            if best is None or outcome.reward > best[1].reward:
                best = query, outcome
        return best

    def shown(self, loop: BanditLoop) -> dict[str, str]:
        """Return what the progress bar shows beside the best reward of now."""
        shown = {}
        if self.beginnings(loop) and (largest := loop.history.best()) is not None:
            shown["largest ever"] = f"{largest[1].reward:.6g}"
        if loop.resets:
            shown["reset"] = f"after round {loop.resets[-1].after_round}"
        return shown

    def result(self, loop: BanditLoop) -> dict[str, Any]:
        """Return what ``result.json`` says: resets, tests, the best since the last change."""
        if not self.are_possible:
            return {}
        since = []
        for first in self.beginnings(loop):
            best = self.best_since(loop, first)
            if best is not None:
                query, outcome = best
                since.append(
                    {
                        "since_round": first,
                        "reward": outcome.reward,
                        "round": query.round_number,
                        "parameters": parameters_of(query),
                    }
                )
        ever = loop.history.best()
        largest = None
        if ever is not None:
            largest = {"reward": ever[1].reward, "round": ever[0].round_number}
        return {
            "change_points": list(self.change_points),
            "resets": [plain_record(reset) for reset in loop.resets],
            "num_tests": len(loop.change_tests),
            "best_since": since,
            "largest": largest,
        }

    def rows(self, result: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the lines of the summary."""
        if not self.are_possible:
            return []
        rows = []
        if result["change_points"]:
            rounds = ", ".join(str(tau) for tau in result["change_points"])
            rows.append(("changes after", rounds))
        for reset in result["resets"]:
            found = reset["reason"]
            if reset["change_round"] is not None:
                found += f", change placed before round {reset['change_round']}"
            rows.append(("reset after", f"{reset['after_round']} ({found})"))
        if not result["resets"] and self.restart is not None:
            rows.append(("resets", "none"))
        first, largest = result["best_since_round"], result["largest"]
        if first > 1 and largest is not None:
            found = "" if result["best_reward"] is not None else ", where none has come yet"
            rows.append(("best is counted", f"from round {first} on{found}"))
            rows.append(
                ("largest reward ever", f"{largest['reward']:.6g} in round {largest['round']}")
            )
        for best in result["best_since"]:
            if best["since_round"] == first:  # it is the best reward
                continue
            rows.append((f"best since round {best['since_round']}", f"{best['reward']:.6g}"))
            rows.append(("found in round", str(best["round"])))
            rows += [(f"  {name}", show_value(v)) for name, v in best["parameters"].items()]
        return rows


def read_changes(
    options: argparse.Namespace,
    box: Box,
    known: Mapping[str, Any],
    reward_mean: float | None = None,
    reward_scale: float | None = None,
) -> Changes:
    """Return what the options say, before any file is written.

    Args:
        options: Those of ``add_change_arguments``.
        box: Where points are chosen.
        known: Settings of the run that is continued, empty if there is none: the round of the
            shift and the threshold are taken from there.
        reward_mean: The default of ``--reward-mean``; None: it must be given.
        reward_scale: The default of ``--reward-scale``. Likewise.

    Raises:
        ValueError: If the options contradict each other.
    """
    change_points = _read_change_points(options, known)
    settings: dict[str, Any] = {}
    if getattr(options, "shift", None):
        settings["shift_round"] = change_points[0]
    _refuse_without("--restart cpd", options.restart == "cpd", options, DETECTOR_OPTIONS)
    has_prior = options.restart in ("cpd", "evidence")
    _refuse_without("--restart evidence or cpd", has_prior, options, PRIOR_OPTIONS)
    _refuse_without("--restart", options.restart is not None, options, ("exploration",))
    if options.restart is None:
        return Changes(None, change_points, settings)
    if options.restart == "evidence":
        prior = {"reward_mean": reward_mean, "reward_scale": reward_scale}
        _read_prior(options, prior, settings)
        restart = EvidenceRestart(
            robust=False,
            candidates=_candidates(box, settings),
            exploration=options.exploration,
        )
        return Changes(restart, change_points, {**settings, "exploration": options.exploration})
    exploration = EXPLORATION if options.exploration is None else options.exploration
    settings["exploration"] = exploration
    if options.restart == "never":
        return Changes(NeverRestart(exploration=exploration), change_points, settings)
    if options.restart == "oracle":
        if not change_points:
            raise ValueError(
                "--restart oracle is told the changes; add "
                + ("--shift." if hasattr(options, "shift") else "--change-points, as in 30,60.")
            )
        oracle = OracleRestart(change_points=change_points, exploration=exploration)
        return Changes(oracle, change_points, settings)
    defaults = {"reward_mean": reward_mean, "reward_scale": reward_scale, **DETECTOR_DEFAULTS}
    if options.threshold_scale is not None:
        if options.false_alarm_rate is not None:
            raise ValueError(
                "--threshold-scale takes the place of --false-alarm-rate; give one of the two."
            )
        del defaults["false_alarm_rate"]
    _read_prior(options, defaults, settings)
    detector = _detector(options, box, settings)
    threshold, record = _threshold(options, detector, box, settings, known)
    settings["threshold"] = record
    cpd = ChangePointRestart(
        detector=dataclasses.replace(detector, threshold=threshold), exploration=exploration
    )
    return Changes(cpd, change_points, settings)


def _read_prior(
    options: argparse.Namespace, defaults: Mapping[str, Any], settings: dict[str, Any]
) -> None:
    """Put what a detector's prior needs into the settings, or raise.

    Args:
        options: Those of ``add_change_arguments``.
        defaults: By name; None: it must be given.
        settings: Gets them.
    """
    for name, default in defaults.items():
        given = getattr(options, name)
        settings[name] = default if given is None else given
        if settings[name] is None:
            raise ValueError(
                f"--restart {options.restart} needs --{name.replace('_', '-')}: the detector's "
                "prior has a mean and a standard deviation, in units of the reward."
            )


def _candidates(box: Box, settings: Mapping[str, Any]) -> CandidatesRecipe:
    """Return the priors of which one is taken to be true, fixed before the data."""
    scale = check_positive("--reward-scale", settings["reward_scale"])
    sides = (box.bounds[1] - box.bounds[0]).tolist()
    return BanditGP.with_candidates(
        candidate_grid(
            [[rung * side for side in sides] for rung in lengthscale_ladder(box.dim)],
            noise_ratios=NOISE_RATIOS,
            scales=[share**2 * scale**2 for share in SCALE_SHARES],
            smoothness=(SMOOTHNESS,),
            prior_means=(settings["reward_mean"],),
        )
    )


PRIOR_OPTIONS = ("reward_mean", "reward_scale")
DETECTOR_OPTIONS = (
    "false_alarm_rate",
    "threshold_scale",
    "ridge",
    "lengthscale",
)


def _read_change_points(options: argparse.Namespace, known: Mapping[str, Any]) -> tuple[int, ...]:
    if hasattr(options, "shift"):
        _refuse_without("--shift", options.shift, options, ("shift_round", "shift_feature"))
        if not options.shift:
            return ()
        if options.shift_round is not None:
            return (check_integer("--shift-round", options.shift_round, minimum=1),)
        return (int(known.get("shift_round") or max(options.rounds // 2, 1)),)
    if options.change_points is None:
        return ()
    _refuse_without("--restart oracle", options.restart == "oracle", options, ("change_points",))
    try:
        rounds = tuple(int(part) for part in options.change_points.split(","))
    except ValueError:
        raise ValueError(
            f"--change-points is {options.change_points!r}; it must be rounds, as in 30,60."
        ) from None
    return OracleRestart(change_points=rounds).change_points


def _refuse_without(
    needed: str, is_there: Any, options: argparse.Namespace, names: Sequence[str]
) -> None:
    for name in names:
        if not is_there and getattr(options, name) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} is {getattr(options, name)}, but it goes with "
                f"{needed} only. Add {needed}, or leave it out."
            )


def _detector(
    options: argparse.Namespace, box: Box, settings: Mapping[str, Any]
) -> ChangePointDetector:
    scale = check_positive("--reward-scale", settings["reward_scale"])
    share = check_positive("--lengthscale", settings["lengthscale"])
    kernel = ScaleKernel(MaternKernel(nu=SMOOTHNESS, ard_num_dims=box.dim).double()).double()
    lengthscales = share * (box.bounds[1] - box.bounds[0])
    kernel.base_kernel.lengthscale = lengthscales.unsqueeze(0)
    kernel.outputscale = torch.tensor(scale**2, dtype=DTYPE)
    ridge = check_positive("--ridge", settings["ridge"])
    return ChangePointDetector(
        kernel, ridge=ridge, prior_mean=settings["reward_mean"], seed=options.seed
    )


def _threshold(
    options: argparse.Namespace,
    detector: ChangePointDetector,
    box: Box,
    settings: Mapping[str, Any],
    known: Mapping[str, Any],
) -> tuple[Threshold, dict[str, Any]]:
    """Return the threshold, simulated unless the run that is continued has one, and a record."""
    if options.threshold_scale is not None:
        scale = check_positive("--threshold-scale", options.threshold_scale)
        power = PowerThreshold(scale, -rate_exponent(SMOOTHNESS, box.dim))
        return power, dataclasses.asdict(power)
    rate = check_probability("--false-alarm-rate", settings["false_alarm_rate"])
    record = known.get("threshold")
    calibrated = recorded_threshold(record)
    if calibrated is not None:
        return calibrated, record  # type: ignore[return-value]
    # as many uniform queries as a segment that lasts all rounds has, or its initial ones
    uniform = math.ceil(settings["exploration"] * math.sqrt(options.rounds)) + 1
    threshold = calibrate_threshold(
        detector,
        box,
        horizon=max(2, min(max(uniform, options.initial), options.rounds)),
        false_alarm_rate=rate,
        noise_std=NOISE_SHARE * settings["reward_scale"],
        num_simulations=max(NUM_SIMULATIONS, math.ceil(20.0 / rate)),
        seed=options.seed,
        progress=not options.quiet,
    )
    return threshold, plain_record(threshold)


def recorded_threshold(record: Any) -> CalibratedThreshold | None:
    """Return the threshold of which :func:`plain_record` made a record, if it is one."""
    if not isinstance(record, dict) or "levels" not in record:
        return None
    lists = {name: tuple(record[name]) for name in ("levels", "rate_bounds")}
    return CalibratedThreshold(**{**record, **lists})


def plain_record(record: Any) -> dict[str, Any]:
    """Return a dataclass as JSON has it, where there is no NaN."""
    return {
        name: None
        if isinstance(value, float) and math.isnan(value)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in dataclasses.asdict(record).items()
    }


@dataclass(frozen=True)
class Waiting:
    """How outcomes are waited for.

    Attributes:
        delays: After how many rounds outcomes are told; None: at once.
        feedback: What is made of pending queries.
        num_workers: How many processes evaluate queries; with one it is this process.
        settings: The effective options that determine the run, by name.
    """

    delays: Delays | None
    feedback: Feedback
    num_workers: int
    settings: dict[str, Any]

    @property
    def has_pending(self) -> bool:
        """Whether queries can be pending while others are chosen."""
        return self.delays is not None or self.num_workers > 1


CENSORED_OPTIONS = ("max_delay", "minimum", "outcome_bound", "tolerance")


def read_waiting(
    options: argparse.Namespace,
    acquisition: AcquisitionRecipe | RandomSearch,
    box: Box,
    known: Mapping[str, Any],
    minimum: float | None = None,
) -> Waiting:
    """Return what the options say, before any file is written.

    Args:
        options: Those of ``add_waiting_arguments``.
        acquisition: The method's; it must go with the feedback.
        box: Where points are chosen.
        known: Settings of the run that is continued, if any; they are the defaults.
        minimum: The default of ``--minimum``, in units of the reward; None: it must be given.

    Raises:
        ValueError: If the options contradict each other, or the method has no width for the
            feedback.
    """
    delays = None if options.delay is None else parse_delays(options.delay)
    workers = 1 if options.workers is None else check_integer("--workers", options.workers, 1)
    if delays is not None and workers > 1:
        raise ValueError(
            f"--workers is {workers} and --delay is {options.delay!r}, but evaluations in "
            "processes are told when they are done. Leave one of the two out."
        )
    if options.feedback is not None and delays is None and options.workers is None:
        raise ValueError(
            f"--feedback is {options.feedback!r}, but without --delay or --workers no query is "
            "pending. Add one of the two, or leave --feedback out."
        )
    name = options.feedback or "hallucinated"
    given = {key: getattr(options, key) for key in CENSORED_OPTIONS}
    if name != "censored":
        for key, value in given.items():
            if value is not None:
                raise ValueError(
                    f"--{key.replace('_', '-')} is {value}, but it goes with --feedback censored "
                    f"only, and the feedback is {name}. Add --feedback censored, or leave it out."
                )
        feedback: Feedback = Hallucinated() if name == "hallucinated" else Ignored()
    else:
        if known.get("feedback") == "censored":
            given = {key: known.get(key) if v is None else v for key, v in given.items()}
        given["minimum"] = minimum if given["minimum"] is None else given["minimum"]
        if given["minimum"] is None:
            raise ValueError(
                "--feedback censored needs --minimum: no reward without its noise is smaller."
            )
        bounds = {"rkhs_bound", "noise_bound"} & set(getattr(acquisition, "options", ()))
        if given["outcome_bound"] is None and bounds:
            raise ValueError(
                "--feedback censored needs --outcome-bound beside --rkhs-bound or --noise-bound: "
                "no reward exceeds --minimum by more, in prior standard deviations. Give it, or "
                "leave these out."
            )
        feedback = Censored(**given)
    check_feedback(feedback, acquisition, box)
    return Waiting(delays, feedback, workers, {**given, "feedback": name})


fill_in_docstrings(__name__)
