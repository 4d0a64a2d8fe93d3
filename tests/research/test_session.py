import errno
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest

from nvtrader_pipelines.components.executor_choice import make_executor
from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research import trial_pool
from nvtrader_pipelines.research.journal import SessionClosed, TrialRerun
from nvtrader_pipelines.research.recorded_session import read_session, request_stop
from nvtrader_pipelines.research.session import run_session
from nvtrader_pipelines.research.study import POOR_SHARPE, Study, objective
from nvtrader_pipelines.research.trial_pool import TrialPool
from nvtrader_pipelines.research.verdict import SearchBase, SearchState, SearchTrial, Standing, judge_trial
from nvtrader_pipelines.runs.interruptions import RunHalted
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch, Halt
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RESEARCH_TRIALS
from tests.forkserver import kill_workers, workers
from tests.homes import copy_home
from tests.research.search_homes import (
    CAP,
    EVEN,
    GRID,
    bars_of,
    cufolio,
    fail_jobs,
    land,
    market,
    new_session,
    run,
    stable,
    trials_of,
)

pytestmark = pytest.mark.slow

CASH = {"agent.cash_floor": {"low": 0.0, "high": 0.2}, "agent.cash_ceiling": {"low": 0.1, "high": 0.3}}


@pytest.fixture
def jobs(monkeypatch):
    """Jobs submitted to workers, and the markets that these hold."""
    submitted, panels, submit, start = [], [], TrialPool.submit, TrialPool.__init__

    def record_market(pool, panel, *arguments):
        panels.append(panel)
        start(pool, panel, *arguments)

    monkeypatch.setattr(TrialPool, "submit", lambda pool, job: (submitted.append(job), submit(pool, job)))
    monkeypatch.setattr(TrialPool, "__init__", record_market)
    return submitted, panels


@pytest.fixture(scope="module")
def straight(searched_homes, tmp_path_factory):
    """Home with a new session, its id, and the lines of its journal once it has run without a stop."""
    folder = tmp_path_factory.mktemp("straight")
    home = copy_home(searched_homes["noise"], folder / "new")
    session_id = new_session(home).session_id
    done = copy_home(home, folder / "done")
    run(done, SessionFolder.of(done, session_id))
    return home, session_id, stable(SessionFolder.of(done, session_id))


def repeats(*proposals):
    """Make a study propose these in turn, again and again."""
    return lambda study, number: Study.add(study, number, (knobs := proposals[(number - 1) % len(proposals)])) or knobs


def test_repeated_proposal_is_known_without_budget_or_training(noise_home, jobs, monkeypatch):
    cap = "agent.max_position_pct"
    monkeypatch.setattr(Study, "ask", repeats({cap: 0.15}, {cap: 0.15}, {cap: 0.2}, {cap: 0.17}))
    told = {}
    tell = Study.tell
    monkeypatch.setattr(Study, "tell", lambda study, n, value: (told.setdefault(n, value), tell(study, n, value)))
    folder = new_session(noise_home, bounds=CAP, budget=2)
    base, first, repeated, unchanged, second, *_ = run(noise_home, folder)
    assert (first.status, second.status) == ("judged", "judged")
    assert (repeated.status, repeated.trial, repeated.spec_hash) == ("known", 1, first.spec_hash)
    assert (unchanged.status, unchanged.trial, unchanged.spec_hash) == ("known", None, base.spec_hash)
    assert told == pytest.approx({1: first.sharpe, 2: first.sharpe, 3: np.mean(base.sharpes), 4: second.sharpe})
    assert [line.n_configurations for line in (first, repeated, unchanged, second)] == [1, 1, 1, 2]
    assert len(jobs[0]) == 7  # five seeds of the base, and two trials


def test_search_ends_once_a_proposer_knows_nothing_new(noise_home, monkeypatch):
    monkeypatch.setattr("nvtrader_pipelines.research.proposals.MAX_KNOWN", 3)
    monkeypatch.setattr(Study, "ask", repeats({"agent.max_position_pct": 0.15}))
    *lines, verdict = run(noise_home, new_session(noise_home, bounds=CAP))
    assert [line.status for line in lines[1:]] == ["judged", "known", "known", "known"]
    assert isinstance(verdict, SessionClosed)


