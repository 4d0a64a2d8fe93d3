"""Progress of a training, point by point."""

from datetime import UTC, datetime

from nvtrader_pipelines.experiments.progress import Progress

TOTAL = 3200


def point(timesteps: int, reward: float = 0.5, seed: int = 0) -> Progress:
    """A point of the curves of fold 0."""
    return Progress(
        task_id="task",
        run_id="run",
        stage="train.step",
        message="",
        timestamp=datetime(2024, 1, 2, tzinfo=UTC),
        fold=0,
        seed=seed,
        timesteps=timesteps,
        total_timesteps=TOTAL,
        metrics={"mean_reward": reward, "steps_per_second": 1000.0, "train/loss": -reward},
    )


def end(seed: int = 0) -> Progress:
    """The end of a training of fold 0."""
    return point(TOTAL, seed=seed).model_copy(update={"stage": "train.checkpoint", "metrics": {}})
