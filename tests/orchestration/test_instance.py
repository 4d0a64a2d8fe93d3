import os

import pytest
import yaml

from nvtrader_pipelines.orchestration.instance import dagster_home, open_instance
from nvtrader_pipelines.storage.home import Home


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", "elsewhere")
    return Home(tmp_path)


def test_the_shipped_settings_are_accepted_and_used(home):
    with open_instance(home) as instance:
        assert instance.root_directory == str(home.dagster)
        assert os.environ["DAGSTER_HOME"] == str(home.dagster)
        assert not instance.telemetry_enabled
        assert instance.run_retries_enabled
        assert not instance.run_retries_max_retries > 1
        assert instance.run_monitoring_enabled
        limits = instance.get_concurrency_config()
        assert limits.pool_config.default_pool_limit == 1
        assert limits.run_queue_config.max_concurrent_runs == 2
        assert limits.run_queue_config.tag_concurrency_limits == [{"key": "nvtrader/training", "limit": 1}]


def test_settings_that_a_person_changed_are_kept(home):
    settings = dagster_home(home) / "dagster.yaml"
    changed = {**yaml.safe_load(settings.read_text()), "telemetry": {"enabled": True}}
    settings.write_text(yaml.safe_dump(changed))
    dagster_home(home)
    assert yaml.safe_load(settings.read_text()) == changed
