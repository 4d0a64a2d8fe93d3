"""The active policy: the last activation in the audit."""

from typing import Annotated

import polars as pl
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from nvtrader_pipelines.components.ids import ID_LENGTH
from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY

ACTIVATIONS = ("activated", "promoted")  # kinds of event; the second is that of earlier versions
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class ActivePolicy(BaseModel):
    """Policy that trades, with the fields of its audit event."""

    model_config = ConfigDict(frozen=True)
    partition_key: str  # experiment, name@hash8
    run_id: RunId
    policy: str  # account name in the evaluation
    sha256: Sha256  # of the run's manifest, which holds the digests of its policy files
    spec_hash: Sha256
    snapshot_ids: dict[str, int]  # of the training panel
    symbols: tuple[str, ...]  # symbols it trades
    code_version: str  # of its run
    installed: str  # code version that activated it
    activated_at: AwareDatetime
    by: str
    reason: str = ""
    previous_run_id: RunId | None = None
    previous_policy: str | None = None

    @property
    def ref(self) -> PolicyRef:
        """Reference to the policy in the library."""
        return PolicyRef(self.run_id, self.policy)

    @property
    def event(self) -> AuditEvent:
        """Audit event of the activation, equal for equal activations."""
        before = {"previous_run_id": self.previous_run_id, "previous_policy": self.previous_policy}
        return AuditEvent(
            event_id=event_id("activated", self.run_id, self.policy, self.sha256, self.activated_at.isoformat()),
            kind="activated",
            at=self.activated_at,
            by=self.by,
            policy=self.policy,
            run_id=self.run_id,
            spec_hash=self.spec_hash,
            snapshot_ids=self.snapshot_ids,
            reason=self.reason,
            detail={
                "partition_key": self.partition_key,
                "policies_sha256": self.sha256,
                "symbols": list(self.symbols),
                "code_version": self.code_version,
                "installed": self.installed,
                **before,
            },
        )


def activations(store: Store) -> list[AuditEvent]:
    """Activations in the audit, oldest first.

    Raises:
        StorageError: if the audit is damaged.
    """
    return [event for event in store.audit.events() if event.kind in ACTIVATIONS]


def read_active(store: Store) -> ActivePolicy | None:
    """Read the active policy, or None if none was ever activated.

    Raises:
        StorageError: if the audit is damaged, or this version cannot read the last activation.
    """
    events = activations(store)
    if not events:
        return None
    event = events[-1]
    moved = {"sha256": event.detail.get("policies_sha256"), "activated_at": event.at}
    try:
        return ActivePolicy.model_validate({**event.model_dump(), **event.detail, **moved})
    except ValidationError as error:
        first = error.errors()[0]
        raise StorageError(
            f"the last activation of the audit, {event.event_id}, cannot be read ({first['loc'][0]}: {first['msg']}); "
            "nothing trades until a policy is activated again: `nvtrader policies activate`"
        ) from error


def require_every_activation(store: Store) -> None:
    """Raise if the audit lacks an activation that was mirrored: it was cut, or an older copy was put back.

    Raises:
        StorageError: with the activation and the remedy.
    """
    known = store.tables.read(ACTIVE_POLICY, columns=["event_id", "policy"])
    recorded = [event.event_id for event in activations(store)]
    lost = known.filter(~pl.col("event_id").is_in(recorded))
    if len(lost):
        raise StorageError(
            f"the audit {store.audit.path} must have every activation of portfolio.active_policy, but lacks that of "
            f"{lost['policy'][-1]}, {lost['event_id'][-1]}: it was cut or replaced; restore the newest copy"
        )


def read_replaceable(store: Store) -> ActivePolicy | None:
    """Read the active policy, or None if it cannot be read: a new activation replaces it."""
    try:
        return read_active(store)
    except StorageError:
        return None


def read_active_run(store: Store, active: ActivePolicy) -> SealedRun:
    """Read the run of the active policy and require the manifest that was activated.

    Raises:
        StorageError: if it is not sealed any more, or its manifest changed.
    """
    run = store.policies.read_sealed(active.partition_key, active.run_id)
    if run.sha256 != active.sha256:
        raise StorageError(
            f"run {run.run_id} of {run.partition_key} was activated with a manifest of digest "
            f"{active.sha256[:ID_LENGTH]}, but its digest is now {run.sha256[:ID_LENGTH]}; restore its "
            "files, or activate a policy again"
        )
    return run
