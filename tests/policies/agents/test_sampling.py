import json

import numpy as np
import polars as pl
import pytest
import torch

from nvtrader_pipelines.envs.observations.builder import observation_hashes
from nvtrader_pipelines.policies.agents import sampling
from nvtrader_pipelines.policies.agents.sampling import EpisodeSampler
from nvtrader_pipelines.policies.rollout_tables import STEP
from nvtrader_pipelines.policies.trajectory import PlayedStep
from tests.markets import synthetic_panel
from tests.policies.agents.learners import EVERYTHING, N, environment
from tests.policies.small_learners import SPEC

PANEL = synthetic_panel(160, 3)
N_STEPS = 70
SPECS = pytest.mark.parametrize("spec", [SPEC, EVERYTHING, SPEC.model_copy(update={"fill": "same_close"})])


class OracleSampler:
    """Every episode that has ended, row by row in plain Python."""

    def __init__(self, simulation):
        self.sessions = simulation.panel.sessions.tolist()
        self.wait = 0 if simulation.spec.fill == "same_close" else 1
        self.numbers, self.begun = list(range(N)), N
        self.open, self.ended = {}, []

    def record(self, played, values, log_probs):
        for i in range(N):
            if played.running[i]:
                rows = self.open.setdefault(self.numbers[i], [])
                judged = (None if said is None else float(said.reshape(-1)[i]) for said in (values, log_probs))
                rows.append((self.numbers[i], len(rows), *self.row(played, i, *judged)))
        for i in range(N):
            if played.done[i]:
                self.ended += self.open.pop(self.numbers[i])
                self.numbers[i], self.begun = self.begun, self.begun + 1

    def row(self, played, i, value, log_prob):
        step, t = played.step, int(played.t[i])
        return (
            *(self.sessions[t], self.sessions[t + self.wait]),
            int(observation_hashes(played.observation[i : i + 1])[0]),
            *(played.action[i].tolist(), float(step.reward[i]), value, log_prob),
            *(float(step.account.path[i, -1]), float(played.drawdown[i])),
            float(step.account.transition.turnover[i]),
            *(bool(step.terminated[i]), bool(step.truncated[i])),
            {
                "reward_terms": {kind: float(values[i]) for kind, values in step.account.reward_terms.items()},
                "termination": next((kind for kind, where in step.triggered.items() if where[i]), None),
            },
        )

    def rollouts(self):
        return self.ended


def game(spec, *, judged=True, n_steps=N_STEPS):
    """The simulation of a game played at random, and what there is to record of each of its steps."""
    env, generator = environment(PANEL, spec), np.random.default_rng(1)
    env.reset()
    steps = []
    for _ in range(n_steps):
        env.step(generator.uniform(-3.0, 3.0, (N, env.action_space.shape[0])).astype(np.float32))
        said = torch.as_tensor(generator.normal(size=(2, N)).astype(np.float32))
        steps.append((env.last_step, *((said[0][:, None], said[1]) if judged else (None, None))))
    return env.simulation, steps


def recorded(sampler, steps):
    for step in steps:
        sampler.record(*step)
    return sampler


@pytest.mark.slow
@SPECS
@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize("chunk", [40, 4096])
def test_sampled_rows_match_a_row_by_row_oracle(spec, judged, chunk, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", chunk)
    simulation, steps = game(spec, judged=judged)
    rollouts = recorded(EpisodeSampler(simulation, 1.0, 0), steps).rollouts()
    assert rollouts.schema == pl.Schema(STEP)
    assert len(rollouts) >= 2 * N * 20
    told = pl.Series([json.loads(info) for info in rollouts["info"]], dtype=pl.Object)
    expected = recorded(OracleSampler(simulation), steps).rollouts()
    assert told.to_list() == [row[-1] for row in expected]
    without_info = {name: dtype for name, dtype in STEP.items() if name != "info"}
    oracle = pl.DataFrame([row[:-1] for row in expected], schema=without_info, orient="row")
    assert rollouts.drop("info").equals(oracle)


def test_sampler_counts_only_steps_of_running_episodes():
    simulation, steps = game(SPEC)
    paused = []
    for number, (played, values, log_probs) in enumerate(steps):
        running = np.arange(N) % 3 != number % 3
        parts = (played.observation, played.action, played.t, played.drawdown, played.step)
        paused.append((PlayedStep(*parts, running), values, log_probs))
    found = recorded(EpisodeSampler(simulation, 1.0, 0), paused).rollouts()
    expected = recorded(OracleSampler(simulation), paused).rollouts()
    assert found.select("episode", "step").rows() == [row[:2] for row in expected]


def test_sampler_copies_arrays():
    simulation, steps = game(SPEC)
    sampler, expected = EpisodeSampler(simulation, 1.0, 0), recorded(EpisodeSampler(simulation, 1.0, 0), steps)
    for played, values, log_probs in steps:
        sampler.record(played, values, log_probs)
        account = played.step.account
        for array in (played.action, played.t, played.drawdown, played.step.truncated, account.path):
            array[...] = 0
        values.zero_()
    assert sampler.rollouts().drop("terminated").equals(expected.rollouts().drop("terminated"))


@pytest.mark.parametrize("at", [0, 1, 13, 25, 60])
def test_restored_sampler_continues_bit_for_bit(at, monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 32)
    simulation, steps = game(EVERYTHING)
    whole, first, second = (EpisodeSampler(simulation, 0.5, 0) for _ in range(3))
    recorded(whole, steps)
    arrays, facts = recorded(first, steps[:at]).state()
    second.restore({name: array.copy() for name, array in arrays.items()}, json.loads(json.dumps(facts)))
    recorded(second, steps[at:])
    assert second.rollouts().equals(whole.rollouts())
    assert second.state()[1] == whole.state()[1]
    states = [{name: array.tobytes() for name, array in each.state()[0].items()} for each in (second, whole)]
    assert states[0] == states[1]


def test_compressed_chunks_never_change(monkeypatch):
    monkeypatch.setattr(sampling, "CHUNK", 32)
    simulation, steps = game(SPEC)
    sampler = recorded(EpisodeSampler(simulation, 1.0, 0), steps[:40])
    before = {name: array for name, array in sampler.state()[0].items() if name.startswith("chunk")}
    after = recorded(sampler, steps[40:]).state()[0]
    assert len(before) > 3
    assert all(after[name] is array for name, array in before.items())
