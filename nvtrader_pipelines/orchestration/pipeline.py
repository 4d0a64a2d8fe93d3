"""The whole graph in one process, for the command line: what is up to date is left alone."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import dagster as dg

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.orchestration.assets.active_policy import VERDICT
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.instance import open_instance, process_tag
from nvtrader_pipelines.orchestration.jobs import CONTEST, JUDGEMENT, PROMOTION, is_contest_judged, is_promotion_current
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, register_specs, whole_history_tags
from nvtrader_pipelines.orchestration.pipeline_error import PipelineError
from nvtrader_pipelines.orchestration.progress_log import ProgressLog, Watch
from nvtrader_pipelines.runs.fingerprints import (
    contest_state,
    market_is_current,
    market_state,
    promotion_state,
    record_market_state,
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
    """Jobs of one `nvtrader materialize`, one after the other on one instance."""

    def __init__(self, store: Store, instance: dg.DagsterInstance, watch: Watch | None, *, quiet: bool) -> None:
        self.defs = build_defs({"progress": ProgressLog(watch)} if watch else None, store.home)
        self.store, self.instance, self.quiet = store, instance, quiet

    def say(self, line: str) -> None:
        """Tell the person who waits."""
        if not self.quiet:
            print(f"{datetime.now(UTC):%H:%M:%S} {line}", flush=True)  # noqa: T201 - progress is this class's purpose

    def launch(
        self,
        job: str,
        partition_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        tables: Sequence[Table] = (),
    ) -> dg.ExecuteInProcessResult:
        """Run a job to its end, or only that of it which writes some tables.

        Raises:
            PipelineError: if a step fails.
            KeyboardInterrupt: if it was interrupted.
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
            failure = _failure(job, result)  # a check or an interrupt may have stopped it between two steps
            self.store.ledger.close_interrupted(
                [run_id], INTERRUPTED if isinstance(failure, KeyboardInterrupt) else None
            )
            raise failure
        return result

    def experiment(self, key: str, title: str) -> None:
        """Bring one experiment up to date."""
        run_id = completed_run(self.store, key)
        if run_id is None:
            self.say(title)
            self.launch("experiment", key)
        elif lacking := missing_tables(self.store, run_id):
            self.say(f"{title} lacks {', '.join(table.name for table in lacking)}")
            self.launch("experiment", key, tables=lacking)
        else:
            self.say(f"{title} is up to date")

    def promotion(self, question: str) -> None:
        """Ask the gate about what was judged, once, and say in one line what it answered."""
        if is_promotion_current(self.instance, question):
            self.say("promotion: up to date")
            return
        result = self.launch(PROMOTION.name, tags={CONTEST: question})
        (event,) = result.get_asset_materialization_events()
        self.say(f"promotion: {event.materialization.metadata[VERDICT].value}")


def _failure(job: str, result: dg.ExecuteInProcessResult) -> PipelineError | KeyboardInterrupt:
    """The first failure as a sentence, with the step's own trace as a note; Dagster counts an interrupt as one."""
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
    """The experiments to run, by the names of files' experiments or of an ablation's variants.

    Raises:
        ValueError: if a file does not hold a valid experiment, or a name is unknown.
    """
    found = read_experiments(home)
    known = {each.name: each for spec in found.specs for each in (*spec.variants(), spec)}
    strangers = [name for name in names if name not in known]
    for problem in found.problems.values():
        if strangers or not names:  # else it is not asked for
            raise ValueError(problem)
    if not known:
        raise ValueError(
            f"there is no experiment in {home.experiments}; put a YAML file there, or `nvtrader experiments new NAME`"
        )
    if strangers:
        there = ", ".join(spec.name for spec in found.specs)
        raise ValueError(f"no experiment is named {', '.join(strangers)}; there are: {there}")
    return [known[name] for name in names] if names else list(found.specs)


def run_pipeline(store: Store, names: Sequence[str], watch: Watch | None = None, *, quiet: bool = False) -> list[str]:
    """Bring the market, the experiments (an ablation's variants) and the judgement of all up to date.

    Returns:
        The names of the experiments that are now up to date.

    Raises:
        PipelineError: if a step fails.
        ValueError: if an experiment is invalid or unknown.
    """
    home, specs = store.home, select_specs(store.home, names)
    with open_instance(store) as instance:
        run = _Materialization(store, instance, watch, quiet=quiet)
        state = market_state(home)
        if market_is_current(store):
            run.say("market: up to date")
        else:
            run.say("market: ingesting, cleaning, deriving")
            run.launch("market", tags=whole_history_tags())
            record_market_state(home, state)
        register_specs(store.ledger, read_experiments(home).specs)  # a variant run alone has its ablation as parent too
        keys = register_specs(store.ledger, specs)
        instance.add_dynamic_partitions(EXPERIMENTS.name or "", keys)
        for count, key in enumerate(keys, start=1):
            run.experiment(key, f"experiment {count} of {len(keys)}: {key}")
        contest = contest_state(store)
        if is_contest_judged(instance, contest):
            run.say("judgement: up to date")
        else:
            run.say("judgement: every run beside all others")
            run.launch(JUDGEMENT.name, tags={CONTEST: contest})
        run.promotion(promotion_state(home, contest))
        publish(store)
    return [key.partition("@")[0] for key in keys]
