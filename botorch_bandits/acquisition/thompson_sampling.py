r"""Thompson sampling with the scale of GP-TS, and top-two sampling, as drop-in functions.

In round ``t`` a function is drawn from the posterior with its standard deviations multiplied by
``v_t``, jointly over all points, and maximized:

.. math:: f_t \sim GP(\mu_{t-1}, v_t^2 k_{t-1}), \qquad x_t = \arg\max_x f_t(x)

On finite sets of points, the draw is exact; on a box, a pathwise draw is scaled,
``mu + v_t (path - mu)``. Pending queries either lead to a new draw, or keep the mean unchanged and
shrink the covariance as if their outcomes were known (GP-BTS).

**Top-two Thompson sampling** searches for the best of finitely many points. The aim is to identify
the best arm rather than to play well. Thompson sampling nearly always plays the arm that it
believes to be the best, and therefore learns little about the arms that might be better. Top-two
sampling plays its leader ``I``, the maximizer of a draw from the posterior, in only a share of the
rounds. In the other rounds, it plays a challenger: the maximizer ``J`` of the first further draw
that is not maximized by ``I``.

As the posterior concentrates, such a draw takes longer and longer to appear. If none appears within
``max_draws`` draws, the challenger is the arm with the largest posterior probability of being above
the leader,

.. math:: J = \arg\max_{j \ne I} P(f_j > f_I)
            = \arg\max_{j \ne I} \frac{\mu_j - \mu_I}{\sqrt{s_j^2 + s_I^2 - 2 c_{jI}}}

where the means, variances and covariances are those of the posterior of the arms. If the leader has
the largest mean, this is the arm with the smallest transportation cost (T3C), which is half the
square of the fraction.

Sources: Chowdhury and Gopalan, *On kernelized multi-armed bandits*, ICML 2017, Algorithm 2 and
Theorem 4; Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022,
the baseline GP-BTS; Desautels, Krause and Burdick, *Parallelizing exploration-exploitation
tradeoffs in Gaussian process bandit optimization*, JMLR 2014, the rule for pending queries;
Russo, *Simple Bayesian algorithms for best-arm identification*, Operations Research 2020,
for TTTS; Shang, de Heide, Menard, Kaufmann and Valko, *Fixed-confidence guarantees for Bayesian
best-arm identification*, AISTATS 2020, for T3C, in which the arms are independent (a covariance of
0) and ties among arms above the leader are broken at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import torch
from botorch.acquisition.objective import ExpectationPosteriorTransform, PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from botorch_bandits.acquisition.base import check_model
from botorch_bandits.acquisition.draws import Draw, SeededDraw
from botorch_bandits.acquisition.rules import ArmsRule, Seen, ThompsonArmsRule
from botorch_bandits.acquisition.upper_confidence_bound import WidthAcquisition
from botorch_bandits.checks import DTYPE, check_integer, check_one_of, check_probability
from botorch_bandits.confidence import GainBound, Guarantee, WidthRule
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.ingredients import kernelized_rule
from botorch_bandits.confidence.theorems import REGRET_OF_TOP_TWO, TOP_TWO
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    PLAIN_WIDTH,
    check_scale,
)
from botorch_bandits.domains import ValueScale, first_of_the_largest
from botorch_bandits.models.reading import hallucinate, on_device_of

PENDING = ("redraw", "hallucinate")
"""The ways in which a draw can treat pending points."""


class GPThompsonSampling(WidthAcquisition, SeededDraw):
    r"""GP-TS (Chowdhury and Gopalan 2017): one draw from the posterior, scaled by ``v_t``.

    .. math:: v_t = B + R \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

    The scale multiplies the standard deviation. The same draw is used in every evaluation until
    :meth:`set_X_pending` is called: each pending set has its own draw, so sequential optimizers
    with ``q > 1`` return one maximizer for each draw. The user's model is never changed.

    If you know neither bound, omit both: the scale is then 1, which is plain Thompson sampling. No
    theorem covers this case, as :meth:`guarantee` reports. Giving only one bound is an error,
    except with ``units="prior"``, where the other bound takes the default of
    :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.

    Args:
        model: A fitted BoTorch model in float64.
        rkhs_bound: ``B``, a bound on the reward's norm in the unit-variance kernel, in raw outcome
            units, unless ``units`` says otherwise.
        noise_bound: ``R`` of R-sub-Gaussian noise, in raw outcome units, unless ``units`` says
            otherwise. ``"model"``: see :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.
        delta: The confidence bound fails with at most this probability.
        any_lambda: Use the form of the width that holds for every ``lam``.
        information_gain: An explicit gain instead of the realized one, in nats.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation (models that learn the scale of the outcomes).
        width: A constant scale instead of the one above; 1 gives plain Thompson sampling.
        scale: A factor on the scale.
        choices: ``num_points x d`` points for exact draws; only these points can then be evaluated.
            In a loop on arms, they are the arms. The posterior there is computed once: build a new
            function after changing the model. Without choices, the draw is pathwise (random Fourier
            features for the prior, Matheron's rule for the data).
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimized: the value is minus the value of the draw.
        pending: How pending points are treated. With ``"redraw"``, they do not enter the model, but
            each set of them leads to a new draw (asynchronous Thompson sampling). With
            ``"hallucinate"``, the draw is from the posterior conditioned on the posterior mean at
            these points, so that its mean is unchanged and its covariance shrinks (GP-BTS); the
            scale is computed from the observed data. A loop with ``Hallucinated()`` feedback, which
            is its default, uses the latter unless another value is given.
        assume: Assumptions that you vouch for because they cannot be read from the model:
            ``"fixed prior"``, ``"centered bound"`` or both; see
            :class:`~botorch_bandits.WidthUpperConfidenceBound`.
        X_pending: ``n x d`` points whose outcomes have not arrived.
        seed: Makes the draws reproducible; taken from torch's global generator if omitted.

    Raises:
        TypeError: If the model, ``choices`` or ``X_pending`` is not float64.
        ValueError: If bounds and ``width`` are both given, or only one bound is given in raw
            outcome units.
        UnsupportedError: If the posterior is not Gaussian, the model cannot be conditioned on
            pending points, or there are no pathwise draws of it, because its kernel has no random
            features (in that case, pass ``choices``).

    Example:
        >>> import torch
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = GPThompsonSampling(model, seed=0)
        >>> bool((acqf(X.unsqueeze(-2)) == acqf(X.unsqueeze(-2))).all())
        True
    """

    defines_rule = True
    of_ensemble: ClassVar[str] = "the draw is from one member of an ensemble"
    stream = "thompson"
    width: Tensor

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | str | tuple[float | str, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        width: float | None = None,
        scale: float = 1.0,
        choices: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        pending: str = "redraw",
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    def _initialize(self, given: Mapping[str, Any]) -> None:
        """Call the constructor with its arguments, or with those of a subclass, by name."""
        model, transform = given["model"], given["posterior_transform"]
        super().__init__(check_model(model))
        self._read_arguments(given)
        self.pending = check_one_of("pending", given.get("pending", "redraw"), PENDING)
        self.pending_as = "means" if self.pending == "hallucinate" else "redrawn"
        if transform is None and model.num_outputs != 1:
            raise UnsupportedError(
                f"model has {model.num_outputs} outputs; pass a posterior_transform that "
                "combines them into one."
            )
        if given["choices"] is None and isinstance(transform, ExpectationPosteriorTransform):
            raise UnsupportedError(
                "posterior_transform is an ExpectationPosteriorTransform, but a pathwise draw has "
                "no perturbed inputs. Pass choices=, a finite set of points, for an exact draw."
            )
        self.delta = check_probability("delta", given["delta"])
        self.rule, self.scale = self.width_rule(given), check_scale(given.get("scale", 1.0))
        self.register_buffer("width", on_device_of(model, self._width_in(1)))
        self._prepare_draws(given["choices"], given["seed"])
        self.set_X_pending(given["X_pending"])
        self.warn_if_wide()

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        """Return the rule of the scale of the draw.

        Theorem 4 spends half of ``delta`` on the confidence bound and half on the draw.

        Args:
            options: Constructor arguments by name, at least all that the scale depends on.

        Raises:
            ValueError: If an ingredient is missing or infeasible.
        """
        delta = check_probability("delta", options["delta"])
        return kernelized_rule(
            cls.__name__, {**options, "delta": delta / 2, "default_width": PLAIN_WIDTH}
        )

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        scale, rule = check_scale(options["scale"]), cls.width_rule(options)
        pending = check_one_of("pending", options["pending"], PENDING)
        maximize = check_one_of("maximize", options["maximize"], (True, False))
        return ThompsonArmsRule(rule, scale, maximize, hallucinates=pending == "hallucinate")

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points and draw again.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If they are to be hallucinated and the model cannot be conditioned.
        """
        super().set_X_pending(X_pending)
        if self.pending == "hallucinate":
            base, points = self.base_model, self.X_pending
            self.model = base if points is None else hallucinate(base, points)

    def set_rule(self, rule: WidthRule) -> None:
        """Set another rule for the scale of the draw.

        Args:
            rule: The rule that computes the scale from now on.
        """
        self.rule = rule
        self.width = self._width_in(1).to(self.width)
        self.warn_if_wide()

    @t_batch_mode_transform(expected_q=1)
    def _evaluate(self, X: Tensor, ahead: int = 0) -> Tensor:
        member, width = self._member(ahead), self.width
        if member is not None and width.dim():
            width = width[..., member]
        values = self._scaled(X, width[..., None, None].to(X), ahead).squeeze(-1).squeeze(-1)
        return self._sign * values

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers this draw with this model, or why none does.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        facts = replace(self._facts(facts), draws=True, **drawn_on(self))
        return self.rule.guarantee(self._summary, 1, facts)


def drawn_on(acquisition: GPThompsonSampling) -> dict[str, Any]:
    """Return the facts that the regret bound for draws needs.

    Args:
        acquisition: The acquisition function. There is no bound on a whole box.
    """
    arms, priors = acquisition.arms, list(acquisition._summary.readable.values())
    if arms is None or len(priors) != 1 or priors[0].standard_deviation.numel() != 1:
        return {"on_choices": arms is not None}
    deviation = float(priors[0].standard_deviation)
    return {"num_points": len(arms.choices), "prior_deviation": deviation}


# --- top-two sampling -----------------------------------------------------------------------------

DRAWS_AT_ONCE = 16
"""Further draws on arms are made in groups of this size, by one product."""


def top_two(
    values: Tensor,
    others: Iterable[Tensor],
    is_challenger: Tensor,
    moments: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    scale: ValueScale | None,
    among: Tensor | None = None,
) -> Tensor:
    """Return values that are largest at the leader or at its challenger.

    Args:
        values: The leader's draw, ``batch_shape x num_arms``.
        others: Further draws, after which the posterior determines the challenger.
        is_challenger: ``batch_shape``; whether to play the challenger.
        moments: A function that maps ``batch_shape x 1`` leaders to the posterior means and
            variances of all arms and their covariances with the leader, ``batch_shape x num_arms``.
        scale: The scale that decides ties; None if it is unknown.
        among: The arms from which both are chosen, in order; all if omitted.

    Returns:
        ``batch_shape x num_arms`` values.
    """
    leader = first_of_the_largest(values, scale=scale, among=among)
    left = is_challenger.expand(leader.shape)
    if not bool(left.any()):
        return values
    for other in others:
        found = left & (first_of_the_largest(other, scale=scale, among=among) != leader)
        values = other.where(found.unsqueeze(-1), values)
        left = left & ~found
        if not bool(left.any()):
            return values
    own, index = ValueScale() if scale is None else scale, leader.unsqueeze(-1)
    mean, variance, column = moments(index)
    # var(f_j - f_I) = s_j^2 + s_I^2 - 2 c_jI
    difference = variance + variance.gather(-1, index) - 2.0 * column
    deviation = difference.clamp_min(MINIMUM_VARIANCE * own.unit * own.unit).sqrt()
    above = (mean - mean.gather(-1, index)) / deviation
    # the leader itself must not be chosen
    above = above.scatter(-1, index, above.amin(-1, keepdim=True) - 1.0)
    # ties are decided in the unit of the scale
    return (own.offset + own.unit * above).where(left.unsqueeze(-1), values)


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
        purpose = "leader or challenger"
        uniform = seen.player.numbers(seen.draw_round, purpose, (), "uniform")
        return uniform >= self.leader_probability

    def scores(self, seen: Seen) -> Tensor:
        mean = self.sign * seen.mean

        def drawn(again: str, many: int) -> tuple[Tensor, ...]:
            draws = seen.deviations_of_draws(again=again, many=many)  # batch_shape x k x num_arms
            return (mean.unsqueeze(-2) + self.sign * draws).unbind(-2)

        def moments(index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            columns = seen.view.columns(index)[seen.player.every].squeeze(-2)
            return mean, seen.variance, columns

        blocks = range(-(-self.max_draws // DRAWS_AT_ONCE))
        others = (x for block in blocks for x in drawn(f" redrawn {block}", DRAWS_AT_ONCE))
        return top_two(
            drawn("", 1)[0],
            islice(others, self.max_draws),
            self.is_challenger(seen),
            moments,
            seen.value_scale,
            seen.among,
        )

    def describe(self, seen: Seen, arm: int) -> dict[str, Tensor | float]:
        return {**super().describe(seen, arm), "is_challenger": self.is_challenger(seen)}


class TopTwoThompsonSampling(GPThompsonSampling):
    r"""TTTS (Russo 2020): the maximizer of a draw, or a challenger from a further draw.

    Use it to find the best of finitely many points within a budget of queries; see
    :meth:`~botorch_bandits.BanditLoop.recommend`. (For ``run(stop=SmallCertificate(...))``, an
    upper confidence bound is better, because a certificate needs tight bounds on all points.) With
    probability ``leader_probability``, the maximizer ``I`` of a draw from the posterior is played.
    Otherwise, further draws are made until one of them has a different maximizer, the challenger,
    which is then played. After ``max_draws`` unsuccessful draws, the challenger is the arm with the
    largest posterior probability of being above ``I``, as in T3C (Shang et al. 2020).

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
    of_ensemble = "each draw is from one member of an ensemble"
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
        return TopTwoArmsRule(
            **vars(super().arms_rule({**options, "scale": 1.0})),
            leader_probability=check_probability(
                "leader_probability", options["leader_probability"]
            ),
            max_draws=check_integer("max_draws", options["max_draws"], minimum=0),
        )

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Report what holds for the confidence bounds, and that no regret bound is stated.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        facts = self._facts(facts)
        of_width = self.rule.guarantee(self._summary, 1, facts)
        return replace(
            of_width,
            method=facts.say(TOP_TWO, inner=of_width.method),
            regret=REGRET_OF_TOP_TWO,
        )

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return moments and value at one point, and whether the challenger is played.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        return {**super().describe(x), "is_challenger": float(self._plays_challenger())}

    def warn_if_wide(self) -> None:
        """The draws use no width, so there is none to warn about."""

    def _plays_challenger(self, ahead: int = 0) -> bool:
        numbers = self._generator("leader or challenger", ahead)
        return torch.rand((), generator=numbers, dtype=DTYPE).item() >= self.leader_probability

    def _draw_on_choices(self, ahead: int) -> Draw:
        """Return the draw that is played, or the values that choose the challenger."""

        def drawn(again: str) -> Tensor:
            return self._sign * self._values_on_choices(ahead, again)[1].squeeze(-1)

        def moments(index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # of the member of an ensemble from which the leader is drawn
            own = self._posteriors_on_choices()[0].moments.selected(self._member(ahead))
            mean, matrix = self._sign * own.mean.squeeze(-1), own.matrix
            column = matrix.take_along_dim(index.unsqueeze(-1), dim=-1).squeeze(-1)
            return mean, matrix.diagonal(dim1=-2, dim2=-1), column

        others = (drawn(f" redrawn {number}") for number in range(1, self.max_draws + 1))
        is_challenger = torch.tensor(self._plays_challenger(ahead), device=self.width.device)
        played = top_two(drawn(""), others, is_challenger, moments, self.value_scale)
        values = self._sign * played.unsqueeze(-1)
        return lambda X, with_mean: self._looked_up(X, values, values)  # the width scales nothing
