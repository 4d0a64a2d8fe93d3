"""README and pages beside the guides: their commands, queries, documents and paths work."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiments
from tests.homes import HOLDOUT, copy_home, nvtrader, write_experiment

ROOT = Path(__file__).resolve().parents[1]
MAX_README = 150  # lines
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/quickstart.md")),
    *sorted(DOCS.glob("concepts/*.md")),
    *sorted(DOCS.glob("reference/*.md")),
]
# nothing trades or searches in the built home
MAY_BE_EMPTY = {"silver.quarantine", "portfolio.fills", "research.trials", "ledger.looks", "ledger.annotations"}
STAND_INS = {"ppo-growth": "tiny"}  # what the built home has in place of an experiment of minutes
OWN = "my-first"  # the experiment that a reader writes
RULE = {"kind": "momentum", "months": 2}  # in place of a training of minutes


def blocks(language: str) -> list[str]:
    return [block for page in PAGES for block in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)]


def commands() -> list[list[str]]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    found = [tuple(shlex.split(line, comments=True)) for line in lines if line.strip()]
    return [list(words) for words in dict.fromkeys(found)]  # pages repeat each other


@pytest.mark.slow
@pytest.mark.parametrize("words", [words for words in commands() if words[0] == "make"], ids=" ".join)
def test_make_targets_of_a_page_exist(words):
    planned = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr


def is_writing(words: list[str]) -> bool:
    """Whether a command writes files, which the shared built home does not allow."""
    return OWN in words or words[1] in {"schema", "report", "trade", "halt", "resume"}


READING = [words for words in commands() if words[0] == "nvtrader" and not is_writing(words)]
WRITING = [words for words in commands() if words[0] == "nvtrader" and is_writing(words)]


@pytest.mark.parametrize("words", READING, ids=lambda words: " ".join(words[1:3]))
def test_reading_command_of_a_page_exits_with_0(words, invoke):
    serving = ["--help"] if words[1] == "ui" else []  # a test of its own starts and stops the server
    finished = invoke(*[STAND_INS.get(word) or word for word in words[1:]], *serving)
    assert finished.exit_code == 0, finished.stderr
    assert finished.stdout.strip()


@pytest.mark.slow
def test_writing_commands_of_a_page_run_in_order(built_home, tmp_path, command, fast_nvtrader, monkeypatch):
    home = copy_home(built_home, tmp_path / "home")
    invoke = command(home)
    monkeypatch.chdir(home.root)
    own = [words[1:3] for words in WRITING if OWN in words]
    assert own[:2] == [["experiments", "new"], ["experiments", "run"]]
    for words in WRITING:
        if words[1:3] == ["experiments", "run"]:
            finished = nvtrader(home, *words[1:], command=fast_nvtrader, cwd=home.root)
            assert finished.returncode == 0, finished.stderr
            continue
        finished = invoke(*words[1:])
        assert finished.exit_code == 0, f"{words}: {finished.stderr}"
        if words[1:3] == ["experiments", "new"]:  # what is written there would take minutes
            assert (home.experiments / f"{OWN}.yaml").exists()
            write_experiment(home, f"{OWN}.yaml", name=OWN, splitter=HOLDOUT, agent=RULE, seeds=[0])
    assert json.loads((home.root / "experiment.schema.json").read_text())["title"] == "Experiment"


def test_pages_use_only_make_and_nvtrader():
    assert {words[0] for words in commands()} == {"make", "nvtrader"}


@pytest.mark.parametrize("query", blocks("sql"), ids=lambda query: re.search(r"FROM (\S+)", query)[1])
def test_query_of_a_page_returns_rows(query, invoke):
    finished = invoke("sql", "--format", "json", query)
    assert finished.exit_code == 0, finished.stderr
    rows = json.loads(finished.stdout)
    assert rows or any(table in query for table in MAY_BE_EMPTY)


def test_experiments_of_a_page_are_valid_beside_the_shipped_ones(tmp_path):
    home = Home(tmp_path)
    shutil.copytree(Home(ROOT).experiments, home.experiments)
    documents = {block.partition("\n")[0].removeprefix("# "): block for block in blocks("yaml")}
    for path, document in documents.items():
        (tmp_path / path).write_text(document)
    found = read_experiments(home)
    assert found.problems == {}
    assert {spec.name for spec in found.specs} >= {Path(path).stem for path in documents}


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"))
def test_python_of_a_page_runs(code):
    exec(compile(code, "page.md", "exec"), {})


def test_folders_of_the_architecture_page_exist():
    table = (DOCS / "concepts/architecture.md").read_text().partition("| folder | contents |")[2].partition("\n\n")[0]
    folders = re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)
    assert len(folders) > 5
    assert [name for name in folders if not (ROOT / name).is_dir()] == []


def test_readme_is_short_and_marks_its_results():
    readme = PAGES[0].read_text()
    assert len(readme.splitlines()) <= MAX_README
    assert readme.index("<!-- results:begin -->") < readme.index("<!-- results:end -->")
