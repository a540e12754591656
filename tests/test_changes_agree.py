"""What the documentation says of changes and false alarms is in docs/results."""

import math
import re
from collections.abc import Callable

import pytest
import tables_of_results as results
from test_documentation_agrees import ROOT, table_after
from test_results_agree import NUMBER, agrees, less

PAGES = {
    page: (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for page in ("experiments/beyond-changes", "change-points")
}
PLAIN, ROBUST, EXPLORES = "evidence, plain", "evidence, robust", "evidence, robust, explores"
TOLD, HALVES = "told of the changes", "half-samples"


def detected(name: str, experiment: str, method: str, *columns: str) -> list[float]:
    """Return what a detector did in a panel."""
    cells = results.panel(f"{name}-detections", experiment, " ".join(columns))[method]
    return [number for cell in cells for number in cell]


def calm(method: str, *columns: str) -> list[float]:
    return detected("beyond-calm", "beyond-calm", method, *columns)


def regret(name: str, experiment: str, method: str) -> list[float]:
    """Return mean and standard error."""
    mean, error = results.panel(name, experiment, "mean standard_error")[method]
    return [*mean, *error]


def calm_rounds() -> list[float]:
    runs, rounds = calm(PLAIN, "runs", "rounds")
    return [runs * rounds]


def hard(kind: str, method: str, *columns: str) -> list[float]:
    return detected("beyond-changes-hard", f"beyond-changes-hard-{kind}", method, *columns)


def delay(kind: str, method: str) -> list[float]:
    """Return the mean and its standard error."""
    mean, deviation, number = hard(kind, method, "mean_delay", "sd_delay", "detections")
    return [mean, deviation / number**0.5]


def missed(kind: str, method: str) -> float:
    """Return how many percent of the changes."""
    return 100.0 * hard(kind, method, "missed_share")[0]


def median(kind: str, method: str) -> float:
    table = results.panel("beyond-changes-hard", f"beyond-changes-hard-{kind}", "median")
    return table[method][0][0]


def mean(kind: str, method: str) -> float:
    return regret("beyond-changes-hard", f"beyond-changes-hard-{kind}", method)[0]


def price(kind: str) -> list[float]:
    """Return what the robust form has more than the policy that is told, and its error."""
    return less("beyond-changes-hard", f"beyond-changes-hard-{kind}", ROBUST, TOLD, "regret")


def misspecified(kind: str, method: str) -> list[float]:
    """Return runs, those with a false alarm, and false alarms a run."""
    columns = ("runs", "runs_with_false_alarm", "false_alarms_per_run")
    return detected("beyond-misspecified", f"beyond-misspecified-{kind}", method, *columns)


def alarmed(kind: str) -> float:
    """Return in how many percent of the runs the plain form had a false alarm."""
    runs, found, _ = misspecified(kind, PLAIN)
    return 100.0 * found / runs


CHANGES = ("beyond-changes", "beyond-changes-4")
HIDDEN = ("beyond-changes-hard", "beyond-changes-hard-hidden")
FREQUENT = ("frequent", "very-frequent")
WRONG = ("long", "short", "noise-1.5", "noise-2", "t-3")

# by page, sentences with holes for numbers, and what these are
SENTENCES: dict[str, dict[str, Callable[[], list[float]]]] = {
    "experiments/beyond-changes": {
        "it has {} (standard error {}) more regret in the plain form and {} ({}) in": lambda: [
            *less(*CHANGES, PLAIN, TOLD, "regret"),
            *less(*CHANGES, ROBUST, TOLD, "regret"),
        ],
        "It saw all {} changes, after {} and {} rounds on average": lambda: [
            *detected(*CHANGES, PLAIN, "detections", "mean_delay"),
            *detected(*CHANGES, ROBUST, "mean_delay"),
        ],
        "They missed {}% of the changes, and their": lambda: [
            100.0 * detected(*CHANGES, HALVES, "missed_share")[0]
        ],
        "{} runs of {} rounds without any change": lambda: calm(PLAIN, "runs", "rounds"),
        "In {} rounds neither form of": calm_rounds,
        "with a regret of {} (standard error {}); without a detector it is {} ({}), too": lambda: [
            *regret("beyond-calm", "beyond-calm", ROBUST),
            *regret("beyond-calm", "beyond-calm", "never restarts"),
        ],
        "at most {}% of runs; with none in {}, the true rate is below {}% at": lambda: [
            100.0 * 6.0 * 0.05 / math.pi**2,
            *calm(PLAIN, "runs"),
            100.0 * (1.0 - 0.05 ** (1.0 / calm(PLAIN, "runs")[0])),
        ],
        "It missed {}% of the changes at most": lambda: [
            max(missed(kind, form) for kind in FREQUENT for form in (PLAIN, ROBUST))
        ],
        "worth {} (standard error {}) to the robust form with periods of 100 rounds, and "
        "{} ({}) with 50": lambda: [*price("frequent"), *price("very-frequent")],
        "Half-samples missed {}% and {}%.": lambda: [missed(kind, HALVES) for kind in FREQUENT],
        "the robust form has {} ({}) more regret than the policy that is told": lambda: price(
            "loud"
        ),
        "medians are {} and {}": lambda: [median("loud", ROBUST), median("loud", TOLD)],
        "after {} ({}) rounds in the plain form and after {} ({}) in the robust one": lambda: [
            *delay("fall-2", PLAIN),
            *delay("fall-2", ROBUST),
        ],
        "by one deviation, after {} ({}) and {} ({}).": lambda: [
            *delay("fall-1", PLAIN),
            *delay("fall-1", ROBUST),
        ],
        "in any of the {} runs**": lambda: hard("hidden", PLAIN, "missed"),
        "saw all of them, {} ({}) rounds later": lambda: delay("hidden", EXPLORES),
        "That takes {} rounds of each run": lambda: hard("hidden", EXPLORES, "explored_per_run"),
        "has a median of {} and a mean of {}": lambda: [
            median("hidden", TOLD),
            mean("hidden", TOLD),
        ],
        "restarted {} times per run, and the robust one {} times": lambda: [
            *hard("drift", PLAIN, "false_alarms_per_run"),
            *hard("drift", ROBUST, "false_alarms_per_run"),
        ],
        "no alarm in any of the {} runs": lambda: [
            sum(misspecified(kind, ROBUST)[0] for kind in WRONG)
        ],
        "for nothing: {} times per run at twice": lambda: misspecified("noise-2", PLAIN)[2:],
    },
    "change-points": {
        "the regret was {} with this default, {} with a policy that is told about the changes, "
        "{} with half-samples and {} without restarts": lambda: [
            regret(*CHANGES, method)[0] for method in (ROBUST, TOLD, HALVES, "never restarts")
        ],
        "({} rounds, 4 periods, {} environments)": lambda: detected(
            *CHANGES, ROBUST, "rounds", "runs"
        ),
        "missed all of {} such changes": lambda: hard("hidden", ROBUST, "missed"),
        "it saw all of them, but {} rounds later": lambda: delay("hidden", EXPLORES)[:1],
        "sequence of restarts, {} in {} rounds": lambda: hard(
            "drift", ROBUST, "false_alarms_per_run", "rounds"
        ),
        "after {} rounds in the plain form and {} in the robust one, and a fall by one standard "
        "deviation after {} and {}; {} to {}% of these changes were not": lambda: [
            delay("fall-2", PLAIN)[0],
            delay("fall-2", ROBUST)[0],
            delay("fall-1", PLAIN)[0],
            delay("fall-1", ROBUST)[0],
            min(missed(f"fall-{n}", form) for n in (1, 2) for form in (PLAIN, ROBUST)),
            max(missed(f"fall-{n}", form) for n in (1, 2) for form in (PLAIN, ROBUST)),
        ],
        "there was no alarm in {} rounds": calm_rounds,
        "raised none in {} runs of {} rounds": lambda: [
            sum(misspecified(kind, ROBUST)[0] for kind in WRONG),
            *detected("beyond-misspecified", "beyond-misspecified-t-3", ROBUST, "rounds"),
        ],
        "had one in {}% of the runs at 1.5 times the noise": lambda: [alarmed("noise-1.5")],
    },
}


@pytest.mark.parametrize(
    ("page", "sentence"), [(page, s) for page, known in SENTENCES.items() for s in known]
)
def test_sentence_has_the_numbers_of_the_results(page, sentence):
    words = re.escape(sentence).replace(r"\{\}", f"({NUMBER})").replace(r"\ ", r"\s+")
    (found,) = re.finditer(words, PAGES[page])
    expected = SENTENCES[page][sentence]()
    assert len(found.groups()) == len(expected)
    for text, number in zip(found.groups(), expected, strict=True):
        assert agrees(text, number), f"{sentence}: {text}, results {number}"


def test_evidence_is_nearly_as_good_as_to_be_told():
    told = regret(*CHANGES, TOLD)[0]
    for form in (PLAIN, ROBUST):
        assert regret(*CHANGES, form)[0] < 1.05 * told
        runs, changes, number = detected(*CHANGES, form, "runs", "changes", "detections")
        assert number == runs * changes
        assert detected(*CHANGES, form, "missed", "false_alarms_per_run") == [0.0, 0.0]


def test_no_alarm_where_nothing_changed():
    for method in (PLAIN, ROBUST):
        assert calm(method, "changes", "false_alarms_per_run", "runs_with_false_alarm") == [0, 0, 0]


def test_what_was_never_seen_and_what_always():
    runs = hard("hidden", ROBUST, "runs")
    assert hard("hidden", PLAIN, "missed") == hard("hidden", ROBUST, "missed") == runs
    assert hard("hidden", EXPLORES, "missed", "false_alarms_per_run") == [0.0, 0.0]
    for kind in results.HARD_PANELS.values():
        if kind != "drift":
            for form in (PLAIN, ROBUST):
                assert hard(kind, form, "false_alarms_per_run") == [0.0]


def test_what_evidence_is_worth_beside_models_that_forget():
    methods = ("half-samples", "window 50", "window 25", "time kernel 0.01", "never restarts")
    for kind in FREQUENT:
        table = results.panel("beyond-changes-hard", f"beyond-changes-hard-{kind}", "mean")
        others = [table[method][0][0] for method in methods if method in table]
        assert len(others) == 4
        assert max(mean(kind, PLAIN), mean(kind, ROBUST)) < min(others)
        later = [hard(kind, form, "mean_delay")[0] for form in (PLAIN, ROBUST)]
        assert 1.5 < min(later) < max(later) < 3.0
    assert mean("fall-1", "never restarts") < min(mean("fall-1", f) for f in (PLAIN, ROBUST))
    assert mean("hidden", EXPLORES) < 0.5 * mean("hidden", ROBUST)
    for forgets in ("window 150", "time kernel 0.01"):
        assert mean("hidden", forgets) < mean("hidden", EXPLORES)
    drift = mean("drift", "time kernel 0.01")
    assert 2.0 * drift < mean("drift", ROBUST) < 2.5 * drift
    assert mean("drift", ROBUST) < mean("drift", PLAIN)


def test_false_alarms_of_models_that_are_wrong():
    for kind in WRONG:
        assert misspecified(kind, ROBUST)[1:] == [0.0, 0.0]
    assert alarmed("noise-2") == alarmed("t-3") == 100.0


def test_table_of_ways_to_forget_is_that_of_the_results():
    kinds = ("abrupt", "drift", "stationary")
    tables = [results.panel("beyond-forgetting", f"beyond-forgetting-{k}", "mean") for k in kinds]
    classes = {"SlidingWindow": "window", "ExponentialWeights": "weights"}
    classes["TimeVaryingKernel"] = "time kernel"
    shown = table_after("change-points.md", "| Method | 4 periods | Drift |")
    assert len(shown) == 8
    for name, *cells in shown:
        found = re.fullmatch(r"`(\w+)\((.*)\)`", name)
        method = f"{classes[found[1]]} {found[2]}" if found else "never restarts"
        if name == "is told of the changes":
            method = "restart, oracle"
        means = [table.get(method, [[]])[0] for table in tables]
        assert [[float(c)] if c else [] for c in cells] == [[round(m, 1) for m in x] for x in means]
