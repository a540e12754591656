"""Loops on arms with contexts or forgetting choose as their models do, without building any."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from botorch.models.transforms import Normalize
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from pairwise import by_day, pairwise
from records import assert_same

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    History,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MeanOnly,
    OracleRestart,
    PrimalDual,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
    VarianceOnly,
)
from botorch_bandits.core import round_posterior
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.points_stream import PointsStream

ARMS = Arms(torch.rand(14, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64))
BOUNDS = {"rkhs_bound": 1.5, "noise_bound": 0.1}
IGP_UCB = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
PRODUCT = RBFKernel(active_dims=(0,)) * MaternKernel(nu=1.5, active_dims=(1,))
FORGETTING = {
    "all is kept": None,
    "window": SlidingWindow(6),
    "weights": ExponentialWeights(0.8),
    "time": TimeVaryingKernel(0.1),
}


def model(kernel: Kernel | None = None, **options: Any) -> Any:
    kernel = MaternKernel(nu=2.5) if kernel is None else kernel
    return BanditGP.with_kernel(kernel.double(), noise=0.05, **options)


def build(
    forgetting: str, num_contexts: int = 0, acquisition: Any = IGP_UCB, **options: Any
) -> BanditLoop:
    given = {"model": model(), "seed": 3, **options}
    return BanditLoop(
        ARMS,
        acquisition=acquisition,
        context_dim=num_contexts,
        forgetting=FORGETTING[forgetting],
        clock=lambda: 0.0,
        **given,
    )


def go_on(loop: BanditLoop, num_rounds: int, delayed: bool = False) -> None:
    """Contexts come again now and then; of delayed outcomes one of four is told."""
    for _ in range(num_rounds):
        t = loop.history.num_queries + 1
        context = [math.sin(3.0 * t) if t % 3 else 0.5]
        loop.ask(**({"context": context} if loop.settings.context_dim else {}))
        waiting = list(loop.history.pending())
        if delayed:
            waiting = [] if len(waiting) < 4 else [waiting[(5 * t) % 3]]
        for query in waiting:
            x = float(query.x[0])
            shift = 0.0 if query.context is None else x * float(query.context[0])
            told = {"constraints": [x - 0.6]} if loop.settings.constraints is not None else {}
            loop.tell(query.id, math.cos(5.0 * x) + shift + 0.1 * math.sin(9.0 * t), **told)


@contextmanager
def by_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(Chooser, "_new_stream", lambda self: None)
        yield


def has_rows(forgetting: str, num_contexts: int, delayed: bool) -> bool:
    """Whether more than arms and outcomes matters, so that there are rows to keep."""
    return forgetting != "all is kept" or num_contexts > 0


def in_turns(names: Iterable[str]) -> list[tuple[str, bool]]:
    """Each name once, with outcomes that are delayed and that are not in turns."""
    return [(name, bool(i % 2)) for i, name in enumerate(names)]


def assert_chooses_as_models_do(
    monkeypatch: pytest.MonkeyPatch, delayed: bool, num_rounds: int = 13, **options: Any
) -> None:
    with by_models(monkeypatch):
        known = build(**options)
        go_on(known, num_rounds, delayed)
        assert known._chooser._stream is None
    loop = build(**options)
    go_on(loop, num_rounds, delayed)
    assert isinstance(loop._chooser._stream, PointsStream)
    for ours, theirs in zip(loop.history.queries, known.history.queries, strict=True):
        assert torch.equal(ours.x, theirs.x)
        for name, value in theirs.diagnostics.items():
            assert ours.diagnostics[name] == pytest.approx(value, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(
    ("forgetting", "num_contexts", "delayed"),
    pairwise(list(FORGETTING), (0, 1), (False, True), allowed=has_rows),
)
def test_bounds_are_those_of_the_models(
    forgetting: str, num_contexts: int, delayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kernel in (None, PRODUCT)[: 1 + num_contexts]:
        options: dict[str, Any] = {"forgetting": forgetting, "num_contexts": num_contexts}
        options["model"] = model(kernel, prior_mean=0.3)
        assert_chooses_as_models_do(monkeypatch, delayed, **options)


OTHERS = {
    "improvement, window": (LogExpectedImprovement.with_options(), "window", 0),
    "observed improvement, window": (
        LogExpectedImprovement.with_options(incumbent="observed", maximize=False),
        "window",
        0,
    ),
    "improvement, weights": (LogExpectedImprovement.with_options(), "weights", 0),
    "variance, context": (VarianceOnly.with_options(), "all is kept", 1),
    "mean, time": (MeanOnly.with_options(maximize=False), "time", 1),
    "theorem 1, context": (GPUpperConfidenceBound.with_options(delta=0.1), "all is kept", 1),
    "minimized, weights": (
        GPUpperConfidenceBound.with_options(width=2.0, maximize=False),
        "weights",
        1,
    ),
}


@pytest.mark.parametrize(("name", "delayed"), in_turns(OTHERS))
def test_other_rules_are_those_of_the_models(
    name: str, delayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquisition, forgetting, num_contexts = OTHERS[name]
    assert_chooses_as_models_do(
        monkeypatch,
        delayed,
        acquisition=acquisition,
        forgetting=forgetting,
        num_contexts=num_contexts,
        num_initial=3,
    )


SETTINGS: dict[str, dict[str, Any]] = {
    "relabeled": {
        "forgetting": "window",
        "constraints": AdditiveEpochs(1, 4, surrogate="relabeled"),
    },
    "relabeled, context": {
        "forgetting": "all is kept",
        "num_contexts": 1,
        "constraints": AdditiveEpochs(1, 4, surrogate="relabeled"),
    },
    "fresh": {"forgetting": "time", "constraints": AdditiveEpochs(1, 5, surrogate="fresh")},
    "restart": {"forgetting": "weights", "restart": OracleRestart(change_points=(8,))},
    "restart, context": {
        "forgetting": "time",
        "num_contexts": 1,
        "restart": OracleRestart(change_points=(8,)),
    },
    "restart, relabeled, context": {
        "forgetting": "window",
        "num_contexts": 1,
        "restart": OracleRestart(change_points=(8,)),
        "constraints": AdditiveEpochs(1, 3, surrogate="relabeled"),
    },
    "ignored": {"forgetting": "window", "num_contexts": 1, "feedback": Ignored()},
    "transformed": {
        "forgetting": "time",
        "num_contexts": 1,
        "model": model(
            PRODUCT,
            input_transform=Normalize(2, bounds=torch.tensor([[-1.0, 0.0], [1.0, 2.0]]).double()),
        ),
    },
}


@pytest.mark.parametrize(("name", "delayed"), in_turns(SETTINGS))
def test_settings_combine(name: str, delayed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_chooses_as_models_do(monkeypatch, delayed, num_rounds=14, **SETTINGS[name])


LAGRANGIAN = LagrangianUpperConfidenceBound.with_options
APART: dict[str, dict[str, Any]] = {
    "epochs": {
        "acquisition": LAGRANGIAN(width=(1.5, 1.0)),
        "constraints": AdditiveEpochs(1, 4, surrogate="separate"),
    },
    "theorem, plug-in": {
        "acquisition": LAGRANGIAN(**BOUNDS, any_lambda=True, separate_bounds=True),
        "constraints": AdditiveEpochs(1, 4, surrogate="separate"),
        "num_initial": 2,
    },
    "every round": {
        "acquisition": LAGRANGIAN(width=1.0),
        "constraints": PrimalDual(1, 3.0, 5.0, reward_bound=1.0, constraint_bound=0.4),
        "num_initial": 3,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "forgetting", "num_contexts", "delayed"),
    pairwise(
        list(APART),
        list(FORGETTING),
        (0, 1),
        (False, True),
        allowed=lambda name, *others: has_rows(*others),
    ),
)
def test_reward_and_constraints_apart_are_those_of_the_models(
    name: str, forgetting: str, num_contexts: int, delayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uniform rounds too, whose lower bounds drive multipliers; and with a kernel each."""
    shape = torch.Size([2])
    each = RBFKernel(batch_shape=shape).double()
    each.lengthscale = torch.tensor([0.3, 0.6], dtype=torch.float64).view(-1, 1, 1)
    kernels = [None, each, PRODUCT if num_contexts else MaternKernel(nu=0.5)]
    # What a kernel changes does not depend on delays, and draws come from rounds without any.
    varied = name == "epochs" and not delayed
    for kernel in kernels if varied else kernels[:1]:
        options = {**APART[name], "forgetting": forgetting, "num_contexts": num_contexts}
        options["model"] = model(kernel, prior_mean=0.3 if kernel is None else 0.0)
        assert_chooses_as_models_do(monkeypatch, delayed, **options)
        if not delayed:
            assert_draws_are_described(options)


