import json
from datetime import UTC, date, datetime

import duckdb
import pytest

from nvtrader_pipelines.desk.halt import halt, resume, stop_trading
from nvtrader_pipelines.desk.mirror import mirror
from nvtrader_pipelines.desk.portfolio_rows import state_rows
from nvtrader_pipelines.execution.audit import plan_event
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.panels import pinned_snapshots
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import AUDIT, FILLS, ORDERS, PORTFOLIO_STATE, REBALANCE_PLAN, TARGET_WEIGHTS
from nvtrader_pipelines.storage.views.published_file import open_published, read_query
from nvtrader_pipelines.storage.views.publishing import publish
from nvtrader_pipelines.storage.views.view_definitions import create_views
from tests.desk.provenance import PROVENANCE
from tests.execution.plans import AT, a_fill, a_plan, an_order, cancelled, constructed, decided, filled, judged, placed
from tests.runs.small_runs import N_SESSIONS, land

pytestmark = pytest.mark.slow

TABLES = (REBALANCE_PLAN, TARGET_WEIGHTS, ORDERS, FILLS, PORTFOLIO_STATE, AUDIT)
PLAN = a_plan((0.25, 0.15, 0.2, 0.2, 0.2, 0.0))
BUY, SELL, LATE = an_order(PLAN, "A"), an_order(PLAN, "B", "sell"), an_order(PLAN, "C")
TRADED = [
    plan_event("proposed", PLAN, AT, "trader"),
    constructed(PLAN),
    judged(PLAN, "soft", "warn"),
    decided(PLAN, "approved"),
    placed(PLAN, SELL),
    placed(PLAN, BUY),
    cancelled(PLAN, LATE, "C is halted"),
    filled(PLAN, a_fill(SELL)),
    filled(PLAN, a_fill(BUY, 4.0)),
]
EARLIER = a_plan(session=date(2021, 12, 30))
EARLIER_AT = datetime(2021, 12, 30, 22, tzinfo=UTC)
ELSEWHERE = a_plan(account="other")


@pytest.fixture
def log(store):
    return store.audit


@pytest.fixture(scope="module")
def traded(tmp_path_factory):
    """Tables after one traded plan, only to be read."""
    store = Store(Home(tmp_path_factory.mktemp("traded")))
    store.audit.append(TRADED)
    mirror(store)
    return store


def a_state(session, plan_id=None, **fields):
    known = {
        "session": session,
        "symbols": PLAN.symbols,
        "weights": PLAN.target,
        "equity": 1.1,
        "peak": 1.25,
        "recent_returns": (0.0, 0.01),
        "capital": 1e6,
        "kept_at": "here",
        "shares": {"A": 10.0},
        "prices": {"A": 100.0},
        "net_return": 0.01,
        "plan_id": plan_id,
        "policy": PLAN.policy,
        "run_id": PLAN.run_id,
        "spec_hash": PLAN.spec_hash,
    }
    return AccountState.model_validate(known | fields)


def settle(home, *states, account="paper"):
    book = SqliteBook(home, account)
    for state in states:
        book.settle(state)
    book.close()


def contents(store):
    return {
        table.name: store.tables.read(table).sort(
            [name for name, kind in store.tables.read(table).schema.items() if not kind.is_nested()]
        )
        for table in TABLES
    }


def rows(store, table):
    return store.tables.read(table).rows(named=True)


def test_mirror_without_audit_writes_nothing(store):
    assert mirror(store) == {}


