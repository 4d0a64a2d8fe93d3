"""Search sessions from lines made by hand."""

from datetime import UTC, date, datetime, timedelta

import numpy as np

from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.journal import (
    BaseJudged,
    LookOpened,
    ModelAsked,
    SessionClosed,
    TrialJudged,
    TrialRerun,
    format_line,
    n_changes,
)
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.sentences import format_look, format_nothing_found
from nvtrader_pipelines.research.session_spec import Session, SessionSpec
from nvtrader_pipelines.research.space import search_space
from nvtrader_pipelines.research.verdict import (
    LookVerdict,
    Reruns,
    SearchBase,
    SearchState,
    SearchTrial,
    Standing,
    judge_reruns,
    judge_trial,
    look_level,
    smallest_confirmed_lead,
)
from nvtrader_pipelines.storage.research_files import SessionFolder

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
ERROR, N_BLOCKS = 0.061, 96  # of a lead over eight years
BASE_SHARPES = (0.75, 0.65, 0.75, 0.65, 0.7)
SPACE = search_space(SearchMode.PPO_ONLY)


def a_session(session_id="20260302-090000-aaaa", **settings):
    """Session on 20 names."""
    spec = {
        "base": SPACE.base,
        "budget": 30,
        "validation_from": date(2002, 1, 2),
        "sealed_from": date(2010, 1, 4),
        **settings,
    }
    return Session(
        session_id=session_id,
        created_at=START,
        spec=SessionSpec(**spec),
        symbols=tuple(f"N{i}" for i in range(20)),
        n_sealed=3272,
        validation_digest="ab" * 32,
    )


class JournalBuilder:
    """Lines of a journal, each judged as a session judges it."""

    def __init__(self, earlier=()):
        self.knobs = dict(SPACE.base_values)
        self.lines = []
        self.at = START
        self.state = SearchState(SearchBase("base", BASE_SHARPES), frozenset(earlier))
        self._add(BaseJudged, spec_hash="base", knobs=self.knobs, seeds=range(5), sharpes=BASE_SHARPES,
                  max_drawdown=0.2)  # fmt: skip

    def _add(self, kind, seconds=6.0, **fields):
        self.at += timedelta(seconds=seconds)
        self.lines.append(kind(seconds=seconds, finished_at=self.at, **fields))
        return self

    @property
    def n_proposals(self):
        """Number of proposals so far."""
        return sum(isinstance(line, TrialJudged) for line in self.lines)

    def trial(self, difference, *, status="judged", key=None, error=ERROR, reason=None, **knobs):
        """Judge a proposal, of the model if it has a reason; without a difference it has no result."""
        key = key or f"t{len(self.state.trials) + 1}"
        lead = None if difference is None else Lead(difference, error, N_BLOCKS)
        proposed = {**self.knobs, **knobs}
        used = {} if status == "infeasible" else proposed
        self.state, decision = judge_trial(self.state, SearchTrial(key, n_changes(used, self.knobs), lead))
        number = list(self.state.trials).index(key) + 1 if key in self.state.trials else None
        has_result = lead is not None
        return self._add(
            TrialJudged,
            proposal=self.n_proposals + 1,
            trial=number,
            spec_hash=key,
            proposer="optuna" if reason is None else "llm",
            reason=reason or "",
            proposed=proposed,
            knobs=used,
            status=status,
            message="" if has_result else f"{status} for a reason",
            standing=decision.standing,
            sharpe=self.state.base.sharpe + difference if has_result else None,
            max_drawdown=0.2 if has_result else None,
            lead=lead,
            n_configurations=decision.n_configurations,
            bar=decision.bar,
        )

    def answer(self, outcome="proposed", changes=None, **fields):
        """Answer of the model for the next proposal."""
        proposed = {} if changes is None else {**self.knobs, **changes}
        asked = {"proposal": self.n_proposals + 1, "model": "m", "prompt": "propose 1", **fields}
        return self._add(ModelAsked, outcome=outcome, proposed=proposed, **asked)

    def known(self):
        """Propose the first trial again."""
        return self.trial(None, status="known", key="t1")

    def rerun(self, key, sharpes, difference, error=ERROR):
        """Train a trial again with fresh seeds; without a difference one has no result."""
        lead = None if difference is None else Lead(difference, error, N_BLOCKS)
        self.state, decision = judge_reruns(self.state, key, Reruns(sharpes, lead))
        return self._add(
            TrialRerun,
            trial=list(self.state.trials).index(key) + 1,
            spec_hash=key,
            seeds=(6, 7),
            sharpes=sharpes,
            lead=lead,
            message="" if lead else "seed 6 has no result",
            standing=decision.standing,
            bar=decision.bar,
            seed_deviation=decision.seed_deviation,
            fresh_lead=decision.fresh_lead,
            required_lead=decision.required_lead,
        )

    def nothing_found(self):
        """Close without a look."""
        sentence = format_nothing_found(self.state, 0)
        return self._add(SessionClosed, outcome="nothing found", sentence=sentence, deflated_sharpe=0.41, pbo=0.35)

    def look(self, over_base, over_plain, look=1):
        """Look at the sealed window, and close."""
        kept = list(self.state.trials).index(self.state.kept.key) + 1
        leads = {
            name: Lead(lead, 0.08, 60) for name, lead in (("equal weight", over_plain), ("buy and hold", over_plain))
        }
        verdict = LookVerdict(look, Lead(over_base, 0.08, 60), leads, 252)
        level, smallest = look_level(look), smallest_confirmed_lead(0.08, 60, look)
        self._add(LookOpened, trial=kept, look=look, level=level, smallest_lead=smallest)
        return self._add(
            SessionClosed,
            outcome=verdict.outcome,
            sentence=format_look(self.state, verdict),
            trial=kept,
            look=look,
            over_base=verdict.over_base,
            over_plain=leads,
            deflated_sharpe=0.62,
            pbo=0.21,
        )


def a_journal(n_trials=30, seed=0):
    """Journal of a session, not closed, whose trials get better; with every kind of proposal."""
    rng = np.random.default_rng(seed)
    builder = JournalBuilder()
    for i in range(1, n_trials + 1):
        knobs = {
            "learning_rate": float(10 ** rng.uniform(-5, -2)),
            "lookback": int(rng.integers(5, 61)),
            "gamma": float(rng.uniform(0.9, 0.999)),
        }
        if i in (5, 19):
            builder.trial(None, status="infeasible", **knobs)
        elif i == 13:
            builder.trial(None, status="pruned", **knobs)
        elif i == 21:
            builder.trial(None, status="failed", **knobs)
        else:
            lead = float(rng.normal(0.004 * i, 0.07))
            builder.trial(lead, **knobs)
            key = f"t{len(builder.state.trials)}"
            if builder.state.trials[key].standing == Standing.RERUN:
                fresh = float(rng.normal(lead - 0.03, 0.02))
                builder.rerun(key, (0.7 + fresh, 0.7 + fresh - 0.02), (lead + 2 * fresh - 0.02) / 3)
        if i == 8:
            builder.known()
    return builder


def write_session(home, session, lines, torn=b""):
    """Write the folder of a session; `torn` follows the last line."""
    folder = SessionFolder.of(home, session.session_id)
    folder.path.mkdir(parents=True)
    folder.settings.write_text(session.model_dump_json())
    folder.journal.write_bytes(b"".join(format_line(line).encode() + b"\n" for line in lines) + torn)
    return folder
