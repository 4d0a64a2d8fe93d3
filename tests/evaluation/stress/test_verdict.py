from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import Contestant, backtest
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.evaluation.stress import (
    BlockBootstrap,
    CorrelationToOne,
    CostTimes,
    FlashCrash,
    Gap,
    HistoricWindow,
    MissingData,
    OneNameToZero,
)
from nvtrader_pipelines.evaluation.stress.scenario import NoWorld
from nvtrader_pipelines.evaluation.stress.scenarios import StressTest, stressed_worlds
from nvtrader_pipelines.evaluation.stress.verdict import sessions_to_recover, stress_steps, stress_test
from nvtrader_pipelines.evaluation.verdict_tables import STRESS
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight, Momentum
from nvtrader_pipelines.policies.policy import Decision
from tests.evaluation.stress.markets import BEFORE, WINDOW, judged, random_walks, rules, still

FREE = EnvSpec(turnover_cost_bps=0.0)
DRAWN = BlockBootstrap(n_worlds=7, n_sessions=63)


class HalfInCash:
    """Half of the equity in equal parts, the other half in cash."""

    def decide(self, panel, t, account):
        n = len(panel.symbols)
        return Decision(target=np.append(np.full(n, 0.5 / n), 0.5))


def worlds(prices, *scenarios):
    stress = StressTest(scenarios=scenarios, window_sessions=WINDOW, history_sessions=BEFORE)
    return stressed_worlds(prices.rows(), [judged(prices)], stress)


def table(prices, *scenarios, environment=FREE, contest=rules):
    return stress_test(environment, worlds(prices, *scenarios), contest)


def row(rows, scenario, policy="equal_weight", statistic="value"):
    chosen = rows.filter(scenario=scenario, policy=policy, statistic=statistic)
    return chosen.row(0, named=True)


def test_a_gap_takes_exactly_its_share_of_what_is_invested():
    half = Contestant("half", "policy", (None,), (HalfInCash(),))
    rows = table(still(), Gap(loss=0.2), contest=lambda world: [half, *rules(world)])
    for policy, lost in (("equal_weight", 0.2), ("buy_and_hold", 0.2), ("half", 0.1)):
        found = row(rows, "gap_20_percent", policy)
        assert found["total_return"] == pytest.approx(-lost, abs=1e-15)
        assert found["worst_session"] == pytest.approx(-lost, abs=1e-15)
        assert found["max_drawdown"] == pytest.approx(lost, abs=1e-15)
        assert found["difference_to_calm"] == pytest.approx(-lost, abs=1e-15)
        assert found["difference_to_equal_weight"] == pytest.approx(0.2 - lost, abs=1e-15)
        assert found["sessions_to_recover"] is None
        assert row(rows, "calm", policy)["total_return"] == 0.0


def test_a_gap_takes_its_share_of_the_session_of_the_shock_and_of_no_other():
    prices = random_walks()
    calm, gap = worlds(prices, Gap(loss=0.2))
    growth = [
        1 + backtest(world.panel, FREE, world.blocks, rules(world, BuyAndHold())).equity_curves["net_return"].to_numpy()
        for world in (calm, gap)
    ]
    factor = np.ones(WINDOW)
    factor[gap.shock - gap.first] = 0.8
    np.testing.assert_allclose(growth[1], factor * growth[0], rtol=1e-12)


def test_the_weight_of_the_name_that_falls_to_zero_is_lost():
    rows = table(still(), OneNameToZero())
    assert row(rows, "one_name_to_zero", "buy_and_hold")["total_return"] == pytest.approx(-0.25 * (1 - 1e-6), abs=1e-15)
    assert row(rows, "one_name_to_zero")["worst_session"] == pytest.approx(-0.25 * (1 - 1e-6), abs=1e-15)
    assert row(rows, "one_name_to_zero")["note"].startswith("AAA, which had gained 0%")


