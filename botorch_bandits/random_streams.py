"""Random numbers as a pure function of (seed, round, purpose).

No generator state is ever stored: code that needs random numbers in round ``t`` derives a new
generator from the seed, the round and a word for the purpose. A loop that is rebuilt from its
history therefore draws what the uninterrupted loop would have drawn.

Settings that a user made in PyTorch for all threads or for the calling thread, namely the default
dtype and whether gradients are recorded, are also prevented from affecting results here.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.quasirandom import SobolEngine

__all__ = ["RandomBlocks", "derive_seed", "generator", "seeded_globally"]


def derive_seed(seed: int, round_number: int, purpose: str) -> int:
    """Return a 63-bit seed that depends only on the three arguments.

    Python's own ``hash`` is salted in every process, so a cryptographic digest is used.

    Args:
        seed: The user's seed.
        round_number: The round (or any other counter) within it.
        purpose: A word that keeps different uses in the same round independent.

    Example:
        >>> derive_seed(0, 1, "sample") == derive_seed(0, 1, "sample")
        True
        >>> derive_seed(0, 1, "sample") == derive_seed(0, 2, "sample")
        False
    """
    text = f"{seed}/{round_number}/{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def generator(seed: int, round_number: int, purpose: str) -> torch.Generator:
    """Return a CPU generator seeded by :func:`derive_seed`.

    Args:
        seed: The user's seed.
        round_number: The round (or any other counter) within it.
        purpose: A word that keeps different uses in the same round independent.
    """
    return torch.Generator().manual_seed(derive_seed(seed, round_number, purpose))


@contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed the global generators of PyTorch and Python inside the block, and restore them after it.

    BoTorch's optimizers and pathwise samplers draw from the global generators (from Python's if a
    category has more than 20 values); this makes them reproducible without disturbing the caller's
    own random numbers.

    Args:
        seed: A seed, usually from :func:`derive_seed`.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=list(devices)), _usual_sobol_points():
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        of_python = random.getstate()
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(of_python)


USUAL_DTYPE = torch.float32
"""The default dtype with which PyTorch starts. What GPyTorch and PyTorch round to it stays the same
whatever a user has set, so that results are the same to the last bit."""


def usual_dtype() -> AbstractContextManager[Any]:
    """Let modules of GPyTorch and BoTorch be built inside the block as with PyTorch's usual dtype.

    Bounds and priors that are given as Python numbers are rounded to the default dtype. This is a
    setting of the process, on which other threads may rely, so it is not changed: instead,
    everything created in this thread gets the usual dtype. No user's code may run inside the block.
    """
    return nullcontext() if torch.get_default_dtype() == USUAL_DTYPE else _UsualDtype()


def _usual_sobol_points() -> AbstractContextManager[Any]:
    """Let the first point of a Sobol sequence be rounded to the usual dtype inside the block."""
    return nullcontext() if torch.get_default_dtype() == USUAL_DTYPE else _UsualSobolPoints()


_MADE_FROM_NUMBERS = (
    torch.tensor,
    torch.as_tensor,
    torch.zeros,
    torch.ones,
    torch.empty,
    torch.full,
    torch.eye,
)


class _UsualDtype(TorchFunctionMode):
    """Gives the usual dtype to everything created without a dtype or with the default one."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        default = torch.get_default_dtype()
        if func in _MADE_FROM_NUMBERS and kwargs.get("dtype", default) in (None, default):
            made = func(*args, **{**kwargs, "dtype": None})
            if made.dtype == default and not (args and isinstance(args[0], Tensor)):
                return func(*args, **{**kwargs, "dtype": USUAL_DTYPE})
            return made
        if func is Tensor.to:
            args = tuple(USUAL_DTYPE if each is default else each for each in args)
            kwargs = {k: USUAL_DTYPE if v is default else v for k, v in kwargs.items()}
        return func(*args, **kwargs)


class _UsualSobolPoints(TorchFunctionMode):
    """``SobolEngine`` divides integers by this power of 2, in the default dtype."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (Tensor.div, Tensor.__truediv__) and len(args) == 2:
            number, power = args
            is_power = isinstance(power, int) and power == 2**SobolEngine.MAXBIT
            if is_power and isinstance(number, Tensor) and number.dtype == torch.int64:
                return func(number.to(USUAL_DTYPE), power)
        return func(*args, **(kwargs or {}))


class RandomBlocks:
    """Random numbers for each round of several streams, drawn in blocks of rounds.

    Creating a generator costs more than a round on arms; one generator per block of rounds costs
    almost nothing. The numbers are a pure function of seed, purpose, shape and round: neither the
    other streams nor the order in which rounds are requested matters.

    Args:
        seeds: One per stream.
        purpose: A word that keeps different uses of a seed independent.
        shape: The shape of the numbers of one round and stream.
        distribution: ``"normal"`` (standard), ``"uniform"`` or ``"exponential"`` (mean 1).
        device: The device of the numbers; they are drawn on the CPU, so that devices agree.
        transform: Applied to a whole block, ``rounds x num_streams x shape``, on the device.

    Example:
        >>> both, second = RandomBlocks([7, 8], "example"), RandomBlocks([8], "example")
        >>> torch.equal(both.at(5)[1:], second.at(5))
        True
    """

    def __init__(
        self,
        seeds: Sequence[int],
        purpose: str,
        shape: Sequence[int] = (),
        distribution: str = "normal",
        device: torch.device | str = "cpu",
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """See the class."""
        self._transform = transform
        self._seeds = tuple(seeds)
        self._purpose = purpose
        self._shape = tuple(shape)
        self._draw = DISTRIBUTIONS[distribution]  # functions with a name: blocks can be pickled
        self._device = torch.device(device)
        self._length = max(1, min(256, 2**17 // max(1, math.prod(shape))))
        self._number = -1
        self._block = torch.empty(0, dtype=torch.float64)

    def at(self, round_number: int) -> Tensor:
        """Return the numbers of a round, ``num_streams x shape`` unless transformed.

        Args:
            round_number: The round, from 1.
        """
        number, row = divmod(round_number - 1, self._length)
        if number != self._number:
            shape = (self._length, *self._shape)
            draws = [self._draw(shape, generator(s, number, self._purpose)) for s in self._seeds]
            # rounds first, so that each round is contiguous in memory
            block = torch.stack(draws, dim=1).to(self._device)
            self._block = block if self._transform is None else self._transform(block)
            self._number = number
        return self._block[row]


def _normal(shape: tuple[int, ...], stream: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=stream)


def _uniform(shape: tuple[int, ...], stream: torch.Generator) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=stream)


def _exponential(shape: tuple[int, ...], stream: torch.Generator) -> Tensor:
    return torch.empty(shape, dtype=torch.float64).exponential_(generator=stream)


DISTRIBUTIONS: dict[str, Callable[[tuple[int, ...], torch.Generator], Tensor]] = {
    "normal": _normal,
    "uniform": _uniform,
    "exponential": _exponential,
}
