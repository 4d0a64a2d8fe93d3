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
    ("spec", "part"),
    [
        (in_environment(rewards=(parts.PeekReward(),)), "PeekReward"),
        (in_environment(observation=parts.PeekObservation()), "PeekObservation"),
        (in_environment(observation=parts.PeekScaler()), "PeekScaler"),
        (in_environment(action=parts.PeekAction()), "PeekAction"),
        (in_environment(action=ResidualAction.model_construct(anchor=parts.PeekAnchor())), "PeekAnchor"),
        (in_environment(costs=(parts.PeekCost(),)), "PeekCost"),
        (in_pipeline(selector=parts.PeekSelector()), "PeekSelector"),
        (in_pipeline(allocator=parts.PeekAllocator()), "PeekAllocator"),
        (in_pipeline(timing=parts.PeekTiming()), "PeekTiming"),
        (in_pipeline(limits=(parts.PeekLimit(),)), "PeekLimit"),
        (EXPERIMENT.model_copy(update={"agent": parts.PeekRule()}), "PeekRule"),
        (EXPERIMENT.model_copy(update={"baselines": (parts.PeekRule(),)}), "PeekRule"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_part_that_looks_ahead_is_refused_by_name(spec, part):
    with pytest.raises(LookAheadError, match=part):
        require_causal_parts(spec, PANEL)


def test_reward_marked_as_looking_ahead_sees_its_training_alone():
    require_causal_parts(in_environment(rewards=(parts.PeekTrainingReward(),)), PANEL)


@pytest.mark.parametrize("prices", ["closes", "highs", "lows"])
def test_feature_that_looks_ahead_is_refused_by_name(prices):
    with pytest.raises(LookAheadError, match="peek"):
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
    with pytest.raises(PartError, match=part):
        require_causal_parts(spec, PANEL)
    assert panel_digest(replace(PANEL)) == before


def test_feature_that_writes_into_the_history_is_refused_by_name():
    history = synthetic_history()
    with pytest.raises(PartError, match="writing"):
        require_causal_feature(parts.WritingFeature(), history)
    np.testing.assert_array_equal(history.closes, synthetic_history().closes)


@pytest.mark.parametrize(
    "contribution",
    [
        lambda _: {}["unknown"],
        lambda outcome: outcome.transition.session_growth,
        lambda outcome: outcome.equity * float("nan"),
    ],
    ids=["error", "shape", "nan"],
)
def test_part_that_fails_is_refused_by_name(monkeypatch, contribution):
    monkeypatch.setattr(parts.PeekReward, "start", lambda *_: Stateless(contribution))
    with pytest.raises(PartError, match="PeekReward"):
        require_causal_parts(in_environment(rewards=(parts.PeekReward(),)), PANEL)
