"""What Verma, Dai and Low 2022 claim about their figures, and how the claims are checked.

Most claims say that a method with censored feedback has smaller regret than its counterparts.
"""

from __future__ import annotations

from functools import partial

from papers.reproduction.judging import Check, Evidence, Figure, ahead, are_alike, below

PAPER = "Verma, Dai and Low 2022"
FAMILIES = {"ucb": ("GP-UCB-SDF", "GP-UCB", "GP-BUCB"), "ts": ("GP-TS-SDF", "asy-TS", "GP-BTS")}
"""Names with censored, ignored and hallucinated feedback."""

DELAYS = {"poisson": "Poisson delays", "fixed": "fixed delays"}


def _judge_means(evidence: Evidence) -> list[Check]:
    return [
        below(evidence, "verma-ucb-mean", f"GP-UCB-SDF, mean {low}", f"GP-UCB-SDF, mean {high}")
        for low, high in ((5, 10), (10, 20))
    ]


def _judge_limits(evidence: Evidence) -> list[Check]:
    panel = "verma-ucb-limit"
    small, twice, long = (f"GP-UCB-SDF, m = {m}" for m in (5, 20, 40))
    quantity = "simple regret"
    difference = evidence.difference(panel, long, twice, quantity)
    spread = evidence.mean(panel, small, quantity).mean
    middle = evidence.difference(panel, long, twice, f"{quantity}, middle")
    same = Check(
        "m = 20 and m = 40 alike at the end (a tenth of what m = 5 has counts as alike)",
        are_alike(difference, spread),
        f"difference {difference.signed}, where m = 5 has {spread:.3g}; in the middle "
        f"{middle.signed}",
        difference.standard_error,
    )
    return [*(below(evidence, panel, better, small) for better in (twice, long)), same]


def _judge_synthetic(family: str, evidence: Evidence) -> list[Check]:
    censored, *others = FAMILIES[family]
    return [
        below(evidence, f"verma-{family}-{delays}", censored, other, where=where)
        for delays, where in DELAYS.items()
        for other in others
    ]


def _judge_tuning(task: str, evidence: Evidence) -> list[Check]:
    return [
        below(evidence, f"verma-tuning-{task}-{family}-{delays}", names[0], other, where=where)
        for family, names in FAMILIES.items()
        for delays, where in DELAYS.items()
        for other in names[1:]
    ]


def _judge_contexts(kind: str, evidence: Evidence) -> list[Check]:
    return [
        ahead(evidence, f"verma-{kind}-{family}-poisson{suffix}", names[0], other, where=where)
        for suffix, where in (("", "given"), ("-learned", "learned"))
        for family, names in FAMILIES.items()
        for other in names[1:]
    ]


_SYNTHETIC = (
    "Appendix C of the paper specifies the squared exponential kernel, beta_t = 1, hyperparameters "
    "fitted every 10 rounds, and the simple regret of the outcomes that have arrived. The authors' "
    "released code, which covers the support vector machine, provides the 5 initial points and 100 "
    "rounds; the hyperparameters before the first fit; the width of 1 plus the sum of the last m "
    "deviations, unscaled and including the noise; unscaled draws of the posterior; and baselines "
    "that play uniformly until two outcomes have arrived. We chose 100 functions, outcomes without "
    "noise, a lengthscale between 0.005 and 2 (the code has no bounds), m = 20 with fixed delays, "
    "as section 6 says (the code has 10), and hyperparameters fitted only to the outcomes that "
    "have arrived. The code also fits the hyperparameters of censored feedback to the zeros of "
    "pending queries, with which no claim on the baselines holds, and those of GP-BUCB to "
    "hallucinated outcomes. Baselines with the start of censored feedback, and hyperparameters "
    "that are given, are shown but not judged."
)
_TUNING = (
    "Where the paper does not specify a setting (appendix C.2), we follow the authors' released "
    "code for its experiment with the support vector machine: ranges are searched linearly, even "
    "those of several orders of magnitude, and features are not standardized; 5 common initial "
    "points precede 100 rounds; m is 20 for Poisson delays and 10 for fixed ones; GP-UCB, GP-BUCB, "
    "asy-TS and GP-BTS choose uniformly until two outcomes have arrived; GP-UCB-SDF uses "
    "predictive deviations, whose unscaled sum is added to the width, and draws are not scaled. "
)
_FITTED = (
    "Hyperparameters are fitted to the outcomes that arrived in time, with a lengthscale from 0.05 "
    "to 2; the released code has no bounds and also fits censored feedback to its zeros. "
)
_MACHINE = (
    _TUNING + "The split of the rows (scikit-learn's, stratified, seed 0), the box and the number "
    "of 10 trials are also from that code. "
    + _FITTED
    + "With 'common start', the baselines follow the model as soon as the initial points have been "
    "asked; 'fitted to all' fits as the released code does. Both are shown but not judged."
)
_POINTS = (
    _TUNING + _FITTED + "No code has been published for this model. Methods play 400 points that "
    "are spread evenly over the box, and every trial has its own split of the rows."
)
_CONTEXTS = (
    "'Given' uses hyperparameters fitted once to 500 entries of the trial's table, whereas the "
    "paper fits every 10 rounds (appendix C); 'learned' fits to the outcomes that arrived in time, "
    "every 10 rounds up to round 100, every 20 up to 200 and every 50 up to 600. As in the "
    "authors' released code for tuning without contexts, bounds use predictive deviations, whose "
    "unscaled sum is added to the width, and draws are not scaled."
)
_BEST = (
    "GP-UCB-SDF and GP-TS-SDF have smaller simple regret than their counterparts, with Poisson and "
    "with fixed delays."
)
_ALL_PANELS = tuple(f"{family}-{delays}" for family in FAMILIES for delays in DELAYS)


