"""Run plan: an experiment on one state of the market; equal content gives equal ids."""

import hashlib
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Self

import numpy as np

from nvtrader_pipelines.components.text import ID_LENGTH, group_by_message
from nvtrader_pipelines.envs.fill_timing import no_opens, resolve_fill
from nvtrader_pipelines.evaluation.splits import BacktestPaths, Fold
from nvtrader_pipelines.experiments.causal_parts import require_causal_parts
from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.plan_kinds import VALIDATION_ONLY, PlanKind
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.features import LOOK_BACK
from nvtrader_pipelines.market.panel import MarketPanel, Window, normalize_windows, panel_digest
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import PolicyCard
from nvtrader_pipelines.policies.baselines import AnchorPortfolio
from nvtrader_pipelines.policies.fit import Start
from nvtrader_pipelines.policies.training import TrainingTask

SURVIVORSHIP = (
    "survivorship bias: the sample's 20 names are known to have lived through 1990-2022, "
    "so every result on it flatters all strategies, and those that buy losers most"
)
INPUTS_OF_TESTS = (
    "inputs look back further than the sessions left out after a test ({wait} of {look_back}), so the first of a "
    "training after it contain tested prices (no returns); raise the splitter's embargo_size by {missing}"
)
MAX_USUAL_COST_BPS = 50.0  # a higher cost is more often a wrong unit than intended
HIGH_COST = (
    "environment.turnover_cost_bps is {bps:g}, {percent:.2g} % of every trade; more than 50 is unusual and "
    "leaves little reason to trade: lower it unless it is intended"
)
LOOKS_AHEAD = "the reward looks ahead in training, by {kinds}; in tests and on paper this part of the reward is 0"
OTHER_ANCHOR = (
    "the baseline `anchor` is the anchor of environment.action, which is one in any case, and not the other that "
    "baselines lists: drop it there"
)
SHORT_HISTORY = (
    "{rule} needs {lookback} sessions for an estimate (reached: {day}) and holds 1/N before, but only {first} precede "
    "the first test; deliver a longer history, test later, or lower its history"
)
FoldSeed = tuple[int, int]


