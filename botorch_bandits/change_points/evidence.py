r"""Change detection by evidence: every outcome counts, and the level needs no calibration.

Before each outcome, a model of the data since the last reset (the null) and fresh models of the
data since each of several later starts (the alternatives) predict it. With the one-step predictive
densities :math:`p_i` and :math:`q_{j,i}` of outcome ``i``,

.. math::
   E_j(n) = \prod_{i=j}^{n} \frac{q_{j,i}(y_i)}{p_i(y_i)}, \qquad
   M_n = \sum_{j=2}^{n} w_j E_j(n) + r_n, \qquad
   w_j = \frac{J}{(j - 2 + J) (j - 1 + J)}, \qquad r_n = \frac{J}{n - 1 + J} .

As long as nothing changes, each :math:`E_j`, and therefore also :math:`M_n`, is a product of
conditional densities divided by the density of the data. So :math:`M_n` is a martingale that starts
at 1, regardless of the rule that chose the inputs, and by Ville's inequality it ever reaches
:math:`1/\alpha` with probability at most :math:`\alpha`. The rest :math:`r_n` is the weight of the
starts to come.

**Few starts.** A start of age :math:`a = n - j + 1` is kept if :math:`2^e` divides ``j``, with
:math:`e = \max(0, \lfloor \log_2 (a / 2) \rfloor)`, which keeps two for every doubling of the age.
What a dropped start has won goes to the next later start that is kept. This bet is decided before
the next outcome, so the sum remains a martingale and nothing is lost.

**Several segments.** The clock starts over with each reset, and segment ``k`` has the level
:math:`6 \alpha / (\pi k)^2`.

**Late outcomes.** A start opens when its query is issued. An outcome changes only the starts up to
its own query, and is predicted from the outcomes that had arrived before it.

**A null that is a family.** With members :math:`h`, likelihoods :math:`L_h` and fixed weights, the
null predicts with their mixture :math:`\bar L`, and the statistic is

.. math:: \ln M_n + \ln \bar L(y_{1..n}) - \max_h \ln L_h(y_{1..n}),

which for each member is at most the logarithm of a martingale. The members of the robust form have
more noise and heavier tails than the model; the composite form has one member for each prior on a
list.

The robust form over a list combines both: each prior with each of these members. An alternative is
then the mixture over the list of fresh models, each with its best member before the outcome. This
is a product of densities that are fixed beforehand, whatever the members, so that :math:`e^{\ln M_n
+ \ln \bar L - \ln L_h}` is a martingale for every prior on the list as it stands (the member
without more noise), and the level is exact for each of them.

**A null that drifts** has the covariance :math:`k(x, x') (1 - \epsilon)^{|t - t'| / 2}` between
rounds, both in the null and in the alternatives. All of the above holds for draws from that
process, because it does not depend on how the predictions are made.

**A null that is a ball.** For a fixed function :math:`f` and R-sub-Gaussian noise, if the models
have the noise variance :math:`R^2`,

.. math:: \ln M_n + \ln p(y_{1..n}) - \max_{\|f\|_k \le B} \sum_i \ln N(y_i; f(x_i), R^2)

is at most the logarithm of a supermartingale: the predictions are mixtures of :math:`N(g, R^2)`
that are fixed beforehand, and the mean of :math:`\exp((g - f) (y_i - f) / R^2 - (g - f)^2 / (2
R^2))` is at most 1. Only outcomes since the reset count, so it does not matter which rows the null
has kept.

Source: Ville 1939 for the inequality; Shin, Ramdas and Rinaldo 2022 for such processes in change
detection. The weights, the choice of the starts that are kept, and the families are our own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.change_points.evidence_stream import (
    NEEDS_KERNEL,
    EvidenceStream,
    EvidenceTest,
    numbers_of,
)
from botorch_bandits.checks import (
    check_instance,
    check_integer,
    check_one_of,
    check_positive,
    check_probability,
    check_vector,
    store_checked,
)
from botorch_bandits.confidence.width_rules import learns_input_scale
from botorch_bandits.core.kernels import TimeDecayKernel, kernel_of_output
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.models.bandit_gp import BanditGPRecipe
from botorch_bandits.models.forgetting import BehindTime
from botorch_bandits.models.suffixes import (
    ArmsSuffixes,
    BallFit,
    RowsSuffixes,
    SuffixPosteriors,
    SuffixPrior,
)


@dataclass(frozen=True)
class EvidenceDetector:
    r"""Detects changes by the evidence of all outcomes, wherever the queries were.

    It needs one-step predictions of a model of the data since the last reset and of models that
    begin at later starts. :meth:`stream` takes predictions of any models; :meth:`on` computes those
    of Gaussian processes itself.

    Before any change in the first segment, if the reward function is a draw from the Gaussian
    process and the noise is Gaussian, the probability that an alarm is ever raised is at most the
    level :math:`6 \alpha / \pi^2`. This probability averages over the prior and is not claimed for
    each single function. Given the past, the inputs, contexts, delays and the order of arrival must
    carry no further information about the function or the noise. A later segment that continues
    with the rows since the estimated change is exact if the estimate is the true change, and
    approximate otherwise. A segment that keeps nothing is also approximate, because the dropped
    rows have already shown the new function. It is exact with ``spending="rounds"`` if its queries
    depend only on its own rows and the changes come at times that do not depend on the new
    function.

    With ``rkhs_bound`` (the ball form), nothing is averaged: in each segment, whichever rows the
    null began with, the level holds until there is a change in a function from which the outcomes
    come. It holds for every fixed function such that the norm of the function minus the prior mean
    is at most ``B``, and for R-sub-Gaussian noise.

    It cannot detect a change at points that are not queried. It treats steady drift as a sequence
    of changes, unless the null drifts as well (``drift_rate``). Changes of two standard deviations
    of the noise take seven to twenty outcomes on average, smaller changes take more.

    Args:
        alpha: The probability of a false alarm, for all segments together.
        robust: Whether the null may have up to 3.4 times the model's noise variance and up to 5% of
            outliers. The level at the model itself is the same; at noise of other scales and tails,
            the level is kept approximately.
        weights: Prior weights of a list of candidate priors, positive; they are scaled to sum to 1.
            The null is then that one of the priors is true (the composite form), and predictions
            are given for each.
        change_scale: ``J``, the number of rounds within which a change is expected.
        spending: How ``alpha`` is spent. ``"segments"``: :math:`6 \alpha / (\pi k)^2` in segment
            ``k``. ``"rounds"``: :math:`6 \alpha / (\pi s)^2` in the segment that begins with query
            ``s``, a union bound over all rounds at which a test might begin.
        keeps_all_starts: Whether every start is kept; the cost of an outcome then grows with their
            number.
        rkhs_bound: ``B``, a bound on the norm of each function in the space of its kernel. An
            outcome then costs one eigendecomposition of the distinct inputs since the reset.
        noise_bound: ``R`` of R-sub-Gaussian noise; the model's noise variance must be its square.
        num_skipped: The number of first outcomes that are not tested, because models or weights
            were chosen based on them. The models learn from them, and the level of the first
            segment is conditional on them.
        drift_rate: ``epsilon`` of a null that drifts: functions of rounds ``t`` and ``t'`` have the
            covariance ``k(x, x') (1 - epsilon)^(abs(t - t') / 2)``, where rounds are numbers of
            queries, and so do the functions of the alternatives. None for functions that do not
            drift.

    Raises:
        TypeError: If a number has the wrong type.
        ValueError: If a number is out of range or missing, or two forms are requested at once.

    Example:
        >>> detector = EvidenceDetector(alpha=0.05, robust=False)
        >>> stream = detector.stream()
        >>> outcomes = [0.1, -0.1, 0.2, 3.1, 2.9, 3.0]
        >>> for y in outcomes:  # the mean was 0; after a change it is N(0, 9)
        ...     query = stream.issue()
        ...     seen = [outcomes[start - 1 : query - 1] for start in stream.starts]
        ...     variances = [1 / (1 / 9 + len(rows) / 0.1) for rows in seen]
        ...     means = [v * sum(rows) / 0.1 for v, rows in zip(variances, seen)]
        ...     test = stream.observe(query, y, 0.0, 0.0, means, variances, noise=0.1)
        >>> test.detected, test.change
        (True, 4)
    """

    alpha: float = 0.05
    robust: bool = True
    weights: tuple[float, ...] | None = None
    change_scale: float = 100.0
    spending: Literal["segments", "rounds"] = "segments"
    keeps_all_starts: bool = False
    rkhs_bound: float | None = None
    noise_bound: float | None = None
    num_skipped: int = 0
    drift_rate: float | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        store_checked(
            self,
            alpha=check_probability("alpha", self.alpha),
            change_scale=check_positive("change_scale", self.change_scale),
            num_skipped=check_integer("num_skipped", self.num_skipped, minimum=0),
        )
        check_instance("robust", self.robust, bool, "Pass True or False.")
        check_one_of("spending", self.spending, ("segments", "rounds"))
        if self.weights is not None:
            weights = [check_positive("weights", weight) for weight in self.weights]
            if not weights:
                raise ValueError("weights is empty; give one positive number for each candidate.")
            total = math.fsum(weights)
            store_checked(self, weights=tuple(weight / total for weight in weights))
        if self.drift_rate is not None:
            rate = check_probability("drift_rate", self.drift_rate)
            store_checked(self, drift_rate=rate)
        self._check_ball()

    def _check_ball(self) -> None:
        bounds = {name: getattr(self, name) for name in ("rkhs_bound", "noise_bound")}
        missing = [bound is None for bound in bounds.values()]
        if any(missing):
            if not all(missing):
                raise ValueError(f"one of {bounds} is None. Pass both numbers, or neither.")
            return
        store_checked(self, **{name: check_positive(name, b) for name, b in bounds.items()})
        if self.drift_rate is not None:
            raise ValueError(
                f"rkhs_bound is {self.rkhs_bound!r} and drift_rate {self.drift_rate!r}, but the "
                "ball contains functions that do not drift. Leave one of the two out."
            )
        if self.robust or self.weights is not None:
            raise ValueError(
                f"rkhs_bound is {self.rkhs_bound!r}, which only the plain form supports. "
                "Pass robust=False and leave out weights=."
            )

    @property
    def num_candidates(self) -> int:
        """The number of priors that predict; 1 without a list of priors."""
        return 1 if self.weights is None else len(self.weights)

    def level(self, segment: int, first_query: int = 1) -> float:
        """Return the level of a segment.

        Args:
            segment: The number of the segment, from 1.
            first_query: The number of its first query, counted over all segments.
        """
        spent = segment if self.spending == "segments" else first_query
        return 6.0 * self.alpha / (math.pi * spent) ** 2

    def stream(self, num_outputs: int = 1) -> EvidenceStream:
        """Return an empty stream, which takes predictions of any models.

        Args:
            num_outputs: The number of outcomes of each query, which change together or not at all.
        """
        for name in ("rkhs_bound", "drift_rate"):
            if getattr(self, name) is not None:
                raise ValueError(NEEDS_KERNEL.format(name, getattr(self, name)))
        return EvidenceStream(self, num_outputs)

    def on(
        self,
        domain: Domain,
        models: BanditGPRecipe | Sequence[BanditGPRecipe],
        num_outputs: int = 1,
        context_dim: int = 0,
    ) -> EvidenceEngine:
        """Prepare the detector for Gaussian processes on a domain.

        Args:
            domain: The domain of the queries.
            models: The prior, with fixed hyperparameters; with ``weights``, a list with one prior
                for each. A kernel with a batch shape has an entry for each output; otherwise,
                outputs share it.
            num_outputs: The number of outcomes of each query, which are independent of each other.
            context_dim: The dimension of the contexts; the kernels are on ``[context, point]``.
        """
        return EvidenceEngine(self, domain, models, num_outputs, context_dim)


class EvidenceEngine:
    """Gaussian processes that predict for a detector on one domain; created by its method ``on``.

    Args:
        detector: The settings.
        domain: The domain of the queries.
        models: The prior, or one for each candidate.
        num_outputs: ``m``, the number of outcomes of each query.
        context_dim: The dimension of the contexts.

    Raises:
        TypeError: If a model is not a recipe of a :class:`~botorch_bandits.BanditGP`.
        ValueError: If hyperparameters are learned, there is not one model for each candidate, or
            the noise variance is not the square of the detector's ``noise_bound``.
    """

    def __init__(
        self,
        detector: EvidenceDetector,
        domain: Domain,
        models: BanditGPRecipe | Sequence[BanditGPRecipe],
        num_outputs: int = 1,
        context_dim: int = 0,
    ) -> None:
        """See the class."""
        self.detector, self.domain = detector, _on_host(domain)  # all arithmetic is on the host
        self.num_outputs = check_integer("num_outputs", num_outputs, minimum=1)
        self.context_dim = check_integer("context_dim", context_dim, minimum=0)
        self.models = _check_models(detector, models)
        self.drifts = detector.drift_rate is not None
        # the outputs of the first candidate, then of the second one, ...
        self.priors = [prior for model in self.models for prior in self._priors_of(model)]

    def stream(self) -> EvidenceModelStream:
        """Return an empty stream, to which queries and outcomes are added one by one."""
        return EvidenceModelStream(self)

    def balls(self) -> list[BallFit]:
        """Return an empty fit for each output; none without an ``rkhs_bound``."""
        bound = self.detector.rkhs_bound
        return [] if bound is None else [BallFit(prior, bound) for prior in self.priors]

    def posteriors(self) -> SuffixPosteriors:
        """Return the posteriors without rows."""
        if isinstance(self.domain, Arms) and self.context_dim == 0 and not self.drifts:
            return ArmsSuffixes(self.priors, self.domain.choices)
        return RowsSuffixes(self.priors)

    def locate(self, x: Any, context: Any = None) -> Tensor:
        """Return a query in the form that the posteriors need.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.
        """
        point = self.domain.check_point("x", x)
        if self.context_dim:
            if context is None:
                raise ValueError(
                    f"context is missing; each query needs a context of {self.context_dim} numbers."
                )
            known = check_vector("context", context, length=self.context_dim).to(point.device)
            return torch.cat([known, point])
        if context is not None:
            raise ValueError(
                f"context is {context!r}, but the detector was prepared without contexts. Pass "
                "context_dim= where it is created."
            )
        if isinstance(self.domain, Arms) and not self.drifts:
            return self.domain.index_of(point.unsqueeze(0))[0]
        return point

    def at_round(self, located: Tensor, query: int) -> Tensor:
        """Return a located query with its number in front, if the null drifts.

        Args:
            located: From :meth:`locate`.
            query: The number of the query, from 1.
        """
        if not self.drifts:
            return located
        return torch.cat([located.new_tensor([float(query)]), located])

    def _priors_of(self, model: BanditGPRecipe) -> list[SuffixPrior]:
        shape = model.kernel.batch_shape
        if len(shape) > 0 and tuple(shape) != (self.num_outputs,):
            raise ValueError(
                f"the kernel has the batch shape {tuple(shape)}, but a query has "
                f"{self.num_outputs} outcomes; the shape must be ({self.num_outputs},) or empty."
            )
        kernels = [model.kernel]
        if len(shape):
            kernels = [kernel_of_output(model.kernel, output) for output in range(shape[0])]
        transform = model.input_transform
        if transform is not None:
            transform.eval()
        rate = self.detector.drift_rate
        if rate is not None:
            kernels = [TimeDecayKernel(kernel, rate) for kernel in kernels]
            transform = None if transform is None else BehindTime(transform).eval()
        if not len(shape):  # outputs with one kernel share its matrices
            kernels *= self.num_outputs
        return [SuffixPrior(kernel, model.noise, model.prior_mean, transform) for kernel in kernels]


def _on_host(domain: Domain) -> Domain:
    """Return the domain with its tensors on the CPU; the domain itself if they already are."""
    moved = {
        name: value.cpu()
        for name, value in vars(domain).items()
        if isinstance(value, Tensor) and value.device.type != "cpu"
    }
    if not moved:
        return domain
    result = copy.copy(domain)
    vars(result).update(moved)
    return result


class EvidenceModelStream:
    """Queries and outcomes of one stream, with the predictions of Gaussian processes.

    Args:
        engine: The priors on a domain.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Arms, BanditGP
        >>> arms = Arms(torch.linspace(0, 2, 5, dtype=torch.float64).unsqueeze(-1))
        >>> prior = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=1.0)
        >>> stream = EvidenceDetector(robust=False).on(arms, prior).stream()
        >>> outcomes = [(0.0, 0.3), (1.0, 0.8), (2.0, -0.2), (1.0, 0.85), (1.0, 0.9), (1.0, 0.1)]
        >>> tests = [stream.observe([x], y) for x, y in outcomes]
        >>> tests[-1].detected, tests[-1].change
        (True, 6)
    """

    def __init__(self, engine: EvidenceEngine) -> None:
        """See the class."""
        self._engine = engine
        self._bets = EvidenceStream(engine.detector, engine.num_outputs)
        self._posteriors, self._balls = engine.posteriors(), engine.balls()
        self._pending: dict[int, Tensor] = {}
        shape = (engine.detector.num_candidates, engine.num_outputs)
        self._noise = np.array([prior.noise for prior in engine.priors]).reshape(shape)

    @property
    def bets(self) -> EvidenceStream:
        """The statistic's bookkeeping."""
        return self._bets

    def issue(self, x: Any, context: Any = None) -> int:
        """Record that a query is issued.

        Args:
            x: A point of the domain.
            context: Its context, if there are contexts.

        Returns:
            Its number, from 1 over all segments.
        """
        located = self._engine.locate(x, context)
        before = self._bets.starts
        query = self._bets.issue()
        kept = set(self._bets.starts)
        for position in reversed(range(len(before))):
            if before[position] not in kept:
                self._posteriors.drop(position + 1)  # the null comes first
        if len(self._bets.starts) == self._posteriors.num_suffixes:
            self._posteriors.open()
        self._pending[query] = self._engine.at_round(located, query)
        return query

    def tell(self, query: int, y: float | Sequence[float] | Tensor) -> EvidenceTest | None:
        """Add the outcome of a query.

        Args:
            query: Its number.
            y: One number for each output.

        Returns:
            None if the query was issued before what the last reset has kept; in this case, nothing
            changes.

        Raises:
            ValueError: If the query is not pending or a number is not finite.
        """
        if query not in self._pending:
            raise ValueError(
                f"query is {query}, which is not pending: it was never issued, or its outcome "
                "has already been told."
            )
        outcome = numbers_of("y", y, (self._engine.num_outputs,))
        located = self._pending.pop(query)
        if not self._bets.counts(query):
            return None
        num_moved = len(self._bets.starts_moved_by(query))
        shape = (num_moved + 1, self._engine.detector.num_candidates, self._engine.num_outputs)
        every = np.tile(outcome, self._engine.detector.num_candidates)
        means, variances = self._posteriors.observe(located, every, num_moved + 1)
        means, variances = means.reshape(shape), variances.reshape(shape)
        ball_fits = None
        if self._balls and not self._bets.is_skipping:
            domain = self._engine.domain  # arms without contexts are located by their numbers
            if isinstance(domain, Arms) and located.dim() == 0:
                located = domain.choices[located]
            for ball, value in zip(self._balls, outcome, strict=True):
                ball.add(located, float(value))
            ball_fits = np.array([ball.log_likelihood() for ball in self._balls])
        return self._bets._take_in(
            outcome, (means[0], variances[0]), (means[1:], variances[1:]), self._noise, ball_fits
        )

    def forget(self, query: int) -> None:
        """Record that the outcome of a query will never come.

        Args:
            query: Its number.
        """
        self._pending.pop(query, None)

    def observe(
        self, x: Any, y: float | Sequence[float] | Tensor, context: Any = None
    ) -> EvidenceTest:
        """Issue a query and add its outcome at once.

        Args:
            x: A point of the domain.
            y: One number for each output.
            context: Its context, if there are contexts.
        """
        numbers_of("y", y, (self._engine.num_outputs,))
        test = self.tell(self.issue(x, context), y)
        assert test is not None
        return test

    def reset(self, keep_from: int | None = None) -> None:
        """Begin a new segment at the next query.

        Args:
            keep_from: The start whose data are kept for the next null. None drops everything.
        """
        position = 0 if keep_from is None else self._bets.starts.index(keep_from) + 1
        self._bets.reset(keep_from)
        self._balls = self._engine.balls()
        if keep_from is None:
            self._posteriors = self._engine.posteriors()
        else:
            self._posteriors.keep_only(position)


