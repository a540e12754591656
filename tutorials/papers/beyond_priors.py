"""Beyond the papers: a prior that is not known.

Every method plays draws of a Gaussian process on 200 points of the unit interval. The oracle knows
the lengthscale, output scale and noise; the other methods have a list of 36 priors or learn them.
In two panels, the true prior is on the list; in one, it lies between the entries; and in one, it
has another kernel. No theorem covers the last two. A smaller panel is on a box. The constants were
fixed beforehand: bounds fail with probability 0.1, and practical bounds have width 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits import (
    AcquisitionRecipe,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    GPUpperConfidenceBound,
)
from botorch_bandits.acquisition import ArmsEngine
from botorch_bandits.domains import first_of_the_largest
from botorch_bandits.models import candidate_grid
from botorch_bandits.random_streams import RandomBlocks, derive_seed
from botorch_bandits.simulation import play_arms
from papers.environments import CandidatesReplicates
from papers.results import write_csv
from papers.trials import ArmsExperiment, ArmsStudy, Curves, Method

LENGTHSCALES, RATIOS, SCALES = (0.05, 0.1, 0.2, 0.4), (0.001, 0.01, 0.1), (0.25, 1.0, 4.0)
"""The list has all combinations, with squared exponential kernels; a ratio is noise over scale."""

DELTA, WIDTH = 0.1, 2.0

TRIALS_ON_BOX, ROUNDS_ON_BOX = 8, 30
"""The largest numbers of trials and rounds on a box, where rounds take a hundred times as long."""

FITTED_LENGTHSCALES = torch.logspace(math.log10(0.02), 0.0, 24, dtype=torch.float64)
FITTED_RATIOS = torch.logspace(-4.0, 0.0, 9, dtype=torch.float64)
"""The grid on which the likelihood is maximized or integrated, with a closed-form output scale."""


@dataclass(frozen=True)
class Truth:
    """The prior from which rewards are drawn.

    Attributes:
        title: A title in words.
        lengthscale: The lengthscale of the kernel.
        scale: The output scale.
        ratio: Noise variance over output scale.
        smoothness: ``nu`` of a Matern kernel, or infinity.
    """

    title: str
    lengthscale: float
    scale: float
    ratio: float
    smoothness: float = math.inf

    @property
    def kernel(self) -> Kernel:
        """The kernel of the prior."""
        (entry,) = candidate_grid(
            [self.lengthscale], scales=[self.scale], smoothness=[self.smoothness]
        )
        return entry.kernel


TRUTHS = {
    "listed": Truth("lengthscale 0.1, scale 1: on the list", 0.1, 1.0, 0.01),
    "rough": Truth("lengthscale 0.05, scale 4: on the list", 0.05, 4.0, 0.01),
    "between": Truth("lengthscale 0.14, scale 2: between its entries", 0.14, 2.0, 0.03),
    "matern": Truth("Matern 5/2, lengthscale 0.2: another kernel", 0.2, 1.0, 0.01, 2.5),
}
"""The true priors, by panel."""


@dataclass(frozen=True)
class PriorMethod(Method):
    """A method that knows the prior, has a list of priors, or learns the prior.

    Attributes:
        form: ``"oracle"``, ``"list"``, ``"fitted"``, ``"integrated"`` or ``"sampled"``.
        bounds: Whether its bounds are evaluated.
    """

    form: str = "oracle"
    bounds: bool = False


@cache
def points_of(num_arms: int) -> Arms:
    """Return evenly spaced points of the unit interval.

    Args:
        num_arms: The number of arms.
    """
    return Arms(torch.linspace(0.0, 1.0, num_arms, dtype=torch.float64).unsqueeze(-1))


@cache
def list_of_priors() -> Any:
    """Return the recipe of the list of priors, with equal weights."""
    return BanditGP.with_candidates(
        candidate_grid(LENGTHSCALES, RATIOS, SCALES, smoothness=[math.inf])
    )


def play_priors(
    study: ArmsStudy, method: Method, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play a study with a method.

    Returns:
        ``regret``, ``num_trials x num_rounds``; if bounds are evaluated, also ``covered`` and
        ``mean_width``.
    """
    assert isinstance(method, PriorMethod)
    if method.form in ("fitted", "integrated", "sampled"):
        return {"regret": _play_learned(study, method.form, on_round).numpy()}
    arms = points_of(len(study.kernel_matrix))
    engine: Any
    if method.form == "list":
        engine = CandidatesReplicates(list_of_priors(), method.acquisition, arms, study.seeds)
    else:
        assert isinstance(method.acquisition, AcquisitionRecipe)
        rule = method.acquisition.arms_rule(arms)
        engine = ArmsEngine(rule, study.prior, method.lam, 1.0, study.seeds)
    played = play_arms(
        engine,
        study.values,
        study.noise_std,
        study.num_rounds,
        study.seeds,
        with_bounds=method.bounds,
        on_round=on_round,
    )
    piece: dict[str, Any] = {"regret": played.regret.numpy()}
    if played.covered is not None and played.mean_width is not None:
        piece["covered"] = played.covered.numpy()
        piece["mean_width"] = played.mean_width.numpy()
    return piece


