"""Settings of loops and drop-ins, drawn at random over everything that they accept.

A :class:`Setting` has one field an axis, and a few numbers. :class:`Draws` draws them in turn and
steers to the values of which too few settings have held so far.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

IGP = (
    "IGP-UCB, printed",
    "IGP-UCB, any lam",
    "IGP-UCB, water-filling gain",
    "IGP-UCB, greedy gain",
)
"""Methods of which Theorem 2 of Chowdhury and Gopalan 2017 speaks."""

LIST, LIST_ON_BOX = "Theorem 1, list", "Theorem 2, list"
LISTS = (LIST, LIST_ON_BOX)
"""Methods for rewards that are drawn from one of several priors."""

MATERN = ("Matern 1/2", "Matern 3/2", "Matern 5/2")
"""Kernels in which the norm of a function can be computed from its values."""

DRAWN = ("Theorem 1", "Theorem 2", "IRGP-UCB", *LISTS)
"""Methods for rewards that are drawn from the prior."""

SEPARATE = ("additive, separate", "primal-dual")
"""Constraints whose models are separate."""

CENSORED_DROP_INS = ("censored UCB", "censored TS")
"""Methods that are played as drop-ins only."""

AXES: dict[str, dict[str, float]] = {
    "method": {
        **dict.fromkeys(IGP[:2], 2.0),
        **dict.fromkeys(IGP[2:], 0.7),
        "AMM": 2.0,
        "DMM": 1.5,
        "Theorem 1": 2.0,
        "Theorem 2": 1.0,
        "Theorem 3": 1.0,
        "IRGP-UCB": 1.0,
        LIST: 1.0,
        LIST_ON_BOX: 0.5,
        "GP-TS, printed": 1.0,
        "GP-TS, any lam": 1.5,
        "Lagrangian UCB": 0.8,
        "Lagrangian TS": 0.4,
        "censored UCB": 0.8,
        "censored TS": 0.6,
        "IGP-UCB, gain too small": 0.1,
        "constant width": 0.1,
    },
    "played": {"loop": 3.0, "drop-in": 1.0},
    "kernel": {
        "RBF": 2.0,
        "Matern 1/2": 1.0,
        "Matern 3/2": 1.0,
        "Matern 5/2": 1.5,
        "periodic": 0.5,
        "linear": 0.4,
        "product": 0.5,
        "sum": 0.5,
    },
    "output_scale": {"none": 1.0, "small": 0.7, "large": 0.7},
    "lam": {"0.01": 1.0, "0.1": 1.0, "0.5": 1.0, "1": 1.0, "2": 1.0, "10": 0.6},
    "units": {"outcome": 3.0, "prior": 1.0},
    "delta": {"0.05": 1.0, "0.1": 1.0, "0.2": 1.0, "0.3": 1.0},
    "prior_mean": {"zero": 4.0, "stated": 1.0, "unstated": 0.5},
    "model": {
        "BanditGP": 8.0,
        "frozen, stated": 0.8,
        "noise by row": 0.8,
        "frozen": 0.2,
        "fitted, frozen": 0.2,
        "standardized": 0.2,
        "learned": 0.2,
    },
    "domain": {"arms, d = 1": 3.0, "arms, d = 2": 1.5, "box, d = 1": 1.0, "box, d = 2": 0.5},
    "feedback": {
        "hallucinated": 4.0,
        "ignored": 2.0,
        "censored, printed": 0.5,
        "censored, any lam": 0.7,
        "censored, seconds": 0.5,
        "censored, window all": 0.4,
        "censored, bounded": 0.4,
    },
    "delays": {
        "none": 5.0,
        "fixed": 1.0,
        "geometric": 1.0,
        "by input": 0.5,
        "by reward": 0.7,
        "by noise": 0.7,
    },
    "order": {"as asked": 4.0, "reversed": 0.5, "shuffled": 0.5, "by noise": 0.7},
    "workers": {"1": 5.0, "2": 0.7, "4": 0.7},
    "failures": {"none": 6.0, "random": 0.8, "by reward": 0.7, "by noise": 0.7},
    "num_initial": {"0": 4.0, "3": 1.0, "all": 0.3},
    "attached": {"none": 6.0, "random": 0.7, "by reward": 0.7, "by noise": 0.7},
    "contexts": {"none": 4.0, "random": 1.0, "adversarial": 1.0},
    "constraints": {
        "none": 10.0,
        "multiplicative, fresh": 0.7,
        "additive, fresh": 0.7,
        "additive, relabeled": 0.4,
        "additive, separate": 0.5,
        "primal-dual": 0.4,
    },
    "restart": {
        "none": 7.0,
        "never": 0.8,
        "oracle": 0.7,
        "oracle, delta not split": 0.3,
        "change points": 0.4,
    },
    "forgetting": {"none": 15.0, "window": 0.3, "weights": 0.3, "time kernel": 0.3},
    "history": {"of its own": 6.0, "continued": 1.0},
    "horizon": {"not told": 4.0, "told": 1.0},
    "variation": {"none": 6.0, "by arm": 0.7, "against the band": 0.7},
    "models": {"one": 6.0, "of epochs": 1.0},
    "repeats": {"none": 12.0, "1.5": 0.5, "4": 0.5},
    "shape": {
        "bump": 1.0,
        "random": 1.0,
        "top eigenvector": 1.0,
        "low eigenvector": 0.7,
        "opposite bumps": 1.0,
    },
    "noise": {
        "two-point": 1.0,
        "Gaussian": 1.0,
        "uniform": 0.6,
        "skewed": 1.0,
        "by the past": 0.8,
    },
}
"""The values of each axis and how often they are drawn; the first is what most settings have."""

EVENTS = (
    "prior_mean",
    "model",
    "feedback",
    "delays",
    "order",
    "workers",
    "failures",
    "num_initial",
    "attached",
    "contexts",
    "constraints",
    "restart",
    "forgetting",
    "history",
    "horizon",
    "variation",
    "models",
    "repeats",
)
"""Axes that have an ordinary value, the first; a setting differs from it on a few of them."""


@dataclass(frozen=True)
class Setting:
    """One value on each of :data:`AXES`, and the numbers that are not on an axis.

    Attributes:
        number: Counts settings from 0.
        num_arms: Of arms.
        num_rounds: How long a run is.
        lengthscale: Of the kernel, on the unit cube.
        norm: The norm of the function, in prior standard deviations.
        noise_bound: Of the noise, in prior standard deviations, where it is not modeled.
        offset: The prior mean where that is not zero, in prior standard deviations.
    """

    number: int
    method: str
    played: str
    kernel: str
    output_scale: str
    lam: str
    units: str
    delta: str
    prior_mean: str
    model: str
    domain: str
    feedback: str
    delays: str
    order: str
    workers: str
    failures: str
    num_initial: str
    attached: str
    contexts: str
    constraints: str
    restart: str
    forgetting: str
    history: str
    horizon: str
    variation: str
    models: str
    repeats: str
    shape: str
    noise: str
    num_arms: int
    num_rounds: int
    lengthscale: float
    norm: float
    noise_bound: float
    offset: float

    @property
    def is_box(self) -> bool:
        """Whether points are chosen on a box."""
        return self.domain.startswith("box")

    @property
    def dim(self) -> int:
        """The dimension of the points."""
        return int(self.domain[-1])

    @property
    def is_censored(self) -> bool:
        """Whether pending queries enter at the minimum."""
        return self.feedback.startswith("censored") or self.method in CENSORED_DROP_INS

    @property
    def is_drawn(self) -> bool:
        """Whether the method is for rewards that are drawn from the prior."""
        return self.method in DRAWN

    @property
    def axes(self) -> dict[str, str]:
        """The value on each axis."""
        values = asdict(self)
        return {name: values[name] for name in AXES}

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> Setting:
        """Return the setting of a row of a table.

        Args:
            row: Text by the names of the fields.
        """
        kinds = {"int": int, "float": float, "str": str}
        ordinary = {axis: next(iter(AXES[axis])) for axis in EVENTS}  # of axes that came later
        values = {f.name: row.get(f.name) or ordinary.get(f.name, "") for f in fields(cls)}
        return cls(**{f.name: kinds[str(f.type)](values[f.name]) for f in fields(cls)})


class Draws:
    """Draws settings one after the other.

    Args:
        seed: Of all draws.
        wanted: How many settings that hold are wanted of each value.
        only: Axes and the values that they are held at.

    Raises:
        ValueError: If there is no such axis, or no such value.
    """

    def __init__(self, seed: int, wanted: int = 27, only: Mapping[str, str] | None = None) -> None:
        """See the class."""
        self._seed, self._wanted, self._only = seed, wanted, dict(only or {})
        for axis, value in self._only.items():
            if value not in AXES.get(axis, ()):
                raise ValueError(
                    f"there is no {axis}={value}; axes are {', '.join(AXES)}, and values are, for "
                    f"example, {', '.join(AXES.get(axis, AXES['method']))}."
                )
        self.tried: Counter[tuple[str, str]] = Counter()
        self.held: Counter[tuple[str, str]] = Counter()

    def record(self, setting: Setting, holds: bool) -> None:
        """Take in whether a setting holds.

        Args:
            setting: That was drawn.
            holds: Whether ``guarantee().holds``.
        """
        for value in setting.axes.items():
            self.tried[value] += 1
            self.held[value] += holds

    def next(self, number: int) -> Setting:
        """Return the setting of this number: of some candidates the one that is wanted most.

        Seven of eight settings have the value of which there are too few.

        Args:
            number: Counts settings from 0.
        """
        chance = random.Random(f"{self._seed} setting {number}")
        only = dict(self._only)
        if number % 8:
            lacks = {
                value: self._lack(value)
                for value in ((axis, name) for axis, names in AXES.items() for name in names)
                if value[0] not in only
            }
            largest = max(lacks.values())
            if largest > 0.0:
                axis, name = chance.choice([v for v, lack in lacks.items() if lack == largest])
                only[axis] = name
        try:
            candidates = [_draw(chance, number, only) for _ in range(6)]
        except ValueError:  # the value goes with nothing that is held
            candidates = [_draw(chance, number, self._only) for _ in range(6)]
        return max(candidates, key=self._score)

    def _lack(self, value: tuple[str, str]) -> float:
        """How many settings that hold are missing; 0 if no theorem seems to cover the value."""
        if self._rate(value) < RARE:
            return 0.0
        wanted = self._wanted * (3 if value[1].startswith("box") else 1)
        return max(0.0, (wanted + 2.0 - self.held[value]) / wanted)

    def _rate(self, value: tuple[str, str]) -> float:
        return (self.held[value] + 1.0) / (self.tried[value] + 2.0)

    def _score(self, setting: Setting) -> float:
        score = 0.0
        for value in setting.axes.items():
            rate = self._rate(value)
            score += -1.0 if rate < RARE else self._lack(value) * rate + 0.3 * rate
        return score - 0.8 * is_slow(setting.axes)


RARE = 0.06
"""Where fewer of the settings with a value hold, no more of them are sought."""


def is_slow(axes: Mapping[str, str]) -> bool:
    """Return whether rounds cost several times what they do elsewhere.

    Args:
        axes: The value on each axis.
    """
    return (
        axes["domain"].startswith("box")
        or axes["contexts"] != "none"
        or axes["played"] == "drop-in"
        or axes["constraints"] != "none"
        or axes["model"] != "BanditGP"
        or axes["forgetting"] != "none"
    )


def _pick(chance: random.Random, axis: str, *excluded: str) -> str:
    values = {value: w for value, w in AXES[axis].items() if value not in excluded}
    return chance.choices(list(values), list(values.values()))[0]


def _draw(chance: random.Random, number: int, only: Mapping[str, str]) -> Setting:
    for _ in range(20_000):
        setting = _draw_any(chance, number, only)
        if _is_accepted(setting) and only.items() <= setting.axes.items():
            return setting
    raise ValueError(f"no setting was found with {dict(only)}; the values do not go together.")


def _draw_any(chance: random.Random, number: int, only: Mapping[str, str]) -> Setting:  # noqa: C901, PLR0912, PLR0915 - a draw for each axis
    axes = {axis: _pick(chance, axis) for axis in AXES}
    plain = {axis: next(iter(AXES[axis])) for axis in EVENTS}
    number_of_events = chance.choices((0, 1, 2, 3, 4), (1.0, 3.0, 4.0, 3.0, 1.0))[0]
    for axis in chance.sample(EVENTS, number_of_events):
        plain[axis] = _pick(chance, axis, plain[axis])
    axes.update(plain)
    axes.update(only)
    method = axes["method"]
    if method in CENSORED_DROP_INS:
        axes["played"] = "drop-in"
    if axes["models"] != "one":
        axes.update(played="loop", units="outcome")
    if axes["played"] == "drop-in":
        axes.update(restart="none", forgetting="none", history="of its own", constraints="none")
        axes.update(num_initial="0", horizon="not told", repeats="none")
    if axes["models"] != "one":
        kinds = ("multiplicative, fresh", "additive, fresh")
        axes.update(constraints=chance.choice(kinds), kernel=chance.choice(MATERN))
    if axes["variation"] != "none" and chance.random() < 0.9:
        axes["method"] = method = "IGP-UCB, any lam"
    if method.startswith("Lagrangian") and axes["played"] == "loop":
        if axes["constraints"] not in SEPARATE:
            axes["constraints"] = chance.choice(SEPARATE)
    elif axes["constraints"] != "none" and chance.random() < 0.8:
        axes["method"] = method = "IGP-UCB, any lam"
        if chance.random() < (0.5 if axes["constraints"].startswith("multiplicative") else 0.1):
            axes["method"] = method = "GP-TS, any lam"
        if axes["constraints"] in SEPARATE:
            axes["method"] = method = "Lagrangian UCB"
    needs_lam = (
        method.endswith("printed")
        or axes["feedback"] == "censored, printed"
        or (method in CENSORED_DROP_INS and axes["feedback"] == "censored, window all")
    )
    if needs_lam and chance.random() < 0.9:
        axes["lam"] = chance.choice(("1", "2", "10"))
    if method in ("Theorem 2", LIST_ON_BOX):
        axes["domain"], axes["kernel"] = "box, d = 1", "RBF"
    is_box = axes["domain"].startswith("box")
    if is_box and method in DRAWN:
        axes["kernel"] = "RBF"
    if is_box:  # without a closed form a round costs ten times as much
        smooth = {"linear": "RBF", "sum": "RBF", "periodic": "Matern 5/2", "product": "RBF"}
        axes["kernel"] = smooth.get(axes["kernel"], axes["kernel"])
    if axes["constraints"].startswith("multiplicative"):
        axes["kernel"] = "Matern 1/2"  # penalties that are not linear have a norm in it
    if method == "Theorem 3":
        axes["noise"] = chance.choice(("two-point", "uniform"))
    axes.update({axis: value for axis, value in only.items() if axis in ("models", "variation")})
    has_contexts = axes["contexts"] != "none"
    num_rounds = chance.choice((10, 15, 20, 30, 60))
    if axes["kernel"] in ("periodic", "product", "sum") and is_slow(axes):
        num_rounds = 6
    elif is_slow(axes):
        num_rounds = chance.choice((6, 8, 10))
    if axes["horizon"] == "told" and axes["constraints"] != "none":
        num_rounds = 8  # whole epochs
    return Setting(
        number=number,
        **axes,
        num_arms=chance.choice((5, 8, 12, 20, 40)) if not has_contexts else chance.choice((5, 8)),
        num_rounds=num_rounds,
        lengthscale=chance.choice((0.1, 0.2, 0.4, 0.8))
        if not is_box
        else chance.choice((0.2, 0.3, 0.5)),
        norm=chance.choice((0.5, 1.0, 2.0, 5.0)),
        noise_bound=chance.choice((0.05, 0.1, 0.3, 1.0)),
        offset=chance.choice((-4.0, 2.0, 5.0)),
    )


def _is_accepted(setting: Setting) -> bool:  # noqa: C901, PLR0912 - a refusal for each pair
    """Whether loop and drop-in accept it, as far as that is known without building it."""
    censors = setting.is_censored
    method = setting.method
    if method in CENSORED_DROP_INS and not setting.feedback.startswith("censored"):
        return False
    if setting.played == "drop-in" and setting.feedback.startswith("censored") != (
        method in CENSORED_DROP_INS
    ):
        return False
    if setting.played == "drop-in" and (setting.is_box or setting.method.startswith("Lagr")):
        return False
    if setting.feedback in ("censored, seconds",) and setting.played == "drop-in":
        return False
    if setting.feedback == "censored, bounded" and setting.played == "loop":
        return False  # an option of the drop-ins
    if censors and (
        not (method.startswith(("IGP", "GP-TS")) or method in CENSORED_DROP_INS)
        or "gain" in method
        or setting.constraints != "none"
        or setting.forgetting != "none"
        or setting.workers != "1"
        or setting.order != "as asked"
        or setting.kernel in ("periodic", "linear", "product", "sum")
        or setting.prior_mean != "zero"
    ):
        return False
    if setting.feedback == "censored, printed" and not (
        method.endswith("printed") or method in CENSORED_DROP_INS
    ):
        return False
    if setting.feedback == "censored, any lam" and method.endswith("printed"):
        return False
    if censors and setting.units == "prior" and setting.feedback == "censored, window all":
        return False
    if method.startswith("Lagrangian") and setting.constraints not in SEPARATE:
        return False
    if setting.constraints != "none" and (
        setting.attached != "none"
        or setting.is_drawn
        or setting.prior_mean != "zero"
        or setting.is_box
        or setting.kernel in ("linear", "periodic", "product", "sum")
        or setting.model != "BanditGP"
        or setting.contexts != "none"
    ):
        return False
    if setting.constraints.endswith("fresh") and setting.restart != "none":
        return False
    if setting.constraints in SEPARATE and (
        not method.startswith("Lagrangian") or setting.forgetting == "weights"
    ):
        return False
    if setting.forgetting != "none" and setting.model != "BanditGP":
        return False
    if setting.models != "one" and (
        setting.played != "loop"
        or setting.model != "BanditGP"
        or not setting.constraints.endswith("fresh")
        or setting.kernel not in MATERN
        or setting.units != "outcome"
    ):
        return False
    if setting.variation != "none" and (
        not method.startswith("IGP")
        or censors
        or setting.constraints.startswith("multiplicative")
        or setting.constraints in SEPARATE
        or setting.restart != "none"
        or setting.is_box
        or setting.model != "BanditGP"
    ):
        return False
    if setting.repeats != "none" and (
        setting.constraints != "none"
        or setting.model != "BanditGP"
        or setting.forgetting == "time kernel"
        or setting.played == "drop-in"
    ):
        return False
    if method.startswith("GP-TS") and setting.is_box and setting.forgetting == "time kernel":
        return False
    if setting.is_box and method.startswith("GP-TS") and setting.number % 6:
        return False  # draws on a box are slow
    if "gain" in method and (setting.is_box or setting.contexts != "none"):
        return False
    if method == "Theorem 3" and (setting.is_box or setting.contexts != "none"):
        return False
    if method in ("Theorem 1", LIST, "IRGP-UCB") and setting.is_box:
        return False
    if method in LISTS and (setting.model != "BanditGP" or setting.forgetting != "none"):
        return False
    if setting.is_box and setting.model != "BanditGP" and setting.number % 4:
        return False  # without a closed form a round costs ten times as much
    if setting.model == "noise by row" and (
        "gain" in method or method == "Theorem 3" or setting.units == "prior"
    ):
        return False
    if setting.model == "fitted, frozen" and setting.kernel != "RBF":
        return False
    if setting.is_box and setting.dim + (setting.contexts != "none") > 2:
        return False
    if setting.units == "prior" and not method.startswith(("IGP", "GP-TS", "Lagr", "censored")):
        return False
    if setting.model != "BanditGP" and (setting.is_censored or setting.prior_mean != "zero"):
        return False
    is_plain = setting.output_scale == "none" and setting.units == "prior"
    return not (setting.kernel == "linear" and is_plain)
