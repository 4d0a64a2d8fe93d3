import datetime as dt
import json
from contextlib import suppress

import pytest

from nvtrader_pipelines.desk.account_facts import require_history
from nvtrader_pipelines.execution.audit import plan_event
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, USAGE
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from tests.promotion.activations import put_unreadable
from tests.service.cli.error_lines import is_one_line_error
from tests.service.cli.sample_plans import AT, SESSION, TURNOVER, append_plan, plan, write_book


@pytest.fixture
def invoke(home, command):
    return command(home)


def lines(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_portfolio_of_unopened_account_shows_next_command(invoke):
    found = invoke("portfolio")
    assert found.exit_code == 0
    assert lines(found.stdout) == [
        "account paper (simulated)",
        "active policy none: nvtrader policies activate NAME",
        "session not opened yet: nvtrader trade",
        "last plan none yet",
        "kill switch not engaged",
    ]


def test_portfolio_json_of_unopened_account_has_no_book(invoke):
    assert list(json.loads(invoke("portfolio", "--json").stdout)) == [
        *(
            "kind",
            "currency",
            "active_policy",
            "account",
            "kill_switch",
            "trading",
            "halted",
            "last_plan",
            "waiting",
            "open_orders",
        )
    ]


def test_reading_an_account_leaves_no_journal_files_beside_its_book(home, invoke):
    write_book(home, 1.0, 1.2)
    path = book_path(home, "paper")
    for content, code in ((path.read_bytes(), 0), (b"", BAD_INPUT)):
        path.write_bytes(content)
        assert invoke("portfolio").exit_code == code
        with suppress(ValueError, StorageError):
            require_history(Store(home), "paper", (None, SESSION))
        assert list(path.parent.iterdir()) == [path]


def test_portfolio_shows_shares_weights_and_waiting_plans(home, invoke):
    waiting = append_plan(home, plan(), TURNOVER)
    write_book(home, 1.0, 1.2, 1.08)
    shown = lines(invoke("portfolio").stdout)
    assert "equity 1,080,000.00, +8.00% since the opening" in shown
    assert "drawdown 10.0%" in shown
    assert "cash 540,000.00 (50.0%)" in shown
    assert "reconciliation as expected" in shown
    assert f"last plan {waiting.plan_id} of {SESSION}, waiting" in shown
    assert f"waits for you {waiting.plan_id}" in shown
    positions = shown.index("symbol shares price value weight % since profit")
    since = SESSION + dt.timedelta(days=1)
    assert shown[positions + 1 : positions + 3] == [f"{name} 5400 50 270,000 25 {since}" for name in ("AAA", "BBB")]


def append_state(home, state, **changes):
    SqliteBook(home, "paper").settle(state.model_copy(update={"session": SESSION + dt.timedelta(days=9), **changes}))


def test_portfolio_shows_gross_and_financing_of_a_levered_account(home, invoke):
    *_, last = write_book(home, 1.0, 1.2)
    append_state(home, last, weights=(0.9, -0.4, 0.7, -0.2), gross_before_cap=2.25, financing=0.00025)
    (line,) = [each for each in lines(invoke("portfolio").stdout) if each.startswith("gross")]
    assert {"200.0%", "225.0%", "0.025%"} <= set(line.split())
    shown = json.loads(invoke("portfolio", "--json").stdout)
    assert (shown["gross"], shown["financing"]) == (pytest.approx(2.0), 0.00025)


def test_portfolio_and_status_of_a_ruined_account_name_the_reset(home, invoke):
    *_, last = write_book(home, 1.0, 1.2)
    append_state(home, last, weights=(0.0, 0.0, 0.0, 1.0), equity=0.0, shares={}, prices={}, net_return=-1.0)
    (line,) = [each for each in lines(invoke("portfolio").stdout) if each.startswith("equity")]
    assert line.startswith("equity 0.00, -100.00% since the opening")
    assert "nvtrader portfolio reset" in line
    assert "nvtrader portfolio reset" in " ".join(invoke("status").stdout.split())


def test_portfolio_with_missing_book_exits_with_3(home, invoke):
    Store(home).audit.append([plan_event("proposed", append_plan(home, plan()), AT, "desk")])
    for words in (("portfolio",), ("trade", "--to", str(SESSION))):
        found = invoke(*words)
        assert (found.exit_code, found.stdout) == (BAD_INPUT, "")
        assert "that of paper lacks the state of 2024-01-02 and 0 more" in found.stderr
        assert "move it, its -wal and its -shm file away" in found.stderr
        assert is_one_line_error(found.stderr)
    assert not book_path(home, "paper").exists()


def test_portfolio_json_holds_account_plan_and_kill_switch(home, invoke):
    append_plan(home, plan(), TURNOVER)
    *_, last = write_book(home, 1.0, 1.2)
    invoke("halt", "--reason", "why")
    document = json.loads(invoke("portfolio", "--json").stdout)
    assert document["session"] == str(last.session)
    assert {each["symbol"]: each["shares"] for each in document["positions"]} == dict(last.shares)
    assert document["last_plan"]["findings"] == [f"soft turnover_pct_warn: {TURNOVER.sentence}"]
    assert "why" in document["kill_switch"]
    assert document["active_policy"] is None


@pytest.mark.parametrize("name", ["portfolio", "plans"])
def test_unknown_account_exits_with_3(invoke, name):
    found = invoke(name, "--account", "papr")
    assert found.exit_code == BAD_INPUT
    assert "there is no account 'papr'" in found.stderr
    assert is_one_line_error(found.stderr)


@pytest.mark.parametrize(
    "words",
    [("portfolio", "--account", "other", "accept-differences", "--reason", "I looked"), ("plans", "--json", "list")],
)
def test_options_before_a_subcommand_exit_with_2(invoke, words):
    assert invoke(*words).exit_code == USAGE


def test_unreadable_activation_is_reported_by_portfolio_and_doctor(home, invoke):
    put_unreadable(Store(home))
    found = invoke("portfolio")
    assert found.exit_code == BAD_INPUT
    assert "nvtrader policies activate" in found.stderr
    findings = {each["check"]: each for each in json.loads(invoke("doctor", "--json").stdout)}
    assert "cannot be read" in findings["active policy"]["problem"]
    assert findings["kill switch"] == {"check": "kill switch", "result": "not engaged", "problem": ""}


def test_doctor_reports_kill_switch_and_edited_audit(home, invoke):
    append_plan(home, plan(), TURNOVER)
    invoke("halt", "--reason", "why")
    path = home.audit / "events.jsonl"
    found = {each["check"]: each for each in json.loads(invoke("doctor", "--json").stdout)}
    assert found["kill switch"]["result"].startswith("engaged: ")
    assert found["audit"]["result"].startswith("3 rows, chain ")
    path.write_text(path.read_text().replace("AAA cut to 25.0%", "AAA cut to 35.0%"))
    found = {each["check"]: each for each in json.loads(invoke("doctor", "--json").stdout)}
    assert "line 1 of the audit" in found["audit"]["problem"]
