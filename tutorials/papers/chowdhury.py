"""Experiments of Chowdhury and Gopalan 2017, section 6 (Figures 1 to 4), and what widths cost.

IGP-UCB and GP-TS are compared with GP-UCB, expected improvement and the probability of improvement
on functions of known norm, draws of a Gaussian process, two standard functions and readings of
sensors. Further experiments compare the coverage and the regret of every width of fixed functions
and of draws, and how fast the best arm is found and certified.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from botorch.test_functions import Rosenbrock
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    AMMUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    RandomizedUpperConfidenceBound,
    Replicates,
    TopTwoThompsonSampling,
)
from botorch_bandits.checks import DTYPE, check_integer, check_one_of, check_positive
from botorch_bandits.confidence import GainBound, WaterFillingGain
from botorch_bandits.core.priors import Prior
from botorch_bandits.domains import Arms
from botorch_bandits.models import double_kernel
from botorch_bandits.random_streams import derive_seed, generator
from papers.environments import Hartmann3Reward, SensorData, load_readings
from papers.runner import ArmsExperiment, ArmsStudy, Entry, Method, Row

DELTA = 0.1
SHARE_OF_RANGE = 0.01
"""The noise variance, as a share of a function's range."""
ALMOST_NOTHING = 1e-9
"""Replaces a part of a width that is left out, because bounds must be positive."""


class ConstantGain(GainBound):
    """A fixed number in place of the maximal information gain, as the paper's Figure 4 has it.

    Args:
        value: The information gain in nats.
    """

    is_upper_bound = False

    def __init__(self, value: float) -> None:
        """See the class."""
        self.value = value

    def _bound(self, num_observations: int) -> float:
        return self.value


class RateGain(GainBound):
    r"""A published growth rate times a constant, which is NOT a bound with constant 1.

    ==================  =====================================================================
    ``"linear"``        :math:`d \ln T` (Srinivas et al. 2010, Theorem 5)
    ``"rbf"``           :math:`(\ln T)^{d+1}` (the same)
    ``"matern"``        :math:`T^{d(d+1)/(2\nu+d(d+1))} \ln T` (the same)
    ``"matern-tight"``  :math:`T^{d/(2\nu+d)} (\ln T)^{2\nu/(2\nu+d)}` (Vakili et al. 2021)
    ==================  =====================================================================

    A rate is 0 at ``T = 1``, too.

    Args:
        kernel: One of the names above.
        dim: ``d``.
        nu: The smoothness of the Matern kernel.
        constant: The factor, which the papers do not give.
    """

    is_upper_bound = False

    def __init__(
        self, kernel: str, dim: int, nu: float | None = None, constant: float = 1.0
    ) -> None:
        """See the class."""
        self.kernel = check_one_of("kernel", kernel, ("linear", "rbf", "matern", "matern-tight"))
        self.dim = check_integer("dim", dim, minimum=1)
        self.constant = check_positive("constant", constant)
        if (nu is None) == kernel.startswith("matern"):
            raise ValueError(f"nu is {nu}; it is needed for Matern kernels and only for them.")
        self.nu = 0.0 if nu is None else check_positive("nu", nu)

    def _bound(self, num_observations: int) -> float:
        T, d, nu = float(num_observations), self.dim, self.nu
        if self.kernel == "linear":
            rate = d * math.log(T)
        elif self.kernel == "rbf":
            rate = math.log(T) ** (d + 1)
        elif self.kernel == "matern":
            rate = T ** (d * (d + 1) / (2 * nu + d * (d + 1))) * math.log(T)
        else:
            rate = T ** (d / (2 * nu + d)) * math.log(T) ** (2 * nu / (2 * nu + d))
        return self.constant * rate


