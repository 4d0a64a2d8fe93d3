"""Worlds other than portfolios: experiments listed, run and shown."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.components.text import Name
from nvtrader_pipelines.service.operations.operation import AT_LEAST_ONE, Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.runs.order_books import OrderBookDocument
    from nvtrader_pipelines.runs.world_documents import ListedWorld, WorldDocument

World = Annotated[str, Field(max_length=63, description="Name of an experiment of data/worlds.")]


class Worlds(Family):
    """Worlds: experiments of data/worlds on orders, single assets, order books and making a market."""

    command, alone = "worlds", "list"
    examples = ("nvtrader worlds", "nvtrader worlds run sell-order")

    @operation("nvtrader worlds list", "nvtrader worlds list --json", route="GET /api/worlds", is_kept=True)
    def list(self) -> "Annotated[pl.DataFrame, ListedWorld]":
        """List the experiments in worlds with the results of their last runs, and why a file is none."""
        from nvtrader_pipelines.runs.world_documents import list_worlds

        return list_worlds(self.current_store())

    @operation(
        "nvtrader worlds show sell-order",
        "nvtrader worlds show sell-order --json",
        route="GET /api/worlds/{world}",
        is_kept=True,
    )
    def show(self, world: World) -> "WorldDocument":
        """Show an experiment in a world, its last run, and the results beside the world's reference.

        Raises:
            NotFoundError: if no valid file has the name.
        """
        from nvtrader_pipelines.runs.world_documents import world_document

        return world_document(self.current_store(), world)

    @operation(
        "nvtrader worlds run sell-order",
        "nvtrader worlds run one-asset --json",
        route="POST /api/worlds/{world}/run",
        writes=True,
        is_long=True,
    )
    def run(self, world: World) -> "WorldDocument":
        """Train and test an experiment in a world; what is trained already is tested again.

        An interrupted run trains its missing seeds, those of PPO from their checkpoints; DQN begins them again.

        Raises:
            NotFoundError: if no valid file has the name.
            StorageError: if the source of its market is not ingested, or an experiment has the name.
            ValueError: if the market lacks days or a symbol, or has too few sessions.
        """
        from uuid import uuid4

        from nvtrader_pipelines.evaluation.step_generators import drain
        from nvtrader_pipelines.runs.lifecycle import Launch
        from nvtrader_pipelines.runs.world_documents import world_document
        from nvtrader_pipelines.runs.world_runs import run_world
        from nvtrader_pipelines.storage.world_files import read_world

        with self._progress() as on_progress:
            drain(run_world(self.store, read_world(self.store.home, world), Launch(str(uuid4()))), on_progress)
        return world_document(self.store, world)

    @operation(
        "nvtrader worlds land btcusdt_20260105.npz btcusdt_20260106.npz --book btcusdt",
        "nvtrader worlds land events.npz --book own --step 0.1 --json",
        writes=True,
    )
    def land(
        self,
        *files: Annotated[
            str | Path,
            Field(description="Files .npz of events in the layout of hftbacktest, in the order of their names."),
            AT_LEAST_ONE,
        ],
        book: Annotated[Name, Field(description="Name of the book; one of that name is replaced.")],
        step: Annotated[float, Field(ge=0.001, le=3600.0, description="Seconds between the times kept.")] = 1.0,
    ) -> "OrderBookDocument":
        """Land files of events as one order book, for the world `tradesim_hft`; show its times, gaps and spread.

        Raises:
            StorageError: if a file cannot be read or an event is not valid; nothing is landed then.
        """
        from nvtrader_pipelines.runs.order_books import land_book

        landed = land_book(self.store, [Path(file) for file in files], book, step)
        self.publish()
        return landed
