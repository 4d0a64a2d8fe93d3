import os

import pytest

from nvtrader_pipelines.scoreboard import overall_results
from nvtrader_pipelines.scoreboard.overall_results import (
    pictures_of,
    precompute_results,
    prudex_result,
    validation_result,
)


def refuse(store):
    raise AssertionError("the result is not read from the store")


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("n_cores", "n_results"), [(1, 0), (2, 2)])
def test_another_core_computes_both_results(home, monkeypatch, n_cores, n_results):
    monkeypatch.setattr(os, "cpu_count", lambda: n_cores)
    with precompute_results(home, "contest"):
        pass
    assert len(list(home.judgements.glob("*/result.json"))) == n_results


@pytest.mark.slow
def test_results_of_a_contest_are_computed_once(store, monkeypatch):
    first = prudex_result(store, "contest"), validation_result(store, "contest")
    for name in ("_compute_prudex", "_compute_validation"):
        monkeypatch.setattr(overall_results, name, refuse)
    again = prudex_result(store, "contest"), validation_result(store, "contest")
    drawn, before = pictures_of(again[0]), pictures_of(first[0])
    assert [(n, each.png(), each.svg()) for n, each in drawn.items()] == [
        (n, each.png(), each.svg()) for n, each in before.items()
    ]
    for result, known in zip(again, first, strict=True):
        assert all(result.frames[name].equals(rows) for name, rows in known.frames.items())
    with pytest.raises(AssertionError, match="not read"):
        prudex_result(store, "other")
