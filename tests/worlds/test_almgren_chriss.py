import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.worlds.almgren_chriss import (
    ImpactModel,
    cost_variance,
    efficient_frontier,
    expected_cost,
    kappa,
    sale_fractions,
    trajectory,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/almgren_chriss/almgren_chriss.json").read_text())
PARAMETERS = GOLDEN["parameters"]
TABLE_1 = ImpactModel(
    shares=PARAMETERS["X"],
    horizon=PARAMETERS["T"],
    n_steps=PARAMETERS["N"],
    volatility=PARAMETERS["sig"],
    half_spread=PARAMETERS["eps"],
    permanent_impact=PARAMETERS["gam"],
    temporary_impact=PARAMETERS["eta"],
)
FRONTIER = np.array(GOLDEN["drop"]["frontier"]["rows"])


def at(**changes):
    return ImpactModel.model_validate({**TABLE_1.model_dump(), **changes})


def test_default_model_is_the_example_of_the_source():
    assert ImpactModel() == TABLE_1


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['lam']:g}")
def test_closed_form_equals_golden_case(case):
    model, expected = at(risk_aversion=case["lam"]), case["expected"]
    holdings = trajectory(model)
    assert kappa(model) == pytest.approx(expected["kappa"], rel=1e-12)
    np.testing.assert_allclose(holdings, expected["holdings"], atol=1e-6)
    np.testing.assert_allclose(-np.diff(holdings), expected["trades"], atol=1e-6)
    assert expected_cost(model, holdings) == pytest.approx(expected["E"], rel=1e-12)
    assert cost_variance(model, holdings) == pytest.approx(expected["V"], rel=1e-12)


@pytest.mark.parametrize("name", ["naive", "immediate_sale"])
def test_cost_of_given_path_equals_golden(name):
    naive = np.linspace(1e6, 0.0, 6)
    holdings = naive if name == "naive" else np.array([1e6, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert expected_cost(TABLE_1, holdings) == pytest.approx(GOLDEN[name]["E"], rel=1e-12)
    assert cost_variance(TABLE_1, holdings) == pytest.approx(GOLDEN[name]["V"], rel=1e-12)


def test_frontier_equals_the_independent_program():
    frontier = efficient_frontier(TABLE_1, FRONTIER[:, 0] * 1e-6)
    np.testing.assert_allclose(frontier / [1e6, 1e12], FRONTIER[:, 1:3], atol=5.1e-5)
    rates = [1.0 / kappa(at(risk_aversion=value * 1e-6)) for value in FRONTIER[:, 0]]
    np.testing.assert_allclose(rates, FRONTIER[:, 4], atol=5.1e-3)
    assert (np.diff(frontier[:, 0]) > 0).all()
    assert (np.diff(frontier[:, 1]) < 0).all()


def test_trajectory_equals_the_independent_program():
    printed = GOLDEN["drop"]["trajectory"]
    model = at(volatility=0.3 * 50.0 / np.sqrt(250.0), risk_aversion=printed["lam"])
    np.testing.assert_allclose(trajectory(model), printed["holdings"], atol=0.051)
    assert expected_cost(model, trajectory(model)) == pytest.approx(printed["E"], abs=0.051)


@pytest.mark.parametrize("changes", [{"risk_aversion": 0.0}, {"volatility": 0.0}, {"risk_aversion": 1e-18}])
def test_trajectory_without_aversion_or_risk_is_a_straight_line(changes):
    np.testing.assert_allclose(trajectory(at(**changes)), np.linspace(1e6, 0.0, 6), rtol=1e-9, atol=1e-9)


def test_extreme_aversion_sells_at_once_without_overflow():
    fractions = sale_fractions(at(risk_aversion=1e6, n_steps=100))
    np.testing.assert_allclose(fractions, 1.0, atol=1e-6)


def test_impact_without_a_gain_from_splitting_is_refused():
    with pytest.raises(ValidationError, match=r"temporary_impact must exceed half"):
        at(temporary_impact=1e-7)
    with pytest.raises(ValidationError):
        at(n_steps=0)
    with pytest.raises(ValueError):
        expected_cost(TABLE_1, np.linspace(1e6, 1.0, 6))
