"""Sessions in a home: created, read, and counted against the data that they judged."""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import polars as pl

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.evaluation.weights_backtest import STANDARD_EXECUTION
from nvtrader_pipelines.experiments.code_digest import code_digest, code_of
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.look_ahead import cut_after
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest
from nvtrader_pipelines.policies.baselines import Cufolio
from nvtrader_pipelines.portfolio.pipeline.allocators import PolicyAction
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.research.journal import TrialJudged
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.model_turns import NO_ENDPOINT, open_model
from nvtrader_pipelines.research.recorded_session import RecordedSession, read_session
from nvtrader_pipelines.research.search_settings import BUDGET, TIMESTEPS, LaunchSettings
from nvtrader_pipelines.research.session_spec import (
    BASE_SEEDS,
    SearchWindows,
    Session,
    SessionSpec,
    default_windows,
    require_workers,
)
from nvtrader_pipelines.research.space import base_experiment, configuration_hash, deciding_parts
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.runs.run_tables import WALK_FORWARD
from nvtrader_pipelines.storage.documents import parse_document, validate_document
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store

JUDGEMENT = (
    "research.session_spec",
    "research.space",
    "research.trial_judgement",
)  # code that decides a trial's result, beside the engine


def session_base(
    eval_mode: SearchMode,
    like: ExperimentSpec | None = None,
    source: str | None = None,
    symbols: Sequence[str] | None = None,
    total_timesteps: int | None = None,
) -> ExperimentSpec:
    """Return the base of a session: an experiment or the mode's own, on chosen names and steps.

    Steps are not used where the agent does not train, see `unused_note`.

    Raises:
        StorageError: if a value is not valid.
    """
    base = like or base_experiment(eval_mode)
    document = base.model_dump(mode="json")
    if source is not None:
        document["market"]["source"] = source
        if like is None:
            del document["report_from"]  # its default follows from the source
    if symbols is not None:
        document["market"]["symbols"] = list(symbols)
    if not base.agent.is_classical and (total_timesteps is not None or like is None):
        document["agent"]["total_timesteps"] = TIMESTEPS if total_timesteps is None else total_timesteps
    return validate_document(document, ExperimentSpec, "the options are not valid")


def unused_note(eval_mode: SearchMode, like: ExperimentSpec | None = None) -> str:
    """Note that the training steps of a session are not used; empty where its agent trains."""
    agent = (like or base_experiment(eval_mode)).agent
    return f"total_timesteps is not used: the agent {agent.kind} does not train" if agent.is_classical else ""


def launched_options(home: Home, settings: LaunchSettings) -> dict[str, Any]:
    """Options of `plan_session` for Dagster, null where its defaults hold; no symbols are all.

    Raises:
        StorageError: if a value is not valid.
    """
    base = session_base(settings.eval_mode, None, settings.source, settings.symbols or None, settings.total_timesteps)
    proposer = settings.proposer and choose_proposer(home, settings.proposer, settings.budget)
    options = settings.model_dump(exclude={"source", "symbols", "total_timesteps", "proposer"})
    return {"base": base, "proposer": proposer, **options}


