"""Report of a search session as Markdown, and its files."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.journal import (
    BaseJudged,
    Line,
    LookOpened,
    SessionClosed,
    SessionSummarized,
    TrialJudged,
    TrialRerun,
)
from nvtrader_pipelines.research.proposers import LlmProposer, Proposer
from nvtrader_pipelines.research.recorded_session import TrialView, recorded_state, trial_views
from nvtrader_pipelines.research.sentences import format_progress, format_rerun, format_sharpe, format_trials
from nvtrader_pipelines.research.session_spec import FIRST_SEED, Session, is_random
from nvtrader_pipelines.research.verdict import (
    Outcome,
    SearchState,
    Standing,
    share_spent,
    smallest_visible_lead,
)
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.research_files import SessionFolder

N_SHOWN = 5  # trials of a table or list
_SPECIAL = re.compile(r"([\\`*\[\]<>#|])")  # of Markdown
_MEANING = {
    Outcome.WINNER: (
        "The lead holds on sessions that no trial was judged on, over the base and over every plain baseline, so the "
        "setting may be handed to trading. A lead of the past can still end."
    ),
    Outcome.IMPROVEMENT: (
        "The setting is better than its base on sessions that no trial was judged on, but a plain baseline may be as "
        "good. Use it as the base of another search; it is not handed to trading."
    ),
    Outcome.NOT_CONFIRMED: "The sealed window does not confirm the lead, which may be luck. Keep the base.",
    "nothing found": (
        "No trial is better than luck explains. A better setting may exist: a lead below the luck bar goes unseen. "
        "Keep the base."
    ),
}
_PRUNING = (
    "Pruning was on: it stops 7 to 30 % of the trials that are as good as the best one, too. Pruned trials count as "
    "configurations judged."
)


@dataclass(frozen=True)
class _Course:
    """Lines of a journal from the base on, by kind."""

    session: Session
    base: BaseJudged
    proposals: tuple[TrialJudged, ...]
    trials: list[TrialView]
    reruns: tuple[TrialRerun, ...]
    look: LookOpened | None
    summary: SessionSummarized | None
    verdict: SessionClosed | None
    state: SearchState

    @cached_property
    def ranked(self) -> list[tuple[TrialView, Lead]]:
        """Trials with a result, and their leads, highest t first."""
        scored = [(trial, trial.lead) for trial in self.trials if trial.lead]
        return sorted(scored, key=lambda pair: -pair[1].t)


def write_report(folder: SessionFolder, session: Session, lines: Sequence[Line], *, is_running: bool = False) -> None:
    """Write the report of a session, and its picture once the base is judged."""
    from nvtrader_pipelines.research.session_picture import draw_session  # slow to import
    from nvtrader_pipelines.storage.files import write_picture

    if recorded_state(lines):
        write_picture(folder.picture, draw_session(session, lines))
    write_atomically(folder.report, session_report(session, lines, is_running=is_running).encode())


def session_report(session: Session, lines: Sequence[Line], *, is_running: bool = False, with_goal: bool = True) -> str:
    """Return the report of a session; without a verdict an interim one. The goal is a person's text."""
    goal = f"Goal: {escape_markdown(session.spec.goal)}" if with_goal else ""
    parts = [f"# AutoResearch session {session.session_id}", goal]
    course = _course(session, lines)
    if course is None:
        sentence = f"Interim report: the base is not judged yet, and the session {_activity(is_running=is_running)}."
        parts += [f"**{sentence}**", _settings(session, None), _commands(session, None)]
    else:
        parts += [
            f"**{_verdict_sentence(course, is_running=is_running)}**",
            "![Sharpe ratio over trials](sharpe.png)",
            _settings(session, course),
            _best(course),
            _kept(course),
            _near_misses(course),
            _dead_ends(course),
            _meaning(course),
            _summary(course),
            _commands(session, course.verdict),
        ]
    return "\n\n".join(filter(None, parts)) + "\n"


def escape_markdown(text: str) -> str:
    """Return text of a person or a model such that no character of it is markup."""
    return _SPECIAL.sub(r"\\\1", text)


def _course(session: Session, lines: Iterable[Line]) -> _Course | None:
    """Sort the lines of a journal by kind; None before the base is judged."""
    journal = list(lines)
    base = next((line for line in journal if isinstance(line, BaseJudged)), None)
    state = recorded_state(journal)
    if base is None or state is None:
        return None
    return _Course(
        session,
        base,
        tuple(line for line in journal if isinstance(line, TrialJudged)),
        trial_views(journal),
        tuple(line for line in journal if isinstance(line, TrialRerun)),
        next((line for line in journal if isinstance(line, LookOpened)), None),
        next((line for line in reversed(journal) if isinstance(line, SessionSummarized)), None),
        next((line for line in journal if isinstance(line, SessionClosed)), None),
        state,
    )


def _activity(*, is_running: bool) -> str:
    return "runs" if is_running else "is stopped"


