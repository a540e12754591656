r"""The hyperparameters in a continuum that the outcomes do not refute: those of high likelihood.

Let a forecaster assign a density to each outcome, given the previous outcomes and the queried
point, by any rule that was fixed beforehand. Its **prequential score** :math:`\ln q(D_t)` is the
sum of the logarithms of these densities. The region at level :math:`\delta_1` is

.. math:: R_t = \{ \theta : \; \ln p_\theta(D_t) > \ln q(D_t) - \ln(1 / \delta_1) \} .

**Lemma.** If the reward is a draw from the prior :math:`\theta`, with its Gaussian noise,
:math:`\theta` is in all regions :math:`R_1, R_2, \dots` with probability :math:`1 - \delta_1`.

*Proof.* In round ``t``, :math:`q(D_t) / p_\theta(D_t)` is multiplied by :math:`q_t(y_t) /
p_\theta(y_t | x_t, D_{t-1})`. Given the past and :math:`x_t`, the denominator is the density of
:math:`y_t`, so that the expectation of the factor is at most :math:`\int q_t(y) \, dy = 1`. The
product is therefore a supermartingale that starts at 1, and by Ville's inequality it reaches
:math:`1 / \delta_1` with probability at most :math:`\delta_1`. :math:`\square`

There is no union bound over :math:`\theta`, so a continuum is possible, and the forecaster need not
be good: a bad one only makes the region large. Two forecasters are available: the mixture over a
list of priors, whose score is ``model.evidence.log_marginal_likelihood`` of a
:class:`.CandidatesModel`, and :func:`refitted_scores`, which predicts each outcome by the member of
the family that is fitted to the outcomes before it.

The likelihood has a closed form with gradients, which is used to search for extremes over the
region, such as the largest lengthscale in it or the largest upper bound at a point. The search is
numerical: its result is in the region, but it is not proved to be the extreme.

Sources: Ville 1939; Wasserman, Ramdas and Balakrishnan 2020 for regions from predictive densities;
Dawid 1984 for prequential scores.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_integer,
    check_matrix,
    check_number,
    check_probability,
)
from botorch_bandits.confidence.candidates import RefutedListWarning, check_num_skipped
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.prior_family import PriorFamily

NUM_STARTS = 256
"""Quasi-random members of the box, from the best of which the likeliest member is sought."""

NUM_MEMBERS = 128
"""Members on the border of the region that are evaluated before a search, besides its extremes."""

NUM_CLIMBS = 3
"""The number of members from which a search for the likeliest one starts."""

NUM_HALVINGS = 30
"""Steps of the bisection that finds a point of the border in a given direction."""

AT_ONCE = 64
"""The number of members that are evaluated at a time."""

Vector = NDArray[np.float64]
Objective = Callable[[Tensor], Tensor]
"""A differentiable function from ``P x k`` hyperparameters to ``P`` values."""


class HyperparameterRegion:
    """Hyperparameters of a family that the outcomes do not refute, and extremes over them.

    Args:
        family: The priors.
        X: ``n x d`` inputs in the order in which their outcomes arrived, float64.
        y: ``n`` outcomes, float64.
        score: The prequential score of the outcomes after the skipped ones, in nats.
        level: ``delta_1``: the probability that the true hyperparameters are ever outside the
            region is at most this.
        num_skipped: The number of first outcomes that the score leaves out; likelihoods are
            conditional on these.
        seed: The seed of the quasi-random members with which a search begins.

    Raises:
        TypeError: If a tensor is not float64.
        ValueError: If shapes do not match, a number is not finite, or the level is not a
            probability.

    Example:
        >>> family = PriorFamily((0.05, 2.0), scales=(0.1, 10.0), noises=(0.001, 1.0))
        >>> X = torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)
        >>> y = (9.0 * X).sin().squeeze(-1)
        >>> score = sum(refitted_scores(family, X, y))
        >>> region = HyperparameterRegion(family, X, y, score, level=0.05)
        >>> smallest, largest = region.range_of("lengthscale")
        >>> 0.05 <= smallest < 0.3 < largest < 2.0
        True
        >>> theta = family.hyperparameters((1.9,), scale=0.1, noise=0.001)
        >>> region.contains(theta)
        False
    """

    def __init__(
        self,
        family: PriorFamily,
        X: Tensor,
        y: Tensor,
        score: float,
        level: float = 0.05,
        num_skipped: int = 0,
        seed: int = 0,
    ) -> None:
        """See the class."""
        self.family = family
        self.X, self.y = _check_rows(family, X, y)
        self.score = check_number("score", score)
        self.level = check_probability("level", level)
        self.num_skipped = check_num_skipped(num_skipped)
        if self.num_skipped > len(self.y):
            raise ValueError(
                f"num_skipped is {self.num_skipped}, but there are {len(self.y)} outcomes."
            )
        self._seed = check_integer("seed", seed, minimum=0)

    @property
    def threshold(self) -> float:
        """The score less ``ln(1 / level)``, which the log likelihood of a member must exceed."""
        return self.score + math.log(self.level)

    def log_likelihoods(self, theta: Tensor) -> Tensor:
        """Return the log likelihoods of members, ``P``, given the skipped outcomes.

        Args:
            theta: ``P x k`` logarithms of hyperparameters.
        """
        return self.family.log_likelihoods(theta, self.X, self.y, self.num_skipped)

    def contains(self, theta: Tensor) -> bool:
        """Return whether hyperparameters are in the region, be they in the family's box or not.

        Args:
            theta: ``k`` logarithms, from :meth:`.PriorFamily.hyperparameters`.

        Raises:
            ValueError: If the number of logarithms is wrong, or one is not finite.
        """
        check_finite("theta", check_double("theta", theta))
        if theta.shape != (self.family.size,):
            raise ValueError(
                f"theta has the shape {tuple(theta.shape)}; it must be ({self.family.size},): the "
                f"logarithms of {', '.join(self.family.names)}."
            )
        with torch.no_grad():
            return float(self.log_likelihoods(theta.unsqueeze(0))) > self.threshold

    @cached_property
    def likeliest(self) -> Tensor:
        """The member of the family with the largest likelihood found, ``k``."""
        box = self.family.box
        draws = SobolEngine(self.family.size, scramble=True, seed=self._seed).draw(
            NUM_STARTS, dtype=box.dtype
        )
        draws = box[0] + draws * (box[1] - box[0])
        order = self._evaluated(self.log_likelihoods, draws).argsort(descending=True)
        found = [self._climb(draws[i].numpy()) for i in order[:NUM_CLIMBS].tolist()]
        return torch.from_numpy(max(found, key=lambda pair: pair[1])[0])

    @cached_property
    def is_refuted(self) -> bool:
        """Whether no member of the family was found in the region."""
        return not self.contains(self.likeliest)

    @cached_property
    def members(self) -> Tensor:
        """Some members of the region, ``P x k``: the likeliest, extremes, and points of the border.

        The border is that of the likelihood or of the family's box, in quasi-random directions from
        the likeliest member. If the region is empty, only the likeliest member is returned.
        """
        if self.is_refuted:
            return self.likeliest.unsqueeze(0)
        ends = [self._improved(self._coordinate(i, s), self.likeliest) for i, s in self._sides()]
        extremes = torch.stack(ends)
        spread = extremes.amax(0) - extremes.amin(0)
        uniform = SobolEngine(self.family.size, scramble=True, seed=self._seed + 1).draw(
            NUM_MEMBERS, dtype=spread.dtype
        )
        normal = torch.special.ndtri(uniform.clamp(1e-6, 1.0 - 1e-6))
        away = spread * normal / normal.norm(dim=-1, keepdim=True)
        low, high = self.family.box - self.likeliest
        room = torch.where(away > 0.0, high / away, low / away)
        room = room.nan_to_num(nan=math.inf).amin(-1, keepdim=True)  # up to the border of the box
        inside, outside = torch.zeros_like(room), room
        at = room
        for _ in range(NUM_HALVINGS):
            theta = self.likeliest + at * away
            is_in = (self._evaluated(self.log_likelihoods, theta) > self.threshold).unsqueeze(-1)
            inside, outside = torch.where(is_in, at, inside), torch.where(is_in, outside, at)
            at = 0.5 * (inside + outside)
        border = (self.likeliest + inside * away).clamp(*self.family.box)
        counts = self._evaluated(self.log_likelihoods, border) > self.threshold
        return torch.cat([self.likeliest.unsqueeze(0), extremes, border[counts]])

    def range_of(self, name: str) -> tuple[float, float]:
        """Return the smallest and the largest value of a hyperparameter in the region.

        Args:
            name: One of the family's ``names``, such as ``"lengthscale"``.

        Raises:
            ValueError: If there is no such hyperparameter.

        Warns:
            RefutedListWarning: If the region is empty; the value of the likeliest member is then
                returned.
        """
        if name not in self.family.names:
            raise ValueError(f"name is {name!r}; it must be one of {self.family.names}.")
        index = self.family.names.index(name)
        self.warn_if_refuted()
        ends = [self.maximize(self._coordinate(index, sign))[1] for sign in (-1.0, 1.0)]
        low, high = self.family.box[:, index].exp().tolist()
        return max(math.exp(-ends[0]), low), min(math.exp(ends[1]), high)

    def maximize(self, objective: Objective) -> tuple[Tensor, float]:
        """Search for the largest value of a function over the region.

        Args:
            objective: A differentiable function from ``P x k`` logarithms of hyperparameters to
                ``P`` values.

        Returns:
            A member of the region, ``k``, and its value.
        """
        if self.is_refuted:
            return self.likeliest, float(self._evaluated(objective, self.members)[0])
        start = self.members[int(self._evaluated(objective, self.members).argmax())]
        theta = self._improved(objective, start)
        return theta, float(self._evaluated(objective, theta.unsqueeze(0)))

    def largest_bound(
        self, point: Tensor, width: float, sign: float = 1.0, pending: Tensor | None = None
    ) -> tuple[Tensor, float]:
        """Search for the largest upper confidence bound at a point over the region.

        Args:
            point: ``d``.
            width: The number of deviations that are added to the mean.
            sign: 1 for the upper bound, -1 for minus the least lower bound.
            pending: ``p x d`` points without outcomes.

        Returns:
            A member of the region, ``k``, and the bound.
        """

        def bound(theta: Tensor) -> Tensor:
            mean, deviation = self.family.posterior(
                theta, self.X, self.y, point.unsqueeze(0), pending
            )
            return (sign * mean + width * deviation).squeeze(-1)

        return self.maximize(bound)

    def warn_if_refuted(self) -> None:
        """Warn if the region is empty.

        Warns:
            RefutedListWarning: If the region is empty.
        """
        if self.is_refuted:
            warnings.warn(
                f"after {len(self.y)} outcomes, no prior of {self.family} is in the region at "
                f"level {self.level:g}: the likeliest one falls short of the forecaster by more "
                "than ln(1 / level). It is used from now on, without any guarantee. Widen the "
                "ranges of the family, or use another kernel.",
                RefutedListWarning,
                stacklevel=3,
            )

    def _sides(self) -> list[tuple[int, float]]:
        return [(index, sign) for index in range(self.family.size) for sign in (-1.0, 1.0)]

    @staticmethod
    def _coordinate(index: int, sign: float) -> Objective:
        return lambda theta: sign * theta[:, index]

    @staticmethod
    def _evaluated(objective: Objective, theta: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([objective(part) for part in theta.split(AT_ONCE)])

    def _bounds(self) -> Sequence[tuple[float, float]]:
        low, high = self.family.box.tolist()
        return list(zip(low, high, strict=True))

    def _climb(self, start: Vector) -> tuple[Vector, float]:
        """Return the likeliest member near a start, and its log likelihood."""

        def loss(at: Vector) -> tuple[float, Vector]:
            value, slope = _with_slope(self.log_likelihoods, at)
            return -value, -slope

        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=self._bounds())
        return found.x, -float(found.fun)

    def _improved(self, objective: Objective, start: Tensor) -> Tensor:
        """Return a member of the region with a larger value, or the start."""

        def loss(at: Vector) -> tuple[float, Vector]:
            value, slope = _with_slope(objective, at)
            return -value, -slope

        known: dict[bytes, tuple[float, Vector]] = {}

        def likelihood(at: Vector) -> tuple[float, Vector]:
            key = at.tobytes()
            if key not in known:
                known.clear()
                known[key] = _with_slope(self.log_likelihoods, at)
            return known[key]

        def margin(at: Vector) -> float:
            return likelihood(at)[0] - self.threshold

        constraint = {"type": "ineq", "fun": margin, "jac": lambda at: likelihood(at)[1]}
        begin = start.numpy().copy()
        found = minimize(
            loss,
            begin,
            jac=True,
            method="SLSQP",
            bounds=self._bounds(),
            constraints=[constraint],
            options={"maxiter": 60, "ftol": 1e-9},
        )
        low, high = self.family.box.numpy()
        end = np.clip(found.x, low, high)
        if not np.isfinite(end).all():
            return start
        outside, inside = 1.0, 0.0  # fractions of the distance from the start
        if margin(end) > 0.0:
            inside = 1.0
        else:
            for _ in range(NUM_HALVINGS):
                half = 0.5 * (inside + outside)
                if margin(begin + half * (end - begin)) > 0.0:
                    inside = half
                else:
                    outside = half
        theta = torch.from_numpy(begin + inside * (end - begin))
        before, after = self._evaluated(objective, torch.stack([start, theta])).tolist()
        return theta if after > before else start


def refitted_scores(
    family: PriorFamily, X: Tensor, y: Tensor, num_skipped: int = 0
) -> tuple[float, ...]:
    """Return the log density of each outcome under the member fitted to those before it.

    A fit starts from the previous one and maximizes the likelihood times a log-normal density for
    each hyperparameter, whose median is the middle of its range and whose range spans four of its
    deviations. The first outcome is predicted by the middle of all ranges.

    Args:
        family: The priors.
        X: ``n x d`` inputs in the order in which their outcomes arrived, float64.
        y: ``n`` outcomes, float64.
        num_skipped: The number of first outcomes that get no density.

    Returns:
        ``n - num_skipped`` numbers, in nats; their sum is the prequential score.

    Raises:
        TypeError: If a tensor is not float64.
        ValueError: If shapes do not match or a number is not finite.
    """
    X, y = _check_rows(family, X, y)
    box = family.box
    middle, spread = box.mean(0), 0.25 * (box[1] - box[0]).clamp_min(1e-9)
    ranges = list(zip(*box.tolist(), strict=True))
    theta, scores = middle, []
    for i in range(check_num_skipped(num_skipped), len(y)):
        if i:

            def objective(members: Tensor, i: int = i) -> Tensor:
                away = ((members - middle) / spread).square().sum(-1)
                return family.log_likelihoods(members, X[:i], y[:i]) - 0.5 * away

            def loss(at: Vector, of: Objective = objective) -> tuple[float, Vector]:
                value, slope = _with_slope(of, at)
                return -value, -slope

            found = minimize(loss, theta.numpy(), jac=True, method="L-BFGS-B", bounds=ranges)
            theta = torch.from_numpy(found.x)
        with torch.no_grad():
            density = family.log_densities(theta.unsqueeze(0), X[: i + 1], y[: i + 1])[0, -1]
        scores.append(float(density))
    return tuple(scores)


def _with_slope(objective: Objective, at: Vector) -> tuple[float, Vector]:
    """Return a value and its gradient at one member."""
    theta = torch.from_numpy(np.array(at)).unsqueeze(0).requires_grad_()
    with torch.enable_grad():
        value = objective(theta).sum()
        (slope,) = torch.autograd.grad(value, theta)
    return float(value.detach()), slope[0].numpy()


def _check_rows(family: PriorFamily, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    X = check_matrix("X", check_double("X", X))
    y = check_finite("y", check_double("y", y))
    if y.shape != (len(X),):
        raise ValueError(
            f"y has the shape {tuple(y.shape)} and X {tuple(X.shape)}; they must be n and n x d."
        )
    if family.num_lengthscales not in (1, X.shape[-1]):
        raise ValueError(
            f"num_lengthscales is {family.num_lengthscales}, but X has {X.shape[-1]} columns; give "
            "the family one lengthscale, or one per column."
        )
    return X, y


fill_in_docstrings(__name__)
