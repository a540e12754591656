"""A copy of a loop's history as a study of Optuna, for Optuna's dashboard and its figures.

Each query is a trial, with its parameters, its outcome and its times. The study is for viewing
only; Optuna's samplers are not meant to continue it.
"""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import torch

from botorch_bandits.checks import check_instance
from botorch_bandits.domains import Domain
from botorch_bandits.history import Failure, History, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.spaces import Integer

if TYPE_CHECKING:
    import optuna

__all__ = ["to_optuna"]

CONSTRAINTS = "constraints"
"""The name under which Optuna keeps a trial's constraint values; at most 0 is feasible, too."""


def to_optuna(
    loop: BanditLoop,
    *,
    study_name: str | None = None,
    storage: Any = None,
) -> optuna.Study:
    """Copy what was asked and told into a study of Optuna.

    Optuna's figures (``optuna.visualization``) and its dashboard can then show it. Queries are
    trials in the order in which they were asked, numbered from 0 like them:

    * a query that was told is complete, with its constraint values where Optuna keeps them;
    * a pending query is running;
    * a query that failed, or was retracted, has failed, with the reason and what had been told
      among its user attributes;
    * origin, context, round and diagnostics are user attributes, and so is a parameter's value
      that Optuna's distributions do not cover.

    The study is a copy: it does not contain outcomes that are told later, and a study cannot be
    copied to a name that already exists in its storage.

    Args:
        loop: The loop. A :class:`~botorch_bandits.Space` gives names, ranges, logarithms and
            categories; in other domains, parameters are ``x0``, ``x1``, ...
        study_name: The name of the study; Optuna makes one up if omitted.
        storage: The storage of the study, such as ``"sqlite:///run.db"``; in memory if omitted.

    Returns:
        The study; its direction is ``"maximize"``, or ``"minimize"`` if costs were told.

    Raises:
        ImportError: If Optuna is not installed.
        TypeError: If it is not a loop.
        ValueError: If the storage has a study of that name.

    Example:
        >>> from botorch_bandits import BanditLoop, Float, RandomSearch, Space
        >>> loop = BanditLoop(Space({"rate": Float(1e-3, 1.0, log=True)}), None, RandomSearch())
        >>> outcome = loop.tell(loop.ask().id, 0.75)
        >>> study = to_optuna(loop)
        >>> study.best_value, study.best_trial.distributions
        (0.75, {'rate': FloatDistribution(high=1.0, log=True, low=0.001, step=None)})
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError("to_optuna needs Optuna: pip install 'botorch_bandits[spaces]'.") from (
            error
        )
    check_instance("loop", loop, BanditLoop, "Pass a BanditLoop.")
    domain, history = loop.settings.domain, loop.history
    known = _distributions(optuna, history, domain)
    direction: Literal["maximize", "minimize"] = "maximize" if history.maximize else "minimize"
    try:
        study = optuna.create_study(storage=storage, study_name=study_name, direction=direction)
    except optuna.exceptions.DuplicatedStudyError:
        raise ValueError(
            f"study_name is {study_name!r}, and the storage has a study of that name. Pass another "
            f"name, or call optuna.delete_study(study_name={study_name!r}, storage=...) first: a "
            "copy is not continued."
        ) from None
    trials = [_trial(optuna, history, domain, known, query) for query in history.queries]
    with warnings.catch_warnings():
        # values of categories may not fit a database; they are plain values, so they do
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.add_trials(trials)
    return study


def _distributions(optuna: Any, history: History, domain: Domain) -> dict[str, Any]:
    """Return a distribution for each parameter, by name."""
    kinds = optuna.distributions
    if domain.names:
        return {name: _distribution(kinds, each) for name, each in domain.parameters.items()}
    bounds, X = domain.bounds, domain.choices
    if bounds is None:
        if X is None:
            X = torch.stack([each.x for each in history.queries] or [torch.zeros(history.dim)])
        bounds = torch.stack(X.aminmax(dim=0))
    return {
        f"x{i}": kinds.IntDistribution(int(low), int(high))
        if i in domain.integer_dims
        else kinds.FloatDistribution(low, high)
        for i, (low, high) in enumerate(bounds.T.tolist())
    }


def _distribution(kinds: Any, parameter: Any) -> Any:
    """Return Optuna's distribution for a parameter of a space."""
    if parameter.categories is not None:
        return kinds.CategoricalDistribution(list(parameter.categories))
    kind = kinds.IntDistribution if isinstance(parameter, Integer) else kinds.FloatDistribution
    return kind(parameter.low, parameter.high, log=parameter.log)


def _trial(
    optuna: Any, history: History, domain: Domain, known: dict[str, Any], query: Query
) -> Any:
    """Return one query as a trial."""
    outcome = history.outcome(query.id)
    retraction = history.retraction(query.id)
    failure: Failure | None = history.failure(query.id) or retraction
    states = optuna.trial.TrialState
    state = states.RUNNING if failure is None else states.FAIL
    system: dict[str, Any] = {}
    attributes: dict[str, Any] = {"round_number": query.round_number, "origin": query.origin}
    attributes |= query.diagnostics
    if query.context is not None:
        attributes["context"] = query.context.tolist()
    if outcome is not None:
        state = states.COMPLETE
        system = {CONSTRAINTS: list(outcome.constraints)} if outcome.constraints else {}
    if failure is not None:
        attributes |= {"state": history.state(query.id), "reason": failure.reason}
    if retraction is not None:
        attributes["retracted_reward"] = retraction.outcome.reward
    values = {
        f"x{i}": round(value) if i in domain.integer_dims else value
        for i, value in enumerate(query.x.tolist())
    }
    trial = optuna.trial.create_trial(
        state=state,
        value=None if outcome is None else outcome.reward,
        params=query.parameters or values,
        distributions=known,
        user_attrs=attributes,
        system_attrs=system,
    )
    trial.datetime_start = _moment(query.asked_at)
    ended = outcome or failure
    trial.datetime_complete = None if ended is None else _moment(ended.arrived_at)
    return trial


def _moment(seconds: float) -> datetime:
    """Return a time as Optuna stores it: local, without a zone; a clock may have any origin."""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().replace(tzinfo=None)
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0.0)
