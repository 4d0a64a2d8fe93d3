"""Who is judged: the files of `data/entrants`, the last run of every experiment, and every distinct baseline."""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from pydantic import ValidationError

from nvtrader_pipelines.components import content_hash
from nvtrader_pipelines.experiments.candidates import (
    Candidate,
    baseline_candidate,
    run_candidate,
    sb3_candidate,
    weights_candidate,
)
from nvtrader_pipelines.experiments.entrants import (
    BaselineEntrant,
    Entrant,
    EntrantDocument,
    RunEntrant,
    Sb3Entrant,
    WeightsEntrant,
)
from nvtrader_pipelines.experiments.explanation import explained
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.sb3_zip import read_sb3_zip
from nvtrader_pipelines.policies.weights_table import WeightsTable
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.medallion import read_panel
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from nvtrader_pipelines.storage.runs import walk_forward_runs
from nvtrader_pipelines.storage.warehouse import Warehouse

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")  # of a file: it becomes a folder of scorecards
SHORT = 8  # digits that tell two baselines of a kind apart


@dataclass(frozen=True)
class Roster:
    """Everybody who is judged, in the order of their right of way, and why some cannot be."""

    candidates: list[Candidate] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Panels:
    """The pinned panels of one home, each read once."""

    lake: Warehouse
    known: dict[MarketChoice, MarketPanel] = field(default_factory=dict)

    def of(self, choice: MarketChoice) -> MarketPanel:
        """The panel of a choice of the market.

        Raises:
            StorageError: if the source has no panel.
            ValueError: if its bars do not make one of these names.
        """
        if choice not in self.known:
            self.known[choice] = read_panel(self.lake, choice.source, choice.symbols, choice.max_gap)
        return self.known[choice]


@dataclass(frozen=True)
class _Reader:
    """Makes candidates of what a home holds."""

    panels: Panels
    ledger: Ledger
    gross_limit: float

    @property
    def lake(self) -> Warehouse:
        """The home's tables."""
        return self.panels.lake

    def run(self, name: str, wanted: str) -> Candidate:
        """The last completed run whose id or experiment's name is the wanted one."""
        runs = walk_forward_runs(self.lake, ["run_id", "experiment", "partition_key", "finished_at"])
        named = pl.col("run_id").str.starts_with(wanted) | (pl.col("experiment") == wanted)
        found = runs.filter(named).sort("finished_at", "run_id")
        if found.is_empty():
            raise StorageError(
                f"{name} names the run {wanted!r}, but no completed run is called so; see `nvtrader runs`"
            )
        row = found.row(-1, named=True)
        library = PolicyLibrary(self.lake.home)
        sealed = library.sealed(row["partition_key"], row["run_id"])
        return run_candidate(
            name,
            self.ledger.read(row["partition_key"]),
            sealed.as_parent,
            library.read_run(sealed),
            sealed.chosen,
            run_id=sealed.run_id,
            training_seconds=training_seconds(self.ledger, sealed.run_id),
            warnings=sealed.warnings,
        )

    def file(self, path: Path) -> Candidate:
        """The entrant of one file."""
        if not NAME.fullmatch(path.stem):
            raise StorageError(
                f"{path.name} names its entrant, so it must be of small letters, digits, - and _; rename the file"
            )
        entrant = read_entrant(path)
        if isinstance(entrant, RunEntrant):
            return self.run(path.stem, entrant.run or path.stem)
        if isinstance(entrant, BaselineEntrant):
            return baseline_candidate(path.stem, entrant)
        if isinstance(entrant, Sb3Entrant):
            saved = read_sb3_zip(_content(path, entrant.file, ".zip"))
            return sb3_candidate(path.stem, entrant, saved, self.panels.of(entrant.market))
        table = _table(path, entrant)
        return weights_candidate(path.stem, entrant, table, self.panels.of(entrant.market), self.gross_limit)


