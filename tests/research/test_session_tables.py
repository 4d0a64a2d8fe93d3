import shutil

import pytest

from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.research.session_tables import search_trials
from nvtrader_pipelines.storage.store import Store
from tests.research.search_homes import fail_jobs, new_session, run, trials_of

pytestmark = pytest.mark.slow


def test_search_trials_have_the_returns_in_the_session_folder(noise_home, monkeypatch):
    folder = new_session(noise_home)
    fail_jobs(monkeypatch, lambda job: job.number == 7)  # the second trial, after five seeds of the base
    run(noise_home, folder)
    found = search_trials(Store(noise_home))
    judged = trials_of(folder, "judged")
    assert found["trial_id"].to_list() == [line.trial for line in judged] == [1, 3, 4]
    assert [sharpe_ratio(row.to_numpy(), 252) for row in found["net_returns"]] == pytest.approx(
        found["sharpe"].to_list()
    )
    assert set(found["source"]) == {"landing"}
    shutil.rmtree(folder.path)
    without = search_trials(Store(noise_home))
    assert without.drop("net_returns").equals(found.drop("net_returns"))
    assert without["net_returns"].null_count() == 3


def test_home_without_sessions_has_no_search_trials(noise_home):
    found = search_trials(Store(noise_home))
    assert (len(found), found["net_returns"].dtype.inner) == (0, found["sharpe"].dtype)
