"""The columns of the tables of verdicts on runs, and the period that is reported."""

from collections.abc import Iterable

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema, interval_bounds
from nvtrader_pipelines.policies.rollout_tables import ACCOUNT

RUN = TableSchema(  # what the tables of a run begin with
    Column("spec_hash", pl.String, "SHA-256 of the experiment's spec"),
    Column("run_id", pl.String, "identity of the run, 16 hexadecimal digits"),
)
EXPERIMENT = Column("experiment", pl.String, "name of the experiment")
_WHO = ACCOUNT.only("policy", "kind")
_PERIOD = Column("period", pl.String, "before_YEAR, from_YEAR or all")
EVALUATION = TableSchema(
    _WHO,
    Column("period", pl.String, "fold, before_YEAR, from_YEAR or all"),
    Column("fold", pl.Int32, "number of the fold, or of the block where folds share sessions; where the period is one"),
    Column("first_session", pl.Date, "first session"),
    Column("last_session", pl.Date, "last session"),
    Column("n_sessions", pl.Int64, "number of sessions, first and last included"),
    Column("sharpe", pl.Float64, "annualized Sharpe ratio net of costs, risk-free rate 0"),
    interval_bounds("sharpe", "bound, stationary bootstrap"),
    Column("sharpe_error", pl.Float64, "standard error of the Sharpe ratio, Lo (2002), of independent normal returns"),
    Column("lo_low", pl.Float64, "2.5 % bound by Lo (2002): dependent returns of any distribution, Newey-West lags"),
    Column("lo_high", pl.Float64, "97.5 % bound by theory, the same; null where the returns never vary"),
    Column("total_return", pl.Float64, "growth over the period"),
    Column("cagr", pl.Float64, "compound annual growth"),
    Column("volatility", pl.Float64, "annualized standard deviation"),
    Column("sortino", pl.Float64, "annualized mean over downside deviation, target 0; null if no return is negative"),
    Column("calmar", pl.Float64, "compound annual growth over the largest drawdown; null where there is none"),
    Column("max_drawdown", pl.Float64, "largest loss from a peak, positive"),
    Column("drawdown_duration", pl.Int64, "most sessions on end that closed below an earlier peak"),
    Column("value_at_risk", pl.Float64, "loss of a session that 95 % do not exceed, positive"),
    Column("cvar", pl.Float64, "mean loss of the worst 5 % of sessions (expected shortfall), positive"),
    Column("omega", pl.Float64, "sum of gains over sum of losses; null where no return is negative"),
    Column("tail_ratio", pl.Float64, "size of the 95th percentile of returns over that of the 5th; null if that is 0"),
    Column("hit_rate", pl.Float64, "share of sessions with a positive return"),
    Column("turnover_per_year", pl.Float64, "one-way turnover per year"),
    Column("cost_per_year", pl.Float64, "costs per year, fraction of equity"),
    Column("exposure", pl.Float64, "mean weight that is not in cash; above 1 with borrowed money"),
    Column("effective_names", pl.Float64, "mean of 1 over the sum of squared weights of held names, scaled to sum 1"),
    Column(
        "iqm_sharpe", pl.Float64, "interquartile mean of Sharpe ratios over folds, seeds; null for paths and one seed"
    ),
    Column("iqm_low", pl.Float64, "2.5 % bound for other seeds on the same sessions, bootstrap of seeds within folds"),
    Column("iqm_high", pl.Float64, "97.5 % bound, the same"),
    Column("best_baseline", pl.String, "baseline with the highest Sharpe ratio over the period, known only afterwards"),
    Column("sharpe_difference", pl.Float64, "Sharpe ratio less that of the best baseline"),
    interval_bounds("sharpe_difference", "bound of the difference, paired bootstrap"),
)
WORLD_RESULT = TableSchema(
    Column("world", pl.String, "kind of the world"),
    Column("agent", pl.String, "kind of the agent"),
    Column("seed", pl.Int32, "seed of the policy; null for the mean over the seeds"),
    Column("n_episodes", pl.Int64, "episodes of the test, the same for every policy"),
    Column(
        "mean",
        pl.Float64,
        "mean total reward of an episode, in the unit of the world",
    ),
    interval_bounds("mean", "bound: of a seed over its episodes, of the mean over the seeds, by Student's t"),
    Column("deviation", pl.Float64, "standard deviation of the total reward over the episodes"),
    Column(
        "reference",
        pl.String,
        "almgren_chriss, buy_and_hold or cartea_jaimungal: with what the world compares",
    ),
    Column("reference_mean", pl.Float64, "its mean total reward on the same episodes"),
    Column("difference", pl.Float64, "mean less that of the reference"),
    interval_bounds("difference", "bound of the difference, paired by episode"),
)
RATIO_CURVE = TableSchema(
    Column("kind", pl.String, "run, or trial of a search session"),
    RUN.only("run_id", "spec_hash"),
    Column("session_id", pl.String, "id of the search session; null of a run"),
    Column("trial_id", pl.Int64, "number of the trial in its session, from 1; null of a run"),
    Column("experiment", pl.String, "name of the experiment; of a trial <session_id>/trial-<trial_id>"),
    Column("source", pl.String, "market source; runs on different ones are not ranked together"),
    Column("finished_at", UTC_TIME, "when the run or trial was judged"),
    Column("period", pl.String, "before_YEAR, from_YEAR or all; of a trial validation"),
    Column("sharpe", pl.Float64, "annualized Sharpe ratio net of costs: of the ensemble, or of a trial's first seed"),
    interval_bounds("sharpe", "bound; null of a trial"),
    EVALUATION.only("max_drawdown"),
    Column(
        "rank",
        pl.Int32,
        "1 is the highest Sharpe ratio of the kind on the source in the period; null of a run for validation only",
    ),
    Column("best_so_far", pl.Boolean, "whether no earlier row of the kind on the source in the period was better"),
    Column("n_trials", pl.Int64, "runs and search trials on the source that had finished by then, itself included"),
    Column("deflated_sharpe", pl.Float64, "probability of a true Sharpe ratio above the expected maximum of as many"),
    Column("best_baseline", pl.String, "baseline of the run with the highest Sharpe ratio over the run's own sessions"),
    Column("information_ratio", pl.Float64, "annual Sharpe ratio of the residual return over the best baseline"),
    Column("deflated_information_ratio", pl.Float64, "the same probability for that information ratio"),
    Column("note", pl.String, "why something is null, or not deflated"),
)
REGIME_EVALUATION = TableSchema(
    Column("source", pl.String, "source of the market whose regimes they are"),
    _WHO,
    Column("regime", pl.String, "regime of gold.regimes, labelled with hindsight; all for every session"),
    Column("n_sessions", pl.Int64, "sessions in the regime"),
    Column("share", pl.Float64, "sessions in the regime, fraction of all"),
    Column("n_segments", pl.Int64, "stretches between turning points, which intervals resample"),
    Column("log_return", pl.Float64, "sum of log(1 + net return); those of the regimes sum to that of all"),
    Column("cagr", pl.Float64, "compound annual growth over the regime's sessions as if they were consecutive; net"),
    EVALUATION.only("sharpe"),
    interval_bounds("sharpe", "bound, bootstrap of whole segments"),
    Column("max_drawdown", pl.Float64, "positive largest loss from a peak in one segment, for all within the record"),
    Column("best_baseline", pl.String, "baseline with the highest Sharpe ratio over all sessions, known only later"),
    Column("active_best", pl.Float64, "mean net return less that of the best baseline, times the sessions a year"),
    interval_bounds("active_best", "bound, bootstrap of whole segments"),
    Column("anchor", pl.String, "the anchor among the baselines, else 1/N, else the best baseline"),
    Column("active_anchor", pl.Float64, "mean net return less that of the anchor, times the sessions a year"),
    interval_bounds("active_anchor", "bound, bootstrap of whole segments"),
    Column("note", pl.String, "why values are null; null where none is"),
)
_OF_TRIALS = TableSchema(Column("source", pl.String, "market source that all the trials were run on"), _PERIOD)
_N_TRIALS = Column("n_trials", pl.Int64, "walk-forward runs ever made on the source, of all experiments' versions")
_NOTE = Column("note", pl.String, "why something is null, or what is left out")
VALIDATION = TableSchema(
    _OF_TRIALS,
    Column("run_id", pl.String, "identity of the run, 16 hexadecimal digits: the trial is its ensemble"),
    EXPERIMENT,
    Column("against", pl.String, "zero, best_baseline or anchor: what was subtracted from the returns, by session"),
    Column("reference", pl.String, "account that was subtracted; null against zero"),
    _N_TRIALS,
    Column("first_session", pl.Date, "first of the run's own sessions in the period"),
    Column("last_session", pl.Date, "last of them"),
    Column("n_sessions", pl.Int64, "how many the run has in the period"),
    Column("sharpe", pl.Float64, "annual Sharpe ratio of net returns; against a reference, information ratio"),
    EVALUATION.only("sharpe_low", "sharpe_high"),
    Column("probabilistic_sharpe", pl.Float64, "probability of a true Sharpe ratio above 0 (2012)"),
    Column("expected_maximum_sharpe", pl.Float64, "annual Sharpe ratio of the best of so many trials without skill"),
    Column("deflated_sharpe", pl.Float64, "probability of a true Sharpe ratio above that maximum (2014)"),
    Column("minimum_track_record_length", pl.Float64, "sessions until such a ratio is above 0 with 95 % confidence"),
    Column("p_value", pl.Float64, "one-sided, of a true Sharpe ratio of at most 0"),
    Column("holm", pl.Float64, "p value adjusted for all trials, family-wise error rate"),
    Column("benjamini_hochberg", pl.Float64, "p value adjusted for all trials, false discovery rate"),
    Column("rademacher_lower", pl.Float64, "95 % lower bound of the annual Sharpe ratio, of all trials at once"),
    Column(
        "alpha_per_year",
        pl.Float64,
        "intercept of the net returns on those of the reference, times the sessions a year",
    ),
    Column("beta", pl.Float64, "slope of the net returns on those of the reference"),
    Column("alpha_t", pl.Float64, "t statistic of alpha, Newey and West's error; null if there is no residual"),
    _NOTE,
)
OVERFITTING = TableSchema(
    _OF_TRIALS,
    Column("against", pl.String, "zero, best_baseline or anchor: what was subtracted from the returns"),
    _N_TRIALS,
    Column("n_compared", pl.Int64, "trials that have all sessions of the longest: the others are left out"),
    Column("first_session", pl.Date, "first session of the longest trial in the period"),
    Column("last_session", pl.Date, "last of them"),
    Column("n_sessions", pl.Int64, "how many it has"),
    Column("mean_correlation", pl.Float64, "mean correlation of two trials' (residual) returns"),
    Column("effective_n_trials", pl.Float64, "independent trials that are worth as much, by that correlation"),
    Column("n_blocks", pl.Int64, "blocks of the combinatorially symmetric cross-validation (CSCV)"),
    Column("n_combinations", pl.Int64, "ways to choose half of the blocks"),
    Column(
        "probability_of_overfitting",
        pl.Float64,
        "PBO: how often the best trial in sample is in the worse half out of sample",
    ),
    Column("degradation_slope", pl.Float64, "of its Sharpe ratio out of sample on the one in sample"),
    Column("degradation_intercept", pl.Float64, "of the same line, annual Sharpe ratio"),
    Column("degradation_r_squared", pl.Float64, "of the same line"),
    Column("probability_of_loss", pl.Float64, "how often its Sharpe ratio out of sample is negative"),
    Column("rademacher_complexity", pl.Float64, "how well the trials fit random signs, as annual Sharpe ratio"),
    Column("massart_bound", pl.Float64, "bound of the complexity from the number of trials, as annual Sharpe ratio"),
    Column("logits", pl.List(pl.Float64), "logit of its relative rank out of sample, a number per combination"),
    Column("in_sample", pl.List(pl.Float64), "its annual Sharpe ratio in sample"),
    Column("out_of_sample", pl.List(pl.Float64), "its annual Sharpe ratio out of sample"),
    _NOTE,
)
PRUDEX = TableSchema(
    _WHO,
    Column("experiment", pl.String, "name of the experiment whose run it is of; of a baseline the newest with it"),
    Column("markets", pl.List(pl.String), "market sources it was judged on"),
    Column("axis", pl.String, "profitability, risk_control, universality, diversity, reliability or explainability"),
    Column("measure", pl.String, "one of the axis's measures; axis in the row that sums the axis up"),
    Column("statistic", pl.String, "number of the measure"),
    Column("value", pl.Float64, "the number, a mean over test windows and markets; of an axis, measures reported"),
    Column("score", pl.Float64, "0 to 100, 50 is the market's average (1/N); of an axis, the mean of its measures"),
    Column("reported", pl.Boolean, "whether the measure could be computed: a filled field of the compass's ring"),
    Column("note", pl.String, "why value or score are null, and what universality counts; else null"),
)
STRESS = TableSchema(  # one account in one scenario, and of a scenario of several markets one statistic
    _WHO,
    Column("scenario", pl.String, "what happened to the market; unstressed is the window as it was"),
    Column("statistic", pl.String, "value; of several markets the median, worst_5_percent or worst of each measure"),
    Column("first_session", pl.Date, "first session of the account, opened in cash at the close before"),
    Column("last_session", pl.Date, "last session of the account"),
    Column("shock_session", pl.Date, "first session that is not as it was, where there is one"),
    EVALUATION.only("n_sessions"),
    Column("n_worlds", pl.Int64, "number of markets; 0 where the scenario is unavailable"),
    Column("total_return", pl.Float64, "growth over the sessions, net of costs"),
    EVALUATION.only("max_drawdown"),
    Column("worst_session", pl.Float64, "lowest net return of a session"),
    Column("sharpe", pl.Float64, "annualized Sharpe ratio net of costs, null below 63 sessions"),
    Column("turnover", pl.Float64, "one-way turnover over the sessions"),
    Column("cost", pl.Float64, "costs over the sessions, summed fractions of equity"),
    Column("sessions_to_recover", pl.Int64, "from the bottom of the largest drawdown to its peak; null if not reached"),
    Column("difference_to_unstressed", pl.Float64, "total return less that of the unstressed window"),
    Column("difference_to_equal_weight", pl.Float64, "total return less that of 1/N in the same market"),
    Column("note", pl.String, "what a reader must know, and why something is null"),
)


def reported_period(periods: Iterable[str]) -> str:
    """Reported period among those of verdicts: the last `from_<year>`, else `all`."""
    return max((period for period in periods if period.startswith("from_")), default="all")