def _verdict_sentence(course: _Course, *, is_running: bool) -> str:
    if course.verdict:
        return escape_markdown(course.verdict.sentence)
    done = format_trials(len(course.state.trials), course.session.spec.budget)
    return (
        f"Interim report: the session {_activity(is_running=is_running)} after {done}. {format_progress(course.state)}"
    )


def _settings(session: Session, course: _Course | None) -> str:
    spec = session.spec
    limits = [
        format_trials(spec.budget) if spec.budget else "",
        f"{spec.max_seconds:g} seconds" if spec.max_seconds else "",
    ]
    rows = {
        "mode": spec.eval_mode,
        "base": f"{spec.base.name}, {spec.base.agent.kind} on {len(session.symbols)} symbols",
        "space": _space(session, course),
        "budget": " or ".join(filter(None, limits)),
        "proposer": f"{_proposer(spec.proposer)}, seed {spec.seed}",
        "seeds of training": _seeds(course),
        "trained on": f"sessions before {spec.validation_from}, less a purge of {spec.base.splitter.purge_size}",
        "validated on": f"{spec.validation_from} to the session before {spec.sealed_from}, "
        f"{spec.n_folds} fold{'s' * (spec.n_folds != 1)}",
        "sealed": f"from {spec.sealed_from} on",
    }
    if course:
        rows["proposals"] = f"{len(course.proposals)}: {_outcomes(course)}"
        rows["configurations judged"] = (
            f"{course.state.n_configurations} on this validation, over all sessions and runs"
        )
    table = [f"| {name} | {escape_markdown(str(value))} |" for name, value in rows.items()]
    return "\n".join(["## What was tried", "", "| setting | value |", "|---|---|", *table])


def _proposer(proposer: Proposer) -> str:
    if not isinstance(proposer, LlmProposer):
        return proposer.kind
    kind = f"llm with {proposer.optimizer.kind}{', an experiment' * proposer.is_experiment}"
    after = f" after the first {proposer.n_warmup_trials}" if proposer.n_warmup_trials else ""
    return f"{kind}: the model proposes {proposer.share:.0%} of trials{after}"


def _space(session: Session, course: _Course | None) -> str:
    names = list(course.base.knobs) if course else list(session.spec.bounds or ())
    kind = "of a file" if session.spec.bounds else "of the mode"
    return f"{len(names)} knobs {kind}: {', '.join(names)}" if names else f"the knobs {kind}"


def _seeds(course: _Course | None) -> str:
    if course is None:
        return "5 of the base"
    if not is_random(course.session.spec.base):
        return "none: nothing in these experiments is random"
    text = f"base {', '.join(map(str, course.base.seeds))}; trials {FIRST_SEED}"
    return f"{text}; reruns {', '.join(map(str, course.reruns[0].seeds))}" if course.reruns else text


def _outcomes(course: _Course) -> str:
    counts = Counter(line.status for line in course.proposals)
    total = max(1, len(course.proposals))
    return ", ".join(f"{n} {status} ({n / total:.0%})" for status, n in counts.most_common()) or "none"


