"""Checks that a sealed run may trade: files, ledger records, limits and current market."""

from nvtrader_pipelines.experiments.deployment import deploy
from nvtrader_pipelines.experiments.identity import run_code
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.promotion.compatibility import market_mismatch_error, require_market
from nvtrader_pipelines.storage.compliance_files import read_limits, require_not_looser
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RUNS

LEDGER_FIELDS = ("spec_hash", "partition_key", "source", "panel_digest", "code_version", "seeds", "parent_run_id")


def sealed_run(store: Store, ref: PolicyRef) -> SealedRun:
    """Read the sealed run of a policy.

    Raises:
        StorageError: if there is no such run, it is not sealed, or it has no policy of that name.
    """
    found, library = store.ledger.find_run(ref.run_id), store.policies
    run_id = found.parent_run_id or found.run_id
    if not library.is_sealed(found.partition_key, run_id):
        name = found.partition_key.partition("@")[0]
        raise StorageError(
            f"run {run_id} of {found.partition_key} is {found.status} and its policies are not all trained; "
            f"`nvtrader experiments run {name}` resumes it"
        )
    run = library.read_sealed(found.partition_key, run_id)
    names = policy_names(run)
    if ref.policy not in names:
        raise StorageError(f"run {run_id} has no policy {ref.policy!r}; it has {', '.join(names)}")
    return run


def code_mismatch(code_version: str) -> str | None:
    """Warning that a run was made with different code; None for the installed code."""
    if code_version == run_code():
        return None
    return (
        f"its run was made with code {code_version} but {run_code()} is installed, so it may trade differently than in "
        "its tests; run the experiment again with this code"
    )


def policy_names(run: SealedRun) -> list[str]:
    """Names of a run's policies: that of the experiment, then one per seed if there are several."""
    seeds = [f"{run.experiment}/seed-{seed}" for seed in run.seeds] if len(run.seeds) > 1 else []
    return [run.experiment, *seeds]


def require_usable(store: Store, run: SealedRun, policy: str) -> tuple[str, ...]:
    """Raise if a sealed run cannot trade on the current market; return the symbols it trades.

    Raises:
        StorageError: if its files, records or limits do not allow it, or the market lacks its names or features.
    """
    spec, panel = require_fit(store, run, policy)
    try:
        archives = store.policies.read_run(run)
        deploy(spec, panel, run.as_parent, archives, run.chosen, run.thresholds, policy)
    except ValueError as error:
        raise market_mismatch_error(run, policy, error) from error
    return panel.symbols


def require_fit(store: Store, run: SealedRun, policy: str) -> tuple[ExperimentSpec, MarketPanel]:
    """Check a sealed run without opening its networks; return its experiment and current market.

    Raises:
        StorageError: as `activate`, except for errors of opening the networks.
        CodeMismatchError: if this code reads the experiment differently.
    """
    spec = store.ledger.read(run.partition_key)
    if run.as_parent.validation_only:
        raise StorageError(
            f"{policy} of run {run.run_id} is for validation only: some of its policies were trained on sessions after "
            "their tests; train the experiment with the walk_forward or the holdout splitter, and activate that run"
        )
    require_not_looser(spec.pipeline.risk_limits, read_limits(store.home))
    _require_recorded_manifest(store, run)
    return spec, require_market(store, spec, run, policy)


def _require_recorded_manifest(store: Store, run: SealedRun) -> None:
    """Raise if the manifest differs from the records of the ledger or of the verdict."""
    known = dict(store.ledger.policies(run.run_id).select("file", "sha256").iter_rows())
    if not known:
        raise _unrecorded_error(run, "policies")
    begun = store.ledger.run(run.run_id)
    differ = [name for name in LEDGER_FIELDS if getattr(begun, name) != getattr(run, name)]
    if (begun.window_first, begun.window_last) != run.as_parent.window:
        differ.append("test windows")
    if known != run.policies:
        differ.append("policies")
    judged = store.tables.read(RUNS, {"run_id": [run.run_id]}, ["policies_sha256"])["policies_sha256"]
    digests = {"sealed": begun.policies_sha256, "judged": judged[0] if len(judged) else None}
    if not any(digests.values()):
        raise _unrecorded_error(run, "digest of the manifest")
    others = [when for when, digest in digests.items() if digest not in {None, run.sha256}]
    if others and not differ:  # chosen seeds, thresholds and other fields that only the digest covers
        differ.append(f"digest when {' and '.join(others)}")
    if differ:
        raise StorageError(
            f"the manifest of run {run.run_id} must be as recorded, but it differs in "
            f"{', '.join(name.replace('_', ' ') for name in differ)}; restore the folder "
            f"{store.policies.folder(run.partition_key, run.run_id)}, or remove it and train again"
        )


def _unrecorded_error(run: SealedRun, what: str) -> StorageError:
    return StorageError(
        f"the ledger has no {what} of run {run.run_id}, so the files of its folder cannot be verified; `nvtrader "
        f"experiments run {run.experiment}` resumes it and records them"
    )
