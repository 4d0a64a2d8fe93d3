import numpy as np
import pytest

from nvtrader_pipelines.evaluation.sharpe.lead import (
    Lead,
    block_sums,
    lead_of,
    sharpe_influence,
    t_quantile,
)
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, sharpe_ratio
from tests.evaluation.golden import golden

VECTORS = golden("search_verdict")
RETURNS = np.random.default_rng(3).normal(0.0005, 0.01, (2, 130))


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", VECTORS["lead"], ids=lambda case: case["name"])
def test_lead_equals_reference(case):
    trial, base = np.array(case["trial"]), np.array(case["base"])
    influence = sharpe_influence(trial.mean(axis=0), 252) - sharpe_influence(base.mean(axis=0), 252)
    sums = block_sums(influence)
    lead = lead_of(trial, base, 252)
    assert [sharpe_ratio(seed, 252) for seed in trial] == close(case["trial_sharpes"])
    assert [sharpe_ratio(seed, 252) for seed in base] == close(case["base_sharpes"])
    assert influence[:3] == close(case["influence_first3"])
    assert sums - sums.mean() == close(case["centred_block_sums"])
    assert (lead.difference, lead.standard_error) == close((case["lead"], case["standard_error"]))
    assert (lead.t, lead.n_blocks - 1) == close((case["t"], case["df"]))


@pytest.mark.parametrize("case", VECTORS["lead"], ids=lambda case: case["name"])
def test_lead_of_mean_returns_equals_sealed_reference(case):
    trial, base = (np.array(case[side]).mean(axis=0, keepdims=True) for side in ("trial", "base"))
    lead, expected = lead_of(trial, base, 252), case["sealed"]
    figures = lead.difference, lead.standard_error, lead.t, lead.p_value
    assert figures == close(tuple(expected[name] for name in ("lead", "standard_error", "t", "p")))


def test_interval_excludes_zero_exactly_below_p_value():
    lead = Lead(0.3, 0.12, 60)
    assert lead.interval(lead.p_value)[0] == pytest.approx(0.0, abs=1e-12)
    assert lead.interval(0.025) == close((0.3 - 0.12 * 2.000995378088268, 0.3 + 0.12 * 2.000995378088268))
    assert t_quantile(0.025, 60) == close(2.000995378088268)


@pytest.mark.parametrize("leverage", [1.0, 0.3])
def test_lead_of_levered_base_has_t_of_zero(leverage):
    lead = lead_of(leverage * RETURNS, RETURNS, 252)
    assert (lead.t, lead.p_value) == (0.0, 0.5)


def test_lead_of_constant_returns_is_undefined():
    with pytest.raises(UndefinedStatisticError):
        lead_of(np.zeros((1, 130)), RETURNS, 252)


@pytest.mark.parametrize(("trial", "base"), [(130, 129), (41, 41)])
def test_lead_refuses_other_or_too_few_sessions(trial, base):
    with pytest.raises(ValueError):
        lead_of(RETURNS[:, :trial], RETURNS[:, :base], 252)
