"""A search for hyperparameters in scikit-learn's interface: :class:`BanditSearchCV`.

It replaces scikit-learn's ``RandomizedSearchCV``: a loop chooses each candidate based on the scores
of the earlier ones. This module needs scikit-learn, the extra ``tune``.
"""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.checks import check_integer, is_list, is_listed, is_number, shown_value
from botorch_bandits.history import History, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.running import MOST_FAILURES_IN_A_ROW
from botorch_bandits.spaces import Categorical, Fixed, Float, Integer, Parameter, Space

try:
    import joblib
    from scipy.stats import rv_continuous, rv_discrete
    from sklearn.base import is_classifier
    from sklearn.model_selection import check_cv
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.utils import check_random_state
except ImportError as missing:
    raise ImportError(
        "botorch_bandits.model_selection needs scikit-learn: pip install 'botorch_bandits[tune]'."
    ) from missing

__all__ = ["BanditSearchCV"]

ENDING = ".scores"
"""The suffix of the file with the scores of each fold, which a storage does not hold."""


class BanditSearchCV(BaseSearchCV):
    """Cross-validated search that chooses hyperparameters based on the earlier scores.

    It is used like scikit-learn's ``RandomizedSearchCV``, and has the same attributes:
    ``cv_results_``, ``best_estimator_``, ``best_params_``, ``best_score_``, ``best_index_``,
    ``n_splits_``, ``scorer_``, ``refit_time_`` and ``multimetric_``. As in scikit-learn,
    ``best_params_`` has the largest mean score, part of which is luck on these folds; there is no
    recommendation of the model and no guarantee. The folds are the same for all candidates. A
    candidate whose mean score is not finite, because a fit or the scorer failed in at least one
    fold and ``error_score`` is NaN, counts as failed: the search avoids it and does not try it
    again. The search ends with the error if all fits fail for ten candidates in a row, and if no
    candidate has a finite score.

    Args:
        estimator: The estimator to tune; it is cloned.
        param_distributions: A :class:`~botorch_bandits.Space`, or by name, such as ``"svc__C"`` in
            a pipeline, :class:`~botorch_bandits.Float`, :class:`~botorch_bandits.Integer`,
            :class:`~botorch_bandits.Categorical` and :class:`~botorch_bandits.Fixed` parameters,
            or what ``RandomizedSearchCV`` accepts: lists of values, and distributions of scipy. The
            numbers in a list are searched in ascending order, other values without an order. A
            continuous distribution is searched over its quantiles, from 0.001 to 0.999, so that
            uniform draws at the start are draws from it.
        n_iter: The number of candidates to evaluate, including those of an earlier start.
        scoring: As in ``RandomizedSearchCV``. With several metrics, the one that ``refit`` names is
            maximized.
        n_jobs: The number of folds, over all candidates of a batch, that are fitted at once.
        refit: Whether the best candidate is fitted to all data; with several metrics, the name of
            the one that counts; or a function from ``cv_results_`` to the best index.
        cv: As in ``RandomizedSearchCV``.
        verbose: As in ``RandomizedSearchCV``.
        pre_dispatch: As in ``RandomizedSearchCV``.
        random_state: The seed of everything that is drawn at random.
        error_score: The score of a fold whose fit or scorer fails; ``"raise"`` raises its error.
        return_train_score: Whether ``cv_results_`` has scores on the training folds.
        num_initial: The number of candidates that are drawn uniformly at first; see
            :class:`~botorch_bandits.BanditLoop`.
        batch_size: The number of candidates that are chosen before the first of them is evaluated.
            Larger batches keep more workers busy; smaller ones use more information for each
            choice.
        model: The loop's model; if omitted, one that learns everything from the scores.
        acquisition: The loop's acquisition: ``"best"``, which is the default, ``"earned"``, or a
            recipe; see :class:`~botorch_bandits.BanditLoop`.
        storage: The path of an SQLite file in which candidates and scores are recorded, by one
            process at a time. If the file exists, the search continues from it without evaluating
            recorded candidates again. Scores are recorded batch by batch: if the process is killed,
            all fits of the batch that was being evaluated are repeated, so a smaller ``batch_size``
            loses less. (One candidate is evaluated again if nothing new gets a score, because
            scikit-learn learns the kinds of scores from an evaluation.) The scores of the folds are
            in a second file, whose name ends in ``.scores``. ``random_state`` must then be an
            integer, and data, estimator, folds and scoring must be unchanged.

    Attributes:
        history_: Queries and scores, as :class:`~botorch_bandits.History`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or the storage belongs to another search.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.svm import SVC
        >>> from botorch_bandits import Categorical, Float
        >>> space = {"C": Float(1e-2, 1e2, log=True), "kernel": Categorical(["rbf", "linear"])}
        >>> search = BanditSearchCV(SVC(), space, n_iter=6, cv=3, random_state=0)
        >>> bool(search.fit(*load_iris(return_X_y=True)).best_score_ > 0.95)
        True
    """

    _parameter_constraints: Mapping[str, Sequence[Any]] = {
        **BaseSearchCV._parameter_constraints,
        "param_distributions": [Mapping, Space, list],
        "n_iter": [numbers.Integral],
        "random_state": ["random_state"],
        "num_initial": [numbers.Integral, None],
        "batch_size": [numbers.Integral],
        "model": "no_validation",  # the loop checks it
        "acquisition": "no_validation",
        "storage": [str, Path, None],
    }

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        estimator: Any,
        param_distributions: Space | Mapping[str, Any],
        *,
        n_iter: int = 30,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool | str | Callable[[Mapping[str, Any]], int] = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        random_state: Any = None,
        error_score: float | str = np.nan,
        return_train_score: bool = False,
        num_initial: int | None = None,
        batch_size: int = 1,
        model: BanditGPRecipe | Callable[..., Any] | None = None,
        acquisition: AcquisitionRecipe | RandomSearch | Callable[..., Any] | str | None = None,
        storage: str | Path | None = None,
    ) -> None:
        """See the class."""
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.random_state = random_state
        self.num_initial = num_initial
        self.batch_size = batch_size
        self.model = model
        self.acquisition = acquisition
        self.storage = storage
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Choose and evaluate candidates, then fit the best one to all data.

        Args:
            X: ``num_rows x num_features``, or anything else that the estimator accepts.
            y: Targets, if the estimator needs them.
            **params: Passed on to the estimator's ``fit``, the scorer and the splitter.

        Returns:
            The search itself.

        Raises:
            ValueError: If an argument is out of range, the storage belongs to another search, or
                no candidate has a finite score.
        """
        self._scores = _Scores(self, X, y, params)
        try:
            super().fit(X, y, **params)  # an error of the fit to all data says more than NaN
        finally:
            del self._scores
        self._check_told()
        return self

    def _run_search(self, evaluate_candidates: Callable[..., dict[str, Any]]) -> None:
        """Ask, evaluate and tell until ``n_iter`` candidates are on record."""
        check_integer("n_iter", self.n_iter, minimum=1)
        check_integer("batch_size", self.batch_size, minimum=1)
        scores, folds = self._scores, _Folds(self)
        with self._loop() as loop:
            history = loop.history
            self.history_ = history
            scores.keep(history)
            for query in history.pending():
                if query.id in scores.folds:  # the process ended before it was told
                    self._tell(loop, query)
            waiting = list(history.pending())
            error: ValueError | None = None  # the last one
            while True:
                room = min(self.batch_size - len(waiting), self.n_iter - history.num_queries)
                waiting += [loop.ask() for _ in range(room)]
                if not waiting:
                    break
                batch, waiting = waiting[: self.batch_size], waiting[self.batch_size :]
                failure = self._evaluate(evaluate_candidates, folds, batch)
                error = failure or error
                for query in batch:
                    self._tell(loop, query, failure)
                if history.avoided_in_a_row() >= MOST_FAILURES_IN_A_ROW:
                    if error is not None:
                        raise error
                    self._check_told()
            if error is not None and not history.num_arrived:
                raise error
            if not scores.evaluated:  # scikit-learn learns the kinds of scores from an evaluation
                best = loop.history.best()
                query = best[0] if best is not None else history.queries[0]
                scores.evaluated.append(query.id)
                evaluate_candidates([self._values_of(query)], cv=folds)
            scores.results.update(self._table())  # with the last candidates if they have failed

    def _loop(self) -> BanditLoop:
        """Return the loop, which continues what its storage has."""
        space = self.param_distributions
        if isinstance(space, list):
            raise ValueError(
                f"param_distributions is a list of {len(space)}, but a search has one space. Run a "
                "search for each dict and compare best_score_, or join them in one dict."
            )
        if not isinstance(space, Space):
            space = Space({name: _parameter_of(name, known) for name, known in space.items()})
        if isinstance(self.random_state, numbers.Integral):
            seed = int(self.random_state)
        elif self.storage is not None:
            raise ValueError(
                f"random_state is {self.random_state!r}, but a search with a storage keeps the "
                "seed with which it began. Pass an integer."
            )
        else:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings: dict[str, Any] = {"num_initial": self.num_initial, "seed": seed}
        if self.storage is not None:
            settings["storage"] = self.storage
        return BanditLoop(space, self.model, self.acquisition, **settings)

    def _evaluate(
        self, evaluate_candidates: Callable[..., Any], folds: _Folds, batch: Sequence[Query]
    ) -> ValueError | None:
        """Evaluate candidates and keep their scores; return the error if all fits failed."""
        scores, ids = self._scores, [query.id for query in batch]
        scores.evaluated += ids
        error: ValueError | None = None
        try:
            evaluate_candidates([self._values_of(query) for query in batch], cv=folds)
        except ValueError as failure:
            if self.error_score == "raise" or "fits failed" not in str(failure):
                raise
            del scores.evaluated[-len(batch) :]
            scores.folds |= dict.fromkeys(ids)
            error = failure
        scores.write()
        return error

    def _tell(self, loop: BanditLoop, query: Query, failure: Exception | None = None) -> None:
        """Tell the loop the score of a candidate; a candidate without a score has failed.

        Args:
            loop: The loop.
            query: The query of the candidate.
            failure: scikit-learn's error if all fits of its batch failed.
        """
        folds = self._scores.folds[query.id]
        score: Any = self.error_score
        if folds is not None:
            values = [fold["test_scores"] for fold in folds]
            if isinstance(values[0], Mapping):
                if not isinstance(self.refit, str):
                    raise ValueError(
                        f"refit is {self.refit!r}, but there are several metrics, of which one is "
                        "maximized. Pass its name as refit=."
                    )
                values = [value[self.refit] for value in values]
            score = np.mean(values)
        if isinstance(score, str) or not math.isfinite(score):
            # scikit-learn's text ends with the last line of the fit's own traceback
            last = "" if failure is None else str(failure).strip().rpartition("\n")[2]
            loop.fail(query.id, f"no finite score: {last}".rstrip(": "), avoid=True)
        else:
            loop.tell(query.id, float(score))

    def _values_of(self, query: Query) -> dict[str, Any]:
        """Return the values of a candidate, with the objects of lists in place of their texts."""
        values, known = dict(query.parameters or {}), self.param_distributions
        for name, given in known.items() if isinstance(known, Mapping) else ():
            if is_listed(given):
                values[name] = {_plain(each): each for each in given}[values[name]]
        return values

    def _check_told(self) -> None:
        """Raise an error if no candidate has a score."""
        history = self.history_
        if history.num_arrived:
            return
        last = history.queries[-1]
        raise ValueError(
            f"none of {history.num_queries} candidates has a finite score; the last one was "
            f"{last.parameters}. A scorer returned no finite number, or a fit failed in each of "
            "them. Call the scorer on one fit; error_score='raise' shows the error of a fit, and a "
            "number as error_score= counts for the folds whose fits or scores fail."
        )

    def _format_results(
        self, candidate_params: Any, n_splits: int, out: Any, more_results: Any = None
    ) -> dict[str, Any]:
        """Return ``cv_results_`` with the candidates of an earlier start and those that failed."""
        scores = self._scores
        for k, query_id in enumerate(scores.evaluated):
            scores.folds.setdefault(query_id, out[k * n_splits : (k + 1) * n_splits])
        scores.fold = out[0]
        scores.results = self._table()
        return scores.results

    def _table(self) -> dict[str, Any]:
        """Return ``cv_results_`` of all candidates in the order of asking."""
        known, fold = sorted(self._scores.folds.items()), self._scores.fold
        failed = {**fold, "fit_time": math.nan, "score_time": math.nan}
        for name in {"test_scores", "train_scores"} & fold.keys():
            is_one = not isinstance(fold[name], Mapping)
            failed[name] = (
                self.error_score if is_one else dict.fromkeys(fold[name], self.error_score)
            )
        n_splits = self.n_splits_
        out = [each for _, folds in known for each in (folds or [failed] * n_splits)]
        points = [self._values_of(self.history_.query(query_id)) for query_id, _ in known]
        table: dict[str, Any] = super()._format_results(points, n_splits, out)
        return table


TAIL = 1e-3
"""The share of a distribution that is left out at an end of its range."""


@dataclass(frozen=True, repr=False)
class _Quantiles(Parameter):
    """A number whose coordinate is its quantile in a distribution.

    Attributes:
        distribution: A continuous distribution of scipy with its parameters.
    """

    distribution: Any

    @property
    def bounds(self) -> tuple[float, float]:
        return TAIL, 1.0 - TAIL

    def check(self, name: str, value: Any) -> float:
        low, high = map(self.decode, self.bounds)
        return Float(low, high).check(name, value)

    def encode(self, value: Any) -> float:
        return float(np.clip(self.distribution.cdf(value), *self.bounds))

    def decode(self, coordinate: float) -> float:
        return float(self.distribution.ppf(coordinate))

    def recorded_parts(self) -> dict[str, Any]:
        """Return what identifies the distribution in a storage."""
        known = self.distribution
        return {"name": known.dist.name, "args": known.args, "kwds": known.kwds}


def _parameter_of(name: str, given: Any) -> Parameter:
    """Return the parameter of a list of values or a distribution; a parameter is unchanged.

    Args:
        name: The name of the parameter, for error messages.
        given: What a user gave.

    Raises:
        TypeError: If it is something else, or a tuple of two numbers, which could be a range.
        ValueError: If a list is empty or has equal values.
    """
    if isinstance(given, Parameter):
        return given
    is_range = is_list(given, 2) and isinstance(given, tuple) and all(map(is_number, given))
    if is_listed(given) and not isinstance(given, Set) and not is_range:
        values = [_plain(each) for each in given]
        is_ordered = all(map(is_number, values))
        if len(values) == 1:
            return Fixed(values[0])
        return Categorical(sorted(values) if is_ordered else values, ordered=is_ordered)
    if isinstance(getattr(given, "dist", None), rv_discrete):
        ends = zip(given.support(), given.ppf([TAIL, 1.0 - TAIL]), strict=True)
        low, high = (int(end if math.isfinite(end) else tail) for end, tail in ends)
        return Integer(low, high)
    if isinstance(getattr(given, "dist", None), rv_continuous):
        return _Quantiles(given)
    raise TypeError(
        f"parameter {name!r} is {shown_value(given)}. Pass Float(low, high), Integer(low, high), "
        "Categorical(values), Fixed(value), a list of values or a distribution of scipy.stats."
    )


def _plain(value: Any) -> Any:
    """Return a value of a list as a plain value; the text of any other object."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float) else str(value)


