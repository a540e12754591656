"""Tables and sentences of the pages of experiments have the numbers of docs/results."""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

import pytest
import tables_of_results as results
from test_documentation_agrees import ROOT, table_after

PAGES = [ROOT / "docs" / "experiments.md", *sorted((ROOT / "docs" / "experiments").glob("*.md"))]
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"

SHORT = "two changes: 1000 rounds, "
FAR = "GP-TS far ahead of GP-UCB (Theorem 3), Hartmann3"
TS_BEST, SAME = "GP-TS best", "IGP-UCB and GP-UCB (Theorem 3) alike"
ON_PAR = tuple(f"GP-UCB (beta / 5) and {name} alike" for name in ("EI", "MPI"))


def published_order(other: str) -> dict[str, tuple[str, ...]]:
    """Return the claims of Figures 1 and 2 of Chowdhury and Gopalan on IGP-UCB and another."""
    claims = tuple(
        f"IGP-UCB ahead of {other}, {kernel}" for kernel in ("squared exponential", "Matern 5/2")
    )
    return {"chowdhury-1": claims, "chowdhury-2": claims}


# how the paragraph before a table begins, and what the table shows
TABLES = [
    ("This page lists the experiments", results.verdicts),
    ("The processor, however", "names of experiments and their data, no results"),
    ("Functions of norm 2 (`rkhs_bound` 2", results.coverage("coverage-rkhs")),
    ("Draws of the Gaussian process:", results.coverage("coverage-gp")),
    ("Draws of the Gaussian process, rules", results.coverage("coverage-gp-random")),
    ("Functions of norm 2, with a Matern", results.coverage("coverage-rkhs-matern")),
    ("Functions of norm 2, with noise", results.coverage("coverage-rkhs-noise")),
    ("Functions of norm 2 that are stated", results.coverage("coverage-rkhs-overstated")),
    ("The experiment plays 50 functions of norm 2 on each", results.identification),
    *(
        (words, results.means("chowdhury-rkhs", f"chowdhury-rkhs-{kind}", "covered"))
        for words, kind in (
            ("Functions in the RKHS, squared exponential:", "se-figure1"),
            ("Functions in the RKHS, Matern 5/2:", "matern-figure1"),
            ("Draws of the process, squared exponential:", "se-figure2"),
            ("Draws of the process, Matern 5/2:", "matern-figure2"),
        )
    ),
    (
        "The following table shows what decides the claims on EI",
        results.factors("chowdhury", published_order("GP-EI")),
    ),
    (
        "The next table shows the same for PI",
        results.factors("chowdhury", published_order("GP-PI")),
    ),
    (
        "The number of rounds decides GP-TS's claim on Hartmann.",
        results.factors("chowdhury", {"chowdhury-3": (FAR,)}, trials=True),
    ),
    (
        "The paper does not say which incumbent EI and PI have. The difference",
        results.factors(
            "chowdhury",
            {
                "chowdhury-3": tuple(
                    f"{name} ahead of IGP-UCB, {where}"
                    for where in ("Rosenbrock", "Hartmann3")
                    for name in ("GP-EI", "GP-PI")
                )
            },
        ),
    ),
    (
        "The settings of Figure 4a",
        results.factors("chowdhury", {"chowdhury-4a": (TS_BEST, SAME)}, trials=True),
    ),
    (
        "The settings of Figure 4b",
        results.factors("chowdhury", {"chowdhury-4b": (TS_BEST, "IGP-UCB ahead of GP-EI")}),
    ),
    (
        "The next table shows what decides these claims by changing one setting at a time.",
        results.factors("srinivas", {"srinivas-5a": ON_PAR}, trials=True),
    ),
    (
        "The margin of MPI matters less here",
        results.factors(
            "srinivas",
            {"srinivas-5b": tuple(f"{m} ahead of MPI" for m in ("GP-UCB (beta / 5)", "EI"))},
        ),
    ),
    (
        "The experiment plays 30 functions for 1000 rounds",
        results.means("srinivas-synthetic", "srinivas-synthetic"),
    ),
    ("Rosenbrock on", results.means("chowdhury-functions", "chowdhury-rosenbrock")),
    ("Hartmann on", results.means("chowdhury-functions", "chowdhury-hartmann3")),
    (
        "The experiment plays 2000 reward functions",
        results.means("srinivas-sensors", "srinivas-sensors"),
    ),
    (
        "This experiment plays 900 reward functions",
        results.means("srinivas-traffic", "srinivas-traffic"),
    ),
    (
        "The experiment has 200 rounds (the paper",
        results.means("chowdhury-sensors", "chowdhury-temperature"),
    ),
    ("Light, 192 reward", results.means("chowdhury-sensors", "chowdhury-light")),
    ("The figures are played as published", "settings and their sources, no results"),
    ("Delays of several means", lambda: results.verma_synthetic("mean")),
    ("Poisson(10) delays with several `m`", lambda: results.verma_synthetic("limit")),
    ("Poisson(10) delays, `m = 20`", lambda: results.verma_synthetic("poisson")),
    ("Delays of 10, `m = 20`", lambda: results.verma_synthetic("fixed")),
    ("The same as the Poisson(10) delays", lambda: results.verma_synthetic("theory")),
    ("How much more the others have", results.verma_synthetic_differences),
    ("What changes the claims on synthetic functions", results.factors_of_synthetic),
    ("Support vector machine (Figures", lambda: results.verma_tuning("svm")),
    ("Logistic regression (Figure 3)", lambda: results.verma_tuning("logistic")),
    ("Convolutional network (Figures", lambda: results.verma_tuning("cnn")),
    ("The published threshold on 200 streams", results.calibration),
    ("How much more simple regret", results.verma_tuning_differences),
    (
        "What changes the claims on tuning",
        lambda: results.factors_of_verma("verma-2ad", "verma-2eh", "verma-3"),
    ),
    (
        "Regret of GP-UCB-CPD by the horizon",
        lambda: results.detections("avanesov-horizon-", "avanesov-horizon"),
    ),
    (
        "Regret of GP-UCB-CPD by the number",
        lambda: results.detections("avanesov-periods-", "avanesov-periods"),
    ),
    ("Powers, fitted by", lambda: results.powers("avanesov-powers", with_published=True)),
    (
        "The comparison has four periods of 300",
        results.means("avanesov-compare", "avanesov-compare"),
    ),
    (
        "The effect of what is unspecified",
        lambda: results.detections("", "avanesov-constants"),
    ),
    (
        "The power in `K` with one factor changed",
        results.factors_of_figure("avanesov", "avanesov-2"),
    ),
    ("False alarms with one factor changed", results.factors_of_figure("avanesov", "avanesov-3")),
    (
        "The ridge decides both claims.",
        lambda: results.powers("avanesov-powers-ridge-0.3", with_published=False),
    ),
    ("SVM tasks (Figures 4a", lambda: results.verma_contextual("tasks")),
    ("Growing data (Figures 4c", lambda: results.verma_contextual("growing")),
    ("Differences of `R_T` on the same trials", results.contextual_differences),
    (
        "What changes the claims on contexts",
        lambda: results.factors_of_verma("verma-4ab", "verma-4cd"),
    ),
    (
        "Small feasible region, constraint observed",
        results.shi("shi-gardner", "noiseless", "noiseless-slow", "noiseless-surrogates"),
    ),
    (
        "Constraint observed with noise (Figures 4",
        results.shi("shi-gardner", "noisy", "noisy-slow", "noisy-surrogates"),
    ),
    ("Epochs of several lengths", results.shi("shi-gardner", "epochs")),
    ("Algorithm 2 with other values", results.shi("shi-gardner", "unsaid")),
    ("Growth with the number of rounds", results.growth),
    (
        "Data rates, constraint observed exactly",
        results.shi("shi-rates", "noiseless", "noiseless-surrogates"),
    ),
    (
        "Constraint observed with noise (Figures 8",
        results.shi("shi-rates", "noisy", "noisy-surrogates"),
    ),
    ("Fresh epochs of Algorithm 2", results.factors_of_figure("shi", "shi-2-3")),
    ("Fresh epochs of Algorithm 3", results.factors_of_figure("shi", "shi-4-5")),
    ("OCO with the constraint observed exactly", results.factors_of_figure("shi", "shi-6-7")),
    ("OCO with noise on the constraint", results.factors_of_figure("shi", "shi-8-9")),
    ("Realized functions, 500 rounds", results.realized),
    ("Small feasible region:", results.multipliers("gardner")),
    ("Data rates:", results.multipliers("rates")),
    ("20 environments of each kind", results.varying),
    ("The experiment has 100 arms in [0, 5]", results.forgetting),
    ("The experiment has the setting of Figure 3 of Avanesov", results.changes),
    ("All methods play two deviations above the mean.", results.hard),
    ("Rounds between a change and its detection", results.hard_detections),
    ("This experiment plays 24 runs of 1500 rounds", results.misspecified),
    ("*Soft* estimates the distribution of the delays", results.fills),
    ("The full policy is `BanditLoop`", results.combined),
]


