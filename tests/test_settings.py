"""A table of settings of the loop: two features at a time, on arms and on a box.

Each setting is played for a few rounds. A loop that is rebuilt from its settings and the recorded
history must choose the same points, the fast engines must choose what the general evaluation
chooses, and both must choose what ``data/settings.json`` records, with the same widths.

    python tests/test_settings.py --write

records anew what the settings choose, after a change that is meant to change it.
"""

from __future__ import annotations

import json
import math
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    DMMUpperConfidenceBound,
    EvidenceRestart,
    ExponentialWeights,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    OracleRestart,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
)
from tests.records import rebuilt

RECORDED = Path(__file__).parent / "data" / "settings.json"
ROUNDS = {"arms": 14, "box": 8}
REBUILT_AFTER = {"arms": 10, "box": 6}
CHANGE = 6
TOLERANCE = 1e-6

BOUNDS = {"rkhs_bound": 1.5, "noise_bound": 0.2, "delta": 0.1}
LISTS = CandidatesUpperConfidenceBound
METHODS: dict[str, tuple[type, dict[str, Any]]] = {
    "igp": (ImprovedUpperConfidenceBound, {**BOUNDS, "any_lambda": True}),
    "ucb": (GPUpperConfidenceBound, {"width": 1.5}),
    "amm": (AMMUpperConfidenceBound, BOUNDS),
    "dmm": (DMMUpperConfidenceBound, BOUNDS),
    "ts": (GPThompsonSampling, {"width": 1.5}),
    "ei": (LogExpectedImprovement, {}),
    "lists": (LISTS, {}),
    "mixture": (LISTS, {"form": "mixture"}),
    "irgp": (RandomizedUpperConfidenceBound, {}),
}
# with a model of the reward and one of the constraint
SEPARATE: dict[str, tuple[type, dict[str, Any]]] = {
    "igp": (LagrangianUpperConfidenceBound, {**BOUNDS, "any_lambda": True}),
    "ucb": (LagrangianUpperConfidenceBound, {"width": 1.5}),
    "ts": (LagrangianThompsonSampling, {"width": 1.5}),
}
EPOCHS = {"num_constraints": 1, "epoch_length": 4}
FEATURES: dict[str, dict[str, Any]] = {
    "censored": {"feedback": Censored(minimum=-2.0, outcome_bound=4.0, max_delay=6)},
    "ignored": {"feedback": Ignored()},
    "window": {"forgetting": SlidingWindow(7)},
    "weights": {"forgetting": ExponentialWeights(0.9)},
    "drift": {"forgetting": TimeVaryingKernel(0.1)},
    "contexts": {"context_dim": 1},
    "evidence": {"restart": EvidenceRestart(alpha=0.5)},
    "halves": {
        "restart": ChangePointRestart(
            detector=ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.3)
        )
    },
    "oracle": {"restart": OracleRestart(change_points=(CHANGE,))},
    "relabeled": {"constraints": AdditiveEpochs(**EPOCHS, step_size=0.8)},
    "fresh": {"constraints": MultiplicativeEpochs(**EPOCHS, surrogate="fresh")},
    "separate": {"constraints": AdditiveEpochs(**EPOCHS, step_size=0.8, surrogate="separate")},
    "minimize": {"maximize": False},
    # what is done in the rounds, see Player
    **{key: {} for key in ("plain", "pending", "available", "noise", "count", "failures")},
}
TABLE = {
    "arms igp": "plain oracle+noise available+count drift+contexts censored+evidence "
    "weights+separate window+fresh censored+pending pending+minimize",
    "arms ucb": "plain count+failures ignored+separate pending+relabeled contexts+halves "
    "evidence+fresh censored+drift window+contexts",
    "arms amm": "ignored+oracle window+failures fresh+available weights+relabeled drift+halves "
    "pending+evidence contexts+noise",
    "arms dmm": "plain contexts+evidence pending+available window+noise halves+fresh "
    "weights+oracle ignored+relabeled count+minimize",
    "arms ts": "plain weights+fresh pending+separate contexts+noise oracle+minimize "
    "relabeled+available window+drift",
    "arms ei": "plain pending+fresh ignored+failures drift+relabeled window+halves "
    "oracle+available count+contexts",
    "arms irgp": "weights+minimize ignored+drift window+available oracle+failures relabeled+count",
    "arms lists": "plain pending+halves window+minimize ignored+evidence contexts+oracle",
    "arms mixture": "failures+minimize ignored+halves window+evidence contexts+available",
    "box igp": "plain censored separate noise",
    "box ucb": "contexts weights minimize",
    "box dmm": "pending",
    "box ei": "plain failures",
    "box lists": "window",
}
SETTINGS = [f"{row} {cell}" for row, cells in TABLE.items() for cell in cells.split()]


class General:
    """What a user's own acquisition function is to the loop: its values come from ``forward``."""

    def forward(self, X: Tensor) -> Tensor:
        values: Tensor = super().forward(X)  # type: ignore[misc]
        return values


