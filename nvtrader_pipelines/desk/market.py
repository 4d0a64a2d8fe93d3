"""What an account trades with: the active policy on its market as it is now, prices, limits, and the account itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

import numpy as np

from nvtrader_pipelines.desk.accounts import connect, read_account, require_same
from nvtrader_pipelines.desk.backtest import deployment_of
from nvtrader_pipelines.execution.book import AccountBook, AccountState
from nvtrader_pipelines.execution.brokers.account_spec import AccountSpec, AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.live_venue import LiveVenue
from nvtrader_pipelines.execution.brokers.simulated_market import SimulatedMarket
from nvtrader_pipelines.execution.brokers.simulated_venue import SimulatedVenue
from nvtrader_pipelines.execution.brokers.venue import Venue
from nvtrader_pipelines.execution.compliance import ComplianceData, compliance_findings, purchase_bans, tightest_limits
from nvtrader_pipelines.execution.decisions import next_open
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Proposal
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan
from nvtrader_pipelines.execution.prices import PanelPrices
from nvtrader_pipelines.execution.proposals import target_volatility
from nvtrader_pipelines.experiments.deployment import Deployment
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.market.calendar import EXCHANGE_TIME, sessions
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active, read_active_run
from nvtrader_pipelines.promotion.compatibility import market_mismatch
from nvtrader_pipelines.promotion.recency import MAX_TEST_AGE, require_evaluation
from nvtrader_pipelines.storage.compliance_files import read_compliance, read_limits
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.medallion import pinned_snapshots
from nvtrader_pipelines.storage.panel_prices import read_prices
from nvtrader_pipelines.storage.store import Store

CLOSED_AT = 16  # hour of the exchange after which a session's bars are there, half days too


@dataclass(frozen=True, eq=False)
class DeskMarket:
    """An account and what it trades with; `t` numbers the panel's sessions; those that have ended are traded."""

    name: str  # of the account
    account: AccountSpec
    deployment: Deployment
    tested_to: date
    activated_at: datetime
    prices: PanelPrices
    limits: RiskLimits
    compliance: ComplianceData
    n_ended: int  # sessions that had ended by the clock; the bars of one that goes on are no close

    @property
    def panel(self) -> MarketPanel:
        """The market."""
        return self.deployment.panel

    @property
    def is_live(self) -> bool:
        """Whether orders go to a market that does not wait."""
        return isinstance(self.account, AlpacaAccountSpec)

    def day(self, t: int) -> date:
        """The day of session `t`."""
        return self.panel.sessions[t].item()

    def index_of(self, day: date) -> int:
        """The number of a session that the account stands at.

        Raises:
            ExecutionError: if the market does not have it.
        """
        t = self.panel.index_of(np.datetime64(day))
        if t >= len(self.panel.sessions) or self.day(t) != day:
            raise ExecutionError(
                f"the account {self.name} stands at {day}, which the market does not have: it runs from {self.day(0)} "
                f"to {self.day(len(self.panel.sessions) - 1)}; deliver its bars and run the market job"
            )
        return t

    def last_session(self, first: date | None, last: date | None) -> int:
        """The last session to a day, or that has ended.

        Raises:
            ExecutionError: if it is before the first one.
        """
        if first is not None and last is not None and last < first:
            raise ExecutionError(f"the last session to trade, {last}, is before the first, {first}; give a later one")
        end = self.day(self.n_ended - 1)
        end = end if last is None else min(last, end)
        return int(np.searchsorted(self.panel.sessions, np.datetime64(end), side="right")) - 1

    def opening(self, first: date | None, opened: date | None) -> int:
        """The session an account opens at, or was opened at.

        Args:
            first: first session that is to be traded; None for what comes next.
            opened: the session it was opened at.

        Raises:
            ExecutionError: if the policy may not decide there, the market ends before or goes on, or it was opened at
                another.
        """
        earliest = self.deployment.first
        if first is None:
            return self.n_ended - 1 if opened is None else self.index_of(opened)
        t = self.panel.index_of(np.datetime64(first))
        if t >= self.n_ended:
            raise ExecutionError(
                f"sessions are traded once they have ended and their bars are there, but the market ends on "
                f"{self.day(self.n_ended - 1)}, before {first}; deliver the bars, or begin earlier"
            )
        if t - 1 < earliest:
            raise ExecutionError(
                f"{self.deployment.policy} of run {self.deployment.run_id} may trade from {self.day(earliest + 1)} on, "
                f"the first session its policies were not trained on, but was to begin on {first}; begin later"
            )
        if opened is not None and opened != self.day(t - 1):
            raise ExecutionError(
                f"the account {self.name} was opened at {opened} and goes on from where it stands, so it cannot begin "
                f"on {first}; leave the first session out, or name another account"
            )
        return t - 1

    def require_recent(self, proposals: Sequence[Proposal], stands_at: date) -> None:
        """Refuse a policy whose tests lie too far back when it begins to trade the account; at a broker, at any time.

        One that is activated again begins again.

        Raises:
            ExecutionError: naming the last session tested.
        """
        own = (self.deployment.run_id, self.deployment.policy)
        in_force = [each for each in proposals if each.at >= self.activated_at]
        begun = [each.session for each in in_force if (each.run_id, each.policy) == own]
        since = begun[0] if begun and not self.is_live else stands_at
        gap = self.panel.index_of(np.datetime64(since)) + 1 - self.panel.index_of(np.datetime64(self.tested_to))
        if gap > MAX_TEST_AGE:
            raise ExecutionError(
                f"a policy must have been tested within {MAX_TEST_AGE} sessions of what it trades, but {own[1]} of run "
                f"{own[0]} was tested to {self.tested_to}, {gap} sessions before; train and test it on the market as "
                "it is now, and activate that run"
            )

    def require_fresh(self, now: datetime) -> None:
        """Refuse bars of which no order may be made any more; of accounts at a broker only.

        Raises:
            ExecutionError: if they end before the last session that has ended or after it, or the exchange has opened
                since.
        """
        if not self.is_live:
            return
        ended, local = last_ended(now), now.astimezone(EXCHANGE_TIME)
        known = self.day(len(self.panel.sessions) - 1)
        if known < ended:
            raise ExecutionError(
                f"orders at a market need the bars of its last session, {ended}, but the market ends on {known}; "
                "deliver the bars and run the market job"
            )
        if known > ended:
            raise ExecutionError(
                f"orders at a market are made of bars of sessions that have ended, the last of them {ended}, but the "
                f"market ends on {known}; wait for its close and deliver its bars anew, or remove bars that cannot be "
                "there yet"
            )
        opens = next_open(known)
        if local >= opens:
            raise ExecutionError(
                f"orders made of the bars of {known} must be placed before the exchange opens on {opens.date()}, which "
                "it has; deliver the bars of that session after its close, and trade then"
            )

    def require_last(self, stands_at: AccountState) -> None:
        """Refuse to place a plan of an account whose fill session has passed.

        Raises:
            ExecutionError: naming the session whose bars are there.
        """
        known = self.day(len(self.panel.sessions) - 1)
        if stands_at.session < known:
            raise ExecutionError(
                f"the account {self.name} stands at {stands_at.session} and the bars of {known} are there, so the fill "
                "session of its plan has passed; trade the account and answer its next plan"
            )

    def venue(self, book: AccountBook) -> Venue:
        """The account.

        Raises:
            StorageError: if the book is of an account elsewhere, or of another capital.
            ExecutionError: if the broker cannot be reached.
        """
        require_same(self.name, self.account, book.last())
        if isinstance(self.account, AlpacaAccountSpec):
            return LiveVenue(connect(self.name, self.account), (self.panel, self.prices), book, self.account)
        environment, slippage = self.deployment.spec.environment, self.account.slippage_bps
        return SimulatedVenue(
            SimulatedMarket.from_environment(self.panel, environment, self.prices, slippage), book, self.account
        )

    def findings(self, plan: RebalancePlan, t: int) -> tuple[Finding, ...]:
        """What compliance finds in a plan decided at the close of session `t`."""
        return compliance_findings(plan, self.limits, self.compliance, target_volatility(plan, self.panel, t))

    def purchase_bans(self, session: date) -> Mapping[str, str]:
        """Names that may not be bought in a session, and why."""
        return purchase_bans(self.limits, self.compliance, session)

    def told(self, state: AccountState, share: float, at: datetime) -> Progress:
        """The account at the close of a session, as a step of a run."""
        said = f"{state.session}: equity {state.equity:.4f}"
        figures = {"equity": state.equity, "drawdown": state.drawdown, "turnover": state.turnover}
        return self._step("equity.update", said, at).model_copy(update={"share": share, "metrics": figures})

    def ended(self, n_sessions: int, at: datetime) -> Progress:
        """The last step of a run."""
        return self._step("done", f"{n_sessions} closes of the account {self.name}", at)

    def _step(self, stage: str, message: str, at: datetime) -> Progress:
        content = {"task_id": self.name, "run_id": self.deployment.run_id, "stage": stage, "message": message}
        return Progress.model_validate({**content, "timestamp": at})


