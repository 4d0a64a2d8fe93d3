"""Accounts to trade with in tests: policies that need no training, stores in memory, prices made of a panel."""

import datetime as dt
import itertools

import numpy as np

from nvtrader_pipelines.desk.portfolio_rows import order_rows
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.execution.audit import TradingState
from nvtrader_pipelines.execution.book import BookedOrder, BookIndex
from nvtrader_pipelines.execution.brokers.account_spec import SimulatedAccountSpec
from nvtrader_pipelines.execution.brokers.simulated_market import SimulatedMarket
from nvtrader_pipelines.execution.brokers.simulated_venue import SimulatedVenue
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import RiskControls
from nvtrader_pipelines.execution.orders import PanelPrices
from nvtrader_pipelines.execution.trader import Trader
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.pipeline import Thresholds

ENVIRONMENT = EnvSpec(lookback=5, episode_len=20, rebal_freq=3)
ACCOUNT = "paper"
EFFECTS = {"settle", "place", "cancel", "fill", "append", "submit"}


class Wishes:
    """Wants weights that depend on the market's last returns and on what is held; now and then no trade at all."""

    def __init__(self, seed=0, rests=0):
        self.seed, self.rests = seed, rests

    def decide(self, panel, t, account):
        if self.rests and t % self.rests == 0:
            return Decision(target=None)
        noise = np.random.default_rng([self.seed, t]).normal(size=len(panel.symbols) + 1)
        scores = noise + 3.0 * account.weights + np.append(20.0 * panel.close_returns[t], account.drawdown)
        wanted = np.where(np.append(panel.eligible[t], True), np.exp(scores), 0.0)
        return Decision(target=wanted / wanted.sum())


class LeveredWishes(Wishes):
    """Wants the same names at a gross of `gross`; with `is_short`, half of the names are sold short."""

    def __init__(self, gross=2.0, seed=0, rests=0, *, is_short=False):
        super().__init__(seed, rests)
        self.gross, self.is_short = gross, is_short

    def decide(self, panel, t, account):
        target = super().decide(panel, t, account).target
        if target is None:
            return Decision(target=None)
        sides = np.random.default_rng([self.seed, t, 1]).choice((-1.0, 1.0), len(target) - 1) if self.is_short else 1.0
        names = self.gross * sides * target[:-1] / target[:-1].sum()
        return Decision(target=np.append(names, 1.0 - names.sum()))


class Wants:
    """Wants the same weights at every decision."""

    def __init__(self, *weights):
        self.weights = np.array(weights)

    def decide(self, panel, t, account):
        return Decision(target=self.weights.copy())


class Deployed:
    """A policy on a panel, behind the pipeline of a spec."""

    is_stateful, run_id, policy, seeds, first = False, "0" * 16, "wishes", (0,), 1

    def __init__(self, panel, spec, policy=None, thresholds=None, **changes):
        self.panel, self.spec = panel, spec
        self.worker = PipelinedPolicy(
            policy or Wishes(), spec.pipeline, thresholds or Thresholds(), spec.environment.rebal_freq
        )
        vars(self).update(changes)

    def fold_index(self, t):
        return 0

    def decide(self, t, account):
        return self.worker.decide(self.panel, t, account)


class MemoryLog:
    """An audit in memory."""

    def __init__(self):
        self.kept = {}

    def append(self, events):
        for event in events:
            self.kept.setdefault(event.event_id, event)

    def events(self, account=None):
        return [event for event in self.kept.values() if account in {None, event.account}]

    def kinds(self):
        return [event.kind for event in self.kept.values()]

    def of(self, kind):
        return [event for event in self.kept.values() if event.kind == kind]


class MemoryBook:
    """A book in memory."""

    def __init__(self):
        self.states, self.placed, self.filled = {}, {}, {}

    def index(self):
        return BookIndex(frozenset(self.states), frozenset(self.placed), frozenset(self.filled))

    def last(self):
        return self.states[max(self.states)] if self.states else None

    def at(self, session):
        return self.states.get(session)

    def settle(self, state):
        self.states.setdefault(state.session, state)

    def place(self, *orders):
        for order in orders:
            self.placed.setdefault(order.order.order_id, order)

    def orders(self, plan_id):
        return [each for each in self.placed.values() if each.order.plan_id == plan_id]

    def open_orders(self):
        return [each for each in self.placed.values() if each.status == "accepted"]

    def cancel(self, order_id, reason):
        self._end(order_id, "cancelled", reason)

    def fill(self, fills, rest):
        for fill in fills:
            if self._end(fill.order_id, "filled", ""):
                self.filled[fill.order_id] = fill
        for order_id, reason in rest.items():
            self.cancel(order_id, reason)

    def fills(self, plan_id):
        return [fill for fill in self.filled.values() if fill.order_id.startswith(plan_id)]

    def _end(self, order_id, status, reason):
        known = self.placed.get(order_id)
        if known is None or known.status != "accepted":
            return False
        self.placed[order_id] = BookedOrder(order=known.order, status=status, reason=reason)
        return True


