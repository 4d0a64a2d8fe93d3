"""Hand-over of a session's result to trading: an experiment, its judged policies, and audit events."""

from collections.abc import Sequence
from hashlib import sha256
from math import inf
from statistics import fmean
from typing import Any

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.experiments.sealed_run import fold_and_seed
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.baselines import Cufolio
from nvtrader_pipelines.portfolio.pipeline.allocators import PolicyAction
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.research.journal import BaseJudged, Line, SessionClosed, TrialJudged
from nvtrader_pipelines.research.recorded_session import BEST, WINNER
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.research.session_store import sealed_experiment
from nvtrader_pipelines.research.verdict import Outcome
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.train_walk_judge import adopt_policies
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.policy_library import policy_file_name
from nvtrader_pipelines.storage.specs import read_experiment, spec_yaml
from nvtrader_pipelines.storage.store import Store

AUTHOR = "autoresearch"


def hand_over(store: Store, session: Session, lines: Sequence[Line]) -> None:
    """Write what a closed session hands on to trading as an experiment, if anything.

    A winner is handed on with the policies that its look judged. By the gate's rule `best_sharpe`, so is the trial with
    the highest Sharpe ratio, if that is above the base's; its policies are trained when the experiment runs. The
    experiment tests from the first sealed session; the pipeline gets the allocator `cufolio` if neither allocator nor
    agent is that. Its run, the gate and the account follow as for any experiment. Called again, it completes what a
    killed process has left.

    Raises:
        StorageError: if the gate's settings, the experiment or the audit cannot be read.
        PolicyArchiveError: if a judged policy is damaged.
    """
    retrained_id = event_id("PolicyRetrained", session.session_id)
    if any(event.event_id == retrained_id for event in store.audit.events()):
        return
    closed = next(line for line in lines if isinstance(line, SessionClosed))
    best = _best(store, session, closed, lines)
    if best is None:
        return
    trial, spec, rule = best
    store.ledger.register(spec)
    plan, folder = read_plan(store, spec.partition_key), store.home.research_policies / session.session_id
    archives = {fold_and_seed(path.name): path.read_bytes() for path in folder.glob("*.zip")}
    if not store.policies.trained_keys(spec.partition_key, plan.run_id) >= archives.keys():
        adopt_policies(store, plan, archives, Launch(session.session_id))
    write_atomically(store.home.experiments / f"{spec.name}.yaml", spec_yaml(spec))  # by which a sensor starts its run
    fields: dict[str, Any] = {"at": closed.finished_at, "by": AUTHOR, "policy": spec.name, "spec_hash": spec.spec_hash}
    evidence = {"session": session.session_id, "trial": trial.trial, "rule": rule, "experiment": spec.partition_key}
    figures = {"sharpe": trial.sharpe, "lead": trial.lead and trial.lead.difference, "look": closed.look}
    new_best = AuditEvent(
        event_id=event_id("NewBest", session.session_id),
        kind="NewBest",
        reason=closed.sentence,
        detail={**evidence, **figures, "knobs": trial.knobs},
        **fields,
    )
    digests = {policy_file_name(key): sha256(content).hexdigest() for key, content in sorted(archives.items())}
    retrained = AuditEvent(
        event_id=retrained_id,
        kind="PolicyRetrained",
        run_id=plan.run_id,
        detail={**evidence, "judged_policies": digests},
        **fields,
    )
    store.audit.append([new_best, retrained])


def _best(
    store: Store, session: Session, closed: SessionClosed, lines: Sequence[Line]
) -> tuple[TrialJudged, ExperimentSpec, str] | None:
    """Trial to hand on, with its experiment and the rule that chose it."""
    trials = [line for line in lines if isinstance(line, TrialJudged) and line.status == "judged"]
    if closed.outcome == Outcome.WINNER:
        trial = next(line for line in trials if line.trial == closed.trial)
        spec = read_experiment(store.home.research_policies / session.session_id / "experiment.yaml")
        return trial, _with_cufolio(spec), WINNER
    base = next(line for line in lines if isinstance(line, BaseJudged))
    rule, sharpes = read_gate(store.home).rule, [line.sharpe or -inf for line in trials]
    if rule != "best_sharpe" or max(sharpes, default=-inf) <= fmean(base.sharpes):
        return None
    trial = trials[sharpes.index(max(sharpes))]
    spec = session.spec.space().propose(trial.knobs).spec
    return trial, _with_cufolio(sealed_experiment(spec, session.spec.sealed_from, f"{session.session_id}-{BEST}")), rule


def _with_cufolio(spec: ExperimentSpec) -> ExperimentSpec:
    """Let cuFOLIO allocate near the policy's weights, unless cuFOLIO or another allocator already decides."""
    if isinstance(spec.agent, Cufolio) or not isinstance(spec.pipeline.allocator, PolicyAction):
        return spec
    document = spec.model_dump(mode="json")
    cap = min(CufolioAllocator().max_position_pct, spec.pipeline.risk_limits.max_position)
    document["pipeline"]["allocator"] = CufolioAllocator(max_position_pct=cap).model_dump(mode="json")
    return ExperimentSpec.model_validate(document)
