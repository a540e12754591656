"""Combinations of settings against the ordinary BoTorch way: time and memory.

A combination is a loop with ``n`` outcomes on record that is asked, told, and asked again. After
each of these rounds the ordinary way makes the suggestion from the same rows.
:mod:`benchmarks.ordinary_suggestions` says what that is.
"""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import astuple, dataclass, replace
from functools import cache, partial
from statistics import fmean
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, ProductKernel
from records import rebuilt
from torch import Tensor

from benchmarks.measure import (
    NOISE,
    Measurement,
    Scale,
    smooth_reward,
    standard_kernel,
    timed,
)
from benchmarks.ordinary_suggestions import Prior, Request, suggest, value_of
from benchmarks.peak_memory import kept_bytes, peak_bytes
from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    DMMUpperConfidenceBound,
    EvidenceRestart,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    History,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    PrimalDual,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
    VarianceOnly,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.models import candidate_grid, double_kernel

LENGTHSCALE = 0.3
RATE = 0.01
DISCOUNT = 0.998
EPOCH = 2
NUM_PENDING = 3
MINIMUM = -4.0
OUTCOME_BOUND = 8.0
CONSTRAINT_BOUNDS = (-1.5, 2.0)
"""Between which the constraint values are, where that must be known."""

GRID = candidate_grid((0.2, 0.3), [NOISE], (0.5, 1.0))
"""The list of priors."""

NUM_ARMS = 1000
TOLERANCE_ON_ARMS = 1e-8
"""By how much the acquisition value of the arm that is chosen may be less."""


@dataclass(frozen=True)
class Way:
    """An acquisition and what it is compared with.

    Attributes:
        recipe: On arms and boxes.
        ordinary: A key of :data:`benchmarks.ordinary_suggestions.WAYS`.
        separate: With models of their own for constraints; None where there is none.
        note: What is not the same on both sides, so that values cannot be compared.
        has_list: Whether its model is a list of priors.
    """

    recipe: Any
    ordinary: str = "upper bound"
    separate: Any = None
    note: str = ""
    has_list: bool = False


BOUNDS = {"rkhs_bound": 1.0, "noise_bound": 0.1}
MIXTURE = CandidatesUpperConfidenceBound.with_options(width=2.0, form="mixture")
DRAWS = "other draws from one law"

WAYS = {
    "IGP-UCB": Way(
        ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True),
        separate=LagrangianUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True),
    ),
    "GP-TS": Way(
        GPThompsonSampling.with_options(width=1.0),
        "draw",
        LagrangianThompsonSampling.with_options(width=1.0),
        DRAWS,
    ),
    "DMM": Way(
        DMMUpperConfidenceBound.with_options(rkhs_bound=20.0, noise_bound=0.1),
        note="BoTorch has no DMM: against an upper bound with one width",
    ),
    "EI": Way(LogExpectedImprovement.with_options(), "expected improvement"),
    "list, UCB": Way(
        MIXTURE,
        separate=MIXTURE,
        note="the largest bound of likely priors against that of the mixture",
        has_list=True,
    ),
    "list, TS": Way(CandidatesThompsonSampling.with_options(), "draw", note=DRAWS, has_list=True),
    "GP-UCB": Way(GPUpperConfidenceBound.with_options(width=2.0)),
    "AMM": Way(AMMUpperConfidenceBound.with_options(**BOUNDS)),
    "IRGP-UCB": Way(RandomizedUpperConfidenceBound.with_options(num_arms=1000)),
    "PI": Way(LogProbabilityOfImprovement.with_options(), "probability of improvement"),
    "mean": Way(MeanOnly.with_options(), "mean"),
    "deviation": Way(VarianceOnly.with_options(), "deviation"),
}
"""What is played, by name. The first is played in all combinations."""

