"""The methods of the league, each through the public interface that its users have.

Every method is a player: it is told the common initial points, then it is asked for a point and
told its value in turn. What a package recommends is left as it is, but for the number of random
points at the start, which is that of the common ones.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from botorch.acquisition import (
    AcquisitionFunction,
    LogExpectedImprovement,
    UpperConfidenceBound,
    qLogNoisyExpectedImprovement,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.league_problems import NUM_INITIAL, Coordinates, LeagueProblem, Parameter
from botorch_bandits import (
    BanditLoop,
    Box,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.domains import Domain
from botorch_bandits.models import DefaultCandidates
from botorch_bandits.random_streams import derive_seed, generator, seeded_globally


class Player(ABC):
    """One run of a method on a problem.

    Attributes:
        seconds_elsewhere: Processor time that a process of its own has taken for it.
    """

    seconds_elsewhere: float = 0.0

    @abstractmethod
    def begin(self, points: list[Coordinates], values: list[float]) -> None:
        """Learn the common initial points and the values observed there."""

    @abstractmethod
    def ask(self) -> Coordinates:
        """Return the next point."""

    @abstractmethod
    def tell(self, x: Coordinates, value: float) -> None:
        """Learn the value observed at the point that was asked for."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what the run held."""


class LoopPlayer(Player):
    """A loop of this package.

    Args:
        loop: Newly made; the initial points are attached to it.
    """

    def __init__(self, loop: BanditLoop) -> None:
        """See the class."""
        self._loop = loop
        self._query_id = -1

    def begin(self, points: list[Coordinates], values: list[float]) -> None:
        """See the base class."""
        for x, value in zip(points, values, strict=True):
            self._loop.attach(list(x), value)

    def ask(self) -> Coordinates:
        """See the base class."""
        query = self._loop.ask()
        self._query_id = query.id
        return tuple(query.x.tolist())

    def tell(self, x: Coordinates, value: float) -> None:
        """See the base class."""
        self._loop.tell(self._query_id, value)


class BoTorchPlayer(Player):
    """The ordinary way with BoTorch: a model fitted in each round, and ``optimize_acqf``.

    Args:
        problem: What is played.
        seed: Seeds the optimizer of the acquisition function.
        acquisition: Makes the acquisition function from the model, inputs and outcomes.
    """

    def __init__(
        self,
        problem: LeagueProblem,
        seed: int,
        acquisition: Callable[..., AcquisitionFunction],
    ) -> None:
        """See the class."""
        self._parameters, self._bounds, self._seed = problem.parameters, problem.bounds, seed
        self._acquisition = acquisition
        self._inputs: list[Coordinates] = []
        self._outcomes: list[float] = []

    def begin(self, points: list[Coordinates], values: list[float]) -> None:
        """See the base class."""
        self._inputs, self._outcomes = list(points), list(values)

    def tell(self, x: Coordinates, value: float) -> None:
        """See the base class."""
        self._inputs.append(x)
        self._outcomes.append(value)

    def ask(self) -> Coordinates:
        """See the base class."""
        inputs = torch.tensor(self._inputs, dtype=torch.float64)
        outcomes = torch.tensor(self._outcomes, dtype=torch.float64).unsqueeze(-1)
        with seeded_globally(derive_seed(self._seed, len(inputs), "botorch")):
            return self._suggestion(inputs, outcomes)

    def _suggestion(self, inputs: torch.Tensor, outcomes: torch.Tensor) -> Coordinates:
        dim, bounds = inputs.shape[-1], self._bounds
        choices = [i for i, p in enumerate(self._parameters) if p.kind == "choice"]
        others = [i for i in range(dim) if i not in choices]
        transforms = {
            "input_transform": Normalize(dim, indices=others, bounds=bounds[:, others])
            if choices
            else Normalize(dim, bounds=bounds),
            "outcome_transform": Standardize(m=1),
        }
        model: SingleTaskGP
        if choices:
            model = MixedSingleTaskGP(inputs, outcomes, cat_dims=choices, **transforms)
        else:
            model = SingleTaskGP(inputs, outcomes, **transforms)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        function = self._acquisition(model, inputs, outcomes)
        settings: dict[str, Any] = {"q": 1, "num_restarts": 10, "raw_samples": 256}
        if all(not p.is_whole for p in self._parameters):
            x, _ = optimize_acqf(function, bounds, **settings)
        else:
            by_kind = {
                kind: {i: p.values for i, p in enumerate(self._parameters) if p.kind == kind}
                for kind in ("integer", "choice")
            }
            x, _ = optimize_acqf_mixed_alternating(
                function,
                bounds,
                discrete_dims=by_kind["integer"],
                cat_dims=by_kind["choice"],
                **settings,
            )
        return tuple(x.squeeze(0).tolist())


