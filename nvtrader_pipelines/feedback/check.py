"""Check of a tuned run: whether its policies order held-out portfolios better than chance."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.policies.agents import DpoAgent
from nvtrader_pipelines.policies.archive import read_archive
from nvtrader_pipelines.preferences.holdout_auc import (
    CalibrationBin,
    HoldoutAuc,
    calibration,
    holdout_auc,
    n_missing,
    orient,
)
from nvtrader_pipelines.preferences.pairs import REPORT
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.preference_tuning import pairs_of_fold, read_tuning, trained_pairs
from nvtrader_pipelines.runs.run_tables import read_run, replace_run
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.pair_files import read_pairs
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DPO_CHECKS, DPO_EPOCHS, PREFERENCE_PAIRS

STUCK = 1e-3  # a loss this close to its beginning has not moved
MAX_WINNERS = 10
FIGURES = ("loss", "log_ratio_chosen", "log_ratio_rejected", "margin", "accuracy", "kl")


@dataclass(frozen=True, eq=False)
class TuningCheck:
    """Verdict on a tuned run, with what it rests on."""

    run_id: str
    experiment: str
    start: str
    auc: HoldoutAuc
    auc_before: float | None  # of the check before
    kl: float
    n_missing: int
    notes: tuple[str, ...]  # on the training
    calibration: tuple[CalibrationBin, ...]
    epochs: pl.DataFrame  # columns of `PREFERENCE_EPOCH`, mean over folds and seeds
    rejected_winners: pl.DataFrame  # session, decision_id, margin: what people rejected and the market preferred

    @property
    def sentence(self) -> str:
        """Verdict in a sentence."""
        auc = self.auc
        figures = f"hold-out AUC {auc.auc:.2f} [{auc.low:.2f}, {auc.high:.2f}] on {auc.n_decisions} decisions"
        if auc.is_above_chance:
            return f"{figures}: the tuned policies order portfolios better than chance"
        if auc.high < 0.5:
            return f"{figures}: the tuned policies order portfolios worse than chance"
        missing = f"; {self.n_missing} decisions are missing to tell 0.55 from 0.5" if self.n_missing else ""
        return f"{figures}: its interval contains 0.5, so the pairs do not order portfolios better than chance{missing}"


def check_tuning(store: Store, run: SealedRun, now: datetime) -> TuningCheck:
    """Score the reported pairs by a tuned run's policies, and replace the run's row of checks.

    Raises:
        StorageError: if the run tunes nothing, its pairs or start are missing, or too few pairs are held out.
    """
    plan = reopen_plan(store, run)
    agent = plan.spec.agent
    if not isinstance(agent, DpoAgent) or agent.pairs is None or agent.start is None:
        raise StorageError(
            f"a check needs a run of dpo, but {run.experiment} is trained by {agent.kind}; tune it with "
            f"`nvtrader preferences train {run.experiment}`"
        )
    pairs = read_pairs(store.home, agent.pairs)
    gains, reported = _reported_gains(store, plan, run, agent, pairs)
    scores, is_first = orient(gains, reported["pair_id"].to_list())
    weeks = reported["session"].dt.truncate("1w").to_numpy().astype("datetime64[D]")  # outcomes overlap within one
    try:
        auc = holdout_auc(scores, is_first, weeks)
    except ValueError as error:
        raise StorageError(f"run {run.run_id} cannot be checked: {error}") from error
    epochs = read_run(store, DPO_EPOCHS, run)
    untrained = epochs.filter(epoch=0, split="train")  # of all folds and seeds
    first_loss = float(untrained["loss"].mean())  # type: ignore[arg-type] - a column of numbers
    kept = _kept_epochs(epochs)
    check = TuningCheck(
        run_id=run.run_id,
        experiment=run.experiment,
        start=agent.start,
        auc=auc,
        auc_before=_auc_before(store, run),
        kl=kept["kl"],
        n_missing=n_missing(auc.n_decisions),
        notes=_notes(first_loss, kept),
        calibration=tuple(calibration(scores, is_first, agent.beta)),
        epochs=_mean_epochs(epochs),
        rejected_winners=pairs.filter(pl.col("swapped"))
        .sort("margin", descending=True)
        .select("session", "decision_id", "margin")
        .head(MAX_WINNERS),
    )
    _write(store, run, check, agent.pairs, trained_pairs(plan, pairs), now)
    return check


def _reported_gains(
    store: Store, plan: RunPlan, run: SealedRun, agent: DpoAgent, pairs: pl.DataFrame
) -> tuple[np.ndarray, pl.DataFrame]:
    """Gains of reachable reported pairs, mean over the seeds of each fold, and the pairs."""
    from nvtrader_pipelines.policies.agents.dpo_training import pair_gains

    archives, gains, frames = store.policies.read_run(run), [], []
    for fold in plan.folds:
        reported = pairs_of_fold(plan, pairs, fold.index, [REPORT])
        of_seeds = [
            pair_gains(
                agent,
                plan.spec.environment,
                plan.panel,
                read_tuning(store, plan, agent, (fold.index, seed), (REPORT,)),
                read_archive(archives[fold.index, seed])[1],
            )
            for seed in plan.spec.seeds
        ]
        mean = np.mean(of_seeds, axis=0)
        gains.append(mean[~np.isnan(mean)])
        frames.append(reported.filter(pl.Series(~np.isnan(mean), dtype=pl.Boolean)))
    return np.concatenate(gains), pl.concat(frames)


def _mean_epochs(epochs: pl.DataFrame) -> pl.DataFrame:
    """Means over folds and seeds; a training that ended early counts with its last epoch."""
    last = epochs["epoch"].max()
    every = pl.DataFrame({"epoch": range(int(str(last)) + 1)}, schema={"epoch": pl.Int32})
    trainings = epochs.select("fold", "seed", "split").unique(maintain_order=True)
    filled = (
        trainings.join(every, how="cross")
        .join(epochs, on=["fold", "seed", "split", "epoch"], how="left", maintain_order="left")
        .with_columns(pl.all().exclude("fold", "seed", "split", "epoch").forward_fill().over("fold", "seed", "split"))
    )
    return filled.group_by("split", "epoch", maintain_order=True).agg(pl.col("n_pairs").sum(), pl.col(FIGURES).mean())


def _kept_epochs(epochs: pl.DataFrame) -> dict[str, float]:
    """Means over folds and seeds at the epochs whose policies were kept: those of the lowest loss, or the last."""
    key = ("fold", "seed")
    best = epochs.filter(split="stop").sort("loss", "epoch").group_by(key, maintain_order=True).first()
    last = epochs.sort("epoch", descending=True).group_by(key, maintain_order=True).first()
    kept = pl.concat([best, last]).unique(key, keep="first", maintain_order=True).select(*key, "epoch")
    train = epochs.filter(split="train").join(kept, on=[*key, "epoch"])
    return {name: float(train[name].mean()) for name in FIGURES}  # type: ignore[arg-type] - columns of numbers


def _notes(first_loss: float, kept: dict[str, float]) -> tuple[str, ...]:
    """What a training of pairs is known to do wrong, if it did."""
    notes = []
    if abs(kept["loss"] - first_loss) < STUCK:
        notes.append(
            f"the loss on the training pairs stayed at {kept['loss']:.4f}, from {first_loss:.4f} before the training: "
            "the labels are as good as random, or the training is too short"
        )
    if kept["log_ratio_chosen"] < 0.0 and kept["log_ratio_rejected"] < 0.0:
        notes.append(
            f"chosen and rejected portfolios both became less likely, by {-kept['log_ratio_chosen']:.2f} and "
            f"{-kept['log_ratio_rejected']:.2f} in log-probability; raise sft_weight if that is not meant"
        )
    return tuple(notes)


def _auc_before(store: Store, run: SealedRun) -> float | None:
    """AUC of the run of the same experiment that was started last before it."""
    runs = store.ledger.runs().select("run_id", "started_at")
    started_at = store.ledger.run(run.run_id).started_at
    checks = store.tables.read(DPO_CHECKS, columns=["experiment", "run_id", "auc"]).filter(experiment=run.experiment)
    before = checks.join(runs, on="run_id").filter(pl.col("started_at") < started_at).sort("started_at")
    return None if before.is_empty() else float(before["auc"][-1])


def _write(store: Store, run: SealedRun, check: TuningCheck, digest: str, trained: pl.DataFrame, now: datetime) -> None:
    """Replace the run's row."""
    row = {
        "checked_at": now,
        "start": check.start,
        "pairs": digest,
        "n_trained": len(trained),
        "n_of_people": len(trained.filter(pl.col("source") == "person")),
        "n_pairs": check.auc.n_pairs,
        "n_decisions": check.auc.n_decisions,
        "auc": check.auc.auc,
        "auc_low": check.auc.low,
        "auc_high": check.auc.high,
        "accuracy": check.auc.accuracy,
        "kl": check.kl,
        "auc_before": check.auc_before,
        "passed": check.auc.is_above_chance,
        "sentence": check.sentence,
    }
    schema = {name: kind for name, kind in DPO_CHECKS.schema.items() if name in row}
    replace_run(store, DPO_CHECKS, pl.DataFrame([row], schema=schema), run)


def read_last_check(store: Store) -> tuple[dict[str, Any] | None, pl.DataFrame]:
    """Row of the last check, and the preference pairs of the run it started from, else of the run with the most."""
    check = next(store.tables.read(DPO_CHECKS).sort("checked_at").tail(1).iter_rows(named=True), None)
    pairs = store.tables.read(PREFERENCE_PAIRS, columns=["run_id", "part", "session", "source"])
    counts = pairs["run_id"].value_counts(sort=True)
    run_id = check["start"] if check and check["start"] in counts["run_id"] else next(iter(counts["run_id"]), None)
    return check, pairs.filter(pl.col("run_id") == run_id) if run_id else pairs.clear()
