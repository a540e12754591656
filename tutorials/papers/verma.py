r"""Verma, Dai and Low 2022: outcomes that arrive late, as published and with one setting changed.

Figures 1 and 5 play draws of a Gaussian process on 1000 points of [0, 1], Figures 2 and 3 tune
models, and Figure 4 has contexts. Pending queries are set to the known minimum 0 (``"censored"``),
left out (``"ignored"``) or set to the posterior mean (``"hallucinated"``). With the censored
outcomes :math:`\tilde y` of all rows :math:`X`, and the arrived data :math:`(X_a, y_a)`, the
posterior mean and variance of a round are those of

* censored feedback: :math:`(X, \tilde y)`,
* ignored outcomes: :math:`(X_a, y_a)`,
* hallucinated outcomes: the mean of :math:`(X_a, y_a)`, the variance of :math:`X`.

The paper (appendix C) specifies the squared exponential kernel, ``beta_t = 1``, hyperparameters
that maximize the marginal likelihood every 10 rounds, and the simple regret of the outcomes that
have arrived. The authors' released code, which plays the support vector machine, specifies 5
initial points and 100 rounds; the width ``1 + sum`` with the unscaled deviations of the last ``m``
queries, including the noise; unscaled draws; the hyperparameters before the first fit; boxes that
are searched linearly and features that are not rescaled; and that methods that wait for outcomes
play uniformly until two have arrived. We chose bounds of the hyperparameters, and to fit them only
to the outcomes that arrived, whereas the code also fits censored feedback to its zeros. The options
``zeros``, ``given`` and ``start`` of the experiments change these settings.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.exceptions.warnings import OptimizationWarning
from botorch.fit import fit_gpytorch_mll
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional
from torch.quasirandom import SobolEngine

from botorch_bandits.acquisition import GPThompsonSampling, GPUpperConfidenceBound
from botorch_bandits.domains import Arms, Box, Domain, first_of_the_largest
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop import (
    BanditLoop,
    Censored,
    Feedback,
    Hallucinated,
    Ignored,
    LateOutcomeWarning,
)
from botorch_bandits.models import BanditGP, RefitWarning, double_kernel
from botorch_bandits.problems import (
    ConstantDelay,
    Delays,
    PoissonDelay,
    load_csv,
    load_dataset,
)
from botorch_bandits.problems.base import clamped_eigh
from botorch_bandits.random_streams import derive_seed, generator, seeded_globally
from botorch_bandits.running import best_arrived, run
from papers.runner import ArmsExperiment, ArmsStudy, Entry

Array: TypeAlias = NDArray[np.float64]

FAMILIES = {"UCB": ("GP-UCB-SDF", "GP-UCB", "GP-BUCB"), "TS": ("GP-TS-SDF", "asy-TS", "GP-BTS")}
"""The names with censored, ignored and hallucinated feedback."""
WAYS = ("censored", "ignored", "hallucinated")
ACQUISITIONS = {
    False: GPUpperConfidenceBound.with_options(width=1.0),
    True: GPThompsonSampling.with_options(width=1.0),
}
"""The acquisition of a loop, by whether it draws."""

MEAN_DELAY, NUM_INITIAL, NUM_ROUNDS, REFIT_EVERY = 10, 5, 105, 10
DELAYS: dict[str, Delays] = {
    "poisson": PoissonDelay(MEAN_DELAY),
    "fixed": ConstantDelay(MEAN_DELAY),
}
UNIFORM_UNTIL = 2
"""The baselines of the released code play uniformly until this many outcomes have arrived."""
FEWEST_ROWS = 5
"""With fewer rows, hyperparameters are kept: they would fit three numbers to four outcomes."""
PRIOR_VARIANCES, NOISES = (0.01, 10.0), (1e-4, 1.0)


@dataclass(frozen=True)
class Learned:
    """Hyperparameters of a squared exponential kernel.

    Attributes:
        lengthscale: One, or one per dimension.
        prior_variance: In squared units of the reward.
        noise: The modeled noise variance, in squared units of the reward.
        bounds: Of the learned lengthscales.
    """

    lengthscale: tuple[float, ...]
    prior_variance: float = 1.0
    noise: float = 0.01
    bounds: tuple[float, float] = (0.005, 2.0)

    def kernel(self, variances: tuple[float, float] = PRIOR_VARIANCES) -> ScaleKernel:
        """Return the kernel, float64, with bounds for learning."""
        dims = len(self.lengthscale)
        base = RBFKernel(
            ard_num_dims=dims if dims > 1 else None, lengthscale_constraint=Interval(*self.bounds)
        )
        kernel = ScaleKernel(base, outputscale_constraint=Interval(*variances)).double()
        # GPyTorch would round a Python number to float32
        base.lengthscale = torch.tensor(self.lengthscale, dtype=torch.float64)
        kernel.outputscale = torch.tensor(self.prior_variance, dtype=torch.float64)
        return kernel


@dataclass(frozen=True)
class LateMethod:
    """How functions are played.

    Attributes:
        name: The name in the figure's legend.
        way: The treatment of pending queries, of :data:`WAYS`.
        delays: The number of rounds after which outcomes arrive.
        draws: Whether to play the maximizer of a draw and not of an upper confidence bound.
        max_delay: ``m``; None only without censored feedback.
        uniform_until: It plays uniformly until this many outcomes have arrived.
        fitted_to_zeros: Whether hyperparameters are also fitted to pseudo-values.
        start: The initial hyperparameters.
        learns: Whether hyperparameters are learned.
        feedback: Of a loop, in place of that of the released code.
    """

    name: str
    way: str
    delays: Delays
    draws: bool = False
    max_delay: int | None = None
    uniform_until: int = 0
    fitted_to_zeros: bool = False
    start: Learned = field(default_factory=lambda: Learned((0.1,), 1.0, 1.0))
    learns: bool = True
    feedback: Feedback | None = None


def compared(
    family: str,
    delays: Delays,
    max_delay: int,
    name: str = "",
    *,
    uniform: bool = True,
    zeros: bool = False,
    **more: Any,
) -> list[LateMethod]:
    """Return censored feedback and both baselines as the released code plays them.

    Args:
        family: A key of :data:`FAMILIES`.
        delays: The delays of outcomes.
        max_delay: ``m``.
        name: Added to the methods' names.
        uniform: Whether the baselines play uniformly until two outcomes have arrived.
        zeros: Whether censored feedback is also fitted to its zeros.
        **more: Further fields of the methods.
    """
    return [
        LateMethod(
            f"{each}, {name}" if name else each,
            way,
            delays,
            draws=family == "TS",
            max_delay=max_delay if way == "censored" else None,
            fitted_to_zeros=zeros and way == "censored",
            uniform_until=UNIFORM_UNTIL if uniform and way != "censored" else 0,
            **more,
        )
        for each, way in zip(FAMILIES[family], WAYS, strict=True)
    ]


def late_panel(
    name: str,
    title: str,
    published: str,
    player: Callable[[Any, Any], dict[str, Any]],
    methods: Sequence[LateMethod],
    size: tuple[int, int, int],
    chunk: int = 10,
) -> ArmsExperiment:
    """Return a panel of ``size`` trials, rounds and seed; its player has the functions."""
    num_trials, num_rounds, seed = size

    def make_study(first: int, count: int) -> ArmsStudy:
        nothing = torch.empty(count, 0, dtype=torch.float64)
        return ArmsStudy(nothing[:0], nothing, 0.0, num_rounds, seed, first)

    return ArmsExperiment(
        name=name,
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=num_rounds,
        make_study=make_study,
        make_methods=lambda study: methods,
        player=player,
        chunk=chunk,
        settings={"seed": seed, "methods": {method.name: repr(method) for method in methods}},
    )


# --- closed form: all arms are known


def solve_lower(factor: Array, right: Array) -> Array:
    """Return the solution of ``factor @ x = right``.

    For systems of this size, SciPy's own function spends more time checking its arguments than
    LAPACK needs for the solution.
    """
    # the transpose is an upper triangle in LAPACK's order, so nothing is copied
    solved: Array = dtrtrs(factor.T, right, lower=0, trans=1)[0]
    return solved


class Rows:
    """The posterior of the arms in a window given rows with equal noise and any outcomes.

    With ``K + noise I = L L'``, it keeps ``L`` and ``V = L^-1 K(rows, window)``; the mean is
    ``(L^-1 y)' V`` and the variance ``s^2 - sum of V^2``.

    Args:
        problem: The arms.
        learned: The hyperparameters.
        capacity: The largest number of rows.
        window: The arms whose posterior is wanted.
    """

    def __init__(
        self, problem: Line | Contexts, learned: Learned, capacity: int, window: slice
    ) -> None:
        """See the class."""
        self.arms: list[int] = []
        self.learned, self.kernel, self.capacity = learned, problem.kernel(learned), capacity
        self.factor = np.zeros((capacity, capacity))
        self.enter(window)

    def enter(self, window: slice) -> None:
        """Change the window."""
        n, self.window = len(self.arms), window
        self.solved = np.empty((self.capacity, window.stop - window.start))
        if n:
            self.solved[:n] = solve_lower(self.factor[:n, :n], self.kernel(self.arms, window))
        self._variance = self.learned.prior_variance - np.square(self.solved[:n]).sum(0)

    def append(self, arm: int) -> None:
        """Add a row."""
        n = len(self.arms)
        row = self.kernel([arm], self.window)[0]
        if self.window.start <= arm < self.window.stop:
            before = self.solved[:n, arm - self.window.start].copy()
        else:
            before = self._at([arm])[:, 0]
        own = self.kernel([arm], [arm])[0, 0]
        pivot = math.sqrt(own + self.learned.noise - before @ before)
        self.factor[n, :n], self.factor[n, n] = before, pivot
        self.solved[n] = (row - before @ self.solved[:n]) / pivot
        self._variance = self._variance - np.square(self.solved[n])
        self.arms.append(arm)

    def _at(self, arms: Sequence[int]) -> Array:
        """Return ``L^-1 K(rows, arms)``, ``n x len(arms)``."""
        n = len(self.arms)
        if n == 0:
            return np.empty((0, len(arms)))
        return solve_lower(self.factor[:n, :n], self.kernel(self.arms, list(arms)))

    def means(self, outcomes: Array) -> Array:
        """Return the posterior mean of each arm in the window, with prior mean 0."""
        n = len(self.arms)
        if n == 0:
            return np.zeros(self.solved.shape[1])
        means: Array = solve_lower(self.factor[:n, :n], outcomes) @ self.solved[:n]
        return means

    def deviations(self, with_noise: bool) -> Array:
        """Return the standard deviation of each arm in the window, or that of its outcomes."""
        noise = self.learned.noise if with_noise else 0.0
        return np.sqrt(np.maximum(self._variance, 0.0) + noise)

    def deviations_at(self, arms: Sequence[int]) -> Array:
        """Return the standard deviations of outcomes at any arms."""
        if all(self.window.start <= arm < self.window.stop for arm in arms):
            return self.deviations(True)[[arm - self.window.start for arm in arms]]
        variance = self.learned.prior_variance - np.square(self._at(arms)).sum(0)
        return np.sqrt(np.maximum(variance, 0.0) + self.learned.noise)


class _State:
    """The posteriors under one set of hyperparameters, which grow from round to round."""

    def __init__(
        self,
        problem: Line | Contexts,
        method: LateMethod,
        learned: Learned,
        size: int,
        window: slice,
    ) -> None:
        self._problem, self._method, self.learned = problem, method, learned
        self._arrived = Rows(problem, learned, size, window)
        self._all = Rows(problem, learned, size, window)
        self._told: list[int] = []  # in the order of the rows

    def choose(self, arms: list[int], told: list[int], window: slice, seed: int, t: int) -> int:
        """Return the arm of round ``t``."""
        method, values = self._method, self._problem.values
        is_censored, is_ignored = method.way == "censored", method.way == "ignored"
        for rows, is_used in ((self._arrived, not is_censored), (self._all, not is_ignored)):
            if is_used and rows.window != window:
                rows.enter(window)
        if not is_ignored:
            for arm in arms[len(self._all.arms) :]:
                self._all.append(arm)
        if is_censored:
            heard = set(told)
            labels = [values[arm] if s in heard else 0.0 for s, arm in enumerate(arms)]
            mean = self._all.means(np.array(labels))
        else:
            known = set(self._told)
            for s in told:
                if s not in known:
                    self._told.append(s)
                    self._arrived.append(arms[s])
            mean = self._arrived.means(values[[arms[s] for s in self._told]])
        rows = self._arrived if is_ignored else self._all
        is_predictive = not method.draws
        width = 1.0
        if is_censored and not method.draws:
            assert method.max_delay is not None
            width += float(rows.deviations_at(arms[-method.max_delay :]).sum())
        if method.draws:
            spread = self._problem.draw(rows, seed, t)
        else:
            spread = rows.deviations(is_predictive)
        return window.start + self._problem.first(mean + width * spread, seed, t)


@lru_cache(maxsize=1000)
def draw_delays(delays: Delays, seed: int, num_rounds: int) -> tuple[float, ...]:
    """Return the delay of each query, which does not depend on its point."""
    nowhere = torch.zeros(1, dtype=torch.float64)
    return tuple(delays.of_query(nowhere, seed, t) for t in range(1, num_rounds + 1))


@dataclass(frozen=True)
class Played:
    """One function: its arms and regrets.

    The simple regret is the smallest regret among outcomes that had arrived (in time, with censored
    feedback); before the first arrival, the largest possible one.
    """

    arms: list[int]
    regret: Array
    simple_regret: Array


def play_late(problem: Line | Contexts, method: LateMethod, seed: int, num_rounds: int) -> Played:
    """Play one function; the seed is of initial arms, delays, uniform arms and draws."""
    values, bound = problem.values, method.max_delay
    delays = [max(delay, 1.0) for delay in draw_delays(method.delays, seed, num_rounds)]
    window = problem.window(1)
    count = problem.num_initial
    initial = torch.randint(len(values), (count,), generator=generator(seed, 0, "initial arms"))
    arms, regret = list[int](), list[float]()
    state = _State(problem, method, method.start, num_rounds, window)
    for t in range(1, num_rounds + 1):
        usable = [s for s in range(t - 1) if delays[s] <= t - s - 1]
        if problem.by_arrival and method.way != "censored":
            usable.sort(key=lambda s: s + delays[s])
        told = [s for s in usable if bound is None or delays[s] <= bound]
        if t - 1 in problem.refit_rounds and method.learns:
            fitted = list(range(t - 1)) if method.fitted_to_zeros else told
            learned = state.learned
            if len(fitted) >= FEWEST_ROWS:
                heard = set(told)
                labels = np.array([values[arms[s]] if s in heard else 0.0 for s in fitted])
                known = [arms[s] for s in fitted]
                learned = problem.learn(known, labels, learned, derive_seed(seed, t, "refit"))
                state = _State(problem, method, learned, num_rounds, window)
        window = problem.window(t)
        if t <= count:
            arm = int(initial[t - 1])
        elif len(usable) < method.uniform_until:
            arm = int(torch.randint(len(values), (), generator=generator(seed, t, "uniform arm")))
        else:
            arm = state.choose(arms, told, window, seed, t)
        arms.append(arm)
        regret.append(float(values[window].max() - values[arm]))
    simple = np.full(num_rounds, values.max() - values.min())
    for s, delay in enumerate(delays):
        if bound is None or delay <= bound:
            behind = s + int(delay) - 1  # the round after which it was available
            simple[behind:] = np.minimum(simple[behind:], regret[s])
    return Played(arms, np.array(regret), simple)


# --- Figures 1 and 5

NUM_ARMS, LENGTHSCALE = 1000, 0.02
LAM, THEORY_LAM = 0.01, 1.1
"""The modeled noise variance of given hyperparameters; the theorem requires more than 1."""
MEAN_DELAYS, MAX_DELAYS = (5, 10, 20), (5, 10, 20, 40)
GRID = (8, 5, 5)
"""Lengthscales, variances and noises from whose best point the likelihood's search starts."""


