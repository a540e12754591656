r"""Several priors, one of which is true: their evidence, the survivors, and what that proves.

The reward is a draw from ONE of the priors :math:`\theta` of a list with weights
:math:`w_\theta > 0` that sum to 1. Which one is unknown. The list and the weights are fixed before
the data.

**Evidence.** Given the outcomes before it, the density of an outcome under a prior is
:math:`N(y_t; \mu_\theta(x_t), \sigma_\theta^2(x_t) + \lambda_\theta)`, regardless of the rule that
chose :math:`x_t`. The product of these densities is the marginal likelihood :math:`p_\theta(D_t)`,
and

.. math::
   \ln e_t(\theta) = \ln Z_t - \ln p_\theta(D_t), \qquad
   Z_t = \sum_\theta w_\theta \, p_\theta(D_t).

**Lemma.** Under the true prior :math:`e_t` is a martingale that starts at 1, so that
:math:`P(\exists t: e_t \ge 1 / \delta) \le \delta` (Ville's inequality).

*Proof.* Let :math:`q_t` be the mixture of the predictive densities of outcome t, with the weights
:math:`w_\theta p_\theta(D_{t-1}) / Z_{t-1}`: a density that is known before the outcome. By
definition :math:`e_t = e_{t-1} \, q_t(y_t) / p_\theta(y_t | x_t, D_{t-1})`. If :math:`\theta` is
the true prior, :math:`y_t` has the density in the denominator, given the past and :math:`x_t`, so
that the expectation of the ratio is :math:`\int q_t(y) \, dy = 1`. Stop at the first
:math:`t \le n` with :math:`e_t \ge 1 / \delta`, or at :math:`n` if there is none: the expectation
of the stopped value is 1, and by Markov's inequality it is :math:`1 / \delta` or more with
probability at most :math:`\delta`. Let :math:`n` grow. :math:`\square`

**Survivors** at level :math:`\delta_1` are the priors with :math:`e_s(\theta) < 1 / \delta_1` for
ALL :math:`s \le t`. The true prior is ever eliminated with probability at most :math:`\delta_1`,
regardless of the length of the list: there is only one true prior, so no union bound over the list
is needed. The mixture keeps every prior forever, including those that were eliminated: leaving one
out and renormalizing the other weights would be a different process and not a martingale.

**Bounds.** The band of the true prior, of width :math:`w_t` at level :math:`\delta_2` (Theorem 1 or
2 of Srinivas et al.), holds in all rounds with probability :math:`1 - \delta_2`. When both events
hold, which has probability at least :math:`1 - \delta_1 - \delta_2`, the true prior is among the
survivors :math:`S`, so that

.. math::
   \min_{\theta \in S} \mu_\theta - w_t \sigma_\theta \le f \le
   \max_{\theta \in S} \mu_\theta + w_t \sigma_\theta

wherever its band holds. The width has no term for the length of the list, because only the band of
the true prior must hold. This is how hyperparameters can be learned from the same data that the
bounds are for. The true prior must be ON the list: nothing is proved for priors between its
entries.

**Further assumptions:** given the past, :math:`x_t`, contexts, delays and the order of arrival
carry no further information about the reward function or the noise; outcomes count one at a time,
in the order in which they arrive, each against the prediction from the outcomes that arrived before
it, and never from pseudo-observations.

Sources: Ville 1939 for the inequality; Srinivas, Krause, Kakade and Seeger 2010 for the widths;
Wasserman, Ramdas and Balakrishnan 2020 for inference by ratios of predictive densities.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_one_of,
    check_positive,
    check_probability,
    in_lists,
)
from botorch_bandits.confidence.diagnosis import check_model
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.gp_ucb import gp_ucb_compact_width
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.ingredients import THEOREMS, ingredients
from botorch_bandits.confidence.theorems import (
    A_CONSTANT_FOR_A_LIST,
    LIST_ON_A_BOX,
    LIST_ON_ARMS,
    MIXTURE_OF_A_LIST,
    REFUTED_LIST,
    guarantee_of,
)

LEVEL_OF_SURVIVORS = 0.05
"""The level of survivors if none is given: half of the ordinary ``delta``."""

MOST_ROWS_SHOWN = 20
"""The largest number of priors in a printed table; the default list has hundreds."""


class RefutedListWarning(RuntimeWarning):
    """The outcomes refute every prior on a list; no guarantee holds from then on."""


@dataclass(frozen=True)
class CandidateStatus:
    """What the outcomes say about one prior on a list.

    Attributes:
        name: The name of the prior.
        weight: Its weight before the data.
        log_evidence_against: ``ln e_t``: how much better the whole list predicted than this prior,
            in nats.
        largest_log_evidence_against: The largest value so far, which decides whether the prior
            survives.
        posterior_weight: Its probability given the outcomes, if the prior were drawn by weight.
        survives: Whether it has never been eliminated.
        eliminated_after: The number of outcomes after which it was eliminated; None if it survives.
    """

    name: str
    weight: float
    log_evidence_against: float
    largest_log_evidence_against: float
    posterior_weight: float
    survives: bool
    eliminated_after: int | None


@dataclass(frozen=True)
class EvidenceTable:
    """What the outcomes say about each prior on a list; ``print`` shows it.

    Attributes:
        rows: One per prior, in the order of the list.
        level: The survivors' level.
        num_outcomes: The number of outcomes that were counted.
        refuted_after: The number of outcomes after which the last prior was eliminated; None if
            some survive.
        path: ``num_outcomes x num_candidates``; the log evidence after each outcome, for plots.
        outcome_name: The outcome that the priors describe, such as ``"reward"`` or ``"cost"``.
    """

    rows: tuple[CandidateStatus, ...]
    level: float
    num_outcomes: int
    refuted_after: int | None
    path: NDArray[np.float64] = field(compare=False, repr=False)
    outcome_name: str = "reward"

    def __len__(self) -> int:
        """Return how many priors are on the list."""
        return len(self.rows)

    def __iter__(self) -> Iterator[CandidateStatus]:
        """Go through the priors in the order of the list."""
        return iter(self.rows)

    def __str__(self) -> str:
        """Return the table as text: at most :data:`MOST_ROWS_SHOWN` priors, best predictions first.

        The column *evidence against now* is ``log_evidence_against``, after the last outcome. An
        eliminated prior reached the threshold earlier, and its evidence may have fallen since.
        """
        alive = sum(row.survives for row in self.rows)
        lines = [
            f"{self.num_outcomes} outcomes, {alive} of {len(self.rows)} priors survive at level "
            f"{self.level:g}"
        ]
        if self.refuted_after is not None:
            lines.append(
                f"after {self.refuted_after} outcomes the list is refuted: the {self.outcome_name} "
                "is a draw from none of its priors"
            )
        width = max(len(row.name) for row in self.rows)
        lines.append(f"{'prior':<{width}}  evidence against now  posterior weight  status")
        in_order = sorted(self.rows, key=lambda each: each.log_evidence_against)
        for row in in_order[:MOST_ROWS_SHOWN]:
            after = row.eliminated_after
            status = "survives" if after is None else f"eliminated after outcome {after}"
            lines.append(
                f"{row.name:<{width}}  {row.log_evidence_against:20.4f}  "
                f"{row.posterior_weight:16.4f}  {status}"
            )
        left_out = len(in_order) - MOST_ROWS_SHOWN
        if left_out > 0:
            lines.append(f"and {left_out} more, which `rows` has")
        return "\n".join(lines)


class CandidateEvidence:
    """The evidence of each prior on a list, updated one outcome at a time in order of arrival.

    Args:
        weights: One positive weight per prior; they are divided by their sum.
        names: The names of the priors; numbers if omitted.

    Raises:
        ValueError: If there is no prior, a weight is not positive and finite, or the numbers of
            names and weights differ.

    Example:
        >>> evidence = CandidateEvidence([1.0, 1.0], names=["short", "long"])
        >>> evidence.update([-1.0, -3.0])
        >>> [round(value, 4) for value in evidence.log_evidence_against.tolist()]
        [-0.5662, 1.4338]
        >>> evidence.survivors(level=0.25).tolist()
        [True, False]
    """

    def __init__(
        self, weights: Sequence[float] | Tensor, names: Sequence[str] | None = None
    ) -> None:
        """See the class."""
        given = list(in_lists(weights))
        if not given:
            raise ValueError("weights is empty; give at least one prior.")
        values = [check_positive(f"weights[{i}]", weight) for i, weight in enumerate(given)]
        self.names = tuple(str(i) for i in range(len(values))) if names is None else tuple(names)
        if len(self.names) != len(values):
            raise ValueError(
                f"names has {len(self.names)} entries and weights {len(values)}; give one name per "
                "prior, or leave names= out."
            )
        self.weights = np.array(values) / math.fsum(values)
        self._log_likelihoods = self.log_evidence_against = np.zeros(len(values))
        self.largest_log_evidence_against = np.zeros(len(values))
        self.log_marginal_likelihood = 0.0
        self._path = [np.empty((0, len(values)))]
        self.num_outcomes = 0

    def __repr__(self) -> str:
        """Show how many outcomes were counted, and of how many priors."""
        counts = f"{self.num_outcomes} outcomes, {self.num_candidates} priors"
        return f"{type(self).__name__}({counts})"

    def __str__(self) -> str:
        """Show the table at the ordinary level, :data:`LEVEL_OF_SURVIVORS`."""
        return str(self.table(LEVEL_OF_SURVIVORS))

    @property
    def num_candidates(self) -> int:
        """The number of priors on the list."""
        return len(self.weights)

    @property
    def posterior_weights(self) -> NDArray[np.float64]:
        """``w_th p_th(D_t) / Z_t``, which sum to 1."""
        joint = np.log(self.weights) + self._log_likelihoods
        weights: NDArray[np.float64] = np.exp(joint - self.log_marginal_likelihood)
        return weights / weights.sum()

    @property
    def path(self) -> NDArray[np.float64]:
        """``num_outcomes x num_candidates``; ``ln e_s`` of each prior after each outcome."""
        return np.concatenate(self._path)

    def update(self, densities: Sequence[float] | NDArray[np.float64] | Tensor) -> None:
        """Add one outcome, or several in order of arrival.

        Args:
            densities: ``num_candidates`` or ``n x num_candidates``; the logarithm of the predictive
                density of each outcome under each prior, given the outcomes that arrived before it
                and nothing else.

        Raises:
            ValueError: If there is not one finite number per prior; only the outcomes before the
                first such outcome are added.
        """
        new = np.atleast_2d(np.asarray(densities, dtype=np.float64))
        if new.shape[-1] != self.num_candidates:
            raise ValueError(
                f"densities has {new.shape[-1]} entries, but {self.num_candidates} priors are on "
                "the list; give one number per prior."
            )
        is_finite = np.isfinite(new)
        count = len(new) if is_finite.all() else int(is_finite.all(-1).argmin())
        if count:
            self._add(new[:count])
        if count < len(new):
            index = int(is_finite[count].argmin())
            raise ValueError(
                f"densities[{index}] (prior {self.names[index]}) is {new[count, index]}; the "
                "logarithm of a predictive density must be finite. The outcome is too far from "
                "what the prior expects for float64: rescale the outcomes, or the priors."
            )

    def _add(self, new: NDArray[np.float64]) -> None:
        """Add outcomes, ``n x num_candidates`` finite numbers, at least one row."""
        likelihoods = np.concatenate([self._log_likelihoods[None], new]).cumsum(0)[1:]
        joint = np.log(self.weights) + likelihoods
        shift = joint.max(-1)
        # one at a time and all at once round alike
        sums = np.exp(joint - shift[:, None]).sum(-1).tolist()
        marginal = shift + np.array([math.log(each) for each in sums])
        evidence = marginal[:, None] - likelihoods
        self._path.append(evidence)
        self._log_likelihoods, self.log_evidence_against = likelihoods[-1], evidence[-1]
        self.log_marginal_likelihood = float(marginal[-1])
        self.largest_log_evidence_against = np.maximum(
            self.largest_log_evidence_against, evidence.max(0)
        )
        self.num_outcomes += len(new)

    def copied(self) -> CandidateEvidence:
        """Return a copy; updating one of the two does not change the other."""
        new = copy.copy(self)
        new._path = list(self._path)
        return new

    def survivors(self, level: float) -> NDArray[np.bool_]:
        """Return which priors have never been eliminated, one ``bool`` each.

        Args:
            level: ``delta_1``: the true prior is ever eliminated with at most this probability.

        Raises:
            ValueError: If ``level`` is not between 0 and 1.
        """
        return self.largest_log_evidence_against < -math.log(check_probability("level", level))

    def in_force(self, level: float) -> NDArray[np.bool_]:
        """Return the survivors, or all priors if none survives.

        Args:
            level: See :meth:`survivors`.
        """
        survivors = self.survivors(level)
        return survivors if survivors.any() else np.ones_like(survivors)

    def eliminated_after(self, level: float) -> list[int | None]:
        """Return the number of outcomes after which each prior was eliminated; None for survivors.

        Args:
            level: See :meth:`survivors`.
        """
        over = self.path >= -math.log(check_probability("level", level))
        return [int(each.argmax()) + 1 if each.any() else None for each in over.T]

    def refuted_after(self, level: float) -> int | None:
        """Return the number of outcomes after which no prior was left; None if some survive.

        Args:
            level: See :meth:`survivors`.
        """
        if self.survivors(level).any():
            return None
        return max(each for each in self.eliminated_after(level) if each is not None)

    def warn_if_refuted(self, level: float) -> None:
        """Warn if no prior survives.

        Args:
            level: See :meth:`survivors`.

        Warns:
            RefutedListWarning: If none survives.
        """
        after = self.refuted_after(level)
        if after is None:
            return
        shown = ", ".join(self.names[:4])
        more = f" and {self.num_candidates - 4} more" if self.num_candidates > 4 else ""
        warnings.warn(
            f"after {after} outcomes all {self.num_candidates} priors on the list are refuted at "
            f"level {level:g} ({shown}{more}): the reward is a draw from none of them. All are "
            "used from here on, without any guarantee. Give the list other lengthscales, noise "
            "variances, scales or kernels.",
            RefutedListWarning,
            stacklevel=4,
        )

    def table(self, level: float) -> EvidenceTable:
        """Return what the outcomes say about each prior.

        Args:
            level: See :meth:`survivors`.
        """
        columns = (
            self.weights,
            self.log_evidence_against,
            self.largest_log_evidence_against,
            self.posterior_weights,
            self.survivors(level),
        )
        lists = (column.tolist() for column in columns)
        rows = tuple(map(CandidateStatus, self.names, *lists, self.eliminated_after(level)))
        return EvidenceTable(rows, level, self.num_outcomes, self.refuted_after(level), self.path)


# --- the confidence bands of a list of priors -----------------------------------------------------


FORMS = ("survivors", "mixture")
"""The forms: the largest bound of the survivors, or the bound of the mixture."""

SMOOTHNESS = ("smoothness_a", "smoothness_b")
"""The ingredients of the width of Theorem 2 that may differ between priors."""

MIXTURE_WIDTH = 2.0
"""The constant width if no ingredient of a width is given."""

MOST_ROWS_CHECKED = 2000
"""With more outcomes, a guarantee does not compare them with what the priors predicted."""


class CandidateWidths:
    """The confidence bands of a list of priors, in each round.

    Args:
        options: The arguments of :class:`~botorch_bandits.CandidatesUpperConfidenceBound` by name,
            None for those that were left out; survivors and bands get half of ``delta`` each.

    Raises:
        ValueError: If ingredients do not match the form, belong to more than one width, or some of
            those of Theorem 2 are missing.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """See the class."""
        self.form = form = check_one_of("form", options["form"], FORMS)
        self.delta = check_probability("delta", options["delta"])
        given = ingredients("CandidatesUpperConfidenceBound", options)
        if form == "mixture" and given.keys() - {"width"}:
            raise ValueError(
                "form='mixture' has a constant width; leave num_arms=, smoothness_a=, "
                "smoothness_b=, dim= and side_length= out."
            )
        self.given = given or {"width": MIXTURE_WIDTH}
        self.num_arms, self.on_box = given.get("num_arms"), "dim" in given
        self._rule: Any = None  # on a box, the width differs between priors
        if not self.on_box:
            self._rule = THEOREMS[tuple(self.given)](delta=self.level, **self.given)

    @property
    def level(self) -> float:
        """The level of the survivors, half of ``delta``; the bands have the other half."""
        return 0.5 * self.delta

    def in_round(self, round_number: int, scales: NDArray[np.float64]) -> float | NDArray[Any]:
        """Return the width of each prior's band, or one for all.

        Args:
            round_number: ``t``, from 1.
            scales: The output scale of each prior.
        """
        if self._rule is not None:
            return float(self._rule.width(None, round_number))
        a, b = (one_each(name, self.given[name], len(scales)) for name in SMOOTHNESS)
        dim, side_length = self.given["dim"], self.given["side_length"]
        b = b / torch.from_numpy(scales).sqrt()
        return gp_ucb_compact_width(dim, round_number, self.level, side_length, a, b).numpy()

    def bounds(
        self,
        model: Any,
        mean: Tensor,
        variance: Tensor,
        width: float | NDArray[np.float64],
    ) -> tuple[Tensor, Tensor]:
        """Return the lower and the upper bound, ``...`` each.

        Args:
            model: What has the evidence, and the ``recipe`` of the list: a model or a player.
            mean: ``G x ...`` posterior means of the groups of priors.
            variance: ``G x ...`` posterior variances.
            width: The result of :meth:`in_round`.
        """
        groups, evidence = model.recipe.groups, model.evidence
        if self.form == "survivors":
            return groups.bounds(mean, variance, width, evidence.in_force(self.level))
        center, spread = groups.mixture(mean, variance, evidence.posterior_weights)
        half = spread.sqrt() * float(width)
        return center - half, center + half

    def guarantee(self, model: Any, assume: Collection[str], facts: Facts = ALONE) -> Guarantee:
        """Return what is proved about the bands.

        Args:
            model: The list and the outcomes that have arrived.
            assume: The assumptions that a user vouches for; see :data:`.ASSUMABLE`.
            facts: What is known of the use.
        """
        if self.form == "mixture":
            return guarantee_of(MIXTURE_OF_A_LIST, facts, {})
        count = model.recipe.num_candidates
        if "width" in self.given:
            return guarantee_of(A_CONSTANT_FOR_A_LIST, facts, {})
        constants = {
            "delta": self.delta,
            "delta_of_survivors": self.level,
            "delta_of_bands": self.level,
            "num_candidates": float(count),
            "num_survivors": float(model.evidence.survivors(self.level).sum()),
        }
        theorem, tail = LIST_ON_ARMS, 0.0
        if self.num_arms is not None:
            constants["num_arms"] = float(self.num_arms)
        else:
            in_force = model.evidence.in_force(self.level)
            tail = float(np.sqrt(model.recipe.groups.scales[in_force]).max())
            theorem = LIST_ON_A_BOX
        learned = dict.fromkeys(each for found in model.recipe.learned for each in found)
        if "fixed prior" in assume:
            learned.pop("frozen parameters", None)
        facts = replace(facts, learned=tuple(learned), num_skipped=model.recipe.num_skipped)
        after = model.evidence.refuted_after(self.level)
        refuted = facts.say(REFUTED_LIST, after=after, count=count, level=self.level)
        gaps = () if after is None else (refuted,)
        guarantee = guarantee_of(theorem, facts, constants, gaps, tail=tail)
        return replace(guarantee, notes=notes_on_list(model))


