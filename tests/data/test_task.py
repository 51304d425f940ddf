"""A task: every split in its place, and nothing read before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gemfi.data import Role, Split, Task
from gemfi.errors import InputError, RoleError

X = torch.arange(24, dtype=torch.float32).reshape(12, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 0])
PLACES = ("train", "validation", "calibration", "test")


def split(role: Role = Role.TRAIN, **changes: Any) -> Split:
    fields: dict[str, Any] = {"x": X, "y": Y, "role": role, "name": "mine", "num_classes": 3}
    return Split(**(fields | changes))


def make(**changes: Any) -> Task:
    fields: dict[str, Any] = {
        "name": "toy",
        "class_names": ("a", "b", "c"),
        "ood_validation": {"near": split(Role.OOD_VALIDATION)},
        "ood_test": {"far": split(Role.OOD_TEST)},
    }
    for role in PLACES:
        fields[role] = split(Role(role))
    return Task(**(fields | changes))


class TestTask:
    def test_lists_every_split(self) -> None:
        roles = [made.role for made in make().splits()]
        assert roles == [role for role in Role if role is not Role.AUXILIARY]

    def test_counts_its_classes(self) -> None:
        assert make().num_classes == 3
        assert make(absent={"gone": "why"}).absent == {"gone": "why"}

    def test_it_shows_what_it_is_without_reading_it(self) -> None:
        def unread() -> Split:
            pytest.fail("nobody asked for it")

        task = make(test=unread, ood_test={"far": unread})
        assert repr(task) == "Task('toy', 3 classes, ood_validation=['near'], ood_test=['far'])"

    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("role", Role)
    def test_each_place_takes_one_role(self, place: str, role: Role) -> None:
        if role == place:
            assert getattr(make(**{place: split(role)}), place).role is role
            return
        message = f"task 'toy': split 'mine' has role {role} in the place of {place}"
        with pytest.raises(RoleError, match=message):
            make(**{place: split(role)})

    @pytest.mark.parametrize("place", ["ood_validation", "ood_test"])
    @pytest.mark.parametrize("role", Role)
    def test_so_does_each_group_of_ood_sets(self, place: str, role: Role) -> None:
        wanted = place.replace("_", "-")
        if role == wanted:
            assert getattr(make(**{place: {"it": split(role)}}), place)["it"].role is role
            return
        with pytest.raises(RoleError, match=f"role {role} in the place of {wanted}"):
            make(**{place: {"it": split(role)}})

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"class_names": ("a",)}, "num_classes=3, but there are 1 class names"),
            (
                {"test": split(Role.TEST, num_classes=4)},
                r"\(test\) has num_classes=4, but there are 3",
            ),
            ({"ood_test": {"far": split(Role.OOD_TEST, x=X[:, :1])}}, r"samples \(1,\).*\(2,\)"),
            (
                {"test": split(Role.TEST, x=X.to(torch.uint8))},
                "uint8, but the others have .*float32",
            ),
        ],
    )
    def test_refuses_splits_that_do_not_fit(self, changes: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            make(**changes)


class TestLaziness:
    """Sources that are functions, which write down when they are called."""

    @pytest.fixture
    def read(self) -> list[str]:
        return []

    @pytest.fixture
    def task(self, read: list[str]) -> Task:
        def source(role: Role) -> Callable[[], Split]:
            def open_it() -> Split:
                read.append(role.value)
                return split(role)

            return open_it

        return make(
            **{place: source(Role(place)) for place in PLACES},
            ood_validation={"near": source(Role.OOD_VALIDATION)},
            ood_test={"far": source(Role.OOD_TEST)},
        )

    def test_nothing_is_read_at_first(self, task: Task, read: list[str]) -> None:
        assert read == []
        assert task.num_classes == 3

    def test_training_never_opens_test_data(self, task: Task, read: list[str]) -> None:
        for _ in range(2):
            assert task.train.role is Role.TRAIN
            assert task.validation.role is Role.VALIDATION
        assert read == ["train", "validation"]  # and each once

    def test_names_of_ood_sets_are_known_without_reading(self, task: Task, read: list[str]) -> None:
        assert (list(task.ood_test), len(task.ood_test)) == (["far"], 1)
        assert "far" in task.ood_test
        assert "near" not in task.ood_test
        assert list(task.ood_validation.keys()) == ["near"]
        assert read == []

    def test_an_ood_set_is_read_once(self, task: Task, read: list[str]) -> None:
        assert task.ood_test["far"] is task.ood_test["far"]
        assert [made.role for made in task.ood_test.values()] == [Role.OOD_TEST]
        assert read == ["ood-test"]
        with pytest.raises(KeyError):
            task.ood_test["near"]

    def test_every_split(self, task: Task, read: list[str]) -> None:
        assert len(list(task.splits())) == 6
        assert read == [*PLACES, "ood-validation", "ood-test"]

    def test_what_was_read_is_checked(self) -> None:
        task = make(train=lambda: split(Role.TEST), ood_test={"far": lambda: split(Role.TRAIN)})
        with pytest.raises(RoleError, match="has role test in the place of train"):
            _ = task.train
        with pytest.raises(RoleError, match="has role train in the place of ood-test"):
            task.ood_test["far"]

    def test_a_source_that_failed_is_asked_again(self) -> None:
        answers: list[Split | None] = [None, split(Role.TEST)]

        def open_it() -> Split:
            answer = answers.pop(0)
            if answer is None:
                raise OSError("the disk was away")
            return answer

        task = make(test=open_it)
        with pytest.raises(OSError, match="away"):
            _ = task.test
        assert task.test.role is Role.TEST

    def test_a_split_that_is_here_is_checked_at_once(self) -> None:
        with pytest.raises(RoleError, match="role test in the place of train"):
            make(train=split(Role.TEST), validation=lambda: pytest.fail("it was read"))
