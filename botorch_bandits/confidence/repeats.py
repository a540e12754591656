r"""How often a point may be played before the next one is chosen.

Let :math:`x` be chosen with the posterior variance :math:`s^2`, and play it ``n`` times before the
next choice. With noise variance :math:`\lambda`, the variance before play ``i`` is

.. math:: \sigma_{i-1}^2(x) = \frac{s^2}{1 + (i - 1) s^2 / \lambda} .

For a factor :math:`C > 1` and :math:`n = 1 + \lfloor (C^2 - 1) \lambda / s^2 \rfloor`, it is at
least :math:`s^2 / C^2` before the last play.

**Regret.** On the event on which a width ``w`` is a bound when ``x`` is chosen, each play has
regret at most :math:`2 w s \le 2 C w \sigma_{i-1}(x)`. The sum over all rounds is therefore at most
``C`` times what it would be with a choice in each round. It is the BOUND on regret, not the regret,
that grows by at most the factor ``C``.

**Choices.** The ``n`` plays of a choice have the information gain
:math:`\tfrac12 \ln(1 + n s^2 / \lambda) > \ln C`, for :math:`n > (C^2 - 1) \lambda / s^2`. There
are therefore at most :math:`1 + \gamma / \ln C` choices in rounds of realized gain :math:`\gamma`,
plus one for each choice whose plays were cut short.

**A list of priors.** With the least :math:`\lambda_\theta / s_\theta^2` of the survivors in place
of :math:`\lambda / s^2`, the variance under each survivor is at least :math:`s_\theta^2 / C^2`
before the last play. The distance of the bounds at the choice bounds the regret of each play. The
plays of a choice have more than :math:`\ln C` of information gain under the prior of the least
ratio, so that there are at most :math:`1 + \sum_\theta \gamma_\theta / \ln C` choices.

**A box.** If a discretization adds :math:`1/t^2` to the regret of the choice of round ``t``
(Theorem 2 of Srinivas et al. 2010), it adds this to the regret of each play. With prior variance 1
and :math:`\lambda \le 1`, :math:`s^2 \ge \lambda / (\lambda + t - 1)`, so the last play is in round
:math:`(C^2 + 1) t` at the latest, and all plays together add at most
:math:`(C^2 + 1)^2 \pi^2 / 6`.

Source: after Calandriello, Carratino, Lazaric, Valko and Rosasco 2022, *Scaling Gaussian process
optimization by evaluating a few unique candidates multiple times*; the constants are derived here.
"""

from __future__ import annotations

import math

from botorch.models.model import Model
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from botorch_bandits.checks import check_nonnegative, check_number, check_positive
from botorch_bandits.confidence.candidates import LEVEL_OF_SURVIVORS
from botorch_bandits.confidence.prior_reading import outcome_units

LARGEST_NUMBER = 2**53
"""The largest number of plays that is planned; larger numbers are not exact in float64."""


def check_factor(name: str, factor: float) -> float:
    """Return a factor ``C`` if it is greater than 1.

    Args:
        name: The name of the argument, for the error.
        factor: The factor.
    """
    factor = check_number(name, factor)
    if not factor > 1.0:
        raise ValueError(
            f"{name} is {factor:g}; it must be above 1. The bound on regret may grow by that "
            "factor, so 1.1 means 10 percent; leave it out to play each point once."
        )
    return factor


def num_plays(standard_deviation: float, noise: float, factor: float) -> int:
    r"""Return how often a point is played, :math:`1 + \lfloor (C^2 - 1) \lambda / s^2 \rfloor`.

    Args:
        standard_deviation: ``s``, the posterior standard deviation at the point when it is chosen.
        noise: ``lambda``, the noise variance of an outcome, in the square of the same units.
        factor: ``C``, above 1.

    Returns:
        At least 1.

    Raises:
        ValueError: If an argument is negative or not finite, or the factor is at most 1.

    Example:
        >>> num_plays(standard_deviation=0.5, noise=0.25, factor=2.0)
        4
    """
    deviation = check_nonnegative("standard_deviation", standard_deviation)
    noise, factor = check_positive("noise", noise), check_factor("factor", factor)
    variance = deviation**2
    most = (factor**2 - 1.0) * noise
    return LARGEST_NUMBER if most >= LARGEST_NUMBER * variance else 1 + math.floor(most / variance)


def num_plays_of_ratio(noise_ratio: float, factor: float) -> int:
    r"""Return how often a point is played, from :math:`\lambda / s^2`; see :func:`num_plays`.

    Args:
        noise_ratio: Noise variance over posterior variance, above 0; may be infinite.
        factor: ``C``, above 1.
    """
    if math.isinf(noise_ratio):
        return num_plays(0.0, 1.0, factor)
    return num_plays(1.0, noise_ratio, factor)


def num_plays_at(model: Model, x: Tensor, factor: float, level: float = LEVEL_OF_SURVIVORS) -> int:
    """Return how often to play a point that was chosen with a BoTorch model.

    Args:
        model: A model with one output, a :class:`~gpytorch.likelihoods.GaussianLikelihood` with the
            same noise for all rows, and no outcome transform but ``Standardize``; or a list of
            priors, in which the survivor with the least ratio of noise variance to posterior
            variance counts.
        x: ``d``, the point.
        factor: ``C``, above 1: the bound on the regret grows by at most that factor.
        level: For a list of priors, the level of its survivors, half of the ``delta`` of
            :class:`~botorch_bandits.CandidatesUpperConfidenceBound`.

    Returns:
        At least 1.

    Raises:
        ValueError: If the noise differs from row to row, the model has several outputs, or the
            factor is at most 1.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> X = torch.tensor([[0.1], [0.6]], dtype=torch.float64)
        >>> model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=0.01)
        >>> num_plays_at(model, X[0], factor=1.5)
        2
    """
    if hasattr(model, "least_noise_ratio"):  # a list of priors, which this module cannot import
        ratio = model.least_noise_ratio(x, model.evidence.in_force(level))
        return num_plays_of_ratio(ratio, factor)
    likelihood = getattr(model, "likelihood", None)
    if model.num_outputs != 1 or len(model.batch_shape):
        raise ValueError(
            f"model has {model.num_outputs} outputs and the batch shape {tuple(model.batch_shape)};"
            " pass a model of one outcome."
        )
    if not isinstance(likelihood, GaussianLikelihood):
        raise ValueError(
            f"model has a {type(likelihood).__name__}, so that the noise of the next outcome is "
            "not known. Pass a model with one noise variance, or use num_plays with a stated one."
        )
    scale, _ = outcome_units(model)
    noise = float(likelihood.noise.mean() * scale.reshape(-1)[0] ** 2)
    variance = float(model.posterior(x.unsqueeze(0)).variance.detach().clamp_min(0.0).sum())
    return num_plays(math.sqrt(variance), noise, factor)


def most_choices(information_gain: float, factor: float, num_cut_short: int = 0) -> float:
    r"""Return a bound on the number of choices, :math:`1 + \gamma / \ln C`.

    Args:
        information_gain: ``gamma``, the realized or maximal gain of all rounds, in nats.
        factor: ``C``, above 1.
        num_cut_short: How many choices, besides the last, were played less often than planned.

    Example:
        >>> round(most_choices(information_gain=20.0, factor=1.5), 1)
        50.3
    """
    gain = check_nonnegative("information_gain", information_gain)
    return 1.0 + gain / math.log(check_factor("factor", factor)) + num_cut_short
