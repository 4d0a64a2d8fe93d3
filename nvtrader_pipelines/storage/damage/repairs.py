"""Repair of damaged files that can be rebuilt from others, or hold only history."""

from nvtrader_pipelines.storage.damage.file_problems import REPAIR
from nvtrader_pipelines.storage.damage.home_check import find_damage
from nvtrader_pipelines.storage.errors import DamagedFileError
from nvtrader_pipelines.storage.files import set_aside
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.catalog import rebuild_catalog


def repair(home: Home) -> list[DamagedFileError]:
    """Rebuild damaged files that can be rebuilt; return their problems.

    The catalog is rebuilt from the tables' metadata. Other files are set aside: states and settings are written by the
    next command, and the history of Dagster or MLflow begins anew.
    """
    repaired = [error for error in find_damage(home) if error.remedy == REPAIR]
    for error in repaired:
        if error.path == home.catalog:
            rebuild_catalog(home)
        else:
            set_aside(error.path)
    return repaired
