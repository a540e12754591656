r"""Rates, such as clicks per impression, as outcomes with a noise variance of their own.

With :math:`s` successes and :math:`f = n - s` failures in :math:`n` trials,

.. math::
   y = \frac{s}{n} + \frac{s f}{n^2} \, \frac{f - s}{(s + 1) (f + 1)}, \qquad
   v = \frac{(s + 2) (f + 2)}{n (n + 4)^2} .

The variance is that of a rate which is shrunk by two successes and two failures (Agresti and Coull
1998), so that 0 of 20 says neither that the rate is 0 nor that this is certain.

**Why the reward is not** :math:`s / n`. An estimated variance is small where the rate came out
small. A mean of :math:`s / n` with the weights :math:`1 / v` is therefore too small, and the more
rows it has, the more certain it is of that: its bias is about one success less in each row. The
reward above undoes this. For small rates, where :math:`s` has a Poisson distribution with the mean
:math:`\mu = p n` and :math:`v = (s + 2) / n^2`, it is :math:`y = (s / n) (1 + 1 / (s + 1))`, and

.. math:: E[(y - p) / v] = n \, E\Bigl[\frac{s}{s + 1} - \frac{\mu}{s + 2}\Bigr] = 0

for every :math:`p`, because :math:`E[\mu \, g(s)] = E[s \, g(s - 1)]`. For other rates, the bias of
:math:`y / v` cancels to first order. The pair is our own.
"""

from __future__ import annotations

from botorch_bandits.checks import check_integer

__all__ = ["rate"]


def rate(successes: int, trials: int) -> dict[str, float]:
    """Return a rate as an outcome for :meth:`.BanditLoop.tell`.

    For rates from .01 to .1 and 20 to 2000 trials, the reward is within 1.96 standard deviations of
    the rate with a probability of at least .92, .97 on average; and the mean of many rewards,
    weighted with one over their variances, has a bias of less than a hundredth of one standard
    deviation of a reward. The variance is estimated from the outcome, whereas theorems need one
    that was known before: for a guarantee, tell ``successes / trials`` with ``count=trials``.

    Args:
        successes: How many of the trials were successful, such as clicks.
        trials: The number of trials, such as impressions; at least 1. It must not depend on how
            they came out.

    Returns:
        ``"reward"``, which is slightly above ``successes / trials`` if this is small, and
        ``"noise"``, the variance of its noise.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If there is no trial, or there are more successes than trials.

    Example:
        >>> {name: round(value, 6) for name, value in rate(3, 120).items()}
        {'reward': 0.030887, 'noise': 0.000322}
        >>> round(rate(0, 20)["noise"] ** 0.5, 4)
        0.0618
    """
    n = check_integer("trials", trials, minimum=1)
    s = check_integer("successes", successes, minimum=0)
    if s > n:
        raise ValueError(
            f"successes is {s} and trials {n}; there cannot be more successes than trials."
        )
    f = n - s
    unbiased = s / n + s * f / n**2 * (f - s) / ((s + 1) * (f + 1))
    return {"reward": unbiased, "noise": (s + 2) * (f + 2) / (n * (n + 4) ** 2)}