class OptunaPlayer(Player):
    """A study of Optuna, asked and told.

    Args:
        problem: What is played.
        seed: Of the sampler.
        sampler: The name of its class in ``optuna.samplers``.
    """

    def __init__(self, problem: LeagueProblem, seed: int, sampler: str) -> None:
        """See the class."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._problem = optuna, problem
        made = getattr(optuna.samplers, sampler)(seed=seed, n_startup_trials=NUM_INITIAL)
        self._study = optuna.create_study(direction="maximize", sampler=made)
        self._distributions: dict[str, Any] = {}
        for p in problem.parameters:
            if p.kind == "choice":
                made_of: Any = optuna.distributions.CategoricalDistribution(p.choices)
            elif p.kind == "integer":
                made_of = optuna.distributions.IntDistribution(round(p.low), round(p.high))
            else:
                low, high = p.native(p.low), p.native(p.high)
                made_of = optuna.distributions.FloatDistribution(low, high, log=p.kind == "log")
            self._distributions[p.name] = made_of
        self._trial: Any = None

    def begin(self, points: list[Coordinates], values: list[float]) -> None:
        """See the base class."""
        for x, value in zip(points, values, strict=True):
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    params=self._problem.native(x),
                    distributions=self._distributions,
                    value=value,
                )
            )

    def ask(self) -> Coordinates:
        """See the base class."""
        self._trial = self._study.ask(self._distributions)
        return self._problem.coordinates(self._trial.params)

    def tell(self, x: Coordinates, value: float) -> None:
        """See the base class."""
        self._study.tell(self._trial, value)


class RandomPlayer(Player):
    """Points drawn uniformly at random.

    Args:
        problem: What is played.
        seed: Of the draws.
    """

    def __init__(self, problem: LeagueProblem, seed: int) -> None:
        """See the class."""
        self._parameters = problem.parameters
        self._stream = generator(seed, 0, "random search")

    def begin(self, points: list[Coordinates], values: list[float]) -> None:
        """See the base class."""

    def ask(self) -> Coordinates:
        """See the base class."""
        shares = torch.rand(len(self._parameters), generator=self._stream, dtype=torch.float64)
        return tuple(p.at(u) for p, u in zip(self._parameters, shares.tolist(), strict=True))

    def tell(self, x: Coordinates, value: float) -> None:
        """See the base class."""


class BayesOptPlayer(Player):
    """The package ``bayesian-optimization`` with its defaults; it has no logarithmic scale.

    Args:
        problem: What is played.
        seed: Of its random numbers.
    """

    def __init__(self, problem: LeagueProblem, seed: int) -> None:
        """See the class."""
        from bayes_opt import BayesianOptimization

        self._parameters = problem.parameters
        sides: dict[str, Any] = {}
        for p in problem.parameters:
            side: Any = (p.low, p.high)
            if p.kind == "integer":
                side = (round(p.low), round(p.high), int)
            sides[p.name] = p.choices if p.kind == "choice" else side
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # integers and choices are experimental
            self._optimizer = BayesianOptimization(
                None, sides, random_state=seed, verbose=0, allow_duplicate_points=True
            )

    def begin(self, points: list[Coordinates], values: list[float]) -> None:
        """See the base class."""
        for x, value in zip(points, values, strict=True):
            self.tell(x, value)

    def ask(self) -> Coordinates:
        """See the base class."""
        values = self._optimizer.suggest()
        return tuple(
            p.coordinate(values[p.name])
            if p.is_whole
            else min(max(float(values[p.name]), p.low), p.high)
            for p in self._parameters
        )

    def tell(self, x: Coordinates, value: float) -> None:
        """See the base class."""
        params = {
            p.name: p.native(c) if p.is_whole else c
            for p, c in zip(self._parameters, x, strict=True)
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of points that are told twice
            self._optimizer.register(params, value)


def range_of(parameter: Parameter) -> tuple[Any, Any]:
    """Return the least and the largest native value of a parameter that is no choice.

    Args:
        parameter: Any but a choice.
    """
    return parameter.native(parameter.low), parameter.native(parameter.high)


class AxProcess:
    """Ax's client in a process of another environment; :mod:`benchmarks.league_ax` answers there.

    Args:
        python: The interpreter of an environment with Ax.
        parameters: What is asked for or given.
        seed: Of the client.
        has_budget: Whether the outcome ``cost`` must be at most 0.

    Attributes:
        seconds: Processor time that the process has taken.
    """

    def __init__(
        self,
        python: str,
        parameters: Sequence[Parameter],
        seed: int,
        has_budget: bool = False,
    ) -> None:
        """Start the process."""
        self.seconds = 0.0
        script = Path(__file__).with_name("league_ax.py")
        self._process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        made: list[dict[str, Any]] = []
        for p in parameters:
            if p.kind == "choice":
                made.append({"name": p.name, "kind": p.kind, "choices": p.choices})
            else:
                low, high = range_of(p)
                made.append({"name": p.name, "kind": p.kind, "low": low, "high": high})
        self.call(begin=made, seed=seed, has_budget=has_budget)

    def call(self, **message: Any) -> Any:
        """Send a message and return the answer.

        Args:
            **message: What :meth:`benchmarks.league_ax.AxServer.answer` takes.

        Raises:
            RuntimeError: If the process has ended.
        """
        pipe = self._process
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        pipe.stdin.write(json.dumps(message) + "\n")
        pipe.stdin.flush()
        line = pipe.stdout.readline()
        if not line:
            raise RuntimeError(f"the process with Ax ended with exit code {pipe.wait()}.")
        answer = json.loads(line)
        self.seconds += answer["seconds"]
        return answer["answer"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class AxPlayer(Player):
    """Ax's client with its defaults.

    Args:
        problem: What is played.
        seed: Of the client.
        python: The interpreter of an environment with Ax.
    """

    def __init__(self, problem: LeagueProblem, seed: int, python: str) -> None:
        """See the class."""
        self._problem, self._number = problem, 0
        self._process = AxProcess(python, problem.parameters, seed)

    @property
    def seconds_elsewhere(self) -> float:  # type: ignore[override]
        """Processor time of the other process."""
        return self._process.seconds

    def begin(self, points: list[Coordinates], values: list[float]) -> None:
        """See the base class."""
        for x, value in zip(points, values, strict=True):
            self._process.call(attach=self._problem.native(x), outcome={"value": value})

    def ask(self) -> Coordinates:
        """See the base class."""
        self._number += 1
        return self._problem.coordinates(self._process.call(ask=self._number, given={}))

    def tell(self, x: Coordinates, value: float) -> None:
        """See the base class."""
        self._process.call(tell=self._number, outcome={"value": value})

    def close(self) -> None:
        """End the process."""
        self._process.close()


def log_expected_improvement(
    model: SingleTaskGP, inputs: torch.Tensor, outcomes: torch.Tensor
) -> AcquisitionFunction:
    """Return BoTorch's LogEI over the best observed value."""
    return LogExpectedImprovement(model, best_f=outcomes.max())


