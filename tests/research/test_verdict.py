from dataclasses import replace

import pytest

from nvtrader_pipelines.evaluation.sharpe.lead import Lead, t_quantile
from nvtrader_pipelines.research.verdict import (
    ALLOWANCE,
    LookVerdict,
    Outcome,
    Reruns,
    SearchBase,
    SearchState,
    SearchTrial,
    Standing,
    is_confirmed,
    judge_reruns,
    judge_trial,
    look_level,
    require_sealed_window,
    share_spent,
    smallest_confirmed_lead,
)
from tests.evaluation.golden import golden

VECTORS = golden("search_verdict")
BASE = SearchBase("base", (0.75, 0.65, 0.75, 0.65, 0.7))  # variance 0.0025


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def trial(key, difference, n_changes=1):
    return SearchTrial(key, n_changes, Lead(difference, 0.06, 96))


def judged(*trials):
    state = SearchState(BASE)
    for each in trials:
        state, _ = judge_trial(state, each)
    return state


def assert_reruns(decision, expected):
    figures = decision.seed_deviation, decision.fresh_lead, decision.required_lead
    assert figures == close((expected["seed_sd"], expected["ahead"], expected["need"]))
    assert decision.standing == expected["verdict"]


@pytest.mark.parametrize("case", VECTORS["session"], ids=lambda case: case["name"])
def test_session_decides_as_reference(case):
    base = SearchBase("base", tuple(case["base_sharpe"] + each - 0.7 for each in BASE.sharpes))
    state = SearchState(base, frozenset(f"earlier {i}" for i in range(case["n_before"])))
    reruns = {}
    for row, expected in zip(case["rows"], case["expected"], strict=True):
        lead = None if row.get("pruned") else Lead(row["seeds"][0] - case["base_sharpe"], row["se1"], 96)
        state, decision = judge_trial(state, SearchTrial(row["config"], 1, lead))
        assert (decision.is_counted, decision.n_configurations) == (expected["counted"], expected["N"])
        if not decision.is_counted:
            assert decision.standing == expected["verdict"] == "known"
            continue
        assert decision.bar == close(expected["bar"])
        if lead:
            assert lead.t == close(expected["t1"])
        if "rerun" in row:
            mean = (row["seeds"][0] + sum(row["rerun"])) / 3
            reruns[row["config"]] = Reruns(tuple(row["rerun"]), Lead(mean - case["base_sharpe"], row["se3"], 96))
        if decision.standing == Standing.RERUN:
            assert reruns[row["config"]].lead.t == close(expected["t3"])
            state, rerun = judge_reruns(state, row["config"], reruns[row["config"]])
            assert_reruns(rerun, expected)
        else:
            assert decision.standing == expected["verdict"]
    assert state.finalists == [closing["config"] for closing in case["closing"]]
    for closing in case["closing"]:
        state, rerun = judge_reruns(state, closing["config"], reruns[closing["config"]])
        assert_reruns(rerun, closing)
    kept = case["kept"]
    assert (state.kept and state.kept.key) == kept["config"]
    if state.kept:
        assert state.kept.current_lead.t == close(kept["t"])
        assert base.sharpe + state.kept.current_lead.difference == close(kept["mean"])
    assert (state.n_configurations, state.is_above_luck) == (case["looks_counted"], case["ask_sealed"])


def test_configuration_of_earlier_session_is_judged_but_not_counted():
    state, decision = judge_trial(SearchState(BASE, frozenset({"a", "b"})), trial("a", 0.15))
    assert (decision.standing, decision.is_counted, decision.n_configurations) == (Standing.RERUN, False, 2)
    assert set(state.trials) == {"a"}


def test_finalists_are_five_highest_and_simpler_first_among_equals():
    state = judged(*(trial(f"{i}", 0.14 + 0.01 * i) for i in range(6)), trial("complex", 0.19, 4), trial("low", 0.1))
    assert state.finalists == ["5", "complex", "4", "3", "2"]
    state, _ = judge_reruns(state, "4", Reruns((0.7, 0.7), Lead(0.1, 0.05, 96)))
    assert state.finalists == ["5", "complex", "3", "2"]


