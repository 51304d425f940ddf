"""What a bench refuses before anything is trained: other folders, unknown sets and corruptions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gemfi._files import to_json
from gemfi.data import TASKS, Role, Split, Task
from gemfi.errors import CheckpointError, InputError
from gemfi_bench.grid import MAIN
from gemfi_bench.protocol import Contestant, Protocol, Shift, find_protocol
from gemfi_bench.results import Results
from gemfi_bench.runner import GRID, PROTOCOL, Bench
from gemfi_bench.shift import check_shift
from support.benches import CHOSEN, detected, made_results

MINE = Protocol("mine", "Mine", "digits", (Contestant("softmax"),), seeds=(0,))


@pytest.fixture(scope="module")
def task() -> Task:
    return TASKS["digits"]()


# -- folders --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a bench, with no run yet."""
    (tmp_path / PROTOCOL).write_text(to_json(MINE.to_plain()))
    (tmp_path / GRID).write_text("[]")
    return tmp_path


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(MINE, name="other"), "its name is 'mine', that of the given protocol 'other'"),
        (replace(MINE, task="two-moons"), "its task is 'digits', that of the given protocol 'two"),
    ],
)
def test_another_benchmark_does_not_take_a_folder_over(
    folder: Path, other: Protocol, said: str
) -> None:
    with pytest.raises(InputError, match=f"{said}.*; use another folder"):
        Bench(other, folder)
    assert Results(folder).protocol == MINE


def test_the_same_benchmark_may_change(folder: Path, task: Task) -> None:
    Bench(replace(MINE, title="New", seeds=(0, 1)), folder, task)


def test_records_of_an_ood_set_that_the_task_has_no_more_are_not_mixed_with_new_ones(
    tmp_path: Path, task: Task
) -> None:
    made_results(tmp_path, {(MAIN, "softmax"): [detected(tiny_imagenet=85.0)]})
    message = "its OOD set 'tiny-imagenet' is none of the task 'digits' today; use another folder"
    with pytest.raises(CheckpointError, match=message):
        Bench(CHOSEN, tmp_path, task).work()


def test_a_spoilt_protocol_is_not_overwritten_silently(folder: Path, task: Task) -> None:
    (folder / PROTOCOL).write_text("{")
    with pytest.raises(CheckpointError, match="delete it and run gemfi bench again"):
        Bench(MINE, folder, task)


# -- sets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["near", "far", "seen"])
def test_a_set_that_the_task_does_not_have_is_refused(
    tmp_path: Path, task: Task, field: str
) -> None:
    with pytest.raises(InputError, match=f"{field}: 'nope' is no OOD test set.*digits-8-9, noise"):
        Bench(replace(MINE, **{field: ("nope",)}), tmp_path / "bench", task)
    assert not (tmp_path / "bench").exists()


def with_sets(name: str, absent: dict[str, str]) -> Task:
    """A small task with one OOD test set, and others that are not here."""

    def split(part: str, role: Role) -> Split:
        y = None if role is Role.OOD_TEST else torch.arange(8) % 2
        return Split(
            f"{name}/{part}", role, torch.rand(8, 3) + len(part), y, 2 if y is not None else None
        )

    return Task(
        name,
        ("a", "b"),
        train=lambda: split("train", Role.TRAIN),
        validation=lambda: split("validation", Role.VALIDATION),
        calibration=lambda: split("calibration", Role.CALIBRATION),
        test=lambda: split("test", Role.TEST),
        ood_validation={},
        ood_test={"svhn": lambda: split("svhn", Role.OOD_TEST)},
        absent=absent,
    )


def test_a_set_that_is_absent_may_be_named_and_one_for_tuning_may_not(tmp_path: Path) -> None:
    cifar = with_sets("cifar10", {"cifar100": "not here", "dtd": "not here"})
    protocol = replace(MINE, task="cifar10", near=("cifar100",), far=("svhn",))
    assert Bench(protocol, tmp_path, cifar).task is cifar
    with pytest.raises(InputError, match="near: 'dtd' is no OOD test set of the task 'cifar10'"):
        Bench(replace(protocol, near=("dtd",)), tmp_path, cifar)


# -- corruptions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "said"),
    [
        (Shift(("nope",), (1,)), "shift.corruptions: 'nope' cannot be made"),
        (Shift(("fog",), (9,)), "shift.severities: .* among 1, 2, 3, 4, 5, got 9"),
        (Shift(("fog",)), "shift.severities: .*, got none"),
    ],
)
def test_a_corruption_that_cannot_be_made_is_refused_at_once(
    tmp_path: Path, task: Task, shift: Shift, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        Bench(replace(MINE, shift=shift), tmp_path, task)


def test_corruptions_of_registered_sets_are_known_without_their_data() -> None:
    mnist, moons = with_sets("mnist", {}), with_sets("two-moons", {})
    check_shift(mnist, find_protocol("mnist").shift)
    check_shift(with_sets("cifar10", {}), find_protocol("cifar10").shift)
    with pytest.raises(InputError, match=r"MNIST-C has no 'fog-1' \(shift.corruptions, with a"):
        check_shift(mnist, Shift(("fog",), (1,)))
    with pytest.raises(InputError, match="not for the task 'two-moons'"):
        check_shift(moons, Shift(("fog",), (1,)))
