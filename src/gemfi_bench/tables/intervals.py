"""How sure a number is given its inputs: the bootstrap, from the arrays that runs kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import Results, array_name
from gemfi_bench.statistics import Detection, bootstrap_ood

RESAMPLES: Final = 200
"""Enough for the ends of an interval of 95 %, and a twentieth of a second for 10,000 inputs."""

NOTE: Final = (
    f"[low, high], of a row with one run: 95 % interval over its inputs, by {RESAMPLES} bootstrap "
    "resamples of ID and of OOD inputs. It says what the inputs decide, and not how another seed "
    "would do."
)


def sampling_interval(
    results: Results,
    runs: Sequence[RunRecord],
    name: str,
    kind: str,
    metric: str,
    *,
    detector: bool = False,
) -> tuple[float, float] | None:
    """The interval of an OOD metric, the mean over runs.

    None where the arrays of a run are not here, and for other metrics.

    Args:
        results: of the bench.
        runs: of a row, whose inputs are drawn again, for all of them alike.
        name: of the OOD set.
        kind: of uncertainty, or the name of a score or a detector.
        metric: `auroc`, `aupr_id` or `aupr_ood`; others have none.
        detector: whether `kind` is a detector's name.
    """
    known: dict[str, Detection] = {each: each for each in get_args(Detection)}
    if metric not in known or not all(map(results.has_arrays, runs)):
        return None
    pairs = []
    for run in runs:
        sets, array = results.arrays(run), array_name(run, kind, detector=detector)
        if any(array not in sets.get(each, {}) for each in ("test", name)):
            return None
        pairs.append((sets["test"][array], sets[name][array]))
    found = bootstrap_ood(pairs, known[metric], RESAMPLES)
    return found.low, found.high
