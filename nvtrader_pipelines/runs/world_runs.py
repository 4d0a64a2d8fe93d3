"""Runs in worlds: plan, train, test and store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import polars as pl

from nvtrader_pipelines.evaluation.world_results import (
    play,
    reward_rows,
    trajectory_rows,
    world_results,
)
from nvtrader_pipelines.experiments.code_digest import world_code
from nvtrader_pipelines.experiments.progress import Progress, Stage
from nvtrader_pipelines.experiments.runtime import TrainingProgress
from nvtrader_pipelines.experiments.world_experiment import WorldExperiment, WorldPlan
from nvtrader_pipelines.policies.fit import Fit
from nvtrader_pipelines.policies.rollout_tables import TRAINING_CURVE
from nvtrader_pipelines.policies.training import Checkpointed, Finished, Stepped, train_all
from nvtrader_pipelines.policies.world_agents.base import WorldTask
from nvtrader_pipelines.runs.lifecycle import Launch, now, record_run
from nvtrader_pipelines.runs.order_books import read_book
from nvtrader_pipelines.runs.run_tables import with_run_keys
from nvtrader_pipelines.storage.errors import NameTakenError, StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.ledger import RunRow
from nvtrader_pipelines.storage.policy_library import policy_file_name
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    REWARD_DECOMPOSITION,
    TRAINING_CURVES,
    TRAJECTORIES,
    WORLD_RESULTS,
    Table,
)
from nvtrader_pipelines.storage.training_curve_file import append_point
from nvtrader_pipelines.storage.world_files import FoundWorlds, read_world, read_worlds
from nvtrader_pipelines.worlds.book_trading import BookTrading
from nvtrader_pipelines.worlds.books import LandedBook

WorldSteps = Generator[Progress, None, pl.DataFrame]


def plan_world(store: Store, spec: WorldExperiment) -> WorldPlan:
    """Plan a run on the current market.

    Raises:
        StorageError: if the source of the market has no panel, or the book is not landed.
        ValueError: if the market lacks days or a symbol, or has too few sessions.
    """
    if isinstance(spec.world, BookTrading) and isinstance(spec.world.books, LandedBook):
        return WorldPlan.of(spec, read_book(store, spec.world.books.name))
    return WorldPlan.of(spec, store.panels.read(spec.market) if spec.market else None)


def run_world(store: Store, spec: WorldExperiment, launch: Launch) -> WorldSteps:
    """Register an experiment in a world, train what is missing, test it; return its results.

    Raises:
        StorageError: if the source of the market has no panel, or an experiment has the name.
        ValueError: if the market lacks days or a symbol, has too few sessions, or a training diverged.
    """
    plan = plan_world(store, spec)
    experiments = [variant.name for one in read_experiments(store.home).specs for variant in (one, *one.variants())]
    if spec.name in experiments:  # which may be registered later
        raise NameTakenError(f"{spec.name} is the name of a file of data/experiments; choose another name")
    store.ledger.register(spec)
    return (yield from record_run(store, _row(plan, launch), _WorldRun(store, plan, launch.task_id).steps()))


def run_worlds(store: Store, names: Sequence[str], launch: Launch) -> Generator[Progress, None, dict[str, str]]:
    """Run the named experiments, or without names all whose plan has no finished run.

    Returns:
        Problems by name: of files that are not valid and, without names, of experiments that cannot be planned.

    Raises:
        NotFoundError: if no valid file has one of the names.
        StorageError, ValueError: as `run_world`; without names only if a training diverged.
    """
    worlds = read_worlds(store.home)
    named = [read_world(store.home, name) for name in dict.fromkeys(names)]
    for spec in named or _unfinished(store, worlds):
        yield from run_world(store, spec, launch)
    return worlds.problems


def _unfinished(store: Store, worlds: FoundWorlds) -> Iterator[WorldExperiment]:
    """Yield the experiments whose plan has no finished run; those that cannot be planned become problems."""
    finished = set(store.ledger.runs(with_worlds=True).filter(status="done")["run_id"])
    for name, spec in worlds.specs.items():
        try:
            run_id = plan_world(store, spec).run_id
        except (StorageError, ValueError) as error:
            worlds.problems[name] = str(error)
        else:
            if run_id not in finished:
                yield spec


def _row(plan: WorldPlan, launch: Launch) -> RunRow:
    spec, panel = plan.spec, plan.panel
    days = (
        [panel.sessions[t].astype("datetime64[D]").item() for t in plan.test]
        if panel is not None and plan.test
        else [None, None]
    )
    return RunRow(
        run_id=plan.run_id,
        kind="world",
        spec_hash=spec.spec_hash,
        partition_key=spec.partition_key,
        source=panel.source if panel is not None else spec.world.kind,
        panel_digest=plan.panel_digest,
        snapshot_ids=dict(panel.snapshot_ids) if panel is not None else {},
        code_version=world_code(spec),
        seeds=spec.seeds,
        task_id=launch.task_id,
        started_at=now(),
        window_first=days[0],
        window_last=days[1],
        dagster_run_id=launch.dagster_run_id,
    )


class _WorldRun:
    """One execution of a run; every policy and checkpoint is a file as soon as it is there."""

    def __init__(self, store: Store, plan: WorldPlan, task_id: str) -> None:
        self._store, self._plan, self._task_id = store, plan, task_id
        self._key = plan.spec.partition_key, plan.run_id

    def steps(self) -> WorldSteps:
        """Train the missing seeds, then test all; yield the progress and return the results."""
        spec = self._plan.spec
        days = " to ".join(map(str, spec.test)) if spec.test else "episodes of its own"
        yield self._progress(
            "start", f"{spec.partition_key}: {spec.agent.kind} in {spec.world.kind}, {days}", share=0.0
        )
        folder, shared = self._store.policies.folder(*self._key), self._store.policies.shared
        shared.pull(folder)
        trained = {seed for seed in spec.seeds if self._is_trained(seed)}
        missing = [seed for seed in spec.seeds if seed not in trained]
        tasks = [self._plan.task(seed, self._checkpoint(seed)) for seed in missing]
        resumed = {(task.fold, task.seed) for task in tasks if task.resume_from is not None}
        training = TrainingProgress([(0, s) for s in spec.seeds], [(0, s) for s in trained], resumed, now)
        with closing(train_all(self._plan.panel, tasks)) as events:  # workers end with this generator
            for event in events:
                yield self._store_event(event, training)
        digests = {policy_file_name((0, seed)): _sha256(self._path(seed).read_bytes()) for seed in spec.seeds}
        shared.push(folder)
        self._store.ledger.record_policies(self._plan.run_id, digests, _sha256(json.dumps(digests).encode()))
        results = self._test()
        row = results.filter(pl.col("seed").is_null()).row(0, named=True)
        message = f"mean reward {row['mean']:.5g}, {row['reference']} {row['reference_mean']:.5g}"
        figures = {name: row[name] for name in ("mean", "reference_mean", "difference")}
        yield self._progress("done", message, share=1.0, metrics=figures)
        return results

    def _test(self) -> pl.DataFrame:
        """Play the test by every policy and the reference, and store what they did."""
        from nvtrader_pipelines.policies.agents.checkpoints import strip_prefix, unpack

        spec, plan = self._plan.spec, self._plan
        simulation = spec.world.examine(plan.panel, plan.test)
        reference = play(simulation, spec.world.reference_actions)
        played, curves = {}, []
        for seed in spec.seeds:
            arrays, facts = unpack(self._path(seed).read_bytes())
            decide = spec.agent.start(simulation, strip_prefix("policy", arrays))
            played[seed] = play(simulation, decide)
            curves += [(0, seed, timesteps, reward) for timesteps, reward in facts["curve"]]
        accounts = [(reference, {"policy": spec.world.reference, "kind": "baseline"}, None)]
        accounts += [
            (steps, {"policy": f"{spec.name}/seed-{seed}", "kind": "policy"}, seed) for seed, steps in played.items()
        ]
        results = world_results(
            played,
            reference,
            reference=spec.world.reference,
            world=spec.world.kind,
            agent=spec.agent.kind,
        )
        trajectories = [trajectory_rows(steps, seed=seed, **account) for steps, account, seed in accounts]
        self._replace(TRAJECTORIES, pl.concat(trajectories))
        self._replace(REWARD_DECOMPOSITION, pl.concat(reward_rows(steps, **account) for steps, account, _ in accounts))
        self._replace(TRAINING_CURVES, pl.DataFrame(curves, schema=TRAINING_CURVE, orient="row"))
        self._replace(WORLD_RESULTS, results)
        return results

    def _replace(self, table: Table, rows: pl.DataFrame) -> None:
        spec, run_id = self._plan.spec, self._plan.run_id
        keys = {"spec_hash": spec.spec_hash, "run_id": run_id, "experiment": spec.name}
        keyed = with_run_keys(table, rows, keys).select(table.schema.names())
        self._store.tables.replace(table, keyed, {"spec_hash": [spec.spec_hash], "run_id": [run_id]})

    def _store_event(
        self, event: Stepped[WorldTask] | Checkpointed[WorldTask] | Finished[WorldTask], training: TrainingProgress
    ) -> Progress:
        """Store the result of a training event and report progress."""
        task = event.task
        total, key, name = task.total_timesteps, (0, task.seed), f"seed {task.seed}"
        fields = {"fold": 0, "seed": task.seed, "total_timesteps": total}
        match event:
            case Stepped(timesteps=timesteps, mean_reward=reward, scalars=scalars):
                share = training.update(key, timesteps / total)
                message = f"{name}: {timesteps} of {total} timesteps{training.pace(total)}"
                metrics = {"mean_reward": reward, **scalars}
                step = self._progress(
                    "train.step", message, **fields, timesteps=timesteps, share=share, metrics=metrics
                )
                append_point(self._store.home, step)
                return step
            case Checkpointed(content=content):
                write_atomically(self._store.policies.checkpoint_path(*self._key, key), content)
                return self._progress("train.checkpoint", f"{name}: can be resumed", **fields, share=training.share)
            case Finished(fit=fit):
                self._write(task.seed, fit)
                share, message = training.finish(key), f"{name}: trained{training.pace(total)}"
                return self._progress("train.checkpoint", message, **fields, timesteps=total, share=share)

    def _write(self, seed: int, fit: Fit) -> None:
        """Write a policy, then delete its checkpoint."""
        from nvtrader_pipelines.policies.agents.checkpoints import add_prefix, pack

        write_atomically(self._path(seed), pack(add_prefix("policy", fit.tensors), {"curve": fit.curve}))
        self._store.policies.checkpoint_path(*self._key, (0, seed)).unlink(missing_ok=True)

    def _path(self, seed: int) -> Path:
        return self._store.policies.folder(*self._key) / policy_file_name((0, seed))

    def _checkpoint(self, seed: int) -> bytes | None:
        with suppress(FileNotFoundError):
            return self._store.policies.checkpoint_path(*self._key, (0, seed)).read_bytes()
        return None

    def _is_trained(self, seed: int) -> bool:
        """Whether the policy of a seed is there, unchanged since the ledger recorded its digest."""
        recorded = self._store.ledger.policies(self._plan.run_id).filter(seed=seed)["sha256"]
        with suppress(FileNotFoundError):
            return _sha256(self._path(seed).read_bytes()) in {*recorded} or recorded.is_empty()
        return False

    def _progress(self, stage: Stage, message: str, **more: Any) -> Progress:
        at = now()
        return Progress(
            task_id=self._task_id, run_id=self._plan.run_id, stage=stage, message=message, timestamp=at, **more
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
