"""The page of a run: what it says is what the loop says, and nothing in it is read as a tag."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from reading_html import NASTY, Reader

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    Censored,
    Fixed,
    Float,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    Integer,
    LagrangianUpperConfidenceBound,
    OracleRestart,
    RandomSearch,
    Space,
    run,
)
from botorch_bandits.cli import main
from botorch_bandits.cli.show import page_facts
from botorch_bandits.journal import Journal
from botorch_bandits.watching import LivePage
from botorch_bandits.watching.page import MOST_MARKS, MOST_ROWS, render_page

BOX = Box([[0.0, 0.0], [1.0, 2.0]])
RECIPE = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3)
SAFE = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "section", "h1", "h2"),
    *("p", "div", "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td", "span"),
    *("ul", "li", "progress", "svg", "path", "line", "text"),
}


def page_of(loop: BanditLoop, folder: Path, **options: Any) -> Reader:
    path = folder / "page.html"
    LivePage(loop, path, **options).close()
    text = path.read_text(encoding="utf-8")
    read = Reader(text.removeprefix("<!doctype html>\n"))
    assert set(read.tags) <= SAFE
    return read


def played(loop: BanditLoop, num_rounds: int, reward: Any = None, **kwargs: Any) -> BanditLoop:
    problem = reward or (lambda x: float(torch.as_tensor(x).sum()))
    run(loop, problem, num_rounds, progress=False, **kwargs)
    return loop


def test_nothing_is_loaded_or_run_whatever_the_journal_holds(tmp_path: Path) -> None:
    space = Space(
        {NASTY: Float(1e-3, 1.0, log=True), "kind": Categorical([NASTY, "b"]), "n": Integer(1, 9),
         "fixed": Fixed(NASTY)}
    )  # fmt: skip
    path = tmp_path / "run.journal"
    with BanditLoop.open(path, space, None, RandomSearch(), seed=2) as loop:
        for reward in range(6):
            loop.tell(loop.ask().id, float(reward))
        loop.tell_failed(loop.ask().id, NASTY)
        loop.retract(2, NASTY)
        loop.ask()
        read = page_of(loop, tmp_path, title=NASTY)
    of_journal = Reader(render_page(page_facts(Journal.read(path))).partition("\n")[2])
    for page in (read, of_journal):
        assert set(page.tags) <= SAFE
        assert page.text.count(NASTY) > 20
        for _, name, value in page.attributes:
            assert not name.startswith("on")
            assert name not in ("src", "href", "srcset", "data", "action", "background")
            assert "url(" not in (value or "")
        assert "url(" not in page.text
        assert "@import" not in page.text
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in read.attributes


def test_a_page_loads_itself_again_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    loop = BanditLoop(BOX, None, RandomSearch(), horizon=8)
    with LivePage(loop, path, every=3.0) as page:
        assert "No query has been asked yet." in path.read_text("utf-8")
        played(loop, 4, on_round=page.update)
        assert "4 of 8" not in path.read_text("utf-8")  # three seconds have not passed
        page._due = 0.0
        page.update()
        text = path.read_text("utf-8")
        assert "4 of 8" in text
        assert '<meta http-equiv="refresh" content="3"/>' in text
        played(loop, 1)
    text = path.read_text("utf-8")
    assert "5 of 8" in text
    assert 'http-equiv="refresh"' not in text
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_writing_pages_takes_a_small_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    times: list[float] = []

    def slow(path: Path, facts: Any) -> None:
        times.append(now[0])
        now[0] += 5.0

    monkeypatch.setattr("botorch_bandits.watching.live.write_page", slow)
    page = LivePage(BanditLoop(BOX, None, RandomSearch()), tmp_path / "page.html", every=2.0)
    for _ in range(1000):
        page.update()
        now[0] += 0.5
    assert [b - a for a, b in pairwise(times)] == [100.0] * (len(times) - 1)


def test_guarantee_resets_and_widths_are_those_of_the_loop(tmp_path: Path) -> None:
    loop = BanditLoop(
        BOX,
        RECIPE,
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1, any_lambda=True),
        restart=OracleRestart(change_points=(4,), exploration=None),
        num_initial=1,
    )
    played(loop, 8)
    read = page_of(loop, tmp_path)
    guarantee = loop.guarantee()
    assert "guaranteed" in read.text
    assert f"at most{guarantee.regret_bound:.6g}" in read.text
    assert all(assumption in read.text for assumption in guarantee.assumptions)
    assert "started over after round 4: oracle" in read.text
    assert ("line", "class", "reset") in read.attributes
    assert "width (standard deviations) by round" in read.text
    best = loop.best()
    assert best is not None
    assert f"best now{best[1].reward:.6g} in round {best[0].round_number}" in read.text


def test_constraints_and_multipliers(tmp_path: Path) -> None:
    loop = BanditLoop(
        BOX,
        RECIPE,
        LagrangianUpperConfidenceBound.with_options(width=2.0),
        constraints=AdditiveEpochs(2, 2, surrogate="separate"),
    )
    played(loop, 5, lambda x: (float(x[0]), [float(x[1]) - 0.5, -1.0]))
    read = page_of(loop, tmp_path, constraint_names=[NASTY])
    values = loop.history.constraints()
    for j, name in enumerate((NASTY, "constraint 2")):
        kept = "kept" if float(values[:, j].sum()) <= 0.0 else "exceeded"
        signed, rectified = (
            float(v) for v in (values[:, j].sum(), values[:, j].clamp_min(0.0).sum())
        )
        row = f"{name}{kept}{float(values[:, j].mean()):.6g}{max(signed, 0.0):.6g}{rectified:.6g}"
        assert f"{row}{loop.multipliers[j]:.6g}" in read.text
    assert ("path", "class", "over") in read.attributes


def test_censored_and_contexts(tmp_path: Path) -> None:
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    loop = BanditLoop(
        BOX, None, RandomSearch(), feedback=Censored(minimum=0.0, max_delay=2), seed=3
    )
    for _ in range(4):
        loop.ask()
    assert page_of(loop, tmp_path).text.count("given up") == len(loop.feedback_view().lost) > 0
    arms = Arms([[0.0], [0.5], [1.0]])
    contextual = BanditLoop(arms, RECIPE, acquisition, context_dim=1)
    assert "Nothing is promised" in page_of(contextual, tmp_path).text
    played(contextual, 3, contexts=torch.tensor([[0.1], [0.2], [0.25]], dtype=torch.float64))
    read = page_of(contextual, tmp_path)
    assert "contexts differ from mark to mark" in read.text
    assert "0.25" in read.text
    assert "best now" in read.text


def test_a_long_run_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    loop = BanditLoop(BOX, None, RandomSearch())
    for i in range(2 * MOST_MARKS):
        loop.attach([0.5, 1.0], float(i % 7))
    read = page_of(loop, tmp_path)
    marks = sum(tag == "path" and name == "transform" for tag, name, _ in read.attributes)
    assert marks <= 2 * MOST_MARKS + 2
    assert "one of 2 rewards is drawn" in read.text
    assert read.tags.count("tr") <= MOST_ROWS + 20


def test_a_guarantee_that_cannot_be_computed_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: BanditLoop) -> None:
        raise RuntimeError(NASTY)

    loop = played(BanditLoop(BOX, None, RandomSearch()), 1)
    monkeypatch.setattr(BanditLoop, "guarantee", fail)
    assert f"could not be computed: RuntimeError: {NASTY}" in page_of(loop, tmp_path).text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"path": "missing/page.html"}, "is in a folder that does not exist"),
        ({"path": "."}, "is a folder"),
        ({"every": 0.0}, "every"),
        ({"num_rounds": 0}, "num_rounds"),
    ],
)
def test_bad_arguments(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    path = tmp_path / options.pop("path", "page.html")
    with pytest.raises(ValueError, match=says):
        LivePage(BanditLoop(BOX, None, RandomSearch()), path, **options)


def test_show_writes_the_page_of_a_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, page = tmp_path / "run.journal", tmp_path / "page.html"
    loop = BanditLoop.open(journal, BOX, None, RandomSearch(), seed=1)
    played(loop, 3)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        assert f"{loop.history.num_queries}: " in page.read_text("utf-8")
        assert '"refresh" content="7"' in page.read_text("utf-8")
        if len(waited) == 3:
            raise KeyboardInterrupt
        played(loop, 1)

    monkeypatch.setattr("botorch_bandits.cli.pages.time.sleep", sleep)
    assert main(["show", str(journal), "--html", str(page), "--every", "7"]) == 0
    assert waited == [7.0, 7.0, 7.0]
    text = page.read_text("utf-8")
    assert "5: 5 told" in text
    assert '"refresh"' not in text
    assert "A guarantee needs the model" in text
    assert "page:" in capsys.readouterr().out
    best = loop.best()
    assert best is not None
    assert re.search(rf"best now</th><td>{best[1].reward:.6g} in round", text)
    loop.close()
    assert main(["show", str(journal), "--every", "7"]) == 2
    assert "Add --html FILE" in capsys.readouterr().err


def test_runs_keep_their_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("def reward(p):\n    return -(p['x'] - 0.3) ** 2\n")
    monkeypatch.chdir(tmp_path)
    typed = ["optimize", "mine:reward", "--param", "x=float:0:1", "--method", "random"]
    typed += ["--rounds", "3", "--quiet", "--journal", "run.journal"]
    assert main([*typed, "--html", "missing/page.html"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main([*typed, "--html", "page.html"]) == 0
    text = Path("page.html").read_text("utf-8")
    assert "3 of 3" in text
    assert "mine:reward" in text
    assert '"refresh"' not in text
    again = ["resume", "run.journal", "--trust", "--rounds", "4", "--quiet"]
    assert main([*again, "--html", "other.html"]) == 0
    assert "4 of 4" in Path("other.html").read_text("utf-8")
