"""The posterior in one context, and what is played with it, against dense computations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from botorch_bandits import Arms, BanditGP, BanditLoop, GPUpperConfidenceBound, run
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.problems import ConstantDelay, Delays, PoissonDelay
from botorch_bandits.random_streams import generator
from papers.contextual_studies import (
    SMALLEST_NOISE,
    ContextPosterior,
    ContextualMethod,
    ContextualTask,
    Hyperparameters,
    draw_deviation,
    play_task,
)

GIVEN = Hyperparameters((0.3, 0.8, 0.4, 0.6), variance=0.4, noise=0.02)
MAX_DELAY = 4
WAYS: dict[str, Feedback] = {
    "censored": Censored(minimum=0.0, outcome_bound=0.9, max_delay=MAX_DELAY, window="all"),
    "ignored": Ignored(),
    "hallucinated": Hallucinated(),
}


def random(*shape: int, seed: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=stream)


def covariance(X: Tensor, Z: Tensor) -> Tensor:
    """Squared exponential, written out."""
    lengthscales = torch.tensor(GIVEN.lengthscales, dtype=torch.float64)
    scaled = (X.unsqueeze(-2) - Z.unsqueeze(-3)) / lengthscales
    return GIVEN.variance * torch.exp(-0.5 * scaled.square().sum(-1))


def condition(X: Tensor, y: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance at ``Z``, from the textbook."""
    K = covariance(X, X) + GIVEN.noise * torch.eye(len(X), dtype=torch.float64)
    cross = covariance(Z, X)
    mean = cross @ torch.linalg.solve(K, y)
    return mean, covariance(Z, Z) - cross @ torch.linalg.solve(K, cross.mT)