def _best(course: _Course) -> str:
    best = course.ranked[:N_SHOWN]
    if not best:
        return ""
    base = course.base.knobs
    changed = [name for name in base if any(name in trial.changed for trial, _ in best)]
    rows = [
        ["", "base", *(f"trial {trial.number}" for trial, _ in best)],
        ["---", *["---:"] * (len(best) + 1)],
        ["Sharpe ratio", *map(format_sharpe, (course.state.base.sharpe, *(trial.sharpe for trial, _ in best)))],
        ["lead", "", *(format_sharpe(lead.difference) for _, lead in best)],
        ["t", "", *(format_sharpe(lead.t) for _, lead in best)],
        ["standing", "", *(_standing(course, trial) for trial, _ in best)],
        *([escape_markdown(name), f"{base[name]:.4g}", *_values(best, name)] for name in changed),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return (
        f"## Best {len(best)} by t\n\nThe t is the lead over the base in standard errors, and the luck bar is "
        f"{course.state.bar:.2f}. A sign = marks a knob with the value of the base.\n\n{table}"
    )


def _values(best: Sequence[tuple[TrialView, Lead]], name: str) -> list[str]:
    return [f"{trial.changed[name]:.4g}" if name in trial.changed else "=" for trial, _ in best]


def _standing(course: _Course, trial: TrialView) -> str:
    standing = trial.trial.standing
    if standing == Standing.KEPT and trial.trial != course.state.kept:
        return "kept earlier"
    return "waits for reruns" if standing == Standing.RERUN else standing


def _kept(course: _Course) -> str:
    kept = [rerun for rerun in course.reruns if rerun.standing == Standing.KEPT]
    lines = [_rerun_line(course, rerun) for rerun in kept[-N_SHOWN:]]
    if not lines:
        lines = ["Nothing: no trial was above the luck bar and remained there with two fresh seeds."]
    elif not course.state.is_above_luck:
        lines.append("- It is no longer above the luck bar, which rises with every configuration judged.")
    return "\n".join(["## What was kept, and why", "", *lines])


def _rerun_line(course: _Course, rerun: TrialRerun) -> str:
    text, trial = escape_markdown(format_rerun(rerun)), course.trials[rerun.trial - 1]
    if lead := rerun.lead:
        sharpe = format_sharpe(trial.sharpe)
        text = f"Sharpe ratio {sharpe} over 3 seeds, t {format_sharpe(lead.t)} (luck bar {rerun.bar:.2f}); {text}"
    standing = "" if rerun.standing == Standing.KEPT else f" {rerun.standing.capitalize()}."
    is_of_model = trial.line.proposer == kind_of(LlmProposer)
    of_goal = ", for the goal" if trial.line.cites_goal else ""
    reason = f" Reason of the model{of_goal}: {escape_markdown(trial.line.reason)}" if is_of_model else ""
    return f"- Trial {rerun.trial}: {text}.{standing}{reason}"


def _near_misses(course: _Course) -> str:
    lost = [_rerun_line(course, rerun) for rerun in course.reruns if rerun.standing != Standing.KEPT]
    return "\n".join(["## Near misses", "", *lost[-N_SHOWN:]]) if lost else ""


def _dead_ends(course: _Course) -> str:
    base, behind = course.base.knobs, [pair for pair in course.ranked[N_SHOWN:] if pair[1].difference < 0.0]
    lines = []
    for trial, lead in behind[: -N_SHOWN - 1 : -1]:
        changes = ", ".join(f"{name} {base[name]:.4g} → {value:.4g}" for name, value in trial.changed.items())
        figures = f"lead {format_sharpe(lead.difference)}, t {format_sharpe(lead.t)}"
        lines.append(f"- Trial {trial.number} ({figures}): {escape_markdown(changes)}")
    reasons = Counter(line.message for line in course.proposals if line.status in ("infeasible", "failed"))
    lines += [f"- {n} without a result: {escape_markdown(reason)}" for reason, n in reasons.most_common(N_SHOWN)]
    return "\n".join(["## Dead ends", "", *lines]) if lines else ""


def _meaning(course: _Course) -> str:
    lines = [f"On validation: {format_progress(course.state)}"]
    if course.verdict:
        lines.append(_MEANING[course.verdict.outcome])
    if course.look:
        lines.append(
            f"Look {course.look.look} at the sealed window is spent, and {share_spent(course.look.look):.0%} of its "
            f"allowance with it. It confirms a true lead of {format_sharpe(course.look.smallest_lead)} four times in "
            "five, by the error on validation."
        )
    elif course.ranked:
        smallest = smallest_visible_lead(course.ranked[0][1], course.session.n_sealed, look=1)
        lines.append(
            f"This session has spent no look at the sealed window. A first look confirms a true lead of "
            f"{format_sharpe(smallest)} four times in five, by the error on validation."
        )
    if course.verdict and (course.verdict.deflated_sharpe is not None or course.verdict.pbo is not None):
        lines.append(f"Not decided on: {_reported_only(course.verdict)}.")
    if course.session.spec.prunes:
        lines.append(_PRUNING)
    return "## What it means\n\n" + "\n\n".join(lines)


def _summary(course: _Course) -> str:
    """Paragraph of the model, marked as its own."""
    summary = course.summary
    if summary is None or not summary.paragraph:
        return ""
    author = f"Written by {escape_markdown(summary.model)} from this report; its figures stand there, its words do not."
    return f"## In the words of a language model\n\n{escape_markdown(summary.paragraph)}\n\n*{author}*"


def _reported_only(verdict: SessionClosed) -> str:
    figures = {
        "deflated Sharpe ratio of the best trial": verdict.deflated_sharpe,
        "probability of backtest overfitting (PBO)": verdict.pbo,
    }
    return ", ".join(f"{name} {value:.2f}" for name, value in figures.items() if value is not None)


def _commands(session: Session, verdict: SessionClosed | None) -> str:
    verbs = ["journal"] if verdict else ["status", "resume", "journal"]
    lines = [f"    nvtrader research {verb} {session.session_id}" for verb in verbs]
    if verdict and verdict.outcome in (Outcome.WINNER, Outcome.IMPROVEMENT):
        best = f"data/autoresearch/sessions/{session.session_id}/best.yaml"
        lines = [
            f"The experiment is {best}; a search around it:",
            "",
            f"    nvtrader research start --like {best}",
            *lines,
        ]
    if verdict and verdict.outcome is Outcome.WINNER:
        lines = [
            f"The winner is the experiment {session.session_id}-winner, with the policies that were judged. A running "
            "`nvtrader ui` tests it and lets the gate decide; so does",
            "",
            f"    nvtrader materialize {session.session_id}-winner",
            "",
            *lines,
        ]
    return "\n".join(["## More", "", *lines])
