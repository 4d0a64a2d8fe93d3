import hashlib
import json
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.errors import CodeMismatchError, StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.database import Database
from nvtrader_pipelines.storage.ledger.schema import SPECS, VERSIONS, polars_schema
from tests.storage.ledger.run_rows import SPEC
from tests.storage.table_rows import AT


def insert(home, partition_key, spec_hash, content):
    """Insert a version as other code, or a person with a SQL client, would."""
    with Database.open(home).transaction() as connection:
        connection.execute(sa.insert(SPECS).values(name="a", created_at=AT))
        row = {"spec_hash": spec_hash, "partition_key": partition_key, "name": "a", "content": content}
        connection.execute(sa.insert(VERSIONS).values(**row, created_at=AT))
    return partition_key


def insert_from_other_code(home, document):
    content = json.dumps(document, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(content.encode()).hexdigest()
    return insert(home, f"a@{digest[:8]}", digest, content)


def test_same_content_is_registered_once(ledger):
    ledger.register(SPEC)
    before = ledger.versions()
    assert ledger.register(ExperimentSpec(name="a")) == SPEC.partition_key
    assert ledger.versions().equals(before)
    assert (before["content"].item(), before["created_at"].item().tzname()) == (canonical_json(SPEC), "UTC")


def test_unregistered_version_is_refused(ledger):
    with pytest.raises(StorageError):
        ledger.read("a@00000000")


def test_parent_defaults_to_the_newest_version_of_the_name(ledger):
    specs = [ExperimentSpec(name=name, description=text) for name, text in [("a", "1"), ("b", "1"), ("a", "2")]]
    for spec in specs:
        ledger.register(spec)
    parents = dict(ledger.versions().select("spec_hash", "parent_hash").rows())
    assert [parents[spec.spec_hash] for spec in specs] == [None, None, specs[0].spec_hash]


def test_parent_may_be_a_version_of_another_name(ledger):
    base = ledger.register(SPEC)
    ledger.register(ExperimentSpec(name="b"), parent=base)
    assert dict(ledger.versions().select("name", "parent_hash").rows())["b"] == SPEC.spec_hash


def test_version_with_unknown_parent_is_refused(ledger):
    with pytest.raises(StorageError):
        ledger.register(SPEC, parent="b@00000000")
    assert ledger.versions().is_empty()


def test_version_with_a_colliding_partition_key_is_refused(ledger, home):
    insert(home, SPEC.partition_key, SPEC.spec_hash[:8] + "0" * 56, "{}")
    with pytest.raises(StorageError):
        ledger.register(SPEC)
    assert len(ledger.versions()) == 1


def test_version_whose_content_has_another_hash_is_damaged(ledger, home):
    key = insert(home, SPEC.partition_key, SPEC.spec_hash, canonical_json(ExperimentSpec(name="a", description="x")))
    with pytest.raises(StorageError):
        ledger.read(key)


def test_version_refused_by_this_code_raises_code_mismatch(ledger, home):
    key = insert_from_other_code(home, {**SPEC.model_dump(mode="json"), "removed_field": 1})
    with pytest.raises(CodeMismatchError):
        ledger.read(key)
    assert len(ledger.versions()) == 1


def test_version_with_other_defaults_raises_code_mismatch(ledger, home):
    document = SPEC.model_dump(mode="json")
    del document["report_from"]
    key = insert_from_other_code(home, document)
    with pytest.raises(CodeMismatchError):
        ledger.read(key)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE versions SET content = '{}'", "UPDATE versions SET created_at = created_at", "DELETE FROM versions"],
)
def test_version_cannot_be_changed_or_deleted(ledger, home, statement):
    ledger.register(SPEC)
    with (
        pytest.raises(StorageError),
        Database.open(home).transaction() as connection,
    ):
        connection.execute(sa.text(statement))
    assert ledger.read(SPEC.partition_key) == SPEC


def replace(home, column, value):
    """Replace a version as a client unaware of the ledger would."""
    columns = [name for name in polars_schema(VERSIONS) if name != column]
    rest = ", ".join(columns)
    with closing(sqlite3.connect(home.ledger)) as client, client:
        client.execute(f"INSERT OR REPLACE INTO versions ({column}, {rest}) SELECT {value}, {rest} FROM versions")


def test_foreign_client_cannot_replace_a_version(home):
    ledger = Ledger.open(home)
    ledger.register(SPEC)
    before = ledger.versions()
    with pytest.raises(sqlite3.IntegrityError):
        replace(home, "content", "'{}'")
    replace(home, "spec_hash", "'another'")  # of the same partition key: ignored
    assert ledger.versions().equals(before)
