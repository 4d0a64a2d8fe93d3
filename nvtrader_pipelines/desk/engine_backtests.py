"""Back-tests of strategies and trained policies on the engines, on the markets of a home."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import RootModel, TypeAdapter

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.components.document import Document, rows_of
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.components.family import every_member
from nvtrader_pipelines.desk.account_backtests import open_deployment
from nvtrader_pipelines.desk.backtest_settings import BacktestSettings
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines import (
    BacktestEngine,
    BacktestStrategy,
    EventDriven,
    RLAgentBridge,
    Strategy,
    Walk,
)
from nvtrader_pipelines.evaluation.engines.bars import market_bars
from nvtrader_pipelines.evaluation.engines.engine_account import EngineResult
from nvtrader_pipelines.evaluation.engines.ledger import TOLERANCE
from nvtrader_pipelines.evaluation.engines.strategy import RL_AGENT
from nvtrader_pipelines.evaluation.shared_sessions import shared_curves
from nvtrader_pipelines.evaluation.short_samples import account_figures
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.figures import comparison_figure
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.policy import Decision, Policy
from nvtrader_pipelines.promotion.policy_cards import find_policy
from nvtrader_pipelines.storage.documents import validate_document
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.files import write_picture
from nvtrader_pipelines.storage.panel_prices import read_prices
from nvtrader_pipelines.storage.store import Store

N_REASONS = 5  # most frequent ones that are listed
CAPITAL = EventDriven().capital  # account currency, of every engine
NO_LOSSES = "; its timing loss_shutdown saw no losses, which event_driven does not count"


class OrderReason(Document):
    """Reason why orders filled with less than they wanted, or ended."""

    status: str  # filled or ended
    reason: str
    n_orders: int


class EnginePosition(Document):
    """Position of a back-test at its last close, and the shares of an engine that has shares."""

    symbol: str
    shares: float | None  # adjusted as prices are: one of today's, with dividends reinvested
    weight: float  # of equity
    value: float  # account currency


class BacktestDocument(Document):
    """Account of a back-test, opened in cash at the close before its first session."""

    name: str  # strategy, or policy
    engine: str
    source: str
    first_session: date
    last_session: date
    n_sessions: int
    equity: float  # at the last close, account currency; 1,000,000 at the start
    total_return: float  # net of costs
    sharpe: float | None  # per year, with its 95 % interval; null below 63 sessions
    sharpe_low: float | None
    sharpe_high: float | None
    max_drawdown: float
    turnover_per_year: float | None  # one-way; null below 63 sessions
    cost_per_year: float | None  # fraction of equity; null below 63 sessions
    n_orders: int
    n_filled: int
    n_ended: int  # without a fill
    reasons: tuple[OrderReason, ...]  # most frequent first
    positions: tuple[EnginePosition, ...]  # largest weight first
    walk_difference: float | None  # equity less that of the same decisions in walk; null but for policies on shares
    note: str  # on the difference; empty without one
    picture: Path | None


@dataclass(eq=False)
class RecordedPolicy:
    """Policy whose decisions are recorded by session: a second account gets the same."""

    policy: Policy
    decisions: dict[int, Decision] = field(default_factory=dict)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """Recorded decision of session `t`, or a new one."""
        if t not in self.decisions:
            self.decisions[t] = self.policy.decide(panel, t, account)
        return self.decisions[t]


@dataclass(frozen=True, eq=False)
class BacktestInput:
    """Strategy or policy with its market and environment."""

    name: str
    decider: Policy | Strategy
    panel: MarketPanel
    environment: EnvSpec
    first: int = 0  # first close at which it may decide: a policy does not trade sessions it was trained on
    note: str = ""  # on an engine of shares
    injected: Mapping[str, RLAgentBridge] = field(default_factory=dict)  # into a strategy's context

    def window(self, first: date | None, last: date | None) -> Window:
        """Opening close and last session of a window of days.

        Raises:
            ValueError: if it begins before the first session that may be traded, or has no session.
        """
        days = self.panel.sessions
        begin = self.first if first is None else self.panel.index_of(np.datetime64(first)) - 1
        end = len(days) - 1 if last is None else self.panel.index_of(np.datetime64(last) + 1) - 1
        if begin < self.first or end <= begin:
            raise ValueError(
                f"a back-test of {self.name} needs sessions from {days[self.first + 1]} to {days[-1]}, but was given "
                f"{first or 'its first'} to {last or 'the last'}; choose --from and --to among them"
            )
        return begin, end


def backtest_on_engine(store: Store, name: str, settings: BacktestSettings) -> BacktestDocument:
    """Back-test a strategy by kind, or a trained policy, on an engine; write the picture if one is named.

    Raises:
        StorageError: if there is no such strategy, policy or engine, or no panel of the source.
        ValueError: if the engine cannot run it, or the window has no session.
    """
    fields = {"kind": settings.engine, "timing": settings.timing, "whole_shares": settings.whole_shares}
    written = {name: value for name, value in fields.items() if value}
    engine = validate_document(written, RootModel[BacktestEngine], "the engine is not valid").root
    subject = find_subject(store, name, settings.source, settings.agent)
    if isinstance(engine, EventDriven):
        engine = engine.model_copy(update={"first_closes": read_first_closes(store, subject.panel)})
    return run_backtest(subject, engine, subject.window(settings.first, settings.last), settings.output)


def find_subject(store: Store, name: str, source: str | None = None, agent: str | None = None) -> BacktestInput:
    """Find a strategy by kind, with its defaults and the policy that it asks, or a trained policy.

    Raises:
        StorageError: if there is neither, or no panel of the source.
        ValueError: if a policy is given a source or an agent.
    """
    kinds = [kind_of(member) for member in every_member(BacktestStrategy)]
    if name in kinds and agent is not None:
        asked = find_subject(store, agent, source)
        if isinstance(asked.decider, Strategy):
            raise ValueError(f"an agent is a policy, but {agent} is a strategy; name one of `nvtrader policies`")
        strategy = TypeAdapter(BacktestStrategy).validate_python({"kind": name})
        return replace(
            asked, name=name, decider=strategy, injected={RL_AGENT: RLAgentBridge(asked.decider, asked.panel)}
        )
    if name in kinds:
        panel = store.panels.read(MarketChoice(source=source or next(iter(store.panels.sources()), "sample")))
        return BacktestInput(name, TypeAdapter(BacktestStrategy).validate_python({"kind": name}), panel, EnvSpec())
    try:
        ref = find_policy(store, name)
    except NotFoundError as error:
        raise NotFoundError(f"{error}; strategies are {', '.join(kinds)}{suggest(name, kinds)}") from error
    if source is not None or agent is not None:
        raise ValueError(f"{name} is a policy, which trades its own market by itself; leave out --source and --agent")
    deployment = open_deployment(store, *ref)
    note = NO_LOSSES if deployment.spec.pipeline.timing.kind == "loss_shutdown" else ""
    panel, environment = deployment.panel, deployment.spec.environment
    return BacktestInput(deployment.policy, deployment.fold_policies, panel, environment, deployment.first, note)


def read_first_closes(store: Store, panel: MarketPanel) -> dict[str, float]:
    """Closes of the panel's first session, such that a name's first bar has its close."""
    closes, growth = read_prices(store.tables, panel).closes, np.cumprod(1.0 + panel.close_returns, axis=0)
    listed = np.isfinite(closes).argmax(axis=0)
    firsts = np.take_along_axis(closes * growth[0] / growth, listed[None, :], axis=0)[0]
    return {symbol: close for symbol, close in zip(panel.symbols, firsts.tolist(), strict=True) if np.isfinite(close)}


def run_backtest(
    subject: BacktestInput, engine: BacktestEngine, window: Window, picture: Path | None = None
) -> BacktestDocument:
    """Run a back-test and describe it, for a policy on shares beside its decisions in `walk`; draw it to a path.

    Raises:
        ValueError: if the engine cannot run the strategy or policy.
    """
    panel, decider, year = subject.panel, subject.decider, subject.panel.calendar.periods_per_year
    injected = (subject.injected,) if isinstance(engine, EventDriven) else ()
    if isinstance(decider, Strategy) or not isinstance(engine, EventDriven):
        result = engine.run(panel, subject.environment, decider, window, *injected)
        curves, difference, note = {subject.name: result.curve}, None, ""
    else:
        decider = RecordedPolicy(decider)
        result, walked = (each.run(panel, subject.environment, decider, window) for each in (engine, Walk()))
        curves = {subject.name: result.curve, "walk": walked.curve}
        difference = CAPITAL * (result.curve["equity"][-1] - walked.curve["equity"][-1])
        note = f"{difference:+,.2f} to the same decisions in walk: {_gap(subject, engine)}"
    curve, n_filled = result.curve, result.orders.filter(status="filled").height
    first, last = curve["session"][0], curve["session"][-1]
    if picture:
        rows = pl.concat(one.select("session", "net_return", account=pl.lit(name)) for name, one in curves.items())
        title = f"{subject.name} on {engine.kind}, {first} to {last}"
        shown = comparison_figure(shared_curves(rows, year), title, f"On {panel.source}, net of costs.")
        write_picture(picture, shown)
    return BacktestDocument(
        name=subject.name,
        engine=engine.kind,
        source=panel.source,
        first_session=first,
        last_session=last,
        n_sessions=len(curve),
        equity=CAPITAL * curve["equity"][-1],
        **account_figures(curve, year),
        n_orders=len(result.orders),
        n_filled=n_filled,
        n_ended=len(result.orders) - n_filled,
        reasons=frequent_reasons(result.orders),
        positions=final_positions(panel, engine, result),
        walk_difference=difference,
        note=note,
        picture=picture,
    )


def _gap(subject: BacktestInput, engine: EventDriven) -> str:
    """Reason why an account of shares ends with other equity than the same decisions in `walk`."""
    if engine.timing == "next_open":
        return f"both size at the fill, so it is rounding, and costs where a name has no price{subject.note}"
    fill = resolve_fill(subject.environment.fill, subject.panel).removeprefix("next_")
    gap = f"the gap in between{' and rounding' if engine.whole_shares else ''}"
    return f"orders are sized at the close and fill at the next {fill}, so it is {gap}{subject.note}"


def frequent_reasons(orders: pl.DataFrame) -> tuple[OrderReason, ...]:
    """Most frequent reasons of orders that were cut or ended, and their numbers."""
    reason = pl.col("reason").str.replace("^the limit .*", "the limit is outside the bar's range")
    counts = orders.filter(pl.col("reason") != "").group_by("status", reason).agg(n_orders=pl.len())
    return rows_of(OrderReason, counts.sort("n_orders", "reason", descending=[True, False]).head(N_REASONS))


def final_positions(panel: MarketPanel, engine: BacktestEngine, result: EngineResult) -> tuple[EnginePosition, ...]:
    """Positions at the last close, largest weight first."""
    (day, equity), weights = result.curve.select("session", "equity").row(-1), result.weights[-1, :-1]
    values, shares = CAPITAL * equity * weights, None
    if isinstance(engine, EventDriven):
        shares = np.round(values / market_bars(panel, engine.first_closes).closes[panel.index_of(day)], 6)
    rows = pl.DataFrame({"symbol": panel.symbols, "weight": weights, "value": values}).with_columns(shares=shares)
    held = rows.filter(pl.col("weight").abs() > TOLERANCE).sort("weight", descending=True, maintain_order=True)
    return rows_of(EnginePosition, held)
