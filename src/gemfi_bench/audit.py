"""Which published numbers cannot be, and which are hard to believe.

`audit()` holds the paper's numbers (`gemfi_bench.published`) against bounds, against each other,
and against what is known of the released code. A number is taken at the end of mean ± 2 std that
is kindest to it, and as if it had been rounded, before it is called impossible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gemfi_bench.published import PAIRS, PUBLISHED, Key, Pair, Published, bounds
from gemfi_bench.published.known import KNOWN, SAME_QUANTITY
from gemfi_bench.published.ood import KINDS

Severity = Literal["impossible", "suspicious"]
Numbers: TypeAlias = Mapping[Key, Published]
Cell: TypeAlias = tuple[Published, Published]
Found: TypeAlias = Iterator[tuple[Published, "Flag"]]

ROUNDING = 0.005
"""Half of the last digit that the paper prints of a percentage."""

NLL_ROUNDING = 0.0001
"""What rounding to four digits may change in the difference of two NLLs."""

STATED_BRIER: Mapping[str, str] = {
    "table3": "sum",
    "table13-cifar10": "sum",
    "abstract": "sum",
    "text": "sum",
    "ts_calibration": "mean",
}
"""Label -> convention that the paper's text states, whatever its code did."""

UNHEARD_OF = 97.0
"""AUROC between right and wrong predictions, in percent, that is hard to believe. A judgement: the
numbers of the paper that are not above it need 93 at most."""

_OFFSETS = (0.25, 0.75)  # of AUPR over AUROC in cells that look made from each other


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


def audit(entries: Iterable[Published] = PUBLISHED) -> dict[Key, tuple[Flag, ...]]:
    """The flags of every number that has one, by label, row and column.

    >>> audit()["table3", "gem-core", "brier"][0].severity
    'impossible'
    """
    numbers = {each.key: each for each in entries}
    found: dict[Key, list[Flag]] = defaultdict(list)
    for rule in RULES:
        for number, flag in rule(numbers):
            found[number.key].append(flag)
    return {key: tuple(sorted(found[key], key=_rank)) for key in numbers if key in found}


def brier_below_errors(numbers: Numbers) -> Found:
    """Brier scores that are too small for the errors (`bounds.least_brier`)."""
    for number in numbers.values():
        accuracy = _accuracy(numbers, number)
        if number.metric != "brier" or number.label not in STATED_BRIER or accuracy is None:
            continue
        stated = STATED_BRIER[number.label]
        if _high(number) < 100 * bounds.least_brier(_high(accuracy) / 100, stated):
            share = accuracy.mean / 100
            least = 100 * bounds.least_brier(share, stated)
            as_mean = 100 * bounds.least_brier(share, "mean")
            reason = (
                f"{number} with {accuracy} % right: errors alone make {least:.2f} as the {stated} "
                f"over classes, which the text states ({as_mean:.2f} as their mean)"
            )
            yield number, Flag("impossible", reason)


def aupr_against_auroc(numbers: Numbers) -> Found:
    """AUPRs with ID positive that no ROC curve of the AUROC has (`bounds`).

    The bounds hold for means over the same runs, so what only 2 std excuse is suspicious.
    """
    for aupr, auroc, pair in _detections(numbers):
        flag = _too_large(aupr, auroc, pair) or _too_small(aupr, auroc, pair)
        if flag:
            yield aupr, flag
            yield auroc, flag


def _too_large(aupr: Published, auroc: Published, pair: Pair) -> Flag | None:
    rate = pair.base_rate_id
    if _rounded_down(aupr) <= 100 * bounds.largest_ap_with_ties(_rounded_up(auroc) / 100, rate):
        return None
    share = auroc.mean / 100
    untied, tied = bounds.largest_ap(share, rate), bounds.largest_ap_with_ties(share, rate)
    text = (
        f"AUPR {aupr} with AUROC {auroc}: with ID positive at most {100 * untied:.2f} without "
        f"ties, {100 * tied:.2f} with them"
    )
    if _low(aupr) > 100 * bounds.largest_ap_with_ties(_high(auroc) / 100, rate):
        other = 100 * bounds.largest_ap(share, pair.base_rate_ood)
        return Flag("impossible", f"{text} (with OOD positive {other:.2f})")
    return Flag("suspicious", f"{text}, also for means of the same runs; only their 2 std allow it")


