"""The width of GP-UCB-CPD against its formula, in the units of the experiments."""

import math

import numpy as np
import pytest

from botorch_bandits.confidence.gp_ucb import ChangePointWidth, gp_ucb_cpd_width


@pytest.mark.parametrize("seed", range(5))
def test_width_is_the_formula(seed):
    rng = np.random.default_rng(seed)
    t, horizon, dim = (int(rng.integers(1, high)) for high in (3000, 9000, 6))
    a, D = rng.uniform(0.5, 5.0), rng.uniform(0.01, 2.0)
    beta = D * t ** (dim * (dim + 1) / (2 * a + dim * (dim + 1))) * np.log(horizon) ** 4
    assert float(gp_ucb_cpd_width(t, horizon, a, dim, D)) == pytest.approx(
        math.sqrt(beta), rel=1e-12
    )


def test_the_power_is_of_the_logarithm():
    # ln^4 T and ln(T^4) differ by far: 2527 against 28
    published = float(gp_ucb_cpd_width(1, 1200, 2.5, 1, 1.0))
    assert published**2 == pytest.approx(math.log(1200.0) ** 4)


def test_rule_counts_queries_since_the_reset():
    rule = ChangePointWidth(horizon=1200, smoothness=2.5, dim=1)
    for round_number, queries in ((1, 1), (2, 1), (3, 2), (301, 300)):
        expected = gp_ucb_cpd_width(queries, 1200, 2.5, 1)
        assert float(rule.width(None, round_number)) == float(expected)
    assert not rule.guarantee(None, 1).holds


@pytest.mark.parametrize(
    ("name", "value"),
    [("horizon", 0), ("smoothness", -1.0), ("dim", 0), ("width_constant", 0.0)],
)
def test_bad_ingredients_are_named(name, value):
    good = {"horizon": 100, "smoothness": 2.5, "dim": 1, "width_constant": 0.02}
    with pytest.raises(ValueError, match=name):
        ChangePointWidth(**{**good, name: value})
