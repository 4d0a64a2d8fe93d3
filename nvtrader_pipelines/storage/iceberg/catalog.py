"""Catalog of the Iceberg tables, in SQLite or Postgres; tables are created and widened on first use."""

import re
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polars.exceptions import ComputeError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.table import Table as IcebergTable
from sqlalchemy import URL, event, func, select
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError, SQLAlchemyError

from nvtrader_pipelines.storage.errors import DamagedFileError, StorageError
from nvtrader_pipelines.storage.file_problems import catalog_problem, has_table_files, rebuild_remedy
from nvtrader_pipelines.storage.files import IMMUTABLE, create_aside, file_lock, read_only_uri
from nvtrader_pipelines.storage.home import Home, lock_path
from nvtrader_pipelines.storage.iceberg.locations import FOLDER_PROPERTY
from nvtrader_pipelines.storage.locks import home_lock
from nvtrader_pipelines.storage.object_store import store_errors
from nvtrader_pipelines.storage.postgres import connect, create_schema, failure, in_schema
from nvtrader_pipelines.storage.settings import database_url, tables_folder
from nvtrader_pipelines.storage.table import Table

FORMAT = {"format-version": "2"}
PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.parquet.dict-size-bytes": "262144",  # the default of 2 MB costs 1.4 times on float columns
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.manifest.target-size-bytes": "65536",  # a few hundred files; a merge rewrites smaller manifests
    "commit.retry.num-retries": "30",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "1000",
}
# Long keys need full statistics: with truncated ones another engine must read a partition before deleting it.
DAMAGE_ERRORS = (  # errors of pyiceberg and polars on a damaged file
    FileNotFoundError,
    ValidationError,
    ComputeError,
    ValueError,
    EOFError,
    LookupError,
    AssertionError,
    struct.error,
)
SCHEMA = "catalog"  # Postgres schema
CREATION_LOCK = 7_239_148_205  # advisory lock in Postgres; an arbitrary number
LONG_KEYS = ("spec_hash", "run_id", "file", "digest")


def open_catalog(home: Home) -> SqlCatalog:
    """Open the catalog, creating it if necessary; concurrent first uses wait for each other.

    Raises:
        DamagedFileError: if the file is no database.
        StorageError: if Postgres cannot be reached, or has no catalog of the tables of this home.
    """
    home.iceberg.mkdir(parents=True, exist_ok=True)
    if url := database_url(home):
        return _open_postgres(home, url)
    with file_lock(lock_path(home, "catalog")), _catalog_errors(home):
        if problem := catalog_problem(home):
            raise DamagedFileError(home.catalog, problem, rebuild_remedy(home))
        if not home.catalog.exists():
            with create_aside(home.catalog) as new:
                connect_file(home, new).engine.dispose()
        return connect_file(home, home.catalog)


