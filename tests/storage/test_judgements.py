import datetime as dt
import json
import multiprocessing
import os
import shutil
import time

import polars as pl
import pytest

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.judgements import Judgements, Result

ROWS = pl.DataFrame(
    {"policy": ["a", "b"], "session": [dt.date(2024, 1, 2)] * 2, "weights": [[0.25, 0.75], [1.0, 0.0]]},
    schema={"policy": pl.Categorical(), "session": pl.Date, "weights": pl.List(pl.Float64)},
)


def test_stored_result_is_read_back_bit_for_bit(home):
    results = Judgements(home)
    results["one"] = Result({"seconds": 0.1, "latencies": [1e-3, 2e-3]}, {"curves": ROWS})
    found = Judgements(home).get("one")
    assert found is not None
    assert found.document == {"seconds": 0.1, "latencies": [1e-3, 2e-3]}
    assert found.frames["curves"].equals(ROWS)
    assert found.frames["curves"].schema == ROWS.schema
    assert results.get("other") is None
    assert ("one" in results, "other" in results) == (True, False)


def test_home_whose_path_reads_as_a_pattern_keeps_its_results(tmp_path):
    results = Judgements(Home(tmp_path / "a [b] *c"))
    results["one"] = Result(1.0, {"curves": ROWS})
    found = results.get("one")
    assert found is not None
    assert found.frames["curves"].equals(ROWS)


def replace_folder_by_file(folder):
    shutil.rmtree(folder)
    folder.write_text("{}")


def write_without_digests(folder):
    (folder / "manifest.json").unlink()
    (folder / "result.json").write_text(json.dumps({"seconds": 0.1}))


DAMAGE = {
    "missing frame": lambda folder: (folder / "curves.parquet").unlink(),
    "missing document": lambda folder: (folder / "result.json").unlink(),
    "missing manifest": lambda folder: (folder / "manifest.json").unlink(),
    "torn frame": lambda folder: os.truncate(folder / "curves.parquet", 40),
    "torn document": lambda folder: os.truncate(folder / "result.json", 3),
    "torn manifest": lambda folder: os.truncate(folder / "manifest.json", 30),
    "changed document": lambda folder: (folder / "result.json").write_text('{"seconds": 0.2}'),
    "changed frame": lambda folder: ROWS.head(1).write_parquet(folder / "curves.parquet"),
    "renamed frame": lambda folder: (folder / "curves.parquet").rename(folder / "actions.parquet"),
    "added frame": lambda folder: ROWS.write_parquet(folder / "untimed_curves.parquet"),
    "manifest without a frame": lambda folder: (folder / "manifest.json").write_text("{}"),
    "manifest of another type": lambda folder: (folder / "manifest.json").write_text("[1]"),
    "dangling link": lambda folder: (folder / "more.parquet").symlink_to(folder / "nowhere"),
    "folder in place of a frame": lambda folder: (folder / "more.parquet").mkdir(),
    "file in place of the folder": replace_folder_by_file,
    "older format": write_without_digests,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_result_is_absent_and_stored_again(home, damage):
    results, result = Judgements(home), Result({"seconds": 0.1}, {"curves": ROWS})
    results["one"] = result
    damage(home.judgements / "one")
    assert results.get("one") is None
    assert "one" not in results
    assert results.compute_once("one", lambda: result) == result
    found = results.get("one")
    assert found is not None
    assert found.frames["curves"].equals(ROWS)


def test_result_made_twice_keeps_the_first(home):
    results = Judgements(home)
    results["one"] = Result(1.0)
    results["one"] = Result(2.0)
    assert results.get("one") == Result(1.0)
    assert [path.name for path in home.judgements.iterdir()] == ["one"]


def compute_slowly(home):
    """Store a result that takes a while, and note each computation."""

    def compute():
        with (home.root / "computed").open("a") as file:
            file.write("x")
        time.sleep(0.3)
        return Result(1.0)

    assert Judgements(home).compute_once("one", compute) == Result(1.0)


@pytest.mark.slow
def test_two_processes_compute_a_result_once(home):
    workers = [multiprocessing.get_context("spawn").Process(target=compute_slowly, args=(home,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert (home.root / "computed").read_text() == "x"


def test_results_that_were_not_used_are_deleted(home):
    results = Judgements(home)
    results.compute_once("computed", lambda: Result(1.0))
    for path in home.judgements.iterdir():
        os.utime(path, (0, 0))
    for digest in ("old", "used", "new"):
        results[digest] = Result(digest)
    for digest in ("old", "used"):
        os.utime(home.judgements / digest, (0, 0))
    results.get("used")
    assert results.delete_unused(dt.datetime(2020, 1, 1, tzinfo=dt.UTC)) == 2
    assert sorted(path.name for path in home.judgements.iterdir()) == ["new", "used"]
