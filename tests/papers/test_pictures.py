"""Pictures are drawn from tables alone: they show what is there, in text that can be read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from botorch_bandits.plotting import new_figure
from papers.pictures import TEXT, Picture, Written, curve_pictures, save_picture, small_svg
from papers.running import pictures_of

ROUNDS = (1, 10, 20)


def curves(
    *panels: str, methods: Any = ("a", "b"), quantities: Any = ("cumulative regret",)
) -> Any:
    """Rows of a table of curves: the mean of method k is k + 1 times the round."""
    return [
        {
            "experiment": panel,
            "method": method,
            "quantity": quantity,
            "round": str(t),
            "mean": str((k + 1.0) * t),
            "standard_error": "0.5",
            "median": "9",
        }
        for panel in panels
        for k, method in enumerate(methods)
        for quantity in quantities
        for t in ROUNDS
    ]


def written(name: str, *panels: str, settings: Any = None, **tables: Any) -> Written:
    known = [{"name": p, "title": f"panel {p}", "trials": 4, "rounds": 20} for p in panels]
    return Written(tables, {"experiment": name, "panels": known, "settings": settings or {}})


def drawn(picture: Picture) -> Any:
    ax = new_figure()[1][0, 0]
    picture.draw(ax)
    return ax


def test_curves_are_those_of_the_table() -> None:
    (picture,) = curve_pictures(written("x", "p", curves=curves("p")))
    assert (picture.name, picture.panels, picture.title) == ("p", ("p",), "Panel p")
    assert "At the end: a 20; b 40." in picture.alt
    ax = drawn(picture)
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.get_lines()}
    assert lines == {"a": [1.0, 10.0, 20.0], "b": [2.0, 20.0, 40.0]}
    assert len(ax.collections) == 2
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (0.5, 20.5)
    assert "units" in ax.get_ylabel()
    assert curve_pictures(written("x", "p")) == []


def test_changes_are_marked_and_axes_are_logarithmic_where_the_settings_say_so() -> None:
    known = written("x", "p", settings={"p": {"num_periods": 4}}, curves=curves("p"))
    ax = drawn(curve_pictures(known)[0])
    assert [line.get_xdata()[0] for line in ax.get_lines()[2:]] == [5.5, 10.5, 15.5]
    known.settings["panels"][0]["logarithmic"] = True
    ax = drawn(curve_pictures(known)[0])
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_text_is_text_of_nine_points_and_numbers_in_it_are_kept(tmp_path: Path) -> None:
    methods = ("weights 0.99", "weights 0.999", "<b> & co", "a name that is longer than a margin")
    known = written("x", "p", curves=curves("p", methods=methods))
    (picture,) = curve_pictures(known)
    save_picture(picture, tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text(encoding="utf-8")
    for words in ("weights 0.99<", "weights 0.999<", "&lt;b&gt; &amp; co", "Panel p", "round"):
        assert words in text
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", text)]
    assert len(sizes) > 8
    assert min(sizes) >= TEXT
    assert len(text) < 20_000
    again = tmp_path / "again.svg"
    save_picture(picture, again)
    assert again.read_text(encoding="utf-8") == text


def test_digits_are_left_out_of_tags_only() -> None:
    found = small_svg(
        '<?xml?>\n<svg>\n<!-- c --><path d="M 1.234567 -0.04\nL 2 3"/>\n1.2345\n</svg>'
    )
    assert found == '<svg>\n<path d="M 1.2 -0.0L2 3"/>\n1.2345\n</svg>\n'


def test_forgetting_has_two_pictures_a_panel() -> None:
    names = ("never restarts", "restart, oracle", "window 50", "weights 0.9")
    known = written("beyond-forgetting", "p", curves=curves("p", methods=names))
    pictures = pictures_of("beyond-forgetting", known)
    assert [picture.name for picture in pictures] == ["p-restarting", "p-forgetting"]
    shown = [{line.get_label() for line in drawn(p).get_lines()} for p in pictures]
    assert shown == [{names[0], names[1]}, {names[0], names[2], names[3]}]


def test_fitted_and_published_powers_are_lines() -> None:
    table = [
        {"experiment": f"avanesov-horizon-{T}", "mean": str(T / 10), "standard_error": "1"}
        for T in (900, 1275)
    ]
    fits = [
        {"source": s, "variable": "T", "constant": c, "power": "0.5"}
        for s, c in (("fitted", "2"), ("published", "3"))
    ]
    known = written("avanesov-horizon", "avanesov-horizon-900", table=table, power=fits)
    (picture,) = pictures_of("avanesov-horizon", known)
    assert "fitted: 2 T^0.5" in picture.alt
    lines = {line.get_label(): line.get_ydata() for line in drawn(picture).get_lines()}
    assert lines["fitted: 2 T^0.5"] == pytest.approx([60.0, 2 * 1275**0.5])
    assert lines["published: 3 T^0.5"][0] == pytest.approx(90.0)
    assert pictures_of("avanesov-horizon", written("avanesov-horizon")) == []


def test_constraints_have_means_boxes_and_epochs() -> None:
    name = "shi-gardner"
    panels = [f"{name}-{kind}{rest}" for kind in ("noiseless", "noisy") for rest in ("", "-slow")]
    panels.append(f"{name}-epochs")
    quantities = ("time-averaged regret", "time-averaged violation")
    rows = [
        row
        for i, panel in enumerate(panels[:-1])
        for row in curves(panel, methods=[f"m{i}"], quantities=quantities)
    ]
    box = {"least": "-1", "lower_quartile": "0", "median": "1", "upper_quartile": "2"}
    boxes = [
        {"experiment": panels[0], "method": "m0", "quantity": q, "round": t, **box, "largest": "5"}
        for q in quantities
        for t in ("5", "10")
    ]
    violation = [
        {"experiment": panels[-1], "method": f"S = {S}", "round": "20"}
        | {f"{q}_{w}": str(S) for q in ("regret", "violation") for w in ("mean", "standard_error")}
        for S in (5, 10)
    ]
    known = written(name, *panels, curves=rows, boxes=boxes, violation=violation)
    pictures = {picture.name: picture for picture in pictures_of(name, known)}
    assert set(pictures) == {
        *(f"{name}-{kind}-{q}" for kind in ("noiseless", "noisy") for q in ("regret", "violation")),
        *(f"{name}-noiseless-boxes-m0-{q}" for q in ("regret", "violation")),
        f"{name}-epochs",
    }
    together = drawn(pictures[f"{name}-noiseless-regret"])
    assert {line.get_label() for line in together.get_lines()} >= {"m0", "m1"}
    of_boxes = pictures[f"{name}-noiseless-boxes-m0-regret"]
    assert of_boxes.is_detail
    lowest = min(min(line.get_ydata()) for line in drawn(of_boxes).get_lines())
    assert lowest == -1.0
    names = [text.get_text() for text in drawn(pictures[f"{name}-epochs"]).texts]
    assert names == ["S = 5", "S = 10"]


def test_multipliers_are_points_with_names_at_the_last_round() -> None:
    rows = [
        {"experiment": "p", "method": method, "round": t}
        | {f"{q}_{w}": "0.1" for q in ("regret", "violation") for w in ("mean", "standard_error")}
        for method in ("every round, step 1", "epochs, separate, S = 5")
        for t in ("10", "20")
    ]
    (picture,) = pictures_of(
        "beyond-multipliers", written("beyond-multipliers", "p", violation=rows)
    )
    ax = drawn(picture)
    assert [text.get_text() for text in ax.texts] == ["1", "S = 5"]
    assert ax.get_legend() is not None


def test_the_change_of_the_combined_study_is_marked() -> None:
    quantities = ("cumulative regret", "cumulative cost")
    known = written("beyond-combined", "p", curves=curves("p", quantities=quantities))
    pictures = pictures_of("beyond-combined", known)
    assert [picture.name for picture in pictures] == ["p-regret", "p-cost"]
    for picture in pictures:
        assert any(line.get_xdata()[0] == 10.5 for line in drawn(picture).get_lines())
        assert "after round 10" in picture.alt


def test_stored_results_of_the_released_code_are_circles_in_the_color_of_their_line() -> None:
    panel = "verma-tuning-svm-ucb-poisson"
    methods = ("GP-UCB-SDF", "GP-UCB", "ours")
    rows = curves(panel, "other", methods=methods, quantities=("simple regret",))
    for row in rows:
        row["round"] = str(int(row["round"]) * 6)
    pictures = pictures_of("verma-tuning", written("verma-tuning", panel, "other", curves=rows))
    assert [picture.name for picture in pictures] == [panel, "other"]
    assert "GP-UCB 0.331 at round 35 and 0.29 at round 105" in pictures[0].alt
    assert "GP-BUCB" not in pictures[0].alt
    assert "stored" not in pictures[1].alt
    lines = drawn(pictures[0]).get_lines()
    colors = {line.get_label(): line.get_color() for line in lines}
    circles = [line for line in lines if line.get_marker() == "o" and len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in circles] == [[0.271, 0.243], [0.331, 0.29]]
    assert [line.get_color() for line in circles] == [colors["GP-UCB-SDF"], colors["GP-UCB"]]
