"""The library of policies: a card for every policy of every sealed run, from what was kept of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import polars as pl

from nvtrader_pipelines.evaluation.trial_validation import reported_period
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun, fold_and_seed
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active
from nvtrader_pipelines.promotion.recency import eligibility_message
from nvtrader_pipelines.promotion.verification import (
    code_mismatch,
    policy_names,
    require_fit,
    require_usable,
    sealed_run,
)
from nvtrader_pipelines.storage.errors import CodeMismatchError, StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, VALIDATION

Row = dict[str, Any]
SCORE = ("period", "first_session", "last_session", "n_sessions", "sharpe", "sharpe_low", "sharpe_high")
BESIDE = ("cagr", "max_drawdown", "turnover_per_year")
OVER_BASELINE = ("best_baseline", "sharpe_difference", "difference_low", "difference_high")


@dataclass(frozen=True)
class LibraryCard:
    """What is known of one policy; nothing of it is computed anew."""

    policy: str  # the name its account had in the evaluation
    kind: str  # ensemble, or policy for one seed
    experiment: str
    partition_key: str  # name@hash8
    spec_hash: str
    made_from: str | None  # version that this one was made from by hand or by a search; None for the first of its name
    run_id: str
    code_version: str
    source: str
    snapshot_ids: Mapping[str, int]  # table to snapshot of the market it was trained on
    panel_digest: str
    seeds: tuple[int, ...]  # that decide
    chosen: Mapping[int, int]  # fold to the seed chosen for it, where one was
    folds: tuple[Row, ...]  # fold, what it was trained on and what it was tested on
    scores: tuple[Row, ...]  # a row per period of the verdict; none where it was not judged
    baselines: tuple[Row, ...]  # of its run, the same
    deflated_sharpe: float | None  # of its information ratio against its best baseline, reported period; None: unknown
    policies_sha256: str
    files: tuple[Row, ...]  # file, SHA-256, and whether the file is that one still
    warnings: tuple[str, ...]
    active: bool
    other_code: str | None  # what must be known where its run was made with other code than the one installed
    outdated: bool  # whether its version means something else to this code, so that it must be run again
    may_trade: str | None = field(default=None)  # of the active one: until which session, in words
    obstacle: str | None = field(default=None)  # why it cannot trade on the market as it is now; None where it can

    @property
    def ref(self) -> PolicyRef:
        """Which policy it is."""
        return PolicyRef(self.run_id, self.policy)

    @property
    def period(self) -> str:
        """Its reported period, which the gate judges."""
        return _reported(self.scores)

    @property
    def score(self) -> Row | None:
        """Its figures over its reported period; None where it was not judged."""
        return next((row for row in self.scores if row["period"] == self.period), None)

    def document(self) -> Row:
        """The card as JSON takes it, dates as they are."""
        return asdict(self)


@dataclass(frozen=True)
class Library:
    """Every card, the run begun last first, and what cannot be read."""

    cards: tuple[LibraryCard, ...]
    problems: tuple[str, ...]  # a sentence each: damaged manifests, a damaged pointer to the active policy
    active: ActivePolicy | None  # which one trades; None where none does, or nobody can tell


def read_library(store: Store, *, seeds: bool = False) -> Library:
    """The experiments' own policies, and those of single seeds where asked for.

    Of each it is told whether its files, limits and market fit; only `card_of` opens the networks.
    """
    library, reader = store.policies, _Reader.of(store)
    cards, problems, active = [], [], None
    try:
        active = read_active(store)
    except StorageError as error:
        problems.append(str(error))
    trained = store.ledger.runs().filter(pl.col("parent_run_id").is_null())
    for partition_key, run_id in trained.select("partition_key", "run_id").iter_rows():
        if not library.is_sealed(partition_key, run_id):
            continue
        try:
            run = library.read_sealed(partition_key, run_id)
        except StorageError as error:
            problems.append(str(error))
            continue
        obstacle = _obstacle(require_fit, store, run, run.experiment)
        named = policy_names(run) if seeds else [run.experiment]
        cards += [reader.card(run, policy, active, obstacle) for policy in named]
    return Library(tuple(cards), tuple(problems), active)


def read_library_card(store: Store, ref: PolicyRef) -> LibraryCard:
    """The card of one policy, opened on the market as it is now.

    Raises:
        StorageError: if there is no such policy, or the pointer to the active one is damaged.
    """
    run, reader = sealed_run(store, ref), _Reader.of(store)
    obstacle = _obstacle(require_usable, store, run, ref.policy)
    return reader.card(run, ref.policy, read_active(store), obstacle)


def find_policy(store: Store, text: str) -> PolicyRef:
    """The policy meant by an experiment, one of its versions or the begin of a run's id, with /seed-<k> or without.

    Of an experiment or version it is of the run begun last of those whose policies are all trained.

    Raises:
        StorageError: if there is none, or several ids begin so.
    """
    name, slash, seed = text.partition("/")
    runs, library = store.ledger.runs().filter(pl.col("parent_run_id").is_null()), store.policies
    named = runs.filter((pl.col("partition_key") == name) | pl.col("partition_key").str.starts_with(f"{name}@"))
    sealed = [pair for pair in named.select("partition_key", "run_id").iter_rows() if library.is_sealed(*pair)]
    if len(named) and not sealed:
        raise StorageError(
            f"{name} has no policies that are all trained; `nvtrader experiments run {name.partition('@')[0]}`"
        )
    if not sealed and not (name and store.ledger.runs()["run_id"].str.starts_with(name).any()):
        raise StorageError(
            f"no run's id begins with {name!r}, and no experiment of that name was run; see `nvtrader policies`"
        )
    if not sealed:
        found = store.ledger.find_run(name)
        sealed = [(found.partition_key, found.parent_run_id or found.run_id)]
    partition_key, run_id = sealed[0]
    return PolicyRef(run_id, f"{partition_key.partition('@')[0]}{slash}{seed}")


def _obstacle(
    check: Callable[[Store, SealedRun, str], object], store: Store, run: SealedRun, who: str
) -> StorageError | None:
    try:
        check(store, run, who)
    except StorageError as error:
        return error
    return None


@dataclass(frozen=True, eq=False)
class _Reader:
    """The tables that cards are made of, each read once."""

    store: Store
    verdicts: pl.DataFrame
    validation: pl.DataFrame
    versions: pl.DataFrame

    @classmethod
    def of(cls, store: Store) -> Self:
        """What there is in a home."""
        verdicts = store.tables.read(EVALUATIONS).filter(
            (pl.col("period") == "all") | pl.col("period").str.starts_with("from_")
        )
        validation = store.tables.read(VALIDATION).filter(pl.col("against") == "best_baseline")
        return cls(store, verdicts, validation, store.ledger.versions())

    def card(
        self, run: SealedRun, policy: str, active: ActivePolicy | None, obstacle: StorageError | None
    ) -> LibraryCard:
        """The card of one policy of a run."""
        ensemble, ref = policy == run.experiment, PolicyRef(run.run_id, policy)
        verdict = self.verdicts.filter(pl.col("run_id") == run.run_id)
        own = verdict.filter(pl.col("policy") == policy, pl.col("kind") != "baseline")
        scores = tuple(own.select(*SCORE, *BESIDE, *OVER_BASELINE).to_dicts())
        seeds = run.seeds if ensemble else (int(policy.rpartition("-")[2]),)
        return LibraryCard(
            policy=policy,
            kind="ensemble" if ensemble else "policy",
            experiment=run.experiment,
            partition_key=run.partition_key,
            spec_hash=run.spec_hash,
            made_from=self._made_from(run.spec_hash),
            run_id=run.run_id,
            code_version=run.code_version,
            source=run.source,
            snapshot_ids=run.snapshot_ids,
            panel_digest=run.panel_digest,
            seeds=seeds,
            chosen=run.chosen if ensemble else {},
            folds=tuple(fold.model_dump() for fold in run.folds),
            scores=scores,
            baselines=tuple(verdict.filter(pl.col("kind") == "baseline").select("policy", *SCORE, *BESIDE).to_dicts()),
            deflated_sharpe=self._deflated(run.run_id, _reported(scores)) if ensemble else None,
            policies_sha256=run.sha256,
            files=self._files(run, set(seeds)),
            warnings=run.warnings,
            active=active is not None and active.ref == ref,
            other_code=code_mismatch(run.code_version),
            may_trade=eligibility_message(self.store, active) if active is not None and active.ref == ref else None,
            outdated=isinstance(obstacle, CodeMismatchError),
            obstacle=str(obstacle) if obstacle else None,
        )

    def _files(self, run: SealedRun, seeds: set[int]) -> tuple[Row, ...]:
        broken = set(self.store.policies.find_tampered_files(run)["file"])
        return tuple(
            {"file": name, "sha256": digest, "matches": name not in broken}
            for name, digest in run.policies.items()
            if fold_and_seed(name)[1] in seeds
        )

    def _made_from(self, spec_hash: str) -> str | None:
        parents = self.versions.filter(pl.col("spec_hash") == spec_hash)["parent_hash"]
        found = self.versions.filter(pl.col("spec_hash").is_in(parents.implode()))["partition_key"]
        return found[0] if len(found) else None

    def _deflated(self, run_id: str, period: str) -> float | None:
        found = self.validation.filter(run_id=run_id, period=period)["deflated_sharpe"]
        return found[0] if len(found) else None


def _reported(scores: Sequence[Row]) -> str:
    """The reported period of a verdict."""
    return reported_period(pl.Series([row["period"] for row in scores], dtype=pl.String))
