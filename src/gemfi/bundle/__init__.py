"""A trained model in one file: weights, statistics, policy, and what it takes to rebuild it.

    gemfi.save("model.safetensors", model, calibration=task.calibration, policy="false_alarm=0.05")
    bundle = gemfi.load("model.safetensors")
    bundle.decide(images)

Nothing is unpickled, and no data and no run folder are needed. `file.py` is the file, with a
checksum of its every byte, and what its header says; `bundle.py` a bundle and how it is made;
`loading.py` the way back, from files that strangers may have written; `describe.py` what `print`
tells. `models/` holds those that come with the package. Run folders: `gemfi.runs.open_model`.
"""

from gemfi.bundle.bundle import Bundle, Kind, make_bundle, save, write_bundle
from gemfi.bundle.file import ENDING, SCHEMA, Description
from gemfi.bundle.loading import bundle_names, bundled, load

__all__ = [
    "ENDING",
    "SCHEMA",
    "Bundle",
    "Description",
    "Kind",
    "bundle_names",
    "bundled",
    "load",
    "make_bundle",
    "save",
    "write_bundle",
]
