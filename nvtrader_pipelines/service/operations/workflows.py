"""Workflows: files that name jobs, listed and run."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.orchestration.workflow_runs import ListedWorkflow, StepRun


class Workflows(Family):
    """Workflows: jobs of data/workflows that run one after the other until one fails."""

    command, alone = "workflows", "list"
    examples = ("nvtrader workflows", "nvtrader workflows run nightly")

    @operation("nvtrader workflows list", "nvtrader workflows list --json", route="GET /api/workflows", is_kept=True)
    def list(self) -> "Annotated[pl.DataFrame, ListedWorkflow]":
        """List all workflows with their steps, and why a file is none.

        `nvtrader ui` has each as a job, `workflow_NAME`; restart it after a file of data/workflows changes.
        """
        import polars as pl

        from nvtrader_pipelines.components.document import frame_of, schema_of
        from nvtrader_pipelines.orchestration.workflow_runs import ListedWorkflow, list_workflows

        workflows = list_workflows(self.store.home)
        return frame_of(workflows) if workflows else pl.DataFrame(schema=schema_of(ListedWorkflow))

    @operation(
        "nvtrader workflows run nightly",
        "nvtrader workflows run nightly --json",
        route="POST /api/workflows/{workflow}/run",
        is_long=True,
    )
    def run(
        self, workflow: Annotated[str, Field(max_length=31, description="Workflow of data/workflows.")]
    ) -> "Annotated[pl.DataFrame, StepRun]":
        """Run the steps of a workflow one after the other; a step that fails is the last.

        All steps are checked before the first one runs.

        Raises:
            NotFoundError: if there is no such workflow.
            StorageError: if its file is not valid.
            ValueError: if a step cannot run.
            PipelineError: if a step fails.
        """
        from nvtrader_pipelines.components.document import frame_of
        from nvtrader_pipelines.orchestration.workflow_runs import run_workflow
        from nvtrader_pipelines.service.consoles import wide_console

        with self._progress() as on_progress:
            watch = on_progress if wide_console().is_terminal else None  # elsewhere the steps print lines
            return frame_of(run_workflow(self.store, workflow, watch, quiet=self.opened.is_quiet))
