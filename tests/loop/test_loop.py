"""The ask/tell loop: bookkeeping, reproducibility, guarantees."""

from __future__ import annotations

import inspect
import json
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from records import ON_BOXES, assert_same
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    DMMUpperConfidenceBound,
    FittedSingleTaskGP,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    RandomizedUpperConfidenceBound,
    RandomSearch,
)
from botorch_bandits.loop import Hallucinated
from botorch_bandits.loop.loop import read_history
from botorch_bandits.loop.settings import LoopSettings

UNIT_BOX = [[0.0, 0.0], [1.0, 1.0]]
GRID = torch.cartesian_prod(
    torch.linspace(0, 1, 6, dtype=torch.float64), torch.linspace(0, 1, 5, dtype=torch.float64)
)

ACQUISITIONS: dict[str, Any] = {
    "igp-ucb": ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=2.0, noise_bound=0.1, any_lambda=True
    ),
    "gp-ucb": GPUpperConfidenceBound.with_options(width=2.0),
    "gp-ts": GPThompsonSampling.with_options(rkhs_bound=1.0, noise_bound=0.1),
    "ei": LogExpectedImprovement.with_options(),
    "random": RandomSearch(),
}

MODELS: dict[str, Callable[[], Any]] = {
    "fixed": lambda: BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3),
    "refitted": lambda: BanditGP.with_kernel(
        ScaleKernel(MaternKernel(nu=2.5)), noise=0.01, refit_every=3
    ),
    "callable": lambda: FittedSingleTaskGP(UNIT_BOX),
}


def reward(x: Tensor) -> float:
    return float(torch.sin(5 * x[0]) - (x[1] - 0.4) ** 2)


def small_box() -> Box:
    return Box(UNIT_BOX, num_restarts=2, raw_samples=16)


def make_loop(domain: str, model: str, acquisition: str, **options: Any) -> BanditLoop:
    return BanditLoop(
        small_box() if domain == "box" else Arms(GRID),
        MODELS[model](),
        ACQUISITIONS[acquisition],
        **{"num_initial": 2, "seed": 7, **options},
    )


def play(loop: BanditLoop, num_rounds: int) -> None:
    """Ask two queries at a time and tell them in reverse order: always one pending."""
    waiting = [q.id for q in loop.history.pending()]
    while loop.history.num_queries < num_rounds:
        waiting.append(loop.ask().id)
        if len(waiting) == 2:
            query = loop.history.query(waiting.pop())
            loop.tell(query.id, reward(query.x))


def suggestions(loop: BanditLoop) -> list[list[float]]:
    return [query.x.tolist() for query in loop.history.queries]


class TestReproducibility:
    def test_new_process_suggests_the_same(self) -> None:
        program = (
            "import json, sys\n"
            "import torch\n"
            f"torch.set_num_threads({torch.get_num_threads()})\n"
            "sys.path[:0] = sys.argv[1:]\n"
            "from test_loop import make_loop, play, suggestions\n"
            "loops = [make_loop('box', 'refitted', name) for name in ('igp-ucb', 'gp-ts')]\n"
            "for loop in loops:\n"
            "    play(loop, 7)\n"
            "print(json.dumps([hash('text'), [suggestions(loop) for loop in loops]]))\n"
        )
        folder = str(__file__).rpartition("/")[0]
        output = subprocess.run(
            [sys.executable, "-c", program, folder, folder.rpartition("/")[0]],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": "1", "PATH": "", "OMP_NUM_THREADS": "1"},
        ).stdout
        other_hash, others = json.loads(output)
        assert other_hash != hash("text")
        loops = [make_loop("box", "refitted", name) for name in ("igp-ucb", "gp-ts")]
        for loop in loops:
            play(loop, 7)
        assert others == json.loads(json.dumps([suggestions(loop) for loop in loops]))

    def test_seed_changes_what_is_drawn(self) -> None:
        loops = [make_loop("box", "fixed", "gp-ts", seed=seed) for seed in (0, 1)]
        for loop in loops:
            play(loop, 4)
        assert suggestions(loops[0]) != suggestions(loops[1])