def assert_draws_are_described(options: dict[str, Any]) -> None:
    """Draws have other numbers than those of models, but the same means, deviations and score."""
    drawn = {**options, "acquisition": LagrangianThompsonSampling.with_options(width=(1.5, 1.0))}
    loop = build(**drawn)
    go_on(loop, 9)
    chooser = loop._chooser
    assert isinstance(chooser._stream, PointsStream)
    chooser.begin_round(10)
    context = torch.tensor([0.5]).double() if options["num_contexts"] else None
    domain = chooser._domain_in(context, 10)
    by_model = chooser._new_builder().build(chooser._played, 10, domain, 0.0)
    x, told = chooser._stream.choose(10, 0.0, context)
    whole = domain.sample(1, torch.Generator()).squeeze(0)
    whole[-1:] = x
    for key, value in by_model.describe(whole).items():
        if "draw" not in key and key != "acquisition_value":
            assert told[key] == pytest.approx(value, rel=1e-8, abs=1e-8), key
    seen, _ = chooser._stream._look(10, 0.0, context)
    multiplier = told["multiplier_1"] if "multiplier_1" in told else float(loop.multipliers[0])
    reward, constraint = seen.prepared.drawn(seen)
    expected = reward - multiplier * constraint
    assert torch.allclose(seen.scores, expected, rtol=0.0, atol=1e-12)


