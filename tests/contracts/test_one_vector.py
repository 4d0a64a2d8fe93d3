"""The vector a policy is judged on is the vector that is traded: back-test and paper account, side by side."""

import itertools

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
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
FIRST, LAST = 25, 75  # sessions traded: a listing, a gap and a delisting are among them
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
    """Session to target weights of the first of some accounts in one back-test, and its equity at each close."""
    who = [
        PolicyAccount(f"account-{i}", "policy", (None,), (PipelinedPolicy(policy, spec.pipeline, FITTED),))
        for i, policy in enumerate(policies)
    ]
    record = backtest(panel, spec.environment, [Block(0, first, last)], who)
    own = pl.col("policy") == "account-0"
    log, curve = record.action_logs.filter(own), record.equity_curves.filter(own)
    return dict(log.select("session", "target_weights").iter_rows()), curve["equity"].to_list()


def assert_the_same(panel, spec, account, rests=0):
    """A paper account that has traded has the weights and the equity of the back-test."""
    targets, equity = judged(panel, spec, [Wishes(0, rests), Wishes(1)])
    traded, closes = account.targets(), [account.book.states[panel.sessions[t].item()] for t in range(FIRST, LAST + 1)]
    resting = {panel.sessions[t].item() for t in range(len(panel.sessions)) if rests and t % rests == 0}
    assert traded.keys() | {panel.sessions[LAST].item()} >= targets.keys() - resting
    assert len(traded.keys() & targets.keys()) > len(targets) // 2
    for session in traded.keys() & targets.keys():
        assert traded[session] == targets[session]
    np.testing.assert_allclose([state.equity for state in closes], equity, rtol=1e-12)
    assert not any(state.differences for state in closes)
    assert len(account.book.filled) > len(traded)


def traded(panel, spec, rests=0, **options):
    """A paper account, session by session."""
    account = Account(Deployed(panel, spec, Wishes(0, rests), FITTED), **options).open(FIRST - 1)
    account.trade(FIRST, LAST)
    return account


def named(pipeline):
    """What is in a pipeline."""
    return f"{pipeline.selector.kind}-{pipeline.allocator.kind}-{pipeline.timing.kind}-{pipeline.limits[0].kind}"


@pytest.mark.parametrize("pipeline", ONE_MEMBER + CROSSED, ids=named)
def test_the_paper_account_trades_what_the_back_test_was_judged_on(pipeline):
    spec = spec_of(pipeline=pipeline)
    assert_the_same(PANEL, spec, traded(PANEL, spec))


def test_every_member_of_the_pipeline_is_held_to_it():
    for family, tested in {"selector": SELECTORS, "allocator": ALLOCATORS, "timing": TIMINGS, "limit": LIMITS}.items():
        assert {each.kind for each in tested} == {kind_of(member) for member in members(FAMILIES[family])}


@pytest.mark.parametrize("rebal_freq", [1, 4])
@pytest.mark.parametrize("fill", ["next_open", "next_close", "same_close"])
@pytest.mark.parametrize(
    "panel", [PANEL, eventful_panel(opens=False), synthetic_panel(120, 3)], ids=["eventful", "no opens", "steady"]
)
def test_it_does_so_at_every_fill_and_frequency_and_through_gaps_listings_and_delistings(panel, fill, rebal_freq):
    spec = spec_of(environment={**ENVIRONMENT.model_dump(), "fill": fill, "rebal_freq": rebal_freq}, pipeline=DEFAULT)
    assert_the_same(panel, spec, traded(panel, spec, rests=3), rests=3)


def test_it_does_so_with_every_model_of_costs_at_once():
    costs = (VolatilitySpread(), SquareRootImpact(participation=0.5))
    spec = spec_of(environment=ENVIRONMENT.model_copy(update={"costs": costs}), pipeline=DEFAULT)
    account = traded(PANEL, spec)
    assert_the_same(PANEL, spec, account)
    assert sum(state.cost for state in account.book.states.values()) > 0.001


def test_it_does_so_when_each_session_knows_the_market_to_its_own_close_alone():
    pipeline = limited(LIMITS[0]).model_copy(update={"allocator": ALLOCATORS[-1], "timing": TIMINGS[1]})
    spec, log, book = spec_of(pipeline=pipeline), MemoryLog(), MemoryBook()
    for t in range(FIRST - 1, LAST + 1):
        known = cut(PANEL, t)
        account = Account(Deployed(known, spec, Wishes(), FITTED), log, book, prices=prices_of(known))
        account.open(t) if t < FIRST else account.session(t)
    assert_the_same(PANEL, spec, account)
