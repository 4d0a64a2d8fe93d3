import numpy as np
import polars as pl
import pytest
from arch.bootstrap import IIDBootstrap

from nvtrader_pipelines.envs.observations import RegimeObservation
from nvtrader_pipelines.envs.observations.regime_builder import trailing_slopes
from nvtrader_pipelines.evaluation.regime_evaluation import (
    ALL,
    REGIME_EVALUATION,
    SegmentIntervals,
    evaluate_regimes,
    summary,
)
from nvtrader_pipelines.evaluation.statistics import cagr, max_drawdown, sharpe_ratio
from nvtrader_pipelines.market.regimes import SliceAndMergeRegimeParams, segment_regimes
from nvtrader_pipelines.market.tables import REGIMES
from nvtrader_pipelines.portfolio.anchors import market_returns
from nvtrader_pipelines.storage.tables import REGIME_EVALUATION as TABLE
from tests.evaluation.accounts import WHO, equity_curves
from tests.markets import synthetic_panel, synthetic_sessions

N = 600
SLOPES = {"strong_down": -0.01, "weak_down": -0.001, "sideways": 0.001, "strong_up": 0.01}
LENGTH = 20  # sessions of a segment
QUICK = SegmentIntervals(n_draws=200)


def regimes(n_sessions=N, names=tuple(SLOPES), source="synthetic"):
    """Regimes that take turns, `LENGTH` sessions each."""
    segments = np.arange(n_sessions) // LENGTH
    labels = [names[segment % len(names)] for segment in segments]
    return pl.DataFrame(
        {
            "source": source,
            "session": synthetic_sessions(n_sessions).tolist(),
            "regime": labels,
            "segment": segments,
            "slope": [SLOPES[label] for label in labels],
            "market_return": 0.0,
            "index_level": 1.0,
        },
        schema=REGIMES,
    )


CURVES, LABELS = equity_curves(n_sessions=N), regimes()
FOUND = evaluate_regimes(CURVES, LABELS, 252, QUICK)


def row(policy, regime, found=FOUND):
    return found.row(by_predicate=(pl.col("policy") == policy) & (pl.col("regime") == regime), named=True)


def returns_of(policy, regime):
    rows = CURVES.filter(pl.col("policy") == policy).sort("session")["net_return"].to_numpy()
    return rows if regime == ALL else rows[(LABELS["regime"] == regime).to_numpy()]


def test_regime_rows_run_from_fall_to_rise_then_all():
    assert FOUND.schema == pl.Schema(REGIME_EVALUATION)
    assert FOUND["regime"].unique(maintain_order=True).to_list() == [*SLOPES, ALL]
    assert len(FOUND) == 5 * len(WHO)
    assert set(TABLE.schema) == {"spec_hash", "run_id", "experiment", *REGIME_EVALUATION}


@pytest.mark.parametrize("policy", [name for name, _ in WHO])
def test_what_the_regimes_hold_adds_up_to_the_whole(policy):
    parts = FOUND.filter((pl.col("policy") == policy) & (pl.col("regime") != ALL))
    whole = row(policy, ALL)
    assert parts["n_sessions"].sum() == whole["n_sessions"] == N
    assert parts["n_segments"].sum() == whole["n_segments"] == N // LENGTH
    assert parts["share"].sum() == pytest.approx(1.0)
    assert parts["log_return"].sum() == pytest.approx(whole["log_return"], abs=1e-12)
    assert np.expm1(whole["log_return"]) == pytest.approx(np.prod(1.0 + returns_of(policy, ALL)) - 1.0)


