"""What the tables of the pages of experiments show, from docs/results."""

from collections.abc import Callable
from functools import cache
from itertools import product

from test_documentation_agrees import read_csv

Cell = list[float] | str
"""The numbers of a cell, or its text."""
Rows = dict[str, list[Cell]]
"""The cells of each row, by what its first cell has."""

rows_of = cache(read_csv)


def panel(name: str, experiment: str, columns: str, **where: str) -> Rows:
    """Return what a table shows that has one row a method of an experiment."""
    found = {
        row["method"]: [[float(row[c])] if row[c] else [] for c in columns.split()]
        for row in rows_of(f"{name}.csv")
        if row["experiment"] == experiment and all(row[k] == v for k, v in where.items())
    }
    assert found, (name, experiment)
    return found


def side_by_side(*tables: Rows) -> Rows:
    """Join tables of the same methods; what a later one lacks is empty."""
    return {
        method: [
            cell
            for table in tables
            for cell in table.get(method, [[] for _ in next(iter(table.values()))])
        ]
        for method in tables[0]
    }


def in_pairs(cells: list[Cell]) -> list[Cell]:
    """Return cells such as mean and standard error in one."""
    return [[*a, *b] for a, b in zip(cells[::2], cells[1::2], strict=True)]


def coverage(experiment: str) -> Callable[[], Rows]:
    return lambda: panel("coverage", experiment, "mean standard_error covered")


def identification() -> list[tuple[str, list[Cell]]]:
    best = ("correct_after_40", "correct_after_400")
    return [
        (
            row["problem"],
            [
                row["method"],
                *([float(row[name + end]) for end in ("", "_low", "_high")] for name in best),
                [float(row["certified"]), float(row["trials"])],
                [float(row["mean_rounds"]), float(row["rounds_half_width"])],
            ],
        )
        for row in rows_of("identification.csv")
    ]


def varying() -> list[tuple[str, list[Cell]]]:
    quantities = ("regret", "violation")
    found: list[tuple[str, list[Cell]]] = []
    for row in rows_of("beyond-varying.csv"):
        played = [
            [float(row[f"{name}_mean"]), float(row[f"{name}_standard_error"])]
            for name in quantities
        ]
        bounds = [
            [float(row[f"{name}_bound"])] if row[f"{name}_bound"] else [] for name in quantities
        ]
        held = [float(row["guaranteed"]), float(row["trials"])]
        found.append((row["kind"], [row["method"], *played, held, *bounds]))
    return found


def means(name: str, experiment: str, more: str = "") -> Callable[[], Rows]:
    return lambda: panel(name, experiment, f"mean standard_error median {more}")


def verma_synthetic(kind: str) -> Rows:
    columns = "round_80_mean round_80_standard_error mean standard_error cumulative_mean"
    return panel("verma-synthetic", f"verma-ucb-{kind}", columns) | panel(
        "verma-synthetic", f"verma-ts-{kind}", columns
    )


SYNTHETIC = {"ucb": ("GP-UCB-SDF", "GP-UCB", "GP-BUCB"), "ts": ("GP-TS-SDF", "asy-TS", "GP-BTS")}
"""Methods with censored, ignored and hallucinated feedback."""


def verma_synthetic_differences() -> Rows:
    """Return how much more others have than censored feedback: simple regret, regret, by setting.

    Hyperparameters are learned, then with the common start, then given.
    """
    shown: Rows = {}
    for (kind, (sdf, *others)), delays in product(SYNTHETIC.items(), ("poisson", "fixed")):
        for other in others:
            cells: list[Cell] = []
            for part, name in (("", other), ("", f"{other}, common start"), ("-given", other)):
                for quantity in ("simple regret", "regret"):
                    where = f"verma-{kind}-{delays}{part}"
                    found = differences("verma-synthetic", where, name, quantity)[sdf]
                    cells.append([-found[0], found[1]])
            shown[f"{other}, {delays.replace('poisson', 'Poisson')}"] = cells
    return shown