def _check_models(
    detector: EvidenceDetector, models: BanditGPRecipe | Sequence[BanditGPRecipe]
) -> tuple[BanditGPRecipe, ...]:
    listed = (models,) if isinstance(models, BanditGPRecipe) else models
    check_instance(
        "models", listed, (tuple, list), "Pass BanditGP.with_kernel(...), or a list of such."
    )
    for i, model in enumerate(listed):
        check_instance(
            f"models[{i}]", model, BanditGPRecipe, "Pass BanditGP.with_kernel(kernel, noise)."
        )
        if model.refit_every is not None or learns_input_scale(model.input_transform):
            raise ValueError(
                f"models[{i}] learns from the outcomes that are tested, so its predictions of them "
                "were not made beforehand. Leave out refit_every= and give input transforms their "
                "bounds, or pass a list of fixed candidates."
            )
    if len(listed) != detector.num_candidates:
        raise ValueError(
            f"models has {len(listed)} entries, but the detector has {detector.num_candidates} "
            "candidate(s); give one recipe for each entry of weights=, or one without weights."
        )
    bound = detector.noise_bound
    if bound is not None and not math.isclose(listed[0].noise, bound**2, rel_tol=1e-9):
        raise ValueError(
            f"noise_bound is {bound!r}, but the model has the noise variance {listed[0].noise!r}, "
            f"which must be its square for the level to hold. Pass noise={bound**2!r} to the model."
        )
    return tuple(listed)
