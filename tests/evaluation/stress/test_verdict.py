from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.evaluation.stress import BootstrappedWindow, FlashCrash, Gap, HistoricWindow
from nvtrader_pipelines.evaluation.stress.scenario import PanelChoice, ScenarioUnavailable
from nvtrader_pipelines.evaluation.stress.suite import StressTest, apply_scenarios
from nvtrader_pipelines.evaluation.stress.verdict import sessions_to_recover, stress_steps, stress_test
from nvtrader_pipelines.evaluation.verdict_tables import STRESS
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight, Momentum
from nvtrader_pipelines.policies.policy import Decision
from tests.evaluation.stress.markets import BEFORE, WINDOW, judged, random_walks, rules, still

pytestmark = pytest.mark.slow
FREE = EnvSpec(turnover_cost_bps=0.0)
DRAWN = BootstrappedWindow(n_worlds=7, n_sessions=63)


class HalfInCash:
    """Half of the equity in equal parts, the other half in cash."""

    def decide(self, panel, t, account):
        n = len(panel.symbols)
        return Decision(target=np.append(np.full(n, 0.5 / n), 0.5))


def markets_of(prices, *scenarios):
    stress = StressTest(scenarios=scenarios, window_sessions=WINDOW, history_sessions=BEFORE)
    return apply_scenarios(prices.rows(), [judged(prices)], stress, PanelChoice(NEW_YORK))


def table(prices, *scenarios, environment=FREE, contest=rules):
    return stress_test(environment, markets_of(prices, *scenarios), contest)


def row(rows, scenario, policy="equal_weight", statistic="value"):
    chosen = rows.filter(scenario=scenario, policy=policy, statistic=statistic)
    return chosen.row(0, named=True)


def test_gap_costs_its_share_of_the_invested_weight():
    half = PolicyAccount("half", "policy", (None,), (HalfInCash(),))
    rows = table(still(), Gap(loss=0.2), contest=lambda stressed: [half, *rules(stressed)])
    for policy, lost in (("equal_weight", 0.2), ("buy_and_hold", 0.2), ("half", 0.1)):
        found = row(rows, "gap_20_percent", policy)
        assert found["total_return"] == pytest.approx(-lost, abs=1e-15)
        assert found["worst_session"] == pytest.approx(-lost, abs=1e-15)
        assert found["max_drawdown"] == pytest.approx(lost, abs=1e-15)
        assert found["difference_to_unstressed"] == pytest.approx(-lost, abs=1e-15)
        assert found["difference_to_equal_weight"] == pytest.approx(0.2 - lost, abs=1e-15)
        assert found["sessions_to_recover"] is None
        assert row(rows, "unstressed", policy)["total_return"] == 0.0


def test_gap_changes_only_the_session_of_the_shock():
    prices = random_walks()
    unstressed, gap = markets_of(prices, Gap(loss=0.2))
    growth = [
        1
        + backtest(stressed.panel, FREE, stressed.blocks, rules(stressed, BuyAndHold()))
        .equity_curves["net_return"]
        .to_numpy()
        for stressed in (unstressed, gap)
    ]
    factor = np.ones(WINDOW)
    factor[gap.shock - gap.first] = 0.8
    np.testing.assert_allclose(growth[1], factor * growth[0], rtol=1e-12)


def test_buy_and_hold_recovers_after_a_flash_crash():
    rows = table(still(), FlashCrash(loss=0.2, recovery=5))
    held = row(rows, "flash_crash_20_percent", "buy_and_hold")
    assert held["max_drawdown"] == pytest.approx(0.2)
    assert held["total_return"] == pytest.approx(0.0, abs=1e-15)
    assert row(table(random_walks(), FlashCrash(recovery=5)), "flash_crash_20_percent")["sessions_to_recover"] != 0


