"""BoTorch's fully Bayesian models, with hyperparameters that its sampler (NUTS) drew.

The sampler needs JAX and NumPyro, and some seconds a model. Its samples are committed, so that the
table of models is checked without either. To draw them again, and to write the table from them:

    pip install "botorch[fully_bayesian]"
    python -m tests.acquisition.test_other_models --sample
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.fit import fit_fully_bayesian_model_nuts
from botorch.models import fully_bayesian, fully_bayesian_multitask
from botorch.models.fully_bayesian import (
    FullyBayesianLinearSingleTaskGP,
    FullyBayesianSingleTaskGP,
    SaasFullyBayesianSingleTaskGP,
)
from botorch.models.fully_bayesian_multitask import SaasFullyBayesianMultiTaskGP
from botorch.models.transforms import Normalize, Standardize
from models.textbook import double
from torch import Tensor

from .cases import rows

SAMPLES = Path(__file__).parents[1] / "data" / "nuts_samples.json"
NUM_SAMPLES = 4
X, Y = rows(8)


def _several_tasks() -> tuple[Tensor, Tensor]:
    tasks = torch.cat([torch.zeros(8, 1), torch.ones(5, 1)]).double()
    inputs = torch.cat([torch.cat([X, X[:5]]), tasks], dim=-1)
    return inputs, torch.cat([Y[:, :1], Y[:5, 1:]])


UNSAMPLED: dict[str, Callable[[], Any]] = {
    "SaasFullyBayesianSingleTaskGP, Normalize and Standardize, by NUTS": lambda: (
        SaasFullyBayesianSingleTaskGP(
            X, Y[:, :1], input_transform=Normalize(2), outcome_transform=Standardize(1)
        )
    ),
    "FullyBayesianSingleTaskGP, by NUTS": lambda: FullyBayesianSingleTaskGP(X, Y[:, :1]),
    "FullyBayesianLinearSingleTaskGP, by NUTS": lambda: FullyBayesianLinearSingleTaskGP(
        X, Y[:, :1]
    ),
    "SaasFullyBayesianMultiTaskGP, one task out, by NUTS": lambda: SaasFullyBayesianMultiTaskGP(
        *_several_tasks(), task_feature=-1, output_tasks=[0]
    ),
}


def without_jax(make: Callable[[], Any]) -> Any:
    """Return a model without samples, where JAX is missing, too.

    The constructor hands the data to the sampler as JAX arrays. Nothing else of the model needs
    them.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not fully_bayesian._HAS_JAX:
            for module in (fully_bayesian, fully_bayesian_multitask):
                patch.setattr(module, "_check_jax_available", lambda: None)
            patch.setattr(fully_bayesian, "jnp", np, raising=False)
        return make()


def build(name: str) -> Any:
    return without_jax(UNSAMPLED[name])


def of_rows(X: Tensor, Y: Tensor) -> Any:
    """Return a fully Bayesian model of a loop's rows, with the samples that are committed."""
    model = without_jax(lambda: FullyBayesianSingleTaskGP(X, Y))
    model.train()
    model.load_mcmc_samples(committed("FullyBayesianSingleTaskGP, by NUTS"))
    return model.eval()


def with_samples(name: str, samples: dict[str, Tensor]) -> Any:
    model = build(name)
    model.train()
    model.load_mcmc_samples(samples)
    return model.eval()


def committed(name: str) -> dict[str, Tensor]:
    saved = json.loads(SAMPLES.read_text(encoding="utf-8"))[name]
    return {key: double(values) for key, values in saved.items()}


def sampled(name: str) -> Any:
    return with_samples(name, committed(name))


def draw(name: str) -> dict[str, Tensor]:
    """Run the chain and return what it loads into the model."""
    model, kept = build(name), {}
    load = model.load_mcmc_samples

    def keep(samples: dict[str, Tensor]) -> None:
        kept.update(samples)
        load(samples)

    model.load_mcmc_samples = keep
    fit_fully_bayesian_model_nuts(
        model, warmup_steps=64, num_samples=64, thinning=64 // NUM_SAMPLES, disable_progbar=True
    )
    return kept


def write_samples() -> None:
    drawn = {
        name: {key: values.tolist() for key, values in draw(name).items()} for name in UNSAMPLED
    }
    SAMPLES.write_text(json.dumps(drawn, indent=1) + "\n", encoding="utf-8")
