"""Evaluation mode without switching a module: a twin that shares its tensors."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from gemfi.errors import InputError

M = TypeVar("M", bound=nn.Module)

_OWN = frozenset(vars(nn.Module()))  # attributes of every module


def evaluating(module: M, training: tuple[type[nn.Module], ...] = ()) -> M:
    """The module if it is in evaluation mode throughout, otherwise a twin of it that is.

    `module.eval()` and then `module.train()` would disturb other threads, and batch norms that
    they use would change for good. The twin shares every parameter, buffer and hook, without a copy
    of a tensor (but for TorchScript, which cannot share them). A compiled module has a twin that is
    not compiled. Parts of the types in `training` are in training mode instead.
    """
    parts = {id(part): part for part in module.modules()}
    if all(part.training == isinstance(part, training) for part in parts.values()):
        return module
    shared: dict[int, Any] = {}  # for deepcopy: what is not copied, by its id
    ours = [part for part in parts.values() if not isinstance(part, torch.jit.ScriptModule)]
    for part in ours:
        _share(part, parts, shared)
    for part in ours:
        if (plain := part._modules.get("_orig_mod")) is not None:  # of what torch.compile returns
            shared[id(part)] = copy.deepcopy(plain, shared)
    twin = copy.deepcopy(module, shared)
    for part in twin.modules():
        part.training = isinstance(part, training)
        if getattr(vars(part).get("forward"), "__closure__", None):
            raise InputError(
                f"{type(part).__name__} has a `forward` that was set on the object, which may run "
                "it in training mode: call model.eval() first"
            )
    return twin


def _share(part: nn.Module, parts: dict[int, nn.Module], shared: dict[int, Any]) -> None:
    """Share tensors, hooks, and every attribute that does not lead to a part of the module."""
    for name, value in vars(part).items():
        if name in _OWN:
            values = value.values() if isinstance(value, dict) and name != "_modules" else ()
            shared.update((id(inner), inner) for inner in values)
            continue
        inside = list(_modules_in(value))
        shared.update((id(inner), inner) for inner in inside if id(inner) not in parts)
        if not any(id(inner) in parts for inner in inside):
            shared[id(value)] = value


def _modules_in(value: Any) -> Iterator[nn.Module]:
    """Modules that an attribute leads to: itself, in a list or dict, of a method or a partial."""
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, types.MethodType):
        yield from _modules_in(value.__self__)
    elif isinstance(value, functools.partial):
        yield from _modules_in([value.func, *value.args, *value.keywords.values()])
    elif isinstance(value, list | tuple | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _modules_in(inner)
