"""Documents of experiments in worlds: their list, and one with its last run and results."""

from collections.abc import Iterator

import polars as pl

from nvtrader_pipelines.components.document import Document, frame_of, schema_of
from nvtrader_pipelines.experiments.world_experiment import WorldExperiment
from nvtrader_pipelines.runs.world_results import WorldResult, read_results, world_verdict
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.world_files import read_world, read_worlds

FIGURES = {"mean", "reference", "difference", "difference_low", "difference_high"}


class ListedWorld(Document):
    """Experiment in a world, with the results of its last run."""

    name: str
    world: str | None = None  # kind
    agent: str | None = None  # kind
    status: str  # of the last run of the file's version, or `not run`, or `not valid`
    run_id: str | None = None
    mean: float | None = None  # mean total reward of an episode over the seeds
    reference: str | None = None  # policy that agents are compared with
    difference: float | None = None  # mean less that of the reference
    difference_low: float | None = None  # 95 % interval over the seeds
    difference_high: float | None = None
    problem: str | None = None  # why the file is not valid


class WorldDocument(Document):
    """Experiment in a world, with its last run and the results."""

    verdict: str
    spec: WorldExperiment
    run: LedgerRun | None
    results: tuple[WorldResult, ...]  # the mean over the seeds first


def list_worlds(store: Store) -> pl.DataFrame:
    """List the experiments of `data/worlds`, then the files that are none."""
    rows = [*_listed(store)]
    return frame_of(rows) if rows else pl.DataFrame(schema=schema_of(ListedWorld))


def _listed(store: Store) -> Iterator[ListedWorld]:
    worlds = read_worlds(store.home)
    for name, spec in worlds.specs.items():
        run = last_run(store, spec)
        results = read_results(store, run.run_id) if run else ()
        figures = results[0].model_dump(include=FIGURES) if results else {}
        status, run_id = (run.status, run.run_id) if run else ("not run", None)
        kinds = {"world": spec.world.kind, "agent": spec.agent.kind}
        yield ListedWorld(name=name, status=status, run_id=run_id, **kinds, **figures)
    for file, problem in worlds.problems.items():
        yield ListedWorld(name=file, status="not valid", problem=problem)


def world_document(store: Store, name: str) -> WorldDocument:
    """Experiment in a world by its name, with the last run of its version.

    Raises:
        NotFoundError: if no valid file has the name.
    """
    spec = read_world(store.home, name)
    run = last_run(store, spec)
    results = read_results(store, run.run_id) if run else ()
    if run and run.status == "done":
        verdict = world_verdict(results)
    else:
        status = f"the last run is {run.status}{f': {run.message}' if run.message else ''}" if run else "not run yet"
        verdict = f"{status}; `nvtrader worlds run {name}` trains what is missing and tests it"
    return WorldDocument(verdict=verdict, spec=spec, run=run, results=results)


def last_run(store: Store, spec: WorldExperiment) -> LedgerRun | None:
    """Run of a version that started last; None without one."""
    runs = store.ledger.runs(with_worlds=True).filter(spec_hash=spec.spec_hash)
    return store.ledger.run(runs["run_id"][0]) if len(runs) else None
