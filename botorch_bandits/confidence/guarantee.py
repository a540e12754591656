"""What a method promises: the theorem, its assumptions and constants, or why there is none.

Width rules make one, acquisition functions and loops add what takes it away, and users print it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


class FunctionAssumption(str):
    """An assumption on the reward function, which can be made of another function as well.

    It is the string ``before + function + after``.

    Args:
        before: The text before the name of the function.
        after: The text after it.
        function: What the function is called.

    Example:
        >>> BOUNDED_NORM.about("each function")
        'the norm of each function in the unit-variance kernel is at most rkhs_bound'
    """

    before: str
    after: str
    function: str

    def __new__(
        cls, before: str, after: str, function: str = "the reward function"
    ) -> FunctionAssumption:
        """See the class."""
        assumption = super().__new__(cls, f"{before}{function}{after}")
        assumption.before, assumption.after, assumption.function = before, after, function
        return assumption

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]
        """Pickle and copy by the pieces."""
        return self.before, self.after, self.function

    def about(self, function: str) -> FunctionAssumption:
        """Return the same assumption on another function.

        Args:
            function: What it is called.
        """
        return FunctionAssumption(self.before, self.after, function)


BOUNDED_NORM = FunctionAssumption(
    "the norm of ", " in the unit-variance kernel is at most rkhs_bound"
)
"""What theorems on functions in the kernel's Hilbert space assume."""

DRAWN_FROM_PRIOR = FunctionAssumption("", " is a draw from the model's Gaussian-process prior")
"""What theorems on draws of the Gaussian process assume."""


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
        theorem_of_draws: The source for Thompson sampling whose draws are scaled by the width, if
            that is another theorem.
    """

    method: str
    theorem: str | None = None
    statement: str = ""
    assumptions: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    regret_bound: float | None = None
    theorem_of_draws: str | None = field(default=None, repr=False)

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

    def about(self, function: str) -> Guarantee:
        """Return a copy whose assumptions on the reward function are made of another one.

        Args:
            function: What that is called.
        """
        assumptions = tuple(
            each.about(function) if isinstance(each, FunctionAssumption) else each
            for each in self.assumptions
        )
        return replace(self, assumptions=assumptions)

    def for_draws(self, method: str, delta: float) -> Guarantee:
        """Return what the guarantee of a width at ``delta / 2`` says of draws that it scales.

        Args:
            method: The method that draws, in words.
            delta: Of width and draws together.
        """
        if self.theorem is None:
            return replace(self, method=f"Thompson sampling, {self.method}")
        return replace(
            self,
            method=method,
            theorem=self.theorem_of_draws or self.theorem,
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
