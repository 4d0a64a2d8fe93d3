from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.portfolio.costs import (
    ProportionalCost,
    SquareRootImpact,
    VolatilitySpread,
    no_cost,
    total_coefficients,
    total_cost,
    trailing_volatility,
)
from tests.markets import synthetic_panel
from tests.panels import DELISTED, GAP, GAPPY, LAST_PRICE, LATE, LISTED_AT, NEVER, eventful_panel

PANEL = synthetic_panel(60, 3)
TRADES, FILLED_AT = np.array([[0.3, -0.2, 0.0], [0.0, 0.1, -0.4]]), np.array([40, 55])


def volatility_at(session, window=21):
    return PANEL.close_returns[session - window : session].std(axis=0, ddof=1)


def test_proportional_cost_is_bps_of_absolute_changes():
    cost = ProportionalCost(bps=20.0).start(PANEL)
    np.testing.assert_allclose(cost(TRADES, FILLED_AT), [0.0020 * 0.5, 0.0020 * 0.5], rtol=1e-14)


def test_volatility_spread_is_a_share_of_volatility():
    cost = VolatilitySpread(share=0.1, window=21).start(PANEL)(TRADES, FILLED_AT)
    first, second = volatility_at(40), volatility_at(55)
    expected = [0.1 * (0.3 * first[0] + 0.2 * first[1]), 0.1 * (0.1 * second[1] + 0.4 * second[2])]
    np.testing.assert_allclose(cost, expected, rtol=1e-12)


def test_square_root_impact_equals_its_formula():
    cost = SquareRootImpact(coefficient=0.8, participation=0.05).start(PANEL)(TRADES, FILLED_AT)
    sigma = volatility_at(40)
    expected = sum(0.8 * sigma[i] * np.sqrt(0.05 * size) * size for i, size in ((0, 0.3), (1, 0.2)))
    np.testing.assert_allclose(cost[0], expected, rtol=1e-12)


def test_four_times_the_order_costs_eight_times_as_much():
    cost = SquareRootImpact().start(PANEL)
    np.testing.assert_allclose(cost(4.0 * TRADES, FILLED_AT), 8.0 * cost(TRADES, FILLED_AT), rtol=1e-12)


def test_total_cost_is_the_sum_of_its_models():
    models = (ProportionalCost(), VolatilitySpread(), SquareRootImpact())
    parts = [model.start(PANEL)(TRADES, FILLED_AT) for model in models]
    np.testing.assert_allclose(total_cost(models, PANEL)(TRADES, FILLED_AT), sum(parts), rtol=1e-14)
    assert total_cost((), PANEL)(TRADES, FILLED_AT).tolist() == no_cost(TRADES, FILLED_AT).tolist() == [0.0, 0.0]


class FlatFee(Component):
    """A part of another package, whose cost is no sum of powers."""

    kind: Literal["flat_fee"] = "flat_fee"


COST_MODELS = st.one_of(
    st.builds(ProportionalCost, bps=st.floats(0.0, 500.0)),
    st.builds(VolatilitySpread, share=st.floats(0.0, 1.0), window=st.integers(2, 60)),
    st.builds(SquareRootImpact, coefficient=st.floats(0.0, 2.0), participation=st.floats(0.0, 1.0)),
)


@given(models=st.lists(COST_MODELS, max_size=3), seed=st.integers(0, 2**32 - 1))
def test_cost_equals_the_powers_of_its_coefficients(models, seed):
    generator, panel = np.random.default_rng(seed), eventful_panel(seed=seed % 7)
    trades, filled_at = generator.normal(0.0, 0.1, (20, 6)), generator.integers(0, 160, 20)
    linear, root = total_coefficients(models, panel)
    powers = (linear[filled_at] * np.abs(trades) + root[filled_at] * np.abs(trades) ** 1.5).sum(axis=1)
    np.testing.assert_allclose(powers, total_cost(models, panel)(trades, filled_at), rtol=1e-14, atol=1e-15)


def test_model_without_coefficients_is_refused():
    with pytest.raises(ValueError, match="flat_fee"):
        total_coefficients((ProportionalCost(), FlatFee()), PANEL)


def test_trailing_volatility_equals_deviation_of_known_returns():
    found = trailing_volatility(PANEL, 10, 0.5)
    for session in (10, 11, 37, 59):
        np.testing.assert_allclose(found[session], volatility_at(session, 10), rtol=1e-12)
    np.testing.assert_allclose(found[4], PANEL.close_returns[:4].std(axis=0, ddof=1), rtol=1e-12)


def test_trailing_volatility_of_a_new_name_is_the_default():
    panel = eventful_panel()
    found = trailing_volatility(panel, 10, 0.5)
    assert (found[:2] == 0.5).all()
    assert (found[:, NEVER] == 0.5).all()
    assert (found[: LISTED_AT + 2, LATE] == 0.5).all()
    assert found[LISTED_AT + 2, LATE] < 0.5
    assert (found[LAST_PRICE + 10 :, DELISTED] == 0.5).all()


def test_sessions_without_price_do_not_lower_volatility():
    panel = eventful_panel()
    known = panel.close_returns[GAP[1] - 10 : GAP[1], GAPPY][panel.tradable[GAP[1] - 10 : GAP[1], GAPPY]]
    assert len(known) == 7
    found = trailing_volatility(panel, 10, 0.5)[GAP[1], GAPPY]
    np.testing.assert_allclose(found, known.std(ddof=1), rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        (ProportionalCost, "bps", -1.0),
        (ProportionalCost, "bps", 501.0),
        (VolatilitySpread, "share", -0.1),
        (VolatilitySpread, "window", 1),
        (VolatilitySpread, "unknown_volatility", 0.0),
        (SquareRootImpact, "participation", -0.1),
        (SquareRootImpact, "coefficient", float("nan")),
    ],
)
def test_field_out_of_range_is_refused(model, field, value):
    with pytest.raises(ValidationError):
        model(**{field: value})
