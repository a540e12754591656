"""Runs: workers, errors, failures, interrupts, leases, and what they return."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    EvaluationError,
    Float,
    GPUpperConfidenceBound,
    RandomSearch,
    Space,
    run,
)
from botorch_bandits.problems import ArmsProblem, ConstantDelay
from botorch_bandits.running import ByRound, NoGain, end_with_parent

ARMS = Arms(torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(-1))
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2)
UCB = GPUpperConfidenceBound.with_options(width=2.0)
FAILED = pytest.mark.filterwarnings("ignore:.*It is recorded as failed:RuntimeWarning")
WAYS: dict[str, dict[str, Any]] = {"in turn": {}, "threads": {"workers": 1}}
both = pytest.mark.parametrize("way", WAYS)


def value(x: Tensor) -> float:
    return -float((x[-1] - 0.3) ** 2)


class Flaky:
    """Raises in some of its calls, counted from 1."""

    def __init__(self, *bad_calls: int, error: type[BaseException] = OSError) -> None:
        self.bad_calls, self.error = bad_calls, error
        self.points: list[list[float]] = []

    def __call__(self, x: Tensor) -> float:
        self.points.append(x.tolist())
        if len(self.points) in self.bad_calls:
            raise self.error("no such machine")
        return value(x)


def random_loop(**more: Any) -> BanditLoop:
    return BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch(), **more)


def arms_loop(**more: Any) -> BanditLoop:
    return BanditLoop(ARMS, MODEL, UCB, **more)


def play(
    loop: BanditLoop, function: Any, num_rounds: int, way: str = "in turn", **more: Any
) -> Any:
    return run(loop, function, num_rounds, progress=False, **WAYS[way], **more)


# --- what it returns ----------------------------------------------------------------------------


def test_the_result_has_the_best_point_the_table_the_figure_and_the_guarantee() -> None:
    pytest.importorskip("pandas")
    plt = pytest.importorskip("matplotlib.pyplot")
    loop = BanditLoop(Space({"rate": Float(0.0, 1.0)}), None, RandomSearch(), maximize=False)
    result = play(loop, lambda p: (p["rate"] - 0.5) ** 2, 6)
    rewards = [outcome.reward for outcome in loop.history.outcomes]
    assert result.best_reward == min(rewards)
    (best,) = [q for q in loop.history.queries if rewards[q.id] == min(rewards)]
    assert result.best_parameters == best.parameters
    assert result.to_dataframe()["rate"].tolist() == [q.x.item() for q in loop.history.queries]
    assert result.best_so_far.tolist() == [min(rewards[: i + 1]) for i in range(6)]
    assert [ax.get_xlabel() for ax in result.plot(title="mine")] == ["round", "rate"]
    plt.close("all")
    assert not result.guarantee().holds
    assert repr(result) == "RunResult(6 rounds, History(6 queries, 6 arrived))"
    on_box = play(random_loop(), value, 3)
    assert [on_box.best_parameters] == [
        q.x.tolist() for q in on_box.queries if value(q.x) == on_box.best_reward
    ]
    empty = play(random_loop(), value, 0)
    assert (empty.best_parameters, empty.best_reward, len(empty.rewards)) == (None, None, 0)


@pytest.mark.parametrize("way", ["in turn", "threads", "by round"])
@pytest.mark.parametrize("context_dim", [0, 1])
def test_a_function_is_given_a_tensor_however_it_is_run(way: str, context_dim: int) -> None:
    """One function works everywhere: a float64 tensor of one dimension, the context in front."""
    seen: list[Any] = []

    def reward(x: Any, *others: Any) -> Tensor:
        seen.append(x)
        return x.sum().float().requires_grad_()

    box = Box([(-1.0, 1.0), (2.0, 3.0)])
    loop = BanditLoop(box, None, RandomSearch(), context_dim=context_dim)
    contexts = torch.full((3, 1), 7.0, dtype=torch.float64) if context_dim else None
    function = ByRound(reward) if way == "by round" else reward
    play(loop, function, 3, "threads" if way == "threads" else "in turn", contexts=contexts)
    for query, x in zip(loop.history.queries, seen, strict=True):
        assert isinstance(x, Tensor)
        assert (x.dtype, x.shape) == (torch.float64, (context_dim + 2,))
        assert x.tolist() == [7.0] * context_dim + query.x.tolist()
        outcome = loop.history.outcome(query.id)
        assert outcome is not None
        assert outcome.reward == float(x.sum().float())


def test_a_function_may_know_the_round_also_when_its_outcome_comes_late() -> None:
    function = ByRound(lambda x, round_number: float(x) + 10.0 * round_number)
    loop = random_loop()
    play(loop, function, 5, delays=ConstantDelay(3))
    play(loop, function, 2, "threads")  # goes on with what was pending
    for query in loop.history.queries:
        outcome = loop.history.outcome(query.id)
        assert outcome is not None
        assert outcome.reward == float(query.x) + 10.0 * query.round_number


def test_the_progress_bar_shows_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    result = run(random_loop(), value, 5)
    assert f"best={result.best_reward:.6g}" in capsys.readouterr().err


def test_without_tqdm_a_run_is_silent_unless_a_bar_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    run(random_loop(), value, 2)
    assert capsys.readouterr() == ("", "")
    loop = random_loop()
    with pytest.raises(ImportError, match=r"botorch_bandits\[progress\]"):
        run(loop, value, 2, progress=True)
    assert loop.history.num_queries == 0


# --- workers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [None, lambda: ThreadPoolExecutor(3)], ids=["own", "given"])
def test_so_many_are_evaluated_at_once(executor: Any) -> None:
    together, most = threading.Barrier(3), []
    loop = random_loop()

    def wait_for_all(x: Tensor) -> float:
        most.append(loop.history.num_pending)
        together.wait(30.0)
        return value(x)

    given = {"workers": 3} if executor is None else {"executor": executor()}
    play(loop, wait_for_all, 6, **given)
    assert max(most) <= 3
    assert loop.history.num_arrived == 6


@pytest.mark.slow
def test_processes_of_the_standard_library_and_of_joblib() -> None:
    loop = random_loop()
    with ProcessPoolExecutor(2, get_context("fork"), initializer=end_with_parent) as processes:
        play(loop, value, 4, executor=processes)
        with pytest.raises(Exception, match="pickle") as caught:
            play(loop, lambda x: 0.0, 2, executor=processes)
        assert "stays pending" in caught.value.__notes__[0]
    loky = pytest.importorskip("joblib").externals.loky
    play(loop, lambda x: value(x), 4, executor=loky.get_reusable_executor(2))
    assert loop.history.num_arrived == loop.history.num_queries == 10
    for query in loop.history.queries:
        outcome = loop.history.outcome(query.id)
        assert outcome is not None
        assert outcome.reward == value(query.x)


class ByHand:
    """An executor of another library, whose tasks end when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, function: Any, /, *args: Any) -> Future[Any]:
        self.tasks.append((Future(), lambda: function(*args)))
        return self.tasks[-1][0]

    def end(self, number: int) -> None:
        future, evaluate = self.tasks[number]
        future.set_result(evaluate())