@dataclass(frozen=True, eq=False)
class RunPlan:
    """One run of an experiment on one state of the market.

    A walk_forward trains its own policies on the folds' training windows; replay and forward runs use the parent's over
    other test windows.
    """

    spec: ExperimentSpec
    panel: MarketPanel
    panel_digest: str
    folds: tuple[Fold, ...]
    kind: PlanKind = "walk_forward"
    parent_run_id: str | None = None

    @classmethod
    def of(cls, spec: ExperimentSpec, panel: MarketPanel) -> Self:
        """Plan the walk_forward run of a spec on a market.

        Raises:
            ValueError: if no fold fits, the spec is an ablation, the market lacks data that its pipeline or a rule
                needs, or a fold's training is not what a reward term, the action or its timing needs.
            LookAheadError: if a part of an installed package looks ahead.
            PartError: if such a part fails.
        """
        if spec.design.is_ablation:
            variants = ", ".join(variant.name for variant in spec.variants())
            raise ValueError(f"{spec.name} is an ablation and runs nothing itself; run its variants: {variants}")
        folds = spec.design.folds(spec.splitter.split(panel.sessions))
        spec.pipeline.start(panel)  # cheap, and fails before anything is trained
        for rule in (spec.agent, *spec.all_baselines):
            rule.require_market(panel)
        plan = cls(spec, panel, panel_digest(panel), tuple(folds))
        _require_trainable(plan)
        require_causal_parts(spec, panel)
        _require_fitting_sessions(plan)
        return plan

    @property
    def run_id(self) -> str:
        """16 hexadecimal digits of the inputs that decide the result.

        walk_forward: spec, market and code; replay: parent, window, market and code; forward: parent and code, so that
        new sessions continue the same account.
        """
        code = code_of(self.spec)
        content: tuple[str, ...] = (self.spec.spec_hash, self.panel_digest, code)
        if self.kind == "replay":
            content = (self.kind, str(self.parent_run_id), *map(str, self.window), self.panel_digest, code)
        elif self.kind == "forward":
            content = (self.kind, str(self.parent_run_id), code)
        return hashlib.sha256("|".join(content).encode()).hexdigest()[:ID_LENGTH]

    @cached_property
    def paths(self) -> BacktestPaths:
        """Back-test paths through the folds; several only if folds share tested sessions."""
        return BacktestPaths.of(self.folds)

    @property
    def stretches(self) -> tuple[Self, ...]:
        """Parts that accounts walk one after the other: they open anew in cash where the reported period begins.

        The figures of that period are then those of an account opened at its start, as on the scoreboard. A forward run
        continues one account, and a validation-only run has no place on the scoreboard: both are one part.
        """
        (first, last), report_from = (self.folds[0].test_first, self.folds[-1].test_last), self.spec.report_from
        start = first if report_from is None else self.panel.index_of(np.datetime64(report_from))
        if self.kind == "forward" or len(self.deciding) > 1 or not first < start <= last:
            return (self,)
        spans = ((first, start - 1), (start, last))
        clipped = ([fold.clip_test(*span) for fold in self.folds] for span in spans)
        return tuple(replace(self, folds=tuple(filter(None, folds))) for folds in clipped)

    @cached_property
    def deciding(self) -> tuple[tuple[Fold, ...], ...]:
        """Folds in force in each block, per path."""
        return tuple(tuple(self.folds[position] for position in path) for path in self.paths.by_path)

    @property
    def keys(self) -> list[FoldSeed]:
        """Every fold and seed of the run."""
        return [(fold.index, seed) for fold in self.folds for seed in self.spec.seeds]

    @property
    def window(self) -> tuple[date, date]:
        """First and last tested session; for a forward run without sessions yet, the last known one."""
        sessions, blocks = self.panel.sessions, self.paths.blocks
        last = blocks[-1].test_last
        return sessions[min(blocks[0].test_first, last)].item(), sessions[last].item()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Caveats for readers of the results."""
        return tuple(_warnings(self))

    @property
    def validated_folds(self) -> tuple[Fold, ...]:
        """Folds whose seeds are weighted by validation; empty where all weigh the same."""
        return self.folds if self.spec.design.validation_sessions else ()

    def training_window(self, fold: Fold) -> Window | tuple[Window, ...]:
        """Training window of a fold, without held-out sessions; several windows if it has several.

        Held-out sessions are the last ones, after a purge.

        Raises:
            ValueError: if no training sessions are left.
        """
        if len(fold.train) > 1:
            return fold.train
        held_out = self.spec.design.validation_sessions
        last = fold.train_last - (held_out + self.spec.splitter.purge_size if held_out else 0)
        if last <= fold.train_first:
            raise ValueError(
                f"fold {fold.index} has {fold.train_last - fold.train_first + 1} training sessions, of which "
                f"{held_out} and a purge of {self.spec.splitter.purge_size} are held out; hold fewer out"
            )
        return fold.train_first, last

    def fitting_windows(self, fold: Fold) -> tuple[Window, ...]:
        """Training sessions that a timing is fitted on, whose history contains no tested session.

        Raises:
            ValueError: as `training_window`.
        """
        history, windows = self.spec.pipeline.timing.history, []
        for first, last in normalize_windows(self.training_window(fold)):
            tested = max((end for _, end in fold.test if end < first), default=None)
            start = first if tested is None else max(first, tested + 1 + history)
            if start <= last:
                windows.append((start, last))
        return tuple(windows)

    def validation_window(self, fold: Fold) -> tuple[int, int]:
        """First and last session held out of a fold's training."""
        return fold.train_last - self.spec.design.validation_sessions + 1, fold.train_last

    def task(self, key: FoldSeed, resume_from: bytes | None = None, start: Start | None = None) -> TrainingTask:
        """Training task of one fold and seed."""
        spec = self.spec
        window = self.training_window(next(fold for fold in self.folds if fold.index == key[0]))
        return TrainingTask(
            fold=key[0],
            seed=key[1],
            window=window,
            environment=spec.environment,
            agent=spec.agent_of(key[1]),
            sample_rate=spec.training_sample_rate,
            resume_from=resume_from,
            start=start,
            pipeline=spec.pipeline if spec.environment.pipeline else None,
            stages=tuple((stage.environment, stage.agent_of(key[1])) for stage in spec.stages()),
        )


def policy_card(plan: RunPlan, task: TrainingTask, fit: Fit) -> PolicyCard:
    """Card of a trained policy."""
    sessions = plan.panel.sessions
    days = tuple((str(sessions[first]), str(sessions[last])) for first, last in normalize_windows(task.window))
    return PolicyCard(
        experiment=plan.spec.partition_key,
        spec_hash=plan.spec.spec_hash,
        fold=task.fold,
        seed=task.seed,
        environment=plan.spec.environment,
        agent=task.agent,
        symbols=plan.panel.symbols,
        feature_names=plan.panel.feature_names,
        scaler=fit.scaler,
        train_first=days[0][0],
        train_last=days[-1][1],
        train=days if len(days) > 1 else (),
        panel_digest=plan.panel_digest,
        warnings=plan.warnings,
        learning_curve=tuple(fit.curve),
        start=task.start.sha256 if task.start else "",
    )


