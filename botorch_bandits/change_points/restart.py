r"""Restarting: when a policy explores uniformly, and when it starts over.

Two lists are kept since the last reset: all queries, and those that were drawn uniformly at random.
A round is an exploration round if

.. math:: |\mathrm{uniform}| \le \xi \sqrt{|\mathrm{history}|},

and otherwise belongs to the policy. When the outcome of a uniform query arrives, the detector tests
the uniform queries. On a detection, both lists are cleared: the policy starts over with round
number 1 and without any of the old data.

Source: Avanesov, *How to gamble with non-stationary X-armed bandits and have no
regrets*, arXiv 1908.07636, Algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from botorch_bandits.change_points.evidence import (
    EvidenceDetector,
    EvidenceStream,
    candidates_of,
)
from botorch_bandits.change_points.half_samples import ChangePointDetector
from botorch_bandits.checks import (
    check_instance,
    check_integer,
    check_nonnegative,
    check_one_of,
    store_bounds,
    store_checked,
)
from botorch_bandits.domains import Domain
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.models.prior_lists import DefaultCandidates

PUBLISHED_EXPLORATION = math.sqrt(3.0)
"""``xi`` of the paper's experiments."""


@dataclass(frozen=True, kw_only=True)
class Restart:
    r"""A rule by which a policy starts over; see :class:`ChangePointRestart`.

    A round explores if :math:`|\mathrm{uniform}| \le \xi \sqrt{|\mathrm{history}|}`, both counted
    from the last reset. With ``split_delta``, segment ``k`` has

    .. math:: \delta_k = \frac{6 \delta}{\pi^2 k^2}, \qquad \sum_{k \ge 1} \delta_k = \delta.

    Attributes:
        exploration: ``xi``, the amount of uniform exploration; None never explores.
        split_delta: Whether the width of segment ``k`` (from 1) uses ``6 delta / (pi k) ** 2``, so
            that all segments together fail with probability at most ``delta``.
        keep_multipliers: With constraints, whether the multipliers remain unchanged at a reset.
    """

    exploration: float | None = PUBLISHED_EXPLORATION
    split_delta: bool = True
    keep_multipliers: bool = False

    starts_over: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.exploration is not None:
            store_checked(self, exploration=check_nonnegative("exploration", self.exploration))

    def explores(self, num_uniform: int, num_history: int) -> bool:
        """Return whether the next round draws uniformly at random.

        Squares are compared, with a margin for their rounding: ``sqrt(3) * sqrt(3)`` falls below 3
        in floating point, and the paper's ``xi`` meets equality at 3, 12, 48, ... queries.

        Args:
            num_uniform: The number of uniform queries since the last reset.
            num_history: The number of all queries since the last reset.

        Example:
            >>> Restart().explores(num_uniform=3, num_history=3)
            True
        """
        if self.exploration is None:
            return False
        return num_uniform * num_uniform <= self.exploration**2 * num_history * (1.0 + 1e-12)

    def is_told_of_change(self, round_number: int) -> bool:
        """Return whether a reset is due before this round, regardless of the data.

        Args:
            round_number: The round that is about to be played, from 1.
        """
        return False

    def share_of_delta(self, delta: float, segment: int) -> float:
        """Return the share of ``delta`` that a segment gets.

        Args:
            delta: The failure probability of all segments together.
            segment: The number of the segment, from 0.
        """
        return 6.0 * delta / (math.pi * (segment + 1)) ** 2 if self.split_delta else delta


@dataclass(frozen=True, kw_only=True)
class NeverRestart(Restart):
    """Explores like :class:`ChangePointRestart`, but never starts over: a baseline.

    It shows what the exploration alone costs.

    See :class:`Restart` for the other arguments.
    """

    starts_over: ClassVar[bool] = False


@dataclass(frozen=True)
class OracleRestart(Restart):
    """Starts over at given rounds: a baseline that knows the change-points.

    See :class:`Restart` for the other arguments.

    Attributes:
        change_points: The last rounds before each change: the reward function of round
            ``tau + 1`` is the first new one.
    """

    change_points: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        check_instance(
            "change_points",
            self.change_points,
            Iterable,
            "Pass the last rounds before each change, such as change_points=(60,).",
        )
        checked = [check_integer("change_points", tau, minimum=1) for tau in self.change_points]
        if checked != sorted(set(checked)):
            raise ValueError(
                f"change_points is {self.change_points}; give increasing numbers of rounds."
            )
        object.__setattr__(self, "change_points", tuple(checked))

    def is_told_of_change(self, round_number: int) -> bool:
        return round_number - 1 in self.change_points


