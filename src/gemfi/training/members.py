"""The members of a model that are trained one by one."""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections.abc import Sequence
from typing import Any, Final

MEMBER: Final = "member-"
"""The folder of a member's run below that of the whole, followed by its number."""


def member_seed(seed: int, index: int, count: int) -> int:
    """A seed of its own for each member, and no other ensemble's."""
    digest = hashlib.blake2b(f"{seed}:{count}:{index}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def mean_history(histories: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The records of an epoch, averaged over the members that reached it; seconds are added up."""
    found = []
    for reached in itertools.zip_longest(*histories):
        records = [record for record in reached if record is not None]
        first = records[0]
        merged: dict[str, Any] = {
            "step": first["step"],
            "epoch": first["epoch"],
            "loss": statistics.fmean(each["loss"] for each in records),
            "terms": {
                name: statistics.fmean(each["terms"][name] for each in records)
                for name in first["terms"]
            },
            "learning_rate": first["learning_rate"],
            "seconds": round(sum(each["seconds"] for each in records), 3),
        }
        for name in ("validation_nll", "validation_accuracy"):
            if name in first:
                merged[name] = statistics.fmean(each[name] for each in records)
        found.append(merged)
    return found


def members_notes(select: str, best: Sequence[int | None]) -> list[str]:
    """Which epoch each member keeps, where it is not the last."""
    if select == "last":
        return []
    kept = ", ".join(str(epoch + 1) for epoch in best if epoch is not None)
    return [f"each member keeps its best epoch: after {kept}"]