def figure_methods(  # noqa: PLR0913 - options, each with a name
    rate: GainBound,
    known_norm: Callable[[ArmsStudy], Tensor] | None,
    study: ArmsStudy,
    *,
    norm: str | float = "judged",
    gain: str = "judged",
    draws: str = "judged",
    incumbent: str = "posterior_mean",
    ei_margin: float = 0.0,
    pi_margin: float = 0.01,
) -> list[Method]:
    """Return the methods of Figures 1 to 4.

    The widths use ``lam = R^2`` as the paper does, which the theorems do not cover. Where ``B`` is
    not known, its square is replaced by ``f' (K + R^2 I)^-1 f`` of each function, which is a LOWER
    bound on the squared norm, so no method has a guarantee there.

    Args:
        rate: The replacement for the maximal information gain.
        known_norm: Maps a study to the norm of each function, if it is known.
        study: The study to play.
        norm: ``"judged"`` as above; ``"printed"`` for ``B^2 = f' K f``, as section 6 has it;
            ``"largest"`` for the largest absolute reward; or a number.
        gain: ``"judged"``; ``"realized"`` for the gain of the arms that were played, without which
            Theorem 3 is not proven, so GP-UCB keeps the rate; or ``"water-filling"``.
        draws: The scale ``v_t`` of GP-TS: ``"judged"``, its first part ``"B"``, its second part
            ``"R"``, or ``"unit"`` for 1.
        incumbent: What EI and PI improve on, ``"posterior_mean"`` or ``"observed"``.
        ei_margin: The margin of EI.
        pi_margin: The margin of PI.
    """
    check_one_of("gain", gain, ("judged", "realized", "water-filling"))
    check_one_of("draws", draws, ("judged", "B", "R", "unit"))
    noise = torch.as_tensor(study.noise_std, dtype=torch.float64)
    bound = _norms(study, norm, known_norm)
    if gain == "water-filling":
        rate = WaterFillingGain(study.kernel_matrix, float(noise) ** 2)
    theorem_three: dict[str, Any] = {"rkhs_bound": bound, "delta": DELTA, "information_gain": rate}
    widths = {**theorem_three, "noise_bound": noise}
    if gain == "realized":
        del widths["information_gain"]
    scales: dict[str, dict[str, Any]] = {
        "judged": widths,
        "B": {**widths, "noise_bound": ALMOST_NOTHING},
        "R": {**widths, "rkhs_bound": ALMOST_NOTHING},
        "unit": {"width": 1.0},
    }
    acquisitions = {
        "GP-UCB (Theorem 3)": GPUpperConfidenceBound.with_options(**theorem_three),
        "IGP-UCB": ImprovedUpperConfidenceBound.with_options(**widths),
        "GP-TS": GPThompsonSampling.with_options(**scales[draws]),
        "GP-EI": LogExpectedImprovement.with_options(incumbent=incumbent, margin=ei_margin),
        "GP-PI": LogProbabilityOfImprovement.with_options(incumbent=incumbent, margin=pi_margin),
    }
    return [Method(name, recipe, noise**2) for name, recipe in acquisitions.items()]


def _norms(
    study: ArmsStudy, norm: str | float, known: Callable[[ArmsStudy], Tensor] | None
) -> Tensor:
    """Return ``B`` of each function."""
    if norm == "printed":
        return (study.values @ study.kernel_matrix * study.values).sum(-1).sqrt()
    if norm == "largest":
        return study.values.abs().amax(-1)
    if norm != "judged":
        return torch.full_like(study.values[:, 0], float(norm))
    if known is not None:
        return known(study)
    noise = torch.as_tensor(study.noise_std, dtype=torch.float64)
    return estimate_norms(study.kernel_matrix, study.values, noise**2)


