"""Every guide is worked through in a home of its own: each command, query, document and program, in order."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import TRAJECTORIES
from tests.homes import environment

GUIDES = sorted((Path(__file__).resolve().parents[1] / "docs" / "guides").glob("*.md"))
NAMED = {guide.stem: guide for guide in GUIDES}
FIRST_EXPERIMENT = NAMED["first-experiment"]
GOES_ON_AFTER = {  # in the home of another guide, with what was trained there
    "paper-trading": FIRST_EXPERIMENT,
    "policies": NAMED["scoreboard"],
    "sweep": NAMED["own-data"],
    "troubleshooting": NAMED["sweep"],  # one after the other: they share a home
    "server": NAMED["troubleshooting"],
}
END = "END-OF-BLOCK"
SHOWN = {"text", "ini", "mermaid"}  # blocks that show output, files of the system and pictures
VENV = Path(sys.executable).parent


def blocks(guide: Path) -> list[tuple[str, str]]:
    """Language and content of every fenced block, in order."""
    return re.findall(r"^```(.*?)\n(.*?)^```$", guide.read_text(), flags=re.DOTALL | re.MULTILINE)


def heredoc(command: str, content: str) -> str:
    return f"{command} <<'{END}'\n{content}{END}\n"


def document(content: str) -> str:
    """Shell that writes a YAML block to the file that its first line names."""
    path = content.partition("\n")[0].removeprefix("# ")
    assert re.fullmatch(r"data/[\w./-]+\.yaml", path), f"the first line must name the file, but it is {path!r}"
    return heredoc(f"cat > {shlex.quote(path)}", content)


SHELL: dict[str, Callable[[str], str]] = {
    "bash": lambda content: content,
    "yaml": document,
    "sql": partial(heredoc, "nvtrader sql --format json"),
    "python": partial(heredoc, "python -"),
    **dict.fromkeys(SHOWN, lambda _: ""),
}


def script(guide: Path) -> str:
    """A guide as one shell script; queries with nothing to do between them are typed into one shell of SQL."""
    parts = []
    doing = [(name, text) for name, text in blocks(guide) if name not in SHOWN]
    for name, group in groupby(doing, key=itemgetter(0)):
        texts = [text for _, text in group]
        commands = [SHELL[name](";\n".join(texts))] if name == "sql" else map(SHELL[name], texts)
        parts += [f"echo '=== {name}'\n{command}" for command in commands]
    return "\n".join(parts)


def work_through(guide: Path, home: Home, forked: Path) -> dict[str, Any]:
    """Run a guide as one shell script that stops at the first failure."""
    home.root.mkdir(exist_ok=True)
    path = os.pathsep.join([str(forked.parent), str(VENV), os.environ["PATH"]])
    shell, own = ["bash", "-euo", "pipefail", "-c", script(guide)], {**environment(home), "PATH": path}
    finished = subprocess.run(shell, check=False, capture_output=True, cwd=home.root, env=own, text=True, timeout=1200)
    return {"code": finished.returncode, "stdout": finished.stdout, "stderr": finished.stderr}


@pytest.fixture(scope="session")
def worked(shared_folder: Path, forked: Path) -> Callable[[Path], tuple[Home, dict[str, Any]]]:
    """A guide's home after it was worked through, and what that gave; once for every process of a test session."""

    def once(guide: Path) -> tuple[Home, dict[str, Any]]:
        before = GOES_ON_AFTER.get(guide.stem)
        home = once(before)[0] if before else Home(shared_folder / f"guide-{guide.stem}")
        outcome = shared_folder / f"guide-{guide.stem}.json"
        with locked(shared_folder / f"guide-{guide.stem}.lock"):
            if not outcome.exists():
                outcome.write_text(json.dumps(work_through(guide, home, forked)))
        return home, json.loads(outcome.read_text())

    return once


