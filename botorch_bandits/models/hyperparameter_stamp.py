"""Whether a model is still what it was when something was computed from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module


class ModuleStamp:
    """Notices every change of a module's parameters, buffers and parts.

    Parameters are compared by value (GPyTorch sets them behind the back of torch's version
    counters), everything else by identity and version.

    Args:
        module: A kernel, a likelihood or the like, with few parameters.
    """

    def __init__(self, module: Module) -> None:
        """See the class."""
        self._entries: list[tuple[Mapping[str, Any], str, Any]] = []
        self._values: list[tuple[Tensor, Tensor]] = []
        self._versions: list[tuple[Tensor, int]] = []
        for part in module.modules():
            for table in (part._modules, part._parameters, part._buffers):
                self._entries += [(table, key, value) for key, value in table.items()]
            self._values += [
                (value, value.detach().clone())
                for value in part._parameters.values()
                if value is not None
            ]
            self._versions += [
                (value, version(value)) for value in part._buffers.values() if value is not None
            ]
            settings = vars(part)
            self._entries += [
                (settings, key, value)
                for key, value in settings.items()
                if isinstance(value, float | int | str) and key != "training"
            ]

    def is_current(self) -> bool:
        """Return whether nothing has changed since."""
        for table, key, value in self._entries:
            if table.get(key) is not value:
                return False
        for tensor, known in self._versions:
            if version(tensor) != known:
                return False
        for parameter, value in self._values:
            if parameter.dtype != value.dtype or parameter.device != value.device:
                return False
            if not torch.equal(parameter, value):
                return False
        return True

    def is_left_alone_by(self, function: Callable[[Tensor], Tensor]) -> bool:
        """Return whether ``function`` returns every tensor itself, as a conversion to nothing."""
        return all(function(tensor) is tensor for tensor, _ in self._values + self._versions)


def version(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place, as far as torch knows."""
    return 0 if tensor.is_inference() else int(tensor._version)
