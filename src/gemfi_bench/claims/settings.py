"""GEM-FI under two settings: a claim about it is tested with both where the grid has both."""

from __future__ import annotations

from collections.abc import Callable

from gemfi_bench.claims.ledger import Claim, Tests
from gemfi_bench.grid import ABLATION, ABLATION_OURS, FULL, MAIN

_PAPERS = "the paper's settings"


def both(
    name: str, text: str, where: str, statistic: str, tests: Callable[[str, str], Tests]
) -> list[Claim]:
    """A claim about GEM-FI under our settings, and under the paper's."""
    return [
        Claim(name, text, where, statistic, tests("gem-fi", MAIN)),
        Claim(
            f"{name} ({_PAPERS})",
            text,
            where,
            f"{statistic}; at the learning rate of our settings",
            tests(FULL, ABLATION),
        ),
    ]


def both_ablations(
    name: str, text: str, where: str, statistic: str, tests: Callable[[str], Tests]
) -> list[Claim]:
    """A claim about the rows of the ablation, around our settings and around the paper's."""
    return [
        Claim(
            name, text, where, f"{statistic}; the ablation of our settings", tests(ABLATION_OURS)
        ),
        Claim(
            f"{name} ({_PAPERS})",
            text,
            where,
            f"{statistic}; at the learning rate of our settings",
            tests(ABLATION),
        ),
    ]
