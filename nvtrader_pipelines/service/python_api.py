"""Python interface: the commands of `nvtrader` as methods that return polars frames."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from nvtrader_pipelines.service.library_noise import silence_libraries
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies
from nvtrader_pipelines.service.operations.searches import Searches
from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:  # slow to import
    import polars as pl

    from nvtrader_pipelines.experiments.progress import Progress
    from nvtrader_pipelines.experiments.spec import ExperimentSpec
    from nvtrader_pipelines.runs.market_summary import MarketSummary
    from nvtrader_pipelines.runs.training_time import TrainingEstimate
    from nvtrader_pipelines.service.documents.run_comparison import RunComparison


class Pipeline:
    """Pipeline of one home: ingests prices, runs experiments, and reads what they wrote.

    Returns, weights, costs and drawdowns are fractions; losses, costs and drawdowns are positive; Sharpe ratios are
    annual. Annualized figures of fewer than 63 sessions are null. Problems with files, names or data raise StorageError
    or ValueError, a failed step PipelineError, a run that the kill switch ends RunHalted, each with the sentence that
    `nvtrader` prints. To resume an interrupted call, repeat it.
    """

    def __init__(self, home: str | Path | None = None) -> None:
        """Open a home; without a folder, the one that `nvtrader` works on in the current folder.

        Raises:
            ValueError: if there is no home.
            DamagedFileError: if a file that every command depends on is damaged.
        """
        opened = OpenHome.find(None if home is None else Path(home))
        self.store = opened.store
        self.accounts, self.plans, self.policies = Accounts(opened), Plans(opened), Policies(opened)
        self.searches = Searches(opened)

    @classmethod
    def create(cls, home: str | Path, *, exist_ok: bool = False) -> Self:
        """Create a home with the shipped market and experiments, as `nvtrader init` does.

        Args:
            home: new or empty folder.
            exist_ok: open the folder if it is a home already.

        Raises:
            StorageError: if the folder holds anything else.
        """
        from nvtrader_pipelines.storage.new_home import create_home

        if not (exist_ok and Home.at(Path(home)).experiments.is_dir()):
            create_home(Path(home))
        return cls(home)

    def __repr__(self) -> str:
        return f"Pipeline({str(self.home.root)!r})"

    @property
    def home(self) -> Home:
        """Paths of the home, such as `home.landing` and `home.experiments`."""
        return self.store.home

    def ingest(self, *files: str | Path, source: str = "landing", quiet: bool = False) -> "MarketSummary":
        """Deliver files of prices, and bring the market up to date if anything changed.

        Without files, ingest those in `data/landing` and the other sources of `data/market.yaml`. Refused
        rows are in `silver.quarantine`, each with its reason.

        Args:
            files: CSV or Parquet files to copy into the folder of the source, all or none; one of the same name there
                is replaced.
            source: landing source of the files; `landing` is the folder `data/landing` itself.
            quiet: print no progress.

        Returns:
            Frames of files, symbols (rows that were used, refused or missing, and coverage by year) and reasons of
            refusals, and warnings as sentences.

        Raises:
            StorageError: if a file cannot be read, has a format or size that is refused, or is hidden.
            OSError: if a file cannot be copied.
            PipelineError: if a step fails, such as on a file that holds no prices.
        """
        from nvtrader_pipelines.orchestration.materialize import update_market
        from nvtrader_pipelines.runs.market_state import deliver_prices
        from nvtrader_pipelines.runs.market_summary import summarize_market

        deliver_prices(self.home, [Path(file) for file in files], source)
        with silence_libraries():
            update_market(self.store, quiet=quiet)
        return summarize_market(self.store)

    def run(
        self,
        *experiments: "str | Mapping[str, Any] | ExperimentSpec",
        judge: bool = True,
        yes: bool = False,
        quiet: bool = False,
    ) -> "pl.DataFrame":
        """Train and judge experiments and return their verdicts; finished work is not repeated.

        Changed prices are ingested first. A spec or mapping is written to `data/experiments`, where the command line,
        the schedules and the Dagster UI find it; it replaces the file of an earlier call, never that of a person.

        Args:
            experiments: names of experiments in `data/experiments`, specs, or the content of a YAML file as a mapping;
                none for all of `data/experiments`.
            judge: rank and validate all runs, and let the promotion gate decide.
            yes: start trainings of more than a day.
            quiet: print no progress.

        Returns:
            A row per account (the experiment's, baselines) and period of the latest run of each experiment, with
            figures net of costs and the bounds of their 95 % intervals.

        Raises:
            StorageError: if a spec is not valid, or a person wrote another experiment of its name.
            ValueError: if a name is unknown, or an experiment cannot run; the others have run.
            PipelineError: if a step fails.
        """
        from nvtrader_pipelines.runs.pipeline_state import read_pipeline_state
        from nvtrader_pipelines.service.documents.run_facts import summary_rows
        from nvtrader_pipelines.storage.specs import store_experiment

        names = [each if isinstance(each, str) else store_experiment(self.home, each).name for each in experiments]
        keys = read_pipeline_state(self.store, names) if judge else None
        if keys is None:
            done = self._update(names, judge=judge, yes=yes, quiet=quiet)
        else:
            done = [key.partition("@")[0] for key in keys]
        return summary_rows(self.store, done if names else ())

    def runs(self, *, everything: bool = False) -> "pl.DataFrame":
        """List runs, newest first, with the Sharpe ratio and maximum drawdown of all test sessions.

        Deleted runs and those of archived experiments are listed only with `everything`.
        """
        from nvtrader_pipelines.service.documents.run_facts import close_dead_runs, list_runs

        close_dead_runs(self.store)
        return list_runs(self.store, everything=everything)

    def describe_run(self, run: str) -> dict[str, Any]:
        """Describe a run as `nvtrader runs show --json`: verdict in words, spec, policies by digest, figures, events.

        Args:
            run: its id, the first characters of its id, or the name of an experiment for its newest run.

        Raises:
            StorageError: if no run or several runs match.
        """
        from nvtrader_pipelines.service.documents.run_facts import close_dead_runs, find_run_by_name, run_document

        close_dead_runs(self.store)
        return run_document(self.store, find_run_by_name(self.store.ledger, run)).model_dump(mode="json")

    def compare(self, *runs: str, picture: str | Path | None = None) -> "RunComparison":
        """Compare runs: figures over all and over shared test sessions, and differences of specs.

        Args:
            runs: two or more runs, named as for `describe_run`.
            picture: PNG or SVG file for equity, drawdown and rolling Sharpe ratio over the shared sessions; default:
                `warehouse/pictures/runs.png` in the home.

        Raises:
            StorageError: if a name matches no run or several.
            ValueError: if there are fewer than two runs, one is named twice, or the picture cannot be written.
        """
        from nvtrader_pipelines.service.documents.run_comparison import compare_named_runs
        from nvtrader_pipelines.service.documents.run_facts import close_dead_runs
        from nvtrader_pipelines.storage.picture_files import require_picture_path

        close_dead_runs(self.store)
        path = require_picture_path(Path(picture)) if picture else self.home.comparison_picture
        return compare_named_runs(self.store, runs, path)

    def replay(
        self,
        run: str,
        first: date | None = None,
        last: date | None = None,
        *,
        pinned: bool = False,
        quiet: bool = False,
    ) -> "pl.DataFrame":
        """Walk the stored policies of a run through another window, or through its own tests again.

        Args:
            run: run, named as for `describe_run`.
            first: first session; None for the first of its tests.
            last: last session; None for the last of its tests, or of the market if `first` is later.
            pinned: use the market data that the run recorded instead of the current ones.
            quiet: print no progress.

        Returns:
            The verdict of the new run, a row per account and period.

        Raises:
            StorageError: if no run matches, its policies are not all there, or its recorded data are not.
            ValueError: if the window holds sessions that its policies were trained on, or none.
        """
        from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
        from nvtrader_pipelines.runs.lifecycle import Launch
        from nvtrader_pipelines.runs.train_walk_judge import replay_run, replay_window
        from nvtrader_pipelines.service.documents.run_facts import require_trained_run

        run_id = require_trained_run(self.store, run).run_id
        window = replay_window(self.store, run_id, (first, last))
        track = MlflowTracking.at(self.home).track
        steps = replay_run(self.store, run_id, Launch(uuid4().hex), window, pinned=pinned, track=track)
        return self._walk(steps, quiet=quiet)

    def forward(self, run: str, *, quiet: bool = False) -> "pl.DataFrame":
        """Walk the last policies of a run over all sessions since its tests; no order is placed.

        Returns:
            The verdict of the new run, a row per account and period.

        Raises:
            StorageError: if no run matches, or its policies are not all there.
            ValueError: if the market has no session since its tests.
        """
        from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
        from nvtrader_pipelines.runs.lifecycle import Launch
        from nvtrader_pipelines.runs.train_walk_judge import forward_run
        from nvtrader_pipelines.service.documents.run_facts import require_trained_run

        run_id = require_trained_run(self.store, run).run_id
        steps = forward_run(self.store, run_id, Launch(uuid4().hex), MlflowTracking.at(self.home).track)
        return self._walk(steps, quiet=quiet)

    def scoreboard(self) -> "pl.DataFrame":
        """Read the ranking of all entrants as of the last judgement, a row each, by contest.

        Raises:
            StorageError: if nothing was judged yet.
        """
        from nvtrader_pipelines.service.documents.scoreboard_facts import read_ranking

        return read_ranking(self.store)

    def sql(self, query: str) -> "pl.DataFrame":
        """Run a query of DuckDB's SQL over all tables; COPY writes as in `nvtrader sql`.

        Raises:
            StorageError: if there are no tables yet, or the query is invalid or refused.
        """
        from nvtrader_pipelines.storage.views.queries import query_views

        return query_views(self.store, query)

    def tables(self) -> "pl.DataFrame":
        """List all tables, with their rows, bytes and snapshots."""
        return self.store.tables.describe_all()

    def table(self, name: str) -> "pl.DataFrame":
        """Read a whole table, such as `gold.returns`; `sql` reads parts.

        Raises:
            StorageError: if there is no such table.
        """
        from nvtrader_pipelines.storage.views.view_definitions import quote_identifier

        return self.sql(f"FROM {'.'.join(map(quote_identifier, name.split('.')))}")

    def report(self, path: str | Path | None = None) -> Path:
        """Write all results into one HTML file, and return its path.

        Args:
            path: file to write; None for `warehouse/report.html`.

        Raises:
            OSError: if it cannot be written.
        """
        from nvtrader_pipelines.service.report.report import write_report

        return write_report(self.store, self.home.report if path is None else Path(path)).path

    def _update(self, names: list[str], *, judge: bool, yes: bool, quiet: bool) -> list[str]:
        """Bring experiments up to date, and return their names."""
        from nvtrader_pipelines.orchestration.materialize import run_pipeline
        from nvtrader_pipelines.service.consoles import wide_console
        from nvtrader_pipelines.service.progress_display import show_progress

        console, confirm = wide_console(), None if yes else _refuse_long_trainings
        has_no_bar = quiet or not console.is_terminal  # elsewhere the steps print lines
        with silence_libraries(), show_progress(console, quiet=has_no_bar) as on_progress:
            updated = run_pipeline(self.store, names, on_progress, confirm=confirm, judge=judge, quiet=quiet)
        if updated.problems:
            raise ValueError("; ".join(f"{name}: {problem}" for name, problem in updated.problems.items()))
        return updated.names

    def _walk(self, steps: "Iterable[Progress]", *, quiet: bool) -> "pl.DataFrame":
        """Run a replay or a forward run to its end, and return its verdict."""
        import polars as pl

        from nvtrader_pipelines.service.consoles import wide_console
        from nvtrader_pipelines.service.documents.run_facts import verdict_rows
        from nvtrader_pipelines.service.progress_display import follow_run, show_progress
        from nvtrader_pipelines.storage.views.publishing import publish

        with silence_libraries(), show_progress(wide_console(), quiet=quiet) as on_progress:
            run_id = follow_run(steps, on_progress)
        publish(self.store)
        return verdict_rows(self.store, run_id).select(pl.lit(run_id).alias("run_id"), pl.all())


def _refuse_long_trainings(trainings: "Sequence[TrainingEstimate]") -> None:
    from nvtrader_pipelines.runs.training_time import describe_long_trainings

    raise ValueError(describe_long_trainings(trainings, "yes=True"))
