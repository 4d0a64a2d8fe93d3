"""Requirements of a run: that its partition exists, and that its job takes its configuration."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    import dagster as dg

PARTITION, RANGE_START = "dagster/partition", "dagster/asset_partition_range_start"  # tags; their modules are slow


def partition_keys(job: "dg.JobDefinition", instance: "dg.DagsterInstance") -> Sequence[str] | None:
    """Keys of the partitions of a job; None if it has no partitions."""
    partitions = job.partitions_def
    return None if partitions is None else partitions.get_partition_keys(dynamic_partitions_store=instance)


def require_partition(
    job: str, keys: Sequence[str] | None, tags: Mapping[str, str], assets: Sequence[str] = ()
) -> None:
    """Raise unless the tags name a partition or a range of a job with partitions, and none of another job.

    Dagster accepts others, and their steps fail. Assets that a schedule chooses may be without partitions.
    """
    key = tags.get(PARTITION)
    if assets and key is None:
        return
    if keys is None and key is not None:
        raise ValueError(f"the job {job} has no partitions, but partition {key!r} is named; leave it out")
    if keys is None or key in keys or (key is None and RANGE_START in tags):
        return
    if not keys:
        raise ValueError(f"the job {job} must have a partition to run, but has none yet; run `nvtrader materialize`")
    text = "none is named" if key is None else f"{key!r} is none of its {len(keys)} partitions"
    raise ValueError(f"the job {job} must run a partition such as {keys[-1]}, but {text}{suggest(key or '', keys)}")


def require_config(store: Store, job: "dg.JobDefinition", config: Mapping[str, Any]) -> None:
    """Raise unless a job can run with a configuration.

    Raises:
        ValueError: if it is not valid.
        StorageError: if it is that of a search, and its settings are not valid.
    """
    import dagster as dg

    try:
        dg.validate_run_config(job, config)
    except dg.DagsterInvalidConfigError as error:
        raise config_error(job.name, error.errors[0].message) from error
    require_search(store, job.name, config)


def require_search(store: Store, job: str, config: Mapping[str, Any]) -> None:
    """Raise unless a session can be created by the configuration of a search; Dagster checks no bounds.

    Raises:
        StorageError, ValueError: as `plan_session`.
    """
    if job != "autoresearch":
        return
    from nvtrader_pipelines.research.search_settings import LaunchSettings
    from nvtrader_pipelines.research.session_store import launched_options, plan_session
    from nvtrader_pipelines.storage.documents import validate_document

    content = config.get("ops", {}).get("autoresearch_session", {}).get("config", {})
    settings = validate_document(content, LaunchSettings, "the settings are not valid")
    plan_session(store, **launched_options(store.home, settings))


def config_error(job: str, message: str) -> ValueError:
    """Error of a configuration, by the message of Dagster."""
    return ValueError(f"the configuration of the job {job} is not valid: {one_line(message)}")


def one_line(message: str) -> str:
    """Put a message of Dagster on one line, without the schema that it expects."""
    return " ".join(message.split()).partition(". Expected: ")[0]
