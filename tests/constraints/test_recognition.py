"""Infeasible problems and noisy constraints are told from ordinary ones."""

import warnings

import pytest
import torch
from models.textbook import double

from botorch_bandits import AdditiveEpochs, MultiplicativeEpochs
from botorch_bandits.constraints import (
    NoisyConstraintsWarning,
    recognize_infeasibility,
    warn_if_noisy,
)


def test_infeasible_needs_both_signs():
    grows, stalls = [1.0, 2.0, 3.0, 5.0], [1.0, 2.0, 2.0, 5.0]
    multipliers = double([grows, grows, stalls]).T  # epochs x constraints
    found = recognize_infeasibility(multipliers, double([0.1, -0.1, 0.1]))
    assert found.tolist() == [True, False, False]
    assert recognize_infeasibility(multipliers, double([0.1] * 3), num_epochs=1).all()
    assert not recognize_infeasibility(multipliers[:3], double([0.1] * 3)).any()
    batch = recognize_infeasibility(
        torch.stack([multipliers, multipliers]), double([[0.1] * 3, [-1.0] * 3])
    )
    assert batch.tolist() == [[True, True, False], [False, False, False]]
    held = double([[3.0], [3.0], [3.0], [3.0]])  # at its cap, it counts as growing
    assert recognize_infeasibility(held, double([0.1]), largest=3.0).tolist() == [True]


def test_noise_shows_at_a_repeated_point():
    exact, additive = MultiplicativeEpochs(1, 5), AdditiveEpochs(1, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warn_if_noisy(exact, [1.0, 2.0], [1.0, 2.0 + 1e-13])
        assert not warn_if_noisy(additive, [1.0], [1.1])
    with pytest.warns(NoisyConstraintsWarning, match=r"constraint 2 .*Use AdditiveEpochs"):
        assert warn_if_noisy(exact, [1.0, 1.0], [1.0, 1.1])
