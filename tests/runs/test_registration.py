from pathlib import Path

import pytest
import yaml

from nvtrader_pipelines.experiments.designs import AblationDesign
from nvtrader_pipelines.experiments.plan import short_history_warnings
from nvtrader_pipelines.policies.baselines import EqualWeight, MeanCvar, Momentum
from nvtrader_pipelines.runs import training_time
from nvtrader_pipelines.runs.experiment_list import names_with_variants
from nvtrader_pipelines.runs.registration import (
    experiment_warnings,
    fit_history,
    plan_problem,
    plan_variants,
    register_experiments,
)
from nvtrader_pipelines.runs.smoke_run import MAX_TIMESTEPS, smoke_run
from nvtrader_pipelines.runs.training_time import ASSUMED_PACE, estimate_training, format_seconds, long_trainings
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.specs import read_experiment, write_experiment
from nvtrader_pipelines.storage.tables import TABLES
from tests.runs.small_runs import EXPERIMENT, N_SESSIONS, land, market_home
from tests.runs.small_worlds import CLOSED, run_steps, write_worlds
from tests.storage.ledger.run_rows import event, run_row

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TYPO = EXPERIMENT.model_copy(
    update={"name": "typo", "market": EXPERIMENT.market.model_copy(update={"symbols": ("NOPE",)})}
)
SWEEP = EXPERIMENT.model_copy(
    update={"name": "sweep", "design": AblationDesign(field="environment.turnover_cost_bps", values=(0.0, 5.0))}
)


@pytest.fixture
def market(tmp_path):
    return market_home(tmp_path / "home")


def with_timesteps(timesteps):
    return EXPERIMENT.model_copy(update={"agent": EXPERIMENT.agent.model_copy(update={"total_timesteps": timesteps})})


def test_spec_that_cannot_be_planned_is_not_registered(market):
    found = register_experiments(market, [TYPO, EXPERIMENT])
    assert found.keys == [EXPERIMENT.partition_key]
    assert list(found.problems) == ["typo"]
    assert "NOPE" in found.problems["typo"]
    assert market.ledger.versions()["name"].to_list() == ["small"]


def test_ablation_is_registered_with_its_variants(market):
    found = register_experiments(market, [SWEEP])
    assert found.keys == [each.partition_key for each in SWEEP.variants()]
    versions = market.ledger.versions()
    (parent,) = versions.filter(name="sweep")["spec_hash"]
    assert sorted(versions["parent_hash"].drop_nulls()) == [parent, parent]


def test_market_without_panel_registers_nothing(store):
    assert register_experiments(store, [EXPERIMENT]).keys == []
    assert "no panel of source 'landing'" in str(plan_problem(store, EXPERIMENT))
    assert store.ledger.versions().is_empty()


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("splitter", {"test_months": 10**8}, "splitter.test_months: found 100000000, but must be at most 10"),
        ("splitter", {"train_months": 10**21}, "splitter.train_months: found 1000000000000000000000, but must be at "),
        (
            "splitter",
            {"purge_size": 229},
            "splitter.purge_size: found 229, but must be at most 228: the market's panel has 228",
        ),
        ("market", {"max_gap": 10**6}, "market.max_gap: found 1000000, but must be at most 228"),
        ("agent", {"n_envs": 10**30}, "agent.n_envs: found 1000000000000000000000000000000, but must be at most 9223"),
    ],
)
def test_span_longer_than_the_market_is_not_registered(market, part, changes, message):
    spec = EXPERIMENT.model_copy(update={part: getattr(EXPERIMENT, part).model_copy(update=changes)})
    assert message in register_experiments(market, [spec]).problems["small"]
    assert market.ledger.versions().is_empty()


def test_baseline_history_longer_than_the_market_is_refused(market):
    spec = EXPERIMENT.model_copy(update={"baselines": (EqualWeight(), Momentum(months=11), MeanCvar(history=999_999))})
    assert str(plan_problem(market, spec)).startswith(
        "baselines.1.months: found 11, but must be at most 10: the market"
    )
    spec = spec.model_copy(update={"baselines": (MeanCvar(history=999_999),)})
    assert str(plan_problem(market, spec)).startswith("baselines.0.history: found 999999, but must be at most 228")


def test_training_estimate_uses_the_measured_pace(market):
    plans, ledger = plan_variants(market, EXPERIMENT), market.ledger
    n_steps = EXPERIMENT.agent.total_timesteps * len(plans[0].keys)
    assumed = estimate_training(market, plans)
    assert assumed is not None
    assert assumed.seconds == pytest.approx(n_steps / ASSUMED_PACE)
    ledger.begin(run_row(ledger, EXPERIMENT))
    for pace in (100.0, 250.0):
        ledger.record_event(event("train.step", metrics={"steps_per_second": pace}))
    ledger.finish("0123456789abcdef", "done")
    estimate = estimate_training(market, plans)
    assert estimate is not None
    assert (estimate.timesteps, estimate.steps_per_second, estimate.is_measured) == (n_steps, 250.0, True)


