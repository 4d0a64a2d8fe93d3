import datetime as dt

import numpy as np
import pytest

from nvtrader_pipelines.desk.plan_review import plan_orders, read_monthly_record, read_plan_review
from nvtrader_pipelines.execution.plan_records import PlanRecord
from nvtrader_pipelines.service.cli.pages.plan_pages import record_rows
from tests.service.cli.sample_plans import AT, plan, write_book, write_tests


def test_orders_are_changes_of_weights_in_money_and_shares(home):
    state = write_book(home, 1.0, 1.1)[-1].model_copy(update={"prices": {"AAA": 50.0}})
    bought, without_price, unchanged, cash = plan_orders(plan(), state)
    assert (bought.symbol, bought.before, bought.after, bought.change) == ("AAA", 0.0, 0.25, 0.25)
    assert (bought.amount, bought.price, bought.shares) == (pytest.approx(275_000.0), 50.0, pytest.approx(5500.0))
    assert (without_price.symbol, without_price.amount, without_price.shares) == ("BBB", bought.amount, None)
    assert (unchanged.symbol, unchanged.amount) == ("CCC", 0.0)
    assert (cash.symbol, cash.amount, cash.shares) == ("cash", pytest.approx(-550_000.0), None)


def test_review_takes_the_value_at_the_session_of_the_plan(store, home):
    write_book(home, 1.0, 1.1)
    later = plan(plan().session + dt.timedelta(days=1))
    unsettled = plan(plan().session + dt.timedelta(days=2))
    amounts = [
        read_plan_review(store, PlanRecord(decided, AT)).orders[0].amount for decided in (plan(), later, unsettled)
    ]
    assert amounts == [250_000.0, pytest.approx(275_000.0), None]


@pytest.mark.slow
def test_record_compounds_six_months_beside_the_baseline_of_the_verdict(store):
    sessions = [dt.date(2020, month, day) for month in range(1, 9) for day in (2, 3)]
    policy = [0.5] * 4 + [0.1, -0.1] * 5 + [0.1, 0.2]
    write_tests(store, sessions, {"equal_weight": [0.3] * 16, "mean_cvar": [0.01] * 16, "tiny": policy})
    record = read_monthly_record(store, plan())
    assert (record.baseline, record.first_session, record.last_session) == (
        "mean_cvar",
        dt.date(2020, 3, 2),
        dt.date(2020, 8, 3),
    )
    assert [month.month for month in record.months] == [f"2020-{month:02}" for month in range(3, 9)]
    assert [month.policy_return for month in record.months] == pytest.approx([-0.01] * 5 + [0.32])
    assert [month.baseline_return for month in record.months] == pytest.approx([0.0201] * 6)
    assert record.policy_return == pytest.approx(0.99**5 * 1.32 - 1.0)
    assert record.baseline_return == pytest.approx(1.01**12 - 1.0)
    assert (record.policy_sharpe, record.baseline_sharpe) == (None, None)  # 12 sessions


@pytest.mark.slow
def test_record_of_a_quarter_has_annualized_sharpe_ratios(store):
    sessions = [dt.date(2020, 1, 2) + dt.timedelta(days=n) for n in range(80)]
    policy = np.random.default_rng(0).normal(0.001, 0.01, 80)
    write_tests(store, sessions, {"tiny": policy, "mean_cvar": 2.0 * policy})
    record = read_monthly_record(store, plan())
    expected = pytest.approx(policy.mean() / policy.std(ddof=1) * np.sqrt(252))
    assert (record.policy_sharpe, record.baseline_sharpe) == (expected, expected)
    reach = 1.96 * np.sqrt(252 / 80)  # of independent normal returns with a small ratio
    assert (record.policy_sharpe - record.policy_sharpe_low) == pytest.approx(reach, rel=0.25)
    assert (record.baseline_sharpe_low, record.baseline_sharpe_high) == pytest.approx(
        (record.policy_sharpe_low, record.policy_sharpe_high)
    )
    assert record_rows(record)["month"].to_list()[-3:] == ["Sharpe ratio", "  2.5 % bound", "  97.5 % bound"]


@pytest.mark.slow
def test_record_without_baselines_has_the_policy_alone(store):
    write_tests(store, [dt.date(2020, 1, 2)], {"tiny": [0.1]}, baseline=None)
    record = read_monthly_record(store, plan())
    assert (record.baseline, record.baseline_return, record.policy_return) == (None, None, pytest.approx(0.1))


def test_run_without_verdict_has_no_record(store):
    assert read_monthly_record(store, plan()) is None


@pytest.mark.slow
def test_record_ends_at_the_session_of_the_plan(store):
    days = [dt.date(2020, month, 2) for month in (1, 2, 3)]
    write_tests(store, days, {"tiny": [0.1, 0.2, 0.3], "mean_cvar": [0.0] * 3})
    record = read_monthly_record(store, plan(days[1]))
    assert (record.last_session, [month.policy_return for month in record.months]) == (
        days[1],
        pytest.approx([0.1, 0.2]),
    )
    assert read_monthly_record(store, plan(dt.date(2020, 1, 1))) is None
