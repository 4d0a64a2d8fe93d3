"""Scorecards: the results of one entrant in one contest."""

import hashlib
import json
import operator
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from nvtrader_pipelines.components.component import canonical_json, content_hash
from nvtrader_pipelines.components.text import ID_LENGTH
from nvtrader_pipelines.envs.fill_timing import FillTiming
from nvtrader_pipelines.experiments.entrant_specs import EntrantKind
from nvtrader_pipelines.market.calendar import NEW_YORK, CalendarName, TradingCalendar
from nvtrader_pipelines.portfolio.costs import CostModel

FORMAT: Final = 1


class ScorecardPart(BaseModel):
    """Frozen part of a scorecard."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Contest(ScorecardPart):
    """Terms shared by entrants that are ranked together; every account starts in cash."""

    name: str = ""  # of the window; contests that differ only in name are the same
    source: str
    calendar: CalendarName = Field(NEW_YORK.name, exclude_if=lambda name: name == NEW_YORK.name)  # of the source
    panel_digest: str  # panel with all names of the source
    first_session: date
    last_session: date
    n_sessions: int
    fill: FillTiming  # as the market supports
    costs: tuple[CostModel, ...]
    gross_limit: float  # maximum sum of absolute target weights of names

    @property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the hash of its terms."""
        return content_hash(self.without_name)[:ID_LENGTH]

    @property
    def without_name(self) -> "Contest":
        """Copy without the name."""
        return self.model_copy(update={"name": ""})

    @property
    def window(self) -> tuple[date, date]:
        """First and last session scored."""
        return self.first_session, self.last_session

    @property
    def periods_per_year(self) -> int:
        """Sessions a year."""
        return TradingCalendar(self.calendar).periods_per_year


class TrainingSpan(ScorecardPart):
    """Training sessions of a policy, and the first session it decides."""

    first: date
    last: date
    used_from: date | None = None  # null: the first session scored


class DataProvenance(ScorecardPart):
    """Data that scored the entrant, and training spans of its policies."""

    panel_digest: str | None = None  # panel of its names; null where it was refused before a market was read
    snapshot_ids: dict[str, int] = {}
    n_symbols: int | None = None
    trained: tuple[TrainingSpan, ...] = ()


