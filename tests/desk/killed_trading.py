"""Trade accounts in processes that are killed between two durable effects, and in one that is not.

Run as `python -m tests.desk.killed_trading <folder> <seed> <kind> ...`; prints the final accounts as one line of JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

from nvtrader_pipelines.execution.brokers.account_spec import SimulatedAccountSpec
from nvtrader_pipelines.execution.plan import Finding
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.execution.desks import ACCOUNT, Account, Deployed, Fused, LeveredWishes, prices_of, spec_of
from tests.panels import GAP, eventful_panel

N_KILLS, MAX_EFFECTS = 20, 9
FIRST, LAST = GAP[0] - 4, GAP[0] + 14  # sessions; in one of them a wanted name has no price
ENVIRONMENT = {"rebal_freq": 2, "lookback": 5, "episode_len": 20}
SOFT = Finding(rule="turnover_pct_warn", level="soft", figure=0.5, bound=0.2, sentence="turnover is high")
IN_PART = SimulatedAccountSpec(whole_shares=True, slippage_bps=5.0, volume_share=0.2)
ACCOUNTS = {  # filled in full, and in part
    "fractions": SimulatedAccountSpec(),
    "whole": IN_PART,
    "short": SimulatedAccountSpec(),
    "levered": IN_PART,
}
GROSS_TWO = WeightPipeline(risk_limits=RiskLimits(max_position=1.0, max_short=1.0, max_gross=2, max_net=2, min_net=-2))
LEVERED = {"levered": {"kind": "levered_simplex", "close_cap": 1.8}, "short": {"kind": "long_short", "gross": 2.0}}


class Fuse:
    """Kill of this process right before or after one of its effects."""

    def __init__(self, after=None, early=False):
        self.left, self.early = after, early

    def burn(self, effect, *arguments):
        if self.left is None:
            return effect(*arguments)
        self.left -= 1
        if self.left == 0 and self.early:
            os.kill(os.getpid(), signal.SIGKILL)
        result = effect(*arguments)
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def open_account(folder, kind, fuse):
    """Open the account as a new process does."""
    home, panel = Home(Path(folder)), eventful_panel()
    spec, policy = spec_of(environment=ENVIRONMENT), None
    if kind in LEVERED:
        spec = spec_of(environment=ENVIRONMENT | {"action": LEVERED[kind]}, pipeline=GROSS_TWO)
        policy = LeveredWishes(is_short=kind == "short")
    deployed = Deployed(panel, spec, policy)
    stores = Fused(Store(home).audit, fuse), Fused(SqliteBook(home, ACCOUNT), fuse)
    prices = prices_of(panel, volume=6000.0)
    return Account(deployed, *stores, account_spec=ACCOUNTS[kind], prices=prices, findings=lambda plan, t: (SOFT,))


def trade(folder, kind, fuse):
    """Trade every remaining session."""
    account = open_account(folder, kind, fuse)
    account.trader.open_at(FIRST)
    begin = FIRST
    while begin < LAST and account.trader.is_finished(begin, acknowledge=True):
        begin += 1
    for t in range(begin, LAST + 1):
        account.session(t, acknowledge=True)


def trade_in_fork(folder, kind, fuse):
    """Trade in a fork; return its exit code, negative for a signal."""
    fork = os.fork()
    if fork == 0:
        trade(folder, kind, fuse)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])


def final_records(folder):
    """Final book and audit of an account."""
    home = Home(Path(folder))
    book, events = SqliteBook(home, ACCOUNT), Store(home).audit.events(ACCOUNT)
    plans = sorted({event.plan_id for event in events if event.plan_id})
    by_id = {event.event_id: event.model_dump(mode="json", exclude={"at"}) for event in events}
    return {
        "states": [state.model_dump(mode="json") for state in book.states()],
        "orders": [each.model_dump(mode="json") for plan in plans for each in book.orders(plan)],
        "fills": [each.model_dump(mode="json") for plan in plans for each in book.fills(plan)],
        "events": by_id,
        "n_events": len(events),
    }


def main(folder, seed, *kinds):
    """Trade a killed and an unkilled account of each kind."""
    generator, found = np.random.default_rng(seed), {}
    for kind in kinds:
        whole, killed = f"{folder}/{kind}-whole", f"{folder}/{kind}-killed"
        trade(whole, kind, Fuse())  # here, so that the forks need not compile again
        ended = []
        for _ in range(N_KILLS):
            fuse = Fuse(int(generator.integers(1, MAX_EFFECTS)), bool(generator.random() < 0.5))
            ended.append(trade_in_fork(killed, kind, fuse))
        ended.append(trade_in_fork(killed, kind, Fuse()))
        found[kind] = {"ended": ended, "whole": final_records(whole), "killed": final_records(killed)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