@pytest.fixture(scope="session")
def first_experiment(worked: Callable[[Path], tuple[Home, dict[str, Any]]]) -> Home:
    """The home of the first experiment's guide."""
    return worked(FIRST_EXPERIMENT)[0]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_block_of_a_guide_is_one_that_is_tested(guide):
    assert {language for language, _ in blocks(guide)} <= SHELL.keys()
    assert guide.read_text().count("\n```") == 2 * len(blocks(guide))


def documents(guide: Path) -> list[str]:
    """The YAML files of a guide, after those of the guides that it continues."""
    before = GOES_ON_AFTER.get(guide.stem)
    return [*(documents(before) if before else []), *(text for name, text in blocks(guide) if name == "yaml")]


def versions(files: list[str], folder: Path) -> set[str]:
    """Partition keys of the experiments in these files and of their variants."""
    (folder / "data/experiments").mkdir(parents=True)
    subprocess.run(["bash", "-euc", "".join(map(document, files))], cwd=folder, check=True)
    found = read_experiments(Home(folder))
    assert found.problems == {}
    assert len(found.specs) == len(files)
    return {each.partition_key for spec in found.specs for each in (spec, *spec.variants())}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_version_that_a_guide_shows_is_what_its_documents_are(guide, tmp_path):
    shown = set(re.findall(r"[\w-]+@[0-9a-f]{8}\b", guide.read_text()))
    files, before = documents(guide), documents(GOES_ON_AFTER[guide.stem]) if guide.stem in GOES_ON_AFTER else []
    known = versions(files, tmp_path / "all")
    assert known - versions(before, tmp_path / "before") <= shown <= known


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_command_of_a_guide_runs_in_order(guide, worked):
    outcome = worked(guide)[1]
    assert outcome["code"] == 0, outcome["stdout"][-3000:] + outcome["stderr"]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_query_of_a_guide_gives_rows(guide, worked):
    parts = re.split(r"^=== ", worked(guide)[1]["stdout"], flags=re.MULTILINE)
    answers = [json.loads(line) for part in parts if part.startswith("sql\n") for line in part.splitlines()[1:]]
    assert len(answers) == sum(language == "sql" for language, _ in blocks(guide))
    assert all(answers)


@pytest.mark.slow
def test_the_first_experiment_is_one_version(first_experiment):
    assert Store(first_experiment).ledger.versions()["name"].to_list() == ["first-ppo"]


@pytest.mark.slow
def test_the_first_experiment_trains_three_policies_for_the_steps_it_states(first_experiment):
    ledger = Store(first_experiment).ledger
    run_id = ledger.runs().filter(kind="walk_forward")["run_id"].item()
    assert ledger.policies(run_id)["seed"].to_list() == [0, 1, 2]
    steps = ledger.events(run_id).drop_nulls("timesteps").group_by("seed").agg(pl.col("timesteps").max()).sort("seed")
    assert steps.rows() == [(0, 51200), (1, 51200), (2, 51200)]


@pytest.mark.slow
def test_the_replays_of_the_first_experiment_are_runs_of_its_version_under_its_run(first_experiment):
    runs = Store(first_experiment).ledger.runs()
    own, replays = runs.filter(kind="walk_forward"), runs.filter(kind="replay")
    assert len(runs) == 3
    assert runs["status"].unique().to_list() == ["done"]
    assert runs["spec_hash"].n_unique() == 1
    assert replays["parent_run_id"].to_list() == own["run_id"].to_list() * 2


@pytest.mark.slow
def test_the_replay_of_its_own_window_has_the_rows_of_the_first_experiments_tests(first_experiment):
    runs = Store(first_experiment).ledger.runs()
    own = runs.filter(kind="walk_forward")
    again = runs.filter(pl.col("kind") == "replay", pl.col("window_first") == own["window_first"].item())
    rows = Store(first_experiment).tables.read(TRAJECTORIES)
    keys = ["policy", "fold", "step"]
    tested, replayed = (
        rows.filter(run_id=run["run_id"].item(), phase=phase).drop("run_id", "phase").sort(keys)
        for run, phase in ((own, "test"), (again, "replay"))
    )
    assert len(tested) > 1000
    assert replayed.equals(tested)
