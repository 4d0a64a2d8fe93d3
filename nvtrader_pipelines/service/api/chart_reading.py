"""Reading of a chart in a few sentences, by a vision model or computed from its data."""

import base64
import binascii
import logging
import struct
import time
from io import BytesIO
from threading import Thread
from typing import Annotated, Literal

from PIL import Image
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from nvtrader_pipelines.llm.calls import Call
from nvtrader_pipelines.research.session_tables import store_call
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.service.api.answers import Body
from nvtrader_pipelines.service.api.context import Shared, router
from nvtrader_pipelines.service.readings import read_chart
from nvtrader_pipelines.service.readings.model_sentences import ask_for_sentences
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.llm_files import open_client
from nvtrader_pipelines.storage.store import Store

routes = router("nemorl")
LOG = logging.getLogger(__name__)
BUILT_IN = "built-in"  # signature of a computed reading
MAX_IMAGE = 4 << 20  # bytes
MAX_SIDE = 4096  # pixels
PNG = b"\x89PNG\r\n\x1a\n"
SIDES = struct.Struct(">16x2I")  # width and height, in the header of a PNG
MUST = f"must be a PNG in base 64 of at most {MAX_IMAGE >> 20} MB and {MAX_SIDE} x {MAX_SIDE} pixels"
ChartKind = Literal["training_curve", "autoresearch", "ratio_curve"]


def _require_png(text: str) -> str:
    """Refuse an image, also in a data URL, that is no PNG or too large, without its pixels; return its base 64."""
    encoded = text.rpartition(",")[2] if text.startswith("data:") else text
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{MUST}, but is not base 64; encode the bytes of the file") from error
    if len(content) > MAX_IMAGE:
        raise ValueError(f"{MUST}, but has {len(content):,} bytes; draw the chart smaller")
    if not content.startswith(PNG) or len(content) < SIDES.size:
        raise ValueError(f"{MUST}, but is another file; export the chart as PNG")
    width, height = SIDES.unpack_from(content)
    if max(width, height) > MAX_SIDE:  # before Pillow, which warns of decompression bombs
        raise ValueError(f"{MUST}, but has {width:,} x {height:,} pixels; draw the chart smaller")
    try:
        with Image.open(BytesIO(content), formats=["PNG"]) as image:
            image.verify()
    except (OSError, SyntaxError, ValueError, IndexError, struct.error) as error:
        raise ValueError(f"{MUST}, but is a damaged PNG ({error}); export the chart again") from error
    return encoded


class ChartRequest(Body):
    """Chart to read."""

    kind: ChartKind
    image_b64: Annotated[str, AfterValidator(lambda text: text and _require_png(text))] = ""  # for a model
    context: dict[str, JsonValue] | list[JsonValue] = Field(default_factory=dict)  # facts, and rows as drawn

    @property
    def facts_and_rows(self) -> dict[str, JsonValue]:
        """Context with its rows in a list."""
        return self.context if isinstance(self.context, dict) else {"rows": self.context}


class ChartReading(BaseModel):
    """Reading of a chart."""

    model_config = ConfigDict(frozen=True)
    bullets: Annotated[tuple[str, ...], Field(min_length=4, max_length=6)]
    model: str  # that read it
    seconds: float  # elapsed
    note: str = ""  # why the vision model did not read it; empty if it did, or was not to


@routes.post("/api/continuous-rl/interpret-chart")
def interpret_chart(shared: Shared, body: ChartRequest) -> ChartReading:
    """Read a chart in four to six bullets, by the vision model if one is configured, else from its data."""
    reading, note = _read_by_model(body, shared.store) if body.image_b64 else (None, "")
    if reading:
        return reading
    began = time.perf_counter()
    bullets = tuple(read_chart(body.kind, body.facts_and_rows))
    return ChartReading(bullets=bullets, model=BUILT_IN, seconds=time.perf_counter() - began, note=note)


def _read_by_model(request: ChartRequest, store: Store) -> tuple[ChartReading | None, str]:
    """Reading of the vision model, or None and why; the reason is empty if no endpoint is configured."""
    try:
        client = open_client(store.home)
    except StorageError as error:
        return None, f"no model was asked: {error}"
    if client is None:
        return None, ""
    asked = ask_for_sentences(client, request.kind, request.facts_and_rows, request.image_b64)
    call, answer = asked.call, asked.document
    _record(store, call)
    if answer is None:
        return None, f"{call.model} gave no reading: {call.problem}"
    return ChartReading(bullets=answer.bullets, model=call.model, seconds=call.seconds), ""


def _record(store: Store, call: Call) -> None:
    """Write row and span of a call; the reading needs neither."""
    called_at = now()

    def trace() -> None:
        from nvtrader_pipelines.orchestration.search_spans import trace_call  # imports OpenTelemetry: 0.3 s

        trace_call(store.home, call, called_at, LOG.warning)

    Thread(target=trace).start()  # a collector that is away takes seconds
    try:
        store_call(store, call, called_at)
    except (StorageError, OSError) as error:
        LOG.warning("a call of a language model has no row: %s", error)
