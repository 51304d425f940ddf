"""Where a model computes, and in which precision."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final, Literal

import torch
from torch import Tensor, nn

from gemfi.errors import InputError

Precision = Literal["fp32", "bf16", "fp16", "auto"]
CPU: Final = torch.device("cpu")


def device_of(module: nn.Module) -> torch.device:
    """The device of its first parameter or buffer; the CPU where it has none."""
    tensor = next(module.parameters(), next(module.buffers(), None))
    return CPU if tensor is None else tensor.device


def find_device(name: str | torch.device) -> torch.device:
    """A device by its name.

    Args:
        name: such as `cpu`, `cuda`, `cuda:1` or `mps`; `auto` is CUDA, then MPS, then the CPU.
            Under torchrun, `cuda` and `auto` take the GPU of the local rank.
    """
    if name == "auto":
        mps = torch.backends.mps.is_available()
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(
            f"unknown device {str(name)!r}; expected auto, cpu, cuda, cuda:N or mps"
        ) from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                f"device {str(name)!r}: this torch sees no CUDA device; use auto or cpu"
            )
        index = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
        if index >= torch.cuda.device_count():
            raise InputError(
                f"device cuda:{index}: there are {torch.cuda.device_count()}, counted from 0"
            )
        return torch.device("cuda", index)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device 'mps': this machine has none; use auto or cpu")
    return device


def place(module: nn.Module, name: str | torch.device | None) -> torch.device:
    """Move a module to a device, where one is named, and say where it is."""
    if name is not None:
        module.to(find_device(name))
    return device_of(module)


def move(x: Tensor, device: torch.device) -> Tensor:
    """A batch on a device; to a GPU without waiting, through pinned memory."""
    if x.device == device:
        return x
    if device.type == "cuda" and x.device.type == "cpu" and torch.cuda.is_available():
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def autocast_type(precision: Precision, device: torch.device) -> torch.dtype | None:
    """The type in which the backbone computes; None for float32.

    `auto` is bfloat16 where the hardware has instructions for it. float16 needs a GPU: its small
    range takes a gradient scaler.
    """
    if precision == "fp32":
        return None
    if precision == "fp16":
        if device.type != "cuda":
            raise InputError(
                f"precision fp16 needs CUDA, and the model is on {device.type}: use bf16 or auto"
            )
        return torch.float16
    return torch.bfloat16 if precision == "bf16" or has_bf16(device) else None


def has_bf16(device: torch.device) -> bool:
    """Whether the hardware multiplies bfloat16 by instructions of its own."""
    if device.type == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported())
    return False


@contextlib.contextmanager
def on_host() -> Iterator[None]:
    """Mark what is decided on the CPU, and never waits for another device.

    Tests with fake tensors leave their mode here.
    """
    yield


def checked_every(device: torch.device) -> int:
    """Steps between two looks at the loss: to look at it on another device is to wait for it."""
    return 1 if device.type == "cpu" else 16
