"""A pretend GPU for machines without one: it computes on the host and rejects what a GPU would.

``with other_device() as device:`` yields a GPU where there is one. Elsewhere, inside the block,
tensors on PyTorch's device ``meta`` have values, because they wrap tensors of the host. Operations
that would fail on a GPU fail here, too: mixing tensors of both devices, drawing on the device with
a generator of the host, and viewing a tensor as a NumPy array.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")

_MESSAGE = "Expected all tensors to be on the same device, but found at least two devices"
_COPIES = ("aten::copy_", "aten::_to_copy", "aten::set_")
_INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
"""Their indices may be on the host."""

_MADE_OF_NUMBERS = frozenset(
    {
        torch.tensor,
        torch.as_tensor,
        torch.asarray,
        Tensor.new_tensor,
        Tensor.__getitem__,
        Tensor.__setitem__,
    }
)

_ELEMENTWISE = torch.Tag.pointwise
"""Operations with this tag also take numbers of the host, as tensors without dimensions."""


class Wrapped(Tensor):
    """A tensor of the device.

    Attributes:
        host: Its values, on the host.
    """

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> Wrapped:
        """Wrap a tensor of the host."""
        result: Wrapped = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=DEVICE,
        )
        result.host = host
        return result

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Compute on the host."""
        return compute(func, args, kwargs or {})

    def tolist(self) -> Any:
        """Return the values, as from a GPU."""
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:
        """Show the values."""
        return f"Wrapped({self.host!r})"

    __str__ = __format__ = __repr__  # type: ignore[assignment]


class _Data(TorchFunctionMode):
    """Tensors that are made of numbers: PyTorch would drop the numbers on this device."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Make them on the host first."""
        kwargs = kwargs or {}
        if func not in _MADE_OF_NUMBERS:
            return func(*args, **kwargs)
        kwargs = dict(kwargs)
        is_new = func is Tensor.new_tensor
        if func in (torch.tensor, torch.as_tensor, torch.asarray) or is_new:
            device = kwargs.pop("device", args[0].device if is_new else None)
            if is_new:
                kwargs.setdefault("dtype", args[0].dtype)
                func, args = torch.tensor, args[1:]
            if device is not None:
                return func(*args, **kwargs).to(device)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            known = tuple(
                torch.tensor(each, dtype=None if each else torch.long)
                if isinstance(each, list)
                else each
                for each in index
            )
            args = (args[0], known, *args[2:])
        return func(*args, **kwargs)


class OtherDevice(TorchDispatchMode):
    """While it is entered, the device has values."""

    def __enter__(self) -> OtherDevice:
        """Enter both modes."""
        self._data = _Data()
        self._data.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Leave both."""
        super().__exit__(*error)
        self._data.__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Compute on the host, and keep track of devices."""
        return compute(func, args, kwargs or {})


@contextmanager
def other_device() -> Iterator[str]:
    """Yield the name of a device other than the CPU, for use inside the block."""
    if torch.cuda.is_available():
        yield "cuda"
        return
    with OtherDevice():
        yield DEVICE.type


def compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute one operation on the host.

    Args:
        func: The operation.
        args: Its arguments, tensors of either device.
        kwargs: Likewise.

    Raises:
        RuntimeError: If a GPU would raise one.
    """
    name, is_mutable, is_elementwise = _facts(func)
    hosts: list[Tensor] = []  # both in the order of the arguments
    given: list[Tensor] = []
    host_args = _unwrap(args, hosts, given)
    host_kwargs = {key: _unwrap(value, hosts, given) for key, value in kwargs.items()}
    is_wrapped = any(type(each) is Wrapped for each in given)
    wanted = kwargs.get("device")
    if wanted is not None:
        target = torch.device(wanted) == DEVICE
        host_kwargs["device"] = torch.device("cpu")
    else:
        target = is_wrapped
    if is_wrapped and name not in _COPIES:
        _check(name, args, given, is_elementwise)
    if target and any(isinstance(each, torch.Generator) for each in (*args, *kwargs.values())):
        raise RuntimeError("Expected a generator of the device, but found one of the host")
    result = func(*host_args, **host_kwargs)
    if is_mutable:  # what was changed in place comes back as the very tensors that were given
        return _wrap(result, target, dict(zip(map(id, hosts), given, strict=True)))
    return _wrap(result, target, {}) if target else result


@cache
def _facts(func: Any) -> tuple[str, bool, bool]:
    """Return an operation's name, whether it changes an argument, and whether it is elementwise."""
    return func._schema.name, func._schema.is_mutable, _ELEMENTWISE in func.tags


def _check(name: str, args: tuple[Any, ...], tensors: list[Tensor], is_elementwise: bool) -> None:
    if name in _INDEXED and isinstance(args[0], Wrapped):
        tensors = [args[0], *(each for each in args[2:] if isinstance(each, Tensor))]
    others = [each for each in tensors if not isinstance(each, Wrapped)]
    if is_elementwise or name in _INDEXED:
        others = [each for each in others if each.dim()]
    if others:
        raise RuntimeError(f"{_MESSAGE}: {name} got {others[0].shape} of the host")


# PyTorch's own functions for nested arguments took more time than the operations: operations have
# only lists and tuples.


def _unwrap(value: Any, hosts: list[Tensor], given: list[Tensor]) -> Any:
    """Return the values on the host, and note every tensor with its host."""
    if isinstance(value, Tensor):
        host = value.host if isinstance(value, Wrapped) else value
        hosts.append(host)
        given.append(value)
        return host
    if type(value) in (list, tuple):
        return type(value)([_unwrap(each, hosts, given) for each in value])
    return value


def _wrap(value: Any, wraps: bool, known: dict[int, Tensor]) -> Any:
    """Return the known tensors for their hosts, and wrap the others if asked to."""
    if isinstance(value, Tensor):
        if id(value) in known:
            return known[id(value)]
        return Wrapped(value) if wraps and type(value) is Tensor else value
    if type(value) in (list, tuple):
        return type(value)([_wrap(each, wraps, known) for each in value])
    return value
