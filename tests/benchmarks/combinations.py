"""Combinations of settings against the ordinary BoTorch way: time and memory.

A combination is a loop with ``n``
outcomes on record that is asked, told, and asked again. After each of these rounds the ordinary way
makes the suggestion from the same rows. :mod:`benchmarks.ordinary_suggestions` says what that is.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from statistics import median
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, ProductKernel
from torch import Tensor

from benchmarks.measure import standard_kernel
from benchmarks.ordinary_suggestions import Prior, Request, Suggestion, suggest, value_of
from benchmarks.peak_memory import kept_bytes, peak_bytes, peak_bytes_since
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

NOISE = 0.01
LENGTHSCALE = 0.3
RATE = 0.01
DISCOUNT = 0.998
EPOCH = 2
NUM_PENDING = 3
MINIMUM = -4.0
CONSTRAINT_BOUNDS = (-1.5, 2.0)
"""Between which the constraint values are, where that must be known."""

OUTCOME_BOUND = 8.0

SIZES = {200: 2, 1000: 2}
"""Numbers of rows, and how many rounds are measured: whole epochs, after two that are not."""

LENGTHSCALES, SCALES = (0.2, 0.3), (0.5, 1.0)
"""Of the list of priors."""

SLOW = 2.0
"""Seconds; a round of ours that takes longer is measured once."""

NO_CONSTRAINTS, SEPARATE, FRESH = "no constraints", '`"separate"`', '`"fresh"`'
PRIMAL_DUAL = "`PrimalDual(...)`"
SEQUENTIAL = "nothing pending"
CONTEXTS = {"without contexts": 0, "with contexts": 1, "with contexts, product kernel": 1}


@dataclass(frozen=True)
class Way:
    """An acquisition and what it is compared with.

    Attributes:
        recipe: On arms and boxes.
        separate: With models of their own for constraints; None where there is none.
        ordinary: A key of :data:`benchmarks.ordinary_suggestions.WAYS`.
        note: What is not the same on both sides.
        is_compared: Whether values can be compared.
        has_list: Whether its model is a list of priors.
    """

    recipe: Any
    separate: Any
    ordinary: str
    note: str = ""
    is_compared: bool = True
    has_list: bool = False


BOUNDS = {"rkhs_bound": 1.0, "noise_bound": 0.1}
IGP_UCB = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
LAGRANGIAN = LagrangianUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
DRAWS = "other draws from one law"

WAYS = {
    "IGP-UCB": Way(IGP_UCB, LAGRANGIAN, "upper bound"),
    "GP-TS": Way(
        GPThompsonSampling.with_options(width=1.0),
        LagrangianThompsonSampling.with_options(width=1.0),
        "draw",
        DRAWS,
        is_compared=False,
    ),
    "DMM": Way(
        DMMUpperConfidenceBound.with_options(rkhs_bound=20.0, noise_bound=0.1),
        None,
        "upper bound",
        "BoTorch has no DMM: against an upper bound with one width",
        is_compared=False,
    ),
    "EI": Way(LogExpectedImprovement.with_options(), None, "expected improvement"),
    "list of priors, UCB": Way(
        CandidatesUpperConfidenceBound.with_options(width=2.0, form="mixture"),
        CandidatesUpperConfidenceBound.with_options(width=2.0, form="mixture"),
        "upper bound of a list",
        "the largest bound of likely priors against that of the mixture",
        is_compared=False,
        has_list=True,
    ),
    "list of priors, TS": Way(
        CandidatesThompsonSampling.with_options(),
        None,
        "draw of a list",
        DRAWS,
        is_compared=False,
        has_list=True,
    ),
    "GP-UCB": Way(GPUpperConfidenceBound.with_options(width=2.0), None, "upper bound"),
    "AMM": Way(AMMUpperConfidenceBound.with_options(**BOUNDS), None, "upper bound"),
    "IRGP-UCB": Way(
        RandomizedUpperConfidenceBound.with_options(num_arms=1000), None, "upper bound"
    ),
    "PI": Way(LogProbabilityOfImprovement.with_options(), None, "probability of improvement"),
    "mean": Way(MeanOnly.with_options(), None, "mean"),
    "deviation": Way(VarianceOnly.with_options(), None, "deviation"),
}
"""What is played, by name. The first is played in all combinations."""


@dataclass(frozen=True)
class Combination:
    """A row of the table.

    Attributes:
        acquisition: A key of :data:`WAYS`.
        feedback: As the documentation has it, or :data:`SEQUENTIAL`.
        restart: Likewise.
        forgetting: Likewise.
        constraints: Likewise.
        contexts: A key of :data:`CONTEXTS`.
        domain: ``"on arms"`` or ``"on a box"``, with the dimension if it is not 2.
        num_rows: ``n``.
    """

    acquisition: str
    feedback: str
    restart: str
    forgetting: str
    constraints: str
    contexts: str
    domain: str
    num_rows: int

    @property
    def key(self) -> str:
        """One line that names the row; ``--only`` looks into it."""
        parts = [str(getattr(self, field.name)) for field in fields(self)]
        return " | ".join(parts).replace("`", "")

    @property
    def on_arms(self) -> bool:
        """Whether the domain is finite."""
        return self.domain == "on arms"

    @property
    def dim(self) -> int:
        """Of the domain."""
        return 6 if "6" in self.domain else 2

    @property
    def observes_constraints(self) -> bool:
        """Whether outcomes come with constraint values."""
        return self.constraints != NO_CONSTRAINTS

    @property
    def has_separate_models(self) -> bool:
        """Whether constraints have models of their own."""
        return self.constraints in (SEPARATE, PRIMAL_DUAL)

    @property
    def num_pending(self) -> int:
        """How many queries wait for their outcomes when the next one is chosen."""
        return 0 if self.feedback == SEQUENTIAL else NUM_PENDING


# --- the loop ----------------------------------------------------------------------------------


def kernel_of(one: Combination) -> Kernel:
    """Return the kernel over context and point.

    Args:
        one: The row.
    """
    if "product" not in one.contexts:
        return standard_kernel(LENGTHSCALE)
    columns = range(1, 1 + one.dim)
    kernels = (MaternKernel(nu=2.5, active_dims=[0]), MaternKernel(nu=2.5, active_dims=columns))
    return ProductKernel(*(double_kernel(kernel, LENGTHSCALE) for kernel in kernels))


def _model(one: Combination) -> Any:
    if not WAYS[one.acquisition].has_list:
        return BanditGP.with_kernel(kernel_of(one), noise=NOISE)
    if "product" in one.contexts:
        raise ValueError("the list has kernels of one factor here.")
    return BanditGP.with_candidates(candidate_grid(LENGTHSCALES, [NOISE], SCALES))


@cache
def _choices(num_arms: int) -> Arms:
    stream = torch.Generator().manual_seed(0)
    return Arms(torch.rand(num_arms, 2, dtype=torch.float64, generator=stream))


def build_loop(
    one: Combination, history: History | None, num_arms: int = 1000, device: str = "cpu"
) -> BanditLoop:
    """Return a loop of the row's settings.

    Args:
        one: The row.
        history: What it begins with.
        num_arms: Of its arms.
        device: Of its arms, or of the bounds of its box.

    Raises:
        TypeError: If the settings do not go together.
        ValueError: Likewise.
    """
    way, length = WAYS[one.acquisition], one.num_rows + 20
    epochs: dict[str, Any] = {"step_size": 0.05}
    constraints: dict[str, Any] = {
        NO_CONSTRAINTS: None,
        '`"relabeled"`': AdditiveEpochs(1, EPOCH, **epochs),
        FRESH: AdditiveEpochs(1, length, surrogate="fresh", **epochs),
        SEPARATE: AdditiveEpochs(1, EPOCH, surrogate="separate", **epochs),
        PRIMAL_DUAL: PrimalDual(1, max_multiplier=2.0, divisor=40.0),
    }
    detector = ChangePointDetector(
        MaternKernel(nu=2.5),
        lengthscale=LENGTHSCALE,
        threshold=PowerThreshold(scale=1e6, exponent=-0.8),
    )
    restarts: dict[str, Any] = {
        "none": None,
        "`ChangePointRestart(...)`": ChangePointRestart(detector=detector),
        "`EvidenceRestart()`": EvidenceRestart(),
    }
    forgetting: dict[str, Any] = {
        "none": None,
        "`SlidingWindow(...)`": SlidingWindow(one.num_rows + one.num_pending),
        "`ExponentialWeights(...)`": ExponentialWeights(DISCOUNT),
        "`TimeVaryingKernel(...)`": TimeVaryingKernel(RATE),
    }
    bounds = CONSTRAINT_BOUNDS
    if one.has_separate_models:  # both outputs have the same width then
        bounds = (-OUTCOME_BOUND, OUTCOME_BOUND)
    feedback: dict[str, Any] = {
        SEQUENTIAL: Hallucinated(),
        "`Hallucinated()`": Hallucinated(),
        "`Ignored()`": Ignored(),
        "`Censored(...)`": Censored(
            minimum=MINIMUM,
            outcome_bound=OUTCOME_BOUND,
            max_delay=5,
            constraint_bounds=(bounds,) if one.observes_constraints else None,
        ),
    }
    bounds_of_box = torch.tensor([[0.0] * one.dim, [1.0] * one.dim], dtype=torch.float64)
    domain: Arms | Box = (
        Arms(_choices(num_arms).choices.to(device))
        if one.on_arms
        else Box(bounds_of_box.to(device))
    )
    return BanditLoop(
        domain,
        _model(one),
        way.separate if one.has_separate_models else way.recipe,
        feedback=feedback[one.feedback],
        restart=restarts[one.restart],
        forgetting=forgetting[one.forgetting],
        constraints=constraints[one.constraints],
        context_dim=CONTEXTS[one.contexts],
        history=history,
    )


class World:
    """What a loop of a row sees: contexts, outcomes, and the rounds before the first one.

    Args:
        one: The row.
    """

    def __init__(self, one: Combination) -> None:
        """See the class."""
        self._one = one
        self._stream = torch.Generator().manual_seed(1)

    def context(self) -> Tensor | None:
        """Return the context of the next round."""
        if not CONTEXTS[self._one.contexts]:
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
        reward = math.sin(6.0 * float(x[0])) + math.cos(4.0 * float(x[1])) + shift
        constraints = [float(x[0]) - 0.3 + float(noise[1])]
        return reward + float(noise[0]), constraints if self._one.observes_constraints else None

    def history(self, domain: Arms | Box) -> History:
        """Return what happened so far: ``n`` outcomes less two, and what is pending.

        Args:
            domain: The points are drawn uniformly from it.
        """
        one = self._one
        history = History(one.dim, CONTEXTS[one.contexts], int(one.observes_constraints))
        total = one.num_rows - 2 + one.num_pending
        X = domain.sample(total, self._stream)
        is_uniform = self._exploration(total)
        told = {"constraint_lower_bound_1": 0.0} if one.constraints == PRIMAL_DUAL else {}
        waiting: list[Any] = []
        for x, uniform in zip(X, is_uniform, strict=True):
            context = self.context()
            origin = "exploration" if uniform else "acquisition"
            waiting.append(history.add_query(x, origin, 0.0, context, told))
            if len(waiting) > one.num_pending:
                query = waiting.pop(0)
                history.add_outcome(query.id, *_told(self.outcome(query.x, query.context)))
        return history

    def _exploration(self, total: int) -> list[bool]:
        """Which rounds explored, but for the last two that would have: these come next."""
        if "ChangePoint" not in self._one.restart:
            return [False] * total
        rule = ChangePointRestart(detector=ChangePointDetector(MaternKernel()))
        marks: list[bool] = []
        for t in range(total):
            marks.append(bool(rule.explores(sum(marks), t)))
        kept = [t for t, mark in enumerate(marks) if mark][:-2]
        return [t in kept for t in range(total)]


def _told(outcome: tuple[float, list[float] | None]) -> tuple[float, float, list[float] | None]:
    return outcome[0], 0.0, outcome[1]


# --- both ways -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What was measured of a combination.

    Attributes:
        combination: Which.
        ratio: Processor time of the ordinary way over ours, medians.
        ordinary_seconds: A suggestion in the ordinary way.
        our_seconds: A round: asking, and telling.
        test_seconds: Telling an outcome of a round that was drawn uniformly, with its test; NaN if
            there was none.
        worse: The largest by which the value of our point was worse; NaN if it cannot be compared.
        better: The largest by which it was better, likewise.
        ordinary_bytes: The largest memory of a suggestion in the ordinary way.
        our_bytes: What the loop keeps, and the largest memory of a round beyond that.
        allowed_bytes: What it may be.
        note: What is not the same on both sides, or what failed.
    """

    combination: Combination
    ratio: float
    ordinary_seconds: float
    our_seconds: float
    test_seconds: float
    worse: float
    better: float
    ordinary_bytes: int
    our_bytes: int
    allowed_bytes: int
    note: str = ""

    @property
    def is_larger(self) -> bool:
        """Whether more memory is needed than allowed."""
        return self.our_bytes > self.allowed_bytes


