"""The registry: the data sets of the paper, with their files, roles and sources, as they lie here.

To add a set, write its table in `sets.toml`; to train on it, say in `OOD_SETS` which OOD sets it is
judged against.
"""

from __future__ import annotations

from gemfi.data.registry.entries import DataSet, Form, Part, RemoteFile
from gemfi.data.registry.load import data_set, load_split, registered_task
from gemfi.data.registry.sets import DATA_SETS, OOD_SETS, OodSets

__all__ = [
    "DATA_SETS",
    "OOD_SETS",
    "DataSet",
    "Form",
    "OodSets",
    "Part",
    "RemoteFile",
    "data_set",
    "load_split",
    "registered_task",
]
