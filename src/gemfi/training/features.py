"""Features that are computed once: in memory, or in files that outlive a kill.

`Extraction` is the one way in which features of many inputs are computed, whatever the network.
`fit` on a frozen backbone goes through it, so that the head trains on features alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from tqdm import tqdm

from gemfi._files import appending, hold_lock, sync_folder, write_atomically
from gemfi.data.splits import AnySplit, Rows, Split
from gemfi.data.streams import Stream
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.processes import agree
from gemfi.randomness import forked_generator
from gemfi.training.run_data import RunData

SAVE_SECONDS = 10.0
"""Work that a kill may cost: features are written for good whenever so much time has passed."""

_CACHE_VERSION: Final = 2  # raise it when the same inputs and weights give other features
_CACHE_BATCH: Final = 64
_TOLERANCE: Final = 1e-3  # of the largest feature: another number of threads rounds differently


# -- tensors in a file -----------------------------------------------------------------------------


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of names, types, shapes and numbers, in any order of the names."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name}:{tensor.dtype}:{tuple(tensor.shape)}\n".encode())
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def write_tensors(file: Path, tensors: Mapping[str, Tensor], **header: str) -> None:
    """Write tensors whole or not at all, with their checksum in the header.

    One process at a time: hold a lock.
    """
    given = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_atomically(file, save(given, metadata={**header, "digest": digest_of(given)}))


def read_tensors(
    file: Path, remedy: str, *, mapped: bool = False
) -> tuple[dict[str, Tensor], str] | None:
    """The tensors of a file and their checksum; None where there is no file.

    Args:
        file: as `write_tensors` left it.
        remedy: what to do if it is damaged, for the message.
        mapped: leave the numbers in the file, which then must stay as it is: they take memory only
            while they are looked at. What is written to them is seen by no one else.
    """
    try:
        with safe_open(file, framework="pt") as stored:
            header = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            if not mapped:  # copies: what is only mapped would change, or fail, with the file
                tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    except FileNotFoundError:
        return None
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        # the last two where a damaged header names a type that torch lacks
        raise InputError(f"cannot read {file}: {error}; {remedy}") from error
    digest = digest_of(tensors)
    if header.get("digest") != digest:
        raise InputError(f"{file} is damaged: it is not what was stored; {remedy}")
    return tensors, digest


def _bytes_of(tensor: Tensor) -> memoryview:
    """The numbers of a tensor of any type, in order; not a copy where it is contiguous."""
    view: memoryview = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data
    return view


class GrowingFile:
    """Float32 rows (N, D) on their way into a safetensors file, written by whoever may be killed.

    Two files stand beside the one that is wanted. `.part` begins like it and grows at its end.
    `.rows` says how many of its rows are there for certain, and what their digest is. After a kill
    the rows that `.rows` vouches for stay, and the rest is cut off; if they are not what it says,
    all begins anew. When all rows are there, `.part` becomes the file that `write_tensors` would
    have written. One process at a time: hold a lock.

    Args:
        file: that is wanted, ending in `.safetensors`.
        rows: N.
        width: D.
        name: of what is stored, for who looks into the file.
    """

    TENSOR: Final = "features"
    _UNKNOWN: Final = "0" * 32  # stands where the digest will, and is as long

    def __init__(self, file: Path, rows: int, width: int, name: str = "") -> None:
        self.file, self.rows, self.row_bytes = file, rows, 4 * width
        self.part, self.journal = file.with_suffix(".part"), file.with_suffix(".rows")
        entry = {"dtype": "F32", "shape": [rows, width], "data_offsets": [0, rows * self.row_bytes]}
        metadata = {"digest": self._UNKNOWN, "name": name}
        text = json.dumps({"__metadata__": metadata, self.TENSOR: entry}, separators=(",", ":"))
        text = text.ljust(-(-len(text) // 8) * 8)  # safetensors aligns headers with spaces
        self._header = len(text).to_bytes(8, "little") + text.encode()
        self._first = f"\n{self.TENSOR}:{torch.float32}:{(rows, width)}\n".encode()
        self.done, self._digest = self._certain_rows()
        if self.done == 0:
            write_atomically(self.part, self._header)
        os.truncate(self.part, len(self._header) + self.done * self.row_bytes)

    def append(self, rows: Tensor) -> None:
        """Add the next rows (B, D) for good: they last through a kill, and a power cut."""
        block = _bytes_of(rows)
        with appending(self.part) as file:
            file.write(block)
        self._digest.update(block)
        self.done += len(rows)
        write_atomically(self.journal, f"{self.done} {self._digest.hexdigest()}".encode())

    def finish(self) -> None:
        """Put the digest in its place, and the file in its own."""
        with self.part.open("r+b") as file:
            file.seek(self._header.index(self._UNKNOWN.encode()))
            file.write(self._digest.hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        self.part.replace(self.file)
        sync_folder(self.file.parent)
        self.journal.unlink()

    def _certain_rows(self) -> tuple[int, hashlib.blake2b]:
        """How many rows are there as the journal says, and their digest so far."""
        digest = hashlib.blake2b(self._first, digest_size=16)
        if not (self.part.exists() and self.journal.exists()):
            return 0, digest
        count, _, stated = self.journal.read_bytes().partition(b" ")
        rows = int(count) if count.isdigit() else 0
        with self.part.open("rb") as file:
            intact = file.read(len(self._header)) == self._header and 0 < rows <= self.rows
            for _ in range(rows if intact else 0):
                digest.update(file.read(self.row_bytes))
        if intact and digest.hexdigest().encode() == stated:
            return rows, digest
        return 0, hashlib.blake2b(self._first, digest_size=16)


# -- extraction ------------------------------------------------------------------------------------


def _no_pause() -> None:
    """What is done between batches unless something else is wanted."""


@dataclass(frozen=True, eq=False)
class Extraction:
    """What is to be computed.

    The batches are the same however often the work is broken off, and with them the features, bit
    for bit (on one machine, with as many threads).

    Attributes:
        run: a batch of inputs (B, ...) to features (B, D).
        inputs: (N, ...), N at least 1: a tensor, or a split with rows.
        width: D.
        labels: whether the labels of a split stand beside its features, in a last column.
        batch: inputs at a time.
        name: of the inputs, for the progress bar and the file.
        progress: whether to show a bar; None: if standard error is a terminal.
        pause: called between batches; what it raises ends the work.
    """

    run: Callable[[Tensor], Tensor]
    inputs: Tensor | AnySplit
    width: int
    labels: bool = False
    batch: int = 64
    name: str = "inputs"
    progress: bool | None = None
    pause: Callable[[], None] = _no_pause

    @property
    def columns(self) -> int:
        """D, and one for the labels."""
        return self.width + self.labels

    def in_memory(self) -> Tensor:
        """The features (N, D), float32."""
        features = torch.empty(len(self.inputs), self.columns)
        for start, z in self._batches(0):
            features[start : start + len(z)] = z
        return features

    def stored(self, file: Path) -> Tensor | None:
        """The features in a file, mapped and not read; None where there is no file yet."""
        contents = read_tensors(file, "delete it", mapped=True)
        if contents is None:
            return None
        features = contents[0].get(GrowingFile.TENSOR)
        if features is None or features.shape != (len(self.inputs), self.columns):
            raise InputError(
                f"{file} does not hold the features of {len(self.inputs)} inputs; delete it"
            )
        return features

    def cached(self, file: Path) -> Tensor:
        """The features in a file, which is filled first where that was not done, or not all.

        One process works in a folder at a time, since it takes all cores anyway; another one that
        wants the same features waits and finds them.

        Args:
            file: of these inputs and this network alone, ending in `.safetensors`.
        """
        features = self.stored(file)
        if features is not None:
            return features
        file.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(file.with_name(".lock"), self._say_waiting):
            features = self.stored(file)  # another process may have filled it
            if features is None:
                self._fill(file)
                features = self.stored(file)
        if features is None:
            raise InputError(f"{file} went while it was being read; start again")
        return features

    def _say_waiting(self) -> None:
        if self.progress is not False:
            print("waiting for another process to extract features", file=sys.stderr)

    def _fill(self, file: Path) -> None:
        growing = GrowingFile(file, len(self.inputs), self.columns, self.name)
        unsaved: list[Tensor] = []
        saved_at = time.monotonic()
        try:
            for _, z in self._batches(growing.done):
                unsaved.append(z)
                if time.monotonic() - saved_at >= SAVE_SECONDS:
                    growing.append(torch.cat(unsaved))
                    unsaved, saved_at = [], time.monotonic()
        finally:  # an exception or Ctrl-C loses nothing
            if unsaved:
                growing.append(torch.cat(unsaved))
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
            start = first
            for x, y in self._pieces(first):
                if start > first:
                    self.pause()
                z = self.run(x).detach().to("cpu", torch.float32)
                if self.labels and y is not None:
                    z = torch.cat([z, y[:, None].to(z)], dim=1)
                yield start, z
                start += len(z)
                bar.update(len(z))

    def _pieces(self, first: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        starts = range(first, len(self.inputs), self.batch)
        if isinstance(self.inputs, Tensor):
            for start in starts:
                yield self.inputs[start : start + self.batch], None
            return
        ends = (min(start + self.batch, len(self.inputs)) for start in starts)
        yield from self.inputs.read(
            Rows(torch.arange(start, end), "features")
            for start, end in zip(starts, ends, strict=True)
        )


# -- the features of a frozen backbone -------------------------------------------------------------


def weights_digest(backbone: nn.Module) -> str:
    """A checksum of all weights and statistics of a backbone, and of how it is put together."""
    return _text_digest(f"{digest_of(backbone.state_dict())}:{backbone!r}")


def featurised(
    model: Model,
    data: RunData,
    folder: Path | None,
    interrupted: threading.Event,
    progress: bool | None,
) -> RunData:
    """The data with features (N, D) in place of the inputs, and all else as it was.

    Args:
        model: with a frozen backbone.
        data: of its inputs.
        folder: where to keep the features, in files that are known by weights and inputs; None to
            hold them in memory.
        interrupted: if it is set, KeyboardInterrupt ends the work between two batches. In a folder
            nothing is lost.
        progress: a progress bar, as of `fit`.
    """

    def pause() -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt

    def features_of(split: AnySplit) -> AnySplit:
        pause()
        beside = isinstance(split, Stream) and split.has_labels
        work = Extraction(
            lambda x: model.embed(x, _CACHE_BATCH),
            split,
            model.head.num_features,
            labels=beside,
            batch=_CACHE_BATCH,
            name=split.name,
            progress=progress,
            pause=pause,
        )
        z = work.in_memory() if folder is None else _from_cache(work, split, folder, model)
        y = split.y if isinstance(split, Split) else z[:, -1].long() if beside else None
        z = z[:, :-1] if beside else z
        return Split(z, y, split.role, split.name, split.num_classes, split.class_names)

    with forked_generator():  # a network may draw, and a run that goes on draws less
        return data.map_splits(features_of)


def _from_cache(work: Extraction, split: AnySplit, folder: Path, model: Model) -> Tensor:
    """Features in a folder; they are computed again where the code of the network has changed."""
    given = {}  # other weights, inputs or another normalisation: another file
    if model.input_mean is not None and model.input_std is not None:
        given = {"mean": model.input_mean, "std": model.input_std}
    facts = f"{_CACHE_VERSION}:{_CACHE_BATCH}:{work.labels}:{split.checksum()}:{digest_of(given)}"
    file = folder / f"{_text_digest(f'{facts}:{weights_digest(model.backbone)}')}.safetensors"
    agree(lambda: work.cached(file) is None)  # one process fills it
    features = work.cached(file)
    x, _ = next(work._pieces(0))
    now, then = work.run(x), features[: work.batch, : work.width]
    if not torch.allclose(now, then, rtol=_TOLERANCE, atol=_TOLERANCE * float(now.abs().max())):
        file.unlink()
        features = work.cached(file)
    return features


def _text_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
