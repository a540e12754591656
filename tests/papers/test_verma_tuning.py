"""Tuning with delays: learned hyperparameters, tables, and what the page says."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC
from torch import Tensor

from botorch_bandits.domains import Arms
from botorch_bandits.evaluation import run
from botorch_bandits.feedback import Censored, Hallucinated, Ignored
from botorch_bandits.history import History
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP, RefitWarning
from botorch_bandits.problems import ArmsProblem, ConstantDelay, PoissonDelay
from botorch_bandits.problems.tuning import load_dataset
from botorch_bandits.random_streams import derive_seed, generator
from papers import (
    build_experiments,
    tuning_studies,
    verma_tuning,
)
from papers import (
    delayed_studies as learned_delayed_study,
)
from papers.delayed_studies import (
    LENGTHSCALES,
    PRIOR_VARIANCES,
    Hyperparameters,
    LearnedMethod,
    LearnedPlayer,
    learn,
    rows_to_learn_from,
)
from papers.results import tabulate
from papers.trials import Curves, run_arms_experiment
from papers.tuning_studies import TunedFunction, TuningMethod, TuningPlayer
from papers.verma_problems import LogisticRegressionTuning

UCB, TS = verma_tuning.FAMILIES["UCB"][0], verma_tuning.FAMILIES["TS"][0]
WAITING = Censored(minimum=0.0, outcome_bound=1.0, max_delay=6, window="all")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=generator(seed, 0, "test"))


def small_function() -> tuple[Tensor, Tensor]:
    """60 arms and a smooth function on them between 0.4 and 0.9."""
    choices = numbers(60, 2)
    return choices, 0.9 - 0.5 * ((choices - 0.6) ** 2).sum(-1)


def covariance(A: np.ndarray, B: np.ndarray, learned: Hyperparameters) -> np.ndarray:
    squares = ((A[:, None] - B[None]) ** 2).sum(-1)
    return np.asarray(learned.prior_variance * np.exp(-squares / (2 * learned.lengthscale**2)))


def log_likelihood(X: np.ndarray, y: np.ndarray, learned: Hyperparameters) -> float:
    K = covariance(X, X, learned) + learned.noise * np.eye(len(X))
    return float(-0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(2 * np.pi * K)[1]))


@pytest.mark.parametrize("repeated", [False, True])
def test_hyperparameters_have_the_largest_marginal_likelihood(repeated: bool) -> None:
    X = numbers(30, 2, seed=1)
    if repeated:
        X = torch.cat([X, X[:8], X[:4]])
    noise = 0.1 * torch.randn(len(X), dtype=torch.float64, generator=generator(1, 1, "test"))
    Y = (torch.sin(4 * X[:, :1]) * X[:, 1:]) + noise.unsqueeze(-1)
    found = learn(X, Y, Hyperparameters())
    x, y = X.numpy(), Y.squeeze(-1).numpy()

    def loss(logs: np.ndarray) -> float:
        return -log_likelihood(x, y, Hyperparameters(*np.exp(logs)))

    bounds = [np.log(LENGTHSCALES), np.log(PRIOR_VARIANCES), np.log((1e-4, 10.0))]
    best = minimize(loss, np.log([0.2, 1.0, 0.01]), bounds=bounds)
    assert log_likelihood(x, y, found) == pytest.approx(-best.fun, abs=1e-3)
    assert found.lengthscale == pytest.approx(np.exp(best.x[0]), rel=0.05)


def test_learning_stays_within_its_bounds() -> None:
    X = numbers(20, 3)
    flat = learn(X, torch.full((20, 1), 0.9, dtype=torch.float64), Hyperparameters())
    assert flat.noise == 1e-4
    assert 1.9 < flat.lengthscale < 2.0
    spiky = learn(X, torch.tensor([[0.0], [9.0]] * 10, dtype=torch.float64), Hyperparameters())
    assert PRIOR_VARIANCES[0] < spiky.prior_variance < PRIOR_VARIANCES[1]
    for found in (flat, spiky):  # a kernel can be made of them
        assert found.kernel()(X[:1]).to_dense().item() == pytest.approx(found.prior_variance)


def test_rows_to_learn_from() -> None:
    history = History(1)
    for i in range(4):
        history.add_query(torch.tensor([0.1 * i], dtype=torch.float64), "initial", 0.0)
        if i == 1:
            history.add_outcome(0, 0.5, 0.0)
    history.add_outcome(1, 0.7, 0.0)  # behind round 4: after three rounds
    given = {"acquisition": UCB, "lam": 0.01, "delays": ConstantDelay(3)}
    waiting = Censored(minimum=0.2, outcome_bound=1.0, max_delay=2, window="all")

    def rows(**settings: Any) -> list[list[float]]:
        method = LearnedMethod(name="", **given, **settings)
        X, Y = rows_to_learn_from(history, method)
        return torch.cat([X, Y], dim=-1).tolist()

    assert rows(feedback=Hallucinated()) == [[0.0, 0.5], [0.1, 0.7]]
    assert rows(feedback=waiting) == [[0.0, 0.5]]
    everything = rows(feedback=waiting, learns_from_pseudo_values=True)
    assert everything == [[0.0, 0.5], [0.1, 0.2], [0.2, 0.2], [0.1 * 3, 0.2]]


@pytest.mark.parametrize("feedback", [WAITING, Hallucinated()], ids=["censored", "hallucinated"])
def test_pieces_are_one_run_where_nothing_is_learned(
    feedback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices, values = small_function()
    monkeypatch.setattr(learned_delayed_study, "learn", lambda X, Y, start: start)
    delays = PoissonDelay(3)
    method = LearnedMethod(name="", acquisition=TS, lam=0.01, delays=delays, feedback=feedback)
    played = LearnedPlayer(choices, lambda trial: values).play_one(values, method, 7, 34)
    start = Hyperparameters()
    if isinstance(feedback, Censored):
        feedback = replace(feedback, **Censored.as_published)
    loop = BanditLoop(
        Arms(choices),
        BanditGP.with_kernel(start.kernel(), noise=start.noise),
        TS,
        feedback=feedback,
        num_initial=learned_delayed_study.NUM_INITIAL,
        seed=7,
    )
    whole = run(loop, ArmsProblem(choices, values), 34, delays=delays, progress=False)
    assert torch.equal(played.history.inputs(), whole.history.inputs())
    assert whole.arrivals is not None
    assert played.arrivals is not None
    assert torch.equal(played.arrivals, whole.arrivals)
    assert torch.equal(played.regret, whole.regret)


@pytest.mark.parametrize("pseudo", [False, True], ids=["arrived", "all"])
def test_censored_choices_against_dense_posteriors(pseudo: bool) -> None:
    """Posterior, learned hyperparameters and width of every round, written densely."""
    choices, values = small_function()
    method = LearnedMethod(
        name="",
        acquisition=UCB,
        lam=0.01,
        delays=ConstantDelay(3),
        feedback=WAITING,
        learns_from_pseudo_values=pseudo,
    )
    result = LearnedPlayer(choices, lambda trial: values).play_one(values, method, 5, 28)
    history = result.history
    X = history.inputs().numpy()
    learned = Hyperparameters()
    for t in range(6, 29):
        labels = np.array([float(values[i]) for i in Arms(choices).index_of(history.inputs())])
        # the outcome of round s can be used in round t if 3 <= t - s
        told = np.arange(1, t) + 3 <= t
        censored = np.where(told, labels[: t - 1], 0.0)
        if t in (11, 21):
            rows = np.full(t - 1, True) if pseudo else told
            fitted = (torch.from_numpy(X[: t - 1][rows]), torch.from_numpy(censored[rows])[:, None])
            learned = learn(*fitted, Hyperparameters())
        K = covariance(X[: t - 1], X[: t - 1], learned) + learned.noise * np.eye(t - 1)
        cross = covariance(choices.numpy(), X[: t - 1], learned)
        mean = cross @ np.linalg.solve(K, censored)
        variance = learned.prior_variance - (cross * np.linalg.solve(K, cross.T).T).sum(-1)
        deviation = np.sqrt(np.maximum(variance, 0.0) + learned.noise)  # as published
        played = Arms(choices).index_of(history.inputs()).numpy()
        width = 1.0 + deviation[played[max(0, t - 7) : t - 1]].sum()
        scores = mean + width * deviation
        known = history.queries[t - 1].diagnostics
        assert known["width"] == pytest.approx(width, rel=1e-6)
        assert scores[played[t - 1]] == pytest.approx(scores.max(), rel=1e-6)


def tuned(values: Tensor, choices: Tensor) -> TunedFunction:
    return TunedFunction(
        lambda x: float(values[Arms(choices).index_of(x.unsqueeze(0))]), float(values.max()), 0.0
    )


@pytest.mark.parametrize("divides", [False, True], ids=["published", "divided"])
def test_published_bounds_against_dense_posteriors(divides: bool) -> None:
    """The width has the sum of predictive deviations as they are; the scores have the noise."""
    choices, values = small_function()
    method = TuningMethod(
        name="",
        acquisition=UCB,
        lam=0.01,
        delays=ConstantDelay(3),
        feedback=replace(WAITING, predictive=True, sum_form="theorem" if divides else "published"),
    )
    function = tuned(values, choices)
    player = TuningPlayer(Arms(choices), lambda trial: function)
    history = player.play_one(function, method, 5, 27).history
    X = history.inputs().numpy()
    played = Arms(choices).index_of(history.inputs()).numpy()
    labels, learned = values.numpy()[played], Hyperparameters()
    for t in range(6, 28):
        told = np.arange(1, t) + 3 <= t
        censored = np.where(told, labels[: t - 1], 0.0)
        if t in (11, 21):
            fitted = (torch.from_numpy(X[: t - 1][told]), torch.from_numpy(censored[told])[:, None])
            learned = learn(*fitted, Hyperparameters())
        K = covariance(X[: t - 1], X[: t - 1], learned) + learned.noise * np.eye(t - 1)
        cross = covariance(choices.numpy(), X[: t - 1], learned)
        variance = learned.prior_variance - (cross * np.linalg.solve(K, cross.T).T).sum(-1)
        deviation = np.sqrt(variance + learned.noise)
        total = deviation[played[max(0, t - 7) : t - 1]].sum()
        width = 1.0 + (total / learned.prior_variance if divides else total)
        known = history.queries[t - 1].diagnostics
        assert known["width"] == pytest.approx(width, rel=1e-8)
        scores = cross @ np.linalg.solve(K, censored) + width * deviation
        assert scores[played[t - 1]] == pytest.approx(scores.max(), rel=1e-8)


def test_draws_have_no_sum() -> None:
    choices, values = small_function()
    (waiting, *_), function = verma_tuning.compared("TS", "poisson"), tuned(values, choices)
    player = TuningPlayer(Arms(choices), lambda trial: function)
    history = player.play_one(function, waiting, 5, 12).history
    widths = [query.diagnostics["width"] for query in history.queries[5:]]
    assert widths == [1.0] * 7


@pytest.mark.parametrize("until", [0, 2])
def test_baselines_start_uniformly_until_two_outcomes_arrived(until: int) -> None:
    choices, values = small_function()
    function = tuned(values, choices)
    player = TuningPlayer(Arms(choices), lambda trial: function)
    method = TuningMethod(
        name="",
        acquisition=UCB,
        lam=0.01,
        delays=ConstantDelay(8),
        feedback=Ignored(),
        uniform_until=until,
    )
    result = player.play_one(function, method, 3, 14)
    # the second outcome of delay 8 can be used from round 10 on
    first = 10 if until else 6
    origins = [query.origin for query in result.history.queries]
    assert origins == ["initial"] * (first - 1) + ["acquisition"] * (15 - first)
    common = replace(method, uniform_until=0)
    same = player.play_one(function, common, 3, 5).history.inputs()
    assert torch.equal(result.history.inputs()[:5], same)


def test_a_failed_fit_keeps_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(X: Tensor, Y: Tensor, start: Hyperparameters) -> Hyperparameters:
        warnings.warn("the fit failed.", RefitWarning, stacklevel=1)
        return start

    choices, values = small_function()
    function = tuned(values, choices)
    method = TuningMethod(
        name="", acquisition=UCB, lam=0.01, delays=ConstantDelay(0), feedback=Ignored()
    )
    player = TuningPlayer(Arms(choices), lambda trial: function)
    fixed = replace(method, learns=False)
    expected = player.play_one(function, fixed, 3, 14).history.inputs()
    monkeypatch.setattr(tuning_studies, "learn", fails)
    assert torch.equal(player.play_one(function, method, 3, 14).history.inputs(), expected)


def test_published_problem_is_that_of_the_released_code(diabetes: Path) -> None:
    """The split is scikit-learn's with seed 0, the box linear, the features as they come."""
    data = np.loadtxt(diabetes, delimiter=",", skiprows=1)
    X, y = data[:, :-1], data[:, -1]
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=0
    )
    (panel, *_) = build_experiments("verma-tuning", [diabetes])
    player: Any = panel.player
    function = player.make(3)
    assert function is player.make(4)  # one function for all trials
    assert (function.best, function.worst) == (1.0, 0.0)  # so that regret is the error
    for u in ([0.0, 0.0], [0.25, 0.5], [1.0, 1.0]):
        c, gamma = (1e-4 + x * (high - 1e-4) for x, high in zip(u, (100.0, 10.0), strict=True))
        machine = SVC(C=c, gamma=gamma).fit(X_train, y_train)
        x = torch.tensor(u, dtype=torch.float64)
        assert function.reward(x) == pytest.approx(machine.score(X_test, y_test))
    assert player.domain.bounds.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert (panel.num_trials, panel.num_rounds) == (10, 105)


