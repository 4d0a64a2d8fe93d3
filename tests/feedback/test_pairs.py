"""Preference pairs of a run, and a policy tuned to them, in a home."""

import datetime as dt
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.feedback import tuning
from nvtrader_pipelines.feedback.check import _notes, check_tuning
from nvtrader_pipelines.feedback.decisions import audited_decisions
from nvtrader_pipelines.feedback.outcomes import write_outcomes
from nvtrader_pipelines.feedback.pairs import write_preference_pairs
from nvtrader_pipelines.feedback.tuning import tune_run, tuning_experiment, tuning_obstacle
from nvtrader_pipelines.policies.archive import read_card
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.preferences import pairs as pair_rules
from nvtrader_pipelines.preferences.holdout_auc import HoldoutAuc
from nvtrader_pipelines.preferences.pairs import pair_part
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan, reopen_plan
from nvtrader_pipelines.runs.preference_tuning import read_tuning, trained_pairs
from nvtrader_pipelines.runs.run_tables import read_run
from nvtrader_pipelines.runs.train_walk_judge import train_run
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.pair_files import pair_path, read_pairs, write_pairs
from nvtrader_pipelines.storage.specs import read_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DPO_CHECKS, DPO_EPOCHS, PREFERENCE_PAIRS
from tests.desk.desks import days_of, evening, trade
from tests.execution.plans import a_plan, constructed, decided
from tests.runs.untrained import AT, EXPERIMENT, planned

pytestmark = pytest.mark.slow


def write_alternating_pairs(store, run):
    """Write pairs of which every second quarter is held out: a training of the home has two quarters."""
    store.tables.replace(PREFERENCE_PAIRS, pl.DataFrame(schema=PREFERENCE_PAIRS.schema), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_rules, "PARTS", ("train", "report"))
        write_preference_pairs(store, run)


@pytest.fixture(scope="module")
def tuned_run(judged):
    """Run that is tuned to the pairs of the evaluated run."""
    store, run = Store(judged[0].home), judged[1]
    write_alternating_pairs(store, run)
    whole = tuning_experiment(store, run)
    spec = whole.model_copy(update={"agent": whole.agent.model_copy(update={"total_timesteps": 600})})
    store.ledger.register(spec)
    drain(train_run(store, read_plan(store, spec.partition_key), Launch("task")))
    return store.policies.read_latest(spec.partition_key)


@pytest.fixture
def tuned(judged, tuned_run):
    """The tuned run and a store that has not read the audit, which other tests write anew."""
    return Store(judged[0].home), tuned_run


def test_pairs_lie_in_the_training_of_their_fold_and_are_written_once(trading_home):
    store, run = trading_home
    counts = write_preference_pairs(store, run)
    rows = read_run(store, PREFERENCE_PAIRS, run)
    assert counts.n_pairs == len(rows) > 0
    assert counts.n_held_out == int(rows["holdout"].sum())
    plan = reopen_plan(store, run)
    days = plan.panel.sessions
    for fold in plan.folds:
        of_fold = rows.filter(fold=fold.index)
        first, last = plan.training_window(fold)
        assert len(of_fold)
        assert days[first] <= np.datetime64(of_fold["session"].min())
        assert np.datetime64(of_fold["outcome_session"].max()) <= days[last] < days[fold.test_first]
        assert set(of_fold["window"]) == {f"{days[first]} to {days[last]}"}
    write_preference_pairs(store, run)
    assert read_run(store, PREFERENCE_PAIRS, run).equals(rows)


