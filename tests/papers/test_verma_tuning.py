"""Tuning with delays: learned hyperparameters, tables, and what the page says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from botorch_bandits.domains import Arms
from botorch_bandits.evaluation import run
from botorch_bandits.feedback import Censored, Hallucinated
from botorch_bandits.history import History
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGP
from botorch_bandits.problems import ArmsProblem, ConstantDelay, PoissonDelay
from botorch_bandits.problems.tuning import load_dataset
from botorch_bandits.random_streams import derive_seed, generator
from papers import (
    build_experiments,
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
from papers.trials import run_arms_experiment
from papers.verma import FAMILIES
from papers.verma_problems import LogisticRegressionTuning

UCB, TS = FAMILIES["UCB"][0][1], FAMILIES["TS"][0][1]
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


def test_tables_are_the_accuracies_at_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verma_tuning, "NUM_TUNING_ARMS", 7)
    with pytest.warns(UserWarning, match="left out: it needs --data .* 'Outcome'"):
        experiments = build_experiments("verma-tuning", seed=3)
    player: Any = experiments[0].player
    problem = LogisticRegressionTuning(
        *load_dataset("breast-cancer"), seed=derive_seed(3, 2, "tuning")
    )
    low, high = problem.box.bounds
    points = low + player.choices * (high - low)
    points[:, 0] = points[:, 0].round()  # rounding error only
    assert player.tabulate(2).tolist() == [problem(x) for x in points]
    assert player is experiments[3].player  # one table for all panels of a task


def test_panels_and_data(tmp_path: Path) -> None:
    path = tmp_path / "diabetes.csv"
    rows = ["a,b,Outcome", *(f"{i % 7},{i % 5},{i % 2}" for i in range(40))]
    path.write_text("\n".join(rows) + "\n")
    experiments = build_experiments("verma-tuning", [path])
    assert len({e.name for e in experiments}) == len(experiments) == 12
    assert experiments[0].name == "verma-tuning-svm-ucb-poisson"
    assert len({e.published for e in experiments}) == 12
    assert all("Figure" in e.published for e in experiments)
    path.write_text("\n".join(rows).replace("Outcome", "Class") + "\n")
    with pytest.raises(ValueError, match="'Outcome' is not in"):
        build_experiments("verma-tuning", [path])
    with pytest.raises(ValueError, match="got 2 files"):
        build_experiments("verma-tuning", [path, path])


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
    assert list(whole) == ["GP-TS-SDF", "GP-TS-SDF, fitted to all", "asy-TS", "GP-BTS"]
    for method, curve in whole.items():
        assert curve.simple_regret is not None
        assert bool((curve.simple_regret.diff(dim=-1) <= 0.0).all())
        assert torch.equal(curve.regret, again[method].regret)
        # every method meets the same functions and starts alike
        assert torch.equal(curve.regret[:, :5], whole["asy-TS"].regret[:, :5])
    table = tabulate(panel(), whole)
    assert [row["trials"] for row in table] == [2] * 4
    finished = panel()
    run_arms_experiment(finished, tmp_path, progress=False)
    assert not finished.player.tables  # nothing is trained where nothing is left to play
