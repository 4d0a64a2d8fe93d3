"""Who is judged: the files of `data/entrants`, the last run of every experiment, and every distinct baseline."""

import hashlib
import io
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from pydantic import ValidationError

from nvtrader_pipelines.components.component import content_hash
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.activations import MAX_BYTES
from nvtrader_pipelines.policies.weights_table import WeightsTable
from nvtrader_pipelines.runs.tables import walk_forward_runs
from nvtrader_pipelines.scoreboard.candidates import (
    Candidate,
    baseline_candidate,
    run_candidate,
    sb3_candidate,
    weights_candidate,
)
from nvtrader_pipelines.scoreboard.entrants import (
    BaselineEntrant,
    Entrant,
    EntrantDocument,
    RunEntrant,
    Sb3Entrant,
    WeightsEntrant,
)
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.store import Store

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")  # of a file: it becomes a folder of scorecards
SUFFIXES = {".yaml", ".yml"}


@dataclass(frozen=True)
class Roster:
    """Everybody who is judged, in the order of their right of way, and why some cannot be."""

    candidates: list[Candidate] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Reader:
    """Makes candidates of what a home holds."""

    store: Store
    gross_limit: float

    def run(self, name: str, wanted: str) -> Candidate:
        """The last completed run whose id or experiment's name is the wanted one."""
        runs = walk_forward_runs(self.store, ["run_id", "experiment", "partition_key", "finished_at"])
        found = runs.filter(pl.col("experiment") == wanted).sort("finished_at", "run_id")
        if found.is_empty():
            found = runs.filter(pl.col("run_id").str.starts_with(wanted))
            if len(found) != 1:
                called = "several completed runs are" if len(found) else "no completed run is"
                raise StorageError(
                    f"{name} must name one run or an experiment, but {called} called {wanted!r}; see `nvtrader runs`"
                )
        row = found.row(-1, named=True)
        library = self.store.policies
        sealed = library.sealed(row["partition_key"], row["run_id"])
        return run_candidate(
            name,
            self.store.ledger.read(row["partition_key"]),
            sealed.as_parent,
            library.read_run(sealed),
            sealed.chosen,
            sealed.thresholds,
            run_id=sealed.run_id,
            training_seconds=training_seconds(self.store.ledger, sealed.run_id),
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
            from nvtrader_pipelines.policies.sb3_zip import read_sb3_zip  # PyTorch takes seconds to import

            saved = read_sb3_zip(_content(path, entrant.file, ".zip"))
            return sb3_candidate(path.stem, entrant, saved, self.store.panels.of(entrant.market))
        table = _table(path, entrant)
        return weights_candidate(path.stem, entrant, table, self.store.panels.of(entrant.market), self.gross_limit)


def read_roster(store: Store, gross_limit: float) -> Roster:
    """Runs, newest first, then files, then baselines; a file takes the place of what has its name and kind.

    A file that may not have its name, or cannot be read, keeps nobody of that name away.
    """
    reader, roster = _Reader(store, gross_limit), Roster()
    runs = walk_forward_runs(store, ["experiment", "finished_at"]).sort("finished_at", descending=True)
    experiments = runs["experiment"].unique(maintain_order=True).to_list()
    rules = baselines_of(_last_specs(store, roster), experiments)
    paths = sorted(
        path for path in store.home.entrants.glob("*") if path.suffix in SUFFIXES and not path.name.startswith(".")
    )
    times = Counter(path.stem for path in paths)
    from_files: dict[str, Candidate] = {}
    for path in paths:
        try:
            _require_once(path, times)
            from_files[path.stem] = _as_named(reader.file(path), experiments, rules)
        except (StorageError, ValueError) as error:
            taken = path.stem in experiments or path.stem in rules
            roster.problems[path.name if taken else path.stem] = str(error)
    for name in experiments:
        try:
            roster.candidates.append(from_files.pop(name, None) or reader.run(name, name))
        except (StorageError, ValueError) as error:
            roster.problems[name] = str(error)
    roster.candidates.extend(from_files.values())
    roster.candidates.extend(baseline_candidate(name, rule) for name, rule in rules.items() if name not in from_files)
    return roster


def _require_once(path: Path, times: Mapping[str, int]) -> None:
    """Refuse a file beside another of its name."""
    if times[path.stem] > 1:
        raise StorageError(
            f"a file names its entrant, but there are {path.stem}.yaml and {path.stem}.yml; remove one of the two"
        )


def _as_named(candidate: Candidate, experiments: Collection[str], rules: Mapping[str, BaselineEntrant]) -> Candidate:
    """The candidate, whose name another may only have if it is a run of that experiment, or that rule."""
    if candidate.name in experiments and candidate.kind != "run":
        raise StorageError(
            f"{candidate.name} is the name of an experiment, and its history is that of its runs; give the file of "
            f"the {candidate.kind} another name"
        )
    rule = rules.get(candidate.name)
    if rule is not None:
        own = candidate.configuration.get("rule", {}).get("kind") if candidate.kind == "baseline" else candidate.kind
        if own != rule.rule.kind:
            raise StorageError(
                f"{candidate.name} is the name of a baseline, and its history is that of {rule.rule.kind}; give the "
                f"file of the {own} another name"
            )
    return candidate


def _last_specs(store: Store, roster: Roster) -> list[ExperimentSpec]:
    """The version of every experiment that ran last; one that this code cannot read is a problem of the roster."""
    runs = walk_forward_runs(store, ["experiment", "partition_key", "finished_at"]).sort("finished_at")
    last = runs.group_by("experiment", maintain_order=True).last()
    found = []
    for name, key in last.select("experiment", "partition_key").iter_rows():
        try:
            found.append(store.ledger.read(key))
        except StorageError as error:
            roster.problems[name] = str(error)
    return found


def baselines_of(specs: list[ExperimentSpec], taken: Collection[str] = ()) -> dict[str, BaselineEntrant]:
    """Every distinct baseline of the experiments, the first called by its kind, further ones by more than it.

    So one that joins later renames nobody.

    Args:
        specs: the experiments, first the one that ran first.
        taken: names that others have.
    """
    found: dict[str, BaselineEntrant] = {}
    known = set()
    for spec in specs:
        for rule in spec.baselines:
            each = BaselineEntrant(rule=rule, rebal_freq=spec.environment.rebal_freq, market=spec.market)
            digest = content_hash(each)
            if digest in known:
                continue
            known.add(digest)
            names = [rule.kind, f"{rule.kind}-{short_id(digest)}"]
            if spec.market.source != specs[0].market.source:
                names.insert(1, f"{rule.kind}-{spec.market.source}")
            found[next(name for name in names if name not in found and name not in taken)] = each
    return found


def read_entrant(path: Path) -> Entrant:
    """The entrant that a file describes.

    Raises:
        StorageError: if the file is no YAML mapping or no valid entrant.
    """
    try:
        return EntrantDocument.model_validate(read_document(path)).root
    except ValidationError as error:
        raise StorageError(f"{path.name} is no valid entrant: {explain(error, EntrantDocument)}") from error


def _content(path: Path, named: str | None, suffix: str) -> bytes:
    """The file beside an entrant's, in the same folder or below it.

    Raises:
        StorageError: if it is elsewhere, too large, or cannot be read.
    """
    folder = path.parent.resolve()
    beside = (folder / (named or path.with_suffix(suffix).name)).resolve()
    if not beside.is_relative_to(folder):
        raise StorageError(f"{path.name}: file must be in {folder}, but is {named!r}; put it there")
    try:
        n_bytes = beside.stat().st_size
        content = beside.read_bytes() if n_bytes <= MAX_BYTES else b""
    except OSError as error:
        raise StorageError(
            f"{path.name} needs {beside}, but that cannot be read ({error.strerror}); put it there, or name another as "
            "`file`"
        ) from error
    if n_bytes > MAX_BYTES:
        raise StorageError(
            f"{path.name} needs a file of at most {MAX_BYTES >> 20} MiB, but {beside.name} has {n_bytes >> 20}"
        )
    return content


def _table(path: Path, entrant: WeightsEntrant) -> WeightsTable:
    content = _content(path, entrant.file, ".csv")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise StorageError(f"{path.name}: weights must be a CSV in UTF-8, but the file is in UTF-16; save it as UTF-8")
    first = content.split(b"\n", 1)[0]
    if b";" in first and b"," not in first:
        raise StorageError(
            f"{path.name}: weights must be a CSV separated by commas, but the file has semicolons; save it with commas "
            "between fields and a point before decimals"
        )
    try:
        rows = pl.read_csv(io.BytesIO(content), infer_schema=False)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{path.name}: weights must be a CSV with a column `date`, a column per symbol and a row per decision, but "
            f"the file cannot be read so ({str(error).partition(chr(10))[0]})"
        ) from error
    return WeightsTable.from_frame(rows, hashlib.sha256(content).hexdigest())


def training_seconds(ledger: Ledger, run_id: str) -> float | None:
    """How long a run's executions trained, from the begin of each to its last step of training; None if not known."""
    events = ledger.events(run_id)
    last = pl.col("timestamp").filter(pl.col("stage").str.starts_with("train")).max()
    spans = events.group_by("task_id").agg((last - pl.col("timestamp").min()).dt.total_microseconds())
    known = spans["timestamp"].drop_nulls()
    return float(known.sum()) / 1e6 if len(known) else None
