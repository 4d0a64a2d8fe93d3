import datetime as dt
from dataclasses import replace

import pytest

from nvtrader_pipelines.policies.sb3_zip import Sb3Zip
from nvtrader_pipelines.scoreboard.candidates import NORMALIZED, sb3_candidate
from nvtrader_pipelines.scoreboard.entrants import Sb3Entrant
from tests.markets import synthetic_panel

PANEL = synthetic_panel(320, 3)
SAVED = Sb3Zip(tensors={}, version="2.7.0", num_timesteps=32, sha256="0" * 64)
FIRST, LAST = PANEL.sessions[0].item(), PANEL.sessions[200].item()


def entrant(first=FIRST):
    return Sb3Entrant(train_first=first, train_last=LAST)


def test_a_network_is_known_by_the_bytes_of_its_file():
    assert sb3_candidate("foreign", entrant(), SAVED, PANEL).configuration["sha256"] == SAVED.sha256


def test_a_network_trained_behind_vec_normalize_is_judged_with_a_warning():
    assert NORMALIZED not in sb3_candidate("foreign", entrant(), SAVED, PANEL).warnings
    assert NORMALIZED in sb3_candidate("foreign", entrant(), replace(SAVED, is_normalized=True), PANEL).warnings


@pytest.mark.parametrize(("days", "warned"), [(0, False), (1, True)])
def test_a_network_trained_before_the_market_begins_is_judged_with_a_warning(days, warned):
    found = sb3_candidate("foreign", entrant(FIRST - dt.timedelta(days=days)), SAVED, PANEL)
    assert any(f"the market begins on {FIRST}" in warning for warning in found.warnings) is warned
