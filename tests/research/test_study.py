import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.journal import BaseJudged, TrialJudged, TrialRerun, format_line, read_line
from nvtrader_pipelines.research.knobs import KNOBS, Knob, SearchMode
from nvtrader_pipelines.research.proposers import (
    CmaEsProposer,
    GridProposer,
    GridTooLarge,
    LlmProposer,
    OptunaProposer,
    RandomProposer,
    SpaceExhausted,
)
from nvtrader_pipelines.research.study import POOR_SHARPE, Study, drawn_knobs, export_study, objective, study_figures
from nvtrader_pipelines.research.verdict import Standing
from nvtrader_pipelines.storage.errors import StorageError

KNOBS_16, KNOBS_4 = KNOBS[SearchMode.UNIFIED], KNOBS[SearchMode.CUFOLIO_ONLY]
SAMPLERS = [OptunaProposer(), RandomProposer(), CmaEsProposer()]
CASES = [*((proposer, KNOBS_16) for proposer in SAMPLERS), (GridProposer(), KNOBS_4)]
FINISHED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LEAD = Lead(0.3, 0.1, 96)

every_case = pytest.mark.parametrize(("proposer", "knobs"), CASES, ids=lambda case: getattr(case, "kind", "knobs"))


def row(number, proposed, **changes):
    fields = {
        "proposal": number,
        "trial": number,
        "spec_hash": f"{number:064x}",
        "proposer": "optuna",
        "reason": "",
        "proposed": proposed,
        "knobs": proposed,
        "status": "judged",
        "standing": Standing.NOT_ABOVE,
        "sharpe": score(proposed),
        "n_configurations": number,
        "bar": 2.0,
        "seconds": 60.0,
        "finished_at": FINISHED,
    }
    return TrialJudged.model_validate(fields | changes)


def score(proposed):
    values = np.array([*proposed.values()])
    return float(-np.abs(np.log1p(np.abs(values)) - 1.0).mean())


def judge(number, proposed):
    """Row of a proposal; every ninth is infeasible, every seventh known."""
    if number % 9 == 0:
        return row(number, proposed, status="infeasible", standing=Standing.PRUNED, sharpe=None, knobs={})
    return row(number, proposed, **({"status": "known", "standing": Standing.KNOWN} if number % 7 == 0 else {}))


def propose(study, numbers):
    rows = []
    for number in numbers:
        rows.append(judge(number, study.ask(number)))
        study.tell(number, objective(rows[-1]))
    return rows


def from_disk(rows):
    return [read_line(format_line(each)) for each in rows]


@pytest.mark.slow
@every_case
def test_resumed_study_proposes_as_one_that_never_stopped(proposer, knobs):
    straight = propose(Study(proposer, knobs, seed=3), range(1, 27))
    resumed = Study(proposer, knobs, seed=3)
    resumed.restore(from_disk(straight[:20]))
    assert propose(resumed, range(21, 27)) == straight[20:]


@pytest.mark.slow
def test_two_workers_resume_when_add_and_tell_keep_their_order():
    def run(study, rows):
        first = [each.proposed for each in rows]
        for number in range(1, 23):
            if number <= len(first):
                study.add(number, first[number - 1])
            else:
                rows.append(judge(number, study.ask(number)))
            if number > 1:
                study.tell(number - 1, objective(rows[number - 2]))
        return rows

    for proposer in SAMPLERS:
        straight = run(Study(proposer, KNOBS_16, seed=3), [])
        assert run(Study(proposer, KNOBS_16, seed=3), from_disk(straight[:16])) == straight


@pytest.mark.slow
def test_cma_es_continues_a_journal_of_other_proposals():
    rows = propose(Study(RandomProposer(), KNOBS_4, seed=3), range(1, 31))
    studies = [Study(CmaEsProposer(), KNOBS_4, seed=3) for _ in range(2)]
    for study in studies:
        study.restore(rows)
    further = [propose(study, range(31, 61)) for study in studies]
    assert further[0] == further[1]
    assert further[0] != propose(Study(CmaEsProposer(), KNOBS_4, seed=3), range(1, 61))[30:]


OPTIMIZERS = [OptunaProposer(), CmaEsProposer(), CmaEsProposer(population_size=4), LlmProposer()]
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["optuna", "cma_es", "cma_es-of-4", "llm"])


