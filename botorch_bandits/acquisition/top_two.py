r"""Top-two Thompson sampling, which searches for the best of finitely many points.

The aim is to identify the best arm rather than to play well. Thompson sampling nearly always plays
the arm that it believes to be the best, and therefore learns little about the arms that might be
better. Top-two sampling plays its leader ``I``, the maximizer of a draw from the posterior, in only
a share of the rounds. In the other rounds, it plays a challenger: the maximizer ``J`` of the first
further draw that is not maximized by ``I``.

As the posterior concentrates, such a draw takes longer and longer to appear. If none appears within
``max_draws`` draws, the challenger is the arm with the largest posterior probability of being above
the leader,

.. math:: J = \arg\max_{j \ne I} P(f_j > f_I)
            = \arg\max_{j \ne I} \frac{\mu_j - \mu_I}{\sqrt{s_j^2 + s_I^2 - 2 c_{jI}}}

where the means, variances and covariances are those of the posterior of the arms. If the leader has
the largest mean, this is the arm with the smallest transportation cost (T3C), which is half the
square of the fraction.

Sources: Russo, *Simple Bayesian algorithms for best-arm identification*, Operations Research 2020,
for TTTS; Shang, de Heide, Menard, Kaufmann and Valko, *Fixed-confidence guarantees for Bayesian
best-arm identification*, AISTATS 2020, for T3C, in which the arms are independent (a covariance of
0) and ties among arms above the leader are broken at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.draws import Draw
from botorch_bandits.acquisition.rules import (
    Seen,
    ThompsonArmsRule,
    along_arms,
)
from botorch_bandits.acquisition.thompson_sampling import PENDING, GPThompsonSampling
from botorch_bandits.checks import check_integer, check_one_of, check_probability
from botorch_bandits.confidence import (
    ConstantWidth,
    GainBound,
    Guarantee,
    WidthRule,
)
from botorch_bandits.confidence.guarantee import RegretStatement
from botorch_bandits.confidence.ingredients import kernelized_rule
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    PLAIN_WIDTH,
)
from botorch_bandits.domains import Arms, ValueScale, first_of_the_largest

NO_REGRET_BOUND = (
    "top-two sampling seeks the best arm, and plays a challenger in a share of the rounds no "
    "matter how much is known: no regret bound is stated for it"
)
"""Why its guarantee makes no statement about regret."""

ASYMPTOTIC = (
    "what is proven about its draws is asymptotic and for independent arms: the posterior "
    "probability that another arm is the best falls at the largest exponential rate that "
    "leader_probability allows (Russo 2020; Shang et al. 2020 for Gaussian rewards). A prior that "
    "correlates the arms is not covered, and nothing is stated here about any finite number of "
    "rounds"
)
"""What is known about the draws, and what is not."""


def top_two(
    draw: Callable[[int], Tensor],
    is_challenger: Tensor,
    max_draws: int,
    differences: Callable[[Tensor], tuple[Tensor, Tensor]],
    scale: ValueScale | None,
    among: Tensor | None = None,
) -> Tensor:
    """Return values that are largest at the leader or at its challenger.

    Args:
        draw: A function that maps the number of a draw, which is 0 for the leader's draw, to
            ``batch_shape x num_arms`` values.
        is_challenger: ``batch_shape``; whether to play the challenger.
        max_draws: The number of further draws after which ``differences`` determine the challenger.
        differences: A function that maps ``batch_shape x 1`` leaders to ``batch_shape x num_arms``
            posterior means and variances of the difference between each arm and the leader.
        scale: The scale that decides ties; None if it is unknown.
        among: The arms from which both are chosen, in order; all if omitted.

    Returns:
        ``batch_shape x num_arms`` values.
    """
    values = draw(0)
    leader = first_of_the_largest(values, scale=scale, among=among)
    left = is_challenger.expand(leader.shape)
    for number in range(1, max_draws + 1):
        if not bool(left.any()):
            return values
        other = draw(number)
        found = left & (first_of_the_largest(other, scale=scale, among=among) != leader)
        values = other.where(found.unsqueeze(-1), values)
        left = left & ~found
    if not bool(left.any()):
        return values
    own = ValueScale() if scale is None else scale
    index = leader.unsqueeze(-1)
    mean, variance = differences(index)
    above = mean / variance.clamp_min(MINIMUM_VARIANCE * own.unit * own.unit).sqrt()
    # the leader itself must not be chosen
    above = above.scatter(-1, index, above.amin(-1, keepdim=True) - 1.0)
    # ties are decided in the unit of the scale
    return (own.offset + own.unit * above).where(left.unsqueeze(-1), values)


def differences_to(
    index: Tensor, mean: Tensor, variance: Tensor, column: Tensor
) -> tuple[Tensor, Tensor]:
    """Return means and variances of the differences between each arm and one of them.

    Args:
        index: ``batch_shape x 1``, the number of the one.
        mean: ``batch_shape x num_arms``.
        variance: ``batch_shape x num_arms``.
        column: ``batch_shape x num_arms`` covariances with the one.
    """
    # var(f_j - f_I) = s_j^2 + s_I^2 - 2 c_jI
    return mean - mean.gather(-1, index), variance + variance.gather(-1, index) - 2.0 * column


@dataclass(frozen=True, eq=False)
class TopTwoArmsRule(ThompsonArmsRule):
    """Plays the maximizer of a draw, or a challenger that maximizes another draw.

    The width is that of the confidence bounds; it does not change what is played.

    Attributes:
        leader_probability: See :class:`TopTwoThompsonSampling`.
        max_draws: See :class:`TopTwoThompsonSampling`.
    """

    leader_probability: float = 0.5
    max_draws: int = 64

    def is_challenger(self, seen: Seen) -> Tensor:
        """Return whether to play the challenger, ``batch_shape``."""
        uniform = seen.draw("leader or challenger", (), "uniform", None)
        return uniform >= self.leader_probability

    def scores(self, seen: Seen) -> Tensor:
        width = ConstantWidth(PLAIN_WIDTH)
        plain = ThompsonArmsRule(width, 1.0, self.maximize, self.hallucinates)

        def differences(index: Tensor) -> tuple[Tensor, Tensor]:
            mean = seen.mean if self.maximize else -seen.mean
            return differences_to(index, mean, seen.variance, seen.columns(index).squeeze(-2))

        return top_two(
            lambda number: replace(seen.redrawn(number), rule=plain).scores,
            self.is_challenger(seen),
            self.max_draws,
            differences,
            self.value_scale(seen),
            seen.among,
        )

    def bounds(self, seen: Seen) -> tuple[Tensor, Tensor]:
        half = seen.standard_deviation(0.0) * along_arms(seen.prepared)
        return seen.mean - half, seen.mean + half

    def describe(self, seen: Seen, arm: Tensor) -> dict[str, Tensor | float]:
        known: dict[str, Tensor | float] = {"is_challenger": self.is_challenger(seen)}
        if self.rule.information_gain(seen.summary) is None:
            return known  # the width is a constant that nothing follows from
        return {**known, **super().describe(seen, arm)}


class TopTwoThompsonSampling(GPThompsonSampling):
    r"""TTTS (Russo 2020): the maximizer of a draw, or a challenger from a further draw.

    Use it to find the best of finitely many points within a budget of queries; see
    :meth:`~botorch_bandits.BanditLoop.recommend`. (For ``run(stop_below=)``, an upper confidence
    bound is better, because a certificate needs tight bounds on all points.) With probability
    ``leader_probability``, the maximizer ``I`` of a draw from the posterior is played. Otherwise,
    further draws are made until one of them has a different maximizer, the challenger, which is
    then played. After ``max_draws`` unsuccessful draws, the challenger is the arm with the largest
    posterior probability of being above ``I``, as in T3C (Shang et al. 2020).

    The draws come from the unscaled posterior. ``rkhs_bound`` and ``noise_bound`` do not change
    what is played. They only provide the confidence bounds with which a loop certifies its
    recommendation; these are the bounds of :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.

    Boxes are not accepted. On a box, the maximizers of two draws differ with probability 1 unless
    both are in the same corner, so the first further draw would always be used and the rule would
    be :class:`~botorch_bandits.GPThompsonSampling`. By providing a finite set, the user decides
    which points count as different.

    Args:
        model: A fitted BoTorch model in float64.
        leader_probability: The probability of playing the leader, Russo's ``beta``, above 0 and
            below 1.
        max_draws: The number of further draws that are tried while the leader maximizes them as
            well. With 0, the challenger is always the one of T3C.
        rkhs_bound: ``B``, a bound on the reward's norm in the unit-variance kernel, in raw outcome
            units, unless ``units`` says otherwise. Without bounds, nothing is certified.
        noise_bound: ``R`` of R-sub-Gaussian noise, in raw outcome units, unless ``units`` says
            otherwise. ``"model"``: see :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.
        delta: The confidence bounds fail with at most this probability.
        any_lambda: Use the form of the width that holds for every ``lam``.
        information_gain: An explicit gain instead of the realized one, in nats.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation.
        choices: At least 2 points, ``num_points x d``, among which the best is sought; only these
            points can be evaluated. In a loop, they are the arms, or all points of a ``Space`` with
            few points (up to 1000).
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the point with the smallest reward is sought.
        pending: How pending points are treated: ``"redraw"`` or ``"hallucinate"``, as in
            :class:`~botorch_bandits.GPThompsonSampling`.
        assume: Assumptions that you vouch for because they cannot be read from the model:
            ``"fixed prior"``, ``"centered bound"`` or both; see
            :class:`~botorch_bandits.WidthUpperConfidenceBound`.
        X_pending: ``n x d`` points whose outcomes have not arrived.
        seed: Makes the draws reproducible; taken from torch's global generator if omitted.

    Raises:
        TypeError: If the model, ``choices`` or ``X_pending`` is not float64.
        ValueError: If there are fewer than 2 choices, or only one bound is given in raw outcome
            units.
        UnsupportedError: If the posterior is not Gaussian, or the model cannot be conditioned on
            pending points.

    Example:
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = TopTwoThompsonSampling(model, choices=X, seed=0)
        >>> bool((acqf(X.unsqueeze(-2)) == acqf(X.unsqueeze(-2))).all())
        True
    """

    defines_rule = True
    on_few_points = True

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        leader_probability: float = 0.5,
        max_draws: int = 64,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | str | tuple[float | str, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        choices: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        pending: str = "redraw",
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        given = dict(locals())
        rule = self.arms_rule(given)
        self._initialize(given)
        self.leader_probability, self.max_draws = rule.leader_probability, rule.max_draws

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        """Return the rule of the width of the confidence bounds; it does not affect the draws.

        Args:
            options: Constructor arguments by name, at least all that the width depends on.

        Raises:
            ValueError: If an ingredient is missing or infeasible.
        """
        return kernelized_rule(
            cls.__name__, {**options, "width": None, "default_width": PLAIN_WIDTH}
        )

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> TopTwoArmsRule:
        choices = options["choices"]
        if choices is None:
            raise ValueError(
                f"choices is None, but {cls.__name__} seeks the best of finitely many points: on a "
                "box, two draws are never maximized at the same point, and it is not known which "
                "points count as different. Pass choices=, or Arms or a Space without continuous "
                "parameters that has few points (up to 1000) as the domain of a loop."
            )
        if len(Arms(choices).choices) < 2:
            raise ValueError(
                "choices has 1 point, which has no challenger; give at least 2, or play it without "
                "an acquisition function."
            )
        return TopTwoArmsRule(
            cls.width_rule(options),
            1.0,
            check_one_of("maximize", options["maximize"], (True, False)),
            check_one_of("pending", options["pending"], PENDING) == "hallucinate",
            check_probability("leader_probability", options["leader_probability"]),
            check_integer("max_draws", options["max_draws"], minimum=0),
        )

    def guarantee(self) -> Guarantee:
        """Report what holds for the confidence bounds, and that no regret bound is stated."""
        of_width = self.rule.guarantee(self._summary, 1)
        method = "top-two Thompson sampling"
        if of_width.theorem is None:
            guarantee = Guarantee(
                method=method,
                gaps=("without bounds there are no confidence bounds", NO_REGRET_BOUND, ASYMPTOTIC),
            )
        else:
            guarantee = replace(
                of_width,
                method=f"{method}, with the confidence bounds of {of_width.method}",
                regret=RegretStatement(
                    "no statement is made about the regret", gaps=(NO_REGRET_BOUND, ASYMPTOTIC)
                ),
            )
        if is_ensemble(self.base_model):
            guarantee = guarantee.with_gaps("each draw is from one member of an ensemble")
        return self._as_used(guarantee)

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return moments and value at one point, and whether the challenger is played.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        known = super().describe(x)
        if self.rule.information_gain(self._summary) is None:
            del known["width"]  # there are no confidence bounds
        return {**known, "is_challenger": float(self._plays_challenger())}

    def warn_if_wide(self) -> None:
        """The draws use no width, so there is none to warn about."""

    def _plays_challenger(self, ahead: int = 0) -> bool:
        numbers = self._generator("leader or challenger", ahead)
        uniform = torch.rand((), dtype=torch.float64, generator=numbers)
        return float(uniform) >= self.leader_probability

    def _draw_on_choices(self, ahead: int) -> Draw:
        """Return the draw that is played, or the values that choose the challenger."""

        def draw(number: int) -> Tensor:
            again = f" redrawn {number}" if number else ""
            return self._sign * self._values_on_choices(ahead, again)[1].squeeze(-1)

        is_challenger = torch.tensor(self._plays_challenger(ahead), device=self.width.device)
        played = (draw, is_challenger, self.max_draws, self._differences, self.value_scale)
        values = self._sign * top_two(*played).unsqueeze(-1)
        return lambda X, with_mean: (self._look_up(values, X),) * 2  # the width scales nothing

    def _differences(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """See :func:`top_two`; an ensemble has the moments of the mixture of its members."""
        (joint,) = self._posteriors_on_choices()
        mean, covariance = self._sign * joint.moments.mean.squeeze(-1), joint.moments.matrix
        index = index.expand(*mean.shape[:-1], 1)
        column = covariance.take_along_dim(index.unsqueeze(-1), dim=-1).squeeze(-1)
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        mean, variance = differences_to(index, mean, variance, column)
        if not is_ensemble(self.model):
            return mean, variance
        return mean.mean(0), variance.mean(0) + mean.var(0, correction=0)
