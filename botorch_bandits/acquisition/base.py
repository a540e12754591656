"""What all acquisition functions in the package share: recipes, options, checks, pending points.

``ImprovedUpperConfidenceBound.with_options(...)`` returns an :class:`AcquisitionRecipe`; a loop
builds a fresh acquisition function from it in every round. The recipe always stores Python numbers:
a tensor with one entry, a NumPy number or a fraction is converted when the recipe is made, so that
every part of the package reads the same value.

:class:`BanditAcquisition` defines what a class provides in addition to ``forward``. Its options are
turned into a rule in one place, ``arms_rule``, which receives all of them: as given by the user, as
known from the domain, or with the constructor's own default.
"""

from __future__ import annotations

import inspect
import math
import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import KroneckerMultiTaskGP
from botorch.models.gpytorch import MultiTaskGPyTorchModel
from botorch.models.model import Model
from botorch.utils.transforms import (
    average_over_ensemble_models,
    is_ensemble,
    t_batch_mode_transform,
)
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_arguments,
    check_double,
    check_integer,
    check_matrix,
    check_names,
    check_number,
    check_one_of,
    store_checked,
)
from botorch_bandits.confidence import (
    Guarantee,
    PriorSummary,
    UnreadablePriorError,
    WidthRule,
)
from botorch_bandits.confidence.facts import ALONE, WEIGHTED_SUM, Facts
from botorch_bandits.confidence.prior_reading import has_tasks
from botorch_bandits.confidence.theorems import NO_THEOREM
from botorch_bandits.confidence.width_rules import check_assume
from botorch_bandits.domains import Arms, Domain, ValueScale
from botorch_bandits.fingerprints import are_equal
from botorch_bandits.models import CandidatesModel
from botorch_bandits.models.reading import check_model as check_model
from botorch_bandits.models.reading import (
    count_columns,
    hallucinate,
    moments_of_each,
    move_the_rest,
    on_device_of,
    posterior_of_each,
    prior_means,
    submodels,
)

if TYPE_CHECKING:
    from botorch_bandits.acquisition.rules import ArmsRule

# --- What is known at points: moments, scores, confidence bounds, and the scale of values ---------
# Whether two values count as equal, or a variance as 0, must not depend on the unit of the
# outcomes: it is decided in prior standard deviations, relative to the prior mean.


class Bounds(NamedTuple):
    """What is known at ``n`` points, in outcome units, from the outcomes that have arrived.

    Attributes:
        mean: ``n`` posterior means of the reward.
        deviation: ``n`` posterior standard deviations of the reward, without noise.
        lower: ``n`` lower confidence bounds on the reward, or None if the method has none.
        upper: ``n`` upper confidence bounds on the reward, or None.
        constraint_mean: ``n x num_constraints`` posterior means, or None if the model has none.
        constraint_lower: ``n x num_constraints`` lower confidence bounds, or None.
        constraint_upper: ``n x num_constraints`` upper confidence bounds, or None.
    """

    mean: Tensor
    deviation: Tensor
    lower: Tensor | None = None
    upper: Tensor | None = None
    constraint_mean: Tensor | None = None
    constraint_lower: Tensor | None = None
    constraint_upper: Tensor | None = None

    @classmethod
    def of_outputs(cls, mean: Tensor, deviation: Tensor, half: Tensor) -> Bounds:
        """Separate the reward, which is the first output, from the constraints.

        Args:
            mean: ``n x m`` posterior means.
            deviation: ``n x m`` posterior standard deviations.
            half: ``n x m`` distances of the bounds from the means.
        """
        lower, upper = mean - half, mean + half
        reward = (each[..., 0] for each in (mean, deviation, lower, upper))
        return cls(*reward, *(each[..., 1:] for each in (mean, lower, upper)))

    def at(self, index: Any) -> Bounds:
        """Return what is known at some of the points.

        Args:
            index: The index of the points, as for a tensor.
        """
        return Bounds._make(None if each is None else each[index] for each in self)


