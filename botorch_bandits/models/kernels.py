"""Kernels of users: copies in double precision, and what tells one from another."""

from __future__ import annotations

import copy
import hashlib
import warnings
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch.nn import Module

from botorch_bandits.checks import DTYPE, check_positive


def double_kernel(kernel: Kernel, lengthscale: float | None = None) -> Kernel:
    """Return a float64 copy of a kernel.

    Args:
        kernel: Any GPyTorch kernel.
        lengthscale: Set, in float64, on the kernel that has one (inside a ``ScaleKernel`` too).

    Raises:
        TypeError: If ``kernel`` is not a GPyTorch kernel.
        ValueError: If a lengthscale is given but the kernel has none, or it is not positive.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be a gpytorch.kernels.Kernel instance, got {kernel!r}. For example "
            "MaternKernel(nu=2.5)."
        )
    if any(p.dtype != DTYPE and bool((p != 0).any()) for p in kernel.parameters()):
        # An untouched raw parameter is exactly 0; anything else was rounded to float32.
        warnings.warn(
            "the kernel's parameters were set in float32, which keeps 7 digits (0.2 becomes "
            "0.200000003). Call kernel = kernel.double(), then set float64 tensors, or pass "
            "lengthscale=.",
            UserWarning,
            stacklevel=3,
        )
    kernel = copy.deepcopy(kernel).to(DTYPE)
    if lengthscale is not None:
        lengthscale = check_positive("lengthscale", lengthscale)
        target = kernel
        while not target.has_lengthscale and isinstance(
            getattr(target, "base_kernel", None), Kernel
        ):
            target = target.base_kernel
        if not target.has_lengthscale:
            raise ValueError(
                f"lengthscale is {lengthscale}, but {type(kernel).__name__} has no single "
                "lengthscale; set its parts before passing it."
            )
        # GPyTorch would round a Python number to float32 on its way
        target.lengthscale = torch.tensor(lengthscale, dtype=DTYPE)
    return kernel


def fingerprint_kernel(kernel: Kernel) -> str:
    """Return a digest of a kernel: classes, settings, parameters, values at fixed probe points.

    Settings are plain attributes, such as the ``nu`` of a Matern kernel. The values tell apart
    what is hidden elsewhere.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> a, b = MaternKernel(nu=1.5).double(), MaternKernel(nu=2.5).double()
        >>> fingerprint_kernel(a) == fingerprint_kernel(b)
        False
    """
    text = describe_module(kernel) + repr(_probe(kernel))
    return hashlib.sha256(text.encode()).hexdigest()


def describe_module(module: Module) -> str:
    """Return classes, settings and parameters of a module and its parts, one a line."""
    lines = []
    for name, part in module.named_modules():
        lines.append(f"{name}: {type(part).__module__}.{type(part).__qualname__}")
        lines += [
            f"{name}.{key}: {value!r}"
            for key, value in sorted(vars(part).items())
            if isinstance(value, bool | int | float | str) and key != "training"
        ]
    lines += [
        f"{name} = {value.detach().cpu().reshape(-1).tolist()} {tuple(value.shape)}"
        for name, value in sorted(module.state_dict().items())
    ]
    return "\n".join(lines)


def _probe(kernel: Kernel) -> list[Any]:
    kernel = copy.deepcopy(kernel).to("cpu")
    generator = torch.Generator().manual_seed(0)
    for dim in range(1, 33):
        points = torch.rand(4, dim, dtype=DTYPE, generator=generator)
        try:
            with torch.no_grad():
                values: list[Any] = kernel(points).to_dense().tolist()
        except (RuntimeError, IndexError, ValueError, AssertionError):
            continue  # a kernel that needs another number of dimensions
        return values
    return []


def kernel_of_output(kernel: Kernel, output: int) -> Kernel:
    """Return a copy of a kernel with the parameters of one output.

    Args:
        kernel: Without a batch shape, or with one entry of it for each output.
        output: Which one, from 0.
    """
    kernel = copy.deepcopy(kernel)
    for part in kernel.modules():
        if isinstance(part, Kernel) and len(part._batch_shape) > 0:
            for parameter in part.parameters(recurse=False):
                index = output if parameter.shape[0] > 1 else 0
                parameter.data = parameter.data[index].clone()
            part.batch_shape = torch.Size()
    return kernel
