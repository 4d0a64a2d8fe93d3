"""Repair of damaged files that can be rebuilt from others, or hold only history."""

from nvtrader_pipelines.storage.damage.home_check import find_damage
from nvtrader_pipelines.storage.damage.remedies import REPAIR
from nvtrader_pipelines.storage.errors import DamagedFileError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.catalog import rebuild_catalog

DATABASE_PARTS = ("", "-wal", "-shm")


def repair(home: Home) -> list[DamagedFileError]:
    """Rebuild damaged files that can be rebuilt; return their problems.

    The catalog is rebuilt from the tables' metadata. Other files are renamed to `<name>.damaged`: states and settings
    are written by the next command, and the history of Dagster or MLflow begins anew.
    """
    repaired = [error for error in find_damage(home) if error.remedy == REPAIR]
    for error in repaired:
        if error.path == home.catalog:
            rebuild_catalog(home)
            continue
        for part in DATABASE_PARTS:
            path = error.path.with_name(f"{error.path.name}{part}")
            if path.exists():
                path.replace(path.with_name(f"{path.name}.damaged"))
    return repaired
