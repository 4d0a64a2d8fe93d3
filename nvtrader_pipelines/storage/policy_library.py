"""Policy files in `data/rl/policies/<experiment>/<run>/`, sealed by a manifest of digests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars as pl

from nvtrader_pipelines.experiments.recorded_folds import recorded_fold_numbers
from nvtrader_pipelines.experiments.sealed_run import SealedRun, fold_and_seed
from nvtrader_pipelines.policies.acceleration import describe_acceleration
from nvtrader_pipelines.policies.agents.pathwise import WindowLearner
from nvtrader_pipelines.policies.archive import PolicyArchiveError, read_archive, read_card
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.processes import processor_name
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.shared_files import SharedFiles

if TYPE_CHECKING:  # slow to import
    from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
    from nvtrader_pipelines.experiments.policy_accounts import FoldThresholds, SeedWeights
    from nvtrader_pipelines.experiments.run_store import TrainedPolicy

MANIFEST, LATEST = "manifest.json", "latest.json"
NONE: Mapping[int, Any] = MappingProxyType({})


@dataclass(frozen=True)
class PolicyLibrary:
    """Policy files of a home."""

    home: Home

    def folder(self, partition_key: str, run_id: str) -> Path:
        """Folder of a run's policies, noted as read."""
        folder = self.home.policies / partition_key / run_id
        note_read(folder)
        return folder

    @cached_property
    def shared(self) -> SharedFiles:
        """Files that are also in the object store, if the home has one."""
        return SharedFiles(self.home)

    def _pulled(self, partition_key: str, run_id: str) -> Path:
        """Folder of a run, brought up to the object store's unless it is sealed here."""
        folder = self.folder(partition_key, run_id)
        if not (folder / MANIFEST).exists():
            self.shared.pull(folder)
        return folder

    def trained_keys(self, partition_key: str, run_id: str) -> set[FoldSeed]:
        """Folds and seeds with a readable policy file, unchanged if the run is sealed."""
        folder = self._pulled(partition_key, run_id)
        try:
            sealed = _read_manifest(folder / MANIFEST).policies if (folder / MANIFEST).exists() else {}
        except StorageError:  # without a manifest no file can be verified
            return set()
        keys = set()
        for path in folder.glob("fold-*.zip"):
            content = path.read_bytes()
            if sealed.get(path.name, _sha256(content)) != _sha256(content):
                continue  # changed since it was sealed: train it again
            with contextlib.suppress(PolicyArchiveError):  # damaged: train it again
                card, _ = read_archive(content)
                keys.add((card.fold, card.seed))
        return keys

    def save(self, partition_key: str, run_id: str, policy: TrainedPolicy) -> Path:
        """Write a policy atomically, then delete its checkpoint."""
        key = (policy.fold, policy.seed)
        path = self.folder(partition_key, run_id) / policy_file_name(key)
        write_atomically(path, policy.archive)
        self.shared.try_push(path)  # `seal` requires it
        self.checkpoint_path(partition_key, run_id, key).unlink(missing_ok=True)
        return path

    def checkpoint_path(self, partition_key: str, run_id: str, key: FoldSeed) -> Path:
        """Path of the state from which an interrupted training resumes."""
        return self.folder(partition_key, run_id) / f"fold-{key[0]}-seed-{key[1]}.checkpoint"

    def read_unsealed(self, plan: RunPlan) -> Mapping[FoldSeed, bytes]:
        """Read the policies of a run that is not sealed yet."""
        folder = self.folder(plan.spec.partition_key, plan.run_id)
        paths = {key: folder / policy_file_name(key) for key in plan.keys}
        return {key: path.read_bytes() for key, path in paths.items() if path.exists()}

    def seal(self, plan: RunPlan, seed_weights: SeedWeights = NONE, thresholds: FoldThresholds = NONE) -> SealedRun:
        """Write the manifest of a trained run and make it the latest of its experiment.

        Raises:
            StorageError: if a policy is missing.
        """
        folder = self.folder(plan.spec.partition_key, plan.run_id)
        names = [policy_file_name(key) for key in plan.keys]
        missing = [name for name in names if not (folder / name).exists()]
        if missing:
            raise StorageError(f"{folder} lacks {', '.join(missing)}; train the experiment again")
        policies = {name: _sha256((folder / name).read_bytes()) for name in names}
        processor = processor_name()
        if isinstance(plan.spec.agent, WindowLearner) and (acceleration := describe_acceleration()):
            processor = f"{processor}, {acceleration}"
        with contextlib.suppress(StorageError):  # not sealed yet
            before = self.read_sealed(plan.spec.partition_key, plan.run_id)
            processor = before.processor if before.policies == policies else processor
        run = SealedRun.of(plan, policies, seed_weights, thresholds, processor)
        write_atomically(folder / MANIFEST, run.model_dump_json(indent=1).encode())
        self.shared.push(*(folder / name for name in names), folder / MANIFEST)
        write_atomically(folder.parent / LATEST, json.dumps({"run_id": run.run_id}).encode())
        self.shared.push(folder.parent / LATEST)
        for checkpoint in folder.glob("*.checkpoint"):  # left by a process killed in `save`
            checkpoint.unlink(missing_ok=True)
        return run

    def delete(self, partition_key: str, run_id: str) -> None:
        """Delete the files of a run; if it was the latest, its version has no latest run."""
        folder = self.folder(partition_key, run_id)
        latest = folder.parent / LATEST
        self.shared.pull(latest)
        if latest.exists() and run_id.encode() in latest.read_bytes():
            self.shared.delete(latest)
            latest.unlink()
        self.shared.delete(folder)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # other runs are left, or there was none
            folder.parent.rmdir()

    def read_latest(self, partition_key: str) -> SealedRun:
        """Read the manifest of the run that trained an experiment's policies last.

        Raises:
            StorageError: if no run is sealed, or the manifest is damaged.
        """
        pointer = self.folder(partition_key, LATEST)
        self.shared.try_pull(pointer)
        if not pointer.exists():
            name = partition_key.partition("@")[0]
            raise StorageError(f"{partition_key} has no trained policies; run `nvtrader experiments run {name}` first")
        try:
            run_id = json.loads(pointer.read_bytes())["run_id"]
        except (ValueError, LookupError, TypeError) as error:
            raise StorageError(f"{pointer} is damaged; {_train_again(partition_key)}") from error
        return self.read_sealed(partition_key, run_id)

    def is_intact(self, partition_key: str, run_id: str) -> bool:
        """Whether a run is sealed, and all its policy files are as they were sealed."""
        try:
            run = self.read_sealed(partition_key, run_id)
            return self.read_latest(partition_key) is not None and self.find_tampered_files(run).is_empty()
        except StorageError:
            return False

    def is_sealed(self, partition_key: str, run_id: str) -> bool:
        """Return whether a run is sealed."""
        return (self._pulled(partition_key, run_id) / MANIFEST).exists()

    def read_sealed(self, partition_key: str, run_id: str) -> SealedRun:
        """Read the manifest of a sealed run.

        Raises:
            StorageError: if the run is not sealed, or its manifest is damaged or belongs to another run.
        """
        path = self._pulled(partition_key, run_id) / MANIFEST
        run, experiment = _read_manifest(path), partition_key.partition("@")[0]
        if (run.partition_key, run.run_id, run.experiment) != (partition_key, run_id, experiment):
            raise StorageError(
                f"{path} must be the manifest of run {run_id} of {partition_key}, but names run {run.run_id} of "
                f"{run.partition_key} ({run.experiment}); {_train_again(experiment)}"
            )
        return run

    def read_run(self, run: SealedRun) -> Mapping[FoldSeed, bytes]:
        """Read every policy of a run, by fold and seed.

        Raises:
            StorageError: if a file is missing or was changed after sealing.
        """
        self.require_untampered(run)
        folder = self.folder(run.partition_key, run.run_id)
        return {fold_and_seed(name): (folder / name).read_bytes() for name in run.policies}

    def require_untampered(self, run: SealedRun) -> None:
        """Raise if a policy file of a run is missing or was changed after sealing.

        Raises:
            StorageError: with the number of such files and the first one.
        """
        broken = self.find_tampered_files(run)
        if len(broken):
            raise StorageError(
                f"{len(broken)} policy files of {run.partition_key} are missing or were changed after sealing "
                f"({broken['file'][0]} in {self.folder(run.partition_key, run.run_id)}); {_train_again(run.experiment)}"
            )

    def find_tampered_files(self, run: SealedRun) -> pl.DataFrame:
        """List the files of a run that are missing or whose digest differs from the sealed one."""
        folder = self.folder(run.partition_key, run.run_id)
        rows = [
            {"file": name, "sealed": sealed, "found": digest}
            for name, sealed in run.policies.items()
            if (digest := _file_digest(folder / name)) != sealed
        ]
        return pl.DataFrame(rows, schema={"file": pl.String, "sealed": pl.String, "found": pl.String})


