"""Is what lies in the data folder what was published?"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gemfi.data.registry.entries import DataSet, Form, RemoteFile, split_checksum
from gemfi.data.registry.load import find_form, read_part
from gemfi.errors import InputError
from gemfi_bench.data_sets.archives import problems, read_manifest
from gemfi_bench.data_sets.fetch import checksum_of, is_unpacked

_GZIP = b"\x1f\x8b"


class State(StrEnum):
    """What a check came to."""

    OK = "ok"  # a published checksum holds
    UNKNOWN = "unknown"  # nothing published to compare with
    DIFFERS = "DIFFERS"  # not what was published
    BROKEN = "BROKEN"  # cannot be read
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """One line of a report: a file or a part, its state, and why."""

    what: str
    state: State
    detail: str


def verify(entry: DataSet, root: Path) -> list[Check]:
    """Compare every file of a set with the published checksums, then read its parts.

    Our own corruptions are passed over: there is nothing to compare them with.
    """
    forms = {name: find_form(entry, name, root) for name in entry.parts}
    files: dict[str, Form] = {}
    for form in forms.values():
        if form is not None and not form.made:
            files = dict.fromkeys(form.files, form) | files
    checks = [check_file(entry, form, file, root) for file, form in files.items()]
    checks += _check_archives(entry, root)
    for name, form in forms.items():
        if form is None:
            checks.append(Check(f"{entry.name}/{name}", State.MISSING, "not here"))
        elif not form.made:
            checks.append(_check_part(entry, name, form, root))
    return checks


def check_file(entry: DataSet, form: Form, file: str, root: Path) -> Check:
    """Compare one file: its own published checksum, or that of its contents."""
    path = root / file
    if path.is_dir():
        count = sum(1 for member in path.rglob("*") if member.is_file())
        return Check(file, State.UNKNOWN, f"a folder of {count:,} files")
    remote = next((remote for remote in entry.files if remote.path == file), None)
    if remote is not None:
        kind, _ = split_checksum(remote.checksum)
        if checksum_of(path, kind) == remote.checksum:
            return Check(file, State.OK, f"{kind} as published")
    if file in form.contents:
        return _check_contents(path, file, form.contents[file])
    if remote is not None:
        why = "not the published file; no published checksum of its contents was found"
        return Check(file, State.DIFFERS, why)
    return Check(file, State.UNKNOWN, "no published checksum")


def is_fetched(entry: DataSet, remote: RemoteFile, root: Path) -> bool:
    """Whether a file to fetch is here already, as published or with the published contents."""
    if remote.unpacks:
        return is_unpacked(remote, root, entry.needs(remote))
    if not (root / remote.path).is_file():
        return False
    forms = (form for part in entry.parts.values() for form in part.forms)
    form = next((form for form in forms if remote.path in form.files), None)
    return form is not None and check_file(entry, form, remote.path, root).state is State.OK


def _check_contents(path: Path, file: str, checksum: str) -> Check:
    kind, digits = split_checksum(checksum)
    with path.open("rb") as stream:
        zipped = stream.read(2) == _GZIP  # by content, as readers do: browsers unpack and keep .gz
    try:
        with gzip.open(path) if zipped else path.open("rb") as stream:
            digest = hashlib.file_digest(stream, kind).hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return Check(file, State.BROKEN, f"cannot be unpacked: {error}")
    if digest != digits:
        return Check(file, State.DIFFERS, f"{kind} {digest}, published {digits}")
    how = "of its contents as published; compressed anew" if zipped else "as published"
    return Check(file, State.OK, f"{kind} {how}")


def _check_archives(entry: DataSet, root: Path) -> Iterator[Check]:
    """Archives that were unpacked here: the files are still those that came out of them."""
    for remote in entry.files:
        manifest = read_manifest(root, remote.path) if remote.unpacks else None
        if manifest is not None:
            changed = problems(root, manifest)
            state = State.DIFFERS if changed else State.OK
            detail = "; ".join(changed[:3]) or f"{len(manifest):,} files as unpacked"
            yield Check(remote.path, state, detail)


def _check_part(entry: DataSet, part: str, form: Form, root: Path) -> Check:
    what = f"{entry.name}/{form.label}"
    try:
        _, pictures = read_part(entry, part, root, cached=False)
    except InputError as error:  # this is what verify is asked to find
        return Check(what, State.BROKEN, str(error))
    count, published = len(pictures), entry.parts[part].count
    if count != published:
        detail = f"{count:,} images, a part of the {published:,} published"
        return Check(what, State.UNKNOWN, detail)
    return Check(what, State.OK, f"{count:,} images")
