"""The table of what works together, made from the cases that the harness checks.

``python -m tests.acquisition.test_table`` writes it again.
"""

from __future__ import annotations

from pathlib import Path

from .cases import ACQUISITIONS, MODELS, OPTIMIZERS, Combination, optimizer_combinations

TABLE = Path(__file__).parents[2] / "docs" / "results" / "compatibility.md"


def cell(combinations: list[Combination]) -> str:
    """``1, 3`` where both sizes work, ``1`` where only single points do, ``-`` where none does."""
    working = sorted({run.q for run in combinations if run.refusal is None})
    return ", ".join(map(str, working)) or "-"


def render() -> str:
    """One table an acquisition function, models down, optimizers across."""
    runs: dict[tuple[str, str, str], list[Combination]] = {}
    for run in optimizer_combinations(ACQUISITIONS):
        key = (run.acquisition.name, run.model.name, run.optimizer.name)
        runs.setdefault(key, []).append(run)
    blocks: dict[str, list[str]] = {}
    for acquisition in ACQUISITIONS:
        rows = [
            f"| {model.name} | "
            + " | ".join(
                cell(runs[acquisition.name, model.name, optimizer.name]) for optimizer in OPTIMIZERS
            )
            + " |"
            for model in MODELS
        ]
        blocks.setdefault("\n".join(rows), []).append(acquisition.name)
    header = "| Model | " + " | ".join(f"`{o.name}`" for o in OPTIMIZERS) + " |"
    line = "| --- " * (len(OPTIMIZERS) + 1) + "|"
    return "\n".join(
        f"**{'; '.join(names)}**\n\n{header}\n{line}\n{rows}\n" for rows, names in blocks.items()
    )


def test_table_in_the_documentation_is_what_the_harness_checks() -> None:
    assert TABLE.read_text(encoding="utf-8") == render(), "write it again: see this module"


if __name__ == "__main__":
    TABLE.write_text(render(), encoding="utf-8")
