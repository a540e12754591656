"""What options of the command line mean: methods, functions, budgets and late outcomes.

Each group of options is translated into settings of a loop, and options that conflict are refused
with an error that names them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize
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
    Restart,
)
from botorch_bandits.checks import check_integer, check_number, check_positive
from botorch_bandits.cli.arguments import EPOCH_LENGTH, METHODS, STEP_SIZE
from botorch_bandits.constraints import (
    AdditiveEpochs,
    MultiplicativeEpochs,
    MultiplierRule,
    PrimalDual,
)
from botorch_bandits.domains import Box
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.history import History, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.settings import OBJECTIVES, check_feedback, default_acquisition
from botorch_bandits.models import BanditGPRecipe, FittedSingleTaskGP, candidate_grid
from botorch_bandits.penalties import Polynomial
from botorch_bandits.problems import Delays, parse_delays
from botorch_bandits.problems.tuning import COSTS, Budget
from botorch_bandits.spaces import Space

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
    prior: Prior | None = None,
) -> AcquisitionRecipe | RandomSearch:
    """Return the acquisition of a method by name.

    The scale of the reward is unknown to the command line: the bounds are multiples of the prior
    standard deviation, which the model learns.

    Args:
        method: A key of ``METHODS``.
        rkhs_bound: For ``igp-ucb`` and ``gp-ts``; None if it is unknown.
        noise_bound: For ``igp-ucb`` and ``gp-ts``.
        delta: For ``igp-ucb`` and ``gp-ts``.
        width: For ``gp-ucb``.
        weighs_constraints: Whether reward and constraints are modeled separately (``igp-ucb``
            and ``gp-ucb``; ``best`` and ``earned`` become a bound that weighs them).
        is_censored: Whether pending outcomes are censored; ``best`` then becomes a bound.
        prior: A prior that is fixed before the data and replaces the fitted model.
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
    if prior is not None:  # the form for any noise; the bound is on the reward minus its mean
        kernelized |= {"any_lambda": True, "assume": "centered bound"}
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
    maximize: bool = True,
    prior: Prior | None = None,
) -> BanditLoop:
    """Return a loop on a box with a fitted model, or with a fixed prior."""
    # the first call of this function, which fits make, imports much of torch, and an interrupt in
    # the middle leaves modules half imported: better now than during the run
    torch.broadcast_shapes((1,), (1,))
    is_separate = constraints is not None and constraints.surrogate_in_use == "separate"
    model: Any = FittedOutputs(box) if is_separate else FittedSingleTaskGP.for_domain(box)
    return BanditLoop(
        box,
        model if prior is None else prior.recipe(box),
        acquisition,
        num_initial=num_initial,
        seed=seed,
        history=history,
        feedback=feedback,
        restart=restart,
        constraints=constraints,
        journal=journal,
        maximize=maximize,
    )


@dataclass(frozen=True)
class Prior:
    """The value of ``--prior``: a Gaussian process with a Matern 5/2 kernel, fixed beforehand.

    Attributes:
        lengthscale: The lengthscale as a share of the range of each parameter.
        scale: The prior standard deviation of the reward.
        noise: The standard deviation of the noise of an outcome.
        mean: The prior mean of the rewards.
    """

    lengthscale: float
    scale: float
    noise: float
    mean: float = 0.0

    @classmethod
    def read(cls, text: str | None) -> Prior | None:
        """Return the prior that an option describes; None if the option is missing.

        Args:
            text: The value, as in ``0.2:1:0.1`` or ``0.2:1:0.1:50``.

        Raises:
            ValueError: If the text has another form.
        """
        if text is None:
            return None
        parts = text.split(":")
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) not in (3, 4):
            raise ValueError(
                f"--prior is {text!r}; it must be LENGTHSCALE:SCALE:NOISE or "
                "LENGTHSCALE:SCALE:NOISE:MEAN, four numbers at most, as in 0.2:1:0.1."
            )
        names = ("LENGTHSCALE", "SCALE", "NOISE")
        checked = [
            check_positive(f"--prior, {name},", value)
            for name, value in zip(names, numbers, strict=False)
        ]
        return cls(*checked, *(check_number("--prior, MEAN,", value) for value in numbers[3:]))

    def recipe(self, box: Box) -> BanditGPRecipe:
        """Return the model on a box; categories without an order have one column each.

        Args:
            box: The domain of the points.
        """
        variance = self.scale**2
        ratio = (self.noise / self.scale) ** 2
        (prior,) = candidate_grid([self.lengthscale], [ratio], [variance], prior_means=(self.mean,))
        transform = box.input_transform() if isinstance(box, Space) else None
        if transform is None:
            transform = Normalize(box.dim, bounds=box.bounds)
        return replace(prior, input_transform=transform)


