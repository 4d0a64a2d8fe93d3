"""Backtest and stress test of an entrant, computed once per contest, settings and code."""

import hashlib
import json
from typing import Any

import numpy as np

from nvtrader_pipelines.market.panel import MarketPanel, panel_digest
from nvtrader_pipelines.scoreboard.contest_backtest import ContestRun
from nvtrader_pipelines.scoreboard.entrants import Entrant
from nvtrader_pipelines.scoreboard.scorecard import Contest, StressResult
from nvtrader_pipelines.storage.judgements import Result

CURVES, ACTIONS, UNTIMED_CURVES = "curves", "actions", "untimed_curves"


def backtest_digest(entrant: Entrant, panel: MarketPanel, contest: Contest) -> str:
    """Digest of all that decides the backtest of an entrant in a contest."""
    return _digest("backtest", entrant, contest, panel_digest(panel))


def stress_digest(entrant: Entrant, contest: Contest, stress_test: str) -> str:
    """Digest of all that decides the stress test of an entrant; `stress_test` as canonical JSON."""
    return _digest("stress", entrant, contest, stress_test)


def pack_backtest(run: ContestRun) -> Result:
    """Pack a backtest, without the entrant and its panel."""
    document = {
        "seconds": run.seconds,
        "latencies": run.latencies.tolist(),
        "peak_memory": run.peak_memory,
        "n_acted": run.n_acted,
        "openings": run.openings,
    }
    frames = {CURVES: run.curves, ACTIONS: run.actions}
    return Result(document, frames if run.untimed_curves is None else {**frames, UNTIMED_CURVES: run.untimed_curves})


def unpack_backtest(result: Result, entrant: Entrant, panel: MarketPanel) -> ContestRun:
    """Unpack the backtest of an entrant on its panel."""
    document = dict(result.document)
    latencies, openings = np.array(document.pop("latencies")), tuple(document.pop("openings"))
    frames, untimed = result.frames, result.frames.get(UNTIMED_CURVES)
    return ContestRun(
        entrant,
        panel,
        frames[CURVES],
        frames[ACTIONS],
        latencies=latencies,
        openings=openings,
        untimed_curves=untimed,
        **document,
    )


def pack_stress(results: tuple[StressResult, ...]) -> Result:
    """Pack the results of a stress test."""
    return Result([result.model_dump(mode="json") for result in results])


def unpack_stress(result: Result) -> tuple[StressResult, ...]:
    """Unpack the results of a stress test."""
    return tuple(StressResult.model_validate(row) for row in result.document)


def _digest(what: str, entrant: Entrant, contest: Contest, more: str) -> str:
    content: list[Any] = [what, entrant.name, entrant.kind, entrant.run_id, entrant.configuration, contest.digest, more]
    return hashlib.sha256(json.dumps([*content, entrant.code_version], sort_keys=True).encode()).hexdigest()
