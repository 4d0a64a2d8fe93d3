"""One account that two homes of one team trade, with Postgres and an object store."""

import json

import pytest

from nvtrader_pipelines.storage.home import create_home
from nvtrader_pipelines.storage.store import Store
from tests.desk.desks import days_of, judged_home, make_active
from tests.storage.table_rows import start

pytestmark = pytest.mark.nightly

TRADE = """
import datetime as dt, json, sys
from pathlib import Path
from nvtrader_pipelines.desk.account_access import AccountInUse
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.desk.desks import trade
store = Store(Home(Path(sys.argv[1])))
days = [dt.date.fromisoformat(day) if day else None for day in sys.argv[2:]]
print("ready", flush=True)
sys.stdin.readline()
try:
    print(json.dumps([step.stage for step in trade(store, *days)]))
except AccountInUse:
    print(json.dumps(["in use"]))
"""


def trade_in(*runs):
    """Trade sessions in processes that begin at once, one a home; return the stages of each."""
    traders = [start(TRADE, root, *map(str, days), stdin=-1) for root, *days in runs]
    for trader in traders:
        assert trader.stdout.readline() == "ready\n"
    for trader in traders:
        trader.stdin.write("\n")
        trader.stdin.flush()
    return [json.loads(trader.communicate(timeout=300)[0]) for trader in traders]


def test_two_homes_trade_one_account_in_turns_and_one_at_a_time(database, bucket, tmp_path):
    one, run = judged_home(tmp_path / "one")
    make_active(one, run)
    two = Store(create_home(tmp_path / "two"))
    days = days_of(one)[-40:]
    roots = [store.home.root for store in (one, two)]
    for number, root in enumerate(roots * 2):
        (stages,) = trade_in((root, "" if number else days[0], days[5 * number + 4]))
        assert stages[-1] == "done"
    both = trade_in(*((root, "", days[39]) for root in roots))
    assert ["in use"] in both
    assert [stages[-1] for stages in both if stages != ["in use"]] == ["done"]
    rows = [store.audit.rows() for store in (one, two)]
    assert rows[0] == rows[1]
    for store in (one, two):
        assert [state.session for state in store.book("paper").states()][1:] == days
        assert store.audit.verify().n_rows >= len(rows[0])
