"""Materialization of the whole graph in one process; up-to-date parts are skipped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.orchestration.assets.active_policy import VERDICT
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.instance import open_instance
from nvtrader_pipelines.orchestration.jobs import CONTEST, JUDGEMENT, PROMOTION, is_contest_judged, is_promotion_current
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, remove_unused_partitions, whole_history_tags
from nvtrader_pipelines.orchestration.progress_log import ProgressLog, Watch
from nvtrader_pipelines.orchestration.run_job import console_config, run_job
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.runs.input_digests import contest_digest, promotion_digest
from nvtrader_pipelines.runs.market_state import market_digest, market_is_current, record_market_digest
from nvtrader_pipelines.runs.pipeline_state import record_pipeline_state
from nvtrader_pipelines.runs.planning import JudgedRuns
from nvtrader_pipelines.runs.registration import register_experiments
from nvtrader_pipelines.runs.smoke_run import SmokeRun, smoke_run
from nvtrader_pipelines.runs.training_time import TrainingEstimate, long_trainings
from nvtrader_pipelines.scoreboard.contests import read_contests
from nvtrader_pipelines.scoreboard.overall_results import precompute_results
from nvtrader_pipelines.scoreboard.trial_history import describe_next_trial
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.specs import FoundExperiments, experiment_name, read_experiments, read_market
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import Table
from nvtrader_pipelines.storage.views.publishing import publish

Confirm = Callable[[Sequence[TrainingEstimate]], None]  # raises if long trainings must not start


@dataclass(frozen=True)
class GraphUpdate:
    """Names of the experiments that are up to date, and the problems of the others."""

    names: list[str]
    problems: dict[str, str]  # by name of an experiment or its file


class _Materialization:
    """Jobs of one `nvtrader materialize`, run one after the other on one instance."""

    def __init__(self, store: Store, instance: dg.DagsterInstance, watch: Watch | None, *, quiet: bool) -> None:
        self.defs = build_defs({"progress": ProgressLog(watch)} if watch else None, store.home)
        self.store, self.instance, self.quiet = store, instance, quiet
        self.judged_runs = JudgedRuns(store)

    def print_progress(self, line: str) -> None:
        """Print one line with the time, unless quiet."""
        if not self.quiet:
            print(f"{datetime.now(UTC):%H:%M:%S} {line}", flush=True)  # noqa: T201 - console output

    def launch(
        self,
        job: str,
        partition_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        tables: Sequence[Table] = (),
    ) -> dg.ExecuteInProcessResult:
        """Run a job to its end, restricted to the assets of some tables if given.

        Raises:
            PipelineError, RunHalted, KeyboardInterrupt: as `run_job`.
        """
        return run_job(
            self.store,
            self.instance,
            self.defs.resolve_job_def(job),
            tags=tags,
            partition_key=partition_key,
            asset_selection=[dg.AssetKey([table.namespace, table.table]) for table in tables] or None,
            run_config=console_config(quiet=self.quiet),
        )

    def update_market(self) -> None:
        """Ingest the bars and derive the market, if its inputs have changed."""
        state = market_digest(self.store.home)
        if market_is_current(self.store):
            self.print_progress("market: up to date")
            return
        self.print_progress("market: ingesting bars, deriving returns and features")
        self.launch("market", tags=whole_history_tags())
        record_market_digest(self.store.home, state)
        publish(self.store)  # `nvtrader sql` reads the market while policies train

    def update_experiment(self, key: str, title: str) -> str | None:
        """Train and evaluate one experiment, or write its missing tables; return its problem, if any.

        A problem is the reason why it cannot be planned.
        """
        try:
            run_id = self.judged_runs.current_run(key)
        except (StorageError, ValueError) as error:
            return " ".join(str(error).split())
        if run_id is None:
            self.print_progress(
                f"{title}, {describe_next_trial(self.store, self.store.ledger.read(key).market.source)}"
            )
            self.launch("experiment", key)
        elif missing := self.judged_runs.missing_tables(run_id):
            self.print_progress(f"{title} lacks {', '.join(table.name for table in missing)}")
            self.launch("experiment", key, tables=missing)
        else:
            self.print_progress(f"{title} is up to date")
        return None

    def update_judgement(self) -> str:
        """Rank and validate all runs, if any is new, and return the contest's digest."""
        contest = contest_digest(self.store)
        if is_contest_judged(self.instance, contest):
            self.print_progress("judgement: up to date")
        else:
            self.print_progress("judgement: ranking and validating all runs; unchanged results are reused")
            with precompute_results(self.store.home, contest):
                self.launch(JUDGEMENT.name, tags={CONTEST: contest})
        return contest

    def update_promotion(self, state: str) -> None:
        """Run the promotion gate once per promotion state and print its decision."""
        if is_promotion_current(self.instance, state):
            self.print_progress("promotion: up to date")
            return
        result = self.launch(PROMOTION.name, tags={CONTEST: state})
        (event,) = result.get_asset_materialization_events()
        self.print_progress(f"promotion: {event.materialization.metadata[VERDICT].value}")