class Line:
    """Equally spaced points of [0, 1], so that a kernel matrix is cut from one row of values."""

    num_initial, by_arrival = NUM_INITIAL, False
    refit_rounds: Sequence[int] = range(REFIT_EVERY, 10_000, REFIT_EVERY)

    def __init__(self, values: Array) -> None:
        """Take one reward per arm."""
        self.values, self._step = values, 1.0 / (len(values) - 1.0)

    def window(self, round_number: int) -> slice:
        """See :class:`Line`."""
        return slice(0, len(self.values))

    def kernel(self, learned: Learned) -> Callable[[Sequence[int], slice | Sequence[int]], Array]:
        """See :class:`Line`."""
        count = len(self.values)
        values = _at(self._step * np.arange(float(count)), learned)
        both_sides = np.concatenate([values[:0:-1], values])

        def covariances(arms: Sequence[int], others: slice | Sequence[int]) -> Array:
            rows = [both_sides[count - 1 - arm : 2 * count - 1 - arm] for arm in arms]
            return np.stack([row[others] for row in rows])

        return covariances

    def learn(self, arms: list[int], labels: Array, known: Learned, seed: int) -> Learned:
        """Search from the best point of a grid, with one eigenvalue decomposition a lengthscale."""
        places = np.asarray(arms)
        distances = (places[:, None] - places[None, :]) / (len(self.values) - 1.0)
        squares = np.square(distances)
        bounds = np.log([known.bounds, PRIOR_VARIANCES, NOISES])
        lengthscales, variances, noises = (
            np.linspace(low, high, num) for (low, high), num in zip(bounds, GRID, strict=True)
        )
        best, first = math.inf, bounds.mean(1)
        for lengthscale in lengthscales:
            try:
                found = np.linalg.eigh(np.exp(-0.5 * squares / math.exp(2 * lengthscale)))
            except np.linalg.LinAlgError:  # LAPACK fails on a few matrices with repeated rows
                continue  # the grid only determines where to start
            parts = np.square(labels @ found[1])
            spread = np.exp(variances)[:, None, None] * np.maximum(found[0], 0.0)
            spread = spread + np.exp(noises)[:, None]  # variances x noises x rows
            losses = (parts / spread + np.log(spread)).sum(-1)
            i, j = np.unravel_index(losses.argmin(), losses.shape)
            if losses[i, j] < best:
                best, first = losses[i, j], np.array([lengthscale, variances[i], noises[j]])
        result = minimize(
            negative_evidence, first, (squares, labels), "L-BFGS-B", jac=True, bounds=bounds
        )
        found = np.exp(np.clip(result.x, bounds[:, 0], bounds[:, 1])).tolist()
        return replace(known, lengthscale=(found[0],), prior_variance=found[1], noise=found[2])

    def draw(self, rows: Rows, seed: int, round_number: int) -> Array:
        """Return a draw of the prior minus its prediction from the rows (Matheron's rule)."""
        stream = np.random.default_rng(derive_seed(seed, round_number, "draw"))
        spectrum = _spectrum(rows.learned, self._step)
        real, imaginary = stream.standard_normal((2, len(spectrum)))
        prior: Array = np.fft.fft(spectrum * (real + 1j * imaginary)).real[: len(self.values)]
        noise = math.sqrt(rows.learned.noise) * stream.standard_normal(len(rows.arms))
        drawn: Array = prior - rows.means(prior[rows.arms] + noise)
        return drawn

    def first(self, value: Array, seed: int, round_number: int) -> int:
        """Choose among equals at random: all arms are equal before anything is known."""
        best = np.flatnonzero(value == value.max())
        if len(best) == 1:
            return int(best[0])
        return int(np.random.default_rng(derive_seed(seed, round_number, "draw")).choice(best))


