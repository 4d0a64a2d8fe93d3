from dataclasses import replace

import numpy as np
import pytest
import torch

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.training import Finished, train_all
from nvtrader_pipelines.policies.world_agents import WorldAgent
from nvtrader_pipelines.policies.world_agents.base import WorldTask
from nvtrader_pipelines.policies.world_agents.closed_forms import AlmgrenChrissAgent
from nvtrader_pipelines.policies.world_agents.deepscalper import DeepScalperAgent
from nvtrader_pipelines.policies.world_agents.eteo import EteoAgent
from nvtrader_pipelines.policies.world_agents.execution_backbones import PdDualRnn
from nvtrader_pipelines.policies.world_agents.hft_ddqn import HftDdqnAgent
from nvtrader_pipelines.policies.world_agents.opd import OpdAgent
from nvtrader_pipelines.worlds.book_trading import BookTrading
from nvtrader_pipelines.worlds.books import GeneratedBooks
from nvtrader_pipelines.worlds.market_making import MarketMaking
from nvtrader_pipelines.worlds.order_execution import OrderExecution
from nvtrader_pipelines.worlds.price_moves import MarketMoves
from nvtrader_pipelines.worlds.single_asset import FinAgentTrading, SingleAsset
from tests.contracts.families import members
from tests.panels import cut, eventful_panel
from tests.policies.small_learners import bits
from tests.policies.world_agents.planted import rewards

PANEL, WINDOW = eventful_panel(), (10, 100)
ORDERS, ASSET = OrderExecution(moves=MarketMoves(), lookback=2), SingleAsset(lookback=3, episode_len=20)
BOOK = BookTrading(books=GeneratedBooks(train_days=1, day_seconds=60), episode_len=20)
TINY = {"total_timesteps": 640, "n_envs": 16, "n_steps": 4, "batch_size": 32, "n_epochs": 1}
LEARNERS = {
    "eteo": (EteoAgent(**TINY), ORDERS),
    "opd": (OpdAgent(**TINY, foresight=2, backbone=PdDualRnn(hidden_size=4)), ORDERS),
    "deepscalper": (DeepScalperAgent(total_timesteps=640, learning_starts=320, batch_size=32), ASSET),
    "hft_ddqn": (HftDdqnAgent(total_timesteps=640, learning_starts=320, batch_size=32), BOOK),
}


@pytest.mark.parametrize("member", members(WorldAgent))
def test_agent_is_refused_in_a_world_of_another_kind(member):
    every = (SingleAsset(), FinAgentTrading(), OrderExecution(), MarketMaking(), BOOK)
    worlds = {kind_of(type(world)): world for world in every}
    for kind, world in worlds.items():
        if kind in member.worlds:
            member().require_world(world)
        else:
            with pytest.raises(ValueError, match=member.worlds[0]):
                member().require_world(world)


def test_backbone_that_reads_moves_is_refused_where_there_are_none():
    with pytest.raises(ValueError, match="pd_dual_rnn"):
        EteoAgent(backbone=PdDualRnn()).require_world(MarketMaking())


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "world"), LEARNERS.values(), ids=LEARNERS)
def test_equal_seeds_give_equal_bytes(agent, world):
    fits = []
    for seed in (0, 0, 1):
        torch.rand(7)
        np.random.random(7)  # noqa: NPY002 - the global generator is elsewhere, as in another process
        fits.append(agent.train(world, PANEL, WINDOW, seed))
    assert bits(fits[0]) == bits(fits[1])
    assert fits[0].curve == fits[1].curve
    assert bits(fits[0]) != bits(fits[2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eteo", "opd"])
def test_resumed_training_equals_an_uninterrupted_one(kind):
    (agent, world), saved, saved_later = LEARNERS[kind], [], []
    whole = agent.train(world, PANEL, WINDOW, 0, TrainingHooks(checkpoint=saved.append))
    assert len(saved) == 9
    torch.rand(7)
    rest = agent.train(world, PANEL, WINDOW, 0, TrainingHooks(checkpoint=saved_later.append, resume_from=saved[4]))
    assert saved_later == saved[5:]
    assert (bits(rest), rest.curve) == (bits(whole), whole.curve)
    with pytest.raises(CheckpointError):
        agent.train(world, PANEL, WINDOW, 1, TrainingHooks(resume_from=saved[4]))


@pytest.mark.slow
def test_tasks_in_processes_give_the_fits_of_the_agents():
    tasks = [WorldTask(0, 3, world, agent, WINDOW) for agent, world in LEARNERS.values()]
    tasks[2] = replace(tasks[2], resume_from=b"any")  # cannot resume, so it starts again
    fits = {event.task: event.fit for event in train_all(PANEL, tasks, 2) if isinstance(event, Finished)}
    assert set(fits) == set(tasks)
    for task in tasks:
        expected = task.agent.train(task.world, cut(PANEL, WINDOW[1]), WINDOW, 3)
        assert (bits(fits[task]), fits[task].curve) == (bits(expected), expected.curve)


@pytest.mark.slow
def test_task_without_a_market_is_trained_in_a_process():
    agent, world = LEARNERS["eteo"][0], OrderExecution()
    *_, finished = train_all(None, [WorldTask(0, 0, world, agent, None)], 1)
    assert bits(finished.fit) == bits(agent.train(world, None, None, 0))


def test_task_shows_no_session_after_the_window(monkeypatch):
    seen = []
    monkeypatch.setattr(AlmgrenChrissAgent, "train", lambda _, *arguments: seen.append(arguments[1]))
    WorldTask(0, 0, ORDERS, AlmgrenChrissAgent(), WINDOW).fit(PANEL, lambda _: None)
    assert seen[0].sessions.tolist() == PANEL.sessions[: WINDOW[1] + 1].tolist()
    assert len(seen[0].close_returns) == WINDOW[1] + 1


def test_closed_form_needs_no_training():
    task = WorldTask(0, 0, ORDERS, AlmgrenChrissAgent(), WINDOW)
    (finished,) = train_all(PANEL, [task])
    assert (finished.fit.tensors, finished.fit.curve, task.total_timesteps) == ({}, [], 0)
    decide = task.agent.start(ORDERS.examine(PANEL, WINDOW), finished.fit.tensors)
    expected = rewards(ORDERS, ORDERS.reference_actions, PANEL, WINDOW)
    np.testing.assert_array_equal(rewards(ORDERS, decide, PANEL, WINDOW), expected)
