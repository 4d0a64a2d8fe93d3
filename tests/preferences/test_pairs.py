import datetime as dt

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nvtrader_pipelines.envs.dynamics import market_legs
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.look_ahead import cut_after
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.costs import ProportionalCost, total_cost
from nvtrader_pipelines.preferences.candidates import perturbed, rebalances_within, walk_rebalances, without_learning
from nvtrader_pipelines.preferences.decisions import HORIZON
from nvtrader_pipelines.preferences.outcomes import OutcomeMarket
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.preferences.pairs import (
    MIN_MARGIN,
    counterfactual_pairs,
    holdout_part,
    pair_data,
    pair_part,
    pairs_within,
    person_pairs,
)
from tests.markets import synthetic_panel
from tests.preferences.sample_decisions import a_decision

BPS = 10.0
PANEL = synthetic_panel(n_sessions=700, n_symbols=4)
SPEC = EnvSpec(fill="same_close", rebal_freq=5, vol_penalty=0.0)
WINDOW = (20, 690)


class RandomPolicy:
    """Random weights, the same at equal sessions."""

    def decide(self, panel, t, account):
        return Decision(np.random.default_rng(t).dirichlet(np.ones(len(panel.symbols) + 1)), observation_hash=t)


def market_of(panel=PANEL):
    costs = (ProportionalCost(bps=BPS),)
    return OutcomeMarket(panel, market_legs(panel, "same_close"), total_cost(costs, panel))


def pairs_of(panel=PANEL, window=WINDOW):
    sessions = rebalances_within([window], 5)
    proposed = walk_rebalances(panel, SPEC, RandomPolicy(), sessions)
    rule = walk_rebalances(panel, SPEC, EqualWeight().start(), sessions)
    candidates = {"equal_weight": rule.target, **perturbed(proposed.target, [3])}
    days = panel.sessions[window[0]].item(), panel.sessions[window[1]].item()
    return counterfactual_pairs(proposed, candidates, market_of(panel), policy="tiny", fold=3, window=days)


@pytest.fixture(scope="module")
def pairs():
    return pairs_of()


def net_return(t, held, target):
    """Return of buying `target` at the close of `t` and holding for five sessions, by hand."""
    growth = np.prod(1.0 + PANEL.close_returns[t + 1 : t + 1 + HORIZON], axis=0)
    cost = BPS * 1e-4 * np.abs(target - held)[:-1].sum()
    return (1.0 - cost) * (target[:-1] @ growth + target[-1]) - 1.0


def test_accounts_of_candidates_depend_on_neither_observation_nor_reward():
    env = EnvSpec(lookback=5, vol_penalty=2.0, rebal_freq=3, turnover_cost_bps=40.0, fill="same_close")
    other = env.model_copy(update={"lookback": 60, "vol_penalty": 0.0})
    assert without_learning(env) == without_learning(other) != without_learning(SPEC)
    sessions = rebalances_within([WINDOW], 3)
    walked, plain = (walk_rebalances(PANEL, spec, RandomPolicy(), sessions) for spec in (env, without_learning(env)))
    for name in ("decided_at", "held", "drawdown", "target"):
        np.testing.assert_array_equal(getattr(walked, name), getattr(plain, name))


def test_outcomes_are_net_returns_from_the_same_holdings(pairs):
    assert len(pairs) > 200
    assert pairs.schema == PREFERENCE_PAIR
    for row in pairs.iter_rows(named=True):
        t, held = PANEL.index_of(np.datetime64(row["session"])), np.array(row["held_weights"])
        for side in ("chosen", "rejected"):
            assert row[f"{side}_outcome"] == pytest.approx(
                net_return(t, held, np.array(row[f"{side}_weights"])), abs=1e-12
            )
        assert row["outcome_session"] == PANEL.sessions[t + HORIZON].item()
        assert {row["chosen"], row["rejected"]} >= {"tiny"}
    assert (pairs["margin"] == pairs["chosen_outcome"] - pairs["rejected_outcome"]).all()
    assert pairs["margin"].min() > MIN_MARGIN
    assert set(pairs["source"]) == {"counterfactual"}
    assert (pairs["observation_hash"].to_numpy() % 5 == 0).all()


def test_soft_label_is_the_probability_of_the_margin_over_its_noise(pairs):
    for row in pairs[::40].iter_rows(named=True):
        t = PANEL.index_of(np.datetime64(row["session"]))
        difference = np.array(row["chosen_weights"]) - np.array(row["rejected_weights"])
        past = PANEL.close_returns[max(0, t - 251) : t + 1] @ difference[:-1]
        assert row["noise"] == pytest.approx(np.sqrt(5.0) * past.std())
        assert row["label"] == pytest.approx(stats.norm.cdf(row["margin"] / row["noise"]))
    assert (pairs["weight"] == 1.0).all()
    assert not pairs["swapped"].any()