def _at(distances: Array, learned: Learned) -> Array:
    """Return the prior covariance at distances."""
    squares = np.square(distances / learned.lengthscale[0])
    values: Array = learned.prior_variance * np.exp(-0.5 * squares)
    return values


@lru_cache(maxsize=4)
def _spectrum(learned: Learned, step: float) -> Array:
    """On a circle large enough for the ends of the line to be independent across it."""
    reach = max(1.0, 5.0 * learned.lengthscale[0])  # half of the circle
    size = 1 << math.ceil(math.log2(2.0 * reach / step))
    steps = np.arange(float(size))
    found: Array = np.fft.fft(_at(step * np.minimum(steps, size - steps), learned)).real
    return np.sqrt(np.maximum(found, 0.0) / size)


def negative_evidence(logarithms: Array, squares: Array, outcomes: Array) -> tuple[float, Array]:
    r"""Return twice the negative log marginal likelihood without its constant, and its gradient.

    .. math:: y^\top K_y^{-1} y + \ln |K_y|, \qquad K_y = s^2 R_\ell + \lambda I

    Source: Rasmussen and Williams 2006, equations 5.8 and 5.9.

    Args:
        logarithms: Logarithms of lengthscale, prior variance and noise variance.
        squares: Squared distances of the rows.
        outcomes: One per row.
    """
    lengthscale, variance, noise = np.exp(logarithms)
    scaled = squares / lengthscale**2
    kernel = variance * np.exp(-0.5 * scaled)
    matrix = kernel.copy()
    matrix[np.diag_indices_from(matrix)] += noise
    factor, _ = dpotrf(matrix, lower=0, clean=1, overwrite_a=1)
    half, _ = dpotri(factor, lower=0)  # the upper triangle of the inverse
    inverse = np.triu(half) + np.triu(half, 1).T
    weights = inverse @ outcomes
    value = float(outcomes @ weights + 2.0 * np.log(np.diag(factor)).sum())
    slopes = inverse - np.outer(weights, weights)
    of_kernel = slopes * kernel
    gradient = [(of_kernel * scaled).sum(), of_kernel.sum(), noise * np.trace(slopes)]
    return value, np.array(gradient)


