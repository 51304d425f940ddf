"""A bundle in words, on one screen. Much of it comes from a file, and none of it is believed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from gemfi._text import WIDTH, duration, percent_or_nats, printable
from gemfi.methods import METHODS

if TYPE_CHECKING:
    from gemfi.bundle.bundle import Bundle
    from gemfi.bundle.file import Description

_SHOWN: Final = ("accuracy", "nll", "ece", "brier", "auroc_error")
_NAME: Final = 11  # characters of the column of names
_NAMES: Final = 12  # of classes or columns that are listed
_COLUMNS: Final = 6  # lines of columns of a table
_METRICS: Final = 2  # sets of numbers that are shown
_POLICY: Final = 7  # lines of a policy
_LONGEST: Final = 500  # characters of a text that are looked at


def describe(bundle: Bundle) -> str:
    """What a bundle is, in at most twenty lines or so that fit the terminal.

    Args:
        bundle: of any model.
    """
    info = bundle.info
    weights = sum(parameter.numel() for parameter in bundle.model.parameters())
    scores = ", ".join(f"{k} {v}" for k, v in bundle.model.head.named_scores.items())
    lines = [
        *_entry("model", f"{bundle.name}, {weights:,} weights of {info.dtype}", most=1),
        *_entry("method", f"{info.method}: {METHODS[info.method].info.summary}", most=1),
        *_entry("backbone", f"{_backbone(bundle)}, {info.num_features} features"),
        *_entry("inputs", _inputs(bundle), most=1),
        *_columns(info),
        *_entry("classes", _listed(info.class_names)),
        *_entry("scores", scores, most=1),
        *_entry("policy", *_policy(bundle), most=_POLICY),
        *_entry("monitor", _monitor(bundle), most=1),
    ]
    for name, text in islice(_metrics(info.metrics), _METRICS):
        lines += _entry(name, text, most=1)
    for name, text in _origin(info.provenance):
        lines += _entry(name, text, most=1)
    return "\n".join(lines)


def _entry(name: str, *texts: str, most: int = 2) -> list[str]:
    """A name and texts beside it, in at most so many lines; nothing for an empty text."""
    room, lines = WIDTH - _NAME - 1, list[str]()
    for text in texts:
        lines += textwrap.wrap(_cut(text), room, subsequent_indent="  ")
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: room - 4]} ..."]
    names = [_cut(name)[:_NAME], *[""] * len(lines)]
    return [f"{left:<{_NAME}} {line}" for left, line in zip(names, lines, strict=False)]


def _cut(text: str) -> str:
    return printable(text[:_LONGEST])


def _backbone(bundle: Bundle) -> str:
    made = bundle.info.backbone
    if made is None:
        return f"{bundle.info.network} (of your own: give load(..., backbone=module))"
    options = [
        f"{name}={value}" for name, value in made.options.items() if not isinstance(value, Mapping)
    ]
    return f"{made.name} {' '.join(options)}"


def _inputs(bundle: Bundle) -> str:
    info = bundle.info
    if bundle.kind == "text":
        return "texts as token ids"
    if info.sample_shape is None:
        return "unknown: it was saved before it was trained"
    sizes = " × ".join(map(str, info.sample_shape))
    kinds = {
        "image": f"images {sizes}",
        "row": f"rows of {sizes} numbers",
        "array": f"arrays {sizes}",
    }
    source = "" if info.columns is None else f" from {len(info.columns.columns)} columns"
    text = f"{kinds[bundle.kind]}{source}, {info.sample_dtype or 'float32'}"
    if info.channels is not None:
        text += ", standardised inside"
    return f"{text}, with a temperature" if info.temperature else text


def _columns(info: Description) -> list[str]:
    """The columns of a table, and what their cells are; or the names of the numbers."""
    if info.columns is None:
        return _entry("columns", _listed(info.feature_names or ()), most=1)
    cells = [f"{column.name}: {column.words()}" for column in info.columns.columns]
    shown = cells if len(cells) <= _COLUMNS else cells[: _COLUMNS - 1]
    more = [f"... ({len(cells) - len(shown)} more; --json lists all)"] * (len(shown) < len(cells))
    return _entry(
        "columns", *(_cut(cell)[: WIDTH - _NAME - 1] for cell in shown), *more, most=_COLUMNS
    )


def _listed(names: Sequence[str]) -> str:
    """The names; if these are too many, their count and the first of them."""
    shown: list[str] = []
    for name in names[:_NAMES]:
        if sum(map(len, shown)) + len(name) > WIDTH and shown:
            break
        shown.append(name if len(name) <= WIDTH // 2 else f"{name[: WIDTH // 2]}...")
    text = ", ".join(shown)
    return text if len(shown) == len(names) else f"{len(names):,}: {text}, ..."


def _policy(bundle: Bundle) -> list[str]:
    if bundle.policy is not None:
        return bundle.policy.summary().removeprefix("Policy ").splitlines()
    if bundle.calibration is None:
        return ["none; it predicts, and does not decide"]
    return ["none; it predicts, and does not decide; --policy makes one"]


def _monitor(bundle: Bundle) -> str:
    if bundle.calibration is None:
        return "none; it was saved without calibration data"
    count = f"{len(bundle.calibration):,} calibration samples inside"
    return f"{bundle.score} of {count}, also for any other policy"


def _metrics(metrics: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, values in metrics.items():
        if not isinstance(values, Mapping):
            yield name, str(values)
            continue
        shown = [
            f"{key} {percent_or_nats(key, values[key])}"
            for key in _SHOWN
            if isinstance(values.get(key), int | float)
        ]
        count = f" of {values['n']:,} inputs" if isinstance(values.get("n"), int) else ""
        yield name, ", ".join(shown) + count


def _origin(provenance: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    spec, training = provenance.get("spec"), provenance.get("training")
    if isinstance(spec, Mapping):
        train = spec.get("train")
        train = train if isinstance(train, Mapping) else {}
        text = f"{spec.get('task')}, {train.get('epochs')} epochs, seed {train.get('seed')}"
        if isinstance(training, Mapping) and isinstance(training.get("seconds"), int | float):
            text += f", took {duration(training['seconds'])}"
        yield "trained on", text
    made = provenance.get("environment")
    if isinstance(made, Mapping):
        commit = f" ({str(made['commit'])[:7]})" if made.get("commit") else ""
        date = str(made.get("date", ""))[:10]
        yield "made with", f"gemfi {made.get('gemfi')}{commit}, torch {made.get('torch')}, {date}"
