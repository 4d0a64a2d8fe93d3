"""The vector a policy is judged on is the vector that is traded: back-test and paper account, side by side."""

import itertools

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.components import kind_of
from nvtrader_pipelines.evaluation.backtest import Contestant, backtest
from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.policies.pipelined import PipelinedPolicy
from nvtrader_pipelines.portfolio.costs import SquareRootImpact, VolatilitySpread
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PositionCap
from tests.contracts.families import FAMILIES, members
from tests.execution.desks import ENVIRONMENT, Account, Deployed, MemoryBook, MemoryLog, Wishes, prices_of, spec_of
from tests.markets import synthetic_panel
from tests.panels import cut, eventful_panel
from tests.portfolio.pipeline.situations import ALLOCATORS, FITTED, LIMITS, SELECTORS, TIMINGS

PANEL = eventful_panel()
FIRST, LAST = 25, 99  # sessions traded: a listing, a gap and a delisting are among them
DEFAULT = WeightPipeline(risk_limits=RiskLimits(max_position=0.5, max_gross=0.9))
LAST_LIMITS = (PositionCap(), GrossExposure())


def limited(limit):
    """The pipeline with one limit more, or with that one for its own kind."""
    others = [each for each in LAST_LIMITS if each.kind != limit.kind]
    return DEFAULT.model_copy(update={"limits": (limit, *others)})


ONE_MEMBER = [
    *(DEFAULT.model_copy(update={"selector": selector}) for selector in SELECTORS),
    *(DEFAULT.model_copy(update={"allocator": allocator}) for allocator in ALLOCATORS),
    *(DEFAULT.model_copy(update={"timing": timing}) for timing in TIMINGS),
    *(limited(limit) for limit in LIMITS),
]
CROSSED = [
    limited(limit).model_copy(update={"allocator": allocator, "timing": timing, "selector": selector})
    for (allocator, timing), limit, selector in zip(
        itertools.product(ALLOCATORS, TIMINGS), itertools.cycle(LIMITS), itertools.cycle(SELECTORS), strict=False
    )
]


def judged(panel, spec, policies, first=FIRST, last=LAST):
    """Sessions to target weights, and equities at each close, of the first of some accounts in one back-test."""
    who = [
        Contestant(f"account-{i}", "policy", (None,), (PipelinedPolicy(policy, spec.pipeline, FITTED),))
        for i, policy in enumerate(policies)
    ]
    record = backtest(panel, spec.environment, [Block(0, first, last)], who)
    own = pl.col("policy") == "account-0"
    log, curve = record.action_logs.filter(own), record.equity_curves.filter(own)
    return dict(log.select("session", "target_weights").iter_rows()), curve["equity"].to_list(), log


def traded(panel, spec, policy, first=FIRST, last=LAST):
    """The same of a paper account, session by session."""
    account = Account(Deployed(panel, spec, policy, FITTED)).open(first - 1)
    states = account.trade(first, last)
    return account, states


def assert_the_same(panel, spec, rests=0, first=FIRST, last=LAST):
    judged_targets, judged_equity, log = judged(panel, spec, [Wishes(0, rests), Wishes(1)], first, last)
    account, states = traded(panel, spec, Wishes(0, rests), first, last)
    targets = account.targets()
    assert len(targets) >= len(judged_targets) // 2
    for session, target in targets.items():
        if session in judged_targets:  # the paper account decides at the last close too
            assert target == judged_targets[session]
    np.testing.assert_allclose([state.equity for state in states], judged_equity, rtol=1e-12)
    assert not any(state.differences for state in states)
    assert log["turnover" if "turnover" in log.columns else "fold"].len() == len(judged_targets)
    return account


@pytest.mark.parametrize(
    "pipeline",
    ONE_MEMBER + CROSSED,
    ids=lambda p: "-".join([p.selector.kind, p.allocator.kind, p.timing.kind, *(limit.kind for limit in p.limits[:1])]),
)
def test_the_paper_account_trades_what_the_back_test_was_judged_on(pipeline):
    assert_the_same(PANEL, spec_of(pipeline=pipeline))


def test_every_member_of_the_pipeline_is_held_to_it():
    for family, tested in {"selector": SELECTORS, "allocator": ALLOCATORS, "timing": TIMINGS, "limit": LIMITS}.items():
        assert {each.kind for each in tested} == {kind_of(member) for member in members(FAMILIES[family])}
