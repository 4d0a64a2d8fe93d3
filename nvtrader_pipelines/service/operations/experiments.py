"""Experiments: their files, versions and plans, and their trainings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field

from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.arguments import App, Judge, Symbols, Yes
from nvtrader_pipelines.service.operations.home import WholeHome
from nvtrader_pipelines.service.operations.operation import AT_LEAST_ONE, Family, Flags, operation
from nvtrader_pipelines.service.operations.policies import Policies

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.desk.account_activity import AccountActivity
    from nvtrader_pipelines.experiments.spec import ExperimentSpec
    from nvtrader_pipelines.orchestration.materialize import Confirm
    from nvtrader_pipelines.runs.experiment_document import (
        ArchivedExperiments,
        ExperimentDocument,
        FieldDifference,
        NewExperiment,
        ValidatedExperiment,
    )
    from nvtrader_pipelines.runs.experiment_list import ListedExperiment
    from nvtrader_pipelines.runs.run_document import SummaryFigures
    from nvtrader_pipelines.runs.training_time import TrainingEstimate

Name = Annotated[str, Field(description="Names of experiments; an ablation includes its variants."), AT_LEAST_ONE]
Steps = Annotated[
    int | None,
    Field(ge=1, le=10**9, description="Steps of each fold and seed; default: the agent's."),
    Flags(("--timesteps",)),
]
Content: TypeAlias = "str | Mapping[str, Any] | ExperimentSpec"  # name, or what a YAML file would hold


class Experiments(Family):
    """Experiments: write, check, list, compare, run and archive them."""

    command = "experiments"
    examples = ("nvtrader experiments list", "nvtrader experiments run my-first")

    @operation(
        "nvtrader experiments new my-first",
        "nvtrader experiments new my-second --like ppo-growth",
        "nvtrader experiments new reversed --alpha reversal",
    )
    def new(
        self,
        name: Annotated[str, Field(description="Lower-case letters, digits and dashes.")],
        *,
        like: Annotated[str | None, Field(description="Extend this experiment of data/experiments.")] = None,
        source: Annotated[
            str | None, Field(description="Source of a market, for the recommended agent fitted to its history.")
        ] = None,
        symbols: Symbols = (),
        alpha: Annotated[
            str | None, Field(description="Alpha of data/alphas whose highest names the experiment holds.")
        ] = None,
    ) -> "NewExperiment":
        """Write data/experiments/NAME.yaml with common fields; never overwrite a file.

        Raises:
            StorageError: if the name is invalid or taken, there is no experiment `like` or alpha, or the source is not
                ingested.
            ValueError: if the market has no such symbols, or is too short.
        """
        from nvtrader_pipelines.research.alphas import alpha_experiment
        from nvtrader_pipelines.runs.experiment_document import NewExperiment
        from nvtrader_pipelines.runs.registration import fit_history
        from nvtrader_pipelines.storage.documents import merge_documents
        from nvtrader_pipelines.storage.specs import write_experiment

        if like and (source or symbols):
            raise ValueError(
                "an experiment extends another one or is fitted to a market, so leave out --like or --source"
            )
        fields = fit_history(self.store, source or "sample", symbols) if source or symbols else {}
        fields = merge_documents(fields, alpha_experiment(self.store.home, alpha) if alpha else {})
        return NewExperiment(name=name, path=write_experiment(self.store.home, name, like, fields))

    @operation(
        "nvtrader experiments list", "nvtrader experiments list --all", route="GET /api/experiments", is_kept=True
    )
    def list(
        self,
        *,
        everything: Annotated[
            bool, Field(description="Also archived ones, and versions without file or run."), Flags(("--all",))
        ] = False,
    ) -> "Annotated[pl.DataFrame, ListedExperiment]":
        """List the experiments of data/experiments and every version that ran, with their runs."""
        from nvtrader_pipelines.runs.experiment_list import list_experiments

        return list_experiments(self.store, everything=everything)[0]

    @operation("nvtrader experiments diff ppo-growth", "nvtrader experiments diff ppo-growth ppo-cvar")
    def diff(
        self,
        left: Annotated[str, Field(description="Name, version (name@hash8) or YAML file.")],
        right: Annotated[
            str | None, Field(description="Name, version or YAML file; default: the version before LEFT.")
        ] = None,
    ) -> "Annotated[pl.DataFrame, FieldDifference]":
        """Show the fields in which two experiments or versions differ, defaults included.

        Raises:
            StorageError: if there is no such experiment or version, or a file holds no valid experiment.
        """
        from nvtrader_pipelines.runs.experiment_document import compare_experiments

        return compare_experiments(self.store, left, right)

    @operation("nvtrader experiments run my-first", "nvtrader experiments run ppo-growth ppo-cvar --json", is_long=True)
    def run(
        self,
        *experiments: Annotated[Content, Field(description="Names of experiments in data/experiments."), AT_LEAST_ONE],
        smoke: Annotated[
            bool, Field(description="Only try one fold and seed with few steps in memory; no result.")
        ] = False,
        yes: Yes = False,
        judge: Judge = True,
    ) -> "Annotated[pl.DataFrame, SummaryFigures]":
        """Train and evaluate experiments (of an ablation, each variant) and print the results.

        Raises:
            StorageError: if content is not valid, or a person wrote another experiment of its name.
            ValueError: if a name is unknown, or an experiment cannot run; the others have run.
            PipelineError: if a step fails.

        Returns:
            A row per account (the experiment's, baselines) and period of the latest run of each experiment, with
            figures net of costs and the bounds of their 95 % intervals; of a smoke run, its extent.
        """
        return self._smoke(experiments) if smoke else self.materialize(*experiments, yes=yes, judge=judge)

    @operation("nvtrader experiments validate", "nvtrader experiments validate my-first")
    def validate(
        self,
        *experiments: Annotated[str, Field(description="Names of experiments; default: all files.")],
    ) -> "Annotated[pl.DataFrame, ValidatedExperiment]":
        """Check experiments and plan them on the market, without registering or running them.

        Raises:
            NotFoundError: if there is no such experiment, or none at all.
        """
        from nvtrader_pipelines.runs.experiment_document import validate_experiments

        return validate_experiments(self.store, experiments)

    @operation("nvtrader experiments show my-first", route="GET /api/experiments/{experiment}", is_kept=True)
    def show(
        self,
        experiment: Annotated[str, Field(max_length=63, description="Name of an experiment in data/experiments.")],
    ) -> "ExperimentDocument":
        """Show an experiment: state, versions, last run, plan, training time and resolved spec.

        Raises:
            NotFoundError: if there is no such experiment.
            StorageError: if it is not valid.
        """
        from nvtrader_pipelines.runs.experiment_document import experiment_document

        return experiment_document(self.store, experiment)

    @operation("nvtrader experiments archive my-first my-second", route="POST /api/experiments/archive")
    def archive(self, *names: Name) -> "ArchivedExperiments":
        """Hide experiments from lists, sensors and `materialize`; their files, runs and trials stay.

        Raises:
            StorageError: if there is no such experiment, or a name is that of a variant.
        """
        return self._set_archived(names, archived=True)

    @operation("nvtrader experiments unarchive my-first", route="POST /api/experiments/unarchive")
    def unarchive(self, *names: Name) -> "ArchivedExperiments":
        """Put archived experiments back."""
        return self._set_archived(names, archived=False)

    @operation(
        "nvtrader train --symbols AAPL,KO,XOM,JNJ --timesteps 20480",
        route="POST /api/experiments/train",
        is_long=True,
        command="train",
    )
    def train(
        self,
        *,
        symbols: Symbols = (),
        total_timesteps: Steps = None,
        source: Annotated[
            str, Field(max_length=32, description="Source of prices, as data/market.yaml names it.")
        ] = "sample",
        yes: Yes = False,
        judge: Judge = True,
    ) -> "Annotated[pl.DataFrame, SummaryFigures]":
        """Train PPO with its defaults and judge it: a manual run in one command.

        It writes data/experiments/train-<digits>.yaml, whose name follows from the options: equal options continue or
        show the same experiment. While it trains, every point of its learning curve is appended to a file in
        warehouse/training_curves, and `nvtrader status --json` shows the curve of the training that reported last.

        Raises:
            StorageError, ValueError, PipelineError: as `run`, or if the market has no such symbols, or is too short.
        """
        from nvtrader_pipelines.runs.registration import store_manual_experiment

        name = store_manual_experiment(self.store, source, symbols or None, total_timesteps)
        return self.materialize(name, yes=yes, judge=judge)

    @operation(
        "nvtrader apps stock",
        "nvtrader apps crypto --files coins/ --timesteps 20480",
        "nvtrader apps paper --json",
        route="POST /api/experiments/apps",
        is_long=True,
        command="apps",
    )
    def apps(
        self,
        app: App,
        *,
        files: Annotated[
            tuple[Path, ...],
            Field(description="Files of prices and of fundamentals, or folders of them; several by repeating it."),
        ] = (),
        total_timesteps: Steps = None,
        yes: Yes = False,
        judge: Judge = True,
    ) -> "Annotated[pl.DataFrame, SummaryFigures]":
        """Ingest prices, train the experiment of an application on them, and judge it: all in one command.

        - stock: shares of each name are bought and sold by the best of three agents, as in FinRL's StockTrading.
        - portfolio: weights of all names once a week, as in FinRL's StockPortfolio.
        - crypto: weights of coins, in a market that never closes.
        - fundamentals: a tilt of 1/N by what was published on each name; its `files` hold that, too.
        - paper: the recommended agent, and its last month on the account `paper-month`.

        Without `files` it takes the prices that were delivered before, or those of the sample. It writes
        data/experiments/NAME.yaml, fitted to the history of the market, in place of that of an earlier call.

        Raises:
            StorageError, ValueError, PipelineError: as `run`; if a file is refused, or the market is too short.
        """
        name = self.prepare_app(app, files, total_timesteps)
        rows = self.materialize(name, yes=yes, judge=judge)
        if app == "paper":
            self.trade_month(name)
        return rows

    def prepare_app(self, app: App, files: Sequence[Path], total_timesteps: int | None) -> str:
        """Ingest the files of an application, and write its experiment; return its name."""
        from nvtrader_pipelines.runs.applications import deliver_app_files, require_accepted, store_app

        deliver_app_files(self.store.home, app, files)
        WholeHome(self.opened).ingest()
        require_accepted(self.store, files)
        return store_app(self.store, app, total_timesteps)

    def trade_month(self, name: str) -> "AccountActivity":
        """Replay the last month of an experiment's market on the account `paper-month`, or what is new since."""
        from nvtrader_pipelines.desk.account_access import add_simulated_account
        from nvtrader_pipelines.runs.applications import PAPER_ACCOUNT, month_to_trade

        add_simulated_account(self.store.home, PAPER_ACCOUNT)
        Policies(self.opened).activate(name, account=PAPER_ACCOUNT, reason="its last month on paper")
        first, last = month_to_trade(self.store)
        return Accounts(self.opened).trade(first=first, last=last, account=PAPER_ACCOUNT)

    @operation("nvtrader materialize ppo-growth ppo-cvar", is_long=True, command="materialize")
    def materialize(
        self,
        *experiments: Annotated[Content, Field(description="Names of experiments; default: all of data/experiments.")],
        yes: Yes = False,
        judge: Judge = True,
    ) -> "Annotated[pl.DataFrame, SummaryFigures]":
        """Materialize the whole graph, recomputing only what changed, and print the results.

        Raises:
            StorageError, ValueError, PipelineError: as `run`.
        """
        from nvtrader_pipelines.runs.run_document import summary_rows
        from nvtrader_pipelines.storage.specs import store_experiment

        names = [one if isinstance(one, str) else store_experiment(self.store.home, one).name for one in experiments]
        done, problems = self.update(names, judge=judge, confirm=None if yes else _refuse_long_trainings)
        if problems:
            raise ValueError("; ".join(f"{name}: {problem}" for name, problem in problems.items()))
        return summary_rows(self.store, done if names else ())

    def update(
        self, names: Sequence[str], *, judge: bool, confirm: "Confirm | None"
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """Bring experiments up to date as `run_pipeline`; return their names, and the problems of others by name."""
        from nvtrader_pipelines.promotion.active_policy import mirror_pointer
        from nvtrader_pipelines.runs.pipeline_state import read_pipeline_state
        from nvtrader_pipelines.service.consoles import wide_console

        console = wide_console()
        mirror_pointer(self.store)  # not every materialization reads the active policy
        if judge and (keys := read_pipeline_state(self.store, names)) is not None:
            lines = (f"experiment {i} of {len(keys)}: {key} is" for i, key in enumerate(keys, start=1))
            for line in () if self.opened.is_quiet else ("market:", *lines, "judgement:", "promotion:"):
                console.print(f"{line} up to date", soft_wrap=True)
            return [key.partition("@")[0] for key in keys], {}
        from nvtrader_pipelines.orchestration.materialize import run_pipeline  # imports Dagster

        with self._progress() as on_progress:
            watch = on_progress if console.is_terminal else lambda _: None  # elsewhere the steps print lines
            ran = run_pipeline(self.store, names, watch, confirm=confirm, judge=judge, quiet=self.opened.is_quiet)
        return ran.names, ran.problems

    def _smoke(self, names: Sequence[Any]) -> "pl.DataFrame":
        from dataclasses import asdict

        import polars as pl

        from nvtrader_pipelines.orchestration.materialize import smoke_pipeline

        tried = smoke_pipeline(self.store, names, quiet=self.opened.is_quiet)
        return pl.DataFrame([{**asdict(run), "is_result": False} for run in tried])

    def _set_archived(self, experiments: Sequence[str], *, archived: bool) -> "ArchivedExperiments":
        from nvtrader_pipelines.runs.experiment_document import ArchivedExperiments
        from nvtrader_pipelines.runs.experiment_list import names_with_variants

        names = tuple(dict.fromkeys(one for name in experiments for one in names_with_variants(self.store, name)))
        (self.store.ledger.archive if archived else self.store.ledger.unarchive)(names)
        return ArchivedExperiments(names=names, archived=archived)


def _refuse_long_trainings(trainings: "Sequence[TrainingEstimate]") -> None:
    from nvtrader_pipelines.runs.training_time import describe_long_trainings

    raise ValueError(describe_long_trainings(trainings, "yes=True"))
