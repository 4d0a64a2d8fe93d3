import pytest

from nvtrader_pipelines.runs.registration import store_manual_experiment
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiment
from nvtrader_pipelines.storage.store import Store
from tests.runs.small_runs import small_home


@pytest.fixture
def empty(tmp_path):
    return Store(Home(tmp_path / "home"))


def files(store):
    return sorted(path.name for path in store.home.experiments.glob("train-*"))


def test_manual_run_is_an_experiment_named_by_its_options(empty):
    name = store_manual_experiment(empty, "landing", ("AAA", "BBB"), 2048)
    spec = read_experiment(empty.home.experiments / f"{name}.yaml")
    assert (spec.name, spec.market.source, spec.market.symbols) == (name, "landing", ("AAA", "BBB"))
    assert (spec.agent.kind, spec.agent.total_timesteps) == ("ppo", 2048)
    assert store_manual_experiment(empty, "landing", ["AAA", "BBB"], 2048) == name
    assert store_manual_experiment(empty, "landing", ["AAA"], 2048) != name
    assert len(files(empty)) == 2


@pytest.mark.parametrize("options", [("Paper",), ("sample", []), ("sample", None, 0)])
def test_options_that_make_no_experiment_write_no_file(empty, options):
    with pytest.raises(StorageError):
        store_manual_experiment(empty, *options)
    assert files(empty) == []


def test_symbols_that_the_market_lacks_write_no_file(tmp_path):
    store = small_home(tmp_path / "home")
    with pytest.raises(ValueError):
        store_manual_experiment(store, "landing", ["ZZZ"])
    assert files(store) == []
