import hashlib
import os
import shutil

import pytest

from nvtrader_pipelines.market.sources.landing import MAX_BYTES
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.landing_zone import deliver_files, landed_files, landing_fingerprint, store_copies


def test_landed_files_are_named_relative_to_the_landing_zone(home):
    (home.landing / "b").mkdir()
    (home.landing / "b" / "x.csv").write_bytes(b"1")
    (home.landing / "a.csv").write_bytes(b"2")
    assert [(file.name, file.content) for file in landed_files(home)] == [("a.csv", b"2"), ("b/x.csv", b"1")]


@pytest.mark.parametrize(
    "name", [".gitkeep", ".a.csv.swp", "~a.csv", "a.csv~", "a.csv.part", "a.csv.crdownload", "a.tmp"]
)
def test_hidden_and_unfinished_files_are_ignored(home, name):
    (home.landing / name).write_bytes(b"1")
    assert landed_files(home) == []
    assert landing_fingerprint(home) == ""


def test_overwritten_delivery_is_stored_by_digest(home):
    for content in (b"old", b"new", b"new"):
        (home.landing / "a.csv").write_bytes(content)
        store_copies(home, landed_files(home))
    copies = {path.name: path.read_bytes() for path in home.deliveries.iterdir()}
    assert copies == {f"{hashlib.sha256(content).hexdigest()}.csv": content for content in (b"old", b"new")}


def test_fingerprint_changes_only_when_a_file_lands_or_changes(home):
    states = [landing_fingerprint(home)]
    (home.landing / "a.csv").write_bytes(b"1")
    states += [landing_fingerprint(home), landing_fingerprint(home)]
    (home.landing / "a.csv").write_bytes(b"22")
    states.append(landing_fingerprint(home))
    (home.landing / "a.csv").rename(home.landing / "b.csv")
    states.append(landing_fingerprint(home))
    assert states[1] == states[2]
    assert len(set(states)) == 4


@pytest.mark.parametrize("is_renamed", [False, True], ids=["cp_p", "rsync_t"])
def test_fingerprint_changes_with_content_of_equal_size_and_time(home, tmp_path, is_renamed):
    landed, corrected = home.landing / "a.csv", tmp_path / "a.csv"
    for path, content in ((landed, b"1"), (corrected, b"2")):
        path.write_bytes(content)
        os.utime(path, (1e9, 1e9))
    before = landing_fingerprint(home)
    if is_renamed:
        corrected = shutil.copy2(corrected, home.landing / ".a.csv.part")
        corrected.replace(landed)
    else:
        shutil.copy2(corrected, landed)
    assert (landed.read_bytes(), landed.stat().st_mtime) == (b"2", 1e9)
    assert landing_fingerprint(home) != before


def test_fingerprint_of_a_copied_home_is_equal(home, tmp_path):
    (home.landing / "a.csv").write_bytes(b"1")
    shutil.copytree(home.root, tmp_path / "copy", copy_function=shutil.copy)
    assert landing_fingerprint(Home(tmp_path / "copy")) == landing_fingerprint(home)


def test_missing_landing_zone_has_no_files(home):
    home.landing.rmdir()
    assert landed_files(home) == []
    assert landing_fingerprint(home) == ""


def refusals(home):
    return [(file.name, file.refusal and file.refusal.rule, file.content) for file in landed_files(home)]


def test_pipe_device_and_dangling_symlink_are_refused_unopened(home):
    os.mkfifo(home.landing / "pipe.csv")
    (home.landing / "zero.csv").symlink_to("/dev/zero")
    (home.landing / "gone.csv").symlink_to(home.landing / "missing.csv")
    (home.landing / "good.csv").write_bytes(b"1")
    expected = [("gone.csv", "irregular_file", b""), ("good.csv", None, b"1")]
    assert refusals(home) == [*expected, ("pipe.csv", "irregular_file", b""), ("zero.csv", "irregular_file", b"")]
    assert landing_fingerprint(home)
    store_copies(home, landed_files(home))
    assert len(list(home.deliveries.iterdir())) == 1


def test_name_that_is_not_utf8_is_refused_and_escaped(home):
    (home.landing / os.fsdecode(b"K\xe9.csv")).write_bytes(b"1")
    assert refusals(home) == [("K\\xe9.csv", "irregular_file", b"")]
    assert landing_fingerprint(home)


@pytest.mark.parametrize(("name", "size", "rule"), [("a.zip", 1, "unknown_format"), ("a.csv", MAX_BYTES, "large_file")])
def test_archive_and_large_file_are_refused_unread(home, name, size, rule):
    with (home.landing / name).open("wb") as file:
        file.truncate(size + 1)  # sparse
    assert refusals(home) == [(name, rule, b"")]


def test_delivered_files_are_copied_and_replaced(home, tmp_path):
    (tmp_path / "A.csv").write_bytes(b"1")
    deliver_files(home, [tmp_path / "A.csv"])
    (tmp_path / "A.csv").write_bytes(b"2")
    deliver_files(home, [tmp_path / "A.csv"])
    assert [(file.name, file.content) for file in landed_files(home)] == [("A.csv", b"2")]


def test_delivered_folder_lands_its_files_of_prices(home, tmp_path):
    folder = tmp_path / "vendor"
    (folder / "deeper").mkdir(parents=True)
    for name in ("A.csv", "B.csv", "README.md", ".c.csv", "deeper/D.csv"):
        (folder / name).write_bytes(b"1")
    deliver_files(home, [folder])
    assert [file.name for file in landed_files(home)] == ["A.csv", "B.csv"]


def test_delivered_file_that_has_landed_already_is_not_copied(home):
    (home.landing / "vendor").mkdir()
    (home.landing / "vendor" / "A.csv").write_bytes(b"1")
    deliver_files(home, [home.landing / "vendor" / "A.csv"])
    assert [file.name for file in landed_files(home)] == ["vendor/A.csv"]


@pytest.fixture(params=["missing", "folder", "pipe", "hidden", "format", "size", "same_name"])
def undeliverable(request, tmp_path):
    """Path of a file that cannot be landed beside A.csv."""
    names = {"hidden": ".b.csv", "format": "b.xlsx", "same_name": "sub/A.csv"}
    path = tmp_path / names.get(request.param, "b.csv")
    path.parent.mkdir(exist_ok=True)
    if request.param == "folder":
        path.mkdir()
    elif request.param == "pipe":
        os.mkfifo(path)
    elif request.param != "missing":
        path.write_bytes(b"1")
    if request.param == "size":
        os.truncate(path, MAX_BYTES + 1)
    return path


def test_no_file_is_delivered_beside_one_that_cannot_be(home, tmp_path, undeliverable):
    (tmp_path / "A.csv").write_bytes(b"1")
    with pytest.raises(StorageError):
        deliver_files(home, [tmp_path / "A.csv", undeliverable])
    assert list(home.landing.iterdir()) == []
