"""Answers kept until their sources change."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nvtrader_pipelines import Pipeline
from nvtrader_pipelines.service.api.answers import MAX_KEPT, Answers
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.live_page import SECTIONS
from nvtrader_pipelines.storage.read_sources import _stamps, note_read, recording
from nvtrader_pipelines.storage.store import Store
from scripts.reference import OPERATIONS
from tests.homes import copy_home
from tests.research.sessions import JournalBuilder, a_session, write_session
from tests.runs.small_worlds import CLOSED, write_worlds

KEPT = {one.route: (family, one) for family, _, _, one in OPERATIONS if one.is_kept}


def answers_of(home, sources):
    answers, calls = Answers(home), []

    def ask(key="a"):
        def read():
            for source in sources:
                note_read(source)
            calls.append(key)
            return {"n": len(calls)}

        return answers.get((key,), read).body

    return ask, calls


def test_answer_of_unchanged_sources_is_read_once_by_many_threads(home):
    ask, calls = answers_of(home, [home.ledger])
    with ThreadPoolExecutor(8) as pool:
        bodies = {future.result() for future in [pool.submit(ask) for _ in range(64)]}
    assert (bodies, calls) == ({b'{"n":1}'}, ["a"])


def test_answer_is_read_again_when_a_source_changes(home):
    folder = home.root / "some" / "folder"
    ask, calls = answers_of(home, [home.ledger, folder.parent])
    ask()
    folder.mkdir(parents=True)
    (folder / "file").write_text("1")
    ask()
    home.ledger.parent.mkdir(parents=True, exist_ok=True)
    home.ledger.with_name(f"{home.ledger.name}-wal").write_text("1")
    ask()
    os.utime(folder / "file", ns=(1, 1))
    ask()
    (folder / "file").unlink()
    ask()
    ask()
    assert len(calls) == 5


def test_answers_of_a_ledger_in_postgres_are_read_each_time(home, monkeypatch):
    monkeypatch.setenv("NVTRADER_LEDGER_URL", "postgresql://user@host/name")
    ask, calls = answers_of(home, [home.ledger])
    ask(), ask()
    assert len(calls) == 2


def test_many_different_answers_do_not_grow_without_bound(home):
    answers = Answers(home)
    for number in range(3 * MAX_KEPT):
        answers.get((number,), lambda: 1)
    assert len(answers._kept) <= MAX_KEPT + 1


@pytest.fixture(scope="module")
def files_read():
    """Files and folders that this process opens to read."""
    paths = []

    def hook(event, arguments):
        if event in {"os.scandir", "os.listdir", "sqlite3.connect"} or (event == "open" and not arguments[2] & 3):
            paths.append(str(arguments[0]).removeprefix("file://").partition("?")[0])

    sys.addaudithook(hook)
    return paths


@pytest.fixture(scope="module")
def waiting(waiting, tmp_path_factory):
    """Copy of the home whose plan waits, to be written."""
    return copy_home(waiting, tmp_path_factory.mktemp("waiting") / "home")


@pytest.fixture(scope="module")
def names(waiting):
    """Names of things that routes name, after a search session and with a bot."""
    waiting.bots.mkdir(exist_ok=True)
    (waiting.bots / "robo.yaml").write_text("policy: active\naccount: paper\n")
    write_session(waiting, a_session(), JournalBuilder().trial(0.1).lines)
    pipeline = Pipeline(waiting.root)
    policy, plan = pipeline.policies.list().policies[0].policy, pipeline.plans.list(waiting=True)["plan"][0]
    write_worlds(waiting, closed=CLOSED)
    named = {"run": "tiny", "experiment": "tiny", "policy": policy, "plan": plan, "bot": "robo", "world": "closed"}
    return {**named, "session_id": a_session().session_id}


def read_answer(context, name, names):
    """Read the answer of a route, or a section of the page."""
    if name not in KEPT:
        return SECTIONS[name].read(context)
    family, operation = KEPT[name]
    return operation.call(family(context.opened), {key: names[key] for key in names if f"{{{key}" in name})


@pytest.mark.parametrize("name", [*KEPT, *SECTIONS])
def test_every_file_that_an_answer_opens_is_a_source(waiting, names, files_read, name):
    context = Context(Store(waiting), "ann")
    files_read.clear()
    with recording() as sources:
        read_answer(context, name, names)
    opened = {Path(path) for path in files_read if path.startswith(str(waiting.root))}
    noted = {argument for _, *arguments in sources for argument in arguments}
    folders = {path for read, path, *_ in sources if read is _stamps} | {waiting.iceberg}  # named by the catalog
    assert sources
    assert {path for path in opened - noted if not folders & {*path.parents}} == set()
    with recording() as second:
        read_answer(context, name, names)
    assert {key[-1] for key in sources.keys() - second.keys()} <= {waiting.market_file}  # of panels in memory
