"""Random numbers as a pure function of (seed, round, purpose).

No generator state is ever stored: whoever needs random numbers in round ``t`` derives a fresh
generator from the seed, the round and a word for the purpose. A loop that is rebuilt from its
history therefore draws what the uninterrupted loop would have drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(seed: int, round_number: int, purpose: str) -> int:
    """Return a 63-bit seed that depends on all three arguments and on nothing else.

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
    """Return a CPU generator seeded by :func:`derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(seed, round_number, purpose))


@contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed torch's global generators inside the block and restore them behind it.

    BoTorch's optimisers and pathwise samplers draw from the global generator; this makes them
    reproducible without disturbing the caller's own random numbers.

    Args:
        seed: A seed, usually from :func:`derive_seed`.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=list(devices)):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        yield
