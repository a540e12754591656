"""How the cost of a round grows, over two decades of what it may grow with.

Each engine plays loops of three sizes, a factor of ten apart. The exponent is the slope of the
logarithm of processor time over that of the size, over all three; the note has that of the last
decade too, where constant costs count for less.
"""

from __future__ import annotations

import warnings
from statistics import median

from benchmarks.combinations import BOX, DRAW, DRIFT, NUM_ARMS, WEIGHTS, Combination, Player
from benchmarks.measure import Measurement, Scale, growth_exponent

FEW_ARMS = 100
"""Where the rounds grow and the arms do not."""

LIST = {"acquisition": "list, UCB"}
IN_ROWS = {
    "box": BOX,
    "box, draws": {**BOX, **DRAW},
    "box, a window": {**BOX, "forgetting": "window"},
    "box, weights": {**BOX, **WEIGHTS},
    "box, drift": {**BOX, **DRIFT},
    "box, a list of priors": {**BOX, **LIST},
    "1000 arms with contexts": {"contexts": "one"},
    "1000 arms that test by evidence": {"restart": "evidence"},
    "1000 arms, a list of priors": LIST,
}
"""Engines whose rounds may cost the square of the rows."""


def growth(scale: Scale) -> list[Measurement]:
    """Measure the exponents of all engines.

    Args:
        scale: Of the sizes.
    """
    rounds = _sizes(scale, 300)
    players = [Player(Combination(t), FEW_ARMS) for t in rounds]
    lines = [_line(f"{FEW_ARMS} arms, in rounds", rounds, players, scale, 1.05, is_total=True)]
    arms = _sizes(scale, 100)
    players = [Player(Combination(100), size) for size in arms]
    lines.append(_line("arms, in arms, 100 rows", arms, players, scale, 1.2))
    for name, settings in IN_ROWS.items():
        sizes = _sizes(scale, 10 if "evidence" in name else 20)
        players = [Player(Combination(n, **settings), NUM_ARMS) for n in sizes]
        lines.append(_line(f"{name}, in rows", sizes, players, scale, 2.2))
    return lines


def _sizes(scale: Scale, first: int) -> list[int]:
    return [scale.of(first * 10**i, 5 + i) for i in range(3)]


def _line(
    name: str,
    sizes: list[int],
    players: list[Player],
    scale: Scale,
    promised: float,
    is_total: bool = False,
) -> Measurement:
    """The exponent that counts may be that of a whole run, which is one more."""
    seconds = [_seconds_a_round(player, scale.repeats) for player in players]
    exponent, last = (is_total + growth_exponent(sizes[i:], seconds[i:]) for i in (0, 1))
    what = "a run costs" if is_total else "a round costs"
    return Measurement(
        f"growth: {name}, {sizes[0]} to {sizes[-1]}",
        promised,
        max(exponent, 0.01),
        (1,),
        note=f"{what} n^{exponent:.2f}, n^{last:.2f} over the last decade; "
        f"the ratio is {promised:g} over the exponent",
    )


def _seconds_a_round(player: Player, repeats: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spent = [player.step() for _ in range(3 + 3 * repeats)]
    return median(spent[3:])
