import datetime as dt
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion import eligibility
from nvtrader_pipelines.promotion import promote as promote_module
from nvtrader_pipelines.promotion.decision_log import PromotionRow, read_promotions, read_promotions_of
from nvtrader_pipelines.promotion.eligibility import coverage_warnings
from nvtrader_pipelines.promotion.gate import PromotionGate
from nvtrader_pipelines.promotion.promote import activate, activate_manually, mirror_active, read_gate
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.compliance_files import SECTORS
from nvtrader_pipelines.storage.errors import CodeMismatchError, StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.panels import read_panel
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY, PROMOTION_DECISIONS, RUNS, VALIDATION
from tests.promotion.activations import LATER, Killed, dying_at, put, put_unreadable
from tests.promotion.gate import MARKET, active_name, decisions, judge, overrule, spec, write_returns
from tests.runs.untrained import AT, EXPERIMENT, planned, sealed

pytestmark = pytest.mark.slow

REPORTED = "300 sessions of the reported period from 2010, 2016-01-04 to 2016-10-29"


@pytest.fixture
def store(gate_store):
    return gate_store


def test_policy_that_beats_its_baseline_is_the_first_active_one(store, runs):
    decision = judge(store, "steady")
    assert decision.activated
    assert active_name(store) == "steady"
    assert decisions(store) == [("gate", "steady", None, True, True)]
    (event,) = store.audit.events()
    assert (event.kind, event.run_id, event.by, event.reason) == (
        "activated",
        runs["steady"].run_id,
        "gate",
        decision.verdict.sentence,
    )


def test_better_policy_replaces_active_one_with_all_figures(store, runs):
    judge(store, "steady")
    decision = judge(store, "still", at=LATER)
    assert decision.activated
    assert active_name(store) == "still"
    (row,) = read_promotions_of(store, PolicyRef(runs["still"].run_id, "still")).to_dicts()
    assert row == {**decision.row(), "considered_at": LATER}
    assert row["active_run_id"] == runs["steady"].run_id
    assert 0.0 < row["active_difference_low"] < row["active_difference"] < row["active_difference_high"]
    assert row["n_sessions"] == 300
    assert row["best_baseline"] == "equal_weight"
    assert row["deflated_sharpe"] is None


def test_rejection_is_a_row_and_leaves_the_active_policy(store):
    judge(store, "still")
    decision = judge(store, "steady")
    assert not decision.activated
    assert active_name(store) == "still"
    assert ("gate", "steady", "still", False, False) in decisions(store)
    sentence = store.tables.read(PROMOTION_DECISIONS).filter(pl.col("policy") == "steady")["sentence"][0]
    assert sentence.startswith("steady (run ")
    assert f") is not promoted: on {REPORTED}, Sharpe ratio less that of" in sentence


def test_repeated_decision_is_the_same_row(store):
    judge(store, "still")
    first = judge(store, "steady")
    written = store.tables.snapshot_id(PROMOTION_DECISIONS)
    again = judge(store, "steady", by="another", at=AT + dt.timedelta(days=9))
    assert again == first
    assert store.tables.snapshot_id(PROMOTION_DECISIONS) == written


def test_decision_on_changed_figures_is_another_row(store, runs):
    judge(store, "still")
    assert not judge(store, "steady").activated
    write_returns(store, runs["steady"], MARKET + 0.003)
    assert judge(store, "steady").activated
    assert sorted(decisions(store), key=str) == [
        ("gate", "steady", "still", False, False),
        ("gate", "steady", "still", True, True),
        ("gate", "still", None, True, True),
    ]


def test_every_replacement_by_a_person_is_a_row(store, runs):
    before = PolicyRef(runs["steady"].run_id, "steady")
    for who, at in (("ann", AT), ("bob", LATER)):
        activate(store, before, "desk", "", at)
        activate_manually(store, "still", who, "a test", lambda at=at: at)
    rows = store.tables.read(PROMOTION_DECISIONS).sort("considered_at")
    assert rows.select("policy", "active_policy", "by").rows() == [
        ("still", "steady", "ann"),
        ("still", "steady", "bob"),
    ]


def test_active_policy_is_not_judged(store, runs):
    judge(store, "steady")
    for again in (judge(store, "steady"), overrule(store, "steady")):
        assert not again.activated
        assert again.verdict.sentence == f"steady (run {runs['steady'].run_id[:8]}) is the active policy already"
    assert len(decisions(store)) == 1
    assert len(store.audit.events()) == 1


