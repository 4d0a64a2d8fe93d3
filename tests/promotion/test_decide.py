import datetime as dt
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion import active_policy, verification
from nvtrader_pipelines.promotion import decide as decide_module
from nvtrader_pipelines.promotion.active_policy import activate
from nvtrader_pipelines.promotion.decide import activate_manually, mirror_active, read_gate
from nvtrader_pipelines.promotion.gate import PromotionGate
from nvtrader_pipelines.promotion.log import PromotionRow, read_promotions_of
from nvtrader_pipelines.runs.tables import complete
from nvtrader_pipelines.storage.errors import CodeMismatchError, StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.medallion import read_panel
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY, PROMOTION_DECISIONS, VALIDATION
from tests.promotion import activations, gate
from tests.promotion.activations import LATER, Killed
from tests.promotion.gate import MARKET, answers, ask, earned, say, spec, trades
from tests.runs.untrained import AT, EXPERIMENT, planned, sealed

REPORTED = "300 sessions of the reported period from 2010, 2016-01-04 to 2016-10-29"

market, store, runs, nothing_asked = activations.market, activations.store, gate.runs, gate.nothing_asked  # fixtures


def test_where_nothing_trades_a_policy_that_beats_its_baseline_is_promoted(store, runs):
    said = ask(store, "steady")
    assert said.activated
    assert trades(store) == "steady"
    assert answers(store) == [("gate", "steady", None, True, True)]
    (event,) = store.audit.events()
    assert (event.kind, event.run_id, event.by, event.reason) == (
        "promoted",
        runs["steady"].run_id,
        "gate",
        said.verdict.sentence,
    )


def test_a_better_policy_takes_the_place_and_the_row_has_every_figure(store, runs):
    ask(store, "steady")
    said = ask(store, "still", at=LATER)
    assert said.activated
    assert trades(store) == "still"
    (row,) = read_promotions_of(store, PolicyRef(runs["still"].run_id, "still")).to_dicts()
    assert row == {**said.row(), "considered_at": LATER}
    assert row["active_run_id"] == runs["steady"].run_id
    assert 0.0 < row["active_low"] < row["active_difference"] < row["active_high"]
    assert row["n_sessions"] == 300
    assert row["best_baseline"] == "equal_weight"
    assert row["deflated_sharpe"] is None


def test_a_no_is_a_row_with_its_reason_and_what_trades_stays_byte_for_byte(store):
    ask(store, "still")
    before = store.home.active_policy.read_bytes()
    said = ask(store, "steady")
    assert not said.activated
    assert store.home.active_policy.read_bytes() == before
    assert ("gate", "steady", "still", False, False) in answers(store)
    sentence = store.tables.read(PROMOTION_DECISIONS).filter(pl.col("policy") == "steady")["sentence"][0]
    assert sentence.startswith("steady (run ")
    assert f") is not promoted: on {REPORTED}, Sharpe ratio less that of still" in sentence


def test_asked_again_the_same_question_is_the_same_row(store):
    ask(store, "still")
    first = ask(store, "steady")
    written = store.tables.snapshot_id(PROMOTION_DECISIONS)
    again = ask(store, "steady", by="another", at=AT + dt.timedelta(days=9))
    assert again == first
    assert store.tables.snapshot_id(PROMOTION_DECISIONS) == written


def test_where_the_figures_are_others_now_the_answer_is_a_row_beside_the_one_before(store, runs):
    ask(store, "still")
    assert not ask(store, "steady").activated
    earned(store, runs["steady"], MARKET + 0.003)
    assert ask(store, "steady").activated
    assert sorted(answers(store), key=str) == [
        ("gate", "steady", "still", False, False),
        ("gate", "steady", "still", True, True),
        ("gate", "still", None, True, True),
    ]
    earned(store, runs["steady"], MARKET)


