"""CIFAR, SVHN and DTD: 32×32, three channels.

Checksums were read in torchvision, TensorFlow Datasets, pytorch-ood and the publishers' own pages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from gemfi.data.readers import (
    Pictures,
    read_array_pictures,
    read_cifar10_binary,
    read_cifar10_python,
    read_cifar100_binary,
    read_cifar100_python,
    read_image_folder,
    read_svhn,
)
from gemfi.data.registry.class_names import CIFAR10_NAMES, CIFAR100_NAMES
from gemfi.data.registry.grey import NO_CONSTANTS, TEST_ROLES
from gemfi.data.registry.record import DataSet, Form, Part, RemoteFile
from gemfi.data.splits import Role

_SHAPE: Final = (3, 32, 32)
_KRIZHEVSKY: Final = (
    "A. Krizhevsky: Learning multiple layers of features from tiny images. Technical report, "
    "University of Toronto, 2009"
)
_CIFAR_PAGE: Final = "https://www.cs.toronto.edu/~kriz/cifar.html"


def _joined(read: Callable[[Path], Pictures], *files: Path) -> Pictures:
    """Several files as one set, in their order."""
    parts = [read(file) for file in files]
    labels = [part.labels for part in parts if part.labels is not None]
    return Pictures(np.concatenate([part.images for part in parts]), np.concatenate(labels))


_CIFAR10_TRAIN: Final = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10_BINARY: Final = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_CIFAR10_PYTHON: Final = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def _cifar10_forms(label: str, batches: tuple[str, ...]) -> tuple[Form, ...]:
    binary = {
        f"cifar-10-batches-bin/{name}.bin": f"sha256:{_CIFAR10_BINARY[f'{name}.bin']}"
        for name in batches
    }
    pickled = {f"cifar-10-batches-py/{name}": f"md5:{_CIFAR10_PYTHON[name]}" for name in batches}
    return (
        Form(label, tuple(binary), partial(_joined, read_cifar10_binary), binary),
        Form(label, tuple(pickled), partial(_joined, read_cifar10_python), pickled),
    )


CIFAR10: Final = DataSet(
    name="cifar10",
    title="CIFAR-10",
    summary="animals and vehicles",
    shape=_SHAPE,
    num_classes=10,
    class_names=CIFAR10_NAMES,
    licence="not stated",
    citation=_KRIZHEVSKY,
    homepage=_CIFAR_PAGE,
    files=(
        RemoteFile(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170052171,
            ("cifar-10-batches-bin",),
        ),
    ),
    parts={
        "train": Part(50_000, (Role.TRAIN,), _cifar10_forms("train", _CIFAR10_TRAIN)),
        "test": Part(10_000, TEST_ROLES, _cifar10_forms("test", ("test_batch",))),
    },
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    held_out=2_500,
    note="the python version is read as well, without unpickling",
)


def _cifar100_forms(part: str, sha256: str, md5: str) -> tuple[Form, ...]:
    binary, pickled = f"cifar-100-binary/{part}.bin", f"cifar-100-python/{part}"
    return (
        Form(part, (binary,), read_cifar100_binary, {binary: f"sha256:{sha256}"}),
        Form(part, (pickled,), read_cifar100_python, {pickled: f"md5:{md5}"}),
    )


CIFAR100: Final = DataSet(
    name="cifar100",
    title="CIFAR-100",
    summary="100 kinds of things, none of them a class of CIFAR-10",
    shape=_SHAPE,
    num_classes=100,
    class_names=CIFAR100_NAMES,
    licence="not stated",
    citation=_KRIZHEVSKY,
    homepage=_CIFAR_PAGE,
    files=(
        RemoteFile(
            "cifar-100-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            168513733,
            ("cifar-100-binary",),
        ),
    ),
    parts={
        "train": Part(
            50_000,
            (Role.TRAIN,),
            _cifar100_forms(
                "train",
                "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                "16019d7e3df5f24257cddd939b257f8d",
            ),
        ),
        "test": Part(
            10_000,
            TEST_ROLES,
            _cifar100_forms(
                "test",
                "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
                "f0ef6b0ae62326f3e7ffdfab6717acfc",
            ),
        ),
    },
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    held_out=2_500,
    note="the python version is read as well, without unpickling",
)

_SVHN_BASE: Final = "http://ufldl.stanford.edu/housenumbers"

SVHN: Final = DataSet(
    name="svhn",
    title="SVHN",
    summary="house numbers, cropped to one digit",
    shape=_SHAPE,
    num_classes=10,
    class_names=tuple("0123456789"),
    licence="for non-commercial use only",
    citation="Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng: Reading digits in "
    "natural images with unsupervised feature learning. NIPS 2011",
    homepage=_SVHN_BASE,
    files=(
        RemoteFile(
            "svhn/train_32x32.mat",
            f"{_SVHN_BASE}/train_32x32.mat",
            "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            182040794,
        ),
        RemoteFile(
            "svhn/test_32x32.mat",
            f"{_SVHN_BASE}/test_32x32.mat",
            "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            64275384,
        ),
    ),
    parts={
        "train": Part(
            73_257, (Role.TRAIN,), (Form("train", ("svhn/train_32x32.mat",), read_svhn, slow=True),)
        ),
        "test": Part(
            26_032,
            TEST_ROLES,
            (
                Form("test", ("svhn/test_32x32.mat",), read_svhn, slow=True),
                Form(
                    "test, first 5,000",
                    ("svhn/test_first5000_32x32.mat",),
                    read_svhn,
                    provenance="the first 5,000 of the 26,032 test images, reconstructed from "
                    "public upscaled copies, exact up to rounding",
                ),
            ),
        ),
    },
    mean=(0.4377, 0.4438, 0.4728),
    std=(0.1980, 0.2010, 0.1970),
    held_out=3_000,
    note="test_first5000_32x32.mat is read too, and named so: the first 5,000 test images, "
    "reconstructed from public upscaled copies, exact up to rounding",
)


def _without_labels(folder: Path) -> Pictures:
    return Pictures(read_image_folder(folder, size=32, crop=True).images)


DTD: Final = DataSet(
    name="dtd",
    title="DTD",
    summary="textures: OOD validation for CIFAR-10",
    shape=_SHAPE,
    num_classes=47,
    class_names=None,
    licence="not stated; made available for research purposes",
    citation="M. Cimpoi, S. Maji, I. Kokkinos, S. Mohamed, A. Vedaldi: Describing textures in the "
    "wild. CVPR 2014",
    homepage="https://www.robots.ox.ac.uk/~vgg/data/dtd",
    files=(
        RemoteFile(
            "dtd-r1.0.1.tar.gz",
            "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
            "sha256:e42855a52a4950a3b59612834602aa253914755c95b0cff9ead6d07395f8e205",
            625239812,
            ("dtd/images",),
        ),
    ),
    parts={
        "textures": Part(
            5_640,
            (Role.OOD_VALIDATION,),
            (
                Form("textures", ("dtd/images",), _without_labels, slow=True),
                Form("textures, 10 of 47 classes", ("dtd32/dtd10_32.npz",), read_array_pictures),
            ),
        )
    },
    note="the largest square in the middle of each picture, made 32×32 with a Lanczos filter; "
    f"{NO_CONSTANTS}",
)
