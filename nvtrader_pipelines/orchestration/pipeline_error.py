"""What a caller of the pipeline may catch."""


class PipelineError(RuntimeError):
    """A step failed; its own message says what to do."""
