"""What a walk tells as it goes: the equity of a test, or each bar, signal, order and fill of a forward run."""

from collections.abc import Callable, Iterator

import numpy as np

from nvtrader_pipelines.evaluation.backtest import WalkStep
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.progress import Stage
from nvtrader_pipelines.portfolio.cash import CASH

Told = tuple[Stage, str, dict[str, float]]
Teller = Callable[[RunPlan, WalkStep, int], Iterator[Told]]  # the account `i` of a step
SHOWN = 3  # names of a signal


def equity_stages(plan: RunPlan, step: WalkStep, i: int) -> Iterator[Told]:  # noqa: ARG001 (a Teller)
    """The equity at the end of the step."""
    equity = float(step.equity[i, -1])
    yield "evaluate.step", f"{step.session}: equity {equity:.4f}", {"equity": equity}


def forward_stages(plan: RunPlan, step: WalkStep, i: int) -> Iterator[Told]:
    """The bar a decision saw, the signal, the order, its fill, and the equity at each close until the next."""
    yield "signal.emitted", f"{step.session}: {_largest(plan, step, i)}", _weights(plan, step, i)
    yield "order.placed", f"{step.session}: order for the next fill", {}
    if step.done is None:
        return
    turnover, cost = (float(values[i]) for values in (step.done.transition.turnover, step.done.transition.cost))
    for j, equity in enumerate(step.equity[i].tolist()):
        session = plan.panel.sessions[step.t + 1 + j]
        yield "bar.received", f"{session}: bar", {}
        if j == 0:
            filled = {"turnover": turnover, "cost": cost}
            yield "order.filled", f"{step.fill_session}: turnover {turnover:.2%}, cost {cost:.4%}", filled
        drawdown = float(step.drawdown[i, j])
        yield "equity.update", f"{session}: equity {equity:.4f}", {"equity": equity, "drawdown": drawdown}


def _weights(plan: RunPlan, step: WalkStep, i: int) -> dict[str, float]:
    """Name to target weight, cash last."""
    return dict(zip([*plan.panel.symbols, CASH], step.target[i].tolist(), strict=True))


def _largest(plan: RunPlan, step: WalkStep, i: int) -> str:
    weights = step.target[i, :-1]
    largest = np.argsort(-weights, kind="stable")[:SHOWN]
    named = ", ".join(f"{plan.panel.symbols[k]} {weights[k]:.1%}" for k in largest)
    return f"{named}; cash {step.target[i, -1]:.1%}"
