"""Hand-over of a session's result to trading: an experiment, its judged policies, and audit events."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import takewhile
from math import inf
from pathlib import Path
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
from nvtrader_pipelines.runs.registration import plan_problem, register_experiments
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.policy_library import policy_file_name
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.shared_files import SharedFiles
from nvtrader_pipelines.storage.specs import read_experiment, spec_yaml
from nvtrader_pipelines.storage.store import Store

AUTHOR = "autoresearch"
WINNER_NAME = re.compile(rf"(\d{{8}}-\d{{6}}-\w+-{WINNER})(?:-(\d+))?")  # the first, and one that was retrained


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
            write_atomically(experiment_file(store, spec), spec_yaml(spec))


def judged_policies(store: Store, spec: ExperimentSpec) -> Mapping[FoldSeed, bytes]:
    """Policy files that the look of a session judged, if this experiment is its winner; empty for any other.

    Raises:
        StorageError: if the experiment beside the files cannot be read.
    """
    folder = store.home.research_policies / spec.name.removesuffix(f"-{WINNER}")
    SharedFiles(store.home).try_pull(folder)
    note_read(folder)
    path = folder / "experiment.yaml"
    if not path.exists() or read_experiment(path).spec_hash != spec.spec_hash:
        return {}
    return {fold_and_seed(file.name): file.read_bytes() for file in folder.glob("*.zip")}


def write_policies(store: Store, session_id: str, spec: ExperimentSpec, archives: Mapping[FoldSeed, bytes]) -> None:
    """Write the policies that a session hands on, with their experiment."""
    folder = store.home.research_policies / session_id
    for key, content in archives.items():
        write_atomically(folder / policy_file_name(key), content)
    write_atomically(folder / "experiment.yaml", spec_yaml(spec))
    SharedFiles(store.home).push(folder)


def is_winner(spec: ExperimentSpec) -> bool:
    """Whether a session has handed on an experiment as its winner, or it retrains one."""
    return WINNER_NAME.fullmatch(spec.name) is not None


def later_winner(spec: ExperimentSpec, test_first: date) -> ExperimentSpec:
    """Return the experiment that retrains a winner: its settings with a later test, named `<session>-winner-2` on."""
    match = WINNER_NAME.fullmatch(spec.name)
    assert match, spec.name
    document = spec.model_dump(mode="json") | {
        "name": f"{match[1]}-{int(match[2] or 1) + 1}",
        "splitter": spec.splitter.model_copy(update={"test_first": test_first}).model_dump(mode="json"),
        "report_from": test_first,
    }
    return ExperimentSpec.model_validate(document)


def hand_on_later_winner(store: Store, spec: ExperimentSpec) -> str | None:
    """Write and register an experiment that retrains a winner; return the problem if the market cannot run it."""
    problem = plan_problem(store, spec)
    if problem is None:
        write_atomically(experiment_file(store, spec), spec_yaml(spec))
        register_experiments(store, [spec])
    return problem


def experiment_file(store: Store, spec: ExperimentSpec) -> Path:
    """File of an experiment that is handed on."""
    return store.home.experiments / f"{spec.name}.yaml"


def record_retrained(store: Store, run: SealedRun) -> None:
    """Write the event `PolicyRetrained` of a sealed run whose experiment a session has handed on, once.

    By the rule `best_sharpe`, its policies are written beside those of winners, too.

    Raises:
        StorageError: if the audit cannot be read.
    """
    spec = store.ledger.read(run.partition_key)
    winner = WINNER_NAME.fullmatch(spec.name)
    for new_best in _new_bests(store):
        session_id = new_best.detail["session"]
        if new_best.spec_hash == run.spec_hash and new_best.detail["rule"] != WINNER:
            write_policies(store, session_id, spec, store.policies.read_run(run))
        if new_best.spec_hash == run.spec_hash or (winner and new_best.policy == winner[1]):
            retrained = AuditEvent(
                event_id=event_id("PolicyRetrained", run.run_id),
                kind="PolicyRetrained",
                at=now(),
                by=AUTHOR,
                policy=run.experiment,
                run_id=run.run_id,
                spec_hash=run.spec_hash,
                detail={
                    "session": session_id,
                    "rule": new_best.detail["rule"],
                    "experiment": run.partition_key,
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
