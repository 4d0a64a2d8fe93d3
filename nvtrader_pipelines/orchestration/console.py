"""A Dagster logger for the console: what a person waits for, and nothing else."""

import logging
import sys

import dagster as dg

SHOWN_EVENTS = {
    "STEP_START": "started",
    "STEP_SUCCESS": "done",
    "STEP_FAILURE": "failed",
    "STEP_UP_FOR_RETRY": "will be tried again",
}


class ProgressHandler(logging.Handler):
    """Writes steps' beginnings and ends and what assets say, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, if it is of interest."""
        line = progress_line(record)
        if line:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def progress_line(record: logging.LogRecord) -> str | None:
    """The line for a record of Dagster's, or None."""
    meta = getattr(record, "dagster_meta", {})
    event = meta.get("dagster_event")
    step = meta.get("step_key") or ""
    if event is None:
        return f"    {meta.get('orig_message', record.getMessage())}" if record.levelno >= logging.INFO else None
    word = SHOWN_EVENTS.get(event.event_type_value)
    return f"  {step.replace('__', '.')} {word}" if word and step else None


@dg.logger(config_schema={"level": dg.Field(str, default_value="DEBUG")}, description="Progress for a person.")
def console_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """The logger of runs started from the command line."""
    logger = logging.getLogger("nvtrader_pipelines.progress")
    logger.setLevel(context.logger_config["level"])
    logger.propagate = False
    logger.handlers = [ProgressHandler()]
    return logger
