"""Which policy trades: `data/runtime/active_policy.json`, changed whole or not at all, and every change audited."""

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
    """The pointer to the policy that trades, and all that its audit event needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    partition_key: str  # experiment, name@hash8
    run_id: RunId
    policy: str  # the name its account had in the evaluation
    sha256: Sha256  # of the run's manifest, which names its policy files by theirs
    spec_hash: Sha256
    snapshot_ids: dict[str, int]  # of the panel it was trained on
    symbols: tuple[str, ...]  # names it trades
    code_version: str  # that its run was made with
    installed: str  # the code version that activated it
    activated_at: AwareDatetime
    by: str
    reason: str = ""
    previous_run_id: RunId | None = None
    previous_policy: str | None = None

    @property
    def ref(self) -> PolicyRef:
        """Which policy of the library it is."""
        return PolicyRef(self.run_id, self.policy)

    @property
    def event(self) -> AuditEvent:
        """Its row in the audit; the same activation gives the same row."""
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
    """The policy that trades; None where none was ever activated.

    An activation that was killed before its audit event gets it here, so nobody acts on one that is not audited.

    Raises:
        StorageError: if the pointer cannot be read, is damaged or has unknown fields, the audit cannot be read, or the
            pointer is gone or otherwise not what the last activation that the audit has wrote.
    """
    if not _pending(store).exists():
        with contextlib.suppress(StorageError):  # another process may be activating: see when it has ended
            return _audited(store)
    with file_lock(_lock(store)):
        _finish(store)
        return _audited(store)


def last_activation(store: Store) -> str | None:
    """The event of the last activation that came about, though its pointer may be damaged since; None before any.

    Raises:
        StorageError: if the audit cannot be read, or not be written after a kill.
    """
    with file_lock(_lock(store)):
        _finish(store)
    events = store.audit.events()
    return next((each.event_id for each in reversed(events) if each.kind == "promoted"), None)


def activate(store: Store, ref: PolicyRef, by: str, reason: str, clock: Callable[[], datetime]) -> ActivePolicy:
    """Make a policy the one that decides from the next close on; the one that trades already stays as it is.

    Everything is checked before anything is written: where this raises, the policy that traded before still does.

    Raises:
        StorageError: if the run is unknown or not sealed, has no such policy, is for validation only, its files are
            missing or changed, they do not open on the market as it is now, its limits are looser than the desk's, or
            the audit cannot be read.
    """
    run = sealed_run(store, ref)
    symbols = require_usable(store, run, ref.policy)
    with file_lock(_lock(store)):
        before = _before(store)
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
        store.audit.events()  # an audit that cannot be read stops here
        content = (active.model_dump_json(indent=1) + "\n").encode()
        write_atomically(_pending(store), content)  # until the event is kept: who reads makes good a kill in between
        write_atomically(store.home.active_policy, content)
        _finish(store)
    return active


def _before(store: Store) -> ActivePolicy | None:
    """What trades until now, audited; None where that cannot be told, which a new activation makes good."""
    try:
        _finish(store)
        return _audited(store)
    except StorageError:
        return None


def _finish(store: Store) -> None:
    """Keep the event of the pointer, which may be there already, if it is the one that an activation was to write."""
    if not _pending(store).exists():  # no activation was killed
        return
    active, to_write = None, _pending(store).read_bytes()
    with contextlib.suppress(StorageError):  # no activation wrote a damaged one: who reads it next is told
        active = _read(store.home.active_policy)
    if active is not None and store.home.active_policy.read_bytes() == to_write:
        store.audit.append([active.event])
    _settled(store)


def _audited(store: Store) -> ActivePolicy | None:
    """The pointer, whose every field is that of the last activation in the audit; None where neither has any."""
    active = _read(store.home.active_policy)
    activations = {each.event_id: each for each in store.audit.events() if each.kind == "promoted"}
    last = next(reversed(activations.values()), None)
    kept = activations.get(active.event.event_id) if active else None
    if kept == last == (active.event if active else None):
        return active
    raise StorageError(
        f"{store.home.active_policy} is not what an activation wrote: {_difference(active, kept, last)}; nothing "
        "trades until a policy is activated again, which replaces it: `nvtrader policies activate`"
    )


def _difference(active: ActivePolicy | None, kept: AuditEvent | None, last: AuditEvent | None) -> str:
    """What the pointer has otherwise than its own event in the audit, or than the last one there."""
    format_probability = f"of {last.policy} of run {last.run_id} on {last.at:%Y-%m-%d}" if last else ""
    if active is None:
        return f"it is gone, and the audit has one, {format_probability}"
    if kept is None:
        return "the audit has no such activation"
    if kept == active.event:
        return f"the audit has a later one, {format_probability}"
    others = [name for name, value in _flat(active.event).items() if _flat(kept).get(name) != value]
    return f"the audit has another {', '.join(others)}"


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
    """The pointer that an activation is about to write; there while that may lack its audit event."""
    return store.home.runtime / ".active_policy.pending"


def _settled(store: Store) -> None:
    _pending(store).unlink(missing_ok=True)


def _lock(store: Store) -> Path:
    return store.home.runtime / ".active_policy.lock"


def read_active_run(store: Store, active: ActivePolicy) -> SealedRun:
    """The run of the active policy, whose manifest is the one that was activated.

    Raises:
        StorageError: if it is not sealed any more, or anything in its manifest that decides is another.
    """
    run = store.policies.read_sealed(active.partition_key, active.run_id)
    if run.sha256 != active.sha256:
        raise StorageError(
            f"run {run.run_id} of {run.partition_key} was activated with a manifest of digest "
            f"{active.sha256[:ID_LENGTH]}, but that is now {run.sha256[:ID_LENGTH]}; restore its "
            "files, or activate a policy again"
        )
    return run
