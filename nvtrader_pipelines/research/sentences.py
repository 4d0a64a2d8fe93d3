"""Sentences about a search session and its look at the sealed window."""

from collections.abc import Sequence

from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.journal import TrialRerun
from nvtrader_pipelines.research.verdict import (
    ALLOWANCE,
    LookVerdict,
    Outcome,
    SearchState,
    look_level,
    share_spent,
    smallest_confirmed_lead,
)

_ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")
_SHARES = ("half", "two thirds", "three quarters", "four fifths", "five sixths")


def format_trials(n_trials: int, budget: int | None = None) -> str:
    """Format a number of trials, and that of the budget if there is one."""
    count = f"{n_trials} of {budget}" if budget else f"{n_trials}"
    return f"{count} trial{'s' * ((budget or n_trials) != 1)}"


def format_progress(state: SearchState) -> str:
    """State the best trial so far and the lead that luck alone reaches."""
    best, n_trials = state.best, _tries(len(state.trials))
    if best is None or best.current_lead is None:
        return f"{n_trials}, none with a result. Nothing found yet."
    lead = best.current_lead.difference
    sentence = (
        f"Best of {n_trials}: trial {_number(state, best.key)}, Sharpe {format_sharpe(state.sharpe_of(best))}, "
        f"{format_sharpe(abs(lead))} {'below' if lead < 0.0 else 'above'} the base"
    )
    luck = format_sharpe(state.luck_lead)
    if state.is_above_luck:
        return f"{sentence} (luck bar {luck}), the same with 3 seeds."
    return f"{sentence}. Luck alone reaches {luck} after {_tries(state.n_configurations)}. Nothing found yet."


def format_nothing_found(state: SearchState, n_sealed_looks: int) -> str:
    """State that no trial is above luck, and the number of looks at the sealed window so far."""
    luck = "" if state.luck_lead is None else f" ({format_sharpe(state.luck_lead)})"
    return (
        f"{_tries(len(state.trials))}, none above what luck reaches{luck}. "
        f"No look at the sealed window was spent: {n_sealed_looks} so far."
    )


def format_rerun(line: TrialRerun) -> str:
    """State the Sharpe ratios and the lead of the fresh seeds, or why one has no result."""
    if line.sharpes is None or line.fresh_lead is None or line.required_lead is None:
        return line.message
    return (
        f"fresh seeds: {', '.join(map(format_sharpe, line.sharpes))}, a lead of {format_sharpe(line.fresh_lead)}; "
        f"required: more than {format_sharpe(line.required_lead)}"
    )


def format_look(state: SearchState, verdict: LookVerdict, *, is_fresh: bool = True) -> str:
    """State the claim about the kept trial that the look at the sealed window allows.

    Args:
        state: of the session.
        verdict: of the look.
        is_fresh: whether no other search or run of the home has judged anything on sealed sessions.

    Raises:
        ValueError: if no trial is kept.
    """
    if state.kept is None or state.kept.current_lead is None:
        raise ValueError("a look at the sealed window needs a kept trial")
    number = _number(state, state.kept.key)
    if verdict.outcome is Outcome.WINNER:
        return _winner(number, verdict, is_fresh=is_fresh and verdict.look == 1)
    if verdict.outcome is Outcome.IMPROVEMENT:
        return _improvement(number, verdict)
    return _not_confirmed(number, state.kept.current_lead, verdict)


def format_unjudged_look(number: int, missing: str, look: int) -> str:
    """State that the kept trial has no result on the sealed window, so that nothing is claimed."""
    return (
        f"Not confirmed. Trial {number} has no result on the sealed years: {missing}. "
        f"{_ordinal(look)} look: {_share(look)} of the allowance {_is(look)} spent."
    )


def format_sharpe(value: float | None) -> str:
    """Format a Sharpe ratio with two digits and without a leading 0; empty without one."""
    if value is None:
        return ""
    digits = f"{abs(value):.2f}"
    minus = "\N{MINUS SIGN}" if value < 0.0 and float(digits) else ""
    return minus + digits.removeprefix("0")


def _winner(number: int, verdict: LookVerdict, *, is_fresh: bool) -> str:
    look, base = verdict.look, verdict.over_base
    years = f"{verdict.n_years:.1f}".removesuffix(".0")
    leads = [f"the base by {format_sharpe(base.difference)} ({_confidence(look)} {_interval(base, look)})"]
    for name, lead in verdict.over_plain.items():
        leads.append(f"{name} by {format_sharpe(lead.difference)} ({_interval(lead, look)})")
    return (
        f"Winner. On {years} sealed year{'s' * (years != '1')}{' never used before' * is_fresh}, "
        f"trial {number} leads {_join(leads, 'and')}. {_ordinal(look)} look at this window; "
        f"{_share(look)} of its {100 * ALLOWANCE:.0f} % allowance for false alarms {_is(look)} spent."
    )


def _improvement(number: int, verdict: LookVerdict) -> str:
    look, base = verdict.look, verdict.over_base
    leads = [(name, verdict.over_plain[name]) for name in verdict.not_beaten]
    behind = [f"{name} ({format_sharpe(lead.difference)}, {_interval(lead, look)})" for name, lead in leads]
    return (
        f"An improvement, no winner: trial {number} beats the base by {format_sharpe(base.difference)} "
        f"({_interval(base, look)}), but not {_join(behind, 'or')}. "
        "It is kept as a new base and not handed to trading."
    )


def _not_confirmed(number: int, validation: Lead, verdict: LookVerdict) -> str:
    look, base = verdict.look, verdict.over_base
    smallest = smallest_confirmed_lead(base.standard_error, base.n_blocks, look)
    return (
        f"Not confirmed. Trial {number} led by {format_sharpe(validation.difference)} on validation and by "
        f"{format_sharpe(base.difference)} ({_confidence(look)} {_interval(base, look)}) on the sealed years. "
        f"{_ordinal(look)} look: {_share(look)} of the allowance {_is(look)} spent. "
        f"By the error on the sealed years, a true lead below about {format_sharpe(smallest)} would mostly have been "
        "missed."
    )


def _number(state: SearchState, key: str) -> int:
    """Number of a trial in its session, from 1."""
    return list(state.trials).index(key) + 1


def _tries(n: int) -> str:
    return f"{n} {'try' if n == 1 else 'tries'}"


def _interval(lead: Lead, look: int) -> str:
    return " to ".join(map(format_sharpe, lead.interval(look_level(look))))


def _confidence(look: int) -> str:
    digits = f"{100.0 * (1.0 - 2.0 * look_level(look)):.{1 if look < 10 else 2}f}"
    return f"{digits.removesuffix('.0')} % interval"


def _ordinal(look: int) -> str:
    return _ORDINALS[look - 1] if look <= len(_ORDINALS) else f"{look}th"


def _share(look: int) -> str:
    """Share of the allowance that is spent."""
    return _SHARES[look - 1] if look <= len(_SHARES) else f"{100.0 * share_spent(look):.0f} %"


def _is(look: int) -> str:
    return "are" if 1 < look <= len(_SHARES) else "is"


def _join(parts: Sequence[str], last: str) -> str:
    """Join parts by commas and a last word."""
    return f" {last} ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
