"""scikit-learn's handwritten digits: the embedded default, no download.

1,797 images of 8×8 pixels with 17 grey levels (UCI Optical Recognition of Handwritten Digits, test
part; E. Alpaydin, 1998).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gemfi.data.sampling import generator
from gemfi.data.splits import Role, Split, cut
from gemfi.data.task import Task

ID_DIGITS = tuple(range(7))
OOD_VALIDATION_DIGITS = (7,)
OOD_TEST_DIGITS = (8, 9)

_NOISE, _SHUFFLED = 1, 2  # streams of the split seed


def digits(split_seed: int = 0) -> Task:
    """Digits 0–6 against the digits held out (near OOD) and synthetic images (far OOD).

    Images are (N, 1, 8, 8) float32 in [0, 1].

    - ID: the 1,264 images of 0–6, stratified: 759 train, 126 validation, 126 calibration, 253 test.
    - `ood_validation["digits-7"]`: the 179 sevens.
    - `ood_test["digits-8-9"]`: the 354 eights and nines.
    - `ood_test["noise"]`: as many images as in test, each pixel uniform on [0, 1).
    - `ood_test["inverted"]`: 1 − x of each test image.
    - `ood_test["shuffled"]`: each test image with its pixels in a random order of its own.

    Args:
        split_seed: which images go where. It is not the seed of a run: leave it, so that runs with
            different seeds are judged on the same images.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415 - seconds to import

    source = load_digits()
    images = torch.from_numpy(source.images / 16).float()[:, None]  # (N, 1, 8, 8)
    labels = torch.from_numpy(source.target.astype(np.int64))
    names = tuple(str(digit) for digit in ID_DIGITS)

    inside = _of_classes(labels, ID_DIGITS)
    x, y = images[inside], labels[inside]  # 0..6 already: relabelling would change nothing
    splits = cut(x, y, names, "digits", seed=split_seed)
    sevens = images[_of_classes(labels, OOD_VALIDATION_DIGITS)]
    ood_test = {"digits-8-9": images[_of_classes(labels, OOD_TEST_DIGITS)]}
    ood_test |= _far(splits[Role.TEST].x, split_seed)
    return Task(
        name="digits",
        class_names=names,
        train=splits[Role.TRAIN],
        validation=splits[Role.VALIDATION],
        calibration=splits[Role.CALIBRATION],
        test=splits[Role.TEST],
        ood_validation={"digits-7": Split(sevens, None, Role.OOD_VALIDATION, "digits-7")},
        ood_test={key: Split(x, None, Role.OOD_TEST, key) for key, x in ood_test.items()},
    )


def _of_classes(labels: Tensor, classes: tuple[int, ...]) -> Tensor:
    return torch.isin(labels, torch.tensor(classes)).nonzero()[:, 0]


def _far(images: Tensor, seed: int) -> dict[str, Tensor]:
    noise = generator(seed, _NOISE).random(images.shape, dtype=np.float32)
    pixels = images.flatten(1).numpy()
    shuffled = generator(seed, _SHUFFLED).permuted(pixels, axis=1)  # each row on its own
    return {
        "noise": torch.from_numpy(noise),
        "inverted": 1 - images,
        "shuffled": torch.from_numpy(shuffled).reshape(images.shape),
    }
