import json
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from nvtrader_pipelines.worlds.avellaneda_stoikov import (
    QuoteModel,
    avellaneda_stoikov_offsets,
    average_spread,
    optimal_spread,
    reservation_price,
)
from nvtrader_pipelines.worlds.cartea_jaimungal import (
    Liquidation,
    Making,
    cartea_jaimungal_offsets,
    inventory_values,
    liquidate,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/market_making/market_making.json").read_text())
QUOTES = GOLDEN["avellaneda_stoikov"]
LIQUIDATIONS, MAKINGS = (GOLDEN["cartea_jaimungal"][name] for name in ("execution", "market_making"))


def label(case):
    return "-".join(f"{value:g}" for value in case["inputs"].values() if isinstance(value, float | int))


def making(inputs):
    names = ("lambda_plus", "lambda_minus", "kappa", "phi", "alpha", "q_max")
    return Making(*(inputs[name] for name in names)), inputs["T"] - inputs["t"]


@pytest.mark.parametrize("case", QUOTES["closed_form"], ids=label)
def test_quotes_equal_golden_case(case):
    inputs, expected = case["inputs"], case["expected"]
    model = QuoteModel(risk_aversion=inputs["gamma"], volatility=inputs["sigma"], fill_decay=inputs["k"])
    inventory, left = np.array([inputs["q"]]), inputs["T"] - inputs["t"]
    bid, ask = avellaneda_stoikov_offsets(model, inventory, np.array([left]))[0]
    assert (100.0 - bid, 100.0 + ask) == pytest.approx((expected["bid"], expected["ask"]), rel=1e-14)
    assert optimal_spread(model, left) == pytest.approx(expected["spread"], rel=1e-14)
    assert reservation_price(model, 100.0, inventory, left)[0] == pytest.approx(expected["reservation"], rel=1e-14)


@pytest.mark.parametrize(("risk_aversion", "spread"), QUOTES["average_spread"].items())
def test_average_spread_equals_golden(risk_aversion, spread):
    assert average_spread(QuoteModel(risk_aversion=float(risk_aversion))) == pytest.approx(spread, rel=1e-14)


@pytest.mark.parametrize("case", LIQUIDATIONS, ids=label)
def test_liquidation_equals_golden_case(case):
    inputs = case["inputs"]
    model = Liquidation(*(inputs[name] for name in ("N0", "T", "k", "b", "phi", "alpha")))
    rows = liquidate(model, np.array(inputs["t"]))
    np.testing.assert_allclose(rows[:, 0], case["expected"]["inventory"], rtol=1e-12)
    np.testing.assert_allclose(rows[:, 1], case["expected"]["speed"], rtol=1e-12)


@pytest.mark.parametrize("case", MAKINGS, ids=label)
def test_making_equals_golden_case(case):
    model, left = making(case["inputs"])
    values, offsets = inventory_values(model, left), cartea_jaimungal_offsets(model, left)
    columns = {"h": values, "delta_minus_buy": offsets[:, 0], "delta_plus_sell": offsets[:, 1]}
    for name, column in columns.items():
        places = [int(inventory) + model.max_inventory for inventory in case["expected"][name]]
        np.testing.assert_allclose(column[places], [*case["expected"][name].values()], atol=1e-13)
    assert np.isinf([offsets[-1, 0], offsets[0, 1]]).all()


@pytest.mark.slow
@pytest.mark.parametrize("case", MAKINGS, ids=label)
def test_making_solves_its_differential_equation(case):
    """Of the value h: -dh/dt = -phi q^2 + the gains of both sides at the best distances."""
    model, left = making(case["inputs"])
    squares = np.arange(-model.max_inventory, model.max_inventory + 1) ** 2

    def growth(_, values):
        gain = np.diff(values)
        rate = -model.running_penalty * squares.astype(float)
        rate[1:] += model.buy_rate / (model.fill_decay * np.e) * np.exp(-model.fill_decay * gain)
        rate[:-1] += model.sell_rate / (model.fill_decay * np.e) * np.exp(model.fill_decay * gain)
        return rate

    start = -model.terminal_penalty * squares
    solved = solve_ivp(growth, (0.0, max(left, 1e-12)), start, method="Radau", rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(inventory_values(model, left), solved.y[:, -1], atol=1e-11)