def noisy_expected_improvement(
    model: SingleTaskGP, inputs: torch.Tensor, outcomes: torch.Tensor
) -> AcquisitionFunction:
    """Return BoTorch's qLogNEI over the observed points."""
    return qLogNoisyExpectedImprovement(model, X_baseline=inputs, prune_baseline=True)


def upper_confidence_bound(
    model: SingleTaskGP, inputs: torch.Tensor, outcomes: torch.Tensor
) -> AcquisitionFunction:
    """Return BoTorch's upper confidence bound, the mean plus two standard deviations."""
    return UpperConfidenceBound(model, beta=4.0)


def default_loop(domain: Domain, num_initial: int, seed: int, objective: str) -> BanditLoop:
    """Return a loop with all defaults."""
    return BanditLoop(domain, objective=objective, num_initial=num_initial, seed=seed)


def loop_with(domain: Domain, num_initial: int, seed: int, acquisition: Any) -> BanditLoop:
    """Return a loop with the default model and an acquisition function that knows no bounds."""
    recipe = acquisition.with_options()
    return BanditLoop(domain, None, recipe, num_initial=num_initial, seed=seed)


def candidates_loop(domain: Domain, num_initial: int, seed: int, acquisition: Any) -> BanditLoop:
    """Return a loop with the default list of priors, whose scales the initial points choose."""
    assert isinstance(domain, Box)  # all of the league are, spaces too
    sides = [(low, high) for low, high in domain.bounds.mT.tolist()]
    model = DefaultCandidates(sides, num_first=num_initial)
    return BanditLoop(domain, model, acquisition, num_initial=num_initial, seed=seed)


