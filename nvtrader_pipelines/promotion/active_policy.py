"""The active policy of an account: the newest activation of it or of all, in the audit."""

import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from nvtrader_pipelines.components.text import ID_LENGTH, RunId
from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.policy_pointer import PolicyPointer, read_pointer, write_pointer
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY

ACTIVATIONS = ("activated", "promoted")  # kinds of event; the second is that of earlier versions
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_LOG = logging.getLogger(__name__)


class ActivePolicy(BaseModel):
    """Policy that trades, with the fields of its audit event."""

    model_config = ConfigDict(frozen=True)
    account: str | None = None  # that it trades; None: all
    bot: str = ""  # that was started with it; empty: it is of the account, or of all
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
    def pointer(self) -> PolicyPointer:
        """Content of the pointer file."""
        return PolicyPointer.model_validate(_pointer_fields(self.event))

    @property
    def event(self) -> AuditEvent:
        """Audit event of the activation, equal for equal activations."""
        before = {"previous_run_id": self.previous_run_id, "previous_policy": self.previous_policy}
        before |= {"bot": self.bot} if self.bot else {}
        account = [self.account] if self.account else []
        return AuditEvent(
            event_id=event_id("activated", *self.ref, self.sha256, self.activated_at.isoformat(), *account),
            kind="activated",
            at=self.activated_at,
            by=self.by,
            account=self.account,
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


@dataclass(frozen=True)
class PointerDifference:
    """Difference of the pointer file from the audit."""

    kind: Literal["missing", "outdated", "edited"]  # a torn file counts as missing
    sentence: str  # what must hold and what was found


def activations(store: Store) -> list[AuditEvent]:
    """Activations in the audit, oldest first.

    Raises:
        StorageError: if the audit is damaged.
    """
    return [row.event for row in store.audit.rows() if row.kind in ACTIVATIONS]


def read_active(store: Store, account: str | None = None) -> ActivePolicy | None:
    """Read the active policy of an account, or that of all; write a pointer file that differs from the latter.

    Raises:
        StorageError: as `last_activation`.
    """
    active = last_activation(store, account)
    if (active is None or active.account is None) and find_pointer_difference(store, active):
        mirror_pointer(store)
    return active


def read_every_active(store: Store) -> list[ActivePolicy]:
    """Read the newest activation of all accounts, of each account, and of each bot.

    Raises:
        StorageError: as `last_activation`.
    """
    return [_parse_activation(event) for event in newest_activations(store).values()]


def newest_activations(store: Store) -> dict[tuple[str | None, str], AuditEvent]:
    """Newest activation by account (None: all) and bot (empty: none)."""
    return {(event.account, event.detail.get("bot", "")): event for event in activations(store)}


def read_activation(store: Store, event: str) -> ActivePolicy:
    """Read an activation by the id of its event.

    Raises:
        StorageError: if there is none, or this version cannot read it.
    """
    events = {one.event_id: one for one in activations(store)}
    if event not in events:
        raise StorageError(f"the audit must have the activation {event}, with which a bot was started, but lacks it")
    return _parse_activation(events[event])


def last_activation(store: Store, account: str | None = None) -> ActivePolicy | None:
    """Read the newest activation of all accounts, or of all and one account, and write nothing; None without any.

    Those of bots do not count.

    Raises:
        StorageError: if the audit is damaged, or this version cannot read the activation.
    """
    fitting = [
        event for event in activations(store) if event.account in {None, account} and not event.detail.get("bot")
    ]
    return _parse_activation(fitting[-1]) if fitting else None


def _parse_activation(event: AuditEvent) -> ActivePolicy:
    moved = {"sha256": event.detail.get("policies_sha256"), "activated_at": event.at}
    try:
        return ActivePolicy.model_validate({**event.model_dump(), **event.detail, **moved})
    except ValidationError as error:
        first = error.errors()[0]
        raise StorageError(
            f"the last activation of the audit, {event.event_id}, cannot be read ({first['loc'][0]}: {first['msg']}); "
            "nothing trades until a policy is activated again: `nvtrader policies activate`"
        ) from error


def find_pointer_difference(store: Store, active: ActivePolicy | None) -> PointerDifference | None:
    """Compare the pointer file with the active policy; without one there must be no file."""
    expected = active.pointer if active else None
    must = f"name the active policy, {expected.policy} of run {expected.run_id}" if expected else "name no policy"
    begin = f"the pointer file {store.home.active_policy_file} must {must}, but"
    try:
        pointer = read_pointer(store.home)
    except StorageError as error:
        return PointerDifference("edited", f"{begin} {error}")
    if pointer == expected:
        return None
    if pointer is None:
        return PointerDifference("missing", f"{begin} is missing or torn")
    named = f"{begin} names {pointer.policy} of run {pointer.run_id}"
    if any(_pointer_fields(event) == dict(pointer) for event in activations(store)):
        return PointerDifference("outdated", f"{named}, an earlier activation")
    return PointerDifference("edited", f"{named} as no activation in the audit does")


def _pointer_fields(event: AuditEvent) -> dict[str, object]:
    """Content of the pointer file after an activation, which this version need not be able to read."""
    return {
        **event.model_dump(include={"policy", "run_id", "by"}),
        "experiment": event.detail.get("partition_key"),
        "sha256": event.detail.get("policies_sha256"),
        "activated_at": event.at,
    }


def mirror_pointer(store: Store) -> None:
    """Write the pointer file if it differs from the audit, and log an edit or a failure to write.

    The audit decides which policy trades, so neither stops the caller. An audit that cannot be read changes nothing.
    """
    try:
        if find_pointer_difference(store, last_activation(store)) is None:
            return
        with store.lock("policy_pointer"):  # a concurrent activation is no edit
            active = last_activation(store)
            difference = find_pointer_difference(store, active)
            if difference:
                write_pointer(store.home, active.pointer if active else None)
    except StorageError:
        return
    except OSError as error:
        _warn_unwritable(store.home.active_policy_file, error.strerror)
        return
    if difference and difference.kind == "edited":
        remedy = "it was corrected; to change the policy that trades, run `nvtrader policies activate`"
        _LOG.warning("%s; %s", difference.sentence, remedy)


@cache  # once per process
def _warn_unwritable(path: Path, reason: str) -> None:
    _LOG.warning(
        "the pointer file %s differs from the active policy and must be written, but cannot be (%s); correct its "
        "permissions or make room, then `nvtrader policies list`",
        path,
        reason,
    )


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


def read_replaceable(store: Store, account: str | None = None) -> ActivePolicy | None:
    """Read the active policy, or None if it cannot be read: a new activation replaces it."""
    try:
        return read_active(store, account)
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
