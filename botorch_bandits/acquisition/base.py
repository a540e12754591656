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
import operator
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.warnings import BotorchWarning
from botorch.models.gpytorch import MultiTaskGPyTorchModel
from botorch.models.model import Model
from torch import Tensor
from torch.nn import Module

from botorch_bandits.acquisition.rules import ArmsRule
from botorch_bandits.acquisition.scores import (
    Bounds,
    moments_at,
    scale_in_outcomes,
)
from botorch_bandits.checks import (
    check_arguments,
    check_double,
    check_finite,
    check_integer,
    check_nonnegative,
    check_number,
    check_one_of,
    check_probability,
    level_of_users_line,
    remedy_of_name,
    store_checked,
)
from botorch_bandits.confidence import (
    ConstantWidth,
    Guarantee,
    KernelizedWidth,
    PriorSummary,
    UnreadablePriorError,
    VaryingWidth,
    WidthRule,
)
from botorch_bandits.confidence.igp_ucb import complete_bounds
from botorch_bandits.confidence.prior_reading import has_tasks
from botorch_bandits.confidence.width_rules import check_assume
from botorch_bandits.domains import Domain, ValueScale
from botorch_bandits.fingerprints import are_equal
from botorch_bandits.models.reading import (
    OneByOneModel,
    count_columns,
    hallucinate,
    move_the_rest,
    shape_of_batch,
    submodels,
    variance_of,
)
from botorch_bandits.models.reading import check_model as check_model

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Module)

ONE_A_PRIOR = ("smoothness_a", "smoothness_b")
"""Options that may be sequences of one number per prior on a list."""


def _as_numbers(name: str, value: Any, kind: str) -> Any:
    """Return an option with Python numbers where its constructor takes numbers.

    Args:
        name: The name of the option.
        value: What the user gave; what is not a number is left to the check of the option.
        kind: The annotation of the option, such as ``"float | None"``.
    """
    if isinstance(value, tuple) or (isinstance(value, list) and name in ONE_A_PRIOR):
        return tuple(_as_numbers(name, entry, kind) for entry in value)
    if "float" in kind and hasattr(value, "__float__") and not getattr(value, "ndim", 0):
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
        known = constructor_parameters(self.acquisition_class)
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

    def check(self, domain: Domain) -> None:
        """Raise the errors that building on this domain would raise for invalid options."""
        self.acquisition_class.check_options(self.options, domain)

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
        complete = cls.complete_options(self.options, domain)
        parameters = constructor_parameters(cls)
        if "round_number" in given:
            given["round_number"] = CountedRound(given["round_number"])
        complete.update({name: value for name, value in given.items() if name in parameters})
        required = (n for n, p in parameters.items() if p.default is p.empty and n in complete)
        check_required(cls.__name__, complete, tuple(required))
        return cls(model, **complete)


