"""The active policy: pointer `data/runtime/active_policy.json`, replaced atomically and audited."""

import contextlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from nvtrader_pipelines.components.ids import ID_LENGTH
from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.experiments.identity import run_code
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.promotion.verification import require_usable, sealed_run
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock, write_atomically
from nvtrader_pipelines.storage.store import Store

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class ActivePolicy(BaseModel):
    """Pointer to the policy that trades, with the fields of its audit event."""

    model_config = ConfigDict(frozen=True, extra="forbid")
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
            event_id=event_id("promoted", self.run_id, self.policy, self.sha256, self.activated_at.isoformat()),
            kind="promoted",
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


def read_active(store: Store) -> ActivePolicy | None:
    """Read the active policy, or None if none was ever activated.

    An activation that was killed before its audit event is completed first, so that only audited ones are returned.

    Raises:
        StorageError: if the pointer or the audit cannot be read, or the pointer differs from the last activation of the
            audit.
    """
    if not _pending(store).exists():
        with contextlib.suppress(StorageError):  # another process may be activating; read again under the lock
            return _read_audited(store)
    with file_lock(_lock(store)):
        _finish_activation(store)
        return _read_audited(store)


def last_activation(store: Store) -> str | None:
    """Return the event id of the last activation, if any; its pointer may be damaged since.

    Raises:
        StorageError: if the audit cannot be read or, after a kill, not be written.
    """
    with file_lock(_lock(store)):
        _finish_activation(store)
    events = store.audit.events()
    return next((each.event_id for each in reversed(events) if each.kind == "promoted"), None)


def activate(store: Store, ref: PolicyRef, by: str, reason: str, clock: Callable[[], datetime]) -> ActivePolicy:
    """Activate a policy from the next close on; the active policy itself is left unchanged.

    All checks precede all writes: on an error the previous policy stays active.

    Raises:
        StorageError: if the run is unknown, not sealed, lacks the policy or is validation-only, its files are missing,
            changed or do not open on the current market, its limits are looser than the desk's, or the audit cannot be
            read.
    """
    run = sealed_run(store, ref)
    symbols = require_usable(store, run, ref.policy)
    with file_lock(_lock(store)):
        before = _read_replaceable(store)
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
            installed=run_code(),
            activated_at=clock(),
            by=by,
            reason=reason,
            previous_run_id=before.run_id if before else None,
            previous_policy=before.policy if before else None,
        )
        store.audit.events()  # raises if the audit cannot be read
        content = (active.model_dump_json(indent=1) + "\n").encode()
        write_atomically(_pending(store), content)  # lets the next reader complete a killed activation
        write_atomically(store.home.active_policy, content)
        _finish_activation(store)
    return active


def _read_replaceable(store: Store) -> ActivePolicy | None:
    """Read the active policy, or None if it is damaged: a new activation repairs that."""
    try:
        _finish_activation(store)
        return _read_audited(store)
    except StorageError:
        return None


def _finish_activation(store: Store) -> None:
    """Append the event of a pending activation if its pointer was written; appending is idempotent."""
    if not _pending(store).exists():  # no activation is pending
        return
    active, to_write = None, _pending(store).read_bytes()
    with contextlib.suppress(StorageError):  # a damaged pointer is reported by the next read
        active = _read(store.home.active_policy)
    if active is not None and store.home.active_policy.read_bytes() == to_write:
        store.audit.append([active.event])
    _clear_pending(store)


def _read_audited(store: Store) -> ActivePolicy | None:
    """Read the pointer and require that it equals the last activation in the audit, if any."""
    active = _read(store.home.active_policy)
    activations = {each.event_id: each for each in store.audit.events() if each.kind == "promoted"}
    last = next(reversed(activations.values()), None)
    recorded = activations.get(active.event.event_id) if active else None
    if recorded == last == (active.event if active else None):
        return active
    raise StorageError(
        f"{store.home.active_policy} must be as the last activation wrote it, but "
        f"{_difference(active, recorded, last)}; nothing trades until a policy is activated again, which replaces it: "
        "`nvtrader policies activate`"
    )


def _difference(active: ActivePolicy | None, recorded: AuditEvent | None, last: AuditEvent | None) -> str:
    """Describe how the pointer differs from its event in the audit, or from the last activation."""
    activation = f"of {last.policy} of run {last.run_id} on {last.at:%Y-%m-%d}" if last else ""
    if active is None:
        return f"it is missing, and the audit has an activation {activation}"
    if recorded is None:
        return "the audit has no such activation"
    if recorded == active.event:
        return f"the audit has a later activation {activation}"
    others = [name for name, value in _flat(active.event).items() if _flat(recorded).get(name) != value]
    return f"the audit differs in {', '.join(others)}"


def _flat(event: AuditEvent) -> dict[str, object]:
    return {**event.model_dump(exclude={"detail"}), **event.detail}


def _read(path: Path) -> ActivePolicy | None:
    try:
        return ActivePolicy.model_validate_json(path.read_bytes()) if path.exists() else None
    except (OSError, ValidationError) as error:
        raise StorageError(
            f"{path} cannot be read as the active policy ({_reason(error)}); nothing trades until a policy is "
            "activated again, which replaces it: `nvtrader policies activate`"
        ) from error


def _reason(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"


def _pending(store: Store) -> Path:
    """File with the pointer being written; it exists until the audit has the event."""
    return store.home.runtime / ".active_policy.pending"


def _clear_pending(store: Store) -> None:
    _pending(store).unlink(missing_ok=True)


def _lock(store: Store) -> Path:
    return store.home.runtime / ".active_policy.lock"


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
