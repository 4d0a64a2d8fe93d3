import pytest

from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents.ppo import PpoAgent
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.research import hand_over as module
from nvtrader_pipelines.research.hand_over import hand_over
from nvtrader_pipelines.research.recorded_session import handed_on, read_session
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.train_walk_judge import judge_run, train_run, walk_run
from nvtrader_pipelines.storage.specs import read_experiment
from nvtrader_pipelines.storage.store import Store
from tests.research.search_homes import CAP, EVEN, cufolio, new_session, run

pytestmark = pytest.mark.slow

GRID = {"proposer": {"kind": "grid"}, "bounds": CAP, "budget": 10}


def chain(store):
    """Events of a hand-over, in the order of the audit."""
    return [event for event in store.audit.events() if event.kind in ("NewBest", "PolicyRetrained")]


def test_winner_becomes_an_experiment_whose_run_has_the_judged_files(planted_home):
    store, folder = Store(planted_home), new_session(planted_home, cufolio(EVEN), **GRID)
    closed = run(planted_home, folder)[-1]
    path = handed_on(planted_home, folder.session_id)
    assert path.stem == f"{folder.session_id}-winner"
    spec = read_experiment(path)
    plan = read_plan(store, spec.partition_key)
    steps = [*train_run(store, plan, Launch("t")), *walk_run(store, plan, Launch("t"))]
    drain(judge_run(store, plan, Launch("t")))
    assert "train.step" not in {step.stage for step in steps}
    sealed = store.policies.read_run(store.policies.read_latest(spec.partition_key))
    (judged,) = (planted_home.research_policies / folder.session_id).glob("*.zip")
    assert sealed == {(0, 0): judged.read_bytes()}
    new_best, retrained = chain(store)
    assert (new_best.kind, new_best.detail["rule"], new_best.detail["trial"]) == ("NewBest", "winner", closed.trial)
    assert (retrained.run_id, retrained.policy, retrained.spec_hash) == (plan.run_id, spec.name, spec.spec_hash)


def test_hand_over_that_was_killed_is_completed_and_then_left_alone(planted_home, monkeypatch):
    store, folder = Store(planted_home), new_session(planted_home, cufolio(EVEN), **GRID)
    with monkeypatch.context() as killing:
        killing.setattr(module, "adopt_policies", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(planted_home, folder)
    assert handed_on(planted_home, folder.session_id) is None
    assert run(planted_home, folder) == []  # the session is closed
    path = handed_on(planted_home, folder.session_id)
    assert len(chain(store)) == 2
    path.unlink()
    recorded = read_session(folder)
    hand_over(store, recorded.session, recorded.lines)
    assert (path.exists(), len(chain(store))) == (False, 2)


@pytest.mark.parametrize("rule", ["lower_bound", "best_sharpe"])
def test_best_sharpe_alone_is_handed_on_only_by_that_rule(noise_home, rule):
    noise_home.promotion_file.write_text(f"rule: {rule}\n")
    folder = new_session(noise_home, **GRID)
    assert run(noise_home, folder)[-1].outcome == "nothing found"
    path = handed_on(noise_home, folder.session_id)
    assert (path is not None) == (rule == "best_sharpe")
    events = chain(Store(noise_home))
    assert [event.detail["rule"] for event in events] == ["best_sharpe"] * 2 * (rule == "best_sharpe")
    if path:
        trials = {line.trial: line.sharpe for line in read_session(folder).lines if line.event == "trial"}
        assert trials[events[0].detail["trial"]] == max(filter(None, trials.values()))
        assert read_experiment(path).report_from == read_session(folder).session.spec.sealed_from


def test_policy_without_an_allocator_is_traded_through_cufolio():
    plain = ExperimentSpec(name="plain", agent=PpoAgent())
    allocator = module._with_cufolio(plain).pipeline.allocator
    assert isinstance(allocator, CufolioAllocator)
    assert allocator.max_position_pct <= plain.pipeline.risk_limits.max_position
    assert module._with_cufolio(cufolio()) == cufolio()
