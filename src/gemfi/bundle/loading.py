"""From the file to a model that is the same to the bit. Nothing that a file says is believed."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from gemfi._files import CHECKSUM
from gemfi.backbones import Stack
from gemfi.backbones.attached import Attached
from gemfi.bundle.bundle import (
    CALIBRATION,
    ENDING,
    KEY,
    MODEL,
    POLICY,
    QUANTILES,
    READINGS,
    REFERENCE,
    SCHEMA,
    SEAL,
    Bundle,
    Description,
)
from gemfi.decisions import Policy, Readings
from gemfi.devices import find_device
from gemfi.errors import CheckpointError, InputError
from gemfi.methods import method
from gemfi.methods.upgrade import BUFFERS
from gemfi.model import Model, build_model
from gemfi.randomness import forked_generator

T = TypeVar("T")

_PACKAGED: Final = Path(__file__).parent / "models"
_ATTACHED: Final = (
    "its backbone is a network that gemfi.attach was given, which is not in the file: give "
    "load(..., backbone=attach(<a network like it>, ...))"
)
_MOST_TENSORS: Final = 20_000  # of a network that is built by its name
_LONGEST: Final = 500  # characters of a reason, which may quote the file
_LARGEST_FACT: Final = 1e15  # of a policy


def load(
    path: Path | str,
    *,
    backbone: nn.Module | None = None,
    device: torch.device | str = "cpu",
) -> Bundle:
    """A model from a file, the same to the bit, with its policy.

    Args:
        path: of a file that `save` wrote, or the name of a bundle that comes with the package.
        backbone: of a model whose backbone was not given by its name: a module like that, or a
            `Model` with it. Its weights are those of the file; the module itself stays as it is.
        device: where the model shall be: `auto`, or a name such as `cuda`.
    """
    where = find_device(device)
    path = Path(path)
    if str(path) in bundle_names() and not path.exists():
        path = _PACKAGED / f"{path}{ENDING}"
    header, shapes = _checked_header(path)
    try:
        return _bundle(path, header, shapes, backbone, where)
    except InputError as error:
        reason = str(error)
        reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ..."
        raise CheckpointError(f"{path} cannot be loaded: {reason}") from error


def bundle_names() -> tuple[str, ...]:
    """The bundles that come with the package."""
    return tuple(sorted(path.stem for path in _PACKAGED.glob(f"*{ENDING}")))


def bundled(name: str = "mnist-gem-fi") -> Bundle:
    """A bundle that comes with the package, by its name."""
    if name not in bundle_names():
        raise InputError(f"unknown bundle {name!r}; known: {', '.join(bundle_names())}")
    return load(_PACKAGED / f"{name}{ENDING}")


def _checked_header(path: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Check every byte of a bundle, and read its header and the shapes of its tensors."""
    if not path.is_file():
        raise InputError(f"bundle {path} does not exist: no such file")
    with path.open("rb") as file:
        raw = SEAL.header(file, path)
        text = SEAL.metadata(raw, path).get(KEY)
        if not isinstance(text, str):
            raise CheckpointError(
                f"{path} holds tensors, but does not say of which model: it is no bundle of gemfi"
            )
        header = SEAL.parsed(text, path)
        _check_schema(header, path)
        SEAL.check(file, raw, path)
    try:
        with safe_open(path, framework="pt") as tensors:
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}") from error
    return {k: v for k, v in header.items() if k not in {CHECKSUM, "schema"}}, shapes


def _check_schema(header: Mapping[str, Any], path: Path) -> None:
    schema = header.get("schema", header.get("format"))  # the first schema had another name for it
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise CheckpointError(f"{path} is damaged: its schema is {schema!r}")
    if schema != SCHEMA:
        what = "is no longer read: write it anew from its run, with gemfi bundle RUN FILE"
        if schema > SCHEMA:
            what = "is of a later version of gemfi: upgrade gemfi"
        raise CheckpointError(f"{path} has schema {schema}, which {what}")


