"""TinyImageNet: all classes of its validation part, and those that CIFAR-10 does not have.

A set of some classes is an entry of its own, so that records never mix numbers of two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from gemfi.data.readers import Pictures, read_tiny_imagenet_val
from gemfi.data.registry.grey import NO_CONSTANTS
from gemfi.data.registry.record import DataSet, Form, Part, RemoteFile
from gemfi.data.splits import Role

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
"""WordNet ids of the classes that are classes of CIFAR-10 as well."""

_NUM_CLASSES: Final = 200
_IMAGES_PER_CLASS: Final = 50


def _val(
    num_classes: int, role: Role, wanted: Callable[[str], bool] = lambda _wnid: True
) -> dict[str, Part]:
    """The validation part, of some of its classes.

    Args:
        num_classes: how many classes are wanted.
        role: what the images may be used for.
        wanted: whether a class is, by its WordNet id.
    """

    def read(wnids: Path, _annotations: Path, _images: Path) -> Pictures:
        return read_tiny_imagenet_val(wnids.parent, wanted=wanted)

    files = (
        "tiny-imagenet-200/wnids.txt",
        "tiny-imagenet-200/val/val_annotations.txt",
        "tiny-imagenet-200/val/images",
    )
    form = Form("val", files, read, slow=True)
    return {"val": Part(_IMAGES_PER_CLASS * num_classes, (role,), (form,))}


TINY_IMAGENET: Final = DataSet(
    name="tiny-imagenet",
    title="TinyImageNet",
    variant="all 200 classes",
    summary="validation images of 200 ImageNet classes, resized to 32×32",
    shape=(3, 32, 32),
    num_classes=_NUM_CLASSES,
    class_names=None,
    licence="not stated; of ImageNet, for non-commercial research and education",
    citation="Stanford CS231N: Tiny ImageNet visual recognition challenge, 2015",
    homepage="http://cs231n.stanford.edu",
    files=(
        RemoteFile(
            "tiny-imagenet-200.zip",
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            248100043,
            ("tiny-imagenet-200/wnids.txt", "tiny-imagenet-200/val"),
        ),
    ),
    parts=_val(_NUM_CLASSES, Role.OOD_TEST),
    note=f"64×64 made 32×32 with a Lanczos filter; class names are WordNet ids; {NO_CONSTANTS}",
    overlaps={
        "cifar10": "22 of its 200 classes, 11 % of its images, are classes of CIFAR-10, so that "
        "they are no OOD data and make every score look worse; numbers with them stay until the "
        "runs are trained again without them"
    },
)

_UNLIKE_CIFAR10: Final = _NUM_CLASSES - len(CIFAR10_CLASSES)

TINY_IMAGENET_178: Final = replace(
    TINY_IMAGENET,
    name="tiny-imagenet-178",
    variant="178 classes",
    summary="the validation images without the 22 classes that CIFAR-10 has, too",
    num_classes=_UNLIKE_CIFAR10,
    parts=_val(_UNLIKE_CIFAR10, Role.OOD_TEST, lambda wnid: wnid not in CIFAR10_CLASSES),
    overlaps={},
)
