r"""Functions of one variable whose outcomes arrive late, played in closed form while learning.

This does what :class:`papers.delayed_studies.LearnedPlayer` does with a loop, for the settings of
the released code of Verma, Dai and Low 2022, and is fast enough for hundreds of functions: arms are
equally spaced points of [0, 1], so a kernel matrix is cut from one row of values. Tests compare it
with loops.

With the censored outcomes :math:`\tilde y`, all rows :math:`X`, and the arrived data :math:`(X_a,
y_a)`, the posterior mean and variance of a round are those of

* censored feedback: :math:`(X, \tilde y)`,
* ignored outcomes: :math:`(X_a, y_a)`,
* hallucinated outcomes: the mean of :math:`(X_a, y_a)`, the variance of :math:`X`.

Upper confidence bounds are the mean plus the width times the standard deviation of an outcome,
including the noise, as in the released code. Draws are joint over all arms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs
from scipy.optimize import minimize

from botorch_bandits.problems import Delays
from botorch_bandits.random_streams import derive_seed, generator
from papers.delayed_studies import (
    FEWEST_ROWS,
    NUM_INITIAL,
    PRIOR_VARIANCES,
    REFIT_EVERY,
    SMALLEST_NOISE,
)
from papers.trials import ArmsStudy

Array: TypeAlias = NDArray[np.float64]

LARGEST_NOISE = 1.0
NUM_LENGTHSCALES, NUM_VARIANCES, NUM_NOISES = 8, 5, 5
"""The grid whose best point is the start of the likelihood's maximization."""


@dataclass(frozen=True)
class Learned:
    """Hyperparameters of a squared exponential kernel, and bounds within which they are learned.

    Attributes:
        lengthscale: The lengthscale, relative to the side of the domain.
        prior_variance: The prior variance, in squared units of the reward.
        noise: The modeled noise variance, in squared units of the reward.
        lengthscales: Bounds of the lengthscale.
    """

    lengthscale: float = 0.1
    prior_variance: float = 1.0
    noise: float = 0.01
    lengthscales: tuple[float, float] = (0.005, 2.0)


@dataclass(frozen=True)
class CurveMethod:
    """How functions are played.

    Attributes:
        name: The name in the figure's legend.
        way: The treatment of pending queries: ``"censored"``, ``"ignored"`` or ``"hallucinated"``.
        delays: The number of rounds after which outcomes arrive.
        draws: Whether to play the maximizer of a posterior draw and not of an upper confidence
            bound.
        max_delay: ``m``; None only without censored feedback.
        added: What the sum of deviations over the last ``m`` queries adds to the width of 1, or to
            the scale of draws: ``"published"`` for the sum itself, ``"divided"`` for the sum
            divided by the prior variance, or ``"nothing"``.
        uniform_until: After the initial rounds, it plays uniformly until this many outcomes have
            arrived.
        fitted_to_zeros: Whether hyperparameters are also fitted to pseudo-values.
        predictive: Whether bounds use the deviations of outcomes, including the noise, rather than
            of the function.
        start: The initial hyperparameters.
        learns: Whether hyperparameters are learned.
    """

    name: str
    way: str
    delays: Delays
    draws: bool = False
    max_delay: int | None = None
    added: str = "published"
    uniform_until: int = 0
    fitted_to_zeros: bool = False
    predictive: bool = True
    start: Learned = field(default_factory=Learned)
    learns: bool = True


def solve_lower(factor: Array, right: Array) -> Array:
    """Return the solution of ``factor @ x = right``.

    For systems of this size, SciPy's own function spends more time checking its arguments than
    LAPACK needs for the solution.

    Args:
        factor: ``n x n``, lower triangular, nonzero on the diagonal.
        right: ``n`` or ``n x k``.
    """
    # the transpose is an upper triangle in LAPACK's order, so nothing is copied
    solved, _ = dtrtrs(factor.T, right, lower=0, trans=1)
    found: Array = solved
    return found


def kernel_values(distances: Array, learned: Learned) -> Array:
    """Return the squared exponential kernel at distances.

    Args:
        distances: Distances relative to the side of the domain.
        learned: The hyperparameters.
    """
    squares = np.square(distances / learned.lengthscale)
    values: Array = learned.prior_variance * np.exp(-0.5 * squares)
    return values


