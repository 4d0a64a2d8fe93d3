import os
import time

import pytest

from nvtrader_pipelines.scoreboard.contests import BUILT_IN
from nvtrader_pipelines.scoreboard.shares import MIN_SHARE, share_processes


def write_share(home, source, contests, share):
    """Leave a file with what a process was given."""
    (home.root / f"share-{share[0]}").write_text(f"{source} {len(contests)} {share[1]}")


def wait(home, source, contests, share):
    """Leave a file, then work for long."""
    (home.root / f"share-{share[0]}").touch()
    time.sleep(60.0)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_few_new_entrants_start_no_process(home):
    with share_processes(write_share, home, "sample", BUILT_IN, 2 * MIN_SHARE - 1) as n_shares:
        assert n_shares == 1
    assert list(home.root.glob("share-*")) == []


def test_many_new_entrants_are_judged_in_a_process_per_core(home):
    with share_processes(write_share, home, "sample", BUILT_IN, 9 * MIN_SHARE) as n_shares:
        assert n_shares == 2
    assert [(path.name, path.read_text()) for path in home.root.glob("share-*")] == [("share-1", "sample 2 2")]


def test_interrupted_judgement_ends_its_processes(home):
    def interrupt():
        with share_processes(wait, home, "sample", BUILT_IN, 2 * MIN_SHARE):
            while not (home.root / "share-1").exists():
                time.sleep(0.05)
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert time.monotonic() - began < 50.0