@pytest.mark.parametrize(
    ("returns", "sessions"),
    [([0.1, 0.2], 0), ([0.5, -0.5, 1.0], 1), ([-0.5, 0.0, 0.5, 0.3], None), ([-0.1, -0.5, 0.5, 1.0, 0.0], 2)],
)
def test_sessions_to_recover_count_from_the_bottom_to_the_peak(returns, sessions):
    assert sessions_to_recover(np.array(returns)) == sessions


def test_measures_equal_those_of_the_accounts_backtest():
    environment, prices = EnvSpec(turnover_cost_bps=20.0), random_walks()
    scenarios = (Gap(), FlashCrash())
    rows = table(prices, *scenarios, environment=environment)
    assert rows.schema == STRESS
    assert rows["scenario"].unique(maintain_order=True).to_list() == [
        "unstressed",
        "gap_20_percent",
        "flash_crash_20_percent",
    ]
    for stressed in markets_of(prices, *scenarios):
        curves = backtest(stressed.panel, environment, stressed.blocks, rules(stressed)).equity_curves
        for (policy,), account in curves.partition_by("policy", as_dict=True).items():
            found, returns = row(rows, stressed.scenario, policy), account["net_return"].to_numpy()
            assert found["total_return"] == pytest.approx(account["equity"][-1] - 1, rel=1e-12)
            assert found["max_drawdown"] == pytest.approx(account["drawdown"].max(), rel=1e-12) == max_drawdown(returns)
            assert found["sharpe"] == sharpe_ratio(returns, 252)
            assert (found["worst_session"], found["cost"]) == (returns.min(), account["cost"].sum())
            assert found["n_sessions"] == len(account) == WINDOW
            assert found["first_session"] == account["session"][0]
            assert found["shock_session"] == (
                None if stressed.shock is None else stressed.panel.sessions[stressed.shock].item()
            )
    reference = pl.col("total_return").filter(policy="equal_weight").first().over("scenario")
    difference = rows.select(pl.col("total_return") - reference)["total_return"]
    np.testing.assert_array_equal(rows["difference_to_equal_weight"], difference)


def test_several_markets_give_median_worst_five_percent_and_worst():
    prices = random_walks()
    rows = table(prices, DRAWN).filter(scenario="block_bootstrap")
    single = [
        stress_test(FREE, [replace(stressed, scenario="one")], rules)
        for stressed in markets_of(prices, DRAWN)
        if not isinstance(stressed, ScenarioUnavailable) and stressed.scenario == "block_bootstrap"
    ]
    each = pl.concat(single)
    assert rows["n_worlds"].to_list() == [7] * 6
    for policy in ("equal_weight", "buy_and_hold"):
        found = [row(rows, "block_bootstrap", policy, name) for name in ("median", "worst_5_percent", "worst")]
        for measure, bad in (("total_return", 0.0), ("sharpe", 0.0), ("max_drawdown", 1.0), ("cost", 1.0)):
            drawn = each.filter(policy=policy)[measure].to_numpy()
            expected = np.quantile(drawn, [0.5, abs(bad - 0.05), bad])
            np.testing.assert_allclose([each[measure] for each in found], expected, rtol=1e-12)
        assert all(each["difference_to_unstressed"] is None for each in found)
        assert "not the sessions of the unstressed window" in found[0]["note"]
        assert ["5 % of 7 samples lie between the two worst" in each["note"] for each in found] == [False, True, False]
    to_reference = each.filter(policy="buy_and_hold")["difference_to_equal_weight"]
    assert row(rows, "block_bootstrap", "buy_and_hold", "worst")["difference_to_equal_weight"] == to_reference.min()


def test_never_recovering_counts_as_worst():
    rows = table(random_walks(), DRAWN).filter(policy="equal_weight", scenario="block_bootstrap")
    median, five, worst = rows["sessions_to_recover"].to_list()
    assert worst is None
    assert median is None or five is None or median <= five


