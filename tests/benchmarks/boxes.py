"""Benchmarks on boxes: growing models, predictions, searches, fits, and rows that repeat.

Each does the same work with this package's model and with BoTorch's, on the same rows.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.fit import _fit_fallback, fit_gpytorch_mll
from botorch.models.model import Model
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.models import ExactGP
from records import rebuilt
from torch import Tensor

from benchmarks.measure import (
    NOISE,
    NUM_RESTARTS,
    RAW_SAMPLES,
    WIDTH,
    Measurement,
    Scale,
    compare,
    growth_exponent,
    maximize,
    moments,
    normal_noise,
    ordinary_model,
    smooth_data,
    standard_kernel,
    timed,
)
from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition import gen_candidates_batched
from botorch_bandits.simulation.boxes import build_box_engine

SIZES = tuple((num_rows, dim) for num_rows in (50, 200, 1000) for dim in (2, 6))
"""Rows and dimensions."""

WORSE = "difference: how much worse our optimum was, at worst"
RECIPE = BanditGP.with_kernel(standard_kernel(), noise=NOISE)
BOUND = GPUpperConfidenceBound.with_options(width=WIDTH)


def our_model(X: Tensor, Y: Tensor, lengthscale: float = 0.2) -> BanditGP:
    """Return our model of some rows."""
    return BanditGP(X, Y, kernel=standard_kernel(lengthscale), noise=NOISE)


def their_model(X: Tensor, Y: Tensor, lengthscale: float = 0.2) -> Any:
    """Return BoTorch's model of the same rows."""
    return ordinary_model(X, Y, standard_kernel(lengthscale), NOISE)


def their_bound(model: Model) -> UpperConfidenceBound:
    """Return BoTorch's upper confidence bound."""
    return UpperConfidenceBound(model, beta=WIDTH**2)


# --- rows that come and change -----------------------------------------------------------------


def chain(scale: Scale) -> list[Measurement]:
    """Grow a model from 50 to 550 rows, with a posterior at one point after each."""
    first, last = 50, scale.of(550, 70)
    X, Y = smooth_data(last, 2, scale.seed)
    point = torch.full((1, 2), 0.4, dtype=torch.float64)
    sizes = torch.linspace(first + 1, last, scale.of(50, 4)).long().tolist()
    begun = our_model(X[:first], Y[:first])
    begun.posterior(point)

    def ours() -> Tensor:
        model: Any = begun
        found = {}
        for n in range(first, last):
            model = model.condition_on_observations(X[n : n + 1], Y[n : n + 1])
            found[n + 1] = moments(model, point)
        return torch.stack([found[n] for n in sizes])

    def theirs() -> Tensor:
        return torch.stack([moments(their_model(X[:n], Y[:n]), point) for n in sizes])

    timing = compare(theirs, ours, scale.few_repeats, (len(sizes), last - first))
    name = f"chain-500: {first} to {last} rows"
    return [timing.line(name, 15, 25, difference=timing.difference, tolerance=1e-8)]


def append_and_predict(scale: Scale) -> list[Measurement]:
    """Add a row to 1000 and predict 256 points; and how the cost of it grows with the rows."""
    points = smooth_data(256, 2, scale.seed + 1)[0].unsqueeze(-2)

    def measure(num_rows: int, repeats: int) -> Any:
        X, Y = smooth_data(num_rows + 1, 2, scale.seed)
        grown = our_model(X[:-1], Y[:-1])
        grown.posterior(points[:1])
        return compare(
            lambda: moments(their_model(X, Y), points),
            lambda: moments(grown.condition_on_observations(X[-1:], Y[-1:]), points),
            repeats,
        )

    num_rows = scale.of(1000, 100)
    timing = measure(num_rows, scale.repeats)
    spans = [timing.ours, measure(2 * num_rows, 1).ours]
    exponent = growth_exponent([num_rows, 2 * num_rows], spans)
    return [
        timing.line(
            f"append-predict: {num_rows} + 1 rows, 256 points",
            8,
            12,
            difference=timing.difference,
            tolerance=1e-8,
            note=f"our cost grows as n^{exponent:.2f}",
        )
    ]


# --- searches ----------------------------------------------------------------------------------


