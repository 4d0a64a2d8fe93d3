import datetime as dt
import json
import re
import shutil

import polars as pl
import pytest

from nvtrader_pipelines.desk import traded_market
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.promotion import eligibility, promote
from nvtrader_pipelines.promotion.active_policy import activations, read_active
from nvtrader_pipelines.promotion.recency import start_deadline
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, FAILED
from nvtrader_pipelines.service.doctor import check_pointer_file
from nvtrader_pipelines.storage.errors import CodeMismatchError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, MARKET_PANEL, PROMOTION_DECISIONS, RUNS
from nvtrader_pipelines.storage.views.queries import query_views
from tests.homes import copy_home
from tests.promotion.activations import forget_activations, put_unreadable
from tests.runs.untrained import EXPERIMENT, KEY, begun, planned, sealed
from tests.service.cli.error_lines import is_one_line_error

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(evaluated_home, tmp_path_factory):
    """A home with one evaluated run; `invoke` deletes its active policy and audit."""
    return Store(copy_home(evaluated_home, tmp_path_factory.mktemp("policies") / "home"))


@pytest.fixture(scope="module")
def run(store):
    return store.policies.read_latest(KEY)


@pytest.fixture
def invoke(store, run, command):
    forget_activations(store)
    return command(store.home)


def words(text) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_policies_table_is_at_most_180_wide(invoke, run):
    shown = invoke("policies").stdout
    heads, line, count = words(shown)[:3]
    columns = (
        "policy run net Sharpe state Sharpe 95 % less best baseline",
        "difference 95 % best baseline deflated tested",
    )
    assert heads == f"{' '.join(columns)} version"
    assert line.startswith(f"small {run.run_id[:8]} ")
    assert " can trade " in line
    assert line.endswith(f" {run.as_parent.window[0]} to {run.as_parent.window[1]} {KEY}")
    assert count == "1 row"
    assert max(map(len, shown.splitlines()[:2])) <= 180
    assert invoke("policies", "list").stdout == shown


def test_policies_all_lists_single_seeds(invoke, run):
    found = json.loads(invoke("policies", "list", "--all", "--json").stdout)
    assert [card["policy"] for card in found["policies"]] == ["small", "small/seed-0", "small/seed-1", "small/seed-2"]
    assert found["policies"][0]["spec_hash"] == run.spec_hash
    assert found["problems"] == []
    assert words(invoke("policies", "--all").stdout)[2].startswith("small/seed-0 ")


def test_outdated_policies_are_counted_and_listed_with_all(invoke, run, monkeypatch):
    def other(ledger, key):
        raise CodeMismatchError(f"version {key} would be another with the defaults of this code; run the new version")

    monkeypatch.setattr(Ledger, "read", other)
    shown = invoke("policies").stdout
    assert "net Sharpe" not in shown
    assert shown.startswith(
        "not shown: 1 policy of a version from other code, which must be run again before trading; "
        "`nvtrader policies --all` lists all, with what to do"
    )
    whole = invoke("policies", "--all").stdout
    assert "not shown" not in whole
    assert f"cannot trade: small of run {run.run_id[:8]}: version {KEY} would be another with the defaults" in whole
    (card,) = json.loads(invoke("policies", "--json").stdout)["policies"]
    assert card["outdated"]
    assert card["obstacle"].startswith(f"version {KEY} would be")


def test_documents_of_few_sessions_have_no_annualized_figures(store, invoke):
    rows = store.tables.read(EVALUATIONS)
    store.tables.replace(
        EVALUATIONS, rows.with_columns(pl.lit(22).cast(rows["n_sessions"].dtype).alias("n_sessions")), {}
    )
    try:
        (listed,) = json.loads(invoke("policies", "--json").stdout)["policies"]
        shown = json.loads(invoke("policies", "show", "small", "--json").stdout)
    finally:
        store.tables.replace(EVALUATIONS, rows, {})
    scores = [row for card in (listed, shown) for row in (*card["scores"], *card["baselines"])]
    assert {row[name] for row in scores for name in ("sharpe", "sharpe_low", "cagr")} == {None}
    assert all(row["max_drawdown"] is not None for row in scores)


def test_policies_of_empty_home_show_next_command(home, command):
    assert command(home)("policies").stdout == "no trained policy yet: nvtrader materialize\n"
    assert json.loads(command(home)("policies", "--json").stdout) == {"policies": [], "newer": None, "problems": []}


