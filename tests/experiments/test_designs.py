from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import softmax

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.code_digest import classes_of
from nvtrader_pipelines.experiments.designs import (
    AblationDesign,
    BasicDesign,
    BestOfNDesign,
    CurriculumDesign,
    MetaEnsembleDesign,
    WalkForwardDesign,
    labels,
    leaves,
)
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import DpoAgent, PpoAgent, SacAgent
from nvtrader_pipelines.policies.backbones import MlpBackbone, TransformerBackbone
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, NetExposure, PositionCap

FOLDS = [Fold(index, 100 * index, 100 * index + 90, 100 * index + 95, 100 * index + 100) for index in range(3)]


def ablation(field, values, **fields):
    return ExperimentSpec(name="base", design=AblationDesign(field=field, values=values), **fields)


def test_basic_runs_the_last_fold_and_the_others_run_all():
    assert list(BasicDesign().folds(FOLDS)) == FOLDS[-1:]
    for design in (WalkForwardDesign(), BestOfNDesign(), MetaEnsembleDesign(), CurriculumDesign()):
        assert list(design.folds(FOLDS)) == FOLDS


def test_only_designs_that_compare_seeds_hold_sessions_out():
    assert BestOfNDesign(validation_sessions=60).validation_sessions == 60
    assert MetaEnsembleDesign().validation_sessions == 63
    assert [design().validation_sessions for design in (BasicDesign, WalkForwardDesign, AblationDesign)] == [0, 0, 0]


def test_meta_ensemble_weights_are_the_softmax_of_sharpe_ratios():
    sharpe = {4: 0.3, 0: -1.2, 1: 2.5}
    weights = MetaEnsembleDesign().seed_weights(sharpe)
    assert list(weights) == [4, 0, 1]
    np.testing.assert_allclose(list(weights.values()), softmax(list(sharpe.values())), rtol=1e-14)
    assert MetaEnsembleDesign().seed_weights({0: 900.0, 1: -900.0}) == {0: 1.0, 1: 0.0}
    equal = {2: -0.7, 0: -0.7, 1: -0.7}
    assert MetaEnsembleDesign().seed_weights(equal) == WalkForwardDesign().seed_weights(equal)


@pytest.mark.parametrize("design", [BasicDesign(), WalkForwardDesign(), BestOfNDesign(), MetaEnsembleDesign()])
def test_an_experiment_that_is_no_ablation_is_its_own_only_variant(design):
    spec = ExperimentSpec(name="base", design=design)
    assert spec.variants() == (spec,)


def test_an_ablation_varies_one_field_and_nothing_else():
    spec = ablation("agent.gamma", (0.5, 0.9), description="said", seeds=(3, 4, 5))
    plain = ExperimentSpec(name="base", description="said", seeds=(3, 4, 5))
    for variant, gamma in zip(spec.variants(), (0.5, 0.9), strict=True):
        expected = plain.model_copy(update={"name": variant.name, "agent": PpoAgent(gamma=gamma)})
        assert variant == expected
    assert [variant.name for variant in spec.variants()] == ["base-gamma-0-5", "base-gamma-0-9"]


def test_a_curriculum_varies_environment_and_agent_before_the_experiment_itself():
    values = {"environment.rewards": [{"kind": "hindsight"}], "environment.turnover_cost_bps": 0, "agent.gamma": 0.5}
    spec = ExperimentSpec(name="base", design=CurriculumDesign(stages=(values, {"agent.total_timesteps": 1000})))
    first, second = spec.stages()
    assert (first.environment.turnover_cost_bps, first.agent) == (0.0, PpoAgent(gamma=0.5))
    assert (second.environment, second.agent) == (spec.environment, PpoAgent(total_timesteps=1000))
    assert {"Hindsight", "LogGrowth"} <= {part.__name__ for part in classes_of(spec)}
    assert ExperimentSpec.model_validate_json(spec.model_dump_json()).spec_hash == spec.spec_hash


