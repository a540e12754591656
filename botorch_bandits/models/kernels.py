r"""Kernels: copies in double precision, fingerprints, and stationary kernels in closed form.

A fingerprint distinguishes kernels whose printed forms are equal. Kernels are copied without
``copy.deepcopy``, which would take longer than adding a row to a model.

**Stationary kernels.** With the scaled distance :math:`r = \|(x - z) / \ell\|`, output scale
:math:`s` and :math:`h(r)` the derivative of :math:`k` with respect to :math:`r^2 / 2`,

.. math::
   k(x, z) = s \, \varphi(r), \qquad
   \frac{\partial k}{\partial x_j} = h \, \frac{x_j - z_j}{\ell_j^2}, \qquad
   \frac{\partial k}{\partial \ln \ell_j} = -h \, \frac{(x_j - z_j)^2}{\ell_j^2}, \qquad
   \frac{\partial k}{\partial \ln s} = k.

====================  =========================================  ==================================
kernel                :math:`\varphi`                            :math:`h / s`
====================  =========================================  ==================================
squared exponential   :math:`e^{-r^2/2}`                         :math:`-e^{-r^2/2}`
Matern 1/2            :math:`e^{-r}`                             :math:`-e^{-r} / r`
Matern 3/2            :math:`(1 + a) e^{-a}, a = \sqrt{3} r`     :math:`-3 e^{-a}`
Matern 5/2            :math:`(1 + a + a^2/3) e^{-a},`            :math:`-\tfrac53 (1 + a) e^{-a}`
                      :math:`a = \sqrt{5} r`
====================  =========================================  ==================================

Source: Rasmussen and Williams 2006, section 4.2, with the derivatives worked out.
"""

from __future__ import annotations

import copy
import hashlib
import math
import types
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor
from torch.nn import Module, Parameter

from botorch_bandits.checks import DTYPE, check_positive

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