AXES = {
    "acquisition": tuple(WAYS),
    "feedback": ("sequential", "hallucinated", "ignored", "censored"),
    "restart": ("none", "halves", "evidence"),
    "forgetting": ("none", "window", "weights", "time"),
    "constraints": ("none", "relabeled", "fresh", "separate", "primal-dual"),
    "contexts": ("none", "one", "product"),
    "domain": ("arms", "box", "box 6"),
}
"""The settings; the first of each is the plain one."""


@dataclass(frozen=True)
class Combination:
    """One value on each of :data:`AXES`, and the number of rows."""

    num_rows: int
    acquisition: str = "IGP-UCB"
    feedback: str = "sequential"
    restart: str = "none"
    forgetting: str = "none"
    constraints: str = "none"
    contexts: str = "none"
    domain: str = "arms"

    @property
    def key(self) -> str:
        """One line that names it."""
        return ", ".join(map(str, astuple(self)))

    @property
    def on_arms(self) -> bool:
        """Whether the domain is finite."""
        return self.domain == "arms"

    @property
    def dim(self) -> int:
        """Of the domain."""
        return 6 if self.domain == "box 6" else 2

    @property
    def context_dim(self) -> int:
        """Of the contexts."""
        return int(self.contexts != "none")

    @property
    def observes_constraints(self) -> bool:
        """Whether outcomes come with constraint values."""
        return self.constraints != "none"

    @property
    def has_separate_models(self) -> bool:
        """Whether constraints have models of their own."""
        return self.constraints in ("separate", "primal-dual")

    @property
    def num_pending(self) -> int:
        """How many queries wait for their outcomes when the next one is chosen."""
        return 0 if self.feedback == "sequential" else NUM_PENDING


# --- the loop ----------------------------------------------------------------------------------


def kernel_of(one: Combination) -> Kernel:
    """Return the kernel over context and point.

    Args:
        one: The combination.
    """
    if one.contexts != "product":
        return standard_kernel(LENGTHSCALE)
    columns = range(1, 1 + one.dim)
    kernels = (MaternKernel(nu=2.5, active_dims=[0]), MaternKernel(nu=2.5, active_dims=columns))
    return ProductKernel(*(double_kernel(kernel, LENGTHSCALE) for kernel in kernels))


def _model(one: Combination) -> Any:
    if not WAYS[one.acquisition].has_list:
        return BanditGP.with_kernel(kernel_of(one), noise=NOISE)
    if one.contexts == "product":
        raise ValueError("the list has kernels of one factor here.")
    return BanditGP.with_candidates(GRID)


@cache
def _choices(num_arms: int) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.rand(num_arms, 2, dtype=torch.float64, generator=stream)


def domain_of(one: Combination, num_arms: int = NUM_ARMS, device: str = "cpu") -> Arms | Box:
    """Return where points are chosen.

    Args:
        one: The combination.
        num_arms: Of its arms.
        device: Of its arms, or of the bounds of its box.
    """
    if one.on_arms:
        return Arms(_choices(num_arms).to(device))
    bounds = torch.tensor([[0.0] * one.dim, [1.0] * one.dim], dtype=torch.float64)
    return Box(bounds.to(device))


