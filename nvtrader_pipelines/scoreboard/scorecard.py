"""A scorecard: all that one judgement found of one entrant, as a document for programs and as a page for people."""

import hashlib
import json
import operator
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from nvtrader_pipelines.components.component import canonical_json, content_hash
from nvtrader_pipelines.components.ids import ID_LENGTH
from nvtrader_pipelines.envs.dynamics import FillTiming
from nvtrader_pipelines.portfolio.costs import CostModel
from nvtrader_pipelines.scoreboard.entrants import EntrantKind

FORMAT: Final = 1
FRACTIONS = {  # metrics that a page shows in percent
    "total_return", "cagr", "volatility", "max_drawdown", "value_at_risk", "cvar", "hit_rate", "exposure",
    "cost_per_year",
}  # fmt: skip


class Document(BaseModel):
    """A frozen part of a scorecard."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Contest(Document):
    """What entrants ranked together have in common: market, sessions, fills, costs, leverage, and a start in cash."""

    source: str
    panel_digest: str  # of all names of the source
    first_session: date
    last_session: date
    n_sessions: int
    fill: FillTiming  # as the market supports it
    costs: tuple[CostModel, ...]
    gross_limit: float  # most that absolute wanted weights of names sum to

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of all of it."""
        return content_hash(self)[:ID_LENGTH]

    @property
    def window(self) -> tuple[date, date]:
        """First and last session judged."""
        return self.first_session, self.last_session


class TrainedOn(Document):
    """Sessions that trained a policy."""

    first: date
    last: date
    used_from: date | None  # first session it decides about; null: the first one judged


class Data(Document):
    """What the entrant was judged on, and trained on."""

    panel_digest: str | None  # of the names it may hold; null where it was refused before a market was read
    snapshot_ids: dict[str, int]
    n_symbols: int | None
    trained: tuple[TrainedOn, ...]


