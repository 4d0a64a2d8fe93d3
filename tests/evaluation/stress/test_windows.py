from datetime import date, timedelta

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.stress import CostTimes, HistoricWindow
from nvtrader_pipelines.evaluation.stress.scenario import ScenarioUnavailableError
from nvtrader_pipelines.portfolio.costs import SquareRootImpact, VolatilitySpread
from tests.evaluation.stress.markets import JUDGED_FROM, day, judged, random_walks, unstressed_market

GENERATOR = np.random.default_rng(0)


def window(prices, first, last):
    return HistoricWindow(first=day(prices, first), last=day(prices, last))


def test_historic_window_is_unchanged_and_starts_on_its_first_session():
    prices = random_walks()
    (stressed,) = window(prices, 450, 500).apply(unstressed_market(prices), GENERATOR)
    assert stressed.panel.sessions[[stressed.first, stressed.last]].tolist() == [day(prices, 450), day(prices, 500)]
    assert (stressed.shock, stressed.has_twin, stressed.note) == (None, False, "")


def test_partly_tested_historic_window_plays_that_part_with_a_note():
    prices = random_walks()
    (stressed,) = window(prices, 300, 500).apply(unstressed_market(prices), GENERATOR)
    tested_from = day(prices, JUDGED_FROM)
    assert stressed.panel.sessions[stressed.first] == np.datetime64(tested_from)
    assert stressed.note == f"tested from {tested_from} to {day(prices, 500)} only"
    (late,) = HistoricWindow(first=day(prices, 650), last=date(2018, 6, 1)).apply(unstressed_market(prices), GENERATOR)
    assert late.note == f"tested from {day(prices, 650)} to {day(prices, -1)} only"


def test_untested_historic_window_is_unavailable():
    prices = random_walks()
    with pytest.raises(ScenarioUnavailableError, match="the folds test 0 sessions from 2008-01-01 to 2008-12-31"):
        HistoricWindow().apply(unstressed_market(prices), GENERATOR)
    with pytest.raises(ScenarioUnavailableError, match="the folds test 20 sessions"):
        window(prices, 450, 469).apply(unstressed_market(prices), GENERATOR)


def test_historic_window_with_untested_hole_is_unavailable():
    prices = random_walks()
    market = unstressed_market(prices, judged(prices, JUDGED_FROM, 470), judged(prices, 480))
    with pytest.raises(ScenarioUnavailableError, match="no policy may be judged on every session"):
        window(prices, 450, 500).apply(market, GENERATOR)


def test_historic_window_is_named_by_its_years():
    assert HistoricWindow().name == "historic_2008"
    assert HistoricWindow(first=date(2000, 3, 1), last=date(2002, 10, 9)).name == "historic_2000-2002"
    with pytest.raises(ValidationError, match="begins before it ends"):
        HistoricWindow(first=date(2008, 1, 1), last=date(2008, 1, 1) - timedelta(days=1))


def test_cost_times_changes_costs_only():
    market = unstressed_market()
    (stressed,) = CostTimes(factor=5.0).apply(market, GENERATOR)
    assert stressed.panel is market.unstressed().panel
    assert (stressed.cost_factor, stressed.blocks) == (5.0, market.unstressed().blocks)


def test_with_costs_times_multiplies_every_cost():
    models = (VolatilitySpread(), SquareRootImpact())
    spec = EnvSpec(turnover_cost_bps=50.0, costs=models)
    panel = unstressed_market().unstressed().panel
    trades, at = np.array([[0.3, -0.2, 0.0, 0.1]]), np.array([50])
    cost, dearer = (
        [model.start(panel)(trades, at)[0] for model in each.cost_models] for each in (spec, spec.scale_costs(5.0))
    )
    assert cost[0] == pytest.approx(0.003)
    np.testing.assert_allclose(dearer, 5.0 * np.array(cost), rtol=1e-12)
