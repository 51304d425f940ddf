"""A trained model on files: any number of inputs in a bounded memory.

Files become pieces of inputs (`stream_inputs`), pieces become rows, and rows are written as they
come (`writer`). An input that cannot be read or judged has a row that says why.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
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
from gemfi.cluster import Rows, connected, on_workers
from gemfi.data.readers import channels_first
from gemfi.data.readers.arrays import count_rows, stream_array
from gemfi.data.readers.base import ROWS, Piece, Span
from gemfi.data.readers.images import IMAGES, is_image, stream_images
from gemfi.data.readers.remote import File, RemoteFile, is_remote, list_remote
from gemfi.data.readers.tables import (
    parquet_modules,
    split_row_groups,
    stream_csv,
    stream_parquet,
)
from gemfi.data.splits import ALONE, Share
from gemfi.decisions import Policy
from gemfi.devices import place
from gemfi.errors import InputError
from gemfi.processes import shared_out
from gemfi.scores import MAIN, available

SHOWN: Final = 20
"""Rows that are kept to be shown."""

WRITTEN: Final = tuple(name for name in MAIN if name != "max_prob")  # the confidence tells it
"""Scores that have a column, where the method has them; higher is more uncertain."""

_NUMBERS: Final = 1 << 24  # of an array that are read at a time, so that large images are few

_PIECES: Final = 16  # of a part

_ENDINGS: Final = (".csv", ".jsonl", ".parquet")

Column = tuple[str, type]
Reader = Callable[["Part", Bundle], Iterator[Piece]]
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


@dataclass(frozen=True, eq=False)
class Scorer:
    """A model that answers about parts of inputs, in any process.

    Args:
        bundle: the model.
        policy: adds a verdict and a p-value.
        probs: add the probability of each class.
        batch_size: inputs of a forward pass.
    """

    bundle: Bundle
    policy: Policy | None = None
    probs: bool = False
    batch_size: int = 512

    def columns(self) -> list[Column]:
        """Of the rows."""
        shape, kind = self.bundle.sample_shape, self.bundle.info.torch_dtype
        texts = {"label", "verdict"}
        names = self._ask(torch.zeros(1, *shape, dtype=kind)).columns(probs=self.probs)
        columns = [(name, str if name in texts else float) for name in names]
        return [("input", str), *columns, ("error", str)]

    def __call__(self, part: Part) -> Iterator[Rows]:
        """The rows of each piece; an input that cannot be read has a row that says why."""
        return self.share_of([part], ALONE)

    def share_of(self, parts: Iterable[Part], share: Share) -> Iterator[Rows]:
        """The rows of every p-th piece of some parts; all pieces are read by all processes."""
        pieces = chain.from_iterable(read_part(part, self.bundle) for part in parts)
        for piece, x in islice(pieces, share.rank, None, share.count):
            try:
                answers = self._ask(x)
            except InputError:
                refused = _refused(self._ask, x)
                piece.errors.update(refused)
                x[list(refused)] = 0
                answers = self._ask(x)
            yield _rows(piece, answers.columns(probs=self.probs))

    def on(self, device: str) -> Scorer:
        """The same, with the model moved to a device."""
        place(self.bundle.model, device)
        return self

    def _ask(self, x: Tensor) -> Answers:
        belief = self.bundle.model.predict(x, self.batch_size)
        names = [name for name in WRITTEN if name in available(belief)]
        return Answers.of(belief, self.bundle.info.class_names, names, self.policy)


def score_files(
    bundle: Bundle,
    inputs: Sequence[File | str],
    out: Path | None = None,
    *,
    policy: Policy | None = None,
    probs: bool = False,
    batch_size: int = 512,
    progress: bool | None = None,
    ray: str | None = None,
    key: str | None = None,
    device: str = "auto",
) -> Scored:
    """Ask a model about files; an input that cannot be read has a row that says why.

    Args:
        bundle: the model.
        inputs: images, folders of images or of parquet files, `.npy`, `.npz`, `.csv`, `.parquet`;
            here, or where pyarrow reads them, such as `s3://bucket/folder`.
        out: `.csv`, `.jsonl` or `.parquet`; None to write nothing.
        policy: adds a verdict and a p-value.
        probs: add the probability of each class.
        batch_size: inputs of a forward pass.
        progress: show a progress bar; None shows one if standard error is a terminal.
        ray: the address of a Ray cluster that does it, as `gemfi.cluster.connected` takes it.
        key: write the rows of a cluster as they come; `input` or the column of parquet files by
            which they are found again. None keeps the order of the inputs.
        device: of the models of a cluster; that of `bundle` stays where it is.
    """
    files = find_inputs(inputs)
    if out is not None:
        check_output(out, files)
    if key is not None and ray is None:
        raise InputError(f"key {key!r}: without a cluster rows are in the order of the inputs")
    scorer = Scorer(bundle, policy, probs, batch_size)
    scored = Scored(scorer.columns())
    parts = split_inputs(files, bundle, None if key == "input" else key)
    bar = tqdm(
        desc="predict",
        unit="input",
        disable=None if progress is None else not progress,
        leave=False,
    )
    answers = _answers(scorer, parts, ray, device, ordered=key is None)
    with closing(answers), ExitStack() as stack:
        write = None if out is None else stack.enter_context(writer(out, scored.columns))
        stack.enter_context(bar)
        for rows in answers:
            if write is not None:
                write(rows)
            scored.add(rows)
            bar.update(len(rows))
    return scored


def _answers(
    scorer: Scorer, parts: Iterator[Part], ray: str | None, device: str, *, ordered: bool
) -> Generator[Rows, None, None]:
    """The rows of all parts, from here or from a cluster."""
    if ray is None:
        yield from shared_out(partial(scorer.share_of, parts))
        return
    found, columns = list(parts), scorer.columns()
    with connected(ray):
        yield from on_workers(scorer.on, found, columns, device=device, ordered=ordered)


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


@dataclass(frozen=True)
class Part:
    """Inputs that are read by themselves: images, a file of rows, or some rows of one.

    Attributes:
        files: some images, or one file of rows.
        span: what to read of a file of rows; None for all.
        key: the column of a parquet file that names its rows; None for the file and the position.
    """

    files: tuple[File, ...]
    span: Span | None = None
    key: str | None = None


def find_inputs(paths: Sequence[File | str]) -> list[File]:
    """The files to read, in place of folders what is below them; nothing is opened yet.

    Of a folder these are the images; the parquet files, where there are none.
    """
    files: list[File] = []
    for path in paths:
        below, is_folder = _below(path)
        if is_folder:
            seen = [file for file in below if not file.name.startswith(".")]
            images = [file for file in seen if is_image(file)]
            below = images or [file for file in seen if file.suffix.lower() == ".parquet"]
            if not below:
                raise InputError(f"{path} holds no images, and no parquet files")
        elif not is_image(below[0]) and below[0].suffix.lower() not in READERS:
            raise InputError(
                f"{path}: an input is an image (.png, .jpg, .bmp, .webp), a folder of images, or "
                f"{', '.join(READERS)}"
            )
        files += below
    if not files:
        raise InputError("give at least one input: an image, a folder, or a file of rows")
    return files


def _below(path: File | str) -> tuple[Sequence[File], bool]:
    """A file, or all below a folder, in order; and whether it is a folder."""
    if isinstance(path, RemoteFile):
        return [path], False
    if is_remote(path):
        return list_remote(str(path))
    here = Path(path)
    if here.is_dir():
        return sorted(file for file in here.rglob("*") if file.is_file()), True
    if not here.exists():
        raise InputError(f"{path} does not exist")
    return [here], False


def split_inputs(files: Sequence[File], bundle: Bundle, key: str | None = None) -> Iterator[Part]:
    """The parts of files, in order: a long array or parquet file has several."""
    for image, group in groupby(files, is_image):
        members = tuple(group)
        if image:
            starts = range(0, len(members), IMAGES)
            yield from (Part(members[start : start + IMAGES]) for start in starts)
            continue
        for file in members:
            ending = file.suffix.lower()
            if key is not None and ending != ".parquet":
                raise InputError(f"{file} has no column {key!r}: that is for parquet; take input")
            for span in _spans(file, ending, bundle):
                yield Part((file,), span, key)


def _spans(file: File, ending: str, bundle: Bundle) -> Sequence[Span | None]:
    """What to read of a file at a time; None is all of it, and of what cannot be read."""
    try:
        if ending == ".parquet":
            return split_row_groups(file, _PIECES * ROWS) or [None]
        if ending == ".npy":
            rows, step = count_rows(file), _PIECES * _rows_at_a_time(bundle)
            return [(start, min(start + step, rows)) for start in range(0, rows, step)] or [None]
    except InputError:
        return [None]  # whoever reads it says why
    return [None]


def stream_inputs(files: Sequence[File], bundle: Bundle) -> Iterator[tuple[Piece, Tensor]]:
    """Pieces of the files in order, each with its inputs as the model takes them."""
    for part in split_inputs(files, bundle):
        yield from read_part(part, bundle)


def read_part(part: Part, bundle: Bundle) -> Iterator[tuple[Piece, Tensor]]:
    """The pieces of a part, each with its inputs as the model takes them.

    What cannot be read, or not to its end, has one input with the error in its place.
    """
    try:
        first = part.files[0]
        if is_image(first):
            pieces = _images(part, bundle)
        else:
            pieces = READERS[first.suffix.lower()](part, bundle)
        for piece in pieces:
            x = _tensor(piece.x, bundle, piece.names[0])
            errors = _unfit(x, bundle)
            x[list(errors)] = 0
            yield Piece(piece.names, piece.x, errors | piece.errors), x
    except InputError as error:
        names = [str(file) for file in part.files]
        x = torch.zeros(len(names), *bundle.sample_shape)
        yield Piece(names, x.numpy(), dict.fromkeys(range(len(names)), str(error))), x


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


def _images(part: Part, bundle: Bundle) -> Iterator[Piece]:
    if bundle.kind != "image":
        raise InputError(f"an image, but {bundle.name} takes inputs of shape {bundle.sample_shape}")
    channels, height, width = bundle.sample_shape
    return stream_images(part.files, size=(height, width), mode="L" if channels == 1 else "RGB")


def _table(part: Part, bundle: Bundle) -> Iterator[Piece]:
    shape, (file,) = bundle.sample_shape, part.files
    if len(shape) != 1:
        raise InputError(
            f"{file} is a table, but {bundle.name} takes inputs of shape {shape}: save them as .npy"
        )
    if file.suffix.lower() == ".parquet":
        return stream_parquet(file, bundle.columns, shape[0], part.span, part.key)
    if not isinstance(file, Path):
        raise InputError(f"{file}: CSV is read from this machine alone; make it parquet")
    return stream_csv(file, bundle.columns, shape[0])


def _rows_at_a_time(bundle: Bundle) -> int:
    return max(1, min(ROWS, _NUMBERS // math.prod(bundle.sample_shape)))


def _array(part: Part, bundle: Bundle) -> Iterator[Piece]:
    columns = bundle.info.columns
    for piece in stream_array(part.files[0], _rows_at_a_time(bundle), part.span):
        cells = piece.x.shape[1:]
        if columns is not None and cells == (len(columns.names),) and cells != bundle.sample_shape:
            x, errors = columns.encode(dict(zip(columns.names, piece.x.T, strict=True)))
            yield Piece(piece.names, x, errors)
        else:
            yield piece


READERS: Final[Mapping[str, Reader]] = {
    ".npy": _array,
    ".npz": _array,
    ".csv": _table,
    ".parquet": _table,
}
"""Ending of a file of rows -> how it is read."""


# -- outputs ---------------------------------------------------------------------------------------


def check_output(path: Path, inputs: Sequence[File] = ()) -> None:
    """Refuse, before the work, a path that could not be written, or that would replace an input."""
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(f"--out {path}: it must end in {', '.join(_ENDINGS)}")
    if path.is_dir():
        raise InputError(f"--out {path} is a folder; give a file")
    if not path.resolve().parent.is_dir():
        raise InputError(f"--out {path}: its folder does not exist")
    here = [file for file in inputs if isinstance(file, Path)]
    if path.exists() and any(path.samefile(file) for file in here if file.exists()):
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
