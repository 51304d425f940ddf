"""The registry: the data sets of the paper, with their files, roles and sources.

To add a set, write its `DataSet` (see `grey.py`, `colour.py`) and list it in `sets.py`; to train on
it, say in `tasks.py` which OOD sets it is judged against.
"""

from __future__ import annotations

from gemfi.data.registry.load import data_set, load_split
from gemfi.data.registry.record import DataSet, Form, Part, RemoteFile
from gemfi.data.registry.sets import DATA_SETS
from gemfi.data.registry.tasks import AGAINST, registered_task

__all__ = [
    "AGAINST",
    "DATA_SETS",
    "DataSet",
    "Form",
    "Part",
    "RemoteFile",
    "data_set",
    "load_split",
    "registered_task",
]
