"""Evaluation mode without switching a module: a twin that shares its tensors."""

from __future__ import annotations

import copy
import functools
import types
from typing import Any, TypeVar, cast

import torch
from torch import nn

from gemfi.errors import InputError

M = TypeVar("M", bound=nn.Module)
Kinds = tuple[type[nn.Module], ...]
Twins = dict[int, nn.Module]

_OWN = frozenset(vars(nn.Module()))  # attributes of every module


def evaluating(module: M, training: Kinds = ()) -> M:
    """The module if it is in evaluation mode throughout, otherwise a twin of it that is.

    `module.eval()` and then `module.train()` would disturb other threads, and batch norms that
    they use would change for good. So the modes of `module` are never touched. The twin shares
    every parameter, buffer and hook with it, and costs no pass and no copy of a tensor (but for
    TorchScript, which cannot share them). A compiled module has a twin that is not compiled.

    Args:
        module: in any mode.
        training: parts of these types are in training mode instead.
    """
    if all(part.training == isinstance(part, training) for part in module.modules()):
        return module
    twins: Twins = {}
    found = _twin(module, training, twins)
    for twin in twins.values():
        _rebind(twin, twins)
    return cast("M", found)


def _twin(module: nn.Module, training: Kinds, twins: Twins) -> nn.Module:
    """A shallow copy in its mode, of every part below it too; `twins` has them by id."""
    if id(module) in twins:
        return twins[id(module)]
    if isinstance(module, torch.jit.ScriptModule):
        twins[id(module)] = copy.deepcopy(module).eval()
        return twins[id(module)]
    if (plain := module._modules.get("_orig_mod")) is not None:  # of what torch.compile returns
        twins[id(module)] = _twin(plain, training, twins)
        return twins[id(module)]
    found: nn.Module = object.__new__(type(module))
    twins[id(module)] = found
    state = {
        name: value.copy() if name in _OWN and isinstance(value, dict) else value
        for name, value in vars(module).items()
    }
    state.pop("_compiled_call_impl", None)  # of `module.compile()`: it would run the original
    state["training"] = isinstance(module, training)
    state["_modules"] = {
        name: None if child is None else _twin(child, training, twins)
        for name, child in module._modules.items()
    }
    vars(found).update(state)
    return found


def _rebind(twin: nn.Module, twins: Twins) -> None:
    """Let the attributes of a twin that lead to a part of the original lead to that part's twin."""
    if isinstance(twin, torch.jit.ScriptModule):
        return
    for name, value in vars(twin).items():
        if name not in _OWN:
            vars(twin)[name] = _rebound(value, twins)
    if getattr(vars(twin).get("forward"), "__closure__", None):
        raise InputError(
            f"{type(twin).__name__} has a `forward` that was set on the object, which may run it "
            "in training mode: call model.eval() first"
        )


def _rebound(value: Any, twins: Twins) -> Any:
    """A module's twin for a module, also in a list or dict, and bound to a method or partial."""
    if isinstance(value, nn.Module):
        return twins.get(id(value), value)
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, _rebound(value.__self__, twins))
    if isinstance(value, functools.partial):
        named = {name: twins.get(id(each), each) for name, each in value.keywords.items()}
        args = (twins.get(id(each), each) for each in value.args)
        return functools.partial(_rebound(value.func, twins), *args, **named)
    if type(value) in (list, tuple) and any(id(each) in twins for each in value):
        return type(value)(twins.get(id(each), each) for each in value)
    if type(value) is dict and any(id(each) in twins for each in value.values()):
        return {key: twins.get(id(each), each) for key, each in value.items()}
    return value
