"""The command `nvtrader trade`, on a home with untrained policies."""

import datetime as dt
import json

import pytest

from nvtrader_pipelines.desk import account_activity
from nvtrader_pipelines.desk.account_activity import activity, trade_document
from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.desk.rebalancing import reference_curves
from nvtrader_pipelines.evaluation.formats import UNKNOWN
from nvtrader_pipelines.execution.audit import plan_event
from nvtrader_pipelines.execution.brokers import simulated_venue
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.reconciliation import Difference
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.promote import activate
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, FAILED
from nvtrader_pipelines.service.cli.pages.account_pages import print_account
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    AUDIT,
    FILLS,
    ORDERS,
    OUTCOMES,
    PORTFOLIO_STATE,
    REBALANCE_PLAN,
    TARGET_WEIGHTS,
)
from nvtrader_pipelines.storage.views.publishing import publish
from nvtrader_pipelines.storage.views.queries import query_views
from tests.homes import copy_home
from tests.runs.small_runs import land, small_home
from tests.runs.untrained import KEY, planned
from tests.service.cli.error_lines import is_one_line_error
from tests.service.cli.sample_plans import AT, plan, write_book

pytestmark = pytest.mark.slow

SECTORS = "symbol,sector\nAAA,one\nBBB,two\nCCC,three\n"
SOFT = "soft turnover_pct_warn"  # of the first plan, which buys everything


@pytest.fixture(scope="module")
def store(evaluated_home, tmp_path_factory):
    """A home in which a policy is active and no account is open."""
    store = Store(copy_home(evaluated_home, tmp_path_factory.mktemp("desk") / "home"))
    store.home.compliance.mkdir(parents=True)
    (store.home.compliance / "sectors.csv").write_text(SECTORS)
    store.home.accounts.mkdir()
    activate(store, PolicyRef(store.policies.read_latest(KEY).run_id, "small"), "ann", "", now())
    return store


@pytest.fixture(scope="module")
def days(store):
    """Forty sessions of the policy's tests."""
    panel = planned(store).panel
    return [day.item() for day in panel.sessions[planned(store).folds[0].test_first :][:40]]


@pytest.fixture
def account(store, request):
    """A simulated account named after the test, unknown to the doctor of later tests."""
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:63]
    (store.home.accounts / f"{name}.yaml").write_text("kind: simulated\n")
    yield name
    (store.home.accounts / f"{name}.yaml").unlink()


