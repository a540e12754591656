"""Files of experiments are replaced as a whole, and through no links."""

from pathlib import Path

from botorch_bandits.plotting import new_figure
from papers.results import save_figure


def test_a_figure_is_not_written_through_a_prepared_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("kept", encoding="utf-8")
    for name in (".regret.png.tmp", ".regret.png.tmp.png"):
        (tmp_path / name).symlink_to(mine)
    figure, axes = new_figure()
    axes[0, 0].plot([0.0, 1.0], [0.0, 1.0])
    save_figure(figure, tmp_path / "regret.png")
    assert (tmp_path / "regret.png").read_bytes().startswith(b"\x89PNG")
    assert mine.read_text(encoding="utf-8") == "kept"