class BanditAcquisition(AcquisitionFunction):
    """What every acquisition function in this package provides in addition to ``forward``."""

    defines_rule: ClassVar[bool] = False
    """Whether the values of ``forward`` are those of :meth:`arms_rule`, and of the theorem that
    :meth:`guarantee` states. It is not inherited: a subclass that does not say so in its own body
    is evaluated by its ``forward``, and claims no theorem on regret."""

    played_as: ClassVar[type[BanditAcquisition] | None] = None
    """The class itself if it has ``defines_rule``, and None otherwise."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Settle whether a rule plays the class."""
        super().__init_subclass__(**given)
        cls.played_as = cls if vars(cls).get("defines_rule") else None

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Refuse arguments that the class does not have, such as BoTorch's ``beta``."""
        check_arguments(cls, args, given, _instead_of_beta(cls))
        return super().__new__(cls)

    from_domain: ClassVar[tuple[str, ...]] = ()
    """The options, among those of :meth:`.Domain.facts`, that a domain fills in."""
    _summary: PriorSummary | None = None
    _first_round: int | None = None
    maximize: bool = True
    predictive: bool = False
    """Whether deviations are those of outcomes, with their noise."""
    _num_columns: int | None = None
    """The number of columns of the last points; other numbers are checked against the model."""

    @property
    def width_rules(self) -> tuple[WidthRule, ...]:
        """The rules of the widths in use: one, or one per output; empty if there are none."""
        return ()

    @property
    def value_scale(self) -> ValueScale | None:
        """The unit and the origin of the values; None if they are unknown.

        It decides ties on arms. Values in outcome units are measured in prior standard deviations
        from the prior mean.
        """
        return None if self._summary is None else scale_in_outcomes(self._summary, self._sign)

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
        known = default_options(cls)
        for name in options:
            if name not in known:
                raise TypeError(
                    f"{cls.__name__}.with_options has no option {name!r}; it has "
                    f"{', '.join(known)}.{remedy_of_name(name, known, _instead_of_beta(cls))}"
                )
        cls.check_options(options, None)
        return AcquisitionRecipe(cls, options)

    @classmethod
    def complete_options(cls, options: Mapping[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Return every constructor option: as given, as known from the domain, or the default.

        Args:
            options: Constructor arguments; None means that an option is left out.
            domain: The domain on which the acquisition will be maximized; None if it is not known
                yet.

        Raises:
            ValueError: If an option contradicts the domain.
        """
        complete = {**default_options(cls), **options}
        if domain is not None:
            known = cls.options_from_domain(complete, domain)
            complete.update({name: value for name, value in known.items() if name in complete})
            if cls.played_as is not None:  # a user's own constructor may mean something else
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
        if cls.played_as is None:
            return  # its constructor will check them
        complete = cls.complete_options(options, domain)
        if domain is None:
            complete.update(cls.options_from_domain(complete, None))
        cls.arms_rule(complete)

    @classmethod
    def options_from_domain(
        cls, options: Mapping[str, Any], domain: Domain | None
    ) -> dict[str, Any]:
        """Return omitted options that the domain knows, such as the number of arms.

        Args:
            options: All constructor arguments; those that were left out are None or the default.
            domain: The domain on which the acquisition will be maximized. None if it is not known
                yet; the values are then those of some domain, so that the other options can be
                checked.
        """
        known = FACTS_OF_SOME_DOMAIN if domain is None else domain.facts()
        wanted = cls.wanted_from_domain(options)
        return {n: known[n] for n in wanted if n in known and options.get(n) is None}

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

    def _start_rounds(self, round_number: int | None, X_pending: Tensor | None) -> None:
        """Store the round of the first point, which comes after the pending ones."""
        assert self._summary is not None
        if round_number is not None:
            count = 0 if X_pending is None else len(X_pending)
            self._first_round = check_round(round_number, self._summary, count) - count

    @property
    def round_number(self) -> int:
        """The round of the next point: rows plus pending points plus 1, unless given.

        Raises:
            ValueError: If it was not given and the model does not show its rows.
        """
        num_pending = 0 if self.X_pending is None else len(self.X_pending)
        if self._first_round is not None:
            return max(self._first_round + num_pending, 1)
        assert self._summary is not None
        try:
            return self._summary.num_rows + num_pending + 1
        except UnreadablePriorError as error:
            raise ValueError(f"round_number is needed: {error}. Pass round_number=.") from error

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior mean and standard deviation of the reward.

        Args:
            X: ``n x d`` points, float64.

        Returns:
            ``n`` each, in outcome units; for an ensemble, of the mixture of its members.
        """
        transform = getattr(self, "posterior_transform", None)
        return moments_at(self.model, X, transform, self.predictive)

    def known_at(self, X: Tensor) -> Bounds:
        """Return what is known at some points; the base class has no confidence bounds.

        Args:
            X: ``n x d`` points, float64.
        """
        return Bounds(*self.moments(X))

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this acquisition function with this model, if any."""
        return Guarantee(method=type(self).__name__, gaps=("no theorem is stated for it",))

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


def _instead_of_beta(cls: type[BanditAcquisition]) -> str:
    """Return what to pass instead of BoTorch's ``beta``, the square of a width."""
    constant = "GPUpperConfidenceBound takes beta="
    if "width" in constructor_parameters(cls):
        constant = "For a constant width pass width=, which is the square root of beta"
    return f"The class computes its width from its other arguments. {constant}."


def of_acquisition(acquisition: BanditAcquisition, guarantee: Guarantee) -> Guarantee:
    """Return what an acquisition function guarantees on its own, outside a loop.

    Args:
        acquisition: The acquisition function, whose class may be a subclass that evaluates
            something else.
        guarantee: The result of the class that defines the method ``guarantee``.
    """
    if acquisition.played_as is None:
        guarantee = guarantee.with_gaps(
            f"{type(acquisition).__name__} may evaluate something other than its base class, whose "
            "guarantee this is; give it its own guarantee, or set defines_rule = True in its body "
            "if its values are those of width_rule",
            of="regret",
        )
    return guarantee.of_rows()


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


def check_required(name: str, options: Mapping[str, Any], required: tuple[str, ...]) -> None:
    """Raise if a required option is missing.

    Raises:
        ValueError: If something is missing; the message names it.
    """
    missing = [option for option in required if options.get(option) is None]
    if missing:
        raise ValueError(f"{name} needs {' and '.join(f'{option}=' for option in missing)}.")


def kernelized_rule(name: str, options: Mapping[str, Any]) -> WidthRule:
    """Return the rule of IGP-UCB and GP-TS from the ingredients or an explicit width.

    Bounds that are not given have defaults; see :func:`.complete_bounds`.

    Args:
        name: The acquisition class, for errors.
        options: Constructor arguments, from which this function takes ``rkhs_bound``,
            ``noise_bound``, ``delta``, ``any_lambda``, ``information_gain``, ``units``,
            ``variation`` (0 if left out) and ``width``; see
            :class:`~botorch_bandits.ImprovedUpperConfidenceBound`. If there is a ``default_width``,
            a constant, it is the width when none of these is given.

    Raises:
        ValueError: If bounds and ``width`` are both given, only one bound is given in outcome
            units, or ``variation`` is given without bounds.
    """
    delta = check_probability("delta", options["delta"])
    any_lambda = check_one_of("any_lambda", options["any_lambda"], (True, False))
    variation = check_nonnegative("variation", options.get("variation", 0.0))
    bounds, gain = (options["rkhs_bound"], options["noise_bound"]), options["information_gain"]
    if variation and None in bounds:
        raise ValueError(
            f"{name} has variation={variation:g}, which is added only to a width that follows "
            "from bounds. Pass rkhs_bound= and noise_bound=, or leave variation= out."
        )
    width, has_none = options["width"], all(each is None for each in (*bounds, gain))
    if width is not None:
        if not has_none:
            raise ValueError(
                f"{name} takes either width= or rkhs_bound= and noise_bound=, not both; "
                f"got width={width}."
            )
        return ConstantWidth(width)
    units = check_one_of("units", options["units"], ("outcome", "prior"))
    default_width = options.get("default_width")
    if default_width is not None and has_none:
        return ConstantWidth(default_width, is_default=True)
    norm, noise, not_given = complete_bounds(name, *bounds, units)
    rule = KernelizedWidth(norm, noise, delta, units, not_given, any_lambda, gain)
    return VaryingWidth(rule, variation) if variation else rule


FACTS_OF_SOME_DOMAIN = {"num_arms": 2, "dim": 10**6, "side_length": 1.0}
"""What counts as known of a domain that is not known yet. The dimension is large because Theorem 2
demands more of constants in small ones."""


def check_domain_size(name: str, options: Mapping[str, Any], domain: Domain) -> None:
    """Raise if options understate the domain on which the acquisition will be maximized.

    Raises:
        ValueError: If there are more arms than ``num_arms``, no arms at all, more dimensions than
            ``dim``, or a longer side than ``side_length``.
    """
    facts = domain.facts()
    if options.get("num_arms") is not None:
        arms = domain.few_points()
        if arms is not None:
            facts["num_arms"] = arms.num_arms
        elif "side_length" in facts:
            raise ValueError(
                f"{name} has num_arms={options['num_arms']}, but the domain is a box, not arms. "
                "Leave num_arms= out, or list the points as Arms."
            )
    for option in FACTS_OF_SOME_DOMAIN.keys() & facts.keys():
        given, needed = options.get(option), facts[option]
        if given is not None and given < needed:
            raise ValueError(
                f"{name} has {option}={given}, but the domain has {needed:g}. Leave {option}= out: "
                "the domain knows it."
            )


class CountedRound(int):
    """A round number counted by the caller, as loops do; not every row of the model is a round."""


def check_round(round_number: int, summary: PriorSummary, num_pending: int = 0) -> int:
    """Check that a model's rows can have been observed before a round, and return its number.

    If the model does not show its rows, or has rows of several tasks, any number is accepted.

    Args:
        round_number: The number of the round, from 1.
        summary: The prior summary of the model without pending points.
        num_pending: The number of pending points.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is less than rows plus pending points plus 1.
    """
    checked = check_integer("round_number", round_number, minimum=1)
    if isinstance(round_number, CountedRound) or has_tasks(summary.model):
        return checked
    try:
        num_rows = summary.num_rows
    except UnreadablePriorError:
        return checked
    least = num_rows + num_pending + 1
    if checked < least:
        pending = f" and {num_pending} points are pending" if num_pending else ""
        raise ValueError(
            f"round_number is {checked}, but the model has {num_rows} rows{pending}, so it "
            f"must be at least {least}. Leave it out to have it counted."
        )
    return checked


_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _once_a_class(function: Callable[[type], _T]) -> Callable[[type], _T]:
    """Return a function of a class that computes its result only once for each class."""
    return cache(function)  # mypy does not believe that every class can be hashed


@_once_a_class
def constructor_parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    """Return a constructor's parameters by name, with the base class's in place of ``**kwargs``.

    Args:
        cls: The class.
    """
    found: dict[str, inspect.Parameter] = {}
    for each in cls.__mro__:
        parameters = inspect.signature(each).parameters
        named = {name: p for name, p in parameters.items() if p.kind not in _VARIADIC}
        found = {**named, **found}
        if all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
            break
    return MappingProxyType(found)


@_once_a_class
def default_options(cls: type) -> Mapping[str, Any]:
    """Return the constructor's options and their defaults, None for those without one."""
    return MappingProxyType(
        {
            name: None if parameter.default is inspect.Parameter.empty else parameter.default
            for name, parameter in constructor_parameters(cls).items()
            if name not in GIVEN_BY_THE_LOOP
        }
    )


class HallucinatesPending(BanditAcquisition):
    """Treats pending points as if their outcomes were known to equal the posterior mean.

    The mean is unchanged and the variance shrinks (GP-BUCB; Desautels, Krause and Burdick 2014).
    Each call starts again from ``base_model``, the user's model, which is never changed.
    """

    base_model: Model
    posterior_transform: PosteriorTransform | None
    _summary: PriorSummary
    _evaluate: Callable[[Tensor], Tensor]
    """A function from ``batch_shape x 1 x d`` points to ``batch_shape`` values."""

    def _value(self, X: Tensor) -> Tensor:
        r"""Check points and evaluate them: one point, or several, one after the other.

        .. math:: a(x_1, \dots, x_q) = \sum_i a(x_i \mid \text{pending}, x_1, \dots, x_{i-1})

        Every point is valued as if those before it were pending. A bound therefore uses the
        remaining variances (GP-BUCB) and the width of the round in which the point would be chosen,
        and the value depends on the order of the points. Gradients propagate through all of it. No
        theorem is stated for the maximizer.

        Args:
            X: ``batch_shape x q x d`` points.

        Returns:
            ``batch_shape`` values; with a batched model, one for each member.
        """
        check_points(self, X)
        if X.shape[-2] <= 1:
            return self._evaluate(X)
        ahead = self._one_by_one(X if X.dim() > 2 else X.unsqueeze(0))
        view = view_of(self)
        view.model = ahead
        self._look_ahead(view, ahead)
        each = view._evaluate(ahead.points)  # ``batch_shape x q``, in front of the model's batch
        depth = 0 if ahead._is_ensemble else len(shape_of_batch(ahead))
        return each.sum(dim=-1 - depth)

    def _mean_and_sigma(
        self, X: Tensor, compute_sigma: bool = True, min_var: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return posterior moments as BoTorch does, with the floor of :func:`.variance_of`."""
        if next(self.parameters(), X).device != X.device:
            self.to(X)
        posterior = self.model.posterior(
            X, observation_noise=self.predictive, posterior_transform=self.posterior_transform
        )
        mean = posterior.mean.squeeze(-2)  # ``batch_shape x 1``
        variance = variance_of(posterior)
        return mean, variance.sqrt().view(mean.shape)

    def _one_by_one(self, X: Tensor) -> OneByOneModel:
        """Return the posteriors of several points, each given those before it.

        Args:
            X: ``batch_shape x q x d`` points.
        """
        return OneByOneModel(self.model, X)

    def _look_ahead(self, view: Any, ahead: OneByOneModel) -> None:
        """Inform a view of this function that each of several points comes after others.

        Args:
            view: The view, which is changed.
            ahead: The model of the view: the posteriors of the points.
        """

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
        self.model = self.base_model if pending is None else hallucinate(self.base_model, pending)
        AcquisitionFunction.set_X_pending(self, pending)


def view_of(module: _M) -> _M:
    """Return a copy whose attributes, buffers and submodules can be replaced; nothing is cloned.

    Args:
        module: The module, which is not changed.
    """
    view = object.__new__(type(module))
    state = {
        name: dict(value) if name in ("_modules", "_buffers", "_parameters") else value
        for name, value in module.__dict__.items()
    }
    view.__dict__.update(state)
    return view


def copy_pending(X_pending: Tensor | None, model: Model) -> Tensor | None:
    """Return a copy of pending points on the device of a model, or None if there are none.

    Raises:
        TypeError: If they are not float64.
        ValueError: If they are not an ``n x d`` matrix of finite numbers.

    Warns:
        BotorchWarning: If they require a gradient, which they will not get.
    """
    if X_pending is None or len(X_pending) == 0:
        return None
    check_finite("X_pending", check_double("X_pending", X_pending))
    if X_pending.dim() != 2:
        raise ValueError(
            f"X_pending must be n x d, got shape {tuple(X_pending.shape)}. Turn a single point "
            "into a row with X_pending.unsqueeze(0)."
        )
    check_columns("X_pending", X_pending, model)
    if X_pending.requires_grad:
        warnings.warn(
            "Pending points require a gradient but the acquisition function will not provide a "
            "gradient to these points.",  # as BoTorch says it
            BotorchWarning,
            stacklevel=level_of_users_line(),
        )
    return X_pending.detach().to(next(model.parameters(), X_pending).device, copy=True)