class Player:
    """A loop of one of the settings, and the outcomes that are on their way."""

    def __init__(self, setting: str, general: bool = False) -> None:
        kind, method, features = setting.split()
        self.features = features.split("+")
        options = {k: v for name in self.features for k, v in FEATURES[name].items()}
        cls, given = (SEPARATE if "separate" in self.features else METHODS)[method]
        if general:
            cls = type(cls.__name__, (General, cls), {})
        domain = (
            Arms(torch.linspace(0.0, 1.0, 25, dtype=torch.float64).unsqueeze(-1))
            if kind == "arms"
            else Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=2, raw_samples=32)
        )
        scales = (0.1, 0.2, 0.4) if method in ("lists", "mixture") else (0.3,)
        size = (1 if kind == "arms" else 2) + ("contexts" in self.features)
        recipes = [
            BanditGP.with_kernel(
                MaternKernel(nu=2.5, ard_num_dims=size), noise=0.05, lengthscale=scale
            )
            for scale in scales
        ]
        model = BanditGP.with_candidates(recipes) if len(recipes) > 1 else recipes[0]
        self.setting, self.waiting = setting, []
        self.loop = BanditLoop(
            domain,
            model,
            cls.with_options(**given),
            seed=4,
            **options,
        )

    def play_round(self) -> None:
        t = self.loop.history.num_queries + 1
        rng = random.Random(t)
        asked: dict[str, Any] = {}
        if "contexts" in self.features:
            asked["context"] = [rng.random()]
        if "available" in self.features and t % 3:
            asked["available"] = sorted(rng.sample(range(25), 9))
        query = self.loop.ask(**asked)
        mean = sum(math.cos(5.0 * float(x)) * float(x) for x in query.x)
        mean += sum(0.4 * math.sin(6.0 * c) for c in asked.get("context", []))
        changed = {"evidence", "halves", "oracle"} & {*self.features} and t > CHANGE
        reward = (-2.0 if changed else 1.0) * mean + rng.gauss(0.0, 0.2)
        told: dict[str, Any] = {}
        if self.loop.settings.constraints is not None:
            told["constraints"] = [0.6 - float(query.x[0])]
        if "noise" in self.features:
            told["noise"] = 0.02 * (1 + t % 4)
        if "count" in self.features:
            told["count"] = 1 + t % 3
        late = {"pending", "censored", "ignored"} & {*self.features}
        self.waiting.append((t + (t % 4 if late else 0), query.id, reward, told))
        for due in [each for each in self.waiting if each[0] <= t]:
            self.waiting.remove(due)
            _, query_id, reward, told = due
            if "failures" in self.features and query_id % 4 == 2:
                self.loop.fail(query_id)
            else:
                self.loop.tell(query_id, reward, **told)

    def rebuilt(self, general: bool = False) -> Player:
        """Return another loop with these settings and what this one recorded."""
        again = Player(self.setting, general)
        rebuilt(again.loop, self.loop.history)
        again.waiting = list(self.waiting)
        return again


def chosen(player: Player) -> dict[str, list[Any]]:
    """Return points, and widths to nine digits, of all rounds."""
    queries = player.loop.history.queries
    widths = [query.diagnostics.get("width") for query in queries]
    return {
        "points": [[round(float(x), 9) for x in query.x] for query in queries],
        "widths": [None if w is None else float(f"{float(w):.9g}") for w in widths],
    }


def played(setting: str, general: bool = False) -> Player:
    player = Player(setting, general=general)
    for _ in range(ROUNDS[setting.split()[0]]):
        player.play_round()
    return player


def check_same(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    assert len(found["points"]) == len(expected["points"])
    for t, (x, y) in enumerate(zip(found["points"], expected["points"], strict=True), 1):
        assert x == pytest.approx(y, abs=TOLERANCE), f"point of round {t}"
    for t, (w, v) in enumerate(zip(found["widths"], expected["widths"], strict=True), 1):
        assert (w is None) == (v is None), f"width of round {t}"
        assert w is None or w == pytest.approx(v, rel=TOLERANCE), f"width of round {t}"


def has_general_form(setting: str) -> bool:
    """Draws come from other streams there, and the loop must know a width that it adds to."""
    _, method, features = setting.split()
    return method not in ("ts", "irgp") and not {"censored", "separate"} & {*features.split("+")}


def test_the_record_has_these_settings() -> None:
    assert list(json.loads(RECORDED.read_text(encoding="utf-8"))) == SETTINGS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setting", SETTINGS)
def test_points_and_widths_are_those_on_record_and_a_rebuilt_loop_goes_on(setting: str) -> None:
    expected = json.loads(RECORDED.read_text(encoding="utf-8"))[setting]
    kind = setting.split()[0]
    player = Player(setting)
    for _ in range(REBUILT_AFTER[kind]):
        player.play_round()
    again = player.rebuilt()
    for each in (player, again):
        for _ in range(ROUNDS[kind] - REBUILT_AFTER[kind]):
            each.play_round()
        check_same(chosen(each), expected)
    assert again.loop.resets == player.loop.resets
    assert again.loop.multipliers == pytest.approx(player.loop.multipliers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("setting", [s for s in SETTINGS if has_general_form(s)])
def test_the_fast_way_chooses_as_the_general_way_does(setting: str) -> None:
    expected = json.loads(RECORDED.read_text(encoding="utf-8"))[setting]
    if setting.startswith("arms"):
        check_same(chosen(played(setting, general=True)), expected)
        return
    # On a box both search for the maximum of one function: they find its value.
    fast = Player(setting)
    for t in range(1, REBUILT_AFTER["box"] + 1):
        fast.play_round()
        if t in (3, REBUILT_AFTER["box"]):
            found = []
            for general in (False, True):
                player = fast.rebuilt(general)
                player.play_round()
                found.append(player.loop.history.queries[-1].diagnostics["acquisition_value"])
            assert found[0] == pytest.approx(found[1], abs=1e-4)


def write() -> None:
    lines = [
        f"{json.dumps(setting)}: {json.dumps(chosen(played(setting)))}" for setting in SETTINGS
    ]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    write()
