"""What was found, in a few sentences, from the records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gemfi_bench.claims import Finding
from gemfi_bench.claims.ledger import OURS, VERDICTS
from gemfi_bench.protocol import SEEN
from gemfi_bench.results import Pick, Results, mean_of, of_set, of_test
from gemfi_bench.style import method_label
from gemfi_bench.tabular import Better, Value

_OURS = "gem-fi"


def summary(results: Results, findings: Sequence[Finding]) -> list[str]:
    """Sentences for the head of a report."""
    planned = {cell.key for cell in results.grid}
    done = planned & results.records.keys()
    progress = f"{len(done):,} of {len(planned):,} runs are done."
    if len(done) < len(planned):
        progress += " Rows whose runs are not done yet say so."
    ledger = []
    for whose, ours in (("tests of the paper's claims", False), ("claims of ours", True)):
        judged = [finding for finding in findings if (finding.claim.where == OURS) == ours]
        counts = Counter(str(finding.outcome) for finding in judged)
        parts = [f"{counts[name]} {name}" for name in VERDICTS if counts[name]]
        if judged:
            ledger.append(f"Of {len(judged)} {whose}: {', '.join(parts)}.")
    few = sum(finding.few_seeds for finding in findings)
    if few:
        ledger.append(f"{few} have tests on fewer than three seeds, which decide nothing.")
    return [progress, *([" ".join(ledger)] if ledger else []), *_places(results)]


def _places(results: Results) -> list[str]:
    """Where GEM-FI stands among the methods, by a few numbers."""
    sentences = []
    for words, pick, better, digits in _numbers(results):
        values = {
            row: value for row in results.rows() if (value := results.value(row, pick)) is not None
        }
        if _OURS not in values or len(values) < 2:
            continue
        sign = -1 if better == "high" else 1  # last what some runs have no finite number of
        order = {row: (value.missing > 0, sign * value.mean) for row, value in values.items()}
        ranked = sorted(values, key=order.__getitem__)
        place, best = ranked.index(_OURS) + 1, ranked[0]
        text = f"{words}: GEM-FI {_shown(values[_OURS], digits)}, place {place} of {len(ranked)}"
        if best != _OURS:
            text += f"; the first is {method_label(best)} with {_shown(values[best], digits)}"
        sentences.append(f"{text}.")
    return sentences


def _numbers(results: Results) -> list[tuple[str, Pick, Better, int]]:
    protocol = results.protocol
    numbers: list[tuple[str, Pick, Better, int]] = [
        ("Accuracy", of_test("accuracy"), "high", 2),
        ("NLL", of_test("nll"), "low", 3),
        ("ECE", of_test("ece"), "low", 2),
    ]
    for words, names in (("near", protocol.near), ("far", protocol.far)):
        here = [name for name in names if not results.is_absent(name)]
        if here:
            pick = mean_of([of_set(name, "epistemic", "auroc") for name in here])
            sets = ", ".join(
                results.title(name) + (f", {SEEN}" if name in protocol.seen else "")
                for name in here
            )
            numbers.append((f"AUROC on {words} OOD ({sets})", pick, "high", 2))
    return numbers


def _shown(value: Value, digits: int) -> str:
    text = f"{value.mean:.{digits}f}"
    if value.std is not None:
        text += f" ± {value.std:.{digits}f}"
    if value.missing:
        return f"{text} (in {value.n} of {value.n + value.missing} runs)"
    return f"{text} (one run)" if value.n == 1 else text
