"""The ledger of claims: each claim of the paper and of ours, a statistic that could refute it."""

from gemfi_bench.claims.comparisons import COMPARISONS, SETTINGS
from gemfi_bench.claims.ledger import Claim, Finding, Test, ledger
from gemfi_bench.claims.meanings import MEANINGS
from gemfi_bench.claims.ours import OUR_CLAIMS

CLAIMS = (*COMPARISONS, *MEANINGS, *SETTINGS, *OUR_CLAIMS)
"""Every claim, in the order of the report; to add one, write it into the list of its file."""

__all__ = ["CLAIMS", "Claim", "Finding", "Test", "ledger"]
