"""Runs: training and evaluation with a record, in folders that can be resumed and opened.

>>> from gemfi.runs import evaluate_run, matched_spec, train_run
>>> run = train_run(matched_spec("digits", "gem-fi"), "runs/first")
>>> evaluate_run("runs/first").metrics()["test"]["id"]["accuracy"]

`spec.py` is what to run, `folder.py` what a run leaves behind, `work.py` what is done with it,
`summary.py` what is printed.
"""

from __future__ import annotations

from gemfi.data.own import OwnData
from gemfi.runs.folder import Record, Run
from gemfi.runs.spec import Recipe, RunSpec, find_task, make_spec, matched_spec
from gemfi.runs.work import bundle_of_run, evaluate_run, fit_policy, open_model, train_run

__all__ = [
    "OwnData",
    "Recipe",
    "Record",
    "Run",
    "RunSpec",
    "bundle_of_run",
    "evaluate_run",
    "find_task",
    "fit_policy",
    "make_spec",
    "matched_spec",
    "open_model",
    "train_run",
]