def test_decisions_of_people_are_pairs_once_their_outcome_counts(trading_home):
    store, run = trading_home
    days = [day for day in days_of(store) if day >= run.as_parent.window[0]]
    trade(store, days[0], days[-8])
    day = next(
        day for day in days[5:] if pair_part(*np.array([[day], [days[days.index(day) + 5]]], "datetime64[D]"))[0]
    )
    symbols = (*reopen_plan(store, run).panel.symbols, "cash")
    target, held, fields = (0.3, 0.3, 0.3, 0.1), (0.0, 0.0, 0.0, 1.0), {"partition_key": run.partition_key}
    for name, account, detail in (("1", "paper", {}), ("2", "paper", {"fill_session_began": "x"}), ("3", "gone", {})):
        plan = a_plan(target, held, symbols, day, account, plan_id=name * 16, **fields)
        event = decided(plan, "rejected", at=dt.datetime.combine(day, dt.time(22), dt.UTC))
        store.audit.append([constructed(plan), event.model_copy(update={"detail": detail})])
    rows = [row for row in audited_decisions(store) if row.by == "pat"]
    write_outcomes(store, rows, evening(store))
    assert write_preference_pairs(store, run).n_of_people == 1
    (pair,) = read_run(store, PREFERENCE_PAIRS, run, source=["person"]).iter_rows(named=True)
    assert (pair["decision_id"], pair["session"], pair["fold"]) == (rows[0].decision_id, day, None)
    with_practice = read_run(store, PREFERENCE_PAIRS, run)
    assert write_outcomes(store, rows, evening(store)).rows["practice"].to_list() == [False, True, False]
    write_outcomes(store, [row for row in rows if not row.outcome_known], evening(store))
    write_preference_pairs(store, run)
    assert read_run(store, PREFERENCE_PAIRS, run).equals(with_practice)


def test_pair_after_the_last_training_is_not_trained_on(trading_home):
    store, run = trading_home
    write_preference_pairs(store, run)
    plan = reopen_plan(store, run)
    people = read_run(store, PREFERENCE_PAIRS, run).filter(part="train").with_columns(fold=None)
    assert len(trained_pairs(plan, people)) == people["pair_id"].n_unique() > 0
    last = plan.panel.sessions[-6:].astype("datetime64[D]").tolist()
    today = people.with_columns(session=pl.lit(last[0]), outcome_session=pl.lit(last[-1]))
    assert trained_pairs(plan, today).is_empty()


def test_run_is_tuned_fold_by_fold_and_keeps_its_start(judged, tuned):
    (store, run), start = tuned, judged[1]
    spec = store.ledger.read(run.partition_key)
    assert (spec.name, spec.agent.start, spec.environment) == ("small-dpo", start.run_id, EXPERIMENT.environment)
    cards = {key: read_card(content) for key, content in store.policies.read_run(run).items()}
    assert {card.start for card in cards.values()} == set(start.policies.values())
    epochs = read_run(store, DPO_EPOCHS, run)
    assert set(epochs.select("fold", "seed").iter_rows()) == set(cards)
    assert epochs.filter(epoch=0)["loss"].to_list() == pytest.approx([np.log(2.0)] * len(epochs.filter(epoch=0)))


def test_run_without_pairs_or_of_another_agent_is_not_tuned(trading_home):
    store, run = trading_home
    store.tables.replace(PREFERENCE_PAIRS, pl.DataFrame(schema=PREFERENCE_PAIRS.schema), {})
    with pytest.raises(StorageError):
        tuning_experiment(store, run)
    rule = ExperimentSpec.model_validate(
        {**EXPERIMENT.model_dump(mode="json"), "agent": {"kind": "equal_weight"}, "seeds": [0]}
    )
    store.ledger.register(rule)
    with pytest.raises(StorageError, match="equal_weight"):
        tuning_experiment(store, run.model_copy(update={"partition_key": rule.partition_key}))


def test_start_of_other_training_sessions_is_refused(trading_home, monkeypatch):
    store, run = trading_home
    write_preference_pairs(store, run)
    spec = tuning_experiment(store, run)
    other = spec.model_copy(update={"splitter": WalkForward(train_months=7, test_months=3)})
    plan = planned(store, other)
    with pytest.raises(StorageError):
        read_tuning(store, plan, spec.agent, plan.keys[0])
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "read_plan", lambda *_: plan)
        assert "same training" in tuning_obstacle(store, run)
    for change in ({"start": None}, {"pairs": "0" * 64}):
        with pytest.raises(StorageError):
            read_tuning(store, planned(store, spec), spec.agent.model_copy(update=change), plan.keys[0])


