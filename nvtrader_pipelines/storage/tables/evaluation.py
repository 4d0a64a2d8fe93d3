"""Verdicts on runs and on everything that competes."""

from nvtrader_pipelines.storage.table import Table, columns_of
from nvtrader_pipelines.storage.tables.columns import BY_RUN, RUN

EVALUATIONS = Table(
    "evaluation",
    "walk_forward_evaluation",
    RUN
    + columns_of(
        """
        experiment string name of the experiment
        policy string account: an experiment's ensemble, one of its seeds, or a baseline
        kind string policy (one seed), ensemble or baseline
        period string fold, before_YEAR, from_YEAR or all
        fold int number of the fold, where the period is one
        first_session date first session
        last_session date last session
        n_sessions long number of sessions, first and last included
        sharpe double annualised Sharpe ratio net of costs, risk-free rate 0
        sharpe_low double 2.5 % bound, stationary bootstrap
        sharpe_high double 97.5 % bound, stationary bootstrap
        sharpe_error double standard error of the Sharpe ratio, Lo (2002): independent returns, skewness 0, kurtosis 3
        total_return double growth over the period
        cagr double compound annual growth
        volatility double annualised standard deviation
        sortino double annualised mean over downside deviation, target 0; null where no return is negative
        calmar double compound annual growth over the largest drawdown; null where there is none
        max_drawdown double largest loss from a peak, positive
        drawdown_duration long most sessions on end that closed below an earlier peak
        value_at_risk double loss of a session that 95 % do not exceed, positive
        cvar double mean loss of the worst 5 % of sessions (expected shortfall), positive
        omega double sum of gains over sum of losses; null where no return is negative
        tail_ratio double size of the 95th percentile of returns over that of the 5th; null where that is 0
        hit_rate double share of sessions with a positive return
        turnover_per_year double one-way turnover per year
        cost_per_year double costs per year, fraction of equity
        exposure double mean weight that is not in cash; above 1 with borrowed money
        effective_names double mean of 1 over the sum of squared weights of the names held, scaled to sum 1
        iqm_sharpe double interquartile mean of Sharpe ratios over folds and seeds; of an ensemble of two seeds or more
        iqm_low double 2.5 % bound, stratified bootstrap
        iqm_high double 97.5 % bound, stratified bootstrap
        best_baseline string baseline with the highest Sharpe ratio over the period, known only afterwards
        sharpe_difference double Sharpe ratio less that of the best baseline
        difference_low double 2.5 % bound of the difference, paired bootstrap
        difference_high double 97.5 % bound of the difference, paired bootstrap
        """
    ),
    BY_RUN,
)
RATIO_CURVE = Table(
    "evaluation",
    "sharpe_ratio_curve",
    columns_of(
        """
        run_id string identity of the run, 16 hexadecimal digits
        spec_hash string SHA-256 of the experiment's spec
        experiment string name of the experiment
        finished_at timestamp when the run was judged
        period string before_YEAR, from_YEAR or all
        sharpe double annualised Sharpe ratio of the ensemble, net of costs
        sharpe_low double 2.5 % bound
        sharpe_high double 97.5 % bound
        max_drawdown double largest loss from a peak, positive
        rank int 1 is the highest Sharpe ratio of the period
        best_so_far boolean whether no earlier run of the period was better
        """
    ),
)
REGIME_EVALUATION = Table(
    "evaluation",
    "regime_evaluation",
    RUN
    + columns_of(
        """
        experiment string name of the experiment
        source string source of the market whose regimes they are
        policy string account: an experiment's ensemble, one of its seeds, or a baseline
        kind string policy (one seed), ensemble or baseline
        regime string regime of gold.regimes, labelled with hindsight; all for every session
        n_sessions long sessions in the regime
        share double sessions in the regime, fraction of all
        n_segments long stretches between turning points, which intervals resample
        log_return double sum of log(1 + net return); those of the regimes sum to that of all
        cagr double compound annual growth over the regime's sessions as if they followed one another; net
        sharpe double annualised Sharpe ratio net of costs, risk-free rate 0
        sharpe_low double 2.5 % bound, bootstrap of whole segments
        sharpe_high double 97.5 % bound, bootstrap of whole segments
        max_drawdown double largest loss from a peak within one segment, positive
        best_baseline string baseline with the highest Sharpe ratio over all sessions, known only afterwards
        active_best double mean net return less that of the best baseline, times 252
        active_best_low double 2.5 % bound, bootstrap of whole segments
        active_best_high double 97.5 % bound, bootstrap of whole segments
        anchor string baseline that the policy is held against by default
        active_anchor double mean net return less that of the anchor, times 252
        active_anchor_low double 2.5 % bound, bootstrap of whole segments
        active_anchor_high double 97.5 % bound, bootstrap of whole segments
        note string why values are null; null where none is
        """
    ),
    BY_RUN,
)
PRUDEX = Table(
    "evaluation",
    "prudex",
    columns_of(
        """
        policy string account: an experiment's ensemble, one of its seeds, or a baseline
        kind string policy (one seed), ensemble or baseline
        experiment string name of the experiment whose run it is of; of a baseline the newest with it
        markets list<string> market sources it was judged on
        axis string profitability, risk_control, universality, diversity, reliability or explainability
        measure string one of the axis's measures; axis in the row that sums the axis up
        statistic string number of the measure
        value double the number, a mean over test windows and markets; measures reported in the row of an axis
        score double 0 to 100, 50 is the market's average (1/N); mean of the axis's measures in the row of an axis
        reported boolean whether the measure could be computed: a filled field of the compass's ring
        note string why value or score are null; null where neither is
        """
    ),
)
