"""A bundle in words, on one screen. Much of it comes from a file, and none of it is believed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from gemfi._text import WIDTH, duration, percent_or_nats, printable
from gemfi.methods import method

if TYPE_CHECKING:
    from gemfi.bundle.bundle import Bundle

_SHOWN: Final = ("accuracy", "nll", "ece", "brier", "auroc_error")
_NAME: Final = 11  # characters of the column of names
_ROOM: Final = WIDTH - _NAME - 1
_LONGEST: Final = 500  # characters of a text that are looked at


def describe(bundle: Bundle) -> str:
    """What a bundle is, in at most twenty lines or so that fit the terminal."""
    info = bundle.info
    weights = sum(parameter.numel() for parameter in bundle.model.parameters())
    scores = ", ".join(f"{kind} {name}" for kind, name in bundle.model.head.named_scores.items())
    columns = [_listed(info.feature_names or ())]
    if info.columns is not None:
        shown = islice(info.columns.columns, 7)  # one too many, so that an ellipsis ends them
        columns = [f"{column.name}: {column.words()}"[:_ROOM] for column in shown]
    entries: list[tuple[str, int, Sequence[str]]] = [  # name, most lines, texts
        ("model", 1, [f"{bundle.name}, {weights:,} weights of {info.dtype}"]),
        ("method", 1, [f"{info.method}: {method(info.method).info.summary}"]),
        ("backbone", 2, [f"{_backbone(bundle)}, {info.num_features} features"]),
        ("inputs", 1, [_inputs(bundle)]),
        ("columns", 6 if info.columns else 1, columns),
        ("classes", 2, [_listed(info.class_names)]),
        ("scores", 1, [scores]),
        ("policy", 7, _policy(bundle)),
        ("monitor", 1, [_monitor(bundle)]),
        *((name, 1, [_numbers(values)]) for name, values in islice(info.metrics.items(), 2)),
        *((name, 1, [text]) for name, text in _origin(info.provenance)),
    ]
    return "\n".join(line for entry in entries for line in _lines(*entry))


def _lines(name: str, most: int, texts: Sequence[str]) -> list[str]:
    """A name and texts beside it, in at most so many lines; nothing for an empty text."""
    lines = list[str]()
    for text in texts:
        lines += textwrap.wrap(_cut(text), _ROOM, subsequent_indent="  ")
    if len(lines) > most:
        lines = [*lines[: most - 1], f"{lines[most - 1][: _ROOM - 4]} ..."]
    names = [_cut(name)[:_NAME], *[""] * len(lines)]
    return [f"{left:<{_NAME}} {line}" for left, line in zip(names, lines, strict=False)]


def _cut(text: str) -> str:
    return printable(text[:_LONGEST])


def _backbone(bundle: Bundle) -> str:
    made = bundle.info.backbone
    if made is None:
        return f"{bundle.info.network} (of your own: give load(..., backbone=module))"
    options = [f"{k}={v}" for k, v in made.options.items() if not isinstance(v, Mapping)]
    return f"{made.name} {' '.join(options)}"


def _inputs(bundle: Bundle) -> str:
    info = bundle.info
    if bundle.kind == "text":
        return "texts as token ids"
    if info.sample_shape is None:
        return "unknown: it was saved before it was trained"
    sizes = " × ".join(map(str, info.sample_shape))
    kinds = {"image": f"images {sizes}", "row": f"rows of {sizes} numbers"}
    text = kinds.get(bundle.kind, f"arrays {sizes}")
    text += f" from {len(info.columns.columns)} columns" if info.columns else ""
    text += f", {info.sample_dtype or 'float32'}"
    text += ", standardised inside" if info.channels is not None else ""
    return text + (", with a temperature" if info.temperature else "")


def _listed(names: Sequence[str]) -> str:
    """The names; if these are too many, their count and the first of them."""
    shown = [name if len(name) <= WIDTH // 2 else f"{name[: WIDTH // 2]}..." for name in names[:12]]
    while len(shown) > 1 and sum(map(len, shown)) > WIDTH:
        shown.pop()
    text = ", ".join(shown)
    return text if len(shown) == len(names) else f"{len(names):,}: {text}, ..."


def _policy(bundle: Bundle) -> list[str]:
    if bundle.policy is not None:
        return bundle.policy.summary().removeprefix("Policy ").splitlines()
    more = "" if bundle.calibration is None else "; --policy makes one"
    return [f"none; it predicts, and does not decide{more}"]


def _monitor(bundle: Bundle) -> str:
    if bundle.calibration is None:
        return "none; it was saved without calibration data"
    count = f"{len(bundle.calibration):,} calibration samples inside"
    return f"{bundle.score} of {count}, also for any other policy"


def _numbers(values: Any) -> str:
    if not isinstance(values, Mapping):
        return str(values)
    numbers = {name: values[name] for name in _SHOWN if isinstance(values.get(name), int | float)}
    count = f" of {values['n']:,} inputs" if isinstance(values.get("n"), int) else ""
    return ", ".join(f"{k} {percent_or_nats(k, v)}" for k, v in numbers.items()) + count


def _origin(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    def part(owner: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = owner.get(name)
        return value if isinstance(value, Mapping) else {}

    spec, made = part(provenance, "spec"), part(provenance, "environment")
    if spec:
        train, seconds = part(spec, "train"), part(provenance, "training").get("seconds")
        took = f", took {duration(seconds)}" if isinstance(seconds, int | float) else ""
        text = f"{spec.get('task')}, {train.get('epochs')} epochs, seed {train.get('seed')}"
        yield "trained on", text + took
    if made:
        commit = f" ({str(made['commit'])[:7]})" if made.get("commit") else ""
        text = f"gemfi {made.get('gemfi')}{commit}, torch {made.get('torch')}"
        yield "made with", f"{text}, {str(made.get('date', ''))[:10]}"