def test_training_estimate_of_a_rule_is_none(market):
    rule = EXPERIMENT.model_copy(update={"agent": EqualWeight(), "seeds": (0,)})
    assert estimate_training(market, plan_variants(market, rule)) is None


def test_long_trainings_are_new_experiments_beyond_a_day(market):
    (found,) = long_trainings(market, [EXPERIMENT, with_timesteps(10**12), TYPO])
    assert found.seconds > training_time.MAX_SECONDS
    assert "years" in found.sentence


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.0, "59 seconds"), (7200.0, "2 hours"), (3 * 86400.0, "3 days"), (1e12, "31,710 years")]
)
def test_format_seconds_uses_the_largest_unit(seconds, text):
    assert format_seconds(seconds) == text


def test_smoke_run_stores_nothing(market):
    before = {table.name: market.tables.snapshot_id(table) for table in TABLES}
    found = smoke_run(market, with_timesteps(10**9))
    assert (found.experiment, found.n_seeds, found.timesteps) == ("small", len(EXPERIMENT.seeds), MAX_TIMESTEPS)
    assert {table.name: market.tables.snapshot_id(table) for table in TABLES} == before
    assert market.ledger.versions().is_empty()
    assert market.ledger.runs().is_empty()
    assert not market.home.policies.exists()


def test_smoke_run_of_the_reinforce_plus_plus_example_trains(market):
    spec = read_experiment(EXAMPLES / "reinforce-plus-plus.yaml")
    on_market = {"market": EXPERIMENT.market, "splitter": EXPERIMENT.splitter, "pipeline": EXPERIMENT.pipeline}
    found = smoke_run(market, spec.model_copy(update=on_market))
    assert (found.experiment, found.timesteps) == ("reinforce-plus-plus", MAX_TIMESTEPS)


def test_archived_names_include_the_variants_of_an_ablation(store):
    parent = store.ledger.register(SWEEP)
    variants = [each.name for each in SWEEP.variants()]
    for each in SWEEP.variants():
        store.ledger.register(each, parent)
    names = names_with_variants(store, "sweep")
    assert names == ["sweep", *sorted(variants)]
    store.ledger.archive(names)
    assert store.ledger.archived_names() == {"sweep", *variants}
    store.ledger.unarchive(names)
    assert store.ledger.archived_names() == set()


def test_archived_names_of_an_unknown_experiment_raises(store):
    store.ledger.register(EXPERIMENT)
    with pytest.raises(StorageError):
        names_with_variants(store, "smal")


@pytest.mark.parametrize("n_sessions", [410, *(pytest.param(n, marks=pytest.mark.nightly) for n in (N_SESSIONS, 600))])
def test_experiment_fitted_to_a_history_has_three_folds_or_more_and_no_warning(market, n_sessions):
    land(market, n_sessions)
    path = write_experiment(market.home, "ours", fields=fit_history(market, "landing", ["bbb", "Aaa", "AAA"]))
    (plan,) = plan_variants(market, read_experiment(path))
    assert len(plan.folds) >= 3
    assert short_history_warnings(plan) == []
    assert plan.panel.symbols == ("AAA", "BBB")
    fold = plan.folds[0]
    assert fold.train_last - fold.train_first > 2 * (fold.test_last - fold.test_first)
    assert smoke_run(market, plan.spec).timesteps == MAX_TIMESTEPS


def test_recommended_agent_of_a_fit_is_that_of_the_guide(market):
    land(market, 600)
    guide = (EXAMPLES.parent / "guides" / "own-data.md").read_text().partition("# data/experiments/ours.yaml")[2]
    ours = yaml.safe_load(guide.partition("```")[0])
    fields, fitted = (
        fit_history(market, "landing"),
        dict.fromkeys(("rebal_freq", "episode_len", "n_steps", "batch_size")),
    )
    for part in ("environment", "agent"):
        assert fields[part] | fitted == ours[part] | fitted


def test_warning_without_a_panel_names_the_experiments_to_archive(store):
    for name in ("one", "two"):
        write_experiment(store.home, name)
    (warning,) = experiment_warnings(store)
    assert warning.startswith("one, two: cannot be planned")
    assert warning.endswith("`nvtrader experiments archive one two`")


def test_market_too_short_for_an_experiment_is_refused(market):
    land(market, 350)
    with pytest.raises(ValueError, match="147 sessions"):
        fit_history(market, "landing")
    with pytest.raises(StorageError):
        fit_history(market, "elsewhere")


def test_experiment_with_the_name_of_a_world_is_a_problem_and_others_are_registered(market):
    write_worlds(market.home, sweep={**CLOSED, "name": "sweep"})
    run_steps(market, "sweep")
    registration = register_experiments(market, [SWEEP, EXPERIMENT])
    assert registration.problems.keys() == {"sweep"}
    assert registration.keys == [EXPERIMENT.partition_key]
