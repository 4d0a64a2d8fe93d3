"""Names that are archived together: an experiment, and the variants of an ablation."""

import polars as pl

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.specs import experiment_name, read_experiments
from nvtrader_pipelines.storage.store import Store


def names_with_variants(store: Store, name: str) -> list[str]:
    """Names of an experiment and all its variants, from its file and its registered versions.

    Raises:
        NotFoundError: if there is neither a file nor a registered version.
        StorageError: if the name is that of a variant.
    """
    found, versions = read_experiments(store.home), store.ledger.versions()
    variants = {spec.name: [each.name for each in spec.variants()] for spec in found.specs}
    for owner, names in variants.items():
        if name in names and name != owner:
            raise StorageError(f"{name} is a variant of {owner}; archive or unarchive {owner}")
    files = {*variants, *(experiment_name(path) for path in found.problems)}
    known = sorted({*files, *versions["name"]})
    if name not in known:
        raise NotFoundError(
            f"no experiment is named {name!r}{suggest(name, known)}; see `nvtrader experiments list --all`"
        )
    parents = versions.filter(pl.col("name") == name)["spec_hash"]
    children = versions.filter(pl.col("parent_hash").is_in(parents.implode()))["name"]
    return [name, *sorted({*variants.get(name, ()), *children} - {name})]
