import hashlib
import io
import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import (
    CARD,
    TENSORS,
    PolicyArchiveError,
    PolicyCard,
    read_archive,
    write_archive,
)
from tests.markets import synthetic_panel
from tests.policies.small_learners import CASES, CLASSICAL, SPEC, WINDOW, card_of

PANEL = synthetic_panel(160, 3)
FIT = Fit(
    tensors={"weight": torch.arange(6, dtype=torch.float32).reshape(2, 3), "log_std": torch.full((2,), -0.5)},
    scaler=SPEC.observation.fit(PANEL, 5, 150),
    curve=[(128, 0.001), (256, 0.002)],
)
ARCHIVE = write_archive(card_of(PANEL, FIT), FIT.tensors)
ELSEWHERE = "from tests.policies.test_archive import digests; print(*digests())"


def digests():
    """Of the archives and of an episode's rewards that a seed gives, for every kind of policy."""
    classical = [(SPEC, agent) for agent in CLASSICAL.values()]
    for spec, agent in [*CASES.values(), *classical]:
        fit = agent.train(PANEL, spec, WINDOW, 4)
        yield hashlib.sha256(write_archive(card_of(PANEL, fit, spec, agent), fit.tensors)).hexdigest()
        env = PortfolioEnv(PANEL, spec)
        env.reset(seed=4)
        rewards = [env.step(np.full(4, 0.1 * k, dtype=np.float32))[1] for k in range(20)]
        yield hashlib.sha256(np.array(rewards).tobytes()).hexdigest()


class Bomb:
    """Opens a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def zipped(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


def test_a_written_archive_reads_back_as_it_was():
    card, tensors = read_archive(ARCHIVE)
    assert card == card_of(PANEL, FIT)
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        name: tensor.tolist() for name, tensor in FIT.tensors.items()
    }


def test_card_stores_stretches_only_if_there_are_several():
    whole, apart = card_of(PANEL, FIT), (("2015-01-05", "2015-03-02"), ("2015-06-01", "2015-08-03"))
    several = whole.model_copy(update={"train": apart})
    assert whole.stretches == ((whole.train_first, whole.train_last),)
    assert "train" not in json.loads(whole.model_dump_json())
    card, _ = read_archive(write_archive(several, FIT.tensors))
    assert card.stretches == apart


def test_archive_bytes_do_not_depend_on_the_order_of_tensors():
    backwards = dict(reversed(FIT.tensors.items()))
    assert write_archive(card_of(PANEL, FIT), backwards) == ARCHIVE


@pytest.mark.nightly
@pytest.mark.slow
def test_equal_seeds_give_equal_bytes_in_two_processes():
    run = [sys.executable, "-c", ELSEWHERE]
    other = subprocess.run(run, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert other.stdout.split() == list(digests())


@pytest.mark.parametrize("agent", CLASSICAL.values(), ids=CLASSICAL)
def test_policy_without_tensors_round_trips(agent):
    card = card_of(PANEL, agent.train(PANEL, SPEC, WINDOW, 0), agent=agent)
    content = write_archive(card, {})
    assert read_archive(content) == (card, {})
    assert write_archive(card, {}) == content


def test_archive_holds_json_and_safetensors_only():
    with zipfile.ZipFile(io.BytesIO(ARCHIVE)) as archive:
        assert archive.namelist() == [CARD, TENSORS]
        assert b'"experiment": "small@00000000"' in archive.read(CARD)
        tensors = archive.read(TENSORS)
    header = json.loads(tensors[8 : 8 + int.from_bytes(tensors[:8], "little")])
    assert {name: entry["dtype"] for name, entry in header.items()} == {"weight": "F32", "log_std": "F32"}


def test_read_archive_raises_for_a_pickle_without_opening_it(tmp_path):
    trap = tmp_path / "opened"
    pickled = pickle.dumps(Bomb(str(trap)))
    card = card_of(PANEL, FIT).model_dump_json()
    stable_baselines = zipped(data="{}", policy__pth=pickled, pytorch_variables__pth=pickled)
    in_disguise = zipped(card__json=card, policy__safetensors=pickled)
    with zipfile.ZipFile(io.BytesIO(ARCHIVE)) as archive:
        beside = zipped(card__json=card, policy__safetensors=archive.read(TENSORS), policy__pkl=pickled)
    for content in (stable_baselines, in_disguise, beside, pickled):
        with pytest.raises(PolicyArchiveError):
            read_archive(content)
    assert not trap.exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"nonsense" * 100, ARCHIVE[:-1], ARCHIVE[: len(ARCHIVE) // 2]])
def test_read_archive_raises_for_truncated_or_foreign_bytes(content):
    with pytest.raises(PolicyArchiveError):
        read_archive(content)


def test_a_card_of_another_format_is_refused():
    card = card_of(PANEL, FIT).model_dump_json().replace('"format":1', '"format":2')
    with zipfile.ZipFile(io.BytesIO(ARCHIVE)) as archive:
        content = zipped(card__json=card, policy__safetensors=archive.read(TENSORS))
    with pytest.raises(PolicyArchiveError):
        read_archive(content)


@given(place=st.integers(0, len(ARCHIVE) - 1), value=st.integers(1, 255))
def test_damaged_byte_raises_or_changes_nothing(place, value):
    damaged = bytearray(ARCHIVE)
    damaged[place] ^= value
    try:
        card, tensors = read_archive(bytes(damaged))
    except PolicyArchiveError:
        return
    assert write_archive(card, tensors) == ARCHIVE


def test_policy_card_has_no_snapshot_ids():
    assert "snapshot_ids" not in PolicyCard.model_fields


def test_card_without_regimes_omits_cuts():
    card = card_of(PANEL, FIT)
    assert '"cuts"' not in card.model_dump_json()
    with_regimes = card.model_copy(update={"scaler": card.scaler.model_copy(update={"cuts": (0.1, 0.2)})})
    for each in (card, with_regimes):
        assert PolicyCard.model_validate_json(each.model_dump_json()) == each
