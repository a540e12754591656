"""Results of an experiment do not depend on how many processes play it."""

import multiprocessing
from functools import partial

import pytest

from papers import build_experiments
from papers.commands import main
from papers.trials import run_pieces


@pytest.mark.parametrize("num_trials", [4])
def test_the_table_is_the_same(tmp_path, num_trials, capsys, monkeypatch):
    # forked ones import nothing; test_papers_are_public.py has those that begin from nothing
    forked = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: forked)
    command = ["experiment", "chowdhury-functions", "--trials", str(num_trials), "--rounds", "5"]
    for workers in (1, 2):
        out = ["--out", str(tmp_path / str(workers)), "--quiet", "--workers", str(workers)]
        assert main([*command, *out]) == 0
    tables = [(tmp_path / name / "table.csv").read_bytes() for name in ("1", "2")]
    assert tables[0] == tables[1]
    pieces = [sorted(p.name for p in (tmp_path / n / "trials").iterdir()) for n in ("1", "2")]
    assert pieces[0] == pieces[1]
    capsys.readouterr()


def test_what_a_piece_raises_comes_back(tmp_path):
    build = partial(build_experiments, "no such experiment")
    with pytest.raises(ValueError, match="no such experiment"):
        run_pieces(build, tmp_path, 2, progress=False)
    with pytest.raises(ValueError, match="num_workers"):
        run_pieces(build, tmp_path, 0, progress=False)
