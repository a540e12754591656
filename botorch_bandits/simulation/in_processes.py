"""Replicates that are divided among processes, with one CPU each.

A replicate depends only on its own seed, so it does not matter with which others it is played. Each
part of a simulation is therefore a simulation of its own, and the results are put together.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import pickle
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.processes import (
    end_with_parent,
    interrupts_on_hold,
    one_thread_each,
    terminate,
)
from botorch_bandits.progress import ProgressBar
from botorch_bandits.simulation.loops import padded
from botorch_bandits.simulation.problems import Policy, Problem, SimulationResult

Play = Callable[..., SimulationResult]
"""A function from problems, policy, rounds, seeds, device, bounds and round hook to a result."""

SECONDS_BETWEEN_LOOKS = 0.1
"""How long to wait for the progress of the processes."""


def play_in_processes(
    play: Play,
    problems: list[Problem],
    policy: Policy,
    num_rounds: int,
    seeds: Sequence[int],
    with_bounds: bool,
    num_processes: int,
    progress: bool,
) -> SimulationResult:
    """Let each process play some of the replicates, and put their results together.

    Args:
        play: A module-level function that plays replicates.
        problems: One problem, or one per replicate.
        policy: The policy that is played.
        num_rounds: The number of rounds.
        seeds: One seed per replicate.
        with_bounds: As for ``simulate``.
        num_processes: The largest number of processes.
        progress: Whether to show a progress bar of the rounds of all parts.

    Raises:
        Exception: The error of a process, with a note that names its replicates.
        RuntimeError: If a process died.
        TypeError: If the problem or the policy cannot be sent to a process.
    """
    parts = [part.tolist() for part in torch.arange(len(seeds)).tensor_split(num_processes)]
    parts = [part for part in parts if part]
    tasks = [
        (
            problems if len(problems) == 1 else [problems[b] for b in part],
            policy,
            num_rounds,
            tuple(seeds[b] for b in part),
            with_bounds,
        )
        for part in parts
    ]
    try:
        pickle.dumps((play, tasks))
    except Exception as error:
        raise TypeError(
            f"num_processes is {num_processes}, but the problem or the policy cannot be sent to a "
            f"process ({error}). Define functions and classes in a module, or leave out "
            "num_processes=."
        ) from error
    context = multiprocessing.get_context("spawn")
    rounds: Any = context.Queue()
    executor = ProcessPoolExecutor(len(parts), context, _prepare, (rounds,))
    futures: list[Future[SimulationResult]] = []
    is_done = False
    try:
        with ProgressBar(num_rounds * len(parts), "rounds", progress) as bar:
            # the processes are started inside this block
            with one_thread_each(), interrupts_on_hold():
                futures = [executor.submit(_play_part, play, *task) for task in tasks]
            left = set(futures)
            while left:
                done, left = wait(left, SECONDS_BETWEEN_LOOKS)
                _take_errors(done, futures, parts)
                bar.advance(_count(rounds))
        is_done = True
        return put_together([future.result() for future in futures])
    finally:
        if not is_done:
            terminate(executor)
        executor.shutdown(cancel_futures=True)
        rounds.cancel_join_thread()
        rounds.close()


def _take_errors(
    done: set[Future[SimulationResult]],
    futures: list[Future[SimulationResult]],
    parts: list[list[int]],
) -> None:
    for future in done:
        error = future.exception()
        if error is None:
            continue
        first, *_, last = [parts[futures.index(future)][i] for i in (0, 0, -1)]
        which = f"replicate {first}" if first == last else f"replicates {first} to {last}"
        if isinstance(error, BrokenExecutor):
            raise RuntimeError(
                f"a process died while it played {which}: was it killed, or out of memory? In a "
                'script, call simulate(num_processes=...) under if __name__ == "__main__".'
            ) from error
        error.add_note(f"It was raised in the process that played {which}.")
        raise error


def _count(rounds: Any) -> int:
    total = 0
    while True:
        try:
            total += rounds.get_nowait()
        except queue.Empty:
            return total


def put_together(results: Sequence[SimulationResult]) -> SimulationResult:
    """Return the result of all replicates from those of parts, in order.

    The mean width of a round is the mean over the replicates that did not explore in it.

    Args:
        results: Results of the same policy and number of rounds.
    """
    joined: dict[str, Any] = {}
    for field in dataclasses.fields(SimulationResult):
        values = [getattr(result, field.name) for result in results]
        if field.name in ("mean_width", "covered", "epochs"):
            continue
        if field.name == "multipliers" and values[0] is not None:
            most = max(each.shape[1] for each in values)
            joined[field.name] = torch.cat([padded(each, most) for each in values])
        elif isinstance(values[0], Tensor):
            joined[field.name] = torch.cat(values)
        else:  # tuples, or None
            joined[field.name] = values[0] if values[0] is None else sum(values, ())
    covered = [result.covered for result in results]
    if any(each is not None for each in covered):
        joined["covered"] = torch.cat(
            [  # a part without bounds explored in all rounds, and these do not count
                torch.ones(len(result.seeds), dtype=torch.bool) if each is None else each
                for each, result in zip(covered, results, strict=True)
            ]
        )
    joined["mean_width"] = _mean_width(results)
    epochs = [result.epochs for result in results if result.epochs is not None]
    has_own = bool(epochs) and epochs[0].dim() > 1  # each replicate has its own epochs
    joined["epochs"] = torch.cat(epochs) if has_own else results[0].epochs
    return SimulationResult(**joined)


def _mean_width(results: Sequence[SimulationResult]) -> Tensor | None:
    if all(result.mean_width is None for result in results):
        return None
    num_rounds = results[0].outcomes.shape[-1]
    weights, sums = torch.zeros(2, num_rounds, dtype=torch.float64)
    for result in results:
        if result.mean_width is None:
            continue
        if result.explored is None:
            playing = torch.full((num_rounds,), len(result.seeds))
            playing[: num_rounds - len(result.mean_width)] = 0  # initial rounds have no bounds
        else:
            playing = (~result.explored).sum(0)
        has_bounds = playing > 0
        weights += playing
        sums[has_bounds] += playing[has_bounds] * result.mean_width
    counts = weights > 0
    return sums[counts] / weights[counts]


# the rest runs in the processes

_rounds: list[Any] = []


def _prepare(rounds: Any) -> None:
    _rounds.append(rounds)
    end_with_parent()


def _play_part(
    play: Play,
    problems: list[Problem],
    policy: Policy,
    num_rounds: int,
    seeds: tuple[int, ...],
    with_bounds: bool,
) -> SimulationResult:
    step = max(1, num_rounds // 100)  # rounds between two reports

    def on_round(t: int) -> None:
        if t % step == 0 or t == num_rounds:
            _rounds[-1].put(step if t % step == 0 else num_rounds % step)

    try:
        return play(problems, policy, num_rounds, seeds, "cpu", with_bounds, on_round)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # sending it back would fail and break the pool of processes
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise
