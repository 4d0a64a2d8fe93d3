"""Streams of progress: order, resumption and ends."""

import asyncio
from types import SimpleNamespace

import pytest

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.orchestration.job_states import JobRun
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.api import progress_stream
from nvtrader_pipelines.service.api.progress_stream import News, Step, Streams


def step(number, stage="train.step"):
    return Step(number, Progress(task_id="t", run_id="r", stage=stage, message=str(number), timestamp=now()))


@pytest.fixture
def source(monkeypatch):
    """Messages that a test adds, and the reads of them."""
    monkeypatch.setattr(progress_stream, "POLL_SECONDS", 0.01)

    class Source:
        steps, is_ended, n_reads = [], False, 0

        def read(self, _store, _task, after):
            self.n_reads += 1
            is_ended = self.is_ended
            return News([each for each in self.steps if each.number > after], is_ended)

    source = Source()
    source.steps = []
    monkeypatch.setattr(progress_stream, "read_news", source.read)
    return source


async def collect(streams, after=0):
    return [each.number async for each in streams.follow("t", after)]


def test_followers_get_every_message_once_in_order(source):
    async def follow():
        streams = Streams(None)
        early = [asyncio.create_task(collect(streams)) for _ in range(20)]
        for number in range(1, 31):
            source.steps.append(step(number))
            await asyncio.sleep(0.003)
        late = asyncio.create_task(collect(streams, after=11))
        await asyncio.sleep(0.03)
        source.is_ended = True
        return await asyncio.gather(*early), await late, streams

    early, late, streams = asyncio.run(follow())
    assert early == [list(range(1, 31))] * 20
    assert late == list(range(12, 31))
    assert source.n_reads < 100  # one reader, not one per follower
    assert not streams._streams


def test_stream_of_an_ended_task_has_its_messages_and_ends(source):
    source.steps, source.is_ended = [step(1, "start"), step(5, "done")], True
    assert asyncio.run(collect(Streams(None))) == [1, 5]
    assert asyncio.run(collect(Streams(None), after=5)) == []


def test_end_of_the_server_ends_streams_at_once(source):
    async def follow():
        streams = Streams(None)
        followers = [asyncio.create_task(collect(streams)) for _ in range(20)]
        source.steps.append(step(1))
        await asyncio.sleep(0.05)
        streams.end()
        return await asyncio.wait_for(asyncio.gather(*followers), 0.5)

    assert asyncio.run(follow()) == [[1]] * 20


def test_follower_that_leaves_ends_the_reader(source):
    async def follow():
        streams = Streams(None)
        follower = asyncio.create_task(collect(streams))
        await asyncio.sleep(0.03)
        follower.cancel()
        await asyncio.sleep(0.03)
        n_reads = source.n_reads
        await asyncio.sleep(0.05)
        return n_reads

    assert asyncio.run(follow()) == source.n_reads


@pytest.mark.parametrize(
    ("status", "stages", "expected"),
    [
        ("STARTED", ["start", "done"], ["start"]),
        ("STARTED", ["start", "done", "evaluate.step"], ["start", "evaluate.step"]),
        ("SUCCESS", ["start", "done", "evaluate.step", "done"], ["start", "evaluate.step", "done"]),
        ("SUCCESS", ["start"], ["start", "done"]),
        ("SUCCESS", [], ["done"]),
        ("FAILURE", ["start", "done"], ["start", "error"]),
        ("FAILURE", ["start", "error"], ["start", "error"]),
        ("CANCELED", [], ["error"]),
    ],
)
def test_news_of_a_run_end_once_as_dagster_ended_it(monkeypatch, status, stages, expected):
    at = now()
    run = JobRun(run_id="t", job="experiment", status=status, created_at=at, started_at=at, ended_at=at, tags={})
    shared = SimpleNamespace(job_runs=SimpleNamespace(run=lambda _: run, failure=lambda _: "no prices"))
    steps = [step(number, stage) for number, stage in enumerate(stages, start=5)]
    monkeypatch.setattr(progress_stream, "read_run", lambda *_: steps)
    news = progress_stream.read_news(shared, "t", 4)
    assert [each.progress.stage for each in news.steps] == expected
    assert news.is_last == (status != "STARTED")
    numbers = [each.number for each in news.steps]
    assert numbers == sorted(set(numbers))
    if expected[-1] == "error" and stages[-1:] != ["error"]:
        assert news.steps[-1].progress.message == "no prices"