def test_plan_row_has_findings_and_decision(traded):
    (row,) = rows(traded, REBALANCE_PLAN)
    for name in ("plan_id", "account", "session", "policy", "run_id", "spec_hash", "partition_key", "fold"):
        assert row[name] == getattr(PLAN, name)
    assert (row["seeds"], row["symbols"], row["held_weights"]) == ([0, 1, 5], list(PLAN.symbols), list(PLAN.held))
    assert (row["target_weights"], row["turnover"]) == (list(PLAN.target), PLAN.turnover)
    assert (row["status"], row["n_hard"], row["n_soft"], row["n_warn"]) == ("placed", 0, 1, 1)
    assert [each["rule"] for each in json.loads(row["findings"])] == ["turnover_pct_warn", "min_diversification"]
    assert (row["decided_by"], row["reason"], row["decided_at"]) == ("pat", "because", AT)
    assert json.loads(row["snapshot_ids"]) == {"gold.returns": 11}


def test_every_stage_has_weight_change_and_reason_per_symbol(traded):
    weights = traded.tables.read(TARGET_WEIGHTS).sort("step", maintain_order=True)
    assert weights["stage"].to_list() == ["policy"] * 6 + ["position_cap"] * 6
    last = weights.filter(stage="position_cap")
    assert dict(last.select("symbol", "weight").iter_rows()) == dict(zip(PLAN.symbols, PLAN.target, strict=True))
    assert last["change"].to_list() == pytest.approx([0.05, -0.05, 0, 0, 0, 0])
    assert set(last["reason"]) == {"A cut to 25.0%"}
    assert set(weights["run_id"]) == {PLAN.run_id}


def test_order_and_fill_rows_have_their_plan(traded):
    orders = {row["symbol"]: row for row in rows(traded, ORDERS)}
    assert {name: (row["status"], row["filled_quantity"]) for name, row in orders.items()} == {
        "A": ("partial", 4.0),
        "B": ("filled", 10.0),
        "C": ("cancelled", 0.0),
    }
    assert (orders["A"]["broker_order_id"], orders["A"]["placed_at"]) == ("broker-A", AT)
    assert (orders["C"]["reason"], orders["C"]["placed_at"]) == ("C is halted", None)
    fills = {row["order_id"]: row for row in rows(traded, FILLS)}
    assert fills[BUY.order_id]["quantity"] == 4.0
    assert (fills[BUY.order_id]["complete"], fills[SELL.order_id]["complete"]) == (False, True)
    for row in (*orders.values(), *fills.values()):
        assert (row["plan_id"], row["run_id"], row["spec_hash"]) == (PLAN.plan_id, PLAN.run_id, PLAN.spec_hash)
        assert row["session"] == BUY.session


def test_partial_order_is_cancelled_with_its_filled_quantity(store, log):
    log.append([*TRADED, cancelled(PLAN, BUY, "the rest is not carried on")])
    mirror(store)
    (row,) = [row for row in rows(store, ORDERS) if row["symbol"] == "A"]
    assert (row["status"], row["filled_quantity"]) == ("cancelled", 4.0)
    assert rows(store, REBALANCE_PLAN)[0]["status"] == "filled"


def test_every_event_is_an_audit_row_with_its_chain(traded):
    found = traded.tables.read(AUDIT).sort("line")
    assert found["event_id"].to_list() == [each.event_id for each in TRADED]
    assert found["chain"].to_list() == [each.chain for each in traded.audit.rows()]
    assert json.loads(found["detail"][1])["plan"] == PLAN.model_dump(mode="json")


def test_book_states_are_rows_per_close(store, home):
    settle(home, a_state(date(2021, 12, 31)), a_state(date(2022, 1, 3), PLAN.plan_id, differences=("A: 1 share",)))
    assert mirror(store) == {PORTFOLIO_STATE.name: 2}
    first, second = sorted(rows(store, PORTFOLIO_STATE), key=lambda row: row["session"])
    assert (first["year"], first["plan_id"], first["n_differences"]) == (2021, None, 0)
    assert (second["value"], second["drawdown"], second["cash"]) == (1.1e6, pytest.approx(0.12), 0.0)
    assert (second["gross_before_cap"], second["financing"]) == (None, 0.0)
    assert (second["plan_id"], second["differences"]) == (PLAN.plan_id, ["A: 1 share"])


