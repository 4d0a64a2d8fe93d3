"""Rows of an account that are wrong are found, and only those."""

import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.execution.invariants import beyond_limits, not_numbers, off_sum
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
def test_weights_of_every_stage_sum_to_one_and_are_not_negative(weights, wrong):
    found = off_sum(pl.concat([decision((0.0, 0.0, 1.0), weights), decision((0.0, 0.5, 0.5), plan_id="other")]))
    assert found.select("plan_id", "step").rows() == ([("plan", 1)] if wrong else [])


@pytest.mark.parametrize(
    ("weights", "wrong"),
    [
        ((0.5, 0.3, 0.2), False),
        ((0.5 + 1e-12, 0.3, 0.2), False),
        ((0.6, 0.1, 0.3), True),  # one name
        ((0.5, 0.45, 0.05), True),  # gross
        ((0.1, 0.05, 0.85), True),  # net
        ((NAN, 0.3, 0.2), True),
        ((0.3, 0.3, None), True),
    ],
)
def test_limits_hold_of_the_stage_that_is_traded(weights, wrong):
    beyond_before_the_limits = (0.9, 0.1, 0.0)
    assert len(beyond_limits(decision(beyond_before_the_limits, weights), LIMITS)) == wrong


def test_nothing_decided_is_nothing_wrong():
    assert beyond_limits(decision((0.0, 0.0, 1.0)).clear(), LIMITS).is_empty()
    assert off_sum(decision((0.0, 0.0, 1.0)).clear()).is_empty()


def test_a_missing_number_is_found_in_a_column_and_in_a_list():
    rows = pl.DataFrame(
        {
            "equity": [1.0, None, NAN, float("inf"), 1.0, 1.0, 1.0],
            "weights": [[0.5, 0.5], [1.0], [1.0], [1.0], [0.5, None], [NAN, 1.0], None],
            "note": [None] * 7,
        }
    )
    assert not_numbers(rows, "equity", "weights").equals(rows[1:])
    assert not_numbers(rows, "equity").equals(rows[1:4])
