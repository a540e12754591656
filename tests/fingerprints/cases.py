"""Settings of a loop."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import MaternKernel, ScaleKernel
from models.textbook import double

from botorch_bandits import BanditGP, Box, Censored, ImprovedUpperConfidenceBound


def scaled_matern(lengthscale: float = 0.2, nu: float = 2.5, scale: float = 1.0) -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=nu, ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = double([lengthscale, 0.3])
    kernel.outputscale = double(scale)
    return kernel


def loop_settings(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "domain": Box([[0.0, -1.0], [1.0, 1.0]]),
        "model": BanditGP.with_kernel(scaled_matern(), noise=0.01, refit_every=10),
        "acquisition": ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1),
        "feedback": Censored(minimum=0.0, outcome_bound=1.0, max_delay=20),
        "num_initial": 2,
        "seed": 0,
        "horizon": None,
    }
    assert changes.keys() <= known.keys()
    return known | changes