class TestAskAndTell:
    def test_model_without_data_starts_at_once(self) -> None:
        loop = make_loop("arms", "fixed", "igp-ucb", num_initial=0)
        query = loop.ask()
        assert query.origin == "acquisition"
        assert query.x.tolist() == GRID[0].tolist()  # all arms tie: the first

    def test_callable_model_waits_for_data(self) -> None:
        calls: list[int] = []

        def build(X: Tensor, Y: Tensor) -> Model:
            calls.append(len(X))
            return SingleTaskGP(X, Y)

        loop = BanditLoop(small_box(), build, ACQUISITIONS["gp-ucb"])
        first, second = loop.ask(), loop.ask()
        assert (first.origin, second.origin, calls) == ("initial", "initial", [])
        loop.tell(second.id, 1.0)
        assert loop.ask().origin == "acquisition"
        loop.ask()
        assert calls == [1]  # once per change of the data
        loop.tell(first.id, 0.5)
        loop.ask()
        assert calls == [1, 2]

    def test_callable_acquisition_gets_model_and_pending(self) -> None:
        seen: list[Tensor | None] = []

        def build(
            model: Model, X_pending: Tensor | None, best: float | None
        ) -> UpperConfidenceBound:
            seen.append(X_pending)
            return UpperConfidenceBound(model, beta=4.0)

        loop = BanditLoop(small_box(), MODELS["fixed"](), build)
        first = loop.ask()
        loop.ask()
        assert seen[0] is None
        assert torch.equal(seen[1], first.x.unsqueeze(0))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "value",
        [torch.tensor(0.1), np.float32(0.1), torch.tensor([0.1], requires_grad=True)],
        ids=repr,
    )
    def test_a_single_number_of_any_precision_is_told_exactly(self, value: Any) -> None:
        loop = make_loop("arms", "fixed", "random")
        query = loop.ask()
        expected = float(np.float32(0.1))
        assert loop.tell(query.id, value).reward == expected
        assert loop.tell(query.id, value) is loop.tell(query.id, expected)  # the same again
        assert loop.attach(loop.settings.domain.choices[0], value).reward == expected

    def test_a_failing_model_records_nothing(self) -> None:
        def broken(X: Tensor, Y: Tensor) -> Model:
            raise RuntimeError("no model today")

        loop = BanditLoop(small_box(), broken, ACQUISITIONS["gp-ucb"])
        loop.tell(loop.ask().id, 1.0)
        with pytest.raises(RuntimeError, match="no model today"):
            loop.ask()
        assert loop.history.num_queries == 1


@pytest.mark.filterwarnings("ignore::botorch_bandits.acquisition.AssumptionRefutedWarning")
def test_a_refuted_round_voids_the_bound_for_good() -> None:
    recipe = DMMUpperConfidenceBound.with_options(rkhs_bound=0.3, noise_bound=0.05)
    loop = BanditLoop(Arms(GRID), MODELS["fixed"](), recipe)
    for t in range(10):
        loop.tell(loop.ask().id, 1.0 if t < 3 else 0.0)
    widths = [q.diagnostics["width"] for q in loop.history.queries]
    assert min(widths) >= 0.0
    assert any(q.diagnostics["is_refuted"] for q in loop.history.queries)
    guarantee = loop.guarantee()
    assert not guarantee.holds
    assert guarantee.regret_bound is None
    assert "refuted the assumptions at this level in round" in guarantee.explain(10_000)


def test_regret_of_draws_is_bounded_as_the_theorems_have_it() -> None:
    box_options = {"smoothness_a": 1.0, "smoothness_b": 5.0}
    for domain, recipe, factor, tail in (
        (Arms(GRID), RandomizedUpperConfidenceBound.with_options(), 1.0, 0.0),
        (small_box(), GPUpperConfidenceBound.with_options(**box_options), 2.0, 1.0),
    ):
        loop = BanditLoop(domain, MODELS["fixed"](), recipe)
        for _ in range(3):
            loop.tell(loop.ask().id, 0.0)
        guarantee = loop.guarantee()
        assert guarantee.holds
        assert guarantee.regret is not None
        played = [q.diagnostics for q in loop.history.queries]
        widths = [d["width"] * d["standard_deviation"] for d in played]
        wanted = factor * sum(widths) + tail * sum(1.0 / t**2 for t in (1, 2, 3))
        assert guarantee.regret.bound == pytest.approx(wanted)
        # the expected regret is not the regret
        assert (guarantee.regret_bound is None) == (factor == 1.0)


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
@pytest.mark.parametrize("domain", ["box", "arms"])
def test_a_loop_can_be_pickled(domain: str, acquisition: str) -> None:
    loop = make_loop(domain, "fixed", acquisition)
    play(loop, 4)
    other = pickle.loads(pickle.dumps(loop))
    for each in (loop, other):
        play(each, 6)
    assert_same(suggestions(other), suggestions(loop), ON_BOXES)