def tables_of_page() -> list[tuple[str, list[list[str]]]]:
    """Return each table's cells, after the paragraph before it."""
    tables: list[tuple[str, list[list[str]]]] = []
    blocks = [block.strip() for block in PAGE.split("\n\n")]
    for before, block in pairwise(blocks):
        if block.startswith("|"):
            lines = block.splitlines()[2:]
            tables.append((before, [[c.strip() for c in x[1:-1].split("|")] for x in lines]))
    return tables


SHOWN = tables_of_page()


def agrees(text: str, value: float) -> bool:
    """Whether a number, rounded to the digits of a text, is that text."""
    if text == "0":
        return value == 0
    step = Decimal(10) ** int(Decimal(text).as_tuple().exponent)
    return abs(float(text) - value) <= 0.5 * float(step) * (1 + 1e-6)


FOUND = [
    (words, [cells for before, cells in SHOWN if before.startswith(words)]) for words, _ in TABLES
]


def test_every_table_is_mapped():
    assert [words for words, tables in FOUND if len(tables) != 1] == []
    known = [before for before, _ in SHOWN if any(before.startswith(words) for words, _ in TABLES)]
    assert known == [before for before, _ in SHOWN]
    assert len(SHOWN) == len(TABLES)


MAPPED = [
    pytest.param(cells, expected, id=words)
    for (words, tables), (_, expected) in zip(FOUND, TABLES, strict=True)
    for cells in tables[:1]
    if not isinstance(expected, str)
]


