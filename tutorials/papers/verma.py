"""The synthetic experiments of Verma, Dai and Low 2022: Figures 1 and 5.

The reward is a draw of a Gaussian process with squared exponential kernel and lengthscale 0.02 on
1000 equally spaced points of [0, 1], scaled to [0, 1]. Outcomes arrive after Poisson distributed or
fixed delays. The paper leaves open the noise, the number of rounds and the trials behind its
figures. Here outcomes have no noise (the theory wants them bounded below by the known minimum), and
the model is given: that kernel with prior variance 1 in the units of the scaled reward, prior mean
0, and ``lam = 0.01``. A panel that is not in the paper has ``lam = 1.1``, as the theorem wants it.
The paper refits the model's hyperparameters every 10 rounds instead.

``beta_t = 1``: every method has width 1, to which censored feedback adds the sum of current
deviations over the last ``m`` queries, as in the authors' released code.
"""

from __future__ import annotations

from functools import cache, partial

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    GPUpperConfidenceBound,
)
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.models import double_kernel
from botorch_bandits.problems import (
    ConstantDelay,
    Delays,
    PoissonDelay,
    clamped_eigh,
)
from botorch_bandits.random_streams import generator
from papers.delayed_studies import DelayedMethod, DelayedPlayer
from papers.trials import ArmsExperiment, ArmsStudy

NUM_ARMS, LENGTHSCALE = 1000, 0.02
LAM = 0.01
THEORY_LAM = 1.1
"""The modeled noise variance, in units of the prior variance 1; the theorem has more than 1."""

WIDTH = 1.0
MEAN_DELAY = 10
MEAN_DELAYS = (5, 10, 20)
MAX_DELAYS = (5, 10, 20, 40)

UCB = GPUpperConfidenceBound.with_options(width=WIDTH)
TS = GPThompsonSampling.with_options(width=WIDTH)
FAMILIES: dict[str, tuple[tuple[str, AcquisitionRecipe], ...]] = {
    "UCB": (("GP-UCB-SDF", UCB), ("GP-UCB", UCB), ("GP-BUCB", UCB)),
    "TS": (("GP-TS-SDF", TS), ("asy-TS", TS), ("GP-BTS", TS)),
}
"""Name and acquisition with censored, ignored and hallucinated feedback."""


def synthetic(
    num_trials: int = 50, num_rounds: int = 150, seed: int = 0, chunk: int = 10
) -> list[ArmsExperiment]:
    """Return the panels: five of upper confidence bounds, then five of Thompson sampling.

    Args:
        num_trials: Functions.
        num_rounds: Rounds each.
        seed: Seeds functions, delays and draws; a trial's are the same for every method.
        chunk: Trials in one file; results do not depend on it.
    """
    choices, kernel, _ = _process()
    settings = {
        "seed": seed,
        "num_arms": NUM_ARMS,
        "lengthscale": LENGTHSCALE,
        "width": WIDTH,
        "window": "all",
        "mean_delay": MEAN_DELAY,
        "max_delay": "2 * mean_delay",
        "noise_std": 0.0,
    }
    player = DelayedPlayer(choices, kernel)

    def make_study(first: int, count: int) -> ArmsStudy:
        # trials are played by the loop, which has the kernel itself
        no_matrix = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(no_matrix, draw_rewards(seed, first, count), 0.0, num_rounds, seed, first)

    return [
        ArmsExperiment(
            name=f"verma-{family.lower()}-{panel}",
            title=title,
            published=published,
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=make_study,
            make_methods=partial(_given, methods),
            player=player,
            chunk=chunk,
            settings=settings | {"lam": methods[0].lam},
        )
        for family in FAMILIES
        for panel, title, published, methods in _panels(family)
    ]


def _given(methods: list[DelayedMethod], study: ArmsStudy) -> list[DelayedMethod]:
    return methods


