from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.execution.proposals import target_volatility
from tests.execution.plans import a_plan
from tests.markets import synthetic_panel

PANEL = synthetic_panel(90, 4)
TARGET = (0.5, 0.0, 0.2, 0.1, 0.2)
LAST = 80


def plan_for(target=TARGET):
    return a_plan(target=target, held=target, symbols=(*PANEL.symbols, "cash"))


def without_bar(t, name):
    """The market in which a name has no price in one session."""
    tradable = PANEL.tradable.copy()
    tradable[t, PANEL.symbols.index(name)] = False
    return replace(PANEL, tradable=tradable)


def test_target_volatility_matches_the_weighted_returns():
    earned = [
        sum(weight * PANEL.close_returns[t, j] for j, weight in enumerate(TARGET[:-1]))
        for t in range(LAST - 62, LAST + 1)
    ]
    mean = sum(earned) / 63.0
    by_hand = (sum((each - mean) ** 2 for each in earned) / 62.0 * 252.0) ** 0.5
    assert target_volatility(plan_for(), PANEL, LAST) == pytest.approx(by_hand, rel=1e-12)


def test_target_volatility_uses_63_sessions_only():
    returns = np.full_like(PANEL.close_returns, 0.5)
    returns[LAST - 62 : LAST + 1] = PANEL.close_returns[LAST - 62 : LAST + 1]
    other = replace(PANEL, close_returns=returns)
    assert target_volatility(plan_for(), other, LAST) == target_volatility(plan_for(), PANEL, LAST)


def test_target_volatility_of_cash_is_zero():
    assert target_volatility(plan_for((0.0, 0.0, 0.0, 0.0, 1.0)), PANEL, LAST) == 0.0


def test_target_volatility_is_none_for_a_short_market():
    assert target_volatility(plan_for(), PANEL, 61) is None
    assert target_volatility(plan_for(), PANEL, 62) is not None


@pytest.mark.parametrize(
    ("t", "name", "known"),
    [
        (LAST, "AAA", False),
        (LAST - 62, "DDD", False),
        (LAST - 63, "AAA", True),  # before the sessions that count
        (LAST + 1, "AAA", True),
        (LAST - 5, "BBB", True),  # not wanted
    ],
)
def test_target_volatility_is_none_for_a_missing_price(t, name, known):
    found = target_volatility(plan_for(), without_bar(t, name), LAST)
    assert (found is not None) == known
