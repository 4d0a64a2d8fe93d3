import math
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.dynamics import hold, holding_period, market_legs
from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.portfolio.costs import ProportionalCost, SquareRootImpact, total_cost
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.preferences.pairs import preference_pairs
from tests.markets import synthetic_panel

EVERY = 5
COSTS = (ProportionalCost(bps=10.0),)


def run_accounts(panel, fill="next_open", seed=0, who=(("ppo", "ensemble"), ("equal_weight", "baseline"))):
    """Action logs of accounts that trade at random every five sessions, and the growth of each step."""
    generator = np.random.default_rng(seed)
    n_names = len(panel.symbols)
    legs = market_legs(panel, resolve_fill(fill, panel))
    rows, growth = [], {}
    for name, kind in who:
        weights = opening_account(n_names).weights[None]
        for step, t in enumerate(range(20, len(panel.sessions) - EVERY, EVERY)):
            target = generator.dirichlet(np.ones(n_names + 1))[None]
            period = holding_period(legs, np.array([t]), EVERY)
            done = hold(weights, target, np.array([True]), period, total_cost(COSTS, panel))
            session = panel.sessions[t].item()
            logged = (values[0].tolist() for values in (target, done.executed, done.trades))
            rows.append((name, kind, 0, step, session, [*panel.symbols, "cash"], *logged))
            growth[name, session] = float(done.growth[0])
            weights = done.weights
    columns = ["policy", "kind", "fold", "step", "session", "symbols", "target_weights", "executed_weights", "trades"]
    return pl.DataFrame(rows, schema=columns, orient="row"), growth


@pytest.fixture(scope="module")
def panel():
    return synthetic_panel(n_sessions=220)


@pytest.fixture(scope="module")
def logs(panel):
    return run_accounts(panel)[0]


@pytest.mark.parametrize(("fill", "opens"), list(product(["next_open", "next_close", "same_close"], [True, False])))
def test_policy_outcome_is_its_accounts_return(fill, opens):
    panel = synthetic_panel(n_sessions=120, opens=opens)
    logs, growth = run_accounts(panel, fill)
    pairs = preference_pairs(logs, panel, COSTS, fill)
    assert len(pairs) > 10
    for row in pairs.iter_rows(named=True):
        side = "chosen" if row["chosen"] == "ppo" else "rejected"
        assert 1.0 + row[f"{side}_outcome"] == pytest.approx(growth["ppo", row["session"]], abs=1e-12)


def test_chosen_has_the_larger_outcome_and_margin_is_the_difference(panel, logs):
    pairs = preference_pairs(logs, panel, COSTS, "next_open")
    assert dict(pairs.schema) == PREFERENCE_PAIR
    assert (pairs["margin"] > 0.0).all()
    assert pairs["margin"].to_list() == (pairs["chosen_outcome"] - pairs["rejected_outcome"]).to_list()
    assert {frozenset(names) for names in pairs.select("chosen", "rejected").rows()} == {
        frozenset(["ppo", "equal_weight"])
    }


def test_pair_weights_are_the_proposals_of_the_session(panel, logs):
    proposed = {(row["policy"], row["session"]): row["target_weights"] for row in logs.iter_rows(named=True)}
    for row in preference_pairs(logs, panel, COSTS, "next_open").iter_rows(named=True):
        assert row["symbols"] == [*panel.symbols, "cash"]
        for side in ("chosen", "rejected"):
            assert row[f"{side}_weights"] == proposed[row[side], row["session"]]


def test_equal_proposals_tie(panel, logs):
    targets = logs.filter(pl.col("policy") == "ppo")["target_weights"]
    twins = pl.concat(
        [
            logs.filter(pl.col("policy") == "ppo"),
            logs.filter(pl.col("policy") == "equal_weight").with_columns(target_weights=targets),
        ]
    )
    assert preference_pairs(twins, panel, COSTS, "next_open").is_empty()


def test_outcomes_fall_with_the_cost(panel, logs):
    cheap, dear = (preference_pairs(logs, panel, (ProportionalCost(bps=bps),), "next_open") for bps in (0.0, 50.0))
    outcomes = [
        sorted((session, name, outcome) for session, name, outcome in sides)
        for sides in (
            pairs.select("session", side, f"{side}_outcome").rows() for pairs in (cheap, dear) for side in ("chosen",)
        )
    ]
    assert sum(outcome for *_, outcome in outcomes[1]) < sum(outcome for *_, outcome in outcomes[0])