class Player:
    """Plays rounds of a loop, and makes the same suggestions in the ordinary way.

    Attributes:
        tests: Processor time of each outcome told that came from a uniform round, with its test.

    Args:
        one: The row.
        num_arms: Of its arms.
    """

    def __init__(self, one: Combination, num_arms: int = 1000) -> None:
        """See the class."""
        self.one, self._world = one, World(one)
        domain = build_loop(one, None, num_arms).settings.domain
        assert isinstance(domain, Arms | Box)
        self.domain = domain
        self.loop = build_loop(one, self._world.history(domain), num_arms)
        self.tests: list[float] = []

    def step(self) -> float:
        """Ask and tell; return the processor time."""
        context = self._world.context()
        start = time.process_time()
        query = self.loop.ask() if context is None else self.loop.ask(context)
        spent = time.process_time() - start
        outcome = self._world.outcome(query.x, context)
        start = time.process_time()
        self.loop.tell(query.id, *outcome)
        return spent + time.process_time() - start

    def round(self) -> tuple[float, Callable[[], Suggestion] | None, Request | None, Tensor]:
        """Ask and tell; return the processor time and what makes the same suggestion.

        Returns:
            The time of asking and telling, without a test, which is in :attr:`tests`; the ordinary
            way and its request, None for a round that was drawn uniformly; our point.
        """
        loop, context = self.loop, self._world.context()
        X, Y = loop.history.arrived()
        arrived = [outcome.query_id for outcome in loop.history.outcomes]
        waiting = list(loop.history.pending())
        G = loop.history.constraints() if self.one.observes_constraints else None
        start = time.process_time()
        query = loop.ask() if context is None else loop.ask(context)
        spent = time.process_time() - start
        told = [*waiting, query][0]
        reward, constraints = self._world.outcome(told.x, told.context)
        start = time.process_time()
        loop.tell(told.id, reward, constraints)
        telling = time.process_time() - start
        if "ChangePoint" in self.one.restart and told.origin != "acquisition":
            self.tests.append(telling)  # of a round that was drawn uniformly
        else:
            spent += telling
        if query.origin != "acquisition":
            return spent, None, None, query.x
        request = self._request(query, X, Y, G, arrived, waiting)
        return spent, lambda: suggest(request), request, query.x

    def _request(
        self,
        query: Any,
        X: Tensor,
        Y: Tensor,
        constraints: Tensor | None,
        arrived: list[int],
        waiting: list[Any],
    ) -> Request:
        one, t = self.one, query.round_number
        diagnostics = query.diagnostics
        multipliers, least = torch.empty(0, dtype=torch.float64), MINIMUM
        if constraints is not None:
            multipliers = torch.tensor([diagnostics["multiplier_1"]], dtype=torch.float64)
            if one.has_separate_models:
                Y = torch.cat([Y, constraints], dim=-1)
            else:
                rule = self.loop.settings.constraints
                assert rule is not None
                Y = rule.penalized(Y.squeeze(-1), constraints, multipliers).unsqueeze(-1)
                largest = torch.tensor([CONSTRAINT_BOUNDS[1:]], dtype=torch.float64)
                least = float(rule.penalized(Y.new_tensor([MINIMUM]), largest, multipliers))
                multipliers = multipliers[:0]
        rounds = torch.tensor([i + 1 for i in arrived], dtype=torch.float64)
        pending_rounds = torch.tensor([q.round_number for q in waiting], dtype=torch.float64)
        parts = [q.x if q.context is None else torch.cat([q.context, q.x]) for q in waiting]
        pending = torch.stack(parts) if parts else X[:0]
        variances, in_front = None, [] if query.context is None else [query.context]
        if "Window" in one.forgetting:
            oldest = t - (one.num_rows + one.num_pending)
            kept, kept_pending = rounds >= oldest, pending_rounds >= oldest
            X, Y, pending = X[kept], Y[kept], pending[kept_pending]
        elif "Weights" in one.forgetting:
            variances = NOISE / DISCOUNT ** (t - 1 - rounds)
        elif "Time" in one.forgetting:
            X = torch.cat([rounds.unsqueeze(-1), X], dim=-1)
            pending = torch.cat([pending_rounds.unsqueeze(-1), pending], dim=-1)
            in_front.insert(0, torch.tensor([float(t)], dtype=torch.float64))
        pseudo = None
        if "Censored" in one.feedback:
            Y = torch.cat([Y[:, :1] - least, Y[:, 1:]], dim=-1)  # constraints have 0
            pseudo = 0.0
        if "Ignored" in one.feedback:
            pending = pending[:0]
        width = diagnostics.get("width", 1.0)
        if len(multipliers) and one.constraints == SEPARATE and float(multipliers) > 0.0:
            width *= 2.0**0.5  # of the weighted sum: the bounds of both outputs hold at once
        return Request(
            acquisition=WAYS[one.acquisition].ordinary,
            domain=self.domain,
            priors=self._priors(),
            X=X,
            Y=Y,
            pending=pending,
            variances=variances,
            pseudo_outcome=pseudo,
            in_front=torch.cat(in_front) if in_front else X.new_empty(0),
            width=width if math.isfinite(width) else 1.0,
            multipliers=multipliers,
            bounds_apart=one.constraints == PRIMAL_DUAL,
            seed=t,
        )

    def _priors(self) -> tuple[Prior, ...]:
        if WAYS[self.one.acquisition].has_list:
            recipes = candidate_grid(LENGTHSCALES, [NOISE], SCALES)
            return tuple(Prior(self._with_time(recipe.kernel), recipe.noise) for recipe in recipes)
        return (Prior(self._with_time(kernel_of(self.one)), NOISE),)

    def _with_time(self, kernel: Kernel) -> Kernel:
        """The kernel behind a column with the round, as a product of two of GPyTorch's."""
        if "Time" not in self.one.forgetting:
            return kernel
        drift = double_kernel(MaternKernel(nu=0.5, active_dims=[0]), -2.0 / math.log1p(-RATE))
        dims = range(1, 1 + CONTEXTS[self.one.contexts] + self.one.dim)
        if isinstance(kernel, ProductKernel):
            shifted = [
                double_kernel(MaternKernel(nu=2.5, active_dims=part), LENGTHSCALE)
                for part in ([1], list(dims)[1:])
            ]
            return ProductKernel(drift, *shifted)
        behind = double_kernel(MaternKernel(nu=2.5, active_dims=dims), LENGTHSCALE)
        return ProductKernel(drift, behind)


