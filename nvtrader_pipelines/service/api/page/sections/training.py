"""Trainings in progress, and the learning curve of the one that reported last."""

from pathlib import Path
from statistics import fmean
from typing import Any

from nvtrader_pipelines.notifications.home_status import running_runs
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, Series, render
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.training_curve_file import CurvePoint, read_points


def read_trainings(shared: Context) -> Content:
    """Read the runs in progress; where there is none, the run that trained last."""
    running = sorted(running_runs(shared.store), key=lambda run: run.at, reverse=True)
    run_id = running[0].run_id if running else _last_trained(shared.home.training_curves)
    points = read_points(shared.home, run_id) if run_id else []
    fold = [point for point in points if point.fold == points[-1].fold]
    name = _name(shared, run_id)
    facts = _facts(fold, len(shared.store.ledger.read(name).seeds) if name else 1)
    phase = running[0].state.partition(":")[0] if running else ""
    status = shared.store.ledger.run(run_id).status if name and run_id else ""
    values = {"running": running, "run": name, "run_id": run_id, "phase": phase, "status": status, **facts}
    parts = {name: render(name, **values) for name in ("training_head", "training", "training_progress")}
    rows = tuple(
        {"id": f"{p.seed}/{p.timesteps}", "seed": p.seed, "timesteps": p.timesteps, "mean_reward": p.mean_reward}
        for p in fold
    )
    key = f"{run_id}/{fold[0].fold}" if fold else ""
    text = f"{round(100 * facts['share'])} %" if phase == "training" and fold else phase
    said = "" if running or not run_id else f"The training of {values['run'].partition('@')[0]} has ended."
    return Content(
        parts,
        {"curve": Series(key, rows, {"total_timesteps": facts["total"]})},
        {"percent": text, "said_training": said},
    )


def _facts(fold: list[CurvePoint], n_seeds: int) -> dict[str, Any]:
    """Figures of the fold that trains."""
    if not fold:
        return {"points": 0, "fold": None, "total": 0, "timesteps": 0, "share": 0.0, "rewards": {}, "mean": None}
    last = {point.seed: point for point in fold}
    total, timesteps = fold[-1].total_timesteps, max(point.timesteps for point in last.values())
    rewards = {seed: point.mean_reward for seed, point in last.items()}
    return {
        "points": len(fold),
        "fold": fold[-1].fold,
        "total": total,
        "timesteps": timesteps,
        "share": min(1.0, sum(p.timesteps for p in last.values()) / (total * max(n_seeds, len(last)) or 1)),
        "rewards": rewards,
        "mean": fmean(rewards.values()),
    }


def _last_trained(folder: Path) -> str | None:
    """Run whose curve grew last."""
    note_read(folder)
    files = sorted(folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns) if folder.is_dir() else []
    return files[-1].stem if files else None


def _name(shared: Context, run_id: str | None) -> str:
    if run_id is None:
        return ""
    try:
        return shared.store.ledger.run(run_id).partition_key
    except StorageError:  # the curve of a run that the ledger has no longer
        return ""
