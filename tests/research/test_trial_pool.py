import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from nvtrader_pipelines.research.trial_judgement import judge
from nvtrader_pipelines.research.trial_pool import JudgementError, TrialPool
from tests.research.small_trials import CUFOLIO, DIGEST, ENDLESS, EQUAL, PANEL, PPO, RESIDUAL, job_of

pytestmark = pytest.mark.slow

SECONDS = 60.0
KILLED = """
from nvtrader_pipelines.research.trial_pool import TrialPool
from tests.research.small_trials import DIGEST, ENDLESS, EQUAL, PANEL, job_of
with TrialPool(PANEL, DIGEST, EQUAL, 2) as pool:
    pool.submit(job_of(EQUAL))
    pool.wait(60.0)
    pool.submit(job_of(ENDLESS))
    print("judging", flush=True)
    pool.wait(60.0)
"""


@pytest.fixture(scope="module")
def pool():
    with TrialPool(PANEL, DIGEST, PPO, 2) as started:
        yield started


def results_of(pool, jobs):
    waiting, results = list(jobs), {}
    while len(results) < len(jobs):
        while waiting and pool.n_idle:
            pool.submit(waiting.pop(0))
        result = pool.wait(SECONDS)
        results[result.number] = result
    return results


def workers():
    """Children of the fork server."""
    return {child for child in psutil.Process().children(recursive=True) if child.ppid() != os.getpid()}


def test_results_equal_judgement_in_process_whatever_the_worker(pool):
    jobs = [job_of(PPO, 1), job_of(PPO, 2, seed=5, keeps_policy=True), job_of(RESIDUAL, 3), job_of(CUFOLIO, 4)]
    results = results_of(pool, jobs)
    assert pool.n_idle == 2
    for job in jobs:
        found, expected = results[job.number], judge(job, PANEL, DIGEST)
        assert (found.seed, found.fold_sharpes, found.error) == (job.seed, expected.fold_sharpes, "")
        np.testing.assert_array_equal(found.returns, expected.returns)
        assert found.archives == expected.archives


def test_wait_without_a_result_in_time_returns_none():
    with TrialPool(PANEL, DIGEST, PPO, 1) as pool:
        pool.submit(job_of(ENDLESS))
        assert pool.n_idle == 0
        assert pool.wait(0.1) is None
        began = time.monotonic()
    assert time.monotonic() - began < 5.0  # ends in the middle of a judgement


@pytest.mark.parametrize("judging", [True, False])
def test_killed_worker_fails_its_job_and_is_replaced(pool, judging):
    before = workers()
    with TrialPool(PANEL, DIGEST, PPO, 1) as alone:
        (worker,) = workers() - before
        if judging:
            alone.submit(job_of(ENDLESS, 7))
        worker.kill()
        if not judging:
            psutil.wait_procs([worker])
            alone.submit(job_of(ENDLESS, 7))
        result = alone.wait(SECONDS)
        assert (result.number, result.returns, bool(result.error)) == (7, None, True)
        assert results_of(alone, [job_of(EQUAL)])[1].error == ""
    assert pool.n_idle == 2


def test_killed_job_with_attempts_left_begins_again():
    with TrialPool(PANEL, DIGEST, EQUAL, 1) as alone:
        alone._workers[0].process.kill()
        alone._workers[0].process.join()
        alone.submit(job_of(EQUAL, 7, n_attempts=2))
        assert alone.wait(SECONDS) is None
        assert alone.n_idle == 0
        result = alone.wait(SECONDS)
    assert (result.number, result.error) == (7, "")


def test_worker_ignores_interrupts_of_its_group(pool):
    results_of(pool, [job_of(EQUAL, 1), job_of(EQUAL, 2)])  # both workers have started
    pool.submit(job_of(PPO))
    for worker in workers():
        worker.send_signal(signal.SIGINT)
    assert pool.wait(SECONDS).error == ""


def test_error_in_the_code_reaches_the_caller_with_its_traceback(pool):
    with pytest.raises(JudgementError, match="AttributeError"):
        results_of(pool, [job_of(PPO.model_copy(update={"agent": None}))])
    assert results_of(pool, [job_of(EQUAL)])[1].error == ""


def test_no_worker_outlives_a_killed_caller():
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "judging\n"
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 3  # the fork server and the workers
        process.kill()
        _, alive = psutil.wait_procs(started, timeout=SECONDS)
        assert alive == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
