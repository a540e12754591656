"""Loops and acquisition recipes of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    BanditGP,
    BanditLoop,
    CandidatesUpperConfidenceBound,
    Censored,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    ChangePointDetector,
    ChangePointRestart,
    DMMUpperConfidenceBound,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    NeverRestart,
    OracleRestart,
    PrimalDual,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.confidence import GreedyGain, WaterFillingGain
from botorch_bandits.models import CandidatesRecipe
from claims.settings import CENSORED_DROP_INS, LIST, LIST_ON_BOX, LISTS, Setting
from claims.worlds import World, kernel_of

MAX_DELAY = 3
"""After so many rounds censored feedback gives a query up."""

EPOCH_LENGTH = 4
"""Of multiplier rules with epochs."""

STEP_SIZE = 0.5
"""Of additive multipliers."""

VARIATION = 0.2
"""By how much functions vary, in prior standard deviations."""

FACTORS_OF_EPOCHS = ((1.0, 1.0, 1.0), (0.7, 2.0, 4.0), (0.8, 0.5, 0.25))
"""What multiplies lengthscale, noise ratio and output scale in the models of epochs."""

FACTORS = tuple(
    (length, ratio, scale)
    for length, ratio in ((0.5, 1.0), (2.0, 1.0), (1.0, 5.0), (1.0, 1.0))
    for scale in (0.25, 4.0, 1.0)
)
"""What multiplies the true lengthscale, noise ratio and output scale in each entry of a list."""

WEIGHT_OF_TRUTH = 0.02
"""Of the true prior on a list: the evidence against it begins high."""

GAINS: dict[str, Callable[..., Any]] = {
    "IGP-UCB, water-filling gain": WaterFillingGain,
    "IGP-UCB, greedy gain": GreedyGain,
    "IGP-UCB, gain too small": lambda matrix, lam: WaterFillingGain(1e-4 * matrix, lam),
    "Theorem 3": WaterFillingGain,
}
"""Bounds on the maximal information gain, by method."""


class Plan:
    """The numbers of a setting in raw outcome units, and what is built from them.

    Args:
        setting: Its axes.
    """

    def __init__(self, setting: Setting) -> None:
        """See the class."""
        self.setting = setting
        self.world = World(setting)
        self.unit = self.world.unit
        self.delta = float(setting.delta)
        self.noise_variance = float(setting.lam) * self.world.prior_variance
        self.norm = setting.norm  # in prior standard deviations
        if setting.is_drawn or setting.method == "Theorem 3" or setting.model == "noise by row":
            self.noise_bound = float(setting.lam) ** 0.5
        else:
            self.noise_bound = setting.noise_bound
        self.prior_mean = 0.0 if setting.prior_mean == "zero" else setting.offset * self.unit
        self.minimum = 0.0
        if setting.is_censored:
            self.minimum = setting.offset * self.unit
            self.prior_mean = self.minimum
        self.outcome_bound = self.norm + self.noise_bound  # in prior standard deviations
        self.max_delay = MAX_DELAY
        self.change_round = setting.num_rounds // 2
        self.variation = 0.0 if setting.variation == "none" else VARIATION

    @cached_property
    def raw(self) -> float:
        """What bounds are multiplied by where the acquisition is told of them."""
        return 1.0 if self.setting.units == "prior" else self.unit

    @property
    def assumed(self) -> dict[str, tuple[str, ...]]:
        """The option by which a user vouches for something."""
        entries = []
        if self.setting.model in ("frozen, stated", "noise by row"):
            entries.append("fixed prior")
        if self.setting.prior_mean == "stated" and not self.setting.is_drawn:
            entries.append("centered bound")
        return {"assume": tuple(entries)} if entries else {}

    @cached_property
    def recipe(self) -> Any:  # noqa: C901, PLR0912 - a kind of method each
        """The recipe of the acquisition function."""
        kind: Any
        setting, raw = self.setting, self.raw
        method, delta, assumed = setting.method, self.delta, self.assumed
        bounds: dict[str, Any] = {
            "rkhs_bound": self.norm * raw,
            "noise_bound": self.noise_bound * raw,
        }
        if setting.model == "noise by row":
            bounds["noise_bound"] = "model"
        units = {"units": setting.units}
        if method in GAINS:
            arms = self.world.points
            matrix = self.world.covariance(arms, arms) * self.world.prior_variance
            gain = GAINS[method](matrix, self.noise_variance)
        if method == "Theorem 3":
            return GPUpperConfidenceBound.with_options(
                rkhs_bound=self.norm * self.unit, information_gain=gain, delta=delta, **assumed
            )
        if method.startswith("IGP-UCB"):
            any_lambda = "printed" not in method
            options: dict[str, Any] = {**bounds, **units, "delta": delta, **assumed}
            if "gain" in method:
                options["information_gain"] = gain
            if setting.variation != "none":
                options["variation"] = self.variation * raw
            return ImprovedUpperConfidenceBound.with_options(any_lambda=any_lambda, **options)
        if method.startswith("GP-TS"):
            return GPThompsonSampling.with_options(
                **bounds, **units, delta=delta, any_lambda="any lam" in method, **assumed
            )
        if method in ("AMM", "DMM"):
            kind = AMMUpperConfidenceBound if method == "AMM" else DMMUpperConfidenceBound
            return kind.with_options(**bounds, delta=delta, **assumed)
        if method == "Theorem 1":
            return GPUpperConfidenceBound.with_options(delta=delta, **assumed)
        if method == "Theorem 2":
            a, b = self.world.smoothness
            return GPUpperConfidenceBound.with_options(
                smoothness_a=a * len(self.world.contexts), smoothness_b=b, delta=delta, **assumed
            )
        if method == LIST:
            return CandidatesUpperConfidenceBound.with_options(delta=delta)
        if method == LIST_ON_BOX:
            each = [
                self.world.smoothness_at(length * setting.lengthscale, scale**0.5 * self.unit)
                for length, _, scale in FACTORS
            ]
            return CandidatesUpperConfidenceBound.with_options(
                smoothness_a=[a * len(self.world.contexts) for a, _ in each],
                smoothness_b=[b for _, b in each],
                delta=delta,
            )
        if method == "IRGP-UCB":
            return RandomizedUpperConfidenceBound.with_options(**assumed)
        if method.startswith("Lagrangian"):
            kind = LagrangianUpperConfidenceBound
            if method.endswith("TS"):
                kind = LagrangianThompsonSampling
            return kind.with_options(**bounds, **units, delta=delta, any_lambda=True, **assumed)
        if method in CENSORED_DROP_INS:
            kind = CensoredUpperConfidenceBound
            if method.endswith("TS"):
                kind = CensoredThompsonSampling
            form = setting.feedback
            return kind.with_options(
                **bounds,
                **units,
                minimum=self.minimum,
                outcome_bound=self.outcome_bound * raw,
                delta=delta,
                any_lambda="any lam" in form or "seconds" in form,
                bounded_outcomes="bounded" in form,
                window="all" if "window all" in form else "pending",
                max_delay=self.max_delay,
                ringing_tolerance=None,
                **assumed,
            )
        return GPUpperConfidenceBound.with_options(width=2.0)

    @cached_property
    def model(self) -> Any:
        """What builds the model: a recipe, or a function as users write them."""
        if self.setting.method in LISTS:
            return self._list_of_priors()
        kernel, noise = self.world.kernel, self.noise_variance
        kind = self.setting.model
        if kind in ("BanditGP", "learned"):
            refit = 5 if kind == "learned" else None
            if self.setting.models == "of epochs":
                return self._model_of_epoch(*FACTORS_OF_EPOCHS[0])
            return BanditGP.with_kernel(
                kernel, noise=noise, prior_mean=self.prior_mean, refit_every=refit
            )

        def by_row(X: Tensor, Y: Tensor) -> Model:
            model = SingleTaskGP(
                X,
                Y,
                train_Yvar=self.noise_variance * self.noise_factor(X).unsqueeze(-1) ** 2,
                covar_module=self.world.kernel,
                mean_module=ZeroMean(),
                outcome_transform=None,
            )
            model.requires_grad_(False)
            return model.eval()

        def frozen(X: Tensor, Y: Tensor) -> Model:
            kernel = self.world.kernel
            if kind == "fitted, frozen":
                kernel = self._fitted(X, Y)
            likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-10)).double()
            likelihood.noise = noise
            model = SingleTaskGP(
                X,
                Y,
                likelihood=likelihood,
                covar_module=kernel,
                mean_module=ZeroMean(),
                outcome_transform=None,
            )
            model.requires_grad_(False)
            return model.eval()

        def standardized(X: Tensor, Y: Tensor) -> Model:
            model = SingleTaskGP(X, Y, covar_module=kernel)
            model.requires_grad_(False)
            return model.eval()

        return {"standardized": standardized, "noise by row": by_row}.get(kind, frozen)

    def kernel_of_epoch(self, length: float, scale: float) -> Kernel:
        """Return the kernel of an epoch's model.

        Args:
            length: What multiplies the lengthscale.
            scale: What multiplies the output scale.
        """
        kernel = kernel_of(
            replace(
                self.setting, lengthscale=length * self.setting.lengthscale, output_scale="none"
            )
        )
        scaled = ScaleKernel(kernel).double()
        variance = scale * self.world.prior_variance
        scaled.outputscale = torch.tensor(variance, dtype=torch.float64)
        return scaled

    def _model_of_epoch(self, length: float, ratio: float, scale: float) -> Any:
        kernel = self.kernel_of_epoch(length, scale)
        return BanditGP.with_kernel(kernel, noise=self.noise_variance * ratio * scale)

    def _list_of_priors(self) -> CandidatesRecipe:
        """Return a list with the true prior last, at a small weight."""
        entries = []
        for length, ratio, scale in FACTORS:
            setting = replace(self.setting, lengthscale=length * self.setting.lengthscale)
            kernel = kernel_of(setting)
            if scale != 1.0:
                known = isinstance(kernel, ScaleKernel)
                outputscale = kernel.outputscale.detach() if known else 1.0
                kernel = kernel if known else ScaleKernel(kernel).double()
                kernel.outputscale = scale * outputscale
            noise = self.noise_variance * ratio * scale
            entries.append(BanditGP.with_kernel(kernel, noise=noise, prior_mean=self.prior_mean))
        weights = [(1.0 - WEIGHT_OF_TRUTH) / (len(entries) - 1)] * (len(entries) - 1)
        return BanditGP.with_candidates(entries, [*weights, WEIGHT_OF_TRUTH])

    def noise_factor(self, X: Tensor) -> Tensor:
        """Return by how much the noise at some inputs is larger than elsewhere.

        Args:
            X: ``n x d``.
        """
        if self.setting.model != "noise by row":
            return torch.ones(len(X), dtype=torch.float64)
        return 0.5 + 1.5 * X[:, -1]

    def _fitted(self, X: Tensor, Y: Tensor) -> Kernel:
        """Return the kernel with the lengthscale under which the outcomes are most likely."""
        likelihoods = {}
        for lengthscale in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4):
            kernel = kernel_of(replace(self.setting, lengthscale=lengthscale))
            with torch.no_grad():
                matrix = kernel(X).to_dense() + self.noise_variance * torch.eye(len(X)).double()
            gaussian = torch.distributions.MultivariateNormal(torch.zeros(len(X)).double(), matrix)
            likelihoods[lengthscale] = float(gaussian.log_prob(Y.squeeze(-1)))
        best = max(likelihoods, key=lambda each: likelihoods[each])
        return kernel_of(replace(self.setting, lengthscale=best))

    def loop(
        self,
        seed: int,
        known: Mapping[str, float] | None = None,
    ) -> BanditLoop:
        """Return a loop of this setting.

        Args:
            seed: Of the loop.
            known: What the multiplier rule is told of the functions.
        """
        setting = self.setting
        return BanditLoop(
            self.world.domain,
            self.model,
            self.recipe,
            feedback=self._feedback(),
            restart=self._restart(),
            constraints=self._constraints(known or {}),
            horizon=setting.num_rounds if setting.horizon == "told" else None,
            forgetting={
                "none": None,
                "window": SlidingWindow(10),
                "weights": ExponentialWeights(0.9),
                "time kernel": TimeVaryingKernel(0.1),
            }[setting.forgetting],
            repeats=None if setting.repeats == "none" else float(setting.repeats),
            num_initial={"0": 0, "3": 3, "all": setting.num_rounds}[setting.num_initial],
            context_dim=self.world.context_dim,
            seed=seed,
        )

    def _feedback(self) -> Any:
        form = self.setting.feedback
        if form == "hallucinated":
            return Hallucinated()
        if form == "ignored":
            return Ignored()
        return Censored(
            minimum=self.minimum,
            outcome_bound=self.outcome_bound * self.raw,
            max_delay=self.max_delay,
            unit="seconds" if "seconds" in form else "rounds",
            window="all" if "window all" in form else "pending",
            fill="middle" if "middle" in form else "minimum",
        )

    def _restart(self) -> Any:
        kind = self.setting.restart
        if kind == "never":
            return NeverRestart()
        if kind.startswith("oracle"):
            return OracleRestart((self.change_round,), split_delta="not" not in kind)
        if kind == "change points":
            threshold = PowerThreshold(scale=1.0, exponent=-0.8)
            return ChangePointRestart(
                detector=ChangePointDetector(self.world.kernel, threshold=threshold, smoothness=2.5)
            )
        return None

    def _constraints(self, known: Mapping[str, Any]) -> Any:
        kind = self.setting.constraints
        if kind == "none":
            return None
        if kind == "primal-dual":
            return PrimalDual(1, max_multiplier=2.0, divisor=4.0)
        if self.setting.models == "of epochs":
            models = [self._model_of_epoch(*each) for each in FACTORS_OF_EPOCHS]
            known = {**known, "models": models}
        number = 1 + kind.endswith("two")
        if kind.startswith("multiplicative"):
            return MultiplicativeEpochs(number, EPOCH_LENGTH, surrogate="fresh", **known)
        surrogate = kind.split(", ")[1]
        return AdditiveEpochs(number, EPOCH_LENGTH, STEP_SIZE, surrogate=surrogate, **known)
