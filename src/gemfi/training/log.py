"""The JSONL log of a run: one line an event, in step with the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemfi.files import to_json, write_atomically


class RunLog:
    """Appends records to a file, and keeps them in memory where there is no file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []

    def rewind(self, step: int, *, finished: bool) -> None:
        """Keep the records up to a step; what a killed run wrote after its checkpoint goes.

        A last line that was cut off by the kill is dropped with them.
        """
        if self.path is None or not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            record = json.loads(line)
            if record["step"] <= step and (finished or "finished" not in record):
                kept.append(record)
        self.records = kept
        text = "".join(to_json(record) + "\n" for record in kept)
        write_atomically(self.path, text.encode())

    def write(self, **record: Any) -> None:
        """Add one record; it must have a `step`."""
        self.records.append(record)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(to_json(record) + "\n")
