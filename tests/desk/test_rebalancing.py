import datetime as dt

import pytest

from nvtrader_pipelines.desk import traded_market
from nvtrader_pipelines.desk.halt import halt
from nvtrader_pipelines.desk.rebalancing import replay_reason, server_message, skip_reason
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.notifications.home_status import read_home_status
from tests.desk.desks import AT, add_account, days_of, desk, evening, states, trade

pytestmark = pytest.mark.slow


def test_replayed_account_is_left_to_a_person_until_a_trade_without_days(trading_home):
    store, run = trading_home
    days = days_of(store)
    assert replay_reason(store, "paper") is None
    first = read_home_status(store, AT).next_step
    middle = days[0] + (days[-1] - days[0]) / 2
    assert (first.command, first.button) == (f"nvtrader trade --from {middle} --to {days[-1]}", "")
    today = read_home_status(store, evening(store)).next_step
    assert (today.command, today.link) == ("nvtrader trade", "#job-eod_rebalance")
    trade(store, days[-12], days[-10])
    then = read_home_status(store, AT).next_step
    assert (then.command, then.button) == ("nvtrader trade --account paper", "See the account")
    next_session = days[-1] + dt.timedelta(days=1)
    for reason in (
        replay_reason(store, "paper"),
        skip_reason(store, "paper", next_session, NEW_YORK),
        server_message(store),
    ):
        assert reason is not None
        assert f"a replay traded the account paper to {days[-10]}" in reason
        assert "`nvtrader trade`" in reason
    assert [state.in_replay for state in states(store)] == [True] * 4
    trade(store, at=evening(store))
    assert replay_reason(store, "paper") is None
    assert skip_reason(store, "paper", next_session, NEW_YORK) is None
    assert run.experiment in server_message(store)


def test_replayed_account_that_stops_before_the_last_session_stays_with_a_person(trading_home):
    store, _ = trading_home
    days = days_of(store)
    add_account(store, "slow")
    trade(store, days[-12], days[-10], account="slow")
    steps = desk(store, "slow", evening(store)).trade(acknowledge=True)
    next(steps)
    steps.close()
    assert states(store, "slow")[-1].session == days[-9]
    reason = replay_reason(store, "slow")
    assert reason is not None
    assert "until `nvtrader trade` without days has traded it to the last session" in reason
    trade(store, account="slow", at=evening(store))
    assert replay_reason(store, "slow") is None


def test_rebalance_started_by_a_person_continues_a_replayed_account(trading_home):
    store, _ = trading_home
    days = days_of(store)
    add_account(store, "steps")
    trade(store, days[-2], days[-2], account="steps")
    desk(store, "steps").execute()
    desk(store, "steps").settle()
    assert [state.in_replay for state in states(store, "steps")] == [True, True, False]
    assert replay_reason(store, "steps") is None


def test_server_message_names_account_policy_and_how_to_stop(trading_home):
    store, run = trading_home
    message = server_message(store)
    for text in ("the account paper", f"{run.experiment} of run {run.run_id[:8]}", "`nvtrader halt`", "eod_rebalance"):
        assert text in message
    halt(store, "ann", "news", lambda: AT)
    assert "ann stopped trading" in server_message(store)


def test_server_message_gives_reason_why_the_policy_cannot_trade(trading_home, monkeypatch):
    monkeypatch.setattr(traded_market, "MAX_TEST_AGE", -1)
    message = server_message(trading_home[0])
    assert "cannot trade the account paper now: a policy must have been tested within" in message


def test_server_message_without_active_policy_says_that_nothing_trades(store):
    assert server_message(store) == "no policy is active, so nothing trades"
