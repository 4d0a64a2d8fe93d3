"""Hand-over of a session's result to trading: an experiment, its judged policies, and audit events."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import inf
from statistics import fmean
from typing import Any

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.experiments.plan import FoldSeed
from nvtrader_pipelines.experiments.sealed_run import SealedRun, fold_and_seed
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.research.journal import BaseJudged, Line, SessionClosed, TrialJudged
from nvtrader_pipelines.research.recorded_session import BEST, WINNER
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.research.session_store import sealed_experiment
from nvtrader_pipelines.research.verdict import Outcome
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.specs import read_experiment, spec_yaml
from nvtrader_pipelines.storage.store import Store

AUTHOR = "autoresearch"


def hand_over(store: Store, session: Session, lines: Sequence[Line]) -> None:
    """Write what a closed session hands on to trading as an experiment, if anything, and the event `NewBest`.

    A winner is handed on; its run has the policies that the look judged, see `judged_policies`. By the gate's rule
    `best_sharpe`, so is the trial with the highest Sharpe ratio, if that is above the base's and above those handed on
    before for the same source and symbols, and its configuration is none of theirs; its policies are trained when the
    experiment runs. The gate and the account follow as for any experiment. Called again, it completes what a killed
    process has left; the file of an experiment that is registered is left alone.

    Raises:
        StorageError: if the gate's settings, the experiment or the audit cannot be read.
    """
    event = event_id("NewBest", session.session_id)
    closed = next(line for line in lines if isinstance(line, SessionClosed))
    market = {"source": session.spec.base.market.source, "symbols": list(session.symbols)}
    with store.lock("hand_over"):
        earlier = [
            new_best.detail
            for new_best in takewhile(lambda new_best: new_best.event_id != event, _new_bests(store))
            if market.items() <= new_best.detail.items()
        ]
        best = _best(store, session, closed, lines, earlier)
        if best is None:
            return
        trial, spec, rule = best
        new_best = AuditEvent(
            event_id=event,
            kind="NewBest",
            at=closed.finished_at,
            by=AUTHOR,
            policy=spec.name,
            spec_hash=spec.spec_hash,
            reason=closed.sentence,
            detail={
                "session": session.session_id,
                "trial": trial.trial,
                "experiment": spec.partition_key,
                "rule": rule,
                "configuration": trial.spec_hash,
                "knobs": trial.knobs,
                "sharpe": trial.sharpe,
                "lead": trial.lead and trial.lead.difference,
                "look": closed.look,
                "sealed_from": session.spec.sealed_from.isoformat(),
                **market,
            },
        )
        store.audit.append([new_best])  # before a sensor starts its run by the file
        if spec.partition_key not in store.ledger.versions()["partition_key"]:
            write_atomically(store.home.experiments / f"{spec.name}.yaml", spec_yaml(spec))


def judged_policies(store: Store, spec: ExperimentSpec) -> Mapping[FoldSeed, bytes]:
    """Policy files that the look of a session judged, if this experiment is its winner; empty for any other.

    Raises:
        StorageError: if the experiment beside the files cannot be read.
    """
    folder = store.home.research_policies / spec.name.removesuffix(f"-{WINNER}")
    note_read(folder)
    path = folder / "experiment.yaml"
    if not path.exists() or read_experiment(path).spec_hash != spec.spec_hash:
        return {}
    return {fold_and_seed(file.name): file.read_bytes() for file in folder.glob("*.zip")}


def record_retrained(store: Store, run: SealedRun) -> None:
    """Write the event `PolicyRetrained` of a sealed run whose experiment a session has handed on, once.

    Raises:
        StorageError: if the audit cannot be read.
    """
    for new_best in _new_bests(store):
        if new_best.spec_hash == run.spec_hash:
            retrained = AuditEvent(
                event_id=event_id("PolicyRetrained", run.run_id),
                kind="PolicyRetrained",
                at=now(),
                by=AUTHOR,
                policy=run.experiment,
                run_id=run.run_id,
                spec_hash=run.spec_hash,
                detail={
                    **{name: new_best.detail[name] for name in ("session", "rule", "experiment")},
                    "policies": dict(run.policies),
                    "policies_sha256": run.sha256,
                },
            )
            store.audit.append([retrained])


def _new_bests(store: Store) -> list[AuditEvent]:
    """Events of earlier hand-overs; no other row of the audit is parsed."""
    return [row.event for row in store.audit.rows() if row.kind == "NewBest"]


def _best(
    store: Store, session: Session, closed: SessionClosed, lines: Sequence[Line], earlier: Sequence[Mapping[str, Any]]
) -> tuple[TrialJudged, ExperimentSpec, str] | None:
    """Trial to hand on, with its experiment and the rule that chose it; None if it is no better than earlier ones."""
    trials = [line for line in lines if isinstance(line, TrialJudged) and line.status == "judged"]
    if closed.outcome == Outcome.WINNER:
        trial = next(line for line in trials if line.trial == closed.trial)
        return trial, read_experiment(store.home.research_policies / session.session_id / "experiment.yaml"), WINNER
    base = next(line for line in lines if isinstance(line, BaseJudged))
    rule, highest = read_gate(store.home).rule, max([fmean(base.sharpes), *(detail["sharpe"] for detail in earlier)])
    trial = max(trials, key=lambda line: line.sharpe or -inf, default=None)
    if rule != "best_sharpe" or trial is None or (trial.sharpe or -inf) <= highest:
        return None
    if trial.spec_hash in [detail["configuration"] for detail in earlier]:
        return None
    spec, name = session.spec.space().propose(trial.knobs).spec, f"{session.session_id}-{BEST}"
    return trial, sealed_experiment(spec, session.symbols, session.spec.sealed_from, name), rule
