"""Reading of the Sharpe ratio curve."""

import pytest

from nvtrader_pipelines.service.readings import read_chart


def entry(name, sharpe, half=0.5, **more):
    return {"experiment": name, "sharpe": sharpe, "sharpe_low": sharpe - half, "sharpe_high": sharpe + half, **more}


def ratio_sentences(rows):
    return read_chart("ratio_curve", {"rows": rows})


def test_newest_is_read_against_the_best_and_zero():
    rows = [entry("a", 0.4, max_drawdown=0.1), entry("b", 0.9, max_drawdown=0.3), entry("c", 0.6, max_drawdown=0.2)]
    newest, zero, drawdown, progress, _ = ratio_sentences(rows)
    assert "c, ranks 2 of 3" in newest
    assert "may be noise" in newest  # a gap of 0.3 in an interval of 0.5
    assert "2 of 3" in zero
    assert "30.0%" in drawdown
    assert "median entry 20.0%" in drawdown
    assert "1 of 3 entries" in progress
    assert "25%" in progress  # 1 of 4


@pytest.mark.parametrize(
    ("best", "advice"),
    [
        ({"deflated_information_ratio": 0.97, "information_ratio": 0.5}, "simulated account; the evidence"),
        ({"deflated_information_ratio": 0.6, "information_ratio": 0.5}, "no further variants"),
        ({"deflated_information_ratio": 0.1, "information_ratio": -0.2, "best_baseline": "anchor"}, "to anchor ("),
        ({}, "compare b"),
    ],
)
def test_advice_follows_the_evidence_over_the_baseline(best, advice):
    assert advice in ratio_sentences([entry("a", 0.4), entry("b", 0.9, **best)])[-1]


def test_interval_that_includes_zero_asks_for_a_longer_test():
    rows = [entry("a", 0.1), entry("b", 0.4, half=0.8)]
    assert "4.0 times as long" in ratio_sentences(rows)[-1]  # (0.8 / 0.4)^2


def test_rows_of_other_markets_and_periods_are_left_out():
    rows = [{**entry("a", 9.0), "period": "all"}, *({**entry(n, 0.5), "period": "from_2010"} for n in "bc")]
    assert "1 of 2" in ratio_sentences(rows)[0]


def test_newest_is_the_one_that_finished_last():
    rows = [{**entry("late", 0.4), "finished_at": "2024-02"}, {**entry("early", 0.5), "finished_at": "2024-01"}]
    assert "newest, late" in ratio_sentences(rows)[0]
