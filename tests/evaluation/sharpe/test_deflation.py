from itertools import product

import numpy as np
import pytest

from nvtrader_pipelines.evaluation.sharpe.deflation import luck_bar
from nvtrader_pipelines.evaluation.sharpe.inference import expected_maximum_sharpe
from nvtrader_pipelines.evaluation.sharpe.lead import BLOCK_SIZE
from tests.evaluation.golden import golden

VECTORS = golden("search_verdict")


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", VECTORS["bar"], ids=lambda case: str(case["n"]))
def test_luck_bar_equals_reference_from_20_configurations_on(case):
    assert expected_maximum_sharpe(case["n"], 1.0) == close(case["gumbel"])
    assert luck_bar(case["n"]) == close(max(case["gumbel"], VECTORS["bar"][4]["gumbel"]))


@pytest.mark.parametrize("case", VECTORS["bar"][4:], ids=lambda case: str(case["n"]))
def test_luck_bar_is_little_above_the_exact_mean_of_the_best(case):
    assert case["exact"] < luck_bar(case["n"]) < 1.02 * case["exact"]


def test_luck_bar_is_above_the_mean_best_of_correlated_trials():
    case = VECTORS["correlated_bar"]
    sums = np.array(case["block_sums"])
    errors = sums.std(axis=0, ddof=1) / (np.sqrt(len(sums)) * BLOCK_SIZE)
    signs = np.array(list(product((-1.0, 1.0), repeat=len(sums))))
    leads = signs @ sums / (len(sums) * BLOCK_SIZE) * np.sqrt(len(sums) / (len(sums) - 1))  # as the error is unbiased
    assert errors == close(case["standard_errors"])
    assert leads.max(axis=1).mean() == close(case["expected_best"])
    assert (leads / errors).max(axis=1).mean() == close(case["expected_best_t"])
    assert case["expected_best_t"] < expected_maximum_sharpe(5, 1.0) == close(case["independent"])
