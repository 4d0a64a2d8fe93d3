"""Paper account and back-test trade the same weights, side by side."""

import itertools

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.portfolio.costs import SquareRootImpact, VolatilitySpread
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.gymrl_guard import GymrlGuard
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PositionCap
from nvtrader_pipelines.portfolio.pipeline.loss_shutdown import LossShutdown
from tests.contracts.families import FAMILIES, members
from tests.execution.desks import (
    ACCOUNT,
    ENVIRONMENT,
    Account,
    Deployed,
    LeveredWishes,
    MemoryBook,
    MemoryLog,
    Wishes,
    prices_of,
    spec_of,
)
from tests.markets import synthetic_panel
from tests.panels import cut, eventful_panel
from tests.portfolio.pipeline.situations import ALLOCATORS, FITTED, LIMITS, SELECTORS, TIMINGS

pytestmark = pytest.mark.slow
PANEL = eventful_panel()
FIRST, LAST = 25, 75  # sessions traded: a listing, a gap and a delisting are among them
DEFAULT = WeightPipeline(risk_limits=RiskLimits(max_position=0.5, max_gross=0.9))
GROSS_TWO = WeightPipeline(risk_limits=RiskLimits(max_position=1.0, max_short=1.0, max_gross=2, max_net=2, min_net=-2))
LEVERED = {"kind": "levered_simplex", "close_cap": 1.7, "intraday_cap": 2.0}
LONG_SHORT = {"kind": "long_short", "gross": 2.0, "close_cap": 1.7}
LAST_LIMITS = (PositionCap(), GrossExposure())


def with_limit(limit):
    """Add a limit to the pipeline, or replace the one of its kind."""
    others = [each for each in LAST_LIMITS if each.kind != limit.kind]
    return DEFAULT.model_copy(update={"limits": (limit, *others)})


ONE_MEMBER = [
    *(DEFAULT.model_copy(update={"selector": selector}) for selector in SELECTORS),
    *(DEFAULT.model_copy(update={"allocator": allocator}) for allocator in ALLOCATORS),
    *(DEFAULT.model_copy(update={"timing": timing}) for timing in TIMINGS),
    *(with_limit(limit) for limit in LIMITS),
]
CROSSED = [
    with_limit(limit).model_copy(update={"allocator": allocator, "timing": timing, "selector": selector})
    for (allocator, timing), limit, selector in zip(
        itertools.product(ALLOCATORS, TIMINGS), itertools.cycle(LIMITS), itertools.cycle(SELECTORS), strict=False
    )
]


def run_backtest(panel, spec, policies, first=FIRST, last=LAST):
    """Return the first account's target weights by session where it trades, and its equity at each close."""
    accounts = [
        PolicyAccount(
            f"account-{i}",
            "policy",
            (None,),
            (PipelinedPolicy(policy, spec.pipeline, FITTED, spec.environment.rebal_freq),),
        )
        for i, policy in enumerate(policies)
    ]
    record = backtest(panel, spec.environment, [Block(0, first, last)], accounts)
    own = pl.col("policy") == "account-0"
    is_trading = pl.col("trades").list.eval(pl.element() != 0.0).list.any()
    log, curve = record.action_logs.filter(own, is_trading), record.equity_curves.filter(own)
    return dict(log.select("session", "target_weights").iter_rows()), curve["equity"].to_list()


def assert_paper_equals_backtest(panel, spec, account, rests=0, policy=None):
    """Assert that the paper account has the weights and the equity of the back-test."""
    targets, equity = run_backtest(panel, spec, [policy or Wishes(0, rests), Wishes(1)])
    traded, closes = account.targets(), [account.book.states[panel.sessions[t].item()] for t in range(FIRST, LAST + 1)]
    resting = {panel.sessions[t].item() for t in range(len(panel.sessions)) if rests and t % rests == 0}
    assert traded.keys() | {panel.sessions[LAST].item()} >= targets.keys() - resting
    assert len(traded.keys() & targets.keys()) > len(targets) // 2
    for session in traded.keys() & targets.keys():
        assert traded[session] == targets[session]
    np.testing.assert_allclose([state.equity for state in closes], equity, rtol=1e-12)
    assert not any(state.differences for state in closes)
    assert len(account.book.filled) > len(traded)


def run_paper(panel, spec, rests=0, policy=None, **options):
    """Trade a paper account session by session."""
    account = Account(Deployed(panel, spec, policy or Wishes(0, rests), FITTED), **options).open(FIRST - 1)
    account.trade(FIRST, LAST)
    return account


def pipeline_id(pipeline):
    """Kinds of the stages as a test id."""
    return f"{pipeline.selector.kind}-{pipeline.allocator.kind}-{pipeline.timing.kind}-{pipeline.limits[0].kind}"


@pytest.mark.parametrize(
    "pipeline", [*ONE_MEMBER, *(pytest.param(each, marks=pytest.mark.nightly) for each in CROSSED)], ids=pipeline_id
)
def test_paper_account_trades_the_weights_of_the_back_test(pipeline):
    spec = spec_of(pipeline=pipeline)
    assert_paper_equals_backtest(PANEL, spec, run_paper(PANEL, spec))


