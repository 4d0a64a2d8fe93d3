"""What compliance holds plans against, as files that people keep: limits, sectors, sales at a loss."""

from nvtrader_pipelines.execution.compliance import ComplianceData
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.storage.home import Home


def read_limits(home: Home) -> RiskLimits:
    """The desk's own limits of `data/compliance/limits.yaml`; the defaults where there is no such file.

    Raises:
        StorageError: if the file is no valid set of limits.
    """
    raise NotImplementedError


def read_compliance(home: Home) -> ComplianceData:
    """Sectors and sales at a loss of `data/compliance`; a table that is not there is empty.

    Raises:
        StorageError: if a table has other columns, a row is not what it must be, or a name has two sectors.
    """
    raise NotImplementedError


def require_no_looser(limits: RiskLimits, desk: RiskLimits) -> None:
    """Check a spec's limits against the hard ones of the desk.

    Raises:
        StorageError: if one that blocks is looser, naming both numbers.
    """
    raise NotImplementedError