def _panels(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}-{rest}" for rest in _ALL_PANELS)


FIGURES = (
    Figure(
        "verma-1a",
        PAPER,
        "Figure 1a",
        "verma-synthetic",
        ("verma-ucb-mean", "verma-ucb-mean-given", "verma-ts-mean"),
        "GP-UCB-SDF with Poisson delays of several means: larger delays are worse.",
        _judge_means,
        _SYNTHETIC + " GP-TS-SDF, which is not in the paper's figure, is shown but not judged.",
    ),
    Figure(
        "verma-1b",
        PAPER,
        "Figure 1b",
        "verma-synthetic",
        ("verma-ucb-limit", "verma-ucb-limit-given", "verma-ts-limit"),
        "Delays of mean 10 and several m: a small m makes the regret large, since many outcomes "
        "are thrown away; m = 20 and m = 40 are comparable.",
        _judge_limits,
        _SYNTHETIC + " GP-TS-SDF, which is not in the paper's figure, is shown but not judged.",
    ),
    Figure(
        "verma-1cd",
        PAPER,
        "Figures 1c and 1d",
        "verma-synthetic",
        (
            "verma-ucb-poisson",
            "verma-ucb-fixed",
            "verma-ucb-poisson-given",
            "verma-ucb-fixed-given",
            "verma-ucb-theory",
        ),
        "GP-UCB-SDF has smaller simple regret than GP-UCB and GP-BUCB, with Poisson delays of mean "
        "10 and with delays of 10.",
        partial(_judge_synthetic, "ucb"),
        _SYNTHETIC + " The panel with lam = 1.1, as the theorem requires, is not judged.",
    ),
    Figure(
        "verma-2ad",
        PAPER,
        "Figures 2a to 2d",
        "verma-tuning",
        _panels("verma-tuning-svm"),
        "A support vector machine on the Pima Indians diabetes data. " + _BEST,
        partial(_judge_tuning, "svm"),
        _MACHINE,
    ),
    Figure(
        "verma-2eh",
        PAPER,
        "Figures 2e to 2h",
        "verma-tuning",
        _panels("verma-tuning-cnn"),
        "A convolutional network. " + _BEST,
        partial(_judge_tuning, "cnn"),
        "STAND-IN data: scikit-learn's digits of 8 x 8 pixels replace MNIST. " + _POINTS,
    ),
    Figure(
        "verma-3",
        PAPER,
        "Figure 3",
        "verma-tuning",
        _panels("verma-tuning-logistic"),
        "Logistic regression on the breast cancer data. " + _BEST,
        partial(_judge_tuning, "logistic"),
        _POINTS,
    ),
    *(
        Figure(
            f"verma-4{letters}",
            PAPER,
            f"Figures 4{letters[0]} and 4{letters[1]}",
            "verma-contextual",
            (f"verma-{kind}-*",),
            f"{what} GP-UCB-SDF and GP-TS-SDF have less cumulative regret than their counterparts.",
            partial(_judge_contexts, kind),
            _CONTEXTS + more,
        )
        for letters, kind, what, more in (
            (
                "ab",
                "tasks",
                "50 classification tasks in turn, each a context, 30 rounds each, Poisson delays "
                "of mean 3, m = 6.",
                "",
            ),
            (
                "cd",
                "growing",
                "A support vector machine on 20 growing parts of the diabetes data, 30 rounds "
                "each, Poisson delays of mean 3, m = 6.",
                " The box and the features are those of the support vector machine alone (appendix "
                "C.3), that is, linear and not standardized; actions are a grid of 13 x 11 points. "
                "The paper does not say how it splits the data.",
            ),
        )
    ),
    Figure(
        "verma-5",
        PAPER,
        "Figure 5",
        "verma-synthetic",
        (
            "verma-ts-poisson",
            "verma-ts-fixed",
            "verma-ts-poisson-given",
            "verma-ts-fixed-given",
            "verma-ts-theory",
        ),
        "GP-TS-SDF has smaller simple regret than asy-TS and GP-BTS, with Poisson delays of mean "
        "10 and with delays of 10.",
        partial(_judge_synthetic, "ts"),
        _SYNTHETIC + " The panel with lam = 1.1 is not judged.",
    ),
)