@pytest.fixture
def diabetes(tmp_path: Path) -> Path:
    """60 rows of two classes."""
    table = numbers(60, 2, seed=9).numpy()
    labels = (table[:, 0] + 0.3 * table[:, 1] > 0.6).astype(int)
    rows = [f"{a!r},{b!r},{c}" for (a, b), c in zip(table.tolist(), labels.tolist(), strict=True)]
    (tmp_path / "diabetes.csv").write_text("\n".join(["a,b,Outcome", *rows]) + "\n")
    return tmp_path / "diabetes.csv"


def test_functions_are_the_accuracies_at_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verma_tuning, "NUM_TUNING_ARMS", 7)
    with pytest.warns(UserWarning, match="left out: it needs --data .* 'Outcome'"):
        experiments = build_experiments("verma-tuning", seed=3)
    player: Any = experiments[0].player
    problem = LogisticRegressionTuning(
        *load_dataset("breast-cancer"),
        seed=derive_seed(3, 2, "tuning"),
        standardizes=False,
        logarithmic=False,
    )
    low, high = problem.box.bounds
    assert low[1:].tolist() == [1e-6, 1e-6]
    assert high.tolist() == [128.0, 1.0, 1.0]
    points = low + player.domain.choices * (high - low)
    points[:, 0] = points[:, 0].round()  # rounding error only
    function = player.make(2)
    values = [problem(x) for x in points]
    assert [function.reward(x) for x in player.domain.choices] == values
    assert (function.best, function.worst) == (1.0, 0.0)  # so that regret is the error
    assert player is experiments[3].player  # what one panel has trained serves the others