def test_person_overrules_the_gate_and_its_verdict_is_recorded(store):
    judge(store, "still")
    decision = overrule(store, "steady")
    assert (decision.verdict.passed, decision.activated) == (False, True)
    assert active_name(store) == "steady"
    assert ("person", "steady", "still", False, True) in decisions(store)
    assert store.audit.events()[-1].reason == "I know it"


def test_tuned_policy_without_a_passed_check_is_rejected_but_a_person_may_activate_it(store, monkeypatch):
    monkeypatch.setattr(promote_module, "tuning_message", lambda _, run: f"{run.experiment} orders pairs by chance")
    decision = judge(store, "steady")
    assert not decision.activated
    assert decision.verdict.sentence.endswith("is not promoted: steady orders pairs by chance")
    assert overrule(store, "steady").activated


@pytest.mark.parametrize("has_returns", [False, True], ids=["never tested", "killed in its tests"])
def test_run_that_did_not_finish_is_activated_by_nobody(store, runs, has_returns):
    if has_returns:
        write_returns(store, runs["trend"], MARKET + 0.002)
    decision = judge(store, "trend")
    assert not decision.activated
    assert "was not tested to the end" in decision.verdict.sentence
    with pytest.raises(StorageError):
        overrule(store, "trend")
    assert active_name(store) is None
    assert decisions(store) == [("gate", "trend", None, False, False)]


@pytest.fixture
def account_with_xyz(store):
    """Account that holds a name which the rules do not trade."""
    known = {"session": AT.date(), "symbols": ("AAA", "XYZ", "cash"), "weights": (0.5, 0.2, 0.3), "recent_returns": ()}
    known |= {"equity": 1.0, "peak": 1.0, "capital": 1e5, "kept_at": "here", "shares": {}, "prices": {}}
    SqliteBook(store.home, "paper").settle(AccountState(**known, policy="p", run_id="r", spec_hash="s"))


@pytest.mark.usefixtures("account_with_xyz")
def test_activation_warns_of_names_without_a_sector_and_of_foreign_holdings(store):
    warning = overrule(store, "still").warning
    assert warning is not None
    assert "3 symbols (AAA, BBB, CCC): no sector is known" in warning
    assert "it trades 3 names, but the account paper also holds XYZ" in warning
    sectors = store.home.compliance / SECTORS
    sectors.parent.mkdir(exist_ok=True)
    sectors.write_text("symbol,sector\nAAA,a\nBBB,b\nCCC,c\n")
    assert len(coverage_warnings(store, ("AAA", "BBB", "CCC"))) == 1
    assert coverage_warnings(store, ("AAA", "BBB", "CCC", "XYZ"))[0].startswith("XYZ: no sector")


def test_run_killed_during_its_tests_is_rejected(store, runs):
    write_returns(store, runs["trend"], MARKET + 0.002)
    decision = judge(store, "trend")
    assert not decision.activated
    assert "was not tested to the end" in decision.verdict.sentence
    complete_run(store, runs["trend"], AT)
    assert judge(store, "trend").activated


def test_unusable_policy_is_rejected_and_raises_for_a_person(store, runs):
    run = runs["still"]
    path = store.policies.folder(run.partition_key, run.run_id) / "fold-0-seed-0.zip"
    content = path.read_bytes()
    path.write_bytes(content + b"x")
    decision = judge(store, "still")
    assert not decision.activated
    assert "is not promoted: 1 policy files of still@" in decision.verdict.sentence
    with pytest.raises(StorageError):
        overrule(store, "still")
    assert [decision for decision, *_ in decisions(store)] == ["gate"]
    assert active_name(store) is None


def test_run_of_other_code_is_rejected_and_warns_a_person(store, monkeypatch):
    (made_with,) = store.tables.read(RUNS).filter(experiment="steady")["code_version"].unique()
    for module in (promote_module, eligibility):
        monkeypatch.setattr(module, "code_of", lambda spec: "ffffffffffff")
    decision = judge(store, "steady")
    assert not decision.activated
    assert f"is not promoted: its run was made with code {made_with} but ffffffffffff is" in decision.verdict.sentence
    decided = overrule(store, "steady")
    assert decided.activated
    assert (decided.warning or "").startswith(f"its run was made with code {made_with}")
    (event,) = store.audit.events()
    assert (event.detail["code_version"], event.detail["installed"]) == (made_with, "ffffffffffff")