NEGLIGIBLE = 1e-4
"""Hyperparameters below this share of the largest probability are left out."""


def fitted_posterior(
    X: Tensor, y: Tensor, points: Tensor, is_integrated: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of a squared exponential model that learns its hyperparameters.

    Args:
        X: ``n`` inputs.
        y: ``n x 1`` outcomes.
        points: ``m`` points.
        is_integrated: Whether to integrate over lengthscale and noise ratio on the grid, under a
            log-uniform prior, and over the output scale ``s`` in closed form, under the prior ``1 /
            s``. If False, the hyperparameters are those that make the outcomes most likely.
    """
    n = len(y)
    squared = (X.unsqueeze(-1) - X).square()
    kernels = torch.exp(-0.5 * squared / FITTED_LENGTHSCALES.reshape(-1, 1, 1, 1).square())
    noise = FITTED_RATIOS.reshape(-1, 1, 1) * torch.eye(n, dtype=torch.float64)
    factors = torch.linalg.cholesky(kernels + noise).reshape(-1, n, n)
    half = torch.linalg.solve_triangular(factors, y.expand(len(factors), n, 1), upper=False)
    scales = half.squeeze(-1).square().sum(-1).clamp_min(1e-300) / n
    fits = -0.5 * n * scales.log() - factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    if is_integrated:
        kept = (fits > fits.max() + math.log(NEGLIGIBLE)).nonzero().squeeze(-1)
        scales = scales * (n / max(n - 2, 1))  # the mean of the scale, if it exists
    else:
        kept = fits.argmax().reshape(1)
    lengthscales = FITTED_LENGTHSCALES[kept // len(FITTED_RATIOS)].reshape(-1, 1, 1)
    cross = torch.exp(-0.5 * ((X.unsqueeze(-1) - points) / lengthscales).square())
    rows = torch.linalg.solve_triangular(factors[kept], cross, upper=False)
    means = (rows * half[kept]).sum(-2)
    variances = (1.0 - rows.square().sum(-2)).clamp_min(0.0) * scales[kept].unsqueeze(-1)
    weights = fits[kept].softmax(0)
    mean = weights @ means
    return mean, weights @ (variances + (means - mean).square())


@dataclass(frozen=True)
class Samples:
    """Hyperparameters that BoTorch drew from their posterior, given standardized outcomes.

    Attributes:
        lengthscale: Lengthscales of the Matern 5/2 kernel, ``num_samples``.
        noise: Noise variances, ``num_samples``; the output scale is 1.
        constant: Prior means, ``num_samples``.
        center: What was subtracted from the outcomes.
        unit: What they were then divided by.
    """

    lengthscale: Tensor
    noise: Tensor
    constant: Tensor
    center: float
    unit: float


def sample_hyperparameters(X: Tensor, y: Tensor, seed: int) -> Samples:
    """Sample with BoTorch's fully Bayesian model, by Hamiltonian Monte Carlo.

    Args:
        X: ``n`` inputs.
        y: ``n x 1`` outcomes.
        seed: The seed of the chain.

    Raises:
        ImportError: If the packages that BoTorch needs for sampling are not installed.
    """
    from botorch.fit import fit_fully_bayesian_model_nuts
    from botorch.models.fully_bayesian import FullyBayesianSingleTaskGP

    center, unit = float(y.mean()), float(y.std())
    model = FullyBayesianSingleTaskGP(X.unsqueeze(-1), (y - center) / unit)
    fit_fully_bayesian_model_nuts(
        model,
        warmup_steps=WARMUP,
        num_samples=WARMUP,
        thinning=THINNING,
        disable_progbar=True,
        seed=seed,
    )
    return Samples(
        model.covar_module.lengthscale.detach().reshape(-1),
        model.likelihood.noise.detach().reshape(-1),
        model.mean_module.constant.detach().reshape(-1),
        center,
        unit,
    )


WARMUP, THINNING, EVERY = 64, 4, 5
"""The steps for warming up and again for sampling, the thinning, and the rounds between chains."""


def sampled_posterior(
    X: Tensor, y: Tensor, points: Tensor, samples: Samples
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of the mixture of posteriors, one for each sample.

    Args:
        X: ``n`` inputs.
        y: ``n x 1`` outcomes, possibly more than the samples were drawn with.
        points: ``m`` points.
        samples: Samples of the hyperparameters.
    """
    lengthscales = samples.lengthscale.reshape(-1, 1, 1)

    def kernel(A: Tensor, B: Tensor) -> Tensor:
        r = math.sqrt(5.0) * (A.unsqueeze(-1) - B).abs() / lengthscales
        return (1.0 + r + r.square() / 3.0) * torch.exp(-r)

    noise = samples.noise.reshape(-1, 1, 1) * torch.eye(len(y), dtype=torch.float64)
    factors = torch.linalg.cholesky(kernel(X, X) + noise)
    rows = torch.linalg.solve_triangular(factors, kernel(X, points), upper=False)
    constant = samples.constant.reshape(-1, 1, 1)
    left = (y - samples.center) / samples.unit - constant
    half = torch.linalg.solve_triangular(factors, left, upper=False)
    means = constant.squeeze(-1) + (rows * half).sum(-2)
    variances = (1.0 - rows.square().sum(-2)).clamp_min(0.0)
    mean = means.mean(0)
    variance = (variances + (means - mean).square()).mean(0)
    return samples.center + samples.unit * mean, samples.unit**2 * variance


def _play_learned(study: ArmsStudy, form: str, on_round: Callable[[int], None]) -> Tensor:
    """Maximize the mean plus two deviations of a model that learns its hyperparameters."""
    points = points_of(len(study.kernel_matrix)).choices.squeeze(-1)
    count, rounds = len(study.values), study.num_rounds
    noise = RandomBlocks(study.seeds, "noise")
    uniform = RandomBlocks(study.seeds, "sample", (), "uniform")
    arms = torch.zeros(count, rounds, dtype=torch.long)
    outcomes = torch.zeros(count, rounds, dtype=torch.float64)
    first = FIRST if form == "sampled" else 1
    samples: dict[int, Samples] = {}
    for t in range(rounds):
        if t < first:
            arms[:, t] = (uniform.at(t + 1) * len(points)).long()
        else:
            for b, seed in enumerate(study.seeds):
                X, y = points[arms[b, :t]], outcomes[b, :t].unsqueeze(-1)
                if form == "sampled":
                    if (t - first) % EVERY == 0:
                        chain = derive_seed(seed, t, "chain") % 2**31
                        samples[b] = sample_hyperparameters(X, y, chain)
                    mean, variance = sampled_posterior(X, y, points, samples[b])
                else:
                    mean, variance = fitted_posterior(X, y, points, form == "integrated")
                arms[b, t] = first_of_the_largest(mean + WIDTH * variance.sqrt())
        values = study.values.gather(-1, arms[:, t : t + 1]).squeeze(-1)
        outcomes[:, t] = values + study.noise_std * noise.at(t + 1)
        on_round(t + 1)
    return study.values.amax(-1, keepdim=True) - study.values.gather(-1, arms)


FIRST = 3
"""The number of uniform points before the first sampling; one or two outcomes have no spread."""


def priors(
    num_trials: int = 20, num_rounds: int = 80, seed: int = 0, num_arms: int = 200, chunk: int = 20
) -> list[ArmsExperiment]:
    """Return a panel for each true prior.

    Args:
        num_trials: The number of rewards per panel.
        num_rounds: The horizon.
        seed: Seeds rewards, noise and draws.
        num_arms: Evenly spaced points of the unit interval.
        chunk: Trials per file.
    """
    settings = {
        "seed": seed,
        "num_arms": num_arms,
        "list": (LENGTHSCALES, RATIOS, SCALES),
        "delta": DELTA,
        "width": WIDTH,
    }
    panels = [
        ArmsExperiment(
            name=f"beyond-priors-{kind}",
            title=truth.title,
            published="",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=partial(_make_study, kind, num_rounds, num_arms, seed),
            make_methods=partial(_methods, kind),
            player=play_priors,
            chunk=chunk,
            settings={**settings, "truth": repr(truth)},
        )
        for kind, truth in TRUTHS.items()
    ]
    on_box = ArmsExperiment(
        name="beyond-priors-box",
        title=ON_BOX.title,
        published="",
        num_trials=min(num_trials, TRIALS_ON_BOX),
        num_rounds=min(num_rounds, ROUNDS_ON_BOX),
        make_study=partial(_make_box_study, min(num_rounds, ROUNDS_ON_BOX), seed),
        make_methods=_box_methods,
        player=play_on_box,
        chunk=min(chunk, 4),
        settings={**settings, "truth": repr(ON_BOX)},
    )
    return [*panels, on_box]


def _make_study(
    kind: str, num_rounds: int, num_arms: int, seed: int, first: int, count: int
) -> ArmsStudy:
    own = derive_seed(seed, 0, f"beyond-priors-{kind}")
    truth = ON_BOX if kind == "box" else TRUTHS[kind]
    points = points_of(num_arms).choices
    with torch.no_grad():
        matrix = truth.kernel(points).to_dense()
    values, vectors = torch.linalg.eigh(matrix)
    root = vectors * values.clamp_min(0.0).sqrt()
    seeds = [derive_seed(own, trial, "reward") for trial in range(first, first + count)]
    normal = RandomBlocks(seeds, "reward", (num_arms,)).at(1)
    return ArmsStudy(
        kernel_matrix=matrix,
        values=normal @ root.mT,
        noise_std=math.sqrt(truth.ratio * truth.scale),
        num_rounds=num_rounds,
        seed=own,
        first_trial=first,
    )


def _methods(kind: str, study: ArmsStudy) -> list[PriorMethod]:
    truth = TRUTHS[kind]
    method = partial(PriorMethod, lam=truth.ratio * truth.scale)
    theorem, width = {"delta": DELTA}, {"width": WIDTH}
    ours, oracle = CandidatesUpperConfidenceBound, GPUpperConfidenceBound
    return [
        method("oracle, Theorem 1", oracle.with_options(**theorem), bounds=True),
        method("survivors", ours.with_options(**theorem), form="list", bounds=True),
        method("oracle, width 2", oracle.with_options(**width)),
        method("mixture, width 2", ours.with_options(form="mixture", **width), form="list"),
        method("Thompson sampling", CandidatesThompsonSampling.with_options(), form="list"),
        method("marginal likelihood, width 2", oracle.with_options(**width), form="fitted"),
        method("fully Bayesian, width 2", oracle.with_options(**width), form="integrated"),
    ]


def sampled(
    num_trials: int = 6, num_rounds: int = 33, seed: int = 0, num_arms: int = 200, chunk: int = 6
) -> list[ArmsExperiment]:
    """Return panels that include BoTorch's fully Bayesian model, with which a round takes seconds.

    Args:
        num_trials: The number of rewards per panel, which are those of :func:`priors`.
        num_rounds: The horizon.
        seed: Seeds rewards, noise and draws.
        num_arms: Evenly spaced points of the unit interval; five times as many represent a box.
        chunk: Trials per file.
    """
    return [
        ArmsExperiment(
            name=f"beyond-priors-sampled-{kind}",
            title=truth.title,
            published="",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=partial(_make_study, kind, num_rounds, count, seed),
            make_methods=partial(_sampled_methods, truth),
            player=play_priors,
            chunk=chunk,
            settings={
                "seed": seed,
                "num_arms": count,
                "list": (LENGTHSCALES, RATIOS, SCALES),
                "width": WIDTH,
                "chains": (WARMUP, THINNING, EVERY, FIRST),
                "truth": repr(truth),
            },
        )
        for kind, truth, count in (
            ("listed", TRUTHS["listed"], num_arms),
            ("matern", TRUTHS["matern"], num_arms),
            ("box", ON_BOX, 5 * num_arms),
        )
    ]


def _sampled_methods(truth: Truth, study: ArmsStudy) -> list[PriorMethod]:
    method = partial(
        PriorMethod,
        acquisition=GPUpperConfidenceBound.with_options(width=WIDTH),
        lam=truth.ratio * truth.scale,
    )
    mixture = CandidatesUpperConfidenceBound.with_options(form="mixture", width=WIDTH)
    return [
        method("oracle, width 2"),
        method("mixture, width 2", acquisition=mixture, form="list"),
        method("marginal likelihood, width 2", form="fitted"),
        method("fully Bayesian, width 2", form="integrated"),
        method("BoTorch's samples, width 2", form="sampled"),
    ]


# on a box

ON_BOX = Truth("a box: lengthscale 0.2, scale 1, on the list", 0.2, 1.0, 0.01)
NUM_FEATURES, FINE = 90, 2001


def draw_on_box(seed: int) -> Callable[[Tensor], Tensor]:
    """Return an exact draw of the process on the unit interval.

    The squared exponential kernel is ``sum_n phi_n(x) phi_n(z)`` with ``phi_n(x) = exp(-u^2 / 2)
    u^n / sqrt(n!)`` and ``u = (x - 1/2) / lengthscale``; the truncation error is below rounding.

    Args:
        seed: The seed of the weights.
    """
    weights = RandomBlocks([seed], "reward", (NUM_FEATURES,)).at(1)[0] * ON_BOX.scale**0.5
    n = torch.arange(NUM_FEATURES, dtype=torch.float64)

    def reward(X: Tensor) -> Tensor:
        u = (X.reshape(-1, 1) - 0.5) / ON_BOX.lengthscale
        sizes = torch.exp(n * u.abs().clamp_min(1e-300).log() - 0.5 * torch.lgamma(n + 1.0))
        signs = torch.where((u < 0.0) & (n % 2 == 1), -1.0, 1.0)
        return (signs * sizes * torch.exp(-0.5 * u.square())) @ weights

    return reward


def slopes(lengthscale: float, scale: float) -> tuple[float, float]:
    """Return ``a`` and ``b`` of Theorem 2 on the unit interval, by Rice's formula.

    Args:
        lengthscale: The lengthscale of a squared exponential kernel.
        scale: Its output scale.
    """
    return 1.0 + math.sqrt(3.0) / (math.pi * lengthscale), math.sqrt(2.0 * scale) / lengthscale


def play_on_box(
    study: ArmsStudy, method: Method, on_round: Callable[[int], None]
) -> dict[str, Any]:
    """Play draws on the unit interval with loops.

    Returns:
        ``regret``, ``num_trials x num_rounds``.
    """
    assert isinstance(method, PriorMethod)
    known = BanditGP.with_kernel(ON_BOX.kernel, noise=ON_BOX.ratio * ON_BOX.scale)
    model = list_of_priors() if method.form == "list" else known
    box, noise = Box([(0.0, 1.0)]), RandomBlocks(study.seeds, "noise")
    regret = torch.zeros(len(study.seeds), study.num_rounds, dtype=torch.float64)
    fine = torch.linspace(0.0, 1.0, FINE, dtype=torch.float64)
    for b, seed in enumerate(study.seeds):
        reward, loop = draw_on_box(seed), BanditLoop(box, model, method.acquisition, seed=seed)
        best = float(reward(fine).max())
        for t in range(study.num_rounds):
            query = loop.ask()
            value = float(reward(query.x))
            loop.tell(query.id, value + study.noise_std * float(noise.at(t + 1)[b]))
            regret[b, t] = best - value
    for t in range(study.num_rounds):
        on_round(t + 1)
    return {"regret": regret.numpy()}


def _make_box_study(num_rounds: int, seed: int, first: int, count: int) -> ArmsStudy:
    return ArmsStudy(
        kernel_matrix=torch.ones(1, 1, dtype=torch.float64),
        values=torch.zeros(count, 1, dtype=torch.float64),
        noise_std=math.sqrt(ON_BOX.ratio * ON_BOX.scale),
        num_rounds=num_rounds,
        seed=derive_seed(seed, 0, "beyond-priors-box"),
        first_trial=first,
    )


def _box_methods(study: ArmsStudy) -> list[PriorMethod]:
    a, b = slopes(ON_BOX.lengthscale, ON_BOX.scale)
    known = {"smoothness_a": a, "smoothness_b": b, "delta": DELTA}
    each = [slopes(length, s) for length, _, s in product(LENGTHSCALES, RATIOS, SCALES)]
    listed = {
        "smoothness_a": [a for a, _ in each],
        "smoothness_b": [b for _, b in each],
        "delta": DELTA,
    }
    method = partial(PriorMethod, lam=ON_BOX.ratio * ON_BOX.scale)
    ours, oracle = CandidatesUpperConfidenceBound, GPUpperConfidenceBound
    width = {"width": WIDTH}
    return [
        method("oracle, Theorem 2", oracle.with_options(**known)),
        method("survivors", ours.with_options(**listed), form="list"),
        method("oracle, width 2", oracle.with_options(**width)),
        method("mixture, width 2", ours.with_options(form="mixture", **width), form="list"),
    ]


def report(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Write the largest regret of each method over all rewards.

    Args:
        experiments: The panels.
        curves: Their results.
        folder: The folder for ``worst.csv``.
    """
    rows = [
        {
            "experiment": experiment.name,
            "method": name,
            "worst": float(curve.regret.sum(-1).max()),
        }
        for experiment, results in zip(experiments, curves, strict=True)
        for name, curve in results.items()
    ]
    write_csv(folder / "worst.csv", rows)
