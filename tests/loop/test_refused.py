"""What is refused, before anything is recorded: errors name argument, value and remedy."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement as BoTorchsImprovement
from botorch.acquisition import PosteriorMean, UpperConfidenceBound
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    Categorical,
    Censored,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    ChangePointDetector,
    ChangePointRestart,
    ChangePointUpperConfidenceBound,
    DMMUpperConfidenceBound,
    EvidenceDetector,
    EvidenceRestart,
    ExponentialWeights,
    FittedSingleTaskGP,
    Fixed,
    Float,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    Integer,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    OracleRestart,
    RandomizedUpperConfidenceBound,
    RandomSearch,
    SlidingWindow,
    Space,
    TimeVaryingKernel,
    TopTwoThompsonSampling,
    run,
)
from botorch_bandits import acquisition as acquisitions
from botorch_bandits.acquisition import AffineOutcomes
from botorch_bandits.acquisition.base import BanditAcquisition
from botorch_bandits.change_points import PowerThreshold, calibrate_threshold
from botorch_bandits.confidence import ConstantWidth, WaterFillingGain
from botorch_bandits.loop import StorageError

pytestmark = pytest.mark.filterwarnings("ignore")

ARMS = Arms(torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1))
BOX = Box([(0.0, 1.0)])
PRIOR = BanditGP.with_kernel(RBFKernel(), noise=0.04, lengthscale=0.3)
LIST = BanditGP.with_candidates([PRIOR, BanditGP.with_kernel(RBFKernel(), noise=0.1)])
LEARNED = BanditGP.with_kernel(RBFKernel(), noise=0.04, refit_every=3)
BOUNDS: dict[str, Any] = {"rkhs_bound": 1.0, "noise_bound": 0.1}
IGP = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
WIDTH = GPUpperConfidenceBound.with_options(width=2.0)
OF_LIST = CandidatesUpperConfidenceBound.with_options(width=2.0)
CENSORED = Censored(minimum=-1.0, outcome_bound=2.0)
PAIRS = ((-0.7, 0.8), (-0.9, 0.6))
RELABELED, TWO = AdditiveEpochs(1, 4), AdditiveEpochs(2, 4)
SEPARATE = AdditiveEpochs(1, 4, surrogate="separate")
FRESH = AdditiveEpochs(1, 4, surrogate="fresh", models=LIST.candidates)
WEIGHED = LagrangianUpperConfidenceBound.with_options(width=1.5)
OF_TWO = {"acquisition": WEIGHED, "constraints": AdditiveEpochs(2, 4, surrogate="separate")}
DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=0.3, threshold=PowerThreshold(scale=1.0, exponent=-0.8)
)
X = torch.tensor([[0.2], [0.7]], dtype=torch.float64)


def make(**settings: Any) -> BanditLoop:
    given = {"domain": ARMS, "model": PRIOR, "acquisition": IGP, "seed": 0, **settings}
    return BanditLoop(given.pop("domain"), **given)


def igp(**options: Any) -> Any:
    return ImprovedUpperConfidenceBound.with_options(**BOUNDS, **options)


def shifted(parent: type[BanditAcquisition]) -> Any:
    class Shifted(parent):  # type: ignore[misc, valid-type]
        def forward(self, X: Tensor) -> Tensor:
            return super().forward(X) - X[..., 0, 0]

    return Shifted


class Wider(ImprovedUpperConfidenceBound):
    """A subclass with a width of its own, and the score of its parent."""

    defines_rule = True

    @classmethod
    def width_rule(cls, options: Any) -> Any:
        return ConstantWidth(3.0)


def function_of_the_users(X: Tensor, Y: Tensor) -> BanditGP:
    return PRIOR(X, Y)


class OwnIdea(FittedSingleTaskGP):
    """It may do something else with rows."""


# --- settings -------------------------------------------------------------------------------------

TOGETHER: list[tuple[str, dict[str, Any]]] = [
    # feedback
    ("no width for .* LogExpectedImprovement",
     {"acquisition": LogExpectedImprovement.with_options(), "feedback": CENSORED}),
    ("no width for .* DMMUpperConfidenceBound",
     {"acquisition": DMMUpperConfidenceBound.with_options(), "feedback": CENSORED}),
    ("no width for", {"acquisition": Wider.with_options(**BOUNDS), "feedback": CENSORED}),
    *(
        ("no width for",
         {"acquisition": shifted(cls).with_options(**options), "feedback": CENSORED})
        for cls, options in (
            (ImprovedUpperConfidenceBound, BOUNDS), (GPThompsonSampling, BOUNDS),
            (GPUpperConfidenceBound, {}), (AMMUpperConfidenceBound, BOUNDS),
        )
    ),
    *(
        ("would censor them twice",
         {"acquisition": cls.with_options(minimum=-3.0, width=1.0), "feedback": CENSORED})
        for parent in (CensoredUpperConfidenceBound, CensoredThompsonSampling)
        for cls in (parent, shifted(parent))
    ),
    *(
        (rf"not for {cls.__name__}\.",
         {"acquisition": cls.with_options(**options),
          "feedback": Censored(-1.0, 2.0, predictive=True)})
        for cls, options in ((GPThompsonSampling, BOUNDS), (RandomizedUpperConfidenceBound, {}))
    ),
    ("no evidence", {"model": LIST, "acquisition": OF_LIST, "feedback": CENSORED}),
    ("list of priors|no evidence|needs",
     {"model": LIST, "acquisition": WIDTH, "feedback": CENSORED}),
    ("in the units of outcomes",
     {"feedback": Censored(-1.0, 2.0, fill="soft"), "acquisition": igp(units="prior")}),
    ("for one reward function",
     {"feedback": CENSORED, "acquisition": igp(any_lambda=True, variation=0.1)}),
    ("with Censored, the minimum.*use Arms",
     {"domain": BOX, "feedback": Censored(minimum=-1e50, outcome_bound=2.0, max_delay=3)}),
    # feedback and constraints
    ("has minimum_proxy=", {"feedback": Censored(minimum_proxy=1.0), "constraints": RELABELED}),
    ("known minimum",
     {"feedback": Censored(minimum_proxy=1.0), "acquisition": WIDTH, "constraints": RELABELED}),
    ("has on_lower='lower'",
     {"feedback": Censored(-1.0, 1.0, on_lower="lower"), "constraints": RELABELED}),
    ("Hallucinated", {"feedback": Censored(0.0, 1.0), "constraints": RELABELED}),
    ("no constraint_bounds=, but there are 2",
     {"feedback": Censored(0.0, 1.0), "constraints": TWO}),
    ("for 1, but there are 2",
     {"feedback": Censored(0.0, 1.0, constraint_bounds=((0.0, 1.0),)), "constraints": TWO}),
    ("no constraints", {"feedback": Censored(0.0, 1.0, constraint_bounds=PAIRS)}),
    ("has no constraint_bounds=, but there are 2 constraints: .* from 0",
     {**OF_TWO, "feedback": Censored(0.0, 1.0),
      "acquisition": LagrangianUpperConfidenceBound.with_options(**BOUNDS)}),
    ("for 1, but there are 2",
     {**OF_TWO, "feedback": Censored(0.0, 1.0, constraint_bounds=((0.0, 1.0),))}),
    ("needs outcome_bound=",
     {**OF_TWO, "feedback": Censored(0.0),
      "acquisition": LagrangianUpperConfidenceBound.with_options(**BOUNDS)}),
    ("as published",
     {**OF_TWO, "feedback": Censored(0.0, 3.0, constraint_bounds=PAIRS, predictive=True)}),
    ("posterior_transform=, which does not go",
     {**OF_TWO, "feedback": Censored(0.0, 3.0, constraint_bounds=PAIRS),
      "acquisition": LagrangianUpperConfidenceBound.with_options(
          width=1.0, posterior_transform=AffineOutcomes(torch.eye(3).double()))}),
    # constraints
    ("Lagrangian", {"constraints": SEPARATE}),
    *(
        (words, {"acquisition": cls.with_options(width=1.5, **more), **settings})
        for parent in (LagrangianUpperConfidenceBound, LagrangianThompsonSampling)
        for words, cls, more, settings in (
            ("weighs constraints, but the loop has none", parent, {}, {}),
            ("weighs constraints, but", shifted(parent), {}, {}),
            ("must not penalize again", parent, {}, {"constraints": RELABELED}),
            ("must not penalize again", shifted(parent), {}, {"constraints": RELABELED}),
            ("models reward and constraints", shifted(parent), {}, {"constraints": SEPARATE}),
            ("Leave them out", parent, {"multipliers": [1.0]}, {"constraints": SEPARATE}),
        )
    ),
    ("models=", {"model": LIST.candidates[1], "constraints": FRESH}),
    ("under one model|EvidenceRestart",
     {"model": None, "constraints": FRESH, "restart": EvidenceRestart()}),
    # lists of priors and learned models
    ("penalized outcomes", {"model": LIST, "acquisition": OF_LIST, "constraints": RELABELED}),
    ("changes the noise or the kernel",
     {"model": LIST, "acquisition": OF_LIST, "forgetting": ExponentialWeights(0.9)}),
    ("changes the noise or the kernel",
     {"model": LIST, "acquisition": OF_LIST, "forgetting": TimeVaryingKernel(0.1)}),
    ("fixed hyperparameters",
     {"model": LEARNED, "forgetting": SlidingWindow(9)}),
    ("learns its scale",
     {"model": BanditGP.with_kernel(RBFKernel(), 0.04, input_transform=Normalize(1)),
      "forgetting": SlidingWindow(9)}),
    ("made before the outcomes", {"model": LEARNED, "restart": EvidenceRestart()}),
    *(
        ("FittedSingleTaskGP, the default model",
         {"domain": BOX, "model": None, "acquisition": None, "forgetting": forgetting})
        for forgetting in (ExponentialWeights(0.9), TimeVaryingKernel(0.1))
    ),
    # the domain
    ("box", {"domain": BOX, "acquisition": TopTwoThompsonSampling.with_options()}),
    ("has few points",
     {"domain": Space({"rate": Float(0.0, 1.0)}),
      "acquisition": TopTwoThompsonSampling.with_options()}),
    *(
        ("the domain|the box has|num_arms",
         {"domain": domain, "acquisition": cls.with_options(**options)})
        for domain, cls, options in (
            (BOX, RandomizedUpperConfidenceBound, {}),
            (BOX, RandomizedUpperConfidenceBound, {"num_arms": 2}),
            (ARMS, GPUpperConfidenceBound, {"num_arms": 1}),
            (BOX, GPUpperConfidenceBound, {"num_arms": 1000}),
            (BOX, GPUpperConfidenceBound,
             {"smoothness_a": 1.0, "smoothness_b": 5.0, "dim": 1, "side_length": 0.1}),
            (Space({"n": Integer(1, 15)}), RandomizedUpperConfidenceBound, {"num_arms": 10}),
        )
    ),
    ("has dim=1",
     {"domain": BOX, "context_dim": 1,
      "acquisition": ChangePointUpperConfidenceBound.with_options(
          dim=1, horizon=100, smoothness=2.5)}),
    ("detector of the reward",
     {"domain": Box([(0.0, 1.0)] * 2), "acquisition": WIDTH,
      "restart": ChangePointRestart(detector=ChangePointDetector(
          MaternKernel(nu=2.5, ard_num_dims=3), threshold=PowerThreshold(scale=1.0)))}),
    # repeats
    ("above 1", {"repeats": 1.0}),
    ("repeats", {"repeats": math.nan}),
    ("fixed kernel", {"repeats": 1.5, "model": LEARNED}),
    ("fixed kernel", {"repeats": 1.5, "model": None}),
    ("standard deviation", {"repeats": 1.5, "acquisition": RandomSearch()}),
    ("drifts", {"repeats": 1.5, "forgetting": TimeVaryingKernel(0.1)}),
    ("multipliers", {"repeats": 1.5, "constraints": RELABELED}),
    # signs
    (r"acquisition has maximize=False, and the loop maximize=False.*Leave maximize= out",
     {"maximize": False,
      "acquisition": GPUpperConfidenceBound.with_options(width=1.0, maximize=False)}),
    (r"has minimum=1.0.*Pass feedback=Censored",
     {"maximize": False,
      "acquisition": CensoredUpperConfidenceBound.with_options(minimum=1.0, width=1.0)}),
    (r"prior_mean is 2 for the cost and for each constraint",
     {"maximize": False, "acquisition": WEIGHED, "constraints": SEPARATE,
      "model": BanditGP.with_kernel(RBFKernel(), 0.04, prior_mean=2.0)}),
    ("num_initial is -1", {"num_initial": -1}),
    (r"acquisition is 'fast'; .* 'best' and 'earned'", {"acquisition": "fast"}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "settings"), TOGETHER, ids=range(len(TOGETHER)))
def test_what_does_not_go_together_is_refused_with_its_reason(
    words: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=words):
        make(**settings)


KINDS: list[tuple[str, dict[str, Any]]] = [
    ("domain must be", {"domain": [[0.0], [1.0]]}),
    (r"built SingleTaskGP.*callable \(X, Y\)", {"model": SingleTaskGP(X, X)}),
    (r"with_candidates\(\[\.\.\.\]\) for a list", {"model": [PRIOR], "acquisition": OF_LIST}),
    (r"GPUpperConfidenceBound\.with_options", {"acquisition": GPUpperConfidenceBound}),
    ("built UpperConfidenceBound",
     {"acquisition": UpperConfidenceBound(SingleTaskGP(X, X), beta=1.0)}),
    *(
        (rf"BoTorch's class {cls.__name__}, .*lambda model, X_pending, best: ",
         {"acquisition": cls})
        for cls in (UpperConfidenceBound, BoTorchsImprovement, PosteriorMean)
    ),
    ("seed must be", {"seed": 0.5}),
    ("seed is masked", {"seed": np.ma.array(3, mask=True)}),
    ("maximize", {"maximize": 0}),
    ("feedback is 'censored'", {"feedback": "censored"}),
    ("constraints is 3", {"constraints": 3}),
    ("ChangePointRestart", {"restart": DETECTOR}),
    ("restart is 3", {"restart": 3}),
    ("Pass EvidenceRestart", {"restart": EvidenceDetector()}),
    (r"no argument 'objective'\. Pass acquisition='best'", {"objective": "best"}),
    ("no argument 'minimize'. To minimize, pass maximize=False.", {"minimize": True}),
    ("no argument 'direction'. To minimize, pass maximize=False.", {"direction": "minimize"}),
    (r"no argument 'maximze'. Did you mean 'maximize'\?", {"maximze": False}),
    ("no argument 'zzz'. It has domain, model, ", {"zzz": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "settings"), KINDS, ids=range(len(KINDS)))
def test_settings_of_the_wrong_kind_are_named(words: str, settings: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=words):
        make(**settings)


def test_the_page_names_what_is_refused_together() -> None:
    page = Path("docs/compatibility.md").read_text("utf-8")
    table = page.split("| Refused together |")[1].split("\n\n")[0]
    for name in (
        *("Censored(", "with_candidates(", "ExponentialWeights", "TimeVaryingKernel", "count="),
        *("refit_every=", "models=", "variation=", "TopTwoThompsonSampling", "Censored(fill="),
        *("RandomizedUpperConfidenceBound", "delay_distribution="),
    ):
        assert name in table, name


def test_each_class_of_the_package_is_played_as_itself_and_subclasses_only_if_they_say_so() -> None:
    for name in acquisitions.__all__:
        cls = getattr(acquisitions, name)
        if isinstance(cls, type) and issubclass(cls, BanditAcquisition) and cls.defines_rule:
            assert cls.played_as is cls
            assert shifted(cls).played_as is None
    assert Wider.played_as is Wider
    wider = Wider.with_options(**BOUNDS)
    assert make(acquisition=wider).ask().diagnostics["width"] == 3.0
    rule = MultiplicativeEpochs(1, 4, surrogate="fresh")
    gaps = make(acquisition=wider, constraints=rule).guarantee().reasons
    assert any("inner algorithm is IGP-UCB" in gap for gap in gaps)
    # a changed subclass with multipliers of its own needs no constraints
    own = shifted(LagrangianUpperConfidenceBound).with_options(multipliers=[1.0], width=1.0)
    make(acquisition=own)


# --- what is asked --------------------------------------------------------------------------------

FEW = Arms([[0.0, 1.0], [0.5, 1.0], [1.0, 2.0], [1.5, 2.0], [2.0, 3.0]])
WHOLE = Box([(0.0, 1.0), (0.0, 1.0), (0.0, 3.0)], integer_dims=[2])
SPACE = Space({"x": Float(0.0, 1.0), "k": Categorical(["a", "b"]), "c": Fixed(3)})
SUM = Box(
    [(0.0, 1.0)] * 2, inequality_constraints=[([0, 1], [-1.0, -1.0], -1.0), ([1], [1.0], 0.2)]
)
POINT = [0.5, 0.5, 1.0]
ASKED: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (FEW, {"available": []}, ValueError, "available is empty"),
    (FEW, {"available": [5]}, ValueError, "available names arm 5, which does not exist; pass num"),
    (FEW, {"available": [-1]}, ValueError, "available names arm -1"),
    (FEW, {"available": [True, 2]}, TypeError, "available has the shape"),
    (FEW, {"available": 3}, TypeError, "available is 3; pass numbers of arms"),
    (FEW, {"available": [True, False]}, ValueError, "available has 2 truth values, but there are"),
    (FEW, {"available": [[0.25, 1.0]]}, ValueError, "available has the row .* not one of the 5"),
    (FEW, {"available": [[0.0]]}, ValueError, "available must be a matrix with 2 columns"),
    (FEW, {"available": [[0.0], [0.0, 1.0]]}, ValueError, "available has rows of different len"),
    (FEW, {"available": FEW.choices.float()}, TypeError, "available"),
    (FEW, {"available": [False] * 5}, ValueError, "available leaves none of the 5 arms"),
    (FEW, {"available": [1], "avoid": [1]}, ValueError, "available, avoid leave none of the 5"),
    (FEW, {"available": np.ma.array([0, 1], mask=[0, 1])}, TypeError,
     "available is an array with 1 masked"),
    (FEW, {"available": [[np.float32(0.25), 1.0]]}, TypeError,
     r"available\[0\]\[0\] is a float32 number"),
    (FEW, {"avoid": range(5)}, ValueError, "avoid leaves none of the 5 arms"),
    (FEW, {"avoid": [7]}, ValueError, "avoid names arm 7"),
    (FEW, {"fixed": {1: 2.5}}, ValueError, "no arm has 2.5 in column 1; there are 1, 2, 3"),
    (FEW, {"fixed": {2: 1.0}}, ValueError, "fixed names column 2; the columns are 0 to 1"),
    (FEW, {"fixed": {"price": 1.0}}, TypeError, "fixed names 'price', but the domain has no nam"),
    (FEW, {"fixed": {0: 0.0, 1: 3.0}}, ValueError, "fixed leaves none of the 5 arms"),
    (WHOLE, {"fixed": {0: 1.5}}, ValueError, r"fixed\[0\] is 1.5, outside \[0.0, 1.0\]"),
    (WHOLE, {"fixed": {2: 1.5}}, ValueError, r"fixed\[2\] is 1.5; this dimension takes whole"),
    (WHOLE, {"fixed": {3: 0.5}}, ValueError, "fixed names column 3; the columns are 0 to 2"),
    (WHOLE, {"fixed": {-1: 0.5}}, ValueError, "a column of fixed"),
    (WHOLE, {"fixed": {0: math.inf}}, ValueError, r"fixed\[0\]"),
    (WHOLE, {"fixed": {0: "much"}}, TypeError, r"fixed\[0\]"),
    (WHOLE, {"fixed": [0.5]}, TypeError, r"fixed is \[0.5\]. Pass a dict from columns"),
    (WHOLE, {"avoid": [[0.5, 0.5, 9.0]]}, ValueError, r"avoid\[0\]\[2\] is 9.0, outside"),
    (WHOLE, {"avoid": POINT}, ValueError, r"avoid\[0\]"),
    (WHOLE, {"avoid": 0.5}, TypeError, "avoid is 0.5; pass points"),
    (WHOLE, {"avoid": torch.zeros(3, dtype=torch.float64)}, ValueError, "avoid must be a matrix"),
    (WHOLE, {"avoid": torch.zeros(2, 3)}, TypeError, "avoid"),
    (WHOLE, {"avoid": [[math.nan, 0.5, 1.0]]}, ValueError, "avoid"),
    (WHOLE, {"available": [0, 1]}, ValueError, r"available\[0\]"),
    (WHOLE, {"available": [[0.5, 0.5, 0.5]]}, ValueError, r"available\[0\]\[2\] is 0.5; this dim"),
    (WHOLE, {"available": [POINT], "avoid": [POINT]}, ValueError,
     "avoid leaves no point: all 1 candidates"),
    (WHOLE, {"available": [POINT], "fixed": {0: 0.25}}, ValueError,
     "available and fixed leave no point"),
    (SPACE, {"fixed": {"z": 1.0}}, ValueError, "fixed names 'z', which is not a parameter"),
    (SPACE, {"fixed": {0: 1.0}}, ValueError, "fixed names 0, which is not a parameter"),
    (SPACE, {"fixed": {"k": "d"}}, ValueError, "'k'"),
    (SPACE, {"fixed": {"c": 4}}, ValueError, "'c'"),
    (SPACE, {"fixed": {"x": 2.0}}, ValueError, "parameter 'x' is 2.0, outside"),
    (SPACE, {"fixed": ["x"]}, TypeError, "fixed is .*. Pass a dict from names"),
    (SPACE, {"available": {"x": 0.5, "k": "a"}}, TypeError, "available is .*; pass points"),
    (SPACE, {"available": [{"x": 0.5}]}, ValueError, "parameter 'k' is missing"),
    (SUM, {"fixed": {1: 0.1}}, ValueError, r"leaves no point: inequality_constraints\[1\] is vio"),
    (SUM, {"fixed": {0: 0.9}}, ValueError, "leaves no point: inequality_constraints and"),
    (SUM, {"fixed": {0: 0.5, 1: 0.7}}, ValueError, r"leaves no point: inequality_constraints\[0"),
    (BOX, {"context": [0.1]}, ValueError, "context_dim=0"),
    (BOX, {"context": 2}, ValueError, r"2, but .*call ask\(\)"),
    (BOX, {"at": math.nan}, ValueError, "at is nan; it must be finite"),
    (BOX, {"at": "12"}, TypeError, "at must be one number, got the text '12'"),
    (BOX, {"at": datetime.datetime(2026, 1, 1)}, TypeError, "at must be one number, got datetime"),
]  # fmt: skip


@pytest.mark.parametrize(("domain", "given", "error", "words"), ASKED, ids=range(len(ASKED)))
def test_what_cannot_be_asked_leaves_the_storage_as_it_was(
    domain: Any, given: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    with make(domain=domain, model=None, acquisition=RandomSearch(), storage=path) as loop:
        before = path.read_bytes()
        with pytest.raises(error, match=words):
            loop.ask(**given)
        assert loop.history.num_queries == 0
        assert path.read_bytes() == before
        loop.ask()


@pytest.mark.parametrize(
    ("context", "error", "words"),
    [
        (None, ValueError, "context is missing"),
        (torch.tensor([0.1, 0.2]).double(), ValueError, "vector of length 1"),
        (torch.tensor([0.1]), TypeError, "float64"),
        ([float("nan")], ValueError, "nan"),
        (np.ma.array([0.1], mask=[True]), TypeError, "context is an array"),
    ],
)
def test_bad_contexts_are_refused_before_anything_is_recorded(
    context: Any, error: type[Exception], words: str
) -> None:
    loop = make(context_dim=1)
    for call in (loop.ask, lambda context: loop.attach([0.0], 1.0, context=context)):
        with pytest.raises(error, match=words):
            call(context)
    assert loop.history.num_queries == 0


@pytest.mark.parametrize("limits", [{"available": [0, 1]}, {"fixed": {0: 0.2}}, {"avoid": [4]}])
def test_restarts_that_look_everywhere_go_with_no_limits(limits: dict[str, Any]) -> None:
    loop = make(restart=ChangePointRestart(detector=DETECTOR))
    with pytest.raises(ValueError, match="cannot go with ChangePointRestart"):
        loop.ask(**limits)
    assert loop.history.num_queries == 0


# --- what is told ---------------------------------------------------------------------------------

NAN, MASKED = float("nan"), np.ma.array([0.1, 0.2], mask=[False, True])
TOLD: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
    ({}, {"reward": NAN}, ValueError, r"reward is nan.*fail\(query_id\)"),
    ({}, {"reward": np.float32("inf")}, ValueError, r"reward is inf.*fail\(query_id\)"),
    ({}, {"reward": "high"}, TypeError, "reward must be one number"),
    ({}, {"constraints": [1.0]}, ValueError, "there are no constraints"),
    ({}, {"at": NAN}, ValueError, "at is nan"),
    # weights
    ({}, {"count": 0}, ValueError, "count is 0; it must be at least 1"),
    ({}, {"count": True}, TypeError, "count must be an integer, got True"),
    ({}, {"count": 3.0}, TypeError, "count must be an integer, got 3.0"),
    ({}, {"noise": 0.0}, ValueError, "noise is 0.0; it must be greater than 0"),
    ({}, {"noise": NAN}, ValueError, "noise is nan"),
    ({}, {"noise": 1e60}, ValueError, "noise is 1e.60"),
    ({}, {"noise": True}, TypeError, "noise is True"),
    ({}, {"noise": torch.tensor([0.1, 0.2])}, TypeError, "noise must be"),
    ({}, {"count": 2, "noise": 0.1}, ValueError, "give only one of them"),
    ({}, {"count": 10**9}, ValueError, "noise variance of the row 4e-11"),
    ({}, {"noise": 1e-11}, ValueError, "Tell a smaller count or a larger noise"),
    *(
        (settings, given, ValueError, words)
        for settings, words in (
            ({"feedback": Censored(-3.0, 6.0, max_delay=3)}, "feedback=Censored"),
            ({"restart": ChangePointRestart(detector=DETECTOR, exploration=0.1)},
             "restart=ChangePointRestart"),
            ({"acquisition": igp(information_gain=WaterFillingGain(torch.eye(6).double(), 0.04))},
             "information_gain= bounds the gain"),
            ({"model": LEARNED}, "refit_every=3"),
            ({"model": function_of_the_users}, "function of inputs and outcomes"),
            ({"model": OwnIdea([[0.0], [1.0]])}, "OwnIdea, a function of inputs"),
        )
        for given in ({"count": 5}, {"noise": 0.1})
    ),
    ({"model": LIST, "acquisition": WIDTH}, {"noise": 0.1}, ValueError, "different noise"),
    ({"restart": EvidenceRestart(candidates=LIST)}, {"noise": 0.1}, ValueError, "different noise"),
    ({"model": None, "constraints": FRESH}, {"constraints": [0.0], "count": 3}, ValueError,
     "models="),
    # constraint values
    *(
        ({"constraints": TWO}, {"constraints": values}, error, words)
        for values, error, words in (
            (None, ValueError, r"Pass constraints=\[\.\.\.\]"),
            ([1.0], ValueError, "constraints"),
            ([0.1, NAN], ValueError, "constraints"),
            ("many", TypeError, "constraints"),
            (MASKED, TypeError, "constraints is an array with 1 masked"),
            ([0.1, np.ma.masked], TypeError, r"constraints\[1\] is masked"),
            (np.array([0.1, 1j]), TypeError, "constraints has dtype complex128"),
            ([0.0, -1e51], ValueError, r"constraints\[1\] is -1e\+51"),
            ([1e40, 0.0], ValueError, "which AdditiveEpochs turns into"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "given", "error", "words"), TOLD, ids=range(len(TOLD)))
def test_what_cannot_be_told_is_refused_before_anything_is_recorded(
    settings: dict[str, Any],
    given: dict[str, Any],
    error: type[Exception],
    words: str,
    tmp_path: Path,
) -> None:
    is_named = settings.get("model") is not function_of_the_users
    loop = make(**settings, storage=tmp_path / "run.db" if is_named else None)
    query = loop.ask()
    before = (tmp_path / "run.db").read_bytes() if is_named else b""
    with pytest.raises(error, match=words):
        loop.tell(query.id, **{"reward": 0.5, **given})
    with pytest.raises(error, match=words):
        loop.attach(ARMS.choices[0], **{"reward": 0.5, **given})
    assert (loop.history.num_queries, loop.history.num_pending) == (1, 1)
    assert not is_named or (tmp_path / "run.db").read_bytes() == before
    num_constraints = loop.settings.num_constraints
    loop.tell(query.id, 0.5, [0.1] * num_constraints if num_constraints else None, count=1)


ATTACHED: list[tuple[dict[str, Any], Any, dict[str, Any], type[Exception], str]] = [
    ({}, [0.51], {}, ValueError, "x has the row"),
    ({}, [0.2], {"reward": None, "constraints": [0.1]}, ValueError, "constraints is .*reward"),
    ({}, [0.2], {"reward": None, "count": 3}, ValueError, "count is 3, but reward is missing"),
    ({}, [0.2], {"reward": None, "noise": 0.1}, ValueError, "noise is 0.1, but reward"),
    ({}, [0.2], {"context": [0.1]}, ValueError, "context"),
    ({"domain": BOX}, [1.5], {}, ValueError, "outside"),
    ({"domain": BOX}, [0.5, 0.5], {}, ValueError, "length 1"),
    ({"domain": BOX}, [NAN], {}, ValueError, "is nan"),
    ({"domain": BOX}, X, {}, ValueError, r"x has 2 rows.*one"),
    ({"domain": BOX}, X.tolist(), {}, ValueError, r"x has 2 rows.*one"),
    ({"domain": SPACE, "model": None, "acquisition": None}, [{"x": 0.5}], {}, ValueError,
     "x has 1 row"),
    ({"domain": WHOLE}, np.ma.array([0.1, 0.2, 0.3], mask=[0, 1, 0]), {}, TypeError,
     r"x is an array .* \[1\]"),
    ({"domain": WHOLE}, np.array([1j, 0.2, 0.3]), {}, TypeError, "x has dtype complex"),
    ({"domain": WHOLE}, [0.1, np.float32(0.2), 1.0], {}, TypeError, r"x\[1\] is a float32 number"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "x", "given", "error", "words"), ATTACHED, ids=range(len(ATTACHED))
)
def test_what_cannot_be_attached_records_nothing(
    settings: dict[str, Any], x: Any, given: dict[str, Any], error: type[Exception], words: str
) -> None:
    loop = make(**settings)
    with pytest.raises(error, match=words):
        loop.attach(x, **{"reward": 0.5, **given})
    assert loop.history.num_queries == 0


def test_beyond_the_horizon_nothing_is_asked() -> None:
    loop = make(horizon=1)
    loop.attach([0.0])
    for call in (loop.ask, lambda: loop.attach([0.0], 1.0)):
        with pytest.raises(RuntimeError, match="horizon=1 rounds were asked"):
            call()
    assert loop.history.num_queries == 1


def test_a_query_in_place_of_its_id_and_a_time_that_is_none_are_refused() -> None:
    loop = make()
    loop.tell(loop.ask().id, 1.0)
    query = loop.ask()
    for call in (
        lambda: loop.tell(query, 1.0),
        lambda: loop.fail(query),
        lambda: loop.retract(query, "wrong"),
    ):
        with pytest.raises(TypeError, match=r"query_id is Query\(id=1.*pass its"):
            call()
    for call in (lambda: loop.fail(query.id, at=NAN), lambda: loop.retract(0, "wrong", at=NAN)):
        with pytest.raises(ValueError, match="at is nan; it must be finite"):
            call()
    assert repr(loop.history) == "History(2 queries, 1 arrived)"


# --- other calls ----------------------------------------------------------------------------------


def built(cls: Any, *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: cls(PRIOR(X, X), *arguments, **options)


def on_threads(loop: Any = None, function: Any = float, workers: Any = 1, **options: Any) -> Any:
    given = make() if loop is None else loop
    return run(given, function, 2, workers=workers, progress=False, **options)


def calibrated(detector: Any = DETECTOR, **options: Any) -> Any:
    return calibrate_threshold(detector, ARMS, horizon=4, false_alarm_rate=0.5, **options)


def of_rule(values: Any) -> Callable[[], Any]:
    return lambda: RELABELED.step(RELABELED.init(), values)


BOTH = ModelListGP(PRIOR(X, X), PRIOR(X, X))
CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Arms(np.ma.array(X.numpy(), mask=[[0], [1]])), "choices is an array"),
    (lambda: Arms(np.array([[1j]])), "choices has dtype complex"),
    (lambda: Box(np.ma.array([[0.0], [1.0]], mask=[[0], [1]])), "bounds is an"),
    (lambda: Box([(0.0, 1.0)], integer_dims=1), r"integer_dims is 1\. Give .* list, as in \[1\]"),
    (lambda: Box([(0.0, 1.0)], integer_dims=[1.0]), "integer_dims entry must be an integer, got 1"),
    (lambda: Box([(0.0, 1.0)], integer_dims=[True]), "integer_dims entry must be .*, got True"),
    (lambda: OracleRestart(change_points=60), "change_points is 60. Pass"),
    (lambda: ChangePointRestart(detector=MaternKernel()), "detector is MaternKernel"),
    (lambda: ChangePointRestart(detector=DETECTOR.on(ARMS)), "without .on"),
    (lambda: ChangePointRestart(detector=DETECTOR, constraint_detectors=DETECTOR),
     "constraint_detectors is a ChangePointDetector. Pass a tuple"),
    (lambda: ChangePointRestart(detector=DETECTOR, constraint_detectors=(3,)),
     r"constraint_detectors\[0\] is 3"),
    (lambda: calibrated(DETECTOR.on(ARMS), noise_std=0.1), "detector is .*without .on"),
    (lambda: calibrated(noise_std=0.1, functions=float), "functions is .*Pass a list"),
    (lambda: calibrated(data=3), "data is 3. Pass a pair"),
    (lambda: Censored(minimum_proxy=True), "minimum_proxy is True; pass"),
    (lambda: AdditiveEpochs(1, 4, surrogate="fresh", models=PRIOR), "models"),
    (lambda: AdditiveEpochs(1, 4, surrogate="fresh", models=[PRIOR, 1.0]), r"models\[1\]"),
    (lambda: on_threads(workers="4"), "workers must be"),
    (lambda: on_threads(RandomSearch()), "loop is RandomSearch.*Pass the BanditLoop"),
    (lambda: on_threads(callbacks=4), "callbacks is 4. Pass functions"),
    (lambda: on_threads(stop=4), "stop is 4. Pass a function"),
    (lambda: run(make(), 3, 1, progress=False), "f is 3. Pass a test problem"),
    (built(ImprovedUpperConfidenceBound, beta=4.0),
     "ImprovedUpperConfidenceBound has no argument 'beta'.*pass width="),
    (built(RandomizedUpperConfidenceBound, beta=4.0),
     r"'beta'.*GPUpperConfidenceBound takes beta="),
    (built(ImprovedUpperConfidenceBound, 4.0), r"BoTorch's beta: .*pass width="),
    (lambda: ImprovedUpperConfidenceBound.with_options(beta=4.0), r"it has .*pass width="),
    (built(ImprovedUpperConfidenceBound, best_f=0.3), r"'best_f'; it has.*\. Leave it out"),
    (lambda: GPUpperConfidenceBound.with_options(best_f=0.3), r"'best_f'; it has.*\. Leave it out"),
    (built(ImprovedUpperConfidenceBound, rkhs_bond=1.0), r"no argument 'rkhs_bond'; .*Did"),
    (built(ImprovedUpperConfidenceBound, foo=1.0), "it has model, rkhs_bound"),
    (lambda: ImprovedUpperConfidenceBound.with_options(rkhs_bond=1.0),
     r"'rkhs_bond'.*Did you mean 'rkhs_bound'\?"),
    (built(GPUpperConfidenceBound, 4.0, None, True, 3),
     "takes model, beta, posterior_transform, maximize by position, but got 5 .*num_arms="),
    (built(ImprovedUpperConfidenceBound, X_pending=[X]),
     r"X_pending must be a torch.Tensor, got list. Pass torch.stack\(X_pending\)"),
    (built(ImprovedUpperConfidenceBound, X_pending=X.numpy()),
     r"got ndarray. Pass torch.as_tensor\(X_pending, dtype=torch.float64\)"),
    (of_rule(0.3), r"Pass torch.tensor\(\[0\.3\], dtype="),
    (of_rule([0.3]), r"Pass torch.as_tensor\(values, dtype=torch.float64\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), CALLS, ids=range(len(CALLS)))
def test_arguments_of_the_wrong_kind_are_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


VALUES: list[tuple[Callable[[], Any], str]] = [
    (lambda: SlidingWindow(0), "length"),
    (lambda: ExponentialWeights(1.0), "discount"),
    (lambda: ExponentialWeights(0.0), "discount"),
    (lambda: TimeVaryingKernel(0.0), "rate"),
    (lambda: TimeVaryingKernel(NAN), "rate"),
    (lambda: AdditiveEpochs(1, 4, models=[PRIOR]), "surrogate='fresh'"),
    (lambda: GPUpperConfidenceBound.with_options(rkhs_bound=2.0), r"one width .*got rkhs_bound=2"),
    (lambda: LagrangianUpperConfidenceBound(BOTH, multipliers=2.0, width=2.0),
     r"list, such as \[2\.0\]"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), VALUES, ids=range(len(VALUES)))
def test_values_out_of_range_are_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("workers", [None, 1])
@pytest.mark.parametrize(
    ("context_dim", "contexts", "words"),
    [
        (0, [[0.0], [1.0]], "context_dim=0"),
        (1, None, "context is missing"),
        (1, [[0.0]], "contexts has 1 rows, but rounds up to 2"),
        (1, [[0.0], [NAN]], r"contexts\[1, 0\] is nan"),
        (1, [[0.0, 1.0], [0.0, 1.0]], "a matrix with 1 columns"),
    ],
    ids=["not wanted", "missing", "too few", "not finite", "too wide"],
)
def test_contexts_of_a_run_are_checked_before_anything_is_asked(
    workers: int | None, context_dim: int, contexts: Any, words: str
) -> None:
    loop = make(context_dim=context_dim)
    with pytest.raises(ValueError, match=words):
        on_threads(loop, workers=workers, contexts=contexts)
    assert loop.history.num_queries == 0


def test_storages_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none is not a folder\. Make it"):
        make(storage=tmp_path / "none" / "run.db")
    with pytest.raises(StorageError, match="it is not a file"):
        make(storage=tmp_path)
    with make(storage=tmp_path / "run.db") as loop:
        loop.ask()
    with pytest.raises(StorageError, match=r"is closed\. Build"):
        loop.ask()


@pytest.mark.parametrize(
    "cls",
    [ImprovedUpperConfidenceBound, GPThompsonSampling, DMMUpperConfidenceBound],
)
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_bounds_of_replicates_and_one_width_for_a_list_are_refused_by_the_first_choice(
    cls: Any, domain: Any
) -> None:
    bounds = {"rkhs_bound": torch.tensor([1.0, 2.0]).double(), "noise_bound": 0.1}
    loop = make(domain=domain, acquisition=cls.with_options(**bounds))
    with pytest.raises((ValueError, TypeError), match=r"rkhs_bound.* shape \(2,\)"):
        loop.ask()
    assert loop.history.num_queries == 0
    one = {**bounds, "rkhs_bound": torch.tensor([2.0]).double()}
    make(domain=domain, acquisition=cls.with_options(**one)).ask()  # one number is one number
    if cls is not GPThompsonSampling:
        of_one = cls.with_options(**BOUNDS)
        loop = make(domain=BOX, model=LIST, acquisition=of_one, num_initial=1)
        loop.tell(loop.ask().id, 0.5)
        with pytest.raises(ValueError, match=r"of priors \(CandidatesUpper"):
            loop.ask()


def test_drift_of_model_and_test_agree_or_a_warning_says_so() -> None:
    drifts = {"forgetting": TimeVaryingKernel(0.01), "acquisition": WIDTH}
    for rate, effect in ((None, "counts as a change"), (0.005, "counts"), (0.02, "harder")):
        restart = EvidenceRestart(drift_rate=rate)
        with pytest.warns(UserWarning, match=rf"{effect}.*Pass EvidenceRestart\(drift_rate=0.01"):
            make(restart=restart, **drifts)


def test_no_guarantee_says_what_would_have_one() -> None:
    bound = CandidatesUpperConfidenceBound.with_options()
    for loop, remedy in (
        (make(domain=BOX, model=LIST, acquisition=bound),
         "on a box pass smoothness_a= and smoothness_b="),
        (make(domain=BOX, model=None, acquisition=None),
         "no theorem here covers expected improvement; ImprovedUpper"),
    ):  # fmt: skip
        loop.tell(loop.ask().id, 0.5)
        (gap,) = loop.guarantee().gaps
        assert remedy in gap