@pytest.mark.parametrize(
    ("net", "baseline", "decision"),
    [
        (np.append(MARKET[:-1], np.nan), MARKET, "a finite return of every session, but still"),
        (MARKET, MARKET[:290], "but equal_weight has 290 returns for 300 sessions"),
        (MARKET, MARKET[:0], r"needs a baseline to beat, but the run of still \(run \w+\) has none"),
    ],
)
def test_invalid_track_record_is_rejected(store, runs, net, baseline, decision):
    write_returns(store, runs["still"], net, baseline)
    answer = judge(store, "still")
    assert not answer.activated
    assert re.search(rf"is not promoted: a promotion .*{decision}", answer.verdict.sentence)
    assert decisions(store) == [("gate", "still", None, False, False)]


def test_incomparable_active_policy_is_named_in_the_rejection(store, runs, monkeypatch):
    put(store, (runs["steady"].run_id, "steady"))

    def reads(ledger, key):
        if key.startswith("steady@"):
            raise CodeMismatchError("version steady would be another with the defaults of this code")
        return read(ledger, key)

    read = Ledger.read
    monkeypatch.setattr(Ledger, "read", reads)
    decision = judge(store, "still")
    assert not decision.activated
    assert "is not promoted: it cannot be compared with the active policy steady" in decision.verdict.sentence
    assert "would be another with the defaults of this code" in decision.verdict.sentence


def test_stale_policy_is_rejected_and_warns_a_person(store, monkeypatch):
    last = read_panel(store.tables, "landing").sessions[-1].item()
    monkeypatch.setattr(promote_module, "start_deadline", lambda *_: last)
    decision = judge(store, "steady")
    assert not decision.activated
    reason = f"may begin to trade until {last}, but the market has later sessions"
    assert reason in decision.verdict.sentence
    assert f"by its figures it would be: on {REPORTED}, Sharpe ratio" in decision.verdict.sentence
    assert decision.verdict.against("baseline") is not None
    monkeypatch.setattr(promote_module, "start_deadline", lambda *_: last + dt.timedelta(days=1))
    assert judge(store, "steady").activated
    assert "market has later sessions" not in overrule(store, "still").warning
    monkeypatch.setattr(promote_module, "start_deadline", lambda *_: last)
    assert reason in (overrule(store, "steady", at=LATER).warning or "")
    assert active_name(store) == "steady"


def test_concurrent_decisions_are_made_one_after_the_other(store, runs):
    both = threading.Barrier(2)

    def at_once(name):
        both.wait()
        return judge(store, name)

    with ThreadPoolExecutor(2) as pool:
        decision: dict[str, PromotionRow] = dict(
            zip(("steady", "still"), pool.map(at_once, ("steady", "still")), strict=True)
        )
    assert active_name(store) == "still"
    first = "still" if decision["still"].active is None else "steady"
    assert decision[first].active is None
    (second,) = {"steady", "still"} - {first}
    assert decision[second].active == decision[first].candidate
    assert decision["steady"].activated == (first == "steady")
    assert len(decisions(store)) == 2
    policies = [event.policy for event in store.audit.events()]
    assert policies == (["steady", "still"] if first == "steady" else ["still"])


@pytest.mark.parametrize(
    ("changes", "decision"),
    [
        ({"turnover_cost_bps": 0.0}, "cost of trading is none in its tests and proportional (bps 10.0) in"),
        ({"fill": "same_close"}, "fill is same_close in its tests and next_open in those of"),
    ],
)
def test_accounts_with_other_costs_or_fills_are_not_compared(store, runs, changes, decision):
    other = spec("other", environment=EXPERIMENT.environment.model_copy(update=changes), description=decision)
    run = sealed(store, planned(store, other))
    write_returns(store, run, MARKET + 0.002)
    complete_run(store, run, AT)
    put(store, (runs["steady"].run_id, "steady"))
    answer = judge(store, run.run_id)
    assert not answer.activated
    assert decision in answer.verdict.sentence


def test_policies_of_two_markets_are_not_compared(store, runs, monkeypatch):
    put(store, (runs["steady"].run_id, "steady"))
    elsewhere = spec("steady", market=EXPERIMENT.market.model_copy(update={"source": "sample"}))
    write_returns(store, runs["steady"].model_copy(update={"spec_hash": elsewhere.spec_hash}), MARKET)
    read = Ledger.read
    monkeypatch.setattr(
        Ledger, "read", lambda ledger, key: elsewhere if key.startswith("steady@") else read(ledger, key)
    )
    decision = judge(store, "still")
    assert not decision.activated
    assert "the market is landing in its tests and sample in those of" in decision.verdict.sentence


