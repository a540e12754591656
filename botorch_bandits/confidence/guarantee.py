"""What a method promises: the theorem, its assumptions and constants, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_THEOREMS_OF_DRAWS = {
    "Chowdhury and Gopalan 2017, Theorem 2": "Chowdhury and Gopalan 2017, Theorem 4",
    "Verma, Dai and Low 2022, Theorem 1": "Verma, Dai and Low 2022, Theorem 3",
}
"""Thompson sampling by the theorem on the width that scales its draws."""


@dataclass(frozen=True)
class Guarantee:
    """A statement about a confidence width, and whether it holds as used.

    Attributes:
        method: The method, in words.
        theorem: The source of the statement, or None where no theorem exists.
        statement: What the theorem says, with its probability.
        assumptions: What the user vouches for; they cannot be checked from data.
        constants: The numbers in use, by name.
        gaps: Why the theorem does not cover this use; empty if it does.
        regret_bound: A bound on the cumulative regret so far that holds whenever the confidence
            bound holds in every round, where it can be computed.
    """

    method: str
    theorem: str | None = None
    statement: str = ""
    assumptions: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    regret_bound: float | None = None

    @property
    def holds(self) -> bool:
        """Whether a theorem covers this use, given its assumptions."""
        return self.theorem is not None and not self.gaps

    def with_gaps(self, *gaps: str) -> Guarantee:
        """Return a copy with further reasons why the theorem does not apply.

        Args:
            *gaps: One reason each.
        """
        return replace(self, gaps=self.gaps + gaps)

    def for_draws(self, method: str, delta: float) -> Guarantee:
        """Return what the guarantee of a width at ``delta / 2`` says of draws that it scales.

        Args:
            method: The method that draws, in words.
            delta: Of width and draws together.
        """
        if self.theorem is None:
            return replace(self, method=f"Thompson sampling, {self.method}")
        theorem = self.theorem
        for of_width, of_draws in _THEOREMS_OF_DRAWS.items():
            theorem = theorem.replace(of_width, of_draws)
        return replace(
            self,
            method=method,
            theorem=theorem,
            statement=f"{self.statement}; the other half of delta is for the draws",
            constants={**self.constants, "delta": delta},
        )

    def __str__(self) -> str:
        """Say it in a few lines."""
        lines = [f"{self.method}: " + ("guaranteed" if self.holds else "no guarantee")]
        if self.theorem is not None:
            lines.append(f"  theorem: {self.theorem}")
        if self.statement:
            lines.append(f"  statement: {self.statement}")
        lines += [f"  assumes: {assumption}" for assumption in self.assumptions]
        if self.constants:
            constants = ", ".join(f"{name} = {value:.6g}" for name, value in self.constants.items())
            lines.append(f"  constants: {constants}")
        lines += [f"  not covered: {gap}" for gap in self.gaps]
        if self.regret_bound is not None:
            lines.append(f"  cumulative regret so far is at most {self.regret_bound:.6g}")
        return "\n".join(lines)
