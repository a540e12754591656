"""A thread that looks on while another asks and tells disturbs neither."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel
from pairwise import by_day
from records import ON_BOXES, assert_same, rebuilt

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    Domain,
    ImprovedUpperConfidenceBound,
    OracleRestart,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.history import Outcome
from botorch_bandits.loop import loop as readings
from botorch_bandits.loop.chooser import Chooser

CHOICES = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
DETECTOR = ChangePointDetector(
    MaternKernel(nu=2.5), lengthscale=0.3, ridge=0.5, threshold=PowerThreshold(0.05)
)
ARMS, BOX = Arms(CHOICES), Box([[0.0], [1.0]])


def build(domain: Domain = ARMS, **options: Any) -> BanditLoop:
    return BanditLoop(
        domain,
        BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3),
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1),
        **options,
    )


LOOPS: dict[str, Callable[[], BanditLoop]] = {
    "arms": build,
    "box": lambda: build(BOX),
    "censored": lambda: build(feedback=Censored(minimum=-2.0, outcome_bound=3.0)),
    "restart": lambda: build(restart=ChangePointRestart(detector=DETECTOR, exploration=2.0)),
    "oracle": lambda: build(restart=OracleRestart(change_points=(4,))),
    "constraints": lambda: build(constraints=AdditiveEpochs(1, epoch_length=2)),
    "restart and constraints": lambda: build(
        restart=ChangePointRestart(detector=DETECTOR, exploration=2.0),
        constraints=AdditiveEpochs(1, epoch_length=2),
    ),
}
READINGS: dict[str, Callable[[BanditLoop], Any]] = {
    "best": lambda loop: loop.best(),
    "resets": lambda loop: loop.resets,
    "multipliers": lambda loop: loop.multipliers,
    "change_tests": lambda loop: loop.change_tests,
    "guarantee": lambda loop: loop.guarantee(),
    "current_model": lambda loop: loop.current_model().num_outputs,
    "ledger": lambda loop: loop.ledger(),
    "feasibility": lambda loop: loop.feasibility(),
    "feedback_view": lambda loop: loop.feedback_view(),
    "repr": repr,
}
NEEDED = {"ledger": "constraints", "feasibility": "constraints", "feedback_view": "censored"}
PAIRS = [
    (loop, reading)
    for loop in LOOPS
    for reading in READINGS
    if NEEDED.get(reading, loop) in [*loop.split(" and "), loop]
]


def tell(loop: BanditLoop, query_id: int) -> Outcome:
    x = float(loop.history.query(query_id).x[0])
    constraints = [x - 0.4] if loop.settings.constraints is not None else None
    return loop.tell(query_id, x if query_id < 6 else -x, constraints=constraints)


def states_of(loop: BanditLoop) -> dict[str, Any]:
    """What can be read off a loop, in comparable form."""
    query, outcome = loop.best() or (None, None)
    return {
        "best": (query and query.id, outcome),
        "resets": loop.resets,
        "multipliers": loop.multipliers,
        "change_tests": loop.change_tests,
        "constants": dict(loop.guarantee().constants),
    }


def twin_of(loop: BanditLoop) -> BanditLoop:
    settings = {key: getattr(loop.settings, key) for key in ("feedback", "restart", "constraints")}
    return rebuilt(build(loop.settings.domain, **settings), loop.history)


@pytest.mark.parametrize(("name", "reading"), by_day(PAIRS))
def test_a_look_while_an_outcome_is_told(
    name: str, reading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader is held up after it read the history and before it hands on what it derived.

    An outcome that is told meanwhile has to wait for it, or the loop would go on with a state that
    lacks the outcome, and the next ``tell`` would fail although its outcome was recorded.
    """
    loop = LOOPS[name]()
    for _ in range(3):
        tell(loop, loop.ask().id)
    pending = [loop.ask().id, loop.ask().id]
    loop._cached_chooser = None  # as after a failure: whoever comes first derives the state anew
    reads, told = threading.Event(), threading.Event()
    reader_id: list[int] = []

    class SlowChooser(Chooser):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            if threading.get_ident() in reader_id:
                reads.set()
                told.wait(timeout=0.1)  # it waits in vain if the outcome has to wait

    monkeypatch.setattr(readings, "Chooser", SlowChooser)
    errors: list[BaseException] = []

    def look() -> None:
        reader_id.append(threading.get_ident())
        try:
            READINGS[reading](loop)
        except BaseException as error:
            errors.append(error)
        finally:
            reads.set()

    reader = threading.Thread(target=look)
    reader.start()
    assert reads.wait(timeout=30.0)
    tell(loop, pending[0])
    told.set()
    reader.join(timeout=30.0)
    assert errors == []
    tell(loop, pending[1])
    tell(loop, loop.ask().id)
    again = twin_of(loop)
    assert_same(states_of(loop), states_of(again), ON_BOXES)
    assert_same(loop.ask().x, again.ask().x, ON_BOXES)


@pytest.fixture
def fast_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("fast_switches")
@pytest.mark.parametrize("name", LOOPS)
def test_threads_that_look_on_change_nothing(name: str) -> None:
    """One thread a reading looks on all the time; the loop plays as one that nobody looks at."""
    alone = LOOPS[name]()
    num_rounds = 4 if name == "box" else 10
    for _ in range(num_rounds):
        tell(alone, alone.ask().id)
    loop = LOOPS[name]()
    errors: list[BaseException] = []
    is_over = threading.Event()

    def look(reading: Callable[[BanditLoop], Any]) -> None:
        try:
            while not is_over.wait(timeout=0.001):
                reading(loop)
        except BaseException as error:
            errors.append(error)

    looks = [READINGS[reading] for of, reading in PAIRS if of == name]
    readers = [threading.Thread(target=look, args=(reading,)) for reading in looks]
    for reader in readers:
        reader.start()
    try:
        for _ in range(num_rounds):
            query = loop.ask()
            loop._cached_chooser = None  # whoever comes first derives the state anew
            tell(loop, query.id)
    finally:
        is_over.set()
        for reader in readers:
            reader.join(timeout=60.0)
    assert errors == []
    assert_same(states_of(loop), states_of(alone), ON_BOXES)
    assert_same(loop.history.inputs(), alone.history.inputs(), ON_BOXES)