@pytest.mark.parametrize("regime", [*SLOPES, ALL])
def test_regime_drawdowns_stay_within_segments(regime):
    own, found = returns_of("ppo", regime), row("ppo", regime)
    assert found["sharpe"] == sharpe_ratio(own, 252)
    assert found["cagr"] == cagr(own, 252)
    stretches = [own] if regime == ALL else np.split(own, len(own) // LENGTH)
    assert found["max_drawdown"] == max(max_drawdown(stretch) for stretch in stretches)


def test_regime_active_returns_are_over_best_baseline_and_anchor():
    best = max(("equal_weight", "buy_and_hold"), key=lambda name: sharpe_ratio(returns_of(name, ALL), 252))
    for regime in (*SLOPES, ALL):
        found = row("ppo", regime)
        assert (found["best_baseline"], found["anchor"]) == (best, "equal_weight")
        for active, other in (("active_best", best), ("active_anchor", "equal_weight")):
            expected = 252 * (returns_of("ppo", regime) - returns_of(other, regime)).mean()
            assert found[active] == pytest.approx(expected, abs=1e-12)
        assert row("equal_weight", regime)["active_best"] is None
        assert row("equal_weight", regime)["best_baseline"] is None


def test_anchor_falls_back_to_equal_weight_then_best_baseline():
    def anchor_of(*baselines):
        who = (("ppo", "ensemble"), *((name, "baseline") for name in baselines))
        return row("ppo", ALL, evaluate_regimes(equity_curves(N, who=who), LABELS, 252, QUICK))

    assert anchor_of("equal_weight", "anchor")["anchor"] == "anchor"
    found = anchor_of("momentum", "buy_and_hold")
    assert found["anchor"] == found["best_baseline"]


def test_intervals_hold_the_estimate_and_only_regimes_have_them():
    for regime in SLOPES:
        found = row("ppo", regime)
        for name in ("sharpe", "active_best", "active_anchor"):
            assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]
        assert found["note"] is None
    found = row("ppo", ALL)
    assert found["sharpe_low"] is None
    assert "walk_forward_evaluation" in found["note"]


@pytest.mark.slow
def test_the_draws_are_those_of_a_bootstrap_of_whole_segments_by_arch():
    generator = np.random.default_rng(0)
    lengths = generator.integers(12, 40, 25)
    segments = np.repeat(np.arange(25), lengths)
    returns = (0.01 * np.repeat(generator.normal(size=25), lengths) + generator.normal(0, 0.01, len(segments)))[:, None]
    parts = np.split(returns[:, 0], np.cumsum(lengths)[:-1])
    oracle = IIDBootstrap(np.arange(25), seed=np.random.default_rng(1))
    ratios = oracle.apply(lambda chosen: sharpe_ratio(np.concatenate([parts[k] for k in chosen]), 252), 4000)[:, 0]
    draws = SegmentIntervals(n_draws=4000).draw(returns, segments, np.random.default_rng(2), 252)
    assert draws.sharpe_interval(0) == pytest.approx(tuple(np.quantile(ratios, [0.025, 0.975])), abs=0.15)
    assert draws.sharpe.mean() == pytest.approx(ratios.mean(), abs=0.05)
    assert draws.active_interval(0, 0) == (0.0, 0.0)


