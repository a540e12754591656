"""What arms are scored by without a model is what models of the same rows score."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from pairwise import pairwise

from botorch_bandits import (
    BanditGP,
    Censored,
    GPUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MeanOnly,
    VarianceOnly,
)
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.engines import ArmsEngine

from .rounds import FORGETTING, RULES, Setting

pytestmark = pytest.mark.filterwarnings("ignore")


def model(kernel: Kernel, **options: Any) -> Any:
    return BanditGP.with_kernel(kernel.double(), noise=0.05, **options)


def scaled(**options: Any) -> Kernel:
    kernel = ScaleKernel(RBFKernel(**options), **options).double()
    if options:
        kernel.base_kernel.lengthscale = torch.tensor([0.2, 0.4, 0.2]).double().view(-1, 1, 1)
        kernel.outputscale = torch.tensor([1.0, 2.0, 1.0]).double()
    return kernel


PRODUCT = RBFKernel(active_dims=(0,)) * MaternKernel(nu=1.5, active_dims=(1,))
OTHERS: dict[str, dict[str, Any]] = {
    "theorem 1": {"acquisition": GPUpperConfidenceBound.with_options(delta=0.1)},
    "improvement": {"acquisition": LogExpectedImprovement.with_options(), "num_initial": 2},
    "observed improvement": {
        "acquisition": LogExpectedImprovement.with_options(incumbent="observed"),
        "num_initial": 2,
        "maximize": False,
    },
    "variance": {"acquisition": VarianceOnly.with_options()},
    "mean": {"acquisition": MeanOnly.with_options(maximize=False), "num_initial": 3},
    "prior mean": {"model": model(MaternKernel(nu=2.5), prior_mean=0.3)},
    "linear": {"model": model(LinearKernel())},
}
IN_CONTEXTS: dict[str, dict[str, Any]] = {
    "product": {"model": model(PRODUCT)},
}
BOUND = LagrangianUpperConfidenceBound.with_options
SEPARATE: dict[str, dict[str, Any]] = {
    "one width": {"acquisition": BOUND(width=1.5)},
    "bounds apart": {"acquisition": BOUND(width=1.0, separate_bounds=True)},
    "theorem": {
        "acquisition": BOUND(
            rkhs_bound=(2.0, 1.0, 1.0), noise_bound=0.2, any_lambda=True, scale=0.5
        )
    },
    "noise of the model": {"acquisition": BOUND(rkhs_bound=1.0, noise_bound="model")},
    "a kernel each": {"model": model(scaled(batch_shape=torch.Size([3])))},
    "one kernel, uniform rounds": {"model": model(scaled(), prior_mean=0.3), "num_initial": 3},
}


def has_rows(name: str, forgetting: str, feedback: str, rule: str, contexts: int) -> Any:
    has_front = contexts == 1 or forgetting == "drift"
    return not (has_front and name.endswith("improvement")) and (
        contexts or name not in IN_CONTEXTS
    )


ROWS = [
    *pairwise(
        [*OTHERS, *IN_CONTEXTS], list(FORGETTING), ("at once", "pending", "ignored"), ["none"],
        (0, 1), allowed=has_rows,
    ),
    *pairwise(
        list(SEPARATE), list(FORGETTING), ("at once", "pending"),
        ("separate", "separate, exact", "every round"), (0, 1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "forgetting", "feedback", "rule", "contexts"), ROWS)
def test_rows_choose_what_models_do(
    name: str,
    forgetting: str,
    feedback: str,
    rule: str,
    contexts: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {**OTHERS, **IN_CONTEXTS, **SEPARATE}[name]
    special = "costs" if options.get("maximize") is False else "nothing"
    setting = Setting("arms", "igp", forgetting, feedback, rule, contexts, special)
    loop = setting.loop(**options)
    with monkeypatch.context() as patch:
        patch.setattr(Chooser, "_new_arms", lambda self: None)
        known = setting.loop(**options)
        assert known._chooser._arms is None
    assert isinstance(loop._chooser._arms, ArmsEngine)
    for _ in range(13):
        for each in (loop, known):
            setting.tell(each)
        ours, theirs = setting.ask(loop), setting.ask(known)
        assert torch.equal(ours.x, theirs.x)
        expected = dict(theirs.diagnostics)
        found = {key: ours.diagnostics[key] for key in expected}
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("feedback", ["pending", "ignored"])
def test_draws_of_outputs_with_the_same_kernel_are_independent(feedback: str) -> None:
    """Of the first and the last of three outputs, at the same arms in each round."""
    setting = Setting(method="draws", feedback=feedback, rule="separate")
    loop = setting.loop(model=model(scaled(batch_shape=torch.Size([3]))))
    for _ in range(11):
        setting.tell(loop)
        setting.ask(loop)
        view = loop._chooser.view(0.0)
        seen = loop._chooser._arms._look(view)  # type: ignore[union-attr]
        drawn, means = seen.prepared.drawn, seen.prepared.means
        multipliers = torch.tensor(loop.multipliers, dtype=torch.float64)
        assert torch.allclose(seen.scores, drawn[0] - multipliers @ drawn[1:], rtol=0.0, atol=1e-12)
        assert float(torch.corrcoef(drawn - means)[0, 2]) < 0.999


@pytest.mark.parametrize(
    "options",
    [
        {
            "feedback": Censored(minimum_proxy=1.0, max_delay=4),
            "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
        },
        {"feedback": Censored(minimum=-3.0, outcome_bound=6.0, predictive=True)},
        {"model": model(MaternKernel(nu=2.5), refit_every=4)},
        {"acquisition": LogExpectedImprovement.with_options(), "num_initial": 2},
        {
            "model": model(MaternKernel(nu=2.5), refit_every=4),
            "acquisition": LagrangianThompsonSampling.with_options(width=2.0),
            "constraints": RULES["separate"],
        },
    ],
    ids=str,
)
def test_what_needs_a_model_builds_one(options: dict[str, Any]) -> None:
    loop = Setting(contexts=1).loop(**options)
    loop.ask(context=[0.5])
    assert loop._chooser._arms is None
