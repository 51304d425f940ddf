"""Runs: training and evaluation with a record, in folders that can be resumed and opened.

>>> from gemfi.runs import evaluate_run, matched_spec, train_run
>>> run = train_run(matched_spec("digits", "gem-fi"), "runs/first")
>>> evaluate_run("runs/first").metrics()["test"]["id"]["accuracy"]
"""

from __future__ import annotations

from gemfi.runs.choose import Recipe, make_spec, matched_spec
from gemfi.runs.folder import Record, Run
from gemfi.runs.spec import OwnData, RunSpec, find_task
from gemfi.runs.work import evaluate_run, train_run

__all__ = [
    "OwnData",
    "Recipe",
    "Record",
    "Run",
    "RunSpec",
    "evaluate_run",
    "find_task",
    "make_spec",
    "matched_spec",
    "train_run",
]
