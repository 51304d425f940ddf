"""A trained model in one file: weights, statistics, policy, and what it takes to rebuild it.

    gemfi.save("model.safetensors", model, calibration=task.calibration, policy="false_alarm=0.05")
    bundle = gemfi.load("model.safetensors")
    bundle.decide(images)

Nothing is unpickled, and no data and no run folder are needed. `container.py` is the file, with a
checksum of its every byte; `description.py` what its header says; `saving.py` and `loading.py` the
way there and back; `runs.py` a bundle of a run folder; `describe.py` what `print` tells. `models/`
holds those that come with the package.
"""

from gemfi.bundle.bundle import Bundle, Kind
from gemfi.bundle.container import ENDING, SCHEMA
from gemfi.bundle.description import Description
from gemfi.bundle.loading import bundle_names, bundled, load
from gemfi.bundle.runs import bundle_of_run, fit_policy, open_model
from gemfi.bundle.saving import make_bundle, save, write_bundle

__all__ = [
    "ENDING",
    "SCHEMA",
    "Bundle",
    "Description",
    "Kind",
    "bundle_names",
    "bundle_of_run",
    "bundled",
    "fit_policy",
    "load",
    "make_bundle",
    "open_model",
    "save",
    "write_bundle",
]
