"""Every check of an account finds its fault, and trading is refused until it is corrected."""

import dagster as dg
import polars as pl
import pytest

from nvtrader_pipelines.desk.account_checks import ACCOUNT_CHECKS
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.execution.brokers import simulated_venue
from nvtrader_pipelines.execution.errors import NotReconciled
from nvtrader_pipelines.execution.reconciliation import Difference
from nvtrader_pipelines.orchestration.assets.portfolio import ORDERS_KEY, PLAN_KEY, STATE_KEY, TARGET_KEY
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.rebalance_steps import require_checks_passed
from nvtrader_pipelines.orchestration.reports import asset_key
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.storage.panels import read_panel
from nvtrader_pipelines.storage.tables import ORDERS, PORTFOLIO_STATE, REBALANCE_PLAN, TARGET_WEIGHTS
from tests.desk.desks import add_account, judged_home, make_active
from tests.homes import check_outcomes

pytestmark = pytest.mark.slow

QUIET = {"loggers": {"console": {"config": {"level": "CRITICAL"}}}}
FAULTS = [  # what is changed in the last row of a table, and the check that must find it
    [
        (ORDERS_KEY, "no_nan", ORDERS, {"quantity": None}),
        (STATE_KEY, "no_nan", PORTFOLIO_STATE, {"weights": [float("nan")]}),
        (TARGET_KEY, "no_nan", TARGET_WEIGHTS, {"change": None}),
        (PLAN_KEY, "no_nan", REBALANCE_PLAN, {"turnover": None}),
    ],
    [
        (TARGET_KEY, "weights_sum_to_one", TARGET_WEIGHTS, {"weight": 0.5}),  # of cash, which is the last
        (PLAN_KEY, "limits_hold", REBALANCE_PLAN, {"status": "cleared"}),
    ],
]
CHECKS = [dg.AssetCheckKey(asset_key(each.table), each.name) for each in ACCOUNT_CHECKS]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Home whose account was traded for a few sessions; its last plan is beyond later limits."""
    store, run = judged_home(tmp_path_factory.mktemp("checked") / "home")
    make_active(store, run)
    desk, days = Desk(store), read_panel(store.tables, "landing").sessions
    for _ in desk.trade(days[-4].item(), acknowledge=True):
        pass
    desk.mirror()
    store.home.compliance.mkdir(parents=True, exist_ok=True)
    (store.home.compliance / "limits.yaml").write_text("max_position: 0.05\n")
    return store


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def checked(store, instance, *keys, account="paper") -> dict[str, bool]:
    """What the checks say, evaluated alone."""
    alone = dg.define_asset_job("alone", dg.AssetSelection.checks(*keys))
    defs = build_defs({"desk": DeskResource(account=account)}, home=store.home)
    job = dg.Definitions.merge(defs, dg.Definitions(jobs=[alone])).resolve_job_def("alone")
    return check_outcomes(job.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False))


def with_fault(rows: pl.DataFrame, fault) -> pl.DataFrame:
    """The rows, of which the last one holds something else."""
    last = pl.int_range(pl.len()) == pl.len() - 1
    changed = {name: pl.lit(value, rows.schema[name]) for name, value in fault.items()}
    return rows.with_columns(**{name: pl.when(last).then(new).otherwise(name) for name, new in changed.items()})


def refusal(store, account="paper") -> str:
    """Why the next rebalance does not trade the account; empty if it does."""
    try:
        require_checks_passed(Desk(store, account))
    except dg.Failure as failure:
        return failure.description or ""
    return ""


def test_checks_of_a_traded_account_pass(store, instance):
    found = checked(store, instance, *CHECKS)
    assert len(found) == len(CHECKS)
    assert all(found.values()), found
    assert refusal(store) == ""


@pytest.mark.parametrize("faults", FAULTS, ids=["values", "sums and limits"])
def test_faults_in_last_rows_fail_their_checks_alone(store, instance, faults):
    before = {table: store.tables.read(table).sort(pl.col("account") == "paper", "session", maintain_order=True)
              for _, _, table, _ in faults}  # fmt: skip
    try:
        for _, name, table, fault in faults:
            store.tables.replace(table, with_fault(before[table], fault), {})
            assert (table.name in refusal(store)) == (name != "limits_hold")  # those plans the desk itself cancels
            store.tables.replace(table, before[table], {})
        for _, _, table, fault in faults:
            store.tables.replace(table, with_fault(before[table], fault), {})
        failed = {name for name, passed in checked(store, instance, *CHECKS).items() if not passed}
    finally:
        for table, rows in before.items():
            store.tables.replace(table, rows, {})
    assert failed == {f"{key.to_user_string()}:{name}" for key, name, *_ in faults}
    assert all(checked(store, instance, *CHECKS).values())
    assert refusal(store) == ""


def test_reconciliation_fails_until_a_person_accepts_differences(store, instance, monkeypatch):
    (store.home.accounts / "second.yaml").parent.mkdir(exist_ok=True)
    (store.home.accounts / "second.yaml").write_text("kind: simulated\n")
    second, day = Desk(store, "second"), read_panel(store.tables, "landing").sessions[-1].item()
    monkeypatch.setattr(simulated_venue, "reconcile", lambda *_: [Difference("AAA", 1.0, 2.0)])
    with pytest.raises(NotReconciled):
        drain(second.trade(day, acknowledge=True))
    check = dg.AssetCheckKey(STATE_KEY, "reconciliation")
    assert list(checked(store, instance, check, account="second").values()) == [False]
    assert list(checked(store, instance, check).values()) == [True]
    second.accept("ann", "I looked")
    assert list(checked(store, instance, check, account="second").values()) == [True]


def test_changed_audit_row_fails_its_check_and_stops_trading(store, instance):
    path = store.audit.path
    before = path.read_bytes()
    check = dg.AssetCheckKey(ORDERS_KEY, "audit_is_whole")
    path.write_bytes(before.replace(b'"by":"nvtrader"', b'"by":"somebody"', 1))
    try:
        assert list(checked(store, instance, check).values()) == [False]
        assert "does not follow line" in refusal(store)
        assert "does not follow line" in refusal(store, "another")
    finally:
        path.write_bytes(before)
    assert list(checked(store, instance, check).values()) == [True]
    assert refusal(store) == ""


def test_account_that_was_never_traded_passes_its_checks(store):
    assert refusal(store, "another") == ""


def test_rows_the_tables_lack_after_a_kill_are_checked_too(store):
    second = Desk(store, "unmirrored")
    add_account(store, "unmirrored")
    drain(second.trade(read_panel(store.tables, "landing").sessions[-2].item(), acknowledge=True))
    assert store.tables.read(REBALANCE_PLAN, {"account": ["unmirrored"]}).is_empty()
    assert refusal(store, "unmirrored") == ""
    assert len(store.tables.read(REBALANCE_PLAN, {"account": ["unmirrored"]})) == 1
