"""What averaging over the seeds of a row would give: how much of a gap is the price of one network.

    python benchmarks/averaging.py FOLDER

For each method of a benchmark's folder with its arrays: NLL and AUROC of its runs one by one, and
of all of them together, as an ensemble whose members are the same but for their seeds.
Probabilities are averaged as they are; scores after division by their standard deviation on ID
validation data, so that no member drowns the others. The score is the one that OOD-validation data
choose, and nothing of the test data is used for it.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt

from gemfi import metrics
from gemfi._text import aligned
from gemfi.errors import GemfiError
from gemfi.scores import score_label
from gemfi_bench.choice import chosen
from gemfi_bench.record_file import Sets
from gemfi_bench.results import Results
from gemfi_bench.style import method_label

Floats = npt.NDArray[np.float64]


def main(folder: str) -> None:
    """Print the table."""
    results = Results(folder)
    sets = [name for name in results.ood_sets if not results.is_absent(name)]
    lines = [("method", "score", "runs", "NLL", "together", *_heads(sets))]
    for row in results.rows():
        arrays = [results.arrays(run) for run in results.runs_with_arrays(row)]
        if len(arrays) < 2:
            continue
        name = chosen(results, row).name
        cells = [method_label(row), score_label(name), str(len(arrays))]
        single = [_nll([each]) for each in arrays]
        cells += [f"{np.mean(single):.3f}", f"{_nll(arrays):.3f}"]
        for place in sets:
            alone = [_auroc([each], name, place) for each in arrays]
            cells += [f"{np.mean(alone):.1f}", f"{_auroc(arrays, name, place):.1f}"]
        lines.append(tuple(cells))
    print("\n".join(aligned(lines, left=2)))


def _heads(sets: list[str]) -> list[str]:
    return [head for name in sets for head in (name, "together")]


def _nll(members: list[Sets]) -> float:
    probs = np.mean([np.exp(each["test"]["log_probs"].astype(np.float64)) for each in members], 0)
    return metrics.nll(np.log(probs), members[0]["test"]["label"])


def _auroc(members: list[Sets], score: str, place: str) -> float:
    inside = np.mean([_scaled(each, score, "test") for each in members], 0)
    outside = np.mean([_scaled(each, score, place) for each in members], 0)
    return float(metrics.auroc(inside, outside))


def _scaled(sets: Sets, score: str, place: str) -> Floats:
    key = f"score/{score}"
    spread = sets["validation"][key].astype(np.float64).std()
    scaled: Floats = sets[place][key].astype(np.float64) / max(spread, np.finfo(np.float64).tiny)
    return scaled


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of a bench, with its arrays")
    try:
        main(parser.parse_args().folder)
    except GemfiError as error:
        parser.error(str(error))
