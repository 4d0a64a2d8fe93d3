"""Learning curves of a run as a file that grows while it trains: a JSON line per point."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read


class CurvePoint(BaseModel):
    """Point of the learning curve of one fold and seed; at most 200 each."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    fold: int
    seed: int
    timesteps: int
    total_timesteps: int
    mean_reward: float  # per step, since the previous point


def curve_path(home: Home, run_id: str) -> Path:
    """Path of the file of a run."""
    return home.training_curves / f"{run_id}.jsonl"


def append_point(home: Home, step: Progress) -> None:
    """Append the point of a training step to the file of its run; other steps are ignored."""
    reward = step.metrics.get("mean_reward")
    if step.stage != "train.step" or reward is None:
        return
    point = CurvePoint.model_validate({**step.model_dump(), "mean_reward": reward})
    home.training_curves.mkdir(parents=True, exist_ok=True)
    with curve_path(home, step.run_id).open("a", encoding="utf-8") as file:
        file.write(f"{point.model_dump_json()}\n")


def read_points(home: Home, run_id: str) -> list[CurvePoint]:
    """Read the points of a run in the order in which they came; none without a file.

    A resumed training repeats the points since its checkpoint: the last of each counts. A torn line is left out.
    """
    note_read(curve_path(home, run_id))
    try:
        lines = curve_path(home, run_id).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    points: dict[tuple[int, int, int], CurvePoint] = {}
    for line in lines:
        try:
            point = CurvePoint.model_validate_json(line)
        except ValidationError:
            continue  # torn: the process was killed in a write
        key = (point.fold, point.seed, point.timesteps)
        points.pop(key, None)
        points[key] = point
    return list(points.values())
