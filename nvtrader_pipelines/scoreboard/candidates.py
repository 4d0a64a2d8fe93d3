"""Entrants that can be judged: each opens a policy for one account on a market, and says what it was trained on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.deployment import FoldPolicies, find_account
from nvtrader_pipelines.experiments.policy_accounts import Archives, FoldThresholds
from nvtrader_pipelines.experiments.replay import Parent, replay_plan
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.archive import read_archive
from nvtrader_pipelines.policies.baselines import ClassicalAgent
from nvtrader_pipelines.policies.pipelined import PipelinedPolicy
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.policies.weights_table import WeightsPolicy, WeightsTable
from nvtrader_pipelines.scoreboard.entrants import BaselineEntrant, EntrantKind, Sb3Entrant, WeightsEntrant

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.sb3_zip import Sb3Zip

Window = tuple[date, date]  # first and last session judged
Open = Callable[[MarketPanel, Window], Policy]
UNKNOWN_TRIALS = (
    "how many others were tried before this one was chosen is not known here: its deflated probability counts the "
    "trials of this home and itself"
)
STATED = (
    "the sessions it was trained on, its environment and its scaler are what its file states; nothing can check them"
)
NORMALIZED = (
    "it was trained behind VecNormalize, whose statistics are not in the zip: it is shown observations that are not "
    "scaled by them"
)


@dataclass(frozen=True)
class Training:
    """Sessions that trained a policy, and the first one it is used on."""

    first: date
    last: date
    used_from: date | None = None  # None: the first one judged


@dataclass(frozen=True, eq=False)
class Untimed:
    """The twin of an entrant, whose pipeline lacks the timing."""

    timing: str  # kind of what it lacks
    open: Open


@dataclass(frozen=True, eq=False)
class Candidate:
    """One entrant with all it needs."""

    name: str
    kind: EntrantKind
    market: MarketChoice
    rebal_freq: int  # sessions between its decisions
    configuration: Mapping[str, Any]  # as JSON knows it
    open: Open  # a policy for one account that opens at the close before the window; ValueError if there is none
    trained: tuple[Training, ...] = ()
    earliest: date | None = None  # first session it may be judged on; None: the one after those trained on
    run_id: str | None = None
    training_seconds: float | None = None  # None: not known
    warnings: tuple[str, ...] = ()
    lookback: int = 1  # sessions of the panel that a decision of a rule or a pipeline is made from
    untimed: Untimed | None = None  # None: it has no timing but a constant one

    @property
    def is_bound(self) -> bool:
        """Whether there are sessions that it may not be judged on."""
        return bool(self.trained) or self.earliest is not None

    def first_unseen(self, panel: MarketPanel) -> date:
        """The first session of the panel that it may be judged on.

        Raises:
            ValueError: if there is none.
        """
        lasts = [training.last for training in self.trained if training.used_from is None]
        start = panel.index_of(np.datetime64(self.earliest)) if self.earliest else 1  # it decides at the close before
        if self.earliest is None and lasts:
            start = max(1, int(np.searchsorted(panel.sessions, np.datetime64(max(lasts)), side="right")))
        if start >= len(panel.sessions):
            trained = f" was trained to {max(lasts)}, and" if lasts else ""
            raise ValueError(
                f"{self.name}{trained} may be judged on no session: the market ends on {panel.sessions[-1]}; train it "
                "on earlier sessions, or deliver the bars since"
            )
        return panel.sessions[start].item()

    def require_unseen(self, window: Window) -> None:
        """Refuse a policy on sessions that trained it.

        Raises:
            ValueError: if a policy was trained on a session it would decide about, or one after it.
        """
        for training in self.trained:
            first = max(window[0], training.used_from or window[0])
            if training.last >= first:
                raise ValueError(
                    f"a policy may only be judged on sessions after those it was trained on, but by its card "
                    f"{self.name} was trained from {training.first} to {training.last} and would be judged from "
                    f"{first} to {window[1]}; judge it on later sessions, or train it on earlier ones"
                )


def run_candidate(
    name: str,
    spec: ExperimentSpec,
    parent: Parent,
    archives: Archives,
    chosen: Mapping[int, int],
    thresholds: FoldThresholds,
    **facts: Any,
) -> Candidate:
    """A run's experiment, each session decided by the policies of the latest fold whose tests have begun.

    Raises:
        PolicyArchiveError: if a policy cannot be read.
    """

    def own(panel: MarketPanel, window: Window) -> tuple[tuple[Fold, ...], tuple[Policy, ...]]:
        plan = replay_plan(spec, panel, parent, window)
        return plan.folds, find_account(plan, archives, chosen, thresholds, spec.name).policies

    def opened(panel: MarketPanel, window: Window) -> Policy:
        return FoldPolicies(*own(panel, window))

    def opened_without_timing(panel: MarketPanel, window: Window) -> Policy:
        folds, policies = own(panel, window)
        return FoldPolicies(folds, [each.without_timing for each in policies if isinstance(each, PipelinedPolicy)])

    timing = spec.pipeline.timing
    starts = {fold.index: fold.test_first for fold in parent.folds}
    cards = [read_archive(content)[0] for _, content in sorted(archives.items())]
    spans = sorted(
        (starts[card.fold], date.fromisoformat(card.train_first), date.fromisoformat(card.train_last)) for card in cards
    )
    first = parent.window[0]  # the first fold's policies decide about whatever else comes first
    trained = [Training(begin, end, None if start == first else start) for start, begin, end in dict.fromkeys(spans)]
    return Candidate(
        name,
        "run",
        spec.market,
        spec.environment.rebal_freq,
        {"experiment": spec.partition_key, "spec": spec.model_dump(mode="json")},
        opened,
        () if spec.agent.is_classical else tuple(trained),
        first,
        lookback=max(spec.pipeline.lookback, spec.agent.lookback if isinstance(spec.agent, ClassicalAgent) else 1),
        untimed=None if timing.kind == "constant" else Untimed(timing.kind, opened_without_timing),
        **facts,
    )


def weights_candidate(
    name: str, entrant: WeightsEntrant, table: WeightsTable, panel: MarketPanel, gross_limit: float
) -> Candidate:
    """Weights from a file, on the panel of the names it may hold.

    Raises:
        ValueError: if they are no portfolios of the panel within the gross limit.
    """
    decisions = table.decisions(panel, gross_limit)
    return Candidate(
        name,
        "weights",
        entrant.market,
        1,  # each row on its day
        {**entrant.model_dump(mode="json"), "sha256": table.sha256},
        lambda _, window: WeightsPolicy(*decisions),  # noqa: ARG005 - one signature for all candidates
        warnings=(
            UNKNOWN_TRIALS,
            "weights from a file: nothing here can tell whether they were decided with knowledge of what came after",
        ),
    )


def sb3_candidate(name: str, entrant: Sb3Entrant, saved: "Sb3Zip", panel: MarketPanel) -> Candidate:
    """A policy that Stable-Baselines3 trained elsewhere, on the panel of the names it was trained with.

    Raises:
        ValueError: if its file does not state what it was trained on, or the network is not of this panel.
    """
    from nvtrader_pipelines.policies.sb3_zip import open_sb3

    first, last = entrant.train_first, entrant.train_last
    if first is None or last is None:
        raise ValueError(
            f"{name} must state the first and last session it was trained on, as train_first and train_last: without "
            "them nobody knows which sessions it has not seen"
        )
    scaler = entrant.scaler or entrant.environment.observation.fit(panel, *_indices(panel, first, last))
    facts = {"stable_baselines3": saved.version, "num_timesteps": saved.num_timesteps, "sha256": saved.sha256}
    warnings = [UNKNOWN_TRIALS, STATED]
    if saved.is_normalized:
        warnings.append(NORMALIZED)
    if np.datetime64(first) < panel.sessions[0]:
        warnings.append(
            f"it was trained from {first}, but the market begins on {panel.sessions[0]}: a scaler that is not stated "
            "is fitted on the sessions there are"
        )
    return Candidate(
        name,
        "sb3",
        entrant.market,
        entrant.environment.rebal_freq,
        {**entrant.model_dump(mode="json"), **facts},
        lambda opened, _: open_sb3(saved, entrant.algorithm, entrant.activation, entrant.environment, scaler, opened),
        (Training(first, last),),
        warnings=tuple(warnings),
    )


def _indices(panel: MarketPanel, first: date, last: date) -> tuple[int, int]:
    """Sessions of the panel from one day to another, inclusive."""
    start = panel.index_of(np.datetime64(first))
    end = int(np.searchsorted(panel.sessions, np.datetime64(last), side="right")) - 1
    if start >= end:
        raise ValueError(
            f"the observation is scaled by the sessions trained on, {first} to {last}, but the market runs from "
            f"{panel.sessions[0]} to {panel.sessions[-1]}; state the scaler, or deliver those sessions"
        )
    return start, end


def baseline_candidate(name: str, entrant: BaselineEntrant) -> Candidate:
    """A rule that needs no training."""
    return Candidate(
        name,
        "baseline",
        entrant.market,
        entrant.rebal_freq,
        entrant.model_dump(mode="json"),
        lambda panel, window: entrant.rule.start(),  # noqa: ARG005 - one signature for all candidates
        lookback=entrant.rule.lookback,
    )
