"""Regret is drawn as it is defined; the numbers are worked out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    GPUpperConfidenceBound,
    Policy,
    RandomSearch,
    run,
)
from botorch_bandits.plotting import plot_regret
from botorch_bandits.problems import ArmsProblem, ConstantDelay, gp_draw_on_arms
from botorch_bandits.simulation import simulate

CHOICES = torch.linspace(0, 1, 7, dtype=torch.float64).unsqueeze(-1)


def tensor(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def line_of(ax: Any, i: int = 0) -> list[float]:
    return ax.get_lines()[i].get_ydata().tolist()


def band_of(ax: Any, num_rounds: int) -> tuple[list[float], list[float]]:
    """Return lower and upper edge of the first band."""
    vertices = ax.collections[0].get_paths()[0].vertices
    edges = {t: sorted(y for x, y in vertices if x == t) for t in range(1, num_rounds + 1)}
    return [y[0] for y in edges.values()], [y[-1] for y in edges.values()]


REGRET = tensor([1.0, 0.5, 0.0], [3.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("kind", "mean"),
    [
        ("cumulative", [2.0, 2.5, 3.0]),
        ("average", [2.0, 1.25, 1.0]),
        ("simple", [2.0, 0.5, 0.25]),
    ],
)
def test_mean_and_standard_error(kind: str, mean: list[float]) -> None:
    ax = plot_regret(REGRET, kind)
    assert line_of(ax) == pytest.approx(mean, abs=1e-12)
    # cumulative: 1, 1.5, 1.5 and 3, 3.5, 4.5; average divides by the round; simple 1, .5, 0 ...
    half = {  # of two numbers: half their distance
        "cumulative": [1.0, 1.0, 1.5],
        "average": [1.0, 0.5, 0.5],
        "simple": [1.0, 0.0, 0.25],
    }[kind]
    low, high = band_of(ax, 3)
    assert low == pytest.approx([m - h for m, h in zip(mean, half, strict=True)], abs=1e-12)
    assert high == pytest.approx([m + h for m, h in zip(mean, half, strict=True)], abs=1e-12)
    assert kind.split()[0] in ax.get_ylabel() or kind == "average"
    assert ax.get_xlabel() == "round"


def test_quantiles_are_around_the_median() -> None:
    ax = plot_regret({"a": tensor([0.0], [1.0], [2.0], [3.0], [10.0])}, band=(0.25, 0.75))
    assert line_of(ax) == [2.0]
    assert band_of(ax, 1) == ([1.0], [3.0])
    assert not plot_regret(REGRET, band=None).collections
    assert not plot_regret(REGRET[:1]).collections  # one replicate
    assert not plot_regret(REGRET[0]).collections


def test_methods_by_name_in_a_list_and_replicates_in_a_nested_one() -> None:
    by_name = plot_regret({"a": REGRET, "b": 2 * REGRET})
    listed = plot_regret([REGRET, 2 * REGRET], labels=["a", "b"])
    nested = plot_regret({"a": [REGRET[0], REGRET[1]], "b": [2 * REGRET]})
    for ax in (by_name, listed, nested):
        assert [text.get_text() for text in ax.texts] == ["a", "b"]
        assert ax.get_legend() is None
        assert line_of(ax, 0) == [2.0, 2.5, 3.0]
        assert line_of(ax, 1) == [4.0, 5.0, 6.0]


def test_names_are_in_a_legend_where_nothing_makes_room_for_them() -> None:
    import matplotlib.pyplot as plt

    ax = plt.figure().add_subplot()
    plot_regret({"a": REGRET, "b": 2 * REGRET}, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert not ax.texts


def test_a_power_is_fitted_when_asked_and_drawn_over_all_rounds() -> None:
    rounds = torch.arange(1, 41, dtype=torch.float64)
    total = 3.0 * rounds**0.5
    total[:10] = 1.0 + 0.01 * rounds[:10]  # before the fit begins
    regret = total.diff(prepend=torch.zeros(1, dtype=torch.float64))
    ax = plot_regret({"a": regret}, logarithmic=True, fit_from=11)
    _, fit = ax.get_lines()
    assert fit.get_label() == "a: exponent 0.50, fitted from round 11"
    assert fit.get_ydata() == pytest.approx((3.0 * rounds**0.5).numpy(), rel=1e-9)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert len(plot_regret({"a": regret}, logarithmic=True).get_lines()) == 1
    with pytest.raises(ValueError, match="fit_from is 40, but 'a' has 40 rounds"):
        plot_regret({"a": regret}, fit_from=40)
    with pytest.raises(ValueError, match="fit_from is 1"):
        plot_regret({"a": torch.zeros(5, dtype=torch.float64)}, fit_from=1)


def test_logarithmic_axes_leave_out_what_is_not_positive() -> None:
    ax = plot_regret(tensor([0.0, 1.0, -3.0, 4.0]), logarithmic=True)
    values = line_of(ax)
    assert [math.isnan(v) for v in values] == [True, False, True, False]
    assert values[1::2] == [1.0, 2.0]


def test_results_of_run_and_simulate() -> None:
    def play(seed: int) -> Any:
        loop = BanditLoop(Arms(CHOICES), None, RandomSearch(), seed=seed)
        problem = ArmsProblem(CHOICES, CHOICES.squeeze(-1).cos())
        return run(loop, problem, 6, delays=ConstantDelay(3), progress=False)

    results = [play(seed) for seed in range(3)]
    stacked = torch.stack([r.regret for r in results])
    assert line_of(plot_regret({"random": results})) == pytest.approx(
        stacked.cumsum(-1).mean(0).tolist()
    )
    simple = line_of(plot_regret({"random": results}, "simple"))
    assert all(map(math.isnan, simple[:2]))  # nothing had arrived
    wanted = torch.stack([r.simple_regret for r in results]).mean(0).tolist()
    assert simple[2:] == pytest.approx(wanted[2:])
    played = simulate(
        gp_draw_on_arms_problem(),
        Policy(
            BanditGP.with_kernel(kernel(), noise=0.01),
            GPUpperConfidenceBound.with_options(width=2.0),
        ),
        num_rounds=4,
        num_replicates=3,
    )
    assert line_of(plot_regret(played)) == pytest.approx(played.cumulative_regret.mean(0).tolist())


def kernel() -> Any:
    from gpytorch.kernels import RBFKernel

    return RBFKernel().double()


def gp_draw_on_arms_problem() -> ArmsProblem:
    return gp_draw_on_arms(kernel(), CHOICES, seed=0, noise_std=0.1)


@pytest.mark.parametrize(
    ("results", "options", "message"),
    [
        ({"a": torch.zeros(2, 3, 4, dtype=torch.float64)}, {}, r"\(2, 3, 4\)"),
        ({"a": torch.zeros(2, 0, dtype=torch.float64)}, {}, "at least one round"),
        ({"a": tensor([1.0, math.nan])}, {}, r"regret of results\['a'\]\[0, 1\] is nan"),
        ({"a": [tensor([1.0]), tensor([1.0, 2.0])]}, {}, "replicates of 1, 2 rounds"),
        ({}, {}, "results is empty"),
        ({"a": []}, {}, r"results\['a'\] is empty"),
        ([REGRET, REGRET], {"labels": ["a"]}, "one name for each of the 2"),
        ([REGRET, REGRET], {"labels": ["a", "a"]}, "all different"),
        ({"a": REGRET}, {"labels": ["a"]}, "has names already"),
        (REGRET, {"kind": "total"}, "kind is 'total'"),
        (REGRET, {"band": "wide"}, "band is 'wide'"),
        (REGRET, {"band": (0.6, 0.9)}, "below and one above"),
        (REGRET, {"fit_from": 0}, "fit_from is 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(results: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot_regret(results, **options)


def test_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="num_replicates x num_rounds"):
        plot_regret({"a": SimpleNamespace(rewards=1)})
    with pytest.raises(TypeError, match="float64"):
        plot_regret(REGRET.float())
    with pytest.raises(TypeError, match="ax is"):
        plot_regret(REGRET, ax="here")  # type: ignore[arg-type]
