"""Runs of experiments: their list, verdicts, comparisons, walks and deletion."""

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

from pydantic import Field

from nvtrader_pipelines.components.text import Text
from nvtrader_pipelines.desk.backtest_settings import BacktestSettings
from nvtrader_pipelines.service.operations.arguments import OUTPUT, Picture, RunName
from nvtrader_pipelines.service.operations.operation import AT_LEAST_ONE, Family, Flags, operation
from nvtrader_pipelines.service.output_paths import picture_path

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.desk.engine_backtests import BacktestDocument
    from nvtrader_pipelines.experiments.progress import Progress
    from nvtrader_pipelines.runs.annotations import Annotation
    from nvtrader_pipelines.runs.run_charts import RunCharts
    from nvtrader_pipelines.runs.run_comparison import ComparisonDocument
    from nvtrader_pipelines.runs.run_deletion import Deletion
    from nvtrader_pipelines.runs.run_document import (
        DeletedRun,
        ListedRun,
        RunDocument,
        WalkDocument,
        WindowsDocument,
    )


class Runs(Family):
    """Runs of experiments and their results."""

    command, alone = "runs", "list"
    examples = ("nvtrader runs", "nvtrader runs --format csv", "nvtrader runs show ppo-residual")

    @operation("nvtrader runs list", "nvtrader runs list --json", route="GET /api/runs", is_kept=True)
    def list(
        self,
        *,
        everything: Annotated[
            bool, Field(description="Also deleted runs and those of archived experiments."), Flags(("--all",))
        ] = False,
    ) -> "Annotated[pl.DataFrame, ListedRun]":
        """List runs, newest first, with their net Sharpe ratios."""
        from nvtrader_pipelines.runs.run_queries import list_runs

        return list_runs(self.current_store(), everything=everything)

    @operation(
        "nvtrader runs show ppo-residual",
        "nvtrader runs show 3f2a --json",
        route="GET /api/runs/{run}",
        is_kept=True,
    )
    def show(self, run: RunName) -> "RunDocument":
        """Show a run: verdict, version, market and figures; JSON has everything.

        Raises:
            NotFoundError: if no run or several runs match.
        """
        from nvtrader_pipelines.runs.run_document import run_document
        from nvtrader_pipelines.runs.run_queries import find_run_by_name

        store = self.current_store()
        return run_document(store, find_run_by_name(store.ledger, run))

    @operation("nvtrader runs curves ppo-residual --json", route="GET /api/runs/{run}/curves", is_kept=True)
    def curves(self, run: RunName) -> "RunCharts":
        """Show equity and drawdown of a run and its baselines.

        JSON has rewards, weights and learning curves, too.

        Raises:
            NotFoundError: if no run or several runs match.
        """
        from nvtrader_pipelines.runs.run_charts import run_charts
        from nvtrader_pipelines.runs.run_queries import find_run_by_name

        store = self.current_store()
        return run_charts(store, find_run_by_name(store.ledger, run))

    @operation("nvtrader runs compare ppo-growth ppo-cvar", "nvtrader runs compare ppo-growth ppo-cvar -o both.svg")
    def compare(
        self,
        *run: Annotated[str, Field(description="Two or more runs, named as for `show`."), AT_LEAST_ONE],
        output: Annotated[
            str | Path | None,
            Field(description="Picture to write, .png or .svg; default: warehouse/pictures/runs.png."),
            OUTPUT,
        ] = None,
    ) -> "ComparisonDocument":
        """Compare runs: figures, a picture of their shared sessions, and differences of specs.

        Raises:
            NotFoundError: if a name matches no run or several.
            ValueError: if there are fewer than two runs, one is named twice, or the picture cannot be written.
        """
        from nvtrader_pipelines.runs.run_comparison import compare_named_runs

        store = self.current_store()
        return compare_named_runs(store, run, picture_path(output, store.home.comparison_picture))

    @operation("nvtrader runs windows ppo-residual", "nvtrader runs windows 3f2a --sessions 63 -o quarter.svg")
    def windows(
        self,
        run: RunName,
        *,
        sessions: Annotated[int, Field(ge=2, description="Sessions in a window.")] = 42,
        output: Picture = None,
    ) -> "WindowsDocument":
        """Draw how returns vary over all windows of a run's test sessions.

        Beside the policy are the run's best baseline, picked with hindsight, and 1/N. Windows overlap, so they are no
        independent sample; each lies within the tests of one fold.

        Raises:
            NotFoundError: if no run or several runs match.
            StorageError: if the run has no tests, as a deleted one.
            ValueError: if no window fits.
        """
        from nvtrader_pipelines.components.document import rows_of
        from nvtrader_pipelines.runs.run_document import WindowResults, WindowsDocument
        from nvtrader_pipelines.runs.run_pictures import draw_session_windows, session_windows_path
        from nvtrader_pipelines.runs.run_queries import find_run_by_name

        store = self.current_store()
        drawn = find_run_by_name(store.ledger, run)
        path = picture_path(output, session_windows_path(store, drawn))
        accounts = rows_of(WindowResults, draw_session_windows(store, drawn, sessions, path))
        return WindowsDocument(run_id=drawn.run_id, n_sessions=sessions, accounts=accounts, picture=path)

    @operation(
        "nvtrader runs replay ppo-residual",
        "nvtrader runs replay ppo-residual --from 2020-02-03 --to 2020-05-29",
        route="POST /api/runs/replay",
        writes=True,
        is_long=True,
    )
    def replay(
        self,
        run: RunName,
        *,
        first: Annotated[
            date | None, Field(description="First day; default: its tests' first."), Flags(("--from",))
        ] = None,
        last: Annotated[
            date | None,
            Field(description="Last day; default: last test session, or the market's if --from is later."),
            Flags(("--to",)),
        ] = None,
        pinned: Annotated[
            bool, Field(description="Use the market data the run recorded instead of the current.")
        ] = False,
    ) -> "WalkDocument":
        """Walk the stored policies of a run through another window, or through its own.

        Raises:
            NotFoundError: if no run or several runs match.
            StorageError: if its policies are not all there, or its recorded data are not.
            ValueError: if the window holds sessions that its policies were trained on, or none.
        """
        from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
        from nvtrader_pipelines.runs.lifecycle import Launch
        from nvtrader_pipelines.runs.run_queries import require_trained_run
        from nvtrader_pipelines.runs.train_walk_judge import replay_run, replay_window

        store = self.current_store()
        run_id = require_trained_run(store, run).run_id
        window = replay_window(store, run_id, (first, last))
        track = MlflowTracking.at(store.home).track
        return self._walk(replay_run(store, run_id, Launch(uuid4().hex), window, pinned=pinned, track=track))

    @operation("nvtrader runs forward ppo-residual", writes=True, is_long=True)
    def forward(self, run: RunName) -> "WalkDocument":
        """Walk a run's last policies over all sessions since its tests; no order is placed.

        The walk is a new run. It shows whether the policies have held up, and it has no account. `nvtrader trade`
        trades: the active policy on an account, with orders that pass compliance.

        Raises:
            NotFoundError: if no run or several runs match.
            StorageError: if its policies are not all there.
        """
        from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
        from nvtrader_pipelines.runs.lifecycle import Launch
        from nvtrader_pipelines.runs.run_queries import require_trained_run
        from nvtrader_pipelines.runs.train_walk_judge import forward_run

        store = self.current_store()
        run_id = require_trained_run(store, run).run_id
        return self._walk(forward_run(store, run_id, Launch(uuid4().hex), MlflowTracking.at(store.home).track))

    @operation(
        "nvtrader backtest limit_reversion --source landing",
        "nvtrader backtest ppo-residual --timing next_open --whole-shares",
        "nvtrader backtest ppo-residual --engine walk -o walk.svg",
        command="backtest",
    )
    def backtest(
        self,
        name: Annotated[
            str,
            Field(
                min_length=1,
                max_length=200,
                description="Strategy, as `nvtrader components strategies` lists it, or trained policy.",
            ),
        ],
        settings: BacktestSettings | None = None,
    ) -> "BacktestDocument":
        """Back-test a strategy or a trained policy on an engine, such as one of shares and cash.

        A strategy has its defaults and those of an environment; a policy has the costs and fills of its own, and does
        not trade sessions that it was trained on. Nothing is trained or stored.

        Raises:
            StorageError: if there is no such strategy, policy or engine, or no market of the source.
            ValueError: if the engine cannot run it, the window has no session, or the picture cannot be written.
        """
        from nvtrader_pipelines.desk.engine_backtests import backtest_on_engine

        settings = settings or BacktestSettings()
        picture = picture_path(settings.output, settings.output) if settings.output else None
        return backtest_on_engine(self.store, name, settings.model_copy(update={"output": picture}))

    @operation("nvtrader runs delete 3f2a91c0", "nvtrader runs delete 3f2a91c0 --yes", writes=True)
    def delete(self, run: RunName) -> "DeletedRun":
        """Delete a run's policies, rows, pictures and MLflow run; a trial remains one.

        Raises:
            NotFoundError: if no run or several runs match.
            StorageError: if it is running, its policy is active, or replays or forward runs use its policies.
        """
        from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
        from nvtrader_pipelines.runs.run_deletion import delete_run
        from nvtrader_pipelines.runs.run_document import DeletedRun

        deletion = self.plan_deletion(run)
        delete_run(self.store, deletion, MlflowTracking.at(self.store.home).delete)
        return DeletedRun.model_validate({**vars(deletion), "run": deletion.run.run_id, "kept": deletion.remainder})

    @operation(
        "nvtrader runs annotate ppo-residual --tags 'paper, baseline' --note 'first with costs of 10 bps'",
        "nvtrader runs annotate 3f2a --tags ''",
        route="POST /api/runs/{run}/annotation",
        writes=True,
    )
    def annotate(
        self,
        run: RunName,
        *,
        tags: Annotated[
            Text | None, Field(description="Tags, separated by commas, in place of the earlier ones; empty: none.")
        ] = None,
        note: Annotated[Text | None, Field(description="Note in place of the earlier one; empty: none.")] = None,
    ) -> "Annotation":
        """Tag a run or write a note on it; its results and its identity stay.

        Raises:
            NotFoundError: if no run or several runs match.
        """
        from nvtrader_pipelines.runs.annotations import annotate_run
        from nvtrader_pipelines.runs.run_queries import find_run_by_name

        return annotate_run(self.store, find_run_by_name(self.store.ledger, run).run_id, tags, note)

    def plan_deletion(self, run: str) -> "Deletion":
        """Find what the deletion of a run removes.

        Raises:
            NotFoundError: if no run or several runs match.
            StorageError: if it cannot be deleted.
        """
        from nvtrader_pipelines.promotion.active_policy import read_every_active
        from nvtrader_pipelines.runs.run_deletion import plan_deletion
        from nvtrader_pipelines.runs.run_queries import find_run_by_name

        store = self.current_store()
        active = {policy.run_id for policy in read_every_active(store)}
        return plan_deletion(store, find_run_by_name(store.ledger, run), active)

    def _walk(self, steps: "Iterable[Progress]") -> "WalkDocument":
        """Run a replay or a forward run to its end, and describe it."""
        from nvtrader_pipelines.components.document import rows_of
        from nvtrader_pipelines.runs.run_document import WalkDocument, WalkFigures
        from nvtrader_pipelines.runs.run_queries import verdict_rows
        from nvtrader_pipelines.service.progress_display import follow_run

        with self._progress() as on_progress:
            run_id = follow_run(steps, on_progress)
        figures = rows_of(WalkFigures, verdict_rows(self.store, run_id))
        return WalkDocument(run=self.store.ledger.run(run_id), figures=figures)
