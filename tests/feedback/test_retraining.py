import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.splits import Holdout
from nvtrader_pipelines.feedback.retraining import (
    bear_market_sessions,
    check_account_drift,
    check_market_growth,
    check_regime_change,
)
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES
from tests.desk.desks import days_of, evening, make_active, settle_returns, trade, write_index
from tests.homes import copy_home
from tests.runs.small_runs import N_SESSIONS, land
from tests.runs.untrained import EXPERIMENT, KEY, judged, planned, sealed

FALLEN = [1.0] * 30 + [0.79]


@pytest.fixture
def store(trading_home, tmp_path):
    """Home of its own with an active policy, whose tests end with the market."""
    return Store(copy_home(trading_home[0].home, tmp_path / "home"))


@pytest.fixture(scope="module")
def traded(tmp_path_factory):
    """Folder of a traded home, which the first test that needs it makes."""
    return tmp_path_factory.mktemp("traded") / "home"


@pytest.fixture
def account(trading_home, traded, tmp_path):
    """Home whose account a replay traded to the last session but one, and the active policy since."""
    if not traded.exists():
        store = Store(copy_home(trading_home[0].home, tmp_path / "traded"))
        trade(store, days_of(store)[-2], days_of(store)[-2])
        trade(store, at=evening(store))
        copy_home(store.home, traded)
    return Store(copy_home(Home(traded), tmp_path / "account"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_new", "is_due"), [pytest.param(0, False, marks=pytest.mark.nightly), (20, False), (21, True)]
)
def test_market_growth_is_due_after_21_sessions(store, n_new, is_due):
    tested_to = days_of(store)[-1]
    land(store, N_SESSIONS + n_new)
    (check,) = check_market_growth(store, [KEY])
    assert (check.partition_key, check.as_of, check.is_due) == (KEY, days_of(store)[-1], is_due)
    assert len(days_of(store)) - days_of(store).index(tested_to) - 1 == n_new


@pytest.mark.slow
def test_holdout_is_never_due_since_it_trains_to_a_fixed_day(store):
    days = days_of(store)
    holdout = Holdout(test_first=days[-90])
    fixed = EXPERIMENT.model_copy(update={"name": "fixed", "splitter": holdout})
    run = judged(store, planned(store, fixed))
    make_active(store, run)
    trade(store, at=evening(store))
    settle_returns(store, -0.01, 21)
    land(store, N_SESSIONS + 21)
    write_index(store, FALLEN)
    checks = [
        *check_market_growth(store, [fixed.partition_key]),
        check_account_drift(store, "paper"),
        check_regime_change(store, "paper"),
    ]
    for check in checks:
        assert check is not None
        assert (check.partition_key, check.is_due) == (fixed.partition_key, False)
        assert f"ends before {holdout.test_first}" in check.sentence
    assert len(checks) == 3


@pytest.mark.slow
def test_growth_counts_from_the_newest_run(store):
    land(store, N_SESSIONS + 21)
    sealed(store, planned(store))
    (check,) = check_market_growth(store, [KEY])
    assert not check.is_due


@pytest.mark.slow
def test_growth_is_not_due_where_the_names_have_ended(store):
    ended = store.panels.read(EXPERIMENT.market).symbols[:2]
    market = EXPERIMENT.market.model_copy(update={"symbols": ended})
    spec = EXPERIMENT.model_copy(update={"name": "ended", "market": market})
    sealed(store, planned(store, spec))
    land(store, N_SESSIONS + 21, ended=ended)
    (check,) = check_market_growth(store, [spec.partition_key])
    assert (check.as_of, check.is_due) == (days_of(store)[-1], False)


def test_experiment_without_a_completed_run_is_not_checked(store):
    assert check_market_growth(store, ["other@00000000"]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net_return", "n_sessions", "is_due"),
    [
        (-0.01, 20, False),
        (-0.01, 21, True),
        (-0.001, 21, False),
        pytest.param(0.01, 21, False, marks=pytest.mark.nightly),
    ],
)
def test_account_drift_is_due_below_the_interval_of_the_backtest(account, net_return, n_sessions, is_due):
    settle_returns(account, net_return, n_sessions)
    check = check_account_drift(account, "paper")
    assert check is not None
    assert (check.partition_key, check.as_of, check.is_due) == (KEY, days_of(account)[-1], is_due)


@pytest.mark.parametrize("changes", [{"in_replay": True}, {"run_id": "0" * 16}, {"policy": "other"}])
def test_losses_of_replays_and_other_policies_are_no_drift(account, changes):
    settle_returns(account, -0.01, 42, **changes)
    check = check_account_drift(account, "paper")
    assert check is not None
    assert not check.is_due


@pytest.mark.slow
def test_drift_counts_the_last_126_sessions_alone(account):
    settle_returns(account, -0.01, 63)
    settle_returns(account, 0.0, 126)
    check = check_account_drift(account, "paper")
    assert check is not None
    assert "for 126 sessions and returned +0.0%" in check.sentence


def test_drift_without_stored_curves_is_not_due(account):
    settle_returns(account, -0.01, 21)
    account.tables.replace(EQUITY_CURVES, pl.DataFrame(schema=EQUITY_CURVES.schema), {})
    check = check_account_drift(account, "paper")
    assert check is not None
    assert (check.partition_key, check.is_due) == (KEY, False)


@pytest.mark.slow
def test_regime_change_is_due_until_a_run_is_tested_in_it(store):
    land(store, N_SESSIONS + 1)
    write_index(store, [1.0] * 30 + [0.81])
    assert not is_regime_changed(store)
    write_index(store, FALLEN)
    assert is_regime_changed(store)
    sealed(store, planned(store))
    assert not is_regime_changed(store)


def is_regime_changed(store) -> bool:
    check = check_regime_change(store, "paper")
    assert check is not None
    assert (check.partition_key, check.as_of) == (KEY, days_of(store)[-1])
    return check.is_due


@pytest.mark.slow
def test_index_that_begins_after_the_tests_has_no_regime_change(store):
    land(store, N_SESSIONS + 21)
    write_index(store, [1.0] * 20 + [0.79])
    assert check_regime_change(store, "paper") is None


def test_home_without_active_policy_has_neither_drift_nor_regime(store):
    for file in store.home.audit.glob("*"):
        file.unlink()
    assert check_account_drift(store, "paper") is None
    assert check_regime_change(store, "paper") is None


def test_retraining_is_too_recent_for_four_sessions(store):
    (check,) = check_market_growth(store, [KEY])
    assert check.recent_sessions == days_of(store)[-5:]


def test_bear_market_begins_20_percent_below_high_and_ends_20_above_low():
    levels = np.array([100.0, 120.0, 97.0, 96.0, 110.0, 80.0, 95.0, 96.0, 130.0, 105.0, 104.0])
    found = bear_market_sessions(levels)
    assert found.tolist() == [False, False, False, True, True, True, True, False, False, False, True]


def test_state_of_a_session_depends_on_levels_up_to_it_alone():
    levels = np.exp(np.random.default_rng(0).normal(0.0, 0.03, 400).cumsum())
    whole = bear_market_sessions(levels)
    assert 2 < (whole[1:] != whole[:-1]).sum() < 40
    for n in range(1, len(levels), 7):
        np.testing.assert_array_equal(bear_market_sessions(levels[:n]), whole[:n])