def test_card_shows_scores_baselines_folds_and_files(invoke, run):
    shown = invoke("policies", "show", "small").stdout
    lines = words(shown)
    assert f"run {run.run_id}" in lines
    assert "can trade yes, on the current market" in lines
    for digest in run.policies.values():
        assert digest in shown
    for account in ("small all", "equal_weight all", "buy_and_hold from_2010"):
        assert any(line.startswith(account) for line in lines), account
    assert f"0 {run.folds[0].train_first} to {run.folds[0].train_last}" in shown.replace("  ", " ")
    never_asked = words(invoke("policies", "show", "small/seed-2").stdout)
    assert "no decision yet: nvtrader policies promote" in never_asked
    document = json.loads(invoke("policies", "show", f"{run.run_id[:6]}/seed-2", "--json").stdout)
    assert (document["run_id"], document["promotions"], document["active"]) == (run.run_id, [], False)


def test_activate_shows_and_records_verdict(invoke, store, run):
    found = invoke("policies", "activate", "small/seed-1", "--reason", "I know it")
    assert found.exit_code == 0
    verdict, now, coverage, server = found.stdout.splitlines()
    assert "no sector is known" in coverage
    assert f"small/seed-1 of run {run.run_id[:8]} on the account paper" in server
    assert "`nvtrader halt`" in server
    assert verdict.startswith(f"gate: small/seed-1 (run {run.run_id[:8]}) is ")
    assert now == f"small/seed-1 (run {run.run_id[:8]}) decides from the next close on"
    active = read_active(store)
    assert active is not None
    assert (active.policy, active.reason) == ("small/seed-1", "I know it")
    assert "* small/seed-1" in " ".join(words(invoke("policies", "--all").stdout))
    rows = query_views(store, "SELECT policy, active FROM portfolio.active_policy")
    assert rows.rows() == [("small/seed-1", True)]
    assert "I know it" in invoke("policies", "show", "small/seed-1").stdout
    repeated = invoke("policies", "activate", "small/seed-1")
    again = repeated.stdout.splitlines()
    assert repeated.exit_code == 0
    assert again[0].endswith("is the active policy already")
    assert again[1] == f"small/seed-1 of run {run.run_id[:8]} keeps trading"
    assert read_active(store) == active


@pytest.mark.parametrize("everyday", ["policies", "status", "portfolio", "materialize"])
def test_edited_pointer_file_is_noticed_once_and_not_followed(invoke, store, everyday, caplog):
    invoke("policies", "activate", "small/seed-1")
    path = store.home.active_policy_file
    written = path.read_bytes()
    path.write_bytes(written.replace(b"small/seed-1", b"small/seed-2"))
    for _ in range(2):
        invoke(everyday)
    edits = [message for record in caplog.records if "pointer file" in (message := record.getMessage())]
    assert ["small/seed-2" in message for message in edits] == [True]
    assert path.read_bytes() == written
    assert read_active(store).policy == "small/seed-1"


def test_doctor_names_a_pointer_file_that_the_next_policies_writes(invoke, store, run):
    assert "pointer file" not in doctor_checks(invoke)
    invoke("policies", "activate", "small/seed-1")
    invoke("policies", "activate", "small", "--reason", "steadier")
    path = store.home.active_policy_file
    written = path.read_bytes()
    assert doctor_checks(invoke)["pointer file"] == {"check": "pointer file", "result": str(path), "problem": ""}
    earlier = activations(store)[0].at.isoformat().replace("+00:00", "Z").encode()
    before = re.sub(rb'(at": ?")[^"]*', rb"\g<1>" + earlier, written.replace(b'"small"', b'"small/seed-1"'))
    for content, kind in ((None, "missing"), (b"{", "missing"), (before, "outdated"), (b"{}", "edited")):
        path.unlink() if content is None else path.write_bytes(content)
        (finding,) = check_pointer_file(store)
        assert (finding.result, "`nvtrader policies`" in finding.problem) == (kind, True)
        invoke("policies")
        assert path.read_bytes() == written


def test_activate_in_place_of_another_policy_needs_a_reason(invoke, store, run):
    invoke("policies", "activate", "small")
    refused = invoke("policies", "activate", "small/seed-1")
    assert refused.exit_code == BAD_INPUT
    assert is_one_line_error(refused.stderr)
    assert read_active(store).policy == "small"
    given = invoke("policies", "activate", "small/seed-1", "--reason", "steadier")
    assert given.stdout.splitlines()[1].endswith(f"in place of small (run {run.run_id[:8]})")
    assert [event.kind for event in activations(store)] == ["activated", "activated"]


