"""Whether a confidence band covers the reward function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_matrix, check_nonnegative, check_vector
from botorch_bandits.plotting.posterior import read_posterior
from botorch_bandits.plotting.style import SMALL, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEEDED = ("mean", "standard_deviation", "width")


def plot_width_against_error(
    model: Any,
    X: Tensor | None = None,
    truth: Any = None,
    width: float | None = None,
    *,
    logarithmic: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw how far the reward function is from the posterior mean, against the band's half-width.

    Points on or below the diagonal are covered: the error is at most the width times the standard
    deviation. Crosses above it are not; the legend has the share that is covered. Points far below
    the diagonal say that the width is larger than it would have to be.

    Args:
        model: A BoTorch model of one output; or, with nothing else, the result of
            :func:`~botorch_bandits.run` on a problem that knows its noiseless values: then a round
            is a point, with the mean, standard deviation and width with which its query was chosen.
        X: ``n x d`` points, the model's inputs.
        truth: The reward function there, noiseless: ``n`` values, or a function from ``X`` to them.
        width: Half the height of the band, in posterior standard deviations.
        logarithmic: Logarithmic axes; points without an error or a deviation are left out then.
        ax: Axes to draw on; new ones if omitted.

    Raises:
        TypeError: If an argument is missing, or a tensor is not float64.
        ValueError: If a shape is wrong, a value is not finite, or a result does not say what is
            needed.
    """
    if hasattr(model, "posterior"):
        half, error = _of_model(model, X, truth, width)
    else:
        if X is not None or truth is not None or width is not None:
            raise TypeError(
                f"model is a {type(model).__name__}. With X, truth and width pass a BoTorch model; "
                "the result of run goes alone."
            )
        half, error = _of_result(model)
    ax = axes_or_new(ax)
    covered = error <= half
    count = int(covered.sum())
    for mask, marker, fill, label in (
        (covered, "o", "white", f"covered ({count} of {len(half)}, {count / len(half):.1%})"),
        (~covered, "x", "black", f"not covered ({len(half) - count})"),
    ):
        x, y = half[mask].numpy(), error[mask].numpy()
        ax.plot(x, y, marker, color="black", mfc=fill, ms=4, mew=0.8, ls="none", label=label)
    largest = 1.05 * max(float(half.max()), float(error.max()), torch.finfo(DTYPE).tiny)
    if logarithmic:
        smallest = torch.cat([half, error])
        smallest = smallest[smallest > 0.0]
        lowest = 0.8 * float(smallest.min()) if len(smallest) else 0.1 * largest
        ax.set_xscale("log")
        ax.set_yscale("log")
    else:
        lowest = 0.0
    ends = [lowest, largest]
    ax.plot(ends, ends, color="black", ls="--", lw=1.0, label="error = half-width")
    ax.set_xlabel("half-width of the band: width x standard deviation (units of the reward)")
    ax.set_ylabel("|reward function - mean|")
    ax.legend(fontsize=SMALL)
    return ax


def _of_model(model: Any, X: Any, truth: Any, width: Any) -> tuple[Tensor, Tensor]:
    """Return half-widths and errors at points, on the CPU."""
    missing = [n for n, v in (("X", X), ("truth", truth), ("width", width)) if v is None]
    if missing:
        raise TypeError(
            f"{', '.join(missing)} is missing; with a model pass X, truth and width, or pass the "
            "result of run alone."
        )
    X = check_matrix("X", X)
    if len(X) == 0:
        raise ValueError("X has no rows; pass the points to look at.")
    values = truth(X) if callable(truth) else truth
    if isinstance(values, Tensor) and values.dim() == 2 and values.shape[-1] == 1:
        values = values.squeeze(-1)
    values = check_vector("truth", values, length=len(X)).detach().cpu()
    mean, deviation = read_posterior(model, X)
    return check_nonnegative("width", width) * deviation, (values - mean).abs()


def _of_result(result: Any) -> tuple[Tensor, Tensor]:
    """Return half-widths and errors of the rounds that have them."""
    history, values = getattr(result, "history", None), getattr(result, "values", None)
    if history is None or not hasattr(result, "rewards"):
        raise TypeError(
            f"model is a {type(result).__name__}; pass a BoTorch model with X, truth and width, or "
            "the result of run."
        )
    if not isinstance(values, Tensor):
        raise ValueError(
            "the result has no noiseless values; run a problem that knows them, such as those in "
            "botorch_bandits.problems, or pass a model with X, truth and width."
        )
    if history.num_constraints:
        raise ValueError(
            "the result is of a loop with constraints, whose model may be of the penalised reward; "
            "pass a model with X, truth and width."
        )
    queries = history.queries[history.num_queries - len(values) :]
    told = [history.outcome(q.id) for q in queries]
    rewards = torch.tensor([torch.nan if o is None else o.reward for o in told], dtype=DTYPE)
    if len(queries) != len(values) or not torch.equal(
        rewards.nan_to_num(), result.rewards.cpu().nan_to_num()
    ):
        raise ValueError(
            "the rounds of the result are not the last ones of its history, which has gone on; "
            "draw it before the loop goes on, or pass a model with X, truth and width."
        )
    rows = [
        (d["width"] * d["standard_deviation"], abs(value - d["mean"]))
        for d, value in ((q.diagnostics, v) for q, v in zip(queries, values.tolist(), strict=True))
        if all(name in d for name in NEEDED)
    ]
    if not rows:
        raise ValueError(
            "no round of the result has a mean, a standard deviation and a width: this method has "
            "none. Pass a model with X, truth and width."
        )
    half, error = torch.tensor(rows, dtype=DTYPE).unbind(dim=-1)
    return half, error
