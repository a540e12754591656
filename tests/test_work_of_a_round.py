"""What a round of a loop costs, counted: factorizations, the rows factored, and bytes. No time.

One of each kind of combination is played on 60 arms or on a box, behind 80 outcomes, and two rounds
are looked at. The bounds are what the fast ways need, and little more. A loop that falls back on a
slow one, by a change of code that no result shows, factors more rows or takes more memory.
"""

from __future__ import annotations

import math
import sys
import warnings

import numpy as np
import pytest
import scipy.linalg.lapack
import torch
from pairwise import by_day
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.combinations import Combination, Player
from benchmarks.peak_memory import kept_bytes, peak_bytes

NUM_ARMS, NUM_ROWS = 60, 80
SMALL = 8
"""Systems of so many rows are those of a search, and do not count."""

OF_TORCH = ("linalg_cholesky_ex", "_linalg_eigh", "_linalg_svd", "linalg_qr", "cholesky")
OF_NUMPY = ("cholesky", "eigh", "svd", "qr", "inv")
OF_LAPACK = ("dpstrf", "dpotrf", "dsyevr", "dsyevd")


class Factored(TorchDispatchMode):
    """Notes how many rows each factorization has, those of numpy and LAPACK included."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.sizes: list[int] = []
        for home, names in ((np.linalg, OF_NUMPY), (scipy.linalg.lapack, OF_LAPACK)):
            for name in names:
                function = getattr(home, name)
                counted = self._counting(function)
                for module in [home, *sys.modules.values()]:
                    is_ours = getattr(module, "__name__", "").startswith("botorch_bandits")
                    if (is_ours or module is home) and vars(module).get(name) is function:
                        monkeypatch.setattr(module, name, counted)

    @property
    def num_rows(self) -> int:
        return sum(self.sizes)

    def _counting(self, function):
        def counted(matrix, *args, **kwargs):
            self._note(np.shape(matrix))
            return function(matrix, *args, **kwargs)

        return counted

    def _note(self, shape):
        if shape[-1] > SMALL:
            self.sizes += [shape[-1]] * math.prod(shape[:-2])

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in OF_TORCH:
            self._note(args[0].shape)
        return func(*args, **(kwargs or {}))


def player_of(num_rows: int, settings: dict[str, str]) -> Player:
    """Return a loop behind a few rounds, so that what is built once is built."""
    player = Player(Combination(num_rows, **settings), NUM_ARMS)
    for _ in range(3):
        player.step()
    return player


DMM, DRAWS, LIST = {"acquisition": "DMM"}, {"acquisition": "GP-TS"}, {"acquisition": "list, UCB"}
WINDOW, WEIGHTS, TIME = ({"forgetting": name} for name in ("window", "weights", "time"))
SEPARATE, APART = {"constraints": "separate"}, {"constraints": "primal-dual"}
RELABELED = {"constraints": "relabeled"}
CONTEXTS, PRODUCT, BOX = {"contexts": "one"}, {"contexts": "product"}, {"domain": "box"}
EVIDENCE = {"restart": "evidence"}
# settings: rows in all factorizations of two rounds; kB that are kept; kB beyond that in a round
CASES: dict[str, tuple[dict[str, str], int, int, int]] = {
    "IGP-UCB on arms": ({}, 0, 150, 14),
    "GP-TS on arms": (DRAWS, 0, 430, 40),
    "DMM on arms": (DMM, 110, 175, 200),
    "DMM with a window on arms": (DMM | WINDOW, 105, 180, 200),
    "DMM with contexts on arms": (DMM | CONTEXTS, 180, 250, 460),
    # 200 kB by itself, and up to 260 after other loops with lists, which share their priors
    "list of priors on arms": (LIST, 0, 290, 22),
    "separate on arms": (SEPARATE, 0, 130, 20),
    "relabeled on arms": (RELABELED, 55, 130, 20),
    "window on arms": (WINDOW, 0, 120, 20),
    "weights on arms": (WEIGHTS, 105, 100, 120),
    "drift on arms": (TIME, 0, 280, 220),
    "contexts on arms": (CONTEXTS, 0, 250, 270),
    "draws with a window on arms": (DRAWS | WINDOW, 0, 310, 46),
    "draws with contexts on arms": (DRAWS | CONTEXTS, 180, 560, 380),
    "draws relabeled with contexts on arms": (DRAWS | PRODUCT | RELABELED, 180, 460, 520),
    "draws apart with a window on arms": (DRAWS | APART | WINDOW, 0, 440, 60),
    "draws apart with contexts on arms": (DRAWS | APART | CONTEXTS, 355, 840, 500),
    "draws apart with drift on arms": (DRAWS | APART | TIME, 355, 740, 490),
    "bounds apart with a window on arms": (SEPARATE | WINDOW, 0, 170, 24),
    "bounds apart with contexts on arms": (SEPARATE | CONTEXTS, 90, 430, 270),
    # Tables may be shared with other loops on arms. Recent rows of a test by evidence have a
    # factor of their own.
    "test of halves on arms": ({"restart": "halves"}, 0, 200, 16),
    "test by evidence on arms": (EVIDENCE, 0, 215, 150),
    "test by evidence of all outcomes on arms": (EVIDENCE | SEPARATE, 0, 225, 155),
    "test by evidence of all outcomes on a box": (EVIDENCE | SEPARATE | BOX, 0, 290, 1100),
    "IGP-UCB on a box": (BOX, 0, 190, 1000),
    "EI on a box": (BOX | {"acquisition": "EI"}, 0, 190, 1000),
    "DMM on a box": (BOX | DMM, 200, 190, 1800),
    "separate on a box": (BOX | APART, 0, 190, 1000),
    "joint draws on a box": (BOX | DRAWS | APART, 0, 180, 2700),
    "drift on a box": (BOX | TIME, 0, 190, 1050),
    "weights on a box": (BOX | WEIGHTS, 200, 90, 1100),
    "product on a box": (BOX | PRODUCT, 0, 200, 1050),
}


def work_of(settings: dict[str, str]) -> tuple[int, float, float]:
    """Return rows in factorizations, and kB that are kept and taken beyond that."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as monkeypatch:
        warnings.simplefilter("ignore")
        player = player_of(NUM_ROWS, settings)
        with Factored(monkeypatch) as factored:
            player.step()
            player.step()
        kept = kept_bytes(player.loop)
        return factored.num_rows, kept / 1e3, peak_bytes(player.step) / 1e3


@pytest.mark.parametrize("name", by_day(CASES))
def test_a_round_factors_few_rows_and_takes_little_memory(name):
    settings, num_rows, kept, beyond = CASES[name]
    found = work_of(settings)
    bounds = (num_rows, kept, beyond)
    assert all(number <= bound for number, bound in zip(found, bounds, strict=True)), found


def test_factorizations_of_all_kinds_are_counted(monkeypatch):
    matrix = torch.eye(20, dtype=torch.float64)
    with Factored(monkeypatch) as factored:
        torch.linalg.cholesky(matrix.expand(3, 20, 20))
        torch.linalg.eigh(matrix[:9, :9])
        torch.linalg.eigh(matrix[:SMALL, :SMALL])
        np.linalg.cholesky(matrix.numpy())
        scipy.linalg.lapack.dpstrf(matrix.numpy())
    assert factored.sizes == [20, 20, 20, 9, 20, 20]


if __name__ == "__main__":
    for case, (its_settings, *_) in CASES.items():  # to set the bounds anew
        print(case, *(f"{number:.4g}" for number in work_of(its_settings)))