def build_loop(one: Combination, domain: Arms | Box, history: History) -> BanditLoop:
    """Return a loop of these settings.

    Args:
        one: The combination.
        domain: As :func:`domain_of` has it.
        history: What it has on record.

    Raises:
        TypeError: If the settings do not go together.
        ValueError: Likewise.
    """
    way, length = WAYS[one.acquisition], one.num_rows + 20
    if one.has_separate_models and way.separate is None:
        raise ValueError(f"{one.acquisition} has no form with models of constraints.")
    constraints: dict[str, Any] = {
        "none": None,
        "relabeled": AdditiveEpochs(1, EPOCH, step_size=0.05),
        "fresh": AdditiveEpochs(1, length, surrogate="fresh", step_size=0.05),
        "separate": AdditiveEpochs(1, EPOCH, surrogate="separate", step_size=0.05),
        "primal-dual": PrimalDual(1, max_multiplier=2.0, divisor=40.0),
    }
    never = PowerThreshold(scale=1e6, exponent=-0.8)
    detector = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=LENGTHSCALE, threshold=never)
    restarts: dict[str, Any] = {
        "none": None,
        "halves": ChangePointRestart(detector=detector),
        "evidence": EvidenceRestart(),
    }
    forgetting: dict[str, Any] = {
        "none": None,
        "window": SlidingWindow(one.num_rows + one.num_pending),
        "weights": ExponentialWeights(DISCOUNT),
        "time": TimeVaryingKernel(RATE),
    }
    bounds = CONSTRAINT_BOUNDS
    if one.has_separate_models:  # both outputs have the same width then
        bounds = (-OUTCOME_BOUND, OUTCOME_BOUND)
    censored = Censored(
        minimum=MINIMUM,
        outcome_bound=OUTCOME_BOUND,
        max_delay=5,
        constraint_bounds=(bounds,) if one.observes_constraints else None,
    )
    feedback: dict[str, Any] = {"ignored": Ignored(), "censored": censored}
    loop = BanditLoop(
        domain,
        _model(one),
        way.separate if one.has_separate_models else way.recipe,
        feedback=feedback.get(one.feedback, Hallucinated()),
        restart=restarts[one.restart],
        forgetting=forgetting[one.forgetting],
        constraints=constraints[one.constraints],
        context_dim=one.context_dim,
    )
    return rebuilt(loop, history)


class World:
    """What a loop sees: contexts, outcomes, and the rounds before the first one.

    Args:
        one: The combination.
    """

    def __init__(self, one: Combination) -> None:
        """See the class."""
        self._one = one
        self._stream = torch.Generator().manual_seed(1)

    def context(self) -> Tensor | None:
        """Return the context of the next round."""
        if not self._one.context_dim:
            return None
        return torch.rand(1, dtype=torch.float64, generator=self._stream)

    def outcome(self, x: Tensor, context: Tensor | None) -> tuple[float, list[float] | None]:
        """Return the reward of a point and its constraint value.

        Args:
            x: The point.
            context: Of the round.
        """
        noise = NOISE**0.5 * torch.randn(2, dtype=torch.float64, generator=self._stream)
        shift = 0.0 if context is None else 0.3 * float(context)
        reward = float(smooth_reward(x)) + shift + float(noise[0])
        constraints = [float(x[0]) - 0.3 + float(noise[1])]
        return reward, constraints if self._one.observes_constraints else None

    def history(self, domain: Arms | Box) -> History:
        """Return what happened so far: ``n`` outcomes less two, and what is pending.

        Args:
            domain: The points are drawn uniformly from it.
        """
        one = self._one
        history = History(one.dim, one.context_dim, int(one.observes_constraints))
        total = one.num_rows - 2 + one.num_pending
        explored = self._exploration(total)
        known = {"constraint_lower_bound_1": 0.0} if one.constraints == "primal-dual" else {}
        waiting: list[Any] = []
        for t, x in enumerate(domain.sample(total, self._stream)):
            origin = "exploration" if t in explored else "acquisition"
            given = x, origin, 0.0, self.context(), known
            waiting.append(history.record(history.new_query(*given, arm=domain.arm_of(x))))
            if len(waiting) > one.num_pending:
                query = waiting.pop(0)
                reward, constraints = self.outcome(query.x, query.context)
                history.record(history.new_outcome(query.id, reward, 0.0, constraints))
        return history

    def _exploration(self, total: int) -> list[int]:
        """Which rounds explored, but for the last two that would have: these come next."""
        if self._one.restart != "halves":
            return []
        rule = ChangePointRestart(detector=ChangePointDetector(MaternKernel()))
        found: list[int] = []
        for t in range(total):
            if rule.explores(len(found), t):
                found.append(t)
        return found[:-2]


# --- both ways -----------------------------------------------------------------------------------


