"""Errors as problem documents (RFC 9457), with the sentence of the command line."""

import errno
import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.desk.account_access import AccountInUse
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.runs.interruptions import RunHalted
from nvtrader_pipelines.storage.errors import (
    ConflictError,
    DamagedFileError,
    NotFoundError,
    StorageError,
    UnavailableError,
)

MEDIA_TYPE = "application/problem+json"
DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
DATABASE_FAULTS = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}
UNPARSED = "the body must be JSON, with numbers of at most 4,300 digits, but cannot be parsed; send it again"
WHOLE = "must be a whole number of at most 18 digits 0 to 9"
RULES = {"int_parsing": WHOLE, "int_parsing_size": WHOLE}
MAX_SHOWN = 60  # characters of a value
REFUSALS = (RunHalted, StorageError, ValueError)  # of use cases, each with a sentence
LOG = logging.getLogger(__name__)


class Problem(BaseModel):
    """Why a request was refused or failed."""

    model_config = ConfigDict(frozen=True)
    title: str  # the status in words
    status: int
    detail: str  # what must hold, what was found, what to do


def problem_response(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Build the answer to a request that is refused or failed."""
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)
    return Response(problem.model_dump_json(), status, headers, MEDIA_TYPE)


@contextmanager
def refusing(kind: type[NotFoundError | ConflictError]) -> Iterator[None]:
    """Answer 404 where nothing, or several things, have a name, or 409 where the state forbids what is asked for."""
    try:
        yield
    except (DamagedFileError, UnavailableError):
        raise
    except (StorageError, ValueError) as error:
        raise kind(str(error)) from error


def is_disk_fault(error: BaseException | None) -> bool:
    """Whether an error was caused by a disk that is full, read-only or closed to this user."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in DATABASE_FAULTS  # the rest is a detail
    if isinstance(error, OSError) and error.errno in DISK_FAULTS:
        return True
    return error is not None and is_disk_fault(error.__cause__ or error.__context__)


def status_of(error: Exception) -> int:
    """Status of an error that a use case raises: bad input, unless its state or the disk forbids it."""
    match error:
        case _ if is_disk_fault(error):
            return 503
        case NotFoundError():
            return 404
        case ConflictError() | AccountInUse() | ExecutionError() | RunHalted():
            return 409
        case DamagedFileError() | UnavailableError():
            return 503
        case _:
            return 422


def _explain_body(request: Request, error: RequestValidationError) -> str:
    """Explain a mapping that is no valid body as an experiment's file is explained; empty if that is not the error."""
    field = getattr(request.scope["route"], "body_field", None)
    kinds = {*(get_args(field.field_info.annotation) or [field.field_info.annotation])} - {type(None)} if field else ()
    is_document = kinds and all(isinstance(kind, type) and issubclass(kind, Component) for kind in kinds)
    if not (field and isinstance(error.body, dict) and is_document):
        return ""
    model: Any = Annotated[field.field_info.annotation, field.field_info]
    try:
        TypeAdapter(model).validate_json(json.dumps(error.body))
    except ValidationError as fault:
        is_json = fault.errors()[0]["type"] != "json_invalid"  # Python reads NaN and half characters, too
        return explain(fault, model) if is_json else ""
    return ""


def _explain_parameter(fault: Mapping[str, Any]) -> str:
    """Explain a value of the address or a header that is not valid."""
    place, kind, value = ".".join(map(str, fault["loc"])), fault["type"], repr(fault["input"])
    rule = f"must match {fault['ctx']['pattern']}" if kind == "string_pattern_mismatch" else RULES.get(kind)
    shown = value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}… of {len(value)} characters"
    return f"{place}: found {shown}, but {rule}" if rule else f"{place}: {fault['msg']}"


def handle_problems(app: FastAPI) -> None:
    """Let an application answer with problem documents."""

    def refuse(_: Request, error: Exception) -> Response:
        return problem_response(status_of(error), str(error))

    def fail(_: Request, error: Exception) -> Response:
        LOG.warning("%s", error)
        return problem_response(503, f"a file cannot be read or written: {error}; check permissions and free space")

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        sentences = map(_explain_parameter, error.errors())
        return problem_response(422, _explain_body(request, error) or "; ".join(sentences))

    def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = UNPARSED if error.status_code == 400 else str(error.detail)  # FastAPI's only one
        return problem_response(error.status_code, detail, dict(error.headers or {}))

    for kind in REFUSALS:
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(OSError, fail)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
