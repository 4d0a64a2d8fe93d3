"""Reading of a chart in a few sentences, computed from its data."""

import base64
import binascii
import time
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean, median, pstdev
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from nvtrader_pipelines.promotion.findings import MIN_DEFLATED
from nvtrader_pipelines.service.api.body import Body

MODEL = "built-in"  # until a vision model is configured
MAX_VALUE = 1e150  # so that no square overflows
PNG = b"\x89PNG\r\n\x1a\n"
ChartKind = Literal["training_curve", "autoresearch", "ratio_curve"]
SERIES = ("points", "curve", "trials", "runs", "rows")  # fields of a context that hold the data
VALUES = {"training_curve": "mean_reward", "autoresearch": "sharpe", "ratio_curve": "sharpe"}
NAMES = {"training_curve": "mean reward per step", "autoresearch": "Sharpe ratio", "ratio_curve": "Sharpe ratio"}


def _require_png(text: str) -> str:
    """Refuse what is no PNG in base 64; a data URL is one, too."""
    try:
        content = base64.b64decode(text.rpartition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("must be a PNG in base 64") from error
    if content and not content.startswith(PNG):
        raise ValueError("must be a PNG in base 64, but is another file")
    return text


class ChartRequest(Body):
    """Chart to read."""

    kind: ChartKind
    image_b64: Annotated[str, AfterValidator(_require_png)] = ""  # PNG; the built-in reading does not look at it
    context: dict[str, JsonValue] | list[JsonValue] = Field(
        default_factory=dict
    )  # rows of the chart, as our routes send


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
    rows, name = _rows(request.context), VALUES[request.kind]
    points = [(row, float(row[name])) for row in rows if _is_number(row.get(name))]
    if len(points) < 2:
        raise ValueError(
            f"the context of a {request.kind} must hold at least 2 rows with a number {name!r} in one of its lists "
            f"{', '.join(SERIES)}, but holds {len(points)}; send the rows that the chart draws"
        )
    bullets = _bullets(request.kind, points)
    return ChartReading(bullets=tuple(bullets), model=MODEL, seconds=time.perf_counter() - began)


def _rows(context: dict[str, JsonValue] | list[JsonValue]) -> list[dict[str, Any]]:
    if isinstance(context, dict):
        context = next((value for key in SERIES if isinstance(value := context.get(key), list)), [])
    return [row for row in context if isinstance(row, dict)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_VALUE


def _bullets(kind: ChartKind, points: Sequence[tuple[dict[str, Any], float]]) -> list[str]:
    """Range, trend, best, spread and, by kind, one thing to mind."""
    values, name = [value for _, value in points], NAMES[kind]
    third = max(1, len(values) // 3)
    early, late = fmean(values[:third]), fmean(values[-third:])
    spread = pstdev(values)
    best = max(range(len(values)), key=values.__getitem__)
    trend = "rises" if late - early > spread / 2 else "falls" if early - late > spread / 2 else "stays level"
    bullets = [
        f"{len(values)} points; the {name} goes from {values[0]:.4g} to {values[-1]:.4g}, median {median(values):.4g}.",
        f"It {trend}: mean {early:.4g} over the first third, {late:.4g} over the last, spread {spread:.4g}.",
        f"The best is {values[best]:.4g} at {_label(kind, points[best][0], best)}; the worst is {min(values):.4g}.",
    ]
    peaks = list(accumulate(values, max))
    records = 1 + sum(after > before for before, after in pairwise(peaks))
    bullets.append(f"{records} of {len(values)} points set a new best; the last did so at point {best + 1}.")
    bullets += _remarks(kind, points, values)
    return bullets


def _remarks(kind: ChartKind, points: Sequence[tuple[dict[str, Any], float]], values: Sequence[float]) -> list[str]:
    """What else to mind, by kind."""
    if kind == "training_curve":
        swing = sum(abs(after - before) for before, after in pairwise(values)) / (len(values) - 1)
        return [f"From point to point it moves by {swing:.4g} on average; a rise below that is noise."]
    if kind == "autoresearch":
        kept = sum(row.get("status") == "kept" or row.get("standing") == "kept" for row, _ in points)
        return [
            f"{kept} of {len(points)} rows were kept.",
            "The best of many trials is high by luck, too; the sealed window decides, not this chart.",
        ]
    drawdowns = [float(row["max_drawdown"]) for row, _ in points if _is_number(row.get("max_drawdown"))]
    deflated = [float(row["deflated_sharpe"]) for row, _ in points if _is_number(row.get("deflated_sharpe"))]
    remarks = []
    if drawdowns:
        remarks.append(f"The largest maximum drawdown is {max(drawdowns):.1%}, the median {median(drawdowns):.1%}.")
    if deflated:
        n_passed = sum(value >= MIN_DEFLATED for value in deflated)
        remarks.append(
            f"{n_passed} of {len(deflated)} keep a probability of {MIN_DEFLATED} once deflated for all trials."
        )
    return remarks


def _label(kind: ChartKind, row: dict[str, Any], position: int) -> str:
    names = {"training_curve": ("timesteps",), "autoresearch": ("trial",), "ratio_curve": ("experiment", "run_id")}
    label = next((f"{name} {row[name]}" for name in names[kind] if row.get(name) is not None), "")
    return label or f"point {position + 1}"