class Metric(Document):
    """A number, with the bounds of its 95 % interval where it has one; null where these returns do not have it."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Inference(Document):
    """How much of the Sharpe ratio may be luck; Sharpe ratios are annualised."""

    probabilistic_sharpe: float | None  # probability of a true Sharpe ratio above 0
    best_baseline: str | None
    active_sharpe: Metric  # information ratio: of the returns less those of the best baseline of the contest
    active_deflated_sharpe: float | None  # probability that it is more than the luck of the best of all trials
    n_trials: int | None  # ever run on the market or judged from outside on it, this one included
    note: str = ""  # why something is null


class TimingEffect(Document):
    """What the timing of the entrant's pipeline changed, against its twin without it on the same sessions.

    Sharpe ratios are annualised, of returns net of costs; turnover is one-way.
    """

    timing: str  # its kind
    n_decisions: int
    n_acted: int  # decisions whose weights it changed
    sharpe: float
    sharpe_without: float
    sharpe_difference: Metric  # with less without
    max_drawdown: float
    max_drawdown_without: float
    turnover_per_year: float
    turnover_per_year_without: float
    finding: str  # whether it helps, in a sentence


class StressResult(Document):
    """What the entrant did in one world."""

    scenario: str
    total_return: float | None = None
    max_drawdown: float | None = None
    difference: float | None = None  # of the total return to that of the calm world
    over_equal_weight: float | None = None  # of the total return to that of 1/N in the same world
    note: str = ""


class Measured(Document):
    """What is another in every judgement of the same."""

    judged_at: AwareDatetime
    judging_seconds: float | None  # to walk the window
    latency_seconds: float | None  # from a close to the weights, median
    latency_99: float | None  # 99 % of the decisions are faster
    peak_memory_bytes: int | None  # resident, of the judging process


OUTSIDE = frozenset({"weights", "sb3"})  # kinds that no ledger counts, and that may be tuned against the scoreboard


def attempt_of(configuration: Mapping[str, Any]) -> str:
    """SHA-256 of what was judged: the bytes of its file and its settings, whatever it is called and said of it."""
    content = {name: value for name, value in configuration.items() if name not in {"description", "file"}}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Scorecard(Document):
    """One judgement of one entrant."""

    format: Literal[1] = FORMAT
    entrant: str
    kind: EntrantKind | None  # null where its file cannot be read
    source: str | None
    contest: Contest | None  # null where it was refused
    rebal_freq: int | None  # sessions between its decisions
    run_id: str | None = None
    configuration: JsonValue
    data: Data
    training_seconds: float | None = None  # of all its trainings, of the ledger
    metrics: dict[str, Metric] = {}
    inference: Inference | None = None
    stress: tuple[StressResult, ...] = ()
    timing: TimingEffect | None = Field(default=None, exclude_if=operator.not_)  # null: it has none but a constant one
    warnings: tuple[str, ...] = ()
    refusal: str = ""  # why it was not judged
    code_version: str
    measured: Measured

    @property
    def digest(self) -> str:
        """SHA-256 of the content: the same found of the same is the same card, whatever it took and whoever asked."""
        data = self.data.model_copy(update={"snapshot_ids": {}})  # other snapshots may hold the same rows
        same = Measured(
            judged_at=datetime.fromisoformat("1980-01-01T00:00:00+00:00"),
            judging_seconds=None,
            latency_seconds=None,
            latency_99=None,
            peak_memory_bytes=None,
        )
        took = {"measured": same, "training_seconds": None}
        return content_hash(self.model_copy(update={**took, "data": data, "code_version": ""}))

    @property
    def as_json(self) -> str:
        """The document, sorted."""
        return canonical_json(self)

    def metric(self, name: str) -> Metric:
        """A metric by name; without a value where there is none."""
        return self.metrics.get(name, Metric(value=None))

    def row(self) -> dict[str, Any]:
        """Its row of `evaluation.scorecards`."""
        inference, contest, active = self.inference, self.contest, Metric(value=None)
        if inference is not None:
            active = inference.active_sharpe
        worst = min((each for each in self.stress if each.total_return is not None), key=_total_return, default=None)
        moment = f"{self.entrant}|{self.digest}|{self.measured.judged_at.isoformat()}"
        return {
            "judgement": hashlib.sha256(moment.encode()).hexdigest()[:ID_LENGTH],
            "contest": contest.digest if contest else None,
            "entrant": self.entrant,
            "kind": self.kind,
            "source": self.source,
            "panel_digest": self.data.panel_digest,
            "first_session": contest.first_session if contest else None,
            "last_session": contest.last_session if contest else None,
            "n_sessions": contest.n_sessions if contest else None,
            "rebal_freq": self.rebal_freq,
            "train_first": min((each.first for each in self.data.trained), default=None),
            "train_last": max((each.last for each in self.data.trained), default=None),
            "run_id": self.run_id,
            **_bounded("sharpe", "sharpe", self.metric("sharpe")),
            **{name: self.metric(name).value for name in PLAIN},
            "best_baseline": inference.best_baseline if inference else None,
            **_bounded("sharpe_difference", "difference", self.metric("sharpe_difference")),
            **_bounded("active_sharpe", "active", active),
            "probabilistic_sharpe": inference.probabilistic_sharpe if inference else None,
            "active_deflated_sharpe": inference.active_deflated_sharpe if inference else None,
            "n_trials": inference.n_trials if inference else None,
            "worst_scenario": worst.scenario if worst else None,
            "worst_scenario_return": worst.total_return if worst else None,
            "training_seconds": self.training_seconds,
            "judging_seconds": self.measured.judging_seconds,
            "latency_seconds": self.measured.latency_seconds,
            "peak_memory_bytes": self.measured.peak_memory_bytes,
            "warnings": list(self.warnings),
            "note": self.refusal or (inference.note if inference else "") or None,
            "digest": self.digest,
            "code_version": self.code_version,
            "judged_at": self.measured.judged_at,
            "document": self.as_json,
        }


PLAIN = ("cagr", "volatility", "max_drawdown", "turnover_per_year", "cost_per_year")


def _total_return(result: StressResult) -> float:
    return result.total_return or 0.0


def _bounded(name: str, bounds: str, metric: Metric) -> dict[str, float | None]:
    return {name: metric.value, f"{bounds}_low": metric.low, f"{bounds}_high": metric.high}


def markdown(card: Scorecard) -> str:
    """The card as a page."""
    parts = [f"# Scorecard: {card.entrant}", _heading(card)]
    if card.refusal:
        return "\n\n".join([*parts, f"**Not judged**: {card.refusal}", *_configuration(card)]) + "\n"
    parts += [_section("Result, net of costs", _rows_of(card.metrics)), *_luck(card), *_timing(card)]
    parts += [*_stress(card), _data(card)]
    warned = [f"- {warning}" for warning in card.warnings] or ["none"]
    return "\n\n".join([*parts, "## Warnings\n\n" + "\n".join(warned), _measured(card), *_configuration(card)]) + "\n"


def _heading(card: Scorecard) -> str:
    contest = card.contest
    if contest is None:
        return f"{card.kind or 'entrant'}, {card.measured.judged_at:%Y-%m-%d %H:%M} UTC"
    costs = " + ".join(_cost(cost) for cost in contest.costs) or "none"
    return (
        f"{card.kind}, judged {card.measured.judged_at:%Y-%m-%d %H:%M} UTC on `{contest.source}`, "
        f"{contest.first_session} to {contest.last_session} ({contest.n_sessions} sessions). Contest "
        f"`{contest.digest}`: orders fill at the {contest.fill}, costs {costs}, gross at most {contest.gross_limit:g}, "
        f"start in cash; it decides every {_sessions(card.rebal_freq)}."
    )


def _sessions(count: int | None) -> str:
    return "session" if count == 1 else f"{count} sessions"


def _cost(cost: CostModel) -> str:
    settings = cost.model_dump(exclude={"kind"})
    return f"{cost.kind} ({', '.join(f'{name} {value:g}' for name, value in settings.items())})"


def _section(title: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join([f"## {title}", "", "| | |", "|---|---:|", *lines])


def _rows_of(metrics: Mapping[str, Metric]) -> dict[str, str]:
    return {name.replace("_", " "): _shown(metric, percent=name in FRACTIONS) for name, metric in metrics.items()}


def _shown(metric: Metric, *, percent: bool = False) -> str:
    if metric.value is None:
        return "-"
    if metric.low is not None and metric.high is not None:  # of a Sharpe ratio: the draws support two digits
        return f"{metric.value:.2f} [{metric.low:.2f}, {metric.high:.2f}]"
    form = ".2%" if percent else ".4g"
    return f"{metric.value:{form}}"


def _luck(card: Scorecard) -> list[str]:
    found = card.inference
    if found is None:
        return []
    rows = {
        "probabilistic Sharpe ratio (above 0)": _shown(Metric(value=found.probabilistic_sharpe)),
        "best baseline, known only afterwards": found.best_baseline or "-",
        "information ratio against it": _shown(found.active_sharpe),
        "deflated information ratio": _shown(Metric(value=found.active_deflated_sharpe)),
        "trials ever run or judged on these data": "-" if found.n_trials is None else str(found.n_trials),
    }
    return [_section("How much may be luck", rows), *([found.note] if found.note else [])]


def _timing(card: Scorecard) -> list[str]:
    found = card.timing
    if found is None:
        return []
    pairs = {
        "Sharpe ratio": (found.sharpe, found.sharpe_without, ".4g"),
        "worst drawdown": (found.max_drawdown, found.max_drawdown_without, ".2%"),
        "turnover per year": (found.turnover_per_year, found.turnover_per_year_without, ".4g"),
    }
    lines = [f"| {name} | {timed:{form}} | {untimed:{form}} |" for name, (timed, untimed, form) in pairs.items()]
    rows = ["## Timing", "", f"| | with {found.timing} | without |", "|---|---:|---:|", *lines]
    return [
        "\n".join(rows),
        f"Difference of the Sharpe ratios {_shown(found.sharpe_difference)}; it acted in {found.n_acted} of "
        f"{found.n_decisions} decisions. {found.finding}",
    ]


def _stress(card: Scorecard) -> list[str]:
    if not card.stress:
        return []
    lines = [
        f"| {each.scenario} | {_shown(Metric(value=each.total_return), percent=True)} "
        f"| {_shown(Metric(value=each.max_drawdown), percent=True)} "
        f"| {_shown(Metric(value=each.difference), percent=True)} "
        f"| {_shown(Metric(value=each.over_equal_weight), percent=True)} | {each.note} |"
        for each in card.stress
    ]
    columns = ("world", "total return", "worst drawdown", "less calm", "less 1/N", "")
    head = ["## Stress", "", f"| {' | '.join(columns)} |", "|---|---:|---:|---:|---:|---|"]
    return ["\n".join([*head, *lines])]


def _data(card: Scorecard) -> str:
    data = card.data
    rows = {"names it may hold": str(data.n_symbols), "panel": f"`{(data.panel_digest or '')[:ID_LENGTH]}`"}
    rows |= {name: f"snapshot {snapshot}" for name, snapshot in sorted(data.snapshot_ids.items())}
    for i, each in enumerate(data.trained):
        used = f", decides from {each.used_from}" if each.used_from else ""
        rows[f"trained {i + 1}"] = f"{each.first} to {each.last}{used}"
    return _section("Data", rows)


def _measured(card: Scorecard) -> str:
    found = card.measured
    memory = None if found.peak_memory_bytes is None else found.peak_memory_bytes / 2**20
    rows = {
        "training": _seconds(card.training_seconds),
        "judging": _seconds(found.judging_seconds),
        "decision to weights, median": _milliseconds(found.latency_seconds),
        "decision to weights, 99 %": _milliseconds(found.latency_99),
        "peak memory of the judging process": "-" if memory is None else f"{memory:,.0f} MiB",
        "code": f"`{card.code_version}`",
    }
    return _section("Measured", rows)


def _seconds(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.1f} s"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{1e3 * value:.3f} ms"


def _configuration(card: Scorecard) -> list[str]:
    return [f"## Configuration\n\n```json\n{json.dumps(card.configuration, indent=1, sort_keys=True)}\n```"]
