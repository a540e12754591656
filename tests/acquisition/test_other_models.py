"""Which acquisition function works with which other model: single points, pending ones, several.

``python -m tests.acquisition.test_other_models`` writes the table of the documentation again, and
with ``--sample`` draws the hyperparameters of BoTorch's fully Bayesian models before.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.acquisition import AcquisitionFunction, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import (
    KroneckerMultiTaskGP,
    MixedSingleTaskGP,
    ModelListGP,
    MultiTaskGP,
    SingleTaskGP,
    SingleTaskVariationalGP,
)
from botorch.models.model import Model
from botorch.models.transforms import Normalize, Standardize
from models.textbook import double
from torch import Tensor

from botorch_bandits import (
    BanditLoop,
    Box,
    CensoredUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    VarianceOnly,
)

from . import sampled_models
from .cases import OwnGP, Waves, rows, uniform

TABLE = Path(__file__).parents[2] / "docs" / "results" / "compatibility_models.md"

X, Y = rows(8)
WEIGHTS = ScalarizedPosteriorTransform(double([1.0, -0.5]))


def standardized() -> SingleTaskGP:
    return SingleTaskGP(
        X, Y[:, :1], input_transform=Normalize(2), outcome_transform=Standardize(1)
    ).eval()


def several_tasks(**options: Any) -> MultiTaskGP:
    tasks = torch.cat([torch.zeros(8, 1), torch.ones(5, 1)]).double()
    inputs = torch.cat([torch.cat([X, X[:5]]), tasks], dim=-1)
    return MultiTaskGP(inputs, torch.cat([Y[:, :1], Y[:5, 1:]]), task_feature=-1, **options).eval()


def variational() -> SingleTaskVariationalGP:
    return SingleTaskVariationalGP(X, Y[:, :1], inducing_points=5).double().eval()


def mixed() -> MixedSingleTaskGP:
    rounded = torch.cat([X[:, :1], X[:, 1:].round()], dim=-1)
    return MixedSingleTaskGP(rounded, Y[:, :1], cat_dims=[1]).eval()


MODELS: dict[str, tuple[Callable[[], Model], ScalarizedPosteriorTransform | None]] = {
    "SingleTaskGP, Normalize and Standardize": (standardized, None),
    "MixedSingleTaskGP": (mixed, None),
    "MultiTaskGP, one task out": (lambda: several_tasks(output_tasks=[0]), None),
    "MultiTaskGP, scalarized": (several_tasks, WEIGHTS),
    "ModelListGP with a MultiTaskGP, scalarized": (
        lambda: ModelListGP(several_tasks(output_tasks=[0]), standardized()),
        WEIGHTS,
    ),
    "KroneckerMultiTaskGP, scalarized": (lambda: KroneckerMultiTaskGP(X, Y).eval(), WEIGHTS),
    "SingleTaskVariationalGP": (variational, None),
    "a custom GPyTorch model": (lambda: OwnGP(X, Y[:, :1]).eval(), None),
    "EnsembleModel (deterministic)": (Waves, None),
    **{name: (partial(sampled_models.sampled, name), None) for name in sampled_models.UNSAMPLED},
}


ACQUISITIONS: dict[str, Callable[..., AcquisitionFunction]] = {
    "UCB, constant width": lambda model, **kw: GPUpperConfidenceBound(model, 4.0, **kw),
    "IGP-UCB": ImprovedUpperConfidenceBound,
    "DMM": DMMUpperConfidenceBound,
    "EI": lambda model, **kw: LogExpectedImprovement(model, X_observed=X, **kw),
    "PI": lambda model, **kw: LogProbabilityOfImprovement(model, X_observed=X, **kw),
    "mean only": MeanOnly,
    "variance only": VarianceOnly,
    "GP-TS": lambda model, **kw: GPThompsonSampling(model, seed=0, **kw),
    "GP-TS, hallucinated": lambda model, **kw: GPThompsonSampling(
        model, seed=0, pending="hallucinate", **kw
    ),
    "censored UCB": lambda model, **kw: CensoredUpperConfidenceBound(
        model, minimum=(-9.0, 9.0)[: model.num_outputs], width=1.0, ringing_tolerance=None, **kw
    ),
}

PENDING, POINTS = uniform(3, 2, seed=4), uniform(8, 2, seed=3)


def _refused(error: Exception, found: list[str]) -> list[str]:
    """Nothing more works; the error must name a way out."""
    assert any(word in str(error) for word in ("Use ", "Pass ", "pass ", "needs ", "give ")), error
    return found


def what_works(acquisition: str, model: str) -> list[str]:
    """Try single points, pending points and several points together; errors must say more."""
    build, transform = MODELS[model]
    try:
        acqf = ACQUISITIONS[acquisition](build(), posterior_transform=transform)
    except (UnsupportedError, ValueError) as error:
        return _refused(error, [])
    found = []
    for name, pending, shape in (
        ("1", None, (8, 1, 2)),
        ("pending", PENDING, (8, 1, 2)),
        ("4", None, (2, 4, 2)),
    ):
        try:
            acqf.set_X_pending(pending)
            values = acqf(POINTS.reshape(shape))
        except UnsupportedError as error:
            found = _refused(error, found)
            acqf.set_X_pending(None)
            continue
        assert values.shape == shape[:1]
        assert values.isfinite().all()
        found.append(name)
    return found


def render() -> str:
    """One table, models down, acquisition functions across."""
    header = "| Model | " + " | ".join(ACQUISITIONS) + " |"
    line = "| --- " * (len(ACQUISITIONS) + 1) + "|"
    body = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in MODELS:
            cells = [", ".join(what_works(name, model)) or "-" for name in ACQUISITIONS]
            body.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join([header, line, *body]) + "\n"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_table_of_other_models_is_what_works() -> None:
    assert TABLE.read_text(encoding="utf-8") == render(), "write it again: see this module"


@pytest.mark.parametrize("name", ["bound", "qLogNEI"])
@pytest.mark.filterwarnings("ignore")
def test_a_loop_chooses_with_a_fully_bayesian_model_and_any_acquisition_function(name: str) -> None:
    def improvement(model: Any, X_pending: Tensor | None, best: float | None) -> Any:
        return qLogNoisyExpectedImprovement(model, model.train_inputs[0], X_pending=X_pending)

    acquisition: Any = improvement
    if name == "bound":
        acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    box = Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=4, raw_samples=32)
    loop = BanditLoop(box, sampled_models.of_rows, acquisition, num_initial=4)
    for _ in range(5):
        query = loop.ask()
        loop.tell(query.id, float(torch.sin(6.0 * query.x).sum()))
    found, model = loop.ask(), loop.current_model()
    assert model.batch_shape == (sampled_models.NUM_SAMPLES,)
    if name == "bound":
        points = torch.cat([found.x[None], torch.rand(500, 2, dtype=torch.float64)])
        of_members = model.posterior(points)
        mean, deviation = of_members.mean, of_members.variance.sqrt()
        values = (mean + 2.0 * deviation).mean(0)[:, 0]
        assert values[0] > values[1:].max() - 1e-6
        assert found.diagnostics["acquisition_value"] == pytest.approx(float(values[0]), abs=1e-9)
    assert not loop.guarantee().holds


def test_members_that_share_their_rows_are_given_pending_points() -> None:
    assert what_works("DMM", next(iter(sampled_models.UNSAMPLED))) == ["1", "pending", "4"]


if __name__ == "__main__":
    if "--sample" in sys.argv[1:]:
        sampled_models.write_samples()
    TABLE.write_text(render(), encoding="utf-8")