def test_what_arrives_while_a_point_is_chosen_is_told_before_the_next_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a process that is killed in one of several choices would lose it."""
    loop, workers, seen = random_loop(), ByHand(), []
    ask = loop.ask

    def slow_ask(*args: Any, **kwargs: Any) -> Any:
        seen.append(loop.history.num_arrived)
        query = ask(*args, **kwargs)
        if query.id >= 2:  # while this point is chosen, the result of the one before it arrives
            workers.end(query.id - 2)
        if query.id == 5:
            workers.end(4)
        return query

    monkeypatch.setattr(loop, "ask", slow_ask)
    submit = workers.submit
    last = lambda: len(workers.tasks) == 6 and workers.end(5)  # noqa: E731
    monkeypatch.setattr(workers, "submit", lambda *a: (submit(*a), last())[0])
    with pytest.raises(ValueError, match=r"workers is missing: <.*ByHand"):
        play(loop, value, 6, executor=workers)
    play(loop, value, 6, executor=workers, workers=4)
    assert seen == [0, 0, 0, 1, 2, 3]
    assert loop.history.num_arrived == 6


def test_what_somebody_else_told_meanwhile_is_kept() -> None:
    loop, seen = random_loop(), []

    def tell_first(x: Tensor) -> float:
        (query,) = [q for q in loop.history.queries if q.x.equal(x)]
        if query.id == 0:
            loop.tell(query.id, 5.0)
        if query.id == 1:
            loop.fail(query.id, "somebody knew")
        return 1.0

    play(loop, tell_first, 4, workers=2, callbacks=lambda query, event: seen.append(query.id))
    assert [loop.history.state(i) for i in range(4)] == ["told", "failed", "told", "told"]
    assert sorted(outcome.reward for outcome in loop.history.outcomes) == [1.0, 1.0, 5.0]
    assert sorted(seen) == [2, 3]


def test_contexts_constraints_and_pending_queries_reach_the_function() -> None:
    rule = AdditiveEpochs(2, 4)
    loop = BanditLoop(ARMS, None, RandomSearch(), constraints=rule, context_dim=1)
    loop.ask([7.0])

    def evaluate(x: Tensor) -> tuple[float, list[float]]:
        return float(x[0]), [float(x[1]), 0.0]

    contexts = lambda t: double([float(t)])  # noqa: E731
    seen: list[Any] = []
    note = lambda query, event: seen.append(query.id)  # noqa: E731
    play(loop, evaluate, 5, workers=3, contexts=contexts, callbacks=(note,))
    for query in loop.history.queries:
        outcome = loop.history.outcome(query.id)
        assert outcome is not None
        assert outcome.reward == (7.0 if query.id == 0 else query.round_number)
        assert outcome.constraints == (float(query.x[0]), 0.0)
    assert set(seen) == set(range(6))
    short = torch.ones(6, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="contexts has 6 rows"):
        play(loop, evaluate, 1, workers=1, contexts=short)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
class TestDask:
    def test_equal_points_are_evaluated_each_time(self, client: Any, tmp_path: Path) -> None:
        """Dask takes equal calls for one; on arms points come again."""
        folder = str(tmp_path)

        def count(x: Tensor) -> float:
            import uuid
            from pathlib import Path

            (Path(folder) / uuid.uuid4().hex).touch()
            return -float((x[-1] - 0.3) ** 2)

        for number, executor in enumerate((client, client.get_executor()), start=1):
            loop = arms_loop()
            play(loop, count, 12, executor=executor, workers=2)
            assert loop.history.num_arrived == 12
            assert len(list(tmp_path.iterdir())) == 12 * number
            assert len({tuple(query.x.tolist()) for query in loop.history.queries}) < 12


# --- errors -------------------------------------------------------------------------------------


@both
def test_an_error_ends_the_run_and_its_query_stays_pending(way: str) -> None:
    loop, function = random_loop(), Flaky(3)
    with pytest.raises(OSError, match="no such machine") as caught:
        play(loop, function, 6, way)
    assert (loop.history.num_arrived, loop.history.num_pending) == (2, 1)
    (note,) = caught.value.__notes__
    assert note.startswith("Query 2 at tensor([")
    assert "catch=(OSError,)" in note
    result = play(loop, function, 3, way)  # the machine is there again
    assert function.points[3] == function.points[2]
    assert (loop.history.num_arrived, loop.history.num_failed) == (6, 0)
    assert [query.id for query in result.queries] == [2, 3, 4, 5]


@both
@FAILED
def test_errors_that_are_caught_are_failures_with_their_traceback(way: str) -> None:
    loop, function, events = random_loop(), Flaky(2, 5), []
    note = lambda query, event: events.append((query.id, type(event).__name__))  # noqa: E731
    play(loop, function, 6, way, catch=(OSError,), callbacks=(note,))
    history = loop.history
    states = ["told", "failed", "told", "told", "failed", "told"]
    assert [history.state(i) for i in range(6)] == states
    assert events == [(i, "Failure" if i in (1, 4) else "Outcome") for i in range(6)]
    assert all(failure.avoided for failure in history.failures)
    assert history.queries[1].x.tolist() == function.points[1]  # it stays on record
    first, *rest = str(history.failures[0].reason).splitlines()
    assert first == "OSError: no such machine"
    assert any('raise self.error("no such machine")' in line for line in rest)
    with pytest.raises(KeyError):
        play(loop, Flaky(1, error=KeyError), 1, way, catch=OSError)


@both
@pytest.mark.parametrize(
    ("returned", "error", "reason"),
    [
        (float("nan"), EvaluationError, "reward is nan; it must be finite"),
        (1e60, EvaluationError, "its absolute value must be at most 1e"),
        (None, TypeError, "reward must be one number, got None"),
        ((1.0, [0.0]), TypeError, "reward must be one number"),
    ],
    ids=str,
)
@FAILED
def test_a_bad_number_may_fail_but_no_number_is_an_error_of_the_function(
    way: str, returned: Any, error: type[Exception], reason: str
) -> None:
    loop = random_loop()
    with pytest.raises(error, match=reason):
        play(loop, lambda x: returned, 2, way)
    assert loop.history.num_pending == 1
    if error is TypeError:
        with pytest.raises(TypeError, match=reason):
            play(loop, lambda x: returned, 2, way, catch=ValueError)
        return
    play(loop, lambda x: returned, 1, way, catch=ValueError)
    assert [failure.query_id for failure in loop.history.failures] == [0, 1]
    assert reason in str(loop.history.failures[0].reason)


@both
@FAILED
def test_ten_failures_in_a_row_end_the_run(way: str) -> None:
    loop, function = random_loop(), Flaky(*range(4, 99))
    with pytest.raises(EvaluationError, match=r"10 evaluations in a row failed.*no such machine"):
        play(loop, function, 50, way, catch=OSError)
    assert (loop.history.num_arrived, loop.history.num_failed) == (3, 10)
    play(loop, value, 2, way)  # it can be repaired
    assert (loop.history.num_arrived, loop.history.num_pending) == (5, 0)


def test_a_reward_below_the_stated_minimum_is_never_recorded_as_a_failure() -> None:
    """The evaluation was right, and the setting is wrong."""
    loop = arms_loop(feedback=Censored(minimum=-0.05, outcome_bound=1.0))
    with pytest.raises(ValueError, match=r"is -0\..*, below minimum=-0\.05"):
        play(loop, value, 12, catch=Exception)
    assert (loop.history.num_failed, loop.history.num_pending) == (0, 1)


@FAILED
def test_failures_become_known_after_the_delay_of_their_outcome() -> None:
    loop = random_loop()
    result = play(loop, Flaky(2), 6, delays=ConstantDelay(3), catch=OSError)
    (failure,) = loop.history.failures
    assert (failure.query_id, failure.arrived_round) == (1, 4)
    assert torch.isnan(result.rewards[1])
    assert torch.isinf(result.arrivals[1])


@both
def test_an_error_of_a_callback_ends_the_run(way: str) -> None:
    """It is no evaluation that failed, and what was told before is on record."""

    def breaks(query: Any, event: Any) -> None:
        raise ValueError("of the callback")

    loop = random_loop()
    with pytest.raises(ValueError, match="of the callback"):
        play(loop, value, 3, way, catch=ValueError, callbacks=(breaks,))
    assert (loop.history.num_arrived, loop.history.num_failed) == (1, 0)


# --- interrupts and leases ----------------------------------------------------------------------


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_are_never_swallowed(way: str, error: type[BaseException]) -> None:
    loop, function = random_loop(), Flaky(3, error=error)
    with pytest.raises(error):
        play(loop, function, 6, way, catch=Exception)
    assert (loop.history.num_arrived, loop.history.num_pending) == (2, 1)
    play(loop, function, 3, way)
    assert function.points[3] == function.points[2]
    assert loop.history.num_arrived == 6


def test_an_interrupt_tells_what_has_arrived_and_the_run_goes_on(
    request: pytest.FixtureRequest,
) -> None:
    """Ctrl-C, while two of three are being evaluated."""
    # a process in the background of a shell ignores interrupts
    known = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, known))
    loop, is_over = random_loop(), threading.Event()
    main = threading.main_thread().ident

    def interrupted(x: Tensor) -> float:
        if loop.history.num_queries >= 3 and not is_over.is_set():
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
            is_over.wait(30.0)
        return value(x)

    with pytest.raises(KeyboardInterrupt):
        play(loop, interrupted, 20, workers=3)
    told, pending = loop.history.num_arrived, loop.history.pending()
    assert len(pending) > 0
    is_over.set()
    result = play(loop, value, 20 - loop.history.num_queries, workers=3)
    assert result.queries[: len(pending)] == pending
    assert loop.history.num_arrived == 20 == told + len(result.queries)


SCRIPT = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from botorch_bandits import BanditLoop, Box, RandomSearch, run
from botorch_bandits.running import end_with_parent

def slow(x):
    time.sleep(.05 if x < .5 else 600)
    return 1.0

if __name__ == "__main__":
    loop = BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch())
    processes = ProcessPoolExecutor(3, get_context("fork"), initializer=end_with_parent)
    try:
        run(loop, slow, 50, executor=processes, progress=False,
            callbacks=lambda *_: print(*processes._processes, flush=True))
    except KeyboardInterrupt:
        print("interrupted", loop.history.num_arrived > 0, loop.history.num_pending, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_an_interrupt_and_with_a_script_that_is_killed(
    tmp_path: Path, sent: signal.Signals
) -> None:
    """A terminal sends Ctrl-C to all processes; nobody waits for evaluations of minutes."""
    (tmp_path / "slow.py").write_text(SCRIPT, encoding="utf-8")
    root = str(Path(__file__).parents[1])
    script = subprocess.Popen(
        [sys.executable, "slow.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert script.stdout is not None
    assert script.stderr is not None
    workers = [int(each) for each in script.stdout.readline().split()]
    time.sleep(2.0)  # all of them are at a point that takes minutes
    if sent == signal.SIGINT:
        os.killpg(script.pid, sent)
        printed, errors = script.communicate(timeout=60.0)
        assert printed.splitlines()[-1] == "interrupted True 3"
        assert "Traceback" not in errors
    else:
        script.kill()
    script.wait(60.0)
    end = time.monotonic() + 30.0
    while any(Path(f"/proc/{each}").exists() for each in workers) and time.monotonic() < end:
        time.sleep(0.1)
    assert [each for each in workers if Path(f"/proc/{each}").exists()] == []


def test_queries_that_nobody_answered_fail_when_their_lease_ends() -> None:
    loop, before = random_loop(), time.time() - 700.0
    lost = [loop.ask(at=before), loop.attach([0.5], at=before)]  # by a machine that died
    recent = loop.ask()
    seen: list[Any] = []
    note = lambda query, event: seen.append((query.id, event.state))  # noqa: E731
    result = play(loop, value, 3, lease=600, callbacks=(note,))
    assert [each.id for each in result.queries] == [recent.id, 3, 4, 5]
    assert seen[:3] == [(lost[0].id, "failed"), (lost[1].id, "failed"), (recent.id, "told")]
    for failure in loop.history.failures:
        assert failure.reason == "no answer within 600 seconds"
        assert not failure.avoided  # it is not the point's fault
    with pytest.raises(ValueError, match="lease is 0"):
        play(loop, value, 1, lease=0)


def test_a_worker_that_hangs_holds_up_nothing() -> None:
    loop, is_over = random_loop(), threading.Event()

    def hang_once(x: Tensor) -> float:
        if loop.history.num_queries == 1:
            is_over.wait(30.0)
        return value(x)

    workers = ThreadPoolExecutor(2)
    play(loop, hang_once, 4, executor=workers, workers=1, lease=0.3)
    assert [loop.history.state(i) for i in range(4)] == ["failed", "told", "told", "told"]
    is_over.set()
    workers.shutdown()
    assert loop.history.num_failed == 1  # what comes late changes nothing


# --- when it is over ----------------------------------------------------------------------------


@both
def test_a_function_of_the_loop_ends_the_run(way: str) -> None:
    loop = random_loop()
    enough = lambda loop: "enough" if loop.history.num_arrived >= 4 else None  # noqa: E731
    result = play(loop, value, 10, way, stop=enough)
    assert result.stopped == "enough"
    assert repr(result).endswith("stopped: enough)")
    assert (loop.history.num_arrived, loop.history.num_pending) == (4, 0)
    assert len(play(loop, value, 10, way, stop=enough).queries) == 0
    assert play(loop, value, 2, way).stopped is None
    assert loop.history.num_arrived == 6


@both
@FAILED
def test_a_run_ends_without_gain_and_goes_on_with_a_larger_number(way: str) -> None:
    rewards = iter([5.0, 1.0, 7.0, 3.0, None, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    def function(x: Tensor) -> float:
        reward = next(rewards)
        if reward is None:
            raise OSError
        return reward

    loop = random_loop()
    result = play(loop, function, 12, way, stop=NoGain(3), catch=OSError)
    assert result.stopped == "no better reward in 3 rounds"
    assert loop.history.num_queries == 6  # a failure is a round, and an equal reward is no gain
    play(loop, function, 6, way, stop=NoGain(3), catch=OSError)
    assert loop.history.num_queries == 6
    result = play(loop, function, 6, way, stop=NoGain(4), catch=OSError)
    assert loop.history.num_queries == 11
    assert result.stopped == "no better reward in 4 rounds"


def test_initial_rounds_do_not_count_nor_attached_points() -> None:
    loop = arms_loop(num_initial=5)
    result = play(loop, lambda x: -float(loop.history.num_queries), 9, stop=NoGain(2))
    assert loop.history.num_queries == 7
    assert result.stopped is not None
    loop.attach(ARMS.choices[0], -50.0)
    assert NoGain(3)(loop) is None


# --- what is refused ----------------------------------------------------------------------------


def test_rewards_that_cannot_be_compared_end_no_run() -> None:
    loop = random_loop(context_dim=1)
    with pytest.raises(ValueError, match=r"stop is NoGain\(num_rounds=3\), but"):
        play(loop, value, 2, contexts=lambda t: torch.zeros(1), stop=NoGain(3))
    with pytest.raises(ValueError, match="num_rounds is 0"):
        NoGain(0)


def test_what_is_simulated_takes_no_workers() -> None:
    problem = ArmsProblem(ARMS.choices, ARMS.choices[:, 0])
    with pytest.raises(ValueError, match="simulated in this thread"):
        play(arms_loop(), problem, 1, workers=2)
    with pytest.raises(ValueError, match="simulated in this thread"):
        play(arms_loop(), value, 1, delays=ConstantDelay(2), executor=ThreadPoolExecutor(1))


def test_an_argument_that_does_not_exist_is_explained() -> None:
    with pytest.raises(TypeError, match=r"run has no argument 'on_error'\. Pass catch="):
        play(random_loop(), value, 1, on_error="skip")
    with pytest.raises(TypeError, match="run has no argument 'restrictions'"):
        play(random_loop(), value, 1, restrictions=value)