@cache
def process() -> tuple[Tensor, Any, Tensor]:
    """Return the arms, the kernel, and the square root of the kernel matrix."""
    choices = torch.linspace(0, 1, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
    kernel = double_kernel(RBFKernel(), lengthscale=LENGTHSCALE)
    with torch.no_grad():
        eigenvalues, eigenvectors = clamped_eigh(kernel(choices).to_dense())
    return choices, kernel, eigenvectors * eigenvalues.sqrt() @ eigenvectors.mT


def draw_reward(seed: int, trial: int) -> Tensor:
    """Return a draw of the process, scaled to [0, 1], ``num_arms``."""
    stream = generator(seed, trial, "gp draw")
    drawn = process()[2] @ torch.randn(NUM_ARMS, dtype=torch.float64, generator=stream)
    return (drawn - drawn.min()) / (drawn.max() - drawn.min())


@cache
def _line(seed: int, trial: int) -> Line:
    return Line(draw_reward(seed, trial).numpy())


@cache
def _played(seed: int, trial: int, method: LateMethod, own: int, num_rounds: int) -> Played:
    """Play what panels share only once."""
    return play_late(_line(seed, trial), method, own, num_rounds)


def play_lines(study: ArmsStudy, method: LateMethod) -> dict[str, Any]:
    """Play draws of the process, one after the other."""
    found = [
        _played(study.seed, study.first_trial + i, replace(method, name=""), own, study.num_rounds)
        for i, own in enumerate(study.seeds)
    ]
    return {
        "regret": np.stack([each.regret for each in found]),
        "simple_regret": np.stack([each.simple_regret for each in found]),
    }


def synthetic(
    num_trials: int = 100,
    num_rounds: int = NUM_ROUNDS,
    seed: int = 0,
    zeros: bool = False,
    given: bool = False,
) -> list[ArmsExperiment]:
    """Return the panels of upper confidence bounds, then those of Thompson sampling.

    Args:
        num_trials: The number of functions.
        num_rounds: The number of rounds of each, including the initial ones.
        seed: A trial's functions, initial points, delays and draws are the same for every method.
        zeros: Whether censored feedback is also fitted to its zeros, as in the released code.
        given: Whether the hyperparameters are those of the functions.
    """
    more: dict[str, Any] = {"zeros": zeros}
    if given:
        more = {"start": Learned((LENGTHSCALE,), 1.0, LAM), "learns": False}
    poisson, twice = DELAYS["poisson"], 2 * MEAN_DELAY
    panels = []
    for family, (sdf, *_) in FAMILIES.items():
        figure, letters = ("Figure 1", "cd") if family == "UCB" else ("Figure 5", "ab")
        own: Any = partial(compared, family, **more)
        means = [own(PoissonDelay(k), 2 * k, f"mean {k}")[0] for k in MEAN_DELAYS]
        limits = [own(poisson, m, f"m = {m}")[0] for m in MAX_DELAYS]
        cases = [
            ("mean", f"{sdf}, m = 2 mean", "Figure 1a: larger delays are worse", means),
            ("limit", f"{sdf}, Poisson(10)", "Figure 1b: small m is bad, 20, 40 alike", limits),
        ]
        for (name, delays), letter in zip(DELAYS.items(), letters, strict=True):
            start = own(delays, twice, "common start", uniform=False)[1:]
            words = f"{figure}{letter}: {sdf} has the smallest simple regret"
            title = f"{name} delays of {MEAN_DELAY}, m = {twice}"
            cases.append((name, title, words, [*own(delays, twice), *start]))
        panels += [
            late_panel(
                f"verma-{family.lower()}-{name}",
                title,
                published,
                play_lines,
                methods,
                (num_trials, num_rounds, seed),
            )
            for name, title, published, methods in cases
        ]
    return panels


# --- Figure 4: contexts

CONTEXT_DELAY, CONTEXT_LIMIT, ROUNDS_A_CONTEXT = 3, 6, 30
REFIT_ROUNDS = (*range(10, 101, 10), *range(120, 201, 20), *range(250, 601, 50))
NUM_SAMPLED = 500
"""The number of entries of the table to which given hyperparameters are fitted."""
RANGES, GRID_OF_SVM, NUM_PARTS = ((1e-4, 100.0), (1e-4, 10.0)), (13, 11), 20
"""The ranges of C and gamma and their numbers of values, and the parts of the growing data."""
VALIDATION_DIGITS = (7, 8, 9)
"""Rows are numbered in shuffled order; those ending in one of these digits (30%) validate."""


class Contexts:
    """Actions in contexts, each of which stays for 30 rounds; an arm is a pair of both.

    Args:
        contexts: ``num_contexts x context_dim``.
        choices: ``num_actions x d``.
        values: ``num_contexts x num_actions`` rewards, in [0, 1].
        order: The contexts in the order of their arrival.
        seed: Of the given hyperparameters.
    """

    num_initial, by_arrival = 0, True
    refit_rounds: Sequence[int] = REFIT_ROUNDS

    def __init__(
        self, contexts: Tensor, choices: Tensor, values: Tensor, order: Sequence[int], seed: int
    ) -> None:
        """See the class."""
        pairs = [contexts.repeat_interleave(len(choices), 0), choices.repeat(len(contexts), 1)]
        self._points = torch.cat(pairs, -1).numpy()
        self._num_actions, self._order = len(choices), order
        self.values: Array = values.reshape(-1).numpy()
        start = Learned((0.5,) * self._points.shape[1], 0.25, 0.01, (0.01, 100.0))
        drawn = torch.randperm(len(self.values), generator=generator(seed, 0, "sampled entries"))
        sampled = drawn[:NUM_SAMPLED].tolist()
        self.start = start
        self._sample = sampled, self.values[sampled], start, derive_seed(seed, 0, "fit")

    def given(self) -> Learned:
        """Return hyperparameters that are fitted to random entries of the table."""
        return self.learn(*self._sample)

    def window(self, round_number: int) -> slice:
        """See :class:`Line`."""
        block = (round_number - 1) // ROUNDS_A_CONTEXT % len(self._order)
        first = self._order[block] * self._num_actions
        return slice(first, first + self._num_actions)

    def kernel(self, learned: Learned) -> Callable[[Sequence[int], slice | Sequence[int]], Array]:
        """See :class:`Line`."""
        points = self._points / np.array(learned.lengthscale)

        def covariances(arms: Sequence[int], others: slice | Sequence[int]) -> Array:
            squares = np.square(points[list(arms)][:, None, :] - points[others]).sum(-1)
            values: Array = learned.prior_variance * np.exp(-0.5 * squares)
            return values

        return covariances

    def learn(self, arms: list[int], labels: Array, known: Learned, seed: int) -> Learned:
        """Search from the known hyperparameters, which are kept if the search fails."""
        X, y = torch.from_numpy(self._points[arms]), torch.from_numpy(labels)
        variances = (1e-4, 10.0)
        model = BanditGP(
            X,
            y.unsqueeze(-1),
            kernel=known.kernel(variances),
            noise=known.noise,
            learn_hyperparameters=True,
        )
        model.likelihood.noise_covar.register_constraint("raw_noise", GreaterThan(NOISES[0]))
        model.likelihood.noise = torch.tensor(max(known.noise, 1.01 * NOISES[0])).to(X)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        try:
            with seeded_globally(seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the limit of iterations, and jitter
                fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 50}})
        except ModelFittingError:
            return known
        kernel: Any = model.covar_module
        found = [
            *kernel.base_kernel.lengthscale.detach().reshape(-1).tolist(),
            float(kernel.outputscale.detach()),
            max(float(model.likelihood.noise.detach()), NOISES[0]),
        ]
        if not all(0.0 < number < math.inf for number in found):
            return known
        *lengthscale, variance, noise = found
        return replace(known, lengthscale=tuple(lengthscale), prior_variance=variance, noise=noise)

    def draw(self, rows: Rows, seed: int, round_number: int) -> Array:
        """Draw with the root of the covariance, up to jitter far below the prior variance."""
        n, window = len(rows.arms), rows.window
        prior = rows.kernel(range(window.start, window.stop), window)
        covariance = torch.from_numpy(prior - rows.solved[:n].T @ rows.solved[:n])
        stream = generator(seed, round_number, "thompson")
        normal = torch.randn(self._num_actions, dtype=torch.float64, generator=stream)
        for size in (10.0**power for power in range(-12, -3)):
            jitter = size * rows.learned.prior_variance * torch.eye(len(normal)).double()
            root, info = torch.linalg.cholesky_ex(covariance + jitter)
            if int(info) == 0:
                drawn: Array = (root @ normal).numpy()
                return drawn
        raise RuntimeError("a posterior covariance is not positive semi-definite.")

    def first(self, value: Array, seed: int, round_number: int) -> int:
        """See :class:`Line`."""
        return int(first_of_the_largest(torch.from_numpy(value)))