def one_each(name: str, value: float | Sequence[float], count: int) -> Tensor:
    """Return one number for each prior on a list.

    Args:
        name: The name of the argument, for error messages.
        value: One number for all, or one per prior.
        count: The number of priors.

    Raises:
        ValueError: If the number of entries differs.
    """
    given: Any = value if np.ndim(value) else [value]
    entries = [check_positive(name, each) for each in given]
    if np.ndim(value) and len(entries) != count:
        raise ValueError(
            f"{name} has {len(entries)} entries, but {count} priors are on the list; give one "
            "number for all, or one per prior."
        )
    return torch.tensor(entries, dtype=DTYPE).expand(count)


def notes_on_list(model: Any) -> tuple[str, ...]:
    """Return what the outcomes say against the likeliest prior on a list, if anything.

    Evidence compares priors with the list as a whole, so that it does not tell whether all of them
    are wrong; how well the likeliest predicted the outcomes does.

    Args:
        model: The list and the outcomes that have arrived.
    """
    if model.num_rows > MOST_ROWS_CHECKED:
        return ()
    try:
        check = check_model(model)
    except (TypeError, ValueError, RuntimeError):
        return ()  # the likeliest is a model of the user's own, whose prior cannot be read
    name, notes = model.evidence.names[int(model.evidence.posterior_weights.argmax())], []
    if check.finding in ("overconfident", "changed", "mean off"):
        notes.append(
            f"the data speak against the list as a whole, of whose priors {name!r} is the "
            f"likeliest. {check.verdict} If none of the priors is the true one, nothing above is "
            "guaranteed"
        )
    if check.is_uncorrelated:
        notes.append(
            f"under {name!r}, the likeliest prior on the list, half of the points have a "
            f"correlation of at most {check.nearest_correlation:.2g} with every other, so that "
            "outcomes say nothing about other points; lengthscales must be in the units of the "
            "inputs, and candidate_grid takes one for each input"
        )
    return tuple(notes)
