"""Guides: the first experiment runs as shown; of the others the commands, queries, documents and imports are valid.

Nightly, every guide runs in a home of its own.
"""

import ast
import datetime as dt
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer

from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.desk.bot_files import read_bot
from nvtrader_pipelines.orchestration.workflow_files import read_workflow
from nvtrader_pipelines.orchestration.workflows import JOB_TAGS
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.research.alphas import read_alpha
from nvtrader_pipelines.research.space_file import read_bounds
from nvtrader_pipelines.scoreboard.contests import read_contests
from nvtrader_pipelines.service.api.app import FAMILIES
from nvtrader_pipelines.service.cli.app import app
from nvtrader_pipelines.service.python_api import Pipeline
from nvtrader_pipelines.storage.compliance_files import read_compliance, read_limits
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_entrant, read_experiments, read_market
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import FILLS, TRAJECTORIES
from nvtrader_pipelines.storage.views.queries import query_views
from nvtrader_pipelines.storage.world_files import read_world_file
from tests.execution.brokers.alpaca_stub import KEYS, AlpacaStub, serving
from tests.homes import environment

GUIDES = sorted((Path(__file__).resolve().parents[1] / "docs" / "guides").glob("*.md"))
NOTEBOOK = GUIDES[0].parents[1] / "examples" / "python.ipynb"
NAMED = {guide.stem: guide for guide in GUIDES}
FIRST_EXPERIMENT = NAMED["first-experiment"]
CONTINUES = {  # guide to the guide whose home, with its trained policies, it continues
    "paper-trading": FIRST_EXPERIMENT,
    "feedback": NAMED["paper-trading"],
    "preferences": NAMED["feedback"],
    "policies": NAMED["scoreboard"],
    "sweep": NAMED["own-data"],
    "troubleshooting": NAMED["sweep"],  # in a chain, since they share a home
    "server": NAMED["troubleshooting"],
}
SHORTER = {  # trainings and tests of seconds in place of those that a guide shows
    "total_timesteps: 51200": "total_timesteps: 3200",
    "test_first: 2015-01-01\n  test_last": "test_first: 2018-01-01\n  test_last",
    "--to 2022-12-31": "--to 2019-06-28",
    "total_timesteps: 26624": "total_timesteps: 6656",
    '"total_timesteps": 6144': '"total_timesteps": 2048',
    "total_timesteps=30_000": "total_timesteps=2_000",
    "ExecutionSimulation(world, 10_000)": "ExecutionSimulation(world, 500)",
    "MarketMaking(), 500": "MarketMaking(), 20",
}
END = "END-OF-BLOCK"
SHOWN = {"text", "ini", "mermaid"}  # blocks that are not run: output, system files, diagrams
VENV = Path(sys.executable).parent
LIMITS = "max_gross: 4\nmax_net: 4\nmax_short: 1\nmin_net: -4\n"  # of a desk that allows every experiment of a guide
WITH_BROKER = {"alpaca"}  # guides that a test of their own runs
RECORDING = """
pip() { :; }
nvtrader() { printf '%s\\x1e' "$(printf '%s\\x1f' "$@")" >> calls; echo "$ANSWER"; }
python() { :; }
head() { :; }
curl() { :; }
kill() { :; }
"""  # in place of what takes seconds, also beside each other; ANSWER stands in for the id that a query finds
SERVING = f"""
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
nvtrader() {{ [ "$1" != serve ] || exec {shlex.quote(str(VENV / "nvtrader"))} "$@"; command nvtrader "$@"; }}
"""  # a service in a process of its own, which the guide's `kill` ends, or its failure
EDITABLE = f"""
export PYTHONPATH="$PWD/site:${{PYTHONPATH:-}}"
nvtrader() {{ {shlex.quote(str(VENV / "nvtrader"))} "$@"; }}
pip() {{
  python -m pip install -q --no-deps --no-build-isolation --no-index --target site ./my-agent
  ln -sf ../my-agent/random_search.py site/
}}
"""  # a package beside the shared environment; the fast command has imported its own already
SHIPPED = shlex.quote(str(GUIDES[0].parents[2] / "data" / "worlds"))
BEFORE = {  # what a guide's own commands need
    "worlds": f"mkdir -p data/worlds\ncp {SHIPPED}/*.yaml data/worlds/\n",  # as a new home has them
    "own-agent": EDITABLE,
    "alpaca": f'nvtrader() {{ {shlex.quote(sys.executable)} -m tests.evening "$@"; }}\n',
}
READERS: dict[str, Callable[[Home, Path], object]] = {  # of a home's files, which raise if one is invalid
    "data/market.yaml": lambda home, _: read_market(home),
    "data/contests.yaml": lambda home, _: read_contests(home),
    "data/promotion.yaml": lambda home, _: read_gate(home),
    "data/compliance/sectors.csv": lambda home, _: read_compliance(home),
    "data/compliance/limits.yaml": lambda home, _: read_limits(home),
    "data/accounts/*.yaml": lambda home, path: read_account(home, path.stem),
    "data/alphas/*.yaml": lambda home, path: read_alpha(home, path.stem),
    "data/bots/*.yaml": lambda home, path: read_bot(home, path.stem),
    "data/workflows/*.yaml": lambda home, path: read_workflow(home, path.stem, JOB_TAGS),
    "data/worlds/*.yaml": lambda _, path: read_world_file(path),
    "data/autoresearch/*.yaml": lambda _, path: read_bounds(path),
    "data/entrants/*.yaml": lambda _, path: read_entrant(path),
    "data/experiments/*.yaml": lambda home, _: read_experiments(home),  # a test of its own reads their versions
}


