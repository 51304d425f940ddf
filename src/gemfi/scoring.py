"""A trained model on files: any number of inputs in a bounded memory.

Files become pieces of inputs (`stream_inputs`), pieces become rows, and rows are written as they
come (`writer`). An input that cannot be read or judged has a row that says why.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from gemfi._files import replacing, to_json
from gemfi.answers import Answers, Table
from gemfi.bundle import Bundle
from gemfi.data.readers import channels_first
from gemfi.data.readers.arrays import stream_array
from gemfi.data.readers.base import ROWS, Piece
from gemfi.data.readers.images import is_image, stream_images
from gemfi.data.readers.tables import parquet_modules, stream_csv, stream_parquet
from gemfi.decisions import Policy
from gemfi.errors import InputError
from gemfi.scores import MAIN, available

SHOWN: Final = 20
"""Rows that are kept to be shown."""

WRITTEN: Final = tuple(name for name in MAIN if name != "max_prob")  # the confidence tells it
"""Scores that have a column, where the method has them; higher is more uncertain."""

_NUMBERS: Final = 1 << 24  # of an array that are read at a time, so that large images are few

_ENDINGS: Final = (".csv", ".jsonl", ".parquet")

Column = tuple[str, type]
Reader = Callable[[Path, Bundle], Iterator[Piece]]
Write = Callable[[Sequence[Sequence[Any]]], None]


@dataclass
class Scored:
    """What was done: how many inputs there were, with which verdicts and labels."""

    columns: list[Column]
    count: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    failed: int = 0  # inputs that could not be read
    first: list[list[Any]] = field(default_factory=list)

    def add(self, rows: list[list[Any]]) -> None:
        """Count rows, and keep the first."""
        names = [name for name, _ in self.columns]
        self.first += rows[: max(0, SHOWN - len(self.first))]
        self.count += len(rows)
        self.failed += sum(bool(row[-1]) for row in rows)
        for name, counter in (("label", self.labels), ("verdict", self.verdicts)):
            if name in names:
                counter.update(row[names.index(name)] for row in rows if not row[-1])


def score_files(
    bundle: Bundle,
    inputs: Sequence[Path | str],
    out: Path | None = None,
    *,
    policy: Policy | None = None,
    probs: bool = False,
    batch_size: int = 512,
    progress: bool | None = None,
) -> Scored:
    """Ask a model about files; an input that cannot be read has a row that says why.

    Args:
        bundle: the model.
        inputs: images, folders of images, `.npy`, `.npz`, `.csv`, `.parquet`.
        out: `.csv`, `.jsonl` or `.parquet`; None to write nothing.
        policy: adds a verdict and a p-value.
        probs: add the probability of each class.
        batch_size: inputs of a forward pass.
        progress: show a progress bar; None shows one if standard error is a terminal.
    """
    files = find_inputs(inputs)
    if out is not None:
        check_output(out, files)

    def ask(x: Tensor) -> Answers:
        belief = bundle.model.predict(x, batch_size)
        names = [name for name in WRITTEN if name in available(belief)]
        return Answers.of(belief, bundle.info.class_names, names, policy)

    trial = ask(torch.zeros(1, *bundle.sample_shape, dtype=bundle.info.torch_dtype))
    texts = {"label", "verdict"}
    names = trial.columns(probs=probs)
    columns = [(name, str if name in texts else float) for name in names]
    scored = Scored([("input", str), *columns, ("error", str)])
    bar = tqdm(
        desc="predict",
        unit="input",
        disable=None if progress is None else not progress,
        leave=False,
    )
    with nullcontext() if out is None else writer(out, scored.columns) as write, bar:
        for piece, x in stream_inputs(files, bundle):
            try:
                answers = ask(x)
            except InputError:
                refused = _refused(ask, x)
                piece.errors.update(refused)
                x[list(refused)] = 0
                answers = ask(x)
            rows = _rows(piece, answers.columns(probs=probs))
            if write is not None:
                write(rows)
            scored.add(rows)
            bar.update(len(rows))
    return scored


def _refused(ask: Callable[[Tensor], Answers], x: Tensor, first: int = 0) -> dict[int, str]:
    """Row -> why the model cannot judge it, found by halves."""
    try:
        ask(x)
    except InputError as error:
        if len(x) == 1:
            return {first: f"the model cannot judge it: {error}"}
    else:
        return {}
    half = len(x) // 2
    return _refused(ask, x[:half], first) | _refused(ask, x[half:], first + half)


def _rows(piece: Piece, columns: Table) -> list[list[Any]]:
    """A row for each input: name, columns, error; None for what an error left unknown."""
    table = [
        [float(f"{value:.7g}") for value in column]  # what float32 holds, and half the size
        if isinstance(column, np.ndarray)
        else column
        for column in columns.values()
    ]
    rows = [[name, *values, ""] for name, *values in zip(piece.names, *table, strict=True)]
    for row, error in piece.errors.items():
        rows[row] = [piece.names[row], *[None] * len(table), error]
    return rows


# -- inputs ----------------------------------------------------------------------------------------


def find_inputs(paths: Sequence[Path | str]) -> list[Path]:
    """The files to read, folders replaced by the images below them; nothing is opened yet."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            below = (file for file in path.rglob("*") if is_image(file) and file.is_file())
            images = sorted(file for file in below if not file.name.startswith("."))
            if not images:
                raise InputError(f"{path} holds no images")
            files += images
        elif not path.exists():
            raise InputError(f"{path} does not exist")
        elif not is_image(path) and path.suffix.lower() not in READERS:
            raise InputError(
                f"{path}: an input is an image (.png, .jpg, .bmp, .webp), a folder of images, or "
                f"{', '.join(READERS)}"
            )
        else:
            files.append(path)
    if not files:
        raise InputError("give at least one input: an image, a folder, or a file of rows")
    return files


