"""Materialization of the whole graph in one process; up-to-date parts are skipped."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import dagster as dg

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.orchestration.assets.active_policy import VERDICT
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.instance import open_instance, process_tag
from nvtrader_pipelines.orchestration.jobs import CONTEST, JUDGEMENT, PROMOTION, is_contest_judged, is_promotion_current
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, register_specs, whole_history_tags
from nvtrader_pipelines.orchestration.pipeline_error import PipelineError
from nvtrader_pipelines.orchestration.progress_log import ProgressLog, Watch
from nvtrader_pipelines.runs.input_digests import (
    contest_digest,
    market_digest,
    market_is_current,
    promotion_digest,
    record_market_digest,
)
from nvtrader_pipelines.runs.lifecycle import INTERRUPTED
from nvtrader_pipelines.runs.planning import completed_run, missing_tables
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import Table
from nvtrader_pipelines.storage.views import publish

INTERRUPTS = (KeyboardInterrupt.__name__, dg.DagsterExecutionInterruptedError.__name__)


class _Materialization:
    """Jobs of one `nvtrader materialize`, run one after the other on one instance."""

    def __init__(self, store: Store, instance: dg.DagsterInstance, watch: Watch | None, *, quiet: bool) -> None:
        self.defs = build_defs({"progress": ProgressLog(watch)} if watch else None, store.home)
        self.store, self.instance, self.quiet = store, instance, quiet

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
            PipelineError: if a step fails.
            KeyboardInterrupt: if the job is interrupted.
        """
        level = "CRITICAL" if self.quiet else "DEBUG"  # Dagster logs the steps themselves at DEBUG
        run_id = str(uuid4())
        try:
            result = self.defs.resolve_job_def(job).execute_in_process(
                instance=self.instance,
                run_id=run_id,
                partition_key=partition_key,
                asset_selection=[dg.AssetKey([table.namespace, table.table]) for table in tables] or None,
                tags={**process_tag(), **(tags or {})},
                run_config={"loggers": {"console": {"config": {"level": level}}}},
                raise_on_error=False,
            )
        except (dg.DagsterExecutionInterruptedError, KeyboardInterrupt) as interrupt:  # between two steps
            self.store.ledger.close_interrupted([run_id], INTERRUPTED)
            raise KeyboardInterrupt from interrupt
        if not result.success:
            failure = _failure(job, result)  # a check or an interrupt may have ended the job between two steps
            self.store.ledger.close_interrupted(
                [run_id], INTERRUPTED if isinstance(failure, KeyboardInterrupt) else None
            )
            raise failure
        return result

    def update_experiment(self, key: str, title: str) -> None:
        """Train and evaluate one experiment, or write only its missing tables."""
        run_id = completed_run(self.store, key)
        if run_id is None:
            self.print_progress(title)
            self.launch("experiment", key)
        elif missing := missing_tables(self.store, run_id):
            self.print_progress(f"{title} lacks {', '.join(table.name for table in missing)}")
            self.launch("experiment", key, tables=missing)
        else:
            self.print_progress(f"{title} is up to date")

    def update_promotion(self, state: str) -> None:
        """Run the promotion gate once per promotion state and print its decision."""
        if is_promotion_current(self.instance, state):
            self.print_progress("promotion: up to date")
            return
        result = self.launch(PROMOTION.name, tags={CONTEST: state})
        (event,) = result.get_asset_materialization_events()
        self.print_progress(f"promotion: {event.materialization.metadata[VERDICT].value}")


def _failure(job: str, result: dg.ExecuteInProcessResult) -> PipelineError | KeyboardInterrupt:
    """First failure of a job with its trace as a note; an interrupt is reported as one."""
    for event in result.filter_events(lambda event: event.is_step_failure):
        error = event.step_failure_data.error
        cause = error.cause if error and error.cause else error
        if cause and cause.cls_name in INTERRUPTS:
            return KeyboardInterrupt()
        message = cause.message.strip() if cause else "no message"
        failure = PipelineError(f"{job}: {event.step_key} failed: {message}")
        failure.add_note(error.to_string() if error else "")
        return failure
    return PipelineError(f"{job}: a blocking check failed; see the run {result.run_id} in `nvtrader ui`")


def select_specs(home: Home, names: Sequence[str]) -> list[ExperimentSpec]:
    """Return the specs of the named experiments or ablation variants; without names, all.

    Raises:
        ValueError: if a file is not a valid experiment, or a name is unknown.
    """
    found = read_experiments(home)
    known = {each.name: each for spec in found.specs for each in (*spec.variants(), spec)}
    unknown = [name for name in names if name not in known]
    for problem in found.problems.values():
        if unknown or not names:  # an invalid file matters only where it may be selected
            raise ValueError(problem)
    if not known:
        raise ValueError(
            f"there is no experiment in {home.experiments}; put a YAML file there, or `nvtrader experiments new NAME`"
        )
    if unknown:
        known_names = ", ".join(spec.name for spec in found.specs)
        near = suggest(unknown[0], list(known))
        raise ValueError(f"no experiment is named {', '.join(unknown)}; there are: {known_names}{near}")
    return [known[name] for name in names] if names else list(found.specs)


def run_pipeline(store: Store, names: Sequence[str], watch: Watch | None = None, *, quiet: bool = False) -> list[str]:
    """Bring the market, the experiments, their ranking and the promotion up to date.

    Returns:
        Names of the experiments.

    Raises:
        PipelineError: if a step fails.
        ValueError: if an experiment is invalid or unknown.
    """
    home, specs = store.home, select_specs(store.home, names)
    with open_instance(store) as instance:
        run = _Materialization(store, instance, watch, quiet=quiet)
        state = market_digest(home)
        if market_is_current(store):
            run.print_progress("market: up to date")
        else:
            run.print_progress("market: ingesting bars, deriving returns and features")
            run.launch("market", tags=whole_history_tags())
            record_market_digest(home, state)
        register_specs(store.ledger, read_experiments(home).specs)  # an ablation precedes its variants
        keys = register_specs(store.ledger, specs)
        instance.add_dynamic_partitions(EXPERIMENTS.name or "", keys)
        for count, key in enumerate(keys, start=1):
            run.update_experiment(key, f"experiment {count} of {len(keys)}: {key}")
        contest = contest_digest(store)
        if is_contest_judged(instance, contest):
            run.print_progress("judgement: up to date")
        else:
            run.print_progress("judgement: ranking and validating all runs")
            run.launch(JUDGEMENT.name, tags={CONTEST: contest})
        run.update_promotion(promotion_digest(home, contest))
        publish(store)
    return [key.partition("@")[0] for key in keys]