def read_roster(panels: Panels, ledger: Ledger, gross_limit: float) -> Roster:
    """Runs, newest first, then files, then baselines; a file takes the place of what has its name and kind."""
    lake, reader, roster = panels.lake, _Reader(panels, ledger, gross_limit), Roster()
    runs = walk_forward_runs(lake, ["experiment", "finished_at"]).sort("finished_at", descending=True)
    experiments = runs["experiment"].unique(maintain_order=True).to_list()
    from_files: dict[str, Candidate] = {}
    for path in sorted(lake.home.entrants.glob("*.y*ml")):
        try:
            from_files[path.stem] = _as_named(reader.file(path), experiments)
        except (StorageError, ValueError) as error:  # an experiment is judged whatever a file of its name says
            roster.problems[path.name if path.stem in experiments else path.stem] = str(error)
    for name in experiments:
        try:
            roster.candidates.append(from_files.pop(name, None) or reader.run(name, name))
        except (StorageError, ValueError) as error:
            roster.problems[name] = str(error)
    roster.candidates.extend(from_files.values())
    taken = {candidate.name for candidate in roster.candidates} | roster.problems.keys()
    rules = _baselines([ledger.read(key) for key in _last_versions(lake)])
    roster.candidates.extend(baseline_candidate(name, rule) for name, rule in rules.items() if name not in taken)
    return roster


def _as_named(candidate: Candidate, experiments: Iterable[str]) -> Candidate:
    """The candidate, whose name another may only have if it is a run of that experiment."""
    if candidate.name in experiments and candidate.kind != "run":
        raise StorageError(
            f"{candidate.name} is the name of an experiment, and its history is that of its runs; give the file of "
            f"the {candidate.kind} another name"
        )
    return candidate


def _last_versions(lake: Warehouse) -> list[str]:
    """The version of every experiment that ran last."""
    runs = walk_forward_runs(lake, ["experiment", "partition_key", "finished_at"]).sort("finished_at")
    return runs.group_by("experiment", maintain_order=True).last()["partition_key"].to_list()


def _baselines(specs: list[ExperimentSpec]) -> dict[str, BaselineEntrant]:
    """Every distinct baseline of the experiments, called by its kind; by kind and digest where that is not enough."""
    found = {
        content_hash(each): each
        for spec in specs
        for rule in spec.baselines
        for each in [BaselineEntrant(rule=rule, rebal_freq=spec.environment.rebal_freq, market=spec.market)]
    }
    kinds = [(each.rule.kind, each.market.source) for each in found.values()]
    sources = {source for _, source in kinds}

    def name(digest: str, each: BaselineEntrant) -> str:
        kind = each.rule.kind if len(sources) == 1 else f"{each.rule.kind}-{each.market.source}"
        return kind if kinds.count((each.rule.kind, each.market.source)) == 1 else f"{kind}-{digest[:SHORT]}"

    return {name(digest, each): each for digest, each in found.items()}


def read_entrant(path: Path) -> Entrant:
    """The entrant that a file describes.

    Raises:
        StorageError: if the file is no YAML mapping or no valid entrant.
    """
    try:
        return EntrantDocument.model_validate(read_document(path)).root
    except ValidationError as error:
        raise StorageError(f"{path.name} is no valid entrant: {explained(error, EntrantDocument)}") from error


def _content(path: Path, named: str | None, suffix: str) -> bytes:
    """The file beside an entrant's."""
    beside = path.parent / (named or path.with_suffix(suffix).name)
    try:
        return beside.read_bytes()
    except OSError as error:
        raise StorageError(
            f"{path.name} needs {beside}, but that cannot be read ({error.strerror}); put it there, or name another as "
            "`file`"
        ) from error


def _table(path: Path, entrant: WeightsEntrant) -> WeightsTable:
    try:
        return WeightsTable.of(pl.read_csv(io.BytesIO(_content(path, entrant.file, ".csv")), infer_schema=False))
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{path.name}: weights must be a CSV with a column `date`, a column per symbol and a row per decision, but "
            f"the file cannot be read so ({str(error).partition(chr(10))[0]})"
        ) from error


def training_seconds(ledger: Ledger, run_id: str) -> float | None:
    """How long a run's executions trained, from the begin of each to its last step of training; None if not known."""
    events = ledger.events(run_id)
    last = pl.col("timestamp").filter(pl.col("stage").str.starts_with("train")).max()
    spans = events.group_by("task_id").agg((last - pl.col("timestamp").min()).dt.total_microseconds())
    known = spans["timestamp"].drop_nulls()
    return float(known.sum()) / 1e6 if len(known) else None