FIGURES_OF_DELAYS = {
    "verma-1a": "1a",
    "verma-1b": "1b",
    "verma-1cd, Poisson delays": "1c",
    "verma-1cd, fixed delays": "1d",
    "verma-5, Poisson delays": "5a",
    "verma-5, fixed delays": "5b",
}


def factors_of_synthetic() -> list[tuple[str, list[Cell]]]:
    """Return the differences of both claims of a figure under each setting, and which hold."""
    shown: dict[tuple[str, str], list[Cell]] = {}
    for row in rows_of("factors-verma.csv"):
        where = row["claim"].rpartition(", ")[2] if row["claim"].endswith("delays") else ""
        figure = FIGURES_OF_DELAYS.get(", ".join(filter(None, (row["figure"], where))))
        if figure is None:
            continue
        words = "as judged" if row["factor"] == "none" else f"{row['factor']}: {row['setting']}"
        cells = shown.setdefault((figure, words), [words])
        cells += [[float(row["difference"]), float(row["standard_error"])], row["holds"]]
    return [(figure, cells) for (figure, _), cells in shown.items()]


CENSORED = [
    ("ucb", "UCB", "GP-UCB-SDF", "GP-UCB", "GP-BUCB"),
    ("ts", "Thompson", "GP-TS-SDF", "asy-TS", "GP-BTS"),
]


def at_round(task: str, kind: str, delay: str, number: str, columns: str) -> Rows:
    """Return the methods of a tuning at a round: 35 is 5 + 30, 105 is 5 + 100."""
    experiment = f"verma-tuning-{task}-{kind}-{delay}"
    return panel("verma-tuning-rounds", experiment, columns, round=number)


def verma_tuning(task: str) -> Rows:
    """Return simple regrets at rounds 35 and 105 with Poisson delays, then with fixed ones."""
    shown: Rows = {}
    for kind in ("ucb", "ts"):
        tables = (
            at_round(task, kind, delay, number, "mean standard_error")
            for delay, number in product(("poisson", "fixed"), ("35", "105"))
        )
        shown |= {method: in_pairs(cells) for method, cells in side_by_side(*tables).items()}
    return shown


def verma_tuning_differences() -> Rows:
    """Return how much more simple regret the baselines have than censored feedback."""
    shown: Rows = {}
    for task, figure in (("svm", "2abcd"), ("cnn", "2efgh"), ("logistic", "3abcd")):
        panels = product(CENSORED, ("poisson", "fixed"))
        for letter, ((kind, _, _, *others), delay) in zip(figure[1:], panels, strict=True):
            more = [
                at_round(task, kind, delay, number, "more more_standard_error")
                for number in ("35", "105")
            ]
            starts = ("", ", common start") if letter == "a" and task == "svm" else ("",)
            for start in starts:
                shown[f"{figure[0]}{letter}{start}"] = [
                    [number for cell in table[other + start] for number in cell]
                    for other in others
                    for table in more
                ]
    return shown


def factors_of_verma(*figures: str) -> list[tuple[str, list[Cell]]]:
    """Return what changes the claims of some figures: one row a setting, differences and errors."""
    shown: dict[str, list[Cell]] = {}
    for row in rows_of("factors-verma.csv"):
        if row["figure"] in figures:
            label = f"{row['figure'].removeprefix('verma-')}, {row['claim'].split(' ')[0]}"
            setting = f"{row['factor']}: {row['setting']}"
            key = f"{label}|{setting}|{row['claim'].partition(', ')[2]}"
            cells = shown.setdefault(key, [setting, [float(row["trials"])]])
            cells.append([float(row["difference"]), float(row["standard_error"])])
    return [(key.split("|")[0], cells) for key, cells in shown.items()]