class Rows:
    """The posterior of all arms given rows with equal noise and any outcomes.

    Args:
        num_arms: Equally spaced points of [0, 1].
        learned: The hyperparameters.
        arms: The arm of each row; more rows can be appended.
        capacity: The largest number of rows.
    """

    def __init__(self, num_arms: int, learned: Learned, arms: list[int], capacity: int) -> None:
        """See the class."""
        self.arms, self._num_arms, self._learned = [*arms], num_arms, learned
        self._step = 1.0 / (num_arms - 1.0)
        values = kernel_values(self._step * np.arange(float(num_arms)), learned)
        self._both_sides = np.concatenate([values[:0:-1], values])
        self._factor = np.zeros((capacity, capacity))
        self._solved = np.empty((capacity, num_arms))  # the inverse factor times the covariances
        self._spectrum: Array | None = None
        n = len(arms)
        if n:
            covariances = np.stack([self._row(arm) for arm in arms])
            matrix = covariances[:, arms] + learned.noise * np.eye(n)
            self._factor[:n, :n] = np.linalg.cholesky(matrix)
            self._solved[:n] = solve_lower(self._factor[:n, :n], covariances)
        self._variance = learned.prior_variance - np.square(self._solved[:n]).sum(0)

    def append(self, arm: int) -> None:
        """Add a row.

        Args:
            arm: Its arm.
        """
        n, solved, row = len(self.arms), self._solved, self._row(arm)
        before = solved[:n, arm].copy()
        pivot = math.sqrt(row[arm] + self._learned.noise - before @ before)
        self._factor[n, :n], self._factor[n, n] = before, pivot
        solved[n] = (row - before @ solved[:n]) / pivot
        self._variance = self._variance - np.square(solved[n])
        self.arms.append(arm)

    def means(self, outcomes: Array) -> Array:
        """Return the posterior mean of each arm, with prior mean 0.

        Args:
            outcomes: One per row.
        """
        n = len(self.arms)
        if n == 0:
            return np.zeros(self._num_arms)
        means: Array = solve_lower(self._factor[:n, :n], outcomes) @ self._solved[:n]
        return means

    def deviations(self, with_noise: bool) -> Array:
        """Return the posterior standard deviation of each arm.

        Args:
            with_noise: Whether it is the deviation of an outcome rather than of the function.
        """
        noise = self._learned.noise if with_noise else 0.0
        return np.sqrt(np.maximum(self._variance, 0.0) + noise)

    def draw(self, stream: np.random.Generator) -> Array:
        """Return a joint draw of all arms minus the posterior mean.

        It is a draw of the prior minus its prediction from the rows (Matheron's rule).

        Args:
            stream: The stream of random numbers.
        """
        prior = self._draw_prior(stream)
        noise = math.sqrt(self._learned.noise) * stream.standard_normal(len(self.arms))
        drawn: Array = prior - self.means(prior[self.arms] + noise)
        return drawn

    def _row(self, arm: int) -> Array:
        first = self._num_arms - 1 - arm
        return self._both_sides[first : first + self._num_arms]

    def _draw_prior(self, stream: np.random.Generator) -> Array:
        """Draw on a circle large enough for the ends of the domain to be independent across it."""
        if self._spectrum is None:
            reach = max(1.0, 5.0 * self._learned.lengthscale)  # half of the circle
            size = 1 << math.ceil(math.log2(2.0 * reach / self._step))
            steps = np.arange(float(size))
            around = self._step * np.minimum(steps, size - steps)
            values = np.fft.fft(kernel_values(around, self._learned)).real
            self._spectrum = np.sqrt(np.maximum(values, 0.0) / size)
        real, imaginary = stream.standard_normal((2, len(self._spectrum)))
        drawn: Array = np.fft.fft(self._spectrum * (real + 1j * imaginary)).real
        return drawn[: self._num_arms]


