"""Language model of a home: `data/llm.yaml`, variables of the environment and cached answers."""

import os
from pathlib import Path

from pydantic import SecretStr, ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.llm.calls import Answer
from nvtrader_pipelines.llm.client import LlmClient
from nvtrader_pipelines.llm.endpoint import KEY_VARIABLE, Endpoint
from nvtrader_pipelines.storage.documents import read_document, written_in
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import has_file, write_atomically
from nvtrader_pipelines.storage.home import Home

VARIABLES = {
    "base_url": "NVTRADER_LLM_BASE_URL",
    "model": "NVTRADER_LLM_MODEL",
    "vision_model": "NVTRADER_LLM_VISION_MODEL",
}


class AnswerFiles:
    """Answers of language models in a home, a JSON file by digest of the request."""

    def __init__(self, home: Home) -> None:
        self._folder = home.llm_answers

    def read(self, digest: str) -> Answer | None:
        """Read an answer; None if there is none, or its file cannot be read."""
        try:
            return Answer.model_validate_json(self._path(digest).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, digest: str, answer: Answer) -> None:
        """Write an answer."""
        write_atomically(self._path(digest), answer.model_dump_json().encode())

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def read_endpoint(home: Home) -> Endpoint | None:
    """Read the endpoint; variables of the environment override the file, None if neither names one.

    Raises:
        StorageError: if the endpoint is not valid.
    """
    path = home.llm_file
    named = {field: os.environ.get(variable, "").strip() for field, variable in VARIABLES.items()}
    overrides = {field: value for field, value in named.items() if value}
    is_written = has_file(path)
    if not is_written and "base_url" not in overrides:
        return None
    document = read_document(path) if is_written else {}
    try:
        return Endpoint.model_validate({**document, **overrides})
    except ValidationError as error:
        sources = [path.name] * is_written + [f"${VARIABLES[field]}" for field in overrides]
        problem = explain(error, Endpoint, written_in(document))
        raise StorageError(
            f"{' with '.join(sources)} is not a valid endpoint: {problem}"
        ) from None  # it has the values


def read_key() -> SecretStr | None:
    """Read the key of the environment; None if it is not set.

    Raises:
        StorageError: if it cannot be a key, without the value.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise StorageError(
            f"${KEY_VARIABLE} must hold printable ASCII characters, but holds others; copy the key again"
        )
    return SecretStr(key) if key else None


def open_client(home: Home) -> LlmClient | None:
    """Create the client of the home's endpoint; None if none is configured.

    Raises:
        StorageError: if the endpoint or the key is not valid.
    """
    endpoint = read_endpoint(home)
    return LlmClient(endpoint, read_key(), AnswerFiles(home)) if endpoint else None
