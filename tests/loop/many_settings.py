"""Settings of loops of many kinds, by name."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from torch import Tensor

import botorch_bandits as bb
from botorch_bandits import confidence

SEED = 5


def build_model(X: Tensor, Y: Tensor) -> SingleTaskGP:
    """Return a model that learns nothing: a function of the user's in place of a recipe."""
    model = SingleTaskGP(X, Y, torch.full_like(Y, 0.02), outcome_transform=None)
    model.covar_module.lengthscale = torch.tensor(0.3, dtype=X.dtype)
    return model.eval()


def build_acquisition(model: Any, X_pending: Tensor | None) -> UpperConfidenceBound:
    """Return BoTorch's bound: a function of the user's in place of a recipe."""
    return UpperConfidenceBound(model, beta=4.0 if X_pending is None else 9.0)


def build_constrained_model(X: Tensor, Y: Tensor) -> SingleTaskGP:
    """Return a model of all outcomes that learns nothing."""
    model = SingleTaskGP(X, Y, torch.full_like(Y, 0.02), outcome_transform=None)
    model.covar_module.lengthscale = torch.tensor(0.3, dtype=X.dtype)
    return model.eval()


def power_of_excess(x: Tensor) -> Tensor:
    """Return a penalty of the user's."""
    return (1.0 + 0.5 * x.clamp_min(0.0)) ** 3


class EveryFourth(bb.Domain):
    """A domain of the user's: every fourth part of the unit interval."""

    dim = 1

    def sample(self, num_points: int, generator: torch.Generator | None = None) -> Tensor:
        return torch.randint(0, 5, (num_points, 1), generator=generator).double() / 4.0

    def maximize(self, acquisition: Any, seed: int = 0) -> tuple[Tensor, float]:
        X = torch.arange(5, dtype=torch.float64).unsqueeze(-1) / 4.0
        with torch.no_grad():
            values = acquisition(X.unsqueeze(-2))
        best = int(values.argmax())
        return X[best], float(values[best])

    def check_point(self, name: str, x: Any) -> Tensor:
        return torch.as_tensor(x, dtype=torch.float64)


# --- settings ---------------------------------------------------------------------------------


