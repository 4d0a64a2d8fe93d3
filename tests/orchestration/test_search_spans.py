import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import get_tracer_provider

from nvtrader_pipelines.orchestration import search_spans
from nvtrader_pipelines.orchestration.search_spans import trace_session
from nvtrader_pipelines.research.journal import TrialJudged
from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.research.session import run_session
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables.research import SPANS
from nvtrader_pipelines.storage.views.publishing import publish
from nvtrader_pipelines.storage.views.queries import query_views
from tests.research.search_homes import market, new_session, search_home
from tests.research.sessions import a_journal, a_session

SESSION = a_session()
LINES = a_journal(29).nothing_found().lines
TRIALS = [line for line in LINES if isinstance(line, TrialJudged)]
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def trace(home):
    """Function that traces lines, and returns the lines and the warnings."""
    warnings = []
    return lambda lines: (list(trace_session(home, SESSION, lines, warnings.append)), warnings)


@pytest.fixture
def collector(monkeypatch) -> Iterator[list]:
    """Requests, each a path and a body, to an endpoint of OTLP."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{server.server_port}")
        yield requests
        server.shutdown()
        thread.join()


def spans_of(path):
    """Spans of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_session_has_a_span_per_iteration_that_sql_reads(tmp_path):
    home = search_home(tmp_path / "home", market())
    folder = new_session(home, budget=2)
    session = read_session(folder).session
    store = Store(home)
    publish(store)
    assert query_views(store, f"FROM {SPANS.name}").columns == SPANS.schema.names()
    lines = list(trace_session(home, session, run_session(store, folder.session_id), pytest.fail))
    with home.spans_file.open("a") as file:
        file.write('{"name": "autoresearch.iteration", "attr')  # torn
    trials = [line for line in lines if isinstance(line, TrialJudged)]
    rows = query_views(store, f"FROM {SPANS.name} ORDER BY proposal").to_dicts()
    assert len(rows) == len(trials) >= 2
    for row, line in zip(rows, trials, strict=True):
        assert (row["session_id"], row["mode"]) == (folder.session_id, "cufolio_only")
        assert (row["proposal"], row["trial_id"], row["status"]) == (line.proposal, line.trial, line.status)
        assert (row["sharpe"], row["n_clips"]) == (line.sharpe, len(line.clips))
        assert row["seconds"] == pytest.approx(line.seconds, abs=1e-5)
        assert (line.finished_at - row["started_at"]).total_seconds() == pytest.approx(line.seconds, abs=1e-5)
    quantiles = query_views(store, f"SELECT quantile_cont(seconds, [0.5, 0.95]), max(seconds) FROM {SPANS.name}").row(0)
    assert 0 < quantiles[0][0] <= quantiles[0][1] <= quantiles[1]


def test_spans_of_a_session_are_one_trace_of_a_provider_of_its_own(home, trace):
    before = get_tracer_provider()
    assert trace(iter(LINES)) == (LINES, [])
    assert get_tracer_provider() is before
    *iterations, session = spans_of(home.spans_file)
    assert len(iterations) == len(TRIALS)
    assert {span["name"] for span in iterations} == {"autoresearch.iteration"}
    assert {span["parent_id"] for span in iterations} == {session["context"]["span_id"]}
    assert {span["context"]["trace_id"] for span in iterations} == {session["context"]["trace_id"]}
    assert session["attributes"] == {"session": SESSION.session_id, "mode": "ppo_only"}
    assert session["resource"]["attributes"]["service.name"] == "nvtrader_pipelines"
    assert {span["attributes"]["status"] for span in iterations} == {line.status for line in TRIALS}


def test_span_has_the_clips_and_no_sharpe_without_a_result(home, trace):
    clips = ({"knob": "gamma", "proposed": 1.5, "used": 0.999},)
    line = next(line for line in TRIALS if line.status == "infeasible")
    trace([TrialJudged.model_validate({**line.model_dump(), "clips": clips})])
    attributes = spans_of(home.spans_file)[0]["attributes"]
    assert (attributes["n_clips"], json.loads(attributes["clips"])) == (1, list(clips))
    assert (attributes["standing"], "sharpe" in attributes) == (line.standing, False)


def test_file_is_rotated_before_it_is_too_long(home, trace, monkeypatch):
    monkeypatch.setattr(search_spans, "MAX_BYTES", 20_000)
    trace(iter(LINES))
    parts = (home.spans_file.with_name("spans.jsonl.1"), home.spans_file)
    *iterations, _ = [span for part in parts for span in spans_of(part)]
    assert all(part.stat().st_size <= 20_000 for part in parts)
    assert [span["attributes"]["proposal"] for span in iterations] == [line.proposal for line in TRIALS]


def test_endpoint_receives_the_spans_and_the_file_none(home, trace, collector):
    assert trace(iter(LINES)) == (LINES, [])
    assert {path for path, _ in collector} == {"/v1/traces"}
    received = [
        span.name
        for _, body in collector
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(received) == ["autoresearch.iteration"] * len(TRIALS) + ["autoresearch.session"]
    assert not home.spans_file.exists()


def test_endpoint_that_is_not_there_is_one_warning(trace, monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    lines, warnings = trace(iter(LINES))
    assert (lines, len(warnings)) == (LINES, 1)


def test_file_that_cannot_be_written_is_one_warning(home, trace):
    home.root.mkdir()
    (home.root / "data").touch()
    lines, warnings = trace(iter(LINES))
    assert (lines, len(warnings)) == (LINES, 1)
