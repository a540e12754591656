"""Expected improvement and random search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP

from botorch_bandits import (
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
)

from .cases import bandit_gp, bandit_gp_reference, double, rows, uniform

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")

x = uniform(6, 2, seed=3)
X_OBSERVED, OUTCOMES = rows()
Y_OBSERVED = OUTCOMES[:, 1:]


def improvement(best: float, pending: Any = None, maximize: bool = True) -> torch.Tensor:
    """The textbook value of the model of ``bandit_gp``."""
    reference = bandit_gp_reference()
    if pending is not None:
        reference = reference.hallucinate(pending.numpy())
    values = reference.log_expected_improvement(x.numpy(), np.array([best]), maximize)
    return torch.from_numpy(values[0])


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("incumbent", ["posterior_mean", "observed", "given"])
def test_incumbents(incumbent: str, maximize: bool) -> None:
    extreme = np.max if maximize else np.min
    if incumbent == "posterior_mean":
        options: dict[str, Any] = {"X_observed": X_OBSERVED}
        best = extreme(bandit_gp_reference().moments(X_OBSERVED.numpy())[0])
    elif incumbent == "observed":
        options = {"incumbent": "observed", "Y_observed": Y_OBSERVED}
        best = extreme(Y_OBSERVED.numpy())
    else:
        options, best = {"best_f": 0.1}, 0.1
    acqf = LogExpectedImprovement(bandit_gp(), maximize=maximize, **options)
    assert torch.allclose(acqf(x.unsqueeze(-2)), improvement(best, None, maximize), atol=1e-8)
    assert float(acqf.best_f) == pytest.approx(best, abs=1e-10)


def test_several_outputs_without_given_rows_have_the_incumbent_of_their_sum() -> None:
    parts = [SingleTaskGP(X_OBSERVED, OUTCOMES[:, j : j + 1]) for j in (0, 1)]
    weights = ScalarizedPosteriorTransform(double([1.0, -2.0]))
    acqf = LogExpectedImprovement(
        ModelListGP(*parts).eval(), posterior_transform=weights, incumbent="observed"
    )
    best = (OUTCOMES[:, 0] - 2.0 * OUTCOMES[:, 1]).max()
    assert float(acqf.best_f) == pytest.approx(float(best), abs=1e-10)


@pytest.mark.parametrize("incumbent", ["posterior_mean", "observed"])
def test_a_batch_needs_an_incumbent_for_each_of_its_models(incumbent: str) -> None:
    batch = SingleTaskGP(X_OBSERVED.expand(2, -1, -1), OUTCOMES[:, :1].expand(2, -1, -1)).eval()
    name = {"posterior_mean": "X_observed", "observed": "Y_observed"}[incumbent]
    with pytest.raises(ValueError, match=f"needs {name}=, or best_f= .*: the model is a batch"):
        LogExpectedImprovement(batch, incumbent=incumbent)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"incumbent": "best"}, ValueError, "'posterior_mean', 'observed'"),
        ({"best_f": math.inf}, ValueError, "best_f is inf"),
        ({"X_observed": X_OBSERVED.float()}, TypeError, "X_observed has dtype torch.float32"),
        (
            {"incumbent": "observed", "Y_observed": Y_OBSERVED.float()},
            TypeError,
            "Y_observed has dtype torch.float32",
        ),
    ],
)
def test_infeasible_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        LogExpectedImprovement(bandit_gp(), **options)


@pytest.mark.parametrize("cls", [LogExpectedImprovement, LogProbabilityOfImprovement])
def test_an_augmented_improvement_is_discounted_by_the_noise(cls: Any) -> None:
    model = bandit_gp(noise=0.3)
    # with deviations s of the posterior and t of the noise that counts: 1 - t / sqrt(s^2 + t^2)
    variance = model.posterior(x).variance.squeeze(-1)
    noise = 0.3 - 1e-3 * 2.0  # a thousandth of the prior variance counts as no noise
    discount = 1.0 - noise**0.5 / (variance + noise).sqrt()
    plain, augmented = (cls(model, 0.1, augmented=a)(x.unsqueeze(-2)) for a in (False, True))
    assert torch.allclose(augmented, plain + discount.log(), rtol=0.0, atol=1e-8)