def fills() -> Rows:
    columns = "mean standard_error cumulative_mean cumulative_standard_error"
    kinds = ("given", "theory", "learned", "svm-given", "svm-learned")
    tables = (panel("beyond-fills", f"beyond-fills-{kind}", columns) for kind in kinds)
    return {method: in_pairs(cells) for method, cells in side_by_side(*tables).items()}


def contextual_parts(task: str) -> list[str]:
    """Return the ends of the names of the panels of a task: hyperparameters given, then learned."""
    played = {row["experiment"] for row in rows_of("verma-contextual.csv")}
    return [part for part in ("", "-learned") if f"verma-{task}-ucb-poisson{part}" in played]


def verma_contextual(task: str) -> Rows:
    joined: Rows = {}
    for kind in ("ucb", "ts"):
        columns = (
            panel("verma-contextual", f"verma-{task}-{kind}-poisson{part}", "mean standard_error")
            for part in contextual_parts(task)
        )
        joined |= {m: in_pairs(cells) for m, cells in side_by_side(*columns).items()}
    return joined


def differences(name: str, experiment: str, less: str, quantity: str = "regret") -> dict:
    """Return mean and standard error of every method's value less that of this one."""
    return {
        row["method"]: [float(row["mean"]), float(row["standard_error"])]
        for row in rows_of(f"{name}-differences.csv")
        if (row["experiment"], row["less"], row["quantity"]) == (experiment, less, quantity)
    }


def contextual_differences() -> Rows:
    shown: Rows = {}
    for task, words in (("tasks", "SVM tasks"), ("growing", "growing data")):
        for part in contextual_parts(task):
            hyperparameters = part.removeprefix("-") or "given"
            for kind, rule, censored, *others in CENSORED:
                experiment = f"verma-{task}-{kind}-poisson{part}"
                shown[f"{words}, {hyperparameters}, {rule}"] = [
                    differences("verma-contextual", experiment, less)[censored] for less in others
                ]
    return shown


def detections(prefix: str, name: str) -> Rows:
    columns = "mean_delay sd_delay missed_share false_alarms_per_run explored_per_run"
    shown: Rows = {}
    for row in rows_of(f"{name}.csv"):
        (counts,) = panel(
            "avanesov-detections", row["experiment"], columns, method=row["method"]
        ).values()
        label = row["experiment"].removeprefix(prefix) if prefix else row["method"]
        regret = [[float(row["mean"])], [float(row["standard_error"])]]
        shown[label] = [*regret, [*counts[0], *counts[1]], *counts[2:]]
    return shown


def powers(name: str, with_published: bool) -> Rows:
    words = {"T": "horizon, 3 periods", "K": "periods, T = 2700"}
    shown: Rows = {}
    for row in rows_of(f"{name}.csv"):
        if row["source"] == "fitted" or with_published:
            fit = [float(row["constant"]), float(row["power"])]
            interval = [float(row["lower"]), float(row["upper"])]
            shown.setdefault(words[row["variable"]], []).extend([fit, interval])
    return shown


def shi(name: str, *kinds: str, half: str = "175", last: str = "350") -> Callable[[], Rows]:
    early = "trials regret_mean violation_mean"
    late = " ".join(f"{x}_{y}" for x in ("regret", "violation") for y in ("mean", "se", "median"))
    late = f"{late} rectified_mean".replace("_se ", "_standard_error ")

    def rows() -> Rows:
        shown: Rows = {}
        for kind in kinds:
            experiment = f"{name}-{kind}"
            shown |= side_by_side(
                panel(name, experiment, early, round=half),
                panel(name, experiment, late, round=last),
            )
        return shown

    return rows


def factors_of_figure(name: str, figure: str) -> Callable[[], list[tuple[str, list[Cell]]]]:
    return lambda: [
        (row["setting"], [row["source"], row["ours"], row["holds"], [float(row["trials"])]])
        for row in rows_of(f"factors-{name}.csv")
        if row["figure"] == figure
    ]


