"""The library of policies: a card for every policy of every sealed run, from what was kept of it."""

import polars as pl

from nvtrader_pipelines.storage.active_policy import PolicyRef
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from nvtrader_pipelines.storage.warehouse import Warehouse


def named_policy(lake: Warehouse, ledger: Ledger, text: str) -> PolicyRef:
    """The policy meant by an experiment, one of its versions or the begin of a run's id, with /seed-<k> or without.

    Of an experiment or version it is of the run begun last of those whose policies are all trained.

    Raises:
        StorageError: if there is none, or several ids begin so.
    """
    name, slash, seed = text.partition("/")
    runs, library = ledger.runs().filter(pl.col("parent_run_id").is_null()), PolicyLibrary(lake.home)
    named = runs.filter((pl.col("partition_key") == name) | pl.col("partition_key").str.starts_with(f"{name}@"))
    sealed = [pair for pair in named.select("partition_key", "run_id").iter_rows() if library.is_sealed(*pair)]
    if len(named) and not sealed:
        raise StorageError(
            f"{name} has no policies that are all trained; `nvtrader experiments run {name.partition('@')[0]}`"
        )
    if not sealed and not (name and ledger.runs()["run_id"].str.starts_with(name).any()):
        raise StorageError(
            f"no run's id begins with {name!r}, and no experiment of that name was run; see `nvtrader policies`"
        )
    if not sealed:
        found = ledger.find_run(name)
        sealed = [(found.partition_key, found.parent_run_id or found.run_id)]
    partition_key, run_id = sealed[0]
    return PolicyRef(run_id, f"{partition_key.partition('@')[0]}{slash}{seed}")