def _bundle(
    path: Path,
    header: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    backbone: nn.Module | None,
    device: torch.device,
) -> Bundle:
    info = Description.from_plain(header, "header")
    expected = _weights(shapes)
    model = _without_numbers(info, backbone, expected)
    _check_fit(model, expected)
    # copies: what is mapped would change with the file
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    weights = _weights(tensors)
    _check_values(model, weights)
    _allocate(model)
    model.load_state_dict(weights)
    model.inputs = info.inputs
    for name in tensors:
        if not name.startswith((MODEL, POLICY, CALIBRATION, REFERENCE)):
            raise InputError(f"there is no use for the tensor {name}")
    return Bundle(
        path.name.removesuffix(ENDING),
        model.to(device).eval(),
        info,
        _policy(info, _below(tensors, POLICY)),
        _calibration(_below(tensors, CALIBRATION), info.num_classes),
        _references(_below(tensors, REFERENCE)),
    )


def _below(named: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {name[len(prefix) :]: value for name, value in named.items() if name.startswith(prefix)}


def _weights(named: Mapping[str, T]) -> dict[str, T]:
    """Of the model, without the tensors that heads no longer have."""
    gone = {f"head.{name}" for name in BUFFERS}
    return {name: value for name, value in _below(named, MODEL).items() if name not in gone}


# -- the model -------------------------------------------------------------------------------------


def _without_numbers(
    info: Description, backbone: nn.Module | None, shapes: Mapping[str, tuple[int, ...]]
) -> Model:
    """The model on torch's meta device, which has shapes and no memory.

    It has memory only after the file has shown that it holds every tensor.
    """
    copies = method(info.method).copies(info.config)
    if copies > max(1, len(shapes)):
        raise InputError(f"{copies:,} networks cannot be in {len(shapes)} tensors")
    most = min(2 * len(shapes) + 72, _MOST_TENSORS)  # some are made twice
    try:
        with torch.device("meta"), _limited_tensors(most), forked_generator():
            model = _build(info, backbone, copies)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:  # by torch, of a setting
        reason = str(error).partition("\n")[0]
        raise InputError(f"the model that is described cannot be built: {reason}") from error
    width = getattr(model.backbone, "num_features", info.num_features)
    if width != info.num_features:
        raise InputError(
            f"the backbone has {width} features, but the header says {info.num_features}"
        )
    return model


@contextmanager
def _limited_tensors(most: int) -> Iterator[None]:
    """Refuse modules of this thread that have more parameters and buffers than a file can hold.

    So a description of a million layers ends after as many as the file may have.
    """
    thread, made = threading.get_ident(), 0

    def count(_module: nn.Module, _name: str, value: Tensor | None) -> None:
        nonlocal made
        if value is not None and threading.get_ident() == thread:
            made += 1
        if made > most:
            raise InputError("the model that is described has more tensors than the file")

    hooks = [
        nn.modules.module.register_module_parameter_registration_hook(count),
        nn.modules.module.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _build(info: Description, backbone: nn.Module | None, copies: int) -> Model:
    """The model before its weights."""
    module = _backbone(info, backbone)
    shared = copies > 1 and isinstance(module, nn.Module) and not isinstance(module, Stack)
    model = build_model(
        info.method,
        module,
        info.num_classes,
        config=info.config,
        num_features=info.num_features // (copies if shared else 1),
        **(info.backbone.arguments() if info.backbone and backbone is None else {}),
    )
    if info.channels is not None:
        model.input_mean = torch.zeros(info.channels)
        model.input_std = torch.ones(info.channels)
    if info.temperature:
        model.log_temperature = torch.zeros(())
    return model.double() if info.dtype == "float64" else model


def _backbone(info: Description, given: nn.Module | None) -> nn.Module | str:
    attached = info.network == Attached.__name__
    if given is not None:
        module = given.backbone if isinstance(given, Model) else given
        if not isinstance(module, nn.Module):
            raise InputError(f"backbone= must be a module, got {type(module).__name__}")
        if attached and not isinstance(module, Attached):
            raise InputError(f"{_ATTACHED}, not the network alone")
        return copy.deepcopy(module)
    if info.backbone is not None:
        return info.backbone.name
    if attached:
        raise InputError(_ATTACHED)
    raise InputError(
        f"its backbone is a {info.network} of somebody's own, which is not in the file: give "
        "load(..., backbone=<a module like it>), or --backbone package.module:name"
    )


def _allocate(model: Model) -> None:
    """Memory for all that is on the meta device; a backbone that was given has its own."""
    for part in model.modules():
        own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if any(tensor.is_meta for tensor in own):
            part.to_empty(device="cpu", recurse=False)


def _check_fit(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name in sorted(expected.keys() - shapes.keys()):
        raise InputError(f"the tensor {name} is missing")
    for name in sorted(shapes.keys() - expected.keys()):
        raise InputError(f"there is no place in the model for the tensor {name}")
    for name, shape in shapes.items():
        if shape != expected[name]:
            raise InputError(
                f"the tensor {name} has shape {shape}, but the model that is described has "
                f"{expected[name]}"
            )


def _check_values(model: Model, weights: Mapping[str, Tensor]) -> None:
    learnt = {name for name, _ in model.named_parameters()}
    for name, mine in model.state_dict().items():
        value = weights[name]
        if value.dtype != mine.dtype:
            raise InputError(f"the tensor {name} is of {value.dtype}, expected {mine.dtype}")
        if value.is_floating_point() and bool(torch.isnan(value).any()):
            raise InputError(f"the tensor {name} holds NaN")
        if name in learnt and not bool(torch.isfinite(value).all()):
            raise InputError(f"the tensor {name} holds infinite numbers")


# -- what comes with it ----------------------------------------------------------------------------


def _policy(info: Description, groups: Mapping[str, Tensor]) -> Policy | None:
    if info.policy is None:
        return None
    if not groups or sorted(groups) != sorted(map(str, range(len(groups)))):
        raise InputError("the reference of the policy is missing or incomplete")
    if len(groups) not in {1, info.num_classes}:
        raise InputError(f"the policy has {len(groups)} groups for {info.num_classes} classes")
    reference = [_array(groups, str(index), torch.float64).tolist() for index in range(len(groups))]
    policy = Policy.from_plain({**info.policy, "reference": reference}, "header.policy")
    if policy.class_names is not None and len(policy.class_names) != info.num_classes:
        raise InputError(
            f"the policy has {len(policy.class_names)} class names for {info.num_classes} classes"
        )
    _check_facts(policy.facts)
    return policy


def _check_facts(facts: Mapping[str, float]) -> None:
    """Refuse what the summary of a policy could not show."""
    needed = ["calibration", "false_alarm_low", "false_alarm_high"]
    needed += ["error", "judged"] if "coverage" in facts else []
    for name in needed:
        if name not in facts:
            raise InputError(f"header.policy.facts: {name} is missing")
    for name, value in facts.items():
        undefined = name == "error" and math.isnan(value)  # of none that are accepted
        if not undefined and not 0 <= value <= _LARGEST_FACT:
            raise InputError(
                f"header.policy.facts.{name}: expected a number from 0 to {_LARGEST_FACT:g}, got "
                f"{value:g}"
            )


def _references(tensors: Mapping[str, Tensor]) -> dict[str, npt.NDArray[np.float64]]:
    references = {name: _array(tensors, name, torch.float64) for name in tensors}
    for name, values in references.items():
        if len(values) != QUANTILES or not bool((values[1:] >= values[:-1]).all()):
            raise InputError(f"the reference of {name} must be {QUANTILES} numbers that ascend")
    return references


def _calibration(tensors: Mapping[str, Tensor], num_classes: int) -> Readings | None:
    if not tensors:
        return None
    for name in sorted(tensors.keys() - READINGS.keys()):
        raise InputError(f"there is no use for the tensor {CALIBRATION}{name}")
    arrays = {name: _array(tensors, name, dtype) for name, dtype in READINGS.items()}
    label = arrays["label"]
    if len(label) and not 0 <= label.min() <= label.max() < num_classes:
        raise InputError(f"the calibration data have labels that are none of {num_classes} classes")
    return Readings(**arrays)


def _array(tensors: Mapping[str, Tensor], name: str, kind: torch.dtype) -> Any:
    value = tensors.get(name)
    if value is None or value.ndim != 1 or value.dtype != kind:
        raise InputError(f"the tensor {name} is missing, or is not a column of {kind}")
    if kind == torch.float64 and bool(torch.isnan(value).any()):
        raise InputError(f"the tensor {name} holds NaN")
    return value.numpy()