def test_pairs_know_nothing_after_their_outcome(pairs):
    cut = pairs_of(cut_after(PANEL, 400), (20, 400))
    last = PANEL.sessions[400].item()
    known = pairs.filter(pl.col("outcome_session") <= last)
    assert cut.drop("window").equals(known.drop("window"))


@given(st.dates(dt.date(1990, 1, 1), dt.date(2040, 1, 1)), st.integers(0, 9))
def test_pair_within_a_part_never_touches_another(day, length):
    first = np.datetime64(day)
    (part,) = pair_part(np.array([first]), np.array([first + length]))
    touched = set(holdout_part(np.arange(first, first + length + 1)))
    assert touched == {part} if part else len(touched) == 2


def test_one_quarter_of_five_is_held_out_and_half_of_it_reported():
    days = np.arange(np.datetime64("1990-01-01"), np.datetime64("2015-01-01"))
    shares = {part: float((holdout_part(days) == part).mean()) for part in ("train", "stop", "report")}
    assert shares == pytest.approx({"train": 0.8, "stop": 0.1, "report": 0.1}, abs=0.01)


def decided(decision, t, **weights):
    zero = (0.0, 0.0, 0.0, 0.0, 1.0)
    both = (0.25, 0.25, 0.25, 0.25, 0.0)
    row = {"held_weights": zero, "proposed_weights": both, "chosen_weights": zero, **weights}
    return a_decision(t, decision=decision, session=PANEL.sessions[t].item(), symbols=(*PANEL.symbols, "cash"), **row)


def test_person_is_swapped_where_the_market_contradicts_and_boosted_where_it_agrees():
    rows = [decided("rejected", t) for t in range(20, 600, 7)]
    pairs = person_pairs(rows, {row.decision_id: 0.1 for row in rows}, market_of())
    by_decision = {row.decision_id: row for row in rows}
    assert {True, False} == set(pairs["swapped"])
    for row in pairs.iter_rows(named=True):
        decision = by_decision[row["decision_id"]]
        t = PANEL.index_of(np.datetime64(row["session"]))
        gain = net_return(t, np.array(decision.held_weights), np.array(decision.proposed_weights))
        assert row["swapped"] == (gain > 0.0)
        assert row["weight"] == (1.0 if row["swapped"] else 2.0)
        assert row["chosen_weights"] == list(decision.proposed_weights if gain > 0.0 else decision.held_weights)
        assert (row["drawdown"], row["fold"], row["source"]) == (0.1, None, "person")


def test_approval_prefers_the_proposal_to_the_holdings():
    (row,) = [decided("approved", 100, chosen_weights=(0.25, 0.25, 0.25, 0.25, 0.0))]
    (pair,) = person_pairs([row], {row.decision_id: 0.0}, market_of()).iter_rows(named=True)
    proposal_won = pair["chosen_weights"] == list(row.proposed_weights)
    assert pair["swapped"] == (not proposal_won)
    assert person_pairs([], {}, market_of()).is_empty()


def test_data_of_a_fold_are_its_pairs_and_those_of_people_within_its_training(pairs):
    rows = [decided("rejected", t) for t in range(20, 600, 7)]
    people = person_pairs(rows, {row.decision_id: 0.1 for row in rows}, market_of())
    everything = pl.concat([pairs, people, pairs.with_columns(fold=pl.lit(4, pl.Int32))])
    windows = [(30, 200), (300, 420)]
    data = pair_data(pairs_within(everything, PANEL, 3, windows), PANEL)
    inside = [any(first <= t and t + HORIZON <= last for first, last in windows) for t in data.decided_at]
    assert all(inside)
    expected = everything.filter(pl.col("fold").is_null() | (pl.col("fold") == 3))
    at = np.searchsorted(PANEL.sessions, expected["session"].to_numpy().astype("datetime64[D]"))
    n_inside = sum(any(first <= t and t + HORIZON <= last for first, last in windows) for t in at)
    assert len(data) == n_inside > 100
    assert 0 < data.is_holdout.sum() < 0.3 * len(data)
    assert (data.flip <= 0.5).all()
    other = everything.with_columns(symbols=pl.lit(["AAA", "cash"]))
    assert pairs_within(other, PANEL, 3, windows).is_empty()
