import json
from datetime import date
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.experiments.designs import BasicDesign
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.policies.agents import PpoAgent
from nvtrader_pipelines.policies.backbones import SharedAssetBackbone
from nvtrader_pipelines.policies.baselines import EqualWeight

SPEC = ExperimentSpec(name="a-test")
SHIPPED = sorted((Path(__file__).parents[2] / "data" / "experiments").glob("*.yaml"))
OTHER = {
    "name": "another",
    "description": "said",
    "market": MarketChoice(source="landing"),
    "environment": EnvSpec(lookback=21),
    "agent": PpoAgent(gamma=0.5),
    "splitter": WalkForward(purge_size=7),
    "design": BasicDesign(),
    "training_sample_rate": 0.02,
    "baselines": (EqualWeight(),),
    "seeds": (0, 1, 3),
    "report_from": date(2011, 1, 1),
}


def shuffled(value, order):
    """The same document with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: hash((key, order)))
        return {key: shuffled(value[key], order) for key in keys}
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


@given(order=st.integers())
def test_the_hash_does_not_depend_on_the_order_of_keys_or_a_round_trip(order):
    document = shuffled(SPEC.model_dump(mode="json"), order)
    assert ExperimentSpec.model_validate(document).spec_hash == SPEC.spec_hash
    assert ExperimentSpec.model_validate(yaml.safe_load(yaml.safe_dump(document))).spec_hash == SPEC.spec_hash
    assert ExperimentSpec.model_validate_json(json.dumps(document)).spec_hash == SPEC.spec_hash


def test_a_default_that_is_written_out_is_the_same_experiment():
    written = ExperimentSpec.model_validate({"name": "a-test", "environment": {"lookback": 20, "vol_penalty": 0.5}})
    assert written.spec_hash == SPEC.spec_hash


def test_the_hash_is_what_it_was_when_runs_were_recorded_under_it():
    assert ExperimentSpec.model_fields.keys() == OTHER.keys()
    assert len(SPEC.spec_hash) == 64
    assert SPEC.partition_key == f"a-test@{SPEC.spec_hash[:8]}"


@pytest.mark.parametrize("field", OTHER)
def test_any_field_changes_the_hash(field):
    changed = ExperimentSpec.model_validate({**SPEC.model_dump(), field: OTHER[field]})
    assert changed.spec_hash != SPEC.spec_hash


@given(name=st.sampled_from(["turnover_cost_bps", "vol_penalty"]), value=st.floats(0.0, 5.0))
def test_the_hash_tells_floats_apart_to_the_last_bit(name, value):
    first, second = (EnvSpec.model_validate({name: v}) for v in (value, min(5.0, value + 1e-15 + value * 1e-15)))
    hashes = {SPEC.model_copy(update={"environment": environment}).spec_hash for environment in (first, second)}
    assert len(hashes) == len({first, second})


@pytest.mark.parametrize("name", ["", "Upper", "under_score", "-dash", "a/b", "a@b", "x" * 64])
def test_a_name_is_fit_for_a_partition_and_a_folder(name):
    with pytest.raises(ValidationError, match="name"):
        ExperimentSpec(name=name)


@pytest.mark.parametrize("seeds", [(0, 1), (0, 1, 1), (-1, 0, 1), (0, 1, 2**32)])
def test_three_seeds_or_more_differ_and_are_numbers_a_generator_takes(seeds):
    with pytest.raises(ValidationError, match="seeds"):
        ExperimentSpec(name="a", seeds=seeds)


@pytest.mark.parametrize("baselines", [(), (EqualWeight(), EqualWeight())])
def test_baselines_name_each_kind_once_and_at_least_one(baselines):
    with pytest.raises(ValidationError, match="each kind once and at least one"):
        ExperimentSpec(name="a", baselines=baselines)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_experiment_is_valid_and_named_as_its_file(path):
    spec = ExperimentSpec.model_validate(yaml.safe_load(path.read_text()))
    assert spec.name == path.stem
    assert spec.description
    assert spec.report_from == date(2010, 1, 1)


def test_a_network_that_cannot_read_the_observation_is_refused():
    with pytest.raises(ValidationError, match="shared_asset backbone needs the per_asset observation"):
        ExperimentSpec(name="odd", agent=PpoAgent(backbone=SharedAssetBackbone()))
