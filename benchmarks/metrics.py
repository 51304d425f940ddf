"""Time of `gemfi.metrics.ood_metrics` against scikit-learn on the same scores, as ratios.

One run, the two interleaved, medians. scikit-learn does less: AUROC and two average precisions,
without the FPR95.

    python benchmarks/metrics.py --scores 1000000 --repeats 5 --json metrics.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.metrics import average_precision_score, roc_auc_score

from gemfi.metrics import ood_metrics

Scores = npt.NDArray[np.float64]


def with_sklearn(id_scores: Scores, ood_scores: Scores) -> dict[str, float]:
    """AUROC and both average precisions, in percent."""
    scores = np.concatenate([id_scores, ood_scores])
    is_ood = np.arange(len(scores)) >= len(id_scores)
    return {
        "auroc": 100 * roc_auc_score(is_ood, scores),
        "aupr_ood": 100 * average_precision_score(is_ood, scores),
        "aupr_id": 100 * average_precision_score(~is_ood, -scores),
    }


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(id_scores: Scores, ood_scores: Scores, repeats: int) -> dict[str, float]:
    """Median seconds of both, their ratio, and the largest difference of the results."""
    ours, theirs = ood_metrics(id_scores, ood_scores), with_sklearn(id_scores, ood_scores)
    times = [
        (
            seconds(lambda: ood_metrics(id_scores, ood_scores)),
            seconds(lambda: with_sklearn(id_scores, ood_scores)),
        )
        for _ in range(repeats)
    ]
    gemfi, sklearn = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "gemfi_seconds": gemfi,
        "sklearn_seconds": sklearn,
        "times_faster": sklearn / gemfi,
        "largest_difference_percent": max(abs(ours[name] - theirs[name]) for name in theirs),
    }


def main() -> None:
    """Measure continuous scores and scores with many ties."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scores", type=int, default=1_000_000, help="half ID, half OOD")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    id_scores = rng.normal(size=options.scores // 2)
    ood_scores = rng.normal(1.0, size=options.scores - options.scores // 2)
    cases = {
        "continuous": (id_scores, ood_scores),
        "tied (2 decimals)": (id_scores.round(2), ood_scores.round(2)),
    }
    record = {}
    for name, (inside, outside) in cases.items():
        record[name] = figures = compare(inside, outside, options.repeats)
        print(
            f"{options.scores:,} scores, {name}: gemfi {figures['gemfi_seconds']:.3f} s, "
            f"scikit-learn {figures['sklearn_seconds']:.3f} s, "
            f"{figures['times_faster']:.1f} times faster, results within "
            f"{figures['largest_difference_percent']:.1e} percent points"
        )
    if options.json:
        figures_of_run = {"scores": options.scores, "repeats": options.repeats, "cases": record}
        options.json.write_text(json.dumps(figures_of_run, indent=2) + "\n")


if __name__ == "__main__":
    main()
