"""The acquisition functions of this package in Ax, in one call.

:func:`ax_strategy` returns the strategy with which an Ax ``Client`` generates trials: quasi-random
points first, then an acquisition function of this package on Ax's modular BoTorch generator. It
handles three things that Ax leaves to its users: saved experiments can be loaded again, suggestions
are a function of the experiment and a seed, and the points of failed trials are not suggested
again.

Ax is imported when one of the functions is called, never before.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Standardize

from botorch_bandits import acquisition as rooms_acquisition
from botorch_bandits import confidence as rooms_confidence
from botorch_bandits import penalties as rooms_penalties
from botorch_bandits.acquisition import (
    BanditAcquisition,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    TopTwoThompsonSampling,
)
from botorch_bandits.acquisition.base import (
    GIVEN_BY_THE_LOOP,
    check_required,
)
from botorch_bandits.acquisition.input_constructors import (
    options_from_plain,
    register_input_constructor,
)
from botorch_bandits.checks import check_instance, check_integer
from botorch_bandits.confidence import WidthRule
from botorch_bandits.penalties import Penalty
from botorch_bandits.random_streams import derive_seed

if TYPE_CHECKING:
    from ax.generation_strategy.generation_strategy import GenerationStrategy
    from ax.generators.torch.botorch_modular.utils import ModelConfig

__all__ = ["ax_strategy", "register_with_ax"]

PREFIX = "botorch_bandits."
"""The prefix of the names under which Ax stores classes of this package."""

SAID_BY_AX = {
    "maximize": "Ax itself says that a metric is minimized: configure_optimization(objective='-m')",
    "posterior_transform": "Ax makes it of the objective and the outcome constraints",
    **dict.fromkeys(
        set(GIVEN_BY_THE_LOOP) - {"seed", "model"}, "it follows from the trials of the experiment"
    ),
}
"""Constructor arguments that are not options here, and the reasons."""

ON_LISTS = (
    CandidatesUpperConfidenceBound,
    CandidatesThompsonSampling,
)
"""The acquisitions whose model must be a list of priors."""

SAME_POINT = 1e-6
"""Numbers that differ by less than this share of their range are the same."""


def ax_strategy(
    acquisition: type[BanditAcquisition],
    /,
    *,
    initial_trials: int = 5,
    seed: int = 0,
    model: ModelConfig | type[Model] | None = None,
    optimizer: Mapping[str, Any] | None = None,
    **options: Any,
) -> GenerationStrategy:
    """Return a generation strategy of Ax that uses an acquisition function of this package.

    The first trials are quasi-random (Sobol). The acquisition follows as soon as ``initial_trials``
    trials have neither failed nor been abandoned, and at least two (one, if ``initial_trials`` is
    1) have been completed; until then, further points are also quasi-random.

    Metrics stay in their own units (``transforms=MBM_X_trans``), and so do bounds such as
    ``rkhs_bound``; the model standardizes outcomes internally. The model is fitted from the same
    start each time (``warm_start_refit=False``), and random draws follow from ``seed`` and the
    trials: an experiment that was saved and loaded gives the same suggestions as an uninterrupted
    one, except for the rounding of the outcomes in Ax's files (10 decimal places) and its effect on
    the search for the maximum.

    The point of a failed trial is treated as pending, as in loops of this package, unless the same
    point was evaluated in a later trial. If the acquisition ignores pending points, like
    :class:`~botorch_bandits.MeanOnly`, a quasi-random point replaces one that failed.

    Args:
        acquisition: A class of this package, such as
            :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.
        initial_trials: The number of quasi-random trials that come first, at least 1; trials that
            were attached to the experiment count.
        seed: The seed of the quasi-random points, the draws of the acquisition and its optimizer.
        model: A ``ModelConfig`` of Ax, or a class of BoTorch models, which is then registered for
            storage. If omitted, a ``SingleTaskGP`` with ``Standardize``.
        optimizer: The arguments that Ax passes to BoTorch's optimizer (``optimizer_kwargs``), such
            as ``{"num_restarts": 10, "raw_samples": 256}``; Ax's own choices if omitted.
        **options: The options of the class, by the names in its constructor. To be stored, they
            must be plain values, width rules, penalties or tensors.

    Returns:
        The strategy, for ``client.set_generation_strategy``.

    Raises:
        ImportError: If Ax is missing.
        TypeError: If the acquisition is not a class of this package, an option is unknown, or Ax
            itself determines what the option would set.
        ValueError: If an option is infeasible or missing, the class needs a list of priors and
            ``model`` is omitted, or it needs a finite set of points.

    Example:
        >>> from botorch_bandits import ImprovedUpperConfidenceBound, ax_strategy
        >>> strategy = ax_strategy(  # doctest: +SKIP
        ...     ImprovedUpperConfidenceBound, rkhs_bound=100.0, noise_bound=1.0
        ... )
        >>> client.set_generation_strategy(strategy)  # doctest: +SKIP
    """
    _check_options(acquisition, options, model)
    initial_trials = check_integer("initial_trials", initial_trials, minimum=1)
    seed = check_integer("seed", seed, minimum=0)
    register_with_ax()
    from ax.adapter.registry import Generators, MBM_X_trans
    from ax.core.trial_status import TrialStatus
    from ax.generation_strategy.generation_node import GenerationNode
    from ax.generation_strategy.generation_strategy import GenerationStrategy
    from ax.generation_strategy.generator_spec import GeneratorSpec
    from ax.generation_strategy.transition_criterion import MinTrials
    from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
    from ax.storage.botorch_modular_registry import register_acquisition_function

    name = acquisition.__name__
    if not _is_ours(acquisition):
        register_input_constructor(acquisition)
        register_acquisition_function(acquisition)
    if "seed" in inspect.signature(acquisition).parameters:
        options = {"seed": derive_seed(seed, 0, "draws in Ax"), **options}
    first = GenerationNode(
        name="quasi-random",
        generator_specs=[GeneratorSpec(Generators.SOBOL, generator_kwargs={"seed": seed})],
        transition_criteria=[
            MinTrials(
                threshold=initial_trials,
                not_in_statuses=[TrialStatus.FAILED, TrialStatus.ABANDONED],
                transition_to=name,
                use_all_trials_in_exp=True,
            ),
            MinTrials(
                threshold=min(initial_trials, 2),
                only_in_statuses=[TrialStatus.COMPLETED],
                transition_to=name,
                use_all_trials_in_exp=True,
            ),
        ],
    )
    spec = GeneratorSpec(
        generator_enum=Generators.BOTORCH_MODULAR,
        generator_kwargs={
            "surrogate_spec": SurrogateSpec(model_configs=[_model_config(model)]),
            "botorch_acqf_class": acquisition,
            "botorch_acqf_options": options,
            "transforms": MBM_X_trans,
            "warm_start_refit": False,
        },
        generator_gen_kwargs={}
        if optimizer is None
        else {"model_gen_options": {"optimizer_kwargs": dict(optimizer)}},
    )
    then = _node_class()(name=name, generator_specs=[spec], seed=seed)
    return GenerationStrategy(name=f"{PREFIX}{name}", nodes=[first, then])


def register_with_ax() -> None:
    """Let Ax build, store and load the parts of this package's strategies.

    :func:`ax_strategy` calls it. Call it before you write out nodes with acquisition functions of
    this package, and in a process that loads an experiment, before ``Client.load_from_json_file``
    or ``Client.load_from_database``. Calling it again does nothing.

    This registers the acquisition functions with BoTorch's registry of input constructors and, for
    files and databases, under their names (with the prefix ``botorch_bandits.`` if BoTorch has a
    class of the same name), width rules, penalties, and the node that :func:`ax_strategy` makes.

    Raises:
        ImportError: If Ax is missing.
    """
    try:
        registries = import_module("ax.storage.botorch_modular_registry")
        core = import_module("ax.storage.json_store.registry")
    except ModuleNotFoundError as error:
        raise ImportError(
            "ax_strategy needs Ax, in an environment with a release of BoTorch that it works "
            'with: python -m pip install "botorch_bandits[ax]".'
        ) from error
    from botorch.acquisition import AcquisitionFunction

    known = registries.CLASS_TO_REGISTRY[AcquisitionFunction]
    by_name = registries.CLASS_TO_REVERSE_REGISTRY[AcquisitionFunction]
    for cls in _classes_in(rooms_acquisition, BanditAcquisition):
        is_taken = by_name.get(cls.__name__, cls) is not cls
        register_input_constructor(cls)
        stored_as = PREFIX + cls.__name__ if is_taken else cls.__name__
        known.setdefault(cls, stored_as)
        by_name.setdefault(stored_as, cls)
    parts = [
        *_classes_in(rooms_confidence, WidthRule),
        *_classes_in(rooms_penalties, Penalty),
    ]
    for part in parts:
        if dataclasses.is_dataclass(part):
            core.CORE_ENCODER_REGISTRY[part] = _part_to_dict
            core.CORE_DECODER_REGISTRY[PREFIX + part.__name__] = partial(_part_from_json, part)
    node = _node_class()
    core.CORE_ENCODER_REGISTRY[node] = node.to_dict
    core.CORE_DECODER_REGISTRY[PREFIX + node.__name__] = node


def _check_options(
    acquisition: type[BanditAcquisition], options: Mapping[str, Any], model: Any
) -> None:
    """Raise the errors that the acquisition function would raise at its first trial."""
    if not (inspect.isclass(acquisition) and issubclass(acquisition, BanditAcquisition)):
        raise TypeError(
            f"acquisition is {acquisition!r}; pass a class of this package, such as "
            "ImprovedUpperConfidenceBound, followed by its options by name."
        )
    name, parameters = acquisition.__name__, inspect.signature(acquisition).parameters
    known = [each for each in parameters if each not in ("model", *SAID_BY_AX)]
    for option in options:
        if option in SAID_BY_AX:
            raise TypeError(f"{name} takes no {option}= in Ax: {SAID_BY_AX[option]}.")
        if option not in known:
            raise TypeError(f"{name} has no option {option!r}; it has {', '.join(known)}.")
    if issubclass(acquisition, ON_LISTS) and model is None:
        raise ValueError(
            f"{name} needs a list of priors, but Ax fits one model. Pass model= with a class of "
            "models that builds one, or use ImprovedUpperConfidenceBound."
        )
    if issubclass(acquisition, TopTwoThompsonSampling):
        raise ValueError(
            f"{name} seeks the best of finitely many points, but Ax searches a box. Use "
            "GPThompsonSampling, or a loop on Arms."
        )
    plain = {key: value for key, value in options_from_plain(options).items() if key != "seed"}
    # Ax has bounds, but no arms
    from_bounds = {*acquisition.from_domain, "model"} - {"num_arms"}
    check_required(
        acquisition, {key: plain.get(key) for key in parameters if key not in from_bounds}
    )
    acquisition.check_options(plain, None)


def _model_config(model: Any) -> ModelConfig:
    from ax.generators.torch.botorch_modular.utils import ModelConfig
    from ax.storage.botorch_modular_registry import MODEL_REGISTRY, register_model

    if model is None:
        return ModelConfig(
            botorch_model_class=SingleTaskGP, outcome_transform_classes=[Standardize]
        )
    if inspect.isclass(model) and issubclass(model, Model):
        model = ModelConfig(botorch_model_class=model)
    remedy = "Pass a ModelConfig of Ax or a class of BoTorch models."
    check_instance("model", model, ModelConfig, remedy)
    cls = model.botorch_model_class
    if cls is not None and cls not in MODEL_REGISTRY:
        register_model(cls)
    return model


def _classes_in(module: Any, parent: type) -> list[type]:
    """Return the classes of a kind that a module exports."""
    exported = (getattr(module, name) for name in module.__all__)
    return [each for each in exported if inspect.isclass(each) and issubclass(each, parent)]


def _is_ours(acquisition: type) -> bool:
    return acquisition in _classes_in(rooms_acquisition, BanditAcquisition)


def _part_to_dict(part: Any) -> dict[str, Any]:
    """Return a width rule or a penalty in the form that Ax stores."""
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {"__type": PREFIX + type(part).__name__, **values}


def _part_from_json(part: type, **values: Any) -> Any:
    """Return the argument of :func:`_part_to_dict`; JSON turns tuples into lists."""
    read = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return part(**read)


@cache
def _node_class() -> Any:
    """Return the class of the node that plays the acquisition; it is only defined with Ax."""
    from ax.adapter.registry import Generators
    from ax.core.observation import ObservationFeatures
    from ax.core.trial_status import TrialStatus
    from ax.exceptions.generation_strategy import GenerationStrategyRepeatedPoints
    from ax.generation_strategy.generation_node import GenerationNode
    from ax.generation_strategy.generator_spec import GeneratorSpec
    from ax.storage.json_store.decoder import generation_node_from_json
    from ax.storage.json_store.encoders import generation_node_to_dict
    from ax.utils.common.random import with_rng_seed

    def failed_trials(experiment: Any) -> list[Any]:
        """Return trials that failed and whose points were not evaluated in a later trial."""
        latest: dict[str, int] = {}  # the trial in which a point was last evaluated
        for trial in experiment.trials_by_status[TrialStatus.COMPLETED]:
            for arm in trial.arms:
                latest[arm.signature] = max(trial.index, latest.get(arm.signature, -1))
        return [
            trial
            for trial in experiment.trials_by_status[TrialStatus.FAILED]
            if all(latest.get(arm.signature, -1) < trial.index for arm in trial.arms)
        ]

    class BanditNode(GenerationNode):
        """Treats points of failed trials as pending; draws follow from its seed and the trials.

        Args:
            name: The node's name.
            generator_specs: One specification, with the acquisition.
            seed: The seed of the draws.
            others: Further arguments of Ax's node.
        """

        def __init__(
            self, name: str, generator_specs: list[Any], seed: int = 0, **others: Any
        ) -> None:
            """See the class."""
            spare = GeneratorSpec(
                Generators.SOBOL,
                generator_kwargs={"seed": derive_seed(seed, 0, "spare points in Ax") % 2**31},
                generator_key_override="Fallback_Sobol",
            )
            others.setdefault("fallback_specs", {GenerationStrategyRepeatedPoints: spare})
            super().__init__(name=name, generator_specs=generator_specs, **others)
            self.seed = seed

        def gen(
            self,
            *,
            experiment: Any,
            pending_observations: dict[str, list[ObservationFeatures]] | None,
            **others: Any,
        ) -> Any:
            """See Ax's node."""
            pending = dict(pending_observations or {})
            features = [
                ObservationFeatures.from_arm(arm=arm, trial_index=trial.index)
                for trial in failed_trials(experiment)
                for arm in trial.arms
                if experiment.search_space.check_membership(arm.parameters)
            ]
            for metric in experiment.metrics if features else ():
                pending[metric] = [*pending.get(metric, ()), *(f.clone() for f in features)]
            num_points = max((len(each) for each in pending.values()), default=0)
            number = len(experiment.trials) + num_points + 1
            with with_rng_seed(derive_seed(self.seed, number, "suggestion in Ax") % 2**32):
                return super().gen(experiment=experiment, pending_observations=pending, **others)

        def _gen_maybe_deduplicate(self, experiment: Any, **others: Any) -> Any:
            run = super()._gen_maybe_deduplicate(experiment=experiment, **others)
            failed = [arm for trial in failed_trials(experiment) for arm in trial.arms]
            parameters = experiment.search_space.parameters
            if any(_is_same(new, old, parameters) for new in run.arms for old in failed):
                raise GenerationStrategyRepeatedPoints(
                    "the acquisition suggests the point of a failed trial again"
                )
            return run

        @staticmethod
        def to_dict(node: Any) -> dict[str, Any]:
            """Return the node in the form that Ax stores."""
            return {
                **generation_node_to_dict(node),
                "__type": PREFIX + type(node).__name__,
                "seed": node.seed,
            }

        @classmethod
        def deserialize_init_args(cls, args: dict[str, Any], **registries: Any) -> dict[str, Any]:
            """Return the arguments of :meth:`__init__` from the result of :meth:`to_dict`."""
            seed = args.pop("seed")
            stored = generation_node_from_json(
                args, **{name: each for name, each in registries.items() if each is not None}
            )
            return {
                "name": stored.name,
                "generator_specs": stored.generator_specs,
                "seed": seed,
                "transition_criteria": stored.transition_criteria,
                "pausing_criteria": stored.pausing_criteria,
                "best_model_selector": stored.best_model_selector,
                "should_deduplicate": stored.should_deduplicate,
                "input_constructors": stored.input_constructors,
                "previous_node_name": stored._previous_node_name,
                "trial_type": stored._trial_type,
                "suggested_experiment_status": stored.suggested_experiment_status,
            }

    return BanditNode


def _is_same(new: Any, old: Any, parameters: Mapping[str, Any]) -> bool:
    """Whether two arms are the same point, up to the precision of a numerical search."""
    for name, parameter in parameters.items():
        here, there = new.parameters.get(name), old.parameters.get(name)
        if isinstance(here, float) and isinstance(there, float):
            side = getattr(parameter, "upper", 1.0) - getattr(parameter, "lower", 0.0)
            if not math.isclose(here, there, rel_tol=0.0, abs_tol=SAME_POINT * side):
                return False
        elif here != there:
            return False
    return True
