"""Proposals of a search session: the optimizer's, or the language model's where it is its turn."""

from collections.abc import Callable
from dataclasses import replace

from nvtrader_pipelines.research.journal import Knobs, ModelAsked, SessionClosed, SessionSummarized, TrialJudged
from nvtrader_pipelines.research.model_turns import ModelTurns
from nvtrader_pipelines.research.proposal_bounds import DeltaRefused
from nvtrader_pipelines.research.proposers import SpaceExhausted
from nvtrader_pipelines.research.search_journal import SearchJournal, TrialProposal
from nvtrader_pipelines.research.session_report import session_report
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.research.space import SearchSpace, TrialSpec, configuration_hash
from nvtrader_pipelines.research.study import Study, objective
from nvtrader_pipelines.storage.store import Store

MAX_KNOWN = 100  # known proposals in a row, after which nothing new is expected


class Proposals:
    """Source of proposals, which learns from their results."""

    def __init__(self, store: Store, session: Session, space: SearchSpace, journal: SearchJournal) -> None:
        self._session, self._space, self._journal = session, space, journal
        self._study = Study(session.spec.proposer, space.knobs, session.spec.seed)
        self._model = ModelTurns(store.home, session.spec, space, self._study)
        trials = [line for line in journal.lines if isinstance(line, TrialJudged)]
        self._study.restore(trials)
        self._numbers = {line.proposal for line in trials}
        self._n_known = next((i for i, row in enumerate(reversed(trials)) if row.status != "known"), len(trials))
        self._is_exhausted = False

    @property
    def may_bring_new(self) -> bool:
        """Whether a configuration that was not tried may be proposed."""
        return not self._is_exhausted and self._n_known < MAX_KNOWN

    def next(self, is_tried: Callable[[str], bool], seconds_left: float) -> TrialProposal | None:
        """Return the next proposal, or None if a grid has no point left.

        Args:
            is_tried: whether the configuration with a hash was judged, or is being judged.
            seconds_left: of the session.
        """
        number = next(i for i in range(1, len(self._numbers) + 2) if i not in self._numbers)
        try:
            proposed = self._study.ask(number)
        except SpaceExhausted:
            self._is_exhausted = True
            return None
        self._numbers.add(number)
        asked = self._model.propose(number, proposed, self._journal.lines, is_tried, seconds_left)
        if asked and asked.outcome == "proposed":
            proposed = asked.proposed
            self._study.replace(number, proposed)
        proposal = self._proposal(number, proposed, asked)
        self._n_known = self._n_known + 1 if is_tried(proposal.key) else 0
        return proposal

    def _proposal(self, number: int, proposed: Knobs, asked: ModelAsked | None) -> TrialProposal:
        """Proposal of knobs; where they give no valid experiment, it is identified by its own values."""
        try:
            return TrialProposal(number, proposed, self._space.propose(proposed), asked)
        except DeltaRefused as error:
            base = self._journal.base
            trial = TrialSpec(proposed, configuration_hash(base.spec, proposed))
            effective = replace(base, trial=trial, clips=(), snaps=())
            return TrialProposal(number, proposed, effective, asked, error.problem)

    def tell(self, line: TrialJudged) -> None:
        """Learn from the line of a proposal."""
        self._study.tell(line.proposal, objective(line))

    def summarize(self, verdict: SessionClosed) -> SessionSummarized | None:
        """Let the model write on the session, unless it did on the same report before a kill."""
        computed = [line for line in self._journal.lines if not isinstance(line, SessionSummarized)]
        report = session_report(self._session, [*computed, verdict], with_goal=False)
        return self._model.summarize(report.replace(self._session.session_id, "SESSION"), self._journal.lines)
