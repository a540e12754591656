"""Tables with known answers: as published, and otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from papers.avanesov import PUBLISHED
from papers.reproduction.judging import Evidence

Means = Mapping[str, Mapping[str, float]]
"""By panel and method."""


def of_means(means: Means, error: float = 0.01, quantity: str = "regret") -> Evidence:
    """Return a table and all differences; they have the error that is given.

    With ``quantity="simple regret"`` the middle is like the end.
    """
    is_simple = quantity != "regret"
    table, differences = [], []
    for panel, methods in means.items():
        for method, mean in methods.items():
            row = {"experiment": panel, "method": method, "trials": "9", "mean": str(mean)}
            row |= {"standard_error": str(error), "regret": "simple" if is_simple else "R_T"}
            table.append(row)
        for first, second in itertools.combinations(methods, 2):
            for name in (quantity, "simple regret, middle") if is_simple else (quantity,):
                row = {"experiment": panel, "quantity": name, "method": first, "less": second}
                row |= {"trials": "9", "mean": str(methods[first] - methods[second])}
                differences.append(row | {"standard_error": str(error)})
    return Evidence({"table": table, "differences": differences})


def mirrored(means: Means) -> Means:
    """Return means in the reverse order."""
    return {
        panel: {m: max(v.values()) + min(v.values()) - mean for m, mean in v.items()}
        for panel, v in means.items()
    }


def spread(means: Means) -> Means:
    """Return means that are all far apart."""
    return {panel: {m: 10.0**i for i, m in enumerate(v)} for panel, v in means.items()}


def of_powers(kind: str, power: float, factor: float = 1.0, width: float = 0.1) -> Evidence:
    """Return the tables of avanesov-horizon or -periods with a fitted power."""
    curve = PUBLISHED[kind][1]
    fitted = {"source": "fitted", "constant": "1", "power": str(power)}
    fitted |= {"lower": str(power - width), "upper": str(power + width)}
    table = [
        {
            "experiment": f"avanesov-{kind}-{size}",
            "method": "GP-UCB-CPD",
            "mean": str(factor * curve.constant * size**curve.power),
            "standard_error": "1",
        }
        for size in (3, 9)
    ]
    return Evidence({"power": [fitted], "table": table})


def of_constraints(
    problem: str,
    regret: Mapping[str, tuple[float, float]],
    violation: Mapping[str, tuple[float, float]],
    power: float = 0.5,
    error: float = 0.001,
) -> Evidence:
    """Return the tables of shi-gardner or shi-rates; methods have values half way and at the end.

    Panels without noise on the constraint and with it have the same values, but for Algorithm 3.
    """
    rows, differences, growth = [], [], []
    for kind, own in (("noiseless", "Algorithm 2"), ("noisy", "Algorithm 3")):
        names = [own, f"{own}, fresh", "OCO, saddle point", "ADMMBO"]
        for method, half in itertools.product(names, (True, False)):
            suffix = "-surrogates" if method.endswith("fresh") else ""
            values = {"regret": regret[method], "violation": violation[method]}
            row = {"experiment": f"{problem}-{kind}{suffix}", "method": method, "trials": "9"}
            for name, pair in values.items():
                row |= {f"{name}_mean": str(pair[not half]), f"{name}_standard_error": str(error)}
            rows.append(row | {"mean_stop": "90"})
        pairs = itertools.combinations([n for n in names if "fresh" not in n], 2)
        for (first, second), name in itertools.product(pairs, ("regret", "violation")):
            values = regret if name == "regret" else violation
            row = {"experiment": f"{problem}-{kind}", "quantity": name, "trials": "9"}
            row |= {"method": first, "less": second, "standard_error": str(error)}
            differences.append(row | {"mean": str(values[first][1] - values[second][1])})
        for quantity in ("violation", "priced regret"):
            row = {"experiment": f"{problem}-powers", "method": own, "quantity": quantity}
            growth.append(row | {"power": str(power), "upper": str(power + 0.1)})
    known: dict[str, Any] = {
        f"{problem}-{kind}": {"optimal_value_of_grid": 3.0, "optimal_value_of_box": -0.25}
        for kind in ("noiseless", "noisy")
    }
    tables = {"violation": rows, "differences": differences, "growth": growth}
    return Evidence(tables, {"settings": known})


def of_epochs(regrets: list[float], violations: list[float], error: float = 0.01) -> Evidence:
    """Return the tables of Figure 1, from the shortest epochs to the longest."""
    names = [f"S = {S}" for S in (5, 10, 20, 35, 70)]
    rows, differences = [], []
    for name, regret, violation in zip(names, regrets, violations, strict=True):
        row = {"experiment": "shi-gardner-epochs", "method": name, "trials": "9"}
        row |= {"regret_mean": str(regret), "regret_standard_error": str(error)}
        row |= {"violation_mean": str(violation), "violation_standard_error": str(error)}
        rows.append(row)
    for quantity, values in (("regret", regrets), ("violation", violations)):
        for i, j in itertools.combinations(range(5), 2):
            row = {"experiment": "shi-gardner-epochs", "quantity": quantity, "trials": "9"}
            row |= {"method": names[i], "less": names[j], "standard_error": str(error)}
            differences.append(row | {"mean": str(values[i] - values[j])})
    return Evidence({"violation": rows, "differences": differences})
