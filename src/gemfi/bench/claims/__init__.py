"""The ledger of claims: each claim of the paper, a statistic that could refute it, our verdict.

To add a claim, write it into the list of the file that it belongs to; what this project claims
itself is in `ours.py`.
"""

from __future__ import annotations

from gemfi.bench.claims.comparisons import COMPARISONS
from gemfi.bench.claims.components import COMPONENTS_OF_GEM
from gemfi.bench.claims.ledger import Claim, Finding, Test, ledger
from gemfi.bench.claims.meanings import MEANINGS
from gemfi.bench.claims.ours import OURS
from gemfi.bench.claims.sensitivity import SENSITIVITY

PAPER = (*COMPARISONS, *COMPONENTS_OF_GEM, *MEANINGS, *SENSITIVITY)
"""The claims of the paper."""

CLAIMS = (*PAPER, *OURS)
"""Every claim, in the order of the report."""

__all__ = ["CLAIMS", "OURS", "PAPER", "Claim", "Finding", "Test", "ledger"]
