"""Tools that an assistant may call on a home: arguments in, a document out, and a record of what writes or trades."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from nvtrader_pipelines.components.document import rows_of
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.data import Data
from nvtrader_pipelines.service.tools.registry import TOOLS, Permission, Tool
from nvtrader_pipelines.storage.documents import validate_document
from nvtrader_pipelines.storage.errors import ConflictError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from mcp.server import Server

SWITCHES: Mapping[Permission, str] = {"writes": "--allow-writes", "trades": "--allow-trading"}
READING: frozenset[Permission] = frozenset()


def permissions_of(*, allow_writes: bool, allow_trading: bool) -> frozenset[Permission]:
    """Permissions that two switches give."""
    given: Mapping[Permission, bool] = {"writes": allow_writes, "trades": allow_trading}
    return frozenset(name for name, is_given in given.items() if is_given)


@dataclass(frozen=True)
class Toolbox:
    """Tools on a home; those that write or trade only where that is allowed."""

    opened: OpenHome
    permissions: frozenset[Permission] = READING

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Tools that may be called now."""
        is_halted = self.opened.store.switch.halt_reason() is not None
        allowed = READING if is_halted else self.permissions
        return {name: tool for name, tool in TOOLS.items() if tool.needs <= allowed}

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return its document as JSON.

        Raises:
            NotFoundError: if there is no such tool.
            ConflictError: if it is not allowed, or trading is halted and it does more than read.
            StorageError: if an argument is unknown or not valid.
            Exception: as the operation raises.
        """
        tool = self._require(name)
        given = validate_document(dict(arguments), tool.arguments, f"the arguments of {name} are not valid")
        values = {parameter.name: getattr(given, argument) for argument, parameter in tool.parameters.items()}
        if not tool.needs:
            return _answer(tool, self.opened, values)
        opened = replace(self.opened, by=f"{self.opened.by} by {name}")
        record = partial(Data(opened).record, _record(opened.by, name, given))
        if not tool.is_urgent:
            record()
        content = _answer(tool, opened, values)
        if tool.is_urgent:
            record()
        return content

    def _require(self, name: str) -> Tool:
        if name not in TOOLS:
            near = suggest(name, [*TOOLS])
            raise NotFoundError(f"there is no tool {name!r}{near or ';'} there are {', '.join(self.tools)}")
        tool, switch = TOOLS[name], self.opened.store.switch
        if missing := tool.needs - self.permissions:
            switches = " ".join(switch for need, switch in SWITCHES.items() if need in missing)
            raise ConflictError(f"{name} must be allowed, but is not; start the tools with {switches}")
        if tool.needs and (reason := switch.halt_reason()):
            raise ConflictError(f"{name} needs a released kill switch, but {reason}; {switch.remedy}")
        return tool


def open_server(toolbox: Toolbox) -> "Server":
    """Make the server of the Model Context Protocol.

    Raises:
        UnavailableError: if its package is not installed.
    """
    try:
        from nvtrader_pipelines.service.tools.server import create_server  # imports the SDK: two thirds of a second
    except ModuleNotFoundError as error:
        if error.name not in {"mcp", "mcp_types"}:
            raise
        raise UnavailableError(
            "tools need the package mcp, which is not installed: pip install 'nvtrader-pipelines[mcp]'"
        ) from error
    return create_server(lambda: toolbox.tools, toolbox.call)


def _answer(tool: Tool, opened: OpenHome, values: Mapping[str, Any]) -> dict[str, Any]:
    """Call the operation of a tool and return its document as JSON."""
    return json.loads(_document(tool, opened, values).model_dump_json(warnings=False))


def _document(tool: Tool, opened: OpenHome, values: Mapping[str, Any]) -> BaseModel:
    if tool.operation.is_long:
        from nvtrader_pipelines.service.api.context import Context
        from nvtrader_pipelines.service.api.launches import LAUNCHES

        return LAUNCHES[tool.operation.route](Context(opened.store, opened.by), **values)
    answer = tool.operation.call(tool.family(opened), values)
    if tool.operation.is_frame:
        return tool.result(rows=rows_of(tool.operation.row, answer))
    return answer if isinstance(answer, tool.result) else tool.result(result=answer)


def _record(by: str, name: str, arguments: BaseModel) -> AuditEvent:
    """Event of a call that writes or trades."""
    at = datetime.now(UTC)
    detail = {"tool": name, "arguments": arguments.model_dump(mode="json", exclude_unset=True)}
    return AuditEvent(event_id=event_id("called", name, at.isoformat()), kind="called", at=at, by=by, detail=detail)