def _too_small(aupr: Published, auroc: Published, pair: Pair) -> Flag | None:
    rate = pair.base_rate_id
    least = 100 * bounds.least_ap(_rounded_down(auroc) / 100, rate)
    if _rounded_up(aupr) >= least:
        return None
    text = f"AUPR {aupr} with AUROC {auroc}: with ID positive at least {least:.2f} without ties"
    tied = 100 * bounds.least_ap_with_ties(_low(auroc) / 100, rate)
    return Flag("impossible" if _high(aupr) < tied else "suspicious", text)


def aupr_of_the_other_side(numbers: Numbers) -> Found:
    """AUPRs that refute the paper's text, by which OOD is positive (`bounds.least_ap`)."""
    for aupr, auroc, pair in _detections(numbers):
        if aupr.label != "table2":  # the others repeat it, without a std
            continue
        least = 100 * bounds.least_ap(_low(auroc) / 100, pair.base_rate_ood)
        if _high(aupr) < least:
            least = 100 * bounds.least_ap(auroc.mean / 100, pair.base_rate_ood)
            reason = (
                f"AUPR {aupr} with AUROC {auroc}: at least {least:.2f} without ties if OOD were "
                "positive, as the text says"
            )
            yield aupr, Flag("suspicious", reason)


def errors_worse_than_chance(numbers: Numbers) -> Found:
    """Error detection below the base rate.

    A score that knows nothing ranks at random and has the share of right predictions as its AP
    (right is positive), so a lower AP is a score with the wrong sign, or another metric.
    """
    for number, accuracy in _error_detections(numbers):
        if _high(number) < _low(accuracy):
            reason = (
                f"AUPR {number} with {accuracy} % right: a random score has the share of right "
                f"predictions, {accuracy.mean:.2f}"
            )
            yield number, Flag("suspicious", reason)


def errors_told_too_well(numbers: Numbers) -> Found:
    """Error detection that needs an AUROC which is unheard of (`bounds.least_auroc`)."""
    for number, accuracy in _error_detections(numbers):
        kindest = 100 * bounds.least_auroc(_low(number) / 100, _high(accuracy) / 100)
        if kindest > UNHEARD_OF:
            needed = 100 * bounds.least_auroc(number.mean / 100, accuracy.mean / 100)
            reason = (
                f"AUPR {number} with {accuracy} % right needs an AUROC of {needed:.1f} or more "
                "between right and wrong"
            )
            yield number, Flag("suspicious", reason)


def temperature_makes_worse(numbers: Numbers) -> Found:
    """NLL that rises with the temperature that was chosen to make it least.

    T = 1 is among the temperatures, so on the split of the fit no NLL is above the one before.
    """
    for after in numbers.values():
        if after.column != "nll/after":
            continue
        before = numbers.get((after.label, after.row, "nll/before"))
        if before is not None and round(after.mean - before.mean, 4) > NLL_ROUNDING:
            reason = (
                f"NLL {before} before and {after} after temperature scaling: on the split of the "
                "fit, which is that of the measurement in the released code, T = 1 would have "
                "kept it"
            )
            yield after, Flag("impossible", reason)


def auroc_copied_from_aupr(numbers: Numbers) -> Found:
    """AUROCs that are an AUPR less a little, or have the std of the AUPR in the whole row.

    The two are different statistics of the same scores: their std agree by accident at most.
    """
    rows: dict[str, list[Cell]] = defaultdict(list)
    for aupr, auroc, _ in _detections(numbers):
        if auroc.label == "table2b":
            rows[auroc.row].append((aupr, auroc))
    for cells in rows.values():
        same = [(aupr, auroc) for aupr, auroc in cells if aupr.std == auroc.std]
        below = [each for each in same if _OFFSETS[0] <= _difference(each) <= _OFFSETS[1]]
        if len(below) > 1:
            low, *_, high = sorted(map(_difference, below))
            aupr, auroc = below[0]
            reason = (
                f"AUPR less {low:.2f} to {high:.2f} with the same std in {len(below)} of "
                f"{len(cells)} cells, such as {auroc} for {aupr}"
            )
            yield from ((auroc, Flag("suspicious", reason)) for _, auroc in below)
        rest = [each for each in same if each not in below]
        if rest and len(same) == len(cells) >= 4:
            aupr, auroc = rest[-1]
            reason = f"all {len(cells)} std of the row are AUPR's, such as {auroc} beside {aupr}"
            yield from ((auroc, Flag("suspicious", reason)) for _, auroc in rest)


