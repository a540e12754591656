"""A pretend GPU for machines without one: it computes on the host and rejects what a GPU would.

``with other_device() as device:`` yields a GPU where there is one. Elsewhere, inside the block,
tensors on PyTorch's device ``meta`` have values, because they wrap tensors of the host. Operations
that would fail on a GPU fail here, too: mixing tensors of both devices, drawing on the device with
a generator of the host, and viewing a tensor as a NumPy array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")

_MESSAGE = "Expected all tensors to be on the same device, but found at least two devices"
_COPIES = ("aten::copy_", "aten::_to_copy", "aten::set_")
_INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
"""Their indices may be on the host."""

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
        kwargs = dict(kwargs or {})
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
    name = func._schema.name
    wanted = kwargs.get("device")
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    is_wrapped = any(isinstance(each, Wrapped) for each in tensors)
    if wanted is not None:
        target = torch.device(wanted) == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    else:
        target = is_wrapped
    if is_wrapped and name not in _COPIES:
        _check(name, func, args, tensors)
    if target and any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError("Expected a generator of the device, but found one of the host")
    host_args, host_kwargs = tree_map(_unwrap, (args, kwargs))
    result = func(*host_args, **host_kwargs)
    if func._schema.is_mutable:
        return _same_objects(result, (host_args, host_kwargs), (args, kwargs), target)
    return tree_map(_wrap, result) if target else result


def _check(name: str, func: Any, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
    if name in _INDEXED and isinstance(args[0], Wrapped):
        tensors = [args[0], *(each for each in args[2:] if isinstance(each, Tensor))]
    others = [each for each in tensors if not isinstance(each, Wrapped)]
    if _ELEMENTWISE in func.tags or name in _INDEXED:
        others = [each for each in others if each.dim()]
    if others:
        raise RuntimeError(f"{_MESSAGE}: {name} got {others[0].shape} of the host")


def _unwrap(value: Any) -> Any:
    return value.host if isinstance(value, Wrapped) else value


def _wrap(value: Any) -> Any:
    return Wrapped(value) if type(value) is Tensor else value


def _same_objects(result: Any, hosts: Any, given: Any, wraps: bool) -> Any:
    """Give back the very tensors that were changed in place."""
    known = {
        id(host): each for host, each in zip(tree_leaves(hosts), tree_leaves(given), strict=True)
    }
    replace: Callable[[Any], Any] = lambda value: known.get(  # noqa: E731
        id(value), _wrap(value) if wraps else value
    )
    return tree_map(replace, result)
