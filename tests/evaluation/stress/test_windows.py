from datetime import date, timedelta

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.evaluation.stress import HistoricWindow
from nvtrader_pipelines.evaluation.stress.scenario import ScenarioUnavailableError
from tests.evaluation.stress.markets import JUDGED_FROM, day, judged, random_walks, unstressed_market

GENERATOR = np.random.default_rng(0)


def window(prices, first, last):
    return HistoricWindow(first=day(prices, first), last=day(prices, last))


def test_historic_window_is_unchanged_and_starts_on_its_first_session():
    prices = random_walks()
    (stressed,) = window(prices, 450, 500).apply(unstressed_market(prices), GENERATOR)
    assert stressed.panel.sessions[[stressed.first, stressed.last]].tolist() == [day(prices, 450), day(prices, 500)]
    assert (stressed.shock, stressed.has_twin, stressed.note) == (None, False, "")


@pytest.mark.slow
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
    with pytest.raises(ScenarioUnavailableError):
        HistoricWindow().apply(unstressed_market(prices), GENERATOR)
    with pytest.raises(ScenarioUnavailableError):
        window(prices, 450, 469).apply(unstressed_market(prices), GENERATOR)


def test_historic_window_with_untested_hole_is_unavailable():
    prices = random_walks()
    market = unstressed_market(prices, judged(prices, JUDGED_FROM, 470), judged(prices, 480))
    with pytest.raises(ScenarioUnavailableError):
        window(prices, 450, 500).apply(market, GENERATOR)


def test_historic_window_is_named_by_its_years():
    assert HistoricWindow().name == "historic_2008"
    assert HistoricWindow(first=date(2000, 3, 1), last=date(2002, 10, 9)).name == "historic_2000-2002"
    with pytest.raises(ValidationError):
        HistoricWindow(first=date(2008, 1, 1), last=date(2008, 1, 1) - timedelta(days=1))