def calibration() -> list[tuple[str, list[Cell]]]:
    columns = ("ridge", "alarms", "alarms_low alarms_high", "seen", "calibrated_scale")
    columns += ("seen_calibrated", "chosen_at_most")
    return [
        (row["statistic"], [[float(row[c]) for c in cell.split()] for cell in columns])
        for row in rows_of("avanesov-calibration.csv")
    ]


def realized() -> list[tuple[str, list[Cell]]]:
    found: list[tuple[str, list[Cell]]] = []
    for kind in ("rewards", "constraints", "waves", "drift"):
        half, end = (
            panel("shi-varying", f"shi-varying-{kind}", columns, round=number)
            for number, columns in (
                ("250", "regret_mean violation_mean"),
                ("500", "trials regret_mean regret_standard_error violation_mean "
                 "violation_standard_error"),
            )
        )  # fmt: skip
        for method, (trials, *late) in end.items():
            found.append((kind, [method, trials, *half[method], *in_pairs(late)]))
    return found


def growth() -> list[tuple[str, list[Cell]]]:
    totals = ("mean_total_1", "mean_total_2", "mean_total_3")
    return [
        (
            row["method"],
            [
                row["quantity"],
                *([float(row[total])] for total in totals),
                [float(row["power"])] if row["power"] else "none",
                [float(row[end]) for end in ("lower", "upper") if row[end]],
            ],
        )
        for row in rows_of("shi-gardner-growth.csv")
    ]


def multipliers(problem: str) -> Callable[[], Rows]:
    columns = " ".join(f"{x}_mean {x}_standard_error" for x in ("regret", "violation", "priced"))

    def rows() -> Rows:
        exact, noisy = (
            panel("beyond-multipliers", f"beyond-multipliers-{problem}-{v}", columns, round="350")
            for v in ("exact", "noisy")
        )
        return {m: in_pairs(cells) for m, cells in side_by_side(exact, noisy).items()}

    return rows


def forgetting() -> Rows:
    kinds = ("abrupt", "drift", "stationary")
    names = [f"beyond-forgetting-{kind}" for kind in kinds]
    regret = [panel("beyond-forgetting", name, "mean standard_error") for name in names]
    resets = [panel("beyond-forgetting", name, "resets_mean") for name in names]
    counts = {m: [x for t in resets if m in t for x in t[m][0]] for m in resets[0]}
    return {
        method: [*cells, counts[method] if any(counts[method]) else []]
        for method, cells in side_by_side(*regret).items()
    }


def changes() -> Rows:
    columns = "mean_delay sd_delay missed_share false_alarms_per_run explored_per_run"
    counts = panel("beyond-changes-detections", "beyond-changes-4", columns)
    regret = panel("beyond-changes", "beyond-changes-4", "mean standard_error")
    none: list[Cell] = [[], [], [], [], []]
    return {
        method: [*cells, [*found[0], *found[1]], *found[2:]]
        for method, cells in regret.items()
        for found in [counts.get(method, none)]
    }


HARD_PANELS = {
    "12 periods": "frequent",
    "24 periods": "very-frequent",
    "two dimensions": "plane",
    "loud": "loud",
    "falls by 2": "fall-2",
    "falls by 1": "fall-1",
    "hidden": "hidden",
    "drift": "drift",
}
FORMS = ("evidence, plain", "evidence, robust", "half-samples")


def share(part: float, whole: float) -> list[float]:
    """Return a share and its standard error."""
    p = part / whole
    return [p, (p * (1.0 - p) / whole) ** 0.5]


def hard() -> Rows:
    methods = (
        "told of the changes",
        "evidence, plain",
        "evidence, robust",
        "evidence, robust, explores",
        "half-samples",
        "window",
        "time kernel 0.01",
        "never restarts",
    )
    tables = []
    for kind in HARD_PANELS.values():
        known = panel("beyond-changes-hard", f"beyond-changes-hard-{kind}", "mean standard_error")
        pairs = {method: in_pairs(cells) for method, cells in known.items()}
        # windows differ in length
        tables.append({"window" if "window" in m else m: cells for m, cells in pairs.items()})
    return side_by_side({method: [] for method in methods}, *tables)


