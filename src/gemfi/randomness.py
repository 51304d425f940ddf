"""Seeds, and torch's global generator, which only one thread at a time may use.

Dropout and the initial weights of layers draw from it, and cannot be given another.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator

import torch

_LOCK = threading.RLock()


def derived_seed(text: str) -> int:
    """A seed from the digest of a text, such as `<seed>:<epoch>`."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def derived_generator(text: str) -> torch.Generator:
    """A generator that begins with `derived_seed`."""
    return torch.Generator().manual_seed(derived_seed(text))


class OwnGenerator:
    """A state of torch's global CPU generator that belongs to one run."""

    def __init__(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Draw from this state where torch draws from its own; other threads of gemfi wait."""
        with _LOCK:
            outer = torch.get_rng_state()
            torch.set_rng_state(self.state)
            try:
                yield
            finally:
                self.state = torch.get_rng_state()
                torch.set_rng_state(outer)


@contextlib.contextmanager
def forked_generator(seed: int | None = None) -> Iterator[None]:
    """Leave torch's global generators as they were; other threads of gemfi wait.

    Args:
        seed: to begin with; None draws on from where the generators are.
    """
    with _LOCK, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        if seed is not None:
            torch.manual_seed(seed)
        yield