def test_settings_are_listed_once(tmp_path: Path) -> None:
    """Constructor, settings and the storage's header have the same ones, with the same defaults."""
    parameters = inspect.signature(BanditLoop).parameters
    around = ["history", "storage"]  # they are no settings: suggestions do not depend on
    names = [name for name in parameters if name not in around]
    assert sorted(names) == sorted(field.name for field in fields(LoopSettings))
    for field in fields(LoopSettings):
        if field.name == "feedback":
            assert field.default_factory is Hallucinated
            assert parameters["feedback"].default is None  # stands for it
        elif field.name == "num_initial":
            assert parameters["num_initial"].default is None  # 0, or what suits the default
        elif field.default is not MISSING:
            assert parameters[field.name].default == field.default
    path = tmp_path / "run.db"
    with BanditLoop(small_box(), None, RandomSearch(), storage=path) as loop:
        assert isinstance(loop.settings.feedback, Hallucinated)
        assert not any(hasattr(loop, name) for name in names if name != "constraints")
    assert sorted(read_history(path)[0]) == sorted(names)


def test_attached_points_are_initial_rounds_and_are_told_like_asked_ones() -> None:
    loop = make_loop("arms", "fixed", "gp-ts")
    for arm in (3, 7):  # both initial rounds
        loop.attach(GRID[arm])
    assert loop.ask().origin == "acquisition"
    loop.tell(0, 0.3)
    arm = int(loop.settings.domain.index_of(loop.ask(avoid=[2, 3]).x.unsqueeze(0)))
    assert arm not in (2, 3)
    censored = make_loop("arms", "fixed", "igp-ucb", feedback=Censored(0.0, 1.0, max_delay=3))
    censored.attach(GRID[2])
    words = censored.guarantee().explain(10_000)
    assert "outcomes were attached" in words or "points were attached" in words
    assert "never lost" not in words
    censored.attach(GRID[4], 0.5)
    assert "never lost" in censored.guarantee().explain(10_000)


def test_a_script_that_attaches_its_data_again_is_warned_once(tmp_path: Path) -> None:
    rows = [([0.1], 1.0), ([0.4], 2.0), ([0.9], 1.5)]
    storage = tmp_path / "lab.db"

    def opened() -> BanditLoop:
        return BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch(), storage=storage)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with opened() as loop:
            for x, y in [*rows, rows[0]]:  # a repeated measurement within one script
                loop.attach(x, y)
        with opened() as loop:
            loop.attach([0.1], 1.25)  # a new measurement at an old point
            loop.attach([0.2], 1.0)
    with opened() as loop:
        with pytest.warns(UserWarning, match=r"x=\[0\.4\].*query 1\).*num_queries:"):
            loop.attach(*rows[1])
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            loop.attach(*rows[2])
        assert loop.history.num_arrived == 8


def interrupted_after(count: int, call: Callable[[], Any]) -> bool:
    """Call a function, with an interrupt after so many of its calls; return whether it ended."""
    left = count

    def interrupt(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        left -= event in ("call", "c_return")
        if left < 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        call()
    except KeyboardInterrupt:
        return False
    finally:
        sys.setprofile(None)
    return True


@pytest.mark.parametrize("told", ["outcome", "failure"])
def test_an_interrupt_at_any_call_leaves_an_event_on_record_as_a_whole_or_not_at_all(
    told: str,
) -> None:
    def begun() -> BanditLoop:
        loop = BanditLoop(
            Arms([[0.0], [1.0]]), None, RandomSearch(), constraints=AdditiveEpochs(1, 2), seed=3
        )
        for value in (1.0, 0.5, 2.0):
            loop.tell(loop.ask(at=0.0).id, 0.0, [value], at=1.0)
        loop.ask(at=2.0)
        return loop

    def end(loop: BanditLoop) -> None:
        if told == "outcome":
            loop.tell(3, -1.0, [0.75], count=2, at=3.0)
        else:
            loop.fail(3, "why", [0.75], at=3.0)

    whole = begun()
    end(whole)
    has_ended, count = False, 0
    while not has_ended:
        loop = begun()
        has_ended = interrupted_after(count, lambda loop=loop: end(loop))  # type: ignore[misc]
        count += 1
        end(loop)
        assert loop.history.to_records() == whole.history.to_records()
        assert loop.history.num_arrived == whole.history.num_arrived
        assert loop.multipliers == whole.multipliers
        assert loop.ledger().constraints.tolist() == [[1.0], [0.5], [2.0], [0.75]]
    assert count > 20
