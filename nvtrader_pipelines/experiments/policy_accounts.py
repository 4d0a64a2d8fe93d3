"""Accounts of a run: every seed or path, the experiment's ensemble and the baselines."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import Block, Fold
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.walk_forward_evaluation import PATH
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.experiments.progress import SHARPE_OF_SEED, WEIGHT_OF_SEED
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.archive import PolicyArchiveError, PolicyCard, read_archive, read_card
from nvtrader_pipelines.policies.learned import EnsemblePolicy, Interfaces, open_policy, require_same_market
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy, SharedPipeline, without_timing
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.portfolio.pipeline import Thresholds

Archives = Mapping[FoldSeed, bytes]
FoldThresholds = Mapping[int, Thresholds]  # fold to the fitted thresholds of its timing
SeedWeights = Mapping[int, Mapping[int, float]]  # fold to the weights of its seeds; empty if all weigh the same


@dataclass(frozen=True)
class SeedChoice:
    """Weights of a fold's seeds by their validation Sharpe ratios: of the best alone, or of each."""

    fold: int
    weights: Mapping[int, float]  # by seed that trades, sum to 1
    sharpe: Mapping[int, float]  # by seed, annualized, net of costs

    @property
    def seed(self) -> int | None:
        """Seed that trades alone, if one does."""
        return next(iter(self.weights)) if len(self.weights) == 1 else None

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the choice: Sharpe ratios, and weights where several seeds trade."""
        weights = self.weights if self.seed is None else {}
        return {f"{SHARPE_OF_SEED}{seed}": sharpe for seed, sharpe in self.sharpe.items()} | {
            f"{WEIGHT_OF_SEED}{seed}": weight for seed, weight in weights.items()
        }

    def describe(self, spec: ExperimentSpec) -> str:
        """Describe the choice by the validation Sharpe ratio of every seed and its agent."""
        agents = {seed: f"seed {seed} ({spec.agent_of(seed).kind})" for seed in self.sharpe}
        if self.seed is None:
            weights = (
                f"{agents[seed]} {weight:.2f} ({self.sharpe[seed]:.2f})" for seed, weight in self.weights.items()
            )
            return f"weights of seeds (validation Sharpe ratio): {', '.join(weights)}"
        others = ", ".join(f"{agents[seed]} {sharpe:.2f}" for seed, sharpe in self.sharpe.items() if seed != self.seed)
        return f"{agents[self.seed]} has the best validation Sharpe ratio: {self.sharpe[self.seed]:.2f}; {others}"


def build_accounts(
    plan: RunPlan, archives: Archives, seed_weights: SeedWeights, thresholds: FoldThresholds
) -> list[PolicyAccount]:
    """Build the accounts of every seed or path, the experiment's ensemble and the baselines.

    All but the baselines decide through the experiment's weight pipeline, with the thresholds of the fold in force.
    The ensemble averages the target weights of the seeds, in each fold by `seed_weights` if there are any. A classical
    agent does not learn and has no seeds: one policy trades one account over all folds.

    With several paths, there is an account per path instead of per seed: the average of all seeds of the fold in force.
    The ensemble then averages over seeds and paths: in each block, the mean weights of all policies that were not
    trained on it, with the mean of their folds' thresholds.

    Raises:
        KeyError: if the archive of a fold and seed is missing.
        ValueError: if the timing needs thresholds and those of a fold are missing.
        PolicyArchiveError: if an archive is unusable, belongs to another fold, seed or run, or to a market with other
            names or features (for rules too).
    """
    spec, n_blocks = plan.spec, len(plan.paths.blocks)
    no_seeds = (None,) * n_blocks
    baselines = [
        PolicyAccount(baseline.kind, "baseline", no_seeds, (baseline.start(),) * n_blocks)
        for baseline in spec.all_baselines
    ]
    started, fitted = SharedPipeline(spec.pipeline), _require_thresholds(plan, thresholds)
    own = [
        replace(
            proposing,
            policies=tuple(
                PipelinedPolicy(
                    policy,
                    spec.pipeline,
                    mean_thresholds([fitted[fold.index] for fold in deciding]),
                    spec.environment.rebal_freq,
                    started,
                )
                for policy, deciding in zip(proposing.policies, folds, strict=True)
            ),
        )
        for proposing, folds in _proposals(plan, archives, seed_weights)
    ]
    return [*own, *baselines]


def _proposals(
    plan: RunPlan, archives: Archives, seed_weights: SeedWeights
) -> list[tuple[PolicyAccount, Sequence[Sequence[Fold]]]]:
    """Accounts before the pipeline, each with the folds in force per block; the ensemble comes last."""
    folds_by_block = list(zip(*plan.deciding, strict=True))
    rule = plan.spec.agent.rule_policy()
    if rule is not None:
        for key in plan.keys:  # a rule loads nothing from its archives, but is valid on their market only
            card = read_card(_archive(key, archives))
            _require_own_card(plan, key, card)
            require_same_market(card, plan.panel.symbols, plan.panel.feature_names)
        n_blocks = len(folds_by_block)
        one = PolicyAccount(plan.spec.name, "ensemble", (None,) * n_blocks, (rule,) * n_blocks)
        return [(one, folds_by_block)]
    policies = _open_policies(plan, plan.keys, archives)
    if len(plan.deciding) == 1:
        members = [(seed, folds_by_block) for seed in _seeds(plan, policies)]
    else:
        members = [
            (path, [(fold,) for fold in folds])
            for path, folds in zip(_paths(plan, policies), plan.deciding, strict=True)
        ]
    return [*members, (_ensemble(plan, policies, seed_weights), folds_by_block)]


def proposing_policy(plan: RunPlan, archives: Archives, seed_weights: SeedWeights, fold: Fold) -> Policy:
    """Policy of the experiment in a fold, before its pipeline.

    Raises:
        KeyError: if the archive of a seed is missing.
        PolicyArchiveError: if an archive is unusable, or belongs to another fold, seed or run.
    """
    if (rule := plan.spec.agent.rule_policy()) is not None:
        return rule
    weights = seed_weights[fold.index] if seed_weights else None
    seeds = plan.spec.seeds if weights is None else weights
    policies = _open_policies(plan, [(fold.index, seed) for seed in seeds], archives)
    return _average(plan, policies, [fold]) if weights is None else _weighted(policies, fold, weights)


def policy_without_timing(plan: RunPlan, archives: Archives, seed_weights: SeedWeights, fold: Fold) -> Policy:
    """Policy of the experiment in a fold, through its pipeline without the timing.

    Raises:
        KeyError: if the archive of a seed is missing.
        PolicyArchiveError: if an archive is unusable, or belongs to another fold, seed or run.
    """
    spec, policy = plan.spec, proposing_policy(plan, archives, seed_weights, fold)
    return PipelinedPolicy(policy, without_timing(spec.pipeline), Thresholds(), spec.environment.rebal_freq)


def _require_thresholds(plan: RunPlan, fitted: FoldThresholds) -> dict[int, Thresholds]:
    """Thresholds of each fold's timing, empty if it needs no fit; raise if some are missing."""
    timing = plan.spec.pipeline.timing
    missing = [fold.index for fold in plan.folds if timing.needs_fit and fold.index not in fitted]
    if missing:
        raise ValueError(
            f"the {timing.kind} timing of {plan.spec.partition_key} needs thresholds fitted on the training of each "
            f"fold, but there are none of fold {missing[0]}; train the experiment again"
        )
    return {fold.index: fitted.get(fold.index, Thresholds()) for fold in plan.folds}