@cache
def _process() -> tuple[Tensor, Kernel, Tensor]:
    """The arms, the kernel, and the square root of the kernel matrix."""
    choices = torch.linspace(0, 1, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
    kernel = double_kernel(RBFKernel(), lengthscale=LENGTHSCALE)
    with torch.no_grad():
        eigenvalues, eigenvectors = clamped_eigh(kernel(choices).to_dense())
    return choices, kernel, eigenvectors * eigenvalues.sqrt() @ eigenvectors.mT


def process_on_arms() -> tuple[Tensor, Kernel]:
    """Return the arms of the functions, and the kernel that they are drawn with."""
    return _process()[:2]


def draw_rewards(seed: int, first: int, count: int) -> Tensor:
    """Return draws of the process, each scaled to [0, 1], ``count x num_arms``.

    Args:
        seed: Of the experiment.
        first: The number of the first trial.
        count: How many trials.
    """
    root = _process()[2]
    rows = []
    for trial in range(first, first + count):
        stream = generator(seed, trial, "gp draw")
        drawn = root @ torch.randn(NUM_ARMS, dtype=torch.float64, generator=stream)
        rows.append((drawn - drawn.min()) / (drawn.max() - drawn.min()))
    return torch.stack(rows)


def _panels(family: str) -> list[tuple[str, str, str, list[DelayedMethod]]]:
    """Name, title, what the paper states, and the methods of each panel of a family."""
    censored, ignored, hallucinated = FAMILIES[family]
    sdf, acquisition = censored

    def waiting(name: str, mean: int, limit: int) -> DelayedMethod:
        name = f"{sdf}, {name}"
        feedback = _censored(limit)
        return DelayedMethod(name, acquisition, LAM, delays=PoissonDelay(mean), feedback=feedback)

    def compared(delays: Delays, lam: float = LAM) -> list[DelayedMethod]:
        ways: list[Feedback] = [_censored(2 * MEAN_DELAY), Ignored(), Hallucinated()]
        return [
            DelayedMethod(name, recipe, lam, delays=delays, feedback=way)
            for (name, recipe), way in zip((censored, ignored, hallucinated), ways, strict=True)
        ]

    of_means = [waiting(f"mean {mean}", mean, 2 * mean) for mean in MEAN_DELAYS]
    of_limits = [waiting(f"m = {limit}", MEAN_DELAY, limit) for limit in MAX_DELAYS]
    figure, compares = ("Figure 1", "cd") if family == "UCB" else ("Figure 5", "ab")
    alike = "" if family == "UCB" else "not shown; for GP-UCB-SDF: "
    best = f"{sdf} has the smallest simple regret"
    return [
        (
            "mean",
            f"{sdf}, Poisson delays, m = 2 mean",
            f"{alike}Figure 1a: larger delays are worse",
            of_means,
        ),
        (
            "limit",
            f"{sdf}, Poisson({MEAN_DELAY}) delays",
            f"{alike}Figure 1b: small m is bad, m = 20 and 40 are alike",
            of_limits,
        ),
        (
            "poisson",
            f"Poisson({MEAN_DELAY}) delays, m = {2 * MEAN_DELAY}",
            f"{figure}{compares[0]}: {best}",
            compared(PoissonDelay(MEAN_DELAY)),
        ),
        (
            "fixed",
            f"delays of {MEAN_DELAY}, m = {2 * MEAN_DELAY}",
            f"{figure}{compares[1]}: {best}",
            compared(ConstantDelay(MEAN_DELAY)),
        ),
        (
            "theory",
            f"Poisson({MEAN_DELAY}) delays, m = {2 * MEAN_DELAY}, lam = {THEORY_LAM}",
            "",
            compared(PoissonDelay(MEAN_DELAY), THEORY_LAM),
        ),
    ]


def _censored(max_delay: int) -> Censored:
    return Censored(minimum=0.0, outcome_bound=1.0, max_delay=max_delay, window="all")