def _require_trainable(plan: RunPlan) -> None:
    """Check every fold's training against the demands of reward terms and action.

    Raises:
        ValueError: if a training does not meet one.
    """
    environments = [spec.environment for spec in (plan.spec, *plan.spec.stages())]
    parts = dict.fromkeys(part for spec in environments for part in (*spec.rewards, spec.action))
    demands = [demand for part in parts if (demand := getattr(part, "require_training", None))]
    for fold in plan.folds if demands else ():
        for require_training in demands:
            require_training(plan.panel, normalize_windows(plan.training_window(fold)))


def _require_fitting_sessions(plan: RunPlan) -> None:
    """Check that every fold's training is long enough to fit the timing.

    Raises:
        ValueError: with the fold that is too short.
    """
    timing = plan.spec.pipeline.timing
    for fold in plan.folds if timing.needs_fit else ():
        try:
            timing.require_sessions(plan.panel, plan.fitting_windows(fold), plan.spec.environment.rebal_freq)
        except ValueError as error:
            raise ValueError(f"fold {fold.index} cannot be timed: {error}") from error


def _warnings(plan: RunPlan) -> list[str]:
    warnings = [SURVIVORSHIP] if plan.panel.source == "sample" else []
    warnings += group_by_message(plan.panel.left_out.items())
    if any(fold.trains_on_the_future for fold in plan.folds):
        warnings.append(VALIDATION_ONLY)
    cost_bps = plan.spec.environment.turnover_cost_bps
    if cost_bps > MAX_USUAL_COST_BPS:
        warnings.append(HIGH_COST.format(bps=cost_bps, percent=cost_bps / 100.0))
    warnings += _foresight_warnings(plan.spec)
    warnings += filter(None, [getattr(plan.spec.agent, "caveat", "")])
    if any(
        isinstance(baseline, AnchorPortfolio) and baseline not in plan.spec.all_baselines
        for baseline in plan.spec.baselines
    ):
        warnings.append(OTHER_ANCHOR)
    waits = [fold.wait_after_tests for fold in plan.folds if fold.wait_after_tests is not None]
    if waits and min(waits) < (look_back := _look_back(plan.spec)):
        missing = look_back - min(waits)
        warnings.append(INPUTS_OF_TESTS.format(wait=min(waits), look_back=look_back, missing=missing))
    wanted, resolved = plan.spec.environment.fill, resolve_fill(plan.spec.environment.fill, plan.panel)
    if wanted != resolved:
        warnings.append(f"orders fill at the {resolved}, not the {wanted} of the spec: {no_opens(plan.panel)}")
    if resolved == "same_close":
        warnings.append("orders fill at the close of their decision (cheat-on-close), as specified")
    warnings += short_history_warnings(plan)
    if plan.panel.delisted.any():
        warnings.append(
            "delisted names are paid out in cash at their last price without cost: an optimistic assumption"
        )
    return warnings


def _foresight_warnings(spec: ExperimentSpec) -> list[str]:
    """Warning on reward terms that look ahead, if there are any."""
    rewards = [term for one in (spec, *spec.stages()) for term in one.environment.rewards]
    kinds = dict.fromkeys(term.kind for term in rewards if getattr(term, "looks_ahead", False))
    return [LOOKS_AHEAD.format(kinds=" and ".join(kinds))] if kinds else []


def short_history_warnings(plan: RunPlan) -> list[str]:
    """Warnings on rules whose estimate needs more sessions than precede the first test."""
    sessions, first = plan.panel.sessions, min(fold.test_first for fold in plan.folds)
    rules = (*plan.spec.all_baselines, plan.spec.agent)
    waits = {rule.kind: rule.lookback for rule in rules if rule.lookback > first}
    days = {kind: str(sessions[n - 1]) if n <= len(sessions) else "never" for kind, n in waits.items()}
    return [SHORT_HISTORY.format(rule=kind, lookback=n, day=days[kind], first=first) for kind, n in waits.items()]


def _look_back(spec: ExperimentSpec) -> int:
    """Sessions that training inputs look back: features, and the account that a timing is fitted to.

    Fits to the market itself do not look back into tested sessions: see `RunPlan.fitting_windows`.
    """
    pipeline = spec.pipeline
    return max(LOOK_BACK, pipeline.lookback - 1) if pipeline.timing.needs_path else LOOK_BACK