def mean_thresholds(several: Sequence[Thresholds]) -> Thresholds:
    """Mean of each threshold."""
    if len(several) == 1:
        return several[0]
    means = {}
    for name in Thresholds.model_fields:
        known = [value for value in (getattr(array, name) for array in several) if value is not None]
        means[name] = float(np.mean(known)) if known else None
    return Thresholds(**means)


def _seeds(plan: RunPlan, policies: Mapping[FoldSeed, Policy]) -> list[PolicyAccount]:
    (path,) = plan.deciding
    return [
        PolicyAccount(
            f"{plan.spec.name}/seed-{seed}",
            "policy",
            (seed,) * len(path),
            tuple(policies[fold.index, seed] for fold in path),
        )
        for seed in plan.spec.seeds
    ]


def _paths(plan: RunPlan, policies: Mapping[FoldSeed, Policy]) -> list[PolicyAccount]:
    averages = [tuple(_average(plan, policies, [fold]) for fold in path) for path in plan.deciding]
    return [
        PolicyAccount(f"{plan.spec.name}{PATH}{p}", "policy", (None,) * len(average), average)
        for p, average in enumerate(averages)
    ]


def _ensemble(plan: RunPlan, policies: Mapping[FoldSeed, Policy], seed_weights: SeedWeights) -> PolicyAccount:
    if seed_weights:
        by_fold = [seed_weights[fold.index] for fold in plan.folds]
        alone = tuple(next(iter(weights)) if len(weights) == 1 else None for weights in by_fold)
        own = tuple(_weighted(policies, fold, weights) for fold, weights in zip(plan.folds, by_fold, strict=True))
        return PolicyAccount(plan.spec.name, "ensemble", alone, own)
    averages = tuple(_average(plan, policies, folds) for folds in zip(*plan.deciding, strict=True))
    return PolicyAccount(plan.spec.name, "ensemble", (None,) * len(averages), averages)


