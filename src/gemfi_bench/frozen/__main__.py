"""`python -m gemfi_bench.frozen FILE`: convert the published weights into the data folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gemfi.errors import GemfiError
from gemfi_bench.frozen.weights import convert_weights


def main(arguments: Sequence[str]) -> int:
    """Convert the file that is named; returns the exit code: 0, or 2 for bad input."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(f"Wrote {convert_weights(arguments[0])}")
    except (GemfiError, OSError) as error:
        print(f"gemfi: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
