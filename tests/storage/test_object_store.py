"""Objects of an S3-compatible store."""

import pytest

from nvtrader_pipelines.storage.errors import UnavailableError
from nvtrader_pipelines.storage.object_store import (
    client,
    delete_object,
    find_store_problem,
    list_objects,
    object_size,
    read_object,
    write_object,
)

pytestmark = pytest.mark.nightly


def test_written_object_is_read_listed_and_deleted(bucket):
    write_object(f"{bucket}/folder/a file.txt", b"content")
    assert read_object(f"{bucket}/folder/a file.txt") == b"content"
    assert [(uri, info.size) for uri, info in list_objects(f"{bucket}/folder").items()] == [
        (f"{bucket}/folder/a file.txt", 7)
    ]
    delete_object(f"{bucket}/folder/a file.txt")
    delete_object(f"{bucket}/folder/a file.txt")  # again: nothing to do
    assert object_size(f"{bucket}/folder/a file.txt") is None
    with pytest.raises(FileNotFoundError):
        read_object(f"{bucket}/folder/a file.txt")


def test_store_that_cannot_be_used_is_a_sentence_without_the_key(bucket, monkeypatch):
    assert find_store_problem(bucket) == ""
    assert list_objects(bucket) == {}
    assert "create the bucket" in find_store_problem("s3://no-such-bucket/folder")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    client.cache_clear()
    assert "start the store" in find_store_problem(bucket)
    with pytest.raises(UnavailableError) as caught:
        read_object(f"{bucket}/file")
    assert "swordfish" not in f"{caught.value} {caught.value.__cause__}"