@dataclass(frozen=True, kw_only=True)
class ChangePointRestart(Restart):
    """Starts over when a detector sees a change in the uniform queries: Avanesov, Algorithm 2.

    It can be combined with any policy: between the uniform queries, the loop plays its acquisition.

    See :class:`Restart` for the other arguments.

    Attributes:
        detector: The test of the uniform queries since the last reset, which runs whenever one of
            their outcomes arrives.
        constraint_detectors: With constraints, one detector for each of them: their values are then
            tested as well, and any detection counts. If empty, only the reward is tested.
        smallest_change: ``Delta``, the least L2 norm of the difference of two consecutive reward
            functions, if it is known. It is used only in what ``guarantee()`` states about the
            spacing and the rate of the changes.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Arms, BanditGP, BanditLoop, ChangePointDetector
        >>> from botorch_bandits import GPUpperConfidenceBound
        >>> import torch
        >>> loop = BanditLoop(
        ...     Arms(torch.linspace(0, 5, 100, dtype=torch.float64).unsqueeze(-1)),
        ...     BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.0025, lengthscale=1.0),
        ...     GPUpperConfidenceBound.with_options(delta=0.1),
        ...     restart=ChangePointRestart(
        ...         detector=ChangePointDetector(MaternKernel(nu=2.5), lengthscale=1.0)
        ...     ),
        ... )
        >>> loop.ask().origin
        'exploration'
    """

    detector: ChangePointDetector
    constraint_detectors: tuple[ChangePointDetector, ...] = ()
    smallest_change: float | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        store_bounds(self, smallest_change=self.smallest_change)
        remedy = "Pass ChangePointDetector(kernel, ...), without .on(domain)."
        check_instance("detector", self.detector, ChangePointDetector, remedy)
        check_instance(
            "constraint_detectors",
            self.constraint_detectors,
            (tuple, list),
            "Pass a tuple with one ChangePointDetector(kernel, ...) for each constraint.",
        )
        for i, detector in enumerate(self.constraint_detectors):
            check_instance(f"constraint_detectors[{i}]", detector, ChangePointDetector, remedy)
        object.__setattr__(self, "constraint_detectors", tuple(self.constraint_detectors))


