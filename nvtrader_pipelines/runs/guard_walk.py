"""Comparison of a sealed run's guards with none: its policies walk slices of its tests."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.guard_comparison import (
    GUARDED,
    UNGUARDED,
    GuardComparison,
    compare_slices,
    slice_blocks,
)
from nvtrader_pipelines.evaluation.prudex.record import REFERENCE
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.policy_accounts import Archives, build_accounts
from nvtrader_pipelines.experiments.progress import Progress, Stage
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.figures import guard_slices_figure
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.storage.files import write_picture
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS


@dataclass(frozen=True)
class GuardWalk:
    """Comparison of a run's guards, with the baseline beside them."""

    run: SealedRun
    n_sessions: int  # in a slice
    baseline: str
    is_best_baseline: bool  # of the run's verdict, known in hindsight only; False: 1/N, since the verdict has none
    comparison: GuardComparison


def walk_guards(store: Store, spec: ExperimentSpec, n_sessions: int) -> Generator[Progress, None, GuardWalk]:
    """Walk slices of the tests of a version's latest sealed run, with its guards and without, and a baseline.

    Each slice opens anew in cash, and the policies of the fold in force decide. Nothing is trained or stored.

    Raises:
        StorageError: if the version has no sealed run, its policies are damaged, or its market or code have changed.
        ValueError: if its timing has no guards, or fewer than two slices fit.
    """
    timing = spec.pipeline.timing
    if not timing.has_guards:
        raise ValueError(
            "a comparison needs a timing with guards, gymrl_guard, loss_shutdown or regime_guard, but that of "
            f"{spec.name} is {timing.kind}; set pipeline.timing"
        )
    run = store.policies.read_latest(spec.partition_key)
    plan, archives = reopen_plan(store, run), store.policies.read_run(run)
    best = _best_baseline(store, run)
    baseline = best or REFERENCE
    blocks = slice_blocks(plan.paths.blocks, n_sessions)
    task_id, days = uuid4().hex, plan.panel.sessions

    def progress(stage: Stage, message: str, n_done: int) -> Progress:
        share = n_done / len(blocks)
        return Progress(task_id=task_id, run_id=run.run_id, stage=stage, message=message, timestamp=now(), share=share)

    yield progress("start", f"{spec.partition_key}: {len(blocks)} slices of {n_sessions} sessions", 0)
    records = []
    for number, block in enumerate(blocks, start=1):
        window = block.test_first, block.test_last
        clipped = replace(plan, folds=tuple(filter(None, (fold.clip_test(*window) for fold in plan.folds))))
        accounts = list(_accounts(clipped, archives, run, baseline))
        records.append(backtest(plan.panel, spec.environment, [block], accounts))
        yield progress("evaluate.step", f"{days[window[0]]} to {days[window[1]]}", number)
    comparison = compare_slices(records, baseline)
    yield progress("done", f"{len(blocks)} slices were walked", len(blocks))
    return GuardWalk(run, n_sessions, baseline, best is not None, comparison)


def _best_baseline(store: Store, run: SealedRun) -> str | None:
    """Name of the best baseline of a run's verdict, if it has one."""
    verdict = store.tables.read(EVALUATIONS, {"run_id": [run.run_id]}).filter(kind="ensemble", period="all")
    return next(iter(verdict["best_baseline"].drop_nulls()), None)


def _accounts(plan: RunPlan, archives: Archives, run: SealedRun, baseline: str) -> Iterator[PolicyAccount]:
    """Yield the three accounts of a slice, each with policies of its own, since they may be stateful."""
    opened, twins = (build_accounts(plan, archives, run.seed_weights, run.thresholds) for _ in range(2))
    yield replace(next(account for account in opened if account.kind == "ensemble"), name=GUARDED)
    twin = next(account for account in twins if account.kind == "ensemble")
    untimed = tuple(policy.without_timing for policy in twin.policies if isinstance(policy, PipelinedPolicy))
    yield replace(twin, name=UNGUARDED, policies=untimed)
    reference = PolicyAccount(baseline, "baseline", (None,), (EqualWeight().start(),))
    yield next((account for account in opened if account.name == baseline), reference)


def draw_guard_slices(walk: GuardWalk, path: Path) -> None:
    """Draw the returns of all slices into a file."""
    slices = walk.comparison.slices
    title = f"{walk.run.experiment}: {len(slices)} slices of {walk.n_sessions} sessions, {walk.comparison.readiness}"
    note = (
        f"Run {short_id(walk.run.run_id)} of {walk.run.partition_key} on {walk.run.source}, "
        f"{slices[0].first_session} to {slices[-1].last_session}, net of costs. Slices do not overlap; in each, both "
        "accounts open in cash, and the policies of the fold in force decide. "
        f"Readiness: {walk.comparison.readiness}; {walk.comparison.reason}."
    )
    write_picture(path, guard_slices_figure(slices, title, note))
