"""What the registry knows of a data set: files, parts, roles, and where it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gemfi.data.readers import Pictures
from gemfi.data.splits import Role
from gemfi.errors import InputError

_CHECKSUM: Final = re.compile(r"(md5):([0-9a-f]{32})|(sha1):([0-9a-f]{40})|(sha256):([0-9a-f]{64})")


@dataclass(frozen=True)
class RemoteFile:
    """A file as its publisher offers it.

    Attributes:
        path: where it goes, below the data folder, such as `mnist/train-labels-idx1-ubyte.gz`.
        url: the canonical address.
        checksum: `md5:...`, `sha1:...` or `sha256:...` as published.
        size: bytes, as published.
        unpacks: of an archive, the files and folders to unpack into the data folder; the archive
            is deleted afterwards. Empty for a file that is used as it is.
    """

    path: str
    url: str
    checksum: str
    size: int
    unpacks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        split_checksum(self.checksum)


def split_checksum(checksum: str) -> tuple[str, str]:
    """`"md5:ab..."` as its kind and its digits."""
    match = _CHECKSUM.fullmatch(checksum)
    if match is None:
        raise InputError(
            f"a checksum is md5:, sha1: or sha256: and its digits in lower case, got {checksum!r}"
        )
    kind, digits = filter(None, match.groups())
    return kind, digits


def is_below(name: str, members: Iterable[str]) -> bool:
    """Whether a path is one of `members`, or in a folder that is one."""
    return any(name == member or name.startswith(f"{member}/") for member in members)


@dataclass(frozen=True)
class Form:
    """One way in which a part of a set may lie in the data folder.

    Attributes:
        label: for names and tables: `test`, or `test, first 5,000`.
        files: below the data folder; the form is there when all of them are.
        read: from the paths of `files` to the pictures.
        contents: file -> published checksum of its contents (of a .gz: unpacked).
        slow: whether decoding takes long enough to keep the result in the cache.
        made: whether the pictures are our own corruptions, and not published ones.
        provenance: where the files come from, if not from the publisher; shown below every table
            and figure with numbers of them.
        version: of `read`; raise it when the same files give other pixels, so that old pixels are
            not taken from the cache.
    """

    label: str
    files: tuple[str, ...]
    read: Callable[..., Pictures]
    contents: Mapping[str, str] = field(default_factory=dict)
    slow: bool = False
    made: bool = False
    provenance: str = ""
    version: int = 0

    def paths(self, root: Path) -> list[Path]:
        """Where the files would be below `root`."""
        return [root / name for name in self.files]

    def is_here(self, root: Path) -> bool:
        """Whether every file is there."""
        return all(path.exists() for path in self.paths(root))


@dataclass(frozen=True)
class Part:
    """A part of a set as its publisher cut it.

    Attributes:
        count: samples of the whole part, as published.
        roles: what it may be used for; the first is the default.
        forms: how it may lie on disk; the first that is there is read.
    """

    count: int
    roles: tuple[Role, ...]
    forms: tuple[Form, ...]


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """An entry of the registry.

    Attributes:
        name: in the registry and on the command line.
        title: for tables and text.
        summary: one line.
        shape: channels, height and width.
        num_classes: C.
        class_names: C names; None where the files name them.
        licence: as its publisher states it.
        citation: authors, title, venue, year.
        homepage: where it is described.
        files: what `gemfi data fetch` downloads.
        parts: name -> part; `train` and `test` where there are such.
        mean: of each channel over the training images, in [0, 1]; None where nothing is trained
            on the set.
        std: likewise.
        held_out: images carved out of train for validation, and as many again for calibration.
        note: what a user should know.
        variant: which classes it has, in brackets behind the title, where other sets share that.
        overlaps: ID set -> what it shares with this one, so that this is no clean OOD set for it.
    """

    name: str
    title: str
    summary: str
    shape: tuple[int, int, int]
    num_classes: int
    class_names: tuple[str, ...] | None = None
    licence: str
    citation: str
    homepage: str
    files: tuple[RemoteFile, ...]
    parts: Mapping[str, Part]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    held_out: int = 0
    note: str = ""
    variant: str = ""
    overlaps: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_title(self) -> str:
        """The title with the variant: `TinyImageNet (178 classes)`."""
        return f"{self.title} ({self.variant})" if self.variant else self.title

    def needs(self, remote: RemoteFile) -> tuple[str, ...]:
        """Files that reading takes from an archive; none for our own corruptions."""
        forms = (form for part in self.parts.values() for form in part.forms if not form.made)
        files = dict.fromkeys(file for form in forms for file in form.files)  # an ordered set
        return tuple(file for file in files if is_below(file, remote.unpacks))
