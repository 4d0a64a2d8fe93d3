"""Damaged databases, tables and policies of a home, and settings that are not valid."""

from collections.abc import Callable, Iterator

from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.scoreboard.contests import read_contests
from nvtrader_pipelines.storage.compliance_files import read_compliance
from nvtrader_pipelines.storage.damage.home_check import find_damage
from nvtrader_pipelines.storage.damage.table_check import find_damaged_tables
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.specs import read_experiments, read_market
from nvtrader_pipelines.storage.store import Store

SETTINGS: tuple[Callable, ...] = (read_market, read_contests, read_gate, read_compliance)


def find_problems(store: Store) -> Iterator[StorageError]:
    """Find the problems of all files but those of accounts and the audit."""
    home, damaged = store.home, list(find_damage(store.home))
    yield from damaged
    if home.catalog.exists() and home.catalog not in {error.path for error in damaged}:
        yield from find_damaged_tables(store.tables)
    for read in SETTINGS:
        try:
            read(home)
        except StorageError as error:
            yield error
    try:
        for problem in read_experiments(home).problems.values():
            yield StorageError(problem)
        yield from _find_damaged_policies(store)
    except StorageError as error:
        if not damaged:
            yield error


def _find_damaged_policies(store: Store) -> Iterator[StorageError]:
    """Find damaged policy files of the runs in the ledger that trained some."""
    for partition_key, run_id in (
        store.ledger.runs().filter(kind="walk_forward", status="done").select("partition_key", "run_id").iter_rows()
    ):
        try:
            store.policies.require_untampered(store.policies.read_sealed(partition_key, run_id))
        except StorageError as error:
            yield error