@pytest.mark.parametrize(("n_changes", "kept"), [(1, "second"), (3, "first")])
def test_equal_leads_keep_the_simpler_trial(n_changes, kept):
    state = judged(trial("first", 0.2, 2), trial("second", 0.2, n_changes))
    for key in state.trials:
        state, _ = judge_reruns(state, key, Reruns((0.9, 0.9), Lead(0.2, 0.05, 96)))
    assert state.kept.key == kept


def test_best_trial_is_no_seed_noise_and_has_a_lead():
    state = judged(trial("lucky", 0.3), trial("low", 0.05), SearchTrial("pruned", 1, None))
    assert state.best.key == "lucky"
    state, _ = judge_reruns(state, "lucky", Reruns((0.7, 0.7), Lead(0.25, 0.05, 96)))
    assert (state.trials["lucky"].standing, state.best.key, state.kept) == (Standing.SEED_NOISE, "low", None)
    assert judged(SearchTrial("pruned", 1, None)).best is None


def test_trial_without_results_of_reruns_is_never_best_nor_rerun_again():
    state, decision = judge_reruns(judged(trial("failed", 0.3), trial("low", 0.05)), "failed", Reruns())
    assert (decision.standing, decision.fresh_lead) == (Standing.NOT_ABOVE_AFTER_RERUNS, None)
    assert (state.kept, state.best.key, state.finalists) == (None, "low", [])
    state, decision = judge_reruns(judged(trial("failed", 0.3)), "failed", Reruns())
    assert state.best is None


@pytest.mark.parametrize("case", VECTORS["level"], ids=lambda case: str(case["look"]))
def test_look_level_equals_reference(case):
    level = look_level(case["look"])
    assert (level, 1 - 2 * level) == close((case["level"], case["interval"]))
    assert ALLOWANCE * share_spent(case["look"]) == close(case["spent"])
    for degrees, t in case["t_needed_df"].items():
        assert t_quantile(level, int(degrees) + 1) == close(t)


@pytest.mark.parametrize("case", VECTORS["sessions_on_one_window"], ids=lambda case: str(case["p"]))
def test_looks_at_one_window_claim_as_reference(case):
    p_values = [p for p in case["p"] if p is not None]
    expected = [each for each in case["expected"] if each["look"] is not None]
    for look, (p, each) in enumerate(zip(p_values, expected, strict=True), start=1):
        assert (look, look_level(look)) == close((each["look"], each["level"]))
        assert is_confirmed(p, look) == each["claim"]


@pytest.mark.parametrize("case", VECTORS["lead"], ids=lambda case: case["name"])
def test_sealed_p_values_claim_as_reference(case):
    sealed = case["sealed"]
    assert {look: is_confirmed(sealed["p"], int(look)) for look in sealed["claim_at_look"]} == sealed["claim_at_look"]


@pytest.mark.parametrize(
    ("over_base", "over_plain", "outcome", "not_beaten"),
    [
        (0.2, (0.18, 0.19), Outcome.WINNER, []),
        (0.2, (0.18, 0.02), Outcome.IMPROVEMENT, ["buy and hold"]),
        (0.05, (0.18, 0.19), Outcome.NOT_CONFIRMED, []),
    ],
)
def test_winner_leads_base_and_every_plain_baseline(over_base, over_plain, outcome, not_beaten):
    leads = [Lead(difference, 0.08, 60) for difference in (over_base, *over_plain)]
    verdict = LookVerdict(1, leads[0], dict(zip(("equal weight", "buy and hold"), leads[1:], strict=True)), 252)
    assert (verdict.outcome, verdict.not_beaten) == (outcome, not_beaten)
    assert replace(verdict, look=3).outcome == Outcome.NOT_CONFIRMED


@pytest.mark.parametrize(("tracking", "years", "lead"), [(0.16, 5, 0.2), (0.16, 13, 0.13), (0.42, 5, 0.53)])
def test_smallest_confirmed_lead_follows_tracking_and_years(tracking, years, lead):
    assert smallest_confirmed_lead(tracking / years**0.5, 12 * years, 1) == pytest.approx(lead, abs=0.005)


@pytest.mark.parametrize("year", [252, 365])
def test_sealed_window_under_a_year_is_refused(year):
    require_sealed_window(year, year)
    with pytest.raises(ValueError):
        require_sealed_window(year - 1, year)