@pytest.fixture
def undrawn():
    """Leave out the pictures of accounts, unless a test undoes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(account_activity, "draw_account", lambda *_: "none.png")
        yield patch


@pytest.fixture
def invoke(store, command, undrawn):
    return command(store.home)


def trade(invoke, account, *arguments):
    found = invoke("trade", "--account", account, *map(str, arguments), "--json")
    assert found.exit_code == 0, found.stderr
    return json.loads(found.stdout)


def assert_printed(found, document):
    """Check the output of a repeated command: the same figures, line by line."""
    assert found.exit_code == 0, found.stderr
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    assert f"sessions 12, {document['first_session']} to {document['last_session']}" in lines
    assert f"orders {document['n_orders']} placed, {document['n_fills']} filled, 0 cancelled" in lines
    assert [document[name] for name in ("sharpe", "turnover_per_year", "cost_per_year")] == [None, None, None]
    assert {f"{name} {UNKNOWN}" for name in ("net Sharpe", "turnover/y", "cost/y")} <= set(lines)
    assert "note too short for annualized figures: 12 of 63 sessions" in lines
    for name in ("equity", "return", "max drawdown", "turnover/y", "cost/y", "plans", "picture"):
        assert any(line.startswith(f"{name} ") for line in lines), name
    (comparison,) = [line for line in lines if line.startswith("back-test ")]
    assert f" on {document['last_session']}; largest difference" in comparison
    assert f" over 12 sessions from {document['first_session']}" in comparison
    assert "━" not in found.stdout


def test_replayed_history_equals_backtest_and_resumes_at_its_end(store, invoke, account, days, undrawn):
    publish(store)  # a home that was never published has no views
    first = trade(invoke, account, "--from", days[0], "--to", days[11])
    undrawn.undo()
    assert_printed(invoke("trade", "--account", account, "--from", str(days[0]), "--to", str(days[11])), first)
    later = trade(invoke, account, "--to", days[23])
    assert (first["n_sessions"], first["first_session"], first["last_session"]) == (12, str(days[0]), str(days[11]))
    assert (later["n_sessions"], later["last_session"]) == (24, str(days[23]))
    assert trade(invoke, account, "--to", days[11])["backtest"] == first["backtest"]
    for document in (first, later):
        assert document["backtest"]["n_sessions"] == document["n_sessions"]
        assert document["backtest"]["first_session"] == document["first_session"]
        assert document["backtest"]["last_session"] == document["last_session"]
        assert document["backtest"]["largest_difference"] <= 1e-12
        assert document["equity"] == pytest.approx(document["backtest"]["equity"], abs=1e-12)
        assert document["n_orders"] == document["n_fills"] > 0
    assert first["findings"][SOFT] == 1
    states, fills = (store.tables.read(table, {"account": [account]}) for table in (PORTFOLIO_STATE, FILLS))
    assert states["session"].max() == days[23]
    assert len(fills) == later["n_fills"]
    (shown,) = query_views(store, f"SELECT count(*) FROM {FILLS.name} WHERE account = '{account}'").row(0)
    assert shown == len(fills)
    assert (store.home.pictures / "paper" / f"{account}.png").read_bytes().startswith(b"\x89PNG")


def test_halted_replay_stops_at_once_and_resumes(invoke, account, days):
    before = trade(invoke, account, "--from", days[0], "--to", days[1])
    assert invoke("halt", "--reason", "news").exit_code == 0
    doctor = {row["check"]: row for row in json.loads(invoke("doctor", "--json").stdout)}
    stopped = [invoke("trade", "--account", account, *more, "--json") for more in ((), ("--to", str(days[8])))]
    assert invoke("resume").exit_code == 0
    assert [each.exit_code for each in stopped] == [FAILED, FAILED]
    document = json.loads(stopped[0].stdout)
    assert (document["last_session"], document["n_sessions"]) == (before["last_session"], 2)
    assert "news" in document["kill_switch"]
    assert f"stays at the close of {days[1]}" in stopped[0].stderr
    found = doctor[f"account {account}"]
    assert found["result"].startswith("simulated, not traded: ")
    for text in (": news", "stopped trading at", "`nvtrader resume`"):
        assert text in found["result"]
    assert found["problem"] == ""
    resumed = trade(invoke, account, "--to", days[8])
    assert (resumed["last_session"], resumed["halted"]) == (str(days[8]), [])


def test_halted_session_of_the_present_is_counted_and_listed_as_plan(invoke, account, store, days):
    trade(
        invoke, account, "--from", planned(store).panel.sessions[-3].item(), "--to", planned(store).panel.sessions[-2]
    )
    assert invoke("halt", "--reason", "news").exit_code == 0
    document = trade(invoke, account)
    assert invoke("resume").exit_code == 0
    last = str(planned(store).panel.sessions[-1])
    assert (document["halted"], document["last_session"]) == ([last], last)
    assert f"halted           1 session, {last} to {last}\n" in invoke("trade", "--account", account).stdout
    rows = json.loads(invoke("plans", "--account", account, "--json").stdout)
    assert [(row["session"], row["plan"]) for row in rows if row["status"] == "halted"] == [(last, None)]
    assert json.loads(invoke("portfolio", "--account", account, "--json").stdout)["halted"] == document["halted"]


def test_waiting_plan_stops_trading_until_approved_once(invoke, account, days):
    window = ("--from", str(days[0]), "--to", str(days[9]))
    first = trade(invoke, account, *window, "--wait")
    (plan,) = first["waiting"]
    assert (first["n_sessions"], first["n_orders"], first["plans"]) == (0, 0, {"waiting": 1})
    shown = invoke("portfolio", "--account", account).stdout
    assert f"waits for you    {plan}\n" in shown
    approved, again = (invoke("plans", "approve", plan[:10], "--reason", "the first buys") for _ in range(2))
    assert approved.exit_code == 0, approved.stderr
    assert "is approved by" in approved.stdout
    assert again.exit_code == BAD_INPUT
    assert is_one_line_error(again.stderr)
    then = trade(invoke, account, *window, "--wait")
    assert then["n_fills"] > 0
    assert then["plans"]["filled"] == then["n_plans"] - 1 or then["plans"] == {"filled": then["n_plans"]}
    assert then["backtest"]["largest_difference"] <= 1e-12


def test_days_before_the_opening_have_no_backtest(invoke, account, days):
    trade(invoke, account, "--from", days[4], "--to", days[5])
    before = trade(invoke, account, "--to", days[2])
    assert (before["n_sessions"], before["n_plans"], before["equity"]) == (0, 0, 1.0)
    assert before["backtest"] == {"missing": "no session of these days has been traded"}


def test_account_of_policy_for_another_market_has_no_backtest(store, invoke, account, days):
    traded = trade(invoke, account, "--from", days[0], "--to", days[1])
    try:
        land(store, n_symbols=4)
        found = trade_document(store, account, (None, None))
        states = store.tables.read(PORTFOLIO_STATE, {"account": [account]}).sort("session")
        assert "back-test" not in reference_curves(store, states)
    finally:
        land(store)
    assert found.backtest.missing.startswith("the policy was trained on 3 symbols (AAA, BBB, CCC), but the panel")
    assert found.equity == traded["equity"]


def test_waiting_check_reads_only_the_last_plan(invoke, account, days, monkeypatch):
    trade(invoke, account, "--from", days[0], "--to", days[11])
    monkeypatch.delattr(Journal, "records")  # reads every plan
    shown = trade(invoke, account, "--to", days[20], "--wait")
    assert (shown["last_session"], shown["waiting"]) == (str(days[20]), [])


def test_overridden_plan_places_no_order_and_has_its_outcome(store, invoke, account, days):
    (plan,) = trade(invoke, account, "--from", days[0], "--to", days[2], "--wait")["waiting"]
    answered = invoke("plans", "override", plan, "--reason", "not today", "--json")
    assert (json.loads(answered.stdout)["kind"], json.loads(answered.stdout)["reason"]) == ("overridden", "not today")
    document = trade(invoke, account, "--to", days[2], "--wait")
    outcomes = store.tables.read(OUTCOMES, {"account": [account]}, ["plan_id", "practice", "weight"])
    assert outcomes.rows() == [(plan, True, 0.0)]
    assert (document["n_orders"], document["equity"]) == (0, 1.0)
    assert document["backtest"]["largest_difference"] > 0.0


@pytest.mark.nightly
def test_trade_with_engaged_kill_switch_places_no_order(store, invoke, account, days):
    assert trade(invoke, account, "--from", days[0], "--to", days[0], "--wait")["waiting"]
    invoke("halt", "--reason", "a drill")
    try:
        shown = invoke("trade", "--account", account, "--to", str(days[5])).stdout
    finally:
        invoke("resume")
    (switch,) = [line for line in shown.splitlines() if line.startswith("kill switch ")]
    assert "a drill" in switch
    assert "0 placed, 0 filled" in shown
    assert [state.equity for state in SqliteBook(store.home, account).states()] == [1.0]
    assert trade(invoke, account, "--to", days[23])["n_orders"] > 0
    assert SqliteBook(store.home, account).open_orders() == []


def test_trade_with_engaged_kill_switch_opens_no_account(store, invoke, account, days):
    invoke("halt", "--reason", "a drill")
    try:
        refused = invoke("trade", "--account", account, "--from", str(days[0]), "--to", str(days[5]))
    finally:
        invoke("resume")
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)
    assert f"the account {account} is not open yet" in refused.stderr
    assert "a drill" in refused.stderr
    assert not book_path(store.home, account).exists()
    assert store.audit.events(account) == []
    assert trade(invoke, account, "--from", days[2], "--to", days[3])["first_session"] == str(days[2])


def test_trade_without_active_policy_exits_with_3(tmp_path, command):
    found = command(small_home(tmp_path / "home").home)("trade")
    assert found.exit_code == BAD_INPUT
    assert "`nvtrader policies activate" in found.stderr
    assert is_one_line_error(found.stderr)


def test_history_without_first_day_on_unopened_account_exits_with_3(store, invoke, account, days):
    found = invoke("trade", "--account", account, "--to", str(days[5]))
    assert found.exit_code == BAD_INPUT
    assert "give --from, too" in found.stderr
    assert is_one_line_error(found.stderr)
    assert SqliteBook(store.home, account).last() is None


def test_trade_exits_with_1_until_differences_are_accepted(store, invoke, account, days, monkeypatch):
    window = ("--account", account, "--from", str(days[0]), "--to", str(days[5]))
    found = [[], [Difference("AAA", 10.0, 7.0)]]
    monkeypatch.setattr(simulated_venue, "reconcile", lambda *_: found.pop(0) if found else [])
    failed = invoke("trade", *window)
    assert failed.exit_code == FAILED
    assert is_one_line_error(failed.stderr)
    assert f"{account} differed at the close of {days[1]}: AAA: 10 shares expected, 7 held (-3);" in failed.stderr
    assert f"DIFFERS          at the close of {days[1]}" in failed.stdout  # the account is still printed
    assert store.tables.read(PORTFOLIO_STATE, {"account": [account]})["n_differences"].sum() == 1
    again = invoke("trade", *window, "--json")
    assert again.exit_code == FAILED
    assert f"error: {json.loads(again.stderr)['error']}\n" == failed.stderr
    assert json.loads(again.stdout)["last_session"] == str(days[1])
    assert "nothing trades until" in invoke("portfolio", "--account", account).stdout
    known = {each["check"]: each["problem"] for each in json.loads(invoke("doctor", "--json").stdout)}
    assert f"{account} differed at the close of {days[1]}" in known[f"account {account}"]
    accepted = invoke("portfolio", "accept-differences", "--account", account, "--reason", "I looked")
    assert accepted.exit_code == 0, accepted.stderr
    assert "AAA: 10 shares expected, 7 held (-3)" in accepted.stdout
    assert "accepted by" in invoke("portfolio", "--account", account).stdout
    assert trade(invoke, account, "--to", days[5])["last_session"] == str(days[5])
    assert "accepted" in store.tables.read(AUDIT, columns=["kind"])["kind"].to_list()


def test_reset_account_is_shown_as_new_and_trades_again(store, invoke, account, days):
    tables = (PORTFOLIO_STATE, REBALANCE_PLAN, TARGET_WEIGHTS, ORDERS, FILLS)
    first = trade(invoke, account, "--from", days[0], "--to", days[11])
    rows = {table: store.tables.read(table, {"account": [account]}) for table in tables}
    assert all(len(each) for each in rows.values())
    found = invoke("portfolio", "reset", "--account", account, "--reason", "a wrong start", "--json")
    assert found.exit_code == 0, found.stderr
    event = json.loads(found.stdout)
    assert (event["kind"], event["reason"], event["session"]) == ("reset", "a wrong start", str(days[11]))
    shown = json.loads(invoke("portfolio", "--account", account, "--json").stdout)
    assert (shown["last_plan"], "session" in shown) == (None, False)
    assert json.loads(invoke("plans", "--account", account, "--json").stdout) == []
    assert not any(len(store.tables.read(table, {"account": [account]})) for table in tables)
    assert trade(invoke, account, "--from", days[0], "--to", days[11]) == first
    again = {table: store.tables.read(table, {"account": [account]}) for table in tables}
    assert {table.name: len(each) for table, each in again.items()} == {t.name: len(each) for t, each in rows.items()}
    audit = store.tables.read(AUDIT, columns=["account", "kind"]).filter(account=account)["kind"].to_list()
    assert (audit.count("reset"), audit.count("filled")) == (1, 2 * first["n_fills"])
    known = {each["check"]: each["problem"] for each in json.loads(invoke("doctor", "--json").stdout)}
    assert known[f"account {account}"] == ""


def test_doctor_forbids_trading_account_with_missing_book(store, invoke, account):
    store.audit.append([plan_event("proposed", plan(account=account), AT, "desk")])
    known = {each["check"]: each for each in json.loads(invoke("doctor", "--json").stdout)}[f"account {account}"]
    assert known["result"] == "simulated, may not be traded"
    assert f"that of {account} lacks the state of 2024-01-02" in known["problem"]


def test_accept_differences_of_unopened_account_exits_with_3(invoke, account):
    found = invoke("portfolio", "accept-differences", "--account", account, "--reason", "I looked")
    assert found.exit_code == BAD_INPUT
    assert "is not open yet" in found.stderr
    assert is_one_line_error(found.stderr)


def test_differing_holding_is_in_document_and_printed(tmp_path, capsys):
    home = Home(tmp_path)
    *_, last = write_book(home, 1.0, 1.01, 1.02)
    differs = {"session": last.session + dt.timedelta(days=1), "differences": ("AAA: 7 shares expected, 0 held",)}
    SqliteBook(home, "paper").settle(last.model_copy(update=differs))
    document = activity(Store(home), AccountFacts.of(Store(home), "paper"))
    assert document.differences == {differs["session"]: ("AAA: 7 shares expected, 0 held",)}
    print_account(document)
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("DIFFERS ")]
    assert f"at the close of {differs['session']}: AAA: 7 shares expected, 0 held" in line


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_history_on_broker_account_exits_with_3(store, invoke, account, days, option):
    (store.home.accounts / f"{account}.yaml").write_text("kind: alpaca\n")
    found = invoke("trade", "--account", account, option, str(days[5]))
    assert found.exit_code == BAD_INPUT
    assert "is at a broker (kind: alpaca)" in found.stderr
    assert is_one_line_error(found.stderr)
    assert SqliteBook(store.home, account).last() is None


def test_help_of_trade_and_forward_states_which_one_trades(invoke):
    trade_help = " ".join(invoke("trade", "--help", env={"COLUMNS": "300"}).stdout.split())
    assert "`nvtrader runs forward` places none" in trade_help
    forward_help = " ".join(invoke("runs", "forward", "--help", env={"COLUMNS": "300"}).stdout.split())
    assert "no order is placed" in forward_help
    assert "`nvtrader trade` trades" in forward_help
    assert "With --from or --to: wait for a person at soft findings" in trade_help
