"""`gemfi data`: what is known, what is here, and how to get the rest."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Final

import tyro

from gemfi._files import DATA_VARIABLE, data_root
from gemfi._text import file_size
from gemfi.data.registry import DATA_SETS, OOD_SETS, DataSet, Form, data_set, load_split
from gemfi.data.registry.fetch import fetch_file
from gemfi.data.registry.load import find_form
from gemfi.data.registry.sets import GENERATED, MADE_SEED, PUBLISHED_FOLDERS
from gemfi.data.registry.verify import State, is_fetched, verify
from gemfi.errors import CheckFailedError, InputError

MIRROR_VARIABLE: Final = "GEMFI_MIRROR"
_WIDTH: Final = 100

_QUIET = {"help_behavior_hint": ""}
Names = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME ...", **_QUIET)
]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", **_QUIET)]
_Url = Annotated[str | None, tyro.conf.arg(metavar="URL", **_QUIET)]
_Types = Annotated[tuple[str, ...], tyro.conf.arg(metavar="TYPE ...", **_QUIET)]
_Folder = Annotated[str | None, tyro.conf.arg(metavar="PATH", **_QUIET)]


def list_sets() -> None:
    """List every data set, and what of it is here."""
    root = data_root()
    rows = [
        (entry.name, _shape(entry), str(entry.num_classes), _here(entry, root))
        for entry in DATA_SETS.values()
    ]
    rows.insert(0, ("name", "shape", "classes", "here"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[3]]).rstrip())
        if number == 0:
            print("─" * _WIDTH)
    print(f"\nData folder: {root} ({_why_there()}).")
    print("gemfi data info NAME describes a set; gemfi data fetch NAME downloads it.")


def fetch(names: Names, mirror: _Url = None) -> None:
    """Download data sets: resumes, checks the published checksums, keeps what is here.

    Args:
        names: of data sets; gemfi data list shows them.
        mirror: seek the files below this address in place of the publishers'; the environment
            variable GEMFI_MIRROR does the same.
    """
    if not names:
        raise InputError(f"which data set? known: {', '.join(DATA_SETS)}")
    root, entries = data_root(), [data_set(name) for name in names]
    mirror = mirror or os.environ.get(MIRROR_VARIABLE) or None
    try:
        for entry in entries:
            _fetch(entry, root, mirror)
    except KeyboardInterrupt:
        text = f"what was downloaded is kept in {root}; the same command resumes"
        print(f"gemfi: {text}", file=sys.stderr)
        raise


def verify_sets(names: Names) -> None:
    """Compare files with their published checksums, and read them; exit code 1 if any differs.

    Args:
        names: of data sets; none for every set of which something is here.
    """
    root = data_root()
    chosen = [data_set(name) for name in names] or [
        entry for entry in DATA_SETS.values() if _parts_here(entry, root)
    ]
    if not chosen:
        print(f"Nothing to verify: no data set is in {root}.")
    wrong = 0
    for entry in chosen:
        checks = verify(entry, root)
        absent = [check for check in checks if check.state is State.MISSING]
        if len(absent) == len(entry.parts):
            print(f"{entry.full_title}: not in {root}; gemfi data fetch {entry.name} gets it")
            wrong += 1
            continue
        print(entry.full_title)
        if not checks:
            print("  our own corruptions, made here: nothing published to compare them with")
        for check in checks:
            print(f"  {check.state.value:<9}{check.what}: {check.detail}")
            wrong += check.state in (State.DIFFERS, State.BROKEN)
    if wrong:
        raise CheckFailedError(f"{wrong} of the lines above are not as they should be")


def info(name: Name) -> None:
    """Describe a data set: files, addresses, checksums, licence, splits, roles, citation.

    Args:
        name: of a data set; gemfi data list shows them.
    """
    entry, root = data_set(name), data_root()
    lines = [
        f"{entry.full_title}: {entry.summary}",
        "",
        *_field("shape", f"{_shape(entry)}, {entry.num_classes} classes, uint8"),
        *_field("classes", ", ".join(entry.class_names) if entry.class_names else "see the files"),
        *_field("mean, std", _constants(entry)),
        *_field("licence", entry.licence),
        *_field("cite", entry.citation),
        *_field("page", entry.homepage),
        *_field("note", entry.note),
        *_field("here", _here(entry, root)),
        *_field("folder", str(root)),
        "",
        "Splits and what each may be used for:",
        *_splits(entry),
        "",
        "Files:",
    ]
    for remote in entry.files:
        lines.append(f"  {remote.path} ({file_size(remote.size)})")
        lines += [f"    {remote.url}", f"    {remote.checksum}"]
    print("\n".join(lines))


def corrupt(name: Name, types: _Types = (), out: _Folder = None, seed: int = MADE_SEED) -> None:
    """Corrupt the test images of mnist or cifar10, in the layout of MNIST-C or CIFAR-10-C.

    Args:
        name: mnist or cifar10.
        types: which corruptions; all of them by default (15 or 19).
        out: folder to write to; by default one in the data folder, from which mnist-c and
            cifar10-c are read where the published files are not here.
        seed: of the random draws; another than the default needs --out.
    """
    from gemfi.data.corruptions import FAMILIES, write_published_layout  # noqa: PLC0415 - slow

    if name not in PUBLISHED_FOLDERS:
        raise InputError(
            f"no corruptions of {name!r}; expected one of {', '.join(PUBLISHED_FOLDERS)}"
        )
    root, published = data_root(), PUBLISHED_FOLDERS[name]
    folder = Path(out) if out is not None else root / GENERATED / published
    if out is None and seed != MADE_SEED:
        raise InputError(
            f"--seed {seed} needs --out: {folder} holds corruptions of seed {MADE_SEED}"
        )
    if folder.resolve() == (root / published).resolve():
        raise InputError(f"--out {folder} is the place of the published files; choose another")
    test = load_split(name, "test")
    written = write_published_layout(
        test.x, test.labels, folder, family=name, names=types or None, seed=seed
    )
    count = len(types or FAMILIES[name])
    print(f"Wrote {len(written)} files to {folder}: {test.name} under {count} corruptions.")
    print("These are our own corruptions, not the published arrays: see docs/corruptions.md.")


def _fetch(entry: DataSet, root: Path, mirror: str | None) -> None:
    for remote in entry.files:
        if is_fetched(entry, remote, root):
            print(f"{entry.name}: {remote.path} is here already")
            continue
        print(f"{entry.name}: fetching {remote.path} ({file_size(remote.size)})", flush=True)
        path = fetch_file(remote, root, needs=entry.needs(remote), mirror=mirror)
        print(f"{entry.name}: wrote {path} (checksum as published)")


def _shape(entry: DataSet) -> str:
    return "×".join(map(str, entry.shape))


def _why_there() -> str:
    named = os.environ.get(DATA_VARIABLE)
    return DATA_VARIABLE if named else f"set {DATA_VARIABLE} to use another"


def _parts_here(entry: DataSet, root: Path) -> dict[str, Form]:
    """Part that is here -> the form in which it is."""
    forms = {name: find_form(entry, name, root) for name in entry.parts}
    return {name: form for name, form in forms.items() if form is not None}


def _here(entry: DataSet, root: Path) -> str:
    found = _parts_here(entry, root)
    if not found:
        return "no"
    total = len(entry.parts)
    if total <= 2:
        missing = [f"no {name}" for name in entry.parts if name not in found]
        return "; ".join([*(form.label for form in found.values()), *missing])
    made = [form for form in found.values() if form.made]
    written = sum(form.files[0].startswith(f"{GENERATED}/") for form in made)
    published = len(found) - len(made)
    if not published and not written:
        return "no, but made from the test images when asked for"
    counts = {"published": published, "written here": written}
    said = [f"{count} {what}" for what, count in counts.items() if count]
    said[0] = said[0].replace(" ", f" of {total} ", 1)
    if len(made) > written:
        said.append("the rest made when asked for")
    return ", ".join(said)


def _constants(entry: DataSet) -> str:
    if entry.mean is None or entry.std is None:
        return "none"
    return f"{', '.join(map(str, entry.mean))}; {', '.join(map(str, entry.std))} (of [0, 1])"


def _field(name: str, text: str) -> list[str]:
    indent = " " * 11
    lines = textwrap.wrap(text, _WIDTH - len(indent), break_on_hyphens=False)
    return [f"{name if not number else '':<11}{line}" for number, line in enumerate(lines)]


def _splits(entry: DataSet) -> list[str]:
    if len(entry.parts) > 4:
        first = next(iter(entry.parts.values()))
        text = f"{len(entry.parts)} of {first.count:,}, each {', '.join(first.roles)}: "
        return textwrap.wrap(
            text + ", ".join(entry.parts), _WIDTH - 2, initial_indent="  ", subsequent_indent="  "
        )
    lines = []
    for name, part in entry.parts.items():
        kept = part.count - 2 * entry.held_out if name == "train" else part.count
        lines.append(f"  {name:<14}{kept:>7,}  {', '.join(part.roles)}")
        if name == "train" and entry.held_out:
            lines += [
                f"  {carved:<14}{entry.held_out:>7,}  {carved} (carved out of train)"
                for carved in ("validation", "calibration")
            ]
    against = OOD_SETS.get(entry.name)
    if against is not None:
        lines.append("")
        lines.append(
            f"As a task: tuned on {', '.join(against.validation)}; judged against "
            f"{', '.join(against.test)}"
        )
    return lines
