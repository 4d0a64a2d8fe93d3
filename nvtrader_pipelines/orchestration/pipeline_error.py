"""Error that a caller of the pipeline may catch."""


class PipelineError(RuntimeError):
    """Failure of a pipeline step, with the message of the step."""