def moments_at(
    model: Model, X: Tensor, transform: PosteriorTransform | None = None, noisy: bool = False
) -> tuple[Tensor, Tensor]:
    """Return posterior mean and standard deviation of the reward at some points.

    Args:
        model: The model.
        X: ``n x d`` points, float64.
        transform: Defines the reward; if None, it is the first output.
        noisy: Whether deviations are those of outcomes, with their noise.

    Returns:
        ``n`` each; for an ensemble, the moments of the mixture of its members.

    Raises:
        UnsupportedError: If the model has no posterior mean and variance.
    """
    if isinstance(model, CandidatesModel) and transform is None:  # its members have weights
        mean, variance = model.mixture(X)
        return mean, variance.sqrt()
    each = moments_of_each(posterior_of_each(model, X.unsqueeze(-2), transform, noisy), 1)
    mean, variance = (values[..., 0, 0] for values in each)
    if is_ensemble(model):
        among_members = mean.var(-1, correction=0)
        mean, variance = mean.mean(-1), variance.mean(-1) + among_members
    return mean, variance.sqrt()


def score(mean: Tensor, half: Tensor, sign: float = 1.0) -> Tensor:
    """Return ``sign * mean + half``: the upper bound, or minus the lower one.

    Args:
        mean: Posterior means.
        half: The distance of the bound from the mean, ``width * deviation``.
        sign: 1 to maximize the reward, -1 to minimize it.
    """
    return torch.add(half, mean, alpha=sign)


def select_output(index: int, num_outputs: int) -> ScalarizedPosteriorTransform:
    """Return the transform that keeps one output unchanged and drops the others.

    Args:
        index: The output's number, from 0.
        num_outputs: How many outputs the model has.
    """
    weights = torch.zeros(num_outputs, dtype=DTYPE)
    weights[index] = 1.0
    return ScalarizedPosteriorTransform(weights)


def prior_mean_of_scalar(summary: PriorSummary) -> float:
    """Return the prior mean of a model's scalar at its first row; 0 if it cannot be read.

    Args:
        summary: The summary of the model, including the transform that combines several outputs
            into one.
    """
    with suppress(UnreadablePriorError, ValueError):
        (weights, mean), means = summary.weights, prior_means(summary.model)
        if means is not None:
            mean += sum(weight * float(means[j][0]) for j, weight in weights.items())
            return mean if math.isfinite(mean) else 0.0
    return 0.0


def scale_in_outcomes(summary: PriorSummary, sign: float = 1.0) -> ValueScale | None:
    """Return the scale of values in outcome units, such as confidence bounds.

    Args:
        summary: The prior summary of the model.
        sign: -1 if the values are those of minus the reward.

    Returns:
        None if the prior cannot be read.
    """
    variance = summary.scalar_variance
    if variance is None:
        return None
    return ValueScale(sign * prior_mean_of_scalar(summary), math.sqrt(variance))


# --- Recipes, options, checks and pending points --------------------------------------------------


ONE_A_PRIOR = ("smoothness_a", "smoothness_b")
"""Options that may be sequences of one number per prior on a list."""


def _as_numbers(name: str, value: Any, kind: str) -> Any:
    """Return an option with Python numbers where its constructor takes numbers.

    Args:
        name: The name of the option.
        value: What the user gave; what is not a number is left to the check of the option.
        kind: The annotation of the option, such as ``"float | None"`` or ``"Bound | None"``.
    """
    if isinstance(value, tuple) or (isinstance(value, list) and name in ONE_A_PRIOR):
        return tuple(_as_numbers(name, entry, kind) for entry in value)
    is_float = "float" in kind or "Bound" in kind
    if is_float and hasattr(value, "__float__") and not getattr(value, "ndim", 0):
        return check_number(name, value)
    if "int" in kind and value is not True and value is not False:
        with suppress(TypeError):
            return operator.index(value)
    return value


GIVEN_BY_THE_LOOP = ("model", "round_number", "X_pending", "seed", "X_observed", "Y_observed")
"""Arguments that change from round to round; a recipe does not contain them."""


