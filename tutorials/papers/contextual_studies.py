r"""Bandits with contexts and delays on a finite set of actions: data, posterior and rounds.

A task is a table of rewards, with one row per context, and the order in which contexts arrive. The
rules are those of the loop: mean plus width times standard deviation, or a draw with its deviation
from the mean multiplied by the width, over the actions in the context of the round. The width of
censored feedback is that of the authors' released code unless a method says otherwise. The loop
builds one model per round; :class:`ContextPosterior` makes the same choices much faster when a
context stays for many rounds.

With rows :math:`x_1, \dots, x_n` (context and action), labels :math:`y` and
:math:`K + \lambda I = L L^\top`, this keeps :math:`M = L^{-1}`, :math:`w = M y` and
:math:`V = M k(X, A)` for the arms ``A`` of the current context:

.. math:: \mu = V^\top w, \qquad S = k(A, A) - V^\top V .

A new row adds one row to each, at a cost of ``O(n^2)``; another label changes only ``w``. A change
of the context costs ``O(n^2 |A|)``. The loop does not know about blocks of rounds in one context
and pays this cost in every round.
"""

from __future__ import annotations

import heapq
import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import check_matrix
from botorch_bandits.domains import first_of_the_largest
from botorch_bandits.feedback import Censored, Feedback, Hallucinated
from botorch_bandits.models import BanditGP, StationaryKernel
from botorch_bandits.problems import ConstantDelay, Delays, load_csv
from botorch_bandits.random_streams import derive_seed, generator, seeded_globally
from papers.trials import ArmsStudy, Method

NUM_PARTS = 20
RANGES = ((1e-4, 100.0), (1e-4, 10.0))
"""The paper's ranges of C and gamma."""

GRID = (13, 11)
"""The numbers of values of C and gamma."""

TARGET = "Outcome"
VALIDATION_DIGITS = (7, 8, 9)
"""Rows are numbered in shuffled order; those ending in one of these digits (30%) validate."""


