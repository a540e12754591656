"""Replicates in several processes play what they play in one, and leave no process behind."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    BanditGP,
    ChangePointDetector,
    ChangePointRestart,
    GPUpperConfidenceBound,
    Policy,
    RandomSearch,
    simulate,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.problems import ArmsProblem, BraninReward
from botorch_bandits.random_streams import derive_seed
from botorch_bandits.simulation import in_processes
from botorch_bandits.simulation.in_processes import _take_errors, put_together
from botorch_bandits.simulation.replicates import _play

CHOICES = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
PROBLEM = ArmsProblem(CHOICES, torch.sin(7.0 * CHOICES).squeeze(-1), noise_std=0.1)
KERNEL = RBFKernel()
MODEL = BanditGP.with_kernel(KERNEL, noise=0.01, lengthscale=0.2)
POLICY = Policy(MODEL, GPUpperConfidenceBound.with_options(delta=0.1), 2)


class FailingProblem(BraninReward):
    """Fails when it is evaluated."""

    def _evaluate_true(self, X: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("no reward today")


def assert_same(ours: Any, theirs: Any) -> None:
    for name, value in vars(theirs).items():
        other = getattr(ours, name)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            assert torch.allclose(other, value, atol=1e-10, rtol=0), name
        elif isinstance(value, torch.Tensor):
            assert torch.equal(other, value), name
        elif name == "resets" and value is not None:
            for found, expected in zip(other, value, strict=True):
                rounds = [[each.after_round for each in resets] for resets in (found, expected)]
                assert rounds[0] == rounds[1]
        else:
            assert other == value, name


def test_processes_play_what_one_process_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar counts the rounds of both."""
    counted: list[int] = []
    monkeypatch.setattr(
        in_processes.ProgressBar, "advance", lambda self, rounds=1, **shown: counted.append(rounds)
    )
    monkeypatch.setattr(in_processes, "SECONDS_BETWEEN_LOOKS", 0.01)
    together = simulate(PROBLEM, POLICY, 25, 5, seed=4, num_processes=2, progress=False)
    assert sum(counted) == 50
    assert_same(together, simulate(PROBLEM, POLICY, 25, 5, seed=4, progress=False))
    assert not multiprocessing.active_children()


def parts(policy: Policy, problem: Any, rounds: int, count: int) -> Any:
    """What processes would play, in this one."""
    seeds = [derive_seed(0, b, "replicate") for b in range(count)]
    shares = (seeds[:1], seeds[1:])
    results = [
        _play([problem], policy, rounds, tuple(s), "cpu", True, lambda t: None) for s in shares
    ]
    return put_together(results)


def test_parts_with_resets_of_their_own_are_put_together() -> None:
    """The mean width of a round is over the replicates that do not explore in it."""
    detector = ChangePointDetector(
        KERNEL, 0.01, threshold=PowerThreshold(0.3, -0.5), lengthscale=0.2
    )
    restart = ChangePointRestart(detector=detector)
    policy = Policy(MODEL, GPUpperConfidenceBound.with_options(delta=0.1), restart=restart)
    whole = simulate(PROBLEM, policy, 40, 4, progress=False)
    assert whole.resets is not None
    assert whole.explored is not None
    assert bool((whole.explored.any(0) & ~whole.explored.all(0)).any())
    assert_same(parts(policy, PROBLEM, 40, 4), whole)


def test_parts_on_a_box_are_put_together() -> None:
    model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=3.0)
    policy = Policy(model, GPUpperConfidenceBound.with_options(width=2.0), 2)
    whole = simulate(BraninReward(noise_std=0.1), policy, 3, 2, progress=False)
    ours = parts(policy, BraninReward(noise_std=0.1), 3, 2)
    assert ours.arms is None
    assert torch.allclose(ours.points, whole.points, atol=1e-6, rtol=0)


def test_an_error_says_which_replicates_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forking = multiprocessing.get_context("fork")  # which spares each process its imports
    monkeypatch.setattr(in_processes.multiprocessing, "get_context", lambda kind: forking)
    policy = Policy(MODEL, RandomSearch())
    with pytest.raises(ZeroDivisionError, match="no reward today") as caught:
        simulate(FailingProblem(noise_std=0.1), policy, 3, 3, num_processes=2, progress=False)
    assert any("that played replicate" in note for note in caught.value.__notes__)
    assert not multiprocessing.active_children()


def test_a_process_that_dies_is_named_by_its_replicates() -> None:
    futures: list[Future[Any]] = [Future(), Future()]
    futures[1].set_exception(BrokenProcessPool("ended"))
    with pytest.raises(RuntimeError, match="a process died while it played replicates 2 to 4"):
        _take_errors({futures[1]}, futures, [[0, 1], [2, 3, 4]])


def test_what_cannot_be_sent_and_what_cannot_be_shared_is_refused() -> None:
    class Local(BraninReward):
        pass

    with pytest.raises(TypeError, match="cannot be sent to a process"):
        simulate(Local(noise_std=0.1), POLICY, 3, 2, num_processes=2, progress=False)
    with pytest.raises(ValueError, match="num_processes is 2, but device is cuda"):
        simulate(PROBLEM, POLICY, 3, 2, num_processes=2, device="cuda", progress=False)
    with pytest.raises(ValueError, match="num_processes"):
        simulate(PROBLEM, POLICY, 3, 2, num_processes=0, progress=False)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signals of POSIX")
def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, threading, time
            import torch
            from gpytorch.kernels import RBFKernel
            from botorch_bandits import BanditGP, GPUpperConfidenceBound, Policy, simulate
            from botorch_bandits.problems import ArmsProblem

            def say():
                while len(multiprocessing.active_children()) < 2:
                    time.sleep(0.05)
                print(*(child.pid for child in multiprocessing.active_children()), flush=True)

            if __name__ == "__main__":
                X = torch.linspace(0, 1, 12, dtype=torch.float64).unsqueeze(-1)
                problem = ArmsProblem(X, X.squeeze(-1), noise_std=0.1)
                model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2)
                policy = Policy(model, GPUpperConfidenceBound.with_options(delta=0.1))
                threading.Thread(target=say, daemon=True).start()
                simulate(problem, policy, 10_000_000, 2, num_processes=2, progress=False)
            """
        ),
        encoding="utf-8",
    )
    run = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    children = [int(pid) for pid in run.stdout.readline().split()]
    run.send_signal(signal.SIGINT)
    assert run.wait(60) != 0
    assert len(children) == 2
    for _ in range(100):
        alive = [pid for pid in children if Path(f"/proc/{pid}").exists()]
        if not alive:
            break
        time.sleep(0.1)
    assert not alive
