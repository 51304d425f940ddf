"""What to write instead, for containers of data that `as_split` does not read by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from gemfi.errors import InputError

_LABELS = ("label", "labels", "target", "targets", "y", "class", "fine_label", "coarse_label")


def check_container(data: Any, name: str, role: str) -> None:
    """Refuse mappings, Hugging Face data sets and lists of pairs, each with the line to write."""
    end = f'role="{role}")'
    columns = getattr(data, "column_names", None)
    if hasattr(data, "with_format") and isinstance(columns, list):
        x, y, tokens = _columns(columns)
        raise InputError(
            f"{name!r}: a Hugging Face data set of {', '.join(columns)} is not read by itself; "
            f'write rows = data.with_format("torch")[:], then '
            f'as_split(rows["{x}"], rows["{y}"], {tokens}{end}'
        )
    if isinstance(data, Mapping):
        x, y, tokens = _columns(list(data))
        if isinstance(columns, Mapping):
            line = f'data = data["{x}"], which is one of its parts, and give that to as_split'
        else:
            line = f'as_split(data["{x}"], data["{y}"], {tokens}{end}'
        raise InputError(f"{name!r}: a {type(data).__name__} of {_keys(data)}: write {line}")
    if _is_pairs(data):
        x, y = (
            f"{_join(data[0][place], 'stack')}([pair[{place}] for pair in data])"
            for place in (0, 1)
        )
        raise InputError(f"{name!r}: a list of pairs: write as_split({x}, {y}, {end}")


def _is_pairs(data: Any) -> bool:
    first = data[0] if isinstance(data, list) and data else None
    if not isinstance(first, tuple | list) or len(first) != 2:
        return False
    return isinstance(first[0], Tensor | np.ndarray)


def refuse_mapping(item: Mapping[Any, Any], where: str, *, batched: bool) -> None:
    """Refuse an item of a data set or a batch of a loader that has names in place of an order."""
    each, source = ("batch", "loader") if batched else ("item", "data")
    x, y, tokens = _columns(list(item))
    how = "cat" if batched else "stack"
    made = ", ".join(
        f'{_join(item[key], how)}([{each}["{key}"] for {each} in {source}])' for key in (x, y)
    )
    raise InputError(
        f"{where} is a {type(item).__name__} of {_keys(item)}, and as_split takes pairs (x, y): "
        f"write as_split({made}, {tokens}role=...)"
    )


def _columns(names: list[Any]) -> tuple[Any, Any, str]:
    """The names of what look like the inputs and the labels, and the option for token ids."""
    label = next((name for name in names if str(name).lower() in _LABELS), names[-1])
    if "input_ids" in names:
        return "input_ids", label, "tokens=True, "
    return next((name for name in names if name != label), names[0]), label, ""


def _join(value: Any, how: str) -> str:
    """The function that makes one array or tensor of a list of such values."""
    if isinstance(value, Tensor):
        return f"torch.{how}"
    if isinstance(value, np.ndarray):
        return "np.concatenate" if how == "cat" else "np.stack"
    return "torch.tensor"


def _keys(item: Mapping[Any, Any]) -> str:
    shown = [str(key) for key in item]
    return ", ".join(shown[:6]) + (", ..." if len(shown) > 6 else "")
