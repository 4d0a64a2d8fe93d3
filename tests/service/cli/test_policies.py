import dataclasses
import datetime as dt
import json
import shutil

import pytest

from nvtrader_pipelines.desk import market
from nvtrader_pipelines.promotion import active_policy, verification
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.recency import eligibility_message, start_deadline
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.service.cli.errors import BAD_INPUT
from nvtrader_pipelines.storage.errors import OtherCodeError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.tables import EVALUATIONS, PROMOTION_DECISIONS, RUNS
from nvtrader_pipelines.storage.views import query_views
from tests.promotion.activations import forget_activations
from tests.runs.untrained import EXPERIMENT, KEY, begun, judged, market_home, planned, sealed
from tests.service.cli.words import is_one_sentence


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A home with one judged run; what trades in it is forgotten before every test."""
    return market_home(tmp_path_factory.mktemp("policies") / "home")


@pytest.fixture(scope="module")
def run(store):
    return judged(store, planned(store))


@pytest.fixture
def invoke(store, run, command):
    forget_activations(store)
    return command(store.home)


def words(text) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_policies_are_listed_on_lines_that_fit_a_page(invoke, run):
    shown = invoke("policies").stdout
    heads, line, count = words(shown)[:3]
    assert heads == "policy run version tested net Sharpe [95 %] less best baseline [95 %] deflated state"
    assert line.startswith(f"small {run.run_id[:8]} {KEY} {run.as_parent.window[0]} to {run.as_parent.window[1]} ")
    assert line.endswith("can trade")
    assert count == "1 row"
    assert max(map(len, shown.splitlines()[:2])) <= 180
    assert invoke("policies", "list").stdout == shown


def test_all_lists_single_seeds_too_and_json_is_whole(invoke, run):
    found = json.loads(invoke("policies", "list", "--all", "--json").stdout)
    assert [card["policy"] for card in found["policies"]] == ["small", "small/seed-0", "small/seed-1", "small/seed-2"]
    assert found["policies"][0]["spec_hash"] == run.spec_hash
    assert found["problems"] == []
    assert words(invoke("policies", "--all").stdout)[2].startswith("small/seed-0 ")


def test_policies_that_must_be_run_again_are_counted_and_listed_only_where_asked_for(invoke, run, monkeypatch):
    def other(ledger, key):
        raise OtherCodeError(f"version {key} would be another with the defaults of this code; run the new version")

    monkeypatch.setattr(Ledger, "read", other)
    shown = invoke("policies").stdout
    assert "net Sharpe" not in shown
    assert shown.startswith(
        "not shown: 1 policy of a version that means something else to this code and cannot trade before it is run "
        "again; `nvtrader policies --all` lists every one, with what to do"
    )
    whole = invoke("policies", "--all").stdout
    assert "not shown" not in whole
    assert f"cannot trade: small of run {run.run_id[:8]}: version {KEY} would be another with the defaults" in whole
    (card,) = json.loads(invoke("policies", "--json").stdout)["policies"]
    assert card["outdated"]
    assert card["obstacle"].startswith(f"version {KEY} would be")


def test_a_home_without_policies_says_what_to_do(tmp_path, command):
    assert command(tmp_path)("policies").stdout == "no trained policy yet: nvtrader materialize\n"
    assert json.loads(command(tmp_path)("policies", "--json").stdout) == {
        "policies": [],
        "newer": None,
        "problems": [],
    }


def test_a_card_is_shown_with_scores_baselines_folds_and_files(invoke, run):
    shown = invoke("policies", "show", "small").stdout
    lines = words(shown)
    assert f"run {run.run_id}" in lines
    assert "can trade yes, on the market as it is now" in lines
    for digest in run.policies.values():
        assert digest in shown
    for account in ("small all", "equal_weight all", "buy_and_hold from_2010"):
        assert any(line.startswith(account) for line in lines), account
    assert f"0 {run.folds[0].train_first} to {run.folds[0].train_last}" in shown.replace("  ", " ")
    never_asked = words(invoke("policies", "show", "small/seed-2").stdout)
    assert "it was not asked yet: nvtrader policies promote" in never_asked
    document = json.loads(invoke("policies", "show", f"{run.run_id[:6]}/seed-2", "--json").stdout)
    assert (document["run_id"], document["promotions"], document["active"]) == (run.run_id, [], False)


def test_a_person_activates_and_the_verdict_is_shown_and_kept(invoke, store, run):
    found = invoke("policies", "activate", "small/seed-1", "--reason", "I know it")
    assert found.exit_code == 0
    verdict, now = found.stdout.splitlines()
    assert verdict.startswith(f"the gate says: small/seed-1 (run {run.run_id[:8]}) is ")
    assert now == f"small/seed-1 of run {run.run_id[:8]} decides from the next close on"
    active = read_active(store)
    assert active is not None
    assert (active.policy, active.reason) == ("small/seed-1", "I know it")
    assert "* small/seed-1" in " ".join(words(invoke("policies", "--all").stdout))
    rows = query_views(store, "SELECT policy, active FROM portfolio.active_policy")
    assert rows.rows() == [("small/seed-1", True)]
    assert "I know it" in invoke("policies", "show", "small/seed-1").stdout
    again = invoke("policies", "activate", "small/seed-1").stdout.splitlines()
    assert again[0].endswith("is the policy that trades already")
    assert again[1] == f"small/seed-1 of run {run.run_id[:8]} goes on trading"
    assert read_active(store) == active


def test_the_gate_is_asked_and_a_no_is_an_answer(invoke, store, run):
    """Networks that learned nothing do not beat the best of two baselines."""
    store.home.promotion_file.write_text("least_sessions: 40\n")
    found = invoke("policies", "promote", "small", "--json")
    assert found.exit_code == 0
    row = json.loads(found.stdout)
    assert (row["policy"], row["passed"], row["activated"], row["decision"]) == ("small", False, False, "gate")
    assert row["baseline_low"] < 0.0
    assert read_active(store) is None
    assert row["sentence"] in store.tables.read(PROMOTION_DECISIONS)["sentence"]


def test_a_policy_made_with_other_code_is_told_wherever_it_is_seen(invoke, run, monkeypatch):
    for module in (active_policy, verification):
        monkeypatch.setattr(module, "run_code", lambda: "ffffffffffff")
    *_, note = invoke("policies", "activate", "small").stdout.splitlines()
    told = f"its run was made with code {run.code_version} and ffffffffffff is installed"
    assert note.startswith(f"note: {told}")
    listed = invoke("policies").stdout
    assert "trades, other code" in words(listed)[1]
    assert f"note: small of run {run.run_id[:8]}: {told}" in listed


def test_until_when_the_active_policy_may_trade_is_told_where_a_person_looks(invoke, store, run):
    invoke("policies", "activate", "small")
    until = f"until {start_deadline(run.as_parent.window[1])}, 126 sessions after its tests; an account kept here"
    assert f"small of run {run.run_id[:8]} may trade {until}" in invoke("policies").stdout
    assert f"it may trade {until}" in " ".join(words(invoke("portfolio").stdout))
    findings = diagnosed(invoke)
    assert findings["it may trade"]["found"].startswith(until)
    assert findings["its code"] == {"what": "its code", "found": run.code_version, "problem": ""}
    assert findings["account paper"] == {"what": "account paper", "found": "paper, may be traded", "problem": ""}


def test_an_active_policy_that_no_account_may_trade_is_told_to_trade_not_at_all_and_why(invoke, store, run):
    invoke("policies", "activate", "small")
    path, judged_as = store.policies.folder(run.partition_key, run.run_id), store.tables.read(EVALUATIONS)
    content = path.joinpath("fold-0-seed-0.zip").read_bytes()

    def told() -> set[str]:
        portfolio = json.loads(invoke("portfolio", "--json").stdout)["active_policy"]["may_trade"]
        (card,) = json.loads(invoke("policies", "--json").stdout)["policies"]
        return {portfolio, card["may_trade"], diagnosed(invoke)["it may trade"]["found"]}

    store.tables.replace(EVALUATIONS, judged_as.clear(), {})
    (untested,) = told()
    store.tables.replace(EVALUATIONS, judged_as, {})
    path.joinpath("fold-0-seed-0.zip").write_bytes(content + b"x")
    (tampered,) = told()
    path.joinpath("fold-0-seed-0.zip").write_bytes(content)
    assert untested.startswith("not at all: a policy must have been tested before it trades")
    assert tampered.startswith(f"not at all: 1 policy files of {KEY} are not those that were sealed")
    active, panel = read_active(store), planned(store).panel
    assert active is not None
    other = dataclasses.replace(panel, symbols=(*panel.symbols[:-1], "ZZZ"))
    store.panels.known[EXPERIMENT.market] = other
    elsewhere = eligibility_message(store, active)
    store.panels.known.clear()
    assert elsewhere.startswith(f"not at all: small of run {run.run_id} cannot trade on the market as it is now: ")


def test_a_newer_run_of_the_experiment_that_trades_is_told_where_a_person_looks(invoke, store, run):
    invoke("policies", "activate", "small")
    before = store.tables.read(RUNS)
    newer = sealed(store, planned(store, EXPERIMENT.model_copy(update={"description": "trained again"})))
    complete_run(store, newer, before["finished_at"][0] + dt.timedelta(days=1))
    told = f"run {newer.run_id[:8]} of small is newer than the one that trades: the gate was not asked yet: "
    activation_command = f"to let it trade all the same: `nvtrader policies activate {newer.run_id[:8]} --reason WHY`"
    for command in ("policies", "portfolio"):
        shown = " ".join(words(invoke(command).stdout))
        assert told in shown
        assert activation_command in shown
    assert diagnosed(invoke)["a newer run"]["found"].startswith(told)
    assert json.loads(invoke("policies", "--json").stdout)["newer"].startswith(told)
    store.tables.replace(RUNS, before, {})
    store.policies.folder(newer.partition_key, newer.run_id).joinpath("manifest.json").unlink()


def test_the_doctor_says_why_an_account_may_not_be_traded(invoke, store, monkeypatch):
    assert diagnosed(invoke)["account paper"]["found"] == "paper, nothing trades it: no policy is active"
    invoke("policies", "activate", "small")
    for module in (active_policy, verification):
        monkeypatch.setattr(module, "run_code", lambda: "ffffffffffff")
    monkeypatch.setattr(market, "MAX_TEST_AGE", -1)
    findings = diagnosed(invoke)
    assert "was tested to" in findings["account paper"]["problem"]
    assert "ffffffffffff is installed" in findings["its code"]["problem"]
    judged_as = store.tables.read(EVALUATIONS)
    store.tables.replace(EVALUATIONS, judged_as.clear(), {})
    assert "must have been tested before it trades" in diagnosed(invoke)["account paper"]["problem"]
    store.tables.replace(EVALUATIONS, judged_as, {})


def test_the_doctor_looks_for_the_keys_of_an_account_at_a_broker_and_never_shows_them(invoke, store, monkeypatch):
    assert "keys of broker" not in diagnosed(invoke)
    store.home.accounts.mkdir()
    (store.home.accounts / "broker.yaml").write_text("kind: alpaca\n")
    (store.home.accounts / "odd.yaml").write_text("kind: bank\n")
    monkeypatch.setenv("APCA_API_KEY_ID", "never-shown")
    monkeypatch.delenv("APCA_API_SECRET_KEY", raising=False)
    findings = diagnosed(invoke)
    assert findings["keys of broker"]["found"] == "APCA_API_KEY_ID set, APCA_API_SECRET_KEY not set"
    assert "APCA_API_SECRET_KEY not set: export them" in findings["keys of broker"]["problem"]
    assert "odd.yaml is no valid account" in findings["account odd"]["problem"]
    assert "never-shown" not in str(findings)
    assert "alpaca-py (extra)" in findings
    shutil.rmtree(store.home.accounts)


def diagnosed(invoke) -> dict[str, dict[str, str]]:
    return {each["what"]: each for each in json.loads(invoke("doctor", "--json").stdout)}


@pytest.mark.parametrize(
    ("what", "name", "said"),
    [
        (
            "show",
            "nobody",
            "no run's id begins with 'nobody', and no experiment of that name was run; see `nvtrader policies`",
        ),
        ("activate", "small/seed-9", "has no policy 'small/seed-9'; it has small, small/seed-0"),
        ("promote", "half", "half has no policies that are all trained; `nvtrader experiments run half`"),
    ],
)
def test_who_is_not_in_the_library_is_said_in_a_sentence(invoke, store, what, name, said):
    spec = planned(store).spec.model_copy(update={"name": "half"})
    half = planned(store, spec)
    begun(store, half).finish(half.run_id, "interrupted")
    found = invoke("policies", what, name)
    assert found.exit_code == BAD_INPUT
    assert said in found.stderr
    assert is_one_sentence(found.stderr)
    assert not store.home.active_policy.exists()


def test_a_tampered_policy_is_refused_and_listed_with_the_reason(invoke, store, run):
    path = store.policies.folder(run.partition_key, run.run_id) / "fold-0-seed-0.zip"
    content = path.read_bytes()
    path.write_bytes(content + b"x")
    found = invoke("policies", "activate", "small")
    assert found.exit_code == BAD_INPUT
    assert "are not those that were sealed (fold-0-seed-0.zip)" in found.stderr
    shown = invoke("policies").stdout
    assert "cannot trade" in words(shown)[1]
    assert f"\ncannot trade: small of run {run.run_id[:8]}: 1 policy files of {KEY} are not those" in shown
    path.write_bytes(content)


def test_a_damaged_pointer_is_told_and_a_new_activation_replaces_it(invoke, store):
    store.home.runtime.mkdir(parents=True, exist_ok=True)
    store.home.active_policy.write_text("{")
    listed = invoke("policies")
    assert listed.exit_code == 0
    assert "active_policy.json cannot be read as the active policy" in listed.stdout
    assert invoke("policies", "promote", "small").exit_code == BAD_INPUT
    assert invoke("policies", "activate", "small").exit_code == 0
    assert store.tables.read(PROMOTION_DECISIONS)["activated"].any()


def test_a_pointer_that_is_gone_is_told_wherever_one_asks_what_trades(invoke, store):
    invoke("policies", "activate", "small")
    store.home.active_policy.unlink()
    said = "active_policy.json is not what an activation wrote: it is gone, and the audit has one, of small"
    assert said in " ".join(invoke("policies").stdout.split())
    assert said in invoke("portfolio").stderr
    findings = diagnosed(invoke)
    assert said in findings["active policy"]["problem"]
    assert said in findings["account paper"]["problem"]
