"""``BanditSearchCV`` does what scikit-learn's searches do, and chooses what the loop chooses."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import expon, kstest, loguniform, randint

from botorch_bandits import (
    BanditLoop,
    Categorical,
    DifferentSettingsError,
    Fixed,
    Float,
    Integer,
    RandomSearch,
    Space,
)

sklearn = pytest.importorskip("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin, clone  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import MinMaxScaler, StandardScaler  # noqa: E402
from sklearn.svm import SVC  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from botorch_bandits import BanditSearchCV  # noqa: E402
from botorch_bandits.model_selection import _parameter_of  # noqa: E402

X, y = load_iris(return_X_y=True)
SPACE = {"C": Float(1e-2, 1e2, log=True), "kernel": Categorical(["rbf", "linear"])}

# scikit-learn's own searches are excused from it, too
EXCUSED = {
    "check_supervised_y_2d": "searches do not say that the estimator takes targets with two axes, "
    "so a warning is expected that Ridge has no reason to give"
}


@parametrize_with_checks(
    [
        BanditSearchCV(LogisticRegression(), {"C": Float(0.1, 10.0)}, n_iter=2, cv=2),
        BanditSearchCV(Ridge(), {"alpha": Float(0.1, 10.0)}, n_iter=2, cv=2, error_score="raise"),
    ],
    expected_failed_checks=lambda s: EXCUSED if isinstance(s.estimator, Ridge) else {},
)
def test_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_results_are_those_of_cross_validation_at_what_the_loop_asks() -> None:
    search = BanditSearchCV(SVC(), SPACE, n_iter=7, cv=3, random_state=4, return_train_score=True)
    search.fit(X, y)
    loop = BanditLoop(Space(SPACE), seed=4)
    for i in range(7):
        query = loop.ask()
        wanted = cross_validate(SVC(**query.parameters), X, y, cv=3, return_train_score=True)
        loop.tell(query.id, float(wanted["test_score"].mean()))
        assert search.cv_results_["params"][i] == query.parameters
        for fold in range(3):
            assert search.cv_results_[f"split{fold}_test_score"][i] == wanted["test_score"][fold]
            assert search.cv_results_[f"split{fold}_train_score"][i] == wanted["train_score"][fold]
    best = loop.best()
    assert best is not None
    assert search.best_score_ == best[1].reward
    assert search.best_params_ == best[0].parameters
    assert search.best_estimator_.get_params()["C"] == search.best_params_["C"]
    assert search.predict(X).shape == y.shape
    assert search.history_.num_arrived == 7
    assert pickle.loads(pickle.dumps(search)).best_score_ == search.best_score_


def test_the_table_is_that_of_scikit_learn() -> None:
    """The same columns with the same kinds of values as a search over the same points has."""
    search = BanditSearchCV(SVC(), SPACE, n_iter=4, cv=3, random_state=1).fit(X, y)
    grid = [{name: [value] for name, value in p.items()} for p in search.cv_results_["params"]]
    known = GridSearchCV(SVC(), grid, cv=3).fit(X, y).cv_results_
    assert list(search.cv_results_) == list(known)
    for name, values in known.items():
        ours = search.cv_results_[name]
        assert type(ours) is type(values)
        if "time" not in name and name != "params":
            assert ours.dtype == values.dtype
            assert list(ours) == list(values)


def test_pipelines_several_metrics_and_fixed_values() -> None:
    space = {"svc__C": Float(0.1, 10.0), "svc__degree": Integer(1, 3), "svc__kernel": Fixed("poly")}
    search = BanditSearchCV(
        make_pipeline(StandardScaler(), SVC()),
        Space(space),
        n_iter=4,
        batch_size=3,
        cv=2,
        scoring=["accuracy", "balanced_accuracy"],
        refit="balanced_accuracy",
        random_state=np.random.RandomState(3),
        acquisition=RandomSearch(),
    ).fit(X, y)
    rewards = [outcome.reward for outcome in search.history_.outcomes]
    assert rewards == list(search.cv_results_["mean_test_balanced_accuracy"])
    assert set(search.cv_results_["param_svc__kernel"]) == {"poly"}
    assert search.multimetric_
    unnamed = clone(search).set_params(refit=False)
    with pytest.raises(ValueError, match="its name as refit="):
        unnamed.fit(X, y)


def test_lists_and_distributions_are_what_randomized_search_takes(tmp_path: Path) -> None:
    """The first draws are draws from them, and candidates have the user's own objects."""
    kinds = [StandardScaler(), MinMaxScaler(), "passthrough"]
    given = {
        "scale": kinds,
        "svc__C": expon(scale=10.0),
        "svc__gamma": loguniform(1e-3, 1e1),
        "svc__degree": randint(1, 4),
        "svc__coef0": [0.5, 0.0, np.float64(0.25)],
        "svc__shrinking": (True, False),
        "svc__kernel": ["poly"],
    }
    pipeline = Pipeline([("scale", StandardScaler()), ("svc", SVC())])
    options = {"n_iter": 23, "acquisition": RandomSearch(), "cv": 2, "random_state": 0}
    search = BanditSearchCV(pipeline, given, **options, storage=tmp_path / "run.db").fit(X, y)
    found = search.cv_results_["params"]
    for name in ("scale", "svc__kernel", "svc__shrinking", "svc__coef0"):
        assert {id(p[name]) for p in found} == {*map(id, given[name])}, name  # type: ignore[call-overload]
    assert {p["svc__degree"] for p in found} == {1, 2, 3}
    for name in ("svc__C", "svc__gamma"):  # level 0.001 of each test for one seed
        draws = [p[name] for p in found]
        assert kstest(draws, given[name].cdf).pvalue > 1e-3, name  # type: ignore[attr-defined]
    assert search.best_estimator_.named_steps["svc"].kernel == "poly"
    again = BanditSearchCV(pipeline, given, **options, storage=tmp_path / "run.db")
    assert len(again.set_params(n_iter=24).fit(X, y).cv_results_["params"]) == 24
    attached = BanditLoop(Space({"C": _parameter_of("C", expon())}))
    attached.attach({"C": 1.0}, 0.5)
    assert attached.history.queries[0].x.item() == pytest.approx(expon().cdf(1.0), abs=1e-12)
    other = {**given, "svc__C": expon(scale=9.0)}
    with pytest.raises(DifferentSettingsError, match="svc__C"):
        BanditSearchCV(pipeline, other, **options, storage=tmp_path / "run.db").fit(X, y)


