import contextlib

from nvtrader_pipelines.storage.documents import resolve_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger.database import Database, ledger_url
from nvtrader_pipelines.storage.read_sources import is_unchanged, recording
from nvtrader_pipelines.storage.store import Store


def test_ledger_that_is_not_there_yet_is_a_source(home):
    with recording() as sources:
        assert Database.connect(ledger_url(home)).revision() is None
    assert is_unchanged(sources)
    assert Store(home).ledger.runs().is_empty()
    assert not is_unchanged(sources)


def test_extended_file_that_is_not_there_yet_is_a_source(tmp_path):
    (tmp_path / "own.yaml").write_text("extends: base.yaml\n")
    with recording() as sources, contextlib.suppress(StorageError):
        resolve_document(tmp_path / "own.yaml")
    assert is_unchanged(sources)
    (tmp_path / "base.yaml").write_text("name: base\n")
    assert not is_unchanged(sources)
