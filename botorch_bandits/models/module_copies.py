"""Copies of modules without ``copy.deepcopy``, which would take longer than adding a row."""

from __future__ import annotations

import copy
import types
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Module, Parameter

_SHARED = {
    type(None),
    bool,
    int,
    float,
    str,
    bytes,
    types.FunctionType,
    types.BuiltinFunctionType,
    torch.Size,
    torch.dtype,
    torch.device,
}
"""Types of immutable values, which ``copy.deepcopy`` returns as they are."""

_CONTAINERS = {dict, list, set, OrderedDict}

# GPyTorch's kernels only leave out a part that they rebuild
_PLAIN_GETSTATE = (object.__getstate__, Module.__getstate__, Kernel.__getstate__)
_PLAIN_SETSTATE = (Module.__setstate__, Kernel.__setstate__)
_HOOKS = "_load_state_dict_pre_hooks"


def copy_modules(modules: Mapping[str, Module]) -> dict[str, Module]:
    """Return independent copies of modules, as ``copy.deepcopy`` would.

    Args:
        modules: The modules by name. Parts that several of them share remain shared.

    Returns:
        The copies by the same names. Parameters keep ``requires_grad``, but not their gradients.
    """
    memo: dict[int, Any] = {}
    return {name: _copy(module, memo) for name, module in modules.items()}


def _copy(module: Module, memo: dict[int, Any]) -> Module:
    earlier = memo.get(id(module))
    if earlier is not None:
        assert isinstance(earlier, Module)
        return earlier
    if not _has_plain_state(type(module)):
        copied: Module = copy.deepcopy(module, memo)
        return copied
    new: Module = object.__new__(type(module))
    memo[id(module)] = new
    state, later = new.__dict__, []
    for name, value in vars(module).items():
        kind = type(value)
        if kind in _SHARED:
            state[name] = value
        elif kind in _CONTAINERS and not value:
            state[name] = kind()
        elif name == "_parameters":
            state[name] = {key: _copy_parameter(part, memo) for key, part in value.items()}
        elif name == "_buffers":
            state[name] = {key: _copy_buffer(part, memo) for key, part in value.items()}
        elif name == "_modules":
            state[name] = {
                key: None if part is None else _copy(part, memo) for key, part in value.items()
            }
        else:
            later.append(name)
    state.pop("_compiled_call_impl", None)
    for name in later:  # entries that may refer to parts of the module
        value = vars(module)[name]
        if name == _HOOKS and _is_own_hook(module, value):
            state[name] = OrderedDict()
            new._register_load_state_dict_pre_hook(new._load_state_hook_ignore_shapes)
        elif type(value) is dict and all(id(part) in memo for part in value.values()):
            state[name] = {key: memo[id(part)] for key, part in value.items()}  # constraints
        else:
            state[name] = copy.deepcopy(value, memo)
    return new


def _is_own_hook(module: Module, hooks: Mapping[int, Any]) -> bool:
    """Return whether the only hook is the one that GPyTorch gives to each of its modules."""
    if not isinstance(module, gpytorch.Module) or len(hooks) != 1:
        return False
    (hook,) = hooks.values()
    return getattr(hook, "hook", None) == module._load_state_hook_ignore_shapes


def _copy_parameter(parameter: Parameter | None, memo: dict[int, Any]) -> Any:
    copied = None if parameter is None else memo.get(id(parameter))
    if copied is None and parameter is not None:
        if type(parameter) is not Parameter:
            return copy.deepcopy(parameter, memo)
        # deepcopy would copy gradients too, which belong to the other model's data
        copied = Parameter(parameter.detach().clone(), parameter.requires_grad)
        memo[id(parameter)] = copied
    return copied


def _copy_buffer(buffer: Tensor | None, memo: dict[int, Any]) -> Any:
    if type(buffer) is not Tensor or buffer.requires_grad:
        return copy.deepcopy(buffer, memo)
    if id(buffer) not in memo:
        memo[id(buffer)] = buffer.clone()
    return memo[id(buffer)]


def _has_plain_state(module_class: Any) -> bool:
    """Return whether ``copy.deepcopy`` copies only the attributes of such a module."""
    return (
        not hasattr(module_class, "__deepcopy__")
        and module_class.__reduce_ex__ is object.__reduce_ex__
        and module_class.__reduce__ is object.__reduce__
        and module_class.__getstate__ in _PLAIN_GETSTATE
        and module_class.__setstate__ in _PLAIN_SETSTATE
    )
