import polars as pl
import pytest

from nvtrader_pipelines.experiments.entrant_specs import (
    BaselineEntrantSpec,
    RunEntrantSpec,
    Sb3EntrantSpec,
    WeightsEntrantSpec,
)
from nvtrader_pipelines.policies.baselines import MeanCvar
from nvtrader_pipelines.scoreboard import roster as roster_module
from nvtrader_pipelines.scoreboard.roster import read_roster
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.specs import read_entrant
from nvtrader_pipelines.storage.store import Store
from tests.runs.small_runs import EXPERIMENT, KEY
from tests.storage.table_rows import AT


def read(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return read_entrant(path)


def test_entrant_spec_has_defaults(tmp_path):
    assert read(tmp_path, "kind: weights") == WeightsEntrantSpec()
    assert read(tmp_path, "kind: run\nrun: 12ab") == RunEntrantSpec(run="12ab")
    assert read(tmp_path, "kind: baseline\nrule: {kind: mean_cvar}") == BaselineEntrantSpec(rule=MeanCvar())
    found = read(tmp_path, "kind: sb3\ntrain_first: 2001-01-02\ntrain_last: 2009-12-31\nenvironment: {lookback: 10}")
    assert isinstance(found, Sb3EntrantSpec)
    assert (str(found.train_last), found.environment.lookback) == ("2009-12-31", 10)


@pytest.mark.parametrize(
    "text",
    [
        "kind: weights\nfiel: a.csv",
        "kind: wieghts",
        "file: a.csv",
        "kind: sb3\nenvironment: {lookbak: 5}",
        "kind: sb3\nenvironment: {lookback: 2}",
        "kind: baseline\nrule: {kind: mean_cvr}",
        "kind: sb3\nalgorithm: dqn",
        "kind: sb3\ntrain_first: 2001-01-01\ntrain_last: 2000-01-01",
        "kind: weights\nkind: run",
        "- weights",
        "kind: !!python/object/apply:os.system ['true']",
    ],
)
def test_invalid_entrant_file_is_refused_with_its_name(tmp_path, text):
    with pytest.raises(StorageError, match=r"mine\.yaml"):
        read(tmp_path, text)


def test_unreadable_version_does_not_exclude_other_entrants(tmp_path, monkeypatch):
    store = Store(Home(tmp_path))
    ledger = store.ledger
    ledger.register(EXPERIMENT)
    read = Ledger.read

    def reading(own, key):
        if key == "retired@00000000":
            raise StorageError("version retired@00000000 would be another one with the defaults of this code")
        return read(own, key)

    monkeypatch.setattr(Ledger, "read", reading)
    names = {"experiment": ["retired", "small"], "partition_key": ["retired@00000000", KEY], "run_id": ["a", "b"]}
    names |= {"source": ["sample", "landing"]}
    runs = pl.DataFrame({**names, "finished_at": [AT, AT]})
    monkeypatch.setattr(roster_module, "walk_forward_runs", lambda _, columns: runs.select(columns))
    roster = read_roster(store, 1.0)
    assert "retired@00000000" in roster.problems["retired"]
    assert [entrant.name for entrant in roster.entrants] == ["equal_weight", "buy_and_hold"]
