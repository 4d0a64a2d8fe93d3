import time

import numpy as np
import pytest

from nvtrader_pipelines.research.trial_judgement import judge
from nvtrader_pipelines.research.trial_pool import TrialPool
from tests.forkserver import kill_workers, workers
from tests.research.small_trials import CUFOLIO, DIGEST, ENDLESS, EQUAL, PANEL, PPO, RESIDUAL, job_of

pytestmark = pytest.mark.slow

SECONDS = 60.0


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


def test_killed_worker_fails_its_job_and_is_replaced(pool):
    before = workers()
    with TrialPool(PANEL, DIGEST, PPO, 1) as alone:
        alone.submit(job_of(ENDLESS, 7))
        kill_workers(before)
        result = alone.wait(SECONDS)
        assert (result.number, result.returns, bool(result.error)) == (7, None, True)
        assert results_of(alone, [job_of(EQUAL)])[1].error == ""
    assert pool.n_idle == 2


def test_killed_job_with_attempts_left_begins_again():
    before = workers()
    with TrialPool(PANEL, DIGEST, EQUAL, 1) as alone:
        alone.submit(job_of(EQUAL, 7, n_attempts=2))
        kill_workers(before)
        assert alone.wait(SECONDS) is None
        assert alone.n_idle == 0
        result = alone.wait(SECONDS)
    assert (result.number, result.error) == (7, "")


def test_error_in_the_code_reaches_the_caller(pool):
    with pytest.raises(AttributeError):
        results_of(pool, [job_of(PPO.model_copy(update={"agent": None}))])
    assert results_of(pool, [job_of(EQUAL)])[1].error == ""
