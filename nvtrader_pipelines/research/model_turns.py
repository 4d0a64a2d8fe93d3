"""Language model of a search session: its proposals and its summary, within calls, tokens and time that may be lost."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

from pydantic import BaseModel

from nvtrader_pipelines.llm.calls import Budget, Call, Request
from nvtrader_pipelines.llm.client import Asked, LlmClient
from nvtrader_pipelines.llm.endpoint import Endpoint
from nvtrader_pipelines.llm.prompts import read_prompt
from nvtrader_pipelines.research.journal import (
    CALL_FIELDS,
    BaseJudged,
    Knobs,
    Line,
    ModelAsked,
    SessionSummarized,
    TrialJudged,
)
from nvtrader_pipelines.research.model_answers import (
    ProposalAnswer,
    SummaryAnswer,
    foreign_figures,
    proposal_schema,
    take_answer,
)
from nvtrader_pipelines.research.proposal_bounds import DeltaRefused
from nvtrader_pipelines.research.proposers import LlmProposer
from nvtrader_pipelines.research.search_notes import search_notes
from nvtrader_pipelines.research.session_spec import SessionSpec
from nvtrader_pipelines.research.space import SearchSpace
from nvtrader_pipelines.research.study import Study
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.llm_files import open_client

NO_ENDPOINT = "no endpoint is configured; name one in data/llm.yaml"
GAVE_UP = "answers that were not taken have cost"
MIN_SECONDS = 0.01  # of a call
Document = TypeVar("Document", bound=BaseModel)


def open_model(home: Home) -> tuple[LlmClient | None, str]:
    """Client of the home's language model, or None and why there is none: no session needs it."""
    try:
        client = open_client(home)
    except StorageError as error:
        return None, str(error)
    return client, "" if client else NO_ENDPOINT


class ModelTurns:
    """Turns of a model, whose failures are lines of the journal and never stop the session."""

    def __init__(self, home: Home, spec: SessionSpec, space: SearchSpace, study: Study) -> None:
        self._spec, self._space, self._study = spec, space, study
        self._client, self._problem = open_model(home)

    def propose(
        self,
        number: int,
        proposed: Knobs,
        lines: Sequence[Line],
        is_tried: Callable[[str], bool],
        max_seconds: float = math.inf,
    ) -> ModelAsked | None:
        """Let the model propose in place of the optimizer, if it is its turn.

        After a kill between answer and trial, the line of the journal is returned again. Of an obstacle that remains,
        such as a spent budget, there is one line.

        Args:
            number: of the proposal.
            proposed: by the optimizer.
            lines: journal so far.
            is_tried: whether the configuration with a hash was tried.
            max_seconds: that the session has left.
        """
        proposer = self._spec.proposer
        if not isinstance(proposer, LlmProposer) or not proposer.is_turn_of_model(number):
            return None
        earlier = [line for line in lines if isinstance(line, ModelAsked)]
        answered = next((line for line in earlier if line.proposal == number), None)
        if answered:
            return answered
        client, obstacle = self._client, self._obstacle(lines)
        if client is None or obstacle:
            if earlier and (earlier[-1].outcome, earlier[-1].message) == ("not asked", obstacle):
                return None
            return ModelAsked(proposal=number, outcome="not asked", message=obstacle, seconds=0.0, finished_at=now())
        notes = search_notes(self._spec.goal, self._space.knobs, lines, proposed, self._study.outlook(number))
        facts, schema = notes.model_dump(mode="json", exclude_none=True), proposal_schema(self._space)
        request = _request(client.endpoint, ProposalAnswer, "propose", schema, facts)
        asked, is_late = _ask(client, lines, request, ProposalAnswer, max_seconds)
        return self._take(number, asked, is_tried, is_late=is_late)

    def _take(
        self, number: int, asked: Asked[ProposalAnswer], is_tried: Callable[[str], bool], *, is_late: bool
    ) -> ModelAsked:
        """Line of an answer, with its proposal if it is valid and new."""
        answer, message, outcome, proposed = asked.document, asked.call.problem, "proposed", {}
        if answer:
            try:
                proposed = take_answer(answer, self._space)
                if is_tried(self._space.propose(proposed).trial.trial_hash):
                    outcome, message = "repeated", "this configuration was tried"
            except DeltaRefused as error:
                outcome, message, proposed = "bad", error.problem, {}
        else:
            outcome = "late" if is_late else "bad"
            message += "; raise max_seconds_lost in data/llm.yaml for a model that takes longer" * is_late
        return ModelAsked(
            proposal=number,
            outcome=outcome,
            proposed=proposed,
            reason=answer.reason if answer else "",
            expects=answer.expects if answer else None,
            cites_goal=answer.cites_goal if answer else False,
            message=message,
            **_facts_of(asked.call),
        )

    def summarize(self, report: str, lines: Sequence[Line]) -> SessionSummarized | None:
        """Ask for a paragraph on a session, given its computed report; None if it has one, or none is asked for."""
        if self._client is None or self._obstacle(lines):
            return None
        schema = SummaryAnswer.model_json_schema() | {"additionalProperties": False}
        request = _request(self._client.endpoint, SummaryAnswer, "report", schema, {"report": report})
        if any(isinstance(line, SessionSummarized) and line.digest == request.digest for line in lines):
            return None
        asked, _ = _ask(self._client, lines, request, SummaryAnswer)
        answer, message = asked.document, asked.call.problem
        foreign = foreign_figures(answer.paragraph, report) if answer else []
        if foreign:
            message = f"the paragraph has figures that the report lacks: {', '.join(foreign)}"
        paragraph = answer.paragraph if answer and not message else ""
        return SessionSummarized(paragraph=paragraph, message=message, **_facts_of(asked.call))

    def _obstacle(self, lines: Sequence[Line]) -> str:
        """Why the model is not asked; empty if it is."""
        if self._client is None:
            return self._problem
        endpoint, spent = self._client.endpoint, [line for line in lines if isinstance(line, ModelAsked)]
        n_tokens = sum(line.n_input_tokens + line.n_output_tokens for line in spent)
        n_calls = sum(bool(line.digest) for line in spent)
        if problem := Budget(endpoint, n_calls, n_tokens).problem:
            return problem
        gave_up = [line.message for line in spent if line.outcome == "not asked" and line.message.startswith(GAVE_UP)]
        if gave_up and endpoint.max_seconds_lost is None:  # though the mean time of a trial has grown since
            return gave_up[-1]
        if _seconds_left(endpoint, lines) <= 0.0:
            return (
                f"{GAVE_UP} {_lost_seconds(lines):.1f} s, as much as they may; raise max_seconds_lost in "
                "data/llm.yaml, which is the mean time of a trial unless it is set"
            )
        return ""


