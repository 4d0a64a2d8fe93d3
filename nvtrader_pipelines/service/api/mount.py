"""Routes of operations: queries and bodies from parameters, answers from documents."""

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Path
from pydantic import BaseModel, create_model

from nvtrader_pipelines.components.document import rows_of
from nvtrader_pipelines.service.api.answers import Body, answer_with
from nvtrader_pipelines.service.api.context import Context, Shared, router
from nvtrader_pipelines.service.api.launches import LAUNCHES, Launched
from nvtrader_pipelines.service.operations.operation import Family, Operation, Parameter, operations_of

Endpoint = Callable[..., Any]
ALIASES = {  # routes of NVTrader's Continuous RL and of AlphaSwarm's RL framework, and of earlier versions
    "GET /api/nemorl-autoresearch/journal/{session_id}": "GET /api/searches/{session_id}/journal",
    "GET /api/nemorl-autoresearch/sessions": "GET /api/searches",
    "GET /api/nemorl-autoresearch/status": "GET /api/searches/status",
    "GET /api/nemorl/policies": "GET /api/policies",
    "GET /rl/runs": "GET /api/runs",
    "GET /rl/runs/{run}": "GET /api/runs/{run}",
    "POST /api/nemorl-autoresearch/start": "POST /api/searches/start",
    "POST /api/nemorl-autoresearch/stop": "POST /api/searches/stop",
    "POST /api/nemorl/policies/activate": "POST /api/policies/activate",
    "GET /rl/components": "GET /api/components",
    "GET /rl/components/{family}": "GET /api/components",
    "POST /rl/halt-all": "POST /api/halt",
    "POST /api/nemorl/train": "POST /api/experiments/train",
}


def operation_routes(family: type[Family]) -> APIRouter:
    """Make the routes of a family, and those by which the sources call them."""
    routes = router(family.command or "home")
    for name, one in operations_of(family).items():
        for route in (one.route, *(alias for alias, own in ALIASES.items() if own == one.route)):
            if route:
                _mount(routes, family, name, one, route)
    return routes


def _mount(routes: APIRouter, family: type[Family], name: str, one: Operation, route: str) -> None:
    method, path = route.split(" ")
    routes.add_api_route(
        path,
        _endpoint(family, name, one, route),
        name=f"{family.__name__} {name}",
        methods=[method],
        response_model=Launched if one.is_long else tuple[one.row, ...] if one.is_frame else one.returns,
        status_code=202 if one.is_long else 200,
    )


def _endpoint(family: type[Family], name: str, one: Operation, route: str) -> Endpoint:
    """Make the function that answers a route of an operation."""
    method, path = route.split(" ")
    public = [parameter for parameter in one.parameters if not parameter.is_local]
    in_path = [parameter for parameter in public if parameter.name in re.findall(r"{(\w+)", path)]
    others = [parameter for parameter in public if parameter not in in_path]
    content = others[0] if len(others) == 1 and _is_content(others[0]) else None  # the body itself
    inputs: dict[str, tuple[Any, Any]] = {
        parameter.name: (Annotated[parameter.kind, Path(), *parameter.marks], ...) for parameter in in_path
    }
    if method == "GET":
        inputs |= {parameter.name: parameter.field for parameter in others}
    elif content:
        kind = LAUNCHES[one.route].__annotations__[content.name] if one.is_long else content.kind  # what Dagster takes
        inputs["body"] = Annotated[kind, *content.marks] if content.marks else kind, ...
    elif others:
        fields: Any = {parameter.name: parameter.field for parameter in others}
        model: Any = create_model(f"{family.__name__}{name.title()}", __base__=Body, **fields)
        is_optional = not any(parameter.is_required for parameter in others)
        inputs["body"] = (model | None, None) if is_optional else (model, ...)

    def endpoint(shared: Context, body: BaseModel | None = None, **values: Any) -> Any:
        fields = {parameter.name: getattr(body, parameter.name) for parameter in others} if body and not content else {}
        arguments = {**values, **fields, **({content.name: body} if content else {})}
        if one.is_long:
            return LAUNCHES[one.route](shared, **arguments)

        def read() -> object:
            document = one.call(family(shared.opened), arguments)
            return rows_of(one.row, document) if one.is_frame else document

        return shared.answers.get((one.route, *values.values()), read) if one.is_kept else answer_with(read())

    parameters = [inspect.Parameter("shared", inspect.Parameter.KEYWORD_ONLY, annotation=Shared)]
    parameters += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=inspect.Parameter.empty if default is ... else default,
        )
        for name, (annotation, default) in inputs.items()
    ]
    endpoint.__signature__, endpoint.__doc__ = inspect.Signature(parameters), one.text  # pyright: ignore[reportFunctionMemberAccess]
    return endpoint


def _is_content(parameter: Parameter) -> bool:
    """Whether a parameter is a model or a union of models."""
    kinds = get_args(parameter.kind) or (parameter.kind,)
    return all(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