def test_repeated_infeasible_proposal_is_known(noise_home, monkeypatch):
    monkeypatch.setattr("nvtrader_pipelines.research.proposals.MAX_KNOWN", 3)
    monkeypatch.setattr(Study, "ask", repeats({"agent.cash_floor": 0.2, "agent.cash_ceiling": 0.1}))
    base = cufolio(cash_floor=0.05, cash_ceiling=0.25)
    lines = run(noise_home, new_session(noise_home, base, bounds=CASH))
    assert [line.status for line in lines[1:-1]] == ["infeasible", "known", "known", "known"]
    assert {line.trial for line in lines[1:-1]} == {1}
    assert {objective(line) for line in lines[1:-1]} == {POOR_SHARPE}


def test_infeasible_proposal_is_counted_and_poor(noise_home):
    base = cufolio(cash_floor=0.05, cash_ceiling=0.25)
    folder = new_session(noise_home, base, proposer={"kind": "grid", "points": 2}, bounds=CASH)
    run(noise_home, folder)
    trials = trials_of(folder)
    (refused,) = trials_of(folder, "infeasible")
    assert refused.proposed == {"agent.cash_floor": 0.2, "agent.cash_ceiling": 0.1}
    assert (refused.knobs, refused.sharpe, refused.standing) == ({}, None, Standing.PRUNED)
    assert objective(refused) == POOR_SHARPE
    assert [line.n_configurations for line in trials] == [1, 2, 3, 4]


def test_trial_that_fails_in_training_is_counted_and_poor(noise_home):
    folder = new_session(noise_home, cufolio(0.2, cash_ceiling=0.1), **GRID | {"bounds": {
        "agent.max_position_pct": {"low": 0.1, "high": 0.25}}})  # fmt: skip
    run(noise_home, folder)
    (failed,) = trials_of(folder, "failed")
    assert failed.knobs == {"agent.max_position_pct": 0.1}  # 8 names hold 0.8, and 0.9 must be invested
    assert (failed.sharpe, failed.lead, failed.standing) == (None, None, Standing.PRUNED)
    assert failed.message
    assert objective(failed) == POOR_SHARPE
    assert len(trials_of(folder)) == 3


def test_proposal_that_is_being_judged_is_not_poor(noise_home, monkeypatch):
    cap = "agent.max_position_pct"
    monkeypatch.setattr(Study, "ask", repeats({cap: 0.15}, {cap: 0.15}, {cap: 0.17}))
    folder = new_session(noise_home, bounds=CAP, budget=2, workers=2)
    run(noise_home, folder)
    (repeated,) = [line for line in trials_of(folder, "known") if line.proposal == 2]
    assert repeated.sharpe is None  # there is no result yet
    assert objective(repeated) is None


def test_base_whose_process_is_killed_is_judged_by_a_resume(noise_home, monkeypatch):
    folder, submit, before = new_session(noise_home), TrialPool.submit, workers()

    def submit_and_kill(pool, job):
        submit(pool, job)
        kill_workers(before)

    with monkeypatch.context() as killing:
        killing.setattr(trial_pool, "make_executor", make_executor)
        killing.setattr(TrialPool, "submit", submit_and_kill)
        with pytest.raises(ValueError):
            run(noise_home, folder)
    assert read_session(folder).lines == ()
    assert not (folder.path / "returns").exists()
    assert isinstance(run(noise_home, folder)[-1], SessionClosed)
    assert len(trials_of(folder)) == 4


def test_killed_process_costs_an_attempt_but_a_trial_has_one(planted_home, jobs):
    folder = new_session(planted_home, cufolio(EVEN), **GRID | {"budget": 4})
    run(planted_home, folder)
    n_trials = len(trials_of(folder))
    assert Counter(job.n_attempts for job in jobs[0]) == {1: n_trials, 2: len(jobs[0]) - n_trials}


