"""What notebooks show of loops, histories, results and guarantees; all text stays text."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from gpytorch.kernels import RBFKernel
from reading_html import NASTY, Reader

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    Float,
    ImprovedUpperConfidenceBound,
    RandomSearch,
    Space,
    run,
)
from botorch_bandits.markup import element, listed, table, text_of
from botorch_bandits.problems import gp_draw_on_arms

TABLES = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "p", "ul", "li"}


def test_values_are_escaped_and_markup_is_not() -> None:
    assert text_of(element("b", NASTY)) == element("b", NASTY)
    assert NASTY not in element("a", NASTY, title=NASTY)
    read = Reader(element("a", NASTY, title=NASTY, class_="x", data_count=2, id=None))
    assert read.tags == ["a"]
    assert read.text == NASTY
    assert read.attributes == [("a", "title", NASTY), ("a", "class", "x"), ("a", "data-count", "2")]
    page = Reader(element("div", table([NASTY], [[NASTY]]), listed([NASTY])))
    assert set(page.tags) <= TABLES
    assert page.text == 3 * NASTY


def fail(_: object) -> float:
    raise ValueError(NASTY)


def nasty_loop() -> BanditLoop:
    space = Space({NASTY: Float(0.0, 1.0), "b": Categorical([NASTY, "other"])})
    loop = BanditLoop(space, None, RandomSearch(), seed=1)
    for _ in range(15):
        loop.tell(loop.ask().id, 1.0)
    loop.tell_failed(loop.ask().id, NASTY)
    loop.ask()
    return loop


@pytest.mark.parametrize("name", ["loop", "history", "result"])
def test_names_and_values_of_a_space_are_escaped(name: str) -> None:
    loop = nasty_loop()
    shown = {"loop": loop, "history": loop.history}
    if name == "result":
        shown[name] = run(loop, lambda point: 2.0, 1, progress=False)
    page = Reader(shown[name]._repr_html_())
    assert set(page.tags) <= TABLES
    assert NASTY in page.text
    assert "earlier rows are left out" in page.text
    assert "failed1" in page.text


def test_a_loop_shows_its_settings_whatever_they_are() -> None:
    loop = BanditLoop(
        Box([[0.0], [1.0]]),
        BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        lambda model, pending: None,
        num_initial=3,
        seed=7,
    )
    text = Reader(loop._repr_html_()).text
    assert "kernelRBFKernel(lengthscale=0.2)" in text
    assert "acquisition" in text
    assert "seed7" in text
    assert "no rows yet" in text


def test_a_guarantee_says_the_same_as_in_print() -> None:
    loop = BanditLoop(
        Box([[0.0], [1.0]]),
        BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1, any_lambda=True),
        num_initial=1,
    )
    result = run(loop, lambda x: float(x), 3, progress=False)
    guarantee = loop.guarantee()
    page = Reader(guarantee._repr_html_())
    assert set(page.tags) <= TABLES
    for line in str(guarantee).splitlines():
        said = line.strip().removeprefix("assumes: ").removeprefix("theorem: ")
        assert said.removeprefix("constants: ").removeprefix("not covered: ") in page.text
    nasty = dataclasses.replace(
        guarantee, method=NASTY, gaps=(NASTY,), assumptions=(NASTY,), theorem=NASTY
    )
    page = Reader(nasty._repr_html_())
    assert set(page.tags) <= TABLES
    assert page.text.count(NASTY) >= 4
    assert "cumulative regret" not in result._repr_html_()


def test_a_result_has_the_regret_where_the_problem_knows_it() -> None:
    choices = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
    problem = gp_draw_on_arms(RBFKernel().double(), choices, seed=0)
    loop = BanditLoop(Arms(choices), None, RandomSearch())
    result = run(loop, problem, 4, progress=False)
    assert f"{float(result.cumulative_regret[-1]):.6g}" in result._repr_html_()
