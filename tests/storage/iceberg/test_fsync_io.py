import pytest

from nvtrader_pipelines.storage.iceberg import fsync_io
from nvtrader_pipelines.storage.iceberg.locations import FOLDER_PROPERTY
from nvtrader_pipelines.storage.tables import CLEAN_BARS
from tests.storage.table_rows import bar_rows


def test_commit_syncs_every_file(tables, home, monkeypatch):
    synced, sync = [], fsync_io.sync

    def record(path):
        synced.append(path)
        sync(path)

    monkeypatch.setattr(fsync_io, "sync", record)
    tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2019, 2020]), [2019, 2020])
    written = {str(path) for path in (home.iceberg / "silver").rglob("*") if path.is_file()}
    assert {path.rsplit(".", 1)[-1] for path in written} == {"parquet", "avro", "json"}
    assert written <= set(synced)


def test_stream_closed_twice_is_synced_once(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(fsync_io, "sync", synced.append)
    stream = fsync_io.FsyncFileIO({FOLDER_PROPERTY: str(tmp_path)}).new_output("/old/warehouse/iceberg/a").create()
    with stream:
        stream.write(b"x")
    stream.close()
    assert (synced, (tmp_path / "a").read_bytes()) == ([str(tmp_path / "a")], b"x")


def test_output_file_refuses_to_replace_unless_asked(tmp_path):
    file = fsync_io.FsyncFileIO({FOLDER_PROPERTY: str(tmp_path)}).new_output("/old/warehouse/iceberg/a/b")
    with file.create() as stream:
        stream.write(b"first")
    with pytest.raises(FileExistsError):
        file.create()
    with file.create(overwrite=True) as stream:
        stream.write(b"two")
    with file.to_input_file().open() as stream:
        assert (len(file), file.exists(), stream.read()) == (3, True, b"two")