def estimate_norms(kernel_matrix: Tensor, values: Tensor, ridge: float | Tensor) -> Tensor:
    """Return ``sqrt(f' (K + ridge I)^-1 f)`` of each row, a lower bound on the RKHS norm.

    Args:
        kernel_matrix: ``num_arms x num_arms``.
        values: ``num_functions x num_arms``.
        ridge: Greater than 0, one number or one per row; without it, the solution is numerically
            unstable.
    """
    identity = torch.eye(len(kernel_matrix), dtype=kernel_matrix.dtype)
    ridges = torch.as_tensor(ridge, dtype=values.dtype).expand(len(values))
    solution = torch.linalg.solve(kernel_matrix + ridges[:, None, None] * identity, values)
    return (values * solution).sum(-1).clamp_min(0.0).sqrt()


def rkhs(
    num_trials: int = 25,
    num_rounds: int = 30000,
    seed: int = 0,
    norm: str | float = "judged",
    ei_margin: float = 0.0,
    pi_margin: float = 0.01,
) -> list[ArmsExperiment]:
    """Return Figures 1 and 2: functions in the RKHS and draws of the process, on 100 random points.

    ``R^2`` is 1% of each function's range and the regularization of every posterior. A function of
    Figure 1 is the posterior mean of a draw on all arms (with 1% of the draw's range as noise
    variance, which the paper does not specify), so its norm is known. Draws of Figure 2 have no
    norm. The gain is the paper's growth rate. In addition to the paper's methods, the panels have
    DMM, and EI and PI with the best noisy outcome as incumbent, because the paper does not say
    which incumbent it uses. The other options are those of :func:`figure_methods`.
    """
    stream = generator(seed, 0, "chowdhury arms")
    choices = torch.rand(100, 1, dtype=torch.float64, generator=stream)
    kernels = {
        "se": ("squared exponential", RBFKernel(), RateGain("rbf", 1)),
        "matern": ("Matern 5/2", MaternKernel(nu=2.5), RateGain("matern", 1, nu=2.5)),
    }
    options: dict[str, Any] = {"norm": norm, "ei_margin": ei_margin, "pi_margin": pi_margin}
    experiments = []
    for figure, (short, (words, kernel, gain)) in itertools.product((1, 2), kernels.items()):
        kernel_matrix = _matrix(kernel, 0.2, choices)
        what = "functions in the RKHS" if figure == 1 else "draws of the process"
        experiments.append(
            ArmsExperiment(
                name=f"chowdhury-rkhs-{short}-figure{figure}",
                title=f"{what}, {words} (Figure {figure})",
                published="IGP-UCB best, GP-TS next, both far ahead of GP-UCB; EI and PI worse",
                num_trials=num_trials,
                num_rounds=num_rounds,
                make_study=partial(_rkhs_study, kernel_matrix, figure, num_rounds, seed),
                make_methods=partial(_rkhs_methods, figure, gain, options),
                logarithmic=True,
                chunk=25,
                settings={"seed": seed, "figure": figure, "kernel": short, **options},
            )
        )
    return experiments


def _matrix(kernel: Kernel, lengthscale: float, choices: Tensor) -> Tensor:
    with torch.no_grad():
        matrix: Tensor = double_kernel(kernel, lengthscale=lengthscale)(choices).to_dense()
    return matrix


def _rkhs_functions(
    kernel_matrix: Tensor, figure: int, seed: int, first: int, count: int
) -> tuple[Tensor, Tensor]:
    """Return the functions, ``count x num_arms``, and the norms of those of Figure 1."""
    prior = Prior.from_matrix(kernel_matrix)
    normal = torch.stack(
        [
            torch.randn(
                prior.num_normals, dtype=torch.float64, generator=generator(seed, trial, "function")
            )
            for trial in range(first, first + count)
        ]
    )
    draws = prior.simulate(normal)
    if figure == 2:
        return draws, draws.new_empty(0)
    ridges = SHARE_OF_RANGE * (draws.amax(-1) - draws.amin(-1))
    identity = torch.eye(len(kernel_matrix), dtype=torch.float64)
    weights = torch.linalg.solve(kernel_matrix + ridges[:, None, None] * identity, draws)
    functions = weights @ kernel_matrix
    return functions, (weights * functions).sum(-1).sqrt()


