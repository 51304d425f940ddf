"""MNIST-C and CIFAR-10-C: the published arrays where they are here, else our own corruptions.

A part is one type (of CIFAR-10-C: at one severity, `fog-3`). It is sought in the published folder,
then in the folder that `gemfi data corrupt` writes, and else made from the test images at hand and
kept in the cache. What was made is named so.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch

from gemfi.data.readers import Pictures, read_array_pictures, read_npy
from gemfi.data.registry.class_names import CIFAR10_NAMES
from gemfi.data.registry.colour import CIFAR10
from gemfi.data.registry.grey import MNIST
from gemfi.data.registry.record import DataSet, Form, Part, RemoteFile
from gemfi.data.splits import Role
from gemfi.errors import InputError

# Listed, and not asked of `gemfi.data.corruptions`, which takes its time to import.
_MNIST_TYPES = """
shot_noise impulse_noise glass_blur motion_blur shear scale rotate brightness translate stripe
fog spatter dotted_line zigzag canny_edges
"""
_CIFAR_TYPES = """
gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur snow frost
fog brightness contrast elastic_transform pixelate jpeg_compression speckle_noise gaussian_blur
spatter saturate
"""
_SEVERITIES = range(1, 6)

# As torch-uncertainty gives them; name of the .npy file -> md5.
_CIFAR_MD5: Final = {
    "fog": "7b397314b5670f825465fbcd1f6e9ccd",
    "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
    "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
    "glass_blur": "7361fb4019269e02dbf6925f083e8629",
    "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
    "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
    "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
    "frost": "31f6ab3bce1d9934abfb0cc13656f141",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "snow": "bb238de8555123da9c282dea23bd6e55",
    "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
    "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "labels": "c439b113295ed5254878798ffe28fd54",
}

GENERATED: Final = "generated"
"""The folder, below the data folder, where `gemfi data corrupt` writes."""

MADE_SEED: Final = 0
"""Of the corruptions that are made here."""

MADE_VERSION: Final = 1
"""Raise it when a corruption gives other pixels, so that what is in the cache is made anew."""

PUBLISHED_FOLDERS: Final = {"mnist": "mnist_c", "cifar10": "CIFAR-10-C"}
"""Name of the clean set -> the folder of its published corruptions."""

_MU: Final = (
    "N. Mu, J. Gilmer: MNIST-C: a robustness benchmark for computer vision. arXiv:1906.02337, 2019"
)
_HENDRYCKS: Final = (
    "D. Hendrycks, T. Dietterich: Benchmarking neural network robustness to common corruptions and "
    "perturbations. ICLR 2019"
)


def _labelled(images: Path, labels: Path, severity: int | None = None) -> Pictures:
    """A published array with its labels; of CIFAR-10-C, the fifth of it that has the severity."""
    pictures = read_array_pictures(images)
    numbers = read_npy(labels)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) != len(pictures):
        raise InputError(
            f"{labels}: expected {len(pictures)} integers, one for each image of {images}, got "
            f"{numbers.shape} {numbers.dtype}"
        )
    x, y = pictures.images, numbers.astype(np.int64)
    if severity is not None:
        if len(x) % len(_SEVERITIES):
            raise InputError(f"{images}: {len(x)} images are not five severities of the same set")
        each = len(x) // len(_SEVERITIES)
        rows = slice((severity - 1) * each, severity * each)
        x, y = x[rows].copy(), y[rows]
    return Pictures(x, y)


def _made(clean: Form, name: str, severity: int | None, family: str, *files: Path) -> Pictures:
    from gemfi.data.corruptions import corrupt  # noqa: PLC0415 - as above

    pictures = clean.read(*files)
    images = torch.from_numpy(pictures.images)
    made = corrupt(images, name, severity, seed=MADE_SEED, family=family)
    return Pictures(made.numpy(), pictures.labels)


def _contents(files: tuple[str, ...]) -> dict[str, str]:
    """The published checksums; of the files of MNIST-C, none were found."""
    known = {f"CIFAR-10-C/{name}.npy": f"md5:{digits}" for name, digits in _CIFAR_MD5.items()}
    return {file: known[file] for file in files if file in known}


def _part(clean: DataSet, name: str, severity: int | None) -> Part:
    label = name if severity is None else f"{name}-{severity}"
    published = PUBLISHED_FOLDERS[clean.name]
    forms = []
    for folder, title in ((published, label), (f"{GENERATED}/{published}", f"{label}, generated")):
        if severity is None:
            files = (f"{folder}/{name}/test_images.npy", f"{folder}/{name}/test_labels.npy")
        else:
            files = (f"{folder}/{name}.npy", f"{folder}/labels.npy")
        read = partial(_labelled, severity=severity)
        made = folder != published
        forms.append(Form(title, files, read, {} if made else _contents(files), made=made))
    forms += [
        Form(
            f"{label}, generated",
            form.files,
            partial(_made, form, name, severity, clean.name),
            slow=True,
            made=True,
            version=MADE_VERSION,
        )
        for form in clean.parts["test"].forms
    ]
    return Part(clean.parts["test"].count, (Role.TEST,), tuple(forms))


MNIST_C: Final = DataSet(
    name="mnist-c",
    title="MNIST-C",
    summary="MNIST's test images under 15 corruptions",
    shape=MNIST.shape,
    num_classes=10,
    class_names=MNIST.class_names,
    licence="CC BY 4.0",
    citation=_MU,
    homepage="https://github.com/google-research/mnist-c",
    files=(
        RemoteFile(
            "mnist_c.zip",
            "https://zenodo.org/record/3239543/files/mnist_c.zip",
            "sha256:af9ee8c6a815870c7fdde5af84c7bf8db0bcfa1f41056db83871037fba70e493",
            246661575,
            tuple(f"mnist_c/{name}" for name in _MNIST_TYPES.split()),
        ),
    ),
    parts={name: _part(MNIST, name, None) for name in _MNIST_TYPES.split()},
    mean=MNIST.mean,
    std=MNIST.std,
    note="the published folder `identity` is left out: it is MNIST itself",
)

CIFAR10_C: Final = DataSet(
    name="cifar10-c",
    title="CIFAR-10-C",
    summary="CIFAR-10's test images under 19 corruptions at 5 severities",
    shape=CIFAR10.shape,
    num_classes=10,
    class_names=CIFAR10_NAMES,
    licence="CC BY 4.0",
    citation=_HENDRYCKS,
    homepage="https://github.com/hendrycks/robustness",
    files=(
        RemoteFile(
            "CIFAR-10-C.tar",
            "https://zenodo.org/record/2535967/files/CIFAR-10-C.tar",
            "sha256:c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
            2918471680,
            ("CIFAR-10-C",),
        ),
    ),
    parts={
        f"{name}-{severity}": _part(CIFAR10, name, severity)
        for name in _CIFAR_TYPES.split()
        for severity in _SEVERITIES
    },
    mean=CIFAR10.mean,
    std=CIFAR10.std,
)
