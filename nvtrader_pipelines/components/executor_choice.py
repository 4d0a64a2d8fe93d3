"""Executor of this machine's calls, by the environment: it belongs to the machine, not to an experiment."""

import os
from collections.abc import Sequence
from typing import Any

from nvtrader_pipelines.components.executor import Executor, ProcessExecutor
from nvtrader_pipelines.components.ray_executor import LOCAL, RayExecutor

EXECUTOR = "NVTRADER_EXECUTOR"  # environment variable: processes (if not set) or ray
ADDRESS = "NVTRADER_RAY_ADDRESS"  # environment variable: a Ray cluster's; local, if not set, starts one


def make_executor(n_workers: int | None, preloaded: Sequence[str] = (), *shared: Any) -> Executor:
    """Prepare workers of the kind that $NVTRADER_EXECUTOR names.

    Args:
        n_workers: number of workers; None: one a processor of this machine, or of the Ray cluster.
        preloaded: modules of the process that worker processes are forked from.
        shared: values that every call gets after its own arguments.

    Raises:
        ValueError: if the variable names no executor, or Ray, which is not installed.
    """
    kind = os.environ.get(EXECUTOR) or "processes"
    if kind not in ("processes", "ray"):
        raise ValueError(f"${EXECUTOR} must be processes or ray, but it is {kind!r}")
    if kind == "ray":
        return RayExecutor(os.environ.get(ADDRESS) or LOCAL, n_workers, *shared)
    return ProcessExecutor(n_workers, preloaded, *shared)
