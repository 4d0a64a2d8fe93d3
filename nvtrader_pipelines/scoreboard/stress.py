"""The stress test of scorecards: every entrant of a contest in the same worlds."""

from collections.abc import Callable, Sequence

import polars as pl

from nvtrader_pipelines.evaluation.backtest import Kind, PolicyAccount
from nvtrader_pipelines.evaluation.stress.scenario import OutOfSample, ScenarioUnavailable, StressedMarket
from nvtrader_pipelines.evaluation.stress.suite import SCENARIOS, StressTest, apply_scenarios
from nvtrader_pipelines.evaluation.stress.verdict import REFERENCE, stress_test
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.scoreboard.candidates import Candidate
from nvtrader_pipelines.scoreboard.harness import judging_environment
from nvtrader_pipelines.scoreboard.scorecard import Contest, StressResult

# Worlds drawn at random take sessions that no policy was trained on, which differ from entrant to entrant.
OWN = "entrant"  # its account, whatever it is called: 1/N is told by its rule, not by its name
OF_A_CARD = StressTest(scenarios=tuple(each for each in SCENARIOS if each.kind != "block_bootstrap"))


def stress_results(
    contest: Contest,
    candidates: Sequence[Candidate],
    returns: pl.DataFrame,
    tell: Callable[[str], None],
    stress: StressTest = OF_A_CARD,
) -> dict[str, tuple[StressResult, ...]]:
    """Entrant to what it did in each world, at the contest's fills and costs.

    Args:
        contest: whose sessions all entrants may be judged on.
        candidates: the entrants.
        returns: rows of `gold.returns` of the source.
        tell: hears what is done.
        stress: the scenarios, the window and the history, which is longer where an entrant looks back further.
    """
    window = [OutOfSample(0, contest.first_session, contest.last_session)]
    found: dict[str, tuple[StressResult, ...]] = {}
    for market in dict.fromkeys(each.market for each in candidates):
        own = [each for each in candidates if each.market == market]
        longer = stress.with_history(max(each.lookback for each in own))
        try:
            worlds = list(apply_scenarios(returns, window, longer, market.symbols, market.max_gap))
        except ValueError as error:
            found |= {each.name: _none(error) for each in own}
            continue
        for number, candidate in enumerate(own, start=1):
            tell(f"{candidate.name} ({number} of {len(own)}): {len(worlds)} stress worlds")
            found[candidate.name] = _results(contest, worlds, candidate)
    return found


def _results(
    contest: Contest, worlds: Sequence[StressedMarket | ScenarioUnavailable], candidate: Candidate
) -> tuple[StressResult, ...]:
    """Of one entrant, beside 1/N at its own cadence."""
    kind: Kind = "baseline" if candidate.kind == "baseline" else "ensemble"

    def who(stressed: StressedMarket) -> list[PolicyAccount]:
        days, n_blocks = stressed.panel.sessions, len(stressed.blocks)
        own = candidate.open(stressed.panel, (days[stressed.first].item(), days[stressed.last].item()))
        accounts: list[tuple[str, Kind, Policy]] = [(OWN, kind, own), (REFERENCE, "baseline", EqualWeight().start())]
        return [PolicyAccount(name, of, (None,) * n_blocks, (policy,) * n_blocks) for name, of, policy in accounts]

    try:
        table = stress_test(judging_environment(contest, candidate.rebal_freq), worlds, who, (ValueError,))
    except ValueError as error:
        return _none(error)
    return tuple(_result(row) for row in table.filter(pl.col("policy") == OWN).iter_rows(named=True))


def _none(error: ValueError) -> tuple[StressResult, ...]:
    """Where there is no world at all, why."""
    return (StressResult(scenario="none", note=str(error)),)


def _result(row: dict[str, object]) -> StressResult:
    return StressResult(
        scenario=str(row["scenario"]),
        total_return=_number(row["total_return"]),
        max_drawdown=_number(row["max_drawdown"]),
        difference=_number(row["difference_to_calm"]),
        over_equal_weight=_number(row["difference_to_equal_weight"]),
        note=str(row["note"] or ""),
    )


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None