def hard_detections() -> Rows:
    columns = "runs changes detections mean_delay sd_delay missed"
    shown: Rows = {}
    for label, kind in HARD_PANELS.items():
        if kind == "drift":
            continue
        found = panel("beyond-changes-hard-detections", f"beyond-changes-hard-{kind}", columns)
        for form in FORMS:
            row = shown.setdefault(label, [])
            if form not in found:
                row.extend([[], []])
                continue
            (runs,), (changes,), (number,), *delay, (missed,) = found[form]
            if not row:
                row.append([runs * changes])
            mean, deviation = delay
            row.append([*mean, deviation[0] / number**0.5] if mean else [])
            row.append(share(missed, runs * changes))
    return shown


def misspecified() -> Rows:
    settings = {
        "lengthscale of the model 1.5 times too long": "long",
        "lengthscale of the model 1.5 times too short": "short",
        "noise 1.5 times that of the model": "noise-1.5",
        "noise 2 times that of the model": "noise-2",
        "noise with 3 degrees of freedom": "t-3",
    }
    columns = "runs runs_with_false_alarm false_alarms_per_run"
    shown: Rows = {}
    for label, kind in settings.items():
        name = f"beyond-misspecified-{kind}"
        found = panel("beyond-misspecified-detections", name, columns)
        regret = panel("beyond-misspecified", name, "mean standard_error")
        for form in FORMS[:2]:
            (runs,), (alarmed,), rate = found[form]
            row = shown.setdefault(label, [])
            row.extend([share(alarmed, runs), rate, *in_pairs(regret[form])])
    return shown


def combined() -> Rows:
    columns = (
        "mean standard_error before_mean after_mean violation_mean violation_standard_error "
        "rectified_mean resets_before_mean resets_after_mean"
    )
    return panel("beyond-combined", "beyond-combined", columns)


def verdicts() -> list[tuple[str, list[Cell]]]:
    figures: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows_of("verdicts.csv"):
        if row["verdict"]:
            figures.setdefault((row["paper"], row["figure"]), []).append(row)
    return [
        (
            paper,
            [
                figure,
                claims[0]["verdict"],
                f"{sum(c['holds'] == 'yes' for c in claims)} of {len(claims)}",
            ],
        )
        for (paper, figure), claims in figures.items()
    ]


def factors(
    paper: str, figures: dict[str, tuple[str, ...]], trials: bool = False
) -> Callable[[], list[tuple[str, list[Cell]]]]:
    """Return one row a changed setting: the difference and its error, and whether the claim holds.

    Args:
        paper: Whose table.
        figures: Claims by the figure that makes them; each is a column. A row that does not
            concern a claim has an empty cell.
        trials: Whether the number of trials is a column.
    """

    def rows() -> list[tuple[str, list[Cell]]]:
        columns = [(figure, claim) for figure, claims in figures.items() for claim in claims]
        found: dict[tuple[str, str], dict[tuple[str, str], dict[str, str]]] = {}
        for row in rows_of(f"factors-{paper}.csv"):
            if (row["figure"], row["claim"]) in columns:
                setting = found.setdefault((row["factor"], row["setting"]), {})
                setting[row["figure"], row["claim"]] = row
        shown: list[tuple[str, list[Cell]]] = []
        for (factor, setting), known in found.items():
            cells: list[Cell] = [setting]
            for column in columns:
                row = known.get(column, {})
                cells.append(
                    [float(row["difference"]), float(row["standard_error"])] if row else []
                )
                cells.append(row.get("holds", ""))
            if trials:
                cells.append([float(next(iter(known.values()))["trials"])])
            shown.append((factor, cells))
        return shown

    return rows
