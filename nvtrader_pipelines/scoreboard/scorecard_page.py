"""Scorecards as Markdown pages."""

import json
from collections.abc import Mapping

from nvtrader_pipelines.components.text import ID_LENGTH
from nvtrader_pipelines.evaluation.timing_luck import opening_range
from nvtrader_pipelines.portfolio.costs import CostModel
from nvtrader_pipelines.scoreboard.scorecard import Metric, Scorecard

FRACTIONS = {  # metrics shown in percent
    "total_return", "cagr", "volatility", "max_drawdown", "value_at_risk", "cvar", "hit_rate", "exposure",
    "cost_per_year",
}  # fmt: skip


def markdown(card: Scorecard) -> str:
    """Render the card as a Markdown page."""
    parts = [f"# Scorecard: {card.entrant}", _heading(card)]
    if card.refusal:
        return "\n\n".join([*parts, f"**Not scored**: {card.refusal}", *_configuration_section(card)]) + "\n"
    parts += [
        _render_section("Result, net of costs", {**_metric_rows(card.metrics), **_openings_row(card)}),
        *_luck_section(card),
        *_timing_section(card),
    ]
    parts += [*_stress_section(card), _data_section(card)]
    chosen = ["## Choices by validation\n\n" + "\n".join(f"- {choice}" for choice in card.choices)]
    parts += chosen if card.choices else []
    warned = [f"- {warning}" for warning in card.warnings] or ["none"]
    return (
        "\n\n".join(
            [*parts, "## Warnings\n\n" + "\n".join(warned), _measurements_section(card), *_configuration_section(card)]
        )
        + "\n"
    )


def _heading(card: Scorecard) -> str:
    contest = card.contest
    if contest is None:
        return f"{card.kind or 'entrant'}, {card.measured.judged_at:%Y-%m-%d %H:%M} UTC"
    costs = " + ".join(_format_cost(cost) for cost in contest.costs) or "none"
    return (
        f"{card.kind}, scored {card.measured.judged_at:%Y-%m-%d %H:%M} UTC on `{contest.source}`, "
        f"{contest.first_session} to {contest.last_session} ({contest.n_sessions} sessions). Contest {contest.name} "
        f"`{contest.digest}`: orders fill at the {contest.fill}, costs {costs}, gross at most {contest.gross_limit:g}, "
        f"start in cash; decides every {'session' if card.rebal_freq == 1 else f'{card.rebal_freq} sessions'}."
    )


def _format_cost(cost: CostModel) -> str:
    settings = cost.model_dump(exclude={"kind"})
    return f"{cost.kind} ({', '.join(f'{name} {value:g}' for name, value in settings.items())})"


def _render_section(title: str, rows: Mapping[str, str]) -> str:
    lines = [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join([f"## {title}", "", "| | |", "|---|---:|", *lines])


def _metric_rows(metrics: Mapping[str, Metric]) -> dict[str, str]:
    return {
        name.replace("_", " "): _format_metric(metric, percent=name in FRACTIONS) for name, metric in metrics.items()
    }


def _openings_row(card: Scorecard) -> dict[str, str]:
    spread = opening_range(card.openings)
    return {"sharpe over its openings": f"{spread[0]:.2f} to {spread[1]:.2f}"} if spread else {}


def _format_metric(metric: Metric, *, percent: bool = False) -> str:
    if metric.value is None:
        return "-"
    if metric.low is not None and metric.high is not None:  # of a Sharpe ratio: the draws support two digits
        return f"{metric.value:.2f} [{metric.low:.2f}, {metric.high:.2f}]"
    form = ".2%" if percent else ".4g"
    return f"{metric.value:{form}}"


def _luck_section(card: Scorecard) -> list[str]:
    inference = card.inference
    if inference is None:
        return []
    rows = {
        "probabilistic Sharpe ratio (above 0)": _format_metric(Metric(value=inference.probabilistic_sharpe)),
        "best baseline, in hindsight": inference.best_baseline or "-",
        "information ratio against it": _format_metric(inference.information_ratio),
        "deflated information ratio": _format_metric(Metric(value=inference.deflated_information_ratio)),
        "trials on these data": "-" if inference.n_trials is None else str(inference.n_trials),
    }
    return [_render_section("Inference", rows), *([inference.note] if inference.note else [])]


def _timing_section(card: Scorecard) -> list[str]:
    timing = card.timing
    if timing is None:
        return []
    pairs = {
        "Sharpe ratio": (timing.sharpe, timing.sharpe_without, ".4g"),
        "max drawdown": (timing.max_drawdown, timing.max_drawdown_without, ".2%"),
        "turnover per year": (timing.turnover_per_year, timing.turnover_per_year_without, ".4g"),
    }
    lines = [f"| {name} | {timed:{form}} | {untimed:{form}} |" for name, (timed, untimed, form) in pairs.items()]
    rows = ["## Timing", "", f"| | with {timing.timing} | without |", "|---|---:|---:|", *lines]
    return [
        "\n".join(rows),
        f"Difference of the Sharpe ratios {_format_metric(timing.sharpe_difference)}; it changed {timing.n_acted} of "
        f"{timing.n_decisions} decisions. {timing.finding}",
    ]


def _stress_section(card: Scorecard) -> list[str]:
    if not card.stress:
        return []
    lines = [
        f"| {row.scenario} | {_format_metric(Metric(value=row.total_return), percent=True)} "
        f"| {_format_metric(Metric(value=row.max_drawdown), percent=True)} "
        f"| {_format_metric(Metric(value=row.difference), percent=True)} "
        f"| {_format_metric(Metric(value=row.over_equal_weight), percent=True)} | {row.note} |"
        for row in card.stress
    ]
    columns = ("scenario", "total return", "max drawdown", "less unstressed", "less 1/N", "")
    head = ["## Stress", "", f"| {' | '.join(columns)} |", "|---|---:|---:|---:|---:|---|"]
    return ["\n".join([*head, *lines])]


def _data_section(card: Scorecard) -> str:
    data = card.data
    rows = {"names": str(data.n_symbols), "panel": f"`{(data.panel_digest or '')[:ID_LENGTH]}`"}
    rows |= {name: f"snapshot {snapshot}" for name, snapshot in sorted(data.snapshot_ids.items())}
    for i, span in enumerate(data.trained):
        used = f", used from {span.used_from}" if span.used_from else ""
        rows[f"trained {i + 1}"] = f"{span.first} to {span.last}{used}"
    return _render_section("Data", rows)


def _measurements_section(card: Scorecard) -> str:
    measured = card.measured
    memory = None if measured.peak_memory_bytes is None else measured.peak_memory_bytes / 2**20
    rows = {
        "training": _format_seconds(card.training_seconds),
        "scoring": _format_seconds(measured.judging_seconds),
        "decision latency, median": _format_milliseconds(measured.latency_seconds),
        "decision latency, 99 %": _format_milliseconds(measured.latency_99),
        "peak memory": "-" if memory is None else f"{memory:,.0f} MiB",
        "code": f"`{card.code_version}`",
    }
    return _render_section("Measurements", rows)


def _format_seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.1f} s"


def _format_milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{1e3 * value:.3f} ms"


def _configuration_section(card: Scorecard) -> list[str]:
    return [f"## Configuration\n\n```json\n{json.dumps(card.configuration, indent=1, sort_keys=True)}\n```"]
