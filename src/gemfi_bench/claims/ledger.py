"""Claims, and how they are judged.

A claim has one test or more, each a difference with its interval. Runs are paired by their seeds;
below three seeds a test is undecided, whatever its interval over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gemfi_bench.results import Results
from gemfi_bench.statistics import Difference, Outcome
from gemfi_bench.unavailable import Unavailable

Verdict = Literal["supported", "refuted", "undecided", "not tested"]
VERDICTS: Final[tuple[Verdict, ...]] = ("supported", "refuted", "undecided", "not tested")

_FORMS: Final = ((0.1, ".2f"), (0.001, ".4f"), (0.0, ".1e"))
"""Size -> format of numbers of at least that size."""

RULE: Final = (
    "A claim is supported if all of its tests are, refuted if one of them is, and undecided "
    "otherwise. A test on fewer than three seeds is undecided; costs count turns and not seeds. "
    "Each test stands alone: one interval in twenty or so misses the true value, and nothing "
    "corrects for their number."
)

OURS: Final = "ours"
"""`where` of a claim that is not the paper's."""


@dataclass(frozen=True)
class Test:
    """One statistic of a claim."""

    what: str  # is compared, in words
    difference: Difference
    verdict: Outcome  # on what the claim says of it
    keys: tuple[str, ...] = ()  # of the runs that it comes from
    ratio: bool = False  # shown without a sign

    def shown(self) -> tuple[str, str]:
        """Its estimate and its interval in words, with more digits where all numbers are small."""
        interval = self.difference.interval
        ends = [] if interval is None else [interval.low, interval.high]
        numbers = [self.difference.estimate, *ends]
        largest = max(map(abs, numbers)) or 1.0  # a plain 0 needs no digits
        form = next(form for least, form in _FORMS if largest >= least)
        sign = "" if self.ratio else "+"
        estimate, *shown = (f"{number:{sign}{form}}" for number in numbers)
        return estimate, f"[{', '.join(shown)}]" if shown else "no interval"


Tests = Callable[[Results], Sequence[Test]]
"""Makes the tests of a claim, or raises `Unavailable` where the records do not allow it."""


@dataclass(frozen=True)
class Claim:
    """What somebody says, and what would refute it."""

    name: str  # short and unique
    text: str  # the claim, in our words
    where: str  # in the paper, or `OURS`
    statistic: str  # what is tested, in words
    tests: Tests  # on records

    @property
    def said(self) -> str:
        """The claim, and of whose settings where they are not ours."""
        return self.text + (" (the paper's settings)" if "paper's settings" in self.name else "")


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim; `reason` says why it was not tested."""

    claim: Claim
    outcome: Verdict
    tests: tuple[Test, ...] = ()
    reason: str = ""

    @property
    def few_seeds(self) -> bool:
        """Whether a test had too few seeds to decide anything."""
        return any(test.difference.few_seeds for test in self.tests)

    @property
    def keys(self) -> list[str]:
        """Of the runs that it rests on."""
        return list(dict.fromkeys(key for test in self.tests for key in test.keys))

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Estimate and interval of each test in words; the reason where there is none."""
        shown = [(test, *test.shown()) for test in self.tests]
        return [
            (f"{test.what}: {estimate}", f"{interval}, {test.verdict}")
            for test, estimate, interval in shown
        ] or [(self.reason, "")]


def ledger(results: Results, claims: Iterable[Claim]) -> list[Finding]:
    """Judge claims by records."""
    return [judge(results, claim) for claim in claims]


def judge(results: Results, claim: Claim) -> Finding:
    """Judge one claim."""
    try:
        tests = tuple(claim.tests(results))
    except Unavailable as reason:
        return Finding(claim, "not tested", reason=str(reason))
    verdicts = {test.verdict for test in tests}
    if "refuted" in verdicts:
        return Finding(claim, "refuted", tests)
    return Finding(claim, "supported" if verdicts == {"supported"} else "undecided", tests)
