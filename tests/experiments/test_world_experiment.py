import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.experiments.world_experiment import WorldExperiment, WorldPlan
from tests.panels import eventful_panel, with_other_future

SALE = {"name": "sale", "world": {"kind": "tradesim_execution"}, "agent": {"kind": "almgren_chriss"}}
TRADE = {
    "name": "trade",
    "world": {"kind": "tradesim_algotrading", "symbol": "BBB"},
    "agent": {"kind": "deepscalper"},
    "market": {"source": "sample"},
}


def days(panel, first, last):
    return panel.sessions[first].item(), panel.sessions[last].item()


def trade(panel, train=(10, 60), test=(61, 100), **fields):
    return WorldExperiment.model_validate({**TRADE, "train": days(panel, *train), "test": days(panel, *test), **fields})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"agent": {"kind": "deepscalper"}}, "agent"),
        ({"world": {"kind": "tradesim_execution", "max_participation": 0.01}}, "shares"),
        ({"world": {"kind": "tradesim_execution", "temporary_impact": 1e-4}}, "price"),
        ({"world": {"kind": "tradesim_execution", "moves": {"kind": "market"}}}, "market"),
        ({"market": {"source": "sample"}}, "market"),
        ({"agent": {"kind": "eteo"}, "seeds": [0, 1]}, "seeds"),
        ({"agent": {"kind": "eteo"}, "seeds": [0, 1, 1]}, "seeds"),
        ({"seeds": []}, "seeds"),
    ],
)
def test_parts_that_do_not_suit_each_other_are_refused(changes, field):
    assert WorldExperiment.model_validate(SALE).seeds == (0,)
    with pytest.raises(ValidationError, match=field):
        WorldExperiment.model_validate({**SALE, **changes})


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (("2000-01-01", "2010-01-01"), ("2010-01-01", "2012-01-01")),  # share a day
        (("2010-01-01", "2012-01-01"), ("2000-01-01", "2009-01-01")),  # would train on what follows the test
        (("2010-01-02", "2010-01-01"), ("2011-01-01", "2012-01-01")),
        (None, ("2011-01-01", "2012-01-01")),
    ],
)
def test_days_that_overlap_or_are_missing_are_refused(train, test):
    with pytest.raises(ValidationError):
        WorldExperiment.model_validate({**TRADE, "train": train, "test": test})


def test_seeds_are_as_few_as_the_agent_needs():
    assert trade(eventful_panel()).seeds == (0, 1, 2)


def test_days_become_sessions_and_later_ones_are_left_out():
    panel = eventful_panel()
    plan = WorldPlan.of(trade(panel), panel)
    assert (plan.train, plan.test, len(plan.panel.sessions)) == ((10, 60), (61, 100), 101)
    assert plan.task(2).window == (10, 60)


def test_run_id_depends_on_spec_and_tested_market_alone():
    panel = eventful_panel()
    plan = WorldPlan.of(trade(panel), panel)
    assert WorldPlan.of(trade(panel), with_other_future(panel, 100)).run_id == plan.run_id
    assert WorldPlan.of(trade(panel), with_other_future(panel, 99)).run_id != plan.run_id
    assert WorldPlan.of(trade(panel, description="another"), panel).run_id != plan.run_id
    assert WorldPlan.of(WorldExperiment.model_validate(SALE), None).panel_digest == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [("world", {"kind": "tradesim_algotrading", "symbol": "NONE"}), ("train", ["1900-01-01", "1900-01-05"])],
)
def test_market_without_symbol_or_days_is_refused(field, value):
    panel = eventful_panel()
    spec = WorldExperiment.model_validate({**trade(panel).model_dump(), field: value})
    with pytest.raises(ValueError):
        WorldPlan.of(spec, panel)


def test_order_that_no_days_can_hold_is_refused():
    panel = eventful_panel()
    world = {"kind": "tradesim_execution", "moves": {"kind": "market"}, "horizon": 50, "n_steps": 50}
    spec = trade(panel, world=world, agent={"kind": "almgren_chriss"})
    with pytest.raises(ValueError):
        WorldPlan.of(spec, panel)
    assert np.datetime64(spec.test[1]) == panel.sessions[100]
