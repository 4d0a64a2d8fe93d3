"""Experiments in worlds that run in seconds."""

from contextlib import closing
from itertools import islice

import yaml

from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.world_runs import run_world
from nvtrader_pipelines.storage.world_files import read_world

SALE = {
    "name": "sale",
    "world": {"kind": "tradesim_execution"},
    "agent": {"kind": "eteo", "total_timesteps": 640, "n_envs": 16, "n_steps": 8, "batch_size": 64, "n_epochs": 1},
}
CLOSED = {**SALE, "name": "closed", "agent": {"kind": "almgren_chriss"}}
TRADE = {
    "name": "trade",
    "world": {"kind": "tradesim_algotrading", "lookback": 3, "episode_len": 20},
    "agent": {"kind": "deepscalper", "total_timesteps": 400, "learning_starts": 100, "batch_size": 32},
    "market": {"source": "landing"},
}


def write_worlds(home, **specs):
    home.worlds.mkdir(parents=True, exist_ok=True)
    for name, spec in specs.items():
        (home.worlds / f"{name}.yaml").write_text(yaml.safe_dump(spec))


def run_steps(store, name, n_steps=None):
    """Run an experiment to its end, or for some steps; return its progress."""
    with closing(run_world(store, read_world(store.home, name), Launch("task"))) as steps:
        return [*islice(steps, n_steps)]
