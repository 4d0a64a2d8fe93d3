"""Guards on slices of the tests: slices away from training, sums by hand, and the readiness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.guard_comparison import (
    GUARDED,
    MIN_SLICES,
    UNGUARDED,
    compare_slices,
    guard_readiness,
    mean_interval,
    slice_blocks,
)
from nvtrader_pipelines.evaluation.intervals import Interval
from nvtrader_pipelines.evaluation.splits import BacktestPaths, Block
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.loss_shutdown import LossShutdown
from tests.envs.two_names import two_names
from tests.evaluation.test_session_windows import SESSIONS, SPLITTERS
from tests.execution.desks import Wants

T_2 = 12.7062047  # 97.5 % quantile of Student's distribution with one degree of freedom


def test_slices_start_anew_in_each_block_and_leave_the_rest_out():
    slices = slice_blocks([Block(3, 10, 20), Block(4, 21, 29)], 4)
    assert slices == [Block(3, 10, 13), Block(3, 14, 17), Block(4, 21, 24), Block(4, 25, 28)]


@pytest.mark.parametrize("n_sessions", [6, 11, 12])
def test_fewer_than_two_slices_are_refused(n_sessions):
    with pytest.raises(ValueError):
        slice_blocks([Block(0, 10, 20)], n_sessions)


@given(splitter=st.sampled_from(SPLITTERS), n_sessions=st.integers(2, 30))
def test_no_slice_has_a_session_of_the_training_that_decides_it(splitter, n_sessions):
    folds = splitter.split(SESSIONS)
    paths = BacktestPaths.of(folds)
    slices = slice_blocks(paths.blocks, n_sessions)
    for block, deciding in zip(paths.blocks, zip(*paths.by_path, strict=True), strict=True):
        inside = [each for each in slices if each.index == block.index]
        sessions = [t for each in inside for t in range(each.test_first, each.test_last + 1)]
        n_inside = (block.test_last - block.test_first + 1) // n_sessions
        assert sessions == list(range(block.test_first, block.test_first + n_inside * n_sessions))
        for first, last in (span for position in deciding for span in folds[position].train):
            assert not set(sessions) & set(range(first, last + 1))


def test_comparison_of_two_slices_equals_sums_by_hand():
    panel = two_names([[0.0, 0.0], [-0.2, 0.1], [-0.1, 0.0], [0.1, 0.0], [0.1, 0.0]])
    spec = EnvSpec(rebal_freq=1, fill="same_close", turnover_cost_bps=0.0, vol_penalty=0.0)
    pipeline = WeightPipeline(timing=LossShutdown(probe=0.0), risk_limits=RiskLimits(max_position=0.5))
    guarded = PipelinedPolicy(Wants(0.5, 0.4, 0.1), pipeline, Thresholds(), 1)
    accounts = [
        PolicyAccount(GUARDED, "ensemble", (None,), (guarded,)),
        PolicyAccount(UNGUARDED, "ensemble", (None,), (guarded.without_timing,)),
        PolicyAccount("equal_weight", "baseline", (None,), (EqualWeight().start(),)),
    ]
    records = [backtest(panel, spec, [Block(7, first, first + 1)], accounts) for first in (1, 3)]
    comparison = compare_slices(records, "equal_weight")
    first, second = comparison.slices
    assert (first.fold, first.first_session, second.last_session) == (7, *panel.sessions[[1, 4]].tolist())
    # the first name loses in session 1 and is cut in session 2; the second slice opens in cash, without that loss
    assert (first.guarded_return, second.guarded_return) == pytest.approx((-0.06, 1.05**2 - 1.0))
    assert (first.unguarded_return, second.unguarded_return) == pytest.approx((0.94 * 0.95 - 1.0, 1.05**2 - 1.0))
    assert (first.baseline_return, second.baseline_return) == pytest.approx((0.95**2 - 1.0, 1.05**2 - 1.0))
    assert (first.guarded_drawdown, first.unguarded_drawdown) == pytest.approx((0.06, 0.107))
    assert second.unguarded_drawdown == 0.0
    assert (first.telemetry.shutdown_rate, second.telemetry.shutdown_rate) == (0.5, 0.0)
    assert (comparison.telemetry.n_decisions, comparison.telemetry.shutdown_rate) == (4, 0.25)
    assert comparison.telemetry.max_gross == pytest.approx(0.95 / 1.05)
    assert comparison.telemetry.mean_gross == pytest.approx((0.84 / 0.94 + 0.4 + 2.0 * 0.95 / 1.05) / 4.0)
    assert vars(comparison.return_difference) == pytest.approx(
        {"point": 0.0235, "low": 0.0235 * (1.0 - T_2), "high": 0.0235 * (1.0 + T_2)}
    )
    assert comparison.drawdown_difference.point == pytest.approx(-0.0235)
    assert comparison.baseline_return_difference.point == pytest.approx(0.0375 / 2.0)
    assert comparison.baseline_drawdown_difference.point == pytest.approx(-0.0375 / 2.0)
    assert comparison.readiness == "open"  # two slices


def test_mean_interval_of_equal_differences_is_a_point():
    assert vars(mean_interval(np.zeros(9))) == {"point": 0.0, "low": 0.0, "high": 0.0}


@pytest.mark.parametrize(
    ("earned", "lost", "fired", "word"),
    [
        ((0.001, 0.02), (-0.01, 0.01), True, "ready"),
        ((-0.01, 0.02), (-0.02, -0.001), True, "ready"),
        ((-0.01, 0.001), (-0.02, -0.001), True, "open"),  # a lower mean return
        ((-0.02, -0.001), (-0.02, -0.001), True, "harmful"),
        ((-0.01, 0.01), (-0.01, 0.01), True, "open"),
        ((-0.01, 0.01), (0.001, 0.02), True, "open"),
        ((0.0, 0.0), (0.0, 0.0), False, "open"),
    ],
)
def test_readiness_follows_from_both_intervals(earned, lost, fired, word):
    intervals = [Interval((low + high) / 2.0, low, high) for low, high in (earned, lost)]
    assert guard_readiness(MIN_SLICES, *intervals, has_fired=fired)[0] == word
    assert guard_readiness(MIN_SLICES - 1, *intervals, has_fired=fired) == ("open", "there are 7 slices, fewer than 8")
