"""Features of many inputs, a batch at a time: in memory, or in a file that outlives a kill.

The one way in which features are extracted, whatever the network: `frozen_features` and `fit` with
a frozen backbone both go through it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from tqdm import tqdm

from gemfi._files import hold_lock
from gemfi.errors import InputError
from gemfi.training.growing import NAME, Growing
from gemfi.training.stored import read_tensors

SECONDS: Final = 10.0
"""Work that a kill may cost: features are written for good whenever so much time has passed."""


def _nothing() -> None:
    """What is done between batches unless something else is wanted."""


@dataclass(frozen=True, eq=False)
class Extraction:
    """What is to be computed.

    The batches are the same however often the work is broken off, and with them the features, bit
    for bit (on one machine, with as many threads).

    Attributes:
        run: a batch of inputs (B, ...) to features (B, D).
        inputs: (N, ...), N at least 1.
        width: D.
        batch: inputs at a time.
        name: of the inputs, for the progress bar and the file.
        progress: whether to show a bar; None: if standard error is a terminal.
        pause: called between batches; what it raises ends the work.
    """

    run: Callable[[Tensor], Tensor]
    inputs: Tensor
    width: int
    batch: int = 64
    name: str = "inputs"
    progress: bool | None = None
    pause: Callable[[], None] = _nothing

    def in_memory(self) -> Tensor:
        """The features (N, D), float32."""
        features = torch.empty(len(self.inputs), self.width)
        for start, z in self._batches(0):
            features[start : start + len(z)] = z
        return features

    def stored(self, file: Path) -> Tensor | None:
        """The features in a file, mapped and not read; None where there is no file yet."""
        found = read_tensors(file, "delete it", mapped=True)
        if found is None:
            return None
        features = found[0].get(NAME)
        if features is None or features.shape != (len(self.inputs), self.width):
            raise InputError(
                f"{file} does not hold the features of {len(self.inputs)} inputs; delete it"
            )
        return features

    def kept(self, file: Path) -> Tensor:
        """The features in a file, which is filled first where that was not done, or not all.

        One process works in a folder at a time, since it takes all cores anyway; another one that
        wants the same features waits and finds them.

        Args:
            file: of these inputs and this network alone, ending in `.safetensors`.
        """
        found = self.stored(file)
        if found is not None:
            return found
        file.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(file.with_name(".lock"), self._waiting):
            found = self.stored(file)  # it may have come
            if found is None:
                self._fill(file)
                found = self.stored(file)
        if found is None:
            raise InputError(f"{file} went while it was being read; start again")
        return found

    def _waiting(self) -> None:
        if self.progress is not False:
            print("waiting for another process to extract features", file=sys.stderr)

    def _fill(self, file: Path) -> None:
        growing = Growing(file, len(self.inputs), self.width, self.name)
        block: list[Tensor] = []
        since = time.monotonic()
        try:
            for _, z in self._batches(growing.done):
                block.append(z)
                if time.monotonic() - since >= SECONDS:
                    growing.append(torch.cat(block))
                    block, since = [], time.monotonic()
        finally:  # what is broken off politely loses nothing
            if block:
                growing.append(torch.cat(block))
        growing.finish()

    @torch.no_grad()
    def _batches(self, first: int) -> Iterator[tuple[int, Tensor]]:
        """From the input `first` on, at which a batch begins: its first input, and its features."""
        total = len(self.inputs)
        with tqdm(
            total=total,
            initial=first,
            desc=f"features of {self.name}",
            unit="input",
            disable=None if self.progress is None else not self.progress,
            leave=False,
        ) as bar:
            for start in range(first, total, self.batch):
                if start > first:
                    self.pause()
                z = self.run(self.inputs[start : start + self.batch])
                yield start, z.detach().to("cpu", torch.float32)
                bar.update(len(z))