def double_kernel(kernel: Kernel, lengthscale: float | None = None) -> Kernel:
    """Return a float64 copy of a kernel.

    Args:
        kernel: Any GPyTorch kernel.
        lengthscale: Set in float64 on the kernel that has one, also inside a ``ScaleKernel``.

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
        # GPyTorch would round a Python number to float32
        target.lengthscale = torch.tensor(lengthscale, dtype=DTYPE)
    return kernel


def check_kernel_columns(kernel: Kernel, num_columns: int, name: str = "kernel") -> None:
    """Raise an error unless a kernel fits inputs with so many columns.

    GPyTorch does not check the kernel inside a ``ScaleKernel``: if its number of lengthscales
    differs, they are broadcast against the columns, which makes it a different kernel.

    Args:
        kernel: Any GPyTorch kernel. Except for sums, products and scaled kernels, only the
            outermost kernel is checked, because it may change the inputs of those inside it.
        num_columns: The number of columns of the inputs, after any transform.
        name: The name of the kernel in error messages.

    Raises:
        ValueError: If it has ``ard_num_dims`` or ``active_dims`` for other columns.

    Example:
        >>> from gpytorch.kernels import RBFKernel, ScaleKernel
        >>> kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
        >>> check_kernel_columns(kernel, 3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: kernel has a RBFKernel with ard_num_dims=2 on 3 columns. Build it with ...
    """
    _check_columns(kernel, num_columns, name, is_called=True)


def _check_columns(kernel: Kernel, num_columns: int, name: str, is_called: bool) -> None:
    own = type(kernel).__name__
    active = kernel.active_dims
    if active is not None and is_called:  # a ScaleKernel selects the columns of its base kernel
        largest = max(active.tolist(), default=-1)
        if largest >= num_columns:
            raise ValueError(
                f"{name} has a {own} with active_dims={tuple(active.tolist())}, but the inputs "
                f"have {num_columns} columns, numbered from 0. Build it with others; contexts "
                "come before points."
            )
        num_columns = len(active)
    if kernel.ard_num_dims is not None and kernel.ard_num_dims != num_columns:
        raise ValueError(
            f"{name} has a {own} with ard_num_dims={kernel.ard_num_dims} on {num_columns} columns. "
            f"Build it with ard_num_dims={num_columns}, or with one lengthscale for all (no "
            "ard_num_dims). The columns are those of the context, then those of the point."
        )
    if isinstance(kernel, ScaleKernel):
        _check_columns(kernel.base_kernel, num_columns, name, is_called=False)
    elif isinstance(kernel, AdditiveKernel | ProductKernel):
        for part in kernel.kernels:
            _check_columns(part, num_columns, name, is_called=True)


def fingerprint_kernel(kernel: Kernel) -> str:
    """Return a digest of a kernel: classes, settings, parameters, values at fixed probe points.

    Settings are plain attributes, such as the ``nu`` of a Matern kernel. The values distinguish
    kernels that differ in something hidden elsewhere.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> a, b = MaternKernel(nu=1.5).double(), MaternKernel(nu=2.5).double()
        >>> fingerprint_kernel(a) == fingerprint_kernel(b)
        False
    """
    text = describe_module(kernel) + repr(_probe(kernel))
    return hashlib.sha256(text.encode()).hexdigest()


def describe_module(module: Module) -> str:
    """Return classes, settings and parameters of a module and its parts, one per line."""
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
            continue  # the kernel needs another number of dimensions
        return values
    return []


def kernel_of_output(kernel: Kernel, output: int) -> Kernel:
    """Return a copy of a kernel with the parameters of one output.

    Args:
        kernel: A kernel without a batch shape, or with one batch entry per output.
        output: The number of the output, from 0.
    """
    kernel = copy.deepcopy(kernel)
    for part in kernel.modules():
        if isinstance(part, Kernel) and len(part._batch_shape) > 0:
            for parameter in part.parameters(recurse=False):
                index = output if parameter.shape[0] > 1 else 0
                parameter.data = parameter.data[index].clone()
            part.batch_shape = torch.Size()
    return kernel


def kernel_of_outputs(kernel: Kernel, index: int | list[int], num_batch_dims: int) -> Kernel:
    """Return a copy of a kernel with the parameters of some outputs, in every batch of the model.

    Args:
        kernel: A kernel in which each part has the batch shape of the model, followed by one entry
            per output.
        index: The outputs, from 0; a number instead of a list removes their dimension.
        num_batch_dims: The number of dimensions of the model's batch shape.
    """
    kernel = copy.deepcopy(kernel)
    every = (slice(None),) * num_batch_dims
    for part in kernel.modules():
        if isinstance(part, Kernel):
            kept = () if isinstance(index, int) else (len(index),)
            for parameter in part.parameters(recurse=False):
                parameter.data = parameter.data[(*every, index)].clone()
            part.batch_shape = torch.Size((*part._batch_shape[:num_batch_dims], *kept))
    return kernel


SMALLEST_DISTANCE = 1e-15
"""At the kink of the Matern 1/2 kernel, its slope is taken to be 0, as in GPyTorch."""


@dataclass(frozen=True, eq=False)
class StationaryKernel:
    """A kernel with a known closed form.

    Attributes:
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5, 2.5), infinity for squared exponential.
        lengthscale: ``d`` lengthscales, or one for all dimensions.
        outputscale: The prior variance, a scalar.
    """

    smoothness: float
    lengthscale: Tensor
    outputscale: Tensor

    @classmethod
    def read(cls, kernel: Kernel) -> StationaryKernel | None:
        """Return the closed form of a GPyTorch kernel with its present hyperparameters.

        Returns:
            None for every kernel that is not exactly an ``RBFKernel`` or ``MaternKernel``, alone or
            in one ``ScaleKernel``, without a batch shape and on all dimensions.
        """
        outputscale: Tensor | None = None
        if type(kernel) is ScaleKernel and not kernel.batch_shape and kernel.active_dims is None:
            outputscale = kernel.outputscale.detach()
            kernel = kernel.base_kernel
        if kernel.batch_shape or kernel.active_dims is not None:
            return None
        if type(kernel) is RBFKernel:
            smoothness = math.inf
        elif type(kernel) is MaternKernel:
            smoothness = float(kernel.nu)
        else:
            return None
        lengthscale = kernel.lengthscale.detach().reshape(-1)
        if outputscale is None:
            outputscale = lengthscale.new_ones(())
        return cls(smoothness, lengthscale, outputscale)

    def matrix(self, X: Tensor, Z: Tensor) -> Tensor:
        """Return the kernel values between two sets of points.

        Args:
            X: ``... x n x d`` points.
            Z: ``... x p x d`` points.

        Returns:
            A ``... x n x p`` tensor.
        """
        if self.smoothness == 0.5:
            squared = self._distance(X, Z).square_()
        else:
            squared = self._squared_distance(X, Z)
        return self.of_squared_distance(squared, with_slope=False)[0]

    def of_augmented(
        self, queries: Tensor, points: Tensor, with_slope: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the kernel values, and ``h`` on request, from rows whose product is ``r^2``.

        Args:
            queries: ``... x n x (d + 2)`` rows ``(-2u, |u|^2, 1)`` of scaled points ``u``.
            points: ``... x p x (d + 2)`` rows ``(v, 1, |v|^2)``.
            with_slope: Whether to return ``h`` as well, otherwise None.
        """
        if self.smoothness == 0.5:
            # differences before squares keep the distances of near points, which the kink reveals
            squared = torch.cdist(
                queries[..., :-2] * -0.5,
                points[..., :-2],
                compute_mode="donot_use_mm_for_euclid_dist",
            ).square_()
        else:
            squared = (queries @ points.mT).clamp_min_(0.0)
        return self.of_squared_distance(squared, with_slope)

    def of_squared_distance(
        self, squared: Tensor, with_slope: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the kernel values, and ``h`` on request, at scaled squared distances ``r^2``.

        Args:
            squared: Any shape, non-negative; it is overwritten.
            with_slope: Whether to return ``h`` as well, otherwise None.
        """
        # in place where possible, because new memory for large matrices costs more than the
        # arithmetic
        slope: Tensor | None
        if self.smoothness == math.inf:
            value = squared.mul_(-0.5).exp_().mul_(self.outputscale)
            return value, value.neg() if with_slope else None
        if self.smoothness == 0.5:
            distance = squared.sqrt_()
            value = distance.neg().exp_().mul_(self.outputscale)
            if not with_slope:
                return value, None
            is_kink = distance < SMALLEST_DISTANCE
            return value, value.div(distance).neg_().masked_fill_(is_kink, 0.0)
        # a = sqrt(2 nu) r
        scaled = squared.mul_(2.0 * self.smoothness).sqrt_()
        decay = scaled.neg().exp_().mul_(self.outputscale)
        if self.smoothness == 1.5:
            slope = decay.mul(-3.0) if with_slope else None
            return scaled.add_(1.0).mul_(decay), slope
        one_plus = scaled.add(1.0)
        value = torch.addcmul(one_plus, scaled, scaled, value=1.0 / 3.0).mul_(decay)
        return value, one_plus.mul_(decay).mul_(-5.0 / 3.0) if with_slope else None

    def _distance(self, X: Tensor, Z: Tensor) -> Tensor:
        # differences before squares keep the distances of near points, which the kink reveals
        return torch.cdist(
            X / self.lengthscale, Z / self.lengthscale, compute_mode="donot_use_mm_for_euclid_dist"
        )

    def _squared_distance(self, X: Tensor, Z: Tensor) -> Tensor:
        center = Z.reshape(-1, Z.shape[-1])[:1]  # rounding errors grow with the distance from 0
        X, Z = (X - center) / self.lengthscale, (Z - center) / self.lengthscale
        squared = X @ (-2.0 * Z).mT
        squared += X.square().sum(-1, keepdim=True)
        squared += Z.square().sum(-1).unsqueeze(-2)
        return squared.clamp_min_(0.0)