def drop_in(scale: Scale) -> list[Measurement]:
    """``optimize_acqf`` as it is, with BoTorch's acquisition, on our model."""
    return [_search(scale, "acqf-dropin", *size, their_bound, 3, 1e-9, (2, 3)) for size in SIZES]


def own_generator(scale: Scale) -> list[Measurement]:
    """``optimize_acqf`` with our acquisition and our ``gen_candidates``."""
    bound = partial(GPUpperConfidenceBound, width=WIDTH)
    own: dict[str, Any] = {"gen_candidates": gen_candidates_batched}
    return [
        _search(scale, "acqf-own", *size, bound, 12, 1e-6, (3, 6) if size[1] <= 6 else (1,), **own)
        for size in (*SIZES, (200, 21), (200, 40))
    ]


def _search(
    scale: Scale,
    name: str,
    num_rows: int,
    dim: int,
    build: Callable[[Model], Any],
    num_seeds: int,
    tolerance: float,
    goals: tuple[float, ...],
    **options: Any,
) -> Measurement:
    """Against BoTorch's UCB on its own model."""
    rows = scale.of(num_rows, 30)
    X, Y = smooth_data(rows, dim, scale.seed)
    bounds = torch.tensor([[0.0] * dim, [1.0] * dim], dtype=torch.float64)
    # in many dimensions points are farther apart
    lengthscale = 0.4 * max(1.0, (dim / 6.0) ** 0.5)
    theirs, ours = (model(X, Y, lengthscale) for model in (their_model, our_model))
    timings = [
        compare(
            lambda s=s: maximize(their_bound(theirs), bounds, s)[1],  # type: ignore[misc]
            lambda s=s: maximize(build(ours), bounds, s, **options)[1],  # type: ignore[misc]
            1 if num_seeds > 3 else scale.few_repeats,
        )
        for s in range(scale.of(num_seeds, 2))
    ]
    return Measurement(
        f"{name}: n = {rows}, d = {dim}",
        median(each.ordinary for each in timings),
        median(each.ours for each in timings),
        goals,
        difference=max(float(each.ordinary_result - each.our_result) for each in timings),
        tolerance=tolerance,
        note=WORSE,
    )


def replicates_on_a_box(scale: Scale) -> list[Measurement]:
    """One more round in each of 25 replicates with 50 rows: a row, then the largest bound.

    All replicates at once against one after another, each with a model and a search of its own.
    """
    count, rows = scale.of(25, 3), scale.of(50, 10)
    X, Y = smooth_data(count * (rows + 1), 2, scale.seed)
    X, Y = X.reshape(count, rows + 1, 2), Y.reshape(count, rows + 1, 1)
    box = Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=NUM_RESTARTS, raw_samples=RAW_SAMPLES)
    seeds = [scale.seed + b for b in range(count)]
    player = build_box_engine(RECIPE, BOUND, box, seeds)
    assert player is not None
    for i in range(rows):
        player.observe(X[:, i], Y[:, i, 0])
    # one for each pass, for a row changes it
    players = [copy.deepcopy(player) for _ in range(scale.repeats + 1)]

    def ordinary() -> Tensor:
        found = [
            maximize(their_bound(their_model(X[b], Y[b])), box.bounds, seeds[b])[0]
            for b in range(count)
        ]
        return torch.cat(found).detach()

    def batched() -> Tensor:
        one = players.pop()
        one.observe(X[:, rows], Y[:, rows, 0])
        return one.choose(rows + 1)[0]

    def bounds(points: Tensor) -> Tensor:
        with torch.no_grad():
            each = (their_bound(their_model(X[b], Y[b]))(points[b : b + 1]) for b in range(count))
            return torch.cat(list(each))

    timing = compare(ordinary, batched, scale.repeats)
    worse = bounds(timing.ordinary_result) - bounds(timing.our_result)
    return [
        timing.line(
            f"replicates-n50: {count} replicates, {rows} + 1 rows, d = 2",
            4,
            7,
            difference=float(worse.max()),
            tolerance=1e-6,
            note=WORSE,
        )
    ]


# --- fits --------------------------------------------------------------------------------------

NEW_ROWS = 5
"""A warm fit starts from the hyperparameters of a fit to this many rows fewer."""