class Fragile(ClassifierMixin, BaseEstimator):
    """Fails where it is told to, and counts its fits."""

    fits = 0

    def __init__(self, level: float = 0.0, fails: str = "never") -> None:
        self.level, self.fails = level, fails

    def fit(self, X: Any, y: Any) -> Fragile:
        Fragile.fits += 1
        self.classes_ = np.unique(y)
        if self.fails == "always" or (self.fails == "above" and self.level > 0.5):
            raise ValueError("too high")
        return self

    def score(self, X: Any, y: Any) -> float:
        return self.level


def fragile(fails: str = "above", **options: Any) -> BanditSearchCV:
    options = {"n_iter": 8, "cv": 2, "random_state": 0, **options}
    return BanditSearchCV(Fragile(fails=fails), {"level": Float(0.0, 1.0)}, **options)


@pytest.mark.filterwarnings("ignore:Scoring failed|.*fits failed")
@pytest.mark.parametrize("error_score", [np.nan, -1.0])
def test_candidates_that_fail_are_on_record(error_score: float) -> None:
    search = fragile(error_score=error_score).fit(X, y)
    results, history = search.cv_results_, search.history_
    levels = results["param_level"].astype(float)
    assert len(levels) == 8
    assert (levels > 0.5).any()
    wanted = np.where(levels > 0.5, error_score, levels)
    np.testing.assert_allclose(results["mean_test_score"], wanted)
    np.testing.assert_array_equal(
        results["std_test_score"], np.where(levels > 0.5, 0.0 * error_score, 0.0)
    )
    assert history.num_failed == (int((levels > 0.5).sum()) if np.isnan(error_score) else 0)
    for failure in history.failures:
        assert failure.reason == "no finite score: ValueError: too high"
    assert search.best_score_ == max(levels[levels <= 0.5])
    order = np.argsort(-np.where(np.isnan(wanted), -9.0, wanted), kind="stable")
    assert list(results["rank_test_score"][order[:2]]) == [1, 2]


def test_a_search_in_which_everything_fails_ends_with_the_error() -> None:
    with pytest.raises(ValueError, match="too high"):
        fragile("always", n_iter=3).fit(X, y)
    Fragile.fits = 0
    with pytest.raises(ValueError, match="too high"):
        fragile("always", n_iter=30).fit(X, y)
    assert Fragile.fits == 20  # ten candidates, two folds
    with pytest.raises(ValueError, match="too high"):
        fragile(error_score="raise").fit(X, y)


def without_value(estimator: Any, X: Any, y: Any) -> float:
    return float("nan")