def stream_inputs(files: Sequence[Path], bundle: Bundle) -> Iterator[tuple[Piece, Tensor]]:
    """Pieces of the files in order, each with its inputs as the model takes them.

    A file that cannot be read, or not to its end, has one input with the error in its place.
    """
    for image, group in groupby(files, is_image):
        members = list(group)
        for batch in [members] if image else [[file] for file in members]:
            try:
                if image:
                    pieces = _images(batch, bundle)
                else:
                    pieces = READERS[batch[0].suffix.lower()](batch[0], bundle)
                for piece in pieces:
                    x = _tensor(piece.x, bundle, piece.names[0])
                    errors = _unfit(x, bundle)
                    x[list(errors)] = 0
                    yield Piece(piece.names, piece.x, errors | piece.errors), x
            except InputError as error:
                names = [str(file) for file in batch]
                x = torch.zeros(len(batch), *bundle.sample_shape)
                errors = dict.fromkeys(range(len(batch)), str(error))
                yield Piece(names, x.numpy(), errors), x


def _unfit(x: Tensor, bundle: Bundle) -> dict[int, str]:
    """Row -> why the model cannot take it: not finite, or pixels of another scale."""
    if x.dtype == torch.uint8:
        return {}
    rows = x.reshape(len(x), -1)
    errors = {}
    if bundle.info.sample_dtype == "uint8":
        for row in (rows > 1).any(dim=1).nonzero().flatten().tolist():
            errors[row] = f"pixels reach {rows[row].max():g}: give bytes, or numbers from 0 to 1"
    for row in (~torch.isfinite(rows).all(dim=1)).nonzero().flatten().tolist():
        errors[row] = "not finite: NaN, infinity, or too large for float32"
    return errors


def _tensor(x: npt.NDArray[Any], bundle: Bundle, where: str) -> Tensor:
    """Inputs of the shape and the type that the model was trained on."""
    shape, wants_bytes = bundle.sample_shape, bundle.info.sample_dtype == "uint8"
    if wants_bytes and x.dtype.kind in "iu" and x.size and x.min() >= 0 and x.max() <= 255:
        x = x.astype(np.uint8)  # pixels, whatever the type that holds them
    if x.dtype == np.uint8 and bundle.kind == "image" and x.ndim > 2:
        x = channels_first(x, where)
    elif x.ndim == 3 and bundle.kind == "image" and shape[0] == 1:
        x = x[:, None]
    if tuple(x.shape[1:]) != shape:
        raise InputError(
            f"{where}: inputs have shape {tuple(x.shape[1:])}, but {bundle.name} was trained on "
            f"{shape}"
        )
    if x.dtype == np.uint8:
        pixels = torch.from_numpy(np.array(x))
        return pixels if wants_bytes else pixels.float() / (255 if bundle.kind == "image" else 1)
    with np.errstate(over="ignore"):  # `_unfit` reports it
        return torch.from_numpy(np.array(x, dtype=np.float32))


