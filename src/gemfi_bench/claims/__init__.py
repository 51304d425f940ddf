"""The ledger of claims: each claim of the paper, a statistic that could refute it, our verdict.

To add a claim, write it into the list of the file that it belongs to; what this project claims
itself is in `ours.py`.
"""

from __future__ import annotations

from gemfi_bench.claims.comparisons import COMPARISONS
from gemfi_bench.claims.components import COMPONENTS_OF_GEM
from gemfi_bench.claims.ledger import Claim, Finding, Test, ledger
from gemfi_bench.claims.meanings import MEANINGS
from gemfi_bench.claims.ours import OURS
from gemfi_bench.claims.sensitivity import SENSITIVITY

PAPER = (*COMPARISONS, *COMPONENTS_OF_GEM, *MEANINGS, *SENSITIVITY)
"""The claims of the paper."""

CLAIMS = (*PAPER, *OURS)
"""Every claim, in the order of the report."""

__all__ = ["CLAIMS", "OURS", "PAPER", "Claim", "Finding", "Test", "ledger"]
