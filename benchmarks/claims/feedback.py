"""Ten thousand decisions from their file into the tables of decisions and outcomes."""

from datetime import UTC, datetime
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.claim import Goal, report
from benchmarks.storage_rows import scratch_store
from nvtrader_pipelines.desk.decision_outcomes import write_outcomes
from nvtrader_pipelines.desk.decision_rows import extract_decisions
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.preferences.decisions import HORIZON, DecisionRow, ProposedOrder
from nvtrader_pipelines.service.python_api import Pipeline
from nvtrader_pipelines.storage.decision_file import append_missing
from nvtrader_pipelines.storage.store import Store

N_DECISIONS = 10_000
N_NAMES = 20
N_ROUNDS = 5
KINDS = ("approved", "edited", "rejected", "overridden", "skipped")


def main() -> None:
    """Write the decisions to the file of a home with the sample market, then refresh both tables in every round."""
    with scratch_store() as (_, store):
        Pipeline.create(store.home.root).ingest(quiet=True)
        spec = ExperimentSpec(name="feedback")
        store.ledger.register(spec)
        rows = _decisions(store.panels.read(spec.market), spec)
        append_missing(store.home, lambda _: rows)
        rounds = [_refresh(store) for _ in range(N_ROUNDS + 1)]
    extracted, judged = zip(*rounds[1:], strict=True)
    report(
        "feedback_10000",
        median(sum(seconds) for seconds in rounds[1:]),
        "s",
        Goal(value_at_most=5.0),
        note=f"wall clock of {N_DECISIONS:,} decisions of {N_NAMES} names and cash on the sample market, median of "
        f"{N_ROUNDS}, from rebalance_decisions.jsonl into preferences.decisions {median(extracted):.2f} s, and their "
        f"outcomes computed and written to preferences.outcomes {median(judged):.2f} s; the first in a process took "
        f"{rounds[0][0]:.2f} and {rounds[0][1]:.2f} s",
    )


def _refresh(store: Store) -> tuple[float, float]:
    """Seconds of extracting the decisions, and of computing and writing their outcomes."""
    start = perf_counter()
    rows, refused = extract_decisions(store)
    extracted = perf_counter()
    outcomes = write_outcomes(store, rows, datetime.now(UTC))
    written = perf_counter()
    assert (len(outcomes.rows), len(refused), len(outcomes.problems)) == (N_DECISIONS, 0, 0)
    return extracted - start, written - extracted


def _decisions(panel: MarketPanel, spec: ExperimentSpec) -> list[DecisionRow]:
    """Decisions of random weights at random sessions with all names and a known outcome."""
    draw = np.random.default_rng(0)
    symbols = (*panel.symbols, "cash")
    sessions = panel.sessions[panel.eligible.all(axis=1)].tolist()[:-HORIZON]
    rows = []
    for n in range(N_DECISIONS):
        held, proposed, edited = draw.dirichlet(np.ones(len(symbols)), 3)
        kind = KINDS[n % len(KINDS)]
        chosen = {"approved": proposed, "edited": edited, "rejected": held, "overridden": held}.get(kind)
        changes = zip(panel.symbols, (proposed - held)[:-1].tolist(), strict=True)
        rows.append(
            DecisionRow(
                decision_id=f"{n:016x}",
                plan_id=f"{n:016x}",
                parent_id=f"{N_DECISIONS + n:016x}" if kind == "edited" else None,
                account="paper",
                session=sessions[draw.integers(len(sessions))],
                by="ann",
                at=datetime(2024, 1, 2, tzinfo=UTC),
                decision=kind,
                reason="too much of one sector",
                symbols=symbols,
                held_weights=held.tolist(),
                proposed_weights=proposed.tolist(),
                chosen_weights=None if chosen is None else chosen.tolist(),
                orders=tuple(
                    ProposedOrder(symbol=name, side="buy" if change > 0 else "sell", change=change, amount=1e5 * change)
                    for name, change in changes
                ),
                policy="ppo",
                run_id="0" * 16,
                partition_key=spec.partition_key,
                observation_hash=1,
                snapshot_ids={"gold.returns": 1},
                outcome_known=False,
            )
        )
    return rows


if __name__ == "__main__":
    main()