@pytest.mark.parametrize(
    "stage",
    [
        {"market.source": "coins"},
        {"agent.kind": "a2c"},
        {"agent.backbone.hidden": [8]},
        {"environment.lookback": 30},
        {"environment.action.bound": 1.0},
        {"environment": {"lookback": 30}},
        {"agent.learning_rate": 5.0},
        {"agent.depth": 3},
    ],
)
def test_a_stage_with_another_network_or_an_invalid_value_is_refused(stage):
    with pytest.raises(ValidationError, match="design"):
        ExperimentSpec(name="base", design=CurriculumDesign(stages=(stage,)))


@pytest.mark.parametrize("agent", [EqualWeight(), DpoAgent()])
def test_a_curriculum_of_an_agent_that_does_not_train_from_nothing_is_refused(agent):
    with pytest.raises(ValidationError, match="from nothing"):
        ExperimentSpec(name="base", agent=agent, design=CurriculumDesign())


def test_a_path_goes_into_lists():
    first, second = ablation("environment.rewards.1.limit", (0, 0.05)).variants()
    assert [spec.environment.rewards[1].limit for spec in (first, second)] == [0.0, 0.05]
    assert first.environment.rewards[0] == second.environment.rewards[0]
    assert [first.name, second.name] == ["base-limit-0", "base-limit-0-05"]


def test_another_kind_replaces_its_component_whole_and_the_same_leaves_it():
    first, second = ablation("agent.kind", ("ppo", "sac"), agent=PpoAgent(batch_size=1024)).variants()
    assert [first.agent, second.agent] == [PpoAgent(batch_size=1024), SacAgent()]
    assert [first.name, second.name] == ["base-agent-ppo", "base-agent-sac"]


def test_a_whole_component_or_list_can_be_a_value():
    backbones = ablation("agent.backbone", ({"kind": "mlp"}, {"kind": "transformer", "n_heads": 1})).variants()
    assert [spec.agent.backbone for spec in backbones] == [MlpBackbone(), TransformerBackbone(n_heads=1)]
    rewards = ablation("environment.rewards", ([{"kind": "log_growth"}], [{"kind": "differential_sharpe"}])).variants()
    assert [spec.environment.rewards[0].kind for spec in rewards] == ["log_growth", "differential_sharpe"]


@given(spelling=st.sampled_from(["5e-1", "0.50", 0.5, "0.5"]), other=st.sampled_from([0, 0.0, "0.0", -0.0]))
def test_ablation_hash_ignores_spelling_of_values(spelling, other):
    document = {"kind": "ablation", "field": "agent.gamma", "values": [spelling, other]}
    spec = ExperimentSpec.model_validate({"name": "base", "design": document})
    assert spec.spec_hash == ablation("agent.gamma", (0.5, 0.0)).spec_hash
    assert spec.variants()[0].name == "base-gamma-0-5"


def test_an_ablation_survives_json_with_its_hash_and_variants():
    spec = ablation("environment.action", ({"kind": "simplex"}, {"kind": "residual"}))
    again = ExperimentSpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert again.variants() == spec.variants()
    assert again.spec_hash == spec.spec_hash


def test_dates_can_be_values_as_yaml_reads_them_or_as_text():
    splitter = {"kind": "holdout", "test_first": date(2005, 1, 1)}
    spec = ablation("splitter.first_test", (date(2001, 1, 1), "2002-01-01"))
    assert [variant.splitter.first_test.year for variant in spec.variants()] == [2001, 2002]
    assert spec.variants()[0].name == "base-first-test-2001-01-01"
    assert ablation("splitter", ({"kind": "walk_forward"}, splitter)).variants()[1].splitter.test_first.year == 2005


