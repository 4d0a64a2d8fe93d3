"""Dagster logger for the console: finished steps, failures and messages of assets."""

import logging
import sys

import dagster as dg


class ProgressHandler(logging.Handler):
    """Handler that writes finished steps, failures and messages of assets to standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record if it has a line for the console."""
        line = format_record(record)
        if line:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def format_record(record: logging.LogRecord) -> str | None:
    """Format a finished or failed step, failed check or asset message; None for the rest."""
    meta = getattr(record, "dagster_meta", {})
    event: dg.DagsterEvent | None = meta.get("dagster_event")
    if event is None:
        is_asset_message = meta.get("step_key") and record.levelno >= logging.INFO
        return f"    {meta.get('orig_message', record.getMessage())}" if is_asset_message else None
    name = (event.step_key or "").replace("__", ".", 1)
    if event.event_type is dg.DagsterEventType.STEP_SUCCESS:
        return f"  {name}  {event.step_success_data.duration_ms / 1000:.1f} s"
    if event.event_type in (dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_UP_FOR_RETRY):
        return f"  {name}  {'failed' if event.is_step_failure else 'failed, will be retried'}"
    if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        check = event.asset_check_evaluation_data
        lines = (check.description or "").splitlines()
        return None if check.passed else "\n    ".join([f"  {name}  check did not pass", *lines])
    return None


@dg.logger(config_schema={"level": dg.Field(str, default_value="DEBUG")}, description="Progress on the console.")
def console_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """Logger of runs started from the command line."""
    logger = logging.getLogger("nvtrader_pipelines.progress")
    logger.setLevel(context.logger_config["level"])
    logger.propagate = False
    logger.handlers = [ProgressHandler()]
    return logger