def _rkhs_study(
    kernel_matrix: Tensor, figure: int, num_rounds: int, seed: int, first: int, count: int
) -> ArmsStudy:
    values, _ = _rkhs_functions(kernel_matrix, figure, seed, first, count)
    noise = (SHARE_OF_RANGE * (values.amax(-1) - values.amin(-1))).sqrt()
    return ArmsStudy(kernel_matrix, values, noise, num_rounds, seed, first)


def _rkhs_norms(study: ArmsStudy) -> Tensor:
    first, count = study.first_trial, len(study.values)
    return _rkhs_functions(study.kernel_matrix, 1, study.seed, first, count)[1]


def _rkhs_methods(
    figure: int, gain: GainBound, options: Mapping[str, Any], study: ArmsStudy
) -> list[Method]:
    noise = torch.as_tensor(study.noise_std, dtype=torch.float64)
    known = _rkhs_norms if figure == 1 else None
    beside = {
        "GP-EI, best outcome": LogExpectedImprovement.with_options(incumbent="observed"),
        "GP-PI, best outcome": LogProbabilityOfImprovement.with_options(
            incumbent="observed", margin=0.01
        ),
        "DMM": DMMUpperConfidenceBound.with_options(
            rkhs_bound=_norms(study, "judged", known), noise_bound=noise, delta=DELTA
        ),
    }
    return [
        *figure_methods(gain, known, study, **options),
        *(Method(name, recipe, noise**2) for name, recipe in beside.items()),
    ]


def functions(
    num_trials: int = 25,
    num_rounds: int = 30000,
    seed: int = 0,
    noise_std: float = 0.1,
    norm: str | float = "judged",
    gain: str = "judged",
    draws: str = "judged",
    incumbent: str = "posterior_mean",
) -> list[ArmsExperiment]:
    """Return Figure 3: Rosenbrock and Hartmann on ``100 d`` random points.

    Rewards are rescaled to mean 0 and range 1 over the arms, and inputs to the unit cube. ``R^2``
    is 1% of the range. The paper sets "all parameters exactly as in previous experiment", which has
    30000 rounds (section 6). The other options are those of :func:`figure_methods`.
    """
    options: dict[str, Any] = {"norm": norm, "gain": gain, "draws": draws, "incumbent": incumbent}
    rewards = {
        "rosenbrock": Rosenbrock(dim=2, negate=True, dtype=DTYPE),
        "hartmann3": Hartmann3Reward(),
    }
    experiments = []
    for name, reward in rewards.items():
        bounds, dim = reward.bounds, reward.dim
        stream = generator(seed, 0, name)
        unit = torch.rand(100 * dim, dim, dtype=torch.float64, generator=stream)
        with torch.no_grad():
            values = reward(bounds[0] + (bounds[1] - bounds[0]) * unit, noise=False)
        values = (values - values.mean()) / (values.max() - values.min())
        experiments.append(
            ArmsExperiment(
                name=f"chowdhury-{name}",
                title=f"{name} on {100 * dim} arms (Figure 3)",
                published="EI and PI best, IGP-UCB and GP-TS competitive",
                num_trials=num_trials,
                num_rounds=num_rounds,
                make_study=partial(
                    _repeated_study,
                    _matrix(RBFKernel(), 0.2, unit),
                    values.unsqueeze(0),
                    noise_std,
                    num_rounds,
                    seed,
                ),
                make_methods=partial(figure_methods, RateGain("rbf", dim), None, **options),
                chunk=25,
                settings={"seed": seed, "noise_std": noise_std, **options},
            )
        )
    return experiments


def _repeated_study(
    kernel_matrix: Tensor,
    functions: Tensor,
    noise_std: float,
    num_rounds: int,
    seed: int,
    first: int,
    count: int,
) -> ArmsStudy:
    """Return trials that go through the functions, again and again with fresh noise."""
    rows = torch.arange(first, first + count) % len(functions)
    return ArmsStudy(kernel_matrix, functions[rows], noise_std, num_rounds, seed, first)