def last_ended(now: datetime) -> date:
    """The last session of the exchange that has ended."""
    local = now.astimezone(EXCHANGE_TIME)
    day = local.date() if local.hour >= CLOSED_AT else local.date() - timedelta(days=1)
    return sessions(day - timedelta(days=14), day)[-1].item()


def _n_ended(panel: MarketPanel, now: datetime) -> int:
    """How many sessions of a panel have ended."""
    ended = last_ended(now)
    n_ended = int(np.searchsorted(panel.sessions, np.datetime64(ended), side="right"))
    if n_ended == 0:
        raise ExecutionError(
            f"sessions are traded once they have ended, but by the clock the last that has is {ended}, and the market "
            f"begins on {panel.sessions[0]}; set the clock"
        )
    return n_ended


def active_policy(store: Store) -> ActivePolicy:
    """The policy that trades.

    Raises:
        StorageError: if there is none.
    """
    active = read_active(store)
    if active is None:
        raise StorageError("no policy is active, so nothing trades; `nvtrader policies activate` makes one")
    return active


def desk_market(store: Store, active: ActivePolicy, name: str, now: datetime) -> DeskMarket:
    """What an account trades the active policy with.

    Raises:
        ExecutionError: if no session of the market had ended.
        StorageError: if the policy's files are not those activated, it was never tested to the end, it cannot decide on
            the market as it is now, or the account, the limits or the market cannot be read.
    """
    account, run = read_account(store.home, name), read_active_run(store, active)
    require_evaluation(store, active)
    try:
        deployment = deployment_of(store, active.run_id, active.policy)
    except ValueError as error:
        raise market_mismatch(run, active.policy, error) from error
    return DeskMarket(
        name=name,
        account=account,
        deployment=deployment,
        tested_to=run.as_parent.window[1],
        activated_at=active.activated_at,
        prices=read_prices(store.tables, deployment.panel),
        limits=_limits(store, deployment),
        compliance=read_compliance(store.home),
        n_ended=_n_ended(deployment.panel, now),
    )


def renewed(store: Store, market: DeskMarket, now: datetime) -> DeskMarket:
    """The same with what people keep in files as it is now: the account, the limits, what compliance is told.

    Raises:
        ExecutionError: if no session had ended.
        StorageError: if a file cannot be read.
    """
    return replace(
        market,
        account=read_account(store.home, market.name),
        limits=_limits(store, market.deployment),
        compliance=read_compliance(store.home),
        n_ended=_n_ended(market.panel, now),
    )


def market_key(store: Store, active: ActivePolicy, source: str) -> object:
    """What tells a market that was read from what would be read now."""
    return active.model_dump_json(), tuple(sorted(pinned_snapshots(store.tables, source).items()))


def _limits(store: Store, deployment: Deployment) -> RiskLimits:
    """What plans are held against: number by number, the tighter of the policy's own and the desk's."""
    return tightest_limits(deployment.spec.pipeline.risk_limits, read_limits(store.home))