class _OrdinaryBanditGP(BanditGP):
    """The same model, fitted as BoTorch fits any other."""

    def custom_fit(self, mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
        return _fit_fallback(mll, **kwargs)


def refits(scale: Scale) -> list[Measurement]:
    """Cold and warm fits; both ways start from the same hyperparameters."""
    lines = []
    for num_rows, dim in SIZES:
        rows = scale.of(num_rows, 30)
        earlier = _model_to_fit(BanditGP, rows, dim, scale.seed, rows - NEW_ROWS)
        cold = copy.deepcopy(earlier.state_dict())
        warm = copy.deepcopy(_fit(earlier, cold).state_dict())
        repeats = scale.repeats if num_rows < 1000 else scale.few_repeats
        goals = ((4, 8) if num_rows < 1000 else (3, 5), (4, 10))
        models = [
            _model_to_fit(cls, rows, dim, scale.seed) for cls in (_OrdinaryBanditGP, BanditGP)
        ]
        for words, state, goal in zip(("cold", "warm"), (cold, warm), goals, strict=True):
            ways = [partial(_fit, model, state) for model in models]
            timing = compare(ways[0], ways[1], repeats)
            worse = objective(timing.ordinary_result) - objective(timing.our_result)
            lines.append(
                timing.line(
                    f"refit {words}: n = {rows}, d = {dim}",
                    *goal,
                    difference=max(0.0, worse),
                    tolerance=1e-5,
                    note="difference: how much smaller our objective is",
                )
            )
    return lines


def _model_to_fit(
    cls: type[BanditGP], rows: int, dim: int, seed: int, used: int | None = None
) -> BanditGP:
    X, Y = (data[:used] for data in smooth_data(rows, dim, seed))
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=dim)).double()
    kernel.base_kernel.register_constraint("raw_lengthscale", GreaterThan(1e-3))
    kernel.base_kernel.lengthscale = torch.full((dim,), 0.5, dtype=torch.float64)
    return cls(X, (Y - Y.mean()) / Y.std(), kernel=kernel, noise=0.1, learn_hyperparameters=True)


def _fit(model: BanditGP, state: dict[str, Any]) -> BanditGP:
    model.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def objective(model: ExactGP) -> float:
    """Return what a fit maximizes, by GPyTorch; a larger one is better."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    with torch.no_grad():
        value = float(mll(model(*model.train_inputs), model.train_targets))
    model.eval()
    return value


# --- many rows ---------------------------------------------------------------------------------

REPEATS = 1.5
"""By which factor the bound on regret may grow."""

SECONDS_OF_A_ROUND = 0.05
"""What a round may take, however many came before it."""


def rounds_without_end(scale: Scale) -> list[Measurement]:
    """Rounds that play points again: their cost in each decade, and what the loop keeps."""
    last = scale.of(100_000, 400)
    rule = ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=2.0, noise_bound=math.sqrt(NOISE), any_lambda=True
    )
    box = Box([[0.0, 0.0], [1.0, 1.0]])
    loop = BanditLoop(box, RECIPE, rule, seed=scale.seed, repeats=REPEATS)
    totals, spent = {}, 0.0
    for number, error in enumerate(normal_noise(last, scale.seed), 1):
        asking, query = timed(loop.ask)
        reward = float(torch.sin(6.0 * query.x[0]) * torch.cos(4.0 * query.x[1])) + error
        spent += asking + timed(partial(loop.tell, query.id, reward))[0]
        totals[number] = spent
    constants = loop.guarantee().constants
    choices = f"{constants['choices']:.0f} choices of at most {constants['most_choices']:.0f}"

    def opened() -> Tensor:
        again = BanditLoop(box, RECIPE, rule, seed=scale.seed, repeats=REPEATS)
        return rebuilt(again, loop.history).ask().x

    opening, next_point = timed(opened)
    tenth = last // 10
    rate = growth_exponent([tenth, last], [totals[tenth], spent])
    return [
        Measurement(
            f"rounds-without-end: {last} rounds on a box",
            SECONDS_OF_A_ROUND,
            (spent - totals[tenth]) / (last - tenth),
            (1,),
            difference=float((next_point - loop.ask().x).abs().max()),
            note=f"the ratio is {1000 * SECONDS_OF_A_ROUND:.0f} ms over a round of the last "
            f"decade; all rounds cost n^{rate:.2f} there; {choices}; the first point after "
            f"opening takes {opening:.1f} s",
        )
    ]
