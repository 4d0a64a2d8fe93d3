"""Rows of an account that are wrong are found, and only those."""

import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.execution.invariants import invalid_stage_sums, limit_breaches, missing_numbers
from nvtrader_pipelines.portfolio.pipeline import RiskLimits

NAN = float("nan")
LIMITS = RiskLimits(max_position=0.5, max_gross=0.9, max_net=0.9, min_net=0.2)


def decision(*stages, plan_id="plan"):
    """Rows of one decision over two names and cash."""
    return pl.DataFrame(
        [
            {
                "account": "paper",
                "session": dt.date(2024, 7, 2),
                "plan_id": plan_id,
                "step": step,
                "stage": f"stage-{step}",
                "symbol": symbol,
                "weight": weight,
            }
            for step, weights in enumerate(stages)
            for symbol, weight in zip(("A", "B", "cash"), weights, strict=True)
        ],
        schema_overrides={"weight": pl.Float64},
    )


@pytest.mark.parametrize(
    ("weights", "wrong"),
    [
        ((0.5, 0.3, 0.2), False),
        ((0.5, 0.3, 0.2 + 1e-12), False),
        ((0.5, 0.3, 0.2 + 1e-6), True),
        ((0.9, -0.1, 0.2), True),
        ((0.9, 0.2, -0.1), True),
        ((NAN, 0.8, 0.2), True),
        ((None, 0.8, 0.2), True),
    ],
)
def test_invalid_stage_sums_finds_negative_or_unnormalized_weights(weights, wrong):
    found = invalid_stage_sums(
        pl.concat([decision((0.0, 0.0, 1.0), weights), decision((0.0, 0.5, 0.5), plan_id="other")])
    )
    assert found.select("plan_id", "step").rows() == ([("plan", 1)] if wrong else [])


@pytest.mark.parametrize(("weights", "wrong"), [((1.5, -0.4, -0.1), False), ((1.5, -0.4, 0.0), True)])
def test_invalid_stage_sums_allows_shorts_and_debt_of_levered_plans(weights, wrong):
    assert len(invalid_stage_sums(decision(weights), ["plan"])) == wrong
    assert len(invalid_stage_sums(decision(weights), ["other"])) == 1


@pytest.mark.parametrize(
    ("weights", "wrong"),
    [
        ((0.5, 0.3, 0.2), False),
        ((0.5 + 1e-12, 0.3, 0.2), False),
        ((0.6, 0.1, 0.3), True),  # one name
        ((0.5, 0.45, 0.05), True),  # gross
        ((0.1, 0.05, 0.85), True),  # net
        ((0.4, -0.1, 0.7), True),  # short
        ((NAN, 0.3, 0.2), True),
        ((0.3, 0.3, None), True),
    ],
)
def test_limit_breaches_checks_the_last_stage(weights, wrong):
    beyond_before_the_limits = (0.9, 0.1, 0.0)
    assert len(limit_breaches(decision(beyond_before_the_limits, weights), LIMITS)) == wrong


def test_empty_rows_violate_nothing():
    assert limit_breaches(decision((0.0, 0.0, 1.0)).clear(), LIMITS).is_empty()
    assert invalid_stage_sums(decision((0.0, 0.0, 1.0)).clear()).is_empty()


def test_missing_numbers_are_found_in_columns_and_lists():
    rows = pl.DataFrame(
        {
            "equity": [1.0, None, NAN, float("inf"), 1.0, 1.0, 1.0],
            "weights": [[0.5, 0.5], [1.0], [1.0], [1.0], [0.5, None], [NAN, 1.0], None],
            "note": [None] * 7,
        }
    )
    assert missing_numbers(rows, "equity", "weights").equals(rows[1:])
    assert missing_numbers(rows, "equity").equals(rows[1:4])