@cache
def _warm_up(acquisition: str, constraints: str, domain: str) -> None:
    """Let both ways load what they load once in a process."""
    parts = ("none", "none", constraints, "without contexts", domain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        player = Player(Combination(acquisition, SEQUENTIAL, *parts, 8), 20)
        for _ in range(2):
            player.round()
        ordinary = player.round()[1]
        assert ordinary is not None
        ordinary()


def _exact_bytes(one: Combination, num_arms: int) -> int:
    """Return the most that a loop and its round hold at once, counted from an empty loop on."""

    def build() -> Player:
        player = Player(one, num_arms)
        for _ in range(3):
            player.round()
        return player

    def work(player: Player) -> None:
        while player.round()[1] is None:
            pass

    return peak_bytes_since(build, work)


def measure(one: Combination, num_rounds: int, num_arms: int = 1000) -> Row:
    """Measure a combination.

    Args:
        one: Which.
        num_rounds: How many rounds are measured, behind two that are not.
        num_arms: Of its arms.
    """
    way = WAYS[one.acquisition]
    notes = [way.note] if way.note else []
    _warm_up(one.acquisition, one.constraints, one.domain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        player = Player(one, num_arms)
        ours: list[float] = []
        theirs: list[float] = []
        worse: list[float] = []
        num_before = 0
        while len(ours) < num_rounds:
            spent, ordinary, request, x = player.round()
            if ordinary is None:
                continue
            if spent <= 0.0:  # the clock did not move, as on machines that are put to sleep
                continue
            if num_before < (1 if spent > SLOW else 2):
                num_before += 1
                continue
            assert request is not None
            start = time.process_time()
            suggestion = ordinary()
            theirs.append(time.process_time() - start)
            ours.append(spent)
            if way.is_compared:
                values = [value_of(request, suggestion, point) for point in (suggestion.x, x)]
                worse.append(values[0] - values[1])
            if spent > SLOW:
                notes.append("measured once")
                break
        if player.loop.resets:
            raise RuntimeError(f"{one.key}: the loop began anew.")
        found: list[Any] = []

        def play() -> None:
            found[:] = [player.round()]

        ordinary = None
        while ordinary is None:
            kept = kept_bytes(player.loop)
            beyond = peak_bytes(play)
            ordinary = found[0][1]
        ordinary_bytes = peak_bytes(ordinary)
    n = one.num_rows + one.num_pending
    allowed = ordinary_bytes + 16 * n * n
    if one.on_arms:
        allowed += 8 * (num_arms * num_arms + n * num_arms)
    ours_bytes = kept + beyond
    if ours_bytes > allowed:  # what a round frees is not taken off there
        ours_bytes = min(ours_bytes, _exact_bytes(one, num_arms))
    return Row(
        one,
        ratio=sum(theirs) / sum(ours),
        ordinary_seconds=sum(theirs) / len(theirs),
        our_seconds=sum(ours) / len(ours),
        test_seconds=median(player.tests) if player.tests else math.nan,
        worse=max(0.0, *worse) if worse else math.nan,
        better=max(0.0, *(-each for each in worse)) if worse else math.nan,
        ordinary_bytes=ordinary_bytes,
        our_bytes=ours_bytes,
        allowed_bytes=allowed,
        note="; ".join(notes),
    )
