"""Client that turns requests into validated documents; a failure is the problem of its call."""

import asyncio
import json
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Generic, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.components.secrets import hide_secrets
from nvtrader_pipelines.llm.calls import Answer, AnswerCache, Call, Request
from nvtrader_pipelines.llm.endpoint import Endpoint

MAX_PROBLEM_LENGTH = 300  # characters
NO_KEY = "no-key"  # sent to endpoints that need none
THOUGHTS = ("</think>", "</thinking>", "</reasoning>")  # ends of a model's reasoning
MAX_STARTS = 50  # places where a document in a text may begin
Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True)
class Asked(Generic[Document]):
    """Document of an answer, or None if the call has a problem."""

    document: Document | None
    call: Call


class LlmClient:
    """Client of an endpoint that asks each request once; complete answers are cached."""

    def __init__(self, endpoint: Endpoint, key: SecretStr | None, cache: AnswerCache) -> None:
        self.endpoint, self._cache = endpoint, cache
        self._secret, self._dialect = key, 0

    def ask(self, request: Request, document_type: type[Document], max_seconds: float | None = None) -> Asked[Document]:
        """Ask for a document, within `max_seconds` or as long as the endpoint's settings allow."""
        digest, document, problem, seconds = request.digest, None, "", 0.0
        cached = self._cache.read(digest)
        answer = cached
        if answer is None:
            answer, problem, seconds = self._complete(request, max_seconds or self.endpoint.max_seconds)
            if not problem:
                with suppress(OSError):  # the answer counts without its file
                    self._cache.write(digest, answer)
        if not problem:
            document, problem = _parse(answer.text, document_type, request.schema_name)
        call = Call(
            purpose=request.purpose,
            prompt=request.prompt,
            model=request.model,
            digest=digest,
            n_input_tokens=answer.n_input_tokens,
            n_output_tokens=answer.n_output_tokens,
            seconds=seconds,
            is_cached=cached is not None,
            problem=problem,
        )
        return Asked(document, call)

    def _complete(self, request: Request, max_seconds: float) -> tuple[Answer, str, float]:
        """Answer of the endpoint and its problem, both without the key, and the seconds, without those of imports."""
        try:
            from nvtrader_pipelines.llm.chat import Reply, complete
        except ModuleNotFoundError as error:
            if error.name not in ("openai", "httpx2"):
                raise
            problem = "a language model needs the package openai: pip install 'nvtrader-pipelines[llm]'"
            return Answer(text=""), problem, 0.0

        started, future = time.monotonic(), Future[Reply]()

        async def run() -> None:
            try:
                future.set_result(
                    await complete(self.endpoint, self._key or NO_KEY, request, max_seconds, self._dialect)
                )
            except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
                future.set_exception(error)

        # A notebook's thread has a loop already, and a look-up of a host can outlast its loop.
        Thread(target=lambda: asyncio.run(run()), daemon=True).start()
        answer, problem, self._dialect = future.result()
        seconds = time.monotonic() - started
        return answer.model_copy(update={"text": self._clean(answer.text)}), _shorten(self._hide_key(problem)), seconds

    def _clean(self, content: str) -> str:
        """JSON of an answer in ASCII and without the key, or its text if it is not JSON."""
        text = _document_text(content)
        try:
            text = json.dumps(json.loads(text))  # without escapes that hide the key
        except (ValueError, RecursionError):
            text = text.encode(errors="replace").decode()  # lone surrogates are no UTF-8
        return self._hide_key(text)

    @property
    def _key(self) -> str:
        return self._secret.get_secret_value() if self._secret else ""

    def _hide_key(self, text: str) -> str:
        return hide_secrets(text, [self._key])


def _document_text(content: str) -> str:
    """Longest JSON object in the text after the model's reasoning, such as one in a Markdown fence or among words."""
    text = content.strip()
    if text.startswith(("{", "[")) and _object_at(text, 0) == text:
        return text
    for end in THOUGHTS:
        text = text.rpartition(end)[2].strip()
    starts = [place for place, letter in enumerate(text) if letter == "{"][:MAX_STARTS]
    return max((_object_at(text, start) for start in starts), key=len, default="") or text


def _object_at(text: str, start: int) -> str:
    """JSON document that begins at a place of a text; empty if there is none."""
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return ""
    return text[start:end]


def _shorten(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in text.encode(errors="replace").decode())
    line = " ".join(plain.split())
    return line if len(line) <= MAX_PROBLEM_LENGTH else f"{line[: MAX_PROBLEM_LENGTH - 1]}…"


def _parse(text: str, document_type: type[Document], name: str) -> tuple[Document | None, str]:
    """Document in a text, or None and the problem."""
    try:
        return document_type.model_validate_json(text), ""
    except ValidationError as error:
        is_json = error.errors(include_url=False)[0]["type"] != "json_invalid"
        reason = f"no valid {name}: {explain(error, document_type)}" if is_json else "not valid JSON"
        return None, _shorten(f"the answer is {reason}")
