"""Every acquisition function with every model family, in every optimizer of BoTorch."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from botorch.models.model import Model
from other_device import other_device
from pairwise import by_day, pairwise
from torch import Tensor

from botorch_bandits import GPThompsonSampling

from .cases import (
    ACQUISITIONS,
    MODELS,
    OPTIMIZERS,
    SEED,
    AcquisitionCase,
    ModelCase,
    OptimizerCase,
    assert_same,
    can_be_optimized,
    evaluate,
    first_ticks,
    named,
    rows,
    snapshot,
)

pytestmark = [
    # the families are chosen for variety, not for BoTorch's taste in data and starting points
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.BadInitialCandidatesWarning"),
    pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning"),
    pytest.mark.filterwarnings("ignore::botorch_bandits.acquisition.RingingWarning"),
]

VALUED = [case for case in ACQUISITIONS if case.expected is not None]
DRAWN = [case for case in ACQUISITIONS if case.scale_of_draw is not None]


def ids(case: Any) -> str:
    return str(case) if isinstance(case, int) else case.name.replace(", ", ",").replace(" ", "_")


def core_pairs(turn: int) -> pytest.MarkDecorator:
    """A fourth of the pairs of acquisition functions and model families, another each turn.

    Each of the tests below meets each acquisition function and each family, and each pair is met.
    """
    return pytest.mark.parametrize(
        ("acquisition", "case"),
        [
            pytest.param(a, m, id=f"{ids(a)}-{ids(m)}")
            for i, a in enumerate(CORE)
            for j, m in enumerate(MODELS)
            if (i + j + turn) % 4 == 0 and m.kind not in a.refuses
        ],
    )


def of_kinds(acquisition: AcquisitionCase, case: ModelCase, *others: Any) -> bool:
    return case.kind not in acquisition.refuses


# The others differ from these in the formula of the width alone.
CORE = [
    case
    for case in ACQUISITIONS
    if case.name
    in (
        "GP-UCB",
        "IGP-UCB",
        "DMM",
        "EI",
        "GP-TS",
        "GP-TS on choices",
        "censored UCB",
        "censored TS",
    )
]


def points_for(acquisition: AcquisitionCase, case: ModelCase, num_points: int = 6) -> Tensor:
    if acquisition.on_choices:
        return case.choices[:: len(case.choices) // num_points][:num_points]
    return case.points(num_points, seed=3)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-8) -> bool:
    return actual.shape == expected.shape and torch.allclose(
        actual, expected, rtol=tolerance, atol=tolerance
    )


# --- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acquisition", "case", "num_pending"),
    pairwise(VALUED, MODELS, (0, 3), allowed=of_kinds),
    ids=ids,
)
def test_value_is_the_textbook_value(
    acquisition: AcquisitionCase, case: ModelCase, num_pending: int
) -> None:
    # Mean, standard deviation and width all come from the dense computation. Pending points are
    # rows at the posterior mean there; the width has the gain of the observed rows alone.
    model = case.build()
    X_pending = case.points(num_pending, seed=4) if num_pending else None
    acqf = acquisition.make(case, model, X_pending=X_pending)
    x = torch.cat([case.points(6, seed=3), case.points(num_pending, seed=4), rows()[0][:2]])
    expected = acquisition.values(case, case.reference(model), x, X_pending)
    assert close(evaluate(acqf, case, x).detach(), expected)


@pytest.mark.parametrize(
    ("acquisition", "case"), pairwise(DRAWN, MODELS, allowed=of_kinds), ids=ids
)
def test_draw_is_the_plain_draw_scaled_about_the_mean(
    acquisition: AcquisitionCase, case: ModelCase
) -> None:
    model = case.build()
    reference = case.reference(model)
    x = points_for(acquisition, case)
    scaled = evaluate(acquisition.make(case, model), case, x).detach()
    plain_options = {"rkhs_bound": None, "noise_bound": None, "width": 1.0}
    plain = evaluate(acquisition.make(case, model, **plain_options), case, x).detach()
    mean = torch.from_numpy(reference.moments(x.numpy())[0])  # ``members x n``
    scale = torch.from_numpy(acquisition.scale_of_draw(reference)).unsqueeze(-1)
    expected = mean + scale * ((plain.T if case.kind == "batch" else plain) - mean)
    if case.kind == "batch":
        assert close(scaled, expected.T)
    else:  # the draw is one member's: the same at all points
        assert any(close(scaled, member) for member in expected)
    assert not close(scaled, plain, 1e-3)


# --- shapes and refusals --------------------------------------------------------------------


@core_pairs(0)
def test_one_value_a_point_in_any_batch(acquisition: AcquisitionCase, case: ModelCase) -> None:
    acqf = acquisition.make(case)
    x = points_for(acquisition, case)
    values = evaluate(acqf, case, x).detach()
    if case.kind == "batch":
        two = case.build().batch_shape
        together = acqf(x[:2].unsqueeze(-2))  # ``2 x 1 x d``: the first point to the first model
        assert close(together, values[:2].diagonal())
        grid = acqf(x.reshape(3, 2, 1, 2))
        assert close(grid, torch.stack([values[0::2, 0], values[1::2, 1]], dim=-1))
        assert values.shape == (6, *two)
        return
    assert values.shape == (6,)
    assert close(acqf(x.reshape(2, 3, 1, 2)), values.reshape(2, 3))
    assert close(acqf(x.reshape(1, 6, 1, 1, 2)), values.reshape(1, 6, 1))
    one_by_one = torch.cat([acqf(row.unsqueeze(0)) for row in x])  # ``1 x d`` each
    assert close(one_by_one, values)
    assert acqf(x[0].unsqueeze(0)).shape == (1,)


@core_pairs(1)
def test_bad_input_is_refused_and_changes_nothing(
    acquisition: AcquisitionCase, case: ModelCase
) -> None:
    model = case.build()
    acqf = acquisition.make(case, model)
    x = points_for(acquisition, case)
    before = evaluate(acqf, case, x).detach()
    if case.kind != "batch":
        assert acqf(x.reshape(2, 3, 2)).shape == (2,)
    with pytest.raises(TypeError, match=r"X has dtype torch.float32.*X\.double\(\)"):
        acqf(x.float().unsqueeze(-2))
    if case.kind == "single":
        with pytest.raises(TypeError, match=r"X has dtype torch.float32"):
            acqf.describe(x[0].float())
    not_a_number = x[:2].clone()
    not_a_number[1, 0] = torch.nan
    with pytest.raises(ValueError, match=r"X_pending\[1, 0\] is nan.*finite"):
        acqf.set_X_pending(not_a_number)
    with pytest.raises(TypeError, match=r"X_pending has dtype torch.float32"):
        acqf.set_X_pending(x[:2].float())
    with pytest.raises(ValueError, match=r"matrix.*unsqueeze\(0\)"):
        acqf.set_X_pending(x[0])
    with pytest.raises(ValueError, match=r"X_pending\[1, 0\] is nan"):
        acquisition.make(case, model, X_pending=not_a_number)
    assert acqf.X_pending is None
    assert {t.dtype for t in model.state_dict().values() if t.is_floating_point()} == {
        torch.float64
    }
    assert close(evaluate(acqf, case, x), before, 0.0)


@core_pairs(2)
def test_gradient(acquisition: AcquisitionCase, case: ModelCase) -> None:
    if acquisition.on_choices:
        return
    # with pending points, so that the gradient goes through the conditioned model
    acqf = acquisition.make(case, X_pending=case.points(2, seed=4))
    x = case.points(3, seed=3).requires_grad_()
    assert torch.autograd.gradcheck(lambda X: evaluate(acqf, case, X), (x,))


# --- pending points -------------------------------------------------------------------------


@core_pairs(3)
def test_pending_points_start_again_from_the_users_model(
    acquisition: AcquisitionCase, case: ModelCase
) -> None:
    model = case.build()
    x = points_for(acquisition, case)
    first, second = case.points(2, seed=4), case.points(3, seed=6)
    acqf = acquisition.make(case, model)
    empty = evaluate(acqf, case, x).detach()
    acqf.set_X_pending(first)
    with_first = evaluate(acqf, case, x).detach()
    acqf.set_X_pending(second)
    after_both = evaluate(acqf, case, x).detach()
    acqf.set_X_pending(None)
    assert acqf.X_pending is None
    restored = evaluate(acqf, case, x).detach()
    if acquisition.scale_of_draw is not None:
        # a draw does not use pending points: each set has a draw of its own
        draws = torch.stack([empty, with_first, after_both, restored])
        distances = torch.pdist(draws.reshape(4, -1))
        assert distances.min() > 1e-3
        return
    mine = second.clone()
    only_second = acquisition.make(case, model, X_pending=mine)
    mine.fill_(0.0)  # what the caller does with the tensor later does not matter
    assert torch.equal(only_second.X_pending, second)
    assert close(after_both, evaluate(only_second, case, x), 1e-13)
    assert torch.equal(restored, empty)
    assert not close(with_first, empty, 1e-3)
    acqf.set_X_pending(x[:0])  # an empty matrix is no pending point
    assert acqf.X_pending is None
    assert torch.equal(evaluate(acqf, case, x), empty)


# --- the user's model -----------------------------------------------------------------------


@core_pairs(4)
def test_the_users_model_is_never_changed(acquisition: AcquisitionCase, case: ModelCase) -> None:
    model = case.build()
    x = points_for(acquisition, case)
    answer = model.posterior(x).mean.detach()
    before = snapshot(model)
    acqf = acquisition.make(case, model, X_pending=case.points(2, seed=4))
    evaluate(acqf, case, x.clone().requires_grad_()).sum().backward() if (
        not acquisition.on_choices
    ) else evaluate(acqf, case, x)
    acqf.set_X_pending(case.points(3, seed=6))
    evaluate(acqf, case, x)
    acqf.guarantee().explain()
    if case.kind != "batch":
        acqf.describe(x[0])
        named(OPTIMIZERS, "optimize_acqf_discrete").run([acqf], 2, case)
    after = snapshot(model)
    # gradients of the acquisition's value may be left on free parameters: BoTorch's functions do
    for name in list(before):
        if name.endswith(" grad"):
            del before[name], after[name]
    assert_same(before, after)
    assert torch.equal(model.posterior(x).mean, answer)


# --- copies ---------------------------------------------------------------------------------


@core_pairs(5)
def test_copies_give_equal_values(acquisition: AcquisitionCase, case: ModelCase) -> None:
    acqf = acquisition.make(case, X_pending=case.points(2, seed=4))
    x = points_for(acquisition, case)
    before_any_draw = pickle.loads(pickle.dumps(acqf))
    values = evaluate(acqf, case, x).detach()
    pickled, copied = pickle.loads(pickle.dumps(acqf)), copy.deepcopy(acqf)
    for other in (before_any_draw, pickled, copied, acqf.to(torch.float64)):
        assert close(evaluate(other, case, x), values, 1e-12)
        assert torch.equal(other.X_pending, acqf.X_pending)
    # what comes next is the same too, a draw's number among it
    later = case.points(1, seed=8)
    for each in (acqf, pickled):
        each.set_X_pending(later)
    assert close(evaluate(pickled, case, x), evaluate(acqf, case, x).detach(), 1e-12)


@core_pairs(6)
def test_state_dict_carries_the_values_over(acquisition: AcquisitionCase, case: ModelCase) -> None:
    acqf = acquisition.make(case)
    other_model = case.build()
    for name, parameter in other_model.named_parameters():
        if "raw_lengthscale" in name or "raw_noise" in name:
            parameter.data += 0.5
    other = acquisition.make(case, other_model)
    if acquisition.scale_of_draw is not None:
        # BoTorch models answer from stale caches once they were evaluated, but a draw must not
        other.set_X_pending(None)
        acqf.set_X_pending(None)
    other.load_state_dict(acqf.state_dict())
    x = points_for(acquisition, case)
    values = evaluate(acqf, case, x).detach()
    assert close(evaluate(other, case, x), values, 1e-10)
    # the next width is that of the loaded hyperparameters, too
    later = case.points(2, seed=4)
    for each in (acqf, other):
        each.set_X_pending(later)
    assert close(evaluate(other, case, x), evaluate(acqf, case, x).detach(), 1e-10)


# --- optimizers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acquisition", "case", "optimizer", "q"),
    by_day(pairwise(CORE[1:], MODELS, OPTIMIZERS, (1, 3), allowed=can_be_optimized)),
    ids=ids,
)
def test_optimizer(
    acquisition: AcquisitionCase, case: ModelCase, optimizer: OptimizerCase, q: int
) -> None:
    # q = 3 begins with pending points, and they must come back; without any: the next test
    X_pending = case.points(2, seed=4) if q > 1 else None
    check_optimizer(acquisition, case, optimizer, q, X_pending)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=ids)
def test_optimizer_without_pending_points_leaves_none(optimizer: OptimizerCase) -> None:
    acquisition, case = named(ACQUISITIONS, "IGP-UCB"), named(MODELS, "BanditGP")
    check_optimizer(acquisition, case, optimizer, 3, None)


def searched_by(optimizer: OptimizerCase, case: ModelCase, candidates: Tensor) -> Tensor:
    """Return choices that the optimizer may have looked at; candidates are of its kind."""
    assert (case.bounds[0] <= candidates).all()
    assert (candidates <= case.bounds[1]).all()
    if optimizer.searches == "choices":
        assert all((row == case.choices).all(-1).any() for row in candidates)
    if optimizer.searches != "mixed":
        return case.choices
    ticks = first_ticks(case)
    assert set(candidates[:, 0].tolist()) <= set(ticks)
    return case.choices[[value in ticks for value in case.choices[:, 0].tolist()]]


def check_optimizer(  # noqa: C901 - what each optimizer promises
    acquisition: AcquisitionCase,
    case: ModelCase,
    optimizer: OptimizerCase,
    q: int,
    X_pending: Tensor | None,
) -> None:
    model = case.build()
    count = q if optimizer.takes_list else 1
    acqfs = [acquisition.make(case, model, X_pending=X_pending) for _ in range(count)]
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        candidates, values = optimizer.run(acqfs, q, case)
    candidates = candidates.detach()
    assert candidates.shape == (q, 2)
    searched = searched_by(optimizer, case, candidates)
    if acquisition.scale_of_draw is not None:  # two draws may share a maximizer, say a corner
        assert len(torch.unique(candidates, dim=0)) >= min(q, 2)
    if optimizer.restores_pending or q == 1:
        assert (acqfs[0].X_pending is None) == (X_pending is None)
        if X_pending is not None:
            assert torch.equal(acqfs[0].X_pending, X_pending)
    if optimizer.values_together and q > 1:
        assert values.numel() == 1
        if acquisition.scale_of_draw is None:
            expected = value_one_by_one(acquisition, case, model, candidates, X_pending)
            assert close(values.detach().reshape(()), expected, 1e-7)
        return
    # each value is the textbook's at its candidate, given the candidates before it
    values = values.reshape(-1)
    assert values.shape == (q,)
    for i in range(q):
        if optimizer.value_of_last_only and i < q - 1:
            continue
        known = [] if X_pending is None else [X_pending]
        known = [*known, candidates[:i]] if i else known
        pending = torch.cat(known) if known else None
        if acquisition.scale_of_draw is None:
            reference = case.reference(model)

            def given_earlier(x: Tensor, pending=pending, reference=reference) -> Tensor:
                return acquisition.values(case, reference, x, pending)

        else:
            given_earlier = draw_after(
                acquisition, case, model, X_pending, candidates, i, optimizer
            )
            if given_earlier is None:
                continue
        expected = given_earlier(candidates[i : i + 1])
        assert close(values[i : i + 1].detach(), expected, 1e-7)
        if i > 0 and acquisition.scale_of_draw is None:
            # a point is chosen again only where what noise leaves to learn there beats the rest
            nearest = (candidates[:i] - candidates[i]).abs().amax(-1).min()
            assert nearest > 1e-6 or expected >= given_earlier(searched).max() - 1e-6
        if optimizer.name == "optimize_acqf_discrete":  # an exhaustive search finds the best
            chosen = (case.choices.unsqueeze(1) == candidates[:i]).all(-1).any(-1)
            assert expected >= given_earlier(case.choices[~chosen]).max() - 1e-9


def value_one_by_one(
    acquisition: AcquisitionCase,
    case: ModelCase,
    model: Model,
    candidates: Tensor,
    X_pending: Tensor | None,
) -> Tensor:
    """The sum of textbook values, each with the candidates before it pending."""
    reference = case.reference(model)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(candidates)):
        known = [] if X_pending is None else [X_pending]
        known = [*known, candidates[:i]] if i else known
        pending = torch.cat(known) if known else None
        total = total + acquisition.values(case, reference, candidates[i : i + 1], pending)[0]
    return total


def draw_after(
    acquisition: AcquisitionCase,
    case: ModelCase,
    model: Model,
    X_pending: Tensor | None,
    candidates: Tensor,
    index: int,
    optimizer: OptimizerCase,
):
    """The draw that chose candidate ``index``: as many redraws as there were calls before it."""
    if optimizer.value_of_last_only and index > 0:
        return None  # how often it redraws depends on when it stops
    fresh = acquisition.make(case, model, X_pending=X_pending)
    assert isinstance(fresh, GPThompsonSampling)
    parts = [candidates[:index]] if X_pending is None else [X_pending, candidates[:index]]
    known = torch.cat(parts)  # censored draws depend on them
    num_redraws = min(index, 1) if optimizer.takes_list else index
    for _ in range(num_redraws):
        fresh.set_X_pending(known)
    return lambda x: evaluate(fresh, case, x).detach()


# --- other devices --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acquisition", "case", "num_pending"),
    [
        (a, m, 2 * ((i + j) % 2))
        for i, a in enumerate(VALUED)
        for j, m in enumerate(MODELS)
        if (i + j) % 3 == 0 and m.kind not in a.refuses
    ],
    ids=ids,
)
def test_devices_agree(acquisition: AcquisitionCase, case: ModelCase, num_pending: int) -> None:
    X_pending = case.points(num_pending, seed=4) if num_pending else None
    x = case.points(5, seed=3)
    on_cpu = evaluate(acquisition.make(case, X_pending=X_pending), case, x).detach()
    with other_device() as device:
        acqf = acquisition.make(case).to(device)
        acqf.set_X_pending(None if X_pending is None else X_pending.to(device))
        on_device = evaluate(acqf, case, x.to(device)).detach()
        assert on_device.device.type == device
        assert close(on_device.cpu(), on_cpu)
