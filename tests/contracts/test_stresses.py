from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.stress import BootstrappedWindow, HistoricWindow
from nvtrader_pipelines.market.panel import PANEL_ARRAYS
from tests.contracts.families import defaults
from tests.evaluation.stress.markets import random_walks, unstressed_market

TESTED = HistoricWindow(first=date(2016, 10, 1), last=date(2017, 2, 28))
SMALL = {"n_worlds": 2, "n_sessions": 21}


def shrink(stress):
    """Adapt the member to a window of 100 sessions that begins in 2017."""
    fields = {name: value for name, value in SMALL.items() if name in type(stress).model_fields}
    return TESTED if isinstance(stress, HistoricWindow) else stress.model_copy(update=fields)


MEMBERS = [shrink(stress) for stress in defaults("stress")]
EVERY_STRESS = pytest.mark.parametrize("stress", MEMBERS, ids=lambda stress: stress.kind)
MARKETS = [unstressed_market(random_walks(3, seed, opens=seed > 0, volume=seed > 0)) for seed in (0, 1)]


def play(stress, market, seed=0):
    return list(stress.apply(market, np.random.default_rng(seed)))


@pytest.mark.slow
@EVERY_STRESS
@settings(max_examples=4)
@given(at=st.floats(0.0, 0.75), market=st.sampled_from(MARKETS), seed=st.integers(0, 9))
def test_stressed_market_before_the_shock_is_unstressed(stress, at, market, seed):
    moved = stress.model_copy(update={"at": at}) if "at" in type(stress).model_fields else stress
    for stressed in play(moved, market, seed):
        unstressed = market.unstressed().panel if stressed.panel is not market.panel else market.panel
        known = slice(len(unstressed.sessions) if stressed.shock is None else stressed.shock)
        for name in PANEL_ARRAYS:
            was, now = getattr(unstressed, name), getattr(stressed.panel, name)
            assert (was is None) == (now is None)
            assert was is None or was[known].tobytes() == now[known].tobytes(), name


@pytest.mark.slow
@EVERY_STRESS
@pytest.mark.parametrize("market", MARKETS, ids=["closes", "opens"])
def test_stressed_prices_are_finite_and_positive(stress, market):
    for stressed in play(stress, market):
        panel = stressed.panel
        for name in PANEL_ARRAYS:
            array = getattr(panel, name)
            assert array is None or np.isfinite(array).all(), name
            assert array is None or not name.endswith("returns") or (array > -1.0).all(), name
        if panel.overnight_returns is not None:
            bodies = np.stack([panel.close_returns, panel.overnight_returns])
            assert (1.0 + panel.high_returns >= (1.0 + bodies.max(axis=0)) * (1.0 - 1e-12)).all()
            assert (1.0 + panel.low_returns <= (1.0 + bodies.min(axis=0)) * (1.0 + 1e-12)).all()


@pytest.mark.slow
@EVERY_STRESS
def test_same_seed_gives_the_same_stressed_markets(stress):
    first, again = (play(stress, MARKETS[1]) for _ in range(2))
    assert [stressed.scenario for stressed in first] == [stress.name] * len(first)
    for one, other in zip(first, again, strict=True):
        assert (one.blocks, one.shock, one.note) == (other.blocks, other.shock, other.note)
        for name in PANEL_ARRAYS:
            assert getattr(one.panel, name).tobytes() == getattr(other.panel, name).tobytes(), name


def test_another_seed_gives_other_markets_for_random_stresses():
    stress = BootstrappedWindow(**SMALL)
    first, other = (play(stress, MARKETS[1], seed)[0].panel for seed in (0, 1))
    assert first.close_returns.tobytes() != other.close_returns.tobytes()


@EVERY_STRESS
def test_evaluated_sessions_are_consecutive_and_in_the_market(stress):
    for stressed in play(stress, MARKETS[1]):
        assert 1 <= stressed.first <= stressed.last < len(stressed.panel.sessions)
        assert stressed.shock is None or stressed.first <= stressed.shock <= stressed.last
        assert len(stressed.blocks) == 1