class Metric(ScorecardPart):
    """Number with its 95 % interval, where it has one; null where the returns do not define it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


class Inference(ScorecardPart):
    """Inference on the annualized Sharpe ratio: probabilistic, active and deflated."""

    probabilistic_sharpe: float | None = None  # probability of a true Sharpe ratio above 0
    best_baseline: str | None = None
    information_ratio: Metric = Metric()  # information ratio against the best baseline of the contest
    deflated_information_ratio: float | None = None  # probability of exceeding the luck of the best trial
    n_trials: int | None = None  # runs on the market and external attempts, this one included
    note: str = ""  # reason for null values


class TimingEffect(ScorecardPart):
    """Effect of the pipeline's timing stage, against a twin without it on the same sessions.

    Sharpe ratios are annualized, of returns net of costs; turnover is one-way.
    """

    timing: str  # kind of the stage
    n_decisions: int
    n_acted: int  # decisions whose weights the timing changed
    sharpe: float
    sharpe_without: float
    sharpe_difference: Metric  # with less without
    max_drawdown: float
    max_drawdown_without: float
    turnover_per_year: float
    turnover_per_year_without: float
    finding: str  # one sentence


class StressResult(ScorecardPart):
    """Result of the entrant in one stressed market."""

    scenario: str
    total_return: float | None = None
    max_drawdown: float | None = None
    difference: float | None = None  # total return less that of the unstressed market
    over_equal_weight: float | None = None  # total return less that of 1/N in the same market
    note: str = ""


class Measurements(ScorecardPart):
    """Measurements that differ from scoring to scoring of the same entrant."""

    judged_at: AwareDatetime
    judging_seconds: float | None = None  # of the backtest
    latency_seconds: float | None = None  # median, from a close to the weights
    latency_99: float | None = None  # 99th percentile
    peak_memory_bytes: int | None = None  # resident set of the scoring process


EXTERNAL_KINDS = frozenset({"weights", "sb3"})  # kinds that no ledger counts and that could be tuned on the scoreboard


def attempt_id(configuration: Mapping[str, Any]) -> str:
    """Hash of the entrant's file and settings; name and description do not count."""
    content = {name: value for name, value in configuration.items() if name not in {"description", "file"}}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Scorecard(ScorecardPart):
    """Results of one entrant in one contest, or the reason of its refusal."""

    format: Literal[1] = FORMAT
    entrant: str
    kind: EntrantKind | None  # null where its file is unreadable
    source: str | None
    contest: Contest | None  # null where it was refused
    rebal_freq: int | None  # sessions between decisions
    run_id: str | None = None
    configuration: JsonValue
    data: DataProvenance
    training_seconds: float | None = None  # total over folds and seeds, from the ledger
    metrics: dict[str, Metric] = {}
    openings: tuple[float, ...] = ()  # net Sharpe ratio by opening, see `evaluation.timing_luck`; the last is its own
    inference: Inference | None = None
    stress: tuple[StressResult, ...] = ()
    timing: TimingEffect | None = Field(default=None, exclude_if=operator.not_)  # null where the timing is constant
    warnings: tuple[str, ...] = ()
    choices: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)  # who trades in each fold by validation, why
    refusal: str = ""  # reason for not scoring it
    code_version: str
    measured: Measurements

    @property
    def digest(self) -> str:
        """Hash of the card without times and measurements: equal results give equal digests."""
        data = self.data.model_copy(update={"snapshot_ids": {}})  # different snapshots may hold the same rows
        same = Measurements(judged_at=datetime.fromisoformat("1980-01-01T00:00:00+00:00"))
        contest = self.contest and self.contest.without_name
        without = {"measured": same, "training_seconds": None, "data": data, "contest": contest, "code_version": ""}
        return content_hash(self.model_copy(update=without))

    @property
    def as_json(self) -> str:
        """Canonical JSON of the card."""
        return canonical_json(self)

    def metric(self, name: str) -> Metric:
        """Return a metric by name, without a value where it is missing."""
        return self.metrics.get(name, Metric())

    def row(self) -> dict[str, Any]:
        """Row of `evaluation.scorecards`."""
        inference, contest = self.inference or Inference(), self.contest
        worst = min(
            (result for result in self.stress if result.total_return is not None),
            key=lambda result: result.total_return or 0.0,
            default=None,
        )
        moment = f"{self.entrant}|{self.digest}|{self.measured.judged_at.isoformat()}"
        return {
            "judgement": hashlib.sha256(moment.encode()).hexdigest()[:ID_LENGTH],
            "contest": contest.digest if contest else None,
            "contest_name": contest.name if contest else None,
            "entrant": self.entrant,
            "kind": self.kind,
            "source": self.source,
            "calendar": contest.calendar if contest else None,
            "panel_digest": self.data.panel_digest,
            "first_session": contest.first_session if contest else None,
            "last_session": contest.last_session if contest else None,
            "n_sessions": contest.n_sessions if contest else None,
            "rebal_freq": self.rebal_freq,
            "train_first": min((span.first for span in self.data.trained), default=None),
            "train_last": max((span.last for span in self.data.trained), default=None),
            "run_id": self.run_id,
            **_interval_columns("sharpe", self.metric("sharpe")),
            "openings": list(self.openings),
            **{name: self.metric(name).value for name in METRICS_WITHOUT_INTERVAL},
            "best_baseline": inference.best_baseline,
            **_interval_columns("sharpe_difference", self.metric("sharpe_difference")),
            **_interval_columns("information_ratio", inference.information_ratio),
            "probabilistic_sharpe": inference.probabilistic_sharpe,
            "deflated_information_ratio": inference.deflated_information_ratio,
            "n_trials": inference.n_trials,
            "worst_scenario": worst.scenario if worst else None,
            "worst_scenario_return": worst.total_return if worst else None,
            "training_seconds": self.training_seconds,
            "judging_seconds": self.measured.judging_seconds,
            "latency_seconds": self.measured.latency_seconds,
            "peak_memory_bytes": self.measured.peak_memory_bytes,
            "warnings": list(self.warnings),
            "note": self.refusal or "; ".join(filter(None, (inference.note, *self.choices))) or None,
            "digest": self.digest,
            "code_version": self.code_version,
            "judged_at": self.measured.judged_at,
            "document": self.as_json,
        }


METRICS_WITHOUT_INTERVAL = (
    "cagr",
    "volatility",
    "sortino",
    "calmar",
    "max_drawdown",
    "turnover_per_year",
    "cost_per_year",
)


def _interval_columns(name: str, metric: Metric) -> dict[str, float | None]:
    return {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