def _request(
    endpoint: Endpoint, document_type: type[BaseModel], name: str, schema: dict[str, Any], facts: Mapping[str, Any]
) -> Request:
    """Fill a prompt."""
    prompt = read_prompt(name)
    return Request(
        purpose=name,
        prompt=prompt.label,
        model=endpoint.model,
        system=prompt.system,
        user=prompt.fill(facts=facts),
        schema_name=document_type.__name__,
        json_schema=schema,
    )


def _ask(
    client: LlmClient,
    lines: Sequence[Line],
    request: Request,
    document_type: type[Document],
    max_seconds: float = math.inf,
) -> tuple[Asked[Document], bool]:
    """Send a request within the seconds that may be lost; also return whether no answer came in time."""
    endpoint = client.endpoint
    deadline = max(MIN_SECONDS, min(endpoint.max_seconds, _seconds_left(endpoint, lines), max_seconds))
    asked = client.ask(request, document_type, deadline)
    return asked, asked.document is None and asked.call.seconds >= deadline


def _seconds_left(endpoint: Endpoint, lines: Sequence[Line]) -> float:
    """Seconds that answers which are not taken may still cost."""
    return (endpoint.max_seconds_lost or _trial_seconds(lines)) - _lost_seconds(lines)


def _lost_seconds(lines: Sequence[Line]) -> float:
    lost = (line for line in lines if isinstance(line, ModelAsked) and line.outcome != "proposed")
    return sum(line.seconds for line in lost)


def _trial_seconds(lines: Sequence[Line]) -> float:
    """Mean seconds of a trial so far, of a seed of the base before the first."""
    trials = [line.seconds for line in lines if isinstance(line, TrialJudged) and line.seconds]
    bases = [line.seconds / len(line.seeds) for line in lines if isinstance(line, BaseJudged)]
    return fmean(trials or bases)


def _facts_of(call: Call) -> dict[str, Any]:
    """Fields of a line of the journal that record a call."""
    return {**call.model_dump(include=CALL_FIELDS), "seconds": round(call.seconds, 3), "finished_at": now()}