def mean_auroc(numbers: Numbers) -> Found:
    """Mean AUROCs of SVHN and CIFAR-100 that are not the mean of the two (table2b)."""
    for number in numbers.values():
        if number.column != "mean_auroc":
            continue
        means = _mean_aurocs(numbers, number.row)
        if not means or any(abs(number.mean - mean) < 3 * ROUNDING for mean in means.values()):
            continue
        expected = " and ".join(f"{mean:.2f} ({kind})" for kind, mean in means.items())
        reason = f"{number}, but the means of SVHN and CIFAR-100 in table2b are {expected}"
        twin = next((each for each in numbers.values() if _is_twin(number, each)), None)
        if twin:
            reason += f"; it is the AUPR of {twin.column}"
        yield number, Flag("suspicious", reason)


def _mean_aurocs(numbers: Numbers, row: str) -> dict[str, float]:
    """Of a method on SVHN and CIFAR-100, for each kind of uncertainty."""
    means = {}
    for kind in KINDS:
        keys = (("table2b", row, f"cifar10>{ood}/{kind}") for ood in ("svhn", "cifar100"))
        both = [numbers[key].mean for key in keys if key in numbers]
        if len(both) == 2:
            means[kind] = sum(both) / 2
    return means


def same_quantity(numbers: Numbers) -> Found:
    """One quantity that is printed with different values.

    Where all but a quarter agree, the others have the flag, else all.
    """
    for group in SAME_QUANTITY:
        members = [numbers[key] for key in group if key in numbers]
        values: dict[str, list[Published]] = defaultdict(list)
        for each in members:
            values[_value(each, members)].append(each)
        if len(values) < 2:
            continue
        parts = (f"{value} in {_labels(each.key for each in values[value])}" for value in values)
        flag = Flag("suspicious", f"one quantity, printed as {'; '.join(parts)}")
        most = max(values.values(), key=len)
        agreed = most if len(most) >= 0.75 * len(members) else []
        yield from ((each, flag) for each in members if each not in agreed)


def known_problems(numbers: Numbers) -> Found:
    """What was found by reading (`published.known.KNOWN`)."""
    for known in KNOWN:
        flag = Flag("suspicious", known.reason)
        yield from ((each, flag) for each in numbers.values() if known.matches(each))


RULES: tuple[Callable[[Numbers], Found], ...] = (
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


def _rounded_down(number: Published) -> float:
    return max(0.0, number.mean - ROUNDING)


def _rounded_up(number: Published) -> float:
    return min(100.0, number.mean + ROUNDING)


def _low(number: Published) -> float:
    """The lower kind end, in percent."""
    return max(0.0, _rounded_down(number) - 2 * (number.std or 0.0))


def _high(number: Published) -> float:
    """The upper kind end, in percent."""
    return min(100.0, _rounded_up(number) + 2 * (number.std or 0.0))


def _difference(cell: Cell) -> float:
    aupr, auroc = cell
    return round(aupr.mean - auroc.mean, 2)


def _accuracy(numbers: Numbers, of: Published) -> Published | None:
    """The accuracy of a row: of its own table, else of table3."""
    own = numbers.get((of.label, of.row, "accuracy"))
    return own or numbers.get(("table3", of.row, "accuracy"))


def _error_detections(numbers: Numbers) -> Iterator[tuple[Published, Published]]:
    """Each AUPR of error detection with the accuracy of its row."""
    for number in numbers.values():
        accuracy = _accuracy(numbers, number)
        if number.metric == "aupr_correct" and accuracy is not None:
            yield number, accuracy


def _detections(numbers: Numbers) -> Iterator[tuple[Published, Published, Pair]]:
    """Each AUPR with the AUROC of the same score and the sizes of its pair."""
    for number in numbers.values():
        if number.metric != "aupr_id":
            continue
        label = "table2b" if number.label == "table2" else number.label
        column = number.column.replace("/aupr_id", "/auroc")
        auroc = numbers.get((label, number.row, column))
        pair = number.row if number.row in PAIRS else number.column.split("/")[0]
        if auroc is not None and auroc is not number:
            yield number, auroc, PAIRS[pair]


def _is_twin(number: Published, other: Published) -> bool:
    """Whether an AUPR of the same method has the same mean and std."""
    same = (other.row, other.mean, other.std) == (number.row, number.mean, number.std)
    return same and other.label == "table2"


def _value(number: Published, members: Iterable[Published]) -> str:
    """A number as it is compared; one without a std borrows that of the first it agrees with."""
    if number.std is not None:
        return str(number)
    with_std = (each for each in members if each.mean == number.mean and each.std is not None)
    return str(next(with_std, number))


def _rank(flag: Flag) -> bool:
    return flag.severity != "impossible"


def _labels(keys: Iterable[Key]) -> str:
    return ", ".join(dict.fromkeys(label for label, _, _ in keys))