@pytest.mark.parametrize(("shown", "expected"), MAPPED)
def test_table_has_the_numbers_of_the_results(shown, expected):
    rows = expected()
    rows = list(rows.items()) if isinstance(rows, dict) else rows
    assert [row[0] for row in shown] == [label for label, _ in rows]
    for cells, (label, values) in zip(shown, rows, strict=True):
        assert len(cells) == 1 + len(values), label
        for cell, value in zip(cells[1:], values, strict=True):
            if isinstance(value, str):
                assert cell == value, label
                continue
            found = re.findall(NUMBER, cell)
            assert len(found) == len(value), (label, cell, value)
            for text, number in zip(found, value, strict=True):
                assert agrees(text, number), f"{label}: {cell} shows {text}, results {number}"


def first(name: str, experiment: str, method: str, columns: str, **where: str) -> list[float]:
    """Return what a row of the results has in some columns."""
    return [x for cell in results.panel(name, experiment, columns, **where)[method] for x in cell]


def less(name: str, experiment: str, method: str, other: str, quantity: str) -> list[float]:
    """Return how much more this method has than the other, and the standard error."""
    known = results.differences(name, experiment, other, quantity)
    if method in known:
        return known[method]
    mean, error = results.differences(name, experiment, method, quantity)[other]
    return [-mean, error]


def combined(method: str, quantity: str) -> list[float]:
    return less("beyond-combined", "beyond-combined", method, "all components", quantity)


def compared(method: str, other: str) -> list[float]:
    return less("avanesov-compare", "avanesov-compare", method, other, "regret")


def forgetting(kind: str, method: str) -> list[float]:
    policy = "explores, never restarts"
    return less("beyond-forgetting", f"beyond-forgetting-{kind}", policy, method, "regret")


def synthetic(*compared: Sequence[str]) -> list[float]:
    """Return how much more methods have than others: panel, method, other, maybe quantity."""
    found = []
    for panel, method, other, *quantity in compared:
        (name,) = quantity or ["simple regret"]
        found += less("verma-synthetic", f"verma-{panel}", method, other, name)
    return found


def tuned(task: str, kind: str, delay: str, method: str, number: str = "105") -> list[float]:
    """Return how much more simple regret a method has than censored feedback, and the error."""
    more = results.at_round(task, kind, delay, number, "more more_standard_error")
    return [x for cell in more[method] for x in cell]


def both(kind: str, quantity: str = "violation_mean") -> list[float]:
    """Return what Algorithm 2 or 3 has half way and at the end."""
    method = "Algorithm 3" if "noisy" in kind else "Algorithm 2"
    name = kind.rsplit("-", 1)[0]
    return [first(name, kind, method, quantity, round=r)[0] for r in ("175", "350")]


def realized(kind: str, method: str, other: str, quantity: str = "regret") -> list[float]:
    mean, error = less("shi-varying", f"shi-varying-{kind}", method, other, quantity)
    return [abs(mean), error]


def fills(panel: str, method: str, other: str, quantity: str = "simple regret") -> list[float]:
    return less("beyond-fills", f"beyond-fills-{panel}", other, method, quantity)