def blocks(guide: Path) -> list[tuple[str, str]]:
    """Language and content of every fenced block, in order."""
    return re.findall(r"^```(.*?)\n(.*?)^```$", guide.read_text(), flags=re.DOTALL | re.MULTILINE)


def heredoc(command: str, content: str) -> str:
    return f"{command} <<'{END}'\n{content}{END}\n"


def shortened(content: str) -> str:
    """Block with the timesteps of a short training."""
    for shown, short in SHORTER.items():
        content = content.replace(shown, short)
    return content


def document(content: str) -> str:
    """Shell command that writes a YAML block to the file named in its first line."""
    path = content.partition("\n")[0].removeprefix("# ")
    assert re.fullmatch(r"data/[\w./-]+\.yaml", path), f"the first line must name the file, but it is {path!r}"
    return heredoc(f"cat > {shlex.quote(path)}", content)


def file_and_run(content: str) -> str:
    """Shell command that runs a Python block as a user does, from a file, or writes the file of its first line."""
    if named := re.match(r"# (([\w-]+)/\w+\.py)\n", content):
        return f"mkdir -p {named[2]}\n{heredoc(f'cat > {named[1]}', content)}"
    return f"{heredoc('cat > block.py', shortened(content))}python block.py\n"


SHELL: dict[str, Callable[[str], str]] = {
    "bash": shortened,
    "yaml": lambda content: document(shortened(content)),
    "sql": partial(heredoc, "nvtrader sql --format json"),
    "python": file_and_run,
    **dict.fromkeys(SHOWN, lambda _: ""),
}


def script(guide: Path) -> str:
    """Shell script of a guide; adjacent queries go to one SQL shell."""
    parts = []
    doing = [(name, text) for name, text in blocks(guide) if name not in SHOWN]
    for name, group in groupby(doing, key=itemgetter(0)):
        texts = [text for _, text in group]
        commands = [SHELL[name](";\n".join(texts))] if name == "sql" else map(SHELL[name], texts)
        parts += [f"echo; echo '=== {name}'\n{command}" for command in commands]
    return "\n".join(parts)


def run_script(guide: Path, home: Home, fast_nvtrader: Path) -> dict[str, Any]:
    """Run a guide as one shell script that stops at the first failure."""
    home.root.mkdir(exist_ok=True)
    path = os.pathsep.join([str(fast_nvtrader.parent), str(VENV), os.environ["PATH"]])
    text, own = SERVING + BEFORE.get(guide.stem, "") + script(guide), {**environment(home), "PATH": path}
    shell = ["bash", "-euo", "pipefail", "-c", text]
    finished = subprocess.run(shell, check=False, capture_output=True, cwd=home.root, env=own, text=True, timeout=1200)
    return {"code": finished.returncode, "stdout": finished.stdout, "stderr": finished.stderr}