class Fused:
    """A store, or a broker, whose effects burn a fuse."""

    def __init__(self, store, fuse):
        self._store, self._fuse = store, fuse

    def __getattr__(self, name):
        method = getattr(self._store, name)
        return (lambda *given: self._fuse.burn(method, *given)) if name in EFFECTS else method


class Switch:
    """Engaged from the n-th time it is read on; never, if None."""

    def __init__(self, after=None):
        self.after, self.read = after, 0

    def state(self):
        self.read += 1
        is_engaged = self.after is not None and self.read > self.after
        return TradingState(state="halted", reason="stopped by a test") if is_engaged else TradingState()


def prices_of(panel, first=100.0, volume=np.nan):
    """Prices from a panel's returns and a first close."""
    last_closes = first * np.cumprod(1.0 + panel.close_returns, axis=0)
    before = np.vstack([np.full(len(panel.symbols), first), last_closes[:-1]])
    closes = np.where(panel.tradable, last_closes, np.nan)
    opens = closes if panel.overnight_returns is None else before * (1.0 + panel.overnight_returns)
    listed = np.maximum.accumulate(panel.tradable, axis=0)
    return PanelPrices(
        opens=np.where(panel.tradable, opens, np.nan),
        closes=closes,
        last_closes=np.where(listed, last_closes, np.nan),
        volumes=np.full(closes.shape, volume),
    )


def ticking():
    """A clock that shows another second whenever it is read."""
    seconds = itertools.count()
    return lambda: dt.datetime(2024, 1, 2, tzinfo=dt.UTC) + dt.timedelta(seconds=next(seconds))


def spec_of(**changes):
    """An experiment of the tests' environment."""
    return ExperimentSpec.model_validate({"name": "desk", "environment": ENVIRONMENT, **changes})


def rows_of_orders(log):
    """The rows that an account's events make of its orders."""
    records = {each.plan.plan_id: each for each in Journal(log, ACCOUNT).records()}
    return order_rows(log.events(ACCOUNT), records)


class Account:
    """One paper account with all it needs, whose parts a test may change."""

    def __init__(self, deployed, log=None, book=None, **options):
        self.deployed, self.log, self.book = deployed, log or MemoryLog(), book or MemoryBook()
        self.account_spec = options.get("account_spec", SimulatedAccountSpec())
        self.prices = options.get("prices", prices_of(deployed.panel))
        self.switch = options.get("switch", Switch())
        self.findings = options.get("findings", lambda plan, t: ())
        self.purchase_bans = options.get("purchase_bans", lambda session: {})
        self.trader = self.hired()

    def hired(self):
        """A trader who knows only what is kept."""
        spec = self.deployed.spec
        market = SimulatedMarket.from_environment(
            self.deployed.panel, spec.environment, self.prices, self.account_spec.slippage_bps
        )
        self.broker = SimulatedVenue(market, self.book, self.account_spec)
        controls = RiskControls(
            self.switch,
            self.findings,
            self.purchase_bans,
            ticking(),
            "test",
            first_plan_turnover=self.account_spec.first_plan_turnover,
        )
        journal, kept = Journal(self.log, ACCOUNT), self.book.index()
        journal.require_book_covers_audit(kept)
        journal.require_audit_covers_book(kept, late=False)
        return Trader(self.deployed, self.broker, journal, controls)

    def open(self, t):
        """Open at the close of a session and decide there."""
        self.trader.open_at(t)
        self.trader.propose(t)
        self.trader.clear(t)
        return self

    def session(self, t, acknowledge=False):
        """One session, step by step."""
        self.trader.execute(t)
        state = self.trader.settle(t)
        self.trader.propose(t)
        self.trader.clear(t, acknowledge=acknowledge)
        return state

    def trade(self, first, last):
        """Every session from `first` to `last`."""
        return [self.session(t) for t in range(first, last + 1)]

    def targets(self):
        """Session to target weights of every plan."""
        return {each.plan.session: list(each.plan.target) for each in Journal(self.log, ACCOUNT).records()}
