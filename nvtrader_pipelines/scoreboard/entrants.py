"""An entrant: its policy on a market, and the sessions that trained it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.code_digest import scoring_code
from nvtrader_pipelines.experiments.deployment import FoldPolicies, find_account
from nvtrader_pipelines.experiments.entrant_specs import (
    BaselineEntrantSpec,
    EntrantKind,
    Sb3EntrantSpec,
    WeightsEntrantSpec,
)
from nvtrader_pipelines.experiments.policy_accounts import Archives, FoldThresholds, SeedWeights
from nvtrader_pipelines.experiments.recorded_folds import Parent
from nvtrader_pipelines.experiments.replay import replay_plan
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.archive import read_card
from nvtrader_pipelines.policies.pipeline_policy import PipelinedPolicy
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.policies.weights_table import WeightsPolicy, WeightsTable
from nvtrader_pipelines.scoreboard.scorecard import TrainingSpan

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.sb3_zip import Sb3Zip

DateRange = tuple[date, date]  # first and last session scored
OpenPolicy = Callable[[MarketPanel, DateRange], Policy]
UNKNOWN_TRIALS = (
    "the number of variants tried before this one was chosen is unknown: its deflated probability counts the trials "
    "of this home and itself"
)
UNVERIFIED = "its training sessions, environment and scaler are taken from its file; they cannot be verified"
NORMALIZED = (
    "it was trained behind VecNormalize, whose statistics are not in the zip: its observations are not scaled by them"
)


@dataclass(frozen=True, eq=False)
class UntimedTwin:
    """Twin of an entrant without the timing stage of its pipeline."""

    timing: str  # kind of the timing stage it lacks
    open: OpenPolicy


@dataclass(frozen=True, eq=False)
class Entrant:
    """Policy, baseline, weights file or foreign network that takes part in a contest."""

    name: str
    kind: EntrantKind
    market: MarketChoice
    rebal_freq: int  # sessions between decisions
    configuration: Mapping[str, Any]  # JSON values
    code_version: str  # digest of the code that scores it
    open: OpenPolicy  # policy of an account opened at the close before the window; ValueError if impossible
    trained: tuple[TrainingSpan, ...] = ()
    earliest: date | None = None  # first session it may be scored on; None: the one after training
    latest: date | None = None  # last session it may be scored on; None: the market's last
    run_id: str | None = None
    training_seconds: float | None = None  # None: unknown
    warnings: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()  # who trades in each fold by validation and why, in words
    lookback: int = 1  # sessions that a decision of its rule or pipeline is made from
    untimed_twin: UntimedTwin | None = None  # None where its timing is constant

    @property
    def is_restricted(self) -> bool:
        """Whether some sessions of its market may not score it."""
        return bool(self.trained) or self.earliest is not None or self.latest is not None

    def first_unseen_session(self, panel: MarketPanel) -> date:
        """First session of the panel that it may be scored on.

        Raises:
            ValueError: if there is no such session.
        """
        lasts = [training.last for training in self.trained if training.used_from is None]
        # without limits the second session, as its decision is made at the close of the first
        start = panel.index_of(np.datetime64(self.earliest)) if self.earliest else 1
        if self.earliest is None and lasts:
            start = max(1, int(np.searchsorted(panel.sessions, np.datetime64(max(lasts)), side="right")))
        if start >= len(panel.sessions):
            trained = f" (trained to {max(lasts)})" if lasts else ""
            raise ValueError(
                f"{self.name}{trained} needs a session after its training, but the market ends on "
                f"{panel.sessions[-1]}; train it on earlier sessions, or deliver later bars"
            )
        return panel.sessions[start].item()

    def require_unseen(self, window: DateRange) -> None:
        """Raise if the window holds sessions that trained the policy.

        Raises:
            ValueError: if a training session is in the window or after its begin.
        """
        for training in self.trained:
            first = max(window[0], training.used_from or window[0])
            if training.last >= first:
                raise ValueError(
                    f"a policy must be scored on sessions after its training, but {self.name} was trained from "
                    f"{training.first} to {training.last} and would be scored from {first} to {window[1]}; score it "
                    "on later sessions, or train it on earlier ones"
                )


def run_entrant(
    name: str,
    spec: ExperimentSpec,
    parent: Parent,
    archives: Archives,
    seed_weights: SeedWeights,
    thresholds: FoldThresholds,
    **facts: Any,
) -> Entrant:
    """Build the entrant of a run: each session is decided by the latest fold whose tests have begun.

    Raises:
        PolicyArchiveError: if a policy cannot be read.
    """

    def folds_and_policies(panel: MarketPanel, window: DateRange) -> tuple[tuple[Fold, ...], tuple[Policy, ...]]:
        plan = replay_plan(spec, panel, parent, window)
        return plan.folds, find_account(plan, archives, seed_weights, thresholds, spec.name).policies

    def open_timed(panel: MarketPanel, window: DateRange) -> Policy:
        return FoldPolicies(*folds_and_policies(panel, window))

    def open_untimed(panel: MarketPanel, window: DateRange) -> Policy:
        folds, policies = folds_and_policies(panel, window)
        return FoldPolicies(
            folds, [policy.without_timing for policy in policies if isinstance(policy, PipelinedPolicy)]
        )

    timing = spec.pipeline.timing
    starts = {fold.index: fold.test_first for fold in parent.folds}
    cards = [read_card(content) for _, content in sorted(archives.items())]
    spans = sorted(
        (starts[card.fold], date.fromisoformat(card.train_first), date.fromisoformat(card.train_last)) for card in cards
    )
    first = parent.window[0]  # the first fold also decides earlier sessions
    trained = [
        TrainingSpan(first=begin, last=end, used_from=None if start == first else start)
        for start, begin, end in dict.fromkeys(spans)
    ]
    return Entrant(
        name,
        "run",
        spec.market,
        spec.environment.rebal_freq,
        {"experiment": spec.partition_key, "spec": spec.model_dump(mode="json")},
        scoring_code(spec),
        open_timed,
        () if spec.agent.is_classical else tuple(trained),
        first,
        lookback=max(spec.pipeline.lookback, spec.agent.lookback),
        untimed_twin=None if timing.kind == "constant" else UntimedTwin(timing.kind, open_untimed),
        **facts,
    )


def weights_entrant(
    name: str, spec: WeightsEntrantSpec, table: WeightsTable, panel: MarketPanel, gross_limit: float
) -> Entrant:
    """Build the entrant of a weights file on the panel of its names.

    Raises:
        ValueError: if the weights are not portfolios of the panel within the gross limit.
    """
    decisions = table.decisions(panel, gross_limit)
    return Entrant(
        name,
        "weights",
        spec.market,
        1,  # one row per day
        {**spec.model_dump(mode="json"), "sha256": table.sha256},
        scoring_code(spec),
        lambda _, window: WeightsPolicy(*decisions),  # noqa: ARG005 - one signature for all entrants
        warnings=(UNKNOWN_TRIALS, "weights from a file: look-ahead cannot be ruled out"),
    )


def sb3_entrant(name: str, spec: Sb3EntrantSpec, saved: "Sb3Zip", panel: MarketPanel) -> Entrant:
    """Build the entrant of a foreign Stable-Baselines3 policy on the panel of its training names.

    Raises:
        ValueError: if its training sessions are not stated, or the network does not fit the panel.
    """
    from nvtrader_pipelines.policies.sb3_zip import open_sb3

    first, last = spec.train_first, spec.train_last
    if first is None or last is None:
        raise ValueError(
            f"{name} must state its first and last training session as train_first and train_last: without them its "
            "unseen sessions are unknown"
        )
    scaler = spec.scaler or spec.environment.observation.fit(panel, *_indices(panel, first, last))
    facts = {"stable_baselines3": saved.version, "num_timesteps": saved.num_timesteps, "sha256": saved.sha256}
    warnings = [UNKNOWN_TRIALS, UNVERIFIED]
    if saved.is_normalized:
        warnings.append(NORMALIZED)
    if np.datetime64(first) < panel.sessions[0]:
        warnings.append(
            f"it was trained from {first}, but the market begins on {panel.sessions[0]}: a scaler that is not stated "
            "is fitted on the sessions available"
        )
    return Entrant(
        name,
        "sb3",
        spec.market,
        spec.environment.rebal_freq,
        {**spec.model_dump(mode="json"), **facts},
        scoring_code(spec),
        lambda opened, _: open_sb3(saved, spec.algorithm, spec.activation, spec.environment, scaler, opened),
        (TrainingSpan(first=first, last=last),),
        warnings=tuple(warnings),
    )


def _indices(panel: MarketPanel, first: date, last: date) -> tuple[int, int]:
    """Positions of the first and last session between two days, inclusive."""
    start = panel.index_of(np.datetime64(first))
    end = int(np.searchsorted(panel.sessions, np.datetime64(last), side="right")) - 1
    if start >= end:
        raise ValueError(
            f"the observation scaler is fitted on the training sessions, {first} to {last}, but the market runs from "
            f"{panel.sessions[0]} to {panel.sessions[-1]}; state the scaler, or deliver those sessions"
        )
    return start, end


def baseline_entrant(name: str, spec: BaselineEntrantSpec) -> Entrant:
    """Build the entrant of a rule without training."""
    return Entrant(
        name,
        "baseline",
        spec.market,
        spec.rebal_freq,
        spec.model_dump(mode="json"),
        scoring_code(spec),
        lambda panel, window: spec.rule.start(),  # noqa: ARG005 - one signature for all entrants
        lookback=spec.rule.lookback,
    )
