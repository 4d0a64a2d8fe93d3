"""Verdicts on runs, and scorecards of all entrants."""

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema, interval_bounds
from nvtrader_pipelines.evaluation import verdict_tables as verdicts
from nvtrader_pipelines.evaluation.verdict_tables import EVALUATION, EXPERIMENT, RUN, WORLD_RESULT
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
_CONTEST = TableSchema(
    Column("contest", pl.String, "digest of market, window, costs, fill, leverage: 16 hexadecimal digits; or null"),
    Column("contest_name", pl.String, "name of the contest's window, as in data/contests.yaml; null without a contest"),
    Column("source", pl.String, "market source"),
    Column("calendar", pl.String, "calendar of the source; null without a contest"),
    Column("first_session", pl.Date, "first session scored"),
    Column("last_session", pl.Date, "last session scored"),
    EVALUATION.only("n_sessions"),
    Column("entrant", pl.String, "name of an experiment, of a file in data/entrants, or of a baseline"),
    Column("kind", pl.String, "run, weights, sb3 or baseline; null if the file cannot be read"),
    Column("run_id", pl.String, "run that was scored; null for other kinds"),
    Column("judged_at", UTC_TIME, "when it was scored"),
    Column("note", pl.String, "why the rank or a figure is missing, and who trades in each fold by validation"),
)
_RESULTS = TableSchema(
    EVALUATION.only("sharpe", "sharpe_low", "sharpe_high"),
    Column(
        "openings",
        pl.List(pl.Float64),
        "net Sharpe ratio if the second decision comes 1, 2, … rebal_freq sessions after the first; the last is sharpe",
    ),
    Column("best_baseline", pl.String, "baseline of the contest with the highest Sharpe ratio, picked with hindsight"),
    Column("sharpe_difference", pl.Float64, "Sharpe ratio less that of the best baseline; null for baselines"),
    EVALUATION.only("sharpe_difference_low", "sharpe_difference_high"),
    Column("information_ratio", pl.Float64, "annualized information ratio against the best baseline"),
    interval_bounds("information_ratio", "bound of the information ratio, stationary bootstrap"),
    Column(
        "deflated_information_ratio",
        pl.Float64,
        "probability that the information ratio exceeds what the best of all trials reaches by luck",
    ),
    Column("probabilistic_sharpe", pl.Float64, "probability that the true Sharpe ratio is above 0"),
    EVALUATION.only("sortino", "calmar", "cagr", "max_drawdown", "turnover_per_year", "cost_per_year"),
)
_SCORECARDS = TableSchema(
    _CONTEST,
    _RESULTS,
    Column("judgement", pl.String, "identity of the scoring, 16 hexadecimal digits"),
    Column("panel_digest", pl.String, "SHA-256 of the panel of the names that it may hold"),
    Column("rebal_freq", pl.Int32, "sessions between its decisions"),
    Column("train_first", pl.Date, "first training session of any of its policies"),
    Column("train_last", pl.Date, "last training session of any of its policies"),
    EVALUATION.only("volatility"),
    Column("n_trials", pl.Int32, "number of trials on the market, this one included"),
    Column("worst_scenario", pl.String, "stress scenario with the lowest total return"),
    Column("worst_scenario_return", pl.Float64, "total return in that scenario"),
    Column("training_seconds", pl.Float64, "duration of all its trainings; null if unknown"),
    Column("judging_seconds", pl.Float64, "time to walk the window"),
    Column("latency_seconds", pl.Float64, "median time from a close to the weights"),
    Column("peak_memory_bytes", pl.Int64, "peak resident memory of the scoring process"),
    Column("warnings", pl.List(pl.String), "caveats for a reader"),
    Column("digest", pl.String, "SHA-256 of the card without its measured times and memory"),
    Column("code_version", pl.String, "package version and code digest"),
    Column("document", pl.String, "the whole card as JSON"),
)
SCORECARDS = Table("evaluation", "scorecards", _SCORECARDS)
_SCOREBOARD = TableSchema(
    _CONTEST,
    _RESULTS,
    Column("rank", pl.Int32, "rank in the contest by net Sharpe ratio; null if not scored"),
    Column("previous_rank", pl.Int32, "rank before the contest was last scored anew"),
    Column("previous_sharpe", pl.Float64, "net Sharpe ratio before that"),
)
WORLD_RESULTS = Table("evaluation", "world_results", TableSchema(RUN, EXPERIMENT, WORLD_RESULT), BY_RUN)
SCOREBOARD = Table("evaluation", "scoreboard", _SCOREBOARD)
