"""Chat completions by the `openai` package, under one deadline and with bounded bodies."""

import asyncio
import json
from typing import Annotated, Any, NamedTuple

import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from nvtrader_pipelines.llm.calls import Answer, Request
from nvtrader_pipelines.llm.endpoint import KEY_VARIABLE, Endpoint

MAX_BYTES = 1 << 20  # of a body
MAX_RETRIES = 2  # by the package, which waits between them or as long as Retry-After says
_SENT = {"accept", "authorization", "connection", "content-length", "content-type", "host", "user-agent"}
_RECEIVED = {"content-type", "retry-after", "retry-after-ms", "x-should-retry"}
_Count = Annotated[int, Field(ge=0, le=1 << 40)]
_UNKNOWN_FORMAT = (400, 422)  # answers to a dialect that an endpoint does not know
_FORMAT_WORDS = ("format", "schema", "json", "tool")  # at least one is in such an answer, from the second one on
_HINTS = {
    **dict.fromkeys((401, 403), f"; check {KEY_VARIABLE}"),
    **dict.fromkeys(range(300, 400), "; redirects are not followed, so set base_url to the final address"),
}


class Reply(NamedTuple):
    """Answer of an endpoint, and the problem if it is none; both may repeat the key."""

    answer: Answer
    problem: str = ""
    dialect: int = 0  # place in `dialects` of the one that the endpoint takes


class _Function(BaseModel):
    arguments: Any = None


class _ToolCall(BaseModel):
    function: _Function | None = None


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None

    @property
    def text(self) -> str:
        """Arguments of its first tool call, else its content."""
        function = self.tool_calls[0].function if self.tool_calls else None
        return function.arguments if function and isinstance(function.arguments, str) else self.content or ""


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class _BodyTooLargeError(openai.OpenAIError):
    """Error of a body without end; the package neither retries nor wraps its own errors."""


class _Transport(httpx2.AsyncHTTPTransport):
    """Transport without headers or proxies of the environment that remembers the last failure."""

    def __init__(self, key: str) -> None:
        super().__init__(trust_env=False)
        self._key, self.failure = key, ""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and read its response, up to `MAX_BYTES`."""
        headers = {name: value for name, value in request.headers.items() if name in _SENT}
        headers |= {"accept-encoding": "identity", "authorization": self._key}
        sent = httpx2.Request(
            request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
        )
        try:
            response = await super().handle_async_request(sent)
            content = await _read_bounded(response)
        except httpx2.TransportError as error:
            self.failure = f"the connection failed: {str(error) or type(error).__name__}"
            raise
        if response.status_code >= 400:
            self.failure = f"the endpoint answered {response.status_code}"
        received = {name: value for name, value in response.headers.items() if name in _RECEIVED}
        return httpx2.Response(response.status_code, headers=received, content=content)


async def _read_bounded(response: httpx2.Response) -> bytes:
    content = bytearray()
    try:
        async for part in response.aiter_raw():
            content += part
            if len(content) > MAX_BYTES:
                raise _BodyTooLargeError(f"the endpoint sent more than {MAX_BYTES >> 20} MiB")
    finally:
        await response.aclose()
    return bytes(content)


async def complete(endpoint: Endpoint, key: str, request: Request, max_seconds: float, dialect: int = 0) -> Reply:
    """Ask an endpoint, first in a dialect that it is known to take; every failure is a problem of the reply."""
    transport = _Transport(f"Bearer {key}")
    try:
        content, dialect = await asyncio.wait_for(_send(endpoint, transport, request, dialect), max_seconds)
        return _read(content)._replace(dialect=dialect)
    except TimeoutError:
        reason = f" ({transport.failure})" if transport.failure else ""
        problem = f"no complete answer came within {max_seconds:g} seconds{reason}"
    except openai.APIStatusError as error:
        detail = error.message.removeprefix("Error code: ")
        problem = f"the endpoint answered {detail}{_HINTS.get(error.status_code, '')}"
    except openai.APIConnectionError:
        problem = transport.failure
    except openai.OpenAIError as error:
        problem = str(error)
    return Reply(Answer(text=""), problem, dialect)


def dialects(request: Request) -> list[dict[str, Any]]:
    """Ways to ask for a document, as fields of a request: by schema, as an object, as a tool's arguments, in words."""
    name, schema = request.schema_name, request.json_schema
    text = f"{request.system}\nAnswer with one JSON object of this JSON Schema: {json.dumps(schema)}"
    function = {"name": name, "description": "Give the answer.", "parameters": schema}
    by_schema = {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}
    return [
        {"system": request.system, "response_format": by_schema},
        {"system": text, "response_format": {"type": "json_object"}},
        {
            "system": request.system,
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": name}},
        },
        {"system": text},
    ]


async def _send(endpoint: Endpoint, transport: _Transport, request: Request, first: int) -> tuple[bytes, int]:
    """Send a request in the first dialect that the endpoint takes; return its response, and which that is."""
    async with httpx2.AsyncClient(transport=transport, trust_env=False, follow_redirects=False) as http_client:
        client = openai.AsyncOpenAI(
            api_key="sent by the transport",
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            base_url=endpoint.base_url,
            timeout=None,
            max_retries=MAX_RETRIES,
            http_client=http_client,
        )

        async def send(system: str, **fields: Any) -> bytes:
            messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": _user_content(request)}]
            response = await client.chat.completions.with_raw_response.create(
                model=request.model, messages=messages, **fields
            )
            return response.content

        *others, last = list(enumerate(dialects(request)))[first:]
        for dialect, fields in others:
            try:
                return await send(**fields), dialect
            except openai.APIStatusError as error:
                is_of_format = dialect == first or any(word in error.message for word in _FORMAT_WORDS)
                if error.status_code not in _UNKNOWN_FORMAT or not is_of_format:
                    raise
        return await send(**last[1]), last[0]


def _user_content(request: Request) -> str | list[dict[str, Any]]:
    if not request.image_png:
        return request.user
    image = {"url": f"data:image/png;base64,{request.image_png}"}
    return [{"type": "text", "text": request.user}, {"type": "image_url", "image_url": image}]


def _read(content: bytes) -> Reply:
    """Read a chat completion."""
    try:
        completion = _Completion.model_validate_json(content)
    except ValidationError:
        return Reply(Answer(text=""), "the endpoint's response is no chat completion; check base_url")
    choice, usage = completion.choices[0], completion.usage or _Usage()
    answer = Answer(
        text=choice.message.text,
        n_input_tokens=usage.prompt_tokens or 0,
        n_output_tokens=usage.completion_tokens or 0,
    )
    return Reply(answer, _problem(choice))


def _problem(choice: _Choice) -> str:
    """Why a choice holds no complete answer; empty if it does."""
    match choice:
        case _Choice(message=_Message(refusal=str(refusal))) if refusal:
            return f"the model refused: {refusal}"
        case _Choice(finish_reason="length"):
            return "the answer was cut off at the model's limit of tokens"
        case _Choice(finish_reason="content_filter"):
            return "the endpoint's content filter withheld the answer"
        case _Choice(message=message) if message.text.strip():
            return ""
        case _:
            return "the answer is empty"
