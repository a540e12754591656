"""What is of the wrong kind is refused at once, with its name and what to pass."""

import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_bandits import (
    Arms,
    BanditLoop,
    Box,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    OracleRestart,
    RandomSearch,
    run,
)
from botorch_bandits.change_points import calibrate_threshold
from botorch_bandits.loop import StorageError

BOX = Box([[0.0], [1.0]])
ARMS = Arms(torch.linspace(0.0, 1.0, 5, dtype=torch.float64).unsqueeze(-1))
DETECTOR = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.3)


def a_loop(**settings):
    return BanditLoop(BOX, None, RandomSearch(), **settings)


def zero(x):
    return 0.0


def a_calibration(detector=DETECTOR, **options):
    return calibrate_threshold(detector, ARMS, horizon=4, false_alarm_rate=0.5, **options)


def on_threads(loop, function=zero, workers=1, **options):
    return run(loop, function, 2, workers=workers, progress=False, **options)


CASES = {
    "a change point": (lambda: OracleRestart(change_points=60), "change_points is 60. Pass"),
    "a kernel for a detector": (
        lambda: ChangePointRestart(detector=MaternKernel()),
        "detector is MaternKernel",
    ),
    "an engine for a detector": (
        lambda: ChangePointRestart(detector=DETECTOR.on(ARMS)),
        "without .on",
    ),
    "one constraint detector": (
        lambda: ChangePointRestart(detector=DETECTOR, constraint_detectors=DETECTOR),
        "constraint_detectors is a ChangePointDetector. Pass a tuple",
    ),
    "what is no constraint detector": (
        lambda: ChangePointRestart(detector=DETECTOR, constraint_detectors=(3,)),
        r"constraint_detectors\[0\] is 3",
    ),
    "an engine to calibrate": (
        lambda: a_calibration(DETECTOR.on(ARMS), noise_std=0.1),
        "detector is .*without .on",
    ),
    "one function to calibrate with": (
        lambda: a_calibration(noise_std=0.1, functions=zero),
        "functions is .*Pass a list",
    ),
    "no pair of data": (lambda: a_calibration(data=3), "data is 3. Pass a pair"),
    "a flag for a factor": (lambda: Censored(minimum_proxy=True), "minimum_proxy is True; pass"),
    "no number of workers": (lambda: on_threads(a_loop(), workers="4"), "workers must be"),
    "no loop": (lambda: on_threads(RandomSearch()), "loop is RandomSearch.*Pass the BanditLoop"),
    "no callback": (lambda: on_threads(a_loop(), callbacks=4), "callbacks is 4, which"),
    "no rule": (lambda: on_threads(a_loop(), stop=4), "stop is 4, which"),
    "no function": (lambda: run(a_loop(), 3, 1, progress=False), "f is 3, which"),
    "no loop to run": (lambda: run(3, zero, 1, progress=False), "loop is 3. Pass"),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_kinds_are_named(case):
    call, message = CASES[case]
    with pytest.raises(TypeError, match=message):
        call()


def in_turn(loop, contexts):
    return run(loop, zero, 2, contexts=contexts, progress=False)


def on_workers(loop, contexts):
    return on_threads(loop, contexts=contexts)


@pytest.mark.parametrize("play", [in_turn, on_workers])
@pytest.mark.parametrize(
    ("context_dim", "contexts", "message"),
    [
        (0, [[0.0], [1.0]], "context_dim=0"),
        (1, None, "context is missing"),
        (1, [[0.0]], "contexts has 1 rows, but rounds up to 2"),
        (1, [[0.0], [float("nan")]], r"contexts\[1, 0\] is nan"),
        (1, [[0.0, 1.0], [0.0, 1.0]], "a matrix with 1 columns"),
    ],
    ids=["not wanted", "missing", "too few", "not finite", "too wide"],
)
def test_contexts_are_checked_before_anything_is_asked(play, context_dim, contexts, message):
    loop = a_loop(context_dim=context_dim)
    with pytest.raises(ValueError, match=message):
        play(loop, contexts)
    assert loop.history.num_queries == 0


def test_rows_of_numbers_are_contexts():
    loop = a_loop(context_dim=1)
    result = on_threads(loop, contexts=[[0.25], [0.75]])
    assert len(result.queries) == 2
    assert [query.context.item() for query in loop.history.queries] == [0.25, 0.75]


def test_storages_in_missing_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none is not a folder\. Make it"):
        a_loop(storage=tmp_path / "none" / "run.db")
    with pytest.raises(StorageError, match="it is not a file"):
        a_loop(storage=tmp_path)
    with a_loop(storage=tmp_path / "run.db") as loop:
        loop.ask()
    with pytest.raises(Exception, match=r"is closed\. Build"):
        loop.ask()


def test_a_loop_says_what_it_is():
    loop = a_loop()
    loop.tell(loop.ask().id, 1.0)
    assert repr(loop) == (
        "BanditLoop(Box([[0.0], [1.0]]), RandomSearch, History(1 queries, 1 arrived))"
    )


def test_a_query_in_place_of_its_id_is_refused():
    loop = a_loop()
    query = loop.ask()
    for tell in (lambda: loop.tell(query, 1.0), lambda: loop.fail(query)):
        with pytest.raises(TypeError, match=r"query_id is Query\(id=0.*pass its"):
            tell()
