"""`gemfi data`: what is known, what is here, and how to get the rest."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Final

import tyro

from gemfi._files import DATA_VARIABLE, data_root
from gemfi._text import WIDTH, aligned, file_size
from gemfi.cli import options
from gemfi.data.registry import DATA_SETS, OOD_SETS, DataSet, Form, data_set
from gemfi.data.registry.load import find_form
from gemfi.errors import CheckFailedError, InputError
from gemfi_bench.data_sets.fetch import fetch_file
from gemfi_bench.data_sets.verify import State, is_fetched, verify

_MIRROR: Final = "GEMFI_MIRROR"

Names = Annotated[tuple[str, ...], tyro.conf.Positional, options.shown_as("NAME ...")]
Name = Annotated[str, tyro.conf.Positional, options.shown_as("NAME")]


def list_sets() -> None:
    """List every data set, and what of it is here."""
    root = data_root()
    rows = [
        [entry.name, _shape(entry), str(entry.num_classes), _here(entry, root)]
        for entry in DATA_SETS.values()
    ]
    head, *lines = aligned([["name", "shape", "classes", "here"], *rows], left=4)
    print("\n".join([head, "─" * WIDTH, *lines]))
    set_by = DATA_VARIABLE
    if not os.environ.get(DATA_VARIABLE):
        set_by = f"set {DATA_VARIABLE} to use another"
    print(f"\nData folder: {root} ({set_by}).")
    print("gemfi data info NAME describes a set; gemfi data fetch NAME downloads it.")


def fetch(names: Names, mirror: Annotated[str | None, options.shown_as("URL")] = None) -> None:
    """Download data sets: resumes, checks the published checksums, keeps what is here.

    Args:
        names: of data sets; gemfi data list shows them.
        mirror: seek the files below this address in place of the publishers'; the environment
            variable GEMFI_MIRROR does the same.
    """
    if not names:
        raise InputError(f"which data set? known: {', '.join(DATA_SETS)}")
    root, entries = data_root(), [data_set(name) for name in names]
    try:
        for entry in entries:
            _fetch(entry, root, mirror or os.environ.get(_MIRROR) or None)
    except KeyboardInterrupt:
        kept = f"what was downloaded is kept in {root}; the same command resumes"
        print(f"gemfi: {kept}", file=sys.stderr)
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
            print("  our own corruptions, written here: nothing published to compare them with")
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
    constants = "none"
    if entry.mean is not None and entry.std is not None:
        mean, std = (", ".join(map(str, numbers)) for numbers in (entry.mean, entry.std))
        constants = f"{mean}; {std} (of [0, 1])"
    facts = {
        "shape": f"{_shape(entry)}, {entry.num_classes} classes, uint8",
        "classes": ", ".join(entry.class_names or ["see the files"]),
        "mean, std": constants,
        "licence": entry.licence,
        "cite": entry.citation,
        "page": entry.homepage,
        "note": entry.note,
        "here": _here(entry, root),
        "folder": str(root),
    }
    lines = [f"{entry.full_title}: {entry.summary}", ""]
    for title, text in facts.items():
        wrapped = textwrap.wrap(text, WIDTH - 11, break_on_hyphens=False)
        lines += [f"{'' if at else title:<11}{line}" for at, line in enumerate(wrapped)]
    lines += ["", "Splits and what each may be used for:", *_splits(entry), "", "Files:"]
    for remote in entry.files:
        lines.append(f"  {remote.path} ({file_size(remote.size)})")
        lines += [f"    {remote.url}", f"    {remote.checksum}"]
    print("\n".join(lines))


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


def _parts_here(entry: DataSet, root: Path) -> dict[str, Form]:
    """Part that is here -> the form in which it is."""
    forms = {name: find_form(entry, name, root) for name in entry.parts}
    return {name: form for name, form in forms.items() if form is not None}


def _here(entry: DataSet, root: Path) -> str:
    forms = _parts_here(entry, root)
    if not forms:
        return "no"
    total = len(entry.parts)
    if total <= 2:
        missing = [f"no {name}" for name in entry.parts if name not in forms]
        return "; ".join([*(form.label for form in forms.values()), *missing])
    made = sum(form.made for form in forms.values())
    counts = {"published": len(forms) - made, "written here": made}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    parts[0] = parts[0].replace(" ", f" of {total} ", 1)
    return ", ".join(parts)


def _splits(entry: DataSet) -> list[str]:
    if len(entry.parts) > 4:
        first = next(iter(entry.parts.values()))
        text = f"{len(entry.parts)} of {first.count:,}, each {', '.join(first.roles)}: "
        text += ", ".join(entry.parts)
        return textwrap.wrap(text, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
    rows = []
    for name, part in entry.parts.items():
        carved = entry.held_out if name == "train" else 0
        rows.append((name, part.count - 2 * carved, ", ".join(part.roles)))
        roles = ("validation", "calibration") if carved else ()
        rows += [(role, carved, f"{role} (carved out of train)") for role in roles]
    lines = [f"  {name:<14}{count:>7,}  {use}" for name, count, use in rows]
    if (against := OOD_SETS.get(entry.name)) is not None:
        tuning, judging = ", ".join(against.validation), ", ".join(against.test)
        lines += ["", f"As a task: tuned on {tuning}; judged against {judging}"]
    return lines
