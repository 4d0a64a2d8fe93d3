from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import PurgedKFold
from nvtrader_pipelines.experiments.deployment import deploy
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.recorded_folds import Parent, fold_dates
from nvtrader_pipelines.policies.archive import PolicyArchiveError
from nvtrader_pipelines.policies.baselines import EqualWeight
from tests.experiments.small import EXPERIMENT, TABLES, archives_of_rule
from tests.markets import synthetic_panel
from tests.panels import with_other_future


def deployed(plan, run, parent, policy="tiny", panel=None):
    panel = panel or plan.panel
    return deploy(plan.spec, panel, parent, run.archives(), run.seed_weights(), run.thresholds(), policy)


class Asked:
    """A deployment as a policy of a back-test."""

    def __init__(self, deployment):
        self._deployment = deployment

    def decide(self, panel, t, account):
        return self._deployment.decide(t, account)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["tiny", "tiny/seed-1"])
def test_deployment_decisions_equal_the_evaluation_bit_for_bit(plan, run, parent, policy):
    asked = Asked(deployed(plan, run, parent, policy))
    kind, seed = ("ensemble", None) if policy == "tiny" else ("policy", 1)
    alone = PolicyAccount(policy, kind, (seed, seed), (asked, asked))
    again = backtest(plan.panel, plan.spec.environment, plan.folds, [alone])
    for name in TABLES:
        assert getattr(again, name).equals(getattr(run.record, name).filter(pl.col("policy") == policy))


def test_the_fold_in_force_is_the_latest_whose_tests_have_begun(plan, run, parent):
    first, second = plan.folds
    deployment = deployed(plan, run, parent)
    assert deployment.first == first.test_first - 1
    assert deployment.fold_index(second.test_first - 2) == first.index
    assert deployment.fold_index(second.test_first - 1) == second.index
    assert deployment.fold_index(len(plan.panel.sessions) - 1) == second.index


def test_deployment_reports_seeds_and_pipeline_stages(plan, run, parent):
    deployment = deployed(plan, run, parent, "tiny/seed-5")
    assert (deployment.run_id, deployment.policy, deployment.seeds) == (plan.run_id, "tiny/seed-5", (5,))
    assert deployed(plan, run, parent).seeds == EXPERIMENT.seeds
    assert not deployment.is_stateful
    decision = deployment.decide(deployment.first, opening_account(3))
    names = [stage.name for stage in decision.pipeline.stages]
    assert names == ["policy", "static_universe", "policy_action", "constant", "position_cap", "gross_exposure"]
    assert decision.target is decision.pipeline.weights


def test_a_close_before_the_tests_or_beyond_the_market_is_refused(plan, run, parent):
    deployment = deployed(plan, run, parent)
    for t in (deployment.first - 1, len(plan.panel.sessions)):
        with pytest.raises(ValueError):
            deployment.decide(t, opening_account(3))


def test_find_account_lists_accounts_for_unknown_name(plan, run, parent):
    for name in ("tiny/seed-2", "equal_weight"):
        with pytest.raises(ValueError, match="tiny/seed-5"):
            deployed(plan, run, parent, name)


def test_a_run_for_validation_only_is_not_deployed(plan, run):
    purged = EXPERIMENT.model_copy(update={"splitter": PurgedKFold(n_folds=3)})
    folds = fold_dates(RunPlan.of(purged, plan.panel))
    with pytest.raises(ValueError):
        deployed(plan, run, Parent(plan.run_id, folds))


def test_a_market_of_other_names_is_refused(plan, run, parent):
    with pytest.raises(PolicyArchiveError):
        deployed(plan, run, parent, panel=synthetic_panel(700, 4))


@pytest.mark.parametrize(
    "names", [("AAA", "BBB"), ("AAA", "BBB", "CCC", "DDD"), ("AAA", "BBB", "ZZZ"), ("BBB", "AAA", "CCC")]
)
def test_deployed_rule_rejects_other_names_or_order(plan, names):
    spec = EXPERIMENT.model_copy(update={"agent": EqualWeight(), "seeds": (0,)})
    tested = RunPlan.of(spec, plan.panel)
    archives = archives_of_rule(tested)
    parent = Parent(tested.run_id, fold_dates(tested))
    assert deploy(spec, plan.panel, parent, archives, {}, {}, "tiny").panel is plan.panel
    other = replace(synthetic_panel(700, len(names)), symbols=names)
    with pytest.raises(PolicyArchiveError):
        deploy(spec, other, parent, archives, {}, {}, "tiny")


def test_what_comes_after_a_close_does_not_change_what_is_decided_there(plan, run, parent):
    deployment = deployed(plan, run, parent)
    t, account = deployment.first + 10, opening_account(3)
    otherwise = deployed(plan, run, parent, panel=with_other_future(plan.panel, t))
    assert np.array_equal(deployment.decide(t, account).target, otherwise.decide(t, account).target)
