from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.components.family import PartError
from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.rewards.term import Stateless
from nvtrader_pipelines.experiments.causal_parts import require_causal_parts
from nvtrader_pipelines.market.look_ahead import LookAheadError, require_causal_feature
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.testing.feature_checks import synthetic_history
from tests import offending_parts as parts
from tests.experiments.small import EXPERIMENT
from tests.markets import synthetic_panel

PANEL = synthetic_panel(300, 3)


def in_environment(**fields):
    return EXPERIMENT.model_copy(update={"environment": EXPERIMENT.environment.model_copy(update=fields)})


def in_pipeline(**fields):
    return EXPERIMENT.model_copy(update={"pipeline": EXPERIMENT.pipeline.model_copy(update=fields)})


@pytest.mark.parametrize(
    ("spec", "part", "changed"),
    [
        (in_environment(rewards=(parts.PeekReward(),)), "PeekReward", "reward of step 2"),
        (in_environment(observation=parts.PeekObservation()), "PeekObservation", "observation after step 2"),
        (in_environment(observation=parts.PeekScaler()), "PeekScaler", "observation after step 0"),
        (in_environment(action=parts.PeekAction()), "PeekAction", "target"),
        (
            in_environment(action=ResidualAction.model_construct(anchor=parts.PeekAnchor())),
            "PeekAnchor",
            "target",
        ),
        (in_environment(costs=(parts.PeekCost(),)), "PeekCost", "cost of the next fill"),
        (in_pipeline(selector=parts.PeekSelector()), "PeekSelector", "weights of the pipeline"),
        (in_pipeline(allocator=parts.PeekAllocator()), "PeekAllocator", "weights of the pipeline"),
        (in_pipeline(timing=parts.PeekTiming()), "PeekTiming", "weights of the pipeline"),
        (in_pipeline(limits=(parts.PeekLimit(),)), "PeekLimit", "weights of the pipeline"),
        (EXPERIMENT.model_copy(update={"agent": parts.PeekRule()}), "PeekRule", "decision of peek_rule"),
        (EXPERIMENT.model_copy(update={"baselines": (parts.PeekRule(),)}), "PeekRule", "decision of peek_rule"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_part_that_looks_ahead_is_refused_by_name(spec, part, changed):
    with pytest.raises(LookAheadError, match=f"the parts {part} must not look ahead.* the {changed}"):
        require_causal_parts(spec, PANEL)


@pytest.mark.parametrize("prices", ["closes", "highs", "lows"])
def test_feature_that_looks_ahead_is_refused_by_name(prices):
    with pytest.raises(LookAheadError, match="the feature peek must not look ahead"):
        require_causal_feature(parts.PeekFeature(prices=prices), synthetic_history())


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (in_environment(rewards=(parts.WritingReward(),)), "WritingReward"),
        (in_environment(observation=parts.WritingObservation()), "WritingObservation"),
        (EXPERIMENT.model_copy(update={"baselines": (parts.WritingRule(),)}), "WritingRule"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_part_that_writes_into_the_market_is_refused_by_name(spec, part):
    before = panel_digest(replace(PANEL))
    with pytest.raises(PartError, match=rf"the parts {part} .* write to a copy \(`panel.close_returns.copy\(\)`\)"):
        require_causal_parts(spec, PANEL)
    assert panel_digest(replace(PANEL)) == before


def test_feature_that_writes_into_the_history_is_refused_by_name():
    history = synthetic_history()
    with pytest.raises(PartError, match=r"the feature writing .* write to a copy"):
        require_causal_feature(parts.WritingFeature(), history)
    np.testing.assert_array_equal(history.closes, synthetic_history().closes)


@pytest.mark.parametrize(
    ("contribution", "problem"),
    [
        (lambda _: {}["unknown"], "fail in a trial of 3 steps .KeyError"),
        (lambda outcome: outcome.transition.session_growth, "fail in a trial of 3 steps .ValueError"),
        (lambda outcome: outcome.equity * float("nan"), "the reward of step 0 is not finite"),
    ],
    ids=["error", "shape", "nan"],
)
def test_part_that_fails_is_refused_by_name(monkeypatch, contribution, problem):
    monkeypatch.setattr(parts.PeekReward, "start", lambda *_: Stateless(contribution))
    with pytest.raises(PartError, match=f"the parts PeekReward must .*{problem}"):
        require_causal_parts(in_environment(rewards=(parts.PeekReward(),)), PANEL)
