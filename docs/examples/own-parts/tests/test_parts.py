"""The contract checks of nvtrader_pipelines on every part, and a formula."""

import numpy as np
import pytest
from own_parts.agents import WarmUpPpo
from own_parts.features import Efficiency
from own_parts.rewards import WorstSession
from own_parts.strategies import DipBuyer

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines import EventDriven
from nvtrader_pipelines.testing import contract
from nvtrader_pipelines.testing.feature_checks import synthetic_history
from nvtrader_pipelines.testing.synthetic_panels import synthetic_panel

PARTS = {"rewards": WorstSession(), "features": Efficiency(), "agents": WarmUpPpo()}
CASES = [
    pytest.param(part, check, id=f"{part.kind}-{check.__name__}")
    for family, part in PARTS.items()
    for check in contract(family)
]


@pytest.mark.parametrize(("part", "check"), CASES)
def test_part_keeps_the_contract_of_its_family(part, check):
    check(part)


def test_efficiency_is_net_change_over_path():
    history = synthetic_history()
    prices = np.log(history.closes[-22:, 0])
    expected = abs(prices[-1] - prices[0]) / np.abs(np.diff(prices)).sum()
    assert Efficiency(window=21).values(history)[-1, 0] == pytest.approx(expected)


def test_dip_buyer_holds_the_names_below_their_mean():
    panel = synthetic_panel(60, 4)
    result = EventDriven().run(panel, EnvSpec(turnover_cost_bps=0.0), DipBuyer(window=5))
    closes = np.cumprod(1.0 + panel.close_returns, axis=0)
    below = closes[-2] < closes[-6:-1].mean(axis=0)  # decided at the close before the last
    assert ((result.weights[-1, :-1] > 0.0) == below).all()
    assert result.weights[-1, :-1][below] == pytest.approx(0.25, abs=0.02)