def test_activate_of_tampered_active_policy_is_refused(invoke, store, run):
    invoke("policies", "activate", "small")
    path = store.policies.folder(run.partition_key, run.run_id) / "fold-0-seed-0.zip"
    content = path.read_bytes()
    path.write_bytes(content + b"x")
    found = invoke("policies", "activate", "small")
    path.write_bytes(content)
    assert found.exit_code == BAD_INPUT
    assert is_one_line_error(found.stderr)
    assert len(activations(store)) == 1


def test_promote_of_weaker_policy_exits_with_1_and_activates_nothing(invoke, store, run):
    """An untrained network does not beat the best of two baselines."""
    store.home.promotion_file.write_text("least_sessions: 40\n")
    found = invoke("policies", "promote", "small", "--json")
    assert found.exit_code == FAILED
    row = json.loads(found.stdout)
    assert (row["policy"], row["passed"], row["activated"], row["decision"]) == ("small", False, False, "gate")
    assert row["baseline_difference_low"] < 0.0
    assert read_active(store) is None
    assert row["sentence"] in store.tables.read(PROMOTION_DECISIONS)["sentence"]


def test_policy_of_other_code_is_marked_in_list_and_activation(invoke, run, monkeypatch):
    for module in (promote, eligibility):
        monkeypatch.setattr(module, "code_of", lambda spec: "ffffffffffff")
    *_, note, _ = invoke("policies", "activate", "small").stdout.splitlines()
    note_text = f"its run was made with code {run.code_version} but ffffffffffff is installed"
    assert note.startswith(f"note: {note_text}")
    listed = invoke("policies").stdout
    assert "trades, other code" in words(listed)[1]
    assert f"note: small of run {run.run_id[:8]}: {note_text}" in listed


def test_trading_period_of_active_policy_is_shown_by_three_commands(invoke, store, run):
    invoke("policies", "activate", "small")
    until = (
        f"until {start_deadline(run.as_parent.window[1], NEW_YORK)}, 126 sessions after its tests; a simulated account"
    )
    assert f"small of run {run.run_id[:8]} may trade {until}" in invoke("policies").stdout
    assert f"it may trade {until}" in " ".join(words(invoke("portfolio").stdout))
    findings = doctor_checks(invoke)
    assert findings["it may trade"]["result"].startswith(until)
    assert findings["its code digest"] == {"check": "its code digest", "result": run.code_version, "problem": ""}
    assert findings["account paper"] == {"check": "account paper", "result": "simulated, may be traded", "problem": ""}


def test_may_trade_states_why_active_policy_cannot_trade(invoke, store, run):
    invoke("policies", "activate", "small")
    path, judged_as = store.policies.folder(run.partition_key, run.run_id), store.tables.read(EVALUATIONS)
    content = path.joinpath("fold-0-seed-0.zip").read_bytes()

    def may_trade() -> set[str]:
        portfolio = json.loads(invoke("portfolio", "--json").stdout)["active_policy"]["may_trade"]
        (card,) = json.loads(invoke("policies", "--json").stdout)["policies"]
        return {portfolio, card["may_trade"], doctor_checks(invoke)["it may trade"]["result"]}

    store.tables.replace(EVALUATIONS, judged_as.clear(), {})
    (untested,) = may_trade()
    store.tables.replace(EVALUATIONS, judged_as, {})
    path.joinpath("fold-0-seed-0.zip").write_bytes(content + b"x")
    (tampered,) = may_trade()
    path.joinpath("fold-0-seed-0.zip").write_bytes(content)
    assert untested.startswith("not at all: a policy must have been tested before it trades")
    assert tampered.startswith(f"not at all: 1 policy files of {KEY} are missing or were changed after sealing")
    panels = store.tables.read(MARKET_PANEL)
    store.tables.replace(MARKET_PANEL, panels.with_columns(pl.lit(["AAA", "ZZZ"]).alias("symbols")), {})
    (elsewhere,) = may_trade()
    store.tables.replace(MARKET_PANEL, panels, {})
    assert elsewhere.startswith(f"not at all: small of run {run.run_id} cannot trade on the current market: ")


def test_newer_run_of_active_experiment_is_shown_by_three_commands(invoke, store, run):
    invoke("policies", "activate", "small")
    before = store.tables.read(RUNS)
    newer = sealed(store, planned(store, EXPERIMENT.model_copy(update={"description": "trained again"})))
    complete_run(store, newer, before["finished_at"][0] + dt.timedelta(days=1))
    message = f"run {newer.run_id[:8]} of small is newer than the active one: the gate has not judged it yet: "
    activation_command = f"to activate it by hand: `nvtrader policies activate {newer.run_id[:8]} --reason WHY`"
    for command in ("policies", "portfolio"):
        shown = " ".join(words(invoke(command).stdout))
        assert message in shown
        assert activation_command in shown
    assert doctor_checks(invoke)["a newer run"]["result"].startswith(message)
    assert json.loads(invoke("policies", "--json").stdout)["newer"].startswith(message)
    store.tables.replace(RUNS, before, {})
    store.policies.folder(newer.partition_key, newer.run_id).joinpath("manifest.json").unlink()


