"""What may change in a run, read from the command line: known changes, restarts, detectors.

The options become the restart rule of a loop. The same object reports afterwards which resets
occurred, and from which round on the best reward counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from botorch_bandits.change_points import (
    CalibratedThreshold,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    NeverRestart,
    OracleRestart,
    PowerThreshold,
    Restart,
    Threshold,
    calibrate_threshold,
)
from botorch_bandits.change_points.thresholds import rate_exponent
from botorch_bandits.checks import DTYPE, check_integer, check_positive, check_probability
from botorch_bandits.cli.arguments import DETECTOR_DEFAULTS, EXPLORATION
from botorch_bandits.cli.options import parameters_of, show_value
from botorch_bandits.domains import Box
from botorch_bandits.history import Outcome, Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import (
    BanditGP,
    CandidatesRecipe,
    candidate_grid,
    lengthscale_ladder,
)
from botorch_bandits.spaces import Space

SMOOTHNESS = 2.5
"""``nu`` of the detector's kernel."""

NOISE_SHARE = 0.1
"""Standard deviation of the noise in calibrations, in units of ``--reward-scale``."""

NUM_SIMULATIONS = 500

NOISE_RATIOS = (0.001, 0.01, 0.1)
"""Noise variance over output scale of the candidates for evidence."""

SCALE_SHARES = (0.1, 0.3, 1.0)
"""Prior standard deviations of the candidates, in units of ``--reward-scale``."""