THOMPSON = {
    name: GPThompsonSampling.with_options(**BOUNDS, any_lambda=True, pending=name)
    for name in ("redraw", "hallucinate")
}


RULES = [(IGP_UCB, True), (THOMPSON["redraw"], False), (THOMPSON["hallucinate"], True)]
REBUILT: list[dict[str, Any]] = [
    *({"forgetting": f, "num_contexts": n} for f in FORGETTING for n in (0, 1)),
    *(SETTINGS[name] for name in SETTINGS if name != "ignored"),
]


@pytest.mark.parametrize(
    ("settings", "acquisition", "delayed"),
    [(settings, *RULES[i % 3]) for i, settings in enumerate(REBUILT)],
)
def test_a_rebuilt_loop_goes_on_to_the_last_bit(
    settings: dict[str, Any], acquisition: Any, delayed: bool
) -> None:
    whole = build(acquisition=acquisition, **settings)
    go_on(whole, 12, delayed)
    sizes = {
        "dim": 1,
        "context_dim": whole.settings.context_dim,
        "num_constraints": int("constraints" in settings),
    }
    records = whole.history.to_records()
    again = build(
        acquisition=acquisition, history=History.from_records(records, **sizes), **settings
    )
    go_on(whole, 3, delayed)
    go_on(again, 3, delayed)
    assert_same(again.history.to_records(), whole.history.to_records())


@pytest.mark.parametrize(
    ("name", "forgetting", "draws"), pairwise(list(APART), ("window", "time"), (False, True))
)
def test_a_rebuilt_loop_with_constraints_goes_on_to_the_last_bit(
    name: str, forgetting: str, draws: bool
) -> None:
    settings = {**APART[name], "forgetting": forgetting, "num_contexts": 1}
    if draws:
        settings["acquisition"] = LagrangianThompsonSampling.with_options(width=1.0)
    test_a_rebuilt_loop_goes_on_to_the_last_bit(settings, settings.pop("acquisition"), True)


