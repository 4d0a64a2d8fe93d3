"""Who takes part in a run: every seed, the experiment itself, and the baselines, each on an account of its own."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.evaluation.backtest import Contestant, backtest
from nvtrader_pipelines.evaluation.splits import Block, Fold
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.walk_forward import PATH
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.policies.agents import Learner
from nvtrader_pipelines.policies.archive import PolicyArchiveError, PolicyCard, read_archive, read_card
from nvtrader_pipelines.policies.learned import EnsemblePolicy, Interfaces, open_policy, require_same_market
from nvtrader_pipelines.policies.pipelined import PipelinedPolicy, SharedPipeline, without_timing
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.portfolio.pipeline import Thresholds

Archives = Mapping[FoldSeed, bytes]
FoldThresholds = Mapping[int, Thresholds]  # fold to what its timing was fitted to


@dataclass(frozen=True)
class Choice:
    """The seed of a fold that did best on the sessions held out of its training."""

    fold: int
    seed: int
    sharpe: Mapping[int, float]  # of each seed there, annualised, net of costs


def contestants(
    plan: RunPlan, archives: Archives, chosen: Mapping[int, int], thresholds: FoldThresholds
) -> list[Contestant]:
    """Every seed or path, the experiment under its own name, and the baselines.

    All but the baselines decide through the experiment's weight pipeline, with the thresholds of the fold in force.
    The experiment is the average of its seeds' weights, or in each fold the seed `chosen` for it. A classical agent
    does not learn and has no seeds: one worker keeps one account over all folds.

    Where the folds make several paths, an account for each takes the place of those of the seeds: the average of all
    seeds of the fold that decides there. The experiment itself is then the average over seeds and paths: in each block
    the mean weights of every policy that was not trained on it, timed by the mean of their folds' thresholds.

    Raises:
        KeyError: if the archive of a fold and seed is missing.
        ValueError: if the timing needs thresholds and those of a fold are missing.
        PolicyArchiveError: if an archive cannot be used, is not the one of its fold and seed in this run, or is of a
            market of other names or features, for a rule as for a network.
    """
    spec, n_blocks = plan.spec, len(plan.paths.blocks)
    nobody = (None,) * n_blocks
    baselines = [
        Contestant(baseline.kind, "baseline", nobody, (baseline.start(),) * n_blocks) for baseline in spec.baselines
    ]
    started, fitted = SharedPipeline(spec.pipeline), _thresholds(plan, thresholds)
    own = [
        replace(
            proposing,
            by_fold=tuple(
                PipelinedPolicy(
                    policy, spec.pipeline, mean_thresholds([fitted[fold.index] for fold in deciding]), started
                )
                for policy, deciding in zip(proposing.by_fold, folds, strict=True)
            ),
        )
        for proposing, folds in _proposing(plan, archives, chosen)
    ]
    return [*own, *baselines]


def _proposing(
    plan: RunPlan, archives: Archives, chosen: Mapping[int, int]
) -> list[tuple[Contestant, Sequence[Sequence[Fold]]]]:
    """Whose weights go through the pipeline, with the folds that decide in each block; the experiment comes last."""
    together = list(zip(*plan.deciding, strict=True))
    if not isinstance(plan.spec.agent, Learner):
        for key in plan.keys:  # a rule needs nothing of its archives, but was tested on their market and no other
            require_same_market(_card(plan, key, archives), plan.panel)
        n_blocks = len(together)
        one = Contestant(plan.spec.name, "ensemble", (None,) * n_blocks, (plan.spec.agent.start(),) * n_blocks)
        return [(one, together)]
    policies = _opened(plan, plan.keys, archives)
    if len(plan.deciding) == 1:
        members = [(seed, together) for seed in _seeds(plan, policies)]
    else:
        members = [
            (path, [(fold,) for fold in folds])
            for path, folds in zip(_paths(plan, policies), plan.deciding, strict=True)
        ]
    return [*members, (_experiment(plan, policies, chosen), together)]


def untimed(plan: RunPlan, archives: Archives, chosen: Mapping[int, int], fold: Fold) -> Policy:
    """Who decides for the experiment in a fold, through its pipeline without the timing; for an account of its own.

    Raises:
        KeyError: if the archive of a seed is missing.
        PolicyArchiveError: if an archive cannot be used, or is not the one of its fold and seed in this run.
    """
    spec, proposing = plan.spec, plan.spec.agent
    if isinstance(proposing, Learner):
        seeds = [chosen[fold.index]] if chosen else spec.seeds
        policies = _opened(plan, [(fold.index, seed) for seed in seeds], archives)
        worker = policies[fold.index, seeds[0]] if chosen else EnsemblePolicy(list(policies.values()))
    else:
        worker = proposing.start()
    return PipelinedPolicy(worker, without_timing(spec.pipeline), Thresholds())


def _thresholds(plan: RunPlan, fitted: FoldThresholds) -> dict[int, Thresholds]:
    """What the timing was fitted to before the tests of each fold; nothing where it needs no fit."""
    timing = plan.spec.pipeline.timing
    missing = [fold.index for fold in plan.folds if timing.needs_fit and fold.index not in fitted]
    if missing:
        raise ValueError(
            f"the {timing.kind} timing of {plan.spec.partition_key} needs thresholds fitted on the training of each "
            f"fold, but there are none of fold {missing[0]}; train the experiment again"
        )
    return {fold.index: fitted.get(fold.index, Thresholds()) for fold in plan.folds}


def mean_thresholds(several: Sequence[Thresholds]) -> Thresholds:
    """The mean of each threshold; of one alone, itself."""
    if len(several) == 1:
        return several[0]
    means = {}
    for name in Thresholds.model_fields:
        known = [value for value in (getattr(each, name) for each in several) if value is not None]
        means[name] = float(np.mean(known)) if known else None
    return Thresholds(**means)


def _seeds(plan: RunPlan, policies: Mapping[FoldSeed, Policy]) -> list[Contestant]:
    """An account for each seed along the one path."""
    (path,) = plan.deciding
    return [
        Contestant(
            f"{plan.spec.name}/seed-{seed}",
            "policy",
            (seed,) * len(path),
            tuple(policies[fold.index, seed] for fold in path),
        )
        for seed in plan.spec.seeds
    ]


def _paths(plan: RunPlan, policies: Mapping[FoldSeed, Policy]) -> list[Contestant]:
    """An account for each path."""
    averages = [tuple(_average(plan, policies, [fold]) for fold in path) for path in plan.deciding]
    return [
        Contestant(f"{plan.spec.name}{PATH}{p}", "policy", (None,) * len(average), average)
        for p, average in enumerate(averages)
    ]


def _experiment(plan: RunPlan, policies: Mapping[FoldSeed, Policy], chosen: Mapping[int, int]) -> Contestant:
    """The experiment's own account."""
    if chosen:
        best = tuple(chosen[fold.index] for fold in plan.folds)
        by_fold = tuple(copy(policies[fold.index, chosen[fold.index]]) for fold in plan.folds)
        return Contestant(plan.spec.name, "ensemble", best, by_fold)
    averages = tuple(_average(plan, policies, folds) for folds in zip(*plan.deciding, strict=True))
    return Contestant(plan.spec.name, "ensemble", (None,) * len(averages), averages)


