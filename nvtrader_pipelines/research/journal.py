"""Journal of a search session: a line per event, from which its state follows."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.proposal_bounds import BoundsClip, Snapped
from nvtrader_pipelines.research.verdict import Outcome, Standing

Knobs = dict[str, int | float]
Status = Literal["judged", "known", "pruned", "infeasible", "failed"]
AnswerOutcome = Literal["proposed", "bad", "late", "repeated", "not asked"]


class Event(BaseModel):
    """Line of the journal; only `seconds`, `finished_at` and `is_cached` differ between equal sessions."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    seconds: float  # of all trainings and walks of the event, in their workers; of a model until it answered
    finished_at: datetime


class BaseJudged(Event):
    """Unchanged base, trained with several seeds: the first line."""

    event: Literal["base"] = "base"
    spec_hash: str  # of its configuration
    knobs: Knobs
    seeds: tuple[int, ...]
    sharpes: tuple[float, ...]  # annual, net, on validation, by seed
    max_drawdown: float  # of the mean over seeds of the returns, a positive fraction


class TrialJudged(Event):
    """Proposal and its result by the first seed."""

    event: Literal["trial"] = "trial"
    proposal: int  # number of the proposal, from 1; known ones count
    trial: int | None  # number of the configuration in the session, from 1; null for the base
    spec_hash: str  # of its configuration, see `configuration_hash`
    proposer: str
    reason: str
    cites_goal: bool = False  # whether the goal of the session decided, by the model that proposed
    proposed: Knobs
    knobs: Knobs  # effective ones, after clips and snaps; empty where infeasible
    clips: tuple[BoundsClip, ...] = ()
    snaps: tuple[Snapped, ...] = ()
    status: Status
    message: str = ""  # why it was infeasible, failed or pruned, or where the result of a known one is from
    standing: Standing
    sharpe: float | None = None  # annual, net, on validation; null without a result
    max_drawdown: float | None = None  # a positive fraction
    fold_sharpes: tuple[float, ...] = ()  # by validation fold, as far as they were judged
    lead: Lead | None = None  # over the base
    n_configurations: int  # judged on these validation data so far, by all sessions and runs
    bar: float  # luck bar, in standard errors


CALL_FIELDS = {"model", "prompt", "digest", "n_input_tokens", "n_output_tokens", "is_cached"}  # of a `Call`, too


class ModelEvent(Event):
    """Call of a language model; its texts are in the file of the digest."""

    message: str = ""  # why the answer was not taken, or none was asked for
    model: str = ""
    prompt: str = ""  # name and version, such as propose@1
    digest: str = ""  # of the request
    n_input_tokens: int = 0
    n_output_tokens: int = 0
    is_cached: bool = False  # answered without the endpoint


class ModelAsked(ModelEvent):
    """Answer of a language model, which makes the proposal or leaves it to the optimizer; before the trial's line."""

    event: Literal["model"] = "model"
    proposal: int
    outcome: AnswerOutcome
    proposed: Knobs = Field(default_factory=dict)  # before clips and snaps; empty unless proposed or repeated
    reason: str = ""  # of the model
    expects: float | None = None  # Sharpe ratio on validation that the model expects
    cites_goal: bool = False  # whether the goal of the session decided


class SessionSummarized(ModelEvent):
    """Paragraph of a language model on the session, given its computed report; before the verdict's line."""

    event: Literal["summary"] = "summary"
    paragraph: str  # empty if none was taken


class TrialRerun(Event):
    """Result of a trial with all its seeds; its figures are null if a fresh seed has no result."""

    event: Literal["rerun"] = "rerun"
    trial: int
    spec_hash: str
    seeds: tuple[int, int]
    sharpes: tuple[float, float] | None  # annual, net, on validation, of the fresh seeds
    lead: Lead | None  # of all three seeds
    message: str = ""  # why a fresh seed has no result
    standing: Standing
    bar: float
    seed_deviation: float | None
    fresh_lead: float | None
    required_lead: float | None


class LookOpened(Event):
    """Look at the sealed window, written before the window is read."""

    event: Literal["look"] = "look"
    trial: int
    look: int  # number of the look at this window, from 1
    level: float  # probability of a false claim
    smallest_lead: float  # true lead that it confirms four times in five, by the error on validation


class SessionClosed(Event):
    """Verdict of a session: the last line."""

    event: Literal["verdict"] = "verdict"
    outcome: Outcome | Literal["nothing found"]
    sentence: str
    trial: int | None = None  # the kept one
    look: int | None = None
    over_base: Lead | None = None  # on the sealed window
    over_plain: dict[str, Lead] = Field(default_factory=dict)
    deflated_sharpe: float | None = None  # probability that the best trial's Sharpe ratio is above luck; reported only
    pbo: float | None = None  # probability of backtest overfitting over all trials; reported only


Line = Annotated[
    BaseJudged | TrialJudged | ModelAsked | TrialRerun | LookOpened | SessionSummarized | SessionClosed,
    Field(discriminator="event"),
]
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


def read_line(text: str | bytes) -> Line:
    """Parse a line of a journal.

    Raises:
        ValidationError: if it is none.
    """
    return _LINE.validate_json(text)


def format_line(line: Line) -> str:
    """Return a line of a journal, without its end."""
    return json.dumps(line.model_dump(mode="json"), allow_nan=False, separators=(",", ":"))


def returns_name(trial: int | None) -> str:
    """Name of the returns of a trial's first seed in the folder of its session."""
    return f"trial-{trial}"


def work_seconds(lines: Iterable[Line]) -> float:
    """Seconds of all trainings and walks, in their workers."""
    return sum(line.seconds for line in lines if not isinstance(line, ModelEvent))


def changed_values(knobs: Knobs, base: Knobs) -> Knobs:
    """Knobs that differ from the base's, with their values."""
    return {name: value for name, value in knobs.items() if value != base[name]}


def n_changes(knobs: Knobs, base: Knobs) -> int:
    """Number of knobs that differ from the base's."""
    return len(changed_values(knobs, base))
