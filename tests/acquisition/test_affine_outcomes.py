"""Weighted sums of outputs, side by side, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log

from botorch_bandits.acquisition import AffineOutcomes

from .cases import MODELS, double, named, rows, uniform

CASES = [
    named(MODELS, "SingleTaskGP, two outputs, scalarized"),
    named(MODELS, "ModelListGP, scalarized"),
]


@pytest.mark.parametrize("case", CASES, ids=["two outputs", "ModelListGP"])
def test_affine_outcomes_have_the_right_moments(case):
    weights, offsets = double([[0.0, -1.0], [-2.0, 0.0], [0.3, 0.7]]), double([0.0, 7.0, -1.0])
    transform = AffineOutcomes(weights, offsets)
    model = case.build()
    x = case.points(5, seed=3)
    posterior = model.posterior(x, posterior_transform=transform)
    (outputs,) = case.reference(model).members
    moments = [o.posterior(x.numpy()) for o in outputs]
    mean = np.stack([m for m, _ in moments], axis=-1) @ weights.numpy().T + offsets.numpy()
    np.testing.assert_allclose(posterior.mean.detach(), mean, rtol=1e-8)
    W = weights.numpy()
    joint = sum(  # between points i, k and rows j, l
        np.einsum("ik,j,l->ijkl", cov, W[:, a], W[:, a]) for a, (_, cov) in enumerate(moments)
    )
    found = posterior.distribution.covariance_matrix.detach()
    np.testing.assert_allclose(found, joint.reshape(15, 15), rtol=1e-8, atol=1e-10)
    for j in range(3):
        row = model.posterior(x, posterior_transform=transform.row(j))
        np.testing.assert_allclose(row.mean.squeeze(-1).detach(), mean[:, j], rtol=1e-8)
    Y = uniform(4, 2, seed=1)
    torch.testing.assert_close(transform.evaluate(Y), Y @ weights.T + offsets)


def test_affine_outcomes_refuse():
    X, Y = rows()
    with pytest.raises(TypeError, match=r"weights has dtype torch.float32"):
        AffineOutcomes(torch.ones(1, 2))
    with pytest.raises(ValueError, match="weights must be a matrix"):
        AffineOutcomes(double([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"offsets must be a vector of length 1"):
        AffineOutcomes(double([[1.0, 2.0]]), double([1.0, 2.0]))
    with pytest.raises(ValueError, match="for 3 outputs, but"):
        CASES[0].build().posterior(X, posterior_transform=AffineOutcomes(double([[1.0, 2.0, 3.0]])))
    positive = SingleTaskGP(X, Y.abs() + 1.0, outcome_transform=Log())
    with pytest.raises(UnsupportedError, match=r"joint Gaussian posterior.*ModelListGP"):
        positive.posterior(X, posterior_transform=AffineOutcomes(double([[1.0, 2.0]])))
