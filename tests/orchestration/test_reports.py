"""What assets say of themselves."""

import base64

from nvtrader_pipelines.orchestration.reports import keep_pictures
from nvtrader_pipelines.storage.home import Home


def test_pictures_are_files_that_a_person_can_take_and_metadata_that_the_ui_shows(tmp_path):
    home = Home(tmp_path)
    metadata = keep_pictures(home, "stress", {"heat": b"one", "bars": b"two"}, partition_key="tiny@12345678")
    folder = home.warehouse / "pictures" / "stress" / "tiny@12345678"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"heat.png": b"one", "bars.png": b"two"}
    assert base64.b64encode(b"one").decode() in metadata["heat"].value
    assert metadata["pictures"].value == str(folder)


def test_a_picture_of_a_former_state_goes_and_what_other_partitions_have_stays(tmp_path):
    home = Home(tmp_path)
    keep_pictures(home, "stress", {"heat": b"one", "bars": b"two"}, partition_key="a")
    keep_pictures(home, "stress", {"heat": b"three"}, partition_key="b")
    keep_pictures(home, "stress", {"heat": b"four"}, partition_key="a")
    keep_pictures(home, "stress", {"all": b"five"})
    found = {str(path.relative_to(home.pictures)): path.read_bytes() for path in home.pictures.rglob("*.png")}
    assert found == {"stress/a/heat.png": b"four", "stress/b/heat.png": b"three", "stress/all.png": b"five"}