def _open_postgres(home: Home, url: URL) -> SqlCatalog:
    """Open the catalog in Postgres, creating its schema if necessary; machines take turns."""
    engine = connect(url, SCHEMA).execution_options(isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(select(func.pg_advisory_lock(CREATION_LOCK)))  # until the connection closes
            create_schema(connection, SCHEMA)
            address = in_schema(url, SCHEMA).render_as_string(hide_password=False)
            catalog = SqlCatalog("nvtrader", uri=address, pool_pre_ping="true", **io_properties(home))
            weakref.finalize(catalog, catalog.engine.dispose)
            # Asked again, since another process may have made the first table meanwhile.
            if not catalog.list_namespaces() and has_table_files(home) and not catalog.list_namespaces():
                raise StorageError(
                    f"the catalog {url.render_as_string()} has no tables, but {tables_folder(home)} holds their files; "
                    "run `nvtrader migrate`, or correct database_url"
                )
    except SQLAlchemyError as error:
        raise failure("catalog", url, error) from None
    finally:
        engine.dispose()

    @event.listens_for(catalog.engine, "handle_error")
    def _name_failure(context: ExceptionContext) -> None:
        error = context.sqlalchemy_exception
        if error and not context.is_pre_ping and not isinstance(error, IntegrityError):  # by it pyiceberg finds names
            raise failure("catalog", url, error)

    return catalog


@contextmanager
def _catalog_errors(home: Home) -> Iterator[None]:
    """Turn errors of a damaged catalog into a sentence with the remedy."""
    try:
        yield
    except OperationalError:  # locked, or a full disk
        raise
    except DatabaseError as error:
        problem = f"cannot be read as a SQLite database ({error.orig})"
        raise DamagedFileError(home.catalog, problem, rebuild_remedy(home)) from error


def load_table(catalog: SqlCatalog, home: Home, table: Table) -> IcebergTable:
    """Load a table in its current state, creating it if necessary.

    Raises:
        StorageError: if the catalog refers to missing files.
    """
    iceberg = find_table(catalog, home, table)
    if iceberg is not None:
        return iceberg
    with home_lock(home, "catalog"):
        return _create(catalog, table)


def find_table(catalog: SqlCatalog, home: Home, table: Table) -> IcebergTable | None:
    """Load a table, with missing columns and properties added, or None if never written.

    Raises:
        StorageError: if the catalog refers to missing files.
    """
    try:
        with table_errors(home, table), _catalog_errors(home):
            iceberg = catalog.load_table(table.name)
    except NoSuchTableError:
        return None
    is_outdated = _missing_columns(iceberg, table) or _outdated_properties(iceberg, table)
    return _update_table(catalog, home, table) if is_outdated else iceberg


@contextmanager
def table_errors(home: Home, table: Table) -> Iterator[None]:
    """Turn errors of reading a table's files into a sentence with the remedy.

    Raises:
        StorageError: if a file is missing or damaged, or the object store fails.
    """
    try:
        with store_errors(tables_folder(home)):
            yield
    except DAMAGE_ERRORS as error:
        named = re.search(r"/[^'\"\n]*?\.(parquet|avro|json)", str(error))
        problem = f"lacks the file {named.group() if named else error}"
        if not isinstance(error, FileNotFoundError):
            problem = f"has a damaged file ({named.group() if named else type(error).__name__}; see `nvtrader doctor`)"
        raise StorageError(f"{table.name} {problem}: {rebuild_remedy(home)}") from error


def io_properties(home: Home) -> dict[str, str]:
    """Properties of the catalog's file IO, which finds all files below the tables of this home."""
    folder = tables_folder(home)  # in the home a path, since a URI would be cut at a # and keep a %20
    return {FOLDER_PROPERTY: folder, "py-io-impl": "nvtrader_pipelines.storage.iceberg.fsync_io.FsyncFileIO"}


def connect_file(home: Home, path: Path) -> SqlCatalog:
    """Open a catalog in a SQLite file, creating its tables if necessary."""
    url = URL.create("sqlite", database=str(path), query={"timeout": "60"})  # it quotes the path, as of a home `a%20b`
    if uri := read_only_uri(path):
        url = URL.create("sqlite", database=uri, query=IMMUTABLE)
    catalog = SqlCatalog("nvtrader", uri=url.render_as_string(), **io_properties(home))

    @event.listens_for(catalog.engine, "connect")
    def _write_ahead(connection, _record) -> None:  # noqa: ANN001 - a DBAPI connection has no type
        if uri is None:
            connection.execute("PRAGMA journal_mode=WAL")

    weakref.finalize(catalog, catalog.engine.dispose)  # Python 3.13 warns of a connection that nothing closed
    return catalog


def _create(catalog: SqlCatalog, table: Table) -> IcebergTable:
    catalog.create_namespace_if_not_exists(table.namespace)
    properties = FORMAT | table_properties(table)
    return catalog.create_table_if_not_exists(
        table.name, table.iceberg_schema(), partition_spec=table.partition_spec(), properties=properties
    )


def table_properties(table: Table) -> dict[str, str]:
    """Properties of a table; tables created by an earlier version are updated to them."""
    return PROPERTIES | {f"write.metadata.metrics.column.{name}": "full" for name in LONG_KEYS if name in table.schema}


def _missing_columns(found: IcebergTable, table: Table) -> list[str]:
    existing = set(found.schema().column_names)
    return [name for name in table.schema if name not in existing]


def _outdated_properties(found: IcebergTable, table: Table) -> dict[str, str]:
    return {name: value for name, value in table_properties(table).items() if found.properties.get(name) != value}


def _update_table(catalog: SqlCatalog, home: Home, table: Table) -> IcebergTable:
    """Add columns that the stored table lacks, such as a new feature, and set properties."""
    with home_lock(home, table.name):
        iceberg = catalog.load_table(table.name)
        fields = {field.name: field for field in table.iceberg_schema().fields}
        with iceberg.transaction() as transaction:
            if missing := _missing_columns(iceberg, table):
                with transaction.update_schema() as update:
                    for name in missing:
                        update.add_column(name, fields[name].field_type, fields[name].doc)
            if outdated := _outdated_properties(iceberg, table):
                transaction.set_properties(outdated)
        return catalog.load_table(table.name)