def load_tasks(path: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Read a table of tasks.

    Args:
        path: An ``.npz`` file with the arrays ``accuracy`` (tasks x configurations),
            ``hyperparameters`` (configurations x d) and ``context`` (tasks x context_dim).

    Returns:
        Contexts, configurations and accuracies.

    Raises:
        ValueError: If the file cannot be read, an array is missing or has the wrong shape, an entry
            is not finite, or an accuracy is not in [0, 1].
    """
    arrays: dict[str, Tensor] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in ("accuracy", "hyperparameters", "context"):
                if name not in file:
                    raise ValueError(f"it has no array {name!r}, but {', '.join(file.files)}")
                arrays[name] = torch.from_numpy(np.asarray(file[name], dtype=np.float64))
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"data file {path} cannot be used: {error}.") from error
    for name, array in arrays.items():
        check_matrix(f"{name} in {path}", array)
    values, choices = arrays["accuracy"], arrays["hyperparameters"]
    contexts = arrays["context"]
    if values.shape != (len(contexts), len(choices)):
        raise ValueError(
            f"accuracy in {path} has shape {tuple(values.shape)}; with {len(contexts)} rows in "
            f"context and {len(choices)} in hyperparameters it must be {len(contexts)} x "
            f"{len(choices)}."
        )
    if not bool(((values >= 0.0) & (values <= 1.0)).all()):
        raise ValueError(f"accuracy in {path} leaves [0, 1]; give shares, not percentages.")
    return contexts, choices, values


def load_growing(path: Path) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Read the features and labels of the growing data.

    Args:
        path: A CSV file with a header and the class labels in the column ``Outcome``.

    Raises:
        ImportError: If pandas is not installed.
        ValueError: If the file cannot be used, or has fewer than 10 rows per part.
    """
    inputs, labels = load_csv(path, TARGET)
    if len(labels) < 10 * NUM_PARTS:
        raise ValueError(
            f"{path} has {len(labels)} rows; {NUM_PARTS} growing parts need at least "
            f"{10 * NUM_PARTS}."
        )
    return inputs, labels


def growing_choices() -> Tensor:
    """Return the grid of C and gamma, both scaled to [0, 1]."""
    return torch.cartesian_prod(*(torch.linspace(0, 1, n, dtype=torch.float64) for n in GRID))


def growing_contexts() -> Tensor:
    """Return the index of each part, scaled to [0, 1], as a ``NUM_PARTS x 1`` tensor."""
    return torch.linspace(0, 1, NUM_PARTS, dtype=torch.float64).unsqueeze(-1)


def growing_accuracies(
    inputs: NDArray[np.float64],
    labels: NDArray[Any],
    seed: int,
    logarithmic: bool = False,
    standardizes: bool = False,
    num_parts: int = NUM_PARTS,
) -> Tensor:
    """Train an SVM for each part of the data and each point of the grid.

    The rows are shuffled once. Part ``i`` of 20 has the first ``i / 20`` of them, and its
    validation rows keep that role in all larger parts.

    Args:
        inputs: ``n x p`` features.
        labels: ``n`` classes.
        seed: Seeds the order of the rows.
        logarithmic: Whether to space the grid evenly in the logarithms of C and gamma.
        standardizes: Whether to standardize features with the training rows of the part.
        num_parts: The number of parts to train for, starting with the first.

    Returns:
        ``num_parts x num_arms`` accuracies on the validation rows of each part, in the order of
        :func:`growing_choices`.

    Raises:
        ImportError: If scikit-learn is not installed.
    """
    try:
        from sklearn.svm import SVC
    except ImportError as error:
        raise ImportError(
            "the growing data need scikit-learn: pip install 'botorch_bandits[tune]'."
        ) from error
    space = np.geomspace if logarithmic else np.linspace
    axes = [space(*ends, n).tolist() for ends, n in zip(RANGES, GRID, strict=True)]
    shuffle = np.random.default_rng(derive_seed(seed, 0, "order of rows"))
    order = shuffle.permutation(len(labels))
    inputs, labels = inputs[order], labels[order]
    validates = np.isin(np.arange(len(labels)) % 10, VALIDATION_DIGITS)
    table = np.empty((num_parts, math.prod(GRID)))
    for part in range(num_parts):
        size = round(len(labels) * (part + 1) / NUM_PARTS)
        known, held = ~validates[:size], validates[:size]
        X, y = inputs[:size], labels[:size]
        if standardizes:
            scale = X[known].std(0)
            X = (X - X[known].mean(0)) / np.where(scale > 0.0, scale, 1.0)
        for i, (c, gamma) in enumerate(itertools.product(*axes)):
            if len(np.unique(y[known])) == 1:  # nothing to separate
                predicted = np.full(int(held.sum()), y[known][0])
            else:
                predicted = SVC(C=c, gamma=gamma).fit(X[known], y[known]).predict(X[held])
            table[part, i] = np.mean(predicted == y[held])
    return torch.from_numpy(table)


JITTER = 1e-12
"""Jitter for the root of a covariance, in prior variances; ten times larger after each failure."""


class ContextPosterior:
    """Posterior at the arms of one context, given rows in any contexts, with prior mean 0.

    Args:
        kernel: The kernel over (context, action).
        lam: The modeled noise variance.
        choices: ``num_arms x d`` actions, float64.
        context: ``context_dim`` numbers, the first context.

    Attributes:
        prior_variance: The kernel's variance.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> context = torch.zeros(1, dtype=torch.float64)
        >>> kernel = StationaryKernel.read(RBFKernel().double())
        >>> posterior = ContextPosterior(kernel, 1.0, choices, context)
        >>> posterior.append(posterior.arms[0], 2.0)
        >>> round(float(posterior.mean[0]), 9)
        1.0
    """

    def __init__(
        self, kernel: StationaryKernel, lam: float, choices: Tensor, context: Tensor
    ) -> None:
        """See the class."""
        self._kernel, self._lam, self._choices = kernel, lam, choices
        self.prior_variance = float(kernel.outputscale)
        self._count = 0
        self._inputs = np.empty((0, choices.shape[1] + len(context)))
        self._labels, self._weights = np.empty(0), np.empty(0)
        self._inverse = np.empty((0, 0))
        self._rows = np.empty((0, len(choices)))
        self._variance = np.empty(0)
        self._covariance: NDArray[np.float64] | None = None
        self.enter(context)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._count

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """Copies of the ``n x D`` inputs and the ``n`` labels."""
        n = self._count
        return torch.tensor(self._inputs[:n]), torch.tensor(self._labels[:n])

    @property
    def mean(self) -> NDArray[np.float64]:
        """``num_arms``."""
        n = self._count
        return self._weights[:n] @ self._rows[:n]

    @property
    def variance(self) -> NDArray[np.float64]:
        """``num_arms``, at least 0."""
        return np.maximum(self._variance, 0.0)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """``num_arms x num_arms``."""
        if self._covariance is None:
            rows = self._rows[: self._count]
            self._covariance = self._matrix(self.arms, self.arms) - rows.T @ rows
        return self._covariance

    def enter(self, context: Tensor) -> None:
        """Switch to another context, given by ``context_dim`` numbers."""
        n = self._count
        self.arms = torch.cat([context.expand(len(self._choices), -1), self._choices], dim=-1)
        if n:
            cross = self._matrix(torch.from_numpy(self._inputs[:n]), self.arms)
            self._rows[:n] = self._inverse[:n, :n] @ cross
        self._variance = self.prior_variance - np.square(self._rows[:n]).sum(0)
        self._covariance = None

    def append(self, x: Tensor, label: float) -> None:
        """Add a row of ``D`` numbers (context, action) and a label."""
        n = self._count
        self._reserve(n + 1)
        x = x.unsqueeze(0)
        right = self._matrix(x, self.arms)[0]
        inverse = self._inverse
        cross = np.empty(0)
        if n:
            known = torch.from_numpy(self._inputs[:n])
            cross = inverse[:n, :n] @ self._matrix(known, x)[:, 0]
            right = right - cross @ self._rows[:n]
        pivot = math.sqrt(max(self.prior_variance - float(cross @ cross), 0.0) + self._lam)
        inverse[n, :n] = -(cross @ inverse[:n, :n]) / pivot
        inverse[n, n] = 1.0 / pivot
        row = right / pivot
        self._inputs[n], self._labels[n], self._rows[n] = x.numpy()[0], label, row
        self._weights[n] = inverse[n, : n + 1] @ self._labels[: n + 1]
        self._variance -= np.square(row)
        if self._covariance is not None:
            self._covariance -= np.outer(row, row)
        self._count = n + 1

    def relabel(self, number: int, label: float) -> None:
        """Replace the label of a row."""
        change = label - self._labels[number]
        self._labels[number] = label
        n = self._count
        self._weights[number:n] += change * self._inverse[number:n, number]

    def deviations(self, first: int) -> NDArray[np.float64]:
        """Return the posterior standard deviations at all rows from one on, in any contexts.

        The covariance of the rows is ``lam I - lam^2 (K + lam I)^-1``.
        """
        n, lam = self._count, self._lam
        diagonal = np.square(self._inverse[:n, first:n]).sum(0)
        return np.sqrt(np.maximum(lam - lam**2 * diagonal, 0.0))

    def shrinkage(self, inputs: Tensor) -> NDArray[np.float64]:
        """Return ``R``, ``k x num_arms``, such that further rows lower the covariance by ``R' R``.

        Args:
            inputs: ``k x D`` inputs of the further rows; their labels do not matter.
        """
        n = self._count
        block = self._matrix(inputs, inputs) + self._lam * np.eye(len(inputs))
        cross = self._matrix(inputs, self.arms)
        if n:
            known = torch.from_numpy(self._inputs[:n])
            solved = self._inverse[:n, :n] @ self._matrix(known, inputs)
            block -= solved.T @ solved
            cross -= solved.T @ self._rows[:n]
        return np.linalg.solve(np.linalg.cholesky(block), cross)

    def _matrix(self, X: Tensor, Z: Tensor) -> NDArray[np.float64]:
        return self._kernel.matrix(X, Z).numpy()

    def _reserve(self, needed: int) -> None:
        if needed <= len(self._labels):
            return
        size = max(64, 2 * len(self._labels))
        for name in ("_inputs", "_labels", "_weights", "_rows", "_inverse"):
            old = getattr(self, name)
            width = (size,) if name == "_inverse" else old.shape[1:]
            new = np.zeros((size, *width))
            new[tuple(slice(length) for length in old.shape)] = old
            setattr(self, name, new)


def draw_deviation(
    covariance: NDArray[np.float64], normal: NDArray[np.float64], prior_variance: float
) -> NDArray[np.float64]:
    """Return a draw from a Gaussian with mean 0, up to jitter far below the prior variance.

    Args:
        covariance: ``num_arms x num_arms``.
        normal: ``num_arms`` independent standard normal numbers.
        prior_variance: The unit of the jitter.
    """
    matrix = torch.from_numpy(covariance)
    size = JITTER
    while True:
        raised = matrix + size * prior_variance * torch.eye(len(matrix), dtype=matrix.dtype)
        root, info = torch.linalg.cholesky_ex(raised)
        if int(info) == 0:
            return (root @ torch.from_numpy(normal)).numpy()
        if size > 1e-4:
            raise RuntimeError("a posterior covariance is not positive semi-definite.")
        size *= 10.0


SMALLEST_NOISE = 1e-4
"""The smallest fitted noise variance, which is a standard deviation of 0.01."""

LENGTHSCALES, VARIANCES = (0.01, 100.0), (1e-4, 10.0)
"""Bounds of the fitted lengthscales and prior variances; rewards and inputs have size 1."""

MOST_ITERATIONS = 50
"""The largest number of iterations of a fit."""

FEWEST_ROWS = 5
"""The smallest number of rows for a fit."""


@dataclass(frozen=True, eq=False)
class ContextualTask:
    """Rewards by context and action.

    Attributes:
        contexts: ``num_contexts x context_dim``.
        choices: ``num_arms x d`` actions.
        values: ``num_contexts x num_arms`` rewards, in [0, 1]; outcomes have no noise.
        sequence: ``num_rounds``; the context of each round.
    """

    contexts: Tensor
    choices: Tensor
    values: Tensor
    sequence: tuple[int, ...]

    @cached_property
    def regrets(self) -> Tensor:
        """``num_contexts x num_arms``; the best value in the context minus the value."""
        return self.values.amax(-1, keepdim=True) - self.values


@dataclass(frozen=True, eq=False)
class ContextualStudy(ArmsStudy):
    """Tasks by trial; see :class:`ArmsStudy`.

    Attributes:
        make_task: Maps the seed of a trial to its task. Nothing is computed before it is called.
    """

    make_task: Callable[[int], ContextualTask] = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """A squared exponential kernel over (context, action), and the modeled noise.

    Attributes:
        lengthscales: One per dimension, contexts first.
        variance: The prior variance.
        noise: The noise variance.
    """

    lengthscales: tuple[float, ...]
    variance: float
    noise: float

    def build_kernel(self) -> ScaleKernel:
        """Return the kernel."""
        base = RBFKernel(
            ard_num_dims=len(self.lengthscales), lengthscale_constraint=Interval(*LENGTHSCALES)
        )
        kernel = ScaleKernel(base, outputscale_constraint=Interval(*VARIANCES)).double()
        kernel.base_kernel.lengthscale = torch.tensor(self.lengthscales, dtype=torch.float64)
        kernel.outputscale = torch.tensor(self.variance, dtype=torch.float64)
        return kernel

    def read(self) -> StationaryKernel:
        """Return the kernel in closed form."""
        read = StationaryKernel.read(self.build_kernel())
        assert read is not None
        return read

    def fit(self, X: Tensor, y: Tensor, seed: int) -> Hyperparameters:
        """Return hyperparameters with a larger marginal likelihood, searching from these.

        The prior mean is 0. With too few rows, or if the search fails, these hyperparameters are
        returned.

        Args:
            X: ``n x D`` inputs.
            y: ``n`` labels.
            seed: Seeds the draws of the search when it retries.
        """
        if len(X) < FEWEST_ROWS:
            return self
        model = BanditGP(
            X,
            y.unsqueeze(-1),
            kernel=self.build_kernel(),
            noise=self.noise,
            learn_hyperparameters=True,
        )
        constraint = GreaterThan(SMALLEST_NOISE)
        model.likelihood.noise_covar.register_constraint("raw_noise", constraint)
        model.likelihood.noise = torch.tensor(max(self.noise, 1.01 * SMALLEST_NOISE)).to(X)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        try:
            with seeded_globally(seed), warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # warnings about the limit of iterations and about jitter
                fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": MOST_ITERATIONS}})
        except ModelFittingError:
            return self
        kernel = StationaryKernel.read(model.covar_module)
        assert kernel is not None
        fitted = Hyperparameters(
            tuple(kernel.lengthscale.tolist()),
            float(kernel.outputscale),
            max(float(model.likelihood.noise.detach()), SMALLEST_NOISE),
        )
        numbers = np.array([*fitted.lengthscales, fitted.variance, fitted.noise])
        return fitted if bool((np.isfinite(numbers) & (numbers > 0)).all()) else self


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextualMethod(Method):
    """A method with its delays and its treatment of pending queries.

    Attributes:
        draws: Whether it is Thompson sampling; otherwise, it is an upper confidence bound.
        width: A constant (``beta_t``), to which censored feedback adds its sum.
        divides_the_sum: Whether the sum of deviations is divided by the prior variance, as in the
            loop; the authors' released code does not divide it.
        predictive: Whether the deviations of upper confidence bounds, also in the sum, include the
            noise, as in the released code.
        scales_draws: Whether the sum is also added to the width of draws, as in Theorem 3; the
            released code does not add it.
        delays: The number of rounds after which outcomes arrive.
        feedback: How pending queries enter the model.
        refit_rounds: The rounds after which hyperparameters are fitted to the outcomes that the
            method has; if empty, they are fitted to random entries of the table before the first
            round.
        learns_from_pseudo_values: Whether censored feedback fits to all queries with their
            pseudo-values and not only to the outcomes that arrived in time.
    """

    draws: bool
    width: float
    divides_the_sum: bool = False
    predictive: bool = True
    scales_draws: bool = False
    delays: Delays = field(default_factory=lambda: ConstantDelay(0))
    feedback: Feedback = field(default_factory=Hallucinated)
    refit_rounds: tuple[int, ...] = ()
    learns_from_pseudo_values: bool = False


@dataclass(frozen=True, eq=False)
class ContextualPlayer:
    """Plays the tasks of a study one after the other.

    A trial is seeded only by its number, so every method meets the same order of contexts, the same
    delays and the same normal numbers.

    Attributes:
        start: The hyperparameters before the first fit.
        num_sampled: The number of random entries of the table to which given hyperparameters are
            fitted.
    """

    start: Hyperparameters
    num_sampled: int = 500
    _fitted: dict[int, Hyperparameters] = field(default_factory=dict, init=False, repr=False)

    def __call__(
        self, study: ArmsStudy, method: ContextualMethod, on_round: Callable[[int], None]
    ) -> dict[str, Any]:
        """Play a study; see :class:`~papers.delayed_studies.DelayedPlayer`.

        Returns:
            Regrets (``regret``), ``num_functions x num_rounds``.
        """
        assert isinstance(study, ContextualStudy)
        regrets = []
        for i, seed in enumerate(study.seeds):
            task = study.make_task(seed)
            given = self.start
            if not method.refit_rounds:
                if seed not in self._fitted:  # the same for every method
                    self._fitted[seed] = self.fit_to_sample(task, seed)
                given = self._fitted[seed]
            arms = play_task(task, method, given, seed)
            contexts = torch.tensor(task.sequence)
            regrets.append(task.regrets[contexts, torch.tensor(arms)])
            shown = study.num_rounds * i // len(study.seeds)
            for t in range(shown, study.num_rounds * (i + 1) // len(study.seeds)):
                on_round(t + 1)
        return {"regret": torch.stack(regrets).numpy()}

    def fit_to_sample(self, task: ContextualTask, seed: int) -> Hyperparameters:
        """Fit hyperparameters to random entries of a task's table, without repeats."""
        num_arms = len(task.choices)
        order = torch.randperm(task.values.numel(), generator=generator(seed, 0, "sampled entries"))
        entries = order[: self.num_sampled]
        rows, arms = entries // num_arms, entries % num_arms
        X = torch.cat([task.contexts[rows], task.choices[arms]], dim=-1)
        return self.start.fit(X, task.values[rows, arms], derive_seed(seed, 0, "fit"))


def play_task(
    task: ContextualTask, method: ContextualMethod, given: Hyperparameters, seed: int
) -> list[int]:
    """Return the arms that a method plays, one per round.

    Args:
        task: What is played.
        method: The method that plays it.
        given: The hyperparameters until the first refit.
        seed: The seed of the trial.
    """
    state = _State(task, method, given)
    arms = []
    for t, number in enumerate(task.sequence, start=1):
        state.hear(t)
        if t - 1 in method.refit_rounds:
            state.refit(derive_seed(seed, t, "refit"))
        state.enter(number)
        normal = None
        if method.draws:
            stream = generator(seed, t, "thompson")
            normal = torch.randn(len(task.choices), dtype=torch.float64, generator=stream)
        arm = state.choose(normal)
        arms.append(arm)
        state.ask(t, arm, method.delays.of_query(task.choices[arm], seed, t))
    return arms


class _State:
    """One trial with its posterior and its pending outcomes."""

    def __init__(
        self, task: ContextualTask, method: ContextualMethod, given: Hyperparameters
    ) -> None:
        self._task, self._method, self._hyperparameters = task, method, given
        self._context = task.sequence[0]
        self._posterior = self._build()
        self._on_their_way: list[tuple[float, int, float]] = []  # arrival, query, outcome
        self._asked: list[Tensor] = []
        self._in_time: list[int] = []  # rows whose outcome has arrived
        feedback = method.feedback
        self._censored = feedback if isinstance(feedback, Censored) else None
        if self._censored is not None and self._censored.window != "all":
            raise ValueError("the sum of censored feedback is over window='all' here.")
        if self._censored is not None and self._censored.minimum != 0.0:
            raise ValueError(
                f"minimum is {self._censored.minimum}; shift the rewards so that it is 0."
            )

    def enter(self, number: int) -> None:
        """Switch to the context of the round."""
        if number != self._context:
            self._context = number
            self._posterior.enter(self._task.contexts[number])

    def hear(self, t: int) -> None:
        """Add the outcomes that have arrived when the query of round ``t`` is chosen."""
        while self._on_their_way and self._on_their_way[0][0] <= t:
            arrival, query, outcome = heapq.heappop(self._on_their_way)
            if self._censored is None:
                self._posterior.append(self._asked[query], outcome)
            elif self._censored.max_delay is None or (
                arrival - (query + 1) <= self._censored.max_delay
            ):
                self._posterior.relabel(query, outcome)
                self._in_time.append(query)

    def choose(self, normal: Tensor | None) -> int:
        """Return the arm with the largest score; ``normal`` has the numbers of a draw."""
        posterior, width = self._posterior, self._width()
        shrinkage = None
        pending = sorted(query for _, query, _ in self._on_their_way)
        if pending and isinstance(self._method.feedback, Hallucinated):
            shrinkage = posterior.shrinkage(torch.stack([self._asked[q] for q in pending]))
        if normal is None:
            variance = posterior.variance
            if shrinkage is not None:
                variance = np.maximum(variance - np.square(shrinkage).sum(0), 0.0)
            deviation = np.sqrt(variance + self._noise)
        else:
            covariance = posterior.covariance
            if shrinkage is not None:
                covariance = covariance - shrinkage.T @ shrinkage
            deviation = draw_deviation(covariance, normal.numpy(), posterior.prior_variance)
        return int(first_of_the_largest(torch.from_numpy(posterior.mean + width * deviation)))

    def ask(self, t: int, arm: int, delay: float) -> None:
        """Record the query of a round."""
        x = self._posterior.arms[arm]
        self._asked.append(x)
        outcome = float(self._task.values[self._context, arm])
        heapq.heappush(self._on_their_way, (t + max(delay, 1.0), t - 1, outcome))
        if self._censored is not None:
            self._posterior.append(x, 0.0)  # the minimum

    def refit(self, seed: int) -> None:
        """Fit hyperparameters to the outcomes in time, or to all rows with pseudo-values."""
        X, y = self._posterior.rows
        told: slice | list[int] = slice(None)
        if self._censored is not None and not self._method.learns_from_pseudo_values:
            told = sorted(self._in_time)
        self._hyperparameters = self._hyperparameters.fit(X[told], y[told], seed)
        self._posterior = self._build()
        for x, label in zip(X, y.tolist(), strict=True):
            self._posterior.append(x, label)

    def _build(self) -> ContextPosterior:
        known, task = self._hyperparameters, self._task
        context = task.contexts[self._context]
        return ContextPosterior(known.read(), known.noise, task.choices, context)

    @property
    def _noise(self) -> float:
        """The noise in predictive variances, which draws do not include."""
        has_noise = self._method.predictive and not self._method.draws
        return self._hyperparameters.noise if has_noise else 0.0

    def _width(self) -> float:
        """The width; without division by the prior variance, it is that of the paper's code."""
        method, censored = self._method, self._censored
        if censored is None or (method.draws and not method.scales_draws):
            return method.width
        assert censored.max_delay is not None
        assert censored.outcome_bound is not None
        posterior = self._posterior
        first = max(0, posterior.num_rows - int(censored.max_delay))
        deviations = np.sqrt(np.square(posterior.deviations(first)) + self._noise)
        total = censored.outcome_bound * float(deviations.sum())
        return method.width + total / (posterior.prior_variance if method.divides_the_sum else 1.0)
