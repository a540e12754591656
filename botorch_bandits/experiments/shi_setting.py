"""The settings of Shi and Eryilmaz's experiments: constants, and how each method is built."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from gpytorch.kernels import Kernel, MaternKernel

from botorch_bandits.acquisition import AcquisitionRecipe, ImprovedUpperConfidenceBound
from botorch_bandits.constraints import (
    AdditiveEpochs,
    MultiplicativeEpochs,
    MultiplierRule,
    PrimalDual,
)
from botorch_bandits.domains import Arms
from botorch_bandits.experiments.constrained_admm import ADMMBO
from botorch_bandits.experiments.constrained_improvement import ConstrainedImprovement
from botorch_bandits.experiments.constrained_saddle_point import BanditSaddlePoint
from botorch_bandits.experiments.constrained_study import (
    ConstrainedMethod,
    PlayedLoop,
    SeparateArms,
)
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.models.arms_prior import ArmsPrior
from botorch_bandits.models.kernels import double_kernel
from botorch_bandits.problems import GardnerProblem, RatesProblem

NOISE_STD = 0.1
"""Of the reward's noise, in both experiments."""

NUM_INITIAL = 1
"""Rounds that are drawn uniformly, so that each run starts at another point."""


@dataclass(frozen=True)
class Constants:
    """What the paper leaves unsaid.

    Attributes:
        rkhs_bound: ``B``.
        noise_bound: ``R``.
        lam: The regularisation of the model.
        delta: Of all epochs together.
        lengthscale: Of the Matern 5/2 kernel, in units of the box.
    """

    rkhs_bound: float = 1.0
    noise_bound: float = NOISE_STD
    lam: float = 0.01
    delta: float = 0.1
    lengthscale: float = 1.0

    @property
    def kernel(self) -> Kernel:
        """The kernel, of prior variance 1."""
        return double_kernel(MaternKernel(nu=2.5), lengthscale=self.lengthscale)

    @property
    def model(self) -> Any:
        """The recipe of the model."""
        return BanditGP.with_kernel(
            MaternKernel(nu=2.5), noise=self.lam, lengthscale=self.lengthscale
        )

    @property
    def widths(self) -> dict[str, float]:
        """Options of IGP-UCB and GP-TS."""
        return {
            "rkhs_bound": self.rkhs_bound,
            "noise_bound": self.noise_bound,
            "delta": self.delta,
        }


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem with and without noise on its constraint.

    Attributes:
        name: For files.
        box: The problem on its box.
        num_points: Of the grid, a dimension.
        admm_steps: Queries of ADMMBO's subproblems, as its authors have them.
        bounds: ``B``, ``G`` and Slater gap of the rule that updates every round.
        num_rounds: The horizon, which IGP-UCB's share of ``delta`` and some constants need.
    """

    name: str
    box: GardnerProblem | RatesProblem
    num_points: int
    admm_steps: tuple[tuple[int, int], tuple[int, int]]
    bounds: tuple[float, float, float]
    num_rounds: int

    @property
    def grid(self) -> Any:
        """The problem on its grid of arms."""
        return _grid(self.box, self.num_points)

    def loop(
        self,
        name: str,
        rule: MultiplierRule,
        acquisition: type = ImprovedUpperConfidenceBound,
        constants: Constants | None = None,
        num_rounds: int | None = None,
    ) -> ConstrainedMethod:
        """Return a method that the loop plays on the grid."""
        known, grid = constants or Constants(), self.grid
        recipe: AcquisitionRecipe = acquisition.with_options(**known.widths)  # type: ignore[attr-defined]
        domain = Arms(grid.choices)

        def build(seed: int) -> PlayedLoop:
            loop = BanditLoop(
                domain,
                known.model,
                recipe,
                constraints=rule,
                horizon=num_rounds or self.num_rounds,
                num_initial=NUM_INITIAL,
                seed=seed,
                clock=lambda: 0.0,
            )
            return PlayedLoop(loop)

        return ConstrainedMethod(name, grid, build)

    def separate(
        self, name: str, rule: MultiplicativeEpochs | AdditiveEpochs | PrimalDual
    ) -> ConstrainedMethod:
        """Return a method with models of reward and constraint apart, on the grid."""
        known, grid = Constants(), self.grid

        def build(seed: int) -> SeparateArms:
            return SeparateArms(
                grid.choices,
                known.kernel,
                known.lam,
                rule,
                num_initial=NUM_INITIAL,
                seed=seed,
                prior=_prior(self.box, self.num_points),
                **known.widths,
            )

        return ConstrainedMethod(name, grid, build)

    def every_round(self) -> ConstrainedMethod:
        """Return the rule that changes multipliers every round."""
        reward, constraint, gap = self.bounds
        rule = PrimalDual.with_constants(
            1,
            reward_bound=reward,
            constraint_bound=constraint,
            slater_gap=gap,
            horizon=self.num_rounds,
        )
        return self.separate("update every round", rule)

    def others(self) -> list[ConstrainedMethod]:
        """Return bandit online convex optimisation and ADMMBO, on the box."""
        box, model = self.box, Constants().model
        objective, feasibility = self.admm_steps
        return [
            ConstrainedMethod(
                "OCO, saddle point", box, lambda seed: BanditSaddlePoint(box.bounds, seed=seed)
            ),
            ConstrainedMethod(
                "ADMMBO",
                box,
                lambda seed: ADMMBO(
                    box.bounds,
                    model,
                    objective_steps=objective,
                    feasibility_steps=feasibility,
                    seed=seed,
                ),
            ),
        ]

    def improvement(self) -> ConstrainedMethod:
        """Return constrained expected improvement, on the grid."""
        model, grid = Constants().model, self.grid
        domain = Arms(grid.choices)
        return ConstrainedMethod(
            "constrained EI",
            grid,
            lambda seed: ConstrainedImprovement(domain, model, num_initial=NUM_INITIAL, seed=seed),
        )


@cache
def _grid(box: GardnerProblem | RatesProblem, num_points: int) -> Any:
    return box.on_grid(num_points)


@cache
def _prior(box: GardnerProblem | RatesProblem, num_points: int) -> ArmsPrior:
    return ArmsPrior.from_kernel(Constants().kernel, _grid(box, num_points).choices)