def test_trial_with_a_failed_rerun_is_not_kept_and_not_rerun_again(planted_home, monkeypatch):
    folder, n_jobs = new_session(planted_home, cufolio(EVEN), **GRID), Counter()

    def is_first_rerun(job):
        n_jobs[job.spec.spec_hash] += 1
        return n_jobs[job.spec.spec_hash] == 2 and job.spec.agent.max_position_pct != EVEN  # not the base

    fail_jobs(monkeypatch, is_first_rerun)
    steps = run_session(Store(planted_home), folder.session_id)
    failed = next(line for line in steps if isinstance(line, TrialRerun))
    steps.close()
    run(planted_home, folder)
    lines = read_session(folder).lines
    reruns = [line for line in lines if isinstance(line, TrialRerun)]
    assert (failed.standing, failed.sharpes, failed.lead) == (Standing.NOT_ABOVE_AFTER_RERUNS, None, None)
    assert max(Counter(line.spec_hash for line in reruns).values()) == 1
    assert lines[-1].outcome == "nothing found"
    rows = Store(planted_home).tables.read(RESEARCH_TRIALS).filter(trial_id=failed.trial)
    assert rows.select("message", "t", "standing").row(0) == (failed.message, None, failed.standing)


def test_base_that_the_market_cannot_hold_is_refused_without_a_session(noise_home):
    with pytest.raises(ValueError):  # 8 names hold 0.8, and 0.9 must be invested
        new_session(noise_home, cufolio(0.1, cash_ceiling=0.1))
    assert not noise_home.research_sessions.exists()


