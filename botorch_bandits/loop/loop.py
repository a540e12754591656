"""The loop itself; see :class:`BanditLoop`.

A suggestion is a pure function of settings, history and seed. The loop keeps a history and
derives everything else from it, so a loop that is rebuilt from the same history suggests the
same point, to the last bit on the same platform.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    BanditAcquisition,
    RandomSearch,
)
from botorch_bandits.acquisition.arms_player import build_arms_player
from botorch_bandits.checks import DTYPE, check_integer, check_number, check_vector
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.feedback import Censored, CensoredView, Feedback
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop.acquisition_source import (
    AcquisitionFactory,
    AcquisitionSource,
    ModelFactory,
)
from botorch_bandits.loop.arguments import check_acquisition, check_feedback, check_loop_model
from botorch_bandits.loop.arms_stream import ArmsStream
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.random_streams import (
    RandomBlocks,
    derive_seed,
    generator,
)


class BanditLoop:
    """Sequential decisions under uncertainty: :meth:`ask`, evaluate, :meth:`tell`, repeat.

    The reward is maximised. Any number of queries may be asked before an outcome is told, and
    outcomes may be told in any order; queries without an outcome are passed to the acquisition
    function as pending points.

    Args:
        domain: Where points are chosen: :class:`~botorch_bandits.Box` or
            :class:`~botorch_bandits.Arms`.
        model: A recipe such as ``BanditGP.with_kernel(...)``, or any callable that takes
            arrived inputs ``n x d`` and rewards ``n x 1`` and returns a BoTorch model (called
            once per change of the data, never with ``n = 0``). None for :class:`RandomSearch`.
        acquisition: A recipe such as ``ImprovedUpperConfidenceBound.with_options(...)``,
            ``RandomSearch()``, or any callable that takes a model and pending points (``n x d``
            or None) and returns a BoTorch acquisition function.
        horizon: The number of rounds, if it is known. Asking for more is an error.
        feedback: What is made of queries without an outcome: ``Hallucinated()`` (the default),
            ``Ignored()`` or ``Censored(...)``. With censored feedback and ``BanditGP`` the prior
            mean is the minimum.
        context_dim: The dimension of the contexts; see :meth:`ask`. The model's inputs are then
            ``(context, point)``, and its kernel is over both.
        num_initial: Rounds at the start that choose uniformly at random.
        seed: Seeds everything that is drawn.
        clock: Returns the time in seconds; passed in so that tests and replays are exact.
        history: Continue from this history; it is used, not copied.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If a setting is infeasible on this domain.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Box, BanditGP, ImprovedUpperConfidenceBound
        >>> loop = BanditLoop(
        ...     domain=Box([[0.0], [1.0]]),
        ...     model=BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.2),
        ...     acquisition=ImprovedUpperConfidenceBound.with_options(
        ...         rkhs_bound=2.0, noise_bound=0.1, any_lambda=True
        ...     ),
        ...     seed=0,
        ... )
        >>> for _ in range(3):
        ...     query = loop.ask()
        ...     outcome = loop.tell(query.id, reward=-float((query.x - 0.3) ** 2))
        >>> loop.history
        History(3 queries, 3 arrived)
    """

    def __init__(
        self,
        domain: Domain,
        model: BanditGPRecipe | ModelFactory | None,
        acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory,
        *,
        horizon: int | None = None,
        feedback: Feedback | None = None,
        num_initial: int = 0,
        context_dim: int = 0,
        seed: int = 0,
        clock: Callable[[], float] = time.time,
        history: History | None = None,
    ) -> None:
        """See the class."""
        if not isinstance(domain, Domain):
            raise TypeError(f"domain must be a Box or Arms, got {type(domain).__name__}.")
        self.domain = domain
        self.acquisition = check_acquisition(acquisition, domain)
        self.model = check_loop_model(model, needed=not isinstance(acquisition, RandomSearch))
        self.horizon = None if horizon is None else check_integer("horizon", horizon, minimum=1)
        self.num_initial = check_integer("num_initial", num_initial, minimum=0)
        self.seed = check_integer("seed", seed, minimum=0)
        self._clock = clock
        self.context_dim = check_integer("context_dim", context_dim, minimum=0)
        self.history = History(domain.dim, self.context_dim) if history is None else history
        if self.history.dim != domain.dim or self.history.context_dim != self.context_dim:
            raise ValueError(
                f"history is for {self.history.dim} dimensions and {self.history.context_dim} "
                f"context dimensions, the domain has {domain.dim} and the loop {self.context_dim}."
            )
        self.feedback = check_feedback(feedback, self.acquisition, self.domain)
        if isinstance(self.feedback, Censored) and isinstance(self.model, BanditGPRecipe):
            self.model = replace(self.model, prior_mean=float(self.feedback.minimum))
        self._num_given = self.history.num_queries
        for query in self.history.queries:
            domain.check_point(f"x of query {query.id} in history", query.x)
        self._source = AcquisitionSource(
            self.model, self.acquisition, self.history, self.feedback, self.seed, self._collapses
        )
        self._stream = self._build_stream()
        self._uniform = RandomBlocks([self.seed], "sample", (), "uniform")

    def ask(self, context: Any = None) -> Query:
        """Choose the next point, record the query and return it.

        Args:
            context: ``context_dim`` numbers that are known before the choice; only the point is
                chosen. None without contexts.

        Returns:
            A :class:`~botorch_bandits.Query`; evaluate the reward at ``query.x`` and tell it
            with ``query.id``.

        Raises:
            RuntimeError: If ``horizon`` rounds were asked already.
            TypeError: If the context is a tensor of another dtype than float64.
            ValueError: If the context is missing, not wanted, of the wrong length or not finite.
                Nothing is recorded then.
        """
        known_context = self._check_context(context)
        round_number = self.history.num_queries + 1
        if self.horizon is not None and round_number > self.horizon:
            raise RuntimeError(
                f"horizon={self.horizon} rounds were asked already. Build a loop with a larger "
                "horizon and history=loop.history to go on."
            )
        now = self._clock()
        diagnostics: dict[str, float] = {}
        if round_number <= self.num_initial:
            origin, x = "initial", self._sample(round_number)
        elif isinstance(self.acquisition, RandomSearch):
            origin, x = "random", self._sample(round_number)
        elif self._source.has_no_data():
            # a user's model cannot be built without data
            origin, x = "initial", self._sample(round_number)
        elif self._stream is not None:
            origin = "acquisition"
            x, diagnostics = self._stream.choose(round_number, now)
        else:
            origin = "acquisition"
            domain = self._domain_in(known_context)
            acquisition = self._source.build(round_number, domain, now)
            whole, value = domain.maximize(
                acquisition, seed=derive_seed(self.seed, round_number, "maximize")
            )
            if isinstance(acquisition, BanditAcquisition):
                diagnostics = acquisition.describe(whole)
            else:
                diagnostics = {"acquisition_value": value}
            x = whole[self.context_dim :]
        return self.history.add_query(
            x, origin, now, context=known_context, diagnostics=diagnostics
        )

    def tell(self, query_id: int, reward: Any) -> Outcome:
        """Record the reward of a query.

        Args:
            query_id: The id of a query that :meth:`ask` returned.
            reward: One finite number; float32 is refused.

        Raises:
            KeyError: If the id was never asked.
            TypeError: If the reward is not one number in double precision.
            ValueError: If the reward is NaN or infinite, or the query has one already. Nothing
                is recorded then. Likewise if it is below the minimum of censored feedback.
        """
        now = self._clock()
        if isinstance(self.feedback, Censored):
            query = self.history.query(query_id)
            if self.history.outcome(query_id) is None:
                self.feedback.check_outcome(
                    query, check_number("reward", reward), self.history.num_queries, now
                )
        return self.history.add_outcome(query_id, reward, now)

    def feedback_view(self) -> CensoredView:
        """Return what censored feedback makes of the queries now: pending, lost, late.

        Raises:
            RuntimeError: If feedback is not censored.
        """
        if not isinstance(self.feedback, Censored):
            raise RuntimeError("the loop has no censored feedback; pass feedback=Censored(...).")
        return self.feedback.view(self.history, self.history.num_queries + 1, self._clock())

    def best(self) -> tuple[Query, Outcome] | None:
        """Return the query with the largest observed reward and its outcome, if any."""
        return self.history.best()

    def guarantee(self) -> Guarantee:
        """Return which theorem covers the loop as set up, its constants and current bound.

        The regret bound is ``sum_t 2 w_t sigma_{t-1}(x_t)`` over the rounds so far: it holds
        whenever the confidence bound holds in every round and each round was played by the
        optimistic rule with every outcome at hand.
        """
        if isinstance(self.acquisition, RandomSearch):
            return Guarantee(method="random search", gaps=("it does not look at outcomes",))
        if self._source.has_no_data():
            return Guarantee(
                method="a user's model", gaps=("without data the model cannot be built",)
            )
        contexts = [query.context for query in self.history.queries[-1:]]
        latest = torch.zeros(self.context_dim, dtype=DTYPE) if self.context_dim else None
        domain = self._domain_in(contexts[0] if contexts else latest)
        next_round = self.history.num_queries + 1
        acquisition = self._source.build(next_round, domain, self._clock())
        if not isinstance(acquisition, BanditAcquisition):
            return Guarantee(
                method=type(acquisition).__name__, gaps=("no theorem is stated for it",)
            )
        guarantee = acquisition.guarantee()
        refuted = [q.round_number for q in self.history.queries if q.diagnostics.get("is_refuted")]
        if refuted:
            guarantee = guarantee.with_gaps(
                f"the data refuted the assumptions at this level in round {refuted[0]}"
            )
        if guarantee.holds and acquisition.is_optimistic:
            guarantee = replace(
                guarantee,
                regret_bound=self._regret_bound(),
                assumptions=(*guarantee.assumptions, *self._assumptions()),
            )
        return guarantee

    def current_model(self) -> Model:
        """Return the model of everything that arrived; it is shared, so do not change it.

        With censored feedback it is the model of what arrived in time and of pseudo-values.

        Raises:
            RuntimeError: If the loop has no model, or a user's model lacks data.
        """
        if self.model is None:
            raise RuntimeError("random search has no model.")
        if self._source.has_no_data():
            raise RuntimeError("no outcome has arrived, so the model cannot be built; tell one.")
        return self._source.model(self.history.num_queries + 1, self._clock())

    @property
    def _collapses(self) -> bool:
        """Whether the model may have one row for all observations of an arm."""
        is_censored = isinstance(self.feedback, Censored)  # pseudo-values are replaced row by row
        return isinstance(self.domain, Arms) and self.context_dim == 0 and not is_censored

    def _build_stream(self) -> ArmsStream | None:
        if not (
            isinstance(self.domain, Arms)
            and self.context_dim == 0
            and isinstance(self.model, BanditGPRecipe)
            and isinstance(self.acquisition, AcquisitionRecipe)
        ):
            return None
        player = build_arms_player(self.model, self.acquisition, self.domain, self.seed)
        if player is None:
            return None
        return ArmsStream(player, self.domain, self.history, self.feedback)

    def _sample(self, round_number: int) -> Tensor:
        if isinstance(self.domain, Arms):
            # in blocks, as replicates on the same arms draw
            uniform = self._uniform.at(round_number)
            return self.domain.choices[int(uniform * self.domain.num_arms)]
        return self.domain.sample(1, generator(self.seed, round_number, "sample")).squeeze(0)

    def _check_context(self, context: Any) -> Tensor | None:
        if self.context_dim == 0:
            if context is not None:
                raise ValueError(
                    f"context is {context}, but the loop has context_dim=0. Build it with "
                    "context_dim= set to the number of context features."
                )
            return None
        if context is None:
            raise ValueError(
                f"context is missing: the loop has context_dim={self.context_dim}. Ask with "
                "ask(context=...)."
            )
        return check_vector("context", context, length=self.context_dim)

    def _domain_in(self, context: Tensor | None) -> Domain:
        return self.domain if context is None else self.domain.in_context(context)

    def _assumptions(self) -> list[str]:
        assumptions = []
        if isinstance(self.domain, Box):
            assumptions.append("the acquisition is maximised exactly (on a box it is numerically)")
        if self._num_given > 0:
            assumptions.append(f"the first {self._num_given} rounds were played by these settings")
        return assumptions

    def _regret_bound(self) -> float | None:
        total = 0.0
        for query in self.history.queries:
            outcome = self.history.outcome(query.id)
            known = query.diagnostics
            if (
                query.origin != "acquisition"
                or outcome is None
                or outcome.arrived_round != query.round_number
                or "width" not in known
            ):
                return None
            total += 2.0 * known["width"] * known["standard_deviation"]
        return total
