"""Seeds, and torch's global generator, which only one thread at a time may use.

Dropout and the initial weights of layers draw from it, and cannot be given another.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_LOCK = threading.RLock()


def derived_seed(text: str) -> int:
    """A seed from the digest of a text, such as `<seed>:<epoch>`."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def derived_generator(text: str) -> torch.Generator:
    """A generator that begins with `derived_seed`."""
    return torch.Generator().manual_seed(derived_seed(text))


class OwnGenerators:
    """States of the global generators of torch (on the CPU), numpy and Python that are one's own.

    Args:
        seed: with which they begin.
    """

    def __init__(self, seed: int) -> None:
        with _LOCK:
            outer = _states()
            seed_globals(seed)
            self._states = _states()
            _set_states(outer)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Draw from these states in place of the process's; other threads of gemfi wait."""
        with _LOCK:
            outer = _states()
            _set_states(self._states)
            try:
                yield
            finally:
                self._states = _states()
                _set_states(outer)


def seed_globals(seed: int) -> None:
    """Seed the global generators of torch (on the CPU), numpy and Python."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002 - what others wrote draws from it
    random.seed(seed)


def _states() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002


def _set_states(states: tuple[Any, Any, Any]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    random.setstate(states[2])


@contextlib.contextmanager
def forked_generator(seed: int | None = None, device: torch.device | None = None) -> Iterator[None]:
    """Leave torch's global generators as they were; other threads of gemfi wait.

    Args:
        seed: to begin with; None draws on from where the generators are.
        device: beside the CPU.
    """
    is_cuda = device is not None and device.type == "cuda" and torch.cuda.is_available()
    with _LOCK, torch.random.fork_rng(devices=[device] if is_cuda else []):
        if seed is not None:
            torch.manual_seed(seed)
        yield
