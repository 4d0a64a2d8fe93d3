from datetime import date, timedelta

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.stress import CostTimes, HistoricWindow
from nvtrader_pipelines.evaluation.stress.scenario import NoWorldError
from nvtrader_pipelines.portfolio.costs import SquareRootImpact, VolatilitySpread
from tests.evaluation.stress.markets import JUDGED_FROM, calm_market, day, judged, random_walks

GENERATOR = np.random.default_rng(0)


def window(prices, first, last):
    return HistoricWindow(first=day(prices, first), last=day(prices, last))


def test_a_historic_window_is_as_it_was_and_begins_on_its_first_session():
    prices = random_walks()
    (world,) = window(prices, 450, 500).worlds(calm_market(prices), GENERATOR)
    assert world.panel.sessions[[world.first, world.last]].tolist() == [day(prices, 450), day(prices, 500)]
    assert (world.shock, world.has_twin, world.note) == (None, False, "")


def test_of_a_window_that_is_tested_in_part_that_part_is_played_and_told():
    prices = random_walks()
    (world,) = window(prices, 300, 500).worlds(calm_market(prices), GENERATOR)
    tested_from = day(prices, JUDGED_FROM)
    assert world.panel.sessions[world.first] == np.datetime64(tested_from)
    assert world.note == f"tested from {tested_from} to {day(prices, 500)} only"
    (late,) = HistoricWindow(first=day(prices, 650), last=date(2018, 6, 1)).worlds(calm_market(prices), GENERATOR)
    assert late.note == f"tested from {day(prices, 650)} to {day(prices, -1)} only"


def test_a_window_that_nobody_may_be_judged_on_has_no_world():
    prices = random_walks()
    with pytest.raises(NoWorldError, match="the folds test 0 sessions from 2008-01-01 to 2008-12-31"):
        HistoricWindow().worlds(calm_market(prices), GENERATOR)
    with pytest.raises(NoWorldError, match="the folds test 20 sessions"):
        window(prices, 450, 469).worlds(calm_market(prices), GENERATOR)


def test_a_window_with_a_hole_in_the_tests_has_no_world():
    prices = random_walks()
    market = calm_market(prices, judged(prices, JUDGED_FROM, 470), judged(prices, 480))
    with pytest.raises(NoWorldError, match="no policy may be judged on every session"):
        window(prices, 450, 500).worlds(market, GENERATOR)


def test_a_historic_window_is_named_by_its_years():
    assert HistoricWindow().name == "historic_2008"
    assert HistoricWindow(first=date(2000, 3, 1), last=date(2002, 10, 9)).name == "historic_2000-2002"
    with pytest.raises(ValidationError, match="begins before it ends"):
        HistoricWindow(first=date(2008, 1, 1), last=date(2008, 1, 1) - timedelta(days=1))


def test_costs_are_the_only_thing_that_changes_when_they_are_multiplied():
    market = calm_market()
    (world,) = CostTimes(factor=5.0).worlds(market, GENERATOR)
    assert world.panel is market.calm().panel
    assert (world.cost_factor, world.blocks) == (5.0, market.calm().blocks)


def test_an_environment_can_be_had_with_every_cost_multiplied():
    models = (VolatilitySpread(), SquareRootImpact())
    spec = EnvSpec(turnover_cost_bps=50.0, costs=models)
    panel = calm_market().calm().panel
    trades, at = np.array([[0.3, -0.2, 0.0, 0.1]]), np.array([50])
    cost, dearer = (
        [model.start(panel)(trades, at)[0] for model in each.cost_models] for each in (spec, spec.scale_costs(5.0))
    )
    assert cost[0] == pytest.approx(0.003)
    np.testing.assert_allclose(dearer, 5.0 * np.array(cost), rtol=1e-12)