def test_panels_and_data(diabetes: Path) -> None:
    experiments = build_experiments("verma-tuning", [diabetes])
    assert len({e.name for e in experiments}) == len(experiments) == 12
    assert experiments[0].name == "verma-tuning-svm-ucb-poisson"
    assert len({e.published for e in experiments}) == 12
    assert all("Figure" in e.published for e in experiments)
    for experiment in experiments:
        delays = PoissonDelay(10) if experiment.name.endswith("poisson") else ConstantDelay(10)
        waiting, *others = experiment.make_methods(experiment.make_study(0, 1))
        assert isinstance(waiting, TuningMethod)
        assert isinstance(waiting.feedback, Censored)
        assert waiting.feedback.sum_form == "published"
        assert waiting.feedback.max_delay == (20 if delays == PoissonDelay(10) else 10)
        assert waiting.uniform_until == 0
        for method in others:
            assert isinstance(method, TuningMethod)
            assert method.delays == delays
            is_late = not isinstance(method.feedback, Censored) and "common" not in method.name
            assert method.uniform_until == (2 if is_late else 0)
    text = diabetes.read_text()
    diabetes.write_text(text.replace("Outcome", "Class"))
    with pytest.raises(ValueError, match="'Outcome' is not in"):
        build_experiments("verma-tuning", [diabetes])
    with pytest.raises(ValueError, match="got 2 files"):
        build_experiments("verma-tuning", [diabetes, diabetes])


