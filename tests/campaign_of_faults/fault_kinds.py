"""Faults beside kills and cuts: full disks, hard links, signals, clocks, clusters and workers.

Each function does to a loop what its name says, again and again, and counts what was lost or
changed; a run that nothing happened to says what should be there.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.fault_cases import build, cut, num_steps, play, step
from benchmarks.power_cuts import PowerCuts, cut_power
from benchmarks.slow_function import slow_value
from botorch_bandits import BanditLoop, Box, RandomSearch, run_async
from botorch_bandits.journal import Journal, JournalError, TornTailWarning
from botorch_bandits.journal.salvage import read_remains
from botorch_bandits.loop.salvage import check_remains
from campaign_of_faults.hostile_files import KINDS, count_hostile


@dataclass
class KindCount:
    """What one kind of fault did.

    Attributes:
        fault: Its name.
        tried: How often.
        refused: How often something was refused with an error that says why.
        lost: Outcomes that are not on record although ``tell`` returned, and promises not kept.
        changed: Records or suggestions that differ from those of a run that was left alone.
        elsewhere: Files beside the run's own that were changed.
        hung: How often it took longer than half a minute.
        megabytes: What it took of memory at most, where that was watched.
    """

    fault: str
    tried: int = 0
    refused: int = 0
    lost: int = 0
    changed: int = 0
    elsewhere: int = 0
    hung: int = 0
    megabytes: float | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, changed, written elsewhere or waited for."""
        return not (self.lost or self.changed or self.elsewhere or self.hung)


def hostile_files(kind: str, num_files: int, seed: int = 0) -> KindCount:
    """Open mutated files; one that raises what is no refusal counts as changed."""
    found = count_hostile(kind, num_files, seed)
    count = KindCount(f"mutated: {kind}", found.opened, found.refused)
    count.changed, count.elsewhere = found.changed + found.crashed, found.elsewhere
    count.hung, count.megabytes = found.hung, round(found.megabytes, 1)
    return count


def full_disks(name: str = "arms, ucb", total: int = 9, every: int = 1) -> KindCount:
    """Let the disk be full at every byte of a journal, then free space and go on.

    Args:
        name: Of the loop's settings.
        total: How many records there are.
        every: At every so many bytes.
    """
    count, real = KindCount(f"disk full at every byte: {name}"), os.write
    left = [0]

    def write(descriptor: int, content: Any) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(descriptor, bytes(content)[: left[0]])
        left[0] -= written
        return written

    with tempfile.TemporaryDirectory() as folder, _no_synchronizing():
        path = Path(folder) / "run.journal"
        with build(name, journal=path) as loop:
            play(loop, total)
        whole = cut(path.read_bytes(), total)
        begin = len(cut(whole, 0))
        for size in range(0, len(whole) - begin + 1, every):
            path.write_bytes(whole[:begin])
            with build(name, journal=path) as loop:
                left[0], done = size, 0
                os.write = write
                try:
                    while num_steps(loop.history) < total:
                        step(loop)
                        done = num_steps(loop.history)
                except JournalError:
                    count.refused += 1
                finally:
                    os.write = real
                count.tried += 1
                count.lost += max(done - num_steps(loop.history), 0)
                count.changed += num_steps(loop.history) != done
                on_disk = path.read_bytes()
                count.changed += on_disk != cut(whole, done)
                play(loop, total)
            count.changed += cut(path.read_bytes(), total) != whole
            for other in Path(folder).iterdir():
                count.elsewhere += other.name not in ("run.journal", "run.journal.lock")
    return count


