"""Routes `/rl`: versions of experiments, runs, components and the stop of everything."""

import json
from datetime import date
from typing import Annotated, Any, Literal, Self

from fastapi import Depends, HTTPException, Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field, model_validator

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.service.api.body import Body
from nvtrader_pipelines.service.api.context import Shared, router
from nvtrader_pipelines.service.api.launches import Launched, launch_named, launch_replay, register, require_plan
from nvtrader_pipelines.service.api.problems import UNPARSED, not_found
from nvtrader_pipelines.service.documents.document import Document, rows_of
from nvtrader_pipelines.service.documents.run_facts import (
    ListedRun,
    RunDocument,
    find_run_by_name,
    list_runs,
    run_document,
)
from nvtrader_pipelines.storage.documents import MAX_BYTES, parse_document, validate_document
from nvtrader_pipelines.storage.specs import store_experiment

routes = router("rl", "/rl")
RunName = Annotated[str, Path(max_length=200, description="id of a run, its beginning, or an experiment")]
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

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        if self.first and self.last and self.first > self.last:
            raise ValueError(f"first must not be after last, but {self.first} is after {self.last}")
        return self


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
        config = body.model_dump(mode="json", exclude={"kind", "run_id"}, exclude_none=True)
        return launch_replay(shared, body.run_id, config)
    return launch_named(shared, body.experiment)


@routes.get("/runs", response_model=tuple[ListedRun, ...])
def runs(shared: Shared, *, everything: bool = False) -> Any:
    """List runs, newest first; with `everything`, those deleted or of archived experiments, too."""

    def read() -> object:
        return rows_of(ListedRun, list_runs(shared.store, everything=everything))

    return shared.answer("runs", read, shared.runs, of=(everything,))


@routes.get("/runs/{run}", response_model=RunDocument)
def run(shared: Shared, run: RunName) -> Any:
    """All facts of a run: verdict, spec, policies, figures, events and warnings."""
    with not_found():
        row = find_run_by_name(shared.store.ledger, run)

    def read() -> object:
        return run_document(shared.store, find_run_by_name(shared.store.ledger, row.run_id))

    return shared.answer("run", read, shared.runs, of=(row.run_id,))
