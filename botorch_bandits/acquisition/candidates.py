r"""Upper confidence bounds and Thompson sampling on a list of priors, one of which is true.

**Survivors.** The widths :math:`w_t` of Srinivas et al. at level :math:`\delta / 2` and the priors
``S`` that survive at level :math:`\delta / 2` give the bounds

.. math::
   U_t(x) = \max_{\theta \in S} \mu_\theta(x) + w_t \sigma_\theta(x), \qquad
   L_t(x) = \min_{\theta \in S} \mu_\theta(x) - w_t \sigma_\theta(x).

``U`` is maximized. With probability :math:`1 - \delta` the reward lies between the two in all
rounds, as :mod:`botorch_bandits.confidence.candidates` proves: on all arms, or on a box in the
sense stated by :meth:`CandidatesUpperConfidenceBound.guarantee`. The regret of a round that played
:math:`x_t`, chosen by any rule, is therefore at most :math:`\max_x U_t(x) - L_t(x_t)`.

**Mixture.** The posterior weights :math:`p_\theta` give the moments of the mixture

.. math::
   m = \sum_\theta p_\theta \mu_\theta, \qquad
   v = \sum_\theta p_\theta \bigl( \sigma_\theta^2 + (\mu_\theta - m)^2 \bigr)

and :math:`m + w \sqrt v` is maximized. No theorem covers it.

**Thompson sampling.** A prior is drawn according to the posterior weights, then a function is drawn
from its posterior.

Sources: Srinivas, Krause, Kakade and Seeger, ICML 2010, for the widths; Ville 1939 for the
survivors. Other rules on lists: Ziomek, Adachi and Osborne 2024; Sandberg and Chehreghani 2025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.models.model import Model
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.acquisition.base import (
    TwoSidedAcquisition,
    check_columns,
    check_model,
)
from botorch_bandits.acquisition.draws import SeededDraw
from botorch_bandits.acquisition.rules import ArmsRule, ListArmsRule
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling
from botorch_bandits.checks import (
    check_double,
)
from botorch_bandits.confidence.candidates import CandidateWidths
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.ingredients import wanted_by_theorem
from botorch_bandits.confidence.width_rules import Assumed
from botorch_bandits.domains import Arms
from botorch_bandits.models.candidates import CandidatesModel
from botorch_bandits.random_streams import derive_seed


def check_list_model(model: Model) -> CandidatesModel:
    """Check that a model has a list of priors, and return it.

    Raises:
        TypeError: If it is not a list of priors, or not float64.
    """
    if not isinstance(model, CandidatesModel):
        raise TypeError(
            f"model is a {type(model).__name__}, but a list of priors is needed. Build it with "
            "BanditGP.with_candidates([...])(X, Y), or CandidatesModel.from_models([...])."
        )
    check_model(model)
    return model


class CandidatesUpperConfidenceBound(TwoSidedAcquisition):
    r"""Upper confidence bound on a list of priors: the largest bound among those that survive.

    Hyperparameters may be learned within the list: :meth:`guarantee` holds although the same
    outcomes select among the priors. The prior from which the reward is drawn must be on the list.

    Pending points shrink the deviations used to choose the next point, under each prior, but do not
    count as evidence. :meth:`bounds` and :meth:`regret_bound`, which certify regret, use only the
    outcomes that have arrived; they remain valid while points are pending, with the width of the
    round after the pending ones.

    Args:
        model: From :meth:`BanditGP.with_candidates`, or ``CandidatesModel.from_models``.
        form: ``"survivors"``, which has a theorem, or ``"mixture"``, which has none and uses the
            mean and deviation of the mixture of all priors with their posterior weights.
        delta: The bounds fail with at most this probability: half of it for eliminating the true
            prior, half for its band.
        num_arms: ``|D|`` of Theorem 1; in a loop on arms it may be omitted.
        smoothness_a: ``a`` of Theorem 2: partial derivatives of a draw from a prior exceed ``L``
            with probability at most ``a exp(-(L/b)^2)``; one number, or one per prior.
        smoothness_b: ``b`` of Theorem 2, in raw outcome units per unit of input; one number, or one
            per prior.
        dim: ``d`` of Theorem 2; in a loop on a box it may be omitted.
        side_length: ``r`` of Theorem 2, the longest side; in a loop on a box it may be omitted.
        width: A constant width instead of one from a theorem; 2 if no ingredient is given, or with
            ``form="mixture"``.
        round_number: The round ``t`` of the first point that is chosen: outcomes plus pending
            points plus 1 if omitted.
        maximize: If False, the reward is minimized: the value is minus the least lower bound.
        assume: Assumptions that you vouch for because they cannot be read from a model.
            ``"fixed prior"``: the frozen parameters of your own models were fixed before the data.
        X_pending: ``n x d`` points whose outcomes have not arrived.

    Raises:
        TypeError: If ``model`` is not a list of priors, or a tensor is not float64.
        ValueError: If ingredients of more than one width are given, or only some of the ingredients
            of one width.

    Warns:
        RefutedListWarning: If no prior survives. All priors are then used, and nothing is
            guaranteed.

    Example:
        >>> from botorch_bandits import BanditGP
        >>> from botorch_bandits.models import candidate_grid
        >>> X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
        >>> model = BanditGP.with_candidates(candidate_grid([0.1, 0.5], scales=[1.0, 4.0]))(X, X**2)
        >>> acqf = CandidatesUpperConfidenceBound(model, num_arms=100, delta=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([5])
        >>> acqf.guarantee().holds
        True
    """

    defines_rule = True
    of_ensemble = ""
    pending_as = "bounds"
    base_model: CandidatesModel
    model: CandidatesModel

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        form: str = "survivors",
        delta: float = 0.1,
        num_arms: int | None = None,
        smoothness_a: float | Sequence[float] | None = None,
        smoothness_b: float | Sequence[float] | None = None,
        dim: int | None = None,
        side_length: float | None = None,
        width: float | None = None,
        round_number: int | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        given = {**locals()}
        super().__init__(check_list_model(model))
        self._read_arguments(given)
        self.widths = CandidateWidths(given)
        self.set_X_pending(X_pending)

    @classmethod
    def wanted_from_domain(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the number of arms, or the shape of the box, if the theorem in use needs it.

        Args:
            options: See the base class.
        """
        return () if options["form"] == "mixture" else wanted_by_theorem(options)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule:
        return ListArmsRule(CandidateWidths(options), options["maximize"])

    @property
    def survivors(self) -> Tensor:
        """Which priors on the list survive, one ``bool`` each."""
        return torch.from_numpy(self.base_model.evidence.survivors(self.widths.level))

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """See the base class; the widths are then for the round after the pending points.

        Args:
            X_pending: ``n x d`` points; None for none.

        Warns:
            RefutedListWarning: If none of the priors whose evidence counts survives.
        """
        super().set_X_pending(X_pending)
        self._widths(1)  # checks the ingredients, now that the list is known
        if self.widths.form == "survivors":
            self.base_model.evidence.warn_if_refuted(self.widths.level)

    def _given_means(self, X: Tensor) -> CandidatesModel:
        return self.base_model.hallucinated(X)

    def _widths(self, num_points: int) -> list[float | NDArray[Any]]:
        """Return the widths of the rounds of several points, one after the other."""
        first, scales = self.round_number, self.base_model.recipe.groups.scales
        return [self.widths.in_round(first + i, scales) for i in range(num_points)]

    def _ends(self, X: Tensor) -> tuple[Tensor, Tensor]:
        model, q = self.model, X.shape[-2]
        moments = model.group_moments if q == 1 else model.group_moments_one_by_one
        each = [moment.unbind(-1) for moment in moments(X)]  # G x batch_shape each
        rounds = zip(*each, self._widths(q), strict=True)
        ends = [self.widths.bounds(model, *own) for own in rounds]
        lower, upper = (torch.stack(end, dim=-1) for end in zip(*ends, strict=True))
        return lower, upper

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lower and the upper confidence bound from the outcomes that have arrived.

        Args:
            X: ``... x d`` points.

        Returns:
            ``...`` each, in outcome units.

        Raises:
            TypeError: If ``X`` is not float64.
            ValueError: If its columns differ from those of the model.
        """
        check_columns("X", check_double("X", X), self.base_model)
        model = self.base_model
        return self.widths.bounds(model, *model.group_moments(X), *self._widths(1))

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self.base_model.mixture(X)
        return mean, variance.sqrt()

    def regret_bound(self, x: Tensor, choices: Tensor) -> float:
        r"""Return the bound on the regret of this round if a given arm is played.

        It is :math:`\max_x U_t(x) - L_t(x_t)`, computed from the outcomes that have arrived, and it
        holds no matter which rule chose the arm, and while points are pending as well. If
        ``guarantee().bands`` does not hold, it is not a bound. If it is no smaller than the
        difference between the largest and the smallest outcome, it says no more than they do.

        Args:
            x: The arm that is played, ``d``-dimensional.
            choices: ``n x d`` arms; the regret is against the best of them.

        Raises:
            TypeError: If a tensor is not float64.
            ValueError: If the width is not that of ``num_arms``, there are more choices, or ``x``
                is none of them.
        """
        arms, num_arms = Arms(choices), self.widths.num_arms
        check_columns("choices", arms.choices, self.base_model)
        if num_arms is None or arms.num_arms > num_arms:
            raise ValueError(
                f"choices has {arms.num_arms} points, but the width is for num_arms={num_arms}. "
                "Build the acquisition function with the number of all arms."
            )
        played = arms.index_of(x.reshape(1, -1), "x")
        with torch.no_grad():
            lower, upper = self.bounds(arms.choices)
        if self.maximize:
            return float(upper.max() - lower[played])
        return float(upper[played] - lower.min())

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers this bound with this list, or why none does.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        return self.widths.guarantee(self.base_model, self.assume, self._facts(facts))

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean and deviation of the mixture, effective width, bounds and survivors.

        A mixture is never refuted. The effective width is half the distance between the bounds, in
        deviations of the mixture.

        Args:
            x: A ``d``-dimensional point.
        """
        lower, upper = (float(bound) for bound in self.bounds(x.detach()))
        return {
            **super().describe(x),
            "lower_bound": lower,
            "upper_bound": upper,
            "num_survivors": float(self.survivors.sum()),
            "is_refuted": float(self.widths.form == "survivors" and not self.survivors.any()),
        }


class CandidatesThompsonSampling(SeededDraw):
    """Thompson sampling on a list of priors: it draws a prior by posterior weight, then a function.

    The same draw is used in every evaluation until pending points are set, which triggers a new
    draw of the prior and the function. No theorem is stated for this rule here.

    Args:
        model: From :meth:`BanditGP.with_candidates`, or ``CandidatesModel.from_models``.
        choices: ``num_points x d`` points for exact draws; only these points can then be evaluated.
            In a loop on arms, they are the arms. Without choices, the draw is pathwise.
        maximize: If False, the value is minus the value of the draw.
        X_pending: ``n x d`` points whose outcomes have not arrived.
        seed: Makes the draws reproducible; taken from torch's global generator if omitted.

    Raises:
        TypeError: If ``model`` is not a list of priors, or a tensor is not float64.
        UnsupportedError: If the kernel of the prior that is drawn has no pathwise draws in BoTorch
            (in that case, pass ``choices``).

    Attributes:
        entry: The number of the prior that was drawn.

    Example:
        >>> from botorch_bandits import BanditGP
        >>> from botorch_bandits.models import candidate_grid
        >>> X = torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1)
        >>> model = BanditGP.with_candidates(candidate_grid([0.1, 0.5]))(X, X**2)
        >>> acqf = CandidatesThompsonSampling(model, choices=X, seed=0)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([5])
    """

    defines_rule = True
    no_theorem = "no theorem is claimed for a draw of the prior by its posterior weight"

    def __init__(
        self,
        model: Model,
        *,
        choices: Tensor | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        given = {**locals()}
        super().__init__(check_list_model(model))
        self._read_arguments(given)
        self._prepare_draws(choices, seed)
        self.set_X_pending(X_pending)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule:
        return ListArmsRule(None, options["maximize"])

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Draw again, both the prior and the function; see the base class.

        Args:
            X_pending: ``n x d`` points, or None.
        """
        super().set_X_pending(X_pending)
        self.entry, self.draw = self._function(0)

    def _function(self, num_redraws: int) -> tuple[int, GPThompsonSampling]:
        """Return the prior and the function after the given number of further draws."""
        if num_redraws not in self._drawn:
            draw = derive_seed(self.seed, self._num_draws + num_redraws, "candidate")
            generator = torch.Generator().manual_seed(draw)
            weights = torch.from_numpy(self.base_model.evidence.posterior_weights)
            entry = int(torch.multinomial(weights, 1, generator=generator))
            drawn = GPThompsonSampling(
                self.base_model.member(entry),
                width=1.0,
                choices=self.choices,
                maximize=self.maximize,
                seed=draw,
            )
            self._drawn[num_redraws] = entry, drawn
        found: tuple[int, GPThompsonSampling] = self._drawn[num_redraws]
        return found

    def _evaluate(self, X: Tensor, ahead: int = 0) -> Tensor:
        return self._function(ahead)[1](X)

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return what is known about the draw at one point.

        Args:
            x: A ``d``-dimensional point.
        """
        return {**self.draw.describe(x), "candidate": float(self.entry)}
