import datetime as dt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.evaluation.findings import MIN_DEFLATED
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.promotion.gate import PromotionGate, SharpeDifference, TrackRecord

FIRST = np.datetime64("2020-01-01")
GATE = PromotionGate(intervals=SharpeIntervals(n_draws=400))
MARKET = np.random.default_rng(11).normal(0.0002, 0.01, 1500)


def record(name, net, first=0, **options) -> TrackRecord:
    """Track record whose only baseline earns .2 % less than the market on every session."""
    sessions = FIRST + np.arange(first, first + len(net))
    baselines = {"equal_weight": MARKET[first : first + len(net)] - 0.002}
    return TrackRecord(name, sessions, net, **{"baselines": baselines, "periods_per_year": 252, **options})


def over(verdict, opponent) -> SharpeDifference:
    """Difference to one opponent."""
    found = verdict.against(opponent)
    assert found is not None
    return found


def better(by, noise=0.0, seed=3):
    """Market returns plus a constant and noise."""
    return MARKET + by + np.random.default_rng(seed).normal(0.0, noise, len(MARKET))


def test_gate_promotes_policy_that_earns_more_on_every_session():
    verdict = GATE.judge(record("new", better(0.0005)), record("old", MARKET))
    figures = over(verdict, "active")
    assert verdict.passed
    assert verdict.n_sessions == 1500
    assert 0.0 < figures.low < figures.difference < figures.high
    assert figures.difference == pytest.approx(sharpe_ratio(better(0.0005), 252) - sharpe_ratio(MARKET, 252))
    assert verdict.sentence.startswith("new is promoted: on 1500 sessions, 2020-01-01 to 2024-02-08, Sharpe ratio less")


def test_gate_rejects_policy_with_equal_returns():
    for same in (MARKET.copy(), MARKET * (1.0 + 1e-9)):
        verdict = GATE.judge(record("new", same), record("old", MARKET))
        figures = over(verdict, "active")
        assert not verdict.passed
        assert (figures.difference, figures.low, figures.high) == (0.0, 0.0, 0.0)
        assert figures.is_equal


@pytest.mark.parametrize("share", [0.5, 0.7, 1.7, 2.0])
def test_proportional_returns_have_zero_sharpe_difference(share):
    verdict = GATE.judge(record("new", MARKET * share, baselines={"equal_weight": MARKET}), None)
    figures = over(verdict, "baseline")
    assert not verdict.passed
    assert (figures.difference, figures.low, figures.high) == (0.0, 0.0, 0.0)
    assert figures.is_equal


def test_opposite_returns_have_a_sharpe_difference():
    figures = over(GATE.judge(record("new", MARKET), record("old", -MARKET)), "active")
    assert figures.difference == pytest.approx(2.0 * sharpe_ratio(MARKET, 252))


def test_gate_rejects_difference_whose_interval_holds_zero():
    verdict = GATE.judge(record("new", better(0.0002, noise=0.01)), record("old", MARKET))
    figures = over(verdict, "active")
    assert figures.difference > 0.1
    assert figures.low < 0.0
    assert not verdict.passed
    assert over(verdict, "baseline").passed


def test_gate_rejects_policy_below_its_best_baseline():
    baselines = {"weak": MARKET - 0.001, "strong": better(0.0006)}
    verdict = GATE.judge(record("new", better(0.0005), baselines=baselines), record("old", MARKET))
    best = over(verdict, "baseline")
    assert over(verdict, "active").passed
    assert best.opponent == "strong"
    assert best.sharpe == pytest.approx(sharpe_ratio(better(0.0006), 252))
    assert not verdict.passed


def test_gate_without_active_policy_compares_with_baseline_only():
    verdict = GATE.judge(record("new", MARKET), None)
    assert verdict.passed
    assert verdict.against("active") is None
    assert not GATE.judge(record("new", MARKET, baselines={"equal_weight": MARKET}), None).passed


def test_gate_compares_common_sessions_only():
    late = better(0.0005)[700:]
    early = MARKET[:1100].copy()
    early[:700] = 0.05  # what the old one earned before the new one was tested
    verdict = GATE.judge(record("new", late, first=700), record("old", early))
    assert (verdict.n_sessions, verdict.first_session) == (400, dt.date(2021, 12, 1))
    assert over(verdict, "active").sharpe == pytest.approx(sharpe_ratio(MARKET[700:1100], 252))
    assert verdict.passed


@pytest.mark.parametrize(("n_common", "passed"), [(251, False), (252, True)])
def test_gate_rejects_too_few_common_sessions(n_common, passed):
    candidate = record("new", better(0.0005)[1500 - n_common :], first=1500 - n_common)
    verdict = GATE.judge(candidate, record("old", MARKET))
    assert verdict.passed is passed
    if not passed:
        assert (verdict.n_sessions, verdict.differences) == (251, ())
        assert "252 are required" in verdict.sentence