def test_every_time_that_a_person_replaces_a_policy_is_a_row_with_who_and_when(store, runs):
    before = PolicyRef(runs["steady"].run_id, "steady")
    for who, at in (("ann", AT), ("bob", LATER)):
        activate(store, before, "desk", "", lambda at=at: at)
        activate_manually(store, "trend", who, "", lambda at=at: at)
    rows = store.tables.read(PROMOTION_DECISIONS).sort("considered_at")
    assert rows.select("policy", "active_policy", "by").rows() == [
        ("trend", "steady", "ann"),
        ("trend", "steady", "bob"),
    ]


def test_the_policy_that_trades_is_not_asked_about(store, runs):
    ask(store, "steady")
    before = store.home.active_policy.read_bytes()
    for again in (ask(store, "steady"), say(store, "steady")):
        assert not again.activated
        assert again.verdict.sentence == f"steady (run {runs['steady'].run_id[:8]}) is the policy that trades already"
    assert len(answers(store)) == 1
    assert store.home.active_policy.read_bytes() == before
    assert len(store.audit.events()) == 1


def test_a_person_decides_whatever_the_gate_says_and_its_verdict_is_kept(store):
    ask(store, "still")
    said = say(store, "steady")
    assert (said.verdict.passed, said.activated) == (False, True)
    assert trades(store) == "steady"
    assert ("person", "steady", "still", False, True) in answers(store)
    assert store.audit.events()[-1].reason == "I know it"


def test_what_was_never_tested_does_not_pass_but_a_person_may_let_it_trade(store):
    said = ask(store, "trend")
    assert not said.activated
    assert "was not tested to the end; `nvtrader experiments run trend` judges it" in said.verdict.sentence
    assert trades(store) is None
    assert say(store, "trend").activated
    assert trades(store) == "trend"


def test_figures_of_tests_that_were_killed_before_their_end_promote_nobody(store, runs):
    earned(store, runs["trend"], MARKET + 0.002)
    said = ask(store, "trend")
    assert not said.activated
    assert "was not tested to the end; `nvtrader experiments run trend` judges it" in said.verdict.sentence
    complete(store, runs["trend"], AT)
    assert ask(store, "trend").activated
    earned(store, runs["trend"], MARKET[:0])


def test_a_policy_that_cannot_trade_is_a_no_of_the_gate_and_an_error_for_a_person(store, runs):
    run = runs["still"]
    path = store.policies.folder(run.partition_key, run.run_id) / "fold-0-seed-0.zip"
    content = path.read_bytes()
    path.write_bytes(content + b"x")
    said = ask(store, "still")
    assert not said.activated
    assert "is not promoted: 1 policy files of still@" in said.verdict.sentence
    with pytest.raises(StorageError, match="1 policy files of still@"):
        say(store, "still")
    assert [decision for decision, *_ in answers(store)] == ["gate"]
    assert trades(store) is None
    path.write_bytes(content)


def test_a_run_of_another_code_is_not_promoted_and_a_person_who_activates_it_is_told(store, monkeypatch):
    made_with = verification.run_code()
    for module in (active_policy, verification):
        monkeypatch.setattr(module, "run_code", lambda: "ffffffffffff")
    said = ask(store, "steady")
    assert not said.activated
    assert f"is not promoted: its run was made with code {made_with} and ffffffffffff is" in said.verdict.sentence
    decided = say(store, "steady")
    assert decided.activated
    assert (decided.warning or "").startswith(f"its run was made with code {made_with}")
    (event,) = store.audit.events()
    assert (event.detail["code_version"], event.detail["installed"]) == (made_with, "ffffffffffff")


@pytest.mark.parametrize(
    ("net", "baseline", "said"),
    [
        (np.append(MARKET[:-1], np.nan), MARKET, "a finite return of every session, but of still"),
        (MARKET, MARKET[:290], "but of equal_weight there are 290 for 300 sessions"),
        (MARKET, MARKET[:0], r"is held against a baseline, but the run of still \(run \w+\) has none"),
    ],
)
def test_figures_that_are_no_track_record_are_a_no_and_stop_nobody_else(store, runs, net, baseline, said):
    earned(store, runs["still"], net, baseline)
    answer = ask(store, "still")
    assert not answer.activated
    assert re.search(rf"is not promoted: a promotion .*{said}", answer.verdict.sentence)
    assert answers(store) == [("gate", "still", None, False, False)]
    earned(store, runs["still"], MARKET + 0.001)


