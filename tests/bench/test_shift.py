"""Corrupted test sets."""

from __future__ import annotations

import pytest
import torch

from gemfi.data import TASKS
from gemfi.errors import InputError
from gemfi_bench.corruptions import ANY_SIZE, corrupt_small
from gemfi_bench.protocol import Shift
from gemfi_bench.shift import shifted_sets


def test_digits_have_a_set_for_each_type_and_severity() -> None:
    task = TASKS["digits"]()
    found = dict(shifted_sets(task, Shift(("gaussian_noise", "fog"), (1, 5), 20)))
    assert list(found) == ["gaussian_noise-1", "gaussian_noise-5", "fog-1", "fog-5"]
    for split in found.values():
        assert len(split) == 20
        assert torch.equal(split.labels, task.test.labels[:20])
        assert split.role is task.test.role
        assert "generated" in split.name
    assert not torch.equal(found["fog-1"].x, task.test.x[:20])


@pytest.mark.parametrize("name", ANY_SIZE)
def test_a_stronger_severity_changes_the_images_more(name: str) -> None:
    images = TASKS["digits"]().test.x[:60]
    changes = [float((corrupt_small(images, name, s) - images).abs().mean()) for s in (1, 5)]
    assert 0 < changes[0] < changes[1]


def test_small_corruptions_are_deterministic_and_do_not_depend_on_the_count() -> None:
    images = TASKS["digits"]().test.x[:10]
    made = corrupt_small(images, "gaussian_noise", 3)
    assert torch.equal(made, corrupt_small(images, "gaussian_noise", 3))
    assert torch.equal(made[:4], corrupt_small(images[:4], "gaussian_noise", 3))
    assert not torch.equal(made, corrupt_small(images, "gaussian_noise", 3, seed=1))
    assert float(made.min()) >= 0
    assert float(made.max()) <= 1


def test_no_corruptions_are_no_sets() -> None:
    assert dict(shifted_sets(TASKS["two-moons"](), Shift())) == {}


def test_what_cannot_be_corrupted_is_refused() -> None:
    with pytest.raises(InputError, match="not for the task 'two-moons'"):
        dict(shifted_sets(TASKS["two-moons"](), Shift(("fog",), (1,))))
    with pytest.raises(InputError, match="need severities"):
        dict(shifted_sets(TASKS["digits"](), Shift(("fog",))))
    with pytest.raises(InputError, match=r"must be one of .* got 'snow'"):
        corrupt_small(torch.zeros(2, 1, 8, 8), "snow", 1)
    with pytest.raises(InputError, match="floating point"):
        corrupt_small(torch.zeros(2, 8, 8), "fog", 1)
    with pytest.raises(InputError, match="from 1 to 5"):
        corrupt_small(torch.zeros(2, 1, 8, 8), "fog", 6)
