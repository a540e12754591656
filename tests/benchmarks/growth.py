"""How the cost of a round grows, over two decades of what it may grow with.

Each engine plays loops of three sizes, a factor of ten apart. The exponent is the slope of the
logarithm of processor time over that of the size, over all three; the note has that of the last
decade too, where constant costs count for less.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.combinations import Player
from benchmarks.measure import Measurement, Scale, growth_exponent
from benchmarks.settings import BOX, TIME, WEIGHTS, WINDOW, plain

NUM_ARMS = 100
"""Where the rounds grow and the arms do not."""


@dataclass(frozen=True)
class Engine:
    """What plays, and what its cost may grow with.

    Attributes:
        name: Of engine and size.
        sizes: Three.
        player: Of a size.
        promised: The exponent of a round that is not to be exceeded.
        is_total: Whether the exponent that counts is that of a whole run, which is one more.
    """

    name: str
    sizes: tuple[int, int, int]
    player: Callable[[int], Player]
    promised: float
    is_total: bool = False


ENGINES = (
    Engine(
        f"{NUM_ARMS} arms, in rounds",
        (300, 3000, 30_000),
        lambda t: Player(plain(t), NUM_ARMS),
        1.05,
        is_total=True,
    ),
    Engine(
        "arms, in arms, 100 rows",
        (100, 1000, 10_000),
        lambda size: Player(plain(100), size),
        1.2,
    ),
    Engine(
        "box, in rows",
        (20, 200, 2000),
        lambda n: Player(plain(n, domain=BOX)),
        2.2,
    ),
    Engine(
        "box, draws, in rows",
        (20, 200, 2000),
        lambda n: Player(plain(n, domain=BOX, acquisition="GP-TS")),
        2.2,
    ),
    Engine(
        "box, a window, in rows",
        (20, 200, 2000),
        lambda n: Player(plain(n, domain=BOX, forgetting=WINDOW)),
        2.2,
    ),
    Engine(
        "box, weights, in rows",
        (20, 200, 2000),
        lambda n: Player(plain(n, domain=BOX, forgetting=WEIGHTS)),
        2.2,
    ),
    Engine(
        "box, drift, in rows",
        (20, 200, 2000),
        lambda n: Player(plain(n, domain=BOX, forgetting=TIME)),
        2.2,
    ),
    Engine(
        "box, a list of priors, in rows",
        (20, 200, 2000),
        lambda n: Player(plain(n, domain=BOX, acquisition="list of priors, UCB")),
        2.2,
    ),
    Engine(
        "1000 arms with contexts, in rows",
        (20, 200, 2000),
        lambda n: Player(plain(n, contexts="with contexts")),
        2.2,
    ),
    Engine(
        "1000 arms that test by evidence, in rows",
        (10, 100, 1000),
        lambda n: Player(plain(n, restart="`EvidenceRestart()`")),
        2.2,
    ),
    Engine(
        "1000 arms, a list of priors, in rows",
        (20, 200, 2000),
        lambda n: Player(plain(n, acquisition="list of priors, UCB")),
        2.2,
    ),
)


def growth(scale: Scale) -> list[Measurement]:
    """Measure the exponents of all engines.

    Args:
        scale: Of the sizes.
    """
    return [_measure(engine, scale) for engine in ENGINES]


def _measure(engine: Engine, scale: Scale) -> Measurement:
    sizes = [scale.of(size, 5 + i) for i, size in enumerate(engine.sizes)]
    seconds = [_seconds_a_round(engine.player(size), scale.repeats) for size in sizes]
    extra = 1.0 if engine.is_total else 0.0
    exponent, last = (extra + growth_exponent(sizes[i:], seconds[i:]) for i in (0, 1))
    what = "a run costs" if engine.is_total else "a round costs"
    return Measurement(
        name=f"growth: {engine.name}, {sizes[0]} to {sizes[-1]}",
        ratio=engine.promised / max(exponent, 0.01),
        difference=0.0,
        tolerance=0.0,
        unit="round at the largest size",
        ordinary_seconds=0.0,
        our_seconds=seconds[-1],
        at_least=1.0,
        note=f"{what} n^{exponent:.2f}, n^{last:.2f} over the last decade; "
        f"the ratio is {engine.promised:g} over the exponent",
    )


def _seconds_a_round(player: Player, repeats: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spent = [player.step() for _ in range(3 + 3 * repeats)]
    return median(spent[3:])