@dataclass(frozen=True, eq=False)
class AcquisitionRecipe:
    """An acquisition class and its options; equal recipes have equal classes and options.

    Attributes:
        acquisition_class: The class to build.
        options: A copy of the keyword arguments of its constructor, which cannot be changed.

    Raises:
        TypeError: If a number among the options has lower precision than float64.
        ValueError: If one is NaN or infinite.
    """

    acquisition_class: type[BanditAcquisition]
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Keep a copy of the options that cannot be changed, with Python numbers."""
        known = inspect.signature(self.acquisition_class).parameters
        options = {
            name: _as_numbers(name, value, str(known[name].annotation)) if name in known else value
            for name, value in self.options.items()
        }
        if "assume" in options:
            options["assume"] = check_assume(options["assume"])
        store_checked(self, options=MappingProxyType(options))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the values."""
        return AcquisitionRecipe, (self.acquisition_class, dict(self.options))

    def __eq__(self, other: object) -> bool:
        """Compare class and options: tensors by their entries, objects by their parts."""
        if not isinstance(other, AcquisitionRecipe):
            return NotImplemented
        return (
            self.acquisition_class is other.acquisition_class
            and self.options.keys() == other.options.keys()
            and all(are_equal(value, other.options[name]) for name, value in self.options.items())
        )

    def __hash__(self) -> int:
        """Hash the class and the names of the options."""
        return hash((self.acquisition_class, frozenset(self.options)))

    def at_share_of_delta(self, share: Callable[[float], float]) -> AcquisitionRecipe:
        """Return this recipe with another failure probability; the recipe itself if it has none.

        Args:
            share: A function from the probability to the one to use, such as a segment's share of
                it.
        """
        complete = {**default_options(self.acquisition_class), **self.options}
        if complete.get("delta") is None:
            return self
        options = {**self.options, "delta": share(complete["delta"])}
        return AcquisitionRecipe(self.acquisition_class, options)

    def arms_rule(self, domain: Domain) -> ArmsRule | None:
        """Return the rule that plays this acquisition on arms from their exact posterior.

        On a box, only the settings of the rule are used, and what it needs to know about the domain
        comes from the box.

        The result is None if there is no such rule; the acquisition function itself must then be
        evaluated.
        """
        cls = self.acquisition_class
        # another scalar, or points other than the arms
        changed = ("posterior_transform", "choices", *GIVEN_BY_THE_LOOP)
        if cls.played_as is None or any(self.options.get(n) is not None for n in changed):
            return None
        return cls.arms_rule(cls.complete_options(self.options, domain))

    def build(self, model: Model, domain: Domain, **given: Any) -> AcquisitionFunction:
        """Build the acquisition function of one round.

        Args:
            model: The model of the outcomes that have arrived.
            domain: The domain on which it will be maximized; it completes the options (the
                number of arms, the arms to draw on).
            given: The arguments among ``round_number``, ``X_pending``, ``seed``, ``X_observed``
                and ``Y_observed`` that the caller has; the class uses those that it knows.
        """
        cls = self.acquisition_class
        if "round_number" in given:
            given["round_number"] = CountedRound(given["round_number"])
        known = {
            name: value for name, value in given.items() if name in cls.__signature__.parameters
        }
        complete = {**cls.complete_options(self.options, domain), **known}
        check_required(cls, complete)
        return cls(model, **complete)


@dataclass(frozen=True)
class RandomSearch:
    """Choose every point uniformly at random, regardless of the outcomes."""


