"""Python interface: the commands of `nvtrader` as methods that return polars frames."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.accounts import Accounts
from nvtrader_pipelines.service.operations.alphas import Alphas
from nvtrader_pipelines.service.operations.bots import Bots
from nvtrader_pipelines.service.operations.corpora import Corpora
from nvtrader_pipelines.service.operations.experiments import Experiments
from nvtrader_pipelines.service.operations.feedback import Feedback
from nvtrader_pipelines.service.operations.guards import Guards
from nvtrader_pipelines.service.operations.home import WholeHome, restore_home
from nvtrader_pipelines.service.operations.plans import Plans
from nvtrader_pipelines.service.operations.policies import Policies
from nvtrader_pipelines.service.operations.runs import Runs
from nvtrader_pipelines.service.operations.scoreboard import Scoreboard
from nvtrader_pipelines.service.operations.searches import Searches
from nvtrader_pipelines.service.operations.workflows import Workflows
from nvtrader_pipelines.service.operations.worlds import Worlds
from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:  # slow to import
    import polars as pl


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
        """
        opened = OpenHome.find(None if home is None else Path(home), is_quiet=quiet)
        super().__init__(opened)
        self.accounts, self.plans, self.policies = Accounts(opened), Plans(opened), Policies(opened)
        self.runs, self.scoreboard, self.guards = Runs(opened), Scoreboard(opened), Guards(opened)
        self.experiments, self.alphas, self.feedback = Experiments(opened), Alphas(opened), Feedback(opened)
        self.searches, self.bots = Searches(opened), Bots(opened)
        self.corpora, self.workflows, self.worlds = Corpora(opened), Workflows(opened), Worlds(opened)

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
        from nvtrader_pipelines.storage.home import create_home

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

    def table(self, name: str) -> "pl.DataFrame":
        """Read a whole table, such as `gold.returns`; `sql` reads parts.

        Raises:
            StorageError: if there is no such table.
        """
        from nvtrader_pipelines.storage.views.view_definitions import quote_identifier

        return self.sql(f"FROM {'.'.join(map(quote_identifier, name.split('.')))}")
