"""OpenTelemetry spans of search sessions, one per proposal with its result, and of calls of language models."""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.environment_variables import OTEL_EXPORTER_OTLP_ENDPOINT
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer, set_span_in_context

from nvtrader_pipelines.llm.calls import Call
from nvtrader_pipelines.research.journal import CALL_FIELDS, Line, ModelEvent, TrialJudged
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.storage.files import append_rotated
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.tables.research import ITERATION, MODEL_CALL

MAX_BYTES = 10_000_000  # of the file
LOGGER = logging.getLogger("opentelemetry")  # where its exporters report failures


def trace_session(home: Home, session: Session, steps: Iterable[Line], warn: Callable[[str], None]) -> Iterator[Line]:
    """Yield the lines of a session as they come, with a span for each iteration and each call of a model below one.

    Spans go to the endpoint of $OTEL_EXPORTER_OTLP_ENDPOINT, else to a file of the home. The first failure is a
    warning; the session does not need its spans.
    """
    shared = {"session": session.session_id, "mode": session.spec.eval_mode.value}
    with _tracing(home, warn) as tracer:
        parent = tracer.start_span("autoresearch.session", Context(), attributes=shared)
        below = set_span_in_context(parent, Context())
        try:
            for line in steps:
                if isinstance(line, TrialJudged):
                    _add(tracer, ITERATION, below, line.finished_at, line.seconds, shared | _attributes(line))
                elif isinstance(line, ModelEvent) and line.digest:
                    call = line.model_dump(include=CALL_FIELDS)  # without the texts of people and models
                    attributes = {**shared, **call, "problem": line.message}
                    _add(tracer, MODEL_CALL, below, line.finished_at, line.seconds, attributes)
                yield line
        finally:
            parent.end()


def trace_call(home: Home, call: Call, finished_at: datetime, warn: Callable[[str], None]) -> None:
    """Write the span of a model's call outside of sessions."""
    with _tracing(home, warn) as tracer:
        _add(tracer, MODEL_CALL, Context(), finished_at, call.seconds, call.model_dump(exclude={"seconds"}))


@contextmanager
def _tracing(home: Home, warn: Callable[[str], None]) -> Iterator[Tracer]:
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "nvtrader_pipelines"}), shutdown_on_exit=False)
    provider.add_span_processor(_processor(home))
    failures = _FirstFailure(warn)
    LOGGER.addHandler(failures)
    try:
        yield provider.get_tracer(__name__)
    finally:
        provider.shutdown()
        LOGGER.removeHandler(failures)


def _add(
    tracer: Tracer, name: str, below: Context, finished_at: datetime, seconds: float, attributes: Mapping[str, Any]
) -> None:
    """Write a span that has ended."""
    end = int(finished_at.timestamp() * 1e9)
    tracer.start_span(name, below, attributes=attributes, start_time=end - int(seconds * 1e9)).end(end)


def _attributes(line: TrialJudged) -> dict[str, str | int | float]:
    """Attributes of an iteration, without those that it lacks."""
    values = line.model_dump(mode="json", include={"proposal", "trial", "status", "standing", "sharpe", "clips"})
    clips = values.pop("clips")
    values |= {"n_clips": len(clips), "clips": json.dumps(clips)}
    return {name: value for name, value in values.items() if value is not None}


def _processor(home: Home) -> SpanProcessor:
    if not os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT):
        return SimpleSpanProcessor(FileSpanExporter(home.spans_file))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # needed with an endpoint only

    return BatchSpanProcessor(OTLPSpanExporter())


class FileSpanExporter(SpanExporter):
    """Exporter to a file with a JSON line per span, to which several processes may append."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append spans.

        Raises:
            OSError: if the file cannot be written.
        """
        append_rotated(self._path, "".join(f"{span.to_json(indent=None)}\n" for span in spans), MAX_BYTES)
        return SpanExportResult.SUCCESS


class _FirstFailure(logging.Handler):
    """Handler that shows the first error of a log as a warning."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        """Show the first error."""
        reason = record.exc_info[1] if record.exc_info else record.getMessage()
        self._warn(f"OpenTelemetry lacks spans, though the results are complete: {reason}")
        self.setLevel(logging.CRITICAL + 1)