def test_an_active_policy_that_nothing_can_be_held_against_is_named_with_what_a_person_can_do(store, monkeypatch):
    ask(store, "steady")

    def reads(ledger, key):
        if key.startswith("steady@"):
            raise CodeMismatchError("version steady would be another with the defaults of this code")
        return read(ledger, key)

    read = Ledger.read
    monkeypatch.setattr(Ledger, "read", reads)
    said = ask(store, "still")
    assert not said.activated
    assert "is not promoted: it cannot be held against steady" in said.verdict.sentence
    assert "would be another with the defaults of this code; while that lasts only a person" in said.verdict.sentence


def test_one_with_which_only_a_replay_could_begin_is_not_promoted_and_a_person_is_told_so(store, monkeypatch):
    last = read_panel(store.tables, "landing").sessions[-1].item()
    monkeypatch.setattr(decide_module, "start_deadline", lambda _: last)
    said = ask(store, "steady")
    assert not said.activated
    told = f"may begin to trade until {last}, but the market goes on, so an account could begin with it only in a"
    assert told in said.verdict.sentence
    assert f"by its figures it would be: on {REPORTED}, Sharpe ratio" in said.verdict.sentence
    assert said.verdict.against("baseline") is not None
    monkeypatch.setattr(decide_module, "start_deadline", lambda _: last + dt.timedelta(days=1))
    assert ask(store, "steady").activated
    assert say(store, "still").warning is None
    monkeypatch.setattr(decide_module, "start_deadline", lambda _: last)
    assert told in (say(store, "steady", at=LATER).warning or "")
    assert trades(store) == "steady"


def test_of_two_that_are_asked_about_at_once_the_second_is_held_against_the_first(store, runs):
    both = threading.Barrier(2)

    def at_once(name):
        both.wait()
        return ask(store, name)

    with ThreadPoolExecutor(2) as pool:
        said: dict[str, PromotionRow] = dict(
            zip(("steady", "still"), pool.map(at_once, ("steady", "still")), strict=True)
        )
    assert trades(store) == "still"
    first = "still" if said["still"].active is None else "steady"
    assert said[first].active is None
    (second,) = {"steady", "still"} - {first}
    assert said[second].active == said[first].candidate
    assert said["steady"].activated == (first == "steady")
    assert len(answers(store)) == 2
    policies = [event.policy for event in store.audit.events()]
    assert policies == (["steady", "still"] if first == "steady" else ["still"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"turnover_cost_bps": 0.0}, "cost of trading is none in the tests of the one and proportional (bps 10.0) in"),
        ({"fill": "same_close"}, "fill is same_close in the tests of the one and next_open in those of"),
    ],
)
def test_accounts_that_paid_or_filled_otherwise_are_not_compared(store, runs, changes, said):
    other = spec("other", environment=EXPERIMENT.environment.model_copy(update=changes), description=said)
    run = sealed(store, planned(store, other))
    earned(store, run, MARKET + 0.002)
    complete(store, run, AT)
    ask(store, "steady")
    answer = ask(store, run.run_id)
    assert not answer.activated
    assert said in answer.verdict.sentence


def test_policies_that_were_tested_on_two_markets_are_not_compared(store, runs, monkeypatch):
    ask(store, "steady")
    elsewhere = spec("steady", market=EXPERIMENT.market.model_copy(update={"source": "sample"}))
    earned(store, runs["steady"].model_copy(update={"spec_hash": elsewhere.spec_hash}), MARKET)
    read = Ledger.read
    monkeypatch.setattr(
        Ledger, "read", lambda ledger, key: elsewhere if key.startswith("steady@") else read(ledger, key)
    )
    said = ask(store, "still")
    assert not said.activated
    assert "the market is landing in the tests of the one and sample in those of" in said.verdict.sentence
    earned(store, runs["steady"], MARKET)


