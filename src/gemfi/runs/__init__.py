"""Runs: training and evaluation with a record, in folders that can be resumed and opened.

>>> from gemfi.runs import default_spec, evaluate_run, train_run
>>> run = train_run(default_spec("digits", "gem-fi"), "runs/first")
>>> evaluate_run("runs/first").metrics()["test"]["id"]["accuracy"]
"""

from __future__ import annotations

from gemfi.runs.folder import Record, Run
from gemfi.runs.spec import OwnData, RunSpec, default_spec, find_task, make_spec, paper_spec
from gemfi.runs.work import evaluate_run, train_run

__all__ = [
    "OwnData",
    "Record",
    "Run",
    "RunSpec",
    "default_spec",
    "evaluate_run",
    "find_task",
    "make_spec",
    "paper_spec",
    "train_run",
]
