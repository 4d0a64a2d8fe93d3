"""Every experiment's newest policy before the promotion gate, one after the other."""

from dataclasses import dataclass, field

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.promotion.decide import Clock, activation_command, evaluate_candidate, label
from nvtrader_pipelines.promotion.library import find_policy
from nvtrader_pipelines.promotion.log import PromotionRow, read_promotions, read_promotions_of
from nvtrader_pipelines.promotion.verification import sealed_run
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store


def newest_runs(store: Store) -> pl.DataFrame:
    """The last completed run of each experiment that may trade, the one completed last at the end: experiment, run_id.

    Runs for validation only are left out: their policies may know what came after their tests.
    """
    runs = walk_forward_runs(store).filter(~pl.col("validation_only")).sort("finished_at", "run_id")
    return runs.unique("experiment", keep="last", maintain_order=True).select("experiment", "run_id")


def newer_run_message(store: Store, active: ActivePolicy) -> str | None:
    """What became of the last run of the active policy's experiment, in words; None where that run trades."""
    experiment = active.partition_key.partition("@")[0]
    run_id = dict(newest_runs(store).iter_rows()).get(experiment, active.run_id)
    if run_id == active.run_id:
        return None
    ref = PolicyRef(run_id, experiment)
    asked = read_promotions_of(store, ref).filter(
        active_run_id=active.run_id, active_policy=active.policy, decision="gate"
    )
    last = asked["sentence"][0] if len(asked) else "the gate was not asked yet: `nvtrader policies promote`"
    said = _replaced_by_a_person(store, ref) or last
    newer = f"run {short_id(run_id)} of {experiment} is newer than the one that trades"
    return f"{newer}: {said}; to let it trade all the same: {activation_command(ref)}"


@dataclass(frozen=True)
class PromotionRound:
    """What the gate said of each, and why some could not be put before it, by experiment."""

    answers: list[PromotionRow] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What the gate said, in one line."""
        left_out = f"; not asked about {', '.join(self.problems)}" if self.problems else ""
        promoted = [answer for answer in self.answers if answer.activated]
        if promoted:
            return f"{promoted[-1].verdict.sentence}{left_out}"
        if not self.answers:
            return f"no run may trade yet{left_out}"
        rest = f" (and {len(self.answers) - 1} more)" if len(self.answers) > 1 else ""
        return f"{self.answers[-1].verdict.sentence}{rest}{left_out}"


def evaluate_newest(store: Store, by: str, clock: Clock) -> PromotionRound:
    """Ask the gate about each of `newest_runs`; who passes decides from the next close on, and the next must beat it.

    One whose policies are not there any more, or that a person replaced, is a problem of its own and keeps nobody else
    away.

    Raises:
        StorageError: as `consider`; the answers given before are kept.
    """
    found = PromotionRound()
    for experiment, run_id in newest_runs(store).iter_rows():
        try:
            ref = find_policy(store, run_id)
            sealed_run(store, ref)
        except StorageError as error:
            found.problems[experiment] = str(error)
            continue
        replaced = _replaced_by_a_person(store, ref)
        if replaced:
            found.problems[experiment] = replaced
        else:
            found.answers.append(evaluate_candidate(store, run_id, by, clock))
    return found


def _replaced_by_a_person(store: Store, ref: PolicyRef) -> str | None:
    """How a person took a policy out of trading, in words; None where nobody did, or it was put forward since."""
    rows = read_promotions(store).filter("activated").sort("considered_at")
    ours = (pl.col("run_id") == ref.run_id) & (pl.col("policy") == ref.policy)
    before = (pl.col("active_run_id") == ref.run_id) & (pl.col("active_policy") == ref.policy)
    moves = rows.filter(ours | before).tail(1).filter(before, decision="person").to_dicts()
    if not moves:
        return None
    (move,) = moves
    reason = f" ({move['reason']})" if move["reason"] else ""
    return (
        f"{move['by']} replaced {label(ref)} by {label(PolicyRef(move['run_id'], move['policy']))} on "
        f"{move['considered_at']:%Y-%m-%d}{reason}, which is not undone without a person: `nvtrader policies promote "
        f"{short_id(ref.run_id)}` asks the gate again"
    )
