"""Functions on arms whose outcomes arrive late, with hyperparameters given or learned.

The experiments of Verma, Dai and Low 2022 share this module. Each trial has its own loop, because
outcomes arrive out of order and at different rounds in different trials.

Every ``REFIT_EVERY`` rounds, the loop switches to the hyperparameters with the largest marginal
likelihood, as in the experiments of Verma, Dai and Low 2022 (appendix C).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from botorch.exceptions.warnings import OptimizationWarning
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.domains import Arms
from botorch_bandits.evaluation import RunResult, run
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, LateOutcomeWarning
from botorch_bandits.history import History
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.problems import ArmsProblem, ConstantDelay, Delays
from papers.trials import ArmsStudy, Method


@dataclass(frozen=True, kw_only=True)
class DelayedMethod(Method):
    """A method with its delays and its treatment of pending queries.

    Attributes:
        delays: The number of rounds after which outcomes arrive.
        feedback: How pending queries enter the model.
    """

    delays: Delays = field(default_factory=lambda: ConstantDelay(0))
    feedback: Feedback = field(default_factory=Hallucinated)


@dataclass(frozen=True, eq=False)
class DelayedPlayer:
    """Plays every function of a study with one method.

    A trial is seeded only by its number, so every method meets the same function, noise and delays,
    and dividing a study into pieces does not change the results.

    Attributes:
        choices: The arms, ``num_arms x d``.
        kernel: The model's kernel, with prior variance 1.
        prior_mean: The model's prior mean; with censored feedback, the minimum takes its place.
    """

    choices: Tensor
    kernel: Kernel
    prior_mean: float = 0.0

    def __call__(
        self, study: ArmsStudy, method: DelayedMethod, on_round: Callable[[int], None]
    ) -> dict[str, Any]:
        """Play a study.

        Args:
            study: The study to play.
            method: The method that plays it.
            on_round: Called with the numbers of rounds, once for each round of all functions that
                has been played; the functions are played one after the other.

        Returns:
            Regrets (``regret``) and simple regrets (``simple_regret``), each
            ``num_functions x num_rounds``.
        """
        regrets, simple = [], []
        num_functions = len(study.values)
        for i in range(num_functions):
            result = self._play_one(study, method, i)
            regrets.append(result.regret)
            max_delay = None
            if isinstance(method.feedback, Censored):
                max_delay = method.feedback.max_delay
            worst = float(study.values[i].max() - study.values[i].min())
            simple.append(simple_regret_in_time(result, max_delay).clamp_max(worst))
            shown = study.num_rounds * i // num_functions
            for t in range(shown, study.num_rounds * (i + 1) // num_functions):
                on_round(t + 1)
        return {
            "regret": torch.stack(regrets).numpy(),
            "simple_regret": torch.stack(simple).numpy(),
        }

    def _play_one(self, study: ArmsStudy, method: DelayedMethod, i: int) -> RunResult:
        assert isinstance(method.acquisition, AcquisitionRecipe)
        noise_std = study.noise_std
        noise = float(noise_std[i]) if isinstance(noise_std, Tensor) else float(noise_std)
        loop = BanditLoop(
            Arms(self.choices),
            BanditGP.with_kernel(self.kernel, noise=float(method.lam), prior_mean=self.prior_mean),
            method.acquisition,
            feedback=method.feedback,
            seed=study.seeds[i],
            clock=lambda: 0.0,
        )
        problem = ArmsProblem(self.choices, study.values[i], noise or None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LateOutcomeWarning)  # the experiments rely on them
            return run(loop, problem, study.num_rounds, delays=method.delays, progress=False)


def simple_regret_in_time(result: RunResult, max_delay: float | None) -> Tensor:
    """Return the smallest regret among outcomes that had arrived, excluding those given up.

    Args:
        result: A run, starting with its first round.
        max_delay: ``m``, in rounds; outcomes with a longer delay never count. None counts all.

    Returns:
        One number per round, which is infinite before the first arrival.
    """
    if max_delay is None or result.arrivals is None:
        return result.simple_regret
    rounds = torch.arange(1, len(result.arrivals) + 1, dtype=torch.float64)
    late = result.arrivals + 1.0 - rounds > max_delay
    return replace(result, arrivals=result.arrivals.masked_fill(late, torch.inf)).simple_regret


REFIT_EVERY = 10
NUM_INITIAL = 5
FEWEST_ROWS = 5
"""With fewer rows, the initial hyperparameters are kept."""

LENGTHSCALES, PRIOR_VARIANCES = (0.05, 2.0), (0.01, 10.0)
SMALLEST_NOISE = 1e-4
"""Bounds of the hyperparameters, relative to the box and in squared units of the reward."""


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of a model with a squared exponential kernel.

    Attributes:
        lengthscale: The lengthscale, the same for all dimensions.
        prior_variance: The prior variance, in squared units of the reward.
        noise: The modeled noise variance, in squared units of the reward.
        lengthscales: Bounds of the learned lengthscale.
    """

    lengthscale: float = 0.2
    prior_variance: float = 1.0
    noise: float = 0.01
    lengthscales: tuple[float, float] = field(default=LENGTHSCALES, repr=False)

    def kernel(self) -> Kernel:
        """Return the kernel, float64, with bounds for learning."""
        base = RBFKernel(lengthscale_constraint=Interval(*self.lengthscales))
        kernel = ScaleKernel(base, outputscale_constraint=Interval(*PRIOR_VARIANCES)).double()
        # GPyTorch would round a Python number to float32
        base.lengthscale = torch.tensor(self.lengthscale, dtype=torch.float64)
        kernel.outputscale = torch.tensor(self.prior_variance, dtype=torch.float64)
        return kernel


