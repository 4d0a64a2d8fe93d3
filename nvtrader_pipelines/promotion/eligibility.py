"""Checks that a sealed run may trade: files, ledger records, limits and current market."""

import shlex
from collections.abc import Sequence

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.components.text import name_symbols
from nvtrader_pipelines.execution.book import MIN_HOLDING
from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.archive import read_card
from nvtrader_pipelines.policies.learned import require_same_market
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.runs.universes import missing_sectors
from nvtrader_pipelines.storage.compliance_files import read_limits, require_not_looser
from nvtrader_pipelines.storage.errors import CodeMismatchError, StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DPO_CHECKS, RUNS

UNTESTED = "was not tested to the end; `nvtrader experiments run {}` tests it"  # of an experiment


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
        raise StorageError(
            f"run {run_id} has no policy {ref.policy!r}; it has {', '.join(names)}{suggest(ref.policy, names)}"
        )
    return run


def code_mismatch(store: Store, run: SealedRun) -> str | None:
    """Warning that a run was made with different code; None for the installed code."""
    try:
        installed = code_of(store.ledger.read(run.partition_key))
    except CodeMismatchError:
        installed = code_of()
    if run.code_version == installed:
        return None
    return (
        f"its run was made with code {run.code_version} but {installed} is installed, so it may trade differently than "
        "in its tests; run the experiment again with this code"
    )


def tuning_message(store: Store, run: SealedRun) -> str | None:
    """Say why a run that is tuned to preference pairs cannot pass; None if it passed its check, or is not tuned."""
    if not store.ledger.read(run.partition_key).agent.is_tuned:
        return None
    checks = store.tables.read(DPO_CHECKS, {"run_id": [run.run_id]}, ["passed", "sentence"])
    if checks.is_empty():
        return f"it is not checked on held-out pairs yet: `nvtrader preferences check {run.experiment}`"
    return None if checks["passed"][-1] else str(checks["sentence"][-1])


def coverage_warnings(store: Store, symbols: Sequence[str]) -> list[str]:
    """Say which of a policy's symbols have no sector, and which accounts hold others; with the cure."""
    sentence = missing_sectors(store.home, symbols)
    warnings = [sentence] if sentence else []
    states = {account: state for account, book in store.books().items() if (state := book.last())}
    for account, state in states.items():
        weights = zip(state.symbols, state.weights, strict=True)
        if foreign := [name for name, weight in weights if name not in (*symbols, CASH) and abs(weight) > MIN_HOLDING]:
            warnings.append(
                f"it trades {len(symbols)} names, but the account {account} also holds {name_symbols(foreign)}, so it "
                "cannot trade that account; sell them first with a policy that trades them, or empty a simulated "
                f"account: `nvtrader portfolio reset --account {account}`"
            )
    return warnings


def policy_names(run: SealedRun) -> list[str]:
    """Names of a run's policies: that of the experiment, then one per seed if there are several."""
    seeds = [f"{run.experiment}/seed-{seed}" for seed in run.seeds] if len(run.seeds) > 1 else []
    return [run.experiment, *seeds]


def require_usable(store: Store, run: SealedRun, policy: str) -> tuple[str, ...]:
    """Raise if a sealed run cannot trade on the current market; return the symbols it trades.

    Raises:
        StorageError: if its files, records or limits do not allow it, or the market lacks its names or features.
    """
    from nvtrader_pipelines.experiments.deployment import deploy  # slow to import, and cards open no network

    spec = require_fit(store, run, policy)
    try:
        panel = store.panels.read(spec.market)
        archives = store.policies.read_run(run)
        deploy(spec, panel, run.as_parent, archives, run.seed_weights, run.thresholds, policy)
    except ValueError as error:
        raise market_mismatch_error(run, policy, error) from error
    return panel.symbols


def require_fit(store: Store, run: SealedRun, policy: str) -> ExperimentSpec:
    """Check a sealed run without opening its networks; return its experiment.

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
    require_market(store, spec, run, policy)
    return spec


def require_market(store: Store, spec: ExperimentSpec, run: SealedRun, policy: str) -> None:
    """Require intact policy files and a market with the symbols and features of their training.

    Raises:
        StorageError: if symbols or features differ, or a file is missing or changed.
    """
    store.policies.require_untampered(run)
    path = store.policies.folder(run.partition_key, run.run_id) / min(run.policies)  # all have the same market
    try:
        require_same_market(read_card(path.read_bytes()), *store.panels.symbols_and_features(spec.market))
    except ValueError as error:  # no panel can be made, or it differs from that of the training
        raise market_mismatch_error(run, policy, error) from error


def market_mismatch_error(run: SealedRun, policy: str, why: ValueError) -> StorageError:
    """Build the error of a policy that does not fit the current market."""
    reason = " ".join(str(why).split())
    return StorageError(f"{policy} of run {run.run_id} cannot trade on the current market: {reason}")


def _require_recorded_manifest(store: Store, run: SealedRun) -> None:
    """Raise if the manifest differs from the digests that the ledger and the verdict recorded."""
    runs = store.tables.read_whole(RUNS, ["run_id", "policies_sha256"])
    judged = runs.filter(run_id=run.run_id)["policies_sha256"]
    recorded = {store.ledger.run(run.run_id).policies_sha256, *judged} - {None}
    if not recorded:
        raise StorageError(
            f"the ledger has no digest of the manifest of run {run.run_id}, so the files of its folder cannot be "
            f"verified; `nvtrader experiments run {run.experiment}` resumes it and records it"
        )
    if recorded != {run.sha256}:
        folder = store.policies.folder(run.partition_key, run.run_id)
        raise StorageError(
            f"the manifest of run {run.run_id} must be as recorded, but has another digest; restore its folder from a "
            f"backup, or train again: `rm -r {shlex.quote(str(folder))} && nvtrader experiments run {run.experiment}`"
        )