@pytest.fixture(scope="session")
def run_guide(shared_folder: Path, fast_nvtrader: Path) -> Callable[[Path], tuple[Home, dict[str, Any]]]:
    """Function that runs a guide, once per test session, and returns its home and outcome."""

    def once(guide: Path) -> tuple[Home, dict[str, Any]]:
        before = CONTINUES.get(guide.stem)
        home = once(before)[0] if before else Home(shared_folder / f"guide-{guide.stem}")
        outcome = shared_folder / f"guide-{guide.stem}.json"
        with file_lock(shared_folder / f"guide-{guide.stem}.lock"):
            if not outcome.exists():
                outcome.write_text(json.dumps(run_script(guide, home, fast_nvtrader)))
        return home, json.loads(outcome.read_text())

    return once


@pytest.fixture(scope="session")
def first_experiment(run_guide: Callable[[Path], tuple[Home, dict[str, Any]]]) -> Home:
    """Home of the guide of the first experiment, after it was run."""
    return run_guide(FIRST_EXPERIMENT)[0]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_blocks_of_a_guide_have_known_languages(guide):
    assert {language for language, _ in blocks(guide)} <= SHELL.keys()
    assert guide.read_text().count("\n```") == 2 * len(blocks(guide))


def documents(guide: Path) -> list[str]:
    """Experiments in the YAML blocks of a guide, after those of the guides that it continues."""
    before = CONTINUES.get(guide.stem)
    own = [text for name, text in blocks(guide) if name == "yaml" and text.startswith("# data/experiments/")]
    return [*(documents(before) if before else []), *own]


def versions(files: list[str], folder: Path) -> set[str]:
    """Partition keys of the experiments in these files and of their variants."""
    (folder / "data/experiments").mkdir(parents=True)
    (folder / "data/compliance").mkdir()
    (folder / "data/compliance/limits.yaml").write_text(LIMITS)
    subprocess.run(["bash", "-euc", "".join(map(document, files))], cwd=folder, check=True)
    found = read_experiments(Home(folder))
    assert found.problems == {}
    assert len(found.specs) == len(files)
    return {each.partition_key for spec in found.specs for each in (spec, *spec.variants())}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_versions_in_a_guide_are_those_of_its_documents(guide, tmp_path):
    shown = set(re.findall(r"[\w-]+@[0-9a-f]{8}\b", guide.read_text()))
    files, before = documents(guide), documents(CONTINUES[guide.stem]) if guide.stem in CONTINUES else []
    known = versions(files, tmp_path / "all")
    assert known - versions(before, tmp_path / "before") <= shown <= known


DOING = [guide for guide in GUIDES if any(language not in SHOWN for language, _ in blocks(guide))]
WHOLE = [guide for guide in DOING if guide.stem not in WITH_BROKER]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, built_home) -> Callable[[Path], tuple[Home, list[list[str]]]]:
    """Function that returns a home with a guide's documents, and the arguments of the guide's `nvtrader` commands."""
    run_id = Store(built_home).ledger.runs()["run_id"][0]

    @cache
    def record(guide: Path) -> tuple[Home, list[list[str]]]:
        home = Home(tmp_path_factory.mktemp(guide.stem) / "home")
        if guide.stem in CONTINUES:
            shutil.copytree(record(CONTINUES[guide.stem])[0].root, home.root)
        home.experiments.mkdir(parents=True, exist_ok=True)
        (home.root / "calls").write_text("")
        command = ["bash", "-euo", "pipefail", "-c", RECORDING + script(guide)]
        subprocess.run(command, cwd=home.root, env={**os.environ, "ANSWER": run_id}, check=True, capture_output=True)
        calls = (home.root / "calls").read_text().split("\x1e")[:-1]
        return home, [call.split("\x1f")[:-1] for call in calls]

    return record


