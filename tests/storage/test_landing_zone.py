import hashlib

import pytest

from nvtrader_pipelines.storage.landing_zone import landed_files, landing_fingerprint, store_copies


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


def test_missing_landing_zone_has_no_files(home):
    home.landing.rmdir()
    assert landed_files(home) == []
    assert landing_fingerprint(home) == ""
