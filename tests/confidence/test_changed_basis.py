"""Rows that come, go and fade, at all ridges, against dense algebra of the rows that count."""

from __future__ import annotations

import numpy as np
import pytest

from botorch_bandits.confidence.changed_basis import ChangedBasis, Spectrum

RIDGES = np.geomspace(1e-4, 1e3, 9)


def kernel(A, B):
    """Exp(-r^2 / 2) at lengthscale 0.4."""
    return np.exp(-0.5 * (((A[:, None] - B[None]) / 0.4) ** 2).sum(-1))


@pytest.mark.parametrize("num_left", [0, 1, 6])
@pytest.mark.parametrize("num_came", [0, 1, 5])
@pytest.mark.parametrize("scale", [1.0, 0.6])
def test_moments_and_fits_are_those_of_the_rows_that_count(num_left, num_came, scale):
    stream = np.random.default_rng(num_left + 10 * num_came)
    base, came, points = (stream.random((n, 2)) for n in (20, num_came, 7))
    then, new = stream.random(20) + 0.5, stream.random(num_came) + 0.5
    weights = scale * then
    outcomes, added = stream.normal(size=20), stream.normal(size=num_came)
    left = stream.permutation(20)[:num_left]

    root = np.sqrt(weights)
    spectrum = Spectrum.of(kernel(base, base) * np.sqrt(np.outer(then, then)))
    border = kernel(came, base) * np.outer(np.sqrt(new), root)
    vectors = spectrum.eigenvectors
    basis = ChangedBasis(
        spectrum,
        RIDGES,
        np.concatenate([vectors[left], border @ vectors]),
        num_left,
        kernel(came, came) * np.sqrt(np.outer(new, new)),
        outcomes * root,
        added * np.sqrt(new),
        scale,
    )
    features = (kernel(points, base) * root) @ vectors
    at_points = kernel(came, points) * np.sqrt(new)[:, None]

    kept = np.setdiff1d(np.arange(20), left)
    X = np.concatenate([base[kept], came])
    w = np.sqrt(np.concatenate([weights[kept], new]))
    y = np.concatenate([outcomes[kept], added]) * w
    K, k = kernel(X, X) * np.outer(w, w), kernel(points, X) * w
    for some in (slice(None), np.array([2, 0, 7])):
        mean, explained = basis.moments(features, at_points, some)
        for j, a in enumerate(RIDGES[some]):
            inverse = np.linalg.inv(K + a * np.eye(len(K)))
            np.testing.assert_allclose(mean[:, j], k @ inverse @ y, rtol=0.0, atol=1e-9)
            quadratic = np.einsum("ij,jk,ik->i", k, inverse, k)
            np.testing.assert_allclose(explained[:, j], quadratic, rtol=0.0, atol=1e-9)
    fits = [y @ np.linalg.inv(K + a * np.eye(len(K))) @ y for a in RIDGES]
    np.testing.assert_allclose(basis.fits, fits, rtol=1e-9, atol=1e-9)