def _average(plan: RunPlan, policies: Mapping[FoldSeed, Policy], folds: Iterable[Fold]) -> EnsemblePolicy:
    """Average all seeds of some folds."""
    return EnsemblePolicy([policies[fold.index, seed] for fold in folds for seed in plan.spec.seeds])


def _weighted(policies: Mapping[FoldSeed, Policy], fold: Fold, weights: Mapping[int, float]) -> Policy:
    """Average the seeds of a fold by their weights; a copy of the one seed that trades alone."""
    members = [policies[fold.index, seed] for seed in weights]
    return copy(members[0]) if len(members) == 1 else EnsemblePolicy(members, tuple(weights.values()))


def weigh_seeds(plan: RunPlan, archives: Archives, fold: Fold) -> SeedChoice:
    """Weigh the seeds of a fold by the net Sharpe ratios on the sessions held out of its training, as the design does.

    Each seed trades there through the pipeline, but without the timing.
    """
    first, last = plan.validation_window(fold)
    held_out = Block(fold.index, first, last)
    policies = _open_policies(plan, [(fold.index, seed) for seed in plan.spec.seeds], archives)
    pipeline = without_timing(plan.spec.pipeline)  # thresholds are fitted later, for the weighted seeds
    started, rebal_freq = SharedPipeline(pipeline), plan.spec.environment.rebal_freq
    seeds = [
        PolicyAccount(
            str(seed),
            "policy",
            (seed,),
            (PipelinedPolicy(policies[fold.index, seed], pipeline, Thresholds(), rebal_freq, started),),
        )
        for seed in plan.spec.seeds
    ]
    curves = backtest(plan.panel, plan.spec.environment, [held_out], seeds).equity_curves
    returns = curves.partition_by("policy", as_dict=True)
    periods_per_year = plan.panel.calendar.periods_per_year
    sharpe = {
        seed: sharpe_ratio(returns[(str(seed),)]["net_return"].to_numpy(), periods_per_year) for seed in plan.spec.seeds
    }
    return SeedChoice(fold.index, plan.spec.design.seed_weights(sharpe), sharpe)


def _open_policies(plan: RunPlan, keys: Collection[FoldSeed], archives: Archives) -> dict[FoldSeed, Policy]:
    shared: Interfaces = {}
    return {key: _open(plan, key, archives, shared) for key in keys}


def _open(plan: RunPlan, key: FoldSeed, archives: Archives, shared: Interfaces) -> Policy:
    card, tensors = read_archive(_archive(key, archives))
    _require_own_card(plan, key, card)
    return open_policy(card, tensors, plan.panel, shared)


def _archive(key: FoldSeed, archives: Archives) -> bytes:
    if key not in archives:
        raise KeyError(f"the policy of fold {key[0]} seed {key[1]} is missing; finish the training of the experiment")
    return archives[key]


def _require_own_card(plan: RunPlan, key: FoldSeed, card: PolicyCard) -> None:
    """Raise if the policy belongs to another fold, seed or run."""
    trained_on = card.panel_digest if plan.kind == "walk_forward" else plan.panel_digest
    if (card.fold, card.seed, card.spec_hash, trained_on) != (*key, plan.spec.spec_hash, plan.panel_digest):
        raise PolicyArchiveError(
            f"the policy of fold {key[0]} seed {key[1]} of {plan.spec.partition_key} on the market "
            f"{short_id(plan.panel_digest)} is one of fold {card.fold} seed {card.seed} of {card.experiment} on the "
            f"market {short_id(card.panel_digest)}; train the experiment again"
        )
