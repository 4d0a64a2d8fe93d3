"""Sample plans, findings and account books, without trained policies."""

import datetime as dt
from collections.abc import Mapping, Sequence
from itertools import pairwise

import polars as pl

from nvtrader_pipelines.execution.audit import EventDetails, plan_event
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, Stage, plan_id
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS
from tests.storage.ledger.run_rows import run_row
from tests.storage.table_rows import conform

AT = dt.datetime(2024, 1, 2, 21, 30, tzinfo=dt.UTC)
SESSION = dt.date(2024, 1, 2)
RUN = "ab" * 8
NAMES = ("AAA", "BBB", "CCC")
ABOVE_CAP = Finding(rule="max_position_pct", level="hard", symbol="AAA", figure=0.5, bound=0.25, sentence="AAA is 50 %")
TURNOVER = Finding(
    rule="turnover_pct_warn", level="soft", figure=0.75, bound=0.2, sentence="75 % is turned over, above the 20 %"
)
FEW_NAMES = Finding(rule="min_diversification", level="warn", figure=2, bound=4, sentence="2 names are held, not 4")


def plan(session: dt.date = SESSION, account: str = "paper") -> RebalancePlan:
    """Build a plan from cash to 50 % and 25 %, cut to 25 % each by a position cap."""
    return RebalancePlan(
        plan_id=plan_id(account, session, RUN, "tiny"),
        account=account,
        session=session,
        policy="tiny",
        run_id=RUN,
        partition_key="tiny@01234567",
        spec_hash="5" * 64,
        fold=0,
        seeds=(0, 1, 2),
        symbols=(*NAMES, "cash"),
        held=(0.0, 0.0, 0.0, 1.0),
        stages=(
            Stage(name="policy", weights=(0.5, 0.25, 0.0, 0.25)),
            Stage(name="static_universe", weights=(0.5, 0.25, 0.0, 0.25)),
            Stage(name="position_cap", weights=(0.25, 0.25, 0.0, 0.5), reason="AAA cut to 25.0%"),
        ),
        truncated=True,
    )


def append_plan(home: Home, found: RebalancePlan, *findings: Finding) -> RebalancePlan:
    """Append a plan and its compliance findings to the audit."""
    blocks = any(finding.level == "hard" for finding in findings)
    about = EventDetails(detail={"findings": [finding.model_dump(mode="json") for finding in findings]})
    Store(home).audit.append(
        [
            plan_event("constructed", found, AT, "desk", EventDetails(detail={"plan": found.model_dump(mode="json")})),
            plan_event("blocked" if blocks else "cleared", found, AT, "compliance", about),
        ]
    )
    return found


def write_book(
    home: Home, *equities: float, account: str = "paper", held: RebalancePlan | None = None
) -> list[AccountState]:
    """Write a book with these equities, one session each, holding the plan's target."""
    target = (held or plan()).target
    book, peak, states = SqliteBook(home, account), 1.0, []
    for n, (before, equity) in enumerate(pairwise((1.0, *equities))):
        peak = max(peak, equity)
        shares = {
            name: weight * equity * 1e6 / 50.0 for name, weight in zip(NAMES, target, strict=False) if weight and n
        }
        state = AccountState(
            session=SESSION + dt.timedelta(days=n),
            symbols=(*NAMES, "cash"),
            weights=target if n else (0.0, 0.0, 0.0, 1.0),
            equity=equity,
            peak=peak,
            recent_returns=(0.0,),
            capital=1e6,
            kept_at="here",
            shares=shares,
            prices=dict.fromkeys(shares, 50.0),
            net_return=equity / before - 1.0,
            turnover=0.5 if n == 1 else 0.0,
            cost=0.001 if n == 1 else 0.0,
            policy="tiny",
            run_id=RUN,
            spec_hash="5" * 64,
        )
        book.settle(state)
        states.append(state)
    book.close()
    return states


def write_tests(
    store: Store,
    sessions: Sequence[dt.date],
    returns: Mapping[str, Sequence[float]],
    baseline: str | None = "mean_cvar",
) -> None:
    """Write the run, the verdict and the curves of the tests of the plan's policy."""
    keys = {"spec_hash": plan().spec_hash, "run_id": RUN}
    verdict = pl.DataFrame(
        [
            {"policy": "tiny", "period": "from_2019", "best_baseline": baseline},
            {"policy": "tiny", "period": "all", "best_baseline": "equal_weight"},
        ]
    )
    curves = pl.concat(
        pl.DataFrame({"policy": name, "session": sessions, "net_return": returns[name]}) for name in returns
    )
    for table, rows in ((EVALUATIONS, verdict), (EQUITY_CURVES, curves)):
        keyed = rows.with_columns(pl.lit(value).alias(name) for name, value in keys.items())
        store.tables.replace(table, conform(table, keyed), {name: [value] for name, value in keys.items()})
    store.ledger.begin(run_row(store.ledger, run_id=RUN))
