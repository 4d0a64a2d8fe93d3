"""Run plan: an experiment on one state of the market; equal content gives equal ids."""

import hashlib
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Self

import numpy as np

from nvtrader_pipelines.components.ids import ID_LENGTH
from nvtrader_pipelines.envs.fill_timing import no_opens, resolve_fill
from nvtrader_pipelines.evaluation.splits import BacktestPaths, Fold
from nvtrader_pipelines.experiments.causal_parts import require_causal_parts
from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.plan_kinds import VALIDATION_ONLY, PlanKind
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.features import LOOK_BACK
from nvtrader_pipelines.market.panel import MarketPanel, Window, normalize_windows, panel_digest
from nvtrader_pipelines.market.symbol_groups import group_by_message
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import PolicyCard
from nvtrader_pipelines.policies.baselines import AnchorPortfolio, ClassicalAgent
from nvtrader_pipelines.policies.preference_data import Tuning
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
                needs, or a fold's training is too short to fit its timing.
            LookAheadError: if a part of an installed package looks ahead.
            PartError: if such a part fails.
        """
        if spec.design.kind == "ablation":
            variants = ", ".join(variant.name for variant in spec.variants())
            raise ValueError(f"{spec.name} is an ablation and runs nothing itself; run its variants: {variants}")
        folds = spec.design.folds(spec.splitter.split(panel.sessions))
        spec.pipeline.start(panel)  # cheap, and fails before anything is trained
        for rule in (spec.agent, *spec.all_baselines):
            if isinstance(rule, ClassicalAgent):
                rule.require_market(panel)
        require_causal_parts(spec, panel)
        plan = cls(spec, panel, panel_digest(panel), tuple(folds))
        plan.require_fitting_sessions()
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
        found = [SURVIVORSHIP] if self.panel.source == "sample" else []
        found += group_by_message(self.panel.left_out.items())
        if any(fold.trains_on_the_future for fold in self.folds):
            found.append(VALIDATION_ONLY)
        cost_bps = self.spec.environment.turnover_cost_bps
        if cost_bps > MAX_USUAL_COST_BPS:
            found.append(HIGH_COST.format(bps=cost_bps, percent=cost_bps / 100.0))
        if any(
            isinstance(each, AnchorPortfolio) and each not in self.spec.all_baselines for each in self.spec.baselines
        ):
            found.append(OTHER_ANCHOR)
        waits = [fold.wait_after_tests for fold in self.folds if fold.wait_after_tests is not None]
        if waits and min(waits) < self._look_back:
            missing = self._look_back - min(waits)
            found.append(INPUTS_OF_TESTS.format(wait=min(waits), look_back=self._look_back, missing=missing))
        wanted, resolved = self.spec.environment.fill, resolve_fill(self.spec.environment.fill, self.panel)
        if wanted != resolved:
            found.append(f"orders fill at the {resolved}, not the {wanted} of the spec: {no_opens(self.panel)}")
        if resolved == "same_close":
            found.append("orders fill at the close of their decision (cheat-on-close), as specified")
        found += self.short_history_warnings
        if self.panel.delisted.any():
            found.append(
                "delisted names are paid out in cash at their last price without cost: an optimistic assumption"
            )
        return tuple(found)

    @property
    def short_history_warnings(self) -> list[str]:
        """Warnings on rules whose estimate needs more sessions than precede the first test."""
        sessions, first = self.panel.sessions, min(fold.test_first for fold in self.folds)
        rules = [rule for rule in (*self.spec.all_baselines, self.spec.agent) if isinstance(rule, ClassicalAgent)]
        waits = {rule.kind: rule.lookback for rule in rules if rule.lookback > first}
        days = {kind: str(sessions[n - 1]) if n <= len(sessions) else "never" for kind, n in waits.items()}
        return [SHORT_HISTORY.format(rule=kind, lookback=n, day=days[kind], first=first) for kind, n in waits.items()]

    @property
    def _look_back(self) -> int:
        """Sessions that training inputs look back: features, and the account that a timing is fitted to.

        Fits to the market itself do not look back into tested sessions: see `fitting_windows`.
        """
        pipeline = self.spec.pipeline
        return max(LOOK_BACK, pipeline.lookback - 1) if pipeline.timing.needs_path else LOOK_BACK

    @property
    def folds_to_choose(self) -> tuple[Fold, ...]:
        """Folds in which a seed is chosen; empty where seeds are averaged."""
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
        history, found = self.spec.pipeline.timing.history, []
        for first, last in normalize_windows(self.training_window(fold)):
            tested = max((end for _, end in fold.test if end < first), default=None)
            start = first if tested is None else max(first, tested + 1 + history)
            if start <= last:
                found.append((start, last))
        return tuple(found)

    def require_fitting_sessions(self) -> None:
        """Check that every fold's training is long enough to fit the timing.

        Raises:
            ValueError: with the fold that is too short.
        """
        timing = self.spec.pipeline.timing
        for fold in self.folds if timing.needs_fit else ():
            try:
                timing.require_sessions(self.panel, self.fitting_windows(fold), self.spec.environment.rebal_freq)
            except ValueError as error:
                raise ValueError(f"fold {fold.index} cannot be timed: {error}") from error

    def validation_window(self, fold: Fold) -> tuple[int, int]:
        """First and last session held out of a fold's training."""
        return fold.train_last - self.spec.design.validation_sessions + 1, fold.train_last

    def task(self, key: FoldSeed, resume_from: bytes | None = None, tuning: Tuning | None = None) -> TrainingTask:
        """Training task of one fold and seed."""
        spec = self.spec
        window = self.training_window(next(fold for fold in self.folds if fold.index == key[0]))
        return TrainingTask(
            fold=key[0],
            seed=key[1],
            window=window,
            environment=spec.environment,
            agent=spec.agent,
            sample_rate=spec.training_sample_rate,
            resume_from=resume_from,
            tuning=tuning,
            pipeline=spec.pipeline if spec.environment.pipeline else None,
        )

    def card(self, task: TrainingTask, fit: Fit) -> PolicyCard:
        """Card of a trained policy."""
        sessions = self.panel.sessions
        days = tuple((str(sessions[first]), str(sessions[last])) for first, last in normalize_windows(task.window))
        return PolicyCard(
            experiment=self.spec.partition_key,
            spec_hash=self.spec.spec_hash,
            fold=task.fold,
            seed=task.seed,
            environment=self.spec.environment,
            agent=self.spec.agent,
            symbols=self.panel.symbols,
            feature_names=self.panel.feature_names,
            scaler=fit.scaler,
            train_first=days[0][0],
            train_last=days[-1][1],
            train=days if len(days) > 1 else (),
            panel_digest=self.panel_digest,
            warnings=self.warnings,
            learning_curve=tuple(fit.curve),
            start=task.tuning.sha256 if task.tuning else "",
        )
