"""The template package: really installed, and used through the command line."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import polars as pl
import pytest
import yaml

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, RUNS
from tests.homes import EXPERIMENT, environment, nvtrader, small_home

TEMPLATE = Path(__file__).parents[1] / "docs" / "examples" / "own-parts"
OWN = {
    **EXPERIMENT,
    "name": "own",
    "market": {"source": "landing", "features": [{"kind": "efficiency"}]},
    "environment": {**EXPERIMENT["environment"], "rewards": [{"kind": "log_growth"}, {"kind": "worst_session"}]},
    "agent": {**EXPERIMENT["agent"], "kind": "warm_up_ppo", "total_timesteps": 256},
    "splitter": {"kind": "holdout", "test_first": "2017-01-01"},
    "baselines": [{"kind": "equal_weight"}],
}
RULE = {**OWN, "name": "rule", "market": {"source": "landing"}, "environment": EXPERIMENT["environment"]}
RULE |= {"agent": {"kind": "buy_and_hold"}, "seeds": [0]}

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Folder that the template package is installed into."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", folder, TEMPLATE], check=True)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """Home with an experiment that uses the parts, and one that does not."""
    home = small_home(tmp_path_factory.mktemp("own") / "home")
    (home.experiments / "tiny.yaml").unlink()
    for spec in (OWN, RULE):
        (home.experiments / f"{spec['name']}.yaml").write_text(yaml.safe_dump(spec))
    return home


def run(home, site, *arguments):
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return nvtrader(home, *arguments, env={**environment(home), "PYTHONPATH": paths})


def edit(site, module, old, new):
    path = site / "own_parts" / f"{module}.py"
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new))


def trained_runs(home):
    """Walk-forward runs by experiment."""
    runs = Store(home).tables.read(RUNS).filter(pl.col("kind") == "walk_forward")
    return {name: sorted(rows["run_id"]) for (name,), rows in runs.group_by("experiment")}


def test_template_is_installed_with_its_entry_points(site):
    found = entry_points(group="nvtrader_pipelines.components") if str(site) in sys.path else ()
    assert not found  # the tests' own process does not have it
    assert (site / "own_parts-0.1.0.dist-info" / "entry_points.txt").read_text().count("own_parts.") == 4


def test_template_passes_its_own_tests(site):
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-k", "not warm_up"]
    finished = subprocess.run(
        [*command, "tests"], cwd=TEMPLATE, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False
    )
    assert finished.returncode == 0, finished.stdout.decode()


def test_own_parts_are_trained_judged_replayed_and_refused_if_they_look_ahead(home, site):
    listed = run(home, site, "components", "rewards", "--json")
    assert "worst_session" in listed.stdout
    first = run(home, site, "experiments", "run", "own", "rule", "--no-judge")
    assert first.returncode == 0, first.stdout + first.stderr
    before = trained_runs(home)
    judged = Store(home).tables.read(EVALUATIONS).filter(pl.col("run_id") == before["own"][0])
    assert {"own", "own/seed-2", "equal_weight"} <= set(judged["policy"])
    replayed = run(home, site, "runs", "replay", before["own"][0])
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    traded = run(home, site, "backtest", "dip_buyer", "--json")
    assert traded.returncode == 0, traded.stdout + traded.stderr

    edit(site, "rewards", "min=0.0)", "min=0.001)")  # another formula
    again = run(home, site, "experiments", "run", "own", "rule", "--no-judge")
    assert again.returncode == 0, again.stdout + again.stderr
    after = trained_runs(home)
    assert after["rule"] == before["rule"]
    assert len(set(after["own"]) - set(before["own"])) == 1

    edit(site, "features", "return np.divide(", "path[:-1] = path[1:]\n        return np.divide(")
    refused = run(home, site, "experiments", "run", "own", "--no-judge")
    assert refused.returncode == 3
    assert "the feature efficiency_21 must not look ahead" in " ".join((refused.stdout + refused.stderr).split())
    assert trained_runs(home) == after

    edit(site, "features", '"""A feature."""', '"""A feature."""\nimport not_installed')
    broken = run(home, site, "experiments", "run", "own", "--no-judge")
    assert broken.returncode == 3
    assert "the part features.efficiency of package own-parts must be importable" in broken.stdout + broken.stderr
    assert run(home, site, "sql", "SELECT 1").returncode == 0
    assert run(home, site, "experiments", "run", "rule", "--no-judge").returncode == 0
    assert run(home, site, "components").returncode == 0