class MissingMethodError(ImportError):
    """A method cannot be played here: a package is missing."""


def package_version(package: str) -> str:
    """Return a package and its version.

    Args:
        package: The name of the distribution.
    """
    return f"{package} {version(package)}"


def check_packages(name: str, packages: Sequence[str]) -> None:
    """Raise if a method cannot be played here.

    Args:
        name: Of the method.
        packages: The distributions that it needs.

    Raises:
        MissingMethodError: With what is to be installed.
    """
    modules = {"bayesian-optimization": "bayes_opt"}
    for package in packages:
        if importlib.util.find_spec(modules.get(package, package)) is None:
            raise MissingMethodError(
                f"{name} needs {package}: pip install 'botorch_bandits[league]'"
            )


@dataclass(frozen=True)
class Method:
    """A method of the league.

    Attributes:
        name: As the command line has it.
        title: In words.
        make: Begins a run on a problem with a seed.
        packages: The distributions that it needs, the first being the one that it is.
        is_core: Whether it plays without ``--full``.
    """

    name: str
    title: str
    make: Callable[[LeagueProblem, int], Player] = field(repr=False)
    packages: tuple[str, ...]
    is_core: bool = True

    @property
    def version(self) -> str:
        """The package and its version."""
        return package_version(self.packages[0])

    def check(self) -> None:
        """Raise if it cannot be played here.

        Raises:
            MissingMethodError: With what is to be installed.
        """
        check_packages(self.name, self.packages)


def of_loop(make: Callable[[Domain, int, int], BanditLoop]) -> Callable[..., Player]:
    """Return how a loop plays.

    Args:
        make: Makes the loop from the domain, the number of initial points and the seed.
    """
    return lambda problem, seed: LoopPlayer(make(problem.domain(), NUM_INITIAL, seed))


HERE = ("botorch_bandits",)