def choose_proposer(home: Home, text: str, budget: int | None) -> dict[str, Any]:
    """Settings of the proposer that a text names, or holds as YAML.

    By default it is the language model where an endpoint is configured, else Optuna. Unless the settings say when, the
    model begins after a quarter of the budget, at most 10 proposals.

    Raises:
        StorageError: if the text is no document.
    """
    if ":" in text:
        settings = parse_document(text.encode(), "the proposer")
    else:
        _, problem = open_model(home)  # with a problem of its own it is not asked, and the journal says why
        settings = {"kind": text or ("optuna" if problem == NO_ENDPOINT else "llm")}
    warmup = {"n_warmup_trials": min(10, budget // 4)} if settings.get("kind") == "llm" and budget else {}
    return {**warmup, **settings}


def create_session(store: Store, base: ExperimentSpec, session_id: str | None = None, **options: Any) -> Session:
    """Store a new session, which `run_session` then runs; see `plan_session`."""
    session = plan_session(store, base, session_id, **options)
    write_atomically(
        SessionFolder.of(store.home, session.session_id).settings, session.model_dump_json(indent=1).encode()
    )
    return session


def plan_session(store: Store, base: ExperimentSpec, session_id: str | None = None, **options: Any) -> Session:
    """Check the settings of a new session on the market.

    Args:
        store: of the home.
        base: see `session_base`.
        session_id: id; by default its time and a digest.
        options: other fields of a `SessionSpec`, null for their defaults. Days that are left out are those of
            `default_windows`.

    Raises:
        StorageError: if an option is not valid, or the market has no panel.
        ValueError: if the market lacks the names or is too short, or the base cannot be searched on it.
    """
    panel = store.panels.read(base.market)
    validation_from, sealed_from = default_windows(panel, base.report_from, options.pop("sealed_from", None))
    content = {"base": base.model_dump(mode="json"), "validation_from": validation_from, "sealed_from": sealed_from}
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(proposer := given.get("proposer", ""), str):
        budget = given.get("budget", None if "max_seconds" in given else BUDGET)
        given["proposer"] = choose_proposer(store.home, proposer, budget)
    spec = validate_document({**content, **given}, SessionSpec, "the options are not valid")
    require_workers(spec.workers)
    windows = spec.windows(panel)
    space = spec.space()
    spec.proposer.start(space.knobs, spec.seed)
    RunPlan.of(sealed_experiment(space.base, panel.symbols, spec.sealed_from, "base"), panel)
    created_at = now()
    digest = hashlib.sha256(f"{canonical_json(spec)}{created_at}".encode()).hexdigest()
    session = Session(
        session_id=session_id or f"{created_at:%Y%m%d-%H%M%S}-{digest[:4]}",
        created_at=created_at,
        spec=spec,
        symbols=panel.symbols,
        n_sealed=windows.sealed.test_last - windows.sealed.test_first + 1,
        validation_digest=validation_digest(spec, panel, windows),
    )
    earlier_configurations(store, session)  # fails before there is a folder if another session cannot be read
    return session


def validation_digest(spec: SessionSpec, panel: MarketPanel, windows: SearchWindows) -> str:
    """Digest of all that decides the result of a configuration: the market before the seal, the folds and the code."""
    content = (
        panel_digest(before_seal(panel, windows)),
        *windows.folds,
        code_of(*deciding_parts(spec.space().base)),
        code_digest(JUDGEMENT, frozenset(), "research"),
        canonical_json(STANDARD_EXECUTION),
    )
    return hashlib.sha256("|".join(map(str, content)).encode()).hexdigest()


def before_seal(panel: MarketPanel, windows: SearchWindows) -> MarketPanel:
    """Market before the sealed window."""
    return cut_after(panel, windows.sealed.test_first - 1)


def sealed_experiment(spec: ExperimentSpec, symbols: Sequence[str], sealed_from: date, name: str) -> ExperimentSpec:
    """Return an experiment that trains a configuration before the sealed window and tests it there, as it would trade.

    It names the symbols, so that one that is delivered later is not traded. The weights of a policy other than
    `cufolio` pass that allocator, unless the experiment has one already.
    """
    document = spec.model_dump(mode="json") | {
        "name": name,
        "splitter": {"kind": "holdout", "test_first": sealed_from, "purge_size": spec.splitter.purge_size},
        "design": {"kind": "walk_forward"},
        "seeds": [0] if spec.agent.is_classical else list(BASE_SEEDS),
        "report_from": sealed_from,  # as the base of another search, it has the same seal
    }
    document["market"]["symbols"] = list(symbols)
    if not isinstance(spec.agent, Cufolio) and isinstance(spec.pipeline.allocator, PolicyAction):
        cap = min(CufolioAllocator().max_position_pct, spec.pipeline.risk_limits.max_position)
        document["pipeline"]["allocator"] = CufolioAllocator(max_position_pct=cap).model_dump(mode="json")
    return ExperimentSpec.model_validate(document)


def earlier_configurations(store: Store, session: Session) -> frozenset[str]:
    """Configurations that other sessions and runs judged on names and sessions of this session's validation."""
    return configurations_in(store, session, session.spec.validation_from, session.spec.sealed_from)


def configurations_in(store: Store, session: Session, first: date, end: date) -> frozenset[str]:
    """Configurations that other sessions and runs judged on names of a session, from `first` to before `end`."""
    market = session.spec.base.market
    configurations: set[str] = set()
    for recorded in _other_sessions(store, session):
        other, lines = recorded.session, recorded.lines
        is_same_data = other.spec.base.market.source == market.source and not set(other.symbols).isdisjoint(
            session.symbols
        )
        if is_same_data and other.spec.validation_from < end and first < other.spec.sealed_from:
            configurations |= {
                line.spec_hash for line in lines if isinstance(line, TrialJudged) and line.status != "known"
            }
    return frozenset(configurations | set(_manual_configurations(store, session, first, end)))


def known_results(store: Store, session: Session) -> dict[str, tuple[SessionFolder, TrialJudged]]:
    """Results of configurations that other sessions judged on equal folds of an equal market by equal code."""
    return {
        line.spec_hash: (recorded.folder, line)
        for recorded in _other_sessions(store, session)
        if recorded.session.validation_digest == session.validation_digest
        for line in recorded.lines
        if isinstance(line, TrialJudged) and line.status == "judged"
    }


def _other_sessions(store: Store, session: Session) -> list[RecordedSession]:
    return [read_session(folder) for folder in store.searches.folders() if folder.session_id != session.session_id]


def _manual_configurations(store: Store, session: Session, first: date, end: date) -> Iterator[str]:
    """Configurations of completed runs that tested names of a session, from `first` to before `end`."""
    runs = store.ledger.runs(with_deleted=True).filter(
        pl.col("status") == "done",
        pl.col("kind") == WALK_FORWARD,
        pl.col("source") == session.spec.base.market.source,
        pl.col("window_first") < end,
        pl.col("window_last") >= first,
    )
    for partition_key in runs["partition_key"].unique():
        spec = store.ledger.read(partition_key)
        if spec.market.symbols is None or not set(spec.market.symbols).isdisjoint(session.symbols):
            yield configuration_hash(spec)