def test_doctor_states_why_account_may_not_be_traded(invoke, store, monkeypatch):
    assert doctor_checks(invoke)["account paper"]["result"] == "simulated, not traded: no policy is active"
    invoke("policies", "activate", "small")
    for module in (promote, eligibility):
        monkeypatch.setattr(module, "code_of", lambda spec: "ffffffffffff")
    monkeypatch.setattr(traded_market, "MAX_TEST_AGE", -1)
    findings = doctor_checks(invoke)
    assert "was tested to" in findings["account paper"]["problem"]
    assert "ffffffffffff is installed" in findings["its code digest"]["problem"]
    judged_as = store.tables.read(EVALUATIONS)
    store.tables.replace(EVALUATIONS, judged_as.clear(), {})
    assert "must have been tested before it trades" in doctor_checks(invoke)["account paper"]["problem"]
    store.tables.replace(EVALUATIONS, judged_as, {})


def test_doctor_checks_broker_keys_without_showing_them(invoke, store, monkeypatch):
    assert "keys of broker" not in doctor_checks(invoke)
    store.home.accounts.mkdir()
    (store.home.accounts / "broker.yaml").write_text("kind: alpaca\n")
    (store.home.accounts / "odd.yaml").write_text("kind: bank\n")
    monkeypatch.setenv("APCA_API_KEY_ID", "never-shown")
    monkeypatch.delenv("APCA_API_SECRET_KEY", raising=False)
    findings = doctor_checks(invoke)
    assert findings["keys of broker"]["result"] == "APCA_API_KEY_ID set, APCA_API_SECRET_KEY not set"
    assert "APCA_API_SECRET_KEY not set: export them" in findings["keys of broker"]["problem"]
    assert "odd.yaml is not a valid account" in findings["account odd"]["problem"]
    assert "never-shown" not in str(findings)
    assert "alpaca-py (extra)" in findings
    shutil.rmtree(store.home.accounts)


def doctor_checks(invoke) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in json.loads(invoke("doctor", "--json").stdout)}


@pytest.mark.parametrize(
    ("subcommand", "name", "error"),
    [
        (
            "show",
            "nobody",
            "'nobody' is neither an experiment that was run nor the prefix of a run id; see `nvtrader policies`",
        ),
        ("activate", "small/seed-9", "has no policy 'small/seed-9'; it has small, small/seed-0"),
        ("promote", "half", "half has no run whose policies are all trained; `nvtrader experiments run half`"),
    ],
)
def test_policy_outside_the_library_exits_with_3(invoke, store, subcommand, name, error):
    spec = planned(store).spec.model_copy(update={"name": "half"})
    half = planned(store, spec)
    begun(store, half).finish(half.run_id, "interrupted")
    found = invoke("policies", subcommand, name)
    assert found.exit_code == BAD_INPUT
    assert error in found.stderr
    assert is_one_line_error(found.stderr)
    assert not store.audit.events()


def test_tampered_policy_is_not_activated_and_listed_with_reason(invoke, store, run):
    path = store.policies.folder(run.partition_key, run.run_id) / "fold-0-seed-0.zip"
    content = path.read_bytes()
    path.write_bytes(content + b"x")
    found = invoke("policies", "activate", "small")
    assert found.exit_code == BAD_INPUT
    assert "are missing or were changed after sealing (fold-0-seed-0.zip in " in found.stderr
    shown = invoke("policies").stdout
    assert "cannot trade" in words(shown)[1]
    assert f"\ncannot trade: small of run {run.run_id[:8]}: 1 policy files of {KEY}" in shown
    path.write_bytes(content)


def test_unreadable_activation_is_reported_and_replaced_by_another(invoke, store):
    put_unreadable(store)
    listed = invoke("policies")
    assert listed.exit_code == 0
    assert "the last activation of the audit" in listed.stdout
    assert invoke("policies", "promote", "small").exit_code == BAD_INPUT
    assert invoke("policies", "activate", "small").exit_code == 0
    assert store.tables.read(PROMOTION_DECISIONS)["activated"].any()
