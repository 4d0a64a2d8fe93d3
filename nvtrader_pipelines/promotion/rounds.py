"""Promotion rounds: the gate judges every experiment's newest policy, one after the other."""

from dataclasses import dataclass, field

import polars as pl

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.promotion.decision_log import PromotionRow, read_promotions, read_promotions_of
from nvtrader_pipelines.promotion.eligibility import sealed_run
from nvtrader_pipelines.promotion.policy_cards import find_policy
from nvtrader_pipelines.promotion.promote import Clock, activation_command, evaluate_candidates
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store


def newest_runs(store: Store) -> pl.DataFrame:
    """Read the last completed run of each experiment, by finish time: experiment, run_id.

    Validation-only runs are left out: their policies may have been trained on sessions after their tests. Archived
    experiments are left out too.
    """
    archived = pl.col("experiment").is_in(list(store.ledger.archived_names()))
    runs = walk_forward_runs(store).filter(~pl.col("validation_only"), ~archived).sort("finished_at", "run_id")
    return runs.unique("experiment", keep="last", maintain_order=True).select("experiment", "run_id")


def newer_run_message(store: Store, active: ActivePolicy) -> str | None:
    """Describe the decision on a newer run of the active policy's experiment; None without one."""
    experiment = active.partition_key.partition("@")[0]
    run_id = dict(newest_runs(store).iter_rows()).get(experiment, active.run_id)
    if run_id == active.run_id:
        return None
    ref = PolicyRef(run_id, experiment)
    decisions = read_promotions_of(store, ref).filter(
        active_run_id=active.run_id, active_policy=active.policy, decision="gate"
    )
    last = decisions["sentence"][0] if len(decisions) else "the gate has not judged it yet: `nvtrader policies promote`"
    verdict = _replacement_message(read_promotions(store), ref) or last
    newer = f"run {short_id(run_id)} of {experiment} is newer than the active one"
    return f"{newer}: {verdict}; to activate it by hand: {activation_command(ref)}"


@dataclass(frozen=True)
class PromotionRound:
    """Decisions of the gate, and reasons of the experiments it could not judge."""

    decisions: list[PromotionRow] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Last promotion, or the last decision, in one line."""
        left_out = f"; not judged: {', '.join(self.problems)}" if self.problems else ""
        promoted = [decision for decision in self.decisions if decision.activated]
        if promoted:
            return f"{promoted[-1].verdict.sentence}{left_out}"
        if not self.decisions:
            return f"no policy to judge yet{left_out}"
        rest = f" (and {len(self.decisions) - 1} more)" if len(self.decisions) > 1 else ""
        return f"{self.decisions[-1].verdict.sentence}{rest}{left_out}"


def evaluate_newest(store: Store, by: str, clock: Clock) -> PromotionRound:
    """Let the gate judge each of `newest_runs`; one that passes becomes active and must be beaten by the next.

    A run whose policies are missing, or that a person replaced, is reported as a problem and skipped.

    Raises:
        StorageError: as `evaluate_candidates`.
    """
    promotion_round = PromotionRound()
    rows, candidates = read_promotions(store), []
    for experiment, run_id in newest_runs(store).iter_rows():
        try:
            ref = find_policy(store, run_id)
            sealed_run(store, ref)
        except StorageError as error:
            promotion_round.problems[experiment] = str(error)
            continue
        obstacle = _replacement_message(rows, ref)
        if obstacle:
            promotion_round.problems[experiment] = obstacle
            continue
        candidates.append(ref)
    promotion_round.decisions.extend(evaluate_candidates(store, candidates, by, clock))
    return promotion_round


def _replacement_message(decisions: pl.DataFrame, ref: PolicyRef) -> str | None:
    """Describe how a person replaced a policy; None if none did, or it was activated again since."""
    rows = decisions.filter("activated").sort("considered_at")
    ours = (pl.col("run_id") == ref.run_id) & (pl.col("policy") == ref.policy)
    before = (pl.col("active_run_id") == ref.run_id) & (pl.col("active_policy") == ref.policy)
    moves = rows.filter(ours | before).tail(1).filter(before, decision="person").to_dicts()
    if not moves:
        return None
    (move,) = moves
    reason = f" ({move['reason']})" if move["reason"] else ""
    return (
        f"{move['by']} replaced {ref.label} by {PolicyRef(move['run_id'], move['policy']).label} on "
        f"{move['considered_at']:%Y-%m-%d}{reason}, which only a person can undo: `nvtrader policies promote "
        f"{short_id(ref.run_id)}` lets the gate judge it again"
    )