@pytest.mark.parametrize(
    ("field", "values", "reached"),
    [
        ("environment.pipeline", (False, True), lambda spec: spec.environment.pipeline),
        ("environment.financing.margin_rate", (0.02, 0.05), lambda spec: spec.environment.financing.margin_rate),
        ("pipeline.risk_limits.max_short", (0.0, 0.1), lambda spec: spec.pipeline.risk_limits.max_short),
    ],
)
def test_an_ablation_varies_fields_that_are_not_dumped_at_their_default(field, values, reached):
    pipeline = WeightPipeline(limits=(PositionCap(), GrossExposure(), NetExposure()))
    assert tuple(reached(variant) for variant in ablation(field, values, pipeline=pipeline).variants()) == values


def test_the_default_ablation_is_valid():
    assert len(ExperimentSpec(name="base", design=AblationDesign()).variants()) == 2


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1e-05, 0.001), ["1e-05", "0-001"]),
        ((-0.5, 0.5), ["minus-0-5", "0-5"]),
        ((None, True, False, 12), ["none", "true", "false", "12"]),
        (([0, 1], [2, 3]), ["0-1", "2-3"]),
        (({"kind": "mlp"}, {"kind": "shared_asset"}), ["mlp", "shared-asset"]),
        (
            ({"kind": "residual", "tilt": 0.5, "bound": 3.0}, {"kind": "residual", "tilt": 1.0, "bound": 3.0}),
            ["residual-tilt-0-5", "residual-tilt-1"],
        ),
        (("", "next_open"), ["empty", "next-open"]),
    ],
)
def test_a_variant_is_named_by_what_sets_it_apart(values, expected):
    assert labels(values) == expected


def test_values_that_give_the_same_name_are_refused():
    with pytest.raises(ValidationError):
        ablation("environment.fill", ("next_open", "next_open"))


def test_leaves_are_the_scalars_with_their_paths():
    document = {"a": 1, "b": {"c": [2, {"d": None}], "e": {}, "f": []}}
    assert leaves(document) == [("a", 1), ("b.c.0", 2), ("b.c.1.d", None), ("b.e", {}), ("b.f", [])]


def test_held_out_sessions_leave_some_to_train_on():
    with pytest.raises(ValidationError):
        ExperimentSpec.model_validate(
            {
                "name": "base",
                "design": {"kind": "best_of_n", "validation_sessions": 350},
                "splitter": {"kind": "walk_forward", "train_months": 11},
            }
        )


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("environment.terminations.0", ({"kind": "drawdown"}, {"kind": "drawdown", "limit": 0.3})),
        ("agent.learning_rate", (0.001, "1e-3")),
    ],
)
def test_two_spellings_of_one_value_are_refused_as_the_same_variant(field, values):
    document = {
        "name": "base",
        "environment": {"terminations": [{"kind": "margin_call"}]},
        "design": {"kind": "ablation", "field": field, "values": list(values)},
    }
    with pytest.raises(ValidationError):
        ExperimentSpec.model_validate(document)


def test_long_variant_label_is_replaced_by_digest():
    backbones = [{"kind": "ppo", "backbone": {"kind": kind}} for kind in ("mlp", "transformer", "patchtst")]
    spec = ablation("agent", tuple(backbones))
    names = [variant.name for variant in spec.variants()]
    assert len(set(names)) == 3
    assert max(map(len, names)) <= 63
    assert ExperimentSpec.model_validate_json(canonical_json(spec)) == spec


def test_agent_ablation_gives_each_variant_its_default_seeds():
    document = {"name": "base", "agent": {"kind": "ppo", "total_timesteps": 51_200}}
    design = {"kind": "ablation", "field": "agent.kind", "values": ["ppo", "equal_weight"]}
    same, classical = ExperimentSpec.model_validate({**document, "design": design}).variants()
    assert (same.agent.total_timesteps, same.seeds) == (51_200, (0, 1, 2))
    assert classical.seeds == (0,)


def test_an_index_has_one_spelling():
    with pytest.raises(ValidationError):
        ablation("environment.rewards.00.weight", (1.0, 2.0))