def sensors(  # noqa: PLR0913 - options, each with a name
    temperature: Path,
    light: Path | None = None,
    num_rounds: int = 200,
    num_trials: int | None = None,
    seed: int = 0,
    ridge: float = 0.01,
    center: bool = True,
    units: str = "deviations",
    norm: str | float = "judged",
    gain: str = "judged",
    draws: str = "judged",
    incumbent: str = "posterior_mean",
    pi_margin: float = 0.01,
) -> list[ArmsExperiment]:
    """Return Figure 4: the largest reading of temperature and of light sensors.

    ``R^2`` is 5% of the average variance, and every width uses 1 as the information gain.
    Temperatures are those between 8 and 9 am: five days give the kernel (30 readings, so it needs a
    ridge), and two days give the rewards.

    Args:
        temperature: ``.npz`` with the array ``temperature``, 144 readings a day.
        light: ``.npz`` with the arrays ``train_raw`` and ``test_raw``; left out if omitted.
        num_rounds: The number of rounds, which the paper does not specify; the default is 200.
        num_trials: The number of reward functions; all later readings if omitted.
        seed: Seeds noise and draws.
        ridge: Added to the kernels' diagonals, as a share of the average variance.
        center: Whether to subtract each sensor's past mean.
        units: ``"deviations"``, average prior standard deviations, or ``"data"``.
        norm: See :func:`figure_methods`, also for the other options.
        gain: The replacement for the information gain.
        draws: The scale of GP-TS.
        incumbent: What EI and PI improve on.
        pi_margin: The margin of PI.
    """
    check_one_of("units", units, ("deviations", "data"))
    readings = load_readings(temperature, "temperature")
    morning = readings[[144 * day + 48 + i for day in range(7) for i in range(6)]]
    tables = {"temperature": SensorData(morning[:30], morning[30:])}
    if light is not None:
        past, later = load_readings(light, "train_raw"), load_readings(light, "test_raw")
        tables["light"] = SensorData(past, later)
    options: dict[str, Any] = {
        "norm": norm,
        "gain": gain,
        "draws": draws,
        "incumbent": incumbent,
        "pi_margin": pi_margin,
    }
    experiments = []
    for name, table in tables.items():
        average = table.average_variance()
        unit = average**0.5 if units == "deviations" else 1.0
        kernel_matrix = table.kernel_matrix(ridge * average) / unit**2
        rewards = table.rewards(center) / unit
        noise_std = (0.05 * average) ** 0.5 / unit
        data = float(kernel_matrix.sum() + rewards.sum())
        experiments.append(
            ArmsExperiment(
                name=f"chowdhury-{name}",
                title=f"{name} sensors (Figure 4)",
                published="GP-TS best; IGP-UCB and GP-UCB the same on temperature, IGP-UCB better "
                "than EI and PI on light",
                num_trials=num_trials or len(rewards),
                num_rounds=num_rounds,
                make_study=partial(
                    _repeated_study, kernel_matrix, rewards, noise_std, num_rounds, seed
                ),
                make_methods=partial(figure_methods, ConstantGain(1.0), None, **options),
                chunk=50,
                settings={"seed": seed, "ridge": ridge, "data": data, **options},
            )
        )
    return experiments


# --- What a guarantee costs -----------------------------------------------------------------------

NORM = 2.0
"""The norm of the functions whose widths are compared."""
RISK = 0.05
"""The ``delta`` of every width that is compared."""