def learn(arms: list[int], outcomes: Array, start: Learned, num_arms: int) -> Learned:
    """Return the hyperparameters with the largest marginal likelihood, within their bounds.

    The search starts at the best point of a grid, whose likelihoods follow from one eigenvalue
    decomposition per lengthscale.

    Args:
        arms: The arms of the rows, which may repeat.
        outcomes: One per row, with prior mean 0.
        start: The hyperparameters that have the bounds of the lengthscale.
        num_arms: The number of arms of the domain.
    """
    distances = (np.asarray(arms)[:, None] - np.asarray(arms)[None, :]) / (num_arms - 1.0)
    squares = np.square(distances)
    bounds = np.log([start.lengthscales, PRIOR_VARIANCES, (SMALLEST_NOISE, LARGEST_NOISE)])
    lengthscales, variances, noises = (
        np.linspace(low, high, num)
        for (low, high), num in zip(
            bounds.tolist(), (NUM_LENGTHSCALES, NUM_VARIANCES, NUM_NOISES), strict=True
        )
    )
    best, first = math.inf, bounds.mean(1)
    for lengthscale in lengthscales:
        try:
            found = np.linalg.eigh(np.exp(-0.5 * squares / math.exp(2 * lengthscale)))
        except np.linalg.LinAlgError:  # LAPACK fails on a few matrices with repeated rows
            continue  # the grid only determines where to start
        eigenvalues, vectors = found
        parts = np.square(outcomes @ vectors)
        spread = np.exp(variances)[:, None, None] * np.maximum(eigenvalues, 0.0)
        spread = spread + np.exp(noises)[:, None]  # variances x noises x rows
        losses = (parts / spread + np.log(spread)).sum(-1)
        i, j = np.unravel_index(losses.argmin(), losses.shape)
        if losses[i, j] < best:
            best, first = losses[i, j], np.array([lengthscale, variances[i], noises[j]])
    result = minimize(
        negative_evidence, first, (squares, outcomes), "L-BFGS-B", jac=True, bounds=bounds
    )
    lengthscale, variance, noise = np.exp(np.clip(result.x, bounds[:, 0], bounds[:, 1])).tolist()
    return replace(start, lengthscale=lengthscale, prior_variance=variance, noise=noise)


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


@lru_cache(maxsize=1000)
def draw_delays(delays: Delays, seed: int, num_rounds: int) -> tuple[float, ...]:
    """Return the delay of each query.

    Args:
        delays: The distribution of the delays, which do not depend on the point.
        seed: The seed of the trial.
        num_rounds: The number of rounds.
    """
    nowhere = torch.zeros(1, dtype=torch.float64)
    return tuple(delays.of_query(nowhere, seed, t) for t in range(1, num_rounds + 1))


@dataclass(frozen=True)
class Played:
    """One function.

    Attributes:
        arms: The arm of each round.
        widths: The width of each round, or the scale of its draw; 0 if it had neither.
        regret: The regret of each round.
        simple_regret: The smallest regret among outcomes that had arrived (in time, with censored
            feedback); before the first arrival, the largest possible regret.
        hyperparameters: The hyperparameters of each round.
    """

    arms: list[int]
    widths: list[float]
    regret: Array
    simple_regret: Array
    hyperparameters: list[Learned]


def play_curve(values: Array, method: CurveMethod, seed: int, num_rounds: int) -> Played:
    """Play one function.

    Args:
        values: Its rewards, one per arm, of which the smallest possible value is 0.
        method: The method that plays it.
        seed: Seeds initial arms, delays, uniform arms and draws.
        num_rounds: The number of rounds.
    """
    num_arms, bound = len(values), method.max_delay
    initial = torch.randint(num_arms, (NUM_INITIAL,), generator=generator(seed, 0, "initial arms"))
    delays = draw_delays(method.delays, seed, num_rounds)
    arms: list[int] = []
    widths: list[float] = []
    path: list[Learned] = []
    learned, state = method.start, _State(method, method.start, num_arms, num_rounds)
    for t in range(1, num_rounds + 1):
        usable = [s for s in range(t - 1) if max(delays[s], 1.0) <= t - s - 1]
        told = [s for s in usable if bound is None or delays[s] <= bound]
        if t > 1 and (t - 1) % REFIT_EVERY == 0 and method.learns:
            fitted = range(t - 1) if method.fitted_to_zeros else told
            if len(fitted) >= FEWEST_ROWS:
                heard = set(told)
                labels = np.array([values[arms[s]] if s in heard else 0.0 for s in fitted])
                learned = learn([arms[s] for s in fitted], labels, method.start, num_arms)
                state = _State(method, learned, num_arms, num_rounds)
        width = 0.0
        if t <= NUM_INITIAL:
            arm = int(initial[t - 1])
        elif len(usable) < method.uniform_until:
            arm = int(torch.randint(num_arms, (), generator=generator(seed, t, "uniform arm")))
        else:
            arm, width = state.choose(values, arms, told, derive_seed(seed, t, "draw"))
        arms.append(arm)
        widths.append(width)
        path.append(learned)
    regret = values.max() - values[arms]
    simple = np.full(num_rounds, values.max() - values.min())
    for s, delay in enumerate(delays):
        if bound is None or delay <= bound:
            behind = s + int(max(delay, 1.0)) - 1  # the round after which it was available
            simple[behind:] = np.minimum(simple[behind:], regret[s])
    return Played(arms, widths, regret, simple, path)


