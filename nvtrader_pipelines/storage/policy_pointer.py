"""Pointer file: the active policy as JSON, for programs outside; nothing here reads it to decide."""

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import read_regular_file, write_atomically
from nvtrader_pipelines.storage.home import Home


class PolicyPointer(BaseModel):
    """Content of the pointer file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    policy: str  # account name in the evaluation
    experiment: str  # partition key, name@hash8
    run_id: str
    sha256: str  # of the run's manifest
    activated_at: AwareDatetime
    by: str


def read_pointer(home: Home) -> PolicyPointer | None:
    """Read the pointer file; None if it is missing or torn.

    Raises:
        StorageError: if it is no regular file, cannot be read, or is JSON of other fields.
    """
    path = home.active_policy_file
    try:
        return PolicyPointer.model_validate_json(read_regular_file(path))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return None
        field = ".".join(map(str, first["loc"])) or "its content"
        raise StorageError(f"is not as an activation wrote it ({field}: {first['msg']})") from error
    except OSError as error:
        raise StorageError(f"cannot be read ({error.strerror})") from error


def write_pointer(home: Home, pointer: PolicyPointer | None) -> None:
    """Write the pointer file, or remove it if no policy is active.

    Raises:
        OSError: if the file cannot be written or removed.
    """
    if pointer is None:
        home.active_policy_file.unlink(missing_ok=True)
    else:
        write_atomically(home.active_policy_file, f"{pointer.model_dump_json(indent=1)}\n".encode())
