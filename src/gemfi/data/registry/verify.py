"""Is what lies in the data folder what was published?"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gemfi.data.registry.archives import check_manifest, read_manifest
from gemfi.data.registry.checksums import checksum_of
from gemfi.data.registry.download import is_unpacked
from gemfi.data.registry.load import find_form, read_part
from gemfi.data.registry.record import DataSet, Form, RemoteFile, split_checksum
from gemfi.errors import InputError

_GZIP = b"\x1f\x8b"


class State(StrEnum):
    """What a check found."""

    OK = "ok"  # a published checksum holds
    UNKNOWN = "unknown"  # nothing published to compare with
    DIFFERS = "DIFFERS"  # not what was published
    BROKEN = "BROKEN"  # cannot be read
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """One line of a report: a file or a part, what was found, and why."""

    what: str
    state: State
    detail: str


def verify(entry: DataSet, root: Path) -> list[Check]:
    """Compare every file of a set with the published checksums, then read its parts.

    Of our own corruptions there is nothing to verify; they are passed over.

    Args:
        entry: the set.
        root: the data folder.
    """
    checks: list[Check] = []
    forms = {name: find_form(entry, name, root) for name in entry.parts}
    for file, form in _files(forms.values()):
        checks.append(check_file(entry, form, file, root))
    checks += _manifests(entry, root)
    for name, found in forms.items():
        if found is None:
            checks.append(Check(f"{entry.name}/{name}", State.MISSING, "not here"))
        elif not found.made:
            checks.append(_readable(entry, name, found, root))
    return checks


def check_file(entry: DataSet, form: Form, file: str, root: Path) -> Check:
    """Compare one file: its own published checksum, or that of its contents."""
    path = root / file
    if path.is_dir():
        count = sum(1 for each in path.rglob("*") if each.is_file())
        return Check(file, State.UNKNOWN, f"a folder of {count:,} files")
    remote = next((each for each in entry.files if each.path == file), None)
    if remote is not None and remote.checksum is not None:
        kind, _ = split_checksum(remote.checksum)
        if checksum_of(path, kind) == remote.checksum:
            return Check(file, State.OK, f"{kind} as published")
    if file in form.contents:
        return _check_contents(path, file, form.contents[file])
    if remote is not None and remote.checksum is not None:
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


def _files(forms: Iterable[Form | None]) -> Iterator[tuple[str, Form]]:
    """Each file once, with the form that it belongs to."""
    seen: set[str] = set()
    for form in forms:
        if form is None or form.made:
            continue
        for file in form.files:
            if file not in seen:
                seen.add(file)
                yield file, form


def _check_contents(path: Path, file: str, checksum: str) -> Check:
    kind, digits = split_checksum(checksum)
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as stream:
        zipped = stream.read(2) == _GZIP  # by content, as readers do: browsers unpack and keep .gz
    try:
        with gzip.open(path) if zipped else path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return Check(file, State.BROKEN, f"cannot be unpacked: {error}")
    if digest.hexdigest() != digits:
        return Check(file, State.DIFFERS, f"{kind} {digest.hexdigest()}, published {digits}")
    of = " of its contents" if zipped else ""
    detail = f"{kind}{of} as published" + ("; compressed anew" if zipped else "")
    return Check(file, State.OK, detail)


def _manifests(entry: DataSet, root: Path) -> Iterator[Check]:
    """Archives that were unpacked here: the files are still those that came out of them."""
    for remote in entry.files:
        manifest = read_manifest(root, remote.path) if remote.unpacks else None
        if manifest is not None:
            problems = check_manifest(root, manifest)
            state = State.DIFFERS if problems else State.OK
            detail = "; ".join(problems[:3]) or f"{len(manifest.files):,} files as unpacked"
            yield Check(remote.path, state, detail)


def _readable(entry: DataSet, part: str, form: Form, root: Path) -> Check:
    what = f"{entry.name}/{form.label}"
    try:
        _, pictures = read_part(entry, part, root, cached=False)
    except InputError as error:  # this is what verify is asked to find
        return Check(what, State.BROKEN, str(error))
    count, published = len(pictures), entry.parts[part].count
    detail = f"{count:,} images"
    if count != published:
        detail += f", a part of the {published:,} published"
    return Check(what, State.OK if count == published else State.UNKNOWN, detail)
