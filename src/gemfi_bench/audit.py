"""Which published numbers cannot be, and which are hard to believe.

`audit()` holds the paper's numbers (`gemfi_bench.published`) against bounds, against each other,
and against what is known of the released code. A number is taken at the end of mean ± 2 std that
is kindest to it, and as if it had been rounded, before it is called impossible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gemfi_bench.published import PAIRS, PUBLISHED, Key, Pair, Published, bounds
from gemfi_bench.published.known import PROBLEMS, is_one_of

Severity = Literal["impossible", "suspicious"]
Numbers: TypeAlias = Mapping[Key, Published]

ROUNDING: Final = 0.005
"""Half of the last digit that the paper prints of a percentage."""

NLL_ROUNDING: Final = 0.0001
"""What rounding to four digits may change in the difference of two NLLs."""

STATED_BRIER: Final[Mapping[str, str]] = {
    "table3": "sum",
    "table13-cifar10": "sum",
    "abstract": "sum",
    "text": "sum",
    "ts_calibration": "mean",
}
"""Label -> convention that the paper's text states, whatever its code did."""

UNHEARD_OF: Final = 97.0
"""AUROC between right and wrong predictions, in percent, that is hard to believe. A judgement: the
numbers of the paper that are not above it need 93 at most."""

_OFFSETS: Final = (0.25, 0.75)  # of AUPR over AUROC in cells that look made from each other


@dataclass(frozen=True)
class Flag:
    """What is wrong with a number.

    Attributes:
        severity: `impossible` crosses a bound under the convention that is stated for it or
            recorded with it; `suspicious` needs an explanation.
        reason: in words, with the numbers that were compared.
    """

    severity: Severity
    reason: str


Flagged: TypeAlias = Iterator[tuple[Published, Flag]]


def audit(entries: Iterable[Published] = PUBLISHED) -> dict[Key, tuple[Flag, ...]]:
    """The flags of every number that has one, by label, row and column; impossible ones first.

    >>> audit()["table3", "gem-core", "brier"][0].severity
    'impossible'
    """
    numbers = {number.key: number for number in entries}
    flags: dict[Key, list[Flag]] = defaultdict(list)
    for rule in RULES:
        for number, flag in rule(numbers):
            flags[number.key].append(flag)
    return {
        key: tuple(sorted(flags[key], key=lambda flag: flag.severity))  # "i" comes before "s"
        for key in numbers
        if key in flags
    }


# -- bounds ---------------------------------------------------------------------------------------


def brier_below_errors(numbers: Numbers) -> Flagged:
    """Brier scores that are too small for the errors (`bounds.least_brier`)."""
    for number, accuracy in _with_accuracy(numbers, "brier"):
        stated = STATED_BRIER.get(number.label)
        if stated and _high(number) < bounds.least_brier(_high(accuracy), stated):
            least, as_mean = (
                100 * bounds.least_brier(accuracy.mean / 100, form) for form in (stated, "mean")
            )
            reason = (
                f"{number} with {accuracy} % right: errors alone make {least:.2f} as the {stated} "
                f"over classes, which the text states ({as_mean:.2f} as their mean)"
            )
            yield number, Flag("impossible", reason)


def aupr_against_auroc(numbers: Numbers) -> Flagged:
    """AUPRs with ID positive that no ROC curve of the AUROC has (`bounds`).

    The bounds hold for means over the same runs, so what only 2 std excuse is suspicious.
    """
    for aupr, auroc, pair in _detections(numbers):
        flag = _too_large(aupr, auroc, pair) or _too_small(aupr, auroc, pair)
        if flag:
            yield aupr, flag
            yield auroc, flag


def _too_large(aupr: Published, auroc: Published, pair: Pair) -> Flag | None:
    rate, share = pair.base_rate_id, auroc.mean / 100
    if _low(aupr, 0) <= bounds.largest_ap_with_ties(_high(auroc, 0), rate):
        return None
    untied, tied = bounds.largest_ap(share, rate), bounds.largest_ap_with_ties(share, rate)
    text = (
        f"AUPR {aupr} with AUROC {auroc}: with ID positive at most {100 * untied:.2f} without "
        f"ties, {100 * tied:.2f} with them"
    )
    if _low(aupr) > bounds.largest_ap_with_ties(_high(auroc), rate):
        other = 100 * bounds.largest_ap(share, pair.base_rate_ood)
        return Flag("impossible", f"{text} (with OOD positive {other:.2f})")
    return Flag("suspicious", f"{text}, also for means of the same runs; only their 2 std allow it")


def _too_small(aupr: Published, auroc: Published, pair: Pair) -> Flag | None:
    rate = pair.base_rate_id
    least = bounds.least_ap(_low(auroc, 0), rate)
    if _high(aupr, 0) >= least:
        return None
    impossible = _high(aupr) < bounds.least_ap_with_ties(_low(auroc), rate)
    reason = (
        f"AUPR {aupr} with AUROC {auroc}: with ID positive at least {100 * least:.2f} without ties"
    )
    return Flag("impossible" if impossible else "suspicious", reason)


