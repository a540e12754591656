"""The synthetic experiments of Verma, Dai and Low 2022: Figures 1 and 5.

The reward is a draw of a Gaussian process with squared exponential kernel and lengthscale 0.02 on
1000 equally spaced points of [0, 1], scaled to [0, 1]. Outcomes arrive after Poisson distributed or
fixed delays and have no noise. ``m`` is twice the mean delay unless stated otherwise.

The panels of the figures are played as published. The paper (appendix C) specifies the squared
exponential kernel, ``beta_t = 1``, hyperparameters that maximize the marginal likelihood and are
refitted every 10 rounds, and the simple regret of the outcomes that have arrived. The authors'
released code, which is for another experiment, specifies 5 initial points and 100 rounds; the width
``1 + sum`` with the unscaled deviations of the last ``m`` queries, including the noise; unscaled
draws of the posterior; the hyperparameters before the first fit; and that methods that wait for
outcomes play uniformly until two have arrived. We chose the bounds of the lengthscale, far below
and above that of the functions (the code has none), and fit hyperparameters only to the outcomes
that arrived, whereas the code also fits those of censored feedback to the zeros of pending queries.
``verma-factors`` changes these settings one at a time.

Panels whose name ends with ``-given`` use the correct hyperparameters. A panel with ``-theory`` has
``lam = 1.1``, as the theorem requires.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    GPUpperConfidenceBound,
)
from botorch_bandits.models import double_kernel
from botorch_bandits.problems import ConstantDelay, Delays, PoissonDelay, clamped_eigh
from botorch_bandits.random_streams import generator
from papers.delayed_curves import CurveMethod, CurvePlayer, Learned
from papers.delayed_studies import NUM_INITIAL, REFIT_EVERY
from papers.trials import ArmsExperiment, ArmsStudy

NUM_ARMS, LENGTHSCALE = 1000, 0.02
LAM = 0.01
"""The modeled noise variance of given hyperparameters, in units of the prior variance 1."""
THEORY_LAM = 1.1
"""The noise variance for which the theorem holds, which requires more than 1."""

WIDTH = 1.0
MEAN_DELAY = 10
MEAN_DELAYS = (5, 10, 20)
MAX_DELAYS = (5, 10, 20, 40)
NUM_TRIALS, NUM_ROUNDS = 100, 105
ARRIVED_BEFORE_MODEL = 2
"""With fewer outcomes, the baselines of the released code play uniformly."""

UCB = GPUpperConfidenceBound.with_options(width=WIDTH)
TS = GPThompsonSampling.with_options(width=WIDTH)
FAMILIES: dict[str, tuple[tuple[str, AcquisitionRecipe], ...]] = {
    "UCB": (("GP-UCB-SDF", UCB), ("GP-UCB", UCB), ("GP-BUCB", UCB)),
    "TS": (("GP-TS-SDF", TS), ("asy-TS", TS), ("GP-BTS", TS)),
}
"""The name and acquisition with censored, ignored and hallucinated feedback."""

WAYS = ("censored", "ignored", "hallucinated")
COMMON_START = "common start"
"""Added to the names of baselines that choose as soon as the 5 initial points have been asked."""

PUBLISHED_START = Learned(0.1, 1.0, 1.0, lengthscales=(0.005, 2.0))
"""The hyperparameters before the first fit, as in the released code (GPy's noise variance is 1)."""
GIVEN = Learned(LENGTHSCALE, 1.0, LAM)
THEORY = Learned(LENGTHSCALE, 1.0, THEORY_LAM)

DELAYS: dict[str, Delays] = {
    "poisson": PoissonDelay(MEAN_DELAY),
    "fixed": ConstantDelay(MEAN_DELAY),
}


def censored_method(
    family: str, delays: Delays, max_delay: int, name: str = "", **changed: Any
) -> CurveMethod:
    """Return censored feedback as it was published.

    Args:
        family: ``"UCB"`` or ``"TS"``.
        delays: The delays of outcomes.
        max_delay: ``m``.
        name: Added to the method's name.
        **changed: Fields of :class:`~papers.delayed_curves.CurveMethod` with other values.
    """
    sdf = FAMILIES[family][0][0]
    method = CurveMethod(
        f"{sdf}, {name}" if name else sdf,
        "censored",
        delays,
        draws=family == "TS",
        max_delay=max_delay,
        added="nothing" if family == "TS" else "published",
        start=PUBLISHED_START,
    )
    return replace(method, **changed)


def baseline_methods(
    family: str, delays: Delays, name: str = "", **changed: Any
) -> list[CurveMethod]:
    """Return ignored and hallucinated feedback as the released code plays them.

    Args:
        family: ``"UCB"`` or ``"TS"``.
        delays: The delays of outcomes.
        name: Added to the methods' names.
        **changed: Fields of :class:`~papers.delayed_curves.CurveMethod` with other values.
    """
    methods = [
        CurveMethod(
            f"{baseline}, {name}" if name else baseline,
            way,
            delays,
            draws=family == "TS",
            uniform_until=ARRIVED_BEFORE_MODEL,
            start=PUBLISHED_START,
        )
        for (baseline, _), way in zip(FAMILIES[family][1:], WAYS[1:], strict=True)
    ]
    return [replace(method, **changed) for method in methods]


def synthetic(
    num_trials: int = NUM_TRIALS, num_rounds: int = NUM_ROUNDS, seed: int = 0, chunk: int = 10
) -> list[ArmsExperiment]:
    """Return the panels of upper confidence bounds, then those of Thompson sampling.

    Args:
        num_trials: The number of functions.
        num_rounds: The number of rounds of each, including the initial ones.
        seed: Seeds functions, initial points, delays and draws; a trial's are the same for every
            method and panel.
        chunk: Trials per file; results do not depend on it.
    """
    player = curve_player(seed)
    return [
        curve_panel(
            f"verma-{family.lower()}-{panel}",
            title,
            published,
            methods,
            player,
            (num_trials, num_rounds, seed),
            chunk,
        )
        for family in FAMILIES
        for panel, title, published, methods in _panels(family)
    ]


@cache
def curve_player(seed: int) -> CurvePlayer:
    """Return the player of the functions; a process plays what its panels share only once.

    Args:
        seed: The seed of the experiment.
    """
    return CurvePlayer(partial(_one_draw, seed))


def curve_panel(
    name: str,
    title: str,
    published: str,
    methods: list[CurveMethod],
    player: CurvePlayer,
    size: tuple[int, int, int],
    chunk: int = 10,
    kind: type[ArmsExperiment] = ArmsExperiment,
    **more: Any,
) -> ArmsExperiment:
    """Return a panel.

    Args:
        name: A name for files.
        title: A title in words.
        published: The statement of the paper.
        methods: The methods that are played.
        player: The player of the methods.
        size: The numbers of trials and rounds, and the seed.
        chunk: Trials per file.
        kind: The class of the panel.
        **more: Further fields of the panel.
    """
    num_trials, num_rounds, seed = size

    def make_study(first: int, count: int) -> ArmsStudy:
        # the player has the functions
        nothing = torch.empty(0, 0, dtype=torch.float64)
        values = torch.empty(count, 0, dtype=torch.float64)
        return ArmsStudy(nothing, values, 0.0, num_rounds, seed, first)

    return kind(
        name=name,
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=num_rounds,
        make_study=make_study,
        make_methods=partial(_given, methods),
        player=player,
        chunk=chunk,
        settings={
            "seed": seed,
            "num_arms": NUM_ARMS,
            "lengthscale": LENGTHSCALE,
            "noise_std": 0.0,
            "num_initial": NUM_INITIAL,
            "refit_every": REFIT_EVERY,
            "methods": {method.name: repr(replace(method, name="")) for method in methods},
        },
        **more,
    )


def _given(methods: list[CurveMethod], study: ArmsStudy) -> list[CurveMethod]:
    return methods


def _one_draw(seed: int, trial: int) -> Tensor:
    return draw_rewards(seed, trial, 1)[0]


@cache
def _process() -> tuple[Tensor, Kernel, Tensor]:
    """Return the arms, the kernel, and the square root of the kernel matrix."""
    choices = torch.linspace(0, 1, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
    kernel = double_kernel(RBFKernel(), lengthscale=LENGTHSCALE)
    with torch.no_grad():
        eigenvalues, eigenvectors = clamped_eigh(kernel(choices).to_dense())
    return choices, kernel, eigenvectors * eigenvalues.sqrt() @ eigenvectors.mT


def process_on_arms() -> tuple[Tensor, Kernel]:
    """Return the arms of the functions, and the kernel from which they are drawn."""
    return _process()[:2]


def draw_rewards(seed: int, first: int, count: int) -> Tensor:
    """Return draws of the process, each scaled to [0, 1], ``count x num_arms``.

    Args:
        seed: The seed of the experiment.
        first: The number of the first trial.
        count: The number of trials.
    """
    root = _process()[2]
    rows = []
    for trial in range(first, first + count):
        stream = generator(seed, trial, "gp draw")
        drawn = root @ torch.randn(NUM_ARMS, dtype=torch.float64, generator=stream)
        rows.append((drawn - drawn.min()) / (drawn.max() - drawn.min()))
    return torch.stack(rows)


def _panels(family: str) -> list[tuple[str, str, str, list[CurveMethod]]]:
    """Return the name, title, published statement and methods of each panel of a family."""
    sdf = FAMILIES[family][0][0]
    is_ucb = family == "UCB"
    alike = "" if is_ucb else "not shown; for GP-UCB-SDF: "
    figure, compares = ("Figure 1", "cd") if is_ucb else ("Figure 5", "ab")
    best = f"{sdf} has the smallest simple regret"
    twice = 2 * MEAN_DELAY
    # the paper's m is twice the mean delay unless stated otherwise (section 6)
    given: dict[str, Any] = {"start": GIVEN, "learns": False}

    def of_means(**changed: Any) -> list[CurveMethod]:
        return [
            censored_method(family, PoissonDelay(mean), 2 * mean, f"mean {mean}", **changed)
            for mean in MEAN_DELAYS
        ]

    def of_limits(**changed: Any) -> list[CurveMethod]:
        delays = DELAYS["poisson"]
        return [censored_method(family, delays, m, f"m = {m}", **changed) for m in MAX_DELAYS]

    def compared(delays: Delays, name: str = "", **changed: Any) -> list[CurveMethod]:
        censored = censored_method(family, delays, twice, name, **changed)
        return [censored, *baseline_methods(family, delays, name, **changed)]

    def both_starts(delays: Delays) -> list[CurveMethod]:
        early = baseline_methods(family, delays, COMMON_START, uniform_until=0)
        return [*compared(delays), *early]

    words = {"poisson": f"Poisson({MEAN_DELAY}) delays", "fixed": f"delays of {MEAN_DELAY}"}
    means, limits = f"{sdf}, Poisson delays, m = 2 mean", f"{sdf}, {words['poisson']}"
    theory: dict[str, Any] = {"start": THEORY, "learns": False, "predictive": False}
    if not is_ucb:
        theory["added"] = "published"  # the theorem also scales draws
    return [
        ("mean", means, f"{alike}Figure 1a: larger delays are worse", of_means()),
        (
            "limit",
            limits,
            f"{alike}Figure 1b: small m is bad, m = 20 and 40 are alike",
            of_limits(),
        ),
        *(
            (name, f"{words[name]}, m = {twice}", f"{figure}{c}: {best}", both_starts(delays))
            for (name, delays), c in zip(DELAYS.items(), compares, strict=True)
        ),
        *(
            [
                ("mean-given", f"{means}, hyperparameters given", "", of_means(**given)),
                ("limit-given", f"{limits}, hyperparameters given", "", of_limits(**given)),
            ]
            if is_ucb  # the paper does not have these figures for Thompson sampling
            else []
        ),
        *(
            (
                f"{name}-given",
                f"{words[name]}, m = {twice}, hyperparameters given",
                "",
                [*compared(delays, **given), *compared(delays, "learned")],
            )
            for name, delays in DELAYS.items()
        ),
        (
            "theory",
            f"{words['poisson']}, m = {twice}, given, lam = {THEORY_LAM}",
            "",
            compared(DELAYS["poisson"], **theory),
        ),
    ]
