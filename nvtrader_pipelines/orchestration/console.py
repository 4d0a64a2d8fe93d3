"""A Dagster logger for the console: what a person waits for, and nothing else."""

import logging
import sys

import dagster as dg


class ProgressHandler(logging.Handler):
    """Writes steps' beginnings and ends and what assets say, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, if it is of interest."""
        line = format_record(record)
        if line:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def format_record(record: logging.LogRecord) -> str | None:
    """The line for a record of Dagster's, or None: finished and failed steps, failed checks, what assets say."""
    meta = getattr(record, "dagster_meta", {})
    event: dg.DagsterEvent | None = meta.get("dagster_event")
    if event is None:
        said = meta.get("step_key") and record.levelno >= logging.INFO
        return f"    {meta.get('orig_message', record.getMessage())}" if said else None
    name = (event.step_key or "").replace("__", ".", 1)
    if event.event_type is dg.DagsterEventType.STEP_SUCCESS:
        return f"  {name}  {event.step_success_data.duration_ms / 1000:.1f} s"
    if event.event_type in (dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_UP_FOR_RETRY):
        return f"  {name}  {'failed' if event.is_step_failure else 'failed, will be tried again'}"
    if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        check = event.asset_check_evaluation_data
        return None if check.passed else "\n    ".join([f"  {name}  check did not pass", *_lines(check.description)])
    return None


def _lines(text: str | None) -> list[str]:
    return (text or "").splitlines()


@dg.logger(config_schema={"level": dg.Field(str, default_value="DEBUG")}, description="Progress for a person.")
def console_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """The logger of runs started from the command line."""
    logger = logging.getLogger("nvtrader_pipelines.progress")
    logger.setLevel(context.logger_config["level"])
    logger.propagate = False
    logger.handlers = [ProgressHandler()]
    return logger
