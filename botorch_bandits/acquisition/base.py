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
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.exceptions.warnings import BotorchWarning
from botorch.models import MultiTaskGP
from botorch.models.gpytorch import MultiTaskGPyTorchModel
from botorch.models.model import Model, ModelList
from torch import Tensor
from torch.nn import Module

from botorch_bandits.acquisition.rules import ArmsRule
from botorch_bandits.acquisition.scores import deviation_of
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
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE, check_assume
from botorch_bandits.domains import Arms, Box, Domain, ValueScale
from botorch_bandits.fingerprints import are_equal
from botorch_bandits.models.reading import (
    OneByOneModel,
    count_columns,
    hallucinate,
    moving_models,
    shape_of_batch,
)
from botorch_bandits.models.reading import check_model as check_model

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Module)

FLOAT_OPTIONS = frozenset(
    {
        "best_f",
        "beta",
        "constraint_bound",
        "delta",
        "information_gain",
        "leader_probability",
        "margin",
        "minimum",
        "minimum_proxy",
        "noise_bound",
        "outcome_bound",
        "pseudo_noise",
        "reward_bound",
        "ringing_tolerance",
        "rkhs_bound",
        "scale",
        "side_length",
        "smoothness",
        "smoothness_a",
        "smoothness_b",
        "tolerance",
        "variation",
        "width",
        "width_constant",
    }
)
"""Options that are a number, or one number per output in a tuple."""

INTEGER_OPTIONS = frozenset({"dim", "horizon", "max_delay", "max_draws", "num_arms", "num_ridges"})
"""Options that are a whole number."""

ONE_A_PRIOR = ("smoothness_a", "smoothness_b")
"""Options that may be sequences of one number per prior on a list."""


def _convert(name: str, value: Any) -> Any:
    if name == "assume":
        return check_assume(value)
    if name in INTEGER_OPTIONS:
        return _convert_integer(value)
    if name not in FLOAT_OPTIONS:
        return value
    if isinstance(value, tuple) or (isinstance(value, list) and name in ONE_A_PRIOR):
        return tuple(_convert_float(name, entry) for entry in value)
    return _convert_float(name, value)


def _convert_float(name: str, value: Any) -> Any:
    """Return one number as a float; other values are left to the check of the option."""
    is_number = value.dim() == 0 if isinstance(value, Tensor) else hasattr(value, "__float__")
    return check_number(name, value) if is_number else value


def _convert_integer(value: Any) -> Any:
    if isinstance(value, bool):
        return value  # refused by the check of the option
    try:
        return operator.index(value)
    except TypeError:
        return value


GIVEN_BY_THE_LOOP = ("model", "round_number", "X_pending", "seed", "X_observed", "Y_observed")
"""Arguments that change from round to round; a recipe does not contain them."""