class Player:
    """Plays rounds of a loop, and makes the same suggestions in the ordinary way.

    Attributes:
        query: Of the last round.

    Args:
        one: The combination.
        num_arms: Of its arms.
    """

    query: Any

    def __init__(self, one: Combination, num_arms: int = NUM_ARMS) -> None:
        """See the class."""
        self.one, self._world = one, World(one)
        self.domain = domain_of(one, num_arms)
        self.loop = build_loop(one, self.domain, self._world.history(self.domain))
        self._waiting: list[Any] = []

    def step(self) -> float:
        """Ask, and tell the outcome of the oldest query; return the processor time."""
        context = self._world.context()
        self._waiting = list(self.loop.history.pending())
        spent, self.query = timed(partial(self.loop.ask, context))
        told = [*self._waiting, self.query][0]
        outcome = self._world.outcome(told.x, told.context)
        return spent + timed(partial(self.loop.tell, told.id, *outcome))[0]

    @property
    def is_chosen(self) -> bool:
        """Whether the point of the last round was not drawn uniformly."""
        return bool(self.query.origin == "acquisition")

    def request(self) -> Request:
        """Return what the last suggestion is made from in the ordinary way."""
        one, query, t = self.one, self.query, self.query.round_number
        history, diagnostics = self.loop.history, query.diagnostics
        # the last outcome was told after the choice
        X, Y = (rows[:-1] for rows in history.arrived())
        arrived = [outcome.query_id + 1 for outcome in history.outcomes][:-1]
        rounds = torch.tensor(arrived, dtype=torch.float64)
        multipliers, least = torch.empty(0, dtype=torch.float64), MINIMUM
        if one.observes_constraints:
            constraints = history.constraints()[:-1]
            multipliers = torch.tensor([diagnostics["multiplier_1"]], dtype=torch.float64)
            if one.has_separate_models:
                Y = torch.cat([Y, constraints], dim=-1)
            else:
                rule: Any = self.loop.settings.constraints
                Y = rule.penalized(Y.squeeze(-1), constraints, multipliers).unsqueeze(-1)
                largest = torch.tensor([CONSTRAINT_BOUNDS[1:]], dtype=torch.float64)
                least = float(rule.penalized(Y.new_tensor([MINIMUM]), largest, multipliers))
                multipliers = multipliers[:0]
        waiting = [] if one.feedback == "ignored" else self._waiting
        pending_rounds = torch.tensor([q.round_number for q in waiting], dtype=torch.float64)
        parts = [q.x if q.context is None else torch.cat([q.context, q.x]) for q in waiting]
        pending = torch.stack(parts) if parts else X[:0]
        variances, in_front = None, [] if query.context is None else [query.context]
        if one.forgetting == "window":
            oldest = t - (one.num_rows + one.num_pending)
            kept, pending = rounds >= oldest, pending[pending_rounds >= oldest]
            X, Y = X[kept], Y[kept]
        elif one.forgetting == "weights":
            variances = NOISE / DISCOUNT ** (t - 1 - rounds)
        elif one.forgetting == "time":
            X = torch.cat([rounds.unsqueeze(-1), X], dim=-1)
            pending = torch.cat([pending_rounds.unsqueeze(-1), pending], dim=-1)
            in_front.insert(0, torch.tensor([float(t)], dtype=torch.float64))
        if one.feedback == "censored":
            Y = torch.cat([Y[:, :1] - least, Y[:, 1:]], dim=-1)  # constraints have 0
        width = diagnostics.get("width", 1.0)
        if one.constraints == "separate" and float(multipliers) > 0.0:
            width *= 2.0**0.5  # of the weighted sum: the bounds of both outputs hold at once
        return Request(
            acquisition=WAYS[one.acquisition].ordinary,
            domain=self.domain,
            priors=self._priors(),
            X=X,
            Y=Y,
            pending=pending,
            variances=variances,
            pseudo_outcome=0.0 if one.feedback == "censored" else None,
            in_front=torch.cat(in_front) if in_front else X.new_empty(0),
            width=width if math.isfinite(width) else 1.0,
            multipliers=multipliers,
            bounds_apart=one.constraints == "primal-dual",
            seed=t,
        )

    def _priors(self) -> tuple[Prior, ...]:
        if WAYS[self.one.acquisition].has_list:
            return tuple((self._with_time(each.kernel), each.noise) for each in GRID)
        return ((self._with_time(kernel_of(self.one)), NOISE),)

    def _with_time(self, kernel: Kernel) -> Kernel:
        """The kernel behind a column with the round, as a product of two of GPyTorch's."""
        if self.one.forgetting != "time":
            return kernel
        drift = double_kernel(MaternKernel(nu=0.5, active_dims=[0]), -2.0 / math.log1p(-RATE))
        columns = list(range(1, 1 + self.one.context_dim + self.one.dim))
        is_product = isinstance(kernel, ProductKernel)
        parts = (columns[:1], columns[1:]) if is_product else (columns,)
        behind = (MaternKernel(nu=2.5, active_dims=part) for part in parts)
        return ProductKernel(drift, *(double_kernel(each, LENGTHSCALE) for each in behind))


