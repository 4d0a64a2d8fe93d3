import pytest

from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.sentences import format_look, format_nothing_found, format_progress, format_trials
from nvtrader_pipelines.research.verdict import (
    LookVerdict,
    Reruns,
    SearchBase,
    SearchState,
    SearchTrial,
    judge_reruns,
    judge_trial,
)

BASE = SearchBase("base", (0.75, 0.65, 0.75, 0.65, 0.7))


def state_after(n_trials, best, difference):
    state = SearchState(BASE)
    for i in range(1, n_trials + 1):
        state, _ = judge_trial(state, SearchTrial(f"{i}", 1, Lead(difference if i == best else 0.0, 0.061, 96)))
    return state


KEPT, _ = judge_reruns(state_after(34, 29, 0.2), "29", Reruns((0.96, 0.96), Lead(0.24, 0.061, 96)))


def verdict(look, *leads):
    base, *plain = [Lead(difference, error, 60) for difference, error in leads]
    return LookVerdict(look, base, dict(zip(("equal weight", "buy and hold"), plain, strict=False)), 252)


def minus(text):
    return text.replace("-", "\N{MINUS SIGN}")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            format_progress(state_after(34, 21, 0.11)),
            "Best of 34 tries: trial 21, Sharpe .81, .11 above the base. "
            "Luck alone reaches .13 after 34 tries. Nothing found yet.",
        ),
        (
            format_progress(KEPT),
            "Best of 34 tries: trial 29, Sharpe .94, .24 above the base (luck bar .13), the same with 3 seeds.",
        ),
        (
            format_progress(judge_trial(SearchState(BASE), SearchTrial("a", 1, None))[0]),
            "1 try, none with a result. Nothing found yet.",
        ),
        (
            format_nothing_found(state_after(50, 21, 0.11), 0),
            "50 tries, none above what luck reaches (.14). No look at the sealed window was spent: 0 so far.",
        ),
        (
            format_look(KEPT, verdict(1, (0.22, 0.08), (0.19, 0.08))),
            "Winner. On 5 sealed years never used before, trial 29 leads the base by .22 (95 % interval .06 to .38) "
            "and equal weight by .19 (.03 to .35). First look at this window; half of its 5 % allowance for false "
            "alarms is spent.",
        ),
        (
            format_look(KEPT, verdict(2, (0.05, 0.073), (0.05, 0.08))),
            minus(
                "Not confirmed. Trial 29 led by .24 on validation and by .05 (98.3 % interval -.13 to .23) on the "
                "sealed years. Second look: two thirds of the allowance are spent. By the error on the sealed years, a "
                "true lead below about .24 would mostly have been missed."
            ),
        ),
        (
            format_look(KEPT, verdict(1, (0.21, 0.08), (0.02, 0.085), (0.4, 0.1))),
            minus(
                "An improvement, no winner: trial 29 beats the base by .21 (.05 to .37), but not equal weight "
                "(.02, -.15 to .19). It is kept as a new base and not handed to trading."
            ),
        ),
    ],
    ids=["below", "above", "no result", "nothing found", "winner", "not confirmed", "improvement"],
)
def test_sentence_states_figures_of_session(sentence, expected):
    assert sentence == expected


@pytest.mark.parametrize(("look", "words"), [(6, "Sixth look: 86 % of the allowance is"), (11, "11th look: 92 %")])
def test_late_look_has_number_and_percent(look, words):
    assert words in format_look(KEPT, verdict(look, (0.05, 0.073)))


def test_number_of_trials_is_singular_or_plural():
    texts = [format_trials(*numbers) for numbers in ((1,), (0,), (0, 1), (1, 20))]
    assert texts == ["1 trial", "0 trials", "0 of 1 trial", "1 of 20 trials"]