@settings(max_examples=25)
@given(share=st.floats(0.0, 0.9), horizon=st.integers(1, 30))
def test_no_earlier_outcome_reaches_into_the_holdout(panel, logs, share, horizon):
    pairs = preference_pairs(logs, panel, COSTS, "next_open", horizon=horizon, holdout_share=share)
    held_out, others = pairs.filter("holdout"), pairs.filter(~pl.col("holdout"))
    if len(held_out) and len(others):
        assert others["outcome_session"].max() < held_out["session"].min()


def test_holdout_is_the_last_fifth_of_the_rebalances(panel, logs):
    pairs = preference_pairs(logs, panel, COSTS, "next_open")
    sessions = logs["session"].unique().sort()
    last_fifth = sessions[-math.ceil(len(sessions) / 5) :]
    assert pairs.filter("holdout")["session"].unique().sort().to_list() == last_fifth.to_list()


def test_outcome_beyond_the_panel_makes_no_pair(panel, logs):
    pairs = preference_pairs(logs, panel, COSTS, "next_open", horizon=40)
    assert pairs["outcome_session"].max() <= panel.sessions[-1].item()
    assert pairs["session"].max() < logs["session"].max()


def test_pair_ids_are_unique_and_reproducible(panel, logs):
    pairs = preference_pairs(logs, panel, COSTS, "next_open")
    shuffled = preference_pairs(logs.sample(fraction=1.0, shuffle=True, seed=1), panel, COSTS, "next_open")
    assert pairs["pair_id"].n_unique() == len(pairs)
    assert pairs.equals(shuffled)


def test_other_costs_make_other_pairs(panel, logs):
    dearer = preference_pairs(logs, panel, (*COSTS, SquareRootImpact()), "next_open")
    known = preference_pairs(logs, panel, COSTS, "next_open")
    assert not set(dearer["pair_id"]) & set(known["pair_id"])
    assert sum(dearer["chosen_outcome"]) < sum(known["chosen_outcome"])


def test_pairs_use_every_policy_without_an_ensemble(panel):
    who = (("a", "policy"), ("b", "policy"), ("equal_weight", "baseline"), ("buy_and_hold", "baseline"))
    pairs = preference_pairs(run_accounts(panel, who=who)[0], panel, COSTS, "next_open")
    found = {frozenset(names) for names in pairs.select("chosen", "rejected").rows()}
    assert found == {frozenset(pair) for pair in product(["a", "b"], ["equal_weight", "buy_and_hold"])}


def test_a_policy_that_did_not_trade_pays_nothing(panel, logs):
    still = [0.0] * 5
    at_rest = pl.col("policy") == "ppo"
    cash = [0.0, 0.0, 0.0, 0.0, 1.0]
    resting = logs.with_columns(
        pl.when(at_rest).then(pl.lit(still, dtype=pl.List(pl.Float64))).otherwise("trades").alias("trades"),
        pl.when(at_rest)
        .then(pl.lit(cash, dtype=pl.List(pl.Float64)))
        .otherwise("executed_weights")
        .alias("executed_weights"),
    )
    pairs = preference_pairs(resting, panel, COSTS, "next_open")
    outcomes = [
        row["chosen_outcome"] if row["chosen"] == "ppo" else row["rejected_outcome"]
        for row in pairs.iter_rows(named=True)
    ]
    assert outcomes == [0.0] * len(pairs)


def test_pairs_raise_for_other_symbols_or_sessions(panel, logs):
    with pytest.raises(ValueError, match="symbols"):
        preference_pairs(logs, synthetic_panel(n_sessions=220, n_symbols=3), COSTS, "next_open")
    weekend = logs.with_columns(session=pl.date(2015, 1, 3))
    with pytest.raises(ValueError, match="2015-01-03"):
        preference_pairs(weekend, panel, COSTS, "next_open")


@pytest.mark.parametrize("wrong", [{"horizon": 0}, {"holdout_share": 1.0}, {"holdout_share": -0.1}])
def test_arguments_out_of_range_are_refused(panel, logs, wrong):
    with pytest.raises(ValueError, match="horizon"):
        preference_pairs(logs, panel, COSTS, "next_open", **wrong)


def test_no_pairs_give_an_empty_frame_with_the_same_schema(panel, logs):
    assert dict(preference_pairs(logs.clear(), panel, COSTS, "next_open").schema) == PREFERENCE_PAIR