def hard_links(num: int = 50, seed: int = 0) -> KindCount:
    """Put names of a user's file where a journal writes, and open it under other names."""
    count, chance = KindCount("hard and symbolic links"), random.Random(seed)
    own = b"a file of the user\n"
    for i in range(num):
        with tempfile.TemporaryDirectory() as name, _no_synchronizing():
            folder = Path(name)
            (folder / "victim").write_bytes(own)
            path = folder / "run.journal"
            with Journal.create(path, {}) as journal:
                for k in range(3):
                    journal.append({"k": k})
            content = path.read_bytes()
            path.write_bytes(content + b"99 torn")
            ending = (".lock", ".snapshot", ".snapshot.new", f".cut-{len(content)}")[i % 4]
            beside = path.with_name(path.name + ending)
            beside.unlink(missing_ok=True)
            link = os.link if chance.random() < 0.5 else os.symlink
            link(folder / "victim", beside)
            count.tried += 1
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with Journal.open(path) as journal:
                        os.link(path, folder / "other name")
                        try:
                            Journal.open(folder / "other name").close()
                            count.changed += 1  # two writers
                        except JournalError:
                            count.refused += 1
                        journal.write_snapshot({}, 2)
                        journal.append({"k": 3})
            except JournalError:
                count.refused += 1
            count.elsewhere += (folder / "victim").read_bytes() != own
            found = [record["k"] for record in Journal.read(path).records()]
            count.lost += found[:3] != [0, 1, 2]
    return count


def signals(name: str = "arms, ucb", num: int = 300) -> KindCount:
    """Have a handler ask and tell in the middle of asking and telling."""
    count = KindCount(f"signals: {name}")
    with tempfile.TemporaryDirectory() as folder, _no_synchronizing():
        path = Path(folder) / "run.journal"
        told: dict[int, float] = {}
        with build(name, journal=path) as loop:

            def handle(number: int, frame: FrameType | None) -> None:
                count.tried += 1
                if count.tried % 2:
                    loop.ask()
                elif waiting := loop.history.pending():
                    told[waiting[-1].id] = loop.tell(waiting[-1].id, 0.25).reward

            before = signal.signal(signal.SIGALRM, handle)
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
            deadline = time.monotonic() + 60.0
            try:
                while count.tried < num and time.monotonic() < deadline:
                    query = loop.ask()
                    try:
                        told[query.id] = loop.tell(query.id, 0.5).reward
                    except ValueError:
                        count.refused += 1  # the handler was faster
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                signal.signal(signal.SIGALRM, before)
            count.hung = int(time.monotonic() > deadline)
            records = json.dumps(loop.history.to_records())
        with build(name, journal=path, verify="all") as again:
            count.changed += json.dumps(again.history.to_records()) != records
            for query_id, reward in told.items():
                outcome = again.history.outcome(query_id)
                count.lost += outcome is None or outcome.reward != reward
    return count


