"""Sample specs, and helpers that activate policies or kill the process meanwhile."""

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.promotion.promote import activate
from nvtrader_pipelines.storage.store import Store
from tests.runs.untrained import AT, EXPERIMENT

OTHER = EXPERIMENT.model_copy(update={"name": "other", "agent": EqualWeight(), "seeds": (0,)})
LATER = AT + dt.timedelta(days=1)


class Killed(BaseException):
    """Kill of the process."""


def dying_at(step: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper of functions that kills the call number `step` of all of them together."""
    calls = itertools.count()

    def dies(function: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **options: Any) -> Any:
            if next(calls) == step:
                raise Killed
            return function(*arguments, **options)

        return maybe

    return dies


def forget_activations(store: Store) -> None:
    """Remove the audit, which the store then opens anew, and the pointer file."""
    for path in (*store.home.audit.glob("*"), *store.home.runtime.glob("active_policy.json")):
        path.unlink()
    vars(store).pop("audit", None)


def put_unreadable(store: Store) -> None:
    """Append an activation of another version, which this one cannot read."""
    event = AuditEvent(event_id=event_id("promoted"), kind="promoted", at=AT, by="ann", policy="small", run_id="1")
    store.audit.append([event])


def put(
    store: Store, ref: tuple[str, str], at: dt.datetime = AT, by: str = "ann", reason: str = "it is time"
) -> ActivePolicy:
    """Activate a policy of a run."""
    return activate(store, PolicyRef(*ref), by, reason, at)


def activations_of(store: Store) -> list[tuple]:
    """Activations of the audit."""
    events = store.audit.events()
    return [(event.run_id, event.policy, event.by, event.reason, event.at) for event in events]
