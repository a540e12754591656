"""The campaign against guarantees: a slice of it, what it is made of, and its table.

    python tests/benchmarks claims

plays all of it, and goes on where the table ends; ``--faults`` puts faults back one by one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom

from benchmarks.commands import main
from botorch_bandits.confidence import DesignGain
from botorch_bandits.confidence import theorems as words
from botorch_bandits.confidence.igp_ucb import BoundedNorm
from claims.campaign import COLUMNS, Campaign, Row, read, summary
from claims.command import are_refuted
from claims.edge import EDGES, aligned, quantile
from claims.faults import FAULTS, RUNS, Fault, setting
from claims.judging import REFUTED, SUSPICIOUS, Tally, binomial_tail, mean_tail, pooled_tail
from claims.oracle import deviations
from claims.running import Player, allowed_by, forbidden_by
from claims.settings import AXES, Draws, Setting
from claims.worlds import Noise, World, two_point

# --- a slice of the campaign --------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Rows of a small campaign with a seed of its own."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("claims") / "claims.csv"
    return Campaign(path, num_settings=24, num_runs=3, seed=1).run()


@pytest.mark.slow
def test_a_slice_of_the_campaign_refutes_nothing(rows: list[Row]) -> None:
    held = [row for row in rows if row["holds"]]
    assert len(held) == 24
    assert not are_refuted(rows), summary(rows)
    assert sum(int(row["bands_runs"] or 0) for row in rows) > 50
    assert {row["told"] for row in rows if str(row["told"]).startswith("refused")} == set()


@pytest.mark.slow
def test_a_second_start_goes_on(rows: list[Row], tmp_path: Path) -> None:
    numbers = sorted(row["number"] for row in rows)
    assert numbers == list(range(len(rows)))
    path = tmp_path / "claims.csv"
    first = Campaign(path, num_settings=3, num_runs=1, seed=1).run()
    whole = path.read_text(encoding="utf-8")
    lines = whole.splitlines(keepends=True)
    path.write_text("".join(lines[:3]), encoding="utf-8")
    again: list[int] = []
    Campaign(path, num_settings=3, num_runs=1, seed=1).run(lambda row: again.append(row["number"]))
    assert path.read_text(encoding="utf-8") == whole
    assert again == [row["number"] for row in first][2:]


def test_the_command_plays_what_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "claims.csv"
    arguments = ["claims", "--settings", "2", "--runs", "2", "--quiet", "--out", str(path)]
    assert main([*arguments, "--only", "method=AMM", "played=loop"]) == 0
    assert "Flynn and Reeb 2024" in capsys.readouterr().out
    assert {row["method"] for row in read(path)} == {"AMM"}
    assert tuple(read(path)[0]) == COLUMNS
    assert main([*arguments, "--only", "method=BMM"]) == 2
    assert "there is no method=BMM" in capsys.readouterr().err


@pytest.mark.parametrize("run", RUNS)
def test_printed_numbers_follow_from_the_log(run: str) -> None:
    """Widths, totals and rounds covered are those of an independent computation."""
    assert deviations(RUNS[run]) == {}


# --- at the edge --------------------------------------------------------------------------------


SHARP = {each.method["method"]: each for each in EDGES if each.name.endswith(("lam", "AMM", "DMM"))}
"""The last width of each method."""


@pytest.mark.parametrize("method", ["IGP-UCB, any lam", "AMM", "DMM"])
def test_sharp_bounds_are_almost_reached(method: str) -> None:
    edge = SHARP[method]
    assert 0.98 < aligned(setting(**edge.method, **edge.aligned)) <= 1.0 + 1e-7
    num_rounds = 60 if method == "DMM" else 200
    largest, p = quantile(edge.run_of(**(edge.noise or {})), num_rounds, num_runs=200)
    assert largest > 0.8
    assert p > REFUTED


def test_a_width_that_is_too_narrow_by_fifteen_percent_is_refuted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    width = BoundedNorm.width_at
    monkeypatch.setattr(BoundedNorm, "width_at", lambda *given: 0.85 * width(*given))
    assert quantile(SHARP["IGP-UCB, any lam"].run_of(), 200, 400)[1] < REFUTED


# --- it can fail --------------------------------------------------------------------------------


SMALL = tuple(fault for fault in FAULTS if fault.run)
PLAYED = tuple(fault for fault in FAULTS if fault.settings)


@pytest.mark.parametrize("fault", SMALL, ids=lambda fault: fault.name)
def test_small_faults_are_found_by_the_oracle(fault: Fault) -> None:
    moved = fault.moved()
    assert moved
    for name, (told, right) in moved.items():
        assert abs(told - right) <= max("rounds" in name, 0.3 * abs(right)), name


def test_every_fault_is_looked_for() -> None:
    assert len(SMALL) >= 16
    assert {*SMALL, *PLAYED} == {*FAULTS}


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLAYED, ids=lambda fault: fault.name)
def test_every_fault_is_found_and_nothing_without_it(fault: Fault) -> None:
    assert fault.is_found()
    assert fault.is_quiet_without()


def test_a_fault_that_no_run_meets_is_an_error() -> None:
    of_lists = next(each for each in FAULTS if each.name.startswith("of a list"))
    elsewhere = replace(of_lists, settings=(setting(num_rounds=2),))
    with pytest.raises(RuntimeError, match=r"no run calls CandidateEvidence\.in_force"):
        elsewhere.is_found(num_runs=1)
    gone = replace(elsewhere, patch=(DesignGain, "of", print))
    with pytest.raises(AttributeError, match="has no attribute 'of'"):
        gone.is_found(num_runs=1)


# --- what it is made of -------------------------------------------------------------------------


SHAPES = tuple(AXES["shape"])
KERNELS = ("RBF", "Matern 1/2", "Matern 5/2", "product", "sum", "linear")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_functions_have_exactly_the_norm(kernel: str, shape: str) -> None:
    # five arms far apart, so that the kernel matrix can be inverted
    world = World(setting(kernel=kernel, num_arms=5, lengthscale=0.2, output_scale="large"))
    f = world.of_norm(2.5, np.random.default_rng(3), shape)(world.inputs)
    matrix = world.covariance(world.inputs, world.inputs)
    if kernel == "linear":
        matrix = matrix + 1e-12 * torch.eye(5)
    norm = (f @ torch.linalg.solve(matrix, f)).sqrt()
    assert float(norm) == pytest.approx(2.5, rel=1e-4 if kernel == "linear" else 1e-6)


@pytest.mark.parametrize("domain", ["box, d = 1", "box, d = 2"])
def test_draws_on_a_box_have_the_covariance_of_the_kernel(domain: str) -> None:
    world = World(setting(domain=domain, lengthscale=0.3))
    dim = world.dim
    X = torch.tensor([[0.1] * dim, [0.2] * dim, [0.9] * dim], dtype=torch.float64)
    features = [world._features(X[:, j]) for j in range(dim)]
    product = torch.stack([each @ each.mT for each in features]).prod(0)
    assert torch.allclose(product, world.covariance(X, X), atol=1e-12)
    f = world.drawn(np.random.default_rng(0))
    assert f(X).shape == (3,)
    assert torch.equal(f(X), f(X))


def test_draws_on_arms_have_the_covariance_of_the_kernel() -> None:
    world = World(setting(method="Theorem 1", num_arms=4, lengthscale=0.5))
    stream = np.random.default_rng(0)
    drawn = torch.stack([world.drawn(stream)(world.inputs) for _ in range(4000)])
    found = drawn.mT @ drawn / len(drawn)
    assert torch.allclose(found, world.covariance(world.inputs, world.inputs), atol=0.1)


def test_slopes_exceed_a_level_as_rarely_as_theorem_two_assumes() -> None:
    world = World(setting(method="Theorem 2", domain="box, d = 1", lengthscale=0.3))
    a, b = world.smoothness
    grid = torch.linspace(0.0, 1.0, 400, dtype=torch.float64).unsqueeze(-1)
    stream = np.random.default_rng(1)
    largest = torch.stack(
        [(world.drawn(stream)(grid).diff() * 399.0).abs().amax() for _ in range(400)]
    )
    for level in (5.0, 7.0, 9.0):
        bound = a * math.exp(-((level / b) ** 2))
        assert float((largest > level).double().mean()) <= bound + 3.0 * 0.025
    assert a * math.exp(-((9.0 / b) ** 2)) < 0.2  # the levels say something


@pytest.mark.parametrize("kind", AXES["noise"])
def test_noise_is_sub_gaussian_with_mean_zero(kind: str) -> None:
    noise = Noise(kind, 0.5, np.random.default_rng(0))
    values = np.array([noise.draw(-1.0) for _ in range(40_000)])
    assert abs(values.mean()) < 4.0 * 0.5 / 200.0
    for s in (-4.0, -1.0, 1.0, 4.0):
        assert np.exp(s * values).mean() <= math.exp((0.5 * s) ** 2 / 2.0) * 1.1
    low = {two_point(-0.4, 1.6, np.random.default_rng(i)) for i in range(20)}
    assert low == {-0.4, 1.6}


def test_a_band_that_is_too_narrow_is_found() -> None:
    """The looking itself: the same loop with a tenth of the norm that there is."""
    player = Player(setting(num_rounds=10))
    player.plan.recipe  # noqa: B018  # it is told of this norm
    player.plan.norm = 30.0
    run = player.play(0)
    assert run.holds
    assert run.checks["bands"].failed
    assert "outside by" in run.checks["bands"].told
    assert run.checks["regret"].failed


def test_probabilities_are_read_from_the_text() -> None:
    assert allowed_by("with probability 0.95 the reward", 0.3) == pytest.approx(0.05)
    assert allowed_by("whenever it holds", 0.3) == 0.3


def test_assumptions_rule_adversaries_out() -> None:
    assert forbidden_by(frozenset()) == frozenset()
    assert "failures: by noise" in forbidden_by(frozenset([words.FAILURES_IGNORE_NOISE]))
    assert "failures: by reward" not in forbidden_by(frozenset([words.FAILURES_IGNORE_NOISE]))
    assert "failures: by reward" in forbidden_by(frozenset([words.FAILURES_IGNORE_FUNCTION]))
    assert "contexts: adversarial" not in forbidden_by(frozenset([words.CONTEXTS_IGNORE_NOISE]))
    assert "contexts: adversarial" in forbidden_by(frozenset([words.CONTEXTS_IGNORE_FUNCTION]))


def test_an_adversary_is_tamed_only_where_it_is_assumed_away() -> None:
    free = Player(setting(contexts="adversarial", num_rounds=6)).play(0)
    assert "contexts: adversarial" not in free.forbidden
    tamed = Player(setting(method="Theorem 1", contexts="adversarial", num_rounds=6)).play(0)
    assert "contexts: adversarial" in tamed.forbidden


def test_tails() -> None:
    assert binomial_tail(3, 10, 0.2) == pytest.approx(1.0 - binom.cdf(2, 10, 0.2))
    failed, expected, p = pooled_tail([(2, 10, 0.1), (3, 20, 0.1)])
    assert failed == 5
    assert expected == pytest.approx(3.0)
    assert p == pytest.approx(binom.sf(4, 30, 0.1))
    failed, expected, p = pooled_tail([(1, 1, 0.5), (1, 1, 0.1)])
    assert failed == 2
    assert [expected, p] == pytest.approx([0.6, 0.05])
    assert mean_tail([1.0, 1.1, 0.9, 1.0]) < 1e-3
    assert mean_tail([-1.0, -1.1, -0.9]) > 0.99
    assert Tally(50, 5, 0.1).p_value > SUSPICIOUS > Tally(50, 10, 0.1).p_value


def test_settings_are_a_function_of_the_seed() -> None:
    drawn = [Draws(3).next(number) for number in range(5)]
    assert drawn == [Draws(3).next(number) for number in range(5)]
    assert drawn != [Draws(4).next(number) for number in range(5)]
    rows = [{name: str(value) for name, value in vars(each).items()} for each in drawn]
    assert [Setting.from_row(row) for row in rows] == drawn
