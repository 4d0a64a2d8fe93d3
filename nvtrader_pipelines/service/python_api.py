"""Python interface: the commands of `nvtrader` as methods that return polars frames."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nvtrader_pipelines.service.library_noise import silence_libraries
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.guards import Guards
from nvtrader_pipelines.service.operations.home import WholeHome, restore_home
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies
from nvtrader_pipelines.service.operations.runs import Runs
from nvtrader_pipelines.service.operations.scoreboard import Scoreboard
from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:  # slow to import
    import polars as pl

    from nvtrader_pipelines.experiments.spec import ExperimentSpec
    from nvtrader_pipelines.runs.training_time import TrainingEstimate


class Pipeline(WholeHome):
    """Pipeline of one home: ingests prices, runs experiments, and reads what they wrote.

    Returns, weights, costs and drawdowns are fractions; losses, costs and drawdowns are positive; Sharpe ratios are
    annual. Annualized figures of fewer than 63 sessions are null. Problems with files, names or data raise StorageError
    or ValueError, a failed step PipelineError, a run that the kill switch ends RunHalted, each with the sentence that
    `nvtrader` prints. To resume an interrupted call, repeat it.
    """

    def __init__(self, home: str | Path | None = None, *, quiet: bool = False) -> None:
        """Open a home; without a folder, the one that `nvtrader` works on in the current folder.

        Args:
            home: folder of the home.
            quiet: show no progress of long work.

        Raises:
            ValueError: if there is no home.
            DamagedFileError: if a file that every command depends on is damaged.
        """
        opened = OpenHome.find(None if home is None else Path(home), is_quiet=quiet)
        super().__init__(opened)
        self.accounts, self.plans, self.policies = Accounts(opened), Plans(opened), Policies(opened)
        self.runs, self.scoreboard, self.guards = Runs(opened), Scoreboard(opened), Guards(opened)

    @classmethod
    def create(cls, home: str | Path, *, exist_ok: bool = False, quiet: bool = False) -> Self:
        """Create a home with the shipped market and experiments, as `nvtrader init` does.

        Args:
            home: new or empty folder.
            exist_ok: open the folder if it is a home already.
            quiet: show no progress of long work.

        Raises:
            StorageError: if the folder holds anything else.
        """
        from nvtrader_pipelines.storage.new_home import create_home

        if not (exist_ok and Home.at(Path(home)).experiments.is_dir()):
            create_home(Path(home))
        return cls(home, quiet=quiet)

    @classmethod
    def restore(cls, file: str | Path, home: str | Path) -> Self:
        """Restore a backup as a home in a new or empty folder, after every file was verified by its digest.

        Raises:
            StorageError: if the folder is not empty, or the backup is damaged.
        """
        restore_home(Path(file), Path(home))
        return cls(home)

    def __repr__(self) -> str:
        return f"Pipeline({str(self.home.root)!r})"

    @property
    def home(self) -> Home:
        """Paths of the home, such as `home.landing` and `home.experiments`."""
        return self.store.home

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

    def table(self, name: str) -> "pl.DataFrame":
        """Read a whole table, such as `gold.returns`; `sql` reads parts.

        Raises:
            StorageError: if there is no such table.
        """
        from nvtrader_pipelines.storage.views.view_definitions import quote_identifier

        return self.sql(f"FROM {'.'.join(map(quote_identifier, name.split('.')))}")

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


def _refuse_long_trainings(trainings: "Sequence[TrainingEstimate]") -> None:
    from nvtrader_pipelines.runs.training_time import describe_long_trainings

    raise ValueError(describe_long_trainings(trainings, "yes=True"))
