from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest

from nvtrader_pipelines.portfolio.mean_cvar import Constraints, Objective
from tests.evaluation.golden import golden
from tests.portfolio.mean_cvar.cases import solved

GOLDEN = golden("cvar_lp")
PROGRAM = GOLDEN["scenario_lp"]
FIRST = np.array([[((7 * i + 13 * j + i * j) % 11 - 5) / 100 for j in range(3)] for i in range(20)])
SECOND = np.array([[((17 * i * i + 29 * j * i + 5 * j) % 23 - 10) / 200 for j in range(4)] for i in range(40)])


@pytest.mark.parametrize("method", ["cuts", "rockafellar_uryasev"])
@pytest.mark.parametrize("case", PROGRAM["cases"], ids=lambda case: f"{case['beta']}-{case['min_return']}")
def test_optimum_equals_that_of_five_libraries(case, method):
    scenarios, least = np.array(PROGRAM["scenarios"]), case["min_return"]
    mean = scenarios.mean(axis=0)
    further = None if least is None else (lambda weights: [mean @ weights >= least])
    found = solved(scenarios, Constraints(further=further), Objective(case["beta"]), method=method)
    assert found.method == method
    assert found.cvar == pytest.approx(case["expected"]["cvar"], rel=1e-12)
    np.testing.assert_allclose(found.weights, case["expected"]["weights"], atol=1e-10)
    assert mean @ found.weights == pytest.approx(case["expected"]["portfolio_mean"], abs=1e-12)
    assert found.value_at_risk == pytest.approx(case["expected"]["ru_alpha"], abs=1e-12)


def test_optimum_of_four_scenarios_equals_a_grid_search():
    tiny = GOLDEN["tiny"]
    found = solved(np.array(tiny["scenarios"]), objective=Objective(tiny["beta"]))
    assert found.cvar == pytest.approx(tiny["cvar"], rel=1e-12)
    np.testing.assert_allclose(found.weights, tiny["weights"], atol=1e-12)


@pytest.mark.parametrize(
    ("scenarios", "level", "cap", "optimum", "weights"),
    [
        (FIRST, 0.90, 1.0, Fraction(1, 40), None),
        (FIRST, 0.90, 0.4, Fraction(13, 500), (0.2, 0.4, 0.4)),
        (FIRST, 0.95, 1.0, Fraction(1, 40), None),
        (SECOND, 0.90, 0.3, Fraction(7, 400), None),
        (SECOND, 0.95, 0.3, Fraction(7, 400), None),
        (SECOND, 0.85, 0.5, Fraction(31, 1800), None),
    ],
)
def test_integer_programs_have_their_exact_rational_optimum(scenarios, level, cap, optimum, weights):
    found = solved(scenarios, Constraints(cap=cap), Objective(level))
    assert found.objective == pytest.approx(float(optimum), rel=1e-12)
    assert found.lower_bound == pytest.approx(float(optimum), rel=1e-12)
    if weights is not None:  # unique
        np.testing.assert_allclose(found.weights, weights, atol=1e-12)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_normal_returns_reach_the_published_optimum_within_sampling_error(level):
    example = GOLDEN["rockafellar_uryasev_2000"]
    mean, covariance = np.array(example["inputs"]["mean"]), np.array(example["inputs"]["cov"])
    normal = np.random.default_rng(0).standard_normal((10_000, 3))
    normal = np.concatenate([normal, -normal])
    normal = normal @ np.linalg.inv(np.linalg.cholesky(np.cov(normal.T, bias=True))).T
    scenarios = mean + normal @ np.linalg.cholesky(covariance).T
    required = example["inputs"]["required_return_equality"]
    found = solved(scenarios, Constraints(further=lambda weights: [mean @ weights == required]), Objective(level))
    assert found.cvar == pytest.approx(example["printed"]["CVaR"][str(level)], rel=0.02)
    assert found.value_at_risk == pytest.approx(example["printed"]["VaR"][str(level)], rel=0.02)
    density = NormalDist().pdf(NormalDist().inv_cdf(level)) / (1.0 - level)
    closed_form = -required + density * np.sqrt(found.weights @ covariance @ found.weights)
    assert found.cvar == pytest.approx(closed_form, rel=0.02)