def test_state_row_of_a_levered_account_has_gross_and_financing():
    weights = (0.8, -0.4, 0.9, 0.0, 0.0, -0.3)
    figures = {"gross_before_cap": 2.4, "financing": 0.0002, "cap_turnover": 0.15, "cap_cost": 0.0001}
    (row,) = state_rows("paper", [a_state(date(2022, 1, 3), weights=weights, **figures)])
    assert row["gross"] == pytest.approx(2.1)
    assert {name: row[name] for name in figures} == figures


@pytest.mark.parametrize("replaced", [[], [a_state(date(2022, 1, 3), equity=1.2)], [a_state(date(2022, 1, 4))]])
def test_replaced_book_is_refused_and_the_table_stays(store, home, replaced):
    settle(home, a_state(date(2022, 1, 3)))
    mirror(store)
    book_path(home, "paper").unlink()
    settle(home, *replaced)
    with pytest.raises(StorageError):
        mirror(store, "paper")
    assert [row["equity"] for row in rows(store, PORTFOLIO_STATE)] == [1.1]


def test_mirror_is_idempotent(store, log, home):
    log.append(TRADED)
    settle(home, a_state(date(2022, 1, 3)))
    written, before = mirror(store), contents(store)
    assert written == {name: len(frame) for name, frame in before.items()}
    assert mirror(store) == {}
    assert contents(store)[AUDIT.name].equals(before[AUDIT.name])


def test_later_events_change_rows_of_their_plan_only(store, log):
    log.append([constructed(EARLIER, EARLIER_AT), *TRADED[:3]])
    mirror(store)
    assert [row["status"] for row in rows(store, REBALANCE_PLAN) if row["plan_id"] == PLAN.plan_id] == ["waiting"]
    log.append(TRADED)
    assert mirror(store) == {REBALANCE_PLAN.name: 1, ORDERS.name: 3, FILLS.name: 2, AUDIT.name: 9}
    assert {row["plan_id"]: row["status"] for row in rows(store, REBALANCE_PLAN)} == {
        PLAN.plan_id: "placed",
        EARLIER.plan_id: "constructed",
    }


def test_stepwise_mirror_equals_a_single_one(store, log, tmp_path):
    events = [constructed(EARLIER, EARLIER_AT), constructed(ELSEWHERE), *TRADED, judged(EARLIER, at=AT)]
    for part in (events[:6], events[6:]):
        log.append(part)
        mirror(store, part[-1].account)
    mirror(store)
    other = Store(Home(tmp_path / "at once"))
    other.audit.append(events)
    mirror(other)
    for name, frame in contents(other).items():
        assert contents(store)[name].equals(frame), name


def over_new_year(year):
    plan, fill = a_plan(session=date(year, 12, 30)), date(year + 1, 1, 3)
    order = an_order(plan).model_copy(update={"session": fill})
    done = a_fill(order).model_copy(update={"session": fill})
    return [constructed(plan), judged(plan), placed(plan, order), filled(plan, done)]


def test_new_event_leaves_rows_of_other_years(store, log, tmp_path):
    events = [event for year in range(2014, 2022) for event in over_new_year(year)]
    late = events.pop(14)  # the order of 2017, told of after everything else
    fill = events.pop(14)
    log.append(events)
    mirror(store)
    log.append([late, fill])
    assert ORDERS.name in mirror(store)
    other = Store(Home(tmp_path / "at once"))
    other.audit.append([*events, late, fill])
    mirror(other)
    for name, frame in contents(other).items():
        assert contents(store)[name].equals(frame), name
    assert len(rows(store, FILLS)) == 8


def test_accounts_can_be_mirrored_one_by_one(store, log, home):
    log.append([constructed(PLAN), constructed(ELSEWHERE)])
    halt(store, "pat", "fire drill", lambda: AT)
    mirror(store, "paper")
    assert [row["account"] for row in rows(store, REBALANCE_PLAN)] == ["paper"]
    assert sorted(row["line"] for row in rows(store, AUDIT)) == [1, 3]
    mirror(store)
    assert sorted(row["account"] for row in rows(store, REBALANCE_PLAN)) == ["other", "paper"]
    assert sorted(row["line"] for row in rows(store, AUDIT)) == [1, 2, 3]