def aupr_of_the_other_side(numbers: Numbers) -> Flagged:
    """AUPRs that refute the paper's text, by which OOD is positive (`bounds.least_ap`)."""
    for aupr, auroc, pair in _detections(numbers):
        if aupr.label != "table2":  # the others repeat it, without a std
            continue
        if _high(aupr) < bounds.least_ap(_low(auroc), pair.base_rate_ood):
            least = 100 * bounds.least_ap(auroc.mean / 100, pair.base_rate_ood)
            reason = (
                f"AUPR {aupr} with AUROC {auroc}: at least {least:.2f} without ties if OOD were "
                "positive, as the text says"
            )
            yield aupr, Flag("suspicious", reason)


def errors_worse_than_chance(numbers: Numbers) -> Flagged:
    """Error detection below the base rate.

    A score that knows nothing ranks at random and has the share of right predictions as its AP
    (right is positive), so a lower AP is a score with the wrong sign, or another metric.
    """
    for number, accuracy in _with_accuracy(numbers, "aupr_correct"):
        if _high(number) < _low(accuracy):
            reason = (
                f"AUPR {number} with {accuracy} % right: a random score has the share of right "
                f"predictions, {accuracy.mean:.2f}"
            )
            yield number, Flag("suspicious", reason)


def errors_told_too_well(numbers: Numbers) -> Flagged:
    """Error detection that needs an AUROC which is unheard of (`bounds.least_auroc`)."""
    for number, accuracy in _with_accuracy(numbers, "aupr_correct"):
        if 100 * bounds.least_auroc(_low(number), _high(accuracy)) > UNHEARD_OF:
            needed = 100 * bounds.least_auroc(number.mean / 100, accuracy.mean / 100)
            reason = (
                f"AUPR {number} with {accuracy} % right needs an AUROC of {needed:.1f} or more "
                "between right and wrong"
            )
            yield number, Flag("suspicious", reason)


def temperature_makes_worse(numbers: Numbers) -> Flagged:
    """NLL that rises with the temperature that was chosen to make it least.

    T = 1 is among the temperatures, so on the split of the fit no NLL is above the one before.
    """
    for after in numbers.values():
        before = numbers.get((after.label, after.row, "nll/before"))
        if after.column != "nll/after" or before is None:
            continue
        if round(after.mean - before.mean, 4) > NLL_ROUNDING:
            reason = (
                f"NLL {before} before and {after} after temperature scaling: on the split of the "
                "fit, which is that of the measurement in the released code, T = 1 would have "
                "kept it"
            )
            yield after, Flag("impossible", reason)


# -- one number against another -------------------------------------------------------------------


def auroc_copied_from_aupr(numbers: Numbers) -> Flagged:
    """AUROCs that are an AUPR less a little, or have the std of the AUPR in the whole row.

    The two are different statistics of the same scores: their std agree by accident at most.
    """
    rows: dict[str, list[tuple[Published, Published]]] = defaultdict(list)
    for aupr, auroc, _ in _detections(numbers):
        if auroc.label == "table2b":
            rows[auroc.row].append((aupr, auroc))
    for cells in rows.values():
        same = [(aupr, auroc) for aupr, auroc in cells if aupr.std == auroc.std]
        near = [cell for cell in same if _OFFSETS[0] <= _offset(cell) <= _OFFSETS[1]]
        rest = [cell for cell in same if cell not in near]
        if len(near) > 1:
            low, *_, high = sorted(map(_offset, near))
            aupr, auroc = near[0]
            reason = (
                f"AUPR less {low:.2f} to {high:.2f} with the same std in {len(near)} of "
                f"{len(cells)} cells, such as {auroc} for {aupr}"
            )
            yield from ((auroc, Flag("suspicious", reason)) for _, auroc in near)
        if rest and len(same) == len(cells) >= 4:
            aupr, auroc = rest[-1]
            reason = f"all {len(cells)} std of the row are AUPR's, such as {auroc} beside {aupr}"
            yield from ((auroc, Flag("suspicious", reason)) for _, auroc in rest)


def _offset(cell: tuple[Published, Published]) -> float:
    return round(cell[0].mean - cell[1].mean, 2)


def mean_auroc(numbers: Numbers) -> Flagged:
    """Mean AUROCs of SVHN and CIFAR-100 that are not the mean of the two (table2b)."""
    for number in [number for number in numbers.values() if number.column == "mean_auroc"]:
        means = {}
        for kind in ("aleatoric", "epistemic"):
            svhn = numbers.get(("table2b", number.row, f"cifar10>svhn/{kind}"))
            cifar100 = numbers.get(("table2b", number.row, f"cifar10>cifar100/{kind}"))
            if svhn and cifar100:
                means[kind] = (svhn.mean + cifar100.mean) / 2
        if not means or any(abs(number.mean - mean) < 3 * ROUNDING for mean in means.values()):
            continue
        expected = " and ".join(f"{mean:.2f} ({kind})" for kind, mean in means.items())
        reason = f"{number}, but the means of SVHN and CIFAR-100 in table2b are {expected}"
        same = ("table2", number.row, number.mean, number.std)
        auprs = (n for n in numbers.values() if (n.label, n.row, n.mean, n.std) == same)
        twin = next(auprs, None)
        if twin:
            reason += f"; it is the AUPR of {twin.column}"
        yield number, Flag("suspicious", reason)


