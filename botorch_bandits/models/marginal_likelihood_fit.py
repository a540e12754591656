"""Hyperparameters by marginal likelihood, with closed-form gradients, for ``fit_gpytorch_mll``.

BoTorch's ordinary fit builds an autograd graph in every evaluation. For stationary kernels the
gradient has a closed form. Objective, parameters, bounds, optimiser and starting point are the
same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.optim.utils.timeout import minimize_with_timeout
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.optimize import minimize

from botorch_bandits.models.marginal_likelihood_objective import (
    ORDINARY,
    MarginalLikelihoodObjective,
    has_closed_form,
)

STATUS_LIMIT_REACHED = 1
"""SciPy's status when the limit of iterations, evaluations or time ended an L-BFGS-B run."""


def fit_marginal_likelihood(
    mll: MarginalLogLikelihood,
    closure: Callable[..., Any] | None = None,
    closure_kwargs: dict[str, Any] | None = None,
    optimizer_kwargs: dict[str, Any] | None = None,
    **kwargs: Any,
) -> MarginalLogLikelihood:
    """Maximise the marginal likelihood from the model's present hyperparameters.

    BoTorch's ordinary fit does it instead if a closure, an optimiser or several attempts are asked
    for, if ``mll`` is not an ``ExactMarginalLogLikelihood``, and if the closed form's attempt fails
    or does not converge; it then starts where this one started.

    Args:
        mll: Its model must be one that :func:`has_closed_form`.
        closure: See ``fit_gpytorch_mll``; as the rest.
        closure_kwargs: Arguments for ``closure``.
        optimizer_kwargs: ``options`` of SciPy's L-BFGS-B (such as ``maxiter``), ``timeout_sec``
            in seconds, and ``method="L-BFGS-B"`` are honoured here.
        kwargs: Passed on to BoTorch.

    Returns:
        ``mll`` in evaluation mode, the hyperparameters set.

    Raises:
        ModelFittingError: If BoTorch's attempts failed, too, or the model has repeated rows.
    """
    settings = dict(optimizer_kwargs or {})
    options, timeout = settings.pop("options", None), settings.pop("timeout_sec", None)
    special = settings.pop("method", "L-BFGS-B") != "L-BFGS-B" or bool(settings)
    special |= closure is not None or closure_kwargs is not None
    special |= kwargs.get("optimizer") is not None or kwargs.get("pick_best_of_all_attempts", False)
    if type(mll) is ExactMarginalLogLikelihood and not special:
        mll.train()
        objective = MarginalLikelihoodObjective(mll)
        if minimise_objective(objective, options, timeout):
            return mll.eval()
        objective.write(objective.start)
    if mll.model.repeats is not None:
        raise ModelFittingError(
            "the closed-form fit failed, and BoTorch's own fit does not know of repeated rows."
        )
    object.__setattr__(mll.model, ORDINARY, True)
    try:
        return fit_gpytorch_mll(
            mll,
            closure=closure,
            closure_kwargs=closure_kwargs,
            optimizer_kwargs=optimizer_kwargs,
            **kwargs,
        )
    finally:
        object.__delattr__(mll.model, ORDINARY)


def log_marginal_likelihood(mll: ExactMarginalLogLikelihood) -> float:
    """Return what a fit maximises at the model's present hyperparameters.

    Several outputs and batches are summed. Minus infinity stands for a covariance without a
    Cholesky factor. ``mll`` is left in training mode.
    """
    mll.train()
    model = mll.model
    try:
        if has_closed_form(model):
            objective = MarginalLikelihoodObjective(mll)
            value = -objective(objective.start)[0]
        else:
            with torch.no_grad():
                value = mll(model(*model.train_inputs), model.train_targets).sum().item()
    except (NotPSDError, NanError):
        return -math.inf
    return -math.inf if math.isnan(value) else value


def minimise_objective(
    objective: MarginalLikelihoodObjective, options: dict[str, Any] | None, timeout: float | None
) -> bool:
    """Set a model's free parameters to a minimum of its objective.

    Args:
        objective: Where to start, within which bounds, and what to minimise.
        options: Options of SciPy's L-BFGS-B; None for its defaults, which BoTorch uses as well.
        timeout: Seconds after which the best values so far count as the minimum.

    Returns:
        False if the optimiser failed. The parameters are then anywhere.
    """
    arguments = {"method": "L-BFGS-B", "jac": True, "bounds": objective.bounds, "options": options}
    try:
        if timeout is None:  # setting BLAS threads, as BoTorch does, takes as long as a small fit
            result = minimize(objective, objective.start, **arguments)
        else:
            result = minimize_with_timeout(
                objective, objective.start, timeout_sec=timeout, **arguments
            )
    except NotPSDError:
        return False
    if not (result.success or result.status == STATUS_LIMIT_REACHED):
        return False
    if not math.isfinite(result.fun):
        return False
    objective.write(result.x)
    return True