def test_sessions_of_one_segment_do_not_count_as_many():
    """Where a segment's sessions share its luck, a bootstrap of single sessions is far too sure."""
    luck = np.repeat(np.random.default_rng(0).normal(0.0, 0.01, 30), LENGTH)[:, None]
    by_segment, by_session = (
        SegmentIntervals(n_draws=1000).draw(luck, numbers, np.random.default_rng(1), 252).sharpe_interval(0)
        for numbers in (np.arange(N) // LENGTH, np.arange(N))
    )
    assert np.diff(by_segment) > 3 * np.diff(by_session)


def test_the_same_seed_gives_the_same_table_and_another_other_intervals():
    assert evaluate_regimes(CURVES, LABELS, 252, QUICK).equals(FOUND)
    other = evaluate_regimes(CURVES, LABELS, 252, QUICK, seed=1)
    assert not other.equals(FOUND)
    assert other.drop(pl.selectors.ends_with("low", "high")).equals(FOUND.drop(pl.selectors.ends_with("low", "high")))


def with_last(regime, n_sessions):
    """Labels whose last sessions alone are of one regime."""
    return regimes(names=("strong_up",)).with_columns(
        regime=pl.when(pl.int_range(N) >= N - n_sessions).then(pl.lit(regime)).otherwise("regime"),
        segment=pl.when(pl.int_range(N) >= N - n_sessions).then(pl.lit(99)).otherwise("segment"),
        slope=pl.when(pl.int_range(N) >= N - n_sessions).then(SLOPES[regime]).otherwise("slope"),
    )


def test_a_regime_that_the_record_never_met_has_nulls_and_says_so():
    earlier = CURVES.filter(pl.col("session") < synthetic_sessions(N)[N - 15].item())
    found = row("ppo", "weak_down", evaluate_regimes(earlier, with_last("weak_down", 15), 252, QUICK))
    assert (found["n_sessions"], found["share"], found["n_segments"], found["log_return"]) == (0, 0.0, 0, 0.0)
    assert [found[name] for name in ("cagr", "sharpe", "sharpe_low", "max_drawdown", "active_best")] == [None] * 5
    assert found["note"] == "no session in this regime"


@pytest.mark.parametrize(
    ("n_sessions", "note"),
    [
        (1, "one session has no Sharpe ratio and no growth per year; segments: 1, and intervals need at least 5"),
        (15, "segments: 1, and intervals need at least 5"),
    ],
)
def test_a_short_regime_has_what_can_be_computed_and_says_what_cannot(n_sessions, note):
    found = row("ppo", "weak_down", evaluate_regimes(CURVES, with_last("weak_down", n_sessions), 252, QUICK))
    assert (found["sharpe"] is None) == (n_sessions == 1)
    assert found["sharpe_low"] is None
    assert found["active_best"] is not None
    assert found["note"] == note


def test_accounts_without_baselines_have_no_active_return_and_say_so():
    found = row("ppo", "sideways", evaluate_regimes(equity_curves(N, who=(("ppo", "ensemble"),)), LABELS, 252, QUICK))
    assert (found["best_baseline"], found["active_best"], found["anchor"]) == (None, None, None)
    assert found["note"] == "the run has no baseline"


def test_constant_returns_have_sharpe_ratio_zero_in_every_draw():
    flat = CURVES.with_columns(net_return=pl.when(pl.col("policy") == "ppo").then(0.001).otherwise("net_return"))
    found = row("ppo", "sideways", evaluate_regimes(flat, LABELS, 252, QUICK))
    assert (found["sharpe"], found["sharpe_low"], found["sharpe_high"]) == (0.0, 0.0, 0.0)


def test_draws_without_the_differing_segment_have_ratio_zero():
    returns = np.full((200, 1), 1e-4)
    returns[-1] = 0.01
    draws = SegmentIntervals().draw(returns, np.repeat(np.arange(10), 20), np.random.default_rng(0), 252)
    assert (draws.sharpe == 0.0).mean() > 0.3
    assert draws.sharpe.max() < 10.0


def test_an_account_that_lost_everything_has_no_logarithm_and_says_so():
    last = pl.col("session") == synthetic_sessions(N)[-1].item()
    lost = CURVES.with_columns(
        net_return=pl.when(last & (pl.col("policy") == "ppo")).then(-1.0).otherwise("net_return")
    )
    found = row("ppo", ALL, evaluate_regimes(lost, LABELS, 252, QUICK))
    assert (found["log_return"], found["max_drawdown"]) == (None, 1.0)
    assert "all was lost" in found["note"]


@pytest.mark.parametrize(
    ("curves", "labels"),
    [
        (CURVES.clear(), LABELS),
        (CURVES[1:], LABELS),
        (pl.concat([CURVES, CURVES[:1]]), LABELS),
        (CURVES.with_columns(net_return=float("nan")), LABELS),
        (CURVES.with_columns(net_return=-2.0), LABELS),
        (CURVES, LABELS[:-3]),
        (CURVES, LABELS.clear()),
        (CURVES, pl.concat([LABELS, LABELS[:1]])),
        (CURVES, pl.concat([LABELS[:300], regimes(source="other")[300:]])),
    ],
)
def test_what_cannot_be_judged_is_refused(curves, labels):
    with pytest.raises(ValueError):
        evaluate_regimes(curves, labels, 252, QUICK)


def test_too_few_segments_for_an_interval_are_refused():
    with pytest.raises(ValueError):
        QUICK.draw(np.zeros((8, 1)), np.repeat(np.arange(4), 2), np.random.default_rng(0), 252)


def test_the_summary_leaves_out_single_seeds():
    assert set(summary(FOUND)["policy"]) == {"ppo", "equal_weight", "buy_and_hold"}


def test_labels_predict_a_random_walk_and_causal_regimes_do_not():
    """The trap: labels look ahead. What they seem to earn as an observation is all of it the future."""
    by_label, by_regime = [], []
    for seed in range(4):
        panel = synthetic_panel(2500, 3, seed)
        market = market_returns(panel) - market_returns(panel).mean()
        labels = segment_regimes(market, SliceAndMergeRegimeParams())
        rising = labels.labels[labels.segments] >= 2
        by_label.append(sharpe_ratio(np.where(rising[:-1], market[1:], 0.0), 252))
        observation = RegimeObservation()
        cuts = observation.fit(panel, 0, 999).cuts
        known = np.searchsorted(cuts, trailing_slopes(panel, observation.window)) >= 2
        by_regime.append(sharpe_ratio(np.where(known[:-1], market[1:], 0.0), 252))
    assert min(by_label) > 2.0
    assert abs(np.mean(by_regime)) < 0.6
