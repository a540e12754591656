"""Does a posterior ring after pending queries were filled in at the minimum?

A model with little noise must pass through every pseudo-value. Where neighbouring outcomes are
high, it dives to the minimum and overshoots on the other side: its maximum rises because of values
that nobody observed, and the next query is drawn there. :mod:`botorch_bandits.experiments.ringing`
measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from gpytorch import settings
from torch import Tensor

STEPS = (0.0625, 0.125, 0.25, 0.5)
"""Steps from a pending point, as shares of the range of all known points in that dimension."""

NUM_SPREAD = 1024
"""Points spread evenly over the range of all known points."""

MAXIMUM_STAR = 4096
"""A larger star is cut: the arms around the oldest pending points are left out."""

DEFAULT_TOLERANCE = 0.05
"""How much the maximum may rise, as a share of its height above the minimum, without a warning."""


class RingingWarning(RuntimeWarning):
    """Pseudo-values at the minimum have raised the maximum of the posterior mean."""


@dataclass(frozen=True)
class PosteriorRise:
    """How far pseudo-values have raised the largest posterior mean over some probe points.

    Attributes:
        before: The largest posterior mean of the user's model, in raw units of the objective.
        after: That of the model with pseudo-values.
        minimum: The pseudo-value.
    """

    before: float
    after: float
    minimum: float

    @property
    def share(self) -> float:
        """The rise as a share of the height above the minimum; 0 if there is no height."""
        height = self.before - self.minimum
        return (self.after - self.before) / height if height > 0.0 else 0.0


def probe_points(X_pending: Tensor, X_observed: Tensor | None) -> Tensor:
    """Return where to look: all known points, points between them, a star around each pending one.

    Evenly spread points (of a Sobol sequence) find what rings in few dimensions; the star, with
    :data:`STEPS` along each dimension in both directions, is for many. Nothing lies beyond the
    range of the known points, where the optimiser need not be allowed to go.

    Args:
        X_pending: ``p x d`` points, ``p >= 1``, oldest first.
        X_observed: ``n x d`` observed inputs, if they are known.

    Returns:
        ``num_probes x d`` points.
    """
    dim = X_pending.shape[-1]
    known = X_pending if X_observed is None else torch.cat([X_observed.to(X_pending), X_pending])
    low, high = known.amin(0), known.amax(0)
    steps = torch.tensor([s for step in STEPS for s in (step, -step)]).to(X_pending)
    offsets = steps.reshape(-1, 1, 1) * torch.diag(high - low)  # ``steps x d x d``
    centres = X_pending[-max(1, MAXIMUM_STAR // (len(steps) * dim)) :]
    star = (centres.reshape(-1, 1, 1, dim) + offsets).reshape(-1, dim)
    spread = _sobol(dim).to(X_pending)
    return torch.cat([known, low + (high - low) * spread, star.clamp(low, high)])


@cache
def _sobol(dim: int) -> Tensor:
    engine = torch.quasirandom.SobolEngine(dim, scramble=True, seed=0)
    return engine.draw(NUM_SPREAD, dtype=torch.float64)


def posterior_rise(
    base_model: Model,
    model: Model,
    probes: Tensor,
    minimum: float,
    posterior_transform: PosteriorTransform | None = None,
    maximize: bool = True,
) -> PosteriorRise:
    """Compare the largest posterior means of two models over probe points.

    It costs one posterior mean of each model at every probe.

    Args:
        base_model: Without pseudo-values.
        model: With them.
        probes: ``num_probes x d``; see :func:`probe_points`.
        minimum: The pseudo-value of the objective.
        posterior_transform: What makes several outputs one.
        maximize: If False, the mirror image is looked at: does the smallest mean sink?

    Returns:
        Of the member with the largest rise, for an ensemble or a batch.
    """
    sign = 1.0 if maximize else -1.0
    tops = []
    # the means alone: a joint covariance of all probes would cost more; an ensemble wants it anyway
    skips = not is_ensemble(base_model)
    with torch.no_grad(), settings.skip_posterior_variances(skips):
        for each in (base_model, model):
            posterior = each.posterior(probes, posterior_transform=posterior_transform)
            tops.append((sign * posterior.mean.squeeze(-1)).amax(-1).reshape(-1))
    before, after = torch.broadcast_tensors(*tops)
    worst = int((after - before).argmax())
    return PosteriorRise(float(before[worst]), float(after[worst]), sign * minimum)