@cache
def parser() -> Any:
    """The command with all options and arguments, which does nothing."""
    tree = typer.main.get_command(app)
    todo = [tree]
    while todo:
        command = todo.pop()
        command.callback = None
        todo += getattr(command, "commands", {}).values()
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("guide", DOING, ids=lambda guide: guide.stem)
def test_commands_of_a_guide_exist_with_their_options(guide, recorded):
    nvtrader = parser()
    for arguments in recorded(guide)[1]:
        nvtrader.main(arguments, standalone_mode=False)  # raises for an unknown command or option


def test_parser_of_guides_refuses_unknown_command_and_option():
    for arguments in (["runs", "replya"], ["runs", "list", "--jsn"]):
        with pytest.raises(typer.TyperException):
            parser().main(arguments, standalone_mode=False)


@pytest.mark.slow
@pytest.mark.parametrize("guide", DOING, ids=lambda guide: guide.stem)
def test_queries_of_a_guide_name_existing_columns(guide, recorded, built_home):
    queries = [text for language, text in blocks(guide) if language == "sql"]
    queries += [words[-1] for words in recorded(guide)[1] if words[0] == "sql" and " " in words[-1]]
    for query in queries:
        query_views(Store(built_home), f"EXPLAIN {query}")


@pytest.mark.slow
@pytest.mark.parametrize("guide", DOING, ids=lambda guide: guide.stem)
def test_documents_of_a_guide_are_valid(guide, recorded):
    home, _ = recorded(guide)
    for path in [*home.root.glob("data/**/*.yaml"), *home.root.glob("data/compliance/*.csv")]:
        (reader,) = [read for pattern, read in READERS.items() if path.relative_to(home.root).match(pattern)]
        reader(home, path)


def code_blocks(guide: Path) -> list[str]:
    """Python blocks of a guide, or cells of a notebook."""
    if guide.suffix == ".md":
        return [text for language, text in blocks(guide) if language == "python"]
    return ["".join(cell["source"]) for cell in json.loads(guide.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize(
    "guide",
    [*map(NAMED.get, ("python", "own-data", "scoreboard", "own-agent", "gpu")), NOTEBOOK],
    ids=lambda path: path.stem,
)
def test_python_of_a_guide_imports_and_calls_what_exists(guide):
    tree = ast.parse("\n".join(code_blocks(guide)))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), guide.name, "exec"), {})
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pipeline"
    }
    assert used <= {*dir(Pipeline), *(family.__name__.lower() for family in FAMILIES)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["mean-cvar", "weight-pipeline", pytest.param("worlds", marks=pytest.mark.nightly)],  # which trains
)
def test_python_of_a_guide_without_home_runs(name, capsys):
    for text in code_blocks(NAMED[name]):
        exec(compile(shortened(text), f"{name}.md", "exec"), {})
        assert capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.parametrize("guide", WHOLE, ids=lambda guide: guide.stem)
def test_guide_runs_without_error(guide, run_guide):
    outcome = run_guide(guide)[1]
    assert outcome["code"] == 0, outcome["stdout"][-3000:] + outcome["stderr"]


@pytest.mark.nightly
@pytest.mark.parametrize("guide", WHOLE, ids=lambda guide: guide.stem)
def test_queries_of_a_guide_return_rows(guide, run_guide):
    parts = re.split(r"^=== ", run_guide(guide)[1]["stdout"], flags=re.MULTILINE)
    answers = [json.loads(line) for part in parts if part.startswith("sql\n") for line in part.splitlines()[1:] if line]
    assert len(answers) == sum(language == "sql" for language, _ in blocks(guide))
    assert all(answers)


def test_quickstart_in_python_has_at_most_25_lines():
    quickstart = (
        NAMED["python"].read_text().partition("## Quickstart")[2].partition("```python\n")[2].partition("```")[0]
    )
    assert "from nvtrader_pipelines import Pipeline" in quickstart
    assert len(quickstart.splitlines()) <= 25