def search_with_a_model(study, knobs, numbers, rng):
    """Rows of a search in which other values, some out of bounds, replace every third proposal."""
    rows = []
    for number in numbers:
        proposed = study.ask(number)
        if number % 3 == 0:
            proposed = {knob.name: knob.clip(rng.uniform(knob.low, knob.high)) for knob in knobs}
            proposed[knobs[0].name] = knobs[0].high + number
            study.replace(number, proposed)
        rows.append(judge(number, proposed))
        study.tell(number, objective(rows[-1]))
    return rows


@pytest.mark.slow
@every_optimizer
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))])
def test_replaced_proposals_continue_as_restored_ones(optimizer, seed):
    straight = Study(optimizer, KNOBS_4, seed)
    rows = search_with_a_model(straight, KNOBS_4, range(1, 25), np.random.default_rng(seed))
    restored = Study(optimizer, KNOBS_4, seed)
    restored.restore(from_disk(rows))
    assert straight.outlook(25) == restored.outlook(25)
    assert propose(straight, range(25, 31)) == propose(restored, range(25, 31))


def test_replaced_proposal_in_progress_counts_as_restored_one():
    rows = propose(Study(OptunaProposer(), KNOBS_4, seed=1), range(1, 21))
    other = {knob.name: knob.low for knob in KNOBS_4}
    straight, restored = (study_of(OptunaProposer(), rows) for _ in range(2))
    straight.ask(21)
    straight.replace(21, other)
    restored.add(21, other)
    assert straight.ask(22) == restored.ask(22) != study_of(OptunaProposer(), rows).ask(22)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS[:3], ids=["optuna", "cma_es", "cma_es-of-4"])
def test_optimizer_moves_to_replaced_values(optimizer):
    knob, rng = Knob("share", "", "", 0.0, 10.0), np.random.default_rng(1)
    study = Study(optimizer, [knob], seed=1)
    for number in range(1, 61):
        study.ask(number)
        value = rng.normal(9.0, 0.2)
        study.replace(number, {"share": value})
        study.tell(number, -abs(value - 9.0))
    assert study.outlook(61).center["share"] > 7.0  # 5 without results


@every_optimizer
def test_replacement_by_equal_values_changes_nothing(optimizer):
    replaced, untouched = (Study(optimizer, KNOBS_4, seed=1) for _ in range(2))
    for number in range(1, 21):
        proposed = replaced.ask(number)
        replaced.replace(number, proposed)
        replaced.tell(number, score(proposed))
        assert untouched.ask(number) == proposed
        untouched.tell(number, score(proposed))
    assert [trial.state for trial in replaced._study.trials] == [trial.state for trial in untouched._study.trials]


def study_of(optimizer, rows):
    study = Study(optimizer, KNOBS_4, seed=1)
    study.restore(rows)
    return study


@pytest.mark.slow
@every_optimizer
def test_outlook_is_that_before_the_proposal_and_changes_nothing(optimizer):
    rows = propose(Study(optimizer, KNOBS_4, seed=1), range(1, 21))
    looked = study_of(optimizer, rows)
    before = looked.outlook(21)
    proposed = looked.ask(21)
    assert looked.outlook(21) == before != looked.outlook(22)
    looked.tell(21, score(proposed))
    untouched = study_of(optimizer, [*rows, row(21, proposed)])
    assert propose(looked, range(22, 28)) == propose(untouched, range(22, 28))


def test_outlook_of_random_draws_is_the_middle_of_each_scale():
    knobs = [Knob("ratio", "", "", 1e-6, 1e-2, is_log=True), Knob("share", "", "", 0.0, 10.0)]
    outlooks = [Study(RandomProposer(), knobs, seed).outlook(1) for seed in range(20)]
    for part, ratio, share in (("center", 1e-4, 5.0), ("spread", np.exp(np.log(1e4) / 12**0.5), 10.0 / 12**0.5)):
        values = [getattr(outlook, part) for outlook in outlooks]
        assert np.log([value["ratio"] for value in values]).mean() == pytest.approx(np.log(ratio), rel=0.05)
        assert np.mean([value["share"] for value in values]) == pytest.approx(share, rel=0.05)


@pytest.mark.slow
def test_outlook_of_an_optimizer_moves_to_its_results():
    knob = Knob("ratio", "", "", 1e-6, 1e-2, is_log=True)
    study = Study(CmaEsProposer(), [knob], seed=1)
    before = study.outlook(1)
    for number in range(1, 61):
        study.tell(number, -abs(np.log10(study.ask(number)["ratio"]) + 3.0))
    after = study.outlook(61)
    assert after.center["ratio"] == pytest.approx(1e-3, rel=0.3)
    assert 1.0 <= after.spread["ratio"] < before.spread["ratio"]


