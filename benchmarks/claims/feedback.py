"""Ten thousand decisions from the audit into the tables of decisions and outcomes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.claim import Goal, report
from benchmarks.storage_rows import scratch_store
from nvtrader_pipelines.execution.audit import AuditEvent, EventDetails, plan_event
from nvtrader_pipelines.execution.decisions import EDITED
from nvtrader_pipelines.execution.plan import RebalancePlan, Stage
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.feedback.decisions import extract_decisions
from nvtrader_pipelines.feedback.outcomes import write_outcomes
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.preferences.decisions import HORIZON
from nvtrader_pipelines.service.python_api import Pipeline
from nvtrader_pipelines.storage.store import Store

N_DECISIONS = 10_000
N_NAMES = 20
N_ROUNDS = 5
KINDS = ("approved", "edited", "rejected", "overridden", "skipped")


def main() -> None:
    """Write the decisions to the audit of a home with the sample market, then refresh both tables in every round."""
    with scratch_store() as (_, store):
        Pipeline.create(store.home.root, quiet=True).ingest()
        spec = ExperimentSpec(name="feedback")
        store.ledger.register(spec)
        store.audit.append(list(_events(store.panels.read(spec.market), spec)))
        rounds = [_refresh(store) for _ in range(N_ROUNDS + 1)]
    extracted, judged = zip(*rounds[1:], strict=True)
    report(
        "feedback_10000",
        median(sum(seconds) for seconds in rounds[1:]),
        "s",
        Goal(value_at_most=5.0),
        note=f"wall clock of {N_DECISIONS:,} decisions of {N_NAMES} names and cash on the sample market, median of "
        f"{N_ROUNDS}, from the audit into preferences.decisions {median(extracted):.2f} s, and their "
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


def _events(panel: MarketPanel, spec: ExperimentSpec) -> Iterator[AuditEvent]:
    """Plans of random weights at random sessions with all names and a known outcome, and a decision on each."""
    draw = np.random.default_rng(0)
    symbols, at = (*panel.symbols, "cash"), datetime(2024, 1, 2, tzinfo=UTC)
    sessions = panel.sessions[panel.eligible.all(axis=1)].tolist()[:-HORIZON]
    for n in range(N_DECISIONS):
        held, proposed, edited = draw.dirichlet(np.ones(len(symbols)), 3).tolist()
        plan = RebalancePlan(
            plan_id=f"{n:016x}",
            account="paper",
            session=sessions[draw.integers(len(sessions))],
            policy="ppo",
            run_id="0" * 16,
            partition_key=spec.partition_key,
            spec_hash="0" * 64,
            fold=1,
            seeds=(0,),
            snapshot_ids={"gold.returns": 1},
            symbols=symbols,
            held=held,
            stages=(Stage(name="policy", weights=proposed),),
            truncated=False,
            observation_hash=1,
        )
        own = plan.model_copy(
            update={
                "plan_id": f"{N_DECISIONS + n:016x}",
                "parent_id": plan.plan_id,
                "stages": (Stage(name="edited", weights=edited),),
            }
        )
        kind = KINDS[n % len(KINDS)]
        detail = {"account_value": 1e5} | ({EDITED: own.plan_id} if kind == "edited" else {})
        about = EventDetails(reason="too much of one sector", detail=detail)
        yield _constructed(plan, at)
        yield plan_event("overridden" if kind == "edited" else kind, plan, at, "ann", about)
        if kind == "edited":
            yield _constructed(own, at)


def _constructed(plan: RebalancePlan, at: datetime) -> AuditEvent:
    return plan_event("constructed", plan, at, "trader", EventDetails(detail={"plan": plan.model_dump(mode="json")}))


if __name__ == "__main__":
    main()