def test_unavailable_scenario_has_a_null_row_per_account():
    missing = [HistoricWindow(), FlashCrash(recovery=63)]
    rows = table(random_walks(), *missing)
    assert rows["policy"].to_list() == ["equal_weight", "buy_and_hold"] * 3
    empty = rows.filter(n_worlds=0)
    assert empty["scenario"].to_list() == ["historic_2008"] * 2 + ["flash_crash_20_percent"] * 2
    assert empty["note"].str.contains("the folds test 0 sessions|must end within the window").all()
    known = ["policy", "kind", "scenario", "statistic", "n_worlds", "note"]
    assert empty.drop(known).null_count().sum_horizontal().item() == 4 * (len(STRESS) - len(known))


def test_short_historic_window_has_nulls_and_notes():
    prices = random_walks()
    short = HistoricWindow(first=prices.sessions[450].item(), last=prices.sessions[490].item())
    rows = table(prices, short, contest=lambda stressed: rules(stressed, Momentum(months=2)))
    found = row(rows, "historic_2016", "momentum")
    assert (found["sharpe"], found["difference_to_unstressed"], found["difference_to_equal_weight"]) == (
        None,
        None,
        None,
    )
    assert found["note"] == (
        "fewer than 63 sessions, so no Sharpe ratio; "
        "not the sessions of the unstressed window, so no difference to it; "
        "no baseline equal_weight, so no difference to it"
    )


def refusing(scenario):
    """A contest that cannot be held in a scenario."""

    def contest(stressed):
        if stressed.scenario == scenario:
            raise ArithmeticError(f"no account in {scenario}")
        return rules(stressed)

    return contest


def test_failing_market_ends_the_test_unless_its_error_is_skipped():
    markets = list(markets_of(still(), Gap(), FlashCrash()))
    with pytest.raises(ArithmeticError):
        stress_test(FREE, markets, refusing("gap_20_percent"))
    rows = stress_test(FREE, markets, refusing("gap_20_percent"), (ArithmeticError,))
    failed = row(rows, "gap_20_percent")
    assert (failed["n_worlds"], failed["total_return"], failed["note"]) == (0, None, "no account in gap_20_percent")
    assert row(rows, "flash_crash_20_percent")["difference_to_unstressed"] == pytest.approx(0.0, abs=1e-15)


def test_difference_is_null_without_the_unstressed_market():
    rows = stress_test(FREE, markets_of(still(), Gap()), refusing("unstressed"), (ArithmeticError,))
    found = row(rows, "gap_20_percent")
    assert found["difference_to_unstressed"] is None
    assert found["note"] == "the unstressed window is unavailable, so no difference to it"


def test_draws_do_not_depend_on_other_scenarios():
    prices = random_walks()
    alone, last = ([*markets_of(prices, *before, DRAWN)][-1] for before in ((), (Gap(), FlashCrash())))
    np.testing.assert_array_equal(alone.panel.close_returns, last.panel.close_returns)


def test_stress_steps_yield_every_market_in_order():
    prices = random_walks()
    steps = stress_steps(FREE, markets_of(prices, Gap(), HistoricWindow()), rules)
    yielded = []
    while True:
        try:
            yielded.append(next(steps).scenario)
        except StopIteration as end:
            assert_frame_equal(end.value, table(prices, Gap(), HistoricWindow()), check_exact=True)
            break
    assert yielded == ["unstressed", "gap_20_percent", "historic_2008"]


def test_stress_test_without_available_scenario_raises():
    with pytest.raises(ValueError):
        stress_test(FREE, [ScenarioUnavailable("historic_2008", "no tests")], rules)


def test_every_account_starts_in_cash():
    rows = table(still(), contest=lambda stressed: rules(stressed, EqualWeight(), BuyAndHold()), environment=EnvSpec())
    assert rows["turnover"].to_list() == pytest.approx([1.0, 1.0])


def test_scenarios_with_equal_names_raise():
    with pytest.raises(ValidationError):
        StressTest(scenarios=(Gap(), Gap(at=0.3)))