@every_case
def test_other_seed_gives_other_proposals(proposer, knobs):
    first, second = (propose(Study(proposer, knobs, seed), range(1, 4)) for seed in (1, 2))
    assert all(one.proposed != other.proposed for one, other in zip(first, second, strict=True))


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(
    proposer=st.sampled_from([*SAMPLERS, GridProposer(points=2), CmaEsProposer(population_size=4)]),
    names=st.sets(st.sampled_from([knob.name for knob in KNOBS_16]), min_size=1, max_size=12),
    seed=st.integers(0, 2**31 - 1),
)
def test_every_proposal_is_within_bounds_and_survives_json(proposer, names, seed):
    knobs = [knob for knob in KNOBS_16 if knob.name in names]
    study = Study(proposer, knobs, seed)
    number = min(30, 2 ** len(knobs)) if proposer.kind == "grid" else 30
    for each in propose(study, range(1, number + 1)):
        assert list(each.proposed) == [knob.name for knob in knobs]
        for knob in knobs:
            value = each.proposed[knob.name]
            assert knob.low <= value <= knob.high
            assert type(value) is (int if knob.is_whole else float)
        assert json.loads(json.dumps(each.proposed)) == each.proposed


def test_grid_visits_every_point_once_and_is_exhausted():
    study = Study(GridProposer(), KNOBS_4, seed=1)
    points = [tuple(each.proposed.values()) for each in propose(study, range(1, 82))]
    assert len(set(points)) == 81
    assert sorted({point[1] for point in points}) == pytest.approx([0.02, 0.16, 0.30])
    assert {point[2] for point in points} == {1_000, 5_500, 10_000}
    with pytest.raises(SpaceExhausted) as end:
        study.ask(82)
    assert end.value.n_combinations == 81


def test_grid_with_a_gap_after_a_resume_visits_every_point_once():
    straight = propose(Study(GridProposer(), KNOBS_4, seed=1), range(1, 82))
    study = Study(GridProposer(), KNOBS_4, seed=1)
    study.restore([*straight[:4], straight[5]])  # two workers: the sixth ended before the fifth
    assert propose(study, [5, *range(7, 82)]) == [straight[4], *straight[6:]]


def test_grid_spaces_logarithms_and_rounds_whole_numbers():
    ratio = Knob("ratio", "", "", 1e-5, 1e-1, is_log=True)
    whole = Knob("whole", "", "", 1, 3, is_whole=True)
    rows = propose(Study(GridProposer(points=5), [ratio, whole], seed=1), range(1, 16))
    assert sorted({each.proposed["ratio"] for each in rows}) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
    assert {each.proposed["whole"] for each in rows} == {1, 2, 3}


def test_grid_of_too_many_combinations_is_refused():
    with pytest.raises(GridTooLarge) as refusal:
        Study(GridProposer(), KNOBS_16, seed=1)
    assert refusal.value.n_combinations == 3**16


def test_proposal_without_result_teaches_nothing():
    fresh, failed, told = (Study(OptunaProposer(n_startup_trials=1), KNOBS_4, seed=1) for _ in range(3))
    for study, value in ((failed, None), (told, 0.5)):
        study.ask(1)
        study.tell(1, value)
    assert failed.ask(2) == fresh.ask(2) != told.ask(2)


def test_objective_is_poor_without_a_result():
    proposed = Study(RandomProposer(), KNOBS_4, seed=1).ask(1)
    assert objective(row(1, proposed, sharpe=0.7)) == 0.7
    assert objective(row(1, proposed, sharpe=None, status="failed")) == POOR_SHARPE


def test_study_leaves_verbosity_and_warnings_of_optuna_as_they_are(capfd):
    before = optuna.logging.get_verbosity()
    Study(GridProposer(), KNOBS_4, seed=1).ask(1)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr().err == ""
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        optuna.samplers.PartialFixedSampler({}, optuna.samplers.RandomSampler())


