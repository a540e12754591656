"""Writes which settings of a loop can be combined, and what is guaranteed for each combination.

``python docs/make_combinations.py`` builds a loop of every combination of feedback, restart,
forgetting, constraints, contexts and domain, and writes ``docs/results/combinations.md`` from the
loop's own errors, and ``docs/results/guaranteed.md`` from its own guarantees. Tests compare both
files with what this module makes of the code as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    ExponentialWeights,
    Hallucinated,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    OracleRestart,
    PrimalDual,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.change_points import NeverRestart, PowerThreshold

TABLE = Path(__file__).parent / "results" / "combinations.md"
GUARANTEED = Path(__file__).parent / "results" / "guaranteed.md"

DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=0.4, threshold=PowerThreshold(scale=1.0, exponent=-0.8)
)
FEEDBACK: dict[str, Any] = {
    "`Hallucinated()`": Hallucinated(),
    "`Ignored()`": Ignored(),
    "`Censored(...)`": Censored(minimum=-3.0, outcome_bound=6.0, max_delay=5),
}
RESTART: dict[str, Any] = {
    "none": None,
    "`ChangePointRestart(...)`": ChangePointRestart(detector=DETECTOR),
    "`EvidenceRestart()`": EvidenceRestart(),
}
RESTARTS_WITH_GUARANTEES: dict[str, Any] = {
    **RESTART,
    "`OracleRestart(...)`": OracleRestart((10,)),
    "`NeverRestart()`": NeverRestart(),
}
FORGETTING: dict[str, Any] = {
    "none": None,
    "`SlidingWindow(...)`": SlidingWindow(10),
    "`ExponentialWeights(...)`": ExponentialWeights(0.9),
    "`TimeVaryingKernel(...)`": TimeVaryingKernel(0.1),
}
CONSTRAINTS: dict[str, Any] = {
    "no constraints": None,
    '`"relabeled"`': AdditiveEpochs(1, 2),
    '`"fresh"`': AdditiveEpochs(1, 2, surrogate="fresh"),
    '`"separate"`': AdditiveEpochs(1, 2, surrogate="separate"),
    "`PrimalDual(...)`": PrimalDual(1, max_multiplier=2.0, divisor=4.0),
}
CONTEXTS = {"without contexts": 0, "with contexts": 1}
DOMAINS: dict[str, Any] = {
    "on a box": Box([[0.0], [1.0]], num_restarts=2, raw_samples=16),
    "on arms": Arms(torch.linspace(0.0, 1.0, 7, dtype=torch.float64).unsqueeze(-1)),
}


@dataclass(frozen=True)
class Combination:
    """One combination of settings, by the names in the tables above.

    Attributes:
        feedback: What is made of pending queries.
        restart: When the loop begins anew.
        forgetting: What becomes of old outcomes.
        constraints: How multipliers follow from constraint values, and what is modeled.
        contexts: Whether rounds have a context.
        domain: Where points are chosen.
    """

    feedback: str
    restart: str
    forgetting: str
    constraints: str
    contexts: str
    domain: str

    @property
    def feedback_in_use(self) -> Any:
        """The feedback; where it is censored, with bounds on what is penalized."""
        rule, feedback = CONSTRAINTS[self.constraints], FEEDBACK[self.feedback]
        if rule is None or not isinstance(feedback, Censored):
            return feedback
        return replace(feedback, constraint_bounds=((-1.0, 1.0),))

    def build(self) -> BanditLoop:
        """Return the loop.

        Raises:
            ValueError: If the settings do not go together.
        """
        rule = CONSTRAINTS[self.constraints]
        # separate models of reward and constraints need the acquisition that weighs them
        weighs = rule is not None and rule.surrogate_in_use == "separate"
        cls: Any = LagrangianUpperConfidenceBound if weighs else ImprovedUpperConfidenceBound
        return BanditLoop(
            DOMAINS[self.domain],
            BanditGP.with_kernel(RBFKernel(), noise=0.1, lengthscale=0.4),
            cls.with_options(rkhs_bound=1.0, noise_bound=0.1, any_lambda=True),
            feedback=self.feedback_in_use,
            restart=RESTARTS_WITH_GUARANTEES[self.restart],
            forgetting=FORGETTING[self.forgetting],
            constraints=rule,
            context_dim=CONTEXTS[self.contexts],
        )

    @cache  # noqa: B019 - combinations are few, and tests ask for all of them several times
    def refusal(self) -> str | None:
        """Return why the settings are refused, or None if they go together."""
        try:
            self.build()
        except ValueError as error:
            settings = (FORGETTING[self.forgetting], CONSTRAINTS[self.constraints])
            text = str(error)
            for setting in settings:
                if setting is not None:
                    text = text.replace(repr(setting), "...")
                    text = text.replace(f"{type(setting).__name__}(...)", "...")
            return text
        return None

    def promise(self) -> str | None:
        """Return which statements of its guarantee hold, or None if the settings are refused."""
        if self.refusal() is not None:
            return None
        statements = self.build().guarantee().statements
        return ", ".join(name for name, each in statements.items() if each.holds) or "none"


def combinations() -> Iterator[Combination]:
    """Yield all combinations."""
    for names in itertools.product(FEEDBACK, RESTART, FORGETTING, CONSTRAINTS, CONTEXTS, DOMAINS):
        yield Combination(*names)


def cell(refusals: dict[tuple[str, str], str | None], reasons: list[str]) -> str:
    """Return the entry of a table for all contexts and domains.

    Args:
        refusals: By the names of contexts and domain.
        reasons: Those of earlier entries, in order; new ones are added.
    """
    for reason in refusals.values():
        if reason is not None and reason not in reasons:
            reasons.append(reason)
    marks = {
        where: "yes" if reason is None else f"no ({reasons.index(reason) + 1})"
        for where, reason in refusals.items()
    }
    if len(set(marks.values())) == 1:
        return next(iter(marks.values()))
    return "; ".join(f"{mark} {', '.join(where)}" for where, mark in marks.items())


def render() -> str:
    """Return the text of the table and of the reasons."""
    entries: dict[tuple[str, str, str], dict[str, dict[tuple[str, str], str | None]]] = {}
    total = num_refused = 0
    for one in combinations():
        row = entries.setdefault((one.feedback, one.restart, one.forgetting), {})
        reason = one.refusal()
        row.setdefault(one.constraints, {})[one.contexts, one.domain] = reason
        total, num_refused = total + 1, num_refused + (reason is not None)
    reasons: list[str] = []
    lines = [
        f"| Feedback | Restart | Forgetting | {' | '.join(CONSTRAINTS)} |",
        "| --- " * (3 + len(CONSTRAINTS)) + "|",
    ]
    for names, row in entries.items():
        cells = [cell(refusals, reasons) for refusals in row.values()]
        lines.append(f"| {' | '.join((*names, *cells))} |")
    told = f"Of {total} combinations, {num_refused} are rejected."
    if not reasons:
        return "\n".join([*lines, "", told]) + "\n"
    lines += ["", f"{told} The reasons, as the loop gives", "them:", ""]
    lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)]
    return "\n".join(lines) + "\n"


def cell_of_promises(promises: dict[str, str | None]) -> str:
    """Return the entry of the table of guarantees for loops with and without contexts.

    Args:
        promises: What is promised, by the name of the contexts; None where that is refused.
    """
    told = {where: "rejected" if each is None else each for where, each in promises.items()}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{each} {where}" for where, each in told.items())


def render_guaranteed() -> str:
    """Return the text of the table of what is promised, on arms, without forgetting."""
    lines = [
        f"| Feedback | Restart | {' | '.join(CONSTRAINTS)} |",
        "| --- " * (2 + len(CONSTRAINTS)) + "|",
    ]
    for feedback, restart in itertools.product(FEEDBACK, RESTARTS_WITH_GUARANTEES):
        cells = [
            cell_of_promises(
                {
                    where: Combination(
                        feedback, restart, "none", constraints, where, "on arms"
                    ).promise()
                    for where in CONTEXTS
                }
            )
            for constraints in CONSTRAINTS
        ]
        lines.append(f"| {' | '.join((feedback, restart, *cells))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(render(), encoding="utf-8")
    GUARANTEED.write_text(render_guaranteed(), encoding="utf-8")
