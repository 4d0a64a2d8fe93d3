"""Who competes: entrant files, the last run of each experiment, and their baselines."""

import hashlib
import io
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from nvtrader_pipelines.components.component import content_hash
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.experiments.entrant_specs import (
    BaselineEntrantSpec,
    RunEntrantSpec,
    Sb3EntrantSpec,
    WeightsEntrantSpec,
)
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.sb3_limits import MAX_BYTES
from nvtrader_pipelines.policies.weights_table import WeightsTable
from nvtrader_pipelines.runs.run_choices import read_choice_messages
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.scoreboard.entrants import Entrant, baseline_entrant, run_entrant, sb3_entrant, weights_entrant
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import require_regular_file
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.specs import entrant_files, read_entrant
from nvtrader_pipelines.storage.store import Store

ENTRANT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")  # becomes a folder of scorecards


@dataclass(frozen=True)
class Roster:
    """Entrants in the order of precedence, and the reasons of those that cannot be scored."""

    entrants: list[Entrant] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)  # name to reason


@dataclass(frozen=True)
class _EntrantReader:
    """Builder of entrants from the runs and files of a home."""

    store: Store
    runs: pl.DataFrame  # completed walk-forward runs, oldest first
    gross_limit: float

    def from_run(self, name: str, key: str, *, after_tests: bool = False) -> Entrant:
        """Build the entrant of the last completed run of an experiment, or of the run with an id prefix.

        Sessions after the `test_last` of its experiment score it only with `after_tests`.
        """
        runs = self.runs.filter(pl.col("experiment") == key)
        if runs.is_empty():
            runs = self.runs.filter(pl.col("run_id").str.starts_with(key))
            if len(runs) != 1:
                raise StorageError(
                    f"{name} must name one run or an experiment, but {len(runs) or 'no'} completed runs match "
                    f"{key!r}; see `nvtrader runs`"
                )
        row = runs.row(-1, named=True)
        library = self.store.policies
        sealed = library.read_sealed(row["partition_key"], row["run_id"])
        spec = self.store.ledger.read(row["partition_key"])
        return run_entrant(
            name,
            spec,
            sealed.as_parent,
            library.read_run(sealed),
            sealed.seed_weights,
            sealed.thresholds,
            latest=None if after_tests else spec.splitter.test_last,
            run_id=sealed.run_id,
            training_seconds=training_seconds(self.store.ledger, sealed.run_id),
            warnings=sealed.warnings,
            choices=read_choice_messages(self.store.ledger.events(sealed.run_id)) if sealed.seed_weights else (),
        )

    def from_file(self, path: Path) -> Entrant:
        """Build the entrant of a spec file."""
        if not ENTRANT_NAME.fullmatch(path.stem):
            raise StorageError(
                f"an entrant's name must be lowercase letters, digits, - and _, but the file is {path.name}; rename it"
            )
        spec = read_entrant(path)
        if isinstance(spec, RunEntrantSpec):
            return self.from_run(path.stem, spec.run or path.stem, after_tests=spec.after_tests)
        if isinstance(spec, BaselineEntrantSpec):
            return baseline_entrant(path.stem, spec)
        if isinstance(spec, Sb3EntrantSpec):
            from nvtrader_pipelines.policies.sb3_zip import read_sb3_zip  # PyTorch takes seconds to import

            saved = read_sb3_zip(_read_beside(path, spec.file, ".zip"))
            return sb3_entrant(path.stem, spec, saved, self.store.panels.read(spec.market))
        table = _read_weights(path, spec)
        return weights_entrant(path.stem, spec, table, self.store.panels.read(spec.market), self.gross_limit)


def read_roster(store: Store, gross_limit: float) -> Roster:
    """Read the entrants of a home: the last runs of experiments, newest first, then files, then baselines.

    The last runs of an experiment on other markets are entrants, too, with the market as a suffix of their names. Runs
    of archived experiments are left out. A file replaces the run or baseline of its name and kind, or excludes the runs
    of an experiment by `judged: false`; an invalid file does neither.
    """
    runs = walk_forward_runs(store, ["run_id", "experiment", "source", "partition_key", "finished_at"])
    runs = runs.sort("finished_at", "run_id")
    reader, roster = _EntrantReader(store, runs, gross_limit), Roster()
    every = entrant_files(store.home)
    paths = [path for path in every if not _is_left_out(path)]
    left_out = {path.stem for path in every}.difference(path.stem for path in paths) | store.ledger.archived_names()
    known = runs["experiment"].reverse().unique(maintain_order=True)
    without_run = "{} keeps a run from being judged, but no experiment of that name has one; see `nvtrader runs`"
    judged = {*paths, *(path for path in every if path.stem in known)}
    roster.problems.update({path.stem: without_run.format(path.name) for path in every if path not in judged})
    experiments = [name for name in known if name not in left_out]
    keys = {name: name for name in experiments} | _runs_on_other_markets(runs, experiments)
    rules = distinct_baselines(_last_specs(store, runs, roster, experiments), keys)
    n_files = Counter(path.stem for path in paths)
    from_files: dict[str, Entrant] = {}
    for path in paths:
        try:
            _require_unique(path, n_files)
            entrant = reader.from_file(path)
            _require_own_name(entrant, keys, rules)
            from_files[path.stem] = entrant
        except (StorageError, ValueError) as error:
            taken = path.stem in keys or path.stem in rules
            roster.problems[path.name if taken else path.stem] = str(error)
    for name, key in keys.items():
        try:
            roster.entrants.append(from_files.pop(name, None) or reader.from_run(name, key))
        except (StorageError, ValueError) as error:
            roster.problems[name] = str(error)
    roster.entrants.extend(from_files.values())
    roster.entrants.extend(baseline_entrant(name, rule) for name, rule in rules.items() if name not in from_files)
    return roster