@pytest.fixture
def exported(tmp_path):
    """Study of five rows, read back from its file."""
    first, second, third, fourth, fifth = (Study(RandomProposer(), KNOBS_4, seed=1).ask(n) for n in range(1, 6))
    lines = [
        BaseJudged(
            spec_hash="b", knobs=first, seeds=(0,), sharpes=(0.5,), max_drawdown=0.1, seconds=1, finished_at=FINISHED
        ),
        row(1, first, lead=LEAD, sharpe=0.8, standing=Standing.RERUN),
        TrialRerun(
            trial=1,
            spec_hash=f"{1:064x}",
            seeds=(6, 7),
            sharpes=(0.9, 0.7),
            lead=replace(LEAD, difference=0.25),
            standing=Standing.KEPT,
            bar=2.0,
            seed_deviation=0.05,
            fresh_lead=0.3,
            required_lead=0.1,
            seconds=120.0,
            finished_at=FINISHED,
        ),
        row(2, second, lead=replace(LEAD, difference=-0.1), sharpe=0.4, knobs={**second, "n_scenarios": 1_000}),
        row(3, third, status="pruned", standing=Standing.PRUNED, sharpe=0.2, fold_sharpes=(0.3, 0.1)),
        row(4, {**fourth, "n_scenarios": 1}, status="infeasible", sharpe=None, knobs={}, message="too few scenarios"),
        row(5, fifth, status="failed", standing=Standing.PRUNED, sharpe=None, message="out of memory"),
    ]
    path = tmp_path / "session-1.db"
    export_study(lines, KNOBS_4, path)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    yield optuna.load_study(study_name=None, storage=storage), lines, path
    storage.remove_session()
    storage.engine.dispose()


@pytest.mark.slow
def test_export_is_read_back_by_optuna_with_values_and_attributes(exported):
    study, lines, path = exported
    state = optuna.trial.TrialState
    kept, lowered, pruned, infeasible, failed = study.trials
    assert (study.study_name, study.direction) == ("session-1", optuna.study.StudyDirection.MAXIMIZE)
    assert study.best_trial == kept
    assert kept.params == lines[1].proposed
    assert kept.user_attrs == {
        "spec_hash": f"{1:064x}",
        "standing": "kept",
        "status": "judged",
        "message": "",
        "lead_t": pytest.approx(2.5),
    }
    assert [trial.value for trial in study.trials] == [0.8, 0.4, 0.2, None, None]
    assert [trial.state for trial in study.trials] == [
        state.COMPLETE,
        state.COMPLETE,
        state.PRUNED,
        state.FAIL,
        state.FAIL,
    ]
    assert lowered.params["n_scenarios"] == 1_000
    assert (pruned.intermediate_values, pruned.user_attrs["lead_t"]) == ({0: 0.3, 1: 0.1}, None)
    assert infeasible.params.keys() == {knob.name for knob in KNOBS_4} - {"n_scenarios"}
    assert infeasible.user_attrs["message"] == "too few scenarios"
    assert failed.params == lines[-1].proposed
    assert kept.duration.total_seconds() == 60.0
    assert kept.datetime_complete.astimezone(UTC) == FINISHED
    assert [file.name for file in path.parent.iterdir()] == ["session-1.db"]


def test_export_refuses_an_existing_file(tmp_path):
    path = tmp_path / "study.db"
    path.write_bytes(b"mine")
    with pytest.raises(StorageError):
        export_study([], KNOBS_4, path)
    assert path.read_bytes() == b"mine"


@pytest.mark.slow
def test_figures_show_finished_trials_and_knobs_that_vary():
    rng = np.random.default_rng(0)
    base = {knob.name: knob.low for knob in KNOBS_4}
    rows = [row(n, base | {"cvar_alpha": rng.uniform(0.85, 0.99), "n_scenarios": 1000 + n}) for n in range(12)]
    rows += [row(12, base, status="infeasible", sharpe=None, knobs={}), row(13, base, status="pruned")]
    knobs = drawn_knobs(rows, KNOBS_4)
    assert [knob.name for knob in knobs] == ["cvar_alpha", "n_scenarios"]
    figures = study_figures(rows, knobs)
    assert [len(trace["x"]) for trace in figures["slices"]["data"]] == [12, 12]
    assert sum(figures["importances"]["data"][0]["x"]) == pytest.approx(1)
    assert sum(trace["mode"] == "lines" for trace in figures["parallel"]["data"]) == 12


@pytest.mark.parametrize(
    "rows", [[row(n, {"a": n, "b": n}) for n in range(9)], [row(n, {"a": n, "b": 0}) for n in range(20)]]
)
def test_figures_of_few_trials_or_of_one_knob_are_refused(rows):
    with pytest.raises(ValueError, match="pictures need"):
        drawn_knobs(rows, [Knob(name, "", "", 0, 30, is_whole=True) for name in "ab"])
