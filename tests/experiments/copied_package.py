"""A copy of the folders that decide, whose code digests tests compare before and after a change."""

import shutil
from pathlib import Path

import pytest

import nvtrader_pipelines
from nvtrader_pipelines.experiments import code_digest as identity
from nvtrader_pipelines.experiments.code_digest import DECIDING, code_digest, code_of
from nvtrader_pipelines.storage.specs import read_experiment

FOLDER = Path(nvtrader_pipelines.__file__).parent
SHIPPED = [read_experiment(path) for path in sorted((FOLDER.parent / "data" / "experiments").glob("ppo-*.yaml"))]


def forget():
    code_digest.cache_clear()
    identity._program.cache_clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the folders that decide, which the identity reads."""
    for folder in (*DECIDING, "execution", "scoreboard", "promotion", "research", "figures"):
        shutil.copytree(FOLDER / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity, "files", lambda _: tmp_path)
    forget()
    yield tmp_path
    forget()


def run_codes():
    forget()
    return [code_of(spec) for spec in SHIPPED]
