import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from nvtrader_pipelines.orchestration.event_files import EventFiles
from tests.orchestration.training_points import end, point


class Writer:
    """TensorBoard's writer, in memory."""

    folders: ClassVar = {}

    def __init__(self, folder):
        self.scalars = self.folders.setdefault(folder, [])

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        pass

    def close(self):
        self.scalars.append("closed")


def test_event_files_have_a_folder_per_fold_and_seed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "tensorboard.summary", SimpleNamespace(Writer=Writer))
    with EventFiles(folder=str(tmp_path)).live_curves("tiny@0123") as log:
        log(point(100, 0.5))
        log(point(100, 0.25, seed=1))
        log(end())
    assert Writer.folders[f"{tmp_path}/tiny@0123/fold-0-seed-0"][0] == ("mean_reward", 0.5, 100)
    assert Writer.folders[f"{tmp_path}/tiny@0123/fold-0-seed-1"][-2:] == [("train/loss", -0.25, 100), "closed"]


def test_without_a_folder_tensorboard_is_not_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with EventFiles().live_curves("tiny@0123") as log:
        log(point(100))


def test_folder_without_tensorboard_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ValueError), EventFiles(folder=str(tmp_path)).live_curves("tiny@0123"):
        pass
