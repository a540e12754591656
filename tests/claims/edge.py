"""How much of each width on functions of bounded norm is needed.

For a design ``X`` and a point ``x``, let ``a = (K + lam I)^-1 k(X, x)``. The posterior mean misses
a function ``f`` by ``f(x) - a' f(X) - a' noise``. Over the ball of norm ``B`` this is at most
``B |u|``, for ``f = B u / |u|`` with ``u = k(x, .) - sum_i a_i k(x_i, .)``, plus ``R |a|_1``, if
all noise is at its bound with the signs of ``-a``. :func:`aligned` observes just that function and
noise. :func:`quantile` plays many runs with noise by chance, and takes the largest error of all
rounds and points in each, like somebody who stops when it is largest. Both divide the error by the
half width that the package computes: at 1 the bound is an equality.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from botorch_bandits import Arms, GPUpperConfidenceBound
from botorch_bandits.acquisition import player_of
from botorch_bandits.acquisition.rules import WidthArmsRule
from claims.building import Plan
from claims.faults import setting
from claims.judging import binomial_tail
from claims.running import half_of, moments
from claims.settings import Setting

NUM_DIRECTIONS = 24
"""Of unit vectors in the plane, the points at which bounds are looked at."""

VARIANCE = 0.8
"""Of the linear kernel of :func:`~claims.worlds.kernel_of`."""

ROUNDING = 1e-7
"""By how much a ratio may exceed 1."""


@dataclass(frozen=True)
class Edge:
    """A width, and where most of it is needed.

    Attributes:
        name: Of the theorem, for readers.
        method: The values of the setting that all columns share.
        aligned: Further ones, with which the aligned error is large.
        noise: Further ones for noise alone; None if it adds nothing to another line.
        why: What the rest of the width is for.
        lam: The regularization in runs with noise by chance.
        num_rounds: Of a run.
    """

    name: str
    method: dict[str, Any]
    aligned: dict[str, Any]
    noise: dict[str, Any] | None
    why: str
    lam: float = 3.0
    num_rounds: int = 1000

    def run_of(self, **given: Any) -> Setting:
        """Return the setting of a run with noise by chance."""
        values = {"kernel": "linear", "lam": str(self.lam), "noise_bound": 1.0, "norm": 0.01}
        return setting(**self.method, **{**values, "offset": 0.0, **given})

    def line(self, num_runs: int) -> str:
        """Return the line of the table.

        Args:
            num_runs: With noise by chance.
        """
        cells = [aligned(setting(**self.method, **self.aligned))]
        if self.noise is not None:
            run = self.run_of(**self.noise)
            cells.append(quantile(run, self.num_rounds, num_runs)[0])
            if not run.is_censored:  # as much of the norm as of noise, at first
                run = self.run_of(norm=math.sqrt(2.0 * math.log(10.0) / self.lam))
                cells.append(quantile(run, self.num_rounds, num_runs, 1.0)[0])
        shown = [f"{each:.2f}" for each in cells] + [""] * (3 - len(cells))
        return f"| {' | '.join([self.name, *shown, self.why])} |"


def aligned(given: Setting) -> float:
    """Return the share of the half width that the largest error at a point reaches.

    Args:
        given: Two arms of three are observed and the third is looked at, or one arm is observed in
            all rounds. With censored feedback its outcomes are all pending.
    """
    plan = Plan(given)
    plan.max_delay, points, lam = given.num_rounds, plan.world.points, float(given.lam)
    again = given.num_arms == 1
    X, x = (points.expand(given.num_rounds, -1), points) if again else (points[::2], points[1:2])
    K, k = plan.world.covariance(X, X), plan.world.covariance(X, x)[:, 0]
    a = torch.linalg.solve(K + lam * torch.eye(len(X)), k)
    norm = (1.0 - 2.0 * a @ k + a @ K @ a).sqrt()
    at_rows, value = plan.norm * (k - K @ a) / norm, plan.norm * (1.0 - a @ k) / norm
    y = at_rows - (plan.noise_bound + plan.variation) * a.sign()
    pending = None
    if given.is_censored:
        value, pending, X, y = torch.tensor(plan.norm), X, X[:0], y[:0]
    model = plan.model(X, y.unsqueeze(-1))
    acquisition: Any = plan.recipe.build(
        model, plan.world.domain, round_number=len(X) + 1, X_pending=pending
    )
    if given.method == "DMM":
        with torch.no_grad():
            middle, half = half_of(*acquisition.bounds(x))
    else:
        middle, deviation = moments(acquisition.model, x)
        half = acquisition.width * deviation
    return float((value - middle).abs() / half)


def quantile(
    given: Setting, num_rounds: int, num_runs: int, share: float = 0.0
) -> tuple[float, float]:
    """Return the ``1 - delta`` quantile of the largest ratio in a run, and a p-value.

    Unit vectors are arms of a linear kernel, and two that are orthogonal are observed in turn. The
    function rises along one of them. Noise is Gaussian, or plus and minus
    its bound where a theorem needs a bound. With censored feedback outcomes are 0 or ``B_y``, by
    chance, and only the first arm is observed.

    Args:
        given: What is played.
        num_rounds: Of each run.
        num_runs: How many.
        share: Of the stated norm that the function has; with censored feedback it is given.

    Returns:
        The quantile, and the probability of as many failures as there are or more, if the bounds
        fail in a share ``delta`` of runs.
    """
    plan, stream = Plan(given), torch.Generator().manual_seed(0)
    angles = torch.arange(NUM_DIRECTIONS, dtype=torch.float64) * (math.pi / NUM_DIRECTIONS)
    arms = torch.stack([angles.cos(), angles.sin()], -1)
    plan.world.points = arms / VARIANCE**0.5
    domain, played, R = Arms(plan.world.points), (0, NUM_DIRECTIONS // 2), plan.noise_bound
    recipe = GPUpperConfidenceBound.with_options(width=1.0) if given.is_censored else plan.recipe
    player: Any = player_of(plan.model, recipe, domain, range(num_runs))
    size = share * plan.norm
    if given.is_censored:
        played, R = (0, 0), 0.5 * plan.outcome_bound
        size = R
        empty = plan.model(arms[:0], arms[:0, :1])
        player.rule = WidthArmsRule(plan.recipe.build(empty, domain, round_number=1).rule)
    values = size * arms[:, 0]
    worst = torch.zeros(num_runs, dtype=torch.float64)
    is_bounded = given.is_censored or given.method == "Theorem 3"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a set that is refuted has failed
        for t in range(num_rounds):
            seen = player.look(t + 1)
            known = seen.rule.known(seen)
            middle, half = half_of(known.lower, known.upper)
            worst = torch.maximum(worst, ((values - middle).abs() / half).amax(-1))
            z: Tensor = torch.randn(num_runs, generator=stream, dtype=torch.float64)
            noise = R * (z.sign() if is_bounded else z)
            arm = played[t % 2]
            player.observe(torch.full((num_runs,), arm), values[arm] + noise)
    failed, delta = int((worst > 1.0 + ROUNDING).sum()), plan.delta
    return float(worst.quantile(1.0 - delta)), binomial_tail(failed, num_runs, delta)


_NEAR = {"num_arms": 3, "lengthscale": 0.8, "lam": "1e-6", "noise_bound": 1e-6}
_FAR = {"num_arms": 3, "lengthscale": 0.3, "noise_bound": 1.0, "norm": 1000.0}
_PENDING = {"num_arms": 1, "num_rounds": 1500, "lam": "1", "noise_bound": 0.01, "offset": 0.0}

EDGES = (
    Edge(
        "Chowdhury and Gopalan, Theorem 2, as printed",
        {"method": "IGP-UCB, printed"},
        {**_FAR, "lam": "1"},
        {},
        "2 more under the root, here 19 instead of 17; for lam > 1 also R in place of R/sqrt(lam)",
        lam=1.0,
    ),
    Edge(
        "the same for every lam",
        {"method": "IGP-UCB, any lam"},
        _NEAR,
        {},
        "B + N, N the term of the noise: the two errors are orthogonal in the feature space, so "
        "that sqrt(B^2 + N^2) suffices, which is up to sqrt(2) less",
    ),
    Edge(
        "the same with the gain of the best design",
        {"method": "IGP-UCB, water-filling gain"},
        _NEAR,
        {},
        "that design plays all 24 points in each round: 20 instead of 15 under the root",
    ),
    Edge(
        "the same for functions that vary",
        {"method": "IGP-UCB, any lam", "variation": "by arm"},
        {"num_arms": 1, "num_rounds": 100, "lam": "1", "norm": 1e-3, "noise_bound": 1e-4},
        None,
        "as for every lam",
    ),
    Edge(
        "Flynn and Reeb, AMM",
        {"method": "AMM"},
        _NEAR,
        {},
        "Ville's inequality is an equality only for endless runs in infinitely small steps",
    ),
    Edge(
        "Flynn and Reeb, DMM",
        {"method": "DMM"},
        _NEAR,
        {"norm": 1.0},
        "the same; a function at the bound of the norm is an end of its interval",
        num_rounds=300,
    ),
    Edge(
        "Srinivas et al., Theorem 3",
        {"method": "Theorem 3"},
        {**_FAR, "lam": "100"},
        {},
        "2 B^2 in place of B^2 (1/sqrt(2) = 0.71), and 300 gain ln(t/delta)^3 in place of "
        "2 gain + 2 ln(1/delta): after 1000 rounds more than 10,000 times as much",
        lam=0.1,
    ),
    Edge(
        "Verma, Dai and Low, Theorem 1, for every lam",
        {"method": "censored UCB", "feedback": "censored, any lam"},
        _PENDING,
        {"norm": 1.0, "noise_bound": 1e-3},
        "R + B_y for noise in an interval of length B_y, which is B_y/2-sub-Gaussian: at least "
        "twice as much; ln(2/delta); B + N",
        lam=0.1,
    ),
    Edge(
        "the same for bounded outcomes",
        {"method": "censored UCB", "feedback": "censored, bounded"},
        _PENDING,
        {"norm": 0.5, "noise_bound": 0.5},
        "B + N",
        lam=0.1,
    ),
)
"""The widths on functions of bounded norm; others are one of these at another delta."""


def table(num_runs: int = 400) -> str:
    """Return how much of each width is needed, as text.

    Args:
        num_runs: With noise by chance.
    """
    head = "| theorem | aligned | noise | both | what the rest is for |"
    rule = "| --- | --- | --- | --- | --- |"
    return "\n".join([head, rule, *(each.line(num_runs) for each in EDGES)])
