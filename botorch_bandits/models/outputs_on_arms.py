r"""Several outputs on a finite set of arms, with one factor and a column of outcomes for each.

A reward and its constraints are observed at the same arms. If they have the same prior and noise,
they also have the same posterior covariance, so that all of them share the rows and variances of
:mod:`botorch_bandits.models.arms`. Only the means differ: output ``j`` has

.. math:: \mu_j \leftarrow \mu_j + \frac{y_j - \mu_{j, i}}{\sqrt{v_i + \lambda}} r

with the row ``r`` of the arm ``i`` that was played.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.models.arms import ArmsPosterior, ones_for_none
from botorch_bandits.models.prior_on_arms import ArmsPrior


class OutputsPosterior(ArmsPosterior):
    """The posteriors of several outputs of one stream that share prior, noise and arms.

    The attributes of :class:`ArmsPosterior` that depend on outcomes (``mean``, ``sums``,
    ``squares``) are those of the first output; variances, counts and information gain are the same
    for each.

    Args:
        prior: The prior covariance of the arms, the same for each output.
        lam: The regularization (modeled noise variance), the same for each output.
        num_outputs: The number of outputs.

    Example:
        >>> posterior = OutputsPosterior(torch.eye(2, dtype=torch.float64), 1.0, num_outputs=2)
        >>> posterior.observe_outputs(0, [2.0, -4.0])
        >>> posterior.means.round(decimals=9).tolist()
        [[1.0, 0.0], [-2.0, 0.0]]
    """

    def __init__(self, prior: ArmsPrior | Tensor, lam: float, num_outputs: int) -> None:
        """See the class."""
        super().__init__(prior, lam)
        self.num_outputs = num_outputs
        diagonal = self.prior.diagonal
        self._other_sums = diagonal.new_zeros(num_outputs - 1, self.num_arms)
        self._means = diagonal.new_zeros(num_outputs, self.num_arms)
        self._mean = self._means[:1]  # the first output's, in memory that it shares
        self._others: Iterator[Sequence[float]] = iter(())  # further outputs of the next outcomes
        self._share_memory()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is only used while outcomes are added."""
        state = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_in_numpy"} | {"_others": ()}

    @property
    def means(self) -> Tensor:
        """``num_outputs x num_arms`` posterior means, which change with the next observation."""
        return self._means

    def observe_outputs(self, arm: Tensor | int, outcomes: Sequence[float]) -> None:
        """Add one outcome of each output.

        Args:
            arm: The number of the arm.
            outcomes: ``num_outputs`` numbers.

        Raises:
            TypeError: If the arm number is not an integer. Nothing is changed then.
            ValueError: If there is no such arm, or the outcomes are not ``num_outputs`` finite
                numbers. Nothing is changed then.
        """
        self._check([outcomes])
        self._others = iter([outcomes[1:]])
        self.observe(arm, outcomes[0])

    def observe_many_outputs(
        self,
        arms: Sequence[int],
        outcomes: Sequence[Sequence[float]],
        weights: Sequence[float] | None = None,
    ) -> None:
        """Add a record, with the same result, to the last bit, as one round after the other.

        Args:
            arms: Arm numbers in order.
            outcomes: ``num_outputs`` numbers for each of them.
            weights: The weight of each round, for all its outputs; all are 1 if omitted.

        Raises:
            TypeError: If an arm number is not an integer.
            ValueError: If there are not as many outcomes as arms, there is no such arm, or
                outcomes are not ``num_outputs`` finite numbers.
        """
        self._check(outcomes)
        self._others = (each[1:] for each in outcomes)
        self.observe_many(arms, [each[0] for each in outcomes], weights)

    def deviations_of_draws(self, simulations: Tensor) -> Tensor:
        """Return the deviations of draws of outputs from their means, ``k x num_arms``.

        Args:
            simulations: ``k x 2 x num_arms``, from :meth:`simulate_prior`; one per output.
        """
        functions = simulations[:, 0]
        noise = (self._lam / ones_for_none(self._counts)).sqrt_()
        simulated = torch.addcmul(functions, noise, simulations[:, 1])
        return functions - self._gains_of_all(simulated)

    def _gains_of_all(self, simulated: Tensor) -> Tensor:
        """See :meth:`_gains_of`, for ``k x num_arms`` mean outcomes at once."""
        n = self._num_rows
        if self._base is None and n == 0:
            return torch.zeros_like(simulated)
        rows = self._rows[0, :n]
        if self._base is not None:
            weights = (simulated * self._counts / self._lam).mT
            gains = self._base[0] @ weights
            return (gains - rows.mT @ (rows @ weights)).mT
        arms = self._row_arms[0, :n]
        weights = torch.linalg.solve_triangular(
            self._factor()[0], simulated[:, arms].mT, upper=False
        )
        return weights.mT @ rows

    def _check(self, outcomes: Sequence[Sequence[float]]) -> None:
        for each in outcomes:
            if len(each) != self.num_outputs:
                raise ValueError(
                    f"outcomes has {len(each)} numbers per round, but there are {self.num_outputs} "
                    "outputs; give one for each."
                )
            if not all(map(math.isfinite, each)):
                raise ValueError(f"outcomes has {list(each)}; each must be finite.")

    def _share_memory(self) -> None:
        super()._share_memory()
        if hasattr(self, "_means") and self._means.device.type == "cpu":
            self._in_numpy = (self._means[1:].numpy(), self._other_sums.numpy())

    def __deepcopy__(self, memo: dict[int, Any]) -> OutputsPosterior:
        """Copy what was observed; the prior never changes."""
        copied = object.__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share memory again."""
        state = {**state, "_mean": state["_means"][:1]}
        super().__setstate__(state)

    def _observe_one(self, arm: int, outcome: float, weight: float = 1.0) -> None:
        super()._observe_one(arm, outcome, weight)
        self._observe_others(arm, weight)

    def _observe_batch(
        self, arm: Tensor, outcome: Tensor, mask: Tensor | None, weight: float = 1.0
    ) -> None:
        super()._observe_batch(arm, outcome, mask, weight)
        self._observe_others(int(arm), weight)

    def _observe_others(self, arm: int, weight: float) -> None:
        """Update the other means along the row that was added last."""
        outcomes, last = next(self._others), self._num_rows - 1
        if self._means.device.type == "cpu":
            means, sums = self._in_numpy
            row, scale = self._memory.rows[last], float(self._memory.row_scale[last])
            for outcome, mean, total in zip(outcomes, means, sums, strict=True):
                mean += row * ((outcome - float(mean[arm])) / scale)
                total[arm] += weight * outcome
            return
        values = self._means.new_tensor(outcomes)
        residuals = (values - self._means[1:, arm]).div_(self._row_scale[0, last])
        self._means[1:].addr_(residuals, self._rows[0, last])
        self._other_sums[:, arm] += weight * values

    def _add_up(
        self,
        index: NDArray[np.int64],
        outcomes: Sequence[float],
        weights: NDArray[np.float64] | None,
    ) -> None:
        super()._add_up(index, outcomes, weights)
        total = np.zeros(self._other_sums.shape)
        others = [next(self._others) for _ in outcomes]
        if others:
            values = np.array(others, dtype=np.float64)
            values = values if weights is None else values * weights[:, None]
            np.add.at(total.T, index, values)  # in order
        self._other_sums.copy_(torch.from_numpy(total))

    def _compact(self) -> None:
        super()._compact()
        self._means[1:] = self._gains_of_all(self._other_sums / ones_for_none(self._counts))

    def _forget(self, mask: Tensor) -> None:
        super()._forget(mask)
        if bool(mask.any()):
            self._other_sums.zero_()
            self._means.zero_()
