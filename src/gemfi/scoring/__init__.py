"""Scoring: a trained model on files, of any number of inputs in a bounded memory.

`inputs.py` streams files to it, `rows.py` makes the columns and
`writers.py` writes them; `scoring.py` is the loop.
"""

from gemfi.scoring.scoring import Scored, score_files

__all__ = ["Scored", "score_files"]
