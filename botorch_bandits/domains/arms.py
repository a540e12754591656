"""Finite sets of points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from botorch_bandits.checks import check_integer, check_matrix, check_vector
from botorch_bandits.domains.domain import Domain, Integral, evaluate, first_of_the_largest
from botorch_bandits.random_streams import derive_seed, seeded_globally


class Arms(Domain):
    """A finite set of points.

    Ties of an acquisition function are broken towards the smallest index: the chosen arm is the
    first whose value is within ``1e-9 * max(1, |largest value|)`` of the largest. Two correct
    programs that round differently therefore choose the same arm.

    Args:
        choices: A ``num_arms x d`` tensor or nested sequence, one arm a row, all distinct.

    Raises:
        TypeError: If ``choices`` is a tensor of another dtype than float64.
        ValueError: If it is empty, not a matrix, not finite, or two rows are equal.

    Example:
        >>> arms = Arms([[0.0], [0.5], [1.0]])
        >>> arms.num_arms, arms.dim
        (3, 1)
        >>> arms.index_of(torch.tensor([[1.0], [0.0]], dtype=torch.float64)).tolist()
        [2, 0]
    """

    def __init__(self, choices: Tensor | Sequence[Sequence[float]]) -> None:
        """See the class."""
        self.choices = check_matrix("choices", choices).detach().clone()
        if self.choices.numel() == 0:
            raise ValueError(
                f"choices has shape {tuple(self.choices.shape)}; at least one arm is needed."
            )
        # -0.0 and 0.0 are the same point
        self.choices = self.choices + 0.0
        self.num_arms, self.dim = self.choices.shape
        self._index: dict[tuple[float, ...], int] = {}
        for i, row in enumerate(self.choices.tolist()):
            first = self._index.setdefault(tuple(row), i)
            if first != i:
                raise ValueError(
                    f"choices rows {first} and {i} are the same point {row}; each arm may be "
                    "listed once. Remove repeats with torch.unique(choices, dim=0)."
                )

    def __repr__(self) -> str:
        """Show how many arms there are."""
        return f"Arms({self.num_arms} arms in {self.dim} dimensions)"

    @property
    def volume(self) -> float:
        """The number of arms (integrals over arms are sums)."""
        return float(self.num_arms)

    def sample(self, num_points: int, generator: torch.Generator | None = None) -> Tensor:
        """See :meth:`Domain.sample`."""
        num_points = check_integer("num_points", num_points, minimum=0)
        index = torch.randint(self.num_arms, (num_points,), generator=generator)
        return self.choices[index.to(self.choices.device)]

    def maximize(self, acquisition: AcquisitionFunction, seed: int = 0) -> tuple[Tensor, float]:
        """Evaluate every arm and take the first of the largest; see :meth:`Domain.maximize`."""
        with torch.no_grad(), seeded_globally(derive_seed(seed, 0, "maximize")):
            values = torch.cat([acquisition(c.unsqueeze(-2)) for c in self.choices.split(4096)])
        index = int(first_of_the_largest(values))
        return self.choices[index].clone(), float(values[index])

    def in_context(self, context: Tensor) -> Arms:
        """See :meth:`Domain.in_context`."""
        return Arms(torch.cat([context.expand(self.num_arms, -1), self.choices], dim=-1))

    def integrate(self, function: Callable[[Tensor], Tensor], seed: int = 0) -> Integral:
        """Sum over the arms, exactly; see :meth:`Domain.integrate`."""
        return Integral(float(evaluate(function, self.choices).sum()), 0.0)

    def check_point(self, name: str, x: Any) -> Tensor:
        """See :meth:`Domain.check_point`."""
        point = check_vector(name, x, length=self.dim).to(self.choices.device)
        return self.choices[self.index_of(point.unsqueeze(0), name)].squeeze(0)

    def index_of(self, X: Tensor, name: str = "X") -> Tensor:
        """Return the arm indices of the rows of ``X``.

        Args:
            X: An ``n x d`` tensor whose rows are arms, to the last bit.
            name: What to call ``X`` in an error.

        Returns:
            ``n`` indices (int64).

        Raises:
            ValueError: If a row is not an arm.
        """
        rows = check_matrix(name, X, num_columns=self.dim).tolist()
        try:
            index = [self._index[tuple(row)] for row in rows]
        except KeyError as error:
            row = list(error.args[0])
            distances = (self.choices - self.choices.new_tensor(row)).norm(dim=-1)
            nearest = int(distances.argmin())
            raise ValueError(
                f"{name} has the row {row}, which is not one of the {self.num_arms} arms (arm "
                f"{nearest} is nearest, at distance {float(distances[nearest]):.3g}). Take rows of "
                "Arms.choices unchanged."
            ) from None
        return torch.tensor(index, dtype=torch.long, device=self.choices.device)