def _average(plan: RunPlan, policies: Mapping[FoldSeed, Policy], folds: Iterable[Fold]) -> EnsemblePolicy:
    """The mean weights of every seed of some folds; of copies of the policies, for they may remember."""
    return EnsemblePolicy([copy(policies[fold.index, seed]) for fold in folds for seed in plan.spec.seeds])


def choose(plan: RunPlan, archives: Archives, fold: Fold) -> Choice:
    """Of a fold's seeds, the one with the highest net Sharpe ratio on the sessions held out of its training.

    Each is traded there as it will be, through the pipeline, but without the timing.
    """
    first, last = plan.validation_window(fold)
    held_out = Block(fold.index, first, last)
    policies = _opened(plan, [(fold.index, seed) for seed in plan.spec.seeds], archives)
    pipeline = without_timing(plan.spec.pipeline)  # its thresholds are fitted for the seed that is chosen here
    started = SharedPipeline(pipeline)
    seeds = [
        Contestant(
            str(seed),
            "policy",
            (seed,),
            (PipelinedPolicy(policies[fold.index, seed], pipeline, Thresholds(), started),),
        )
        for seed in plan.spec.seeds
    ]
    curves = backtest(plan.panel, plan.spec.environment, [held_out], seeds).equity_curves
    returns = curves.partition_by("policy", as_dict=True)
    sharpe = {seed: sharpe_ratio(returns[(str(seed),)]["net_return"].to_numpy()) for seed in plan.spec.seeds}
    return Choice(fold.index, max(sharpe, key=sharpe.__getitem__), sharpe)


def _opened(plan: RunPlan, keys: Collection[FoldSeed], archives: Archives) -> dict[FoldSeed, Policy]:
    """Policies of the run, each opened once."""
    shared: Interfaces = {}
    return {key: _open(plan, key, archives, shared) for key in keys}


def _open(plan: RunPlan, key: FoldSeed, archives: Archives, shared: Interfaces) -> Policy:
    """One policy of the run."""
    card = _card(plan, key, archives)
    _, tensors = read_archive(archives[key])
    return open_policy(card, tensors, plan.panel, shared)


def _card(plan: RunPlan, key: FoldSeed, archives: Archives) -> PolicyCard:
    """Its card; that of another fold may have been trained on the sessions it would be judged on."""
    if key not in archives:
        raise KeyError(f"the policy of fold {key[0]} seed {key[1]} is missing; train the experiment to the end")
    card = read_card(archives[key])
    trained_on = card.panel_digest if plan.kind == "walk_forward" else plan.panel_digest
    if (card.fold, card.seed, card.spec_hash, trained_on) != (*key, plan.spec.spec_hash, plan.panel_digest):
        raise PolicyArchiveError(
            f"the policy of fold {key[0]} seed {key[1]} of {plan.spec.partition_key} on the market "
            f"{short_id(plan.panel_digest)} is one of fold {card.fold} seed {card.seed} of {card.experiment} on the "
            f"market {short_id(card.panel_digest)}; train the experiment again"
        )
    return card