def make_task(num_rounds: int = 40) -> ContextualTask:
    sequence = [t // 9 % 3 for t in range(num_rounds)]  # contexts come back
    values = random(3, 15, seed=2)
    return ContextualTask(random(3, 2, seed=0), random(15, 2, seed=1), values, tuple(sequence))


def test_moments_are_those_of_the_textbook() -> None:
    contexts, choices = random(3, 2, seed=0), random(9, 2, seed=1)
    posterior = ContextPosterior(GIVEN.read(), GIVEN.noise, choices, contexts[0])
    picks = random(150, 2, seed=2)
    labels: list[float] = []
    X = torch.empty(0, 4, dtype=torch.float64)
    for t, (arm, label) in enumerate(picks.tolist()):
        if t % 20 == 0:
            posterior.enter(contexts[t // 20 % 3])
        x = posterior.arms[int(arm * 9)]
        X = torch.cat([X, x.unsqueeze(0)])
        labels.append(label)
        posterior.append(x, label)
        if t % 7 == 6:
            labels[t - 3] = -1.0
            posterior.relabel(t - 3, -1.0)
        if t % 25 == 0:
            y = torch.tensor(labels, dtype=torch.float64)
            mean, known = condition(X, y, posterior.arms)
            assert np.allclose(posterior.mean, mean, atol=1e-9, rtol=0)
            assert np.allclose(posterior.variance, known.diagonal(), atol=1e-10, rtol=0)
            assert np.allclose(posterior.covariance, known, atol=1e-10, rtol=0)
            first = max(0, t - 3)
            at_rows = condition(X, y, X[first:])[1].diagonal().sqrt()
            assert np.allclose(posterior.deviations(first), at_rows, atol=1e-8, rtol=0)
            more = random(3, 4, seed=t)
            rows = posterior.shrinkage(more)
            nothing = torch.zeros(len(X) + 3, dtype=torch.float64)
            further = condition(torch.cat([X, more]), nothing, posterior.arms)[1]
            assert np.allclose(known.numpy() - rows.T @ rows, further, atol=1e-10, rtol=0)
    assert posterior.num_rows == 150
    inputs, kept = posterior.rows
    assert torch.equal(inputs, X)
    assert kept.tolist() == labels


def test_draws_have_the_covariance() -> None:
    matrix = random(6, 4, seed=3).numpy()
    singular = matrix @ matrix.T  # rank 4 of 6
    root = np.stack([draw_deviation(singular, unit, 1.0) for unit in np.eye(6)], axis=1)
    assert np.allclose(root @ root.T, singular, atol=1e-10, rtol=0)
    with pytest.raises(RuntimeError, match="not positive semi-definite"):
        draw_deviation(-np.eye(2), np.ones(2), 1.0)


@pytest.mark.filterwarnings("ignore:the outcome of query_id")
@pytest.mark.parametrize("delays", [PoissonDelay(3), ConstantDelay(3)], ids=["poisson", "fixed"])
@pytest.mark.parametrize("way", WAYS)
def test_upper_bounds_choose_what_the_loop_chooses(way: str, delays: Delays) -> None:
    task, feedback = make_task(), WAYS[way]
    recipe = GPUpperConfidenceBound.with_options(width=1.0)
    method = ContextualMethod(
        "method",
        recipe,
        0.0,
        draws=False,
        width=1.0,
        divides_the_sum=True,
        predictive=False,
        delays=delays,
        feedback=feedback,
    )
    loop = BanditLoop(
        Arms(task.choices),
        BanditGP.with_kernel(GIVEN.build_kernel(), noise=GIVEN.noise),
        recipe,
        feedback=feedback,
        context_dim=2,
        seed=5,
        clock=lambda: 0.0,
    )
    contexts = task.contexts[list(task.sequence)]

    def reward(point: Tensor) -> float:
        context = (task.contexts == point[:2]).all(-1).nonzero()
        return float(task.values[context, (task.choices == point[2:]).all(-1).nonzero()])

    result = run(loop, reward, 40, contexts=contexts, delays=delays, progress=False)
    chosen = torch.stack([query.x for query in result.history.queries])
    assert play_task(task, method, GIVEN, seed=5) == Arms(task.choices).index_of(chosen).tolist()


@pytest.mark.parametrize("divides", [False, True], ids=["published", "divided"])
@pytest.mark.parametrize("draws", [False, True], ids=["bounds", "draws"])
@pytest.mark.parametrize("way", WAYS)
def test_choices_are_those_of_a_dense_computation(way: str, draws: bool, divides: bool) -> None:
    """Delays of 3 rounds, all within ``m``; with ``m = 2`` every outcome would be lost.

    As published, the width of bounds has the sum of deviations with the noise, whatever the prior
    variance (0.4 here), and draws have none of it.
    """
    task, seed, delay = make_task(30), 11, 3
    feedback, bound = WAYS[way], 0.9
    method = ContextualMethod(
        "method",
        None,
        0.0,
        draws=draws,
        width=1.5,
        divides_the_sum=divides,
        predictive=not divides,
        scales_draws=divides,
        delays=ConstantDelay(delay),
        feedback=feedback,
    )
    played = play_task(task, method, GIVEN, seed)
    inputs = torch.stack(
        [
            torch.cat([task.contexts[c], task.choices[arm]])
            for c, arm in zip(task.sequence, played, strict=True)
        ]
    )
    outcomes = task.values[list(task.sequence), played]
    noise = 0.0 if draws or divides else GIVEN.noise
    for t, context in enumerate(task.sequence, start=1):
        arms = torch.cat([task.contexts[context].expand(15, 2), task.choices], dim=-1)
        told, asked = max(0, t - delay), t - 1
        X, y, width = inputs[:told], outcomes[:told], 1.5
        if way == "censored":
            X, y = inputs[:asked], outcomes[:asked].clone()
            y[told:] = 0.0
            last = inputs[max(0, asked - MAX_DELAY) : asked]
            if asked and divides:  # bound and deviations both in prior standard deviations
                total = condition(X, y, last)[1].diagonal().sqrt().sum()
                width += bound * float(total) / GIVEN.variance
            elif asked and not draws:
                total = (condition(X, y, last)[1].diagonal() + GIVEN.noise).sqrt().sum()
                width += bound * float(total)
        mean, known = condition(X, y, arms)
        if way == "hallucinated":
            known = condition(inputs[:asked], outcomes[:asked], arms)[1]
        stream = generator(seed, t, "thompson")
        normal = torch.randn(15, dtype=torch.float64, generator=stream)
        deviation = torch.linalg.cholesky(known) @ normal
        if not draws:
            deviation = (known.diagonal() + noise).sqrt()
        scores = mean + width * deviation
        assert played[t - 1] == int(scores.argmax()), t


def test_fits_leave_pseudo_values_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays of 3 rounds with ``m = 4``: at round 11 the outcomes of rounds 1 to 8 have arrived."""
    task, fitted = make_task(11), []

    def fit(known: Hyperparameters, X: Tensor, y: Tensor, seed: int) -> Hyperparameters:
        fitted.append(y.tolist())
        return known

    monkeypatch.setattr(Hyperparameters, "fit", fit)
    for pseudo in (False, True):
        method = ContextualMethod(
            "method",
            None,
            0.0,
            draws=False,
            width=1.0,
            delays=ConstantDelay(3),
            feedback=WAYS["censored"],
            refit_rounds=(10,),
            learns_from_pseudo_values=pseudo,
        )
        played = play_task(task, method, GIVEN, 0)
        outcomes = task.values[list(task.sequence), played][:8].tolist()
        assert fitted.pop() == outcomes + [0.0, 0.0] * pseudo


def test_late_outcomes_never_count() -> None:
    """With m = 2 and delays of 3 the censored model sees the minimum only, so it goes round."""
    task = make_task(9)
    censored = Censored(minimum=0.0, outcome_bound=1.0, max_delay=2, window="all")
    methods = [
        ContextualMethod(
            "method", None, 0.0, draws=False, width=1.0, delays=ConstantDelay(3), feedback=censored
        )
        for _ in range(2)
    ]
    other = ContextualTask(task.contexts, task.choices, 1.0 - task.values, task.sequence)
    assert play_task(task, methods[0], GIVEN, 0) == play_task(other, methods[1], GIVEN, 0)


def test_fits_raise_the_likelihood_and_keep_their_bounds() -> None:
    X = random(60, 4, seed=4)
    y = torch.sin(3.0 * X[:, 0]) + 0.2 * X[:, 2]  # no noise
    fitted = GIVEN.fit(X, y, seed=0)

    def log_likelihood(known: Hyperparameters) -> float:
        scaled = X / torch.tensor(known.lengthscales, dtype=torch.float64)
        K = known.variance * torch.exp(-0.5 * torch.cdist(scaled, scaled) ** 2)
        K += known.noise * torch.eye(60, dtype=torch.float64)
        zero = torch.zeros(60, dtype=torch.float64)
        return float(torch.distributions.MultivariateNormal(zero, K).log_prob(y))

    assert log_likelihood(fitted) > log_likelihood(GIVEN) + 10.0
    assert SMALLEST_NOISE <= fitted.noise < 2 * SMALLEST_NOISE
    # what does not matter gets long lengthscales
    assert min(fitted.lengthscales[1], fitted.lengthscales[3]) > 3 * fitted.lengthscales[0]
    assert GIVEN.fit(X[:4], y[:4], seed=0) is GIVEN


def test_feedback_that_cannot_be_played_is_refused() -> None:
    for feedback, expected in (
        (Censored(minimum=0.5, outcome_bound=1.0, max_delay=2, window="all"), "minimum is 0.5"),
        (Censored(minimum=0.0, outcome_bound=1.0, max_delay=2), "window='all'"),
    ):
        method = ContextualMethod("x", None, 0.0, draws=False, width=1.0, feedback=feedback)
        with pytest.raises(ValueError, match=expected):
            play_task(make_task(3), method, GIVEN, 0)
