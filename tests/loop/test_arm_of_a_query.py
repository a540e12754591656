"""On a list of arms, a query has the index of its arm, wherever it came from."""

from __future__ import annotations

from pathlib import Path

import torch

from botorch_bandits import Arms, BanditLoop, Box, RandomSearch

CHOICES = torch.tensor([[0.5, 1.0], [0.0, 2.0], [0.5, -3.0]], dtype=torch.float64)


def test_queries_that_are_asked_attached_or_read_have_their_arm(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with BanditLoop(Arms(CHOICES), None, RandomSearch(), storage=path) as loop:
        for _ in range(5):
            query = loop.ask()
            assert torch.equal(CHOICES[query.arm], query.x)
            loop.tell(query.id, 1.0)
        query = loop.attach([0.0, 2.0])
        assert query.arm == 1
        assert "arm=1" in repr(query)
        arms = [query.arm for query in loop.history.queries]
    with BanditLoop(Arms(CHOICES), None, RandomSearch(), storage=path) as again:
        assert [query.arm for query in again.history.queries] == arms
        assert again.history.to_dataframe()["arm"].tolist() == arms
        assert [query.arm for query in again.pending] == [1]


def test_points_of_other_domains_are_no_arms() -> None:
    loop = BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch())
    assert loop.ask().arm is None
    assert "arm" not in loop.history.to_dataframe().columns
