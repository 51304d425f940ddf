"""An accelerator that is not there: torch's fake tensors on a device registered for the tests.

torch cannot take gradients of fake tensors on `cuda` without CUDA, but on a backend registered from
Python. Run this module's `Accelerator` in a process of its own: the registration is for good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "fake_gpu"


def register() -> torch.device:
    """The device; once in a process."""
    _setup_privateuseone_for_python_backend(NAME)
    nn.Module._apply = _apply  # type: ignore[method-assign,assignment]
    return torch.device(NAME, 0)


class WaitError(AssertionError):
    """Something looked at a number of the accelerator where it should not wait."""


class Accelerator(TorchDispatchMode):
    """Tensors of the accelerator are fake, those of the CPU real.

    Fake tensors refuse operations on tensors of both devices. What is copied to the CPU becomes
    random numbers, whose rows may be log-probabilities. To look at a single number, or to copy
    without `non_blocking`, is to wait for the accelerator, which fails without `may_wait`.

    Attributes:
        may_wait: whether single numbers may be looked at.
        answer: what a single truth value is.
        waits: how often that was done.
        copies: tensors copied to the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device, self.fake = device, FakeTensorMode()
        self.may_wait, self.answer, self.waits, self.copies = False, False, 0, 0

    def __torch_dispatch__(
        self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        leaves = pytree.tree_leaves((args, kwargs))
        there = any(isinstance(x, FakeTensor) or x == self.device for x in leaves if _may_be(x))
        if not there:
            return operation(*args, **kwargs)
        if operation is torch.ops.aten._to_copy.default and not kwargs.get("non_blocking"):
            self._copy(args[0].device, kwargs.get("device", args[0].device))
        if operation is torch.ops.aten._local_scalar_dense.default:
            return self._number(args[0])
        args, kwargs = pytree.tree_map_only(Tensor, self._faked, (args, kwargs))
        with self.fake:
            result = operation(*args, **kwargs)
        return pytree.tree_map_only(FakeTensor, self._on_its_device, result)

    def _number(self, x: Tensor) -> Any:
        self._wait("a number of the accelerator is looked at")
        return self.answer if x.dtype == torch.bool else 1.0 if x.is_floating_point() else 1

    def _copy(self, source: torch.device, target: torch.device) -> None:
        if source.type != target.type:
            self._wait("a tensor is copied without non_blocking=True")

    def _wait(self, what: str) -> None:
        if not self.may_wait:
            raise WaitError(what)
        self.waits += 1

    def _faked(self, x: Tensor) -> Tensor:
        return x if isinstance(x, FakeTensor) else self.fake.from_tensor(x.detach())

    def _on_its_device(self, x: FakeTensor) -> Tensor:
        if x.device.type != "cpu":
            return x
        self.copies += 1
        if not x.is_floating_point():
            return torch.zeros(x.shape, dtype=x.dtype)
        noise = torch.randn(x.shape, dtype=x.dtype)
        return torch.log_softmax(noise, dim=-1) if x.ndim > 1 else noise

    def __enter__(self) -> Self:
        # or `new_tensor` and the like would look for the memory of the device
        self._lifts_only = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[arg-type]
        torch._C._set_only_lift_cpu_tensors(self._lifts_only)

    @contextlib.contextmanager
    def waiting(self, answer: bool = False) -> Iterator[None]:
        """Numbers may be looked at; a truth value is `answer`."""
        before = self.may_wait, self.answer
        self.may_wait, self.answer = True, answer
        try:
            yield
        finally:
            self.may_wait, self.answer = before


def _may_be(x: Any) -> bool:
    return isinstance(x, Tensor | torch.device)


def _apply(module: nn.Module, move: Any, recurse: bool = True) -> nn.Module:
    """`nn.Module._apply`, which `to` calls: torch's own cannot swap fake tensors."""
    for child in module.children() if recurse else ():
        child._apply(move)
    for name, value in module._parameters.items():
        if value is not None:
            moved = move(value.detach())
            module._parameters[name] = nn.Parameter(moved, requires_grad=value.requires_grad)
    for name, value in module._buffers.items():
        if value is not None:
            module._buffers[name] = move(value)
    return module
