"""Three walks through the package, traced: the files whose functions a loop really calls.

``docs/architecture.md`` tells these walks file by file, and ``test_walks.py`` holds it to what is
traced here. Run ``python tests/walks.py`` to print the files in the order of their first call.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from gpytorch.kernels import MaternKernel

import botorch_bandits as bb

HOME = Path(bb.__file__).parent


def trace(play):
    """Return the package's files whose functions a call runs, in the order of their first call."""
    files = {}

    def profile(frame, event, _):
        if event == "call":
            files.setdefault(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        play()
    finally:
        sys.setprofile(before)
    paths = [Path(file) for file in files]
    return [path.relative_to(HOME).as_posix() for path in paths if HOME in path.parents]


def reward(x):
    return -float(((x - 0.3) ** 2).sum())


def make_loop(domain, **settings):
    return bb.BanditLoop(
        domain=domain,
        model=bb.BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.2),
        acquisition=bb.ImprovedUpperConfidenceBound.with_options(
            rkhs_bound=2.0, noise_bound=0.1, any_lambda=True
        ),
        **settings,
    )


def play_round(loop, jump=0.0):
    query = loop.ask()
    loop.tell(query.id, reward(query.x) + jump)


def box():
    return bb.Box([[0.0, 0.0], [1.0, 1.0]])


def walk_round():
    """A round of IGP-UCB on a box: the fifth, when everything has been built once."""
    loop = make_loop(box())
    for _ in range(4):
        play_round(loop)
    return trace(lambda: play_round(loop))


def walk_censored():
    """A censored outcome on a box: one of two pending queries is told, then the next is asked."""
    loop = make_loop(box(), feedback=bb.Censored(minimum=-2.0, outcome_bound=2.0))
    queries = [loop.ask() for _ in range(3)]
    loop.tell(queries[0].id, reward(queries[0].x))

    def play():
        loop.tell(queries[1].id, reward(queries[1].x))
        loop.ask()

    return trace(play)


def make_restarting_loop():
    choices = torch.linspace(0.0, 1.0, 50, dtype=torch.float64).unsqueeze(-1)
    detector = bb.ChangePointDetector(MaternKernel(nu=2.5), lengthscale=0.2)
    restart = bb.ChangePointRestart(detector=detector)
    return make_loop(bb.Arms(choices), restart=restart)


def jump_of(round_number):
    return 5.0 if round_number > 12 else 0.0


def walk_restart():
    """A restart on arms: from the outcome that shows the change to the next choice by the rule.

    The queries between them are drawn uniformly at random.
    """
    twin, num_rounds = make_restarting_loop(), 0
    while not twin.resets:
        num_rounds += 1
        play_round(twin, jump_of(num_rounds))
    loop = make_restarting_loop()
    for t in range(1, num_rounds):
        play_round(loop, jump_of(t))
    query = loop.ask()

    def play():
        loop.tell(query.id, reward(query.x) + jump_of(num_rounds))
        while (following := loop.ask()).origin != "acquisition":
            loop.tell(following.id, reward(following.x))

    files = trace(play)
    assert [reset.after_round for reset in loop.resets] == [num_rounds]
    return files


WALKS = {"round": walk_round, "censored": walk_censored, "restart": walk_restart}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({name: walk() for name, walk in WALKS.items()}, indent=4))
