r"""The exact posterior on a finite set of arms, at a cost a round that does not grow with time.

What was observed is kept as sufficient statistics: count ``n_i``, sum and sum of squares of the
outcomes of each arm. Several observations of one arm are one observation of their mean with
noise variance ``lam / n_i``. The posterior covariance is

.. math:: S = S_0 - R^\top R

with rows ``R`` that grow by one an observation (``r = S_i / sqrt(v_i + lam)``, with ``S_i`` the
column of the arm that was played and ``v_i`` its variance), and

.. math:: \mu \leftarrow \mu + \frac{y - \mu_i}{\sqrt{v_i + \lambda}} r, \qquad
          v \leftarrow v - r^2 .

When the buffer of rows is full, one of two things happens. Where few distinct arms ``P`` were
played, ``R`` becomes :math:`L^{-1} K_P` with ``L`` the Cholesky factor of
:math:`K_{PP} + \mathrm{diag}(\lambda / n)`, and ``S_0`` stays the prior: no matrix of all arms is
ever needed. Otherwise the rows are folded into a dense ``S_0``. Every few thousand rounds the
statistics are factorised afresh, so rounding errors do not build up, and a posterior that is
rebuilt from a long record need not replay all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.checks import check_finite, check_integer, check_positive
from botorch_bandits.models.arms_factor import ArmsFactor
from botorch_bandits.models.arms_prior import ArmsPrior


class ArmsPosterior(ArmsFactor):
    """Posterior mean and covariance of all arms, with a running information gain.

    A leading batch dimension holds independent replicates that share prior and regularisation.

    Args:
        prior: The prior covariance of the arms, or a ``num_arms x num_arms`` matrix of it, float64.
        lam: The regularisation (modelled noise variance), in the same units; one number, or a
            float64 tensor of ``batch_shape``.
        batch_shape: ``()`` for one stream of observations, ``(B,)`` for replicates.

    Attributes:
        prior: The prior.
        lam: The regularisation as it was given.
        batch_shape: The shape of the replicates.

    Example:
        >>> posterior = ArmsPosterior(torch.eye(2, dtype=torch.float64), lam=1.0)
        >>> posterior.observe(torch.tensor(0), torch.tensor(2.0, dtype=torch.float64))
        >>> posterior.mean.round(decimals=9).tolist()
        [1.0, 0.0]
    """

    def __init__(
        self, prior: ArmsPrior | Tensor, lam: float | Tensor, batch_shape: Sequence[int] = ()
    ) -> None:
        """See the class."""
        prior = prior if isinstance(prior, ArmsPrior) else ArmsPrior.from_matrix(prior)
        self.batch_shape = torch.Size(batch_shape)
        if len(self.batch_shape) > 1:
            raise ValueError(f"batch_shape is {tuple(batch_shape)}; it must be () or (B,).")
        num_replicates = self.batch_shape[0] if self.batch_shape else 1
        diagonal = prior.diagonal
        if isinstance(lam, Tensor):
            for level in lam.reshape(-1).tolist():
                check_positive("lam", level)
        else:
            lam = check_positive("lam", lam)
        self.lam = lam
        levels = torch.as_tensor(lam, dtype=diagonal.dtype, device=diagonal.device)
        # one row a replicate, so that it broadcasts over arms
        super().__init__(prior, levels.expand(num_replicates).unsqueeze(-1).clone())
        # chosen so that a fresh factorisation costs less than the rounds between two of them
        self._rounds, self._rounds_between = 0, max(1024, 4 * self.num_arms)

    @property
    def regularisation(self) -> Tensor:
        """``batch_shape``; the regularisation."""
        return self._outside(self._lam.squeeze(-1).clone())

    @property
    def mean(self) -> Tensor:
        """``batch_shape x num_arms``; it changes with the next observation, so clone it to keep."""
        return self._outside(self._mean)

    @property
    def variance(self) -> Tensor:
        """``batch_shape x num_arms``; at least 0."""
        return self.clamped_variance(0.0)

    def clamped_variance(self, smallest: float) -> Tensor:
        """Return the variances, ``batch_shape x num_arms``, at least ``smallest``."""
        return self._outside(self._variance.clamp_min(smallest))

    @property
    def standard_deviation(self) -> Tensor:
        """``batch_shape x num_arms``."""
        return self.variance.sqrt_()

    @property
    def information_gain(self) -> Tensor:
        """``batch_shape``; ``1/2 ln det(I + K / lam)`` of all observations, in nats."""
        return self._outside(self._gain).clone()

    @property
    def counts(self) -> Tensor:
        """``batch_shape x num_arms``; how often each arm was observed, float64."""
        return self._outside(self._counts).clone()

    @property
    def sums(self) -> Tensor:
        """``batch_shape x num_arms``; the sum of the outcomes of each arm."""
        return self._outside(self._sums).clone()

    @property
    def squares(self) -> Tensor:
        """``batch_shape x num_arms``; the sum of the squared outcomes of each arm."""
        return self._outside(self._squares).clone()

    @property
    def covariance(self) -> Tensor:
        """``batch_shape x num_arms x num_arms``, computed when asked for."""
        index = torch.arange(self.num_arms, device=self._mean.device)
        return self.covariance_columns(index.expand(*self.batch_shape, -1))

    def observe(
        self, arm: Tensor | int, outcome: Tensor | float, mask: Tensor | None = None
    ) -> None:
        """Take in one outcome a replicate.

        Args:
            arm: ``batch_shape`` arm numbers.
            outcome: ``batch_shape`` outcomes, float64.
            mask: ``batch_shape``; replicates where it is False observe nothing.

        Raises:
            TypeError: If an arm number is not an integer. Nothing is changed then.
            ValueError: If there is no such arm, or an outcome that counts is not finite. Nothing is
                changed then.
        """
        if len(self._gain) == 1 and mask is None and self._mean.device.type == "cpu":
            value = float(outcome)
            if not math.isfinite(value):
                raise ValueError(f"outcome is {value}; it must be finite.")
            self._observe_one(self._arm_number(arm), value)
        else:
            shape = self._gain.shape
            arms = self._arm_numbers(arm)
            outcomes = self._tensor(outcome).expand(shape)
            active = None if mask is None else mask.expand(shape)
            if active is not None:
                outcomes = outcomes.where(active, torch.zeros_like(outcomes))
            check_finite("outcome", outcomes)
            self._observe_batch(arms, outcomes, active)
        self._rounds += 1
        if self._rounds % self._rounds_between == 0:
            self.refactorise()

    def observe_many(self, arms: Sequence[int], outcomes: Sequence[float]) -> None:
        """Take in a record of one stream; the same, to the last bit, as one after the other.

        Args:
            arms: Arm numbers in order.
            outcomes: Their outcomes.

        Raises:
            TypeError: If an arm number is not an integer.
            ValueError: If there are not as many outcomes as arms, there is no such arm, or an
                outcome is not finite.
        """
        if len(arms) != len(outcomes):
            raise ValueError(
                f"arms has {len(arms)} entries and outcomes {len(outcomes)}; give one outcome an "
                "arm that was played."
            )
        skipped = 0
        if self._rounds == 0 and not self.batch_shape:
            # up to the last fresh factorisation only the statistics matter
            skipped = len(arms) // self._rounds_between * self._rounds_between
            index = np.array([self._arm_number(arm) for arm in arms[:skipped]], dtype=np.int64)
            values = np.array(outcomes[:skipped], dtype=np.float64)
            check_finite("outcomes", torch.from_numpy(values))
            for statistic, power in zip(self._statistics, (0, 1, 2), strict=True):
                total = np.zeros(self.num_arms)
                np.add.at(total, index, values**power)  # adds in order, as single rounds do
                statistic[0] = torch.from_numpy(total).to(statistic)
            self._rounds = skipped
            if skipped:
                self.refactorise()
        for arm, outcome in zip(arms[skipped:], outcomes[skipped:], strict=True):
            self.observe(arm, outcome)

    def change_outcome(self, arm: Tensor | int, old: Tensor | float, new: Tensor | float) -> None:
        """Replace one past outcome of an arm by another, in each replicate.

        Args:
            arm: ``batch_shape`` arm numbers.
            old: ``batch_shape`` outcomes as they were told.
            new: ``batch_shape`` outcomes in their place; equal ones change nothing.

        Raises:
            TypeError: If an arm number is not an integer.
            ValueError: If there is no such arm, an arm was never observed or a new outcome is not
                finite.
        """
        shape = self._gain.shape
        arms = self._arm_numbers(arm)
        before = self._tensor(old).expand(shape)
        after = check_finite("new", self._tensor(new).expand(shape))
        index = arms.unsqueeze(-1)
        if not bool((self._counts.gather(-1, index) > 0).all()):
            raise ValueError(f"arm is {arms.tolist()}; an outcome of it was never observed.")
        change = (after - before).unsqueeze(-1)
        self._sums.scatter_add_(-1, index, change)
        self._squares.scatter_add_(-1, index, (after**2 - before**2).unsqueeze(-1))
        self._mean += self._columns(index).squeeze(-2) * (change / self._lam)

    def relabel(self, sums: Tensor, squares: Tensor | None = None) -> None:
        """Replace all outcomes; what was observed how often stays.

        Args:
            sums: ``batch_shape x num_arms``; the new sum of the outcomes of each arm. Arms that
                were not observed do not count.
            squares: Likewise of the squares, where they are needed.
        """
        check_finite("sums", sums)
        self._sums.copy_(sums).mul_(self._counts > 0)
        if squares is not None:
            self._squares.copy_(check_finite("squares", squares)).mul_(self._counts > 0)
        self.refactorise()

    def reset(self, mask: Tensor | None = None) -> None:
        """Forget everything, in all replicates or where ``mask`` (``batch_shape``) is True."""
        if mask is None or bool(mask.all()):
            self._rounds = 0
            self._forget_all()
        else:
            self._forget(mask.expand(self._gain.shape))

    def covariance_columns(self, index: Tensor) -> Tensor:
        """Return posterior covariances of some arms with all arms.

        Args:
            index: ``batch_shape x k`` arm numbers.

        Returns:
            A ``batch_shape x k x num_arms`` tensor.
        """
        return self._outside(self._columns(index if self.batch_shape else index.unsqueeze(0)))

    def variance_given(self, index: Tensor) -> Tensor:
        """Return the variances if some arms were observed once more, whatever the outcomes.

        Args:
            index: ``batch_shape x k`` arm numbers, repeats allowed.

        Returns:
            A ``batch_shape x num_arms`` tensor, at least 0.
        """
        index = index if self.batch_shape else index.unsqueeze(0)
        columns = self._columns(index)
        block = columns.gather(-1, index.unsqueeze(-2).expand(*index.shape, index.shape[-1]))
        block.diagonal(dim1=-2, dim2=-1).add_(self._lam)
        rows = torch.linalg.solve_triangular(torch.linalg.cholesky(block), columns, upper=False)
        return self._outside((self._variance - rows.square().sum(-2)).clamp_min(0.0))

    @property
    def num_normals(self) -> int:
        """How many standard normal numbers one draw takes."""
        return len(self.prior.root) + self.num_arms

    def simulate_prior(self, normal: Tensor) -> Tensor:
        """Turn normal numbers into what :meth:`correct` needs; many draws at once are cheaper.

        Args:
            normal: ``... x num_normals`` independent standard normal numbers.

        Returns:
            A ``... x 2 x num_arms`` tensor: a function drawn from the prior, and normal numbers for
            the noise of its simulated observations.
        """
        rank = len(self.prior.root)
        return torch.stack([normal[..., :rank] @ self.prior.root, normal[..., rank:]], dim=-2)

    def sample(self, normal: Tensor) -> Tensor:
        """Draw jointly over all arms, exactly, one draw a replicate.

        A function is drawn from the prior and corrected by kriging (Matheron's rule), so the
        covariance needs no root. Equal numbers give equal draws, whatever the form of ``S_0``.

        Args:
            normal: ``batch_shape x num_normals`` independent standard normal numbers.

        Returns:
            A ``batch_shape x num_arms`` tensor.
        """
        return self.correct(self.simulate_prior(normal))

    def correct(self, simulation: Tensor) -> Tensor:
        """Turn draws from the prior into draws from the posterior; see :meth:`sample`.

        Args:
            simulation: ``batch_shape x 2 x num_arms``, from :meth:`simulate_prior`.
        """
        simulation = simulation.reshape(len(self._gain), 2, self.num_arms)
        function = simulation[:, 0]
        noise = (self._lam / self._counts.clamp_min(1.0)).sqrt_().mul_(simulation[:, 1])
        simulated = noise.add_(function)  # the mean outcome of each arm, were this the truth
        return self._outside(self._mean + function - self._gains_of(simulated))

    def _arm_number(self, arm: Tensor | int) -> int:
        number = arm if type(arm) is int else check_integer("arm", arm, minimum=0)
        if not 0 <= number < self.num_arms:
            raise ValueError(self._no_such_arm(number))
        return number

    def _arm_numbers(self, arm: Tensor | int) -> Tensor:
        arms = torch.as_tensor(arm, device=self._mean.device)
        if arms.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"arm has dtype {arms.dtype}, but arm numbers are integers (int64).")
        if arms.device.type == "cpu":  # a GPU would have to be waited for, and refuses them itself
            smallest, largest = (int(end) for end in arms.aminmax())
            if smallest < 0 or largest >= self.num_arms:
                raise ValueError(self._no_such_arm(smallest if smallest < 0 else largest))
        return arms.long().expand(self._gain.shape)

    def _no_such_arm(self, number: int) -> str:
        return (
            f"arm is {number}, but the {self.num_arms} arms are numbered from 0 to "
            f"{self.num_arms - 1}."
        )

    def _tensor(self, value: Tensor | float) -> Tensor:
        return torch.as_tensor(value, dtype=self._mean.dtype, device=self._mean.device)

    def _outside(self, value: Tensor) -> Tensor:
        return value if self.batch_shape else value[0]
