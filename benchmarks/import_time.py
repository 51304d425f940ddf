"""What `import gemfi` costs beyond torch, NumPy and scikit-learn, and what its names cost then.

Each row is the median of several fresh processes, which take turns, so that a busy machine slows
all of them alike. `import gemfi` shall stay within 0.3 s of the first row. A name of `gemfi` is
imported when it is first used, so the last row is what a program that uses them all pays.

    python benchmarks/import_time.py --runs 5
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from typing import Final

LIMIT: Final = 0.3  # seconds
BASE: Final = "import torch, numpy, sklearn.base"
STATEMENTS: Final = {
    "torch, NumPy, scikit-learn": BASE,
    "and import gemfi": f"{BASE}; import gemfi",
    "and fit, build_model, evaluate": f"{BASE}; from gemfi import build_model, evaluate, fit",
    "and every name": f"{BASE}; from gemfi import *",
}
_TIMED: Final = """\
import sys, time
begin = time.perf_counter()
{}
print(time.perf_counter() - begin, sum(name.startswith("gemfi") for name in sys.modules))
"""


def measure(statement: str) -> tuple[float, int]:
    """Seconds of an import statement in a process of its own, and the modules of gemfi after it."""
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(statement)], capture_output=True, text=True, check=True
    )
    seconds, modules = done.stdout.split()
    return float(seconds), int(modules)


def main() -> None:
    """Print the table; exit code 1 where `import gemfi` costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="processes for each row")
    runs = parser.parse_args().runs
    rounds = [{name: measure(text) for name, text in STATEMENTS.items()} for _ in range(runs)]
    seconds = {name: statistics.median(one[name][0] for one in rounds) for name in STATEMENTS}
    base = seconds[next(iter(STATEMENTS))]
    print(f"{'':32s}{'seconds':>9s}{'beyond':>9s}{'ratio':>8s}{'modules':>9s}")
    for name, value in seconds.items():
        modules = rounds[0][name][1]
        print(f"{name:32s}{value:9.2f}{value - base:9.2f}{value / base:8.2f}{modules:9d}")
    beyond = seconds["and import gemfi"] - base
    print(f"\nimport gemfi: {beyond:+.2f} s (limit {LIMIT} s)")
    sys.exit(beyond > LIMIT)


if __name__ == "__main__":
    main()
