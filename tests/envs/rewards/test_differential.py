import json
from pathlib import Path

import numpy as np
import pytest

from nvtrader_pipelines.envs.accounts import Accounts
from nvtrader_pipelines.envs.rewards import DifferentialDownside, DifferentialSharpe
from nvtrader_pipelines.envs.rewards.differential import differential_downside, differential_sharpe
from nvtrader_pipelines.envs.spec import EnvSpec
from tests.markets import synthetic_panel

FOLDER = Path(__file__).parents[2] / "golden" / "differential_sharpe"
GOLDEN = json.loads((FOLDER / "differential_sharpe.json").read_text())
INPUTS = GOLDEN["inputs"]
SHARPE = [(INPUTS, GOLDEN["expected"]["dsr"]), *((case, case["dsr"]) for case in GOLDEN["cases"] if "dsr" in case)]
DOWNSIDE = [(INPUTS, GOLDEN["expected"]["d3r"]), *((case, case["d3r"]) for case in GOLDEN["cases"] if "d3r" in case)]


def walk(ratio, square_of, inputs, start):
    """Yield the ratio before each return and the moments after it."""
    eta, mean, square, rows = inputs["eta"], np.array([inputs["A0"]]), np.array([inputs[start]]), []
    for value in INPUTS["R"]:
        returns = np.array([value])
        found = ratio(returns, mean, square)[0]
        mean, square = mean + eta * (returns - mean), square + eta * (square_of(returns) - square)
        rows.append((found, mean[0], square[0]))
    return rows


@pytest.mark.parametrize(("inputs", "expected"), SHARPE)
def test_differential_sharpe_equals_formula_and_derivative(inputs, expected):
    rows = walk(differential_sharpe, np.square, inputs, "B0")
    np.testing.assert_allclose(rows, [(row["D"], row["A"], row["B"]) for row in expected], rtol=1e-12)
    np.testing.assert_allclose([row[0] for row in rows], [row["D_numeric_dS_deta"] for row in expected], rtol=1e-12)


@pytest.mark.parametrize(("inputs", "expected"), DOWNSIDE)
def test_differential_downside_equals_formula_and_derivative(inputs, expected):
    rows = walk(differential_downside, lambda returns: np.minimum(returns, 0.0) ** 2, inputs, "DD2_0")
    np.testing.assert_allclose(rows, [(row["D"], row["A"], row["DD2"]) for row in expected], rtol=1e-12)
    np.testing.assert_allclose([row[0] for row in rows], [row["D_numeric"] for row in expected], rtol=1e-12)


@pytest.mark.parametrize("ratio", [differential_sharpe, differential_downside])
def test_differential_of_an_undefined_ratio_is_zero(ratio):
    mean = np.array([0.0, 0.01, 1e-5])
    square = mean**2 if ratio is differential_sharpe else np.zeros(3)
    assert ratio(np.array([0.02, 0.02, -0.5]), mean, square).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("term", "ratio", "square_of"),
    [
        (DifferentialSharpe(weight=2.0, eta=0.05), differential_sharpe, np.square),
        (DifferentialDownside(weight=2.0, eta=0.05), differential_downside, lambda r: np.minimum(r, 0.0) ** 2),
    ],
)
def test_differential_sums_sessions_and_carries_moments(term, ratio, square_of):
    accounts = Accounts(synthetic_panel(80, 3), EnvSpec(rewards=(term,), vol_penalty=0.0), 1, t=10)
    mean, square, target = np.zeros(1), np.array([1e-4]), np.array([[0.5, 0.3, 0.1, 0.1]])
    for _ in range(6):
        step, expected = accounts.trade(target, np.ones(1, dtype=bool), 7), 0.0
        for returns in (step.transition.session_growth - 1.0).T:
            expected += 2.0 * ratio(returns, mean, square)[0]
            mean, square = mean + 0.05 * (returns - mean), square + 0.05 * (square_of(returns) - square)
        np.testing.assert_allclose(step.reward_terms[term.kind], [expected], rtol=1e-12)


def test_differential_after_years_in_cash_is_bounded():
    terms = (DifferentialSharpe(eta=0.5), DifferentialDownside(eta=0.5))
    accounts = Accounts(synthetic_panel(600, 2), EnvSpec(rewards=terms, vol_penalty=0.0), 1)
    cash, invested, trade = np.eye(3)[[2]], np.eye(3)[[0]], np.ones(1, dtype=bool)
    for _ in range(50):
        accounts.trade(cash, trade, 10)
    contributions = accounts.trade(invested, trade, 1).reward_terms
    assert all(abs(values[0]) < 10.0 for values in contributions.values())
