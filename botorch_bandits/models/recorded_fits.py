"""Fits of hyperparameters as plain values, and how a model builder resumes from them.

The fits of a loop are a chain: each starts from the one before it. A loop that is reopened from its
journal continues from the last recorded fit, which is trusted if a digest confirms that it is
unchanged and belongs to exactly these rows. Otherwise all fits are repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.models.bandit_gp import ModelBuilder


def plain_fit(X: Tensor, Y: Tensor, kernel: Kernel, noise: Tensor) -> dict[str, Any]:
    """Return a fit as exact plain values; parameters are raw, as in PyTorch.

    Args:
        X: ``n x d`` inputs to which the model was fitted.
        Y: ``n x m`` outcomes.
        kernel: The fitted kernel.
        noise: The noise variance.
    """
    plain = {
        "num_rows": len(X),
        "kernel": {name: value.tolist() for name, value in kernel.named_parameters()},
        "noise": noise.tolist(),
    }
    return {**plain, "digest": _digest(plain, X, Y)}


def restore_fit(builder: ModelBuilder, fit: Mapping[str, Any], X: Tensor, Y: Tensor) -> bool:
    """Let a builder continue from a recorded fit if it was made to these rows.

    Args:
        builder: A builder without fits of its own.
        fit: From :func:`plain_fit`, possibly of an older version, which recorded no digest.
        X: ``n x d`` inputs, the first of which are those of the fit.
        Y: ``n x m`` outcomes.

    Returns:
        Whether the builder continues from the fit.
    """
    num_rows = fit["num_rows"]
    X, Y = X[:num_rows], Y[:num_rows]
    if len(X) < num_rows or fit.get("digest") != _digest(fit, X, Y):
        return False

    parameters = {name: X.new_tensor(value) for name, value in fit["kernel"].items()}
    builder.take_fit(X, Y, parameters, X.new_tensor(fit["noise"]))
    return True


def _digest(fit: Mapping[str, Any], X: Tensor, Y: Tensor) -> str:
    values = {name: fit[name] for name in ("num_rows", "kernel", "noise")}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for rows in (X, Y):
        digest.update(rows.detach().to("cpu", torch.float64).contiguous().numpy().tobytes())
    return digest.hexdigest()