CENSORED = Censored(minimum=-3.0, outcome_bound=6.0, max_delay=6)
CENSORED_WITH_BOUNDS = Censored(minimum=-3.0, outcome_bound=6.0, constraint_bounds=((-1.0, 1.0),))
CENSORED_ARMS: dict[str, tuple[str, int, dict[str, Any]]] = {
    **{
        f"{forgetting}, {n} contexts": (forgetting, n, {"feedback": CENSORED})
        for forgetting in FORGETTING
        for n in (0, 1)
        if forgetting != "all is kept" or n
    },
    **{
        f"{surrogate}, {forgetting}, {n} contexts": (
            forgetting,
            n,
            {
                "feedback": CENSORED_WITH_BOUNDS,
                "constraints": AdditiveEpochs(
                    num_constraints=1, epoch_length=4, step_size=0.3, surrogate=surrogate
                ),
            },
        )
        for surrogate in ("relabeled", "fresh")
        for forgetting, n in (
            ("all is kept", 0),
            ("all is kept", 1),
            ("window", 0),
            ("weights", 1),
            ("time", 0),
        )
    },
    "all deviations of the last rounds": (
        "all is kept",
        1,
        {"feedback": Censored(minimum=-3.0, outcome_bound=6.0, max_delay=3, window="all")},
    ),
    "lowered": (
        "weights",
        0,
        {"feedback": Censored(minimum=0.4, outcome_bound=6.0, on_lower="lower")},
    ),
    "another width": (
        "window",
        0,
        {
            "feedback": CENSORED,
            "acquisition": GPUpperConfidenceBound.with_options(delta=0.1),
        },
    ),
    "constant width": (
        "window",
        1,
        {
            "feedback": Censored(minimum=-3.0, max_delay=4),
            "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
        },
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", by_day(CENSORED_ARMS))
def test_censored_bounds_are_those_of_the_models(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgetting, num_contexts, settings = CENSORED_ARMS[name]
    options = {"forgetting": forgetting, "num_contexts": num_contexts, **settings}
    assert_chooses_as_models_do(monkeypatch, True, 16, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CENSORED_ARMS)
def test_a_rebuilt_censored_loop_goes_on_to_the_last_bit(name: str) -> None:
    forgetting, num_contexts, settings = CENSORED_ARMS[name]
    settings = {**settings, "forgetting": forgetting, "num_contexts": num_contexts}
    acquisition = settings.pop("acquisition", IGP_UCB)
    test_a_rebuilt_loop_goes_on_to_the_last_bit(settings, acquisition, True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("forgetting", FORGETTING)
def test_censored_draws_go_on_to_the_last_bit(forgetting: str) -> None:
    options = {"feedback": CENSORED, "forgetting": forgetting, "num_contexts": 1}
    draws = GPThompsonSampling.with_options(**BOUNDS, any_lambda=True)
    test_a_rebuilt_loop_goes_on_to_the_last_bit(options, draws, True)
    loop = build(acquisition=draws, **options)
    go_on(loop, 6, True)
    assert isinstance(loop._chooser._stream, PointsStream)
    assert len({query.diagnostics["pending"] for query in loop.history.queries}) > 2


@pytest.fixture
def as_on_many_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few arms take the way that pays on many: variances where bounds from some rows are large."""
    monkeypatch.setattr(round_posterior, "FEW_OPERATIONS", 0)
    monkeypatch.setattr(round_posterior, "TELLING_ROWS", 4)
    monkeypatch.setattr(round_posterior, "FIRST_CANDIDATES", 2)


MANY: dict[str, dict[str, Any]] = {
    "window": {"forgetting": "window"},
    "weights": {"forgetting": "weights"},
    "time": {"forgetting": "time"},
    "context": {"forgetting": "all is kept", "num_contexts": 1},
    "product": {"forgetting": "all is kept", "num_contexts": 1, "model": model(PRODUCT)},
    "window, context": {"forgetting": "window", "num_contexts": 1},
    "improvement": {
        "forgetting": "window",
        "acquisition": LogExpectedImprovement.with_options(),
        "num_initial": 3,
    },
    "deviation": {
        "forgetting": "weights",
        "acquisition": VarianceOnly.with_options(),
        "num_initial": 3,
    },
    "restart": SETTINGS["restart"],
    "relabeled": SETTINGS["relabeled"],
    "apart": {"forgetting": "window", **APART["epochs"]},
    "apart, every round": {"forgetting": "window", **APART["every round"]},
    "censored window": {"forgetting": "window", "feedback": CENSORED},
    "censored weights": {"forgetting": "weights", "feedback": CENSORED},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "delayed"), by_day(in_turns(MANY)))
def test_many_arms_choose_as_models_do(
    name: str, delayed: bool, as_on_many_arms: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_chooses_as_models_do(monkeypatch, delayed, num_rounds=24, **MANY[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "delayed"), in_turns(MANY))
def test_a_rebuilt_loop_on_many_arms_goes_on_to_the_last_bit(
    name: str, delayed: bool, as_on_many_arms: None
) -> None:
    settings = {"acquisition": IGP_UCB, **MANY[name]}
    test_a_rebuilt_loop_goes_on_to_the_last_bit(settings, settings.pop("acquisition"), delayed)


def test_randomized_widths_have_draws_of_their_own() -> None:
    loop = build("window", 1, RandomizedUpperConfidenceBound.with_options(num_arms=14))
    go_on(loop, 5)
    widths = [query.diagnostics["width"] for query in loop.history.queries]
    assert len(set(widths)) == 5


@pytest.mark.parametrize(
    "options",
    [
        {
            "feedback": Censored(minimum_proxy=1.0, max_delay=4),
            "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
        },
        {"feedback": Censored(minimum=-3.0, outcome_bound=6.0, predictive=True)},
        {"model": model(refit_every=4)},
        {"acquisition": LogExpectedImprovement.with_options(), "num_initial": 2},
        {
            "model": model(refit_every=4),
            "acquisition": LagrangianThompsonSampling.with_options(width=2.0),
            "constraints": AdditiveEpochs(1, 4, surrogate="separate"),
        },
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_what_needs_a_model_builds_one(options: dict[str, Any]) -> None:
    loop = build("all is kept", 1, **options)
    go_on(loop, 4)
    assert loop._chooser._stream is None


def test_many_arms_keep_columns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the largest matrix only the columns of arms that were played are kept."""
    monkeypatch.setattr("botorch_bandits.core.priors.LARGEST_MATRIX", 5)
    for kernel in (PRODUCT, None):
        options = {"model": model(kernel)}
        assert_chooses_as_models_do(monkeypatch, True, forgetting="time", num_contexts=1, **options)