def play_contexts(
    make: Callable[[int], Contexts], study: ArmsStudy, method: LateMethod
) -> dict[str, Any]:
    """Play the orders of contexts one after the other."""
    regrets = []
    for seed in study.seeds:
        problem = make(seed)
        own = replace(method, start=problem.start if method.learns else problem.given())
        regrets.append(play_late(problem, own, seed, study.num_rounds).regret)
    return {"regret": np.stack(regrets)}


@cache
def _tasks(path: Path, seed: int) -> Contexts:
    names = ("context", "hyperparameters", "accuracy")
    with np.load(path, allow_pickle=False) as file:
        contexts, choices, values = (torch.from_numpy(file[n].astype(np.float64)) for n in names)
    if values.shape != (len(contexts), len(choices)) or not bool(
        ((values >= 0) & (values <= 1)).all()
    ):
        raise ValueError(
            f"accuracy in {path} has shape {tuple(values.shape)}; it must have a row per context, "
            "a column per configuration in hyperparameters, and shares from 0 to 1."
        )
    order = torch.randperm(len(contexts), generator=generator(seed, 0, "order of tasks"))
    return Contexts(contexts, choices, values, order.tolist(), seed)


@cache
def _growing(path: Path, num_parts: int, seed: int) -> Contexts:
    choices = torch.cartesian_prod(
        *(torch.linspace(0, 1, n, dtype=torch.float64) for n in GRID_OF_SVM)
    )
    contexts = torch.linspace(0, 1, NUM_PARTS, dtype=torch.float64).unsqueeze(-1)[:num_parts]
    values = torch.from_numpy(growing_accuracies(*load_csv(path, "Outcome"), seed, num_parts))
    return Contexts(contexts, choices, values, range(num_parts), seed)