def same_quantity(numbers: Numbers) -> Flagged:
    """One quantity that is printed with different values.

    Where all but a quarter agree, the others have the flag, else all.
    """
    groups: dict[tuple[str, ...], list[Published]] = defaultdict(list)
    for number in sorted(numbers.values(), key=lambda number: number.std is None):
        groups[quantity(number)].append(number)
    for members in groups.values():
        values: dict[str, list[Published]] = defaultdict(list)
        for number in members:  # one without a std borrows that of the first that it agrees with
            twin = next(other for other in members if other.mean == number.mean)
            values[str(number if number.std is not None else twin)].append(number)
        if len(values) < 2:
            continue
        parts = (
            f"{value} in {', '.join(dict.fromkeys(number.label for number in printed))}"
            for value, printed in values.items()
        )
        flag = Flag("suspicious", f"one quantity, printed as {'; '.join(parts)}")
        most = max(values.values(), key=len)
        agreed = most if len(most) >= 0.75 * len(members) else []
        yield from ((number, flag) for number in members if number not in agreed)


_SAME_ROW: Final = {
    "ablation-none": "edl",
    "ablation-core": "gem-core",
    "ablation-mix": "gem-mix",
    **dict.fromkeys(("ablation-full", "3", "0.1", "1e-4"), "gem-fi"),  # defaults of the sweeps
}
_SAME_WORD: Final = {
    "max_prob": "aleatoric",
    "evidence": "epistemic",
    "pr-curve": "aleatoric",
    "roc-curve": "aleatoric",
}


def quantity(number: Published) -> tuple[str, ...]:
    """What a number is of, the same wherever the paper prints it: row, words of its column, metric.

    What stands without a data set is of CIFAR-10, and before temperature scaling.
    """
    row, words = _SAME_ROW.get(number.row, number.row), number.column.split("/")
    if number.label in {"hparams", "ood_aupr_auroc"}:  # of GEM-FI alone; their rows are others
        row, words = "gem-fi", [number.row, *words]
    if number.metric == "accuracy":  # of the ID data of a pair
        words = [word.partition(">")[0] for word in words]
    if (row, words[-1]) == ("gem-fi", "pr-curve"):  # the text has the epistemic one there
        words[-1] = "epistemic"
    left_out = {"before", "cifar10", number.metric}
    named = (_SAME_WORD.get(word, word) for word in words if word not in left_out)
    return (row, *named, number.metric)


def known_problems(numbers: Numbers) -> Flagged:
    """What was found by reading (`published.known.PROBLEMS`)."""
    for reason, patterns in PROBLEMS.items():
        flag = Flag("suspicious", reason)
        for key, number in numbers.items():
            if is_one_of(":".join(key), patterns):
                yield number, flag


RULES: Final[tuple[Callable[[Numbers], Flagged], ...]] = (
    brier_below_errors,
    aupr_against_auroc,
    aupr_of_the_other_side,
    errors_worse_than_chance,
    errors_told_too_well,
    temperature_makes_worse,
    auroc_copied_from_aupr,
    mean_auroc,
    same_quantity,
    known_problems,
)
"""In the order of the flags of a number."""


# -- numbers --------------------------------------------------------------------------------------


def _low(number: Published, deviations: float = 2) -> float:
    """The lower end of what a number may be, as a share."""
    return max(0.0, number.mean - ROUNDING - deviations * (number.std or 0.0)) / 100


def _high(number: Published, deviations: float = 2) -> float:
    """The upper end."""
    return min(100.0, number.mean + ROUNDING + deviations * (number.std or 0.0)) / 100


def _with_accuracy(numbers: Numbers, metric: str) -> Iterator[tuple[Published, Published]]:
    """Each number of a metric with the accuracy of its row, in its own table or in table3."""
    for number in numbers.values():
        own = numbers.get((number.label, number.row, "accuracy"))
        accuracy = own or numbers.get(("table3", number.row, "accuracy"))
        if number.metric == metric and accuracy is not None:
            yield number, accuracy


def _detections(numbers: Numbers) -> Iterator[tuple[Published, Published, Pair]]:
    """Each AUPR with the AUROC of the same score and the sizes of its pair."""
    for number in numbers.values():
        label = "table2b" if number.label == "table2" else number.label
        column = number.column.replace("/aupr_id", "/auroc")
        auroc = numbers.get((label, number.row, column))
        pair = number.row if number.row in PAIRS else number.column.split("/")[0]
        if number.metric == "aupr_id" and auroc is not None and auroc is not number:
            yield number, auroc, PAIRS[pair]
