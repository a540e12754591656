"""Censored feedback in loops with constraints, against dense models of the penalized outcome."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    ImprovedUpperConfidenceBound,
    MultiplicativeEpochs,
)
from botorch_bandits.checks import LARGEST_OUTCOME
from botorch_bandits.penalties import Polynomial

ARMS = Arms(torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1))
LENGTHSCALE, NOISE = 0.3, 0.2
MINIMUM, BOUND, PAIRS = -1.0, 3.0, ((-0.7, 0.8), (-0.8, 0.6))
B, R, DELTA = 1.5, 0.1, 0.1
RULES = {
    "additive": AdditiveEpochs(2, 4, step_size=3.0),
    "fresh": AdditiveEpochs(2, 4, step_size=3.0, surrogate="fresh"),
    "multiplicative": MultiplicativeEpochs(2, 4, penalty=Polynomial(1.0, 2.0)),
}
UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)


def build(rule, domain=ARMS, acquisition=UCB, **others):
    feedback = Censored(MINIMUM, BOUND, max_delay=6, constraint_bounds=PAIRS)
    model = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
    given = {"feedback": feedback, "constraints": rule, "seed": 3}
    return BanditLoop(domain, model, acquisition, **{**given, **others})


def penalized(rule, reward, values, kappa):
    """Algorithm 3 charges ``kappa g``, Algorithm 2 ``kappa (psi(g) - 1)``."""
    if isinstance(rule, AdditiveEpochs):
        charges = values
    else:
        charges = [(1.0 + max(g, 0.0)) ** 2 - 1.0 for g in values]
    return reward - sum(k * c for k, c in zip(kappa, charges, strict=True))


def test_values_outside_of_the_bounds_are_refused_before_they_are_recorded():
    loop = build(RULES["additive"])
    query = loop.ask()
    with pytest.raises(ValueError, match=r"0\.7, outside its constraint_bounds"):
        loop.tell(query.id, 0.0, constraints=[0.0, 0.7])
    assert loop.history.num_arrived == 0
    loop.tell(query.id, 0.0, constraints=[0.8, 0.6])


def test_pseudo_values_too_large_for_the_model_are_refused():
    rule = MultiplicativeEpochs(1, 1, penalty=Polynomial(1.0, 2.0))
    side = 0.5 * math.sqrt(LARGEST_OUTCOME)
    loop = build(rule, feedback=Censored(0.0, 1.0, constraint_bounds=((-1.0, side),)))
    query = loop.ask()
    with pytest.raises(ValueError, match="penalized outcome of"):
        loop.tell(query.id, 0.0, constraints=[5.0])  # a multiplier of 36 follows
    assert loop.history.num_arrived == 0
    with pytest.raises(ValueError, match="at its first multipliers"):
        build(rule, feedback=Censored(0.0, 1.0, constraint_bounds=((-1.0, 3.0 * side),)))
    with pytest.raises(ValueError, match="at its first multipliers"):
        build(rule, feedback=Censored(0.0, 1.0, constraint_bounds=((-1.0, 1e300),)))


@pytest.mark.parametrize(
    ("feedback", "others", "message"),
    [
        (Censored(0.0, 1.0), {}, r"no constraint_bounds=, but there are 2"),
        (Censored(0.0, 1.0, constraint_bounds=((0.0, 1.0),)), {}, r"for 1, but .* 2"),
        (Censored(minimum_proxy=2.0, outcome_bound=1.0), {}, r"has minimum_proxy="),
        (Censored(0.0, 1.0, on_lower="lower"), {}, r"has on_lower='lower'"),
        (Censored(0.0, 1.0, constraint_bounds=PAIRS), {"constraints": None}, r"no constraints"),
    ],
)
def test_what_does_not_go_together(feedback, others, message):
    with pytest.raises(ValueError, match=message):
        build(RULES["additive"], feedback=feedback, **others)


@pytest.mark.parametrize("pairs", [(), ((1.0, 0.0),), (1.0, 2.0), ((0.0, 1.0, 2.0),)])
def test_bounds_are_pairs(pairs):
    with pytest.raises(ValueError, match="constraint_bounds is"):
        Censored(0.0, 1.0, constraint_bounds=pairs)
