"""The SQLite catalog of the Iceberg tables: opened once, its tables made and widened when first used."""

import re
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from sqlalchemy import event

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import locked
from nvtrader_pipelines.storage.home import Home, lock_path
from nvtrader_pipelines.storage.table import Table

FORMAT = {"format-version": "2"}
PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    "write.parquet.dict-size-bytes": "262144",  # the default of 2 MB costs 1.4 times on float columns
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.manifest.target-size-bytes": "65536",  # some hundred files; a merge rewrites what is below it
    "commit.retry.num-retries": "30",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "1000",
}
# Longer keys must be whole in the statistics, or another engine's delete reads the partition to prove that it may go.
LONG_KEYS = ("spec_hash", "run_id", "file", "digest")


def open_catalog(home: Home) -> SqlCatalog:
    """The catalog, made where there is none; concurrent first uses take turns."""
    home.iceberg.mkdir(parents=True, exist_ok=True)
    with locked(lock_path(home, "catalog")):
        return _connect(home)


def load_table(catalog: SqlCatalog, home: Home, table: Table) -> IcebergTable:
    """A table as it is now; made where there is none.

    Raises:
        StorageError: if the catalog points to files that are not there.
    """
    found = find_table(catalog, home, table)
    if found is not None:
        return found
    with locked(lock_path(home, "catalog")):
        return _create(catalog, table)


def find_table(catalog: SqlCatalog, home: Home, table: Table) -> IcebergTable | None:
    """A table as it is now, given the columns and properties it lacks; None where it was never written.

    Raises:
        StorageError: if the catalog points to files that are not there.
    """
    try:
        found = catalog.load_table(table.name)
    except NoSuchTableError:
        return None
    except FileNotFoundError as error:
        raise missing_file(home, table, error) from error
    _require_home(home, table, found)
    return _bring_up_to_date(catalog, home, table) if _lacking(found, table) or _unset(found, table) else found


def missing_file(home: Home, table: Table, error: FileNotFoundError) -> StorageError:
    """What to tell a person whose warehouse was moved or thinned out."""
    named = re.search(r"/[^'\"\n]*?\.(parquet|avro|json)", str(error))
    return StorageError(
        f"{table.name} misses the file {named.group() if named else error}; the warehouse was moved or files were "
        f"deleted: put it back where it was built, or remove {home.warehouse} and run `nvtrader materialize`"
    )


def _require_home(home: Home, table: Table, found: IcebergTable) -> None:
    """A copied warehouse would read, and write, the files of the one it was copied from."""
    place = Path(found.location().removeprefix("file://"))
    if not place.resolve().is_relative_to(home.iceberg.resolve()):
        raise StorageError(
            f"{table.name} was built at {place}, outside {home.iceberg}; a warehouse cannot be moved or copied: "
            f"put it back where it was built, or remove {home.warehouse} and run `nvtrader materialize`"
        )


def _connect(home: Home) -> SqlCatalog:
    catalog = SqlCatalog(
        "nvtrader",
        uri=f"sqlite:///{home.catalog}?timeout=60",
        warehouse=str(home.iceberg.absolute()),  # no URI: it would be cut at a # and keep a %20
        **{"py-io-impl": "nvtrader_pipelines.storage.iceberg.fsync_io.FsyncFileIO"},
    )

    @event.listens_for(catalog.engine, "connect")
    def _write_ahead(connection, _record) -> None:  # noqa: ANN001 - a DBAPI connection has no type
        connection.execute("PRAGMA journal_mode=WAL")

    return catalog


def _create(catalog: SqlCatalog, table: Table) -> IcebergTable:
    catalog.create_namespace_if_not_exists(table.namespace)
    properties = FORMAT | properties_of(table)
    return catalog.create_table_if_not_exists(
        table.name, table.iceberg_schema(), partition_spec=table.partition_spec(), properties=properties
    )


def properties_of(table: Table) -> dict[str, str]:
    """What every table is set to, those that an earlier version made too."""
    return PROPERTIES | {f"write.metadata.metrics.column.{name}": "full" for name in LONG_KEYS if name in table.schema}


def _lacking(found: IcebergTable, table: Table) -> list[str]:
    there = set(found.schema().column_names)
    return [name for name in table.schema if name not in there]


def _unset(found: IcebergTable, table: Table) -> dict[str, str]:
    return {name: value for name, value in properties_of(table).items() if found.properties.get(name) != value}


def _bring_up_to_date(catalog: SqlCatalog, home: Home, table: Table) -> IcebergTable:
    """Add the columns that the code knows and the stored table does not (a feature that is new), and set properties."""
    with locked(lock_path(home, table.name)):
        found = catalog.load_table(table.name)
        wanted = {field.name: field for field in table.iceberg_schema().fields}
        with found.transaction() as transaction:
            if lacking := _lacking(found, table):
                with transaction.update_schema() as update:
                    for name in lacking:
                        update.add_column(name, wanted[name].field_type, wanted[name].doc)
            if unset := _unset(found, table):
                transaction.set_properties(unset)
        return catalog.load_table(table.name)