@dataclass(frozen=True, kw_only=True)
class EvidenceRestart(Restart, EvidenceDetector):
    r"""Starts over when the evidence of all outcomes says that the reward function changed.

    It can be combined with any policy, and needs no exploration and no calibration; see
    :class:`.EvidenceDetector`. Its null hypothesis is the model of the loop with fixed
    hyperparameters, a list of candidates, or, with ``rkhs_bound``, every function of the ball.
    Reward and constraints are tested jointly, unless ``outputs="reward"``.

    The first segment has at most the probability :math:`6 \alpha / \pi^2` of an alarm before any
    change, if the reward function is a draw from the model and the noise is Gaussian; this
    probability averages over the prior. For later segments, see ``keep``. In the
    ball form, segment ``k`` has at most :math:`6 \alpha / (\pi k)^2` until there is a change in a
    function from which its outcomes come; this holds for each function in the ball and regardless
    of ``keep``.

    See :class:`Restart` and :class:`.EvidenceDetector` for the other arguments.

    Attributes:
        keep: What is kept at a reset. ``"since_change"`` keeps the rows since the estimated change;
            the level of later segments is exact if the estimate is the true change, and approximate
            otherwise. ``"nothing"`` keeps none; the level of later segments is approximate, because
            the rows that were dropped showed the new function and chose the restart.
        candidates: Recipes of candidate priors, or what :meth:`.BanditGP.with_candidates` returns,
            for unknown hyperparameters. None uses the loop's model. With
            :class:`~botorch_bandits.DefaultCandidates`, here or as the loop's model, the
            first outcomes that arrive in the run choose the output scales for all segments; these
            outcomes are not tested.
        outputs: With constraints, what is tested. ``"all"`` multiplies the evidence of the reward
            and of every constraint for a change in the same round, so constraints that stay as they
            are count against a change. ``"reward"`` tests the reward alone. Its level is the same
            if, given the past, the constraint values carry no further information about the reward
            function or its noise. A reset starts over with everything in either case.

    Raises:
        TypeError: If a setting has the wrong type.
        ValueError: If a number is out of range or missing, or two forms are requested at once.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Arms, BanditGP, BanditLoop, GPUpperConfidenceBound
        >>> loop = BanditLoop(
        ...     Arms(torch.linspace(0, 5, 100, dtype=torch.float64).unsqueeze(-1)),
        ...     BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.0025, lengthscale=1.0),
        ...     GPUpperConfidenceBound.with_options(width=2.0),
        ...     restart=EvidenceRestart(),
        ... )
        >>> for y in [0.5] * 10 + [-2.0] * 4:
        ...     _ = loop.tell(loop.ask().id, y)
        >>> [(reset.change_round, reset.num_kept) for reset in loop.resets]
        [(11, 1)]
    """

    keep: Literal["since_change", "nothing"] = "since_change"
    exploration: float | None = None
    candidates: Any = None
    outputs: Literal["all", "reward"] = "all"

    def __post_init__(self) -> None:
        """Check the settings."""
        Restart.__post_init__(self)
        EvidenceDetector.__post_init__(self)
        check_one_of("keep", self.keep, ("since_change", "nothing"))
        check_one_of("outputs", self.outputs, ("all", "reward"))
        if self.candidates is not None:
            listed = candidates_of(self.candidates)
            remedy = "Pass a list of BanditGP.with_kernel(...), or BanditGP.with_candidates([...])."
            check_instance("candidates", listed, CandidatesRecipe, remedy)
            if not isinstance(self.candidates, DefaultCandidates):  # which has no scales yet
                store_checked(self, candidates=listed)

    def on(
        self, domain: Domain, models: Any, num_outputs: int = 1, context_dim: int = 0
    ) -> EvidenceStream:
        """Return an empty stream for a loop.

        Args:
            domain: The domain of the points.
            models: The loop's model.
            num_outputs: One more than the number of constraints. With ``outputs="reward"``, the
                detector has one output regardless.
            context_dim: The dimension of the contexts.

        Raises:
            ValueError: See :meth:`.EvidenceDetector.on`.
        """
        num_outputs = 1 if self.outputs == "reward" else num_outputs
        return EvidenceStream(self, domain, self.candidates or models, num_outputs, context_dim)

    def describe_level(self, model: Any) -> str:
        """Return what is claimed about false alarms, in one sentence.

        Args:
            model: The loop's model.
        """
        level = 6.0 * self.alpha / math.pi**2
        if self.rkhs_bound is not None:
            return (
                "until a function that its outcomes come from changes, segment k raises an alarm "
                f"with probability at most {level:.3g} / k^2, and all segments together with at "
                f"most {self.alpha:g}, for every function whose norm less the prior mean is at "
                f"most {self.rkhs_bound:g} and {self.noise_bound:g}-sub-Gaussian noise, on which "
                "contexts, delays, failures, retractions, counts and noise variances do not depend "
                "before it is told"
            )
        priors = candidates_of(self.candidates or model)
        listed, given = "", ""
        if priors is not None:
            listed = "the prior is one of the candidates, "
            if priors.num_skipped:
                given = f"given the first {priors.num_skipped} outcomes, which are not tested, "
        it = "it" if self.drift_rate is None else f"it that drifts at the rate {self.drift_rate:g}"
        values = "constraint values, " if self.outputs == "reward" else ""
        drawn = (
            f"on average over the prior, if {listed}the function is a draw from {it} and the noise "
            f"Gaussian, and {values}contexts, delays, failures, retractions, attached points, "
            "counts, noise variances and available points reveal nothing about either beyond the "
            "outcomes told before"
        )
        first = (
            f"{given}before a change, the first segment raises an alarm with probability at most "
            f"{level:.3g}, {drawn}"
        )
        if self.keep == "since_change":
            return first + (
                "; later segments keep their levels if the estimated change is the true change, "
                "and approximately otherwise"
            )
        return first + "; later segments keep their levels approximately"


@dataclass(frozen=True)
class Reset:
    """A reset of the loop.

    Attributes:
        after_round: The number of rounds asked so far; the next round is the first of the new
            segment.
        num_dropped: The number of queries of the ended segment that were dropped.
        num_uniform: The number of these that explored: they were drawn uniformly.
        reason: ``"detection"`` or ``"oracle"``.
        statistic: The statistic of the test that detected the change; NaN otherwise, as are the
            following numbers.
        threshold: The threshold that it exceeded.
        half_size: ``n``; the tail of ``2 n`` uniform queries was tested, one half against the
            other.
        change_round: The round of the first query that the detector attributes to the new function.
        quantity: What changed: ``"reward"``, or ``"constraint 1"``, ``"constraint 2"``, ...; with
            the evidence of all outputs jointly, ``"reward and constraints"``.
        num_kept: The number of queries that were kept, which are the last ones of the segment, from
            ``change_round`` on.
    """

    after_round: int
    num_dropped: int
    num_uniform: int
    reason: str
    statistic: float = math.nan
    threshold: float = math.nan
    half_size: int | None = None
    change_round: int | None = None
    quantity: str | None = None
    num_kept: int = 0

    @property
    def num_before(self) -> int:
        """The number of rounds before the first one that counts after the reset."""
        return self.after_round - self.num_kept