def training_windows(run: SealedRun, archives: Mapping[FoldSeed, bytes]) -> pl.DataFrame:
    """Training windows of a run's policies, from their cards: recorded fold, first and last session."""
    tested = recorded_fold_numbers(run.folds)
    rows = [
        (fold, *map(date.fromisoformat, stretch))
        for card in map(read_card, archives.values())
        for fold in tested[card.fold]
        for stretch in card.stretches
    ]
    schema = {"fold": pl.Int32, "train_first": pl.Date, "train_last": pl.Date}
    return pl.DataFrame(rows, schema=schema, orient="row")


def policy_file_name(key: FoldSeed) -> str:
    """File name of a policy, `fold-<k>-seed-<s>.zip`."""
    fold, seed = key
    return f"fold-{fold}-seed-{seed}.zip"


def _read_manifest(path: Path) -> SealedRun:
    try:
        return SealedRun.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} is missing or damaged; {_train_again(path.parents[1].name)}") from error


def _train_again(name: str) -> str:
    """Remedy for damaged policies of an experiment or version, as the end of a sentence."""
    return (
        f"`nvtrader experiments run {name.partition('@')[0]}` trains them again to the same bytes if market and code "
        "are those of the run; otherwise restore the folder from a backup"
    )


def _file_digest(path: Path) -> str:
    return _sha256(path.read_bytes()) if path.is_file() else "missing"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