def test_notebook_is_stored_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell["id"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.nightly
def test_cells_of_notebook_run_in_order_in_one_process(run_guide):
    home, _ = run_guide(NAMED["python"])  # it has the same prices and experiments
    (home.root / "notebook.py").write_text(shortened("\n".join(code_blocks(NOTEBOOK))))
    finished = subprocess.run(
        [sys.executable, "notebook.py"],
        cwd=home.root,
        env={**environment(home), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.nightly
def test_numbers_changed_in_own_agent_make_a_version_and_a_run(run_guide):
    runs = Store(run_guide(NAMED["own-agent"])[0]).ledger.runs()
    assert runs["status"].unique().to_list() == ["done"]
    assert runs.group_by("spec_hash").len()["len"].sort().to_list() == [1, 2]


@pytest.mark.nightly
def test_guide_of_alpaca_ends_with_orders_filled_at_the_open(tmp_path, monkeypatch):
    home, guide, stub = Home(tmp_path / "home"), tmp_path / "alpaca.md", AlpacaStub()
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    monkeypatch.setenv("APCA_API_SECRET_KEY", KEYS[1])
    monkeypatch.setenv("PYTHONPATH", str(GUIDES[0].parents[2]))
    with serving(stub):
        for day, part in zip((29, 30), NAMED["alpaca"].read_text().split("## The next evening"), strict=True):
            stub.clock = dt.datetime(2026, 6, day, 21, 30, tzinfo=dt.UTC)
            monkeypatch.setenv("EVENING", stub.clock.isoformat())
            guide.write_text(part.replace("paper: true\n", f"paper: true\nbase_url: {stub.url}\n"))
            outcome = run_script(guide, home, VENV / "nvtrader")
            assert outcome["code"] == 0, outcome["stdout"][-3000:] + outcome["stderr"]
            stub.open_exchange()
            stub.is_open = False
    fills = Store(home).tables.read(FILLS)
    assert fills["session"].to_list() == [dt.date(2026, 6, 30)] * 6
    assert dict(fills.select("symbol", "quantity").iter_rows()) == stub.positions


@pytest.mark.nightly
@pytest.mark.slow
def test_first_experiment_has_one_version(first_experiment):
    assert Store(first_experiment).ledger.versions()["name"].to_list() == ["first-ppo"]


@pytest.mark.nightly
@pytest.mark.slow
def test_first_experiment_trains_three_policies_for_its_timesteps(first_experiment):
    ledger = Store(first_experiment).ledger
    run_id = ledger.runs().filter(kind="walk_forward")["run_id"].item()
    assert ledger.policies(run_id)["seed"].to_list() == [0, 1, 2]
    steps = ledger.events(run_id).drop_nulls("timesteps").group_by("seed").agg(pl.col("timesteps").max()).sort("seed")
    assert steps.rows() == [(0, 3200), (1, 3200), (2, 3200)]


@pytest.mark.nightly
@pytest.mark.slow
def test_replays_of_first_experiment_share_its_version_and_parent_run(first_experiment):
    runs = Store(first_experiment).ledger.runs()
    own, replays = runs.filter(kind="walk_forward"), runs.filter(kind="replay")
    assert len(runs) == 3
    assert runs["status"].unique().to_list() == ["done"]
    assert runs["spec_hash"].n_unique() == 1
    assert replays["parent_run_id"].to_list() == own["run_id"].to_list() * 2


@pytest.mark.nightly
@pytest.mark.slow
def test_replay_of_own_window_equals_tests_of_first_experiment(first_experiment):
    runs = Store(first_experiment).ledger.runs()
    own = runs.filter(kind="walk_forward")
    again = runs.filter(pl.col("kind") == "replay", pl.col("window_first") == own["window_first"].item())
    rows = Store(first_experiment).tables.read(TRAJECTORIES)
    keys = ["policy", "fold", "step"]
    tested, replayed = (
        rows.filter(run_id=run["run_id"].item(), phase=phase).drop("run_id", "phase").sort(keys)
        for run, phase in ((own, "test"), (again, "replay"))
    )
    assert len(tested) > 400
    assert replayed.equals(tested)
