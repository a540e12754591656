"""Draws from a posterior: on finite sets of points, along paths, and point by point.

A draw on a finite set is exact, from one factorization of its covariance. On a box, BoTorch's paths
combine random Fourier features with Matheron's rule, for kernels that have such features. For other
kernels, values are drawn where they are requested, jointly with all earlier values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.gpytorch import BatchedMultiOutputGPyTorchModel, GPyTorchModel
from botorch.models.model import Model, ModelList
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.utils.transforms import is_ensemble
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.models import ExactGP
from torch import Tensor

from botorch_bandits.acquisition.base import BanditAcquisition, check_columns, view_of
from botorch_bandits.acquisition.pathwise import (
    WavesAndRows,
    draw_joint_paths,
    draw_prior_paths,
    update_paths,
)
from botorch_bandits.acquisition.scores import select_output
from botorch_bandits.checks import DTYPE, check_integer
from botorch_bandits.core.priors import root_of
from botorch_bandits.domains import Arms
from botorch_bandits.models import BanditGP
from botorch_bandits.models.growing import Snapshot, box_posterior_of, has_closed_posterior
from botorch_bandits.models.reading import PendingModel, read_moments
from botorch_bandits.models.several_outputs import JointOutputs
from botorch_bandits.random_streams import derive_seed, seeded_globally


class SeededDraw(BanditAcquisition):
    """One draw used in every evaluation, determined by the model, the seed and the draw count.

    The draw need not be stored: it is omitted from pickles and drawn again when needed.
    """

    stream: ClassVar[str]
    """The name of the random stream; under another name, the same seed gives other numbers."""

    model: Model
    arms: Arms | None
    seed: int
    _path: Path | None
    _values: Tensor | None
    _on_arms: tuple[ModelStamp, list[JointPosterior]] | None
    _later: dict[int, Any]

    def _prepare_draws(self, choices: Tensor | None, seed: int | None) -> None:
        """Store the points to draw on, if there are any, and the seed; nothing is drawn yet."""
        self.arms = None if choices is None else Arms(choices)
        if self.arms is not None:
            check_columns("choices", self.arms.choices, self.model)
        self.seed = (
            int(torch.randint(2**62, ()))
            if seed is None
            else check_integer("seed", seed, minimum=0)
        )
        self._num_draws = -1
        self._on_arms = None

    @property
    def choices(self) -> Tensor | None:
        """The finite set of points that can be evaluated, if there is one."""
        return None if self.arms is None else self.arms.choices

    def __getstate__(self) -> dict[str, Any]:
        """Leave the draw out."""
        return {**self.__dict__, "_path": None, "_values": None, "_on_arms": None, "_later": {}}

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._forget_draw()
        self._on_arms = None
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._forget_draw()  # it is still on the model's old device
        self._on_arms = None
        return super()._apply(fn, recurse)

    def _begin_draw(self) -> None:
        self._num_draws += 1
        self._forget_draw()

    def _forget_draw(self) -> None:
        self._path = None
        self._values = None
        self._later = {}

    def _after(self, num_redraws: int) -> Self:
        """Return this function as it will be after some redraws, with the same pending points."""
        if num_redraws == 0:
            return self
        if num_redraws not in self._later:
            view = view_of(self)
            view._forget_draw()
            view._num_draws = self._num_draws + num_redraws
            self._later[num_redraws] = view
        later: Self = self._later[num_redraws]
        later._on_arms = self._on_arms  # one factorization for all
        return later

    def _posteriors_on_arms(
        self, posterior_transform: PosteriorTransform | None, groups: bool = True
    ) -> list[JointPosterior]:
        """Return the posterior on the points that can be evaluated, factored once for all draws.

        Args:
            posterior_transform: A transform applied to the posterior, if given.
            groups: Whether independent outputs are returned one by one.
        """
        assert self.arms is not None
        if self._on_arms is not None and self._on_arms[0].is_current_of(self.model):
            return self._on_arms[1]
        with torch.no_grad():
            choices = self.arms.choices
            if groups:
                joint = joint_posteriors(self.model, choices, posterior_transform)
            else:
                joint = [joint_posterior(self.model, choices, posterior_transform)]
        if isinstance(self.model, GPyTorchModel | ModelListGP):
            self._on_arms = ModelStamp(self.model), joint
        return joint

    def _current_path(self) -> Path:
        """Return the pathwise draw."""
        if self._path is None:
            self._path = self._draw_path()
        return self._path

    def _draw_path(self) -> Path:
        try:
            with torch.no_grad(), seeded_globally(self._seed_of("path")):
                return draw_path(self.model)
        except NotImplementedError as error:
            models = _independent_outputs(self.model)
            if any(model.num_outputs > 1 or is_ensemble(model) for model in models):
                raise UnsupportedError(
                    "BoTorch has no pathwise draws for this model. Pass choices=, a finite set of "
                    f"points, for exact draws, or Arms as the domain. (BoTorch: {error})"
                ) from error
        draws = [
            PointwiseDraw(model, derive_seed(self._seed_of("points"), j, "output"))
            for j, model in enumerate(models)
        ]
        return Path(lambda X: torch.cat([draw(X) for draw in draws], dim=-1))

    def _seed_of(self, purpose: str) -> int:
        return derive_seed(self.seed, self._num_draws, f"{self.stream} {purpose}")


def _independent_outputs(model: Model) -> list[Model]:
    """Return the models that are drawn one by one: one per output, if outputs are independent."""
    if isinstance(model, ModelListGP):
        return list(model.models)
    if isinstance(model, BanditGP) and model.num_outputs > 1 and not model.batch_shape:
        return [model.subset_output([j]) for j in range(model.num_outputs)]
    return [model]


@dataclass(frozen=True, eq=False)
class Path:
    """A draw as a function of points, ``batch_shape x n x d`` to ``batch_shape x n x m``.

    Attributes:
        evaluate: The function.
        outputs: The draw of each output, if it can be scaled about the posterior mean.
    """

    evaluate: Callable[[Tensor], Tensor]
    outputs: tuple[WavesAndRows, ...] = ()

    @classmethod
    def of_outputs(cls, outputs: Iterable[Any]) -> Path:
        """Return the draw of several outputs.

        Args:
            outputs: The draw of each.
        """
        each = tuple(outputs)
        return cls(lambda X: torch.stack([one(X) for one in each], dim=-1), each)

    def __call__(self, X: Tensor) -> Tensor:
        """Evaluate the draw."""
        return self.evaluate(X)

    def about_mean(self, widths: Tensor) -> Path | None:
        """Return the draw with its deviations from the posterior mean multiplied by widths.

        Args:
            widths: One for each output.

        Returns:
            None if the posterior mean must be computed by the model.
        """
        if len(self.outputs) != widths.numel():
            return None
        scales = widths.reshape(-1).tolist()
        scaled = zip(self.outputs, scales, strict=True)
        return Path.of_outputs(one if w == 1.0 else one.about_mean(w) for one, w in scaled)


def draw_path(model: Model) -> Path:
    """Draw a function from a model's posterior, by random Fourier features and Matheron's rule.

    This is BoTorch's ``get_matheron_path_model`` with the same random numbers, except that the
    features are for the columns that the kernel sees. BoTorch counts the columns before the input
    transform, but an encoding of categories adds columns.

    Args:
        model: A BoTorch model; several outputs, batches and lists are supported.

    Returns:
        The draw.

    Raises:
        NotImplementedError: If BoTorch has no random features for the kernel.
        UnsupportedError: If a model in a list has several outputs.
    """
    if isinstance(model, PendingModel):
        return _draw_pending_path(model)
    if isinstance(model, ModelList) and len(model.models) != model.num_outputs:
        raise UnsupportedError(
            f"a list of {len(model.models)} models has {model.num_outputs} outputs, and a pathwise "
            "draw needs one per model. Pass choices=, or one model per output."
        )
    if isinstance(model, JointOutputs):
        path: Any = draw_joint_paths(model)
    else:
        path = draw_matheron_paths(
            model, torch.Size(), prior_sampler=draw_prior_paths, update_strategy=update_paths
        )
    is_list = isinstance(model, ModelList)
    parts = zip(model.models, path.paths, strict=True) if is_list else [(model, path)]
    each = [WavesAndRows.read(*part) for part in parts]
    if all(one is not None for one in each):
        return Path.of_outputs(each)

    def evaluate(X: Tensor) -> Tensor:
        if is_list:
            return torch.stack(path(X), dim=-1)
        values: Tensor = path(X) if model.num_outputs == 1 else path(X.unsqueeze(-3))
        return values.unsqueeze(-1) if model.num_outputs == 1 else values.transpose(-1, -2)

    return Path(evaluate)


def _draw_pending_path(model: PendingModel) -> Path:
    """Correct a draw of the model without pending points by Matheron's rule."""
    if is_ensemble(model):
        raise NotImplementedError("no draws of an ensemble whose joint posterior is conditioned")
    path, pending, noise = draw_path(model.base), model.pending_points, model.pending_noise
    simulated = noise.sqrt() * torch.randn(noise.shape, dtype=noise.dtype).to(noise)

    def evaluate(X: Tensor) -> Tensor:
        both = torch.cat([pending.expand(*X.shape[:-2], *pending.shape), X], dim=-2)
        values = path(both)
        moments, count = read_moments(model.base, both), len(pending)
        away = moments.mean[..., :count, :] - values[..., :count, :] - simulated
        conditioned = moments.given(noise, away)
        return (values + conditioned.mean - moments.mean)[..., count:, :]

    return Path(evaluate)