def clocks(name: str = "arms, censored", num: int = 60, seed: int = 0) -> KindCount:
    """Let the clock jump back and forth, and open the loop anew after each step."""
    count, chance = KindCount(f"clocks that go backwards: {name}"), random.Random(seed)
    times = [chance.uniform(-1e6, 2e9) for _ in range(10 * num)]

    def clock_of(loop: list[BanditLoop]) -> Callable[[], float]:
        return lambda: times[num_steps(loop[0].history)]

    def opened(path: Path) -> BanditLoop:
        loop = build(name, journal=path)
        loop._clock = clock_of([loop])
        return loop

    with tempfile.TemporaryDirectory() as folder, _no_synchronizing(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole, path = Path(folder) / "whole.journal", Path(folder) / "run.journal"
        with opened(whole) as loop:
            play(loop, num)
        for _ in range(num):
            with opened(path) as loop:
                step(loop)
            count.tried += 1
        count.changed += whole.read_bytes() != path.read_bytes()
        with build(name, journal=path, verify="all") as loop:
            count.lost += num_steps(loop.history) != num
    return count


def dask_cluster(
    num_rounds: int = 60, num_kills: int = 6, kill_scheduler: bool = False
) -> KindCount:
    """Kill the processes of a Dask cluster while a loop runs on it.

    Args:
        num_rounds: Of the loop.
        num_kills: How often a worker, or the scheduler, is killed.
        kill_scheduler: Which of them. A new cluster then goes on with the journal.
    """
    what = "scheduler" if kill_scheduler else "workers"
    count, chance = KindCount(f"Dask cluster of processes: {what} killed"), random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        path, told = Path(name) / "run.journal", {}

        def note(query: Any, event: Any) -> None:
            if hasattr(event, "reward"):
                told[query.id] = event.reward

        while True:
            with BanditLoop.open(path, Box([[0.0], [1.0]]), None, RandomSearch()) as loop:
                left = num_rounds - loop.history.num_queries
                if left <= 0 and not loop.history.num_pending:
                    break
                with _cluster(Path(name)) as (client, processes):
                    ending = _Killer(processes, chance, kill_scheduler, num_kills - count.tried)
                    try:
                        with ending:
                            run_async(
                                loop,
                                slow_value,
                                client.get_executor(),
                                max_pending=4,
                                num_rounds=max(left, 0),
                                on_error="retry:5",
                                progress=False,
                                on_round=note,
                                timeout=25.0 if kill_scheduler else 120.0,
                            )
                    except Exception:  # the cluster is gone
                        count.refused += 1
                    count.tried += ending.count
        with BanditLoop.open(path, Box([[0.0], [1.0]]), None, RandomSearch(), verify="all") as loop:
            history = loop.history
            count.lost += num_rounds - history.num_queries
            for query_id, reward in told.items():
                outcome = history.outcome(query_id)
                count.lost += outcome is None or outcome.reward != reward
            for outcome in history.outcomes:
                x = history.query(outcome.query_id).x
                count.changed += outcome.reward != -float((x[-1] - 0.3) ** 2)
            if not kill_scheduler:
                count.lost += history.num_failed
        count.changed += len(check_remains(read_remains(path)))
    return count


class _Killer:
    """Kills processes of a cluster in a thread while it is entered."""

    def __init__(
        self, processes: list[Any], chance: random.Random, kill_scheduler: bool, most: int
    ) -> None:
        import threading

        self.count, self._most, self._chance = 0, most, chance
        self._processes, self._kill_scheduler = processes, kill_scheduler
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while self.count < self._most and not self._end.wait(self._chance.uniform(3.0, 5.0)):
            if self._kill_scheduler:
                self._processes[0].kill()
                self.count += 1
                return
            at = self._chance.randrange(1, len(self._processes))
            self._processes[at].kill()
            self._processes[at] = self._processes[at].again()
            self.count += 1

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


class _Process(subprocess.Popen[bytes]):
    """A process of a cluster, which can be started again."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._given = arguments, environment
        super().__init__(
            arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def again(self) -> _Process:
        self.wait()
        return _Process(*self._given)


@contextmanager
def _cluster(folder: Path) -> Iterator[tuple[Any, list[Any]]]:
    from distributed import Client

    known = folder / f"scheduler-{time.monotonic_ns()}.json"
    path = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    environment |= {"OMP_NUM_THREADS": "1", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"}
    environment |= {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "100"}
    begin = [sys.executable, "-m"]
    scheduler = [*begin, "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    scheduler += ["--host", "127.0.0.1", "--scheduler-file", str(known)]
    worker = [*begin, "distributed.cli.dask_worker", "--scheduler-file", str(known)]
    worker += ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--host", "127.0.0.1"]
    worker += [
        "--local-directory",
        str(folder),
        "--death-timeout",
        "60",
        "--preload",
        "benchmarks.slow_function",
    ]
    processes = [_Process(scheduler, environment)]
    try:
        processes += [_Process(worker, environment) for _ in range(3)]
        deadline = time.monotonic() + 60.0
        while not known.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        client = Client(scheduler_file=str(known), timeout="20s")
        try:
            client.wait_for_workers(2, timeout=120)
            yield client, processes
        finally:
            client.close(timeout=2)
    finally:
        for process in processes:
            process.kill()
            process.wait()


_KILLED_MODULE = """
import time


def f(x):
    time.sleep(0.3)
    return -float((x["x"] - 0.3) ** 2)
"""


def workers_of_commands(num_rounds: int = 24, num_kills: int = 6) -> KindCount:
    """Kill the worker processes of ``optimize --workers`` while it runs."""
    count, chance = KindCount("command line: workers killed"), random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "killed_module.py").write_text(_KILLED_MODULE)
        command = [sys.executable, "-m", "botorch_bandits", "optimize", "killed_module:f"]
        command += ["--param", "x=float:0:1", "--method", "random", "--rounds", str(num_rounds)]
        command += ["--workers", "2", "--on-error", "retry:9"]
        command += ["--out", "run", "--quiet"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + 200.0
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(chance.uniform(0.5, 1.5))
            workers = _workers_of(process.pid)
            if count.tried < num_kills and workers and (folder / "run" / "run.journal").exists():
                os.kill(chance.choice(workers), signal.SIGKILL)
                count.tried += 1
        count.hung = int(process.poll() is None)
        process.kill()
        process.communicate()
        count.lost += process.returncode != 0
        remains = read_remains(folder / "run" / "run.journal")
        count.changed += len(check_remains(remains))
        told = [record for record in remains.records if record["kind"] == "told"]
        count.lost += num_rounds - len(told)
        points = {record["id"]: record["x"] for record in remains.records if "x" in record}
        count.changed += sum(
            record["reward"] != -float((points[record["id"]][0] - 0.3) ** 2) for record in told
        )
        names = {path.name for path in folder.iterdir()} - {"killed_module.py", "__pycache__"}
        count.elsewhere = len(names - {"run"})
    return count


def _workers_of(pid: int) -> list[int]:
    """Return the processes that a command has started and that evaluate."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = path.with_name("cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid and b"spawn_main" in command:
            found.append(int(path.parent.name))
    return found


@contextmanager
def _no_synchronizing() -> Iterator[None]:
    """Leave synchronizing out: it takes long, and a living system sees no difference."""
    real = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = real


def power_cuts(durability: str = "record") -> KindCount:
    """Cut the power at each step of a simulated disk, and open what it may have left.

    Args:
        durability: Of the journal.
    """
    count = KindCount(f"power cut at each step, durability={durability}")

    def record(k: int) -> dict[str, Any]:
        return {"k": k, "text": "x" * (9 + 7 * k)}

    def program(folder: Path, cuts: PowerCuts) -> None:
        path = folder / "run.journal"
        with Journal.create(path, {"seed": 1}, durability) as journal:
            cuts.promise(0)
            for k in range(8):
                number = journal.append(record(k))
                if durability == "record" or k % 3 == 2:
                    journal.sync()
                    cuts.promise(number)
                if k == 5:
                    journal.write_snapshot({"num": 6}, 6)
                    cuts.promise(6)
        cuts.promise(8)
        with Journal.open(path) as journal:
            journal.append(record(8), sync=True)
            cuts.promise(9)

    def check(folder: Path, promised: list[Any]) -> None:
        count.tried += 1
        if not promised:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TornTailWarning)
                with Journal.open(folder / "run.journal", verify="all") as journal:
                    found = list(journal.records())
        except (JournalError, OSError):
            count.lost += 1
            return
        count.changed += found != [record(k) for k in range(len(found))]
        count.lost += len(found) < max(promised)

    with tempfile.TemporaryDirectory() as name:
        cut_power(Path(name), program, check)
    return count


SHARES = {"journal": 0.35, "snapshot": 0.2, "csv": 0.45}
"""Of the mutated files."""


def count_kinds(num_files: int, seed: int = 10) -> Iterator[KindCount]:
    """Do all of it, one after the other.

    Args:
        num_files: How many mutated files are opened; with less than 10000 all is less, and no
            cluster is made.
        seed: Of what is random.
    """
    is_quick = num_files < 10_000
    for kind in KINDS:
        yield hostile_files(kind, round(SHARES[kind] * num_files), seed)
    for durability in ("record", "batch"):
        yield power_cuts(durability)
    for name in ("arms, ucb", "arms, constraints"):
        yield full_disks(name, every=997 if is_quick else 1)
    yield hard_links(8 if is_quick else 200, seed)
    for name in ("arms, ucb", "arms, restarts", "box, ucb"):
        yield signals(name, 10 if is_quick else 200)
    for name in ("arms, censored", "arms, ucb"):
        yield clocks(name, 5 if is_quick else 60, seed)
    if not is_quick:
        yield dask_cluster()
        yield dask_cluster(num_rounds=24, num_kills=2, kill_scheduler=True)
        yield workers_of_commands()