def growing_accuracies(
    inputs: Array, labels: NDArray[Any], seed: int, num_parts: int = NUM_PARTS
) -> Array:
    """Train an SVM for each part of the data and each point of the grid.

    The rows are shuffled once. Part ``i`` of 20 has the first ``i / 20`` of them, and its
    validation rows keep that role in all larger parts.

    Returns:
        ``num_parts x num_actions`` accuracies on the validation rows of each part.
    """
    from sklearn.svm import SVC

    axes = [np.linspace(*ends, n) for ends, n in zip(RANGES, GRID_OF_SVM, strict=True)]
    order = np.random.default_rng(derive_seed(seed, 0, "order of rows")).permutation(len(labels))
    inputs, labels = inputs[order], labels[order]
    validates = np.isin(np.arange(len(labels)) % 10, VALIDATION_DIGITS)
    table = np.empty((num_parts, math.prod(GRID_OF_SVM)))
    for part in range(num_parts):
        size = round(len(labels) * (part + 1) / NUM_PARTS)
        known, held = ~validates[:size], validates[:size]
        X, y = inputs[:size], labels[:size]
        for i, (c, gamma) in enumerate(itertools.product(*axes)):
            if len(np.unique(y[known])) == 1:  # nothing to separate
                predicted = np.full(int(held.sum()), y[known][0])
            else:
                predicted = SVC(C=c, gamma=gamma).fit(X[known], y[known]).predict(X[held])
            table[part, i] = np.mean(predicted == y[held])
    return table


