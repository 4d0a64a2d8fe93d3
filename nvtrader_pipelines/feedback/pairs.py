"""Preference pairs of a sealed run, from its trainings walked anew and from decisions of people on its plans."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from nvtrader_pipelines.envs.accounts import environment_legs
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.policy_accounts import proposing_policy
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.feedback.decisions import audited_decisions
from nvtrader_pipelines.feedback.outcomes import open_market
from nvtrader_pipelines.market.panel import Window, normalize_windows
from nvtrader_pipelines.policies.baselines import Baseline, Cufolio
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.costs import total_cost
from nvtrader_pipelines.preferences.candidates import (
    FloatArray,
    Rebalances,
    perturbed,
    rebalances_within,
    walk_rebalances,
    without_learning,
)
from nvtrader_pipelines.preferences.decisions import DecisionRow
from nvtrader_pipelines.preferences.outcomes import OutcomeMarket
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.preferences.pairs import counterfactual_pairs, person_pairs
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.run_tables import read_run, replace_run
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import OUTCOMES, PREFERENCE_PAIRS

_walked: dict[tuple[str, EnvSpec, Baseline, Window], Rebalances] = {}  # rules on the last market, by its digest


@dataclass(frozen=True)
class PairCounts:
    """Number of preference pairs of a run."""

    n_pairs: int
    n_held_out: int
    n_of_people: int
    n_won: int  # counterfactual pairs in which the weights of the policy are the chosen ones


def write_preference_pairs(store: Store, run: SealedRun) -> PairCounts:
    """Replace the pairs of a run: candidates are walked once, decisions of people are read each time.

    Raises:
        StorageError: if the market of the run's snapshots is not the one it was trained on, or a policy was changed.
    """
    store.policies.require_untampered(run)
    kept = read_run(store, PREFERENCE_PAIRS, run, source=["counterfactual"]).select(PREFERENCE_PAIR.names())
    counterfactual = kept if len(kept) else _candidate_pairs(store, reopen_plan(store, run), run)
    people = _people_pairs(store, run)
    pairs = pl.concat([counterfactual, people])
    n_pairs = replace_run(store, PREFERENCE_PAIRS, pairs, run)
    n_won = len(counterfactual.filter(pl.col("chosen") == run.experiment))
    return PairCounts(n_pairs, int(pairs["holdout"].sum()), len(people), n_won)


def _candidate_pairs(store: Store, plan: RunPlan, run: SealedRun) -> pl.DataFrame:
    """Pairs of the policy's proposals and those of rules and of chance, in the training of every fold."""
    spec, panel, archives = plan.spec, plan.panel, store.policies.read_run(run)
    environment = spec.environment
    market = OutcomeMarket(panel, environment_legs(panel, environment), total_cost(environment.cost_models, panel))
    windows = {fold.index: normalize_windows(plan.training_window(fold)) for fold in plan.folds}
    first = min(window[0][0] for window in windows.values())
    last = max(window[-1][1] for window in windows.values())
    accounts = without_learning(environment)
    rules = {rule.kind: _walk_rule(plan, accounts, rule, (first, last)) for rule in _rules(plan)}
    frames = [pl.DataFrame(schema=PREFERENCE_PAIR)]
    for fold in plan.folds:
        spans = windows[fold.index]
        policy = proposing_policy(plan, archives, run.seed_weights, fold)
        proposed = walk_rebalances(panel, accounts, policy, rebalances_within(spans, environment.rebal_freq))
        candidates: Mapping[str, FloatArray] = {
            **{
                kind: rule.target[np.searchsorted(rule.decided_at, proposed.decided_at)] for kind, rule in rules.items()
            },
            **perturbed(proposed.target, [fold.index]),
        }
        days = panel.sessions[spans[0][0]].item(), panel.sessions[spans[-1][1]].item()
        frames.append(
            counterfactual_pairs(proposed, candidates, market, policy=spec.name, fold=fold.index, window=days)
        )
    return pl.concat(frames)


def _walk_rule(plan: RunPlan, accounts: EnvSpec, rule: Baseline, window: Window) -> Rebalances:
    """Walk a rule over a window, once for all experiments of this process that compare with it on one market."""
    key = plan.panel_digest, accounts, rule, window
    if key not in _walked:
        if any(digest != plan.panel_digest for digest, *_ in _walked):
            _walked.clear()
        sessions = rebalances_within([window], accounts.rebal_freq)
        _walked[key] = walk_rebalances(plan.panel, accounts, rule.start(), sessions)
    return _walked[key]


def _rules(plan: RunPlan) -> list[Baseline]:
    """Rules whose weights are candidates: the baselines, and cufolio where it can act on the market."""
    rules: list[Baseline] = list(plan.spec.all_baselines)
    if not any(isinstance(rule, Cufolio) for rule in rules):
        cufolio = Cufolio()
        try:
            cufolio.require_market(plan.panel)
        except ValueError:  # too few names for its caps
            return rules
        rules.append(cufolio)
    return rules


def _people_pairs(store: Store, run: SealedRun) -> pl.DataFrame:
    """Pairs of decisions on plans of the experiment that judge and whose outcome counts."""
    counted = set(store.tables.read(OUTCOMES, columns=["decision_id", "weight"]).filter(weight=1.0)["decision_id"])
    rows = [
        row for row in audited_decisions(store) if row.decision_id in counted and row.partition_key == run.partition_key
    ]
    frames = [pl.DataFrame(schema=PREFERENCE_PAIR)]
    for account in Counter(row.account for row in rows):
        market = open_market(store, run.partition_key, account)
        symbols, book = (*market.panel.symbols, CASH), store.book(account)
        of_account: list[DecisionRow] = []
        drawdown: dict[str, float] = {}
        for row in rows:
            state = book.at(row.session) if row.account == account and row.symbols == symbols else None
            if state is not None:  # an account that began anew has no state of the time before
                of_account.append(row)
                drawdown[row.decision_id] = state.drawdown
        frames.append(person_pairs(of_account, drawdown, market))
    return pl.concat(frames)


def require_pairs(store: Store, run: SealedRun) -> pl.DataFrame:
    """Read the pairs of a run.

    Raises:
        StorageError: if there are none.
    """
    pairs = read_run(store, PREFERENCE_PAIRS, run)
    if pairs.is_empty():
        raise StorageError(
            f"run {run.run_id} has no preference pairs; extract them with `nvtrader preferences pairs {run.experiment}`"
        )
    return pairs