@dataclass(frozen=True, eq=False)
class AcquisitionRecipe:
    """An acquisition class and its options; equal recipes have equal classes and options.

    Attributes:
        acquisition_class: The class to build.
        options: Keyword arguments of its constructor; they are copied and cannot be changed.

    Raises:
        TypeError: If a number among the options has lower precision than float64.
        ValueError: If one is NaN or infinite.
    """

    acquisition_class: type[BanditAcquisition]
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Keep the options in a mapping that cannot be changed."""
        converted = {name: _convert(name, value) for name, value in self.options.items()}
        store_checked(self, options=MappingProxyType(converted))

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
        has_constant_width = any(complete.get(name) is not None for name in ("width", "beta"))
        delta = complete.get("delta")
        if has_constant_width or not isinstance(delta, float):
            return self
        options = {**self.options, "delta": share(delta)}
        return AcquisitionRecipe(self.acquisition_class, options)

    def check(self, domain: Domain) -> None:
        """Raise the errors that building on this domain would raise for invalid options."""
        self.acquisition_class.check_options(self.options, domain)

    def arms_rule(self, domain: Domain) -> ArmsRule | None:
        """Return the rule that plays this acquisition on arms from their exact posterior.

        On a box, only the settings of the rule are used, and what it needs to know about the domain
        comes from the box.

        The result is None if there is no such rule; the acquisition function itself must then be
        evaluated. A subclass inherits the rule unless it changes how the acquisition function is
        evaluated; see :attr:`BanditAcquisition.played_as`.
        """
        cls = self.acquisition_class
        if cls.played_as is None or any(
            self.options.get(name) is not None
            # another scalar, points other than the arms, or its own draw
            for name in ("posterior_transform", "choices", *GIVEN_BY_THE_LOOP)
        ):
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
        parameters = constructor_parameters(cls)
        complete = cls.complete_options(self.options, domain)
        for name, parameter in parameters.items():  # the constructor itself says what is missing
            if parameter.default is inspect.Parameter.empty and complete.get(name) is None:
                complete.pop(name, None)
        complete.update({name: value for name, value in given.items() if name in parameters})
        if isinstance(complete.get("round_number"), int):
            complete["round_number"] = CountedRound(complete["round_number"])
        return cls(model, **complete)


EVALUATION = frozenset(
    {"__call__", "forward", "bounds", "_bounds", "_evaluate", "_mean_and_sigma", "_moments"}
    | {"_penalized", "_scalarized"}
)
"""Methods that compute the values that guarantees are about."""

ASIDE = frozenset(
    {"describe", "guarantee", "defines_rule", "played_as", "rule_owner", "_evaluates_otherwise"}
    | {"__annotate_func__", "__annotations__", "__annotations_cache__", "__doc__", "__module__"}
    | {"__firstlineno__", "__orig_bases__", "__parameters__", "__static_attributes__"}
    | {"__type_params__", "__abstractmethods__", "_abc_impl"}
)
"""What a class can define without changing what is evaluated."""


class BanditAcquisition(AcquisitionFunction):
    """What every acquisition function in this package provides in addition to ``forward``."""

    defines_rule: ClassVar[bool] = False
    """Whether :meth:`arms_rule` of this very class takes the constructor's options and computes
    the values of ``forward``; a class sets it in its own body, or inherits :attr:`played_as`."""

    played_as: ClassVar[type[BanditAcquisition] | None] = None
    """The class whose rule plays this one on arms: the nearest class with ``defines_rule``, if
    those in between define nothing but a docstring, ``guarantee`` and ``describe``; the class
    itself if they also define ``width_rule``. None if they define more: it is then evaluated."""

    rule_owner: ClassVar[type[BanditAcquisition]]
    """The nearest class with ``defines_rule``, or the class itself if there is none."""

    _evaluates_otherwise: ClassVar[bool] = False
    """Whether it evaluates something other than the class whose ``guarantee`` it has."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Settle which rule plays a subclass, and whether an inherited guarantee is about it."""
        super().__init_subclass__(**given)
        body, lineage = vars(cls), cls.__mro__[: cls.__mro__.index(Module)]
        if "guarantee" in body:
            cls._evaluates_otherwise = False
        elif body.keys() & EVALUATION:
            cls._evaluates_otherwise = True
        owner: Any = next((each for each in lineage if vars(each).get("defines_rule")), cls)
        # a second base class may change what the owner inherits
        others = [vars(each).keys() for each in lineage if each not in owner.__mro__]
        changed = {name for names in others for name in names if name not in ASIDE}
        cls.rule_owner, cls.played_as = owner, owner if owner.defines_rule else None
        if changed:
            cls.played_as = cls if cls.played_as and changed == {"width_rule"} else None

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Refuse arguments that the class does not have, such as BoTorch's ``beta``."""
        check_arguments(cls, args, given, _instead_of_beta(cls))
        return super().__new__(cls)

    _num_columns: int | None = None
    """The number of columns of the last points; other numbers are checked against the model."""

    @property
    def is_optimistic(self) -> bool:
        """Whether a round's regret is at most twice width times standard deviation there."""
        return False

    @property
    def width_rules(self) -> tuple[WidthRule, ...]:
        """The rules of the widths in use: one, or one per output; empty if there are none."""
        rule = getattr(self, "rule", None)
        return (rule,) if isinstance(rule, WidthRule) else ()

    @property
    def value_scale(self) -> ValueScale | None:
        """The unit and the origin of the values; None if they are unknown.

        It decides ties on arms. Values in outcome units are measured in prior standard deviations
        from the prior mean.
        """
        return None

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
            complete.update(options_known_to(domain, cls, complete))
            # a constructor of a user's own may mean something else by a name
            own, theirs = (constructor_parameters(each) for each in (cls, cls.rule_owner))
            shared = {
                name: value
                for name, value in complete.items()
                if name in theirs and own[name].default == theirs[name].default
            }
            check_domain_size(cls.__name__, shared, domain)
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
        if constructor_parameters(cls) != constructor_parameters(cls.rule_owner):
            return  # the constructor, which is not the rule's, will check them
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
        known = facts_of(domain)
        wanted = cls.wanted_from_domain(options)
        return {n: known[n] for n in wanted if n in known and options[n] is None}

    @classmethod
    def wanted_from_domain(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the options, among those of :func:`facts_of`, that a domain fills in.

        Args:
            options: All constructor arguments; those that were left out are None or the default.
        """
        return ()

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

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this acquisition function with this model, if any."""
        return Guarantee(method=type(self).__name__, gaps=("no theorem is stated for it",))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert all tensors, including those that GPyTorch would leave behind."""
        like = next(self.parameters(), None)
        if like is None or fn(like) is like:  # as BoTorch does in each evaluation
            return super()._apply(fn, recurse)
        with moving_models(self, fn):
            super()._apply(fn, recurse)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        summary: PriorSummary | None = vars(self).get("_summary")
        if summary is not None:
            summary.forget()

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return what the acquisition knew at one point, by name.

        Args:
            x: A ``d``-dimensional point.
        """
        with torch.no_grad():
            return {"acquisition_value": float(self(x.unsqueeze(0)))}


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
    cls = type(acquisition)
    if cls._evaluates_otherwise:
        owner, _ = cls.guarantee.__qualname__.split(".")
        guarantee = guarantee.with_gaps(
            f"{cls.__name__} evaluates something other than {owner}, whose guarantee this is; "
            "give it its own guarantee",
            of="regret",
        )
    return guarantee.of_rows()


def check_pending(X_pending: Tensor | None, model: Model) -> Tensor | None:
    """Return pending points as an ``n x d`` float64 matrix, or None if there are none.

    Args:
        X_pending: The points.
        model: The model whose inputs they are.

    Raises:
        TypeError: If they are not a float64 tensor.
        ValueError: If the shape is wrong or an entry is not finite.
    """
    if X_pending is None:
        return None
    check_finite("X_pending", check_double("X_pending", X_pending))
    if X_pending.dim() != 2:
        raise ValueError(
            f"X_pending must be n x d, got shape {tuple(X_pending.shape)}. Turn a single point "
            "into a row with X_pending.unsqueeze(0)."
        )
    if len(X_pending) == 0:
        return None
    check_columns("X_pending", X_pending, model)
    return X_pending


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
    parts = model.models if isinstance(model, ModelList) else [model]
    with_task = all(isinstance(part, MultiTaskGPyTorchModel) for part in parts)
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
    rkhs_bound, noise_bound, width = (
        options[key] for key in ("rkhs_bound", "noise_bound", "width")
    )
    delta = check_probability("delta", options["delta"])
    any_lambda = check_one_of("any_lambda", options["any_lambda"], (True, False))
    variation = check_nonnegative("variation", options.get("variation", 0.0))
    if variation and (rkhs_bound is None or noise_bound is None):
        raise ValueError(
            f"{name} has variation={variation:g}, which is added only to a width that follows "
            "from bounds. Pass rkhs_bound= and noise_bound=, or leave variation= out."
        )
    if width is not None:
        if any(v is not None for v in (rkhs_bound, noise_bound, options["information_gain"])):
            raise ValueError(
                f"{name} takes either width= or rkhs_bound= and noise_bound=, not both; "
                f"got width={width}."
            )
        return ConstantWidth(width)
    units = check_one_of("units", options["units"], ("outcome", "prior"))
    gain = options["information_gain"]
    default_width = options.get("default_width")
    if default_width is not None and all(v is None for v in (rkhs_bound, noise_bound, gain)):
        return ConstantWidth(default_width, is_default=True)
    rkhs_bound, noise_bound, not_given = complete_bounds(name, rkhs_bound, noise_bound, units)
    rule = KernelizedWidth(
        rkhs_bound, noise_bound, delta, any_lambda, gain, units, not_given=not_given
    )
    return VaryingWidth(rule, variation) if variation else rule


LARGEST_DIMENSION = 10**6
"""The assumed dimension of an unknown box; Theorem 2 demands more of constants in smaller ones."""


def facts_of(domain: Domain | None) -> dict[str, Any]:
    """Return the options that follow from a domain, by name.

    Args:
        domain: The domain; None if it is not known yet, for the options of some domain.
    """
    if domain is None:
        return {"num_arms": 2, "dim": LARGEST_DIMENSION, "side_length": 1.0}
    if isinstance(domain, Arms):
        return {"num_arms": domain.num_arms, "dim": domain.dim, "choices": domain.choices}
    if isinstance(domain, Box):
        longest = float((domain.bounds[1] - domain.bounds[0]).max())
        return {"dim": domain.dim, "side_length": longest}
    return {"dim": domain.dim}


def check_domain_size(name: str, options: Mapping[str, Any], domain: Domain | None) -> None:
    """Raise if options understate the domain on which the acquisition will be maximized.

    Raises:
        ValueError: If there are more arms than ``num_arms``, no arms at all, more dimensions than
            ``dim``, or a longer side than ``side_length``.
    """
    num_arms, dim = options.get("num_arms"), options.get("dim")
    side_length = options.get("side_length")
    if num_arms is not None:
        choices = domain.few_points() if isinstance(domain, Box) else domain
        if choices is None and domain is not None:
            raise ValueError(f"{name} has num_arms={num_arms}, but the domain is a box, not arms.")
        if isinstance(choices, Arms) and num_arms < choices.num_arms:
            raise ValueError(
                f"{name} has num_arms={num_arms}, but the domain has {choices.num_arms} arms. "
                "Leave num_arms= out: the domain knows it."
            )
    if isinstance(domain, Box):
        longest = float((domain.bounds[1] - domain.bounds[0]).max())
        if (dim is not None and dim < domain.dim) or (
            side_length is not None and side_length < longest
        ):
            raise ValueError(
                f"{name} has dim={dim} and side_length={side_length}, but the box has {domain.dim} "
                f"dimensions and a side of {longest:g}. Leave both out: the domain knows them."
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
    if isinstance(round_number, CountedRound) or isinstance(summary.model, MultiTaskGP):
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


def check_single_point(acquisition: BanditAcquisition, X: Tensor) -> None:
    """Raise unless ``X`` is ``batch_shape x 1 x d`` in float64.

    Raises:
        TypeError: If ``X`` is not a float64 tensor.
        ValueError: If ``X`` has fewer than two dimensions, or if its columns differ from those of
            the model.
        UnsupportedError: If there are ``q > 1`` points.
    """
    check_points(acquisition, X)
    if X.shape[-2] != 1:
        raise UnsupportedError(
            f"{type(acquisition).__name__} computes values for single points here, got X of "
            f"shape {tuple(X.shape)} with q = {X.shape[-2]}. Several points go into the batch "
            "dimension: X.unsqueeze(-2)."
        )


_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _once_a_class(function: Callable[[type], _T]) -> Callable[[type], _T]:
    """Return a function of a class that computes its result only once for each class."""
    return cache(function)


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


def passed_on(given: Mapping[str, Any], cls: type) -> dict[str, Any]:
    """Return the arguments that a base class's constructor takes by name.

    Args:
        given: All arguments of the constructor of a subclass, by name.
        cls: The base class.
    """
    return {n: given[n] for n in constructor_parameters(cls) if n in given and n != "model"}


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


def options_known_to(
    domain: Domain, cls: type[BanditAcquisition], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of a class that were left out and that the domain knows.

    Args:
        domain: The domain on which the acquisition will be maximized.
        cls: An acquisition class, perhaps with its own constructor.
        options: All options of its constructor.
    """
    complete = {**default_options(cls.rule_owner), **options}
    known = cls.options_from_domain(complete, domain)
    return {name: value for name, value in known.items() if name in options}


class HallucinatesPending(BanditAcquisition):
    """Treats pending points as if their outcomes were known to equal the posterior mean.

    The mean is unchanged and the variance shrinks (GP-BUCB; Desautels, Krause and Burdick 2014).
    Each call starts again from ``base_model``, the user's model, which is never changed.
    """

    base_model: Model
    posterior_transform: PosteriorTransform | None
    predictive: bool = False
    smallest_share: ClassVar[float] = MINIMUM_VARIANCE
    """Smaller variances are replaced by this many prior variances."""

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
        """Return posterior moments as BoTorch does, but with a floor in prior variances."""
        if next(self.parameters(), X).device != X.device:
            self.to(X)
        posterior = self.model.posterior(
            X, observation_noise=self.predictive, posterior_transform=self.posterior_transform
        )
        mean = posterior.mean.squeeze(-2)  # ``batch_shape x 1``
        deviation = deviation_of(posterior, self._summary, self.smallest_share)
        return mean, deviation.view(mean.shape)

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
        found = getattr(self.base_model, "X_baseline", None)
        if found is None:
            raise AttributeError(f"{type(self.base_model).__name__} offers no X_baseline.")
        return found

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
    points = check_pending(X_pending, model)
    if points is None:
        return None
    if points.requires_grad:
        warnings.warn(
            "Pending points require a gradient but the acquisition function will not provide a "
            "gradient to these points.",  # as BoTorch says it
            BotorchWarning,
            stacklevel=level_of_users_line(),
        )
    return points.detach().to(next(model.parameters(), points).device, copy=True)
