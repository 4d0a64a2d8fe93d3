"""Progress events of a walk: equity of a test, or every bar, signal, order and fill of a forward run."""

from collections.abc import Callable, Iterator

import numpy as np

from nvtrader_pipelines.evaluation.backtest import WalkStep
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Stage
from nvtrader_pipelines.portfolio.cash import CASH

ProgressEvent = tuple[Stage, str, dict[str, float]]
ProgressFormatter = Callable[[RunPlan, WalkStep, int], Iterator[ProgressEvent]]  # for account `i` of a step
SHOWN = 3  # number of names in a signal


def equity_stages(plan: RunPlan, step: WalkStep, i: int) -> Iterator[ProgressEvent]:  # noqa: ARG001 (a ProgressFormatter)
    """Yield the equity at the end of the step."""
    equity = float(step.equity[i, -1])
    yield "evaluate.step", f"{step.session}: equity {equity:.4f}", {"equity": equity}


def forward_stages(plan: RunPlan, step: WalkStep, i: int) -> Iterator[ProgressEvent]:
    """Yield signal, order, fill, and bar and equity of each close until the next decision."""
    weights = dict(zip([*plan.panel.symbols, CASH], step.target[i].tolist(), strict=True))
    yield "signal.emitted", f"{step.session}: {_largest(plan, step, i)}", weights
    yield "order.placed", f"{step.session}: order for the next fill", {}
    if step.outcome is None:
        return
    turnover, cost = (float(values[i]) for values in (step.outcome.transition.turnover, step.outcome.transition.cost))
    for j, equity in enumerate(step.equity[i].tolist()):
        session = plan.panel.sessions[step.t + 1 + j]
        yield "bar.received", f"{session}: bar", {}
        if j == 0:
            filled = {"turnover": turnover, "cost": cost}
            yield "order.filled", f"{step.fill_session}: turnover {turnover:.2%}, cost {cost:.4%}", filled
        drawdown = float(step.drawdown[i, j])
        yield "equity.update", f"{session}: equity {equity:.4f}", {"equity": equity, "drawdown": drawdown}


def _largest(plan: RunPlan, step: WalkStep, i: int) -> str:
    weights = step.target[i, :-1]
    largest = np.argsort(-weights, kind="stable")[:SHOWN]
    named = ", ".join(f"{plan.panel.symbols[k]} {weights[k]:.1%}" for k in largest)
    return f"{named}; cash {step.target[i, -1]:.1%}"
