"""Local endpoint of chat completions, and scripted models that see the facts of a request and nothing else."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

DRIP_SECONDS = 0.05  # between two bytes of a slow answer
Facts = Mapping[str, Any]
Model = Callable[[Facts], Any]  # document of the answer
FIRST_STEP, SHRINKAGE = 0.5, 0.8  # of a step, and by earlier answer
SUMMARY = {"paragraph": "The report has the figures of this search."}


def competent(facts: Facts) -> dict[str, Any]:
    """Step in turns from the best two trials away from the worst, and from the best along the trend of all.

    The steps shrink with the number of answers.
    """
    knobs, n_answers = facts["knobs"], len(facts["answers"])
    scored = {trial["trial"]: trial for trial in (*facts["recent"], *facts["best"]) if "sharpe" in trial}
    trials = sorted(scored.values(), key=lambda trial: -trial["sharpe"])
    places = np.array([_places(knobs, trial["changed"]) for trial in trials])
    sharpes = np.array([trial["sharpe"] for trial in trials])
    step = FIRST_STEP * SHRINKAGE**n_answers
    if n_answers % 2 == 0:
        return _answer(knobs, places[:2].mean(axis=0) + step * (places[0] - places[-1]), "on from the best", sharpes[0])
    trend = (sharpes - sharpes.mean()) @ (places - places.mean(axis=0))
    return _answer(knobs, places[0] + step * trend / np.linalg.norm(trend), "along the trend", sharpes[0])


def poor(facts: Facts) -> dict[str, Any]:
    """Propose a random point, and expect much."""
    draw = np.random.default_rng(crc32(json.dumps(facts).encode()))
    return _answer(facts["knobs"], draw.uniform(size=len(facts["knobs"])), "why not", 9.0)


def lying(facts: Facts) -> dict[str, Any]:
    """Answer with a valid document that names no knob of the search."""
    return {"changes": {"leverage": len(facts)}, "reason": "it always works", "expects": 9.0}


def _places(knobs: list[dict[str, Any]], changed: Mapping[str, float]) -> NDArray[np.float64]:
    """Places (n_knobs,) of a trial between the bounds, from 0 to 1."""
    values = [changed.get(knob["name"], knob["base"]) for knob in knobs]
    return np.array([(v - knob["low"]) / (knob["high"] - knob["low"]) for v, knob in zip(values, knobs, strict=True)])


def _answer(knobs: list[dict[str, Any]], places: NDArray[np.float64], reason: str, expects: float) -> dict[str, Any]:
    changes = {}
    for knob, place in zip(knobs, places.clip(0.0, 1.0).tolist(), strict=True):
        value = knob["low"] + place * (knob["high"] - knob["low"])
        changes[knob["name"]] = round(value) if knob["is_whole"] else value
    return {"changes": changes, "reason": reason, "expects": expects}


@contextmanager
def served(model: Model, *, is_slow: bool = False) -> Iterator[str]:
    """Serve a model on a free port, a byte at a time if slow, and yield the base URL."""
    closing = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_proposal = request["response_format"]["json_schema"]["name"] == "ProposalAnswer"
            content = json.dumps(model(_facts(request)) if is_proposal else SUMMARY)
            choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
            head = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
            body = json.dumps({**head, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # of a client that has left
                for part in [body[i : i + 1] for i in range(len(body))] if is_slow else [body]:
                    if is_slow and closing.wait(DRIP_SECONDS):
                        break
                    self.wfile.write(part)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name there
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        closing.set()
        server.shutdown()
        thread.join()


def _facts(request: Mapping[str, Any]) -> Facts:
    """Document of facts in a prompt."""
    return json.loads(request["messages"][1]["content"].partition("<data>")[2].partition("</data>")[0])
