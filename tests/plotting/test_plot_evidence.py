"""The picture of a list of priors."""

from __future__ import annotations

import pytest

from botorch_bandits.confidence import CandidateEvidence
from botorch_bandits.plotting import plot_evidence


def test_survivors_have_names_and_all_have_their_path() -> None:
    evidence = CandidateEvidence([1.0, 1.0, 1.0], names=["short", "middle", "long"])
    for densities in ([-1.0, -1.5, -4.0], [-1.0, -1.2, -5.0]):
        evidence.update(densities)
    table = evidence.table(0.05)
    assert [row.survives for row in table] == [True, True, False]
    ax = plot_evidence(table)
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown == ["short", "middle", "eliminated at level 0.05"]
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines["middle"].get_ydata()) == evidence.path[:, 1].tolist()
    assert any(list(line.get_ydata()) == evidence.path[:, 2].tolist() for line in ax.lines)
    height = lines["eliminated at level 0.05"].get_ydata()[0]
    assert height == pytest.approx(2.995732, abs=1e-6)
    assert len(plot_evidence(table, num_named=1).get_legend().get_texts()) == 2


def test_a_refuted_list_and_one_without_outcomes_say_so() -> None:
    evidence = CandidateEvidence([1.0, 1.0])
    assert "no outcome" in plot_evidence(evidence.table(0.05)).texts[0].get_text()
    evidence.update([-9.0, 0.0])
    evidence.update([0.0, -30.0])
    assert "refuted after 2 outcomes" in plot_evidence(evidence.table(0.05)).get_title()
    with pytest.raises(TypeError, match=r"loop.evidence\(\)"):
        plot_evidence(evidence)  # type: ignore[arg-type]
