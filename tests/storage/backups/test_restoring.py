import io
import tarfile

import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.storage.backups.restoring import restore_backup
from nvtrader_pipelines.storage.backups.writing import write_backup
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS
from tests.storage.table_rows import bar_rows


def ignore(_name, _size):
    """Show no progress."""


@pytest.fixture
def backup(store, home, tmp_path):
    """Backup of a home with a table and a landed file."""
    (home.landing / "prices.csv").write_text("date\n")
    store.tables.replace_years(CLEAN_BARS, bar_rows(CLEAN_BARS, [2020]), [2020])
    write_backup(store, tmp_path / "home.tar", ignore)
    return tmp_path / "home.tar"


def rewrite(backup, change):
    """Write the archive again with the members that `change` returns for a member and its content."""
    with tarfile.open(backup) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar]
    with tarfile.open(backup, "w") as tar:
        for member, content in members:
            for changed, text in change(member, content):
                changed.size = len(text)
                tar.addfile(changed, io.BytesIO(text))


def added(name, kind=tarfile.REGTYPE, link=""):
    """Change that adds a member before the manifest."""

    def change(member, content):
        if member.name == "backup.json":
            extra = tarfile.TarInfo(name)
            extra.type, extra.linkname = kind, link
            yield extra, b""
        yield member, content

    return change


def changed(member, content):
    """Change of one byte of the landed file."""
    yield member, (b"dirt\n" if member.name.endswith("prices.csv") else content)


def without(name):
    """Change that removes a member."""
    return lambda member, content: [] if member.name == name else [(member, content)]


def test_restored_home_has_the_rows_and_its_own_files(backup, store, home, tmp_path):
    manifest = restore_backup(backup, tmp_path / "restored é", ignore)
    home.root.rename(tmp_path / "away")
    restored = Store(Home(tmp_path / "restored é"))
    assert_frame_equal(restored.tables.read(CLEAN_BARS), bar_rows(CLEAN_BARS, [2020]), check_row_order=False)
    assert manifest.root == str(home.root)
    assert not (restored.home.root / "backup.json").exists()


@pytest.mark.parametrize(
    "change",
    [
        changed,
        without("data/landing/prices.csv"),
        without("backup.json"),
        added("data/extra.csv"),
        added("../outside.csv"),
        added("data/link", tarfile.SYMTYPE, "/etc/passwd"),
        added("data/link", tarfile.LNKTYPE, "data/landing/prices.csv"),
        added("data/pipe", tarfile.FIFOTYPE),
    ],
)
def test_changed_backup_is_refused_and_leaves_nothing(backup, tmp_path, change):
    rewrite(backup, change)
    before = set(tmp_path.iterdir())
    with pytest.raises(StorageError):
        restore_backup(backup, tmp_path / "restored", ignore)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"no archive" * 100])
def test_other_file_is_refused_as_backup(tmp_path, content):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(StorageError):
        restore_backup(tmp_path / "other", tmp_path / "restored", ignore)
    assert not (tmp_path / "restored").exists()


def test_cut_backup_is_refused(backup, tmp_path):
    backup.write_bytes(backup.read_bytes()[:-20_000])
    with pytest.raises(StorageError):
        restore_backup(backup, tmp_path / "restored", ignore)
    assert not (tmp_path / "restored").exists()


def test_restore_into_a_folder_with_files_or_below_a_file_is_refused(backup, home):
    for place in (home.root, backup / "home"):
        with pytest.raises(StorageError):
            restore_backup(backup, place, ignore)


def test_restore_of_a_missing_file_or_a_folder_is_refused(home, tmp_path):
    for file in (tmp_path / "missing.tar", home.root):
        with pytest.raises(StorageError):
            restore_backup(file, tmp_path / "restored", ignore)
    assert not (tmp_path / "restored").exists()