class BanditAcquisition(AcquisitionFunction):
    """What every acquisition function in this package provides in addition to ``forward``."""

    defines_rule: ClassVar[bool] = False
    """Whether the values of ``forward`` are those of :meth:`arms_rule`, and of the theorem that
    :meth:`guarantee` states. It is not inherited: a subclass that does not say so in its own body
    is evaluated by its ``forward``, and claims no theorem on regret."""

    played_as: ClassVar[type[BanditAcquisition] | None] = None
    """The class itself if it has ``defines_rule``, and None otherwise."""

    __signature__: ClassVar[inspect.Signature] = inspect.signature(AcquisitionFunction)

    def __init_subclass__(cls, **given: Any) -> None:
        """Settle whether a rule plays the class, and read its constructor."""
        super().__init_subclass__(**given)
        cls.played_as = cls if vars(cls).get("defines_rule") else None
        cls.__signature__ = complete_signature(cls)

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Refuse arguments that the class does not have, such as BoTorch's ``beta``."""
        check_arguments(cls, args, given)
        return super().__new__(cls)

    from_domain: ClassVar[tuple[str, ...]] = ()
    """The options, among those of :meth:`.Domain.facts`, that a domain fills in."""
    on_few_points: ClassVar[bool] = False
    """Whether a space with few points counts as arms for them."""
    of_ensemble: ClassVar[str] = "the bound is averaged over the members of an ensemble"
    """What becomes of the members of an ensemble; empty if the guarantee covers it."""
    is_one_output: ClassVar[bool] = True
    """Whether a posterior transform makes one output."""
    pending_as: str = ""
    """What becomes of pending points; see :attr:`.Facts.pending_as`."""

    no_theorem: ClassVar[str] = NO_THEOREM
    """Why there is no guarantee, unless a subclass has one."""
    base_model: Model
    posterior_transform: Any  # a posterior transform or None
    _summary: PriorSummary | None = None
    _first_round: int | None = None
    maximize: bool = True
    scale: float = 1.0
    """A factor on widths."""
    predictive: bool = False
    """Whether deviations are those of outcomes, with their noise."""
    _num_columns: int | None = None
    """The number of columns of the last points; other numbers are checked against the model."""

    def _read_arguments(self, given: Mapping[str, Any]) -> None:
        """Store those arguments of a constructor that most classes have, by name."""
        self.base_model = model = given["model"]
        self.posterior_transform = on_device_of(model, given.get("posterior_transform"))
        check_transform(self.posterior_transform, model)
        self.maximize = check_one_of("maximize", given["maximize"], (True, False))
        self.assume = check_assume(given.get("assume", ()))
        self._summary = PriorSummary(model, self.posterior_transform, self.assume)
        self._first_round = self._check_round(given.get("round_number"), given["X_pending"])

    def _check_round(self, round_number: int | None, X_pending: Tensor | None) -> int | None:
        """Return the round of the first point, after the pending ones, if the round is given.

        If the model does not show its rows, or has rows of several tasks, any number is accepted.

        Raises:
            TypeError: If it is not an integer.
            ValueError: If it is less than rows plus pending points plus 1.
        """
        if round_number is None:
            return None
        assert self._summary is not None
        num_pending = 0 if X_pending is None else len(X_pending)
        first = check_integer("round_number", round_number, minimum=1) - num_pending
        if isinstance(round_number, CountedRound) or has_tasks(self.base_model):
            return first
        with suppress(UnreadablePriorError):
            num_rows = self._summary.num_rows
            if first <= num_rows:
                pending = f" and {num_pending} points are pending" if num_pending else ""
                raise ValueError(
                    f"round_number is {round_number}, but the model has {num_rows} rows{pending}, "
                    f"so it must be at least {num_rows + num_pending + 1}. Leave it out to have it "
                    "counted."
                )
        return first

    @property
    def width_rules(self) -> tuple[WidthRule, ...]:
        """The rules of the widths in use: one, or one per output; empty if there are none."""
        return ()

    @property
    def outcome_scale(self) -> ValueScale | None:
        """The prior standard deviation and the prior mean, in outcome units; None if unknown."""
        return None if self._summary is None else scale_in_outcomes(self._summary, self._sign)

    @property
    def value_scale(self) -> ValueScale | None:
        """The unit and the origin of the values, which decide ties; None if they are unknown.

        Values in outcome units are measured in prior standard deviations from the prior mean.
        """
        return self.outcome_scale

    @property
    def _sign(self) -> float:
        """-1 if the values are those of minus the reward."""
        return 1.0 if self.maximize else -1.0

    @classmethod
    def with_options(cls, **options: Any) -> AcquisitionRecipe:
        """Return a recipe: this class with these constructor arguments, but no model.

        Args:
            **options: Constructor arguments, except those that change from round to round.

        Raises:
            TypeError: If an option is unknown, or changes from round to round.
            ValueError: If a value is infeasible on any domain.
        """
        owner = f"{cls.__name__}.with_options"
        check_names(owner, "option", options, default_options(cls))
        cls.check_options(options, None)
        return AcquisitionRecipe(cls, options)

    @classmethod
    def complete_options(cls, options: Mapping[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Return every constructor option: as given, as known from the domain, or the default.

        Args:
            options: Constructor arguments; None means that an option is left out.
            domain: The domain on which the acquisition will be maximized. None if it is not known
                yet; what it would fill in are then values of some domain, so that the other options
                can be checked.

        Raises:
            ValueError: If an option contradicts the domain.
        """
        complete, facts = {**default_options(cls), **options}, FACTS_OF_SOME_DOMAIN
        if domain is not None:
            few = domain.few_points() if cls.on_few_points else None
            facts = (few or domain).facts()
        for name in cls.wanted_from_domain(complete):
            if name in complete and complete[name] is None:
                complete[name] = facts.get(name)
        if domain is not None and cls.played_as is not None:
            check_domain_size(cls.__name__, complete, domain)
        return complete

    @classmethod
    def check_options(cls, options: Mapping[str, Any], domain: Domain | None) -> None:
        """Raise the errors of the constructor for invalid options, as far as possible.

        Args:
            options: Constructor arguments.
            domain: The domain on which the acquisition will be maximized; None if it is not known
                yet.

        Raises:
            ValueError: If an option is infeasible (without a domain: on every domain).
        """
        if cls.played_as is not None:  # a user's own constructor will check them
            complete = cls.complete_options(options, domain)
            check_one_of("maximize", complete.get("maximize", True), (True, False))
            cls.arms_rule(complete)

    @classmethod
    def wanted_from_domain(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the options that a domain fills in, which may depend on the others.

        Args:
            options: All constructor arguments; those that were left out are None or the default.
        """
        return cls.from_domain

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        """Check the options and return the rule that plays this on arms, or None if there is none.

        It is not called if a ``posterior_transform`` or ``choices`` are given.

        Args:
            options: All constructor arguments except those of a round, from
                :meth:`complete_options`.

        Raises:
            ValueError: If an option is missing or infeasible.
        """
        return None

    @property
    def round_number(self) -> int:
        """The round of the next point: rows plus pending points plus 1, unless given.

        Raises:
            ValueError: If it was not given and the model does not show its rows.
        """
        num_pending = 0 if self.X_pending is None else len(self.X_pending)
        first = self._first_round
        if first is None:
            assert self._summary is not None
            try:
                first = self._summary.num_rows + 1
            except UnreadablePriorError as error:
                raise ValueError(f"round_number is needed: {error}. Pass round_number=.") from error
        return max(first + num_pending, 1)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior mean and standard deviation of the reward.

        Args:
            X: ``n x d`` points, float64.

        Returns:
            ``n`` each, in outcome units; for an ensemble, of the mixture of its members.
        """
        transform = getattr(self, "posterior_transform", None)
        return moments_at(self.model, X, transform, self.predictive)

    def bounds(self, X: Tensor) -> tuple[Tensor, ...]:
        """Return the lower and the upper confidence bound, ``n`` each; empty if there are none.

        Args:
            X: ``n x d`` points, float64.
        """
        return ()

    def known_at(self, X: Tensor) -> Bounds:
        """Return what is known at some points.

        Args:
            X: ``n x d`` points, float64.
        """
        return Bounds(*self.moments(X), *self.bounds(X))

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers this acquisition function with this model, if any.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        return Guarantee(method=type(self).__name__, gaps=(self.no_theorem,))

    def _facts(self, facts: Facts) -> Facts:
        """Return the facts of a use with those of this acquisition function."""
        if self.posterior_transform is not None and self.is_one_output and not facts.subject:
            facts = replace(facts, subject=WEIGHTED_SUM)
        return replace(
            facts,
            minimizes=facts.minimizes or not self.maximize,
            num_points_pending=0 if self.X_pending is None else len(self.X_pending),
            pending_as=self.pending_as,
            scale=self.scale,
            of_members=self.of_ensemble if is_ensemble(self.base_model) else "",
            own_values=type(self).__name__ if self.played_as is None else "",
        )

    def _forget(self) -> None:
        """Drop what was computed from the model, whose numbers or device have changed."""
        if self._summary is not None:
            self._summary.forget()

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._forget()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert all tensors, including those that GPyTorch would leave behind."""
        like = next(self.parameters(), None)
        has_moved = like is not None and fn(like) is not like  # BoTorch asks in each evaluation
        super()._apply(fn, recurse)
        if has_moved:
            move_the_rest(self, fn)
            self._forget()
        return self

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return what the acquisition knew at one point, by name.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        with torch.no_grad():
            known = {"acquisition_value": float(self(x.unsqueeze(0)))}
            mean, deviation = self.moments(x.unsqueeze(0))
        return {**known, "mean": float(mean), "standard_deviation": float(deviation)}


def check_columns(name: str, X: Tensor, model: Model) -> None:
    """Raise an error unless points have the columns of a model's inputs, if these are known.

    Args:
        name: The name of the points in the error message.
        X: ``... x d`` points.
        model: The model whose inputs they are. A ``MultiTaskGP`` also takes points that include the
            task.

    Raises:
        ValueError: If there are more columns or fewer.
    """
    known, found = count_columns(model), X.shape[-1]
    with_task = all(isinstance(part, MultiTaskGPyTorchModel) for part in submodels(model))
    if known is not None and found != known and not (with_task and found == known + 1):
        columns = f"{found} column" if found == 1 else f"{found} columns"
        raise ValueError(
            f"{name} has {columns} (shape {tuple(X.shape)}), but the inputs of the model, "
            f"{type(model).__name__}, have {known}. Pass points with {known} columns, in the order "
            "of the training inputs."
        )


def check_transform(transform: PosteriorTransform | None, model: Model) -> None:
    """Raise an error if BoTorch does not apply posterior transforms to a model.

    Args:
        transform: The posterior transform.
        model: The model.

    Raises:
        UnsupportedError: If the model is a ``KroneckerMultiTaskGP``.
    """
    if transform is not None and isinstance(model, KroneckerMultiTaskGP):
        raise UnsupportedError(
            f"posterior_transform is a {type(transform).__name__}, and BoTorch applies none to a "
            "KroneckerMultiTaskGP. Use MultiTaskGP, or a ModelListGP with one model per output."
        )


def check_points(acquisition: BanditAcquisition, X: Tensor) -> None:
    """Raise unless ``X`` contains float64 points of an acquisition function's model.

    Args:
        acquisition: The acquisition function to be evaluated.
        X: ``batch_shape x q x d`` points.

    Raises:
        TypeError: If ``X`` is not a float64 tensor, to which BoTorch would cast the whole model.
        ValueError: If ``X`` has fewer than two dimensions, or if its columns differ from those of
            the model.
    """
    check_double("X", X)
    if X.dim() < 2:
        raise ValueError(
            f"{type(acquisition).__name__} requires X to have at least 2 dimensions, "
            f"batch_shape x q x d, but received X of shape {tuple(X.shape)}. Reshape a "
            "single point with X.reshape(1, -1)."
        )
    if X.shape[-1] != acquisition._num_columns:
        check_columns("X", X, getattr(acquisition, "base_model", acquisition.model))
        acquisition._num_columns = X.shape[-1]


def check_required(cls: type[BanditAcquisition], options: Mapping[str, Any]) -> None:
    """Raise if something without a default is missing among the options that are there.

    Args:
        cls: The acquisition class.
        options: Its options, by name; None for what was left out.

    Raises:
        ValueError: If something is missing; the message names it.
    """
    required = (
        n for n, p in cls.__signature__.parameters.items() if p.default is p.empty and n in options
    )
    missing = [f"{name}=" for name in required if options[name] is None]
    if missing:
        raise ValueError(f"{cls.__name__} needs {' and '.join(missing)}.")


FACTS_OF_SOME_DOMAIN = {**Arms([[0.0], [1.0]]).facts(), "dim": 10**6, "side_length": 1.0}
"""What counts as known of a domain that is not known yet. The dimension is large because Theorem 2
demands more of constants in small ones."""


def check_domain_size(name: str, options: Mapping[str, Any], domain: Domain) -> None:
    """Raise if options understate the domain on which the acquisition will be maximized.

    Raises:
        ValueError: If there are more arms than ``num_arms``, no arms at all, more dimensions than
            ``dim``, or a longer side than ``side_length``.
    """
    facts, arms = domain.facts(), domain.few_points()
    if arms is not None:
        facts["num_arms"] = arms.num_arms
    elif "side_length" in facts:
        facts["num_arms"] = math.inf
    for option in ("num_arms", "dim", "side_length"):
        given, needed = options.get(option), facts.get(option)
        if given is not None and needed is not None and given < needed:
            what, remedy = f"has {needed:g}", ": the domain knows it"
            if needed == math.inf:
                what, remedy = "is a box, not arms", ", or list the points as Arms"
            raise ValueError(
                f"{name} has {option}={given}, but the domain {what}. Leave {option}= out{remedy}."
            )


class CountedRound(int):
    """A round number counted by the caller, as loops do; not every row of the model is a round."""


def complete_signature(cls: type) -> inspect.Signature:
    """Return a constructor's signature, with the base class's arguments in place of ``**options``.

    Args:
        cls: The class. It may get its constructor from a class that is not an acquisition function,
            which then hands its arguments on.
    """
    order = cls.__mro__
    owner = next(each for each in order if "__init__" in vars(each))
    _, *every = inspect.signature(owner.__init__).parameters.values()  # type: ignore[misc]
    own = [p for p in every if not p.name.startswith("_")]
    variable = {p.kind for p in own if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    later = order[order.index(owner) + 1 :]
    base = next((each for each in later if issubclass(each, BanditAcquisition)), None)
    if not variable or base in (None, BanditAcquisition):  # what it does with them is its own
        return inspect.Signature(own)
    named = {p.name: p for p in own if p.kind not in variable}
    for p in inspect.signature(base).parameters.values():
        by_position = p.VAR_POSITIONAL in variable or p.kind is p.VAR_KEYWORD
        named.setdefault(p.name, p if by_position else p.replace(kind=p.KEYWORD_ONLY))
    # arguments without a default come first
    ordered = sorted(named.values(), key=lambda p: (p.kind, p.default is not p.empty))
    return inspect.Signature(ordered)


def default_options(cls: type) -> dict[str, Any]:
    """Return the constructor's options and their defaults, None for those without one."""
    return {
        name: None if p.default is p.empty else p.default
        for name, p in inspect.signature(cls).parameters.items()
        if name not in GIVEN_BY_THE_LOOP and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }


class HallucinatesPending(BanditAcquisition):
    """Treats pending points as if their outcomes were known to equal the posterior mean.

    The mean is unchanged and the variance shrinks (GP-BUCB; Desautels, Krause and Burdick 2014).
    Each call starts again from ``base_model``, the user's model, which is never changed.
    """

    pending_as = "means"
    base_model: Model
    posterior_transform: PosteriorTransform | None
    _summary: PriorSummary

    def forward(self, X: Tensor) -> Tensor:
        r"""Evaluate the acquisition function at one point, or at several, one after the other.

        .. math:: a(x_1, \dots, x_q) = \sum_i a(x_i \mid \text{pending}, x_1, \dots, x_{i-1})

        Every point is valued as if those before it were pending. A bound therefore uses the
        remaining variances (GP-BUCB) and the width of the round in which the point would be chosen,
        and the value depends on the order of the points. Gradients propagate through all of it. No
        theorem is stated for the maximizer.

        Args:
            X: ``batch_shape x q x d`` points, float64.

        Returns:
            ``batch_shape`` values; with a batched model, one for each member.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If ``q > 1`` and the posterior has no joint Gaussian moments.
        """
        check_points(self, X)
        return self._evaluate(X)

    @t_batch_mode_transform()
    def _evaluate(self, X: Tensor) -> Tensor:
        return self._averages(X).sum(0)

    @average_over_ensemble_models
    def _averages(self, X: Tensor) -> Tensor:
        """Return ``q x batch_shape`` values, averaged over the members of an ensemble."""
        return self._values(X).movedim(-1, 0)

    @abstractmethod
    def _values(self, X: Tensor) -> Tensor:
        """Return ``batch_shape x q`` values, each as if the points before it were pending."""

    def _mean_and_deviation(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the moments of the reward at each point, ``batch_shape x q`` each."""
        if next(self.parameters(), X).device != X.device:
            self.to(X)
        posterior = posterior_of_each(self.model, X, self.posterior_transform, self.predictive)
        mean, variance = moments_of_each(posterior, X.shape[-2])
        return mean.squeeze(-1), variance.sqrt().squeeze(-1)

    @property
    def X_baseline(self) -> Tensor:
        """``n x d`` points near which an optimizer should also start; the name is BoTorch's.

        Raises:
            AttributeError: If the model has none to offer.
        """
        return self.base_model.X_baseline

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points, starting again from the user's model.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If the posterior of the model has no joint Gaussian moments.
        """
        pending = copy_pending(X_pending, self.base_model)
        # errors come first, so that they leave the old points and their model in place
        self.model = self.base_model if pending is None else self._given_means(pending.detach())
        AcquisitionFunction.set_X_pending(self, pending)

    def _given_means(self, X: Tensor) -> Model:
        """Return the model in which the outcomes of pending points are their posterior means."""
        return hallucinate(self.base_model, X)


class TwoSidedAcquisition(HallucinatesPending):
    """Its value is the optimistic one of two confidence bounds, which need not be symmetric."""

    @abstractmethod
    def _ends(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return lower and upper bounds, averages over an ensemble, ``batch_shape x q`` each."""

    def _averages(self, X: Tensor) -> Tensor:
        return self._values(X).movedim(-1, 0)

    def _values(self, X: Tensor) -> Tensor:
        lower, upper = self._ends(X)
        return upper if self.maximize else -lower

    def describe(self, x: Tensor) -> dict[str, float]:
        """See the base class; the width is half the distance of the bounds, in deviations.

        Args:
            x: A ``d``-dimensional point.
        """
        known = super().describe(x)
        with torch.no_grad():
            lower, upper = self.bounds(x.unsqueeze(0))
        return {**known, "width": 0.5 * float(upper - lower) / known["standard_deviation"]}


def copy_pending(X_pending: Tensor | None, model: Model) -> Tensor | None:
    """Return a copy of pending points on the device of a model, or None if there are none.

    Raises:
        TypeError: If they are not float64.
        ValueError: If they are not an ``n x d`` matrix of finite numbers.
    """
    if X_pending is None or len(X_pending) == 0:
        return None
    check_matrix("X_pending", check_double("X_pending", X_pending))
    check_columns("X_pending", X_pending, model)
    return X_pending.to(next(model.parameters(), X_pending).device, copy=True)


def bandit(acquisition: AcquisitionFunction) -> BanditAcquisition | None:
    """Return an acquisition function if it is one of this package's, which states its widths."""
    return acquisition if isinstance(acquisition, BanditAcquisition) else None
