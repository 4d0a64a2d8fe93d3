"""Track records of policies for the promotion gate, read from their runs' tests."""

from collections.abc import Sequence
from functools import cached_property

import polars as pl

from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.calendar import Calendars
from nvtrader_pipelines.portfolio.costs import CostModel
from nvtrader_pipelines.promotion.eligibility import UNTESTED
from nvtrader_pipelines.promotion.gate import TrackRecord
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, RUNS

_CANDIDATES_PER_READ = 64  # bounds the curves in memory


class TrackRecords:
    """Track records of candidates, judged in turn, and of the policies active meanwhile; tables are read once."""

    def __init__(self, store: Store, candidates: Sequence[PolicyRef]) -> None:
        self._store, self._candidates = store, candidates
        self._active: dict[PolicyRef, TrackRecord] = {}
        self._curves: dict[str, pl.DataFrame] = {}  # by run: active policies, next candidates

    def read(self, ref: PolicyRef) -> TrackRecord:
        """Read net returns of a policy and its run's baselines, in the reported period if it has tests there.

        Raises:
            StorageError: if the run was not tested to the end.
            CodeMismatchError: if this code reads its experiment differently.
            ValueError: if its returns are not a valid track record.
        """
        store = self._store
        spec = store.ledger.read(store.ledger.run(ref.run_id).partition_key)
        rows = self._net_returns(ref).filter(spec_hash=spec.spec_hash)
        period = "all"
        if spec.report_from is not None and len(reported := rows.filter(pl.col("session") >= spec.report_from)):
            period, rows = f"from_{spec.report_from.year}", reported
        own = rows.filter(pl.col("policy") == ref.policy, pl.col("kind") != "baseline")
        self.require_tested(ref)
        baselines = rows.filter(pl.col("kind") == "baseline").partition_by("policy", as_dict=True, maintain_order=True)
        return TrackRecord(
            name=ref.label,
            sessions=own["session"].to_numpy().astype("datetime64[D]"),
            net=own["net_return"].to_numpy(),
            baselines={str(name): item["net_return"].to_numpy() for (name,), item in sorted(baselines.items())},
            periods_per_year=self._calendars.of(spec.market.source).periods_per_year,
            period=period,
            terms=_trading_terms(spec),
        )

    def read_active(self, ref: PolicyRef) -> TrackRecord:
        """Read the track record of the active policy.

        Raises:
            StorageError: if it has no valid track record.
        """
        try:
            if ref not in self._active:
                self._active[ref] = self.read(ref)
            return self._active[ref]
        except (StorageError, ValueError) as error:
            raise StorageError(
                f"it cannot be compared with the active policy {ref.label}: {error}; until then only a person can "
                "replace it: `nvtrader policies activate`"
            ) from error

    def require_tested(self, ref: PolicyRef) -> None:
        """Raise if a policy has no returns of its tests, or its run did not finish."""
        own = self._net_returns(ref).filter(pl.col("policy") == ref.policy, pl.col("kind") != "baseline")
        if own.is_empty() or ref.run_id not in self._judged_runs:
            raise StorageError(f"{ref.label} {UNTESTED.format(ref.policy.partition('/')[0])}")

    def _net_returns(self, ref: PolicyRef) -> pl.DataFrame:
        """Net returns of a run; a candidate's are read with those of the next candidates.

        Planning a read costs more than reading its rows.
        """
        if ref.run_id not in self._curves:
            first = self._candidates.index(ref) if ref in self._candidates else len(self._candidates)
            ahead = self._candidates[first : first + _CANDIDATES_PER_READ]
            if ahead:
                self._curves.clear()
            run_ids = {ref.run_id, *(run.run_id for run in ahead)}
            columns = ["spec_hash", "run_id", "policy", "kind", "session", "net_return"]
            rows = self._store.tables.read(EQUITY_CURVES, {"run_id": sorted(run_ids)}, columns).sort("session")
            self._curves.update({run_id: rows.filter(run_id=run_id) for run_id in run_ids})
        return self._curves[ref.run_id]

    @cached_property
    def _judged_runs(self) -> set[str]:
        """Runs with the row that is written last."""
        return set(self._store.tables.read(RUNS, columns=["run_id"])["run_id"])

    @cached_property
    def _calendars(self) -> Calendars:
        return self._store.read_calendars()


def _trading_terms(spec: ExperimentSpec) -> dict[str, str]:
    """Terms that must be equal for returns to be comparable."""
    return {
        "market": spec.market.source,
        "fill": spec.environment.fill,
        "cost of trading": " and ".join(sorted(map(_format_cost_model, spec.environment.cost_models))) or "none",
    }


def _format_cost_model(model: CostModel) -> str:
    """Format a cost model for a sentence, with unrounded numbers so that different models differ."""
    settings = [f"{name} {value}".replace("_", " ") for name, value in model if name != "kind"]
    return f"{model.kind.replace('_', ' ')} ({', '.join(settings)})"
