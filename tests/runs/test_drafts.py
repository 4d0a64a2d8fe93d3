"""Drafts of experiments are checked as files are, field by field."""

import yaml

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.drafts import check_draft
from nvtrader_pipelines.storage.store import Store
from tests.homes import EXPERIMENT, small_home


def test_valid_draft_is_complete_and_its_yaml_is_the_same_experiment(built_home):
    checked = check_draft(Store(built_home), EXPERIMENT)
    spec = ExperimentSpec.model_validate(EXPERIMENT)
    assert (checked.problems, checked.market_problem, checked.version_id) == ({}, "", spec.partition_key)
    assert ExperimentSpec.model_validate(yaml.safe_load(checked.yaml)) == spec
    assert ExperimentSpec.model_validate(checked.content) == spec


def test_problem_is_beside_its_field(built_home):
    draft = {
        **EXPERIMENT,
        "agent": {"kind": "ppo", "learning_rate": 2.0, "backbone": {"kind": "mlpp"}},
        "environment": {"rewards": [{"kind": "log_growth", "weigth": 1.0}]},
    }
    checked = check_draft(Store(built_home), draft)
    assert set(checked.problems) == {
        "agent.learning_rate",
        "agent.backbone",
        "environment.rewards.0.weigth",
    }
    assert "0.01" in checked.problems["agent.learning_rate"]
    assert checked.version_id == ""


def test_draft_that_the_market_refuses_says_why(tmp_path):
    checked = check_draft(Store(small_home(tmp_path / "home")), {"name": "fine", "market": {"source": "yahoo"}})
    assert checked.problems == {}
    assert "yahoo" in checked.market_problem