def test_changed_file_of_pairs_is_refused(trading_home):
    store, run = trading_home
    write_preference_pairs(store, run)
    rows = read_run(store, PREFERENCE_PAIRS, run)
    digest = write_pairs(store.home, rows)
    assert write_pairs(store.home, rows.reverse()) == digest
    assert read_pairs(store.home, digest).sort("pair_id", "fold").equals(rows.sort("pair_id", "fold"))
    pair_path(store.home, digest).write_bytes(b"else")
    with pytest.raises(StorageError):
        read_pairs(store.home, digest)


def test_check_tells_noise_from_order_and_is_written(tuned):
    store, run = tuned
    store.tables.replace(DPO_CHECKS, pl.DataFrame(schema=DPO_CHECKS.schema), {})
    check = check_tuning(store, run, AT)
    assert 0.0 <= check.auc.low <= check.auc.auc <= check.auc.high <= 1.0
    assert check.auc.n_pairs >= check.auc.n_decisions > 1
    (row,) = read_run(store, DPO_CHECKS, run).iter_rows(named=True)
    assert (row["auc"], row["passed"], row["sentence"]) == (check.auc.auc, check.auc.is_above_chance, check.sentence)
    assert (row["start"], row["auc_before"], row["checked_at"]) == (check.start, None, AT)
    check_tuning(store, run, AT)
    assert len(read_run(store, DPO_CHECKS, run)) == 1
    assert check.epochs.filter(split="train", epoch=0)["loss"][0] == pytest.approx(np.log(2.0))
    with pytest.raises(StorageError):
        check_tuning(store, store.policies.read_latest(EXPERIMENT.partition_key), AT)


def test_check_compares_with_the_run_before(judged, tuned):
    (store, run), start = tuned, judged[1]
    row = {"spec_hash": "", "experiment": run.experiment, "auc": 0.75}
    rows = [{**row, "run_id": start.run_id}, {**row, "run_id": "deleted", "auc": 0.1}]
    store.tables.replace(DPO_CHECKS, pl.DataFrame(rows, schema=DPO_CHECKS.schema), {})
    assert check_tuning(store, run, AT).auc_before == 0.75


def test_loss_that_does_not_move_is_noted_wherever_it_began():
    kept = {"loss": 1.0, "log_ratio_chosen": 0.1, "log_ratio_rejected": -0.1}
    assert [len(_notes(first, kept)) for first in (1.0004, 1.5)] == [1, 0]


def test_run_is_tuned_once_to_the_same_pairs_and_says_why_not_again(judged, tuned, monkeypatch):
    store, run = tuned[0], judged[1]
    write_alternating_pairs(store, run)
    store.tables.replace(DPO_CHECKS, pl.DataFrame(schema=DPO_CHECKS.schema), {})
    assert "are needed" in tuning_obstacle(store, run)  # the home has few pairs
    monkeypatch.setattr(tuning, "MIN_PAIRS", 10)
    monkeypatch.setattr(tuning, "MIN_DECISIONS", 2)
    make = tuning._experiment

    def short(*arguments):
        spec = make(*arguments)
        return spec.model_copy(update={"agent": spec.agent.model_copy(update={"total_timesteps": 200})})

    monkeypatch.setattr(tuning, "_experiment", short)
    assert tuning_obstacle(store, run) is None
    check = drain(tune_run(store, run, Launch("task")))
    assert check.start == run.run_id
    assert read_experiment(store.home.experiments / "small-dpo.yaml").agent.start == run.run_id
    assert store.ledger.run(check.run_id).status == "done"
    assert "tuned to these" in tuning_obstacle(store, run)
    assert drain(tune_run(store, run, Launch("task"))).run_id == check.run_id


def test_rule_has_no_policy_to_tune(judged):
    rule = EXPERIMENT.model_copy(update={"agent": EqualWeight(), "seeds": (0,)})
    assert not rule.agent.is_tunable
    assert EXPERIMENT.agent.is_tunable


@pytest.mark.parametrize(
    ("low", "high", "words"), [(0.4, 0.48, "worse than"), (0.45, 0.55, "contains 0.5"), (0.52, 0.6, "better than")]
)
def test_verdict_says_on_which_side_of_chance_the_interval_lies(tuned, low, high, words):
    check = check_tuning(*tuned, AT)
    auc = HoldoutAuc((low + high) / 2.0, low, high, 0.5, 100, 50)
    assert words in replace(check, auc=auc).sentence