@pytest.mark.parametrize("bps", [10.0, 50.0])
def test_five_times_the_cost_takes_five_times_as_much_for_the_first_trade(bps):
    rows = table(random_walks(), CostTimes(factor=5.0), environment=EnvSpec(turnover_cost_bps=bps))
    calm, dear = (row(rows, scenario, "buy_and_hold") for scenario in ("calm", "cost_times_5"))
    assert calm["cost"] == pytest.approx(bps * 1e-4, rel=1e-12)
    assert dear["cost"] == pytest.approx(5 * calm["cost"], rel=1e-12)
    growth = (1 + dear["total_return"]) / (1 + calm["total_return"])
    assert growth == pytest.approx((1 - 5 * bps * 1e-4) / (1 - bps * 1e-4), rel=1e-12)
    assert dear["turnover"] == calm["turnover"] == pytest.approx(1.0)


def test_after_a_flash_crash_what_was_bought_and_held_has_recovered():
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


def test_measures_are_those_of_the_account_in_its_world():
    environment, prices = EnvSpec(turnover_cost_bps=20.0), random_walks()
    scenarios = (Gap(), MissingData(share=0.5))
    rows = table(prices, *scenarios, environment=environment)
    assert rows.schema == STRESS
    assert rows["scenario"].unique(maintain_order=True).to_list() == [
        "calm",
        "gap_20_percent",
        "missing_data_50_percent",
    ]
    for world in worlds(prices, *scenarios):
        curves = backtest(world.panel, environment, world.blocks, rules(world)).equity_curves
        for (policy,), account in curves.partition_by("policy", as_dict=True).items():
            found, returns = row(rows, world.scenario, policy), account["net_return"].to_numpy()
            assert found["total_return"] == pytest.approx(account["equity"][-1] - 1, rel=1e-12)
            assert found["max_drawdown"] == pytest.approx(account["drawdown"].max(), rel=1e-12) == max_drawdown(returns)
            assert found["sharpe"] == sharpe_ratio(returns)
            assert (found["worst_session"], found["cost"]) == (returns.min(), account["cost"].sum())
            assert found["n_sessions"] == len(account) == WINDOW
            assert found["first_session"] == account["session"][0]
            assert found["shock_session"] == (None if world.shock is None else world.panel.sessions[world.shock].item())
    reference = pl.col("total_return").filter(policy="equal_weight").first().over("scenario")
    difference = rows.select(pl.col("total_return") - reference)["total_return"]
    np.testing.assert_array_equal(rows["difference_to_equal_weight"], difference)


def test_several_worlds_are_told_by_median_five_percent_and_worst_of_each_measure():
    prices = random_walks()
    rows = table(prices, DRAWN).filter(scenario="block_bootstrap")
    single = [
        stress_test(FREE, [replace(world, scenario="one")], rules)
        for world in worlds(prices, DRAWN)
        if not isinstance(world, NoWorld) and world.scenario == "block_bootstrap"
    ]
    each = pl.concat(single)
    assert rows["n_worlds"].to_list() == [7] * 6
    for policy in ("equal_weight", "buy_and_hold"):
        found = [row(rows, "block_bootstrap", policy, name) for name in ("median", "worst_5_percent", "worst")]
        for measure, bad in (("total_return", 0.0), ("sharpe", 0.0), ("max_drawdown", 1.0), ("cost", 1.0)):
            drawn = each.filter(policy=policy)[measure].to_numpy()
            expected = np.quantile(drawn, [0.5, abs(bad - 0.05), bad])
            np.testing.assert_allclose([each[measure] for each in found], expected, rtol=1e-12)
        assert all(each["difference_to_calm"] is None for each in found)
        assert "not the sessions of the calm window" in found[0]["note"]
        assert ["5 % of 7 worlds lie between the two worst" in each["note"] for each in found] == [False, True, False]
    to_reference = each.filter(policy="buy_and_hold")["difference_to_equal_weight"]
    assert row(rows, "block_bootstrap", "buy_and_hold", "worst")["difference_to_equal_weight"] == to_reference.min()


def test_a_world_that_never_recovers_is_worse_than_any_that_does():
    rows = table(random_walks(), DRAWN).filter(policy="equal_weight", scenario="block_bootstrap")
    median, five, worst = rows["sessions_to_recover"].to_list()
    assert worst is None
    assert median is None or five is None or median <= five


