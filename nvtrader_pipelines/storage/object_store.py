"""Objects of an S3-compatible store by URI; address and keys are in the AWS_ variables of the environment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from nvtrader_pipelines.storage.errors import UnavailableError

if TYPE_CHECKING:  # slow to import, and a home of folders needs none of it
    from pyarrow.fs import FileInfo, S3FileSystem

SCHEME = "s3://"
ADDRESS_VARIABLE = "AWS_ENDPOINT_URL"
CONNECT_TIMEOUT, REQUEST_TIMEOUT = 5.0, 10.0  # seconds, of a request without any progress
N_ATTEMPTS = 3  # of a request
KEYS = "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and let their user read, write and delete in the bucket"
REMEDIES = {  # by words of the client's message
    "NETWORK_CONNECTION": "start the store, or correct AWS_ENDPOINT_URL",
    "error sending request": "start the store, or correct AWS_ENDPOINT_URL",  # of Polars' client
    "ACCESS_DENIED": KEYS,
    "SIGNATURE": KEYS,
    "INVALID_ACCESS_KEY": KEYS,
    "NO_SUCH_BUCKET": "create the bucket, or correct warehouse_uri",
}


@cache
def client() -> "S3FileSystem":
    """Client of the store, whose paths are those of URIs without the scheme; the first request connects."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    scheme, _, address = os.environ.get(ADDRESS_VARIABLE, "https://").rpartition("://")
    return S3FileSystem(
        scheme=scheme or "https",
        endpoint_override=address or None,  # None: Amazon's
        allow_delayed_open=True,  # small files in one request
        connect_timeout=CONNECT_TIMEOUT,
        request_timeout=REQUEST_TIMEOUT,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=N_ATTEMPTS),
    )


def is_object(path: str) -> bool:
    """Whether a path is the URI of an object."""
    return path.startswith(SCHEME)


def read_options(path: str) -> dict[str, Any]:
    """Options of Polars to read a path; its client takes address and keys from the environment, too."""
    if not is_object(path):
        return {}
    plain = {"aws_allow_http": "true"} if os.environ.get(ADDRESS_VARIABLE, "").startswith("http:") else {}
    return {"storage_options": plain, "credential_provider": None}


def open_object(uri: str) -> Any:
    """Open an object to read at any position."""
    return client().open_input_file(uri.removeprefix(SCHEME))


def create_object(uri: str) -> Any:
    """Open an object to write; it replaces another one as a whole when it is closed, or not at all."""
    return client().open_output_stream(uri.removeprefix(SCHEME))


def write_object(uri: str, content: bytes) -> None:
    """Write an object as a whole.

    Raises:
        UnavailableError: if it cannot be written.
    """
    with store_errors(uri), create_object(uri) as file:
        file.write(content)


def read_object(uri: str) -> bytes:
    """Read an object as a whole.

    Raises:
        FileNotFoundError: if there is none.
        UnavailableError: if it cannot be read.
    """
    with store_errors(uri), open_object(uri) as file:
        return file.read()


def delete_object(uri: str) -> None:
    """Delete an object, if there is one.

    Raises:
        UnavailableError: if it cannot be deleted.
    """
    with store_errors(uri):
        if _describe(uri).is_file:
            client().delete_file(uri.removeprefix(SCHEME))


def object_size(uri: str) -> int | None:
    """Size of an object in bytes, or None if there is none.

    Raises:
        UnavailableError: if the store cannot be asked.
    """
    with store_errors(uri):
        return _describe(uri).size


def list_objects(folder: str) -> "dict[str, FileInfo]":
    """List the objects below a folder, with size and time of writing, by URI.

    Raises:
        UnavailableError: if the store cannot be asked.
    """
    from pyarrow.fs import FileSelector

    with store_errors(folder):
        selector = FileSelector(folder.removeprefix(SCHEME), allow_not_found=True, recursive=True)
        return {f"{SCHEME}{info.path}": info for info in client().get_file_info(selector) if info.is_file}


def has_object(folder: str, ending: str) -> bool:
    """Whether an object below a folder has a name with this ending; the last folders are searched first.

    Raises:
        UnavailableError: if the store cannot be asked.
    """
    from pyarrow.fs import FileSelector

    with store_errors(folder):
        listed = client().get_file_info(FileSelector(folder.removeprefix(SCHEME), allow_not_found=True))
    if any(info.is_file and info.path.endswith(ending) for info in listed):
        return True
    folders = sorted((info.path for info in listed if not info.is_file), reverse=True)
    return any(has_object(f"{SCHEME}{path}", ending) for path in folders)


def find_store_problem(folder: str) -> str:
    """Write, read and delete an object in a folder; return the problem with its remedy, or an empty text."""
    probe = f"{folder}/probe/probe"  # the client leaves an empty object for a folder of which it has deleted one
    try:
        write_object(probe, b"probe")
        read_object(probe)
        delete_object(probe)
    except (UnavailableError, FileNotFoundError) as error:
        return str(error)
    return ""


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Turn errors of the store into a sentence with the remedy; others, and those of a local path, stay as they are.

    Raises:
        UnavailableError: if the store cannot be reached, or refuses.
    """
    try:
        yield
    except OSError as error:
        is_of_disk = error.errno is not None  # the store's errors have no number
        if isinstance(error, FileNotFoundError) or is_of_disk or not is_object(uri):
            raise
        message = " ".join(str(error).split())
        remedy = next((remedy for words, remedy in REMEDIES.items() if words in message), "check the store")
        raise UnavailableError(f"the object store failed at {uri}: {message}; {remedy}") from None


def _describe(uri: str) -> "FileInfo":
    return client().get_file_info(uri.removeprefix(SCHEME))
