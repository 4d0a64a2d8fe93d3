import json
from dataclasses import fields

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.guard_telemetry import GUARDS, GuardTelemetry, guard_rows, guard_telemetry
from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.gymrl_guard import GymrlGuard
from nvtrader_pipelines.portfolio.pipeline.stage import Guards
from tests.envs.two_names import two_names
from tests.execution.desks import Wants


def info_of(*guards):
    return pl.Series([json.dumps({"reward_terms": {}, "guards": each and each._asdict()}) for each in guards])


def test_telemetry_counts_each_guard_over_decisions_with_guards():
    found = guard_telemetry(
        info_of(
            Guards(drawdown=True, scale=0.5, probe=0.05),
            None,
            Guards(negative_return=True, turnover_penalty=0.0075, probe=0.05),
            Guards(turnover=True, negative_return=True, turnover_penalty=0.01, n_shutdown=3, probe=0.002),
            Guards(n_shutdown=1, probe=0.05),
        ),
        gross=np.array([0.5, 1.5, 1.0]),
    )
    assert found == GuardTelemetry(
        n_decisions=4,
        drawdown_rate=0.25,
        negative_return_rate=0.5,
        turnover_rate=0.25,
        shutdown_rate=0.5,
        mean_scale=0.875,
        min_scale=0.5,
        penalty_rate=0.5,
        mean_penalty=0.00875,
        n_shutdown=4,
        mean_gross=1.0,
        max_gross=1.5,
    )
    assert found.has_fired


def test_penalty_alone_is_no_guard_that_fired():
    found = guard_telemetry(info_of(Guards(negative_return=True, turnover_penalty=0.01)))
    assert (found.has_fired, found.mean_gross, found.penalty_rate) == (False, None, 1.0)


def test_negative_return_that_scales_the_weights_has_fired():
    assert guard_telemetry(info_of(Guards(negative_return=True, scale=0.5))).has_fired


def test_telemetry_without_guards_is_refused():
    with pytest.raises(ValueError):
        guard_telemetry(info_of(None))


def test_columns_of_guards_are_the_fields_of_a_decision():
    assert tuple(field.name for field in GUARDS.fields) == Guards._fields
    assert len(fields(GuardTelemetry)) == 12


def test_walk_records_the_guards_of_each_decision():
    returns = [[0.0, 0.0], [-0.2, 0.1], [0.0, -0.2], [0.05, 0.0], [0.0, 0.0], [0.0, 0.0]]
    panel, spec = two_names(returns), EnvSpec(rebal_freq=1, fill="same_close", turnover_cost_bps=0.0, vol_penalty=0.0)
    guard = GymrlGuard(max_drawdown=0.04, max_turnover=1.9)
    pipeline = WeightPipeline(timing=guard, risk_limits=RiskLimits(max_position=0.5))
    guarded = PipelinedPolicy(Wants(0.5, 0.4, 0.1), pipeline, Thresholds(), 1)
    accounts = [
        PolicyAccount("guarded", "policy", (0,), (guarded,)),
        PolicyAccount("equal_weight", "baseline", (None,), (EqualWeight().start(),)),
    ]
    rows = backtest(panel, spec, [Block(0, 1, 5)], accounts).trajectories.sort("step")
    own, other = (rows.filter(policy=name)["info"] for name in ("guarded", "equal_weight"))
    assert guard_rows(rows).select("policy", "step", "n_shutdown").rows() == [
        ("guarded", step, n) for step, n in enumerate([0, 1, 2, 1, 1])
    ]
    assert [json.loads(each)["guards"]["n_shutdown"] for each in own] == [0, 1, 2, 1, 1]
    assert [json.loads(each)["guards"]["drawdown"] for each in own] == [False, True, True, True, True]
    assert {json.loads(each)["guards"] for each in other} == {None}
    found = guard_telemetry(own)
    assert (found.n_decisions, found.drawdown_rate, found.min_scale, found.n_shutdown) == (5, 0.8, 0.5, 5)
    assert found.negative_return_rate == found.penalty_rate == 0.8