def test_gate_leaves_out_sessions_before_the_reported_period(store, runs, monkeypatch):
    put(store, (runs["steady"].run_id, "steady"))
    later = spec("steady", report_from=dt.date(2016, 2, 3))
    write_returns(store, runs["steady"].model_copy(update={"spec_hash": later.spec_hash}), MARKET)
    read = Ledger.read
    monkeypatch.setattr(Ledger, "read", lambda ledger, key: later if key.startswith("steady@") else read(ledger, key))
    decision = judge(store, "still").verdict
    assert (decision.first_session, decision.n_sessions) == (dt.date(2016, 2, 3), 270)
    assert decision.differences[0].sharpe == pytest.approx(sharpe_ratio(MARKET[30:], 252))


def test_killed_promotion_is_completed_by_the_next_attempt(store, monkeypatch):
    def killed(*_):
        raise Killed

    judge(store, "steady")
    with monkeypatch.context() as patch:
        patch.setattr(promote_module, "activate", killed)
        with pytest.raises(Killed):
            judge(store, "still")
    assert active_name(store) == "steady"
    assert judge(store, "still").activated
    assert active_name(store) == "still"
    assert len(decisions(store)) == 2


def test_promotion_killed_twice_counts_as_activated_once_the_audit_has_it(store, monkeypatch):
    with monkeypatch.context() as patch:  # before its event, then at a later hour after it
        patch.setattr(promote_module, "activate", dying_at(0)(promote_module.activate))
        with pytest.raises(Killed):
            judge(store, "steady")
    with monkeypatch.context() as patch:
        patch.setattr(promote_module, "write_promotion", dying_at(1)(promote_module.write_promotion))
        with pytest.raises(Killed):
            judge(store, "steady", at=AT + dt.timedelta(hours=1))
    assert active_name(store) == "steady"
    assert decisions(store) == [("gate", "steady", None, True, False)]
    assert read_promotions(store)["activated"].to_list() == [True]
    mirror_active(store)
    assert decisions(store) == [("gate", "steady", None, True, True)]


def test_failed_activation_is_recorded_as_not_activated(store, runs, monkeypatch):
    def fails(*_):
        raise StorageError("the disk is full")

    put(store, (runs["steady"].run_id, "steady"))
    monkeypatch.setattr(promote_module, "activate", fails)
    with pytest.raises(StorageError):
        judge(store, "still")
    assert ("gate", "still", "steady", True, False) in decisions(store)


def test_unreadable_activation_blocks_the_gate_but_not_a_person(store):
    put_unreadable(store)
    with pytest.raises(StorageError):
        judge(store, "steady")
    assert overrule(store, "steady").activated
    assert active_name(store) == "steady"


def test_deflated_information_ratio_shown_is_of_the_reported_period(store, runs):
    run_id = runs["steady"].run_id
    rows = [
        {"run_id": run_id, "period": period, "against": against, "deflated_sharpe": value}
        for period, against, value in [
            ("all", "anchor", 0.6),
            ("all", "best_baseline", 0.37),
            ("all", "zero", 0.99),
            ("from_2010", "best_baseline", 0.5),
            ("from_2010", "anchor", 0.7),
        ]
    ]
    store.tables.replace(VALIDATION, pl.DataFrame(rows, schema=VALIDATION.schema), {})
    decision = judge(store, "steady")
    assert decision.verdict.deflated == 0.5
    assert decision.verdict.sentence.endswith("deflated information ratio 0.50 (the gate does not require 0.95)")


def test_gate_file_is_read_and_its_errors_name_the_field(store):
    path = store.home.promotion_file
    assert read_gate(store.home) == PromotionGate()
    path.write_text("least_sessions: 301\nintervals: {confidence_level: 0.9}\n")
    assert read_gate(store.home).least_sessions == 301
    assert judge(store, "steady").verdict.sentence.endswith(
        "300 sessions of the reported period from 2010, and 301 are required"
    )
    path.write_text("least_session: 3\n")
    with pytest.raises(StorageError, match="least_session"):
        judge(store, "steady")
    path.unlink()
    path.symlink_to("a file on a disk that is not mounted")
    with pytest.raises(StorageError):
        read_gate(store.home)
    path.unlink()


def test_mirror_has_every_activation_and_one_active_row(store, runs):
    for day, name in enumerate(("steady", "still", "steady")):
        activate(store, PolicyRef(runs[name].run_id, name), "ann", "", AT + dt.timedelta(days=day))
    mirror_active(store)
    rows = store.tables.read(ACTIVE_POLICY).sort("activated_at")
    assert rows.select("policy", "previous_policy", "active").rows() == [
        ("steady", None, False),
        ("still", "steady", False),
        ("steady", "still", True),
    ]
    mirror_active(store)
    assert_frame_equal(store.tables.read(ACTIVE_POLICY).sort("activated_at"), rows)
