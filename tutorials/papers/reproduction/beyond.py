"""Experiments beyond the papers, on the same page: what is asked, and what was found.

No paper has these figures, so there is nothing to judge: the answers are read from the tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from papers.reproduction.judging import (
    ERRORS,
    Evidence,
    Figure,
    MissingRowsError,
    estimate,
    is_larger,
)


def find_least(evidence: Evidence) -> list[str]:
    """Return for each panel which method has the least regret, and which cannot be told from it.

    Args:
        evidence: The tables of an experiment; without differences it is not said which methods
            cannot be told apart.
    """
    found = []
    for panel in evidence.panels(("*",)):
        name, title = panel["name"], panel["title"]
        try:
            rows = evidence.rows("table", name)
            quantity = "simple regret" if rows[0]["regret"] == "simple" else "regret"
            means = {r["method"]: evidence.mean(name, r["method"], quantity) for r in rows}
        except (MissingRowsError, KeyError):
            continue
        if len(means) < 2:
            continue
        best = min(means, key=lambda method: means[method].mean)
        words = f"{title}: least {quantity} of {best}, {means[best]}"
        try:
            same = [
                other
                for other in means
                if other != best and not is_larger(evidence.difference(name, other, best, quantity))
            ]
        except MissingRowsError:
            same = []  # differences were not kept
        if same:
            words += f"; not told apart from it by {ERRORS:g} standard errors: {', '.join(same)}"
        found.append(f"{words}.")
    return found


def find_not_beaten(evidence: Evidence) -> list[str]:
    """Return for each panel the methods that no other beats in both regret and violation."""
    found = []
    for panel in evidence.panels(("*",)):
        rows = evidence.rows("violation", panel["name"], round=panel["rounds"])
        at = {
            row["method"]: (float(row["regret_mean"]), float(row["violation_mean"])) for row in rows
        }
        kept = [
            f"{method} (regret {own[0]:.3g}, violation {own[1]:.3g})"
            for method, own in at.items()
            if not any(_beats(other, own) for other in at.values())
        ]
        words = "no other has less mean regret at no more violation, or the reverse"
        found.append(f"{panel['title']}: {words}: {'; '.join(kept)}.")
    return found


def _beats(other: tuple[float, float], own: tuple[float, float]) -> bool:
    return other != own and other[0] <= own[0] and other[1] <= own[1]


def find_switched_off(evidence: Evidence) -> list[str]:
    """Return what each variant has more than the first method, in regret and violation."""
    found = []
    for panel in evidence.panels(("*",)):
        name = panel["name"]
        first, *others = [row["method"] for row in evidence.rows("table", name)]
        row = evidence.rows("table", name)[0]
        violation = estimate(row, "violation_mean", "violation_standard_error")
        found.append(f"{first}: regret {evidence.mean(name, first)}, violation {violation}.")
        for other in others:
            regret, violation = (
                evidence.difference(name, other, first, quantity)
                for quantity in ("regret", "violation")
            )
            found.append(
                f"{other} less {first}: regret {regret.signed}, violation {violation.signed}."
            )
    return found


def find_coverage(evidence: Evidence) -> list[str]:
    """Return DMM against all widths: regret with coverage, and differences over the same trials."""
    panel = "coverage-rkhs"
    delta = float(evidence.settings["settings"][panel]["delta"])
    found = []
    for row in evidence.rows("table", panel):
        other = row["method"]
        if other == "DMM":
            continue
        covered = row["covered"]
        holds = "no bounds of its own" if covered == "" else f"covered {float(covered):.3f}"
        try:
            more = evidence.difference(panel, other, "DMM")
            found.append(f"{other} less DMM: regret {more.signed}; {holds}.")
        except MissingRowsError:  # differences were not kept
            found.append(f"{other}: regret {evidence.mean(panel, other)}; {holds}.")
    own = evidence.rows("table", panel, method="DMM")[0]
    start = (
        f"DMM: regret {evidence.mean(panel, 'DMM')}, covered {float(own['covered']):.3f} "
        f"(claimed: {1.0 - delta:g})."
    )
    return [start, *found]


def find_ringing(evidence: Evidence) -> Sequence[str]:
    """Return in which share of trials each way to take pending queries rings."""
    return [
        f"{row['model']}, {row['pending']}: rings in {float(row['rings']):.0%} of trials; best "
        f"reward of four choices {float(row['best_reward']):.2f}."
        for row in evidence.rows("table")
    ]


FIGURES = (
    Figure(
        "coverage",
        "",
        "DMM against all widths",
        "coverage",
        ("coverage-*",),
        "What does a guarantee cost? All widths play functions of known norm and draws of a "
        "Gaussian process. Covered is the share of functions that stayed within the bounds on all "
        "arms in all rounds; a width that claims 1 - delta must reach it.",
        findings=find_coverage,
    ),
    Figure(
        "ringing",
        "",
        "Pending queries at the minimum",
        "ringing",
        ("ringing",),
        "When does filling pending queries at the known minimum make the posterior ring (its "
        "largest mean rises), and what helps?",
        findings=find_ringing,
    ),
    Figure(
        "avanesov-constants",
        "",
        "What Avanesov leaves unsaid",
        "avanesov-constants",
        ("avanesov-constants",),
        "The setting of Avanesov's Figure 3 with other ridges, the other statistic and the "
        "theorem's regularization.",
        findings=find_least,
    ),
    Figure(
        "beyond-multipliers",
        "",
        "Multipliers every round against every epoch",
        "beyond-multipliers",
        ("*",),
        "Is it better to change the multipliers every round (Zhou and Ji 2022) or once an epoch? "
        "Regret must be read with its violation: less regret can be paid with more of it.",
        findings=find_not_beaten,
    ),
    Figure(
        "beyond-forgetting",
        "",
        "Restarts against forgetting",
        "beyond-forgetting",
        ("*",),
        "Where the reward changes: is it better to detect changes and restart, or to forget old "
        "outcomes gradually?",
        findings=find_least,
    ),
    Figure(
        "beyond-priors",
        "",
        "A prior that is not known",
        "beyond-priors",
        ("*",),
        "Nobody knows the prior: what does a list of priors cost against an oracle, and what does "
        "it save against fitting the hyperparameters before each round?",
        findings=find_least,
    ),
    Figure(
        "beyond-combined",
        "",
        "All components at once, each switched off in turn",
        "beyond-combined",
        ("*",),
        "A scenario with delays, changes, a constraint and contexts. What does each component of "
        "the loop contribute? Each is switched off in turn.",
        findings=find_switched_off,
    ),
)
