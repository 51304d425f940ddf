"""A trained model in one file: weights, statistics, policy, and what it takes to rebuild it.

    gemfi.save("model.safetensors", model, calibration=task.calibration, policy="false_alarm=0.05")
    bundle = gemfi.load("model.safetensors")
    bundle.decide(images)

Nothing is unpickled, and no data and no run folder are needed. `bundle.py` is a bundle and how it
is made and written, `loading.py` the way back from files that strangers may have written,
`describe.py` what `print` shows, and `models/` holds what comes with the package.
"""

from gemfi.bundle.bundle import ENDING, Bundle, Description, Kind, make_bundle, save, write_bundle
from gemfi.bundle.loading import bundle_names, bundled, load

__all__ = [
    "ENDING",
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
