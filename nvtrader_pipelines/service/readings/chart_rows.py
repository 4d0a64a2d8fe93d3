"""Rows and facts that a page posts of a chart: finite figures, short labels, and how readings write them."""

from collections.abc import Sized
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, Strict

from nvtrader_pipelines.research.verdict import Standing

MAX_LABEL = 40  # characters
LISTS = ("points", "curve", "trials", "runs", "rows")  # fields of a context that hold the rows
ROWS = Field(validation_alias=AliasChoices(*LISTS))


def short_label(text: str) -> str:
    """Printable characters of a text, at most 40."""
    return "".join(letter for letter in text if letter.isprintable()).strip()[:MAX_LABEL]


Label = Annotated[str, AfterValidator(short_label)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Figure = Annotated[  # with 12 decimals, so that no ratio of two overflows
    float, Strict(), Field(ge=-1e9, le=1e9), AfterValidator(lambda value: round(value, 12))
]


class ChartRow(BaseModel):
    """Row, or facts, of a chart; other fields are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class ScoredRow(ChartRow):
    """Row with a Sharpe ratio."""

    sharpe: Figure
    sharpe_low: Figure | None = None  # of the 95 % interval
    sharpe_high: Figure | None = None
    max_drawdown: Figure | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Bounds of the interval."""
        return None if self.sharpe_low is None or self.sharpe_high is None else (self.sharpe_low, self.sharpe_high)

    @property
    def reach(self) -> float | None:
        """Half the width of the interval."""
        return (self.bounds[1] - self.bounds[0]) / 2.0 if self.bounds else None


class UnscoredRow(ChartRow):
    """Row without a Sharpe ratio."""

    sharpe: None
    standing: Standing | Literal["infeasible", "failed"] | None = None  # of a trial


def require_two(rows: Sized, name: str) -> None:
    """Raise ValueError unless there are two rows to compare."""
    if len(rows) < 2:
        raise ValueError(
            f"a chart must have at least 2 rows with a number {name!r} in one of the lists {', '.join(LISTS)}, but has "
            f"{len(rows)} that differ; send the rows that the chart draws"
        )


def format_bounds(low: float, high: float) -> str:
    """Format a 95 % interval of Sharpe ratios, with its side of zero."""
    side = "includes zero" if low <= 0.0 <= high else "above zero" if low > 0.0 else "below zero"
    return f"95 % interval {low:.2f} to {high:.2f}, {side}"


def format_times(ratio: float) -> str:
    """Format how many times as long a sample must be."""
    return f"{ratio:.1f} times as long" if ratio <= 10.0 else "more than 10 times as long"