MIXTURE_BOUND = CandidatesUpperConfidenceBound.with_options(form="mixture")
"""The mean of the mixture of the priors plus two of its standard deviations."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "ours-best",
            "`BanditLoop(domain)`",
            of_loop(partial(default_loop, objective="best")),
            HERE,
        ),
        Method(
            "ours-earned",
            '`BanditLoop(domain, objective="earned")`',
            of_loop(partial(default_loop, objective="earned")),
            HERE,
        ),
        Method(
            "igp-ucb",
            "`ImprovedUpperConfidenceBound` without bounds",
            of_loop(partial(loop_with, acquisition=ImprovedUpperConfidenceBound)),
            HERE,
        ),
        Method(
            "gp-ts",
            "`GPThompsonSampling` without bounds",
            of_loop(partial(loop_with, acquisition=GPThompsonSampling)),
            HERE,
        ),
        Method(
            "botorch-logei",
            "BoTorch's `LogExpectedImprovement`, a `SingleTaskGP` fitted each round",
            partial(BoTorchPlayer, acquisition=log_expected_improvement),
            ("botorch",),
        ),
        Method(
            "optuna-gp",
            "Optuna's `GPSampler`",
            partial(OptunaPlayer, sampler="GPSampler"),
            ("optuna",),
        ),
        Method(
            "optuna-tpe",
            "Optuna's `TPESampler`",
            partial(OptunaPlayer, sampler="TPESampler"),
            ("optuna",),
        ),
        Method("random", "random search", RandomPlayer, HERE),
        Method(
            "candidates-ucb",
            '`DefaultCandidates` with `CandidatesUpperConfidenceBound`, `form="mixture"`',
            of_loop(partial(candidates_loop, acquisition=MIXTURE_BOUND)),
            HERE,
            is_core=False,
        ),
        Method(
            "candidates-ts",
            "`DefaultCandidates` with `CandidatesThompsonSampling`",
            of_loop(
                partial(candidates_loop, acquisition=CandidatesThompsonSampling.with_options())
            ),
            HERE,
            is_core=False,
        ),
        Method(
            "botorch-qlognei",
            "BoTorch's `qLogNoisyExpectedImprovement`",
            partial(BoTorchPlayer, acquisition=noisy_expected_improvement),
            ("botorch",),
            is_core=False,
        ),
        Method(
            "botorch-ucb",
            "BoTorch's `UpperConfidenceBound` with `beta=4`",
            partial(BoTorchPlayer, acquisition=upper_confidence_bound),
            ("botorch",),
            is_core=False,
        ),
        Method(
            "bayes-opt",
            "the package bayesian-optimization",
            BayesOptPlayer,
            ("bayesian-optimization",),
            is_core=False,
        ),
    )
}
"""The methods by name, but for Ax, which needs an environment of its own."""

AX = "ax"
"""The name of the method that plays with ``--ax-python``."""


def ax_version(python: str) -> str:
    """Return the version of Ax that another interpreter has.

    Args:
        python: The interpreter.

    Raises:
        MissingMethodError: If it cannot import Ax.
    """
    line = "import importlib.metadata, ax.api.client; print(importlib.metadata.version('{}'))"
    try:
        return subprocess.run(
            [python, "-c", line.format("ax-platform")], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingMethodError(
            f"--ax-python is {python!r}, which cannot import Ax; make an environment with "
            "pip install -c constraints.txt -e '.[ax]' and name its interpreter"
        ) from error


def ax_method(python: str) -> Method:
    """Return Ax, played by the interpreter of another environment.

    Args:
        python: The interpreter.

    Raises:
        MissingMethodError: If it cannot import Ax.
    """
    found = ax_version(python)
    return AxMethod(AX, "Ax's `Client`", partial(AxPlayer, python=python), (found,), False)


class AxMethod(Method):
    """Ax in another environment; its version is found there."""

    @property
    def version(self) -> str:
        """The package and its version."""
        return f"ax-platform {self.packages[0]}"

    def check(self) -> None:
        """It was found when this was made."""


def variant_method(text: str) -> Method:
    """Return a method that is not of the league: a loop that a function makes.

    Args:
        text: ``NAME=MODULE:FACTORY``; the factory is called with the domain, the number of initial
            points and the seed, and returns a loop to which the initial points are attached.

    Raises:
        ValueError: If it is none, or cannot be imported.
    """
    name, equals, target = text.partition("=")
    module_name, colon, factory_name = target.partition(":")
    if not (name and equals and module_name and colon and factory_name):
        raise ValueError(f"--variant is {text!r}; it must be NAME=MODULE:FACTORY.")
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--variant {text!r} cannot be imported: {error}.") from error
    return Method(name, f"`{target}`", of_loop(factory), HERE, False)


@cache
def method_of(text: str) -> Method:
    """Return the method that a text names.

    Args:
        text: A key of :data:`METHODS`; ``NAME=MODULE:FACTORY`` for :func:`variant_method`; or
            ``ax=INTERPRETER`` for :func:`ax_method`.

    Raises:
        MissingMethodError: If it cannot be played here.
        ValueError: If there is none of this name.
    """
    if text.startswith(f"{AX}="):
        return ax_method(text.removeprefix(f"{AX}="))
    if "=" in text:
        return variant_method(text)
    if text not in METHODS:
        raise ValueError(f"method is {text!r}; it must be one of {', '.join(METHODS)}.")
    METHODS[text].check()
    return METHODS[text]
