"""A run's store in memory, and a clock that ticks."""

import datetime as dt
import itertools

from nvtrader_pipelines.experiments.runtime import Runtime


class MemoryStore:
    """Keeps what a run makes; `parent` is the store whose policies are used."""

    def __init__(self, parent=None):
        self.parent = parent
        self.policies, self.checkpoints, self.starts = {}, {}, {}
        self.sealed, self.fitted, self.record, self.verdict = None, {}, None, None
        self.reported = []

    def done(self):
        return set(self.policies)

    def checkpoint(self, key):
        return self.checkpoints.get(key)

    def start(self, key):
        return self.starts.get(key)

    def store_checkpoint(self, key, content):
        self.checkpoints[key] = content

    def store_policy(self, policy):
        self.policies[policy.fold, policy.seed] = policy
        self.checkpoints.pop((policy.fold, policy.seed), None)

    def archives(self):
        return {key: policy.archive for key, policy in (self.parent or self).policies.items()}

    def seal(self, seed_weights, thresholds):
        self.sealed, self.fitted = dict(seed_weights), dict(thresholds)

    def seed_weights(self):
        return (self.parent or self).sealed

    def thresholds(self):
        return (self.parent or self).fitted

    def store_record(self, record):
        self.record = record

    def curves_and_actions(self):
        return self.record.equity_curves, self.record.action_logs

    def store_verdict(self, verdict):
        self.verdict = verdict


def ticking():
    """A clock that shows another second whenever it is read."""
    seconds = itertools.count()
    return lambda: dt.datetime(2024, 1, 2, tzinfo=dt.UTC) + dt.timedelta(seconds=next(seconds))


def walk_and_judge(plan, store):
    """The steps by which a run is walked and judged."""
    steps = runtime(plan, store)
    yield from steps.walk()
    yield from steps.judge()


def whole(plan, store):
    """The steps of a run that trains its policies."""
    yield from runtime(plan, store).train()
    yield from walk_and_judge(plan, store)


def runtime(plan, store, task_id="task") -> Runtime:
    return Runtime(plan, store, task_id, ticking())
