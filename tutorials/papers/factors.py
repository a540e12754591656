"""Tables of one changed factor: which setting decides whether a published claim holds.

The first rows of a figure have the settings by which it is judged. Every further row changes one of
them, or states that it changes two. The rules are those of the judged figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from papers.estimates import FAR, Estimate, are_alike, is_larger
from papers.results import write_csv
from papers.trials import ArmsExperiment, Curves

FACTORS_FILE = "factors.csv"


class Kind(StrEnum):
    """The kinds of claims about a method and others."""

    AHEAD = "ahead"
    FAR_AHEAD = "far ahead"
    BEST = "best"
    ALIKE = "alike"


@dataclass(frozen=True)
class Claim:
    """A claim about the regret of methods on the same trials.

    Attributes:
        kind: The kind of claim.
        method: The method that the claim is about.
        others: The methods with which it is compared; several only if the method is to be best.
        where: Words that identify the panel, for a claim about several panels.
    """

    kind: Kind
    method: str
    others: tuple[str, ...]
    where: str = ""

    def __str__(self) -> str:
        """The words of the claim in the judged figure."""
        where = f", {self.where}" if self.where else ""
        if self.kind is Kind.BEST:
            return f"{self.method} best"
        (other,) = self.others
        if self.kind is Kind.ALIKE:
            return f"{self.method} and {other} alike{where}"
        return f"{self.method} {self.kind} of {other}{where}"


@dataclass(frozen=True)
class Factor:
    """A setting under which claims are checked.

    Attributes:
        figure: The name of the judged figure.
        factor: The factor that is changed, in words.
        setting: Its value, in words.
        panel: The experiment that has it.
        claims: The claims to check.
        source: Where the setting is from: a section of the paper, or ``"ours"``.
        methods: The panel's methods that replace those of the claims; the same ones if omitted.
        num_rounds: The number of the panel's rounds that count; all if omitted.
    """

    figure: str
    factor: str
    setting: str
    panel: str
    claims: tuple[Claim, ...]
    source: str = "ours"
    methods: Mapping[str, str] = field(default_factory=dict)
    num_rounds: int | None = None


def check_claim(claim: Claim, factor: Factor, panel: ArmsExperiment, curves: Any) -> dict[str, Any]:
    """Return the row of a claim under a setting.

    The difference is the other method's regret minus the regret of the method named first, over the
    same trials; with several others, it is the difference to the best of them.

    Args:
        claim: The claim to check.
        factor: The setting.
        panel: The experiment that has it.
        curves: Its results by method.
    """
    totals = {}
    for name in (claim.method, *claim.others):
        regret = curves[factor.methods.get(name, name)].regret[:, : factor.num_rounds]
        totals[name] = regret.mean(-1) if panel.average else regret.sum(-1)
    own = totals[claim.method]
    mean = float(own.mean())
    differences = {other: Estimate.of(totals[other] - own) for other in claim.others}
    least = min(differences, key=lambda other: float(totals[other].mean()))
    difference, other_mean = differences[least], float(totals[least].mean())
    if claim.kind is Kind.BEST:
        words = ", ".join(f"{other} {each.signed}" for other, each in differences.items())
        ours = f"regret {mean:.4g}; differences: {words}"
        holds = all(map(is_larger, differences.values()))
    else:
        ours = f"regret {mean:.4g} and {other_mean:.4g}, difference {difference.signed}"
        if claim.kind is Kind.ALIKE:
            holds = are_alike(difference, max(abs(mean), abs(other_mean)))
        else:
            is_far = claim.kind is Kind.AHEAD or other_mean >= FAR * mean
            holds = is_larger(difference) and is_far
    return {
        "figure": factor.figure,
        "factor": factor.factor,
        "setting": factor.setting,
        "claim": str(claim),
        "ours": ours,
        "difference": difference.mean,
        "standard_error": difference.standard_error if len(own) > 1 else "",
        "holds": "yes" if holds else "no",
        "trials": len(own),
        "source": factor.source,
    }


def tabulate_factors(
    factors: Sequence[Factor],
    panels: Sequence[ArmsExperiment],
    curves: Sequence[Mapping[str, Curves]],
) -> list[dict[str, Any]]:
    """Return one row per setting and claim, for the panels that were played.

    Args:
        factors: The settings, in the order of the table.
        panels: The panels that were played.
        curves: The results of each, by method.
    """
    known = {panel.name: (panel, found) for panel, found in zip(panels, curves, strict=True)}
    return [
        check_claim(claim, factor, *known[factor.panel])
        for factor in factors
        if factor.panel in known
        for claim in factor.claims
        if _concerns(factor, claim)
    ]


def _concerns(factor: Factor, claim: Claim) -> bool:
    """Whether a setting changes a method of the claim, so that its row is not the judged one."""
    return not factor.methods or not factor.methods.keys().isdisjoint((claim.method, *claim.others))


def report_factors(
    factors: Sequence[Factor],
    panels: Sequence[ArmsExperiment],
    curves: Sequence[Mapping[str, Curves]],
    folder: Path,
) -> None:
    """Print the table, and write it as ``factors.csv``.

    Args:
        factors: The settings, in the order of the table.
        panels: The panels that were played.
        curves: The results of each, by method.
        folder: The folder of the experiment.
    """
    rows = tabulate_factors(factors, panels, curves)
    write_csv(folder / FACTORS_FILE, rows)
    for row in rows:
        words = f"{row['figure']}, {row['factor']}: {row['setting']}"
        print(f"{words}; {row['claim']}: {row['holds']} ({row['ours']})")
