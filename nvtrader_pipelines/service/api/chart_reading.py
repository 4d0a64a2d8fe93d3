"""Reading of a chart in a few sentences, computed from its data."""

import base64
import binascii
import struct
import time
from io import BytesIO
from typing import Annotated, Literal

from PIL import Image
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from nvtrader_pipelines.service.api.body import Body
from nvtrader_pipelines.service.readings import READINGS
from nvtrader_pipelines.service.readings.chart_rows import rows_of_context

MODEL = "built-in"  # until a vision model is configured
MAX_IMAGE = 4 << 20  # bytes
MAX_SIDE = 4096  # pixels
PNG = b"\x89PNG\r\n\x1a\n"
SIDES = struct.Struct(">16x2I")  # width and height, in the header of a PNG
MUST = f"must be a PNG in base 64 of at most {MAX_IMAGE >> 20} MB and {MAX_SIDE} x {MAX_SIDE} pixels"
ChartKind = Literal["training_curve", "autoresearch", "ratio_curve"]


def _require_png(text: str) -> str:
    """Refuse an image that is no PNG or too large; a data URL is one, too. No pixel is decompressed."""
    try:
        content = base64.b64decode(text.rpartition(",")[2] if text.startswith("data:") else text, validate=True)
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
    return text


class ChartRequest(Body):
    """Chart to read."""

    kind: ChartKind
    image_b64: Annotated[str, AfterValidator(lambda text: text and _require_png(text))] = ""  # the reading needs none
    context: dict[str, JsonValue] | list[JsonValue] = Field(
        default_factory=dict
    )  # rows of the chart, as our routes send, and facts of all of it


class ChartReading(BaseModel):
    """Reading of a chart."""

    model_config = ConfigDict(frozen=True)
    bullets: Annotated[tuple[str, ...], Field(min_length=4, max_length=6)]
    model: str  # that read it
    seconds: float  # elapsed


def read_chart(request: ChartRequest) -> ChartReading:
    """Read a chart from the data of its context.

    Raises:
        ValueError: if the context has no two numbers to compare.
    """
    began = time.perf_counter()
    facts = request.context if isinstance(request.context, dict) else {}
    bullets = READINGS[request.kind](rows_of_context(request.context), facts)
    return ChartReading(bullets=tuple(bullets), model=MODEL, seconds=time.perf_counter() - began)