@cache
def settings() -> dict[str, dict[str, Any]]:
    """Return arguments of loops by name; ``given``, ``length`` and ``snapshots`` are the script's.

    ``length`` is how many records are written (24 on arms, 14 on a box unless it is there),
    ``given`` whether the loop begins with a history, ``snapshots`` after how many records one is
    written.
    """
    igp = partial(bb.ImprovedUpperConfidenceBound.with_options, rkhs_bound=2.0, noise_bound=0.1)
    gp = bb.GPUpperConfidenceBound.with_options
    ts = partial(bb.GPThompsonSampling.with_options, rkhs_bound=2.0, noise_bound=0.1)
    censored = partial(bb.CensoredUpperConfidenceBound.with_options, minimum=-3.0)
    censored_ts = partial(bb.CensoredThompsonSampling.with_options, minimum=-3.0)
    bounds = {"rkhs_bound": 2.0, "noise_bound": 0.1}
    matern = partial(bb.BanditGP.with_kernel, MaternKernel(nu=2.5), lengthscale=0.3)
    ucb, model, wide = gp(width=2.0), matern(noise=0.05), matern(noise=1.1)
    scaled = ScaleKernel(RBFKernel()).double()
    scaled.outputscale = torch.tensor(2.0, dtype=torch.float64)
    product = RBFKernel(active_dims=(0,)) * MaternKernel(nu=1.5, active_dims=(1,))
    arms = bb.Arms(torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1))
    box = bb.Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
    plane = bb.Box([[0.0, -1.0], [1.0, 3.0]], num_restarts=2, raw_samples=16)
    matrix = MaternKernel(nu=2.5).double()
    matrix.lengthscale = torch.tensor(0.3, dtype=torch.float64)
    gram = matrix(arms.choices).to_dense().detach()
    gain = confidence.WaterFillingGain(gram, 0.05)

    both: dict[str, dict[str, Any]] = {
        # acquisition functions
        "igp": {"acquisition": igp(any_lambda=True)},
        "igp, gain": {"acquisition": igp(information_gain=gain, delta=0.05), "model": wide},
        "igp, prior units": {
            "acquisition": igp(units="prior", any_lambda=True, scale=0.5),
            "model": bb.BanditGP.with_kernel(scaled, noise=0.05, lengthscale=0.2),
        },
        "igp, minimized": {"acquisition": igp(any_lambda=True, maximize=False)},
        "gp": {"acquisition": ucb},
        "gp, theorem 3": {"acquisition": gp(rkhs_bound=2.0, information_gain=gain, delta=0.2)},
        "ts": {"acquisition": ts(any_lambda=True)},
        "ts, redrawn": {"acquisition": ts(any_lambda=True, pending="redraw")},
        "amm": {"acquisition": bb.AMMUpperConfidenceBound.with_options(**bounds)},
        "dmm": {"acquisition": bb.DMMUpperConfidenceBound.with_options(**bounds)},
        "width": {
            "acquisition": bb.WidthUpperConfidenceBound.with_options(
                rule=confidence.ConstantWidth(1.5)
            )
        },
        "cpd width": {
            "acquisition": bb.ChangePointUpperConfidenceBound.with_options(
                horizon=40, smoothness=2.5, dim=1, width_constant=0.5
            )
        },
        "ei": {"acquisition": bb.LogExpectedImprovement.with_options(), "num_initial": 2},
        "pi": {
            "acquisition": bb.LogProbabilityOfImprovement.with_options(margin=0.01),
            "num_initial": 2,
        },
        "mean": {"acquisition": bb.MeanOnly.with_options(), "num_initial": 3},
        "variance": {"acquisition": bb.VarianceOnly.with_options()},
        "random": {"acquisition": bb.RandomSearch(), "model": None},
        "function": {"acquisition": build_acquisition, "model": build_model, "num_initial": 2},
        "censored acquisition": {
            "acquisition": censored(outcome_bound=6.0, **bounds, any_lambda=True)
        },
        "censored acquisition, ts": {"acquisition": censored_ts(width=1.0)},
        # feedback
        "ignored": {"acquisition": ts(any_lambda=True), "feedback": bb.Ignored()},
        "censored": {
            "acquisition": igp(any_lambda=True),
            "feedback": bb.Censored(minimum=-3.0, outcome_bound=6.0, max_delay=4),
        },
        "censored, theorem": {
            "acquisition": igp(),
            "model": wide,
            "feedback": bb.Censored(
                minimum=-3.0, outcome_bound=6.0, max_delay=5, **bb.Censored.as_theorem
            ),
        },
        "censored, proxy": {
            "acquisition": ucb,
            "feedback": bb.Censored(minimum_proxy=2.0, max_delay=5),
        },
        # restarts
        "restart, oracle": {
            "acquisition": igp(any_lambda=True),
            "restart": bb.OracleRestart(change_points=(5, 10), exploration=0.5),
            "length": 30,
        },
        "restart, power": {
            "acquisition": igp(any_lambda=True),
            "restart": bb.ChangePointRestart(
                detector=_detector(bb.change_points.PowerThreshold(scale=0.2, exponent=-0.5)),
                exploration=3.0,
            ),
            "length": 44,
        },
        # models that forget
        "window": {"acquisition": ucb, "forgetting": bb.SlidingWindow(6)},
        "discount": {"acquisition": igp(any_lambda=True), "forgetting": bb.ExponentialWeights(0.8)},
        "drift": {"acquisition": ucb, "forgetting": bb.TimeVaryingKernel(0.1)},
        # constraints
        "additive": {"acquisition": igp(any_lambda=True), "constraints": bb.AdditiveEpochs(2, 3)},
        "multiplicative": {"acquisition": ucb, "constraints": bb.MultiplicativeEpochs(2, 3)},
        "additive, separate": {
            "acquisition": bb.LagrangianUpperConfidenceBound.with_options(**bounds),
            "constraints": bb.AdditiveEpochs(2, 3, surrogate="separate"),
            "model": wide,
        },
        "primal dual": {
            "acquisition": bb.LagrangianUpperConfidenceBound.with_options(width=2.0),
            "constraints": bb.PrimalDual(2, 5.0, 4.0, reward_bound=2.0, constraint_bound=1.5),
        },
        "primal dual, ts": {
            "acquisition": bb.LagrangianThompsonSampling.with_options(width=1.0),
            "constraints": bb.PrimalDual(2, max_multiplier=5.0, divisor=4.0),
        },
        # the rest
        "context": {"acquisition": igp(any_lambda=True), "context_dim": 1},
        "refit": {
            "acquisition": ucb,
            "model": bb.BanditGP.with_kernel(
                ScaleKernel(RBFKernel()), noise=0.05, lengthscale=0.3, refit_every=4
            ),
        },
        "initial, horizon": {"acquisition": ucb, "num_initial": 5, "horizon": 200},
        "snapshots": {"acquisition": igp(any_lambda=True), "snapshots": 6},
        "given": {"acquisition": igp(any_lambda=True), "given": True},
    }
    on_arms: dict[str, dict[str, Any]] = {
        "gp, theorem 1": {"acquisition": gp(delta=0.1, scale=5.0**-0.5)},
        "randomized": {"acquisition": bb.RandomizedUpperConfidenceBound.with_options(num_arms=12)},
        "censored, published": {
            "acquisition": gp(width=1.0),
            # what ``as_published`` had in version 0.1
            "feedback": bb.Censored(
                minimum=-3.0, outcome_bound=6.0, max_delay=5, window="all", predictive=True
            ),
        },
        "censored, seconds, lowered": {
            "acquisition": igp(any_lambda=True),
            "feedback": bb.Censored(
                minimum=0.0, outcome_bound=6.0, max_delay=30.0, unit="seconds", on_lower="lower"
            ),
        },
        "censored, ts": {
            "acquisition": ts(any_lambda=True),
            "feedback": bb.Censored(minimum=-3.0, outcome_bound=6.0, max_delay=4),
        },
        "censored, amm": {
            "acquisition": bb.AMMUpperConfidenceBound.with_options(**bounds),
            "feedback": bb.Censored(minimum=-3.0, outcome_bound=6.0, max_delay=4),
        },
        "restart, theory": {
            "acquisition": ucb,
            "restart": bb.ChangePointRestart(
                detector=_detector(bb.change_points.TheoreticalThreshold(0.02, 2.0, 0.1, 100)),
                exploration=3.0,
                split_delta=False,
            ),
            "length": 44,
        },
        "restart, calibrated": {
            "acquisition": gp(delta=0.1),
            "restart": bb.ChangePointRestart(
                detector=_detector(_calibrated(), statistic="integral"), exploration=3.0
            ),
            "length": 44,
        },
        "restart, constraints": {
            "acquisition": igp(any_lambda=True),
            "constraints": bb.AdditiveEpochs(2, 3),
            "restart": bb.ChangePointRestart(
                detector=_detector(bb.change_points.PowerThreshold(scale=0.2, exponent=-0.5)),
                constraint_detectors=(_detector(bb.change_points.PowerThreshold()),) * 2,
                keep_multipliers=True,
                exploration=3.0,
            ),
            "length": 44,
        },
        "restart, censored": {
            "acquisition": igp(any_lambda=True),
            "feedback": bb.Censored(minimum=-3.0, outcome_bound=6.0, max_delay=4),
            "restart": bb.OracleRestart(change_points=(8,), exploration=None),
            "length": 30,
        },
        "restart, context, refit": {
            "acquisition": ucb,
            "model": matern(noise=0.05, refit_every=4),
            "context_dim": 1,
            "restart": bb.OracleRestart(change_points=(8,), keep_multipliers=True),
            "length": 30,
        },
        "never": {"acquisition": igp(any_lambda=True), "restart": bb.NeverRestart(exploration=1.0)},
        "additive, fresh": {
            "acquisition": igp(any_lambda=True),
            "constraints": bb.AdditiveEpochs(2, 3, step_size=1.0, surrogate="fresh"),
        },
        "multiplicative, polynomial": {
            "acquisition": ts(any_lambda=True),
            "constraints": bb.MultiplicativeEpochs(
                2, 3, penalty=bb.penalties.Polynomial(c=0.5, n=3.0), max_multiplier=1.5
            ),
        },
        "multiplicative, custom": {
            "acquisition": bb.LagrangianUpperConfidenceBound.with_options(width=2.0),
            "constraints": bb.MultiplicativeEpochs(
                2, 3, penalty=bb.penalties.CustomPenalty(power_of_excess), surrogate="separate"
            ),
        },
        "lagrangian ts": {
            "acquisition": bb.LagrangianThompsonSampling.with_options(**bounds, any_lambda=True),
            "constraints": bb.AdditiveEpochs(2, 3, surrogate="separate"),
        },
        "lagrangian, function": {
            "acquisition": bb.LagrangianUpperConfidenceBound.with_options(width=2.0),
            "constraints": bb.AdditiveEpochs(2, 3, surrogate="separate"),
            "model": build_constrained_model,
            "num_initial": 2,
        },
        "product kernel": {
            "acquisition": igp(any_lambda=True),
            "model": bb.BanditGP.with_kernel(product.double(), noise=0.05),
            "context_dim": 1,
        },
        "window, context": {
            "acquisition": ucb,
            "forgetting": bb.SlidingWindow(5),
            "context_dim": 1,
        },
        "drift, restart": {
            "acquisition": ucb,
            "forgetting": bb.TimeVaryingKernel(0.1),
            "restart": bb.OracleRestart(change_points=(8,)),
            "length": 30,
        },
        "domain of one's own": {"acquisition": ucb, "domain": EveryFourth()},
        "refit, snapshots": {
            "acquisition": ucb,
            "model": matern(noise=0.05, refit_every=5),
            "snapshots": 10,
        },
        "float prior mean, periodic": {
            "acquisition": ucb,
            "model": bb.BanditGP.with_kernel(PeriodicKernel(), noise=0.05, prior_mean=0.4),
        },
    }
    on_box: dict[str, dict[str, Any]] = {
        "gp, theorem 2": {"acquisition": gp(smoothness_a=1.0, smoothness_b=1.0)},
        "fitted": {
            "acquisition": igp(units="prior"),
            "model": bb.FittedSingleTaskGP([[0.0], [1.0]]),
            "num_initial": 3,
            "length": 12,
        },
        "plane, whole numbers": {
            "domain": bb.Box(
                [[0.0, -1.0], [1.0, 3.0]], integer_dims=(1,), num_restarts=2, raw_samples=16
            ),
            "acquisition": igp(any_lambda=True),
        },
        "plane, transformed": {
            "domain": plane,
            "acquisition": igp(any_lambda=True),
            "model": matern(noise=0.05, input_transform=Normalize(2, bounds=plane.bounds)),
        },
    }
    table = {}
    for where, domain, rows in (("arms", arms, both | on_arms), ("box", box, both | on_box)):
        for name, options in rows.items():
            table[f"{where}, {name}"] = {"domain": domain, "model": model, "seed": SEED, **options}
    return table


def _detector(threshold: Any, **options: Any) -> bb.ChangePointDetector:
    return bb.ChangePointDetector(
        MaternKernel(nu=2.5), lengthscale=0.3, ridge=0.5, threshold=threshold, **options
    )


def _calibrated() -> bb.change_points.CalibratedThreshold:
    """Return what a calibration returned once."""
    return bb.change_points.CalibratedThreshold(
        levels=tuple(2.0 / n for n in range(1, 21)),
        exponent=-0.8,
        horizon=40,
        false_alarm_rate=0.1,
        confidence=0.95,
        num_simulations=100,
        num_alarms=4,
        seed=0,
        source="numbers of a test",
    )
