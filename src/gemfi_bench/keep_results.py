"""Put the records and the rendered tables of a bench under version control: `results/NAME`.

Packed records, grid, protocol, cost, claims, manifest, tables as Markdown, CSV and LaTeX, figures
as PNG in 256 colours, a third of their size, and a README that shows them with their captions.
Arrays, checkpoints and the report stay where they are; `gemfi report` makes the report. The
manifest that is kept names what is kept, and nothing else.

    python -m gemfi_bench.keep_results FOLDER
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from gemfi._files import read_json, to_json, write_atomically
from gemfi.errors import GemfiError, InputError
from gemfi_bench.figures import FIGURES
from gemfi_bench.manifest import MANIFEST
from gemfi_bench.results import OVERHEAD, Results
from gemfi_bench.runner import GRID, PROTOCOL

RESULTS = Path(__file__).parents[2] / "results"
_FILES = (PROTOCOL, GRID, OVERHEAD, "claims.json", "claims.md")
_RENDERED = (("tables", (".md", ".csv", ".tex")), ("figures", (".png",)))


def keep(folder: Path, below: Path = RESULTS) -> Path:
    """Copy what is worth keeping, in place of what was kept before; returns where it is now."""
    results = Results(folder)
    target = below / results.protocol.name
    if target.resolve() == folder.resolve():
        raise InputError(f"{folder} is where results are kept; give the folder of a bench")
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    results.file.pack(target, results.records.keys())
    for name in _FILES:
        if (folder / name).exists():
            shutil.copy(folder / name, target / name)
    _keep_rendered(folder, target)
    if (folder / MANIFEST).exists():
        entries = read_json(folder / MANIFEST, "run gemfi report again, which writes it anew")
        for entry in entries.values():
            if "files" in entry:
                entry["files"] = [name for name in entry["files"] if (target / name).is_file()]
        write_atomically(target / MANIFEST, to_json(entries, indent=1).encode() + b"\n")
        write_atomically(target / "README.md", _readme(results, entries, target).encode())
    return target


def _keep_rendered(folder: Path, target: Path) -> None:
    """Tables and figures, if it was rendered."""
    for part, endings in _RENDERED:
        for path in sorted((folder / part).glob("*")):
            (target / part).mkdir(exist_ok=True)
            if path.suffix == ".png":
                picture = Image.open(path).convert("RGB").quantize(256)
                picture.save(target / part / path.name, optimize=True)
            elif path.suffix in endings:
                shutil.copy(path, target / part / path.name)


def _readme(results: Results, entries: Mapping[str, Any], target: Path) -> str:
    """What there is, the figures with their captions, and what could not be made."""
    done, planned = len(results.records), len({cell.key for cell in results.grid})
    lines = [
        f"# {results.protocol.name}",
        "",
        f"{results.protocol.title}.",
        "",
        f"{done} of {planned} runs; the ledger is [claims.md](claims.md).",
        "How it is made: [docs/benchmark.md](../../docs/benchmark.md).",
        "",
        *(f"- {note}" for note in results.protocol.notes),
        *(f"- {caveat}" for caveat in results.caveats(results.ood_sets)),
        "",
        "## Tables",
        "",
    ]
    made = {label: entry["files"] for label, entry in entries.items() if entry.get("files")}
    for name in (name for files in made.values() for name in files if name.endswith(".md")):
        heading = (target / name).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{heading}]({name})")
    lines += ["", "## Figures", ""]
    for label, figure in FIGURES.items():
        for name in made.get(label, ()):
            lines += [f"### {figure.title}", "", f"![{figure.title}]({name})", ""]
            lines += [figure.full_caption(results), ""]
    absent = {label: entry["not_made"] for label, entry in entries.items() if "not_made" in entry}
    if absent:
        lines += ["## Not made", "", *(f"- `{label}`: {why}" for label, why in absent.items()), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of a bench, rendered or not")
    try:
        kept = keep(parser.parse_args().folder)
    except GemfiError as error:
        parser.error(str(error))
    size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    print(f"{kept.name}: {size / 1e6:.1f} MB")