def coverage(num_trials: int = 200, num_rounds: int = 100, seed: int = 0) -> list[ArmsExperiment]:
    """Return studies of functions of known norm, and of draws of the Gaussian process.

    A width that claims ``1 - delta`` must contain the whole function in all rounds for at least
    that share of functions. Further panels have another kernel, more noise, and a norm that is
    overstated threefold. The noise is Gaussian except for Theorem 3 of Srinivas et al., which needs
    bounded noise and has noise of plus or minus the bound.
    """
    choices = torch.linspace(0, 1, 200, dtype=torch.float64).unsqueeze(-1)
    smooth = _matrix(RBFKernel(), 0.15, choices)
    rough = _matrix(MaternKernel(nu=2.5), 0.15, choices)
    known, draws = f"functions of norm {NORM:g}", "draws of the Gaussian process"
    stated = partial(_norm_methods, NORM)
    # kernel, noise, function, methods and title of each panel
    panels: dict[str, tuple[Tensor, float, Callable[..., Tensor], Callable[..., Any], str]] = {
        "rkhs": (smooth, 0.1, _known_norm, stated, known),
        "gp": (smooth, 0.1, _draw, _process_methods, draws),
        "gp-random": (smooth, 0.1, _draw, _random_methods, f"{draws}, rules that draw"),
        "rkhs-matern": (rough, 0.1, _known_norm, stated, f"{known}, Matern 5/2"),
        "rkhs-noise": (smooth, 0.5, _known_norm, stated, f"{known}, noise 0.5"),
        "rkhs-overstated": (
            smooth,
            0.1,
            _known_norm,
            partial(_norm_methods, 3.0 * NORM),
            f"{known}, stated as {3.0 * NORM:g}",
        ),
    }
    return [
        ArmsExperiment(
            name=f"coverage-{name}",
            title=title,
            published="",
            num_trials=num_trials,
            num_rounds=num_rounds,
            make_study=partial(_width_study, matrix, noise_std, function, num_rounds, seed),
            make_methods=methods,
            chunk=50,
            settings={"seed": seed, "norm": NORM, "noise_std": noise_std, "delta": RISK},
        )
        for name, (matrix, noise_std, function, methods, title) in panels.items()
    ]


def _width_study(
    matrix: Tensor,
    noise_std: float,
    function: Callable[..., Tensor],
    num_rounds: int,
    seed: int,
    first: int,
    count: int,
) -> ArmsStudy:
    values = torch.stack([function(matrix, seed, trial) for trial in range(first, first + count)])
    return ArmsStudy(matrix, values, noise_std, num_rounds, seed, first)


def _known_norm(matrix: Tensor, seed: int, trial: int, num_centers: int = 30) -> Tensor:
    """Return a function of norm :data:`NORM` on the arms."""
    stream = generator(seed, trial, "rkhs function")
    centers = torch.randperm(len(matrix), generator=stream)[:num_centers]
    weights = torch.randn(num_centers, dtype=torch.float64, generator=stream)
    norm = (weights @ matrix[centers][:, centers] @ weights).sqrt()
    return NORM / norm * (matrix[:, centers] @ weights)


def _draw(matrix: Tensor, seed: int, trial: int) -> Tensor:
    """Return a draw of the Gaussian process on the arms."""
    eigenvalues, eigenvectors = torch.linalg.eigh(matrix)
    root = eigenvectors * eigenvalues.clamp_min(0.0).sqrt()
    stream = generator(seed, trial, "gp draw")
    return root @ torch.randn(len(matrix), dtype=torch.float64, generator=stream)