class _State:
    """The posteriors under one set of hyperparameters, which grow from round to round."""

    def __init__(self, method: CurveMethod, learned: Learned, num_arms: int, capacity: int) -> None:
        """See the class."""
        self._method, self._learned = method, learned
        self._arrived = Rows(num_arms, learned, [], capacity)
        self._all = Rows(num_arms, learned, [], capacity)
        self._told: list[int] = []  # in the order of the rows

    def choose(
        self, values: Array, arms: list[int], told: list[int], seed: int
    ) -> tuple[int, float]:
        """Return an arm and the width with which it was chosen.

        Args:
            values: The rewards, one per arm.
            arms: The arms that were played.
            told: The numbers of the queries whose outcomes are known.
            seed: The seed of the draw.
        """
        method, is_censored = self._method, self._method.way == "censored"
        if method.way != "ignored":
            for arm in arms[len(self._all.arms) :]:
                self._all.append(arm)
        if not is_censored:
            known = set(self._told)
            for s in told:
                if s not in known:
                    self._told.append(s)
                    self._arrived.append(arms[s])
        if is_censored:
            heard = set(told)
            labels = [values[arm] if s in heard else 0.0 for s, arm in enumerate(arms)]
            mean = self._all.means(np.array(labels))
        else:
            mean = self._arrived.means(values[[arms[s] for s in self._told]])
        rows = self._arrived if method.way == "ignored" else self._all
        is_predictive = method.predictive and not method.draws
        width = 1.0
        if is_censored and method.added != "nothing":
            assert method.max_delay is not None
            deviations = rows.deviations(with_noise=is_predictive)
            total = float(deviations[arms[-method.max_delay :]].sum())
            width += total / (self._learned.prior_variance if method.added == "divided" else 1.0)
        if method.draws:
            spread = rows.draw(np.random.default_rng(seed))
        else:
            spread = rows.deviations(is_predictive)
        value = mean + width * spread
        best = np.flatnonzero(value == value.max())  # all arms, before anything is known
        arm = best[0] if len(best) == 1 else np.random.default_rng(seed).choice(best)
        return int(arm), width


@dataclass(frozen=True, eq=False)
class CurvePlayer:
    """Plays functions one after the other, and plays what panels share only once.

    Attributes:
        draw: Maps the number of a trial to its rewards, one per arm.
        rewards: The rewards that were drawn, by trial.
        played: The results, by trial, rounds and method without its name.
    """

    draw: Callable[[int], torch.Tensor]
    rewards: dict[int, Array] = field(default_factory=dict)
    played: dict[tuple[int, int, CurveMethod], Played] = field(default_factory=dict)

    def __call__(
        self, study: ArmsStudy, method: CurveMethod, on_round: Callable[[int], None]
    ) -> dict[str, Any]:
        """Play a study, of which only the number of functions is used, not their values.

        Args:
            study: The study to play.
            method: The method that plays it.
            on_round: Called once for each round of all functions that has been played.

        Returns:
            Regrets (``regret``) and simple regrets (``simple_regret``), each
            ``num_functions x num_rounds``.
        """
        found, num_functions = [], len(study.values)
        for i, seed in enumerate(study.seeds):
            trial = study.first_trial + i
            key = trial, study.num_rounds, replace(method, name="")
            if key not in self.played:
                if trial not in self.rewards:
                    self.rewards[trial] = self.draw(trial).numpy()
                given = self.rewards[trial], method, seed, study.num_rounds
                self.played[key] = play_curve(*given)
            found.append(self.played[key])
            shown = study.num_rounds * i // num_functions
            for t in range(shown, study.num_rounds * (i + 1) // num_functions):
                on_round(t + 1)
        return {
            "regret": np.stack([each.regret for each in found]),
            "simple_regret": np.stack([each.simple_regret for each in found]),
        }