def select_experiments(
    store: Store, found: FoundExperiments, names: Sequence[str]
) -> tuple[list[ExperimentSpec], dict[str, str]]:
    """Select experiments by their names or those of their variants; without names, all unarchived.

    Returns:
        The specs, and the problems of invalid files that are selected.

    Raises:
        ValueError: if a name is unknown or archived, or no valid experiment is selected.
    """
    if not (found.specs or found.problems):
        folder = store.home.experiments
        raise ValueError(
            f"there is no experiment in {folder}; put a YAML file there, or `nvtrader experiments new NAME`"
        )
    archived = store.ledger.archived_names()
    owners = {variant.name: spec for spec in found.specs for variant in (*spec.variants(), spec)}
    broken = {experiment_name(path): (path.name, problem) for path, problem in found.problems.items()}
    unknown = [name for name in names if name not in owners and name not in broken]
    if unknown:
        known_names = ", ".join(spec.name for spec in found.specs)
        near = suggest(Path(unknown[0]).stem, [*owners, *broken])
        raise ValueError(f"no experiment is named {', '.join(map(repr, unknown))}; there are: {known_names}{near}")
    for name in archived.intersection(names):
        raise ValueError(f"{name} is archived; `nvtrader experiments unarchive {name}` before it runs")
    problems = dict(broken[name] for name in (names or broken) if name in broken)
    chosen = names or [spec.name for spec in found.specs if spec.name not in archived]
    specs = list({id(owners[name]): owners[name] for name in chosen if name in owners}.values())
    if not specs:
        raise ValueError(
            "; ".join(problems.values()) or "every experiment is archived; `nvtrader experiments unarchive`"
        )
    return specs, problems


def omit_unlisted(store: Store, specs: list[ExperimentSpec], report: Callable[[str], None]) -> list[ExperimentSpec]:
    """Omit experiments whose market is neither listed nor ingested, unless that is all of them."""
    sources = {*read_market(store.home).calendars.by_source, *store.panels.sources()}
    listed = [spec for spec in specs if spec.market.source in sources] or specs
    for spec in (spec for spec in specs if spec not in listed):
        report(f"{spec.name} is left out: data/market.yaml lists no source {spec.market.source}")
    return listed


def update_market(store: Store, *, quiet: bool = False) -> None:
    """Ingest the bars and derive the market, if its inputs have changed.

    Raises:
        PipelineError: if a step fails.
    """
    with open_instance(store) as instance:
        _Materialization(store, instance, None, quiet=quiet).update_market()


def smoke_pipeline(store: Store, names: Sequence[str], *, quiet: bool = False) -> list[SmokeRun]:
    """Bring the market up to date, then make a smoke run of each experiment.

    Raises:
        PipelineError: if the market cannot be built.
        ValueError: if an experiment is invalid, unknown or archived, or fails.
    """
    specs, problems = select_experiments(store, read_experiments(store.home), names)
    if problems:
        raise ValueError("; ".join(problems.values()))
    update_market(store, quiet=quiet)
    return [smoke_run(store, spec) for spec in specs]


def run_pipeline(
    store: Store,
    names: Sequence[str],
    watch: Watch | None = None,
    *,
    confirm: Confirm | None = None,
    judge: bool = True,
    quiet: bool = False,
) -> GraphUpdate:
    """Bring the market, the experiments, their ranking and the promotion up to date.

    An invalid experiment does not stop the others.

    Args:
        store: store of the home.
        names: names of experiments; empty for all.
        watch: receives the progress of each run.
        confirm: called before trainings of more than a day, raises to refuse them; None starts them.
        judge: whether to rank all runs and let the promotion gate decide; False leaves both for the next time.
        quiet: print no lines.

    Raises:
        PipelineError: if a step fails.
        RunHalted: if the kill switch ends a run.
        ValueError: if a name is unknown, or no selected experiment is valid.
    """
    experiments = read_experiments(store.home)
    specs, problems = select_experiments(store, experiments, names)
    read_contests(store.home)  # an invalid file is refused before any work
    read_gate(store.home)
    with open_instance(store) as instance:
        run = _Materialization(store, instance, watch, quiet=quiet)
        run.update_market()
        specs = specs if names else omit_unlisted(store, specs, run.print_progress)
        if confirm and (long := long_trainings(store, specs)):
            confirm(long)
        registered = register_experiments(store, specs)
        problems |= registered.problems
        remove_unused_partitions(instance, store.ledger, experiments.specs)
        chosen = {variant.name for spec in specs if spec.name in names for variant in spec.variants()}.union(names)
        keys = [key for key in registered.keys if not names or key.partition("@")[0] in chosen]
        instance.add_dynamic_partitions(EXPERIMENTS.name or "", keys)
        done = []
        for count, key in enumerate(keys, start=1):
            problem = run.update_experiment(key, f"experiment {count} of {len(keys)}: {key}")
            name = key.partition("@")[0]
            if problem:
                problems[name] = problem
            else:
                done.append(name)
        if not done:
            raise ValueError("; ".join(f"{name}: {problem}" for name, problem in problems.items()))
        if judge:
            run.update_promotion(promotion_digest(store.home, run.update_judgement()))
        else:
            run.print_progress("judgement: left for the next run without --no-judge")
        publish(store)
    if judge and not problems:
        record_pipeline_state(store, names, keys)
    return GraphUpdate(done, problems)
