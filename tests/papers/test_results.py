"""Files of experiments are replaced as a whole, and through no links."""

from pathlib import Path

from papers.pictures import Picture, save_picture


def test_a_picture_is_not_written_through_a_prepared_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("kept", encoding="utf-8")
    for name in (".regret.svg.tmp", ".regret.svg.tmp.svg"):
        (tmp_path / name).symlink_to(mine)
    picture = Picture("regret", ("regret",), "Regret", "A line.", lambda ax: ax.plot([0.0, 1.0]))
    save_picture(picture, tmp_path / "regret.svg")
    assert (tmp_path / "regret.svg").read_text(encoding="utf-8").startswith("<svg")
    assert mine.read_text(encoding="utf-8") == "kept"