def _images(files: Sequence[Path], bundle: Bundle) -> Iterator[Piece]:
    if bundle.kind != "image":
        raise InputError(f"an image, but {bundle.name} takes inputs of shape {bundle.sample_shape}")
    channels, height, width = bundle.sample_shape
    return stream_images(files, size=(height, width), mode="L" if channels == 1 else "RGB")


def _table(read: Callable[..., Iterator[Piece]], file: Path, bundle: Bundle) -> Iterator[Piece]:
    shape = bundle.sample_shape
    if len(shape) != 1:
        raise InputError(
            f"{file} is a table, but {bundle.name} takes inputs of shape {shape}: save them as .npy"
        )
    return read(file, bundle.columns, shape[0])


def _array(file: Path, bundle: Bundle) -> Iterator[Piece]:
    rows = max(1, min(ROWS, _NUMBERS // math.prod(bundle.sample_shape)))
    columns = bundle.info.columns
    for piece in stream_array(file, rows):
        cells = piece.x.shape[1:]
        if columns is not None and cells == (len(columns.names),) and cells != bundle.sample_shape:
            x, errors = columns.encode(dict(zip(columns.names, piece.x.T, strict=True)))
            yield Piece(piece.names, x, errors)
        else:
            yield piece


READERS: Final[Mapping[str, Reader]] = {
    ".npy": _array,
    ".npz": _array,
    ".csv": partial(_table, stream_csv),
    ".parquet": partial(_table, stream_parquet),
}
"""Ending of a file of rows -> how it is read."""


# -- outputs ---------------------------------------------------------------------------------------


def check_output(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse, before the work, a path that could not be written, or that would replace an input."""
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(f"--out {path}: it must end in {', '.join(_ENDINGS)}")
    if path.is_dir():
        raise InputError(f"--out {path} is a folder; give a file")
    if not path.resolve().parent.is_dir():
        raise InputError(f"--out {path}: its folder does not exist")
    if path.exists() and any(path.samefile(file) for file in inputs if file.exists()):
        raise InputError(f"--out {path} is one of the inputs, which it would replace")
    if path.suffix.lower() == ".parquet":
        parquet_modules()


@contextmanager
def writer(path: Path, columns: Sequence[Column]) -> Iterator[Write]:
    """A function that writes rows; the file appears under its name when all have been written.

    Args:
        path: ends in `.csv`, `.jsonl` or `.parquet`, which says the format.
        columns: names and types.
    """
    ending = path.suffix.lower()
    with replacing(path) as temporary, ExitStack() as stack:
        if ending == ".parquet":
            yield stack.enter_context(_parquet(temporary, columns))
            return
        names = [name for name, _ in columns]
        file = stack.enter_context(temporary.open("w", encoding="utf-8", newline=""))
        if ending == ".csv":
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(names)
            yield lines.writerows
        else:
            yield partial(_write_json, file, names)


def _write_json(file: IO[str], names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    for row in rows:
        pairs = zip(names, row, strict=True)
        record = {name: value for name, value in pairs if value not in (None, "")}
        file.write(f"{to_json(record)}\n")


@contextmanager
def _parquet(path: Path, columns: Sequence[Column]) -> Iterator[Write]:
    pyarrow, parquet = parquet_modules()
    kinds = {str: pyarrow.string(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns])
    with parquet.ParquetWriter(path, schema) as file:

        def write(rows: Sequence[Sequence[Any]]) -> None:
            arrays = [
                pyarrow.array([None if cell == "" else cell for cell in column], kinds[kind])
                for column, (_, kind) in zip(zip(*rows, strict=True), columns, strict=True)
            ]
            file.write_batch(pyarrow.record_batch(arrays, schema=schema))

        yield write
