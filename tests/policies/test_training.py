import time
from dataclasses import replace

import psutil
import pytest
from safetensors.torch import save

from nvtrader_pipelines.components.executor import WorkerEndedError
from nvtrader_pipelines.policies.agents import TrainingHooks
from nvtrader_pipelines.policies.fit import Start
from nvtrader_pipelines.policies.training import (
    Checkpointed,
    Finished,
    Stepped,
    TrainingTask,
    train_all,
)
from tests.markets import synthetic_panel
from tests.policies.small_learners import AGENT, RESIDUAL_AGENT, RESIDUAL_SPEC, SPEC, WINDOW, bits, endless

pytestmark = pytest.mark.slow

PANEL = synthetic_panel(160, 3)
LONG = endless(AGENT)
COSTLESS = SPEC.model_copy(update={"turnover_cost_bps": 0.0})
SLICED = AGENT.model_copy(update={"total_timesteps": 1280})  # ten rollouts


def task_of(seed, agent=AGENT, spec=SPEC, **how):
    return TrainingTask(fold=0, seed=seed, window=WINDOW, environment=spec, agent=agent, **how)


def fits(events):
    return {event.task: event.fit for event in events if isinstance(event, Finished)}


def until_finished(events):
    return next(event for event in events if isinstance(event, Finished))


def assert_same(fit, other):
    assert fit.scaler == other.scaler
    assert fit.curve == other.curve
    assert fit.rollouts.equals(other.rollouts)
    assert bits(fit) == bits(other)


def descendants():
    return {child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_training_in_processes_equals_training_in_process():
    tasks = [task_of(0), task_of(1, sample_rate=1.0), task_of(2, RESIDUAL_AGENT, RESIDUAL_SPEC)]
    found = fits(train_all(PANEL, tasks, n_processes=2))
    assert set(found) == set(tasks)
    for task in tasks:
        hooks = TrainingHooks(sample_rate=task.sample_rate)
        assert_same(found[task], task.agent.train(PANEL, task.environment, task.window, task.seed, hooks))


def test_events_of_a_task_are_curve_and_checkpoints_then_finished():
    tasks = [task_of(seed, SLICED) for seed in range(2)]
    events = list(train_all(PANEL, tasks, 2))
    for task in tasks:
        own = [event for event in events if event.task is task]
        assert isinstance(own[-1], Finished)
        points = [(event.timesteps, event.mean_reward) for event in own if isinstance(event, Stepped)]
        assert points == own[-1].fit.curve
        scalars = [set(event.scalars) for event in own if isinstance(event, Stepped)]
        assert scalars[0] == {"time/fps"}  # before the first update
        assert scalars[-1] >= {"time/fps", "train/approx_kl", "train/entropy_loss", "train/explained_variance"}
        assert [type(event) for event in own] == [Stepped, *[Checkpointed, Stepped] * 9, Finished]


@pytest.fixture(scope="module")
def whole():
    """Events of a training that nothing interrupted."""
    return list(train_all(PANEL, [task_of(0, SLICED, sample_rate=0.5)], 1))


def test_task_resumed_from_a_checkpoint_gives_the_same_fit(whole):
    checkpoint = next(event.content for event in whole if isinstance(event, Checkpointed) and len(event.content))
    rest = list(train_all(PANEL, [task_of(0, SLICED, sample_rate=0.5, resume_from=checkpoint)], 1))
    assert len([event for event in rest if isinstance(event, Stepped)]) == 9
    assert_same(rest[-1].fit, whole[-1].fit)


def test_task_with_an_unusable_checkpoint_starts_again(whole):
    events = list(train_all(PANEL, [task_of(0, SLICED, sample_rate=0.5, resume_from=b"damaged")], 1))
    assert len([event for event in events if isinstance(event, Stepped)]) == 10
    assert_same(events[-1].fit, whole[-1].fit)


def test_stages_train_from_the_tensors_before_and_count_their_steps():
    task = task_of(0, SLICED, stages=((COSTLESS, AGENT), (SPEC, AGENT)))
    events = list(train_all(PANEL, [task], 1))
    start = None
    for agent, spec in ((AGENT, COSTLESS), (AGENT, SPEC), (SLICED, SPEC)):
        fit = agent.train(PANEL, spec, WINDOW, 0, TrainingHooks(start=start))
        start = Start(fit.scaler, save(fit.tensors), "")
    assert bits(events[-1].fit) == bits(fit)
    timesteps = [event.timesteps for event in events if isinstance(event, Stepped)]
    assert timesteps == [128, 256, 384, 512, *range(640, 1793, 128)] == [n for n, _ in events[-1].fit.curve]
    assert task.total_timesteps == timesteps[-1]
    checkpoint = next(event.content for event in events if isinstance(event, Checkpointed))
    resumed = list(train_all(PANEL, [replace(task, resume_from=checkpoint)], 1))
    assert_same(resumed[-1].fit, events[-1].fit)


def test_nothing_to_train_starts_nothing():
    before = descendants()
    assert list(train_all(PANEL, [])) == []
    assert descendants() <= before


def test_stopping_early_ends_the_workers_at_once():
    list(train_all(PANEL, [task_of(0)], 1))  # the fork server, which stays, is running
    before = descendants()
    results = train_all(PANEL, [task_of(0), *(task_of(seed, LONG) for seed in range(1, 5))], 2)
    until_finished(results)
    assert len(descendants() - before) == 2
    results.close()
    assert wait_until(lambda: descendants() <= before)


def test_failed_training_raises_its_error_and_ends_the_workers():
    list(train_all(PANEL, [task_of(0)], 1))
    before = descendants()
    broken = TrainingTask(0, 0, (150, 151), SPEC, AGENT)
    with pytest.raises(ValueError):
        list(train_all(PANEL, [broken, *(task_of(seed, LONG) for seed in range(1, 5))], 2))
    assert wait_until(lambda: descendants() <= before)


def test_killed_worker_raises_and_ends_the_other_workers():
    list(train_all(PANEL, [task_of(0)], 1))
    before = descendants()
    results = train_all(PANEL, [task_of(0), *(task_of(seed, LONG) for seed in range(1, 5))], 2)
    until_finished(results)
    min(descendants() - before, key=lambda worker: worker.pid).kill()
    with pytest.raises(WorkerEndedError):
        list(results)
    assert wait_until(lambda: descendants() <= before)