class FittedOutputs:
    """Builds a fitted model of each outcome: the reward, then each constraint.

    Args:
        box: The domain of the points.
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


def parse_box(bounds: str, integer: str) -> Box:
    """Return the box that ``--bounds`` and ``--integer`` describe.

    Args:
        bounds: The bounds, as in ``0:1,-5:5``.
        integer: The dimensions, as in ``0,2``, or empty.

    Raises:
        ValueError: If they do not describe a box.
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
    """Return the domain of ``optimize``: a box, or a space of named parameters.

    Args:
        options: The options ``--bounds`` and ``--integer``, or ``--param``.

    Raises:
        ValueError: If both are given, neither is, or they describe nothing.
    """
    if (options.bounds is None) == (options.param is None):
        given = "both are given" if options.param else "neither is given"
        raise ValueError(
            f"optimize needs --bounds or --param, but {given}. Give --bounds low:high,... for a "
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
    """Return a native value in the form in which tables show it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


LARGEST_PRIMAL_DUAL = 1.0
"""``rho`` of the primal-dual rule: exceeding a budget by 100% costs as much as an accuracy of 1."""


@dataclass(frozen=True)
class Budgets:
    """The budgets of a run and the rule that enforces them.

    Attributes:
        budgets: One budget per constraint.
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
        """Return the entries of ``result.json``: averages, costs of the best query, the ledger."""
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
    """Return the budgets that the options describe, before any file is written.

    Args:
        options: The options of ``add_budget_arguments``, and ``--method``.

    Raises:
        ValueError: If they name no budgets, contradict each other, or do not fit the method.
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


@dataclass(frozen=True)
class Waiting:
    """The settings for late outcomes and parallel evaluations.

    Attributes:
        delays: The number of rounds after which outcomes are told; None means at once.
        feedback: How pending queries are treated.
        num_workers: How many processes evaluate queries; if one, it is this process.
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
FILL_OPTIONS = ("fill", "delay_distribution")
"""The same for options that runs of earlier versions lack."""


def read_waiting(
    options: argparse.Namespace,
    acquisition: AcquisitionRecipe | RandomSearch,
    box: Box,
    known: Mapping[str, Any],
    minimum: float | None = None,
) -> Waiting:
    """Return the settings that the options describe, before any file is written.

    Args:
        options: The options of ``add_waiting_arguments``.
        acquisition: The method's acquisition, which must go with the feedback.
        box: The domain of the points.
        known: Settings of the run that is continued, if any; they are the defaults.
        minimum: The default of ``--minimum``, in units of the reward; if None, it must be given.

    Raises:
        ValueError: If the options contradict each other, or the method has no width for the
            feedback.
    """
    delays = None if options.delay is None else parse_delays(options.delay)
    workers = 1 if options.workers is None else check_integer("--workers", options.workers, 1)
    if delays is not None and workers > 1:
        raise ValueError(
            f"--workers is {workers} and --delay is {options.delay!r}, but outcomes from "
            "processes are told when they arrive. Leave one of the two out."
        )
    if options.feedback is not None and delays is None and options.workers is None:
        raise ValueError(
            f"--feedback is {options.feedback!r}, but without --delay or --workers no query is "
            "pending. Add one of the two, or leave --feedback out."
        )
    name = options.feedback or "hallucinated"
    given = {key: getattr(options, key) for key in CENSORED_OPTIONS}
    fills = {key: getattr(options, key) for key in FILL_OPTIONS}
    if name != "censored":
        for key, value in {**given, **fills}.items():
            if value is not None:
                raise ValueError(
                    f"--{key.replace('_', '-')} is {value}, but it goes with --feedback censored "
                    f"only, and the feedback is {name}. Add --feedback censored, or leave it out."
                )
        feedback: Feedback = Hallucinated() if name == "hallucinated" else Ignored()
    else:
        if getattr(options, "budget", None) and options.multiplier_rule != "primal-dual":
            raise ValueError(
                "--feedback censored goes with --budget only if costs are modeled separately: the "
                "smallest penalized reward would follow from the largest value of each cost, which "
                "is unknown. Add --multiplier-rule primal-dual, or leave one of the two out."
            )
        if getattr(options, "budget", None) and options.outcome_bound is not None:
            raise ValueError(
                f"--outcome-bound is {options.outcome_bound}, which does not go with --budget: "
                "widths would also grow by the largest value of each cost, which is unknown. "
                "Leave it out."
            )
        if known.get("feedback") == "censored":
            given = {key: known.get(key) if v is None else v for key, v in given.items()}
            fills = {key: known.get(key) if v is None else v for key, v in fills.items()}
        fills = {key: value for key, value in fills.items() if value is not None}
        given["minimum"] = minimum if given["minimum"] is None else given["minimum"]
        if given["minimum"] is None:
            raise ValueError(
                "--feedback censored needs --minimum, a lower bound on the noise-free reward."
            )
        bounds = {"rkhs_bound", "noise_bound"} & set(getattr(acquisition, "options", ()))
        if given["outcome_bound"] is None and bounds:
            raise ValueError(
                "--feedback censored needs --outcome-bound with --rkhs-bound or --noise-bound. "
                "Give the most by which a reward can exceed --minimum, in prior standard "
                "deviations, or leave these out."
            )
        feedback = Censored(**given, **fills)
    check_feedback(feedback, acquisition, box)
    used = {key: value for key, value in fills.items() if value is not None}
    return Waiting(delays, feedback, workers, {**given, **used, "feedback": name})
