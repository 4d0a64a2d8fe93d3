"""Routes `/rl`: versions of experiments, runs, components and the stop of everything."""

import json
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import Depends, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.service.api.answers import Body
from nvtrader_pipelines.service.api.context import Shared, router
from nvtrader_pipelines.service.api.launches import Launched, launch_named, launch_replay, register, require_plan
from nvtrader_pipelines.service.api.problems import UNPARSED
from nvtrader_pipelines.storage.documents import MAX_BYTES, parse_document, validate_document
from nvtrader_pipelines.storage.specs import store_experiment

routes = router("rl", "/rl")
SPEC_TYPES = ("application/json", "application/yaml")


class Version(Document):
    """Registered version of an experiment."""

    version_id: str  # name@hash8
    spec_hash: str
    created: bool  # whether it is new


class TrainingRun(Body):
    """Training and evaluation of an experiment."""

    kind: Literal["train"]
    experiment: Annotated[str, Field(min_length=1, max_length=200)]  # name, or version id


class ReplayRun(Body):
    """Walk of a run's policies through another window."""

    kind: Literal["replay"]
    run_id: Annotated[str, Field(min_length=1, max_length=200)]
    first: date | None = None  # first session; null: of its tests
    last: date | None = None
    pinned: bool = False  # use the market data that the run recorded


async def _posted_content(request: Request) -> dict[str, Any]:
    """Content of an experiment, as JSON or YAML."""
    kind, body = request.headers.get("content-type", "").partition(";")[0].strip(), await request.body()
    if kind not in SPEC_TYPES:
        raise HTTPException(415, f"an experiment must be posted as {' or '.join(SPEC_TYPES)}, but is {kind!r}")
    if len(body) > MAX_BYTES:
        raise HTTPException(413, f"an experiment must have {MAX_BYTES >> 10} KB at most, but has {len(body):,} bytes")
    return await run_in_threadpool(parse_spec, body, is_json=kind == "application/json")


def parse_spec(body: bytes, *, is_json: bool) -> dict[str, Any]:
    """Parse the content of an experiment.

    Raises:
        ValueError, StorageError: if it is no mapping.
    """
    if is_json:
        try:
            json.loads(body)  # YAML allows more
        except RecursionError as error:
            raise ValueError("the body must be JSON of few levels, but has too many") from error
        except ValueError as error:
            is_number = not isinstance(error, json.JSONDecodeError)  # Python's limit on their digits
            raise ValueError(UNPARSED if is_number else f"the body is not valid JSON: {error}") from error
    return parse_document(body, "the body")


def _validate_spec(content: Annotated[dict[str, Any], Depends(_posted_content)]) -> ExperimentSpec:
    return validate_document(content, ExperimentSpec, "the content is not a valid experiment")


PostedSpec = Annotated[ExperimentSpec, Depends(_validate_spec)]
SPEC_BODY = {"requestBody": {"required": True, "content": {key: {"schema": {"type": "object"}} for key in SPEC_TYPES}}}


@routes.post("/experiments", status_code=201, openapi_extra=SPEC_BODY)
def create_experiment(shared: Shared, response: Response, posted: PostedSpec) -> Version:
    """Register an experiment, given as the content of its YAML; equal content is one version."""
    require_plan(shared, posted)
    stored = store_experiment(shared.home, posted)
    created = register(shared, stored)
    response.status_code = 201 if created else 200
    return Version(version_id=stored.partition_key, spec_hash=stored.spec_hash, created=created)


@routes.post("/runs", status_code=202)
def create_run(shared: Shared, body: Annotated[TrainingRun | ReplayRun, Field(discriminator="kind")]) -> Launched:
    """Start a training or a replay; its progress is at `/chat/stream/{task_id}`."""
    if isinstance(body, ReplayRun):
        return launch_replay(shared, body.run_id, body.first, body.last, pinned=body.pinned)
    return launch_named(shared, body.experiment)