@pytest.mark.filterwarnings("ignore:the support vector machine is left out")
def test_interruptions_do_not_change_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verma_tuning, "NUM_TUNING_ARMS", 40)

    def panel() -> Any:  # a new start has no tables
        experiments = build_experiments("verma-tuning", num_trials=2, num_rounds=23)
        return next(e for e in experiments if e.name == "verma-tuning-logistic-ts-poisson")

    whole = run_arms_experiment(panel(), tmp_path, progress=False)
    for path in sorted((tmp_path / "trials").iterdir())[::2]:
        path.unlink()
    again = run_arms_experiment(panel(), tmp_path, progress=False)
    assert list(whole) == ["GP-TS-SDF", "asy-TS", "GP-BTS"]
    for method, curve in whole.items():
        assert curve.simple_regret is not None
        assert bool((curve.simple_regret.diff(dim=-1) <= 0.0).all())
        assert torch.equal(curve.regret, again[method].regret)
        # every method meets the same functions and starts alike
        assert torch.equal(curve.regret[:, :5], whole["asy-TS"].regret[:, :5])
    table = tabulate(panel(), whole)
    assert [row["trials"] for row in table] == [2] * 3
    finished = panel()
    run_arms_experiment(finished, tmp_path, progress=False)
    assert not finished.player.functions  # nothing is trained where nothing is left to play


@pytest.mark.filterwarnings("ignore:the support vector machine is left out")
def test_differences_at_rounds_are_paired() -> None:
    panel = build_experiments("verma-tuning", num_trials=3, num_rounds=60)[0]
    regrets = {name: numbers(3, 60, seed=i) for i, name in enumerate(("ours", "theirs"))}
    curves = {name: Curves(x, None, None, x) for name, x in regrets.items()}
    rows = verma_tuning.tabulate_rounds([panel], [curves])
    assert [(row["round"], row["method"]) for row in rows] == [
        (35, "ours"),
        (35, "theirs"),
        (60, "ours"),
        (60, "theirs"),
    ]
    difference = (regrets["theirs"] - regrets["ours"])[:, 34].numpy()
    assert rows[1]["than"] == "ours"
    assert rows[1]["more"] == pytest.approx(difference.mean(), rel=1e-12)
    expected = difference.std(ddof=1) / np.sqrt(3)
    assert rows[1]["more_standard_error"] == pytest.approx(expected, rel=1e-12)
    assert rows[0]["more"] == 0.0
