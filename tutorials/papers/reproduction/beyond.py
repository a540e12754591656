"""Experiments beyond the papers, on the same page, each with a question and what was found.

These figures are not in any paper, so there is nothing to judge; the answers come from the tables.
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
    """Return, for each panel, the method with the least regret and those close to it.

    Args:
        evidence: The tables of an experiment; without differences, the methods that cannot be
            distinguished from the best one are left out.
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
        words = f"{title}: {best!r} has the least {quantity}, {means[best]}"
        try:
            same = [
                other
                for other in means
                if other != best and not is_larger(evidence.difference(name, other, best, quantity))
            ]
        except MissingRowsError:
            same = []  # differences were not stored
        if same:
            others = ", ".join(map(repr, same))
            words += f"; the difference is within {ERRORS:g} standard errors for {others}"
        found.append(f"{words}.")
    return found


def find_not_beaten(evidence: Evidence) -> list[str]:
    """Return, for each panel, the methods that no other method beats in both quantities."""
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
        words = "not dominated by another method in mean regret and violation"
        found.append(f"{panel['title']}: {words}: {'; '.join(kept)}.")
    return found


def _beats(other: tuple[float, float], own: tuple[float, float]) -> bool:
    return other != own and other[0] <= own[0] and other[1] <= own[1]


def find_switched_off(evidence: Evidence) -> list[str]:
    """Return how much more regret and violation each variant has than the first method."""
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
                f"{other} minus {first}: regret {regret.signed}, violation {violation.signed}."
            )
    return found


def find_coverage(evidence: Evidence) -> list[str]:
    """Return the coverage of all widths and how much more regret they have than DMM."""
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
            found.append(f"{other} minus DMM: regret {more.signed}; {holds}.")
        except MissingRowsError:  # differences were not stored
            found.append(f"{other}: regret {evidence.mean(panel, other)}; {holds}.")
    own = evidence.rows("table", panel, method="DMM")[0]
    start = (
        f"DMM: regret {evidence.mean(panel, 'DMM')}, covered {float(own['covered']):.3f} "
        f"(claimed: {1.0 - delta:g})."
    )
    return [start, *found]


def find_ringing(evidence: Evidence) -> Sequence[str]:
    """Return the share of trials in which each treatment of pending queries rings."""
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
        "arms in all rounds; a width that claims coverage of 1 - delta must reach this share.",
        findings=find_coverage,
    ),
    Figure(
        "ringing",
        "",
        "Pending queries at the minimum",
        "ringing",
        ("ringing",),
        "When does filling pending queries at the known minimum make the posterior ring, so that "
        "its largest mean rises, and what helps?",
        findings=find_ringing,
    ),
    Figure(
        "avanesov-constants",
        "",
        "What Avanesov does not specify",
        "avanesov-constants",
        ("avanesov-constants",),
        "How do other ridges, the other statistic and the theorem's regularization perform in the "
        "setting of Avanesov's Figure 3?",
        findings=find_least,
    ),
    Figure(
        "beyond-multipliers",
        "",
        "Multipliers every round against every epoch",
        "beyond-multipliers",
        ("*",),
        "Is it better to change the multipliers every round (Zhou and Ji 2022) or once an epoch? "
        "Regret must be read together with violation, because less regret can be paid for with "
        "more violation.",
        findings=find_not_beaten,
    ),
    Figure(
        "beyond-forgetting",
        "",
        "Restarts against forgetting",
        "beyond-forgetting",
        ("*",),
        "If the reward changes, is it better to detect the changes and restart, or to forget old "
        "outcomes gradually?",
        findings=find_least,
    ),
    Figure(
        "beyond-priors",
        "",
        "A prior that is not known",
        "beyond-priors",
        ("*",),
        "If the prior is not known, what does a list of priors cost compared with an oracle, and "
        "what does it save compared with fitting the hyperparameters before each round?",
        findings=find_least,
    ),
    Figure(
        "beyond-combined",
        "",
        "All components at once, each switched off in turn",
        "beyond-combined",
        ("*",),
        "In a scenario with delays, changes, a constraint and contexts, what does each component "
        "of the loop contribute? Each is switched off in turn.",
        findings=find_switched_off,
    ),
)
