"""Sample specs and helpers that activate policies and kill a process in the middle of it."""

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any

from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, activate
from nvtrader_pipelines.storage.store import Store
from tests.runs.untrained import AT, EXPERIMENT

OTHER = EXPERIMENT.model_copy(update={"name": "other", "agent": EqualWeight(), "seeds": (0,)})
LATER = AT + dt.timedelta(days=1)


class Killed(BaseException):
    """What ends a process in the middle."""


def dying_at(step: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What is to be wrapped around functions: of all their calls, counted together from 0, one is a kill instead."""
    calls = itertools.count()

    def dies(function: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **options: Any) -> Any:
            if next(calls) == step:
                raise Killed
            return function(*arguments, **options)

        return maybe

    return dies


def forget_activations(store: Store) -> None:
    """Remove the pointer and the audit, which the store then opens anew."""
    for folder in (store.home.runtime, store.home.audit):
        for path in folder.glob("*"):
            path.unlink()
    vars(store).pop("audit", None)


def put(
    store: Store, ref: tuple[str, str], at: dt.datetime = AT, by: str = "ann", reason: str = "it is time"
) -> ActivePolicy:
    """Activate a policy of a run."""
    return activate(store, PolicyRef(*ref), by, reason, lambda: at)


def promoted(store: Store) -> list[tuple]:
    """What the audit has of every activation."""
    events = store.audit.events()
    return [(event.run_id, event.policy, event.by, event.reason, event.at) for event in events]
