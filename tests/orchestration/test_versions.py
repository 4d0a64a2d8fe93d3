import dagster as dg
import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.orchestration.assets.policies import VERSION_KEY
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.homes import KEY, SPEC, SWEEP, register_experiments, run_job, step_errors

pytestmark = pytest.mark.slow

CHANGED = SPEC.model_copy(update={"seeds": (0, 1, 5)})
ABLATION = ExperimentSpec.model_validate(SWEEP)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def version(home, instance, key) -> dg.AssetMaterialization:
    """The version behind a partition, materialized."""
    finished = run_job(home, "experiment", instance, partition_key=key, asset_selection=[VERSION_KEY])
    assert finished.success, step_errors(finished)
    (event,) = finished.get_asset_materialization_events()
    assert event.partition == key
    return event.materialization


def test_version_shows_spec_and_hash_as_data_version(home, instance):
    register_experiments(home, instance)
    found = version(home, instance, KEY)
    assert found.metadata["spec_hash"].value == SPEC.spec_hash
    assert found.metadata["spec"].value == SPEC.model_dump(mode="json")
    assert found.tags["dagster/data_version"] == SPEC.spec_hash


def test_version_shows_its_changes_since_the_one_before(home, instance):
    register_experiments(home, instance, [SPEC, CHANGED])
    assert version(home, instance, KEY).metadata["changed"].value == "nothing"
    changed = version(home, instance, CHANGED.partition_key).metadata["changed"].value
    assert changed.splitlines() == ["| field | left | right |", "| --- | --- | --- |", "| seeds.2 | 2 | 5 |"]


def test_variant_shows_its_changes_from_its_ablation(home, instance):
    parent = Store(home).ledger.register(ABLATION)
    _, costly = ABLATION.variants()
    Store(home).ledger.register(costly, parent)
    register_experiments(home, instance, [costly])
    changed = version(home, instance, costly.partition_key).metadata["changed"].value
    assert "| environment.turnover_cost_bps | 10.0 | 20.0 |" in changed
    assert "| design.kind | ablation | walk_forward |" in changed


def test_unregistered_partition_fails_with_a_remedy(home, instance):
    instance.add_dynamic_partitions("experiment", ["ghost@00000000"])
    finished = run_job(home, "experiment", instance, partition_key="ghost@00000000", asset_selection=[VERSION_KEY])
    assert not finished.success
    assert "experiment ghost@00000000 is not registered; put its YAML into" in step_errors(finished)
