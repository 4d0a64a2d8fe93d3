"""Answers kept until their sources change."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from nvtrader_pipelines.service.api.answers import MAX_KEPT, Answers


def answers_of(home, sources):
    answers, calls = Answers(home), []

    def ask(key="a"):
        def read():
            calls.append(key)
            return {"n": len(calls)}

        return answers.get((key,), sources, read).body

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


@pytest.mark.parametrize("url", ["postgresql://user@host/name", "sqlite:////tmp/other.db"])
def test_answers_of_a_ledger_elsewhere_are_read_each_time(home, monkeypatch, url):
    monkeypatch.setenv("NVTRADER_LEDGER_URL", url)
    ask, calls = answers_of(home, [home.ledger])
    ask(), ask()
    assert len(calls) == 2


def test_many_different_answers_do_not_grow_without_bound(home):
    answers = Answers(home)
    for number in range(3 * MAX_KEPT):
        answers.get((number,), [], lambda: 1)
    assert len(answers._kept) <= MAX_KEPT + 1
