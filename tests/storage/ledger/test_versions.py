import pytest

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger


def test_a_registered_version_is_read_back(home):
    ledger, spec = Ledger.open(home), ExperimentSpec(name="a")
    assert ledger.register(spec) == spec.partition_key
    assert Ledger.open(home).read(spec.partition_key) == spec


def test_a_version_that_was_never_registered_says_how_to_register_it(home):
    with pytest.raises(StorageError, match="experiment a@00000000 is not registered; put its YAML into"):
        Ledger.open(home).read("a@00000000")
