"""The benchmark: one protocol, a grid of runs, and every table and figure of the paper from it.

`gemfi bench PROTOCOL` plans the grid, trains what is missing, evaluates and renders;
`gemfi report FOLDER` renders again. From Python:

>>> from gemfi_bench import Bench, find_protocol
>>> bench = Bench(find_protocol("digits"), "benches/digits")
>>> bench.work()

| to add | look at |
|---|---|
| a protocol | `protocols/*.toml`, and `protocol.py` for what a file may say |
| a group of runs | `grid.py` |
| a number or an array that a run keeps | `observation.py` |
| a table | `tables/` and its `words.toml`, then its label in `manifest.py` |
| a figure | `figures/`, then its label in `manifest.py` |
| a claim | `claims/` |
"""

from gemfi.data import TASKS
from gemfi_bench.frozen import cifar10_frozen

TASKS["cifar10-frozen"] = cifar10_frozen
