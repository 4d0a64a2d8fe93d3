"""Cards of trained policies: one for every policy of every sealed run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import polars as pl
from pydantic import ConfigDict

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.evaluation.findings import deflated_ratio
from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun, fold_and_seed
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active
from nvtrader_pipelines.promotion.eligibility import (
    UNTESTED,
    code_mismatch,
    coverage_warnings,
    policy_names,
    require_fit,
    require_usable,
    sealed_run,
)
from nvtrader_pipelines.promotion.recency import eligibility_message
from nvtrader_pipelines.runs.run_tables import suggest_run
from nvtrader_pipelines.storage.errors import CodeMismatchError, NotFoundError, StorageError
from nvtrader_pipelines.storage.spec_versions import agents_by_seed, version_content
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, VALIDATION

Row = dict[str, Any]
SCORE = ("period", "first_session", "last_session", "n_sessions", "sharpe", "sharpe_low", "sharpe_high")
OTHER_METRICS = ("cagr", "max_drawdown", "turnover_per_year")
OVER_BASELINE = ("best_baseline", "sharpe_difference", "sharpe_difference_low", "sharpe_difference_high")


class LibraryCard(Document):
    """Recorded facts of one policy; nothing is recomputed."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    policy: str  # account name in the evaluation
    kind: str  # ensemble, or policy of one seed
    experiment: str
    partition_key: str  # name@hash8
    spec_hash: str
    made_from: str | None  # parent version; None for the first of its name
    run_id: str
    code_version: str
    processor: str  # that trained it; empty in older runs
    source: str
    snapshot_ids: Mapping[str, int]  # table to snapshot of the training market
    panel_digest: str
    seeds: tuple[int, ...]  # seeds that decide
    chosen: Mapping[int, int]  # fold to the seed that trades alone
    weights: Mapping[int, Mapping[int, float]]  # of seeds that trade together, by fold; empty if all weigh the same
    agents: Mapping[int, str]  # seed to the kind of the agent that trained it
    folds: tuple[Row, ...]  # training and test windows
    scores: tuple[Row, ...]  # a row per period of the verdict; empty if not evaluated
    baselines: tuple[Row, ...]  # of its run, one row per period
    deflated_sharpe: float | None  # information ratio against the best baseline, reported period; None: unknown
    policies_sha256: str
    files: tuple[Row, ...]  # file, SHA-256, and whether the file still matches
    warnings: tuple[str, ...]
    active: bool
    other_code: str | None  # warning if its run was made with different code
    outdated: bool  # whether this code reads its version differently, so that it must be run again
    may_trade: str | None = None  # active policy only: eligibility in words
    obstacle: str | None = None  # why it cannot trade on the current market, if so
    coverage: tuple[str, ...] = ()  # names without a sector, accounts that hold others; with the cure

    @property
    def ref(self) -> PolicyRef:
        """Reference to the policy."""
        return PolicyRef(self.run_id, self.policy)

    @property
    def period(self) -> str:
        """Reported period, which the gate judges."""
        return reported_period(row["period"] for row in self.scores)

    @property
    def score(self) -> Row | None:
        """Figures over the reported period; None if not evaluated."""
        return next((row for row in self.scores if row["period"] == self.period), None)


@dataclass(frozen=True)
class Library:
    """Every card, newest run first, and what cannot be read."""

    cards: tuple[LibraryCard, ...]
    problems: tuple[str, ...]  # sentences on damaged manifests or an active policy that cannot be read
    active: ActivePolicy | None  # None if there is none or it cannot be read


def read_library(store: Store, *, seeds: bool = False) -> Library:
    """Read the cards of the experiments' policies.

    With `seeds`, cards of single seeds and of archived experiments are included.
    Each card states whether files, limits and market fit; only `read_library_card` opens the networks.
    """
    library, reader = store.policies, _CardReader.open(store)
    cards, problems, active = [], [], None
    try:
        active = read_active(store)
    except StorageError as error:
        problems.append(str(error))
    trained = store.ledger.runs().filter(pl.col("parent_run_id").is_null())
    hidden = set() if seeds else store.ledger.archived_names()
    for partition_key, run_id in trained.select("partition_key", "run_id").iter_rows():
        is_hidden = partition_key.partition("@")[0] in hidden and (active is None or active.run_id != run_id)
        if is_hidden or not library.is_sealed(partition_key, run_id):
            continue
        try:
            run = library.read_sealed(partition_key, run_id)
        except StorageError as error:
            problems.append(str(error))
            continue
        obstacle = _obstacle(require_fit, store, run, run.experiment)
        names = policy_names(run) if seeds else [run.experiment]
        cards += [reader.card(run, policy, active, obstacle) for policy in names]
    return Library(tuple(cards), tuple(problems), active)


def read_library_card(store: Store, ref: PolicyRef) -> LibraryCard:
    """Read the card of one policy, opened on the current market.

    Raises:
        StorageError: if there is no such policy, or the active one cannot be read.
    """
    run, reader = sealed_run(store, ref), _CardReader.open(store)
    obstacle = _obstacle(require_usable, store, run, ref.policy)
    return reader.card(run, ref.policy, read_active(store), obstacle)


