"""Stress test of scorecards: every entrant of a contest in the same stressed markets."""

import time
from collections.abc import Callable, Sequence

import polars as pl

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.evaluation.backtest import Kind, PolicyAccount
from nvtrader_pipelines.evaluation.stress.scenario import OutOfSample, PanelChoice, ScenarioUnavailable, StressedMarket
from nvtrader_pipelines.evaluation.stress.suite import SCENARIOS, StressTest, apply_scenarios
from nvtrader_pipelines.evaluation.stress.verdict import REFERENCE, stress_test
from nvtrader_pipelines.experiments.progress import Countdown
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.market.series import series_digest
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.scoreboard.contest_backtest import contest_environment
from nvtrader_pipelines.scoreboard.contest_results import pack_stress, stress_digest, unpack_stress
from nvtrader_pipelines.scoreboard.entrants import Entrant
from nvtrader_pipelines.scoreboard.scorecard import Contest, StressResult
from nvtrader_pipelines.storage.judgements import ResultStore

# Block bootstraps are left out: their unseen sessions differ from entrant to entrant.
OWN_ACCOUNT = "entrant"  # account name of any entrant, so that none collides with 1/N
CARD_STRESS_TEST = StressTest(scenarios=tuple(scenario for scenario in SCENARIOS if scenario.kind != "block_bootstrap"))


def stress_results(  # noqa: PLR0913 - prices and series of one source
    contest: Contest,
    entrants: Sequence[Entrant],
    returns: pl.DataFrame,
    report: Callable[[str], None],
    results: ResultStore,
    stress: StressTest = CARD_STRESS_TEST,
    series: pl.DataFrame | None = None,
) -> dict[str, tuple[StressResult, ...]]:
    """Run the stress test of every entrant at the contest's fills and costs; return results by entrant.

    The returns are rows of `gold.returns` of the source, the series those of `silver.series` that entrants read. The
    history of the test grows with the lookback of the entrants. Stored results are reused. `report` receives one
    progress line per test.
    """
    window = [OutOfSample(0, contest.first_session, contest.last_session)]
    longer = with_history_of(entrants, stress)
    found: dict[str, tuple[StressResult, ...]] = {}
    for market in dict.fromkeys(entrant.market for entrant in entrants):
        own = [entrant for entrant in entrants if entrant.market == market]
        test = canonical_json(longer) + series_digest(series, market.features)
        digests = {entrant.name: stress_digest(entrant, contest, test) for entrant in own}
        found |= {name: unpack_stress(known) for name, digest in digests.items() if (known := results.get(digest))}
        new = [entrant for entrant in own if entrant.name not in found]
        if not new:
            continue
        try:
            calendar = TradingCalendar(contest.calendar)
            choice = PanelChoice(calendar, market.symbols, market.max_gap, market.features, series)
            markets = list(apply_scenarios(returns, window, longer, choice))
        except ValueError as error:
            found |= {entrant.name: _no_results(error) for entrant in new}
            continue
        countdown = Countdown(len(new), time.monotonic)
        for entrant in new:
            found[entrant.name] = _results(contest, markets, entrant)
            results[digests[entrant.name]] = pack_stress(found[entrant.name])
            report(f"{entrant.name}: {len(markets)} stress scenarios ({countdown.count()})")
    return found


def with_history_of(entrants: Sequence[Entrant], stress: StressTest = CARD_STRESS_TEST) -> StressTest:
    """Stress test with enough history for the longest lookback of the entrants."""
    return stress.with_history(max(entrant.lookback for entrant in entrants))


def _results(
    contest: Contest, markets: Sequence[StressedMarket | ScenarioUnavailable], entrant: Entrant
) -> tuple[StressResult, ...]:
    """Results of one entrant, beside 1/N at the same cadence."""
    kind: Kind = "baseline" if entrant.kind == "baseline" else "ensemble"

    def accounts_in(stressed: StressedMarket) -> list[PolicyAccount]:
        days, n_blocks = stressed.panel.sessions, len(stressed.blocks)
        own = entrant.open(stressed.panel, (days[stressed.first].item(), days[stressed.last].item()))
        accounts: list[tuple[str, Kind, Policy]] = [
            (OWN_ACCOUNT, kind, own),
            (REFERENCE, "baseline", EqualWeight().start()),
        ]
        return [PolicyAccount(name, of, (None,) * n_blocks, (policy,) * n_blocks) for name, of, policy in accounts]

    try:
        table = stress_test(contest_environment(contest, entrant.rebal_freq), markets, accounts_in, (ValueError,))
    except ValueError as error:
        return _no_results(error)
    return tuple(_result(row) for row in table.filter(pl.col("policy") == OWN_ACCOUNT).iter_rows(named=True))


def _no_results(error: ValueError) -> tuple[StressResult, ...]:
    """Result that carries only the reason why there is no scenario."""
    return (StressResult(scenario="none", note=str(error)),)


def _result(row: dict[str, object]) -> StressResult:
    return StressResult(
        scenario=str(row["scenario"]),
        total_return=_float_or_none(row["total_return"]),
        max_drawdown=_float_or_none(row["max_drawdown"]),
        difference=_float_or_none(row["difference_to_unstressed"]),
        over_equal_weight=_float_or_none(row["difference_to_equal_weight"]),
        note=str(row["note"] or ""),
    )


def _float_or_none(value: object) -> float | None:
    return value if isinstance(value, float) else None