@cache
def _warm_up(acquisition: str, constraints: str, domain: str) -> None:
    """Let both ways load what they load once in a process."""
    player = Player(
        Combination(8, acquisition, constraints=constraints, domain=domain), num_arms=20
    )
    for _ in range(3):
        player.step()
    suggest(player.request())


def measure(
    one: Combination, num_rounds: int, num_arms: int = NUM_ARMS, *goals: float
) -> Measurement:
    """Measure a combination; the difference is how much worse our arm was.

    Args:
        one: Which.
        num_rounds: How many rounds are measured, behind two that are not.
        num_arms: Of its arms.
        *goals: The ratios that were promised and aimed at.
    """
    note = WAYS[one.acquisition].note
    theirs: list[float] = []
    ours: list[float] = []
    gaps = [0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _warm_up(one.acquisition, one.constraints, one.domain)
        player = Player(one, num_arms)
        for _ in range(2):
            player.step()
        while len(ours) < num_rounds:
            spent = player.step()
            # rounds drawn uniformly, or in which the clock did not move, are not counted
            if not player.is_chosen or spent <= 0.0:
                continue
            request = player.request()
            seconds, (x, acquisition) = timed(partial(suggest, request))
            theirs.append(seconds)
            ours.append(spent)
            if acquisition is not None and not note:
                value = partial(value_of, request, acquisition)
                gaps.append(value(x) - value(player.query.x))
        if player.loop.resets:
            raise RuntimeError(f"{one.key}: the loop began anew.")
        notes = [note] if note else []
        if not note and not one.on_arms:
            words = f"our point was worse by {max(gaps):.0e}, better by {-min(gaps):.0e}"
            notes.append(words)
        if _memory_ratio(player, num_arms) < 1.0:
            notes.append("needs more memory than allowed")
    return Measurement(
        f"{one.key}",
        fmean(theirs),
        fmean(ours),
        goals,
        difference=max(map(abs, gaps)) if one.on_arms else 0.0,
        tolerance=TOLERANCE_ON_ARMS,
        note="; ".join(notes),
    )


def _memory_ratio(player: Player, num_arms: int) -> float:
    """The memory that a loop and its round may hold over what they hold.

    Allowed is what the ordinary way takes, and two squares of the rows; on arms also one of the
    arms, and the rows times the arms.
    """
    kept = kept_bytes(player.loop)
    beyond = peak_bytes(player.step)
    while not player.is_chosen:
        player.step()
    request, n = player.request(), player.one.num_rows + player.one.num_pending
    allowed = peak_bytes(partial(suggest, request)) + 16 * n * n
    if player.one.on_arms:
        allowed += 8 * num_arms * (num_arms + n)
    return allowed / (kept + beyond)


# --- what is measured ----------------------------------------------------------------------------

DRAW, BOX, SEPARATE = {"acquisition": "GP-TS"}, {"domain": "box"}, {"constraints": "separate"}
DMM, DRIFT, WEIGHTS = {"acquisition": "DMM"}, {"forgetting": "time"}, {"forgetting": "weights"}

GOALS: dict[str, tuple[dict[str, str], tuple[int, ...], float, float]] = {
    "constraints apart, arms": (SEPARATE, (200, 1000), 50, 100),
    "constraints apart, box": ({**BOX, **SEPARATE}, (1000,), 3, 5),
    "draws with a window, arms": ({**DRAW, "forgetting": "window"}, (200,), 50, 100),
    "draws with weights, arms": ({**DRAW, **WEIGHTS}, (200,), 50, 100),
    "draws with contexts, arms": ({**DRAW, "contexts": "one"}, (200,), 50, 100),
    "contexts, arms": ({"contexts": "one"}, (200, 1000), 10, 50),
    "contexts in a product, arms": ({"contexts": "product"}, (200, 1000), 10, 50),
    "drift, arms": (DRIFT, (200, 1000), 10, 50),
    "weights, arms": (WEIGHTS, (200, 1000), 10, 50),
    "window, arms": ({"forgetting": "window"}, (200, 1000), 10, 50),
    "drift, box": ({**BOX, **DRIFT}, (200,), 4, 6),
    "contexts in a product, box": ({**BOX, "contexts": "product"}, (200,), 4, 6),
    "weights, box": ({**BOX, **WEIGHTS}, (200,), 4, 6),
    "DMM, box, against one width": ({**BOX, **DMM}, (1000,), 1, 4),
    "DMM, arms, against one width": (DMM, (1000,), 1, 10),
    "draws, box": ({**DRAW, **BOX}, (200,), 4, 8),
    "draws, box in 6 dimensions": ({**DRAW, "domain": "box 6"}, (200,), 4, 8),
}
"""Settings beside the plain ones, numbers of rows, and the ratios promised and aimed at."""

FOR_A_LOOK, EVERY = 0.05, 6
"""Below this scale one of so many settings is measured."""

PLACES = {("arms", 200): 30, ("arms", 1000): 24, ("box", 200): 14}
"""Where combinations are drawn at random: domains, numbers of rows, and how many there are."""


def suggestions_of_settings(scale: Scale, acquisition: str = "") -> list[Measurement]:
    """Measure a suggestion under each of the settings.

    Args:
        scale: Of the rows and arms.
        acquisition: Only the settings that name it.
    """
    names = [name for name in GOALS if acquisition in name]
    lines = []
    for name in names if scale.size >= FOR_A_LOOK else names[::EVERY]:
        others, sizes, *goals = GOALS[name]
        for size in sizes:
            line = _measured(scale, Combination(scale.of(size, 10), **others), *goals)
            lines.append(replace(line, name=f"settings: {name}, n = {scale.of(size, 10)}"))
    return lines


def _measured(scale: Scale, one: Combination, *goals: float) -> Measurement:
    num_rounds = max(2, scale.repeats - scale.repeats % 2)  # whole epochs
    return measure(one, num_rounds, scale.of(NUM_ARMS, 40), *goals)


def combinations_at_random(scale: Scale) -> list[Measurement]:
    """Measure combinations that are drawn uniformly from those that go together.

    Args:
        scale: Of the rows and arms, and of the number of combinations.
    """
    chance, lines = random.Random(scale.seed), []
    for (domain, num_rows), full in PLACES.items():
        count = scale.of(full, 1)
        while count:
            drawn = {axis: chance.choice(values) for axis, values in AXES.items()}
            one = Combination(scale.of(num_rows, 10), **{**drawn, "domain": domain})
            try:
                lines.append(_measured(scale, one, 1.0))
            except (TypeError, ValueError):  # they do not go together
                continue
            count -= 1
    return lines
