import datetime as dt
from dataclasses import replace

import pytest

from nvtrader_pipelines.experiments.entrant_specs import Sb3EntrantSpec
from nvtrader_pipelines.policies.sb3_zip import Sb3Zip
from nvtrader_pipelines.scoreboard.entrants import NORMALIZED, sb3_entrant
from tests.markets import synthetic_panel

PANEL = synthetic_panel(320, 3)
SAVED = Sb3Zip(tensors={}, version="2.7.0", num_timesteps=32, sha256="0" * 64)
FIRST, LAST = PANEL.sessions[0].item(), PANEL.sessions[200].item()


def spec(first=FIRST):
    return Sb3EntrantSpec(train_first=first, train_last=LAST)


def test_sb3_entrant_has_the_digest_of_its_file():
    assert sb3_entrant("foreign", spec(), SAVED, PANEL).configuration["sha256"] == SAVED.sha256


def test_sb3_entrant_behind_vec_normalize_warns():
    assert NORMALIZED not in sb3_entrant("foreign", spec(), SAVED, PANEL).warnings
    assert NORMALIZED in sb3_entrant("foreign", spec(), replace(SAVED, is_normalized=True), PANEL).warnings


@pytest.mark.parametrize(("days", "warned"), [(0, False), (1, True)])
def test_sb3_entrant_trained_before_the_market_warns(days, warned):
    found = sb3_entrant("foreign", spec(FIRST - dt.timedelta(days=days)), SAVED, PANEL)
    assert any(f"the market begins on {FIRST}" in warning for warning in found.warnings) is warned