@dataclass(frozen=True)
class Changes:
    """What may change in a run, and how the loop responds.

    Attributes:
        restart: When the loop starts over, if ever.
        change_points: The last round before each known change.
        settings: The effective options that determine the run, by name.
    """

    restart: Restart | None = None
    change_points: tuple[int, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def are_possible(self) -> bool:
        """Whether there is anything to report."""
        return self.restart is not None or bool(self.change_points)

    def beginnings(self, loop: BanditLoop) -> list[int]:
        """Return the first rounds since the last known change and since the last reset, if any."""
        last = loop.history.num_queries
        changes = [tau for tau in self.change_points if tau < last]
        resets = [r.num_before for r in loop.resets if r.after_round < last]
        return sorted({max(rounds) + 1 for rounds in (changes, resets) if rounds})

    def best(self, loop: BanditLoop) -> tuple[int, tuple[Query, Outcome] | None]:
        """Return the first round that counts now, and the best query since then, if any.

        This is the round after the last reset or the last known change, whichever came later.
        """
        first = max([1, *self.beginnings(loop)])
        return first, loop.best() if first == 1 else self.best_since(loop, first)

    def best_since(self, loop: BanditLoop, round_number: int) -> tuple[Query, Outcome] | None:
        """Return the query with the best reward among those from a round on, if any.

        With budgets, only queries that met them are considered, as in :meth:`BanditLoop.best`.
        """
        best: tuple[Query, Outcome] | None = None
        for query in loop.history.queries_since(round_number - 1):
            outcome = loop.history.outcome(query.id)
            if outcome is None or max(outcome.constraints, default=0.0) > 0.0:
                continue
            if best is None or loop.history.is_better(outcome.reward, best[1].reward):
                best = query, outcome
        return best

    def shown(self, loop: BanditLoop) -> dict[str, str]:
        """Return what the progress bar shows beside the current best reward."""
        shown = {}
        if self.beginnings(loop) and (largest := loop.history.best()) is not None:
            shown["largest ever" if loop.history.maximize else "least ever"] = (
                f"{largest[1].reward:.6g}"
            )
        if loop.resets:
            shown["reset"] = f"after round {loop.resets[-1].after_round}"
        return shown

    def result(self, loop: BanditLoop) -> dict[str, Any]:
        """Return the entries of ``result.json``: resets, tests, the best since the last change."""
        if not self.are_possible:
            return {}
        since = []
        for first in self.beginnings(loop):
            best = self.best_since(loop, first)
            if best is not None:
                query, outcome = best
                since.append(
                    {
                        "since_round": first,
                        "reward": outcome.reward,
                        "round": query.round_number,
                        "parameters": parameters_of(query),
                    }
                )
        ever = loop.history.best()
        largest = None
        if ever is not None:
            largest = {"reward": ever[1].reward, "round": ever[0].round_number}
        return {
            "change_points": list(self.change_points),
            "resets": [plain_record(reset) for reset in loop.resets],
            "num_tests": len(loop.change_tests),
            "best_since": since,
            "largest": largest,
        }

    def rows(self, result: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the lines of the summary."""
        if not self.are_possible:
            return []
        rows = []
        if result["change_points"]:
            rounds = ", ".join(str(tau) for tau in result["change_points"])
            rows.append(("changes after", rounds))
        for reset in result["resets"]:
            found = reset["reason"]
            if reset["change_round"] is not None:
                found += f", change placed before round {reset['change_round']}"
            rows.append(("reset after", f"{reset['after_round']} ({found})"))
        if not result["resets"] and self.restart is not None:
            rows.append(("resets", "none"))
        first, largest = result["best_since_round"], result["largest"]
        if first > 1 and largest is not None:
            found = "" if result["best_reward"] is not None else ", where no reward has arrived yet"
            rows.append(("best is counted", f"from round {first} on{found}"))
            rows.append(
                ("largest reward ever", f"{largest['reward']:.6g} in round {largest['round']}")
            )
        for best in result["best_since"]:
            if best["since_round"] == first:  # it is the best reward
                continue
            rows.append((f"best since round {best['since_round']}", f"{best['reward']:.6g}"))
            rows.append(("found in round", str(best["round"])))
            rows += [(f"  {name}", show_value(v)) for name, v in best["parameters"].items()]
        return rows


def read_changes(
    options: argparse.Namespace,
    box: Box,
    known: Mapping[str, Any],
    reward_mean: float | None = None,
    reward_scale: float | None = None,
) -> Changes:
    """Read the options, before any file is written.

    Args:
        options: The options of ``add_change_arguments``.
        box: The domain of the points.
        known: Settings of the run that is continued, empty if there is none: the round of the
            shift and the threshold are taken from there.
        reward_mean: The default of ``--reward-mean``; if None, the option must be given.
        reward_scale: The default of ``--reward-scale``; if None, the option must be given.

    Raises:
        ValueError: If the options contradict each other.
    """
    change_points = _read_change_points(options, known)
    settings: dict[str, Any] = {}
    if getattr(options, "shift", None):
        settings["shift_round"] = change_points[0]
    _refuse_without("--restart cpd", options.restart == "cpd", options, DETECTOR_OPTIONS)
    has_prior = options.restart in ("cpd", "evidence")
    _refuse_without("--restart evidence or cpd", has_prior, options, PRIOR_OPTIONS)
    _refuse_without("--restart", options.restart is not None, options, ("exploration",))
    if options.restart is None:
        return Changes(None, change_points, settings)
    if options.restart == "evidence":
        prior = {"reward_mean": reward_mean, "reward_scale": reward_scale}
        _read_prior(options, prior, settings)
        if _encodes_categories(box) and (ENCODED in known or not known):
            settings[ENCODED] = True  # runs of earlier versions continue without it
        restart = EvidenceRestart(
            robust=False,
            candidates=_candidates(box, settings),
            exploration=options.exploration,
        )
        return Changes(restart, change_points, {**settings, "exploration": options.exploration})
    exploration = EXPLORATION if options.exploration is None else options.exploration
    settings["exploration"] = exploration
    if options.restart == "never":
        return Changes(NeverRestart(exploration=exploration), change_points, settings)
    if options.restart == "oracle":
        if not change_points:
            raise ValueError(
                "--restart oracle needs to know the changes; add "
                + ("--shift." if hasattr(options, "shift") else "--change-points, as in 30,60.")
            )
        oracle = OracleRestart(change_points=change_points, exploration=exploration)
        return Changes(oracle, change_points, settings)
    defaults = {"reward_mean": reward_mean, "reward_scale": reward_scale, **DETECTOR_DEFAULTS}
    if options.threshold_scale is not None:
        if options.false_alarm_rate is not None:
            raise ValueError("--threshold-scale replaces --false-alarm-rate; give one of the two.")
        del defaults["false_alarm_rate"]
    _read_prior(options, defaults, settings)
    detector = _detector(options, box, settings)
    threshold, record = _threshold(options, detector, box, settings, known)
    settings["threshold"] = record
    cpd = ChangePointRestart(
        detector=dataclasses.replace(detector, threshold=threshold), exploration=exploration
    )
    return Changes(cpd, change_points, settings)


def _read_prior(
    options: argparse.Namespace, defaults: Mapping[str, Any], settings: dict[str, Any]
) -> None:
    """Put the prior of a detector into the settings, or raise.

    Args:
        options: The options of ``add_change_arguments``.
        defaults: The defaults by name; if None, the option must be given.
        settings: The settings to fill.
    """
    for name, default in defaults.items():
        given = getattr(options, name)
        settings[name] = default if given is None else given
        if settings[name] is None:
            raise ValueError(
                f"--restart {options.restart} needs --{name.replace('_', '-')}: the detector's "
                "prior has a mean and a standard deviation, in units of the reward."
            )


def _candidates(box: Box, settings: Mapping[str, Any]) -> CandidatesRecipe:
    """Return the priors, fixed before the data, one of which is assumed to be true."""
    scale = check_positive("--reward-scale", settings["reward_scale"])
    sides = (box.bounds[1] - box.bounds[0]).tolist()
    num_columns, transform = box.dim, None
    if settings.get(ENCODED):
        assert isinstance(box, Space)
        num_columns, transform = box.num_columns, box.input_transform()
        sides = [1.0] * num_columns  # a column is 0 or 1 for a category, and otherwise normalized
    priors = candidate_grid(
        [[rung * side for side in sides] for rung in lengthscale_ladder(num_columns)],
        noise_ratios=NOISE_RATIOS,
        scales=[share**2 * scale**2 for share in SCALE_SHARES],
        smoothness=(SMOOTHNESS,),
        prior_means=(settings["reward_mean"],),
    )
    if transform is not None:
        priors = [dataclasses.replace(prior, input_transform=transform) for prior in priors]
    return BanditGP.with_candidates(priors)


def _encodes_categories(box: Box) -> bool:
    """Return whether there are categories without an order, which are not numbers to a kernel."""
    return isinstance(box, Space) and bool(box.unordered_dims)


ENCODED = "encoded_candidates"
"""Setting of a run whose priors see each category without an order as a separate column."""

PRIOR_OPTIONS = ("reward_mean", "reward_scale")
DETECTOR_OPTIONS = (
    "false_alarm_rate",
    "threshold_scale",
    "ridge",
    "lengthscale",
)


def _read_change_points(options: argparse.Namespace, known: Mapping[str, Any]) -> tuple[int, ...]:
    if hasattr(options, "shift"):
        _refuse_without("--shift", options.shift, options, ("shift_round", "shift_feature"))
        if not options.shift:
            return ()
        if options.shift_round is not None:
            return (check_integer("--shift-round", options.shift_round, minimum=1),)
        return (int(known.get("shift_round") or max(options.rounds // 2, 1)),)
    if options.change_points is None:
        return ()
    _refuse_without("--restart oracle", options.restart == "oracle", options, ("change_points",))
    try:
        rounds = tuple(int(part) for part in options.change_points.split(","))
    except ValueError:
        raise ValueError(
            f"--change-points is {options.change_points!r}; it must be rounds, as in 30,60."
        ) from None
    return OracleRestart(change_points=rounds).change_points


def _refuse_without(
    needed: str, is_there: Any, options: argparse.Namespace, names: Sequence[str]
) -> None:
    for name in names:
        if not is_there and getattr(options, name) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} is {getattr(options, name)}, but it goes with "
                f"{needed} only. Add {needed}, or leave it out."
            )


def _detector(
    options: argparse.Namespace, box: Box, settings: Mapping[str, Any]
) -> ChangePointDetector:
    scale = check_positive("--reward-scale", settings["reward_scale"])
    share = check_positive("--lengthscale", settings["lengthscale"])
    kernel = ScaleKernel(MaternKernel(nu=SMOOTHNESS, ard_num_dims=box.dim).double()).double()
    lengthscales = share * (box.bounds[1] - box.bounds[0])
    kernel.base_kernel.lengthscale = lengthscales.unsqueeze(0)
    kernel.outputscale = torch.tensor(scale**2, dtype=DTYPE)
    ridge = check_positive("--ridge", settings["ridge"])
    return ChangePointDetector(
        kernel, ridge=ridge, prior_mean=settings["reward_mean"], seed=options.seed
    )


def _threshold(
    options: argparse.Namespace,
    detector: ChangePointDetector,
    box: Box,
    settings: Mapping[str, Any],
    known: Mapping[str, Any],
) -> tuple[Threshold, dict[str, Any]]:
    """Return the threshold and a record; it is simulated unless the continued run has one."""
    if options.threshold_scale is not None:
        scale = check_positive("--threshold-scale", options.threshold_scale)
        power = PowerThreshold(scale, -rate_exponent(SMOOTHNESS, box.dim))
        return power, dataclasses.asdict(power)
    rate = check_probability("--false-alarm-rate", settings["false_alarm_rate"])
    record = known.get("threshold")
    calibrated = recorded_threshold(record)
    if calibrated is not None:
        return calibrated, record  # type: ignore[return-value]
    # as many uniform queries as a segment that lasts all rounds has, or its initial ones
    uniform = math.ceil(settings["exploration"] * math.sqrt(options.rounds)) + 1
    threshold = calibrate_threshold(
        detector,
        box,
        horizon=max(2, min(max(uniform, options.initial), options.rounds)),
        false_alarm_rate=rate,
        noise_std=NOISE_SHARE * settings["reward_scale"],
        num_simulations=max(NUM_SIMULATIONS, math.ceil(20.0 / rate)),
        seed=options.seed,
        progress=not options.quiet,
    )
    return threshold, plain_record(threshold)


def recorded_threshold(record: Any) -> CalibratedThreshold | None:
    """Return the threshold from its record by :func:`plain_record`, if it is one."""
    if not isinstance(record, dict) or "levels" not in record:
        return None
    lists = {name: tuple(record[name]) for name in ("levels", "rate_bounds")}
    return CalibratedThreshold(**{**record, **lists})


def plain_record(record: Any) -> dict[str, Any]:
    """Return a dataclass in the form of JSON, which has no NaN."""
    return {
        name: None
        if isinstance(value, float) and math.isnan(value)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in dataclasses.asdict(record).items()
    }
