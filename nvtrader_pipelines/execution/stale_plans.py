"""Plans whose policy, holdings or prices changed after they were made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from nvtrader_pipelines.components.text import name_symbols
from nvtrader_pipelines.execution.book import MIN_HOLDING, AccountState
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.experiments.sealed_run import PolicyRef

MAX_HOLDINGS = 3  # holdings of a sentence
RETURN_ROUNDING = 1e-4  # vendors round adjusted prices, which every dividend rescales
RETURN_COLUMNS = ["close_return", "overnight_return"]


@dataclass(frozen=True)
class PlanChanges:
    """Changes of a plan's inputs since it was made; the defaults are no change."""

    policy: PolicyRef | None = None  # active policy, where it is another one than the plan's
    holdings: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # weights then and now, by symbol
    revised: tuple[str, ...] = ()  # symbols whose prices of the plan's session were corrected

    def sentences(self, plan: RebalancePlan) -> list[str]:
        """Describe each change as a part of a sentence."""
        parts = []
        if self.policy is not None:
            parts.append(
                f"the active policy is {self.policy.policy} of run {self.policy.run_id} instead of {plan.policy} of "
                f"run {plan.run_id}"
            )
        if self.holdings:
            largest = sorted(self.holdings.items(), key=lambda item: -abs(item[1][1] - item[1][0]))[:MAX_HOLDINGS]
            moves = (f"{symbol} from {then:.2%} to {now:.2%}" for symbol, (then, now) in largest)
            parts.append(f"the holdings changed ({', '.join(moves)})")
        if self.revised:
            parts.append(f"the prices of {plan.session} were corrected for {name_symbols(self.revised)}")
        return parts


class StalePlan(ExecutionError):  # noqa: N818 - named as the plan is
    """Plan whose policy, holdings or prices changed after it was made."""

    def __init__(self, plan: RebalancePlan, decision: str, changes: PlanChanges) -> None:
        self.plan_id, self.changes = plan.plan_id, changes
        super().__init__(
            f"a plan can be {decision} while what it was made from is unchanged, but since plan {plan.plan_id} was "
            f"made, {', and '.join(changes.sentences(plan))}; reject it, or wait for the next plan"
        )


def changed_holdings(plan: RebalancePlan, state: AccountState) -> dict[str, tuple[float, float]]:
    """Weights by symbol when the plan was made and at the account's last close, where they differ.

    A plan copies the weights of the state at its session, so those of an unchanged account are equal to the last bit.
    """
    then = dict(zip(plan.symbols, plan.held, strict=True))
    now = dict(zip(state.symbols, state.weights, strict=True))
    pairs = {symbol: (then.get(symbol, 0.0), now.get(symbol, 0.0)) for symbol in sorted({*then, *now})}
    return {symbol: pair for symbol, pair in pairs.items() if abs(pair[1] - pair[0]) > MIN_HOLDING}


def revised_symbols(before: pl.DataFrame, after: pl.DataFrame) -> tuple[str, ...]:
    """Symbols whose prices of one session were corrected, given their rows of `gold.returns` then and now.

    A price counts as corrected if a return of the session changed by more than a basis point, or its bar was added or
    removed. Later sessions change no row of the session, and a dividend or split that rescales the history no return.
    """
    rows = before.join(after, on="symbol", how="full", coalesce=True, suffix="_after")
    unequal = (
        ((pl.col(name) - pl.col(f"{name}_after")).abs() > RETURN_ROUNDING).fill_null(
            pl.col(name).is_null() != pl.col(f"{name}_after").is_null()
        )
        for name in RETURN_COLUMNS
    )
    return tuple(rows.filter(pl.any_horizontal(unequal))["symbol"].sort())
