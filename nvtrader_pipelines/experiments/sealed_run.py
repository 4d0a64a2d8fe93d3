"""Sealed runs: manifests of runs with the digests of their policies."""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.plan_kinds import PlanKind
from nvtrader_pipelines.experiments.recorded_folds import FoldDates, Parent, fold_dates
from nvtrader_pipelines.portfolio.pipeline.stage import Thresholds

if TYPE_CHECKING:  # takes half a second to import, and a list of runs reads manifests only
    from nvtrader_pipelines.experiments.plan import RunPlan
    from nvtrader_pipelines.experiments.policy_accounts import FoldThresholds, SeedWeights


class SealedRun(BaseModel):
    """Run with the digests of its policy files, as in its manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    partition_key: str
    experiment: str
    spec_hash: str
    run_id: str
    kind: PlanKind
    parent_run_id: str | None
    source: str
    panel_digest: str
    snapshot_ids: dict[str, int]
    code_version: str
    processor: str = Field(default="", exclude_if=operator.not_)  # that trained it; older manifests lack it
    warnings: tuple[str, ...]
    seeds: tuple[int, ...]
    folds: tuple[FoldDates, ...] = Field(min_length=1)
    chosen: dict[int, int]  # fold to the seed that trades alone
    weights: dict[int, dict[int, float]] = Field(default={}, exclude_if=operator.not_)  # by fold and seed
    thresholds: dict[int, Thresholds] = Field(default={}, exclude_if=operator.not_)  # by fold
    policies: dict[str, str]  # file name to SHA-256

    @model_validator(mode="after")
    def _can_be_opened(self) -> Self:
        for fold in self.folds:
            _ = fold.in_days
        for name in self.policies:
            fold_and_seed(name)
        return self

    @classmethod
    def of(
        cls,
        plan: RunPlan,
        policies: Mapping[str, str],
        seed_weights: SeedWeights,
        thresholds: FoldThresholds,
        processor: str,
    ) -> Self:
        """Describe a run and its policies."""
        return cls(
            partition_key=plan.spec.partition_key,
            experiment=plan.spec.name,
            spec_hash=plan.spec.spec_hash,
            run_id=plan.run_id,
            kind=plan.kind,
            parent_run_id=plan.parent_run_id,
            source=plan.panel.source,
            panel_digest=plan.panel_digest,
            snapshot_ids=dict(plan.panel.snapshot_ids),
            code_version=code_of(plan.spec),
            processor=processor,
            warnings=plan.warnings,
            seeds=plan.spec.seeds,
            folds=fold_dates(plan),
            chosen={fold: seed for fold, weights in seed_weights.items() if len(weights) == 1 for seed in weights},
            weights={fold: dict(weights) for fold, weights in seed_weights.items() if len(weights) > 1},
            thresholds=dict(thresholds),
            policies=dict(policies),
        )

    @property
    def seed_weights(self) -> SeedWeights:
        """Weights of seeds by fold; empty where all weigh the same."""
        return {fold: {seed: 1.0} for fold, seed in self.chosen.items()} | self.weights

    @property
    def as_parent(self) -> Parent:
        """Parent of replays and forward runs."""
        return Parent(self.run_id, self.folds)

    @property
    def sha256(self) -> str:
        """SHA-256 of the fields that decide results: policies, folds, seeds, thresholds, code, market.

        Without snapshot ids: equal markets in other snapshots have the same `panel_digest`. Without the processor:
        it is in the policies' bytes.
        """
        content = self.model_dump(mode="json", exclude={"snapshot_ids", "processor"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


FILE = re.compile(r"fold-(\d+)-seed-(\d+)\.zip")  # of the policy library


def fold_and_seed(file: str) -> tuple[int, int]:
    """Parse fold and seed from the name of a policy file.

    Raises:
        ValueError: if the name does not match.
    """
    match = FILE.fullmatch(file)
    if match is None:
        raise ValueError(f"a policy file must be named fold-<k>-seed-<s>.zip, got {file!r}")
    return int(match[1]), int(match[2])


class PolicyRef(NamedTuple):
    """Reference to a policy: a run id, and the name of one of its accounts."""

    run_id: str
    policy: str  # the experiment's name for its ensemble, or <name>/seed-<k>

    @property
    def label(self) -> str:
        """Name of the policy with its run, for sentences."""
        return f"{self.policy} (run {short_id(self.run_id)})"
