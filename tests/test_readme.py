"""Every command, query, document and path of the README is tried."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from tests.homes import nvtrader

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
MAY_BE_EMPTY = {"silver.quarantine"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.mark.parametrize("words", [words for words in commands() if words[0] == "make"], ids=" ".join)
def test_every_make_target_of_the_readme_exists(words):
    planned = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize("words", [words for words in commands() if words[0] == "nvtrader"], ids=lambda words: words[1])
def test_every_nvtrader_command_of_the_readme_runs(words, built_home):
    serving = ["--help"] if words[1] == "ui" else []  # a test of its own starts and stops the server
    finished = nvtrader(built_home, *words[1:], *serving)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip()


def test_no_other_command_stands_in_the_readme():
    assert {words[0] for words in commands()} == {"make", "nvtrader"}


@pytest.mark.parametrize("query", blocks("sql"), ids=lambda query: query.splitlines()[0].removeprefix("-- "))
def test_every_query_of_the_readme_gives_rows(query, built_home):
    finished = nvtrader(built_home, "sql", "--format", "json", "--", query)
    assert finished.returncode == 0, finished.stderr
    rows = json.loads(finished.stdout)
    assert rows or any(table in query for table in MAY_BE_EMPTY)


@pytest.mark.parametrize("document", blocks("yaml"))
def test_every_experiment_of_the_readme_is_valid(document):
    assert ExperimentSpec.model_validate(yaml.safe_load(document)).name


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"))
def test_the_python_of_the_readme_runs(code):
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_every_folder_and_picture_of_the_readme_is_there():
    table = README.partition("| folder | what is there |")[2].partition("\n\n")[0]
    folders = re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert len(folders) > 5
    assert pictures
    missing = [name for name in (*folders, *pictures) if not (ROOT / name).exists()]
    assert missing == []