def test_full_disk_ends_the_session_and_a_resume_loses_nothing(straight, cheap_sessions, tmp_path, monkeypatch):
    new, session_id, expected = straight
    folder = SessionFolder.of(home := copy_home(new, tmp_path / "home"), session_id)
    append, write, n_writes = SessionFolder.append, SessionFolder.write_returns, iter(range(100))

    def append_half(session, line):
        if next(n_writes) % 3 == 2:
            with session.journal.open("ab") as file:
                file.write(line.encode()[: len(line) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        append(session, line)

    def write_none(session, name, returns):
        if next(n_writes) % 3 == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(session, name, returns)

    with monkeypatch.context() as full:
        full.setattr(SessionFolder, "append", append_half)
        full.setattr(SessionFolder, "write_returns", write_none)
        for _ in range(2):
            with pytest.raises(OSError):
                run(home, folder)
    run(home, folder)
    assert stable(folder) == expected


@pytest.mark.parametrize(("first", "is_refused"), [(700, True), (1150, False)], ids=["before the seal", "sealed"])
def test_session_resumes_only_on_the_same_market_before_the_seal(noise_home, first, is_refused):
    folder = new_session(noise_home)
    steps = run_session(Store(noise_home), folder.session_id)
    next(steps)
    steps.close()
    returns = market()
    returns[first:] += 0.001
    land(Store(noise_home), bars_of(returns))
    if is_refused:
        with pytest.raises(ValueError):
            run(noise_home, folder)
        assert len(read_session(folder).lines) == 1
    else:
        assert isinstance(run(noise_home, folder)[-1], SessionClosed)


def test_session_resumes_only_with_the_same_code_of_the_judgement(noise_home, monkeypatch):
    folder = new_session(noise_home)
    monkeypatch.setattr("nvtrader_pipelines.research.session_store.JUDGEMENT", ("research.space",))
    with pytest.raises(ValueError):
        run(noise_home, folder)


@pytest.mark.parametrize("workers", [0, -1])
def test_session_without_a_worker_is_refused(workers, noise_home):
    folder = new_session(noise_home)
    with pytest.raises(ValueError):
        run(noise_home, folder, workers)
    assert read_session(folder).lines == ()


def test_kill_switch_interrupts_and_the_session_resumes(noise_home):
    folder, switch = new_session(noise_home), FileKillSwitch(noise_home)
    steps = run_session(Store(noise_home), folder.session_id)
    next(steps)
    switch.write(Halt(reason="a test", by="ann", at=datetime.now(UTC)))
    with pytest.raises(RunHalted):
        list(steps)
    with pytest.raises(RunHalted):
        run(noise_home, folder)
    switch.remove()
    assert isinstance(run(noise_home, folder)[-1], SessionClosed)
    assert len(trials_of(folder)) == 4


def test_stop_request_ends_without_a_verdict_and_resume_finishes(straight, cheap_sessions, tmp_path):
    new, session_id, expected = straight
    folder = SessionFolder.of(home := copy_home(new, tmp_path / "home"), session_id)
    with pytest.raises(StorageError):
        request_stop(folder)  # nothing runs
    steps = run_session(Store(home), folder.session_id)
    next(steps), next(steps)
    request_stop(folder)
    assert list(steps) == []
    assert not folder.stop_request.exists()
    assert [line.event for line in read_session(folder).lines] == ["base", "trial"]
    run(home, folder)
    assert stable(folder) == expected
    assert run(home, folder) == []  # finished


def test_second_process_of_a_session_is_refused(noise_home):
    folder, other = new_session(noise_home), new_session(noise_home, seed=2)
    steps = run_session(Store(noise_home), folder.session_id)
    next(steps)
    with pytest.raises(StorageError) as refused:
        run(noise_home, folder)
    assert folder.session_id in str(refused.value)
    assert len(trials_of(other)) == 0
    run(noise_home, other)  # another session runs beside it
    list(steps)
    assert [len(trials_of(each)) for each in (folder, other)] == [4, 4]
    assert all(isinstance(read_session(each).lines[-1], SessionClosed) for each in (folder, other))


def test_no_worker_of_the_search_holds_a_sealed_session(planted_home, jobs):
    folder = new_session(planted_home, cufolio(EVEN), **GRID)
    run(planted_home, folder)
    submitted, (validated, whole) = jobs
    sealed_from = np.datetime64(read_session(folder).session.spec.sealed_from)
    assert validated.sessions[-1] < sealed_from <= whole.sessions[-1]
    searched = [job for job in submitted if not job.spec.name.endswith("-winner") and job.spec.name != "base"]
    assert max(fold.test_last for job in searched for fold in job.folds) == len(validated.sessions) - 1


def test_trial_of_another_session_is_answered_without_training(noise_home, jobs):
    bases = cufolio(), cufolio().model_copy(update={"name": "renamed"})
    first, second = (new_session(noise_home, base, seed=seed, **GRID) for seed, base in enumerate(bases))
    run(noise_home, first)
    n_jobs = len(jobs[0])
    run(noise_home, second)
    assert len(jobs[0]) == n_jobs + 5  # the base
    results = {line.spec_hash: line for line in trials_of(first)}
    for line in trials_of(second):
        other = results[line.spec_hash]
        assert (line.sharpe, line.max_drawdown, line.lead) == (other.sharpe, other.max_drawdown, other.lead)
        assert line.n_configurations == len(results)
        assert first.session_id in line.message
    assert not any(line.message for line in trials_of(first))


def test_number_of_scenarios_is_a_seed_and_never_kept(noise_home, jobs):
    base = cufolio(n_scenarios=1000)
    count = {"agent.n_scenarios": {"low": 1000, "high": 1012}}
    folder = new_session(noise_home, base, bounds=count, proposer={"kind": "grid", "points": 13}, budget=13)
    first, *lines, closed = run(noise_home, folder)
    assert len(set(first.sharpes)) == len(first.seeds) == 5
    assert len(trials_of(folder, "judged")) == 12
    assert Standing.KEPT not in {line.standing for line in lines}
    assert closed.outcome == "nothing found"
    assert [job.scenario_seed for job in jobs[0][:6]] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(50))
def test_proposal_equal_to_the_base_is_never_kept(seed):
    generator = np.random.default_rng(seed)
    base = SearchBase("base", tuple(generator.normal(0.7, 0.1, 5)))
    state = SearchState(base)
    for key in generator.permutation(["base", "base", *(f"t{i}" for i in range(5))]):
        trial = SearchTrial(str(key), 0, Lead(generator.normal(1.0, 0.5), 0.1, 96))
        before = state
        state, decision = judge_trial(state, trial)
        if key == "base":
            assert (state, decision.standing, decision.is_counted) == (before, Standing.KNOWN, False)
    assert "base" not in state.trials
    assert len(state.finalists) == len(set(state.finalists) - {"base"})
