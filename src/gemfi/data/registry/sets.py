"""The data sets of the registry: the facts are in `sets.toml`, here is how their files are read."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from gemfi._config import from_plain
from gemfi.data.readers import (
    Pictures,
    read_array_pictures,
    read_cifar10,
    read_cifar100,
    read_idx_pictures,
    read_image_folder,
    read_npy,
    read_npz,
    read_svhn,
    read_tiny_imagenet_val,
)
from gemfi.data.registry.entries import DataSet, Form, Part
from gemfi.data.splits import Role
from gemfi.errors import InputError

CIFAR10_CLASSES: Final = frozenset(
    {
        *("n02123045", "n02123394", "n02124075"),  # cats
        *("n02085620", "n02094433", "n02099601", "n02099712", "n02106662", "n02113799"),  # dogs
        *("n01641577", "n01644900"),  # frogs
        *("n01855672", "n02002724", "n02056570", "n02058221"),  # birds
        *("n02814533", "n03100240", "n04285008", "n03670208"),  # cars
        *("n03796401", "n03977966"),  # vans
        "n03662601",  # a boat
    }
)
"""WordNet ids of the classes of TinyImageNet that are classes of CIFAR-10 as well."""

TUNING_CLASSES: Final = frozenset(
    {
        *("n01945685", "n02226429", "n02410509", "n02423022", "n02481823"),
        *("n02486410", "n02788148", "n02837789", "n02841315", "n02917067"),
        *("n03837869", "n03970156", "n04146614", "n04366367", "n04398044"),
        *("n04465501", "n04560804", "n06596364", "n07695742", "n09193705"),
    }
)
"""Twenty of the other 178, drawn once: OOD validation for CIFAR-10. The rest are a test set."""


def _read_tiny_imagenet(
    wnids: Path,
    _annotations: Path,
    _images: Path,
    *,
    only: frozenset[str] | None = None,
    without: frozenset[str] = frozenset(),
) -> Pictures:
    return read_tiny_imagenet_val(wnids.parent, only=only, without=without)


def _read_cifar100_arrays(path: Path) -> Pictures:
    labels = read_npz(path, ["fine_labels"])["fine_labels"]
    return replace(read_array_pictures(path), labels=labels.astype(np.int64))


def _read_textures(folder: Path) -> Pictures:
    return Pictures(read_image_folder(folder, size=32, crop=True).images)


_READERS: Final[dict[str, Callable[..., Pictures]]] = {
    "idx": partial(read_idx_pictures, num_classes=10),
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "cifar100-arrays": _read_cifar100_arrays,
    "svhn": read_svhn,
    "tiny-imagenet": _read_tiny_imagenet,
    "tiny-imagenet-20": partial(_read_tiny_imagenet, only=TUNING_CLASSES),
    "tiny-imagenet-158": partial(_read_tiny_imagenet, without=CIFAR10_CLASSES | TUNING_CLASSES),
    "textures": _read_textures,
    "npz": read_array_pictures,
}
"""Name in `sets.toml` -> from the paths of a form to pictures."""


def _forms(part: str, facts: Mapping[str, Any], contents: Mapping[str, str]) -> Iterator[Form]:
    """The forms that one entry of `forms` stands for: with folders, each with and without .gz."""
    layouts = [tuple(facts["files"])]
    if "folders" in facts:
        layouts = [
            tuple(f"{folder}/{file}{suffix}" for file in facts["files"])
            for folder in facts["folders"]
            for suffix in (".gz", "")
        ]
    for files in layouts:
        names = {file: Path(file).name.removesuffix(".gz") for file in files}
        yield Form(
            facts.get("label", part),
            files,
            _READERS[facts["reader"]],
            {file: contents[name] for file, name in names.items() if name in contents},
            slow=facts.get("slow", False),
            provenance=facts.get("provenance", ""),
        )


# MNIST-C and CIFAR-10-C. A part is one type (of CIFAR-10-C: at one severity, `fog-3`). It is sought
# in the published folder, then in the folder that `gemfi data corrupt` writes, and is named so.

GENERATED: Final = "generated"
"""The folder, below the data folder, where `gemfi data corrupt` writes."""


def _read_corrupted(images: Path, labels: Path, severity: int | None = None) -> Pictures:
    """A published array with its labels; of CIFAR-10-C, the fifth of it that has the severity."""
    pictures = read_array_pictures(images)
    y = read_npy(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) != len(pictures):
        raise InputError(
            f"{labels}: expected {len(pictures)} integers, one for each image of {images}, got "
            f"{y.shape} {y.dtype}"
        )
    rows = slice(None)
    if severity is not None:
        count, rest = divmod(len(pictures), 5)
        if rest:
            raise InputError(
                f"{images}: {len(pictures)} images are not five severities of the same set"
            )
        rows = slice((severity - 1) * count, severity * count)
    return Pictures(pictures.images[rows].copy(), y[rows].astype(np.int64))


def _corrupted_parts(
    clean: DataSet, facts: Mapping[str, Any], contents: Mapping[str, str]
) -> Iterator[tuple[str, Part]]:
    """Name and part of each type, or of each type and severity where there are severities."""
    published = facts["published"]
    for name in facts["types"]:
        for severity in facts.get("severities", [None]):
            label = f"{name}-{severity}" if severity else name
            inside = (f"{name}.npy", "labels.npy")
            if severity is None:
                inside = (f"{name}/test_images.npy", f"{name}/test_labels.npy")
            files = tuple(f"{published}/{file}" for file in inside)
            checksums = {file: contents[Path(file).name] for file in files if contents}
            read = partial(_read_corrupted, severity=severity)
            ours = tuple(f"{GENERATED}/{file}" for file in files)
            forms = (
                Form(label, files, read, checksums),
                Form(f"{label}, {GENERATED}", ours, read, made=True),
            )
            yield label, Part(clean.parts["test"].count, (Role.TEST,), forms)


def _read_facts() -> dict[str, DataSet]:
    facts = tomllib.loads(Path(__file__).with_name("sets.toml").read_text(encoding="utf-8"))
    sets: dict[str, DataSet] = {}
    for name, own in facts.items():
        entry = facts.get(own.pop("like", None), {}) | own
        contents = entry.pop("contents", {})
        if "clean" in entry:  # the corruptions of another set
            clean = sets[entry.pop("clean")]
            parts = dict(_corrupted_parts(clean, entry.pop("corruptions"), contents))
            shared = ("shape", "num_classes", "class_names", "mean", "std")
            entry |= {field: getattr(clean, field) for field in shared}
        else:
            parts = {
                part: Part(
                    record["count"],
                    tuple(map(Role, record["roles"])),
                    tuple(
                        form for form in record["forms"] for form in _forms(part, form, contents)
                    ),
                )
                for part, record in entry["parts"].items()
            }
        plain = from_plain(DataSet, {**entry, "name": name, "parts": {}}, f"sets.toml: {name}")
        sets[name] = replace(plain, parts=parts)
    return sets


DATA_SETS: Final[Mapping[str, DataSet]] = MappingProxyType(_read_facts())
"""Name of a data set -> its entry. Read-only."""


@dataclass(frozen=True)
class OodSets:
    """The OOD sets of an ID set: for tuning, and to report."""

    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


OOD_SETS: Final[Mapping[str, OodSets]] = MappingProxyType(
    {
        "mnist": OodSets(("notmnist",), ("kmnist", "fashion-mnist")),
        "fashion-mnist": OodSets(("notmnist",), ("mnist", "kmnist")),
        "kmnist": OodSets(("notmnist",), ("mnist", "fashion-mnist")),
        "cifar10": OodSets(("dtd", "tiny-imagenet-20"), ("svhn", "cifar100", "tiny-imagenet-158")),
        "cifar100": OodSets(("dtd",), ("svhn", "cifar10", "tiny-imagenet")),
        "svhn": OodSets(("dtd",), ("cifar10", "cifar100", "tiny-imagenet")),
    }
)
"""ID set -> its OOD sets. The first and the fourth are the paper's, with OOD validation sets."""
