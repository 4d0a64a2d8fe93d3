"""Experiments as versions: only specs that can be planned on the market; manual runs."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nvtrader_pipelines.components.explanation import format_value
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.experiments.designs import leaves
from nvtrader_pipelines.experiments.plan import RunPlan, short_history_warnings
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.features import LOOK_BACK
from nvtrader_pipelines.policies.baselines import SESSIONS_PER_MONTH
from nvtrader_pipelines.runs.warm_start import require_starts
from nvtrader_pipelines.storage.documents import validate_document
from nvtrader_pipelines.storage.errors import NameTakenError, StorageError
from nvtrader_pipelines.storage.specs import FoundExperiments, read_experiments, store_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import MARKET_PANEL

SPANS = {  # sessions per unit, by the name of a field that must fit the market
    **dict.fromkeys(("test_months", "train_months", "months", "skip"), SESSIONS_PER_MONTH),
    **dict.fromkeys(("history", "window", "lookback", "estimate_every", "purge_size", "embargo_size"), 1),
    **dict.fromkeys(("validation_sessions", "cooldown", "patch_length", "stride", "max_gap"), 1),
}
MIN_EPISODE = 20  # decisions
MIN_MONTHS = 7  # of a history with three tests
MIN_SESSIONS = MIN_MONTHS * SESSIONS_PER_MONTH
MAX_INTEGER = 2**63 - 1  # the largest in tables and libraries
TILT: dict[str, Any] = {  # of 1/N, from which it starts: recommended
    "vol_penalty": 0.0,
    "observation": {"kind": "per_asset"},
    "action": {"kind": "residual"},
    "rewards": [{"kind": "benchmark_relative"}],
}
TILT_PPO: dict[str, Any] = {
    "kind": "ppo",
    "total_timesteps": 26_624,
    "n_envs": 128,
    "n_epochs": 4,
    "learning_rate": 0.003,
    "gamma": 0.5,
    "demean_returns": True,
    "backbone": {"kind": "shared_asset"},
}


@dataclass(frozen=True)
class Registration:
    """Partition keys of registered experiments, and the problems of the others by name."""

    keys: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def read_unarchived_experiments(store: Store) -> FoundExperiments:
    """Read the experiments of `data/experiments` that are not archived."""
    experiments, archived = read_experiments(store.home), store.ledger.archived_names()
    specs = [spec for spec in experiments.specs if spec.name not in archived]
    return FoundExperiments(specs, experiments.problems, experiments.drafts)


def plan_variants(store: Store, spec: ExperimentSpec) -> list[RunPlan]:
    """Plan an experiment, or each variant of an ablation, on the current market.

    Raises:
        StorageError: if its market has no panel, or as `require_starts`.
        ValueError: if the market lacks its names, sessions or data, a span is longer than it, or no fold fits.
    """
    panels = [(variant, store.panels.read(variant.market)) for variant in spec.variants()]
    for own_spec, panel in panels:
        _require_fitting_spans(own_spec, len(panel.sessions))
    plans = [RunPlan.of(spec, panel) for spec, panel in panels]
    for plan in plans:
        require_starts(store, plan)
    return plans


def _require_fitting_spans(spec: ExperimentSpec, n_sessions: int) -> None:
    for path, value in leaves(spec.model_dump(mode="json", exclude_defaults=True)):  # defaults suit most markets
        unit = SPANS.get(path.rpartition(".")[2])
        maximum = MAX_INTEGER if unit is None else n_sessions // unit
        if not isinstance(value, int) or value <= maximum:
            continue
        market = f": the market's panel has {n_sessions:,} sessions" if unit else ""
        months = f", {unit} per month" if unit == SESSIONS_PER_MONTH else ""
        raise ValueError(
            f"{path}: found {format_value(value)}, but must be at most {maximum}{market}{months}; lower it"
        )


def plan_problem(store: Store, spec: ExperimentSpec) -> str | None:
    """Reason why an experiment cannot be planned on the current market, or None."""
    try:
        plan_variants(store, spec)
    except (StorageError, ValueError) as error:
        return " ".join(str(error).split())
    return None


def experiment_warnings(store: Store) -> list[str]:
    """Warnings on experiments that cannot be planned, and on rules that lack history."""
    experiments = read_unarchived_experiments(store)
    names, without_panel = dict[str, list[str]](), set[str]()
    for spec in experiments.specs:
        try:
            short = dict.fromkeys(
                warning for plan in plan_variants(store, spec) for warning in short_history_warnings(plan)
            )
            warnings = list(short)
        except (StorageError, ValueError) as error:
            warnings = [f"cannot be planned: {' '.join(str(error).split())}"]
            without_panel.update(warnings if isinstance(error, StorageError) else ())
        for warning in warnings:
            names.setdefault(warning, []).append(spec.name)
    files = [problem for _, problem in sorted(experiments.problems.items())]
    cures = {warning: f", or `nvtrader experiments archive {' '.join(names[warning])}`" for warning in without_panel}
    return [*files, *(f"{', '.join(names[warning])}: {warning}{cures.get(warning, '')}" for warning in names)]


def register_experiments(store: Store, specs: Sequence[ExperimentSpec]) -> Registration:
    """Register specs that can be planned; of an ablation, also its variants.

    The keys are those of experiments that run: of an ablation, its variants.
    """
    known, registration = set(store.ledger.versions()["partition_key"]), Registration()
    for spec in specs:
        keys = [variant.partition_key for variant in spec.variants()]
        problem = None if known.issuperset(keys) else plan_problem(store, spec)
        if problem is not None:
            registration.problems[spec.name] = problem
            continue
        try:
            parent = store.ledger.register(spec)
            for variant in spec.variants():
                if variant != spec:
                    store.ledger.register(variant, parent)
        except NameTakenError as error:
            registration.problems[spec.name] = str(error)
        else:
            registration.keys.extend(keys)
    return registration


def fit_history(store: Store, source: str, symbols: Sequence[str] = ()) -> dict[str, Any]:
    """Fields of an experiment that fit the history of a market: folds, episodes, baselines and the recommended agent.

    A test is a sixth of the months, after three times as many for training, at most as by default; so there are three
    of them or more. Episodes are shorter than a training window, and rules without enough history are left out. A
    rollout is half an episode of each portfolio, in two batches.

    Raises:
        StorageError: if the source is not ingested.
        ValueError: if the market has no such symbols, or is too short.
    """
    market = {"source": source} | ({"symbols": match_symbols(store, source, symbols)} if symbols else {})
    panel = store.panels.read(MarketChoice.model_validate(market))
    default = ExperimentSpec(name="fitted")
    months, frequency = len(panel.sessions) // SESSIONS_PER_MONTH, default.environment.rebal_freq
    test_months = min(WalkForward().test_months, months // 6)
    if months < MIN_MONTHS:
        raise ValueError(
            f"a market needs {MIN_SESSIONS} sessions with known features to train and test, "
            f"but {source} has {len(panel.sessions)}; deliver earlier prices: the first {LOOK_BACK} feed the features"
        )
    train_sessions = 3 * test_months * SESSIONS_PER_MONTH
    frequency = max(1, min(frequency, train_sessions // (2 * MIN_EPISODE)))
    episode_len = min(default.environment.episode_len, max(MIN_EPISODE, train_sessions // (2 * frequency)))
    n_steps = episode_len // 2
    rules = [rule.model_dump(mode="json") for rule in default.baselines if rule.lookback <= train_sessions]
    return {
        "market": market,
        "environment": {**TILT, "rebal_freq": frequency, "episode_len": episode_len},
        "agent": {**TILT_PPO, "n_steps": n_steps, "batch_size": 64 * n_steps},
        "splitter": {"kind": "walk_forward", "test_months": test_months, "train_months": 3 * test_months},
        **({"baselines": rules} if len(rules) < len(default.baselines) else {}),
    }


def match_symbols(store: Store, source: str, symbols: Sequence[str]) -> list[str]:
    """Symbols as the market spells them, given in any case; each once."""
    rows = store.tables.read(MARKET_PANEL, {"source": [source]}, ["symbols"])["symbols"].to_list()
    names = {name.upper(): name for row in rows for name in row}
    return list(dict.fromkeys(names.get(symbol.upper(), symbol) for symbol in symbols))


def store_manual_experiment(
    store: Store, source: str = "sample", symbols: Sequence[str] | None = None, timesteps: int | None = None
) -> str:
    """Write the experiment of a manual run; return its name, which follows from the arguments.

    Raises:
        StorageError: if an argument is not valid.
        ValueError: if the market has no such symbols, or is too short.
    """
    market = {"source": source} | ({} if symbols is None else {"symbols": match_symbols(store, source, symbols)})
    agent = {"kind": "ppo"} | ({} if timesteps is None else {"total_timesteps": timesteps})
    content = {"market": market, "agent": agent}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    named = {"name": f"train-{short_id(digest)}", "description": "Manual run.", **content}
    spec = validate_document(named, ExperimentSpec, "the options are not valid")
    problem = plan_problem(store, spec) if source in store.panels.sources() else None  # else it is ingested first
    if problem:
        raise ValueError(problem)
    return store_experiment(store.home, spec).name
