"""Guards of a weight pipeline: their comparison with none."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.service.operations.arguments import OUTPUT
from nvtrader_pipelines.service.operations.operation import Family, operation
from nvtrader_pipelines.service.output_paths import picture_path

if TYPE_CHECKING:
    from nvtrader_pipelines.service.documents.guard_facts import GuardsDocument


class Guards(Family):
    """Guards of a weight pipeline: what they did, and whether they help."""

    command = "guards"
    examples = ("nvtrader guards compare data/experiments/guards-initial.yaml",)

    @operation(*examples, "nvtrader guards compare guards-initial --sessions 63 -o guards.png", is_long=True)
    def compare(
        self,
        file: Annotated[
            str, Field(description="YAML file of an experiment that ran, or its name in data/experiments.")
        ],
        *,
        sessions: Annotated[int, Field(ge=2, description="Sessions in a slice.")] = 42,
        output: Annotated[
            str | Path | None, Field(description="Picture to write, .png or .svg; default: none."), OUTPUT
        ] = None,
    ) -> "GuardsDocument":
        """Compare a run with its guards and without, on slices of its tests that do not overlap.

        In each slice the policies of the fold in force open an account in cash with the guards and one without. Beside
        them is the best baseline of the run's verdict, known in hindsight only. The readiness is ready, harmful or
        open. The timing must be gymrl_guard, loss_shutdown or regime_guard. Nothing is trained or stored.

        Raises:
            StorageError: if there is no such experiment, it has no complete run, or its market or code have changed.
            ValueError: if its timing has no guards, or fewer than two slices fit.
        """
        from nvtrader_pipelines.evaluation.step_generators import drain
        from nvtrader_pipelines.runs.experiment_document import read_named_experiment
        from nvtrader_pipelines.runs.guard_walk import draw_guard_slices, walk_guards
        from nvtrader_pipelines.service.documents.guard_facts import guards_document

        picture = picture_path(output, Path(output)) if output else None
        steps = walk_guards(self.store, read_named_experiment(self.store.home, file), sessions)
        with self._progress() as on_progress:
            walk = drain(steps, on_progress)
        if picture:
            draw_guard_slices(walk, picture)
        return guards_document(walk, picture)
