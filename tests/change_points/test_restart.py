"""When a policy explores and begins anew, against the pseudo-code's counters in exact numbers."""

import math

import pytest

from botorch_bandits.change_points.restart import OracleRestart, Restart


def test_equality_explores_where_floating_point_would_not():
    # with xi = sqrt(3) equality holds at |history| = 3 k^2
    assert not (3 <= 3**0.5 * 3**0.5)  # what a plain comparison says
    for k in range(1, 200):
        assert Restart(exploration=3**0.5).explores(3 * k, 3 * k * k)
        assert not Restart(exploration=3**0.5).explores(3 * k + 1, 3 * k * k)


def test_exploration_rounds_follow_the_pseudo_code():
    uniform = explored = 0
    rounds = []
    for history in range(3000):
        explored = uniform**2 <= 3 * history  # in integers: xi^2 = 3
        assert Restart().explores(uniform, history) is explored
        if explored:
            uniform += 1
            rounds.append(history + 1)
    assert rounds[:5] == [1, 2, 3, 4, 7]
    # the pseudo-code keeps |uniform| near xi sqrt(|history|)
    assert abs(uniform - math.sqrt(3 * 3000)) <= 2


def test_oracle_resets_before_the_round_of_the_new_function():
    restart = OracleRestart(change_points=(3, 7))
    told = [t for t in range(1, 12) if restart.is_told_of_change(t)]
    assert told == [4, 8]


def test_shares_of_delta_add_up():
    restart = Restart()
    shares = [restart.share_of_delta(0.1, segment) for segment in range(20000)]
    assert shares[1] == pytest.approx(6 * 0.1 / (math.pi**2 * 4))
    assert sum(shares) == pytest.approx(0.1, rel=1e-4)
    assert sum(shares) < 0.1
    assert Restart(split_delta=False).share_of_delta(0.1, 5) == 0.1


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="exploration"):
        Restart(exploration=-1.0)
    with pytest.raises(ValueError, match="change_points"):
        OracleRestart(change_points=(5, 3))
    with pytest.raises(ValueError, match="change_points"):
        OracleRestart(change_points=(0,))