def test_every_pipeline_stage_is_tested_on_both_paths():
    for family, tested in {"selector": SELECTORS, "allocator": ALLOCATORS, "timing": TIMINGS, "limit": LIMITS}.items():
        assert {each.kind for each in tested} == {kind_of(member) for member in members(FAMILIES[family])}


MARKETS = {
    "eventful": PANEL,
    "no opens": eventful_panel(opens=False),
    "steady": synthetic_panel(120, 3),
    "every day": eventful_panel(calendar=TradingCalendar("24/7")),
}
FILLS = ["next_open", "next_close", "same_close"]


@pytest.mark.parametrize(
    ("market", "fill", "rebal_freq"),
    [
        pytest.param(
            market,
            fill,
            rebal_freq,
            marks=() if market == "eventful" or (fill == "next_open") == (rebal_freq == 1) else pytest.mark.nightly,
        )
        for market, fill, rebal_freq in itertools.product(MARKETS, FILLS, [1, 4])
    ],
)
def test_paper_equals_back_test_at_every_fill_frequency_and_gap(market, fill, rebal_freq):
    panel = MARKETS[market]
    spec = spec_of(environment={**ENVIRONMENT.model_dump(), "fill": fill, "rebal_freq": rebal_freq}, pipeline=DEFAULT)
    assert_paper_equals_backtest(panel, spec, run_paper(panel, spec, rests=3), rests=3)


@pytest.mark.parametrize(
    ("fill", "financing", "rebal_freq"),
    [
        pytest.param(*case, marks=() if (case[1] == "margin_loan") == (case[2] == 1) else pytest.mark.nightly)
        for case in itertools.product(FILLS, ["margin_loan", "gross_above_one"], [1, 4])
    ],
)
@pytest.mark.parametrize("action", [LEVERED, LONG_SHORT], ids=["levered", "long-short"])
def test_paper_equals_back_test_at_gross_two_and_short(action, fill, financing, rebal_freq):
    environment = ENVIRONMENT.model_dump() | {"fill": fill, "rebal_freq": rebal_freq, "action": action}
    spec = spec_of(environment=environment | {"financing": {"kind": financing}}, pipeline=GROSS_TWO)
    policy = LeveredWishes(rests=3, is_short=action is LONG_SHORT)
    account = run_paper(PANEL, spec, rests=3, policy=policy)
    assert_paper_equals_backtest(PANEL, spec, account, rests=3, policy=policy)
    states = list(account.book.states.values())
    reached = 1.9 if fill == "next_open" else 0.99 * action["close_cap"]  # a fill at a close keeps the cap
    assert max(state.gross_before_cap for state in states[1:]) > reached
    assert max(state.gross for state in states) <= 1.7 + 1e-12
    assert min(min(state.shares.values(), default=0.0) for state in states) < 0.0 or action is LEVERED
    assert min(sum(getattr(state, name) for state in states) for name in ("financing", "cap_turnover", "cap_cost")) > 0


def test_paper_equals_back_test_with_all_cost_models():
    costs = (VolatilitySpread(), SquareRootImpact(participation=0.5))
    spec = spec_of(environment=ENVIRONMENT.model_copy(update={"costs": costs}), pipeline=DEFAULT)
    account = run_paper(PANEL, spec)
    assert_paper_equals_backtest(PANEL, spec, account)
    assert sum(state.cost for state in account.book.states.values()) > 0.001


def test_paper_equals_back_test_on_panels_cut_at_each_session():
    pipeline = with_limit(LIMITS[0]).model_copy(update={"allocator": ALLOCATORS[-1], "timing": TIMINGS[1]})
    spec, log, book = spec_of(pipeline=pipeline), MemoryLog(), MemoryBook()
    for t in range(FIRST - 1, LAST + 1):
        known = cut(PANEL, t)
        account = Account(Deployed(known, spec, Wishes(), FITTED), log, book, prices=prices_of(known))
        account.open(t) if t < FIRST else account.session(t)
    assert_paper_equals_backtest(PANEL, spec, account)


GUARDED = [LossShutdown(probe=0.02, cooldown=2), GymrlGuard(max_drawdown=0.02, max_turnover=0.9, probe=0.01)]


@pytest.mark.parametrize("timing", GUARDED, ids=lambda timing: timing.kind)
@pytest.mark.parametrize(
    ("fill", "rebal_freq"), [("next_open", 1), ("next_open", 4), ("next_close", 1), ("same_close", 4)]
)
def test_paper_equals_back_test_with_names_shut_down(timing, fill, rebal_freq):
    environment = {**ENVIRONMENT.model_dump(), "fill": fill, "rebal_freq": rebal_freq}
    spec = spec_of(environment=environment, pipeline=DEFAULT.model_copy(update={"timing": timing}))
    account = run_paper(PANEL, spec, rests=3)
    assert_paper_equals_backtest(PANEL, spec, account, rests=3)
    stages = [stage for each in Journal(account.log, ACCOUNT).records() for stage in each.plan.stages]
    cut = [stage for stage in stages if "lost within" in stage.reason]
    assert 2 < len(cut) < len(stages)
    assert AccountState.model_validate_json(account.book.last().model_dump_json()) == account.book.last()
