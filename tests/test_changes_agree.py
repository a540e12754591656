"""What the documentation says of changes and false alarms is in docs/results."""

import math
import re
from collections.abc import Callable

import pytest
import tables_of_results as results
from test_documentation_agrees import ROOT
from test_results_agree import NUMBER, agrees

PAGES = {
    page: (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for page in ("experiments", "change-points")
}
PLAIN, ROBUST = "evidence, plain", "evidence, robust"


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


# by page, sentences with holes for numbers, and what these are
SENTENCES: dict[str, dict[str, Callable[[], list[float]]]] = {
    "experiments": {
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


def test_no_alarm_where_nothing_changed():
    for method in (PLAIN, ROBUST):
        assert calm(method, "changes", "false_alarms_per_run", "runs_with_false_alarm") == [0, 0, 0]