def check_gaussian(posterior: Posterior) -> GPyTorchPosterior:
    """Return a posterior if it can be drawn from exactly.

    Raises:
        UnsupportedError: If it is not Gaussian.
    """
    if not isinstance(posterior, GPyTorchPosterior):
        raise UnsupportedError(
            f"an exact draw needs a Gaussian posterior, got {type(posterior).__name__}. Pass a "
            "model that has one, such as SingleTaskGP."
        )
    return posterior


LARGEST_DRAW = 2000
"""The most points at which a :class:`PointwiseDraw` has values; each costs as many numbers."""


class PointwiseDraw:
    """A draw from a posterior with any kernel: values are drawn where they are requested.

    Values requested without gradients are drawn jointly with all earlier values and stored, so that
    a point keeps its value. With gradients, as optimizers need, and beyond :data:`LARGEST_DRAW`
    points, the result is the posterior mean given the values drawn so far: a smooth function
    through them, with less variance away from them. The draw therefore depends on the order of the
    requests; the joint distribution of the drawn values does not.

    Args:
        model: A model with one output and a Gaussian posterior that is not an ensemble.
        seed: The seed of the draw.

    Raises:
        UnsupportedError: During evaluation, if the posterior is not Gaussian.
    """

    def __init__(self, model: Model, seed: int) -> None:
        """See the class."""
        self._model = model
        self._generator = torch.Generator().manual_seed(seed)
        self._places: dict[tuple[float, ...], int] = {}
        self._points: Tensor | None = None
        # the draw is the mean plus the root of the covariance times these numbers
        self._root = torch.empty(0, 0, dtype=DTYPE)
        self._normal = self._values = torch.empty(0, dtype=DTYPE)

    def __call__(self, X: Tensor) -> Tensor:
        """Evaluate the draw.

        Args:
            X: ``batch_shape x n x d`` points.

        Returns:
            ``batch_shape x n x 1`` values.
        """
        rows = X.reshape(-1, X.shape[-1])
        if torch.is_grad_enabled() and X.requires_grad:
            if not self._places:
                self(X.detach())  # an optimizer begins here: its starting points are drawn
            return self._mean_given_values(rows).reshape(*X.shape[:-1], 1)
        with torch.no_grad():
            keys = [tuple(row) for row in rows.tolist()]
            new = dict.fromkeys(key for key in keys if key not in self._places)
            if len(self._places) + len(new) > LARGEST_DRAW:
                return self._mean_given_values(rows).reshape(*X.shape[:-1], 1)
            if new:
                self._draw(rows.new_tensor(list(new)))
                self._places.update(zip(new, range(len(self._places), LARGEST_DRAW), strict=False))
            index = torch.tensor([self._places[key] for key in keys], device=X.device)
            return self._values[index].reshape(*X.shape[:-1], 1)

    def _mean_given_values(self, rows: Tensor) -> Tensor:
        mean, _, whitened = self._given_values(rows)
        return mean + self._normal.to(mean.device) @ whitened

    def _given_values(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and covariance of new rows, and their whitened covariance with the others."""
        count = len(rows)
        joint = rows if self._points is None else torch.cat([rows, self._points])
        posterior = check_gaussian(self._model.posterior(joint))
        distribution = posterior.distribution
        covariance = distribution.lazy_covariance_matrix[:count].to_dense()
        own, cross = covariance[:, :count], covariance[:, count:]
        root = self._root.to(own.device)
        whitened = torch.linalg.solve_triangular(root, cross.mT, upper=False)
        mean = posterior.mean.squeeze(-1)[:count]
        return mean, own, whitened

    def _draw(self, rows: Tensor) -> None:
        mean, covariance, whitened = self._given_values(rows)
        conditional = covariance - whitened.mT @ whitened
        root = _root_with_jitter(conditional, float(covariance.diagonal().max()))
        normal = torch.randn(len(rows), dtype=DTYPE, generator=self._generator).to(rows.device)
        known = self._normal.to(rows.device)
        values = mean + known @ whitened + root @ normal
        old, count = len(known), len(rows)
        grown = root.new_zeros(old + count, old + count)
        grown[:old, :old], grown[old:, :old], grown[old:, old:] = self._root, whitened.mT, root
        self._root, self._normal = grown, torch.cat([known, normal])
        self._values = torch.cat([self._values.to(rows.device), values])
        self._points = rows if self._points is None else torch.cat([self._points, rows])


def _root_with_jitter(covariance: Tensor, variance: float) -> Tensor:
    """Return an invertible triangular root of a covariance that may be singular.

    Where jitter is not enough (some fidelity kernels of BoTorch are indefinite by 1e-5), the
    nearest covariance replaces it.
    """
    jitter = 1e-10 * variance * torch.eye(len(covariance)).to(covariance)
    root, info = torch.linalg.cholesky_ex(covariance + jitter)
    if not bool(info.any()):
        return root
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    nearest = (eigenvectors * eigenvalues.clamp_min(0.0)) @ eigenvectors.mT
    return torch.linalg.cholesky(nearest + 100.0 * jitter)


def draw_deviation(root: Tensor, seed: int) -> Tensor:
    """Draw from the normal distribution with mean 0 whose covariance has a given root.

    Args:
        root: ``batch_shape x n x r``, from :func:`root_of`.
        seed: The seed of the draw; the numbers are the same on every device.

    Returns:
        ``batch_shape x n``.
    """
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(root.shape[:-1], dtype=root.dtype, generator=generator)
    return (root @ normal[..., : root.shape[-1]].to(root.device).unsqueeze(-1)).squeeze(-1)


class JointPosterior:
    """A Gaussian posterior on a finite set of points, factorized once for any number of draws.

    Args:
        posterior: The posterior at ``n`` points, with ``m`` outputs.

    Raises:
        UnsupportedError: If it is not Gaussian.
    """

    def __init__(self, posterior: Posterior) -> None:
        """See the class."""
        self._posterior = check_gaussian(posterior)
        self._roots: dict[int | None, Tensor] = {}

    def draw(self, seed: int, member: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean and a draw's deviation from it.

        The cost of the first draw is cubic in ``n m``; the cost of further draws is quadratic.

        Args:
            seed: The seed of the draw.
            member: Which member of an ensemble to draw from; the result then lacks the last batch
                dimension.

        Returns:
            Two tensors, ``batch_shape x n x m``.
        """
        mean, distribution = self._posterior.mean, self._posterior.distribution
        if isinstance(self._posterior, MultitaskGPPosterior):
            # a Kronecker model's distribution holds only variances, but its samples are joint
            with seeded_globally(seed):
                deviation = self._posterior.rsample(torch.Size([1])).squeeze(0) - mean
            return mean, deviation
        mean = mean if member is None else mean.select(-3, member)
        deviation = draw_deviation(self.root(member), seed)
        if isinstance(distribution, MultitaskMultivariateNormal) and not distribution._interleaved:
            return mean, deviation.reshape(*mean.shape[:-2], *mean.shape[:-3:-1]).mT
        return mean, deviation.reshape(mean.shape)

    def root(self, member: int | None = None) -> Tensor:
        """Return a root of the covariance, computed once.

        Args:
            member: See :meth:`draw`.
        """
        if member not in self._roots:
            covariance = self._posterior.distribution.covariance_matrix
            covariance = covariance if member is None else covariance.select(-3, member)
            self._roots[member] = root_of(covariance)
        return self._roots[member]

    def above(self, index: Tensor, member: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean and variance of the difference between each point and one of them.

        Args:
            index: ``batch_shape`` numbers of points. There is one output.
            member: See :meth:`draw`.

        Returns:
            Two tensors, ``batch_shape x n``.
        """
        mean = self._posterior.mean
        mean = (mean if member is None else mean.select(-3, member)).squeeze(-1)
        return _above(mean, self.root(member), index)


class FactoredPosterior(JointPosterior):
    """A Gaussian posterior of one output with the factor of its covariance.

    Args:
        mean: ``n``.
        root: ``n x r``, from :func:`root_of`.
    """

    def __init__(self, mean: Tensor, root: Tensor) -> None:
        """See the class."""
        self._mean, self._root = mean, root

    def draw(self, seed: int, member: int | None = None) -> tuple[Tensor, Tensor]:
        """See the base class; there are no members."""
        return self._mean.unsqueeze(-1), draw_deviation(self._root, seed).unsqueeze(-1)

    def above(self, index: Tensor, member: int | None = None) -> tuple[Tensor, Tensor]:
        """See the base class; there are no members."""
        return _above(self._mean, self._root, index)


def _above(mean: Tensor, root: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """See :meth:`JointPosterior.above`."""
    at = index.unsqueeze(-1)
    rows = root.gather(-2, at.unsqueeze(-1).expand(*at.shape, root.shape[-1]))
    return mean - mean.gather(-1, at), (root - rows).square().sum(-1)


def joint_posterior(
    model: Model, choices: Tensor, posterior_transform: PosteriorTransform | None
) -> JointPosterior:
    """Return the posterior on a finite set of points, equal to the model's own up to rounding.

    A plain ``SingleTaskGP`` with a stationary kernel has it in closed form, in half the time. All
    other models, and a model with more rows than there are points, compute it themselves, because
    GPyTorch keeps the factor of the rows.

    Args:
        model: Any model.
        choices: ``num_points x d`` points.
        posterior_transform: A transform applied to the posterior, if given.

    Raises:
        UnsupportedError: If the posterior is not Gaussian.
    """
    if (
        posterior_transform is None
        and isinstance(model, SingleTaskGP)
        and type(model).posterior is SingleTaskGP.posterior
        and type(model).transform_inputs is SingleTaskGP.transform_inputs
        and len(model.train_targets) <= len(choices)
        and choices.device == model.train_targets.device
        and has_closed_posterior(model.eval())  # as its posterior leaves it
    ):
        box = box_posterior_of(model)
        if box is not None:
            points = model.transform_inputs(choices)
            with torch.no_grad():
                mean, covariance = box.mean_and_covariance(points)
                root = factor_in_place(covariance)
                if root is None:
                    root = root_of(box.mean_and_covariance(points)[1])
            return FactoredPosterior(mean, root)
    return JointPosterior(model.posterior(choices, posterior_transform=posterior_transform))


def factor_in_place(covariance: Tensor) -> Tensor | None:
    """Return the Cholesky factor in the memory of a covariance; None if that fails.

    Allocating new memory would take half as long as the factorization.

    Args:
        covariance: ``n x n``; its contents are overwritten in either case.
    """
    columns = covariance.mT  # the same numbers, in LAPACK's layout
    info = torch.empty((), dtype=torch.int32, device=covariance.device)
    torch.linalg.cholesky_ex(columns, out=(columns, info))
    return None if bool(info) else columns


def joint_posteriors(
    model: Model, choices: Tensor, posterior_transform: PosteriorTransform | None
) -> list[JointPosterior]:
    """Return the posteriors of groups of outputs that do not depend on one another.

    Args:
        model: A model with a Gaussian posterior.
        choices: ``num_points x d`` points.
        posterior_transform: A transform applied to the posterior first, if given.

    Raises:
        UnsupportedError: If the posterior is not Gaussian.
    """
    if posterior_transform is None and isinstance(model, ModelListGP):
        return [joint_posterior(submodel, choices, None) for submodel in model.models]
    elif posterior_transform is None and isinstance(model, BatchedMultiOutputGPyTorchModel):
        outputs = [select_output(j, model.num_outputs) for j in range(model.num_outputs)]
        posteriors = [model.posterior(choices, posterior_transform=output) for output in outputs]
        return [JointPosterior(posterior) for posterior in posteriors]
    return [joint_posterior(model, choices, posterior_transform)]


class ModelStamp:
    """Detects whether a model has changed.

    Args:
        model: A GPyTorch model, identified by its modules, parameters and training data.
    """

    def __init__(self, model: Model) -> None:
        """See the class."""
        self._model = model
        parts = [part for part in model.modules() if not isinstance(part, Model)]
        self._tensors = self._data()
        self._snapshot = Snapshot(parts, self._tensors)

    def is_current_of(self, model: Model) -> bool:
        """Return whether this is the same model and nothing in it has changed since."""
        if model is not self._model or not self._snapshot.is_current():
            return False
        tensors = self._data()
        return len(tensors) == len(self._tensors) and all(map(operator.is_, tensors, self._tensors))

    def _data(self) -> list[Tensor]:
        exact = [part for part in self._model.modules() if isinstance(part, ExactGP)]
        return [
            tensor for part in exact for tensor in (*(part.train_inputs or ()), part.train_targets)
        ]
