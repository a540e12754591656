"""Counts what a program copies to the host, where all its tensors are on the CPU.

Tensors that come from data, models and parameters count as if they were on a device. On the host
are those that were made there (by a factory without ``device=``), those that were copied there, and
what is computed from such tensors alone. Of ``torch.from_numpy`` torch tells nobody: what it
returns counts as on a device.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

FACTORIES = {torch.tensor, torch.as_tensor, torch.zeros, torch.ones, torch.empty}
FACTORIES |= {torch.full, torch.eye, torch.arange, torch.linspace, torch.rand, torch.randn}
READS = {
    Tensor.item,
    Tensor.tolist,
    Tensor.cpu,
    Tensor.__bool__,
    Tensor.__float__,
    Tensor.__int__,
    Tensor.__index__,
    Tensor.nonzero,
    Tensor.equal,
    Tensor.allclose,
    Tensor.masked_select,
    torch.equal,
    torch.allclose,
    torch.nonzero,
    torch.masked_select,
    torch.is_nonzero,
}
ON_HOST = "is_on_host"  # an attribute


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [each for part in value.values() for each in _tensors(part)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [each for part in value for each in _tensors(part)]
    return []


class HostCopies(TorchFunctionMode):
    """Counts copies to the host by the operation, and remembers which line asked for each.

    Attributes:
        lines: How often each line of the package copied something to the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: Counter[str] = Counter()

    @property
    def number(self) -> int:
        return sum(self.lines.values())

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        inputs = _tensors(args) + _tensors(kwargs)
        is_read = func in READS or (
            func is Tensor.__getitem__
            and any(index.dtype == torch.bool for index in _tensors(args[1]))
        )
        on_device = [each for each in inputs if not getattr(each, ON_HOST, False)]
        if is_read and on_device:
            self._count(func)
        result = func(*args, **kwargs)
        if func is Tensor.cpu:
            result = result.view(result.shape)  # on the CPU it is the same object
            is_host = True
        elif func is Tensor.to:
            is_host = not on_device and not any(
                isinstance(each, Tensor | torch.device) for each in (*args[1:], *kwargs.values())
            )
            if not is_host and getattr(result, ON_HOST, False):
                result = result.view(result.shape)
        elif func in FACTORIES:
            is_host = kwargs.get("device") is None and not on_device
        else:
            is_host = bool(inputs) and not on_device
        if is_host:
            for each in _tensors(result):
                setattr(each, ON_HOST, True)
        return result

    def _count(self, func: Callable[..., Any]) -> None:
        frames = [f for f in traceback.extract_stack() if "/botorch_bandits/" in f.filename]
        where = "elsewhere"
        if frames:
            where = f"{frames[-1].filename.rpartition('/botorch_bandits/')[2]}:{frames[-1].lineno}"
        self.lines[f"{where} {resolve_name(func)}"] += 1
