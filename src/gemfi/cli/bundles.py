"""`gemfi bundle` and `gemfi show`: one file from a run, and what is inside of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import tyro

from gemfi.bundle import Bundle, bundle_of_run, open_model, write_bundle
from gemfi.bundle.container import check_ending
from gemfi.cli import options
from gemfi.data.columns import Columns
from gemfi.decisions import Goal
from gemfi.errors import InputError
from gemfi.files import to_json
from gemfi.methods import METHODS
from gemfi.runs import Run
from gemfi.runs.text import duration, file_size, percent_or_nats

_Run = tyro.conf.arg(metavar="RUN")
_File = tyro.conf.arg(metavar="FILE")
_SHOWN: Final = ("accuracy", "nll", "ece", "brier", "auroc_error")


def bundle(
    run: Annotated[str, tyro.conf.Positional, _Run],
    out: Annotated[str, tyro.conf.Positional, _File],
    policy: options.Goal = None,
) -> None:
    """Write a finished run as one file, model.safetensors, that holds all that it takes to use it.

    Args:
        run: the folder of a run, as gemfi train prints it.
        out: the file, which ends in .safetensors.
        policy: also fit a policy on the calibration data of the task, such as
            false_alarm=0.05,risk=0.02; with it the scores of these data are kept, so that a policy
            for another goal needs the file alone.
    """
    check_ending(Path(out))
    goal = None if policy is None else Goal.parse(policy)
    if not Path(run).is_dir():
        raise InputError(f"no run {run}: give the folder of a run, as gemfi train prints it")
    made = bundle_of_run(Run.open(run), goal)
    path = write_bundle(out, made)
    print(describe(made))
    print(f"\nWrote {path} ({file_size(path.stat().st_size)})")


def show(
    model: options.Model,
    backbone: options.Backbone = None,
    *,
    json: bool = False,
) -> None:
    """Tell what is inside of a trained model: method, inputs, classes, policy, numbers, origin.

    Args:
        model: a bundle, the folder of a run, or a bundle that comes with the package:
            mnist-gem-fi.
        backbone: where the network of a bundle is whose backbone is of your own, such as mynet:Net.
        json: everything, as JSON.
    """
    opened = open_model(model, backbone)
    print(to_json(opened.info.to_plain(), indent=2) if json else describe(opened))


def describe(bundle: Bundle) -> str:
    """A bundle in a dozen lines."""
    info = bundle.info
    method = METHODS[info.method].info
    weights = sum(each.numel() for each in bundle.model.parameters())
    lines = [
        ("model", bundle.name),
        ("method", f"{info.method}: {method.summary}"),
        ("backbone", f"{_backbone(bundle)}, {info.num_features} features"),
        ("weights", f"{weights:,} of {info.dtype}"),
        ("inputs", _inputs(bundle)),
        ("classes", _listed(info.class_names)),
        ("scores", ", ".join(f"{k} {v}" for k, v in bundle.model.head.named_scores.items())),
        ("policy", _policy(bundle)),
        *_metrics(info.metrics),
        *_origin(info.provenance),
    ]
    indent = "\n" + " " * 12
    return "\n".join(
        f"{name:<11} {_visible(text).replace(chr(10), indent)}" for name, text in lines
    )


def _visible(text: str) -> str:
    """Names come from a file: what would steer a terminal is shown as a question mark."""
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)


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
    kinds = {"image": "images", "row": "rows", "array": "arrays"}
    text = f"{kinds[bundle.kind]} {sizes}, {info.sample_dtype or 'float32'}"
    if info.channels is not None:
        text += ", standardised inside"
    if info.temperature:
        text += ", with a temperature"
    if info.columns is not None:
        return "\n".join(
            [f"{text}, from {len(info.columns.columns)} columns", *_columns(info.columns)]
        )
    return text if info.feature_names is None else f"{text}\n{_listed(info.feature_names)}"


def _columns(columns: Columns, most: int = 40) -> list[str]:
    """Each column, and what its cells are."""
    lines = [f"{each.name}: {each.words()}" for each in columns.columns[:most]]
    left = len(columns.columns) - most
    return [*lines, f"... ({left} more; --json lists all)"] if left > 0 else lines


def _listed(names: tuple[str, ...], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)})"


def _policy(bundle: Bundle) -> str:
    kept = "" if bundle.calibration is None else f"from {len(bundle.calibration):,} calibration"
    if bundle.policy is None:
        found = "none; it predicts, and does not decide"
        return f"{found}\n--policy makes one, {kept} samples inside" if kept else found
    summary = bundle.policy.summary().removeprefix("Policy ")
    return f"{summary}\nany other goal, {kept} samples inside" if kept else summary


def _metrics(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name, values in metrics.items():
        if not isinstance(values, Mapping):
            found.append((name, str(values)))
            continue
        shown = [
            f"{key} {percent_or_nats(key, values[key])}"
            for key in _SHOWN
            if isinstance(values.get(key), int | float)
        ]
        count = f" of {values['n']:,} inputs" if isinstance(values.get("n"), int) else ""
        found.append((name, ", ".join(shown) + count))
    return found


def _origin(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    spec = provenance.get("spec")
    if isinstance(spec, Mapping):
        train = spec.get("train")
        train = train if isinstance(train, Mapping) else {}
        found.append(
            (
                "trained on",
                f"{spec.get('task')}, {train.get('epochs')} epochs, seed {train.get('seed')}",
            )
        )
    training = provenance.get("training")
    if isinstance(training, Mapping) and isinstance(training.get("seconds"), int | float):
        found.append(("took", duration(training["seconds"])))
    made = provenance.get("environment")
    if isinstance(made, Mapping):
        commit = f" ({str(made['commit'])[:7]})" if made.get("commit") else ""
        date = str(made.get("date", ""))[:10]
        found.append(
            ("made with", f"gemfi {made.get('gemfi')}{commit}, torch {made.get('torch')}, {date}")
        )
    return found