def _norm_methods(rkhs_bound: float, study: ArmsStudy) -> list[Method]:
    """Return widths for rewards of known norm, whose names give their regularization."""
    noise_std = float(study.noise_std)
    small, one_plus = noise_std**2, 1.0 + 2.0 / study.num_rounds
    bounds: dict[str, Any] = {"rkhs_bound": rkhs_bound, "noise_bound": noise_std, "delta": RISK}
    printed = ImprovedUpperConfidenceBound.with_options(**bounds)
    any_lambda = ImprovedUpperConfidenceBound.with_options(**bounds, any_lambda=True)
    theorem_three = GPUpperConfidenceBound.with_options(
        rkhs_bound=rkhs_bound,
        information_gain=WaterFillingGain(study.kernel_matrix, small),
        delta=RISK,
    )
    return [
        Method("DMM", DMMUpperConfidenceBound.with_options(**bounds), small),
        Method("AMM", AMMUpperConfidenceBound.with_options(**bounds), small),
        Method("IGP-UCB, any lam", any_lambda, small),
        Method("IGP-UCB, lam = 1 + 2/T", printed, one_plus),
        Method("IGP-UCB printed, lam = R^2", printed, small),
        Method("GP-TS, lam = 1 + 2/T", GPThompsonSampling.with_options(**bounds), one_plus),
        Method("GP-UCB Theorem 3, bounded noise", theorem_three, small, bounded_noise=True),
        Method("fixed width 2", GPUpperConfidenceBound.with_options(width=2.0), small),
    ]


def _process_methods(study: ArmsStudy) -> list[Method]:
    """Return widths for draws of the Gaussian process."""
    lam = float(study.noise_std) ** 2
    full = GPUpperConfidenceBound.with_options(delta=RISK)
    divided = GPUpperConfidenceBound.with_options(delta=RISK, scale=5.0**-0.5)
    return [
        Method("GP-UCB Theorem 1", full, lam),
        Method("GP-UCB Theorem 1, beta / 5", divided, lam),
        Method("fixed width 2", GPUpperConfidenceBound.with_options(width=2.0), lam),
    ]


def _random_methods(study: ArmsStudy) -> list[Method]:
    """Return rules with a guarantee on the expected regret, which have no bounds to cover."""
    lam = float(study.noise_std) ** 2
    return [
        Method("IRGP-UCB", RandomizedUpperConfidenceBound.with_options(), lam),
        Method("Thompson sampling", GPThompsonSampling.with_options(width=1.0), lam),
        *_process_methods(study)[:1],
    ]


# --- The best arm, found and certified ------------------------------------------------------------

NOISE_STD, NUM_ROUNDS, EARLY, TOLERANCE = 0.2, 400, 40, 1.0
FINDERS: dict[str, AcquisitionRecipe | None] = {
    "TTTS": TopTwoThompsonSampling.with_options(),
    "T3C": TopTwoThompsonSampling.with_options(max_draws=0),
    "Thompson sampling": GPThompsonSampling.with_options(width=1.0),
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=NORM, noise_bound=NOISE_STD, delta=RISK, any_lambda=True
    ),
    "uniform": None,
}


def identification(num_trials: int = 50, seed: int = 0) -> list[Row]:
    """Return how fast the best arm is found, and how fast it is certified.

    Top-two Thompson sampling (Russo 2020) and its variant that computes the challenger directly
    (T3C, Shang et al. 2020) are among the methods. All use the same certificate, that of
    ``BanditLoop.recommend()`` with the bounds of IGP-UCB for every ``lam``, which hold however the
    arms are chosen.

    Args:
        num_trials: The number of functions per set of arms, the same for each method.
        seed: Seeds functions, noise and draws.

    Returns:
        One row per set of arms and method: the share of functions whose best arm is recommended
        after each budget, with a 95% interval; the number of functions whose certificate fell to
        the tolerance, and of wrong certificates; and the mean number of rounds until then.
    """
    line = torch.linspace(0, 1, 20, dtype=torch.float64)
    side = torch.linspace(0, 1, 5, dtype=torch.float64)
    square = torch.cartesian_prod(side, side)
    sets = {
        "line, smooth": _matrix(RBFKernel(), 0.15, line.unsqueeze(-1)),
        "line, rough": _matrix(MaternKernel(nu=1.5), 0.1, line.unsqueeze(-1)),
        "square": _matrix(MaternKernel(nu=2.5), 0.4, square),
    }
    rows = []
    for problem, matrix in sets.items():
        for method, recipe in FINDERS.items():
            found, rounds, missed = _find(matrix, recipe, num_trials, seed)
            certified = rounds <= NUM_ROUNDS
            mean = rounds.clamp_max(NUM_ROUNDS).double()
            rows.append(
                {
                    "problem": problem,
                    "method": method,
                    "trials": num_trials,
                    **_share(f"correct_after_{EARLY}", found[:, 0]),
                    **_share(f"correct_after_{NUM_ROUNDS}", found[:, 1]),
                    "certified": int(certified.sum()),
                    "certified_wrongly": int((certified & missed).sum()),
                    "mean_rounds": round(float(mean.mean()), 1),
                    "rounds_half_width": round(1.96 * float(mean.std()) / len(mean) ** 0.5, 1),
                }
            )
    return rows


