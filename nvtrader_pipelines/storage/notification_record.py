"""Record of notifications: those sent by channel, failed commands, failed deliveries."""

from contextlib import AbstractContextManager

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.locks import home_lock
from nvtrader_pipelines.storage.read_sources import note_read


class Failure(BaseModel):
    """Reason and time of a failed command or delivery."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    reason: str
    at: AwareDatetime


class NotificationRecord(BaseModel):
    """Content of the record; it holds no URL."""

    model_config = ConfigDict(extra="forbid")
    sent: dict[str, list[str]] = Field(default_factory=dict)  # channels by the key of a current state
    failed_commands: dict[str, Failure] = Field(default_factory=dict)  # by command; until it succeeds
    failed_deliveries: dict[str, Failure] = Field(default_factory=dict)  # by channel; until one succeeds


class NotificationRecordFile:
    """File with the record; hold the lock from reading to writing."""

    def __init__(self, home: Home) -> None:
        self._home, self.path = home, home.notification_record

    def lock(self) -> AbstractContextManager[None]:
        """Lock out other processes that send notifications."""
        return home_lock(self._home, "notifications")

    def read(self) -> NotificationRecord:
        """Read the record; without a file, an empty one.

        Raises:
            StorageError: if the file cannot be read as a record.
        """
        note_read(self.path)
        try:
            return NotificationRecord.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return NotificationRecord()
        except (OSError, ValidationError) as error:
            raise StorageError(
                f"the record of notifications {self.path} must be readable JSON, but is damaged; remove it, then "
                "current states are sent once more"
            ) from error

    def write(self, record: NotificationRecord) -> None:
        """Write the record.

        Raises:
            StorageError: if the file cannot be written.
        """
        try:
            write_atomically(self.path, record.model_dump_json(indent=1).encode())
        except OSError as error:
            raise StorageError(
                f"the record of notifications {self.path} cannot be written ({error.strerror}), so none is sent: each "
                "would be sent again and again; make room or correct its permissions"
            ) from error