def test_what_cannot_be_played_is_told_for_every_account():
    missing = [HistoricWindow(), CorrelationToOne(n_sessions=200)]
    rows = table(random_walks(), *missing)
    assert rows["policy"].to_list() == ["equal_weight", "buy_and_hold"] * 3
    empty = rows.filter(n_worlds=0)
    assert empty["scenario"].to_list() == ["historic_2008"] * 2 + ["correlation_to_one"] * 2
    assert empty["note"].str.contains("the folds test 0 sessions|must end within the window").all()
    known = ["policy", "kind", "scenario", "statistic", "n_worlds", "note"]
    assert empty.drop(known).null_count().sum_horizontal().item() == 4 * (len(STRESS) - len(known))


def test_what_cannot_be_compared_is_null_and_said():
    prices = random_walks()
    short = HistoricWindow(first=prices.sessions[450].item(), last=prices.sessions[490].item())
    rows = table(prices, short, contest=lambda world: rules(world, Momentum(months=2)))
    found = row(rows, "historic_2016", "momentum")
    assert (found["sharpe"], found["difference_to_calm"], found["difference_to_equal_weight"]) == (None, None, None)
    assert found["note"] == (
        "fewer than 63 sessions, so no Sharpe ratio; not the sessions of the calm window, so no difference to it; "
        "no baseline equal_weight, so no difference to it"
    )


def refusing(scenario):
    """A contest that cannot be held in a scenario."""

    def contest(world):
        if world.scenario == scenario:
            raise ArithmeticError(f"no account in {scenario}")
        return rules(world)

    return contest


def test_a_world_that_fails_ends_the_test_unless_its_error_is_forgiven():
    told = list(worlds(still(), Gap(), FlashCrash()))
    with pytest.raises(ArithmeticError):
        stress_test(FREE, told, refusing("gap_20_percent"))
    rows = stress_test(FREE, told, refusing("gap_20_percent"), (ArithmeticError,))
    failed = row(rows, "gap_20_percent")
    assert (failed["n_worlds"], failed["total_return"], failed["note"]) == (0, None, "no account in gap_20_percent")
    assert row(rows, "flash_crash_20_percent")["difference_to_calm"] == pytest.approx(0.0, abs=1e-15)


def test_without_the_calm_world_there_is_no_difference_to_it_and_the_note_says_so():
    rows = stress_test(FREE, worlds(still(), Gap()), refusing("calm"), (ArithmeticError,))
    found = row(rows, "gap_20_percent")
    assert found["difference_to_calm"] is None
    assert found["note"] == "the calm window was not played, so no difference to it"


def test_a_scenario_draws_the_same_whatever_is_played_before_it():
    prices = random_walks()
    alone, last = ([*worlds(prices, *before, DRAWN)][-1] for before in ((), (Gap(), MissingData(share=0.5))))
    np.testing.assert_array_equal(alone.panel.close_returns, last.panel.close_returns)


def test_steps_tell_of_every_world_as_it_is_judged():
    prices = random_walks()
    steps = stress_steps(FREE, worlds(prices, Gap(), HistoricWindow()), rules)
    told = []
    while True:
        try:
            told.append(next(steps).scenario)
        except StopIteration as end:
            assert_frame_equal(end.value, table(prices, Gap(), HistoricWindow()), check_exact=True)
            break
    assert told == ["calm", "gap_20_percent", "historic_2008"]


def test_a_stress_test_without_any_world_is_refused():
    with pytest.raises(ValueError, match="needs a world to be played, but found none: historic_2008: no tests"):
        stress_test(FREE, [NoWorld("historic_2008", "no tests")], rules)


def test_a_world_that_is_played_for_three_entrants_starts_each_in_cash():
    rows = table(still(), contest=lambda world: rules(world, EqualWeight(), BuyAndHold()), environment=EnvSpec())
    assert rows["turnover"].to_list() == pytest.approx([1.0, 1.0])


def test_scenarios_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="scenarios must differ"):
        StressTest(scenarios=(Gap(), Gap(at=0.3)))
