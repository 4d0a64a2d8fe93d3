"""Activation of a policy, after all checks that it can trade."""

from datetime import datetime

from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_replaceable
from nvtrader_pipelines.promotion.eligibility import require_usable, sealed_run
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.store import Store


def activate(store: Store, ref: PolicyRef, by: str, reason: str, at: datetime) -> ActivePolicy:
    """Activate a policy from the next close on; the active policy itself is left unchanged.

    All checks precede the write: on an error the previous policy stays active.

    Raises:
        StorageError: if the run is unknown, not sealed, lacks the policy or is validation-only, its files are missing,
            changed or do not open on the current market, its limits are looser than the desk's, or the audit is
            damaged.
    """
    run = sealed_run(store, ref)
    symbols = require_usable(store, run, ref.policy)
    with file_lock(store.home.runtime / ".active_policy.lock"):
        before = read_replaceable(store)
        if before is not None and (before.ref, before.sha256) == (PolicyRef(run.run_id, ref.policy), run.sha256):
            return before
        active = ActivePolicy(
            partition_key=run.partition_key,
            run_id=run.run_id,
            policy=ref.policy,
            sha256=run.sha256,
            spec_hash=run.spec_hash,
            snapshot_ids=run.snapshot_ids,
            symbols=symbols,
            code_version=run.code_version,
            installed=code_of(store.ledger.read(run.partition_key)),
            activated_at=at,
            by=by,
            reason=reason,
            previous_run_id=before.run_id if before else None,
            previous_policy=before.policy if before else None,
        )
        store.audit.append([active.event])
    return active