def _runs_on_other_markets(runs: pl.DataFrame, experiments: Collection[str]) -> dict[str, str]:
    """Last run of each experiment on markets other than that of its last run: entrant to run id."""
    last = (
        runs.filter(pl.col("experiment").is_in(experiments))
        .reverse()
        .unique(["experiment", "source"], keep="first", maintain_order=True)
    )
    others = last.filter(~pl.col("experiment").is_first_distinct()).select("experiment", "source", "run_id")
    keys = {}
    for name, source, run_id in others.iter_rows():
        names = f"{name}-{source}", f"{name}-{short_id(run_id)}"
        keys[next(entrant for entrant in names if entrant not in experiments)] = run_id
    return keys


def _require_unique(path: Path, n_files: Mapping[str, int]) -> None:
    """Raise if two spec files have the same name."""
    if n_files[path.stem] > 1:
        raise StorageError(
            f"an entrant must have one file, but there are {path.stem}.yaml and {path.stem}.yml; remove one of the two"
        )


def _require_own_name(entrant: Entrant, experiments: Collection[str], rules: Mapping[str, BaselineEntrantSpec]) -> None:
    """Raise if the entrant has the name of an experiment or a baseline without being it."""
    if entrant.name in experiments and entrant.kind != "run":
        raise StorageError(
            f"{entrant.name} is the name of an experiment, whose runs have its history; give the file of the "
            f"{entrant.kind} another name"
        )
    rule = rules.get(entrant.name)
    if rule is not None:
        own = entrant.configuration.get("rule", {}).get("kind") if entrant.kind == "baseline" else entrant.kind
        if own != rule.rule.kind:
            raise StorageError(
                f"{entrant.name} is the name of a baseline, whose history is that of {rule.rule.kind}; give the file "
                f"of the {own} another name"
            )


def _is_left_out(path: Path) -> bool:
    """Whether a file excludes a run from the entrants."""
    try:
        spec = read_entrant(path)
    except StorageError:  # a problem of the roster
        return False
    return isinstance(spec, RunEntrantSpec) and not spec.judged


def _last_specs(store: Store, runs: pl.DataFrame, roster: Roster, experiments: Collection[str]) -> list[ExperimentSpec]:
    """Read the last version run per experiment and market; unreadable ones become problems of the roster."""
    of_them = runs.filter(pl.col("experiment").is_in(experiments))
    last = of_them.group_by("experiment", "source", maintain_order=True).last()
    specs = []
    for name, key in last.select("experiment", "partition_key").iter_rows():
        try:
            specs.append(store.ledger.read(key))
        except StorageError as error:
            roster.problems[name] = str(error)
    return specs


def distinct_baselines(specs: list[ExperimentSpec], taken: Collection[str] = ()) -> dict[str, BaselineEntrantSpec]:
    """Name every distinct baseline: the first of a kind by its kind, later ones with a suffix.

    The specs are in the order of their runs, so that a baseline that is added later renames no earlier one.
    """
    baselines: dict[str, BaselineEntrantSpec] = {}
    known = set()
    for spec in specs:
        for rule in spec.all_baselines:
            each = BaselineEntrantSpec(rule=rule, rebal_freq=spec.environment.rebal_freq, market=spec.market)
            digest = content_hash(each)
            if digest in known:
                continue
            known.add(digest)
            names = [rule.kind, f"{rule.kind}-{short_id(digest)}"]
            if spec.market.source != specs[0].market.source:
                names.insert(1, f"{rule.kind}-{spec.market.source}")
            baselines[next(name for name in names if name not in baselines and name not in taken)] = each
    return baselines


def _read_beside(path: Path, file: str | None, suffix: str) -> bytes:
    """Read a data file in the folder of the spec file or below it.

    Raises:
        StorageError: if it is outside the folder, too large or unreadable.
    """
    folder = path.parent.resolve()
    beside = (folder / (file or path.with_suffix(suffix).name)).resolve()
    if not beside.is_relative_to(folder):
        raise StorageError(f"{path.name}: file must be in {folder}, but is {file!r}; move it there")
    require_regular_file(beside)
    try:
        n_bytes = beside.stat().st_size
        content = beside.read_bytes() if n_bytes <= MAX_BYTES else b""
    except OSError as error:
        raise StorageError(
            f"{path.name} needs {beside}, but it cannot be read ({error.strerror}); put it there, or set `file` to "
            "another one"
        ) from error
    if n_bytes > MAX_BYTES:
        raise StorageError(
            f"{path.name} needs a file of at most {MAX_BYTES >> 20} MiB, but {beside.name} has {n_bytes >> 20}"
        )
    return content


def _read_weights(path: Path, spec: WeightsEntrantSpec) -> WeightsTable:
    content = _read_beside(path, spec.file, ".csv")
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
            f"the file cannot be parsed ({str(error).partition(chr(10))[0]})"
        ) from error
    return WeightsTable.from_frame(rows, hashlib.sha256(content).hexdigest())


def training_seconds(ledger: Ledger, run_id: str) -> float | None:
    """Seconds from the begin of each execution of a run to its last training step; None if unknown."""
    events = ledger.events(run_id)
    last = pl.col("timestamp").filter(pl.col("stage").str.starts_with("train")).max()
    spans = events.group_by("task_id").agg((last - pl.col("timestamp").min()).dt.total_microseconds())
    known = spans["timestamp"].drop_nulls()
    return float(known.sum()) / 1e6 if len(known) else None