@pytest.mark.filterwarnings("ignore:One or more of the test scores")
@pytest.mark.parametrize("n_iter", [3, 30])
def test_a_search_whose_scores_are_all_nan_ends_with_an_error(n_iter: int, tmp_path: Path) -> None:
    """It used to end as if it had found something."""
    options = {"scoring": without_value, "n_iter": n_iter, "storage": tmp_path / "search.db"}
    search, played = fragile("never", **options), min(n_iter, 10)
    for _ in range(2 if n_iter == 3 else 1):  # also if it is opened again
        with pytest.raises(ValueError, match=f"none of {played} candidates has a finite score"):
            search.fit(X, y)
        assert search.history_.num_failed == played
    numbered = fragile("never", scoring=without_value, n_iter=3)
    with pytest.raises(ValueError, match=r"one was \{'level': 0"):
        numbered.fit(X, y)


@pytest.mark.filterwarnings("ignore:.*fits failed")
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_search_with_a_storage_goes_on(tmp_path: Path, batch_size: int) -> None:
    storage = tmp_path / "search.db"
    whole = fragile(batch_size=batch_size).fit(X, y)
    fragile(n_iter=6, storage=storage, batch_size=batch_size).fit(X, y)
    Fragile.fits = 0
    again = fragile(storage=str(storage), batch_size=batch_size).fit(X, y)
    # two candidates, two folds, and the best one on all data; once more if both have failed
    failed = (whole.cv_results_["param_level"][-2:] > 0.5).all()
    assert Fragile.fits == 2 * 2 + 1 + 2 * bool(failed)
    Fragile.fits = 0
    done = fragile(storage=storage, batch_size=batch_size).fit(X, y)
    assert Fragile.fits == 2 + 1  # the best candidate once more
    for search in (again, done):
        assert list(search.cv_results_) == list(whole.cv_results_)
        for name, values in whole.cv_results_.items():
            if "time" not in name:
                np.testing.assert_array_equal(search.cv_results_[name], values, name)
        assert search.best_params_ == whole.best_params_


def test_a_search_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two folds, and between writing scores and telling them."""
    storage = tmp_path / "search.db"
    whole = fragile("never", batch_size=2).fit(X, y)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    for method in ("_tell", "_evaluate"):
        with monkeypatch.context() as patch:
            patch.setattr(BanditSearchCV, method, killed)
            with pytest.raises(KeyboardInterrupt):
                fragile("never", batch_size=2, storage=storage).fit(X, y)
    Fragile.fits = 0
    search = fragile("never", batch_size=2, storage=storage).fit(X, y)
    assert Fragile.fits == 6 * 2 + 1  # two had been evaluated
    assert search.cv_results_["params"] == whole.cv_results_["params"]


def test_a_storage_of_another_search_is_refused(tmp_path: Path) -> None:
    storage = tmp_path / "search.db"
    fragile(n_iter=2, storage=storage).fit(X, y)
    for other in (
        fragile(n_iter=3, storage=storage, cv=3),
        fragile("never", n_iter=3, storage=storage),
        fragile(n_iter=3, storage=storage, scoring="accuracy"),
    ):
        with pytest.raises(ValueError, match=r"other (cv|estimator|scoring)"):
            other.fit(X, y)
    with pytest.raises(ValueError, match="other data"):
        fragile(n_iter=3, storage=storage).fit(X[:-1], y[:-1])
    with pytest.raises(ValueError, match="Pass an integer"):
        fragile(n_iter=3, storage=storage, random_state=None).fit(X, y)
    with pytest.raises(ValueError, match="Pass what can be"):
        fragile(storage=storage, scoring=lambda *_: 1.0).fit(X, y)
    (tmp_path / "search.db.scores").unlink()
    with pytest.raises(ValueError, match="scores of query_id 0"):
        fragile(n_iter=3, storage=storage).fit(X, y)


def test_the_folds_are_the_same_for_all_candidates() -> None:
    """Also where a splitter would draw others at each call."""
    cv = StratifiedKFold(3, shuffle=True)
    seen: list[bytes] = []

    def score(estimator: Any, X: Any, y: Any) -> float:
        seen.append(X.tobytes())
        return 1.0

    BanditSearchCV(
        Fragile(), {"level": Float(0.0, 1.0)}, n_iter=3, cv=cv, scoring=score, refit=False
    ).fit(X, y)
    assert seen[:3] == seen[3:6] == seen[6:]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"n_iter": 0}, ValueError, "n_iter"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"acquisition": "worst"}, ValueError, "acquisition is 'worst'"),
        ({"param_distributions": {"level": (0.0, 1.0)}}, TypeError, "level"),
        ({"param_distributions": 1.0}, ValueError, "param_distributions"),
        ({"param_distributions": [{}, {}]}, ValueError, "a search for each dict"),
        ({"param_distributions": {"level": []}}, ValueError, "at least two"),
        ({"param_distributions": {"level": {0.0, 1.0}}}, TypeError, "a list of values or"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        fragile().set_params(**options).fit(X, y)
