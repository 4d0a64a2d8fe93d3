"""Verdicts on runs and on everything that competes."""

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.evaluation import verdict_tables as verdicts
from nvtrader_pipelines.evaluation.verdict_tables import EVALUATION, EXPERIMENT, RUN
from nvtrader_pipelines.storage.table import BY_RUN, Table

EVALUATIONS = Table("evaluation", "walk_forward_evaluation", TableSchema(RUN, EXPERIMENT, EVALUATION), BY_RUN)
RATIO_CURVE = Table("evaluation", "sharpe_ratio_curve", verdicts.RATIO_CURVE)
REGIME_EVALUATION = Table(
    "evaluation", "regime_evaluation", TableSchema(RUN, EXPERIMENT, verdicts.REGIME_EVALUATION), BY_RUN
)
PRUDEX = Table("evaluation", "prudex", verdicts.PRUDEX)
VALIDATION = Table("evaluation", "validation", verdicts.VALIDATION)
OVERFITTING = Table("evaluation", "overfitting", verdicts.OVERFITTING)
STRESS = Table("evaluation", "stress", TableSchema(RUN, EXPERIMENT, verdicts.STRESS), BY_RUN)
_MET = TableSchema(
    Column(
        "contest",
        pl.String,
        "digest of market, window, costs, fill and leverage, 16 hexadecimal digits; null where there was none",
    ),
    Column("source", pl.String, "market source"),
    Column("first_session", pl.Date, "first session judged"),
    Column("last_session", pl.Date, "last session judged"),
    EVALUATION.only("n_sessions"),
    Column("entrant", pl.String, "name: of an experiment, of a file of data/entrants, or of a baseline"),
    Column("kind", pl.String, "run, weights, sb3 or baseline; null where the file cannot be read"),
    Column("judged_at", UTC_TIME, "when it was judged"),
    Column("note", pl.String, "why there is no rank, or why a figure is missing"),
)
_STANDING = TableSchema(
    EVALUATION.only("sharpe", "sharpe_low", "sharpe_high"),
    Column("best_baseline", pl.String, "baseline of the contest with the highest Sharpe ratio, known only afterwards"),
    Column("sharpe_difference", pl.Float64, "Sharpe ratio less that of the best baseline; null of baselines"),
    EVALUATION.only("difference_low", "difference_high"),
    Column(
        "active_sharpe",
        pl.Float64,
        "information ratio: annual Sharpe ratio of the return less the best baseline's",
    ),
    Column("active_low", pl.Float64, "2.5 % bound, stationary bootstrap"),
    Column("active_high", pl.Float64, "97.5 % bound, stationary bootstrap"),
    Column(
        "active_deflated_sharpe",
        pl.Float64,
        "probability of an information ratio above the luck of the best of all trials",
    ),
    Column("probabilistic_sharpe", pl.Float64, "probability of a true Sharpe ratio above 0"),
    EVALUATION.only("cagr", "max_drawdown", "turnover_per_year", "cost_per_year"),
)
SCORECARDS = Table(
    "evaluation",
    "scorecards",
    TableSchema(
        _MET,
        _STANDING,
        Column("judgement", pl.String, "identity of the judgement, 16 hexadecimal digits"),
        Column("panel_digest", pl.String, "SHA-256 of the panel of the names it may hold"),
        Column("rebal_freq", pl.Int32, "sessions between its decisions"),
        Column("train_first", pl.Date, "first session that trained any of its policies"),
        Column("train_last", pl.Date, "last session that trained any of its policies"),
        Column("run_id", pl.String, "the run judged, where it is one"),
        EVALUATION.only("volatility"),
        Column("n_trials", pl.Int32, "trials ever run on the market, this one included"),
        Column("worst_scenario", pl.String, "the stress scenario with the lowest total return"),
        Column("worst_scenario_return", pl.Float64, "total return in it"),
        Column("training_seconds", pl.Float64, "of all its trainings; null where not known"),
        Column("judging_seconds", pl.Float64, "to walk the window"),
        Column("latency_seconds", pl.Float64, "from a close to the weights, median"),
        Column("peak_memory_bytes", pl.Int64, "resident memory of the judging process"),
        Column("warnings", pl.List(pl.String), "what a reader must know"),
        Column("digest", pl.String, "SHA-256 of the card without what was measured"),
        Column("code_version", pl.String, "version and source digest of the package"),
        Column("document", pl.String, "the whole card as JSON"),
    ),
)
SCOREBOARD = Table(
    "evaluation",
    "scoreboard",
    TableSchema(
        _MET,
        _STANDING,
        Column("rank", pl.Int32, "place in the contest by net Sharpe ratio; null where it was not judged"),
        Column("previous_rank", pl.Int32, "place before the last new judgement of the contest"),
        Column("previous_sharpe", pl.Float64, "net Sharpe ratio before it"),
    ),
)
