"""Benches whose numbers a test chooses: records and arrays without any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemfi._files import to_json
from gemfi_bench.protocol import Contestant, Protocol
from gemfi_bench.record_file import RecordFile, RunRecord, Sets
from gemfi_bench.results import Results
from gemfi_bench.runner import GRID, PROTOCOL

Numbers = Mapping[str, Any]

CHOSEN = Protocol(
    name="chosen",
    title="Chosen numbers",
    task="digits",
    contestants=(Contestant("softmax"),),
    near=("digits-8-9",),
    far=("noise",),
)


def made_results(
    folder: Path,
    rows: Mapping[tuple[str, str], Sequence[Numbers]],
    arrays: Mapping[tuple[str, str], Sequence[Sets]] | None = None,
) -> Results:
    """Results with the numbers of each (group, row), one mapping a seed.

    Args:
        folder: to write into.
        rows: (group, row) -> the `numbers` of each seed.
        arrays: (group, row) -> the arrays of each seed.
    """
    arrays = arrays or {}
    file, grid = RecordFile(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for (group, row), seeds in rows.items():
        for seed, numbers in enumerate(seeds):
            key = f"{len(grid):016x}"
            grid.append(
                {"group": group, "row": row, "seed": seed, "key": key, "method": row,
                 "ready": True}
            )  # fmt: skip
            sets = arrays[group, row][seed] if (group, row) in arrays else {}
            file.append(_record(key, row, seed, numbers), sets)
    (folder / PROTOCOL).write_text(to_json(CHOSEN.to_plain()), encoding="utf-8")
    (folder / GRID).write_text(to_json(grid), encoding="utf-8")
    return Results(folder)


def classified(**numbers: float | None) -> dict[str, Any]:
    """Numbers of the test data alone."""
    return {"test": {"id": numbers}, "ood": {}}


def detected(**aurocs: float) -> dict[str, Any]:
    """The same AUROC and AUPR by every score, for each set; `_` in a name stands for `-`."""
    sets = {
        name.replace("_", "-"): {
            "by_score": {
                score: {"auroc": value, "aupr_id": value, "aupr_ood": value}
                for score in ("entropy", "max_prob")
            },
            "by_detector": {},
        }
        for name, value in aurocs.items()
    }
    return {"test": {"id": {}}, "ood": sets}


def _record(key: str, row: str, seed: int, numbers: Numbers) -> RunRecord:
    return RunRecord(
        key=key,
        title=f"{row} seed {seed}",
        spec={"method": row},
        members=(),
        data={},
        sessions=({"commit": "0" * 40, "date": "2026-01-01T00:00:00+00:00"},),
        training={},
        seconds={"train": 1.0, "evaluate": 1.0},
        scores={"aleatoric": "max_prob", "epistemic": "entropy"},
        numbers=numbers,
        absent={},
        detectors={},
    )
