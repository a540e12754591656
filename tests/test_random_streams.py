"""Random numbers depend on (seed, round, purpose) and on nothing else."""

from __future__ import annotations

import itertools
import pickle
import random

import numpy as np
import pytest
import torch

from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator, seeded_globally


def test_seeds_are_the_same_in_every_process_and_release() -> None:
    # Stored runs are replayed from these numbers. Python's own hash differs in each process.
    assert derive_seed(0, 1, "sample") == 1778778923800348479
    assert derive_seed(12345, 678, "maximize") == 8518374775161119898
    assert derive_seed(2**70, 0, "") == 7404861449834629341


def test_all_three_arguments_matter() -> None:
    keys = list(itertools.product(range(20), range(50), ["sample", "maximize", "1/sample", ""]))
    seeds = [derive_seed(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)
    # Each of 63 bits is set in half of 4000 seeds, to within 5 standard errors.
    share = np.array([[seed >> bit & 1 for bit in range(63)] for seed in seeds]).mean(axis=0)
    assert np.abs(share - 0.5).max() < 5 * 0.5 / np.sqrt(len(seeds))


def test_generators_of_equal_keys_agree_and_others_are_uncorrelated() -> None:
    def draw(*key: object) -> torch.Tensor:
        return torch.rand(2000, generator=generator(*key), dtype=torch.float64)  # type: ignore[arg-type]

    assert torch.equal(draw(7, 3, "sample"), draw(7, 3, "sample"))
    streams = torch.stack(
        [draw(7, 3, "sample"), draw(7, 4, "sample"), draw(8, 3, "sample"), draw(7, 3, "other")]
    )
    correlation = torch.corrcoef(streams) - torch.eye(4, dtype=torch.float64)
    assert correlation.abs().max().item() < 5 / np.sqrt(2000)


def test_seeding_globally_is_reproducible_and_is_undone() -> None:
    torch.manual_seed(99)
    expected_after = torch.rand(4)
    torch.manual_seed(99)
    random_state, numpy_state = random.getstate(), np.random.get_state()[1].copy()
    draws = []
    for _ in range(2):
        with seeded_globally(5):
            draws.append(torch.rand(3))
    assert torch.equal(draws[0], draws[1])
    with seeded_globally(6):
        assert not torch.equal(torch.rand(3), draws[0])
    assert torch.equal(torch.rand(4), expected_after)
    assert random.getstate() == random_state
    assert (np.random.get_state()[1] == numpy_state).all()


def test_blocks_can_be_nested() -> None:
    with seeded_globally(1):
        plain = torch.rand(2), torch.rand(2)
    with seeded_globally(1):
        first = torch.rand(2)
        with seeded_globally(2):
            torch.rand(100)
        second = torch.rand(2)
    assert torch.equal(first, plain[0])
    assert torch.equal(second, plain[1])


def _fail_after_drawing() -> None:
    torch.rand(5)
    raise ValueError("inside")


def test_an_error_inside_the_block_restores_too() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="inside"), seeded_globally(3):
        _fail_after_drawing()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("distribution", ["normal", "uniform", "exponential"])
def test_blocks_can_be_pickled(distribution: str) -> None:
    blocks = RandomBlocks([3, 4], "test", (2,), distribution)
    assert torch.equal(pickle.loads(pickle.dumps(blocks)).at(300), blocks.at(300))