class _Folds:
    """The folds of a search, drawn once, so that candidates are compared on the same folds."""

    def __init__(self, search: BanditSearchCV) -> None:
        self._search = search
        self._splits: list[Any] | None = None

    def split(self, X: Any, y: Any = None, **params: Any) -> Iterable[Any]:
        """Return the same folds in each call."""
        if self._splits is None:
            search = self._search
            splitter = getattr(search, "_checked_cv_orig", None)
            if splitter is None:
                splitter = check_cv(search.cv, y, classifier=is_classifier(search.estimator))
            self._splits = list(splitter.split(X, y, **params))
        return self._splits


class _Scores:
    """The scores of one search, by the ids of its queries, and the file that contains them.

    Attributes:
        folds: What scikit-learn returns for each fold; None for a candidate whose fits all failed.
        evaluated: The ids of the candidates that scikit-learn has evaluated, in order.
        fold: What scikit-learn returned for one fold, from which the kinds of scores are known.
        results: The latest table in scikit-learn's form.
    """

    def __init__(self, search: BanditSearchCV, X: Any, y: Any, params: Mapping[str, Any]) -> None:
        self.folds: dict[int, list[dict[str, Any]] | None] = {}
        self.evaluated: list[int] = []
        self.fold: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        self._path: Path | None = None
        if search.storage is None:
            return
        if "://" in str(search.storage):
            raise ValueError(
                f"storage is {search.storage!r}, but the scores of the folds are in a file beside "
                "the storage. Pass the path of a file."
            )
        self._path = Path(f"{search.storage}{ENDING}")
        parts = {"data": [X, y], "estimator": search.estimator, "cv": search.cv}
        parts |= {"scoring": search.scoring, "fit parameters": dict(params)}
        self._identity = {name: _hash(name, part) for name, part in parts.items()}
        if self._path.exists():
            self._read(self._path)

    def keep(self, history: History) -> None:
        """Keep only the scores of queries in a history, as others were never asked.

        Raises:
            ValueError: If a query that was told has no scores.
        """
        missing = [o.query_id for o in history.outcomes if o.query_id not in self.folds]
        if missing:
            raise ValueError(
                f"{self._path} lacks the scores of query_id {missing[0]}, for which the storage "
                "has an outcome. Put the file back where it was, or choose another storage=."
            )
        self.folds = {q.id: self.folds[q.id] for q in history.queries if q.id in self.folds}

    def write(self) -> None:
        """Write the scores to disk."""
        if self._path is not None:
            lines = [self._identity, *sorted(self.folds.items())]
            text = "".join(f"{json.dumps(line, default=float)}\n" for line in lines)
            temporary = self._path.with_name(f"{self._path.name}.new")
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)

    def _read(self, path: Path) -> None:
        try:
            known, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            differing = [name for name, each in self._identity.items() if known.get(name) != each]
            self.folds = dict(lines)
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} does not have the scores of a search ({error}). Choose another storage=."
            ) from error
        if differing:
            raise ValueError(
                f"{path} has the scores of a search with other {', '.join(differing)}. Pass "
                "the arguments with which the search began, or choose another storage=."
            )


def _hash(name: str, part: Any) -> str:
    """Return a short string that distinguishes settings."""
    try:
        return str(joblib.hash(part))
    except Exception as error:  # pickle raises errors of many kinds
        raise ValueError(
            f"{name} cannot be distinguished from others ({type(error).__name__}: {error}), so a "
            "storage could be of another search. Pass what can be pickled: functions by name, and "
            "folds as a list."
        ) from error
