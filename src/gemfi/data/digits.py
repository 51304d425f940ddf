"""scikit-learn's handwritten digits: the embedded default, no download.

1,797 images of 8×8 pixels with 17 grey levels (UCI Optical Recognition of Handwritten Digits, test
part; E. Alpaydin, 1998).
"""

from __future__ import annotations

import numpy as np
import torch

from gemfi.data.sampling import generator
from gemfi.data.splits import Role, Split, cut
from gemfi.data.task import Task

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
    names = tuple("0123456")

    inside = labels < 7  # 0..6 already: relabelling would change nothing
    splits = cut(images[inside], labels[inside], names, "digits", seed=split_seed)
    test = splits[Role.TEST].x
    noise = generator(split_seed, _NOISE).random(test.shape, dtype=np.float32)
    pixels = test.flatten(1).numpy()
    shuffled = generator(split_seed, _SHUFFLED).permuted(pixels, axis=1)  # each row on its own
    ood_test = {
        "digits-8-9": images[labels > 7],
        "noise": torch.from_numpy(noise),
        "inverted": 1 - test,
        "shuffled": torch.from_numpy(shuffled).reshape(test.shape),
    }
    return Task(
        name="digits",
        class_names=names,
        train=splits[Role.TRAIN],
        validation=splits[Role.VALIDATION],
        calibration=splits[Role.CALIBRATION],
        test=splits[Role.TEST],
        ood_validation={
            "digits-7": Split(images[labels == 7], None, Role.OOD_VALIDATION, "digits-7")
        },
        ood_test={key: Split(x, None, Role.OOD_TEST, key) for key, x in ood_test.items()},
    )
