"""Settings of a loop that are refused together, each with the reason in docs/compatibility.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    Censored,
    DMMUpperConfidenceBound,
    EvidenceRestart,
    ExponentialWeights,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    RandomizedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
    TopTwoThompsonSampling,
)
from botorch_bandits.spaces import Categorical, Float, Integer, Space

ARMS = Arms(torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1))
BOX = Box([(0.0, 1.0)])
ONE = BanditGP.with_kernel(RBFKernel(), noise=0.01)
LIST = BanditGP.with_candidates([ONE, BanditGP.with_kernel(RBFKernel(), noise=0.1)])
LEARNED = BanditGP.with_kernel(RBFKernel(), noise=0.01, refit_every=3)
WIDTH = GPUpperConfidenceBound.with_options(width=2.0)
OF_LIST = CandidatesUpperConfidenceBound.with_options(width=2.0)
CENSORED = Censored(minimum=-1.0, outcome_bound=2.0)
RULE = AdditiveEpochs(1, 4, surrogate="relabeled")

REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "improvement, censored": (
        "no width",
        {"acquisition": LogExpectedImprovement.with_options(), "feedback": CENSORED},
    ),
    "DMM, censored": (
        "no width",
        {"acquisition": DMMUpperConfidenceBound.with_options(), "feedback": CENSORED},
    ),
    "list, censored": (
        "no evidence",
        {"model": LIST, "acquisition": OF_LIST, "feedback": CENSORED},
    ),
    "list and a plain rule, censored": (
        "list of priors|no evidence|needs",
        {"model": LIST, "acquisition": WIDTH, "feedback": CENSORED},
    ),
    "censored, unknown minimum, constraints": (
        "known minimum",
        {"feedback": Censored(minimum_proxy=1.0), "acquisition": WIDTH, "constraints": RULE},
    ),
    "censored, minimum that is lowered, constraints": (
        "known minimum",
        {
            "feedback": Censored(minimum=-1.0, on_lower="lower"),
            "acquisition": WIDTH,
            "constraints": RULE,
        },
    ),
    "fill, bounds in prior units": (
        "in the units of outcomes",
        {
            "feedback": Censored(minimum=-1.0, outcome_bound=2.0, fill="soft"),
            "acquisition": ImprovedUpperConfidenceBound.with_options(
                rkhs_bound=1.0, noise_bound=0.1, units="prior"
            ),
        },
    ),
    "list, penalized outcomes": (
        "penalized outcomes",
        {"model": LIST, "acquisition": OF_LIST, "constraints": RULE},
    ),
    "list, weights": (
        "changes the noise or the kernel",
        {"model": LIST, "acquisition": OF_LIST, "forgetting": ExponentialWeights(0.9)},
    ),
    "list, time": (
        "changes the noise or the kernel",
        {"model": LIST, "acquisition": OF_LIST, "forgetting": TimeVaryingKernel(0.1)},
    ),
    "learned, window": (
        "fixed hyperparameters",
        {"model": LEARNED, "forgetting": SlidingWindow(9)},
    ),
    "learned, evidence": (
        "made before the outcomes",
        {"model": LEARNED, "restart": EvidenceRestart()},
    ),
    "censored, variation": (
        "for one reward function",
        {
            "feedback": CENSORED,
            "acquisition": ImprovedUpperConfidenceBound.with_options(
                rkhs_bound=1.0, noise_bound=0.1, any_lambda=True, variation=0.1
            ),
        },
    ),
    "models of epochs, evidence": (
        "under one model",
        {
            "constraints": AdditiveEpochs(1, 4, surrogate="fresh", models=[ONE]),
            "restart": EvidenceRestart(),
        },
    ),
    "top two, box": (
        "box",
        {"domain": BOX, "acquisition": TopTwoThompsonSampling.with_options()},
    ),
    "IRGP-UCB, box": (
        "num_arms",
        {"domain": BOX, "acquisition": RandomizedUpperConfidenceBound.with_options()},
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused_with_its_reason(name: str) -> None:
    reason, settings = REFUSED[name]
    given = {
        "domain": ARMS,
        "model": ONE,
        "acquisition": ImprovedUpperConfidenceBound.with_options(
            rkhs_bound=1.0, noise_bound=0.1, any_lambda=True
        ),
        "seed": 0,
        **settings,
    }
    with pytest.raises(ValueError, match=reason):
        BanditLoop(given.pop("domain"), **given)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"minimum": None, "minimum_proxy": 1.0}, "needs minimum="),
        ({"on_lower": "lower"}, "minimum that holds"),
        ({"outcome_bound": None}, "needs outcome_bound="),
        ({"fill": "middle", "delay_distribution": (1.0,)}, "does not use it"),
    ],
)
def test_what_a_fill_does_not_go_with_is_refused_with_its_reason(
    options: dict[str, Any], reason: str
) -> None:
    given = {"minimum": -1.0, "outcome_bound": 2.0, "fill": "soft", **options}
    with pytest.raises(ValueError, match=reason):
        Censored(**given)


def test_the_table_names_them() -> None:
    page = Path("docs/compatibility.md").read_text("utf-8")
    table = page.split("| Refused together |")[1].split("\n\n")[0]
    for name in (
        "Censored(",
        "with_candidates(",
        "ExponentialWeights",
        "TimeVaryingKernel",
        "refit_every=",
        "models=",
        "variation=",
        "TopTwoThompsonSampling",
        "RandomizedUpperConfidenceBound",
        "count=",
        "Censored(fill=",
        "delay_distribution=",
    ):
        assert name in table, name


@pytest.mark.parametrize("context_dim", [0, 1])
def test_points_of_a_small_space_are_counted(context_dim: int) -> None:
    """IRGP-UCB has a width of a finite domain; a space of few points is one."""
    space = Space({"depth": Integer(1, 5), "kind": Categorical(["a", "b", "c"])})
    loop = BanditLoop(
        space,
        model=ONE,
        acquisition=RandomizedUpperConfidenceBound.with_options(),
        context_dim=context_dim,
        seed=0,
    )
    for t in range(4):
        query = loop.ask(context=[0.1 * t]) if context_dim else loop.ask()
        loop.tell(query.id, float(query.x.sum()))
    on_arms = BanditLoop(
        Arms(torch.arange(15.0, dtype=torch.float64).unsqueeze(-1)),
        model=ONE,
        acquisition=RandomizedUpperConfidenceBound.with_options(),
        seed=0,
    )
    widths = []
    for _ in range(4):
        query = on_arms.ask()
        widths.append(query.diagnostics["width"])
        on_arms.tell(query.id, 0.0)
    least = min(q.diagnostics["width"] for q in loop.history.queries)
    # the smallest width of 15 arms, plus draws: sqrt(2 ln(15 / 2) + 2 E)
    assert least >= (2.0 * torch.log(torch.tensor(15.0 / 2.0))).sqrt() - 1e-9
    assert min(widths) >= (2.0 * torch.log(torch.tensor(15.0 / 2.0))).sqrt() - 1e-9
    assert loop.guarantee().regret.holds

    with pytest.raises(ValueError, match="the domain has 15"):
        BanditLoop(
            space,
            model=ONE,
            acquisition=RandomizedUpperConfidenceBound.with_options(num_arms=10),
            context_dim=context_dim,
        )
    with pytest.raises(ValueError, match="num_arms"):
        BanditLoop(
            Space({"rate": Float(0.0, 1.0)}),
            model=ONE,
            acquisition=RandomizedUpperConfidenceBound.with_options(),
        )


@pytest.mark.parametrize("context_dim", [0, 1])
def test_the_best_point_of_a_small_space_is_sought(context_dim: int) -> None:
    """Top-two Thompson sampling draws on all points of a space of few."""
    space = Space({"depth": Integer(1, 5), "kind": Categorical(["a", "b", "c"])})
    recipe = TopTwoThompsonSampling.with_options()
    loop = BanditLoop(space, model=ONE, acquisition=recipe, context_dim=context_dim, seed=0)
    for t in range(6):
        query = loop.ask(context=[0.1 * t]) if context_dim else loop.ask()
        assert space.decode(query.x)
        loop.tell(query.id, float(query.x[0]))
    points = space.few_points()
    assert points is not None
    assert len(points.choices) == 15
    model = ONE(points.choices[:3], points.choices[:3, :1])
    whole = recipe.build(model, space, round_number=4, seed=7)
    given = TopTwoThompsonSampling(model, choices=points.choices, seed=7)
    X = points.choices.unsqueeze(-2)
    assert torch.equal(whole(X), given(X))
    if not context_dim:
        away = loop.ask(avoid=[space.decode(points.choices[0])])
        assert not torch.equal(away.x, points.choices[0])
    with pytest.raises(ValueError, match="has few points"):
        BanditLoop(Space({"rate": Float(0.0, 1.0)}), model=ONE, acquisition=recipe)