def _share(name: str, right: Tensor) -> dict[str, float]:
    """Return a share and its Wilson interval at 95 %."""
    n, p, z = len(right), float(right.double().mean()), 1.96
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = max(middle - half, 0.0), min(middle + half, 1.0)
    return {name: round(p, 3), f"{name}_low": round(low, 3), f"{name}_high": round(high, 3)}


def _find(
    matrix: Tensor, recipe: AcquisitionRecipe | None, count: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what was found after both budgets, when it was certified, and whether it was wrong."""
    values = torch.stack([_known_norm(matrix, seed, trial, 8) for trial in range(count)])
    streams = [generator(seed, trial, "outcome noise") for trial in range(count)]
    noise = torch.stack([torch.randn(NUM_ROUNDS, dtype=DTYPE, generator=own) for own in streams])
    numbered = torch.arange(float(len(matrix)), dtype=DTYPE).unsqueeze(-1)
    rule = None if recipe is None else recipe.arms_rule(Arms(numbered))
    lam = NOISE_STD**2
    seeds = [derive_seed(seed, trial, "replicate") for trial in range(count)]
    engine = Replicates(rule, [Prior.from_matrix(matrix)], lam, [1.0], seeds)
    found = torch.zeros(count, 2, dtype=torch.bool)
    rounds = torch.full((count,), NUM_ROUNDS + 1)
    missed = torch.zeros(count, dtype=torch.bool)
    for t in range(1, NUM_ROUNDS + 1):
        arm = engine.choose_uniformly(t) if rule is None else engine.choose(engine.look(t))
        at_arm = values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        engine.observe(arm, at_arm + NOISE_STD * noise[:, t - 1])
        posterior = engine.posterior
        gain = posterior.gain.unsqueeze(-1)
        width = NORM + NOISE_STD / lam**0.5 * (2.0 * (gain - math.log(RISK))).sqrt()
        half = width * posterior.variance.clamp_min(0.0).sqrt()
        mean = posterior.mean[:, 0]
        lower, upper = mean - half, mean + half
        recommended = lower.argmax(-1)
        is_new = (upper.amax(-1) - lower.amax(-1) <= TOLERANCE) & (rounds > NUM_ROUNDS)
        regret = values.amax(-1) - values.gather(-1, recommended.unsqueeze(-1)).squeeze(-1)
        missed |= is_new & (regret > TOLERANCE)
        rounds[is_new] = t
        if t in (EARLY, NUM_ROUNDS):
            found[:, int(t == NUM_ROUNDS)] = recommended == values.argmax(-1)
    return found, rounds, missed


READINGS = (
    "temperatures (.npz, array 'temperature': 7 days of 144 times x sensors)",
    "light (.npz, arrays 'train_raw' and 'test_raw')",
)
EXPERIMENTS = {
    "chowdhury-rkhs": Entry(rkhs, "Chowdhury and Gopalan 2017, Figures 1 and 2"),
    "chowdhury-functions": Entry(functions, "Chowdhury and Gopalan 2017, Figure 3"),
    "chowdhury-sensors": Entry(sensors, "Chowdhury and Gopalan 2017, Figure 4", READINGS, 1),
    "coverage": Entry(coverage, "what a guarantee costs: coverage and regret of widths"),
}
TABLES = {"identification": identification}