def find_policy(store: Store, text: str) -> PolicyRef:
    """Find the policy of an experiment, a version or the prefix of a run id, optionally /seed-<k>.

    For an experiment or version it is the policy of its newest sealed run.

    Raises:
        NotFoundError: if there is none, or several run ids have the prefix.
    """
    name, slash, seed = text.partition("/")
    runs, library = store.ledger.runs().filter(pl.col("parent_run_id").is_null()), store.policies
    named = runs.filter((pl.col("partition_key") == name) | pl.col("partition_key").str.starts_with(f"{name}@"))
    sealed = [pair for pair in named.select("partition_key", "run_id").iter_rows() if library.is_sealed(*pair)]
    if len(named) and not sealed:
        raise NotFoundError(
            f"{name} has no run whose policies are all trained; `nvtrader experiments run {name.partition('@')[0]}`"
        )
    known = store.ledger.runs()
    if not sealed and not (name and known["run_id"].str.starts_with(name).any()):
        near = suggest_run(known, name) or ";"
        raise NotFoundError(
            f"{name!r} is neither an experiment that was run nor the prefix of a run id{near} see `nvtrader policies`"
        )
    if not sealed:
        run = store.ledger.find_run(name)
        sealed = [(run.partition_key, run.parent_run_id or run.run_id)]
    partition_key, run_id = sealed[0]
    return PolicyRef(run_id, f"{partition_key.partition('@')[0]}{slash}{seed}")


def _obstacle(
    check: Callable[[Store, SealedRun, str], object], store: Store, run: SealedRun, policy: str
) -> StorageError | None:
    try:
        check(store, run, policy)
    except StorageError as error:
        return error
    return None


@dataclass(frozen=True, eq=False)
class _CardReader:
    """Builder of cards from tables that are read once."""

    store: Store
    verdicts: pl.DataFrame
    validation: pl.DataFrame
    versions: pl.DataFrame
    coverage: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)  # by symbols

    @classmethod
    def open(cls, store: Store) -> Self:
        """Read the tables of a home."""
        verdicts = store.tables.read(EVALUATIONS).filter(
            (pl.col("period") == "all") | pl.col("period").str.starts_with("from_")
        )
        return cls(store, verdicts, store.tables.read(VALIDATION), store.ledger.versions())

    def card(
        self, run: SealedRun, policy: str, active: ActivePolicy | None, obstacle: StorageError | None
    ) -> LibraryCard:
        """Build the card of one policy of a run."""
        ensemble, ref = policy == run.experiment, PolicyRef(run.run_id, policy)
        verdict = self.verdicts.filter(pl.col("run_id") == run.run_id)
        own = verdict.filter(pl.col("policy") == policy, pl.col("kind") != "baseline")
        scores = tuple(own.select(*SCORE, *OTHER_METRICS, *OVER_BASELINE).to_dicts())
        seeds = run.seeds if ensemble else (int(policy.rpartition("-")[2]),)
        agents = agents_by_seed(version_content(self.store.ledger, run.partition_key))
        return LibraryCard(
            policy=policy,
            kind="ensemble" if ensemble else "policy",
            experiment=run.experiment,
            partition_key=run.partition_key,
            spec_hash=run.spec_hash,
            made_from=self._made_from(run.spec_hash),
            run_id=run.run_id,
            code_version=run.code_version,
            processor=run.processor,
            source=run.source,
            snapshot_ids=run.snapshot_ids,
            panel_digest=run.panel_digest,
            seeds=seeds,
            chosen=run.chosen if ensemble else {},
            weights=run.weights if ensemble else {},
            agents={seed: agents[seed] for seed in seeds},
            folds=tuple(fold.model_dump() for fold in run.folds),
            scores=scores,
            baselines=tuple(
                verdict.filter(pl.col("kind") == "baseline").select("policy", *SCORE, *OTHER_METRICS).to_dicts()
            ),
            deflated_sharpe=deflated_ratio(self.validation, run.run_id, reported_period(own["period"]))
            if ensemble
            else None,
            policies_sha256=run.sha256,
            files=self._files(run, set(seeds)),
            warnings=run.warnings,
            active=active is not None and active.ref == ref,
            other_code=code_mismatch(self.store, run),
            may_trade=eligibility_message(self.store, active) if active is not None and active.ref == ref else None,
            outdated=isinstance(obstacle, CodeMismatchError),
            obstacle=str(obstacle) if obstacle else None if own.height else f"it {UNTESTED.format(run.experiment)}",
            coverage=() if obstacle else self._coverage(run),
        )

    def _coverage(self, run: SealedRun) -> tuple[str, ...]:
        symbols, _ = self.store.panels.symbols_and_features(self.store.ledger.read(run.partition_key).market)
        if symbols not in self.coverage:
            self.coverage[symbols] = tuple(coverage_warnings(self.store, symbols))
        return self.coverage[symbols]

    def _files(self, run: SealedRun, seeds: set[int]) -> tuple[Row, ...]:
        broken = set(self.store.policies.find_tampered_files(run)["file"])
        return tuple(
            {"file": name, "sha256": digest, "matches": name not in broken}
            for name, digest in run.policies.items()
            if fold_and_seed(name)[1] in seeds
        )

    def _made_from(self, spec_hash: str) -> str | None:
        parents = self.versions.filter(pl.col("spec_hash") == spec_hash)["parent_hash"]
        keys = self.versions.filter(pl.col("spec_hash").is_in(parents.implode()))["partition_key"]
        return keys[0] if len(keys) else None
