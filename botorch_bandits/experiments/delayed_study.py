"""Functions on arms whose outcomes arrive late: the loop plays them one after the other.

Outcomes come out of order and at different rounds in different trials, so trials cannot share one
tensor program as in :mod:`~botorch_bandits.experiments.arms_study`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.domains import Arms
from botorch_bandits.evaluation import RunResult, run
from botorch_bandits.experiments.arms_study import ArmsStudy, Method
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, LateOutcomeWarning
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.problems import ArmsProblem, ConstantDelay, Delays


@dataclass(frozen=True, kw_only=True)
class DelayedMethod(Method):
    """A method with the delays that it meets and what it makes of pending queries.

    Attributes:
        delays: After how many rounds outcomes arrive.
        feedback: How pending queries enter the model.
    """

    delays: Delays = field(default_factory=lambda: ConstantDelay(0))
    feedback: Feedback = field(default_factory=Hallucinated)


@dataclass(frozen=True, eq=False)
class DelayedPlayer:
    """Plays every function of a study with one method.

    A trial is seeded by its number alone: every method meets the same function, noise and delays,
    and cutting a study into pieces changes nothing.

    Attributes:
        choices: The arms, ``num_arms x d``.
        kernel: The model's kernel, of prior variance 1.
        prior_mean: The model's prior mean; with censored feedback the minimum takes its place.
    """

    choices: Tensor
    kernel: Kernel
    prior_mean: float = 0.0

    def __call__(
        self, study: ArmsStudy, method: DelayedMethod, on_round: Callable[[int], None]
    ) -> dict[str, Any]:
        """Play a study.

        Args:
            study: What is played.
            method: How.
            on_round: Called with the numbers of rounds, as often as a round of all functions has
                been played; they are played one after the other.

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
            warnings.simplefilter("ignore", LateOutcomeWarning)  # the experiments count on them
            return run(loop, problem, study.num_rounds, delays=method.delays, progress=False)


def simple_regret_in_time(result: RunResult, max_delay: float | None) -> Tensor:
    """Return the smallest regret among outcomes that had arrived, without those given up.

    Args:
        result: A run from its first round on.
        max_delay: ``m``, in rounds; outcomes with a longer delay never count. None counts all.

    Returns:
        One number a round; infinite before the first arrival.
    """
    if max_delay is None or result.arrivals is None:
        return result.simple_regret
    rounds = torch.arange(1, len(result.arrivals) + 1, dtype=torch.float64)
    late = result.arrivals + 1.0 - rounds > max_delay
    return replace(result, arrivals=result.arrivals.masked_fill(late, torch.inf)).simple_regret
