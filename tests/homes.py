"""A small home folder: three synthetic names over three years, landed as one CSV, and one experiment that trains in seconds."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.home import Home
from tests.markets import synthetic_bars

NVTRADER = str(Path(sys.executable).with_name("nvtrader"))
EXPERIMENT = {
    "name": "tiny",
    "market": {"source": "landing"},
    "environment": {"lookback": 5, "episode_len": 20},
    "agent": {"kind": "ppo", "n_envs": 8, "n_steps": 16, "batch_size": 128, "total_timesteps": 256, "n_epochs": 1},
    "splitter": {"train_months": 9, "test_months": 6},
    "baselines": [
        {"kind": "equal_weight"},
        {"kind": "buy_and_hold"},
        {"kind": "minimum_variance", "history": 42},
        {"kind": "mean_cvar", "history": 42, "estimate_every": 42},
    ],
    "seeds": [0, 1, 2],
    "report_from": "2017-01-01",
}
KEY = ExperimentSpec.model_validate(EXPERIMENT).partition_key


def small_home(root: Path) -> Home:
    """A home with nothing built yet."""
    home = Home(root)
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    home.market_file.write_text("sources:\n  - kind: landing\n")
    synthetic_bars(n_sessions=756).write_csv(home.landing / "prices.csv")
    (home.experiments / "tiny.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    return home


def environment(home: Home) -> dict[str, str]:
    """The variables of a shell in which the home is named, with one thread per library."""
    own = {"NVTRADER_HOME": str(home.root), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "180"}
    return {**{name: value for name, value in os.environ.items() if not name.startswith("DAGSTER")}, **own}


def nvtrader(home: Home, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """Run the installed command on a home, from another folder."""
    options = {"cwd": home.root.parent, "timeout": 240, **options}
    return subprocess.run(
        [NVTRADER, *arguments], env=environment(home), capture_output=True, text=True, check=False, **options
    )