@dataclass(frozen=True, kw_only=True)
class LearnedMethod(DelayedMethod):
    """A method whose model is learned; ``lam`` is the initial noise variance.

    Attributes:
        learns_from_pseudo_values: Whether censored feedback fits to all queries with their
            pseudo-values and not only to the outcomes that arrived in time.
    """

    learns_from_pseudo_values: bool = False


@dataclass(frozen=True, eq=False)
class LearnedPlayer:
    """Plays tabulated functions; each table is made when its trial is first played.

    Trials are seeded only by their number. The model's prior mean is 0 for every method, which
    censored feedback needs if 0 is the minimum.

    Attributes:
        choices: The arms in the unit cube, ``num_arms x d``.
        tabulate: Maps a trial's number to its rewards, ``num_arms``.
        tables: The tables that were made, by trial.
        start: The initial hyperparameters, except for the noise, which is the method's.
        learns: Whether hyperparameters are learned or stay the same.
        as_published: Whether censored feedback uses the width and the draws of the released code.
    """

    choices: Tensor
    tabulate: Callable[[int], Tensor]
    tables: dict[int, Tensor] = field(default_factory=dict)
    start: Hyperparameters = field(default_factory=Hyperparameters)
    learns: bool = True
    as_published: bool = True

    def __call__(
        self, study: ArmsStudy, method: LearnedMethod, on_round: Callable[[int], None]
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
        regrets, simple = [], []
        num_functions = len(study.values)
        feedback = method.feedback
        max_delay = feedback.max_delay if isinstance(feedback, Censored) else None
        for i, seed in enumerate(study.seeds):
            values = self._table(study.first_trial + i)
            result = self.play_one(values, method, seed, study.num_rounds)
            regrets.append(result.regret)
            worst = float(values.max() - values.min())
            simple.append(simple_regret_in_time(result, max_delay).clamp_max(worst))
            shown = study.num_rounds * i // num_functions
            for t in range(shown, study.num_rounds * (i + 1) // num_functions):
                on_round(t + 1)
        return {
            "regret": torch.stack(regrets).numpy(),
            "simple_regret": torch.stack(simple).numpy(),
        }

    def play_one(
        self, values: Tensor, method: LearnedMethod, seed: int, num_rounds: int
    ) -> RunResult:
        """Play one function.

        Args:
            values: Its rewards, ``num_arms``.
            method: The method that plays it.
            seed: Seeds initial queries, delays and draws.
            num_rounds: The number of rounds.
        """
        domain, problem = Arms(self.choices), ArmsProblem(self.choices, values)
        history = History(domain.dim)
        while history.num_queries < num_rounds:
            learned = self._learn(history, method)
            loop = self._loop(domain, learned, method, seed, history)
            count = min(REFIT_EVERY, num_rounds - history.num_queries)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LateOutcomeWarning)  # the experiments rely on them
                run(loop, problem, count, delays=method.delays, progress=False)
        played = domain.index_of(history.inputs())
        outcomes = [history.outcome(query.id) for query in history.queries]
        arrivals = [torch.inf if outcome is None else outcome.arrived_round for outcome in outcomes]
        return RunResult(
            history,
            values[played],
            values[played],
            float(values.max()),
            torch.tensor(arrivals, dtype=torch.float64),
        )

    def _table(self, trial: int) -> Tensor:
        if trial not in self.tables:
            self.tables[trial] = self.tabulate(trial)
        return self.tables[trial]

    def _loop(
        self,
        domain: Arms,
        learned: Hyperparameters,
        method: LearnedMethod,
        seed: int,
        history: History,
    ) -> BanditLoop:
        feedback = method.feedback
        if isinstance(feedback, Censored) and self.as_published:
            feedback = replace(feedback, **Censored.as_published)
        return BanditLoop(
            domain,
            BanditGP.with_kernel(learned.kernel(), noise=learned.noise),
            method.acquisition,
            feedback=feedback,
            num_initial=NUM_INITIAL,
            seed=seed,
            clock=lambda: 0.0,
            history=history,
        )

    def _learn(self, history: History, method: LearnedMethod) -> Hyperparameters:
        start = replace(self.start, noise=float(method.lam))
        X, Y = rows_to_learn_from(history, method)
        if len(X) < FEWEST_ROWS or not self.learns:
            return start
        return learn(X, Y, start)


def rows_to_learn_from(history: History, method: LearnedMethod) -> tuple[Tensor, Tensor]:
    """Return the inputs and outcomes to which hyperparameters are fitted.

    Args:
        history: The queries and outcomes.
        method: The method; outcomes that its feedback calls late are left out or have
            pseudo-values.

    Returns:
        ``n x d`` inputs and ``n x 1`` outcomes.
    """
    if not isinstance(method.feedback, Censored):
        return history.arrived()
    view = method.feedback.view(history, history.num_queries + 1, 0.0)
    minimum = method.feedback.minimum
    labels = [minimum if reward is None else reward for reward in view.rewards]
    Y = torch.tensor(labels, dtype=torch.float64).unsqueeze(-1)
    X = history.inputs()
    if method.learns_from_pseudo_values:
        return X, Y
    told = torch.tensor([reward is not None for reward in view.rewards], dtype=torch.bool)
    return X[told], Y[told]


def learn(X: Tensor, Y: Tensor, start: Hyperparameters) -> Hyperparameters:
    """Return the hyperparameters with the largest marginal likelihood, within the bounds above.

    Args:
        X: ``n x d`` inputs; rows may repeat.
        Y: ``n x 1`` outcomes, with prior mean 0.
        start: The start of the search.
    """
    recipe = BanditGP.with_kernel(start.kernel(), noise=start.noise, refit_every=len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizationWarning)  # the tolerance is too tight
        model = recipe.builder(seed=0, collapses=True)(X, Y)
    kernel = model.covar_module
    assert isinstance(kernel, ScaleKernel)
    return replace(
        start,
        lengthscale=_within(kernel.base_kernel.lengthscale.item(), start.lengthscales),
        prior_variance=_within(kernel.outputscale.item(), PRIOR_VARIANCES),
        noise=max(model.likelihood.noise.item(), SMALLEST_NOISE),
    )


def _within(value: float, bounds: tuple[float, float]) -> float:
    """Stay away from the bounds, where the kernel's own parameter is infinite."""
    low, high = bounds
    return min(max(value, low * (1.0 + 1e-6)), high * (1.0 - 1e-6))
