"""How sure a number of one run is: the bootstrap over its inputs, from the arrays that it kept."""

from __future__ import annotations

from typing import Final, get_args

from gemfi.bench.records import RunRecord
from gemfi.bench.results import Results, array_name
from gemfi.bench.statistics import Detection, bootstrap_ood

RESAMPLES: Final = 200
"""Enough for the ends of an interval of 95 %, and a twentieth of a second for 10,000 inputs."""

NOTE: Final = (
    f"[low, high], of a row with one run: 95 % interval over its inputs, by {RESAMPLES} bootstrap "
    "resamples of ID and of OOD inputs. It says what the inputs decide, and not how another seed "
    "would do."
)


def sampling_interval(
    results: Results, run: RunRecord, name: str, kind: str, metric: str, *, detector: bool = False
) -> tuple[float, float] | None:
    """The interval of an OOD metric of a run; None without its arrays, or for other metrics.

    Args:
        results: of the bench.
        run: whose inputs are drawn again.
        name: of the OOD set.
        kind: of uncertainty, or the name of a score or a detector.
        metric: `auroc`, `aupr_id` or `aupr_ood`; others have none.
        detector: whether `kind` is a detector's name.
    """
    known: dict[str, Detection] = {each: each for each in get_args(Detection)}
    if metric not in known or not results.has_arrays(run):
        return None
    sets = results.arrays(run)
    array = array_name(run, kind, detector=detector)
    if any(array not in sets.get(each, {}) for each in ("test", name)):
        return None
    found = bootstrap_ood(sets["test"][array], sets[name][array], known[metric], RESAMPLES)
    return found.low, found.high
