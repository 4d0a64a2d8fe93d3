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
        fold int number of the fold, or of the block where folds share sessions; where the period is one
        first_session date first session
        last_session date last session
        n_sessions long number of sessions, first and last included
        sharpe double annualised Sharpe ratio net of costs, risk-free rate 0
        sharpe_low double 2.5 % bound, stationary bootstrap
        sharpe_high double 97.5 % bound, stationary bootstrap
        sharpe_error double standard error of the Sharpe ratio, Lo (2002): independent returns, skewness 0, kurtosis 3
        lo_low double 2.5 % bound by theory, Lo (2002): dependent returns of any distribution, Newey and West's lags
        lo_high double 97.5 % bound by theory, the same; null where the returns never vary
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
        iqm_sharpe double interquartile mean of Sharpe ratios over folds and seeds; null for paths and for one seed
        iqm_low double 2.5 % bound, bootstrap of the seeds within each fold: what other seeds would give, same sessions
        iqm_high double 97.5 % bound, the same
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
        source string market source; runs on different ones are not ranked together
        finished_at timestamp when the run was judged
        period string before_YEAR, from_YEAR or all
        sharpe double annualised Sharpe ratio of the ensemble, net of costs
        sharpe_low double 2.5 % bound
        sharpe_high double 97.5 % bound
        max_drawdown double largest loss from a peak, positive
        rank int 1 is the highest Sharpe ratio of the period; null of a run for validation only
        best_so_far boolean whether no earlier run of the period was better
        n_trials long walk-forward runs on the source that had finished by then, itself included
        deflated_sharpe double probability of a true Sharpe ratio above the maximum expected of so many (2014)
        best_baseline string baseline of the run with the highest Sharpe ratio, over the run's own sessions
        active_sharpe double annualised Sharpe ratio of the net returns less those of the best baseline
        active_deflated_sharpe double the same probability for those active returns
        note string why something is null, or not deflated
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
        max_drawdown double largest loss from a peak within one segment, for all within the record; positive
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
OF_TRIALS = columns_of(
    """
    source string market source that all the trials were run on
    period string before_YEAR, from_YEAR or all
    """
)
N_TRIALS = columns_of("n_trials long walk-forward runs ever made on the source, of every version of every experiment")
VALIDATION = Table(
    "evaluation",
    "validation",
    OF_TRIALS
    + columns_of(
        """
        run_id string identity of the run, 16 hexadecimal digits: the trial is its ensemble
        experiment string name of the experiment
        against string zero, best_baseline or anchor: what was subtracted from the returns, session by session
        reference string account that was subtracted; null against zero
        """
    )
    + N_TRIALS
    + columns_of(
        """
        first_session date first of the run's own sessions in the period
        last_session date last of them
        n_sessions long how many the run has in the period
        sharpe double annualised Sharpe ratio of the (active) returns net of costs
        sharpe_low double 2.5 % bound, stationary bootstrap
        sharpe_high double 97.5 % bound, stationary bootstrap
        probabilistic_sharpe double probability of a true Sharpe ratio above 0 (2012)
        expected_maximum_sharpe double annual Sharpe ratio the best of so many trials without skill would show
        deflated_sharpe double probability of a true Sharpe ratio above that maximum (2014)
        deflated_sharpe_2025 double the same by the error under the null, over T, of the largest of all trials (2025)
        minimum_track_record_length double sessions after which such a Sharpe ratio is above 0 with 95 % confidence
        p_value double one-sided, of a true Sharpe ratio of at most 0
        holm double p value adjusted for all trials, family-wise error rate
        benjamini_hochberg double p value adjusted for all trials, false discovery rate
        rademacher_lower double 95 % lower bound of the annual Sharpe ratio, for all compared at once in the worst case
        alpha_per_year double intercept of the net returns on those of the reference, times 252
        beta double slope of the net returns on those of the reference
        alpha_t double t statistic of alpha, Newey and West's error; null where alpha and beta leave no residual
        note string why something is null, or what is left out
        """
    ),
)
OVERFITTING = Table(
    "evaluation",
    "overfitting",
    OF_TRIALS
    + columns_of("against string zero, best_baseline or anchor: what was subtracted from the returns")
    + N_TRIALS
    + columns_of(
        """
        n_compared long trials that have all sessions of the longest: the others are left out
        first_session date first session of the longest trial in the period
        last_session date last of them
        n_sessions long how many it has
        mean_correlation double mean correlation of two trials' (active) returns
        effective_n_trials double independent trials that are worth as much, by that correlation
        n_blocks long blocks of the combinatorially symmetric cross-validation (CSCV)
        n_combinations long ways to choose half of the blocks
        probability_of_overfitting double PBO: how often the best trial in sample is in the worse half out of sample
        degradation_slope double of its Sharpe ratio out of sample on the one in sample
        degradation_intercept double of the same line, annual Sharpe ratio
        degradation_r_squared double of the same line
        probability_of_loss double how often its Sharpe ratio out of sample is negative
        rademacher_complexity double how well the trials fit random signs, as annual Sharpe ratio
        massart_bound double bound of the complexity from the number of trials, as annual Sharpe ratio
        logits list<double> logit of its relative rank out of sample, a number per combination
        in_sample list<double> its annual Sharpe ratio in sample
        out_of_sample list<double> its annual Sharpe ratio out of sample
        note string why something is null, or what is left out
        """
    ),
)
STANDING = columns_of(
    """
    sharpe double annualised Sharpe ratio net of costs, risk-free rate 0
    sharpe_low double 2.5 % bound, stationary bootstrap
    sharpe_high double 97.5 % bound, stationary bootstrap
    best_baseline string baseline of the contest with the highest Sharpe ratio, known only afterwards
    sharpe_difference double Sharpe ratio less that of the best baseline; null of baselines
    difference_low double 2.5 % bound of the difference, paired bootstrap
    difference_high double 97.5 % bound of the difference, paired bootstrap
    active_sharpe double annualised Sharpe ratio of the returns less those of the best baseline
    active_low double 2.5 % bound, stationary bootstrap
    active_high double 97.5 % bound, stationary bootstrap
    active_deflated_sharpe double probability of an active Sharpe ratio above the luck of the best of all trials
    probabilistic_sharpe double probability of a true Sharpe ratio above 0
    cagr double compound annual growth
    max_drawdown double largest loss from a peak, positive
    turnover_per_year double one-way turnover per year
    cost_per_year double costs per year, fraction of equity
    """
)
MET = columns_of(
    """
    contest string digest of market, window, costs, fill and leverage, 16 hexadecimal digits; null where there was none
    source string market source
    first_session date first session judged
    last_session date last session judged
    n_sessions long number of sessions, first and last included
    entrant string name: of an experiment, of a file of data/entrants, or of a baseline
    kind string run, weights, sb3 or baseline; null where the file cannot be read
    judged_at timestamp when it was judged
    note string why there is no rank, or why a figure is missing
    """
)
SCORECARDS = Table(
    "evaluation",
    "scorecards",
    MET
    + STANDING
    + columns_of(
        """
        judgement string identity of the judgement, 16 hexadecimal digits
        panel_digest string SHA-256 of the panel of the names it may hold
        rebal_freq int sessions between its decisions
        train_first date first session that trained any of its policies
        train_last date last session that trained any of its policies
        run_id string the run judged, where it is one
        volatility double annualised standard deviation
        n_trials int trials ever run on the market, this one included
        worst_scenario string the stress scenario with the lowest total return
        worst_scenario_return double total return in it
        training_seconds double of all its trainings; null where not known
        judging_seconds double to walk the window
        latency_seconds double from a close to the weights, median
        peak_memory_bytes long resident memory of the judging process
        warnings list<string> what a reader must know
        digest string SHA-256 of the card without what was measured
        code_version string version and source digest of the package
        document string the whole card as JSON
        """
    ),
)
SCOREBOARD = Table(
    "evaluation",
    "scoreboard",
    MET
    + STANDING
    + columns_of(
        """
        rank int place in the contest by net Sharpe ratio; null where it was not judged
        previous_rank int place before the last new judgement of the contest
        previous_sharpe double net Sharpe ratio before it
        """
    ),
)
STRESS = Table(
    "evaluation",
    "stress",
    RUN
    + columns_of(
        """
        experiment string name of the experiment
        policy string account: an experiment's ensemble, one of its seeds, or a baseline
        kind string policy (one seed), ensemble or baseline
        scenario string what happened to the market; unstressed is the window as it was
        statistic string value, or of several markets the median, worst_5_percent or worst of each measure by itself
        first_session date first session of the account, opened in cash at the close before
        last_session date last session of the account
        shock_session date first session that is not as it was, where there is one
        n_sessions long number of sessions, first and last included
        n_worlds long number of markets; 0 where the scenario is unavailable
        total_return double growth over the sessions, net of costs
        max_drawdown double largest loss from a peak, positive
        worst_session double lowest net return of a session
        sharpe double annualised Sharpe ratio net of costs, null below 63 sessions
        turnover double one-way turnover over the sessions
        cost double costs over the sessions, summed fractions of equity
        sessions_to_recover long from the bottom of the largest drawdown to its peak, null where it is not reached
        difference_to_calm double total return less that of the unstressed window
        difference_to_equal_weight double total return less that of 1/N in the same market
        note string what a reader must know, and why something is null
        """
    ),
    BY_RUN,
)
