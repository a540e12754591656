"""Points and weights that stand for the uniform measure on a domain.

Arms are their own points, and the mean over them is exact. Boxes with few dimensions have a product
of Gauss-Legendre rules (of all whole numbers where a dimension is an integer one), and a second
one with half as many nodes, which tells the error. Other boxes have several independently
scrambled Sobol sets, whose scatter tells the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.random_streams import derive_seed

PRODUCT_NODES = {1: 256, 2: 48}
"""Gauss-Legendre nodes a dimension, by the number of continuous dimensions."""

LARGEST_PRODUCT = 4096
"""More nodes than this, whole numbers included, and Sobol points are taken."""

SOBOL_POINTS, SCRAMBLINGS = 512, 8
"""Points of one scrambled Sobol set, and how many sets there are."""


@dataclass(frozen=True, eq=False)
class Measure:
    """One or more rules that average functions over a domain, one after the other.

    Attributes:
        points: ``q x d``, the points of all rules.
        roots: ``q`` square roots of weights; the squares sum to 1 within each rule.
        sizes: How many points each rule has.
        is_random: Whether the rules are independent and equally good: their mean counts, with its
            standard error. Otherwise the first one counts and the second tells its error.
    """

    points: Tensor
    roots: Tensor
    sizes: tuple[int, ...]
    is_random: bool = False

    @classmethod
    def of(cls, domain: Domain, seed: int) -> Measure:
        """Choose the rules for a domain.

        Args:
            domain: Arms or a box.
            seed: Seeds the scrambling of Sobol points.

        Raises:
            TypeError: If the domain is neither.
        """
        if isinstance(domain, Arms):
            even = torch.full_like(domain.choices[:, 0], domain.num_arms**-0.5)
            return cls(domain.choices, even, (domain.num_arms,))
        if not isinstance(domain, Box):
            raise TypeError(
                f"domain is a {type(domain).__name__}; the change test knows Arms and Box only. "
                "Of a domain of your own take arms: Arms(domain.sample(1000))."
            )
        continuous = domain.dim - len(domain.integer_dims)
        nodes = PRODUCT_NODES.get(continuous, 1)
        sides = [
            int(high - low) + 1 if i in domain.integer_dims else nodes
            for i, (low, high) in enumerate(domain.bounds.T.tolist())
        ]
        if continuous <= max(PRODUCT_NODES) and math.prod(sides) <= LARGEST_PRODUCT:
            rules = [_product(domain, nodes)]
            if continuous:
                rules.append(_product(domain, nodes // 2))
        else:
            seeds = [derive_seed(seed, i, "change test") for i in range(SCRAMBLINGS)]
            rules = [_sobol_set(domain, one) for one in seeds]
        return cls(
            torch.cat([points for points, _ in rules]),
            torch.cat([weights for _, weights in rules]).sqrt(),
            tuple(len(points) for points, _ in rules),
            is_random=len(rules) > 2,
        )

    @property
    def num_counting(self) -> int:
        """How many points, from the first, the value comes from."""
        return sum(self.sizes) if self.is_random else self.sizes[0]

    @property
    def share(self) -> float:
        """What the sum of squares over the counting points is multiplied with."""
        return 1.0 / len(self.sizes) if self.is_random else 1.0

    def means_of_squares(self, weighted: Tensor) -> Tensor:
        """Return the mean square of functions by each rule.

        Args:
            weighted: ``... x q`` values, times :attr:`roots`.

        Returns:
            One mean a rule, ``... x num_rules``.
        """
        parts = weighted.square().split(list(self.sizes), dim=-1)
        return torch.stack([part.sum(-1) for part in parts], dim=-1)

    def error(self, means: Tensor) -> float:
        """Return the estimated error of a value, given the means by all rules."""
        if len(self.sizes) == 1:
            return 0.0
        if not self.is_random:
            return float((means[0] - means[1]).abs())
        return float(means.std()) / math.sqrt(len(self.sizes))


def _product(box: Box, nodes: int) -> tuple[Tensor, Tensor]:
    lines, weights = [], []
    abscissae, gauss = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(nodes))
    for i, (low, high) in enumerate(box.bounds.T.tolist()):
        if i in box.integer_dims:
            line = torch.arange(low, high + 1.0, dtype=DTYPE)
            lines.append(line)
            weights.append(torch.full_like(line, 1.0 / len(line)))
        else:
            lines.append(low + 0.5 * (high - low) * (abscissae + 1.0))
            weights.append(0.5 * gauss)
    points = torch.stack(torch.meshgrid(*lines, indexing="ij"), dim=-1).reshape(-1, box.dim)
    product = torch.stack(torch.meshgrid(*weights, indexing="ij"), dim=-1).prod(-1).reshape(-1)
    return points.to(box.bounds), product.to(box.bounds)


def _sobol_set(box: Box, seed: int) -> tuple[Tensor, Tensor]:
    unit = torch.tensor([[0.0], [1.0]], dtype=DTYPE).expand(2, box.dim)
    points = draw_sobol_samples(unit, n=SOBOL_POINTS, q=1, seed=seed % 2**31).squeeze(-2)
    points = points.to(box.bounds)
    low, high = box.bounds
    scaled = low + (high - low) * points
    for i in box.integer_dims:
        # every whole number gets an equal share of [0, 1)
        scaled[:, i] = low[i] + torch.floor(points[:, i] * (high[i] - low[i] + 1.0))
    return torch.minimum(scaled, high), torch.full_like(points[:, 0], 1.0 / SOBOL_POINTS)