@pytest.mark.slow
def test_gate_uses_its_least_sessions_and_confidence_level():
    few = record("new", better(0.0005)[:40])
    assert not GATE.judge(few, None).passed
    assert GATE.model_copy(update={"least_sessions": 40}).judge(few, None).passed
    close = record("new", better(0.0003, noise=0.008, seed=5))
    lows = [
        PromotionGate(intervals=SharpeIntervals(confidence_level=level)).judge(close, record("old", MARKET))
        for level in (0.5, 0.99)
    ]
    assert [verdict.passed for verdict in lows] == [True, False]
    for verdict, level in zip(lows, ("50 %", "99 %"), strict=True):
        figures = over(verdict, "active")
        assert f"{figures.high:.2f}] at {level} confidence, lower bound {'' if figures.passed else 'not '}above 0" in (
            verdict.sentence
        )


@pytest.mark.parametrize(
    ("deflated", "required", "passed"),
    [(None, False, True), (0.2, False, True), (None, True, False), (0.949, True, False), (MIN_DEFLATED, True, True)],
)
def test_deflated_ratio_decides_only_where_required(deflated, required, passed):
    gate = GATE.model_copy(update={"require_deflated": required})
    verdict = gate.judge(record("new", better(0.0005)), record("old", MARKET), deflated)
    assert verdict.passed is passed
    assert verdict.deflated == deflated
    assert verdict.sentence.endswith(f"(the gate {'requires' if required else 'does not require'} {MIN_DEFLATED})")


def test_gate_rejects_comparison_on_different_costs():
    verdict = GATE.judge(
        record("new", better(0.0005), terms={"fill": "next_open", "cost": "none"}),
        record("old", MARKET, terms={"fill": "next_open", "cost": "10 bps"}),
    )
    assert not verdict.passed
    assert "the cost is none in its tests and 10 bps in those" in verdict.sentence


@settings(max_examples=20)
@given(by=st.floats(-0.001, 0.001), noise=st.floats(0.0, 0.01), seed=st.integers(0, 50))
def test_gate_passes_iff_every_lower_bound_is_above_zero(by, noise, seed):
    gate = PromotionGate(intervals=SharpeIntervals(n_draws=60))
    verdict = gate.judge(record("new", better(by, noise, seed)), record("old", MARKET))
    assert verdict.passed == all(each.low > 0.0 for each in verdict.differences)
    assert len(verdict.differences) == 2
    assert not verdict.passed or all(each.difference > 0.0 for each in verdict.differences)


def test_gate_rejects_policy_that_stays_in_cash():
    losing = -np.abs(MARKET) - 0.001
    verdict = GATE.judge(record("new", np.zeros(1500), baselines={"equal_weight": losing}), record("old", losing))
    assert not verdict.passed
    assert verdict.sharpe is None
    assert "never vary" in verdict.sentence
    traded = record("new", better(0.0), baselines={"cash": np.zeros(1500), "equal_weight": losing})
    assert over(GATE.judge(traded, None), "baseline").opponent == "cash"


def test_gate_verdict_is_reproducible():
    first, again = (GATE.judge(record("new", better(0.0005)), record("old", MARKET)) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("net", [MARKET[:-1], np.append(MARKET[:-1], np.nan)])
def test_track_record_with_missing_returns_is_refused(net):
    with pytest.raises(ValueError):
        TrackRecord("new", FIRST + np.arange(1500), net, {"equal_weight": MARKET}, 252)


def test_duplicate_session_and_missing_baselines_are_refused():
    sessions = FIRST + np.array([0, 1, 1])
    with pytest.raises(ValueError):
        TrackRecord("new", sessions, np.zeros(3), {}, 252)
    with pytest.raises(ValueError):
        GATE.judge(record("new", MARKET, baselines={}), None)


def test_gate_requires_at_least_two_sessions():
    with pytest.raises(ValidationError):
        PromotionGate(least_sessions=1)


@pytest.mark.parametrize(("drift", "passed"), [(0.00001, True), (0.0, False), (-0.001, False)])
def test_gate_by_best_sharpe_compares_the_ratios_alone(drift, passed):
    gate = PromotionGate(rule="best_sharpe", intervals=GATE.intervals)
    verdict = gate.judge(record("new", better(drift), baselines={"other": MARKET + 0.01}), record("old", MARKET))
    assert verdict.passed == passed
    assert not over(verdict, "baseline").passed
    alone = gate.judge(record("new", better(drift)), None)
    assert alone.passed == (sharpe_ratio(better(drift), 252) > 0.0)
