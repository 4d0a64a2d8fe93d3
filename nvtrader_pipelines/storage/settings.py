"""Settings of a home: `nvtrader.toml` at its root, and environment variables, which win."""

import os
import re
import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:  # slow to import, and a home without the setting needs none of it
    import sqlalchemy as sa

PREFIX = "NVTRADER_"  # of the variable of a setting, in capitals
EXECUTOR_FIELDS = ("executor", "ray_address")
LEDGER_VARIABLE = "NVTRADER_LEDGER_URL"  # database of the ledger alone, before `database_url`
FOLDER_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]+(/[\w.-]+)*\Z")  # of a bucket and a folder in it, without credentials
_APPLIED: dict[str, str] = {}  # variables that this process has set from a home's file


class Settings(BaseModel):
    """Settings of a home, the same on every machine that uses it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    database_url: Any = Field(default=None, repr=False)  # SQLAlchemy's URL of Postgres; None: SQLite files of the home
    warehouse_uri: str | None = None  # folder of an object store, without `/` at its end; None: folders of the home
    executor: Literal["processes", "ray"] = "processes"
    ray_address: str = "local"  # HOST:PORT of a Ray cluster, or local: a Ray that ends with its process

    @field_validator("database_url", mode="before")
    @classmethod
    def _parse_url(cls, value: object) -> "sa.URL":
        from nvtrader_pipelines.storage.postgres import parse_url

        return parse_url(value, "postgresql")

    @field_validator("warehouse_uri")
    @classmethod
    def _require_folder(cls, value: str) -> str:
        if not FOLDER_URI.match(value := value.rstrip("/")):
            raise ValueError(  # without the value, which may hold a key
                "must be s3://bucket or s3://bucket/folder, without credentials, which AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY give"
            )
        return value


def read_settings(home: Home) -> Settings:
    """Read the settings of a home.

    Raises:
        StorageError: if the file is not TOML, a key is unknown, a value is not valid, or the file has a password.
    """
    path, name = home.settings_file, home.settings_file.name
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:  # also of text that is not UTF-8
        raise StorageError(f"{name} is not valid TOML: {error}") from None
    variables = {field: _read_variable(field) for field in Settings.model_fields}
    if (url := _validate(content, name).database_url) and url.password:
        raise StorageError(
            f"database_url in {name} must be without a password, since queries read the files of a home; set "
            "NVTRADER_DATABASE_URL or PGPASSWORD, or write it to ~/.pgpass"
        )
    given = {field: value for field, value in variables.items() if value}
    return _validate(content | given, ", ".join(f"{PREFIX}{field.upper()}" for field in given))


def apply_executor(home: Home) -> None:
    """Let this process and its children use the executor of a home, and no longer that of another home.

    Components read only the environment, where a person's variables stay as they are.

    Raises:
        StorageError: as `read_settings`.
    """
    settings = read_settings(home)
    for field in EXECUTOR_FIELDS:
        name, value = f"{PREFIX}{field.upper()}", getattr(settings, field)
        if _read_variable(field):
            continue
        if value != Settings.model_fields[field].default:
            os.environ[name] = _APPLIED[name] = value
        elif _APPLIED.pop(name, None):
            os.environ.pop(name, None)


def _read_variable(field: str) -> str | None:
    """Value of a person's variable of a setting, not one applied from a file."""
    name = f"{PREFIX}{field.upper()}"
    value = os.environ.get(name)
    return None if value == _APPLIED.get(name) else value


def _validate(values: Mapping[str, Any], source: str) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        from nvtrader_pipelines.components.explanation import explain

        raise StorageError(f"{source} is not valid: {explain(error, Settings)}") from None  # it may hold a password


def database_url(home: Home) -> "sa.URL | None":
    """URL of the Postgres of a home, or None: SQLite files of the home.

    Raises:
        StorageError: as `read_settings`.
    """
    return read_settings(home).database_url


def tables_folder(home: Home) -> str:
    """Folder of the tables' files: in the home, or in the object store of `warehouse_uri`.

    Raises:
        StorageError: as `read_settings`.
    """
    uri = read_settings(home).warehouse_uri
    return f"{uri}/{home.iceberg.relative_to(home.root)}" if uri else str(home.iceberg.absolute())


def has_ledger_elsewhere(home: Home) -> bool:
    """Whether the ledger is not the file of the home."""
    return bool(os.environ.get(LEDGER_VARIABLE) or read_settings(home).database_url)
