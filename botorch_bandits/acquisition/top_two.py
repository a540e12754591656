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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.base import kernelized_rule, passed_on
from botorch_bandits.acquisition.draws import JointPosterior
from botorch_bandits.acquisition.rules import (
    ArmsRule,
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
    PriorSummary,
    WidthRule,
)
from botorch_bandits.confidence.guarantee import RegretStatement
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    PLAIN_WIDTH,
    WIDTH,
    fit_to_batch,
)
from botorch_bandits.domains import Arms, Domain, ValueScale, first_of_the_largest
from botorch_bandits.random_streams import derive_seed

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
    advantage: Callable[[Tensor], Tensor],
    scale: ValueScale | None,
    among: Tensor | None = None,
) -> Tensor:
    """Return values that are largest at the leader or at its challenger.

    Args:
        draw: A function that maps the number of a draw, which is 0 for the leader's draw, to
            ``batch_shape x num_arms`` values.
        is_challenger: ``batch_shape``; whether to play the challenger.
        max_draws: The number of further draws after which ``advantage`` determines the challenger.
        advantage: A function that maps ``batch_shape`` leaders to ``batch_shape x num_arms``
            standardized posterior means of the difference between each arm and the leader.
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
    above, index = advantage(leader), leader.unsqueeze(-1)
    # the leader itself must not be chosen
    above = above.scatter(-1, index, above.amin(-1, keepdim=True) - 1.0)
    if scale is not None:  # ties are decided in its unit
        above = scale.offset + scale.unit * above
    return above.where(left.unsqueeze(-1), values)


@dataclass(frozen=True, eq=False)
class TopTwoArmsRule(ArmsRule):
    """Plays the maximizer of a draw, or a challenger that maximizes another draw.

    Attributes:
        rule: Computes the width of the confidence bounds; it does not change what is played.
        leader_probability: See :class:`TopTwoThompsonSampling`.
        max_draws: See :class:`TopTwoThompsonSampling`.
        maximize: If False, the smallest value of each draw counts.
        hallucinates: Whether pending arms count as known to have the posterior mean.
    """

    rule: WidthRule
    leader_probability: float = 0.5
    max_draws: int = 64
    maximize: bool = True
    hallucinates: bool = False

    @property
    def takes_pending(self) -> bool:  # type: ignore[override]
        return self.hallucinates

    def prepare(self, seen: Seen) -> Tensor:
        """Return whether to play the challenger, ``batch_shape``."""
        uniform = seen.draw("leader or challenger", (), "uniform", None)
        return uniform >= self.leader_probability

    def scores(self, seen: Seen) -> Tensor:
        width = ConstantWidth(PLAIN_WIDTH)
        plain = ThompsonArmsRule(width, 1.0, self.maximize, self.hallucinates)
        return top_two(
            lambda number: replace(seen.redrawn(number), rule=plain).scores,
            seen.prepared,
            self.max_draws,
            lambda leader: self._advantage(seen, leader),
            self.value_scale(seen),
            seen.among,
        )

    def bounds(self, seen: Seen) -> tuple[Tensor, Tensor]:
        half = seen.standard_deviation(0.0) * along_arms(self._width(seen))
        return seen.mean - half, seen.mean + half

    def describe(self, seen: Seen, arm: Tensor) -> dict[str, Tensor | float]:
        known = {"is_challenger": seen.prepared}
        gain = self.rule.information_gain(seen.summary)
        if gain is None:
            return known  # the width is a constant that nothing follows from
        return {**known, "width": self._width(seen), "information_gain": gain}

    def _width(self, seen: Seen) -> Tensor:
        width = self.rule.width(seen.summary, seen.round_number)
        return fit_to_batch(WIDTH, width, seen.batch_shape).to(seen.mean.device)

    def _advantage(self, seen: Seen, leader: Tensor) -> Tensor:
        """See :func:`top_two`; pending rows count as known."""
        index = leader.unsqueeze(-1)
        column = seen.columns(index).squeeze(-2)
        variance = seen.variance
        difference = variance + variance.gather(-1, index) - 2.0 * column
        difference = difference.clamp_min(seen.prior_share(MINIMUM_VARIANCE))
        above = (seen.mean - seen.mean.gather(-1, index)) / difference.sqrt()
        return above if self.maximize else -above


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

    defines_rule: ClassVar[bool] = True

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
        settings = _check_settings(leader_probability, max_draws)
        _check_choices(choices)
        super().__init__(model, **passed_on(given, GPThompsonSampling))
        self.leader_probability, self.max_draws = settings

    @classmethod
    def options_from_domain(
        cls, options: Mapping[str, Any], domain: Domain | None
    ) -> dict[str, Any]:
        """Return the arms, or all points of a space with few points, as the points to draw on.

        Args:
            options: All constructor arguments.
            domain: The domain on which the acquisition will be maximized; None if it is not known
                yet.

        Raises:
            ValueError: If the domain is not a finite set of few points, or has only one point.
        """
        if domain is None:
            return {}
        arms = domain.few_points()
        if arms is None:
            raise ValueError(
                f"the domain is a {type(domain).__name__}, but {cls.__name__} {ON_FINITE_SETS}. "
                "List the points among which the best is sought as Arms, or use a Space without "
                "continuous parameters that has few points (up to 1000)."
            )
        _check_choices(arms.choices)
        return {"choices": arms.choices} if options["choices"] is None else {}

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
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        pending = check_one_of("pending", options["pending"], PENDING)
        if options["choices"] is not None:
            _check_choices(options["choices"])
        return TopTwoArmsRule(
            cls.width_rule(options),
            *_check_settings(options["leader_probability"], options["max_draws"]),
            check_one_of("maximize", options["maximize"], (True, False)),
            pending == "hallucinate",
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
        return {**known, "is_challenger": float(self._is_challenger)}

    def _widths_of_outputs(self) -> Iterable[tuple[str, Tensor, PriorSummary]]:
        return []  # the draws use no width, so there is none to warn about

    def _sum_conditioned(
        self, X: Tensor, outcomes: Tensor | None, noise: Tensor, width: Tensor
    ) -> Tensor:
        raise UnsupportedError(
            f"{type(self).__name__} with pending='hallucinate' got q = {X.shape[-2]} points, but "
            "a challenger has no joint value with others. Ask for one point at a time "
            "(sequential=True in optimize_acqf), or use pending='redraw'."
        )

    @property
    def _is_challenger(self) -> bool:
        generator = torch.Generator().manual_seed(self._seed_of("leader or challenger"))
        uniform = torch.rand((), dtype=torch.float64, generator=generator)
        return float(uniform) >= self.leader_probability

    def _draw_on_arms(self) -> Tensor:
        with torch.no_grad():
            (joint,) = self._posteriors_on_arms(self.posterior_transform, groups=False)
            return self._sign * top_two(
                lambda number: self._drawn(joint, number),
                torch.tensor(self._is_challenger, device=self.width.device),
                self.max_draws,
                lambda leader: self._advantage(joint, leader),
                self.value_scale,
            )

    def _drawn(self, joint: JointPosterior, number: int) -> Tensor:
        """Return one of the draws of this round; when minimizing, a draw of minus the reward."""
        seed, member = self._seed_of("arms"), self._member
        if number:
            seed = derive_seed(seed, number, "redraw")
            if member is not None:
                generator = torch.Generator().manual_seed(derive_seed(seed, number, "member"))
                member = int(torch.randint(self.model.batch_shape[-1], (), generator=generator))
        mean, deviation = joint.draw(seed, member)
        return self._sign * (mean + deviation).squeeze(-1)

    def _advantage(self, joint: JointPosterior, leader: Tensor) -> Tensor:
        """See :func:`top_two`; an ensemble has the moments of the mixture of its members."""
        members = range(self.model.batch_shape[-1]) if is_ensemble(self.model) else (None,)
        each = [joint.above(leader, member) for member in members]
        means = torch.stack([mean for mean, _ in each])
        variance = torch.stack([v for _, v in each]).mean(0) + means.var(0, correction=0)
        scale = self.value_scale
        unit = 1.0 if scale is None else scale.unit
        deviation = variance.clamp_min(MINIMUM_VARIANCE * unit * unit).sqrt()
        return self._sign * means.mean(0) / deviation


def _check_settings(leader_probability: Any, max_draws: Any) -> tuple[float, int]:
    """Check the settings for choosing leader and challenger, and return them."""
    return (
        check_probability("leader_probability", leader_probability),
        check_integer("max_draws", max_draws, minimum=0),
    )


ON_FINITE_SETS = (
    "seeks the best of finitely many points: on a box, two draws are never maximized at the same "
    "point, and it is not known which points count as different"
)
"""Why a box is refused."""


def _check_choices(choices: Tensor | None) -> None:
    """Raise unless there are several points to draw on."""
    if choices is None:
        raise ValueError(
            f"choices is None, but TopTwoThompsonSampling {ON_FINITE_SETS}. Pass choices=, or Arms "
            "as the domain of a loop."
        )
    if isinstance(choices, Tensor) and len(Arms(choices).choices) < 2:
        raise ValueError(
            "choices has 1 point, which has no challenger; give at least 2, or play it without an "
            "acquisition function."
        )