def test_mirror_killed_after_any_commit_is_completed_by_the_next(store, log, home, monkeypatch):
    log.append(TRADED)
    settle(home, a_state(date(2022, 1, 3)))
    replace, wanted = Warehouse.replace, dict(zip((table.name for table in TABLES), (1, 12, 3, 2, 1, 9), strict=True))
    for n_commits in range(5):
        left = iter(range(n_commits))

        def killed(self, *arguments, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return replace(self, *arguments)

        monkeypatch.setattr(Warehouse, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            mirror(store)
        assert all(len(frame) in {0, wanted[name]} for name, frame in contents(store).items())
    monkeypatch.undo()
    mirror(store)
    assert {name: len(frame) for name, frame in contents(store).items()} == wanted


def test_truncated_audit_is_refused(store, log, home):
    log.append(TRADED)
    mirror(store)
    log.path.write_bytes(b"".join(log.path.read_bytes().splitlines(keepends=True)[:7]))
    assert Store(home).audit.verify().n_rows == 7  # a chain that is whole as far as it goes
    with pytest.raises(StorageError):
        mirror(Store(home))


def test_rewritten_audit_is_refused(store, log, home):
    log.append(TRADED)
    mirror(store)
    log.path.unlink()
    Store(home).audit.append([constructed(PLAN), *TRADED[2:]])
    with pytest.raises(StorageError):
        mirror(Store(home))


def test_snapshots_of_a_plan_are_stored(store, log):
    log.append([constructed(a_plan(snapshot_ids={"gold.returns": 11, "gold.features": 12}))])
    mirror(store)
    assert store.tables.pinned_snapshots() == {11, 12}


def test_provenance_query_leads_from_fill_to_seeds(trading_home):
    store, run = trading_home
    plan = a_plan(
        run_id=run.run_id,
        spec_hash=run.spec_hash,
        partition_key=run.partition_key,
        seeds=run.seeds[1:],
        fold=1,
        snapshot_ids=pinned_snapshots(store.tables, "landing"),
    )
    order = an_order(plan)
    store.audit.append([constructed(plan), judged(plan), placed(plan, order), filled(plan, a_fill(order))])
    mirror(store)
    land(store, N_SESSIONS + 1)  # the panel that the plan was decided on is no longer the one that is pinned
    with duckdb.connect() as connection:
        create_views(connection, store)
        found = read_query(connection, PROVENANCE)
    assert found["seed"].to_list() == list(run.seeds[1:])
    for name, digest in zip(found["seed"], found["file"], strict=True):
        (kept,) = [sha for file, sha in run.policies.items() if f"fold-1-seed-{name}" in file]
        assert kept.startswith(digest)
    wanted = {
        "session": order.session,
        "symbol": "A",
        "plan_id": plan.plan_id,
        "decided": plan.session,
        "fold": 1,
        "run_id": run.run_id,
        "partition_key": run.partition_key,
        "returns_snapshot": str(plan.snapshot_ids["gold.returns"]),
        "source": "landing",
    }
    assert found.select(wanted.keys()).unique().rows(named=True) == [wanted]


def test_activation_halt_and_resume_are_in_the_audit_view_at_once(trading_home):
    store, _ = trading_home
    publish(store)
    kinds = ["activated", "halted", "resumed"]
    for n, act in ((2, lambda: stop_trading(store, "ann", "wait", lambda: AT)),
                   (3, lambda: resume(store, "ann", "ready", lambda: AT))):  # fmt: skip
        act()
        publish(store)
        with open_published(store.home) as views:
            assert read_query(views, "SELECT kind FROM portfolio.audit ORDER BY line")["kind"].to_list() == kinds[:n]