def changed(figure: str, factor: str, setting: str, claim: str) -> dict[str, str]:
    """Return the row of one changed setting, by its words or by how they alone begin."""
    rows = [
        row
        for row in results.rows_of(f"factors-{figure.split('-')[0]}.csv")
        if (row["figure"], row["factor"], row["claim"]) == (figure, factor, claim)
    ]
    exact = [row for row in rows if row["setting"] == setting]
    (row,) = exact or [row for row in rows if row["setting"].startswith(setting)]
    return row


def change(figure: str, factor: str, setting: str, claim: str) -> list[float]:
    """Return the difference under a changed setting, and its standard error."""
    row = changed(figure, factor, setting, claim)
    return [float(row["difference"]), float(row["standard_error"])]


def regrets(figure: str, factor: str, setting: str, claim: str) -> list[float]:
    """Return the two regrets that a row compares."""
    words = changed(figure, factor, setting, claim)["ours"]
    return [float(x) for x in re.match(r"regret (\S+) and (\S+),", words).groups()]


# sentences of the page, with holes for numbers, and what these are
SENTENCES = {
    "IGP-UCB has a regret of {} after 3000 rounds and EI has {}.": lambda: regrets(
        "chowdhury-1",
        "two changes: rounds, norm",
        "3000",
        "IGP-UCB ahead of GP-EI, squared exponential",
    ),
    "PI without a margin hardly explores and has a regret of {} there": lambda: regrets(
        "chowdhury-1",
        "two changes: rounds, margin of PI",
        "3000, 0",
        "IGP-UCB ahead of GP-PI, squared exponential",
    )[1:],
    "GP-TS has a regret of {}. With the realized gain instead of the rate it has {}": (
        lambda: [
            regrets("chowdhury-3", factor, setting, FAR)[0]
            for factor, setting in (
                ("rounds", "1000"),
                (f"{SHORT}information gain of GP-TS", "realized"),
            )
        ]
    ),
    "omits that part, {}. Without `B` it has {}, so": lambda: [
        regrets("chowdhury-3", f"{SHORT}scale of GP-TS", setting, FAR)[0]
        for setting in ("v_t = B", "v_t without B")
    ],
    "`R` is 1% of the range, it has {}.": lambda: regrets(
        "chowdhury-3", f"{SHORT}noise", "R is", FAR
    )[:1],
    "EI is ahead of IGP-UCB with the Matern kernel by {} ({}), and": lambda: [
        abs(number)
        for number in change(
            "chowdhury-2",
            "two changes: rounds, number of functions",
            "3000, 100",
            "IGP-UCB ahead of GP-EI, Matern 5/2",
        )
    ],
    "EI has {} on Hartmann, and IGP-UCB has {}.": lambda: regrets(
        "chowdhury-3", f"{SHORT}incumbent of EI and PI", "best", "GP-EI ahead of IGP-UCB, Hartmann3"
    ),
    "({} ahead, standard error {}) and ahead of all": lambda: change(
        "chowdhury-4a", "scale of GP-TS", "v = 1", TS_BEST
    ),
    "on light IGP-UCB stays ahead of it by {} ({}). With": lambda: [
        abs(number) for number in change("chowdhury-4b", "scale of GP-TS", "v = 1", TS_BEST)
    ],
    "GP-TS is best on light, by {} ({}), but": lambda: change(
        "chowdhury-4b", "norm", "B = 1", TS_BEST
    ),
    "GP-TS is best on temperature by {} ({}) and on light by {} ({}), and": lambda: [
        number
        for figure in ("chowdhury-4a", "chowdhury-4b")
        for number in change(figure, "two changes: rewards, norm", "not", TS_BEST)
    ],
    "IGP-UCB is ahead of EI on light by {} ({}). The": lambda: change(
        "chowdhury-4b", "two changes: rewards, norm", "not", "IGP-UCB ahead of GP-EI"
    ),
    "({} apart at {}, standard error {}), because": lambda: [
        change("chowdhury-4a", "two changes: units, norm", "as", SAME)[0],
        regrets("chowdhury-4a", "two changes: units, norm", "as", SAME)[0],
        change("chowdhury-4a", "two changes: units, norm", "as", SAME)[1],
    ],
    "with 0.3 its regret is {} larger than GP-UCB's (standard error {})": lambda: change(
        "srinivas-5a", "margin of MPI", "0.3", ON_PAR[1]
    ),
    "with 0.01 the difference is {} ({}), with 0.03 it is {} ({}). MPI": lambda: [
        number
        for margin in ("0.01", "0.03")
        for number in change("srinivas-5a", "margin of MPI", margin, ON_PAR[1])
    ],
    "its mean is {} compared with GP-UCB's {}, and the difference of {} ({}) still": lambda: [
        *reversed(regrets("srinivas-5a", "number of functions", "200", ON_PAR[0])),
        *change("srinivas-5a", "number of functions", "200", ON_PAR[0]),
    ],
    "over 200 functions either: its regret is {} ({}) larger.": lambda: change(
        "srinivas-5a",
        "two changes: number of functions, margin of MPI",
        "200, 0.01",
        ON_PAR[1],
    ),
    "EI is no longer on par either and has {} ({}) more regret.": lambda: change(
        "srinivas-5a", "incumbent of EI and MPI", "best", ON_PAR[0]
    ),
    (
        "GP-UCB has {} (standard error {}) more with Poisson delays and {} ({}) more "
        "with fixed ones, GP-BUCB {} ({}) and {} ({})."
    ): lambda: synthetic(
        ("ucb-poisson", "GP-UCB", "GP-UCB-SDF"),
        ("ucb-fixed", "GP-UCB", "GP-UCB-SDF"),
        ("ucb-poisson", "GP-BUCB", "GP-UCB-SDF"),
        ("ucb-fixed", "GP-BUCB", "GP-UCB-SDF"),
    ),
    "with the common start GP-BUCB has {} ({}) and {} ({}) more.": lambda: synthetic(
        ("ucb-poisson", "GP-BUCB, common start", "GP-UCB-SDF"),
        ("ucb-fixed", "GP-BUCB, common start", "GP-UCB-SDF"),
    ),
    "the first has {} ({}) less.": lambda: synthetic(
        ("ucb-limit", "GP-UCB-SDF, m = 20", "GP-UCB-SDF, m = 40"),
    ),
    (
        "Delays of mean 20 are worse than those of mean 10, by {} ({}) at the end. Delays "
        "of mean 10 and of mean 5 cannot be told apart: the latter have {} ({}) more."
    ): lambda: synthetic(
        ("ucb-mean", "GP-UCB-SDF, mean 20", "GP-UCB-SDF, mean 10"),
        ("ucb-mean", "GP-UCB-SDF, mean 5", "GP-UCB-SDF, mean 10"),
    ),
    (
        "asy-TS has {} (standard error {}) more with Poisson delays and {} ({}) more "
        "with fixed ones, GP-BTS {} ({}) and {} ({})."
    ): lambda: synthetic(
        ("ts-poisson", "asy-TS", "GP-TS-SDF"),
        ("ts-fixed", "asy-TS", "GP-TS-SDF"),
        ("ts-poisson", "GP-BTS", "GP-TS-SDF"),
        ("ts-fixed", "GP-BTS", "GP-TS-SDF"),
    ),
    (
        "Its cumulative regret is larger than that of asy-TS, by {} ({}) with Poisson delays."
    ): lambda: synthetic(
        ("ts-poisson", "GP-TS-SDF", "asy-TS", "regret"),
    ),
    (
        "With given hyperparameters asy-TS has {} ({}) and GP-BTS {} ({}) less simple "
        "regret with Poisson delays."
    ): lambda: synthetic(
        ("ts-poisson-given", "GP-TS-SDF", "asy-TS"),
        ("ts-poisson-given", "GP-TS-SDF", "GP-BTS"),
    ),
    (
        "GP-UCB-SDF has {} ({}) more cumulative regret than GP-BUCB with Poisson delays "
        "and {} ({}) more with fixed ones, which"
    ): lambda: synthetic(
        ("ucb-poisson", "GP-UCB-SDF", "GP-BUCB", "regret"),
        ("ucb-fixed", "GP-UCB-SDF", "GP-BUCB", "regret"),
    ),
    (
        "With the hyperparameters of the functions, GP-BUCB has {} ({}) more simple regret "
        "with Poisson delays and {} ({}) more with fixed ones, and GP-UCB-SDF {} ({}) and {} ({}) "
        "more cumulative regret."
    ): lambda: synthetic(
        ("ucb-poisson-given", "GP-BUCB", "GP-UCB-SDF"),
        ("ucb-fixed-given", "GP-BUCB", "GP-UCB-SDF"),
        ("ucb-poisson-given", "GP-UCB-SDF", "GP-BUCB", "regret"),
        ("ucb-fixed-given", "GP-UCB-SDF", "GP-BUCB", "regret"),
    ),
    (
        "Learning costs GP-BUCB {} ({}) of simple regret with Poisson delays, and "
        "GP-UCB-SDF {} ({})."
    ): lambda: synthetic(
        ("ucb-poisson-given", "GP-BUCB, learned", "GP-BUCB"),
        ("ucb-poisson-given", "GP-UCB-SDF, learned", "GP-UCB-SDF"),
    ),
    "soft has {} (standard error {}) less than the minimum": lambda: fills(
        "given", "soft", "minimum"
    ),
    "and at `lam = 1.1` {} ({}) less": lambda: fills("theory", "soft", "minimum"),
    "ahead of hallucination, soft by {} ({}).": lambda: fills("theory", "soft", "hallucinated"),
    "minimum is ahead of soft, by {} ({}),": lambda: fills("learned", "minimum", "soft"),
    "of lower bound, by {} ({}), and of hallucination, by {} ({}); the second": (
        lambda: [
            number
            for method in ("lower bound", "hallucinated")
            for number in fills("learned", "minimum", method)
        ]
    ),
    "hyperparameters, which is {} ({}).": lambda: fills(
        "svm-given", "soft, stated delays", "soft", "regret"
    ),
    "at round 35 GP-UCB has {} (standard error {}) more with Poisson delays, and {} ({}) more": (
        lambda: [
            number
            for delay in ("poisson", "fixed")
            for number in tuned("svm", "ucb", delay, "GP-UCB", "35")
        ]
    ),
    "With the common start, GP-BUCB ends {} ({}) above GP-UCB-SDF.": lambda: tuned(
        "svm", "ucb", "poisson", "GP-BUCB, common start"
    ),
    "in the released code, the difference is {} ({}): here": lambda: tuned(
        "svm", "ucb", "poisson", "GP-BUCB"
    ),
    "at the end by {} ({}) with Poisson delays and by {} ({}) with fixed ones. The lead over": (
        lambda: [
            number
            for delay in ("poisson", "fixed")
            for number in tuned("logistic", "ucb", delay, "GP-UCB")
        ]
    ),
    "The lead over GP-BUCB is {} ({}) and {} ({}).": lambda: [
        number
        for delay in ("poisson", "fixed")
        for number in tuned("logistic", "ucb", delay, "GP-BUCB")
    ],
    "at the end, by {} ({}) with Poisson delays and by {} ({}) with fixed ones, and of GP-BUCB": (
        lambda: [
            number
            for delay in ("poisson", "fixed")
            for number in tuned("cnn", "ucb", delay, "GP-UCB")
        ]
    ),
    "and of GP-BUCB by {} ({}) and {} ({}). GP-TS-SDF ends": lambda: [
        number for delay in ("poisson", "fixed") for number in tuned("cnn", "ucb", delay, "GP-BUCB")
    ],
    "there, by {} ({}). It ends ahead of GP-BTS": lambda: tuned("cnn", "ts", "poisson", "asy-TS"),
    "with fixed delays on the support vector machine, by {} ({}), and with Poisson": lambda: tuned(
        "svm", "ts", "fixed", "GP-BTS"
    ),
    "delays on logistic regression, by {} ({}).": lambda: tuned(
        "logistic", "ts", "poisson", "GP-BTS"
    ),
    "GP-UCB-SDF ends {} ({}) above the one": lambda: tuned(
        "svm", "ucb", "poisson", "GP-UCB-SDF, fitted to all"
    ),
    "CPD has {} more than the oracle (standard error {})": lambda: compared(
        "GP-UCB-CPD", "GP-UCB-Oracle"
    ),
    "GP-UCB {} more than CPD ({})": lambda: compared("GP-UCB", "GP-UCB-CPD"),
    "without a detector {} more than GP-UCB ({})": lambda: compared("GP-UCB-NO-Detector", "GP-UCB"),
    "The power in `T` is {}, and": lambda: results.powers("avanesov-powers", with_published=False)[
        "horizon, 3 periods"
    ][0][1:],
    "The power in `K` with `c = 1` is {}, larger": lambda: results.powers(
        "avanesov-powers", with_published=False
    )["periods, T = 2700"][0][1:],
    "the violation from {} at round 175 to {} at round 350 on": lambda: both(
        "shi-gardner-noiseless"
    ),
    "and from {} to {} on the rates": lambda: both("shi-rates-noiseless"),
    "falls more slowly: {} to {} on the first problem": lambda: both("shi-gardner-noisy"),
    "and {} to {} on the rates. On": lambda: both("shi-rates-noisy"),
    "Algorithm 3's regret does not fall: {} and {}.": lambda: both(
        "shi-rates-noisy", "regret_mean"
    ),
    "With Algorithm 2 shocks cost {} regret per round (standard error {}), with {} ({}) less": (
        lambda: [
            number
            for quantity in ("regret", "violation")
            for number in realized("rewards", "Algorithm 2", "without shocks", quantity)
        ]
    ),
    "with Algorithm 3 they cost {} ({}), with {} ({}) less violation": lambda: [
        number
        for quantity in ("regret", "violation")
        for number in realized("constraints", "Algorithm 3", "without shocks", quantity)
    ],
    "Waves add {} ({}) to the violation": lambda: realized(
        "waves", "Algorithm 3", "without variation", "violation"
    ),
    "told of waves has {} ({}) less violation and {} ({}) more regret": lambda: [
        number
        for quantity in ("violation", "regret")
        for number in realized("waves", "told of the variation", "Algorithm 3", quantity)
    ],
    "and of the drift {} ({}) less and {} ({}) more": lambda: [
        number
        for quantity in ("violation", "regret")
        for number in realized("drift", "told of the variation", "Algorithm 3", quantity)
    ],
    "its regret at round 175 was 0.610 and is {},": lambda: first(
        "shi-gardner", "shi-gardner-noisy-slow", "Algorithm 3, GP-TS", "regret_mean", round="175"
    ),
    "it has {} (standard error {}) less regret than the policy": lambda: forgetting(
        "abrupt", "restart, published threshold"
    ),
    "with the calibrated one {} ({})": lambda: forgetting(
        "abrupt", "restart, calibrated threshold"
    ),
    "Its exploration costs {} where nothing": lambda: less(
        "beyond-forgetting",
        "beyond-forgetting-stationary",
        "explores, never restarts",
        "never restarts",
        "regret",
    )[:1],
    "Without the rule the violation is {} instead of {},": lambda: [
        first("beyond-combined", "beyond-combined", method, "violation_mean")[0]
        for method in ("no constraint rule", "all components")
    ],
    "It is worth {} regret per round (standard error {}), and {} ({}) violation": lambda: [
        *combined("context withheld", "regret"),
        *combined("context withheld", "violation"),
    ],
    "That is worth {} ({}) regret per round": lambda: combined("never restarts", "regret"),
    "told of the change would have been worth {} ({}) more": lambda: [
        abs(combined("told of the change", "regret")[0]),
        combined("told of the change", "regret")[1],
    ],
    "which costs {} ({}) violation": lambda: [
        abs(combined("never restarts", "violation")[0]),
        combined("never restarts", "violation")[1],
    ],
    "asked for again, which costs {} ({}) regret": lambda: combined("pending ignored", "regret"),
    "so the policy has {} ({}) more regret": lambda: combined("half-samples", "regret"),
    "restarted in {}% of the runs, and its": lambda: [
        100 * first("beyond-combined", "beyond-combined", "half-samples", "resets_after_mean")[0]
    ],
    "change all the time: {} restarts per run": lambda: [
        sum(
            first("beyond-combined", "beyond-combined", "context withheld", f"resets_{side}_mean")[
                0
            ]
            for side in ("before", "after")
        )
    ],
    "the detector saw it in {}% with {} more, in {}% with {} and in {}% with {}": lambda: [
        number
        for row in results.rows_of("beyond-combined-power.csv")
        for number in (100 * float(row["detected"]), float(row["samples_after"]))
    ],
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentence_has_the_numbers_of_the_results(sentence):
    words = re.escape(sentence).replace(r"\{\}", f"({NUMBER})").replace(r"\ ", r"\s+")
    (found,) = re.finditer(words, PAGE)
    expected = SENTENCES[sentence]()
    assert len(found.groups()) == len(expected)
    for text, number in zip(found.groups(), expected, strict=True):
        assert agrees(text, number), f"{sentence}: {text}, results {number}"


def test_page_on_delays_has_the_numbers_of_the_results():
    shown = table_after("delayed-feedback.md", "| Pending queries | UCB, learned |")
    methods = {
        "at the minimum": ("GP-UCB-SDF", "GP-TS-SDF"),
        "left out": ("GP-UCB", "asy-TS"),
        "hallucinated": ("GP-BUCB", "GP-BTS"),
    }
    tables = [results.verma_synthetic(kind) for kind in ("poisson", "poisson-given")]
    assert [row[0] for row in shown] == list(methods)
    for label, *cells in shown:
        expected = [[table[m][2][0], table[m][4][0]] for m in methods[label] for table in tables]
        for cell, numbers in zip(cells, expected, strict=True):
            found = re.findall(NUMBER, cell)
            assert all(agrees(*pair) for pair in zip(found, numbers, strict=True)), (label, cell)


def test_page_on_change_points_has_the_numbers_of_the_calibration():
    shown = table_after("change-points.md", "| `ridge` | Published: alarms in 30 samples |")
    rows = {row["ridge"]: row for row in results.rows_of("avanesov-calibration.csv")[:7]}
    columns = ("alarms", "seen", "calibrated_scale", "seen_calibrated")
    for ridge, *cells in shown:
        for cell, column in zip(cells, columns, strict=True):
            assert agrees(cell, float(rows[ridge][column])), (ridge, column)


def test_page_on_unknown_priors_has_the_numbers_of_the_results():
    shown = table_after("unknown-priors.md", "| Method | On the list |")
    experiments = [f"beyond-priors-{kind}" for kind in ("listed", "rough", "between", "matern")]
    tables = [results.panel("beyond-priors", e, "mean standard_error") for e in experiments]
    worst = [results.panel("beyond-priors-worst", e, "worst") for e in experiments]
    assert [row[0] for row in shown] == list(tables[0])
    for method, *cells in shown:
        for cell, table, largest in zip(cells, tables, worst, strict=True):
            expected = [*table[method][0], *table[method][1], *largest[method][0]]
            found = re.findall(NUMBER, cell)
            assert all(agrees(*pair) for pair in zip(found, expected, strict=True)), cell
    boxes = table_after("unknown-priors.md", "| Method on a box |")
    table = results.panel("beyond-priors", "beyond-priors-box", "mean standard_error")
    largest = results.panel("beyond-priors-worst", "beyond-priors-box", "worst")
    assert [row[0] for row in boxes] == list(table)
    for method, cell in boxes:
        expected = [*table[method][0], *table[method][1], *largest[method][0]]
        found = re.findall(NUMBER, cell)
        assert all(agrees(*pair) for pair in zip(found, expected, strict=True)), cell
    sampled = table_after("unknown-priors.md", "| Method, 33 rounds |")
    experiments = [f"beyond-priors-sampled-{kind}" for kind in ("listed", "matern", "box")]
    name = "beyond-priors-sampled"
    tables = [results.panel(name, e, "mean standard_error") for e in experiments]
    worst = [results.panel(f"{name}-worst", e, "worst") for e in experiments]
    assert [row[0] for row in sampled] == list(tables[0])
    for method, *cells in sampled:
        for cell, table, most in zip(cells, tables, worst, strict=True):
            expected = [*table[method][0], *table[method][1], *most[method][0]]
            found = re.findall(NUMBER, cell)
            assert all(agrees(*pair) for pair in zip(found, expected, strict=True)), cell
    for kind, share in (("listed", 1.0), ("rough", 1.0), ("between", 1.0), ("matern", 0.95)):
        covered = results.panel("beyond-priors", f"beyond-priors-{kind}", "covered")
        assert covered["survivors"] == [[share]]


PRICES = {
    "guarantee, is {} (standard error {}) in the first": (
        "listed",
        "survivors",
        "oracle, Theorem 1",
    ),
    "and costs {} ({}) between its": ("between", "mixture, width 2", "oracle, width 2"),
    "likelihood by {} ({}), {}": ("listed", "marginal likelihood, width 2", "mixture, width 2"),
    "), {} ({}), 3.6 (1.7)": ("rough", "marginal likelihood, width 2", "mixture, width 2"),
    "), {} ({}) and 0.1": ("between", "marginal likelihood, width 2", "mixture, width 2"),
    "The mixture has {} ({}) and": (
        "sampled-listed",
        "BoTorch's samples, width 2",
        "mixture, width 2",
    ),
    "(1.4) and {} ({}) less": ("sampled-matern", "BoTorch's samples, width 2", "mixture, width 2"),
    "panels and {} ({}) more": ("sampled-box", "mixture, width 2", "BoTorch's samples, width 2"),
    " and {} ({}): not much": ("matern", "marginal likelihood, width 2", "mixture, width 2"),
}


@pytest.mark.parametrize("sentence", PRICES)
def test_prices_of_unknown_priors_are_those_of_the_results(sentence):
    page = " ".join((ROOT / "docs" / "unknown-priors.md").read_text(encoding="utf-8").split())
    words = re.escape(sentence).replace(r"\{\}", f"({NUMBER})")
    (found,) = re.finditer(words, page)
    kind, method, other = PRICES[sentence]
    name = "beyond-priors-sampled" if kind.startswith("sampled") else "beyond-priors"
    expected = less(name, f"beyond-priors-{kind}", method, other, "regret")
    for text, number in zip(found.groups(), expected, strict=False):
        assert agrees(text, number), f"{sentence}: {text}, results {number}"