def contextual(
    tasks: Path,
    diabetes: Path | None = None,
    num_trials: int = 10,
    num_rounds: int | None = None,
    seed: int = 0,
    zeros: bool = False,
) -> list[ArmsExperiment]:
    """Return four panels per data file, with hyperparameters given and learned.

    Args:
        tasks: 50 classification tasks (``.npz``): ``accuracy`` of configurations by task, and
            their ``hyperparameters`` and ``context``.
        diabetes: The data of which 20 growing parts are contexts; left out if omitted.
        num_trials: The number of orders of the tasks, or of the rows of the data.
        num_rounds: The number of rounds of each; 30 per context if omitted.
        seed: A trial's order, delays and draws are the same for every method.
        zeros: Whether censored feedback is also fitted to its zeros, as in the released code.
    """
    sources: list[tuple[str, str, int, Callable[[int], Contexts]]] = []
    with np.load(tasks, allow_pickle=False) as file:
        count = len(file["context"])
    sources.append(("tasks", "ab", num_rounds or ROUNDS_A_CONTEXT * count, partial(_tasks, tasks)))
    if diabetes is not None:
        rounds = num_rounds or ROUNDS_A_CONTEXT * NUM_PARTS
        parts = min(-(-rounds // ROUNDS_A_CONTEXT), NUM_PARTS)
        sources.append(("growing", "cd", rounds, partial(_growing, diabetes, parts)))
    return [
        late_panel(
            f"verma-{kind}-{family.lower()}-poisson{'-learned' if learns else ''}",
            f"{kind}, Poisson({CONTEXT_DELAY}) delays, {'learned' if learns else 'given'}",
            f"Figure 4{letter}: {FAMILIES[family][0]} has the least cumulative regret",
            partial(play_contexts, make),
            compared(
                family,
                PoissonDelay(CONTEXT_DELAY),
                CONTEXT_LIMIT,
                uniform=False,
                learns=learns,
                zeros=zeros,
            ),
            (num_trials, rounds, seed),
            chunk=5,
        )
        for kind, letters, rounds, make in sources
        for learns in (False, True)
        for family, letter in zip(FAMILIES, letters, strict=True)
    ]


# --- Figures 2 and 3: tuning

NUM_POINTS = 400
"""The number of points of the box among which a tuning chooses, except for the SVM."""
START = Learned((0.2,), bounds=(0.05, 2.0))
"""The hyperparameters of loops before they learn."""


@dataclass(frozen=True)
class Tuning:
    """A model to tune: accuracy on 30 % of the rows after training on the others.

    Attributes:
        accuracy: Maps the seed and the parts of the data (training features and labels, held-out
            ones) to a function of the hyperparameters.
        low: The lower ends of the hyperparameters.
        high: Their upper ends.
        letters: The panels of the figure.
        num_trials: The number of trials.
    """

    accuracy: Callable[..., Callable[[Sequence[float]], float]]
    low: tuple[float, ...]
    high: tuple[float, ...]
    letters: str
    num_trials: int


def split(labels: NDArray[Any], seed: int) -> list[NDArray[Any]]:
    """Return training rows and held-out rows, drawn at random."""
    order = torch.randperm(len(labels), generator=generator(seed, 0, "split")).numpy()
    return np.split(order, [round(0.7 * len(labels))])


def batches(num_rows: int, seed: int, num_epochs: int, size: int) -> Iterator[NDArray[Any]]:
    """Yield the training rows of each step; every epoch has an order of its own."""
    for epoch in range(1, num_epochs + 1):
        stream = generator(seed, epoch, "training order")
        order = torch.randperm(num_rows, generator=stream).numpy()
        for first in range(0, num_rows, size):
            yield order[first : first + size]


def uniform(seed: int, purpose: str, shape: tuple[int, ...], fan_in: int) -> Tensor:
    """Return starting weights, uniform within ``1 / sqrt(fan_in)`` of 0."""
    drawn = torch.rand(shape, dtype=torch.float64, generator=generator(seed, 0, purpose))
    return (2.0 * drawn - 1.0) / fan_in**0.5


def svm(seed: int, X: Array, y: NDArray[Any], Z: Array, z: NDArray[Any]) -> Any:
    """Return the accuracy of a support vector machine with the penalty C and gamma."""
    from sklearn.svm import SVC

    return lambda at: float((SVC(C=at[0], gamma=at[1]).fit(X, y).predict(Z) == z).mean())


def logistic(seed: int, X: Array, y: NDArray[Any], Z: Array, z: NDArray[Any]) -> Any:
    """Return the accuracy of logistic regression: batch size, learning rate and its decay.

    The paper does not say how the rate decays; here, step ``k`` uses ``rate / (1 + decay k)``.
    """
    inputs = np.concatenate([X, np.ones((len(X), 1))], axis=1)

    def accuracy(at: Sequence[float]) -> float:
        size, rate, decay = at
        weights: Array = uniform(seed, "weights", (X.shape[1] + 1,), X.shape[1]).numpy()
        for step, rows in enumerate(batches(len(X), seed, 20, int(size))):
            batch = inputs[rows]
            # the logistic function in a form that does not overflow
            probability = 0.5 * (1.0 + np.tanh(0.5 * (batch @ weights)))
            gradient = batch.T @ (probability - y[rows]) / len(rows)
            weights = weights - rate / (1.0 + decay * step) * gradient
        return float(((Z @ weights[:-1] + weights[-1] > 0.0) == (z == 1)).mean())

    return accuracy


def network(seed: int, X: Array, y: NDArray[Any], Z: Array, z: NDArray[Any]) -> Any:
    """Return the accuracy of a convolutional network: batch size, learning rate and its decay.

    The paper's network, trained by Adam: one convolution (8 channels, 3 x 3), max-pooling of size
    3, a fully connected layer of 8 nodes, ReLU activations, and one output per class.
    """
    images, held = (torch.from_numpy(part / 16.0).reshape(-1, 1, 8, 8) for part in (X, Z))
    classes = len(np.unique(y))
    layers: list[tuple[tuple[int, ...], int]] = [
        ((8, 1, 3, 3), 9),
        ((8, 32), 32),
        ((classes, 8), 8),
    ]
    shapes = [part for shape, fan in layers for part in ((shape, fan), ((shape[0],), fan))]

    def outputs(weights: list[Tensor], of: Tensor) -> Tensor:
        hidden = functional.relu(functional.conv2d(of, weights[0], weights[1]))
        hidden = functional.max_pool2d(hidden, 3).flatten(1)
        hidden = functional.relu(functional.linear(hidden, weights[2], weights[3]))
        return functional.linear(hidden, weights[4], weights[5])

    def accuracy(at: Sequence[float]) -> float:
        size, rate, decay = at
        drawn = [uniform(seed, f"weights {i}", *shape) for i, shape in enumerate(shapes)]
        weights = [each.requires_grad_() for each in drawn]
        optimizer = torch.optim.Adam(weights, lr=rate)
        with torch.enable_grad():
            for step, rows in enumerate(batches(len(images), seed, 10, int(size))):
                optimizer.param_groups[0]["lr"] = rate / (1.0 + decay * step)
                batch = torch.from_numpy(rows)
                optimizer.zero_grad()
                loss = functional.cross_entropy(
                    outputs(weights, images[batch]), torch.from_numpy(y)[batch]
                )
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            return float((outputs(weights, held).argmax(-1).numpy() == z).mean())

    return accuracy


TASKS = {
    "svm": Tuning(svm, (1e-4, 1e-4), (100.0, 10.0), "abcd", 10),
    "logistic": Tuning(logistic, (32.0, 1e-6, 1e-6), (128.0, 1.0, 1.0), "abcd", 60),
    "cnn": Tuning(network, (128.0, 1e-6, 1e-6), (512.0, 1.0, 1.0), "efgh", 10),
}
FIGURES = {"svm": "2", "logistic": "3", "cnn": "2"}


def remembered(reward: Callable[[Any], float]) -> Callable[[Tensor], float]:
    """Return a function of a point that evaluates each point once."""
    known = lru_cache(maxsize=None)(reward)
    return lambda x: known(tuple(x.tolist()))


@cache
def _parts(name: str, path: Path | None, seed: int | None) -> Any:
    """Return the accuracy of a task; without a seed, with the stratified split of the code."""
    sources = {"logistic": "breast-cancer", "cnn": "digits"}
    inputs, labels = load_csv(path, "Outcome") if path else load_dataset(sources[name])
    numbers = np.unique(labels, return_inverse=True)[1]
    if seed is None:
        from sklearn.model_selection import train_test_split

        rows = np.arange(len(numbers))
        train, test = train_test_split(rows, test_size=0.3, stratify=numbers, random_state=0)
    else:
        train, test = split(numbers, seed)
    parts = inputs[train], numbers[train], inputs[test], numbers[test]
    return remembered(TASKS[name].accuracy(seed or 0, *parts))


def tuned(
    name: str, path: Path | None, seed: int
) -> tuple[Domain, Callable[[int], Callable[[Tensor], float]]]:
    """Return the unit cube or points of it, and what makes the function of a trial."""
    task = TASKS[name]
    low, high = (torch.tensor(ends, dtype=torch.float64) for ends in (task.low, task.high))
    if name == "svm":
        one = _parts(name, path, None)
        cube = Box(torch.stack([torch.zeros_like(low), torch.ones_like(low)]))
        # rounding may lead outside
        return cube, lambda trial: lambda x: float(one(torch.minimum(low + (high - low) * x, high)))
    engine = SobolEngine(len(low), scramble=True, seed=derive_seed(seed, 0, "arms") % 2**31)
    points = low + (high - low) * engine.draw(NUM_POINTS, dtype=torch.float64)
    points[:, 0] = points[:, 0].round()
    unit = (points - low) / (high - low)
    numbers = {tuple(x): i for i, x in enumerate(unit.tolist())}

    def make(trial: int) -> Callable[[Tensor], float]:
        accuracy = _parts(name, path, derive_seed(seed, trial, "tuning"))
        return lambda x: float(accuracy(points[numbers[tuple(x.tolist())]]))

    return Arms(unit), make


def feedback_of(method: LateMethod) -> Feedback:
    """Return the feedback of a loop that does what the released code does."""
    if method.feedback is not None:
        return method.feedback
    if method.way != "censored":
        return Ignored() if method.way == "ignored" else Hallucinated()
    return Censored(0.0, 1.0, method.max_delay, **Censored.as_published)


def play_loop(
    domain: Domain,
    reward: Callable[[Tensor], float],
    best: float,
    method: LateMethod,
    seed: int,
    num_rounds: int,
    num_initial: int = NUM_INITIAL,
) -> tuple[Tensor, Tensor]:
    """Play one function with loops that learn hyperparameters every 10 rounds.

    Args:
        domain: A box, or arms.
        reward: The function, without noise.
        best: The value relative to which regret is measured.
        method: The method that plays it.
        seed: Of initial queries, delays and draws.
        num_rounds: The number of rounds.
        num_initial: The number of initial rounds with common random points.

    Returns:
        The regret of each round, and the simple regret after it.
    """
    history, feedback, learned = History(domain.dim), feedback_of(method), method.start
    while history.num_queries < num_rounds:
        asked = history.num_queries
        if asked % REFIT_EVERY == 0 and method.learns:
            learned = _learn(*_rows(history, feedback, method.fitted_to_zeros), method, learned)
        is_uniform = history.num_arrived < method.uniform_until
        loop = BanditLoop(
            domain,
            BanditGP.with_kernel(learned.kernel(), noise=learned.noise),
            ACQUISITIONS[method.draws],
            feedback=feedback,
            num_initial=max(num_initial, asked + 1 if is_uniform else 0),
            seed=seed,
        )
        _continue(loop, history)
        history = loop.history
        count = 1 if is_uniform else REFIT_EVERY - asked % REFIT_EVERY
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LateOutcomeWarning)  # the experiments rely on them
            count = min(count, num_rounds - asked)
            run(loop, reward, count, delays=method.delays, progress=False)
    values = torch.tensor([reward(x) for x in history.inputs()], dtype=torch.float64)
    outcomes = [history.outcome(query.id) for query in history.queries]
    arrivals = [torch.inf if outcome is None else outcome.arrived_round for outcome in outcomes]
    known = torch.tensor(arrivals, dtype=torch.float64)
    if method.max_delay is not None:  # outcomes that are given up never count
        rounds = torch.arange(1, len(known) + 1, dtype=torch.float64)
        known = known.masked_fill(known + 1.0 - rounds > method.max_delay, torch.inf)
    regret = best - values
    return regret, -best_arrived(-regret, known)


def _continue(loop: BanditLoop, history: History) -> None:
    """Attach the points of a history to a new loop, and tell their outcomes, in the same order."""
    for entry in history.in_order():
        if isinstance(entry, Query):
            loop.attach(entry.x)
        elif isinstance(entry, Outcome):
            loop.tell(entry.query_id, entry.reward)


def _rows(history: History, feedback: Feedback, with_zeros: bool) -> tuple[Tensor, Tensor]:
    """Return the inputs and outcomes to which hyperparameters are fitted."""
    if not isinstance(feedback, Censored):
        return history.arrived()
    outcomes = [(query, history.outcome(query.id)) for query in history.queries]
    rewards = [
        None if outcome is None or feedback.is_late(query, outcome) else outcome.reward
        for query, outcome in outcomes
    ]
    labels = [feedback.minimum if reward is None else reward for reward in rewards]
    told = torch.tensor([with_zeros or reward is not None for reward in rewards], dtype=torch.bool)
    return history.inputs()[told], torch.tensor(labels, dtype=torch.float64)[told].unsqueeze(-1)


def _learn(X: Tensor, Y: Tensor, method: LateMethod, last: Learned) -> Learned:
    """Learn hyperparameters; the last ones are kept if that fails, as with equal outcomes."""
    start = method.start
    if len(X) < FEWEST_ROWS:
        return last
    recipe = BanditGP.with_kernel(start.kernel(), noise=start.noise, refit_every=len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizationWarning)  # the tolerance is too tight
        warnings.simplefilter("error", RefitWarning)
        try:
            model: Any = recipe.builder(seed=0, merges=True)(X, Y)
        except RefitWarning:
            return last
    kernel = model.covar_module

    def within(value: float, bounds: tuple[float, float]) -> float:
        """Stay away from the bounds, where the kernel's own parameter is infinite."""
        return min(max(value, bounds[0] * (1.0 + 1e-6)), bounds[1] * (1.0 - 1e-6))

    return replace(
        start,
        lengthscale=(within(kernel.base_kernel.lengthscale.item(), start.bounds),),
        prior_variance=within(kernel.outputscale.item(), PRIOR_VARIANCES),
        noise=max(model.likelihood.noise.item(), NOISES[0]),
    )


def play_loops(
    domain: Domain,
    make: Callable[[int], Callable[[Tensor], float]],
    study: ArmsStudy,
    method: LateMethod,
    num_initial: int = NUM_INITIAL,
) -> dict[str, Any]:
    """Play the functions of all trials, whose values lie in [0, 1], with loops."""
    found = []
    for i, seed in enumerate(study.seeds):
        reward = make(study.first_trial + i)
        rounds = study.num_rounds
        found.append(play_loop(domain, reward, 1.0, method, seed, rounds, num_initial))
    return {
        "regret": torch.stack([regret for regret, _ in found]).numpy(),
        "simple_regret": torch.stack([simple.clamp_max(1.0) for _, simple in found]).numpy(),
    }


def tuning(
    diabetes: Path | None = None,
    num_trials: int | None = None,
    num_rounds: int = NUM_ROUNDS,
    seed: int = 0,
    uniform: bool = True,
    zeros: bool = False,
) -> list[ArmsExperiment]:
    """Return four panels per task: upper confidence bounds and Thompson sampling, both delays.

    Args:
        diabetes: The data of the support vector machine, which is left out if omitted.
        num_trials: The task's number if omitted.
        num_rounds: The number of rounds of each, including initial points.
        seed: A trial's split, training, delays and draws are the same for every method.
        uniform: Whether the baselines play uniformly until two outcomes have arrived.
        zeros: Whether censored feedback is also fitted to its zeros, as in the released code.
    """
    panels = []
    for name, task in TASKS.items():
        if name == "svm" and diabetes is None:
            continue
        domain, make = tuned(name, diabetes if name == "svm" else None, seed)
        cases = itertools.product(FAMILIES, DELAYS.items())
        for letter, (family, (delay, delays)) in zip(task.letters, cases, strict=True):
            limit = 2 * MEAN_DELAY if delay == "poisson" else MEAN_DELAY
            own = partial(compared, family, delays, limit, start=START)
            panels.append(
                late_panel(
                    f"verma-tuning-{name}-{family.lower()}-{delay}",
                    f"{name}, {delay} delays of {MEAN_DELAY}",
                    f"Figure {FIGURES[name]}{letter}: {FAMILIES[family][0]} is best",
                    partial(play_loops, domain, make),
                    own(uniform=uniform, zeros=zeros),
                    (num_trials or task.num_trials, num_rounds, seed),
                    chunk=1,
                )
            )
    return panels


_DIABETES = "Pima Indians diabetes (CSV with the class in the column 'Outcome')"
EXPERIMENTS = {
    "verma-synthetic": Entry(synthetic, "Verma, Dai and Low 2022, Figures 1 and 5"),
    "verma-tuning": Entry(tuning, "Verma, Dai and Low 2022, Figures 2 and 3", (_DIABETES,)),
    "verma-contextual": Entry(
        contextual,
        "Verma, Dai and Low 2022, Figure 4",
        ("SVM tasks (.npz: 'accuracy', 'hyperparameters', 'context')", _DIABETES),
        1,
    ),
}