def test_gate_leaves_out_sessions_before_the_reported_period(store, runs, monkeypatch):
    ask(store, "steady")
    later = spec("steady", report_from=dt.date(2016, 2, 3))
    earned(store, runs["steady"].model_copy(update={"spec_hash": later.spec_hash}), MARKET)
    read = Ledger.read
    monkeypatch.setattr(Ledger, "read", lambda ledger, key: later if key.startswith("steady@") else read(ledger, key))
    said = ask(store, "still").verdict
    assert (said.first_session, said.n_sessions) == (dt.date(2016, 2, 3), 270)
    assert said.differences[0].sharpe == pytest.approx(sharpe_ratio(MARKET[30:]))
    earned(store, runs["steady"], MARKET)


def test_a_killed_promotion_is_finished_by_the_next_attempt(store, monkeypatch):
    def killed(*_):
        raise Killed

    ask(store, "steady")
    with monkeypatch.context() as patch:
        patch.setattr(decide_module, "activate", killed)
        with pytest.raises(Killed):
            ask(store, "still")
    assert trades(store) == "steady"
    assert ask(store, "still").activated
    assert trades(store) == "still"
    assert len(answers(store)) == 2


def test_where_the_activation_fails_the_row_says_that_nothing_was_activated(store, monkeypatch):
    def fails(*_):
        raise StorageError("the disk is full")

    ask(store, "steady")
    monkeypatch.setattr(decide_module, "activate", fails)
    with pytest.raises(StorageError, match="the disk is full"):
        ask(store, "still")
    assert ("gate", "still", "steady", True, False) in answers(store)


def test_a_damaged_pointer_stops_the_gate_and_a_person_replaces_it(store):
    store.home.runtime.mkdir(parents=True, exist_ok=True)
    store.home.active_policy.write_text("{")
    with pytest.raises(StorageError, match="cannot be read as the active policy"):
        ask(store, "steady")
    assert say(store, "steady").activated
    assert trades(store) == "steady"


def test_what_the_gate_refused_it_does_not_promote_once_the_pointer_is_gone(store):
    ask(store, "still")
    assert not ask(store, "steady").activated
    store.home.active_policy.unlink()
    with pytest.raises(StorageError, match="it is gone, and the audit has one, of still"):
        ask(store, "steady")
    assert len(answers(store)) == 2
    assert say(store, "steady").activated
    assert trades(store) == "steady"


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
    said = ask(store, "steady")
    assert said.verdict.deflated == 0.5
    assert said.verdict.sentence.endswith("deflated information ratio 0.50 (0.95 not asked for)")
    store.tables.replace(VALIDATION, pl.DataFrame(schema=VALIDATION.schema), {})


def test_the_gate_is_a_file_whose_mistakes_are_said(store):
    path = store.home.promotion_file
    assert read_gate(store.home) == PromotionGate()
    path.write_text("least_sessions: 301\nintervals: {confidence_level: 0.9}\n")
    assert read_gate(store.home).least_sessions == 301
    assert ask(store, "steady").verdict.sentence.endswith(
        "it was tested on 300 sessions of the reported period from 2010, and 301 are needed"
    )
    path.write_text("least_session: 3\n")
    with pytest.raises(StorageError, match=r"promotion\.yaml is no valid promotion gate: .*least_session"):
        ask(store, "steady")
    path.unlink()
    path.symlink_to("a file on a disk that is not mounted")
    with pytest.raises(StorageError, match="cannot be read"):
        read_gate(store.home)
    path.unlink()


def test_every_activation_is_a_row_and_one_of_them_trades(store, runs):
    for day, name in enumerate(("steady", "still", "steady")):
        activate(
            store,
            PolicyRef(runs[name].run_id, name),
            "ann",
            "",
            lambda day=day: AT + dt.timedelta(days=day),
        )
    mirror_active(store)
    rows = store.tables.read(ACTIVE_POLICY).sort("activated_at")
    assert rows.select("policy", "previous_policy", "active").rows() == [
        ("steady", None, False),
        ("still", "steady", False),
        ("steady", "still", True),
    ]
    mirror_active(store)
    assert_frame_equal(store.tables.read(ACTIVE_POLICY).sort("activated_at"), rows)
