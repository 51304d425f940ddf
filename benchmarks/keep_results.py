"""Put the records and the rendered tables of a bench under version control: `results/NAME`.

Packed records, grid, protocol, cost, claims, manifest, tables as Markdown, CSV and LaTeX, figures
as PNG. Arrays, checkpoints and the report stay where they are; `gemfi report` makes the report.

    python benchmarks/keep_results.py FOLDER
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from gemfi.bench.bench import GRID, PROTOCOL
from gemfi.bench.results import OVERHEAD, Results

RESULTS = Path(__file__).parent.parent / "results"
_FILES = (PROTOCOL, GRID, OVERHEAD, "claims.json", "claims.md", "manifest.json")
_RENDERED = (("tables", ("md", "csv", "tex")), ("figures", ("png",)))


def keep(folder: Path) -> Path:
    """Copy what is worth keeping; returns where it is now."""
    results = Results(folder)
    target = RESULTS / results.protocol.name
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    results.file.pack(target)
    for name in _FILES:
        if (folder / name).exists():
            shutil.copy(folder / name, target / name)
    for part, endings in _RENDERED:
        if not (folder / part).is_dir():
            continue  # not rendered yet
        (target / part).mkdir()
        for path in sorted((folder / part).iterdir()):
            if path.suffix.removeprefix(".") in endings:
                shutil.copy(path, target / part / path.name)
    return target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of a bench, rendered or not")
    kept = keep(parser.parse_args().folder)
    size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    print(f"{kept.name}: {size / 1e6:.1f} MB")
