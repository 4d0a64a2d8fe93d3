from datetime import date

import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.research.journal import TrialJudged
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.session_spec import SearchWindows
from nvtrader_pipelines.research.session_store import (
    choose_proposer,
    earlier_configurations,
    known_results,
    sealed_experiment,
    validation_digest,
)
from nvtrader_pipelines.research.space import configuration_hash
from tests.research.search_homes import cufolio
from tests.research.sessions import SPACE, JournalBuilder, a_session, write_session
from tests.storage.ledger.run_rows import run_row

SESSION = a_session()
WINDOW = {"window_first": date(2005, 1, 3), "window_last": date(2006, 1, 3)}


def other_session(home, *, symbols=SESSION.symbols, digest="cd" * 32, base=SPACE.base, **spec):
    """Write another session with a judged, a pruned, a failed, an infeasible and a known trial."""
    session = a_session("20260301-090000-bbbb", base=base, **spec)
    builder = JournalBuilder().trial(0.1)
    for status in ("pruned", "failed", "infeasible"):
        builder.trial(None, status=status)
    session = session.model_copy(update={"symbols": symbols, "validation_digest": digest})
    return write_session(home, session, builder.known().lines)


@pytest.mark.parametrize(
    ("changes", "n_counted"),
    [
        ({}, 4),
        ({"symbols": ("N0", "other")}, 4),
        ({"symbols": ("other",)}, 0),
        ({"base": SPACE.base.model_copy(update={"market": MarketChoice(source="landing")})}, 0),
        ({"validation_from": date(2009, 12, 31), "sealed_from": date(2012, 1, 3)}, 4),
        ({"validation_from": SESSION.spec.sealed_from, "sealed_from": date(2014, 1, 6)}, 0),
        ({"validation_from": date(1995, 1, 3), "sealed_from": SESSION.spec.validation_from}, 0),
    ],
    ids=["equal", "shared name", "other names", "other source", "overlap", "later", "earlier"],
)
def test_trials_of_other_sessions_count_where_names_and_windows_meet(store, changes, n_counted):
    other_session(store.home, **changes)
    assert len(earlier_configurations(store, SESSION)) == n_counted


@pytest.mark.parametrize(
    ("market", "row", "n_counted"),
    [
        ({}, {}, 1),
        ({"symbols": ("N0", "other")}, {}, 1),
        ({"symbols": ("other",)}, {}, 0),
        ({}, {"source": "landing"}, 0),
        ({}, {"kind": "replay"}, 0),
        ({}, {"window_first": SESSION.spec.sealed_from, "window_last": date(2014, 1, 6)}, 0),
        ({}, {"window_last": date(2001, 12, 31), "window_first": date(2001, 1, 3)}, 0),
    ],
    ids=["all names", "shared name", "other names", "other source", "replay", "later", "earlier"],
)
def test_manual_runs_count_where_names_and_windows_meet(store, market, row, n_counted):
    spec = ExperimentSpec(name="manual", market=MarketChoice(**market))
    begun = run_row(store.ledger, spec, **WINDOW | row)
    store.ledger.begin(begun)
    assert not earlier_configurations(store, SESSION)  # no result yet
    store.ledger.finish(begun.run_id, "done")
    assert earlier_configurations(store, SESSION) == frozenset([configuration_hash(spec)][:n_counted])


def test_trial_equal_to_a_manual_run_is_one_configuration(store):
    trial = SPACE.propose({"gamma": 0.95})
    spec = trial.spec.model_copy(update={"name": "by-hand", "seeds": (7, 8, 9), "report_from": None})
    begun = run_row(store.ledger, spec, **WINDOW)
    store.ledger.begin(begun)
    store.ledger.finish(begun.run_id, "done")
    write_session(
        store.home, a_session("20260301-090000-bbbb"), JournalBuilder().trial(0.1, key=trial.trial.trial_hash).lines
    )
    assert earlier_configurations(store, SESSION) == {trial.trial.trial_hash}


@pytest.mark.parametrize(
    ("changes", "is_equal"),
    [
        ({"name": "other", "baselines": [{"kind": "equal_weight"}]}, True),
        ({"pipeline": {"allocator": {"kind": "cufolio"}}}, True),
        ({"pipeline": {"timing": {"kind": "volatility_target"}}}, False),
    ],
    ids=["no part of the account", "replaced by the mode", "another part"],
)
def test_validation_digest_has_the_code_that_decides_trials(monkeypatch, changes, is_equal):
    monkeypatch.setattr("nvtrader_pipelines.research.session_store.panel_digest", lambda _: "a market")
    monkeypatch.setattr("nvtrader_pipelines.research.session_store.before_seal", lambda *_: None)
    bases = (ExperimentSpec.model_validate({"name": "base", **each}) for each in ({}, changes))
    specs = [a_session(base=base, eval_mode=SearchMode.UNIFIED).spec for base in bases]
    digests = {validation_digest(spec, None, SearchWindows((), None)) for spec in specs}
    assert len(digests) == (1 if is_equal else 2)


def test_results_are_known_of_judged_trials_on_equal_data_only(store):
    folder = other_session(store.home, digest=SESSION.validation_digest)
    ((key, (owner, line)),) = known_results(store, SESSION).items()
    assert (key, owner, line.status) == ("t1", folder, "judged")
    assert isinstance(line, TrialJudged)


def test_results_on_other_data_are_not_known(store):
    other_session(store.home)
    assert known_results(store, SESSION) == {}


def test_sealed_experiment_trades_through_cufolio_within_the_risk_limits():
    data = SESSION.symbols, SESSION.spec.sealed_from
    sealed = sealed_experiment(SPACE.base, *data, "sealed")
    assert isinstance(sealed.pipeline.allocator, CufolioAllocator)
    assert sealed.pipeline.allocator.max_position_pct <= sealed.pipeline.risk_limits.max_position
    assert sealed_experiment(sealed, *data, "sealed") == sealed
    rule = sealed_experiment(cufolio(), *data, "rule")
    assert rule.pipeline == cufolio().pipeline


@pytest.mark.parametrize(
    ("text", "budget", "chosen"),
    [
        ("", 20, {"kind": "llm", "n_warmup_trials": 5}),
        ("", 100, {"kind": "llm", "n_warmup_trials": 10}),
        ("", None, {"kind": "llm"}),
        ("random", 20, {"kind": "random"}),
        ("{kind: llm, n_warmup_trials: 0}", 20, {"kind": "llm", "n_warmup_trials": 0}),
        ("kind: llm\nshare: 0.5", 8, {"kind": "llm", "n_warmup_trials": 2, "share": 0.5}),
    ],
)
def test_proposer_is_the_model_where_an_endpoint_is_configured(home, text, budget, chosen):
    home.llm_file.parent.mkdir(parents=True, exist_ok=True)
    home.llm_file.write_text("base_url: http://127.0.0.1:9/v1\n")
    assert choose_proposer(home, text, budget) == chosen


def test_proposer_is_optuna_without_an_endpoint(home):
    assert choose_proposer(home, "", 20) == {"kind": "optuna"}
