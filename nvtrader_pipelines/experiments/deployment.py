"""A trained run as a live policy: it decides at any close from its first test session on."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.evaluation.backtest import PolicyAccount
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.policy_accounts import Archives, FoldThresholds, SeedWeights, build_accounts
from nvtrader_pipelines.experiments.recorded_folds import Parent
from nvtrader_pipelines.experiments.replay import replay_plan
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision, Policy


class FoldPolicies:
    """Policies of the walk-forward folds, one in force per session."""

    def __init__(self, folds: Sequence[Fold], policies: Sequence[Policy]) -> None:
        self.folds = tuple(folds)
        self._lasts, self._policies = [fold.test_last for fold in folds], tuple(policies)

    def fold_position(self, t: int) -> int:
        """Position of the fold in force after the close of session `t`; the last fold stays in force."""
        return min(int(np.searchsorted(self._lasts, t + 1)), len(self.folds) - 1)

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:
        """Decision of the fold in force at the close of session `t`."""
        return self._policies[self.fold_position(t)].decide(panel, t, account)


@dataclass(frozen=True, eq=False)
class Deployment:
    """Account of a run with its policies on a panel."""

    spec: ExperimentSpec
    panel: MarketPanel
    run_id: str  # run that trained the policies
    policy: str  # the account's name in the evaluation: the experiment's, or `<experiment>/seed-<s>`
    seeds: tuple[int, ...]  # seeds of the policies
    fold_policies: FoldPolicies

    @property
    def first(self) -> int:
        """Index of the first session at whose close the account may decide."""
        return self.fold_policies.folds[0].test_first - 1

    @property
    def is_stateful(self) -> bool:
        """Whether decisions depend on earlier ones, so that sessions must be decided in order.

        True for recurrent networks and for rules that re-estimate every few sessions.
        """
        return self.spec.agent.is_stateful

    def clone(self) -> Self:
        """Return a copy with its own policy state; stateless deployments return themselves."""
        return replace(self, fold_policies=deepcopy(self.fold_policies)) if self.is_stateful else self

    def fold_index(self, t: int) -> int:
        """Index of the fold in force at the close of session `t`."""
        return self.fold_policies.folds[self.fold_policies.fold_position(t)].index

    def decide(self, t: int, account: Account) -> Decision:
        """Decide the target weights at the close of session `t`, with the pipeline's stages.

        Raises:
            ValueError: if `t` is before `first` or not in the panel.
        """
        sessions = self.panel.sessions
        if not self.first <= t < len(sessions):
            raise ValueError(
                f"{self.policy} of run {self.run_id} decides in sessions {self.first} ({sessions[self.first]}) to "
                f"{len(sessions) - 1}, got {t}"
            )
        return self.fold_policies.decide(self.panel, t, account)


def deploy(  # noqa: PLR0913 - parts of a sealed run
    spec: ExperimentSpec,
    panel: MarketPanel,
    parent: Parent,
    archives: Archives,
    seed_weights: SeedWeights,
    thresholds: FoldThresholds,
    policy: str,
) -> Deployment:
    """Deploy an account of a run on all sessions of a panel since the run's tests began.

    The fold in force is the latest whose tests have begun; it decides through the experiment's pipeline, with the
    thresholds fitted on its training. Archives, seed weights and thresholds (by fold) are those of the run; `policy`
    is the name of one of its accounts, not of a baseline.

    Raises:
        ValueError: if the run has no such account, is validation-only or lacks thresholds, or the panel has no session
            since its tests began.
        PolicyArchiveError: if a policy is unusable on this panel.
    """
    first = max(parent.window[0], panel.sessions[min(1, len(panel.sessions) - 1)].item())
    plan = replay_plan(spec, panel, parent, (first, panel.sessions[-1].item()))
    own = find_account(plan, archives, seed_weights, thresholds, policy)
    named = [seed for seed in own.seeds if seed is not None]
    seeds = tuple(dict.fromkeys(named)) or spec.seeds
    return Deployment(spec, panel, parent.run_id, policy, seeds, FoldPolicies(plan.folds, own.policies))


def find_account(
    plan: RunPlan, archives: Archives, seed_weights: SeedWeights, thresholds: FoldThresholds, policy: str
) -> PolicyAccount:
    """Find an account of a run by name.

    Raises:
        ValueError: if there is none, or it is a baseline.
    """
    own = {
        account.name: account
        for account in build_accounts(plan, archives, seed_weights, thresholds)
        if account.kind != "baseline"
    }
    if policy not in own:
        raise ValueError(
            f"run {plan.parent_run_id} has no policy {policy!r}; there are {', '.join(own)}{suggest(policy, list(own))}"
        )
    return own[policy]
