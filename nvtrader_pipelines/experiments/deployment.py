"""One account of a run, deployed: what it decides at any close since its tests began, as its replay would."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.evaluation.backtest import Contestant
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.accounts import Archives, FoldThresholds, contestants
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.replay import Parent, replay_plan
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import RecurrentPpoAgent
from nvtrader_pipelines.policies.baselines import ClassicalAgent
from nvtrader_pipelines.policies.policy import Decision, Policy


class ByFold:
    """Each session is decided by the policy of its fold."""

    def __init__(self, folds: Sequence[Fold], policies: Sequence[Policy]) -> None:
        self.folds = tuple(folds)
        self._lasts, self._policies = [fold.test_last for fold in folds], tuple(policies)

    def place_at(self, t: int) -> int:
        """Place of the fold that the session after `t` belongs to; after the last fold, of the last one."""
        return min(int(np.searchsorted(self._lasts, t + 1)), len(self.folds) - 1)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """The weights that the policy of the fold in force wants at the close of session `t`."""
        return self._policies[self.place_at(t)].decide(panel, t, account)


@dataclass(frozen=True, eq=False)
class Deployment:
    """One account of a run and who decides for it on a panel."""

    spec: ExperimentSpec
    panel: MarketPanel
    run_id: str  # of the run that trained the policies
    policy: str  # the account's name in the evaluation: the experiment's, or `<experiment>/seed-<s>`
    seeds: tuple[int, ...]  # whose policies decide
    by_fold: ByFold

    @property
    def first(self) -> int:
        """Index of the first session at whose close it may decide."""
        return self.by_fold.folds[0].test_first - 1

    @property
    def is_stateful(self) -> bool:
        """Whether a decision depends on earlier ones: those of the account must have been asked for before, in order.

        A network with memory, and a rule that estimates now and then.
        """
        return isinstance(self.spec.agent, RecurrentPpoAgent | ClassicalAgent)

    def fresh(self) -> Self:
        """The same with policies of its own, which remember what these do: of one that has decided nothing, nothing."""
        return replace(self, by_fold=deepcopy(self.by_fold)) if self.is_stateful else self

    def fold_at(self, t: int) -> int:
        """Number of the fold in force at the close of session `t`: the latest whose tests have begun."""
        return self.by_fold.folds[self.by_fold.place_at(t)].index

    def decide(self, t: int, account: Account) -> Decision:
        """The target weights at the close of session `t`, with the pipeline's stages where it trades.

        Raises:
            ValueError: if `t` is before the first session that it may decide at, or none of the panel.
        """
        sessions = self.panel.sessions
        if not self.first <= t < len(sessions):
            raise ValueError(
                f"{self.policy} of run {self.run_id} decides at closes from {sessions[self.first]}, session "
                f"{self.first}, to the market's last, session {len(sessions) - 1}, but was asked at session {t}; ask "
                "within them"
            )
        return self.by_fold.decide(self.panel, t, account)


def deploy(  # noqa: PLR0913 - a sealed run in its parts
    spec: ExperimentSpec,
    panel: MarketPanel,
    parent: Parent,
    archives: Archives,
    chosen: Mapping[int, int],
    thresholds: FoldThresholds,
    policy: str,
) -> Deployment:
    """One account of a run over all sessions of a panel since the run's tests began.

    Each session is decided by the latest fold whose tests have begun, through the experiment's pipeline with the
    thresholds that were fitted on that fold's training.

    Args:
        spec: the experiment.
        panel: the market, of the names that its policies were trained on.
        parent: the run that trained them, with its folds.
        archives: its policies.
        chosen: fold to the seed chosen for it.
        thresholds: fold to what its timing was fitted to.
        policy: the name of an account of the run that is no baseline.

    Raises:
        ValueError: if the run has no such account, is for validation only, lacks thresholds, or the panel holds no
            session of its tests or after.
        PolicyArchiveError: if a policy cannot be used on this panel.
    """
    first = max(parent.window[0], panel.sessions[min(1, len(panel.sessions) - 1)].item())
    plan = replay_plan(spec, panel, parent, (first, panel.sessions[-1].item()))
    own = account_of(plan, archives, chosen, thresholds, policy)
    named = [seed for seed in own.seeds if seed is not None]
    seeds = tuple(dict.fromkeys(named)) or spec.seeds
    return Deployment(spec, panel, parent.run_id, policy, seeds, ByFold(plan.folds, own.by_fold))


def account_of(
    plan: RunPlan, archives: Archives, chosen: Mapping[int, int], thresholds: FoldThresholds, policy: str
) -> Contestant:
    """The account of a run by its name.

    Raises:
        ValueError: if there is none of that name, or it is a baseline's.
    """
    own = {each.name: each for each in contestants(plan, archives, chosen, thresholds) if each.kind != "baseline"}
    if policy not in own:
        raise ValueError(
            f"run {plan.parent_run_id} has no policy {policy!r}; there are {', '.join(own)}{suggest(policy, list(own))}"
        )
    return own[policy]
