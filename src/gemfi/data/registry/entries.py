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
    """A file as its publisher offers it."""

    path: str  # below the data folder, such as `mnist/train-labels-idx1-ubyte.gz`
    url: str
    checksum: str  # `md5:...`, `sha1:...` or `sha256:...` as published
    size: int  # bytes, as published
    unpacks: tuple[str, ...] = ()  # of an archive, the files and folders to unpack

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
    """One way in which a part of a set may lie in the data folder."""

    label: str  # for names and tables: `test`, or `test, first 5,000`
    files: tuple[str, ...]  # below the data folder; the form is there when all of them are
    read: Callable[..., Pictures]  # from the paths of `files`
    contents: Mapping[str, str] = field(default_factory=dict)  # file -> checksum of what is in it
    slow: bool = False  # to decode, so that the result is kept in the cache
    made: bool = False  # our own corruptions, not published ones
    provenance: str = ""  # if not from the publisher; shown below every table and figure

    def paths(self, root: Path) -> list[Path]:
        """Where the files would be below `root`."""
        return [root / name for name in self.files]

    def is_here(self, root: Path) -> bool:
        """Whether every file is there."""
        return all(path.exists() for path in self.paths(root))


@dataclass(frozen=True)
class Part:
    """A part of a set as its publisher cut it."""

    count: int  # samples of the whole part, as published
    roles: tuple[Role, ...]  # what it may be used for; the first is the default
    forms: tuple[Form, ...]  # how it may lie on disk; the first that is there is read


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """An entry of the registry."""

    name: str
    title: str  # for tables and text
    summary: str  # one line
    shape: tuple[int, int, int]  # channels, height and width
    num_classes: int
    class_names: tuple[str, ...] | None = None  # None where the files name them
    licence: str  # as its publisher states it
    citation: str  # authors, title, venue, year
    homepage: str
    files: tuple[RemoteFile, ...]  # what `gemfi data fetch` downloads
    parts: Mapping[str, Part]  # `train` and `test` where there are such
    mean: tuple[float, ...] | None = None  # of each channel; None where nothing is trained on it
    std: tuple[float, ...] | None = None
    held_out: int = 0  # images carved out of train for validation, and again for calibration
    note: str = ""  # what a user should know
    variant: str = ""  # which classes it has, where other sets share the title
    overlaps: Mapping[str, str] = field(default_factory=dict)  # ID set -> what both contain

    @property
    def full_title(self) -> str:
        """The title with the variant: `TinyImageNet (178 classes)`."""
        return f"{self.title} ({self.variant})" if self.variant else self.title

    def needs(self, remote: RemoteFile) -> tuple[str, ...]:
        """Files that reading takes from an archive; none for our own corruptions."""
        forms = (form for part in self.parts.values() for form in part.forms if not form.made)
        files = dict.fromkeys(file for form in forms for file in form.files)  # an ordered set
        return tuple(file for file in files if is_below(file, remote.unpacks))
