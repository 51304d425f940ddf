"""The guard of roles: every use against every role."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from gemfi.data import USES, Role, Split, require_classes, require_role, require_use
from gemfi.errors import InputError, RoleError

X = torch.arange(24, dtype=torch.float32).reshape(12, 2)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 0])


def split(role: Role = Role.TRAIN, **changes: Any) -> Split:
    fields: dict[str, Any] = {"x": X, "y": Y, "role": role, "name": "mine", "num_classes": 3}
    return Split(**(fields | changes))


class TestGuard:
    def test_only_evaluation_may_see_test_data(self) -> None:
        for role in (Role.TEST, Role.OOD_TEST):
            assert [use for use in USES if role in USES[use]] == ["evaluation"]

    def test_the_table(self) -> None:
        assert {use: " ".join(sorted(roles)) for use, roles in USES.items()} == {
            "training": "train",
            "statistics": "train",
            "selection": "validation",
            "density scaling": "train validation",
            "temperature": "validation",
            "policy": "calibration",
            "auxiliary outliers": "auxiliary",
            "tuning": "ood-validation validation",
            "evaluation": "ood-test ood-validation test validation",
        }

    def test_the_table_is_read_only(self) -> None:
        with pytest.raises(TypeError):
            USES["training"] = frozenset(Role)  # type: ignore[index]

    @pytest.mark.parametrize("role", Role)
    @pytest.mark.parametrize("use", USES)
    def test_every_use_and_role(self, use: str, role: Role) -> None:
        made = split(role)
        if role in USES[use]:
            assert require_use(made, use) is made
            return
        with pytest.raises(RoleError, match=f"'mine' has role {role}, which {use} refuses") as info:
            require_use(made, use)
        for wanted in USES[use]:
            assert wanted in str(info.value)

    def test_says_why_ood_test_data_is_refused(self) -> None:
        with pytest.raises(RoleError, match="every OOD number meaningless; use role ood-validatio"):
            require_use(split(Role.OOD_TEST), "training")

    @pytest.mark.parametrize("raw", [X, X.numpy(), TensorDataset(X, Y), (X, Y), None])
    def test_refuses_data_without_a_role(self, raw: object) -> None:
        with pytest.raises(InputError, match=r"training needs a Split .*as_split\(.*role="):
            require_use(raw, "training")

    def test_role_for_a_purpose_of_ones_own(self) -> None:
        made = split(Role.TEST)
        assert require_role(made, ["test"], "plotting") is made
        with pytest.raises(RoleError, match=r"plotting refuses \(it takes train or auxiliary\)"):
            require_role(made, [Role.AUXILIARY, Role.TRAIN], "plotting")

    def test_unknown_use(self) -> None:
        with pytest.raises(InputError, match="unknown use 'cheating'; expected one of training"):
            require_use(split(), "cheating")

    def test_one_class_only(self) -> None:
        with pytest.raises(
            InputError, match=r"one class only: all 12 labels are 2; .* two classes"
        ):
            require_classes(split(y=torch.full((12,), 2)))

    def test_two_classes_of_many_are_enough(self) -> None:
        made = split(y=Y.clamp(max=1) * 2)
        assert require_classes(made) is made
