r"""Upper confidence bounds over a region of hyperparameters, based on a list of priors.

A list of priors serves as the forecaster: its mixture assigns a density to each outcome. The region
:math:`R_t` contains the members of a family, with hyperparameters in a continuum, whose likelihood
does not fall short of the forecaster's by :math:`\ln(2 / \delta)` nats
(:mod:`botorch_bandits.models.hyperparameter_region`). The bound is

.. math::
   U_t(x) = \max_{\theta \in R_t} \mu_\theta(x) + w_t \sigma_\theta(x), \qquad
   L_t(x) = \min_{\theta \in R_t} \mu_\theta(x) - w_t \sigma_\theta(x)

with the width of Srinivas et al. at level :math:`\delta / 2`. It is enough that the true prior is
in the region and that its band holds, so there is no union bound over the continuum. The true prior
must be in the family but need not be on the list.

Sources: Srinivas, Krause, Kakade and Seeger, ICML 2010, Theorem 1, for the width; Ville 1939 for
the region.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.base import check_columns, of_acquisition
from botorch_bandits.acquisition.candidates import BoundOfList, check_list_model
from botorch_bandits.acquisition.candidates_widths import (
    MIXTURE_WIDTH,
    reasons_learned,
    with_pending,
)
from botorch_bandits.checks import (
    check_instance,
    check_integer,
    check_nonnegative,
    check_one_of,
    check_probability,
)
from botorch_bandits.confidence.gp_ucb import gp_ucb_finite_width
from botorch_bandits.confidence.guarantee import (
    DRAWN_FROM_FAMILY,
    Guarantee,
    RegretStatement,
    Statement,
)
from botorch_bandits.confidence.width_rules import check_assume
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.models.candidates import CandidatesModel
from botorch_bandits.models.hyperparameter_region import HyperparameterRegion
from botorch_bandits.models.prior_family import PriorFamily

NUM_REFINED = 16
"""The number of points for which the region is searched: those with the largest bounds."""


class RegionUpperConfidenceBound(BoundOfList):
    r"""Upper confidence bound over a region of hyperparameters: the largest bound in a continuum.

    The maximum over the region is searched numerically. At every point, the result is at least the
    maximum over about 130 members on the boundary of the region. A gradient-based search refines it
    for the choices that may have the largest bound. In :meth:`bounds`, it is refined for up to 16
    points; if there are more points, it is refined for the 8 largest and the 8 smallest values of
    each bound.

    Pending points shrink the deviations used to choose the next point, under each member, but do
    not count as evidence.

    Args:
        model: From :meth:`BanditGP.with_candidates`, or ``CandidatesModel.from_models``: the
            forecaster, and the outcomes in the order in which they arrived.
        family: The family that contains the true prior, a
            :class:`~botorch_bandits.models.PriorFamily` in the units of raw inputs and outcomes.
        delta: The bounds fail with at most this probability: half of it for eliminating the true
            prior, half for its band.
        num_arms: ``|D|`` of Theorem 1; in a loop on arms it may be omitted.
        choices: ``num_arms x d`` points over which the bound is maximized. In a loop on arms, they
            are the arms. Without choices, no maximum over the region is searched beforehand.
        width: A constant width instead of the one from the theorem; 2 if ``num_arms`` is also
            omitted.
        round_number: The round ``t`` of the next point: outcomes plus pending points plus 1 if
            omitted.
        maximize: If False, the reward is minimized: the value is minus the least lower bound.
        assume: Assumptions that you vouch for because they cannot be read from a model.
            ``"fixed prior"``: the frozen parameters of your own models were fixed before the data.
        X_pending: ``n x d`` points whose outcomes have not arrived.

    Raises:
        TypeError: If ``model`` is not a list of priors, ``family`` is not a
            :class:`~botorch_bandits.models.PriorFamily`, or a tensor is not float64.
        ValueError: If a number is out of range, or the columns of the family differ from those of
            the model.

    Warns:
        RefutedListWarning: If the region is empty. The likeliest member is then used, and nothing
            is guaranteed.

    Attributes:
        region: The region left by the outcomes that have arrived.

    Example:
        >>> from botorch_bandits import BanditGP
        >>> from botorch_bandits.models import candidate_grid
        >>> X = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
        >>> model = BanditGP.with_candidates(candidate_grid([0.1, 0.5]))(X, (6.0 * X).sin())
        >>> family = PriorFamily((0.05, 2.0), scales=(0.1, 10.0), noises=(0.001, 1.0))
        >>> acqf = RegionUpperConfidenceBound(model, family=family, num_arms=9, choices=X)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([9])
        >>> acqf.guarantee().holds
        True
    """

    def __init__(
        self,
        model: Model,
        *,
        family: PriorFamily,
        delta: float = 0.1,
        num_arms: int | None = None,
        choices: Tensor | None = None,
        width: float | None = None,
        round_number: int | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(check_list_model(model))
        self.base_model = check_list_model(model)
        self.delta = check_probability("delta", delta)
        self._num_arms, self._width = _check_width(num_arms, width)
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self.assume = check_assume(assume)
        self._choices = None if choices is None else Arms(choices).choices
        if self._choices is not None:
            check_columns("choices", self._choices, model)
        self.region = HyperparameterRegion(
            check_instance("family", family, PriorFamily, "Pass models.PriorFamily(...)."),
            self.base_model.train_inputs[0],
            self.base_model.train_targets,
            self.base_model.evidence.log_marginal_likelihood,
            level=0.5 * self.delta,
            num_skipped=min(self.base_model.recipe.num_skipped, self.base_model.num_rows),
        )
        self.region.warn_if_refuted()
        self._round = None
        if round_number is not None:
            num_pending = 0 if X_pending is None else len(X_pending)
            number = check_integer("round_number", round_number, minimum=1)
            self._round = max(number - num_pending, 1)
        self.set_X_pending(X_pending)

    @classmethod
    def options_from_domain(
        cls, options: Mapping[str, Any], domain: Domain | None
    ) -> dict[str, Any]:
        """Return the arms, and their number if Theorem 1 is in use.

        Args:
            options: All constructor arguments.
            domain: The domain on which the acquisition will be maximized; None if it is not known
                yet.
        """
        if not isinstance(domain, Arms):
            return {}
        known: dict[str, Any] = {}
        if options["choices"] is None:
            known["choices"] = domain.choices
        if options["width"] is None and options["num_arms"] is None:
            known["num_arms"] = domain.num_arms
        return known

    @classmethod
    def check_options(cls, options: Mapping[str, Any], domain: Domain | None) -> None:
        """See the base class."""
        complete = cls.complete_options(options, domain)
        check_instance("family", complete["family"], PriorFamily, "Pass models.PriorFamily(...).")
        check_probability("delta", complete["delta"])
        _check_width(complete["num_arms"], complete["width"])
        check_one_of("maximize", complete["maximize"], (True, False))
        check_assume(complete["assume"])

    @property
    def is_optimistic(self) -> bool:
        """See the base class."""
        return self._num_arms is not None

    @property
    def survivors(self) -> Tensor:
        """Which entries of the list survive, one ``bool`` each; the bound does not use them."""
        return self.base_model.evidence.survivors(0.5 * self.delta)

    @property
    def is_refuted(self) -> bool:
        """Whether no member of the family was found in the region."""
        return self.region.is_refuted

    @property
    def round_number(self) -> int:
        """The round of the next point: outcomes plus pending points plus 1, unless given."""
        num_pending = 0 if self.X_pending is None else len(self.X_pending)
        if self._round is not None:
            return self._round + num_pending
        return self.base_model.num_rows + num_pending + 1

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """See the base class; the region is searched again for the largest bounds.

        Args:
            X_pending: ``n x d`` points, or None.
        """
        super().set_X_pending(X_pending)
        self._width_in_round = self._in_round(self.round_number)
        self._look_at(self.region.members)
        if self._choices is None:
            return
        sign = 1.0 if self.maximize else -1.0
        waits = torch.ones(len(self._choices), dtype=torch.bool)
        largest, gain = -math.inf, 0.0
        for _ in range(min(NUM_REFINED, len(self._choices))):
            with torch.no_grad():
                values = self._values(self._choices.unsqueeze(-2)).squeeze(-1)
            best = int(values.masked_fill(~waits, -math.inf).argmax())
            if float(values[best]) + gain < largest:  # the others cannot catch up
                break
            theta, found = self.region.largest_bound(
                self._choices[best], self._width_in_round, sign, self.X_pending
            )
            waits[best] = False
            largest, gain = max(largest, found), max(gain, found - float(values[best]))
            self._look_at(torch.cat([self._members, theta.unsqueeze(0)]))

    def _in_round(self, round_number: int) -> float:
        if self._num_arms is None:
            return MIXTURE_WIDTH if self._width is None else self._width
        return float(gp_ucb_finite_width(self._num_arms, round_number, 0.5 * self.delta))

    def _look_at(self, members: Tensor) -> None:
        """Let the bound be the largest one over some members."""
        region, pending = self.region, self.X_pending
        inputs = region.X if pending is None else torch.cat([region.X, pending])
        with torch.no_grad():
            self._members, self._factor = members, region.family.factors(members, inputs)

    def _values(self, X: Tensor) -> Tensor:
        region = self.region
        mean, deviation = region.family.posterior(
            self._members, region.X, region.y, X, self.X_pending, self._factor
        )
        first = self.round_number
        widths = [self._in_round(first + i) for i in range(X.shape[-2])]
        half = deviation * torch.tensor(widths).to(X)
        return ((mean if self.maximize else -mean) + half).amax(0)

    def _bounds(self, model: CandidatesModel, X: Tensor) -> tuple[Tensor, Tensor]:
        """Search the region for both bounds at ``... x d`` points."""
        points, region, width = X.reshape(-1, X.shape[-1]), self.region, self._width_in_round
        ends = []
        for sign in (-1.0, 1.0):

            def bounds_of(members: Tensor, sign: float = sign) -> Tensor:
                mean, deviation = region.family.posterior(
                    members, region.X, region.y, points.unsqueeze(-2)
                )
                return (sign * mean + width * deviation).squeeze(-1)  # P x m

            with torch.no_grad():
                known = bounds_of(region.members).amax(0)
            # certificates use the largest and the smallest of the upper and lower bounds
            order, half = known.argsort(), NUM_REFINED // 2
            searched = order.tolist()
            if len(points) > NUM_REFINED:
                searched = [*searched[:half], *searched[-half:]]
            found = [region.largest_bound(points[i].detach(), width, sign)[0] for i in searched]
            members = torch.cat([region.members, torch.stack(found)]) if found else region.members
            ends.append(sign * bounds_of(members).amax(0).reshape(X.shape[:-1]))
        return ends[0], ends[1]

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this bound with this family, or why none does."""
        method = "upper confidence bound over a region of hyperparameters"
        if self._num_arms is None:
            guarantee = Guarantee(method=method, gaps=(CONSTANT_WIDTH,))
        else:
            guarantee = Guarantee(
                method=method,
                theorem="Ville's inequality and Srinivas et al. 2010, Theorem 1, each at delta / 2",
                bands=Statement(
                    "with {probability} the reward lies between the least lower and the largest "
                    "upper bound of the priors in the region, in all rounds, on all arms (with "
                    "contexts: at the context of each round)",
                    delta=self.delta,
                    reach="arms",
                ),
                regret=RegretStatement(
                    "with {probability}, on the same event, the regret of every round t that "
                    "maximizes the upper confidence bound is at most the distance of the bounds at "
                    "the point that it chose, which is twice the effective width times standard "
                    "deviation",
                    delta=self.delta,
                    factor=2.0,
                ),
                assumptions=(
                    DRAWN_FROM_FAMILY,
                    "the family was fixed before the data, and so were the list that serves as a "
                    "forecaster and its weights",
                    "the noise is Gaussian with mean 0 and the variance of the true prior, "
                    "independent from row to row and of the reward function",
                    "the largest and the least bound over the region are those that its numerical "
                    "search found: the maximization is assumed exact",
                    "the acquisition is maximized over at most num_arms arms, fixed before the "
                    "data",
                ),
                constants={
                    "delta": self.delta,
                    "delta_of_region": 0.5 * self.delta,
                    "delta_of_bands": 0.5 * self.delta,
                    "num_arms": float(self._num_arms),
                    "score": self.region.score,
                    "threshold": self.region.threshold,
                },
            )
        if self.base_model.recipe.num_skipped:
            guarantee = guarantee.with_assumptions(
                f"everything is conditional on the first {self.base_model.recipe.num_skipped} "
                "outcomes, which chose the list; the rounds until then are not covered"
            )
        for entry in self.base_model.recipe.candidates:
            guarantee = guarantee.with_gaps(*reasons_learned(entry, self.assume))
        if self.is_refuted:
            guarantee = guarantee.with_gaps("no prior of the family was found in the region")
        guarantee = with_pending(guarantee, self.X_pending)
        guarantee = guarantee if self.maximize else guarantee.for_minimizing()
        return of_acquisition(self, guarantee)


CONSTANT_WIDTH = (
    "the width is a constant (given as width=, or 2 because nothing else is given), which no "
    "theorem covers; on arms pass num_arms= (Theorem 1), which a loop on Arms fills in unless "
    "width= is given; on a box use CandidatesUpperConfidenceBound with smoothness_a= and "
    "smoothness_b="
)
"""Why a constant width has no guarantee."""


def _check_width(num_arms: Any, width: Any) -> tuple[int | None, float | None]:
    """Return the ingredient of the width, checked.

    Raises:
        ValueError: If both are given, or a number is out of range.
    """
    if num_arms is not None and width is not None:
        raise ValueError(
            f"num_arms is {num_arms!r} and width {width!r}; give one of them: the number of arms "
            "for Theorem 1, or a constant width, which no theorem covers."
        )
    return (
        None if num_arms is None else check_integer("num_arms", num_arms, minimum=1),
        None if width is None else check_nonnegative("width", width),
    )


fill_in_docstrings(__name__)
