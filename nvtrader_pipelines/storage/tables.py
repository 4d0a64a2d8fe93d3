"""Every table: its columns with their meaning, and how it is partitioned."""

from nvtrader_pipelines.market.features import FEATURES as MARKET_FEATURES
from nvtrader_pipelines.storage.table import Column, Table, columns_of

_BAR = columns_of(
    """
    source string which source delivered the bar
    symbol string name of the instrument
    session date session of the exchange (XNYS)
    year int year of the session; the partition
    """
)
_RUN = columns_of(
    """
    spec_hash string SHA-256 of the experiment's spec
    run_id string identity of the run, 16 hexadecimal digits
    """
)
_STEP = columns_of(
    """
    policy string account: an experiment's ensemble, one of its seeds, or a baseline
    kind string policy (one seed), ensemble or baseline
    fold int number of the walk-forward fold
    """
)
_DECISION = columns_of(
    """
    step int number of the decision in the account's walk
    session date session at whose close the decision was made
    """
)
_BY_RUN = ("spec_hash", "run_id")

BARS = Table(
    "bronze",
    "bars",
    columns_of(
        """
        source string which source delivered the bar
        year int year of the session, or of the delivery where the date cannot be read; the partition
        file string delivered file
        line long line or row in the file, from 1
        digest string SHA-256 of the delivered file
        symbol string symbol as delivered
        date string date as delivered
        open string opening price as delivered
        high string highest price as delivered
        low string lowest price as delivered
        close string closing price as delivered
        volume string volume as delivered
        adj_close string adjusted close as delivered
        ingested_at timestamp when the file was ingested
        """
    ),
    ("year",),
)
DELIVERIES = Table(
    "bronze",
    "deliveries",
    columns_of(
        """
        source string which source delivered the file
        file string delivered file
        digest string SHA-256 of the file
        size long size of the file in bytes
        n_rows long rows in the file
        years list<int> years ingested of this digest
        rule string why the whole file was refused, if it was
        reason string the same as a sentence
        ingested_at timestamp when the file was ingested
        """
    ),
)
CLEAN_BARS = Table(
    "silver",
    "clean_bars",
    _BAR
    + columns_of(
        """
        open double opening price, as traded
        high double highest price, as traded
        low double lowest price, as traded
        close double closing price, as traded
        volume double shares traded
        adj_close double close adjusted for splits and dividends
        file string delivered file
        line long line or row in the file
        """
    ),
    ("year",),
)
QUARANTINE = Table(
    "silver",
    "quarantine",
    columns_of(
        """
        source string which source delivered the row
        year int year of the bronze row; the partition
        file string delivered file
        line long line or row in the file; 0 for the whole file
        symbol string symbol as delivered
        date string date as delivered
        rule string the first rule the row breaks
        value string the offending value as delivered
        reason string what must hold, what was found
        """
    ),
    ("year",),
)
RETURNS = Table(
    "gold",
    "returns",
    _BAR
    + columns_of(
        """
        adj_open double opening price adjusted like the close
        adj_close double adjusted close
        close_return double simple return from the previous bar's close; null on the first bar
        overnight_return double simple return from the previous bar's close to this open; null without opens
        span int sessions since the previous bar; 1 without a gap
        volume double shares traded
        """
    ),
    ("year",),
)
FEATURES = Table(
    "gold",
    "features",
    _BAR
    + tuple(
        Column(feature.name, "double", (feature.__doc__ or feature.name).splitlines()[0]) for feature in MARKET_FEATURES
    ),
    ("year",),
)
MARKET_PANEL = Table(
    "gold",
    "market_panel",
    columns_of(
        """
        source string source of the panel
        first_session date first session with an eligible symbol
        last_session date last session
        n_sessions long number of sessions, first and last included
        n_symbols long number of symbols
        symbols list<string> symbols in the panel's order
        feature_names list<string> features in the panel's order
        digest string SHA-256 of the panel's arrays
        returns_snapshot_id long snapshot of gold.returns it is made of
        features_snapshot_id long snapshot of gold.features it is made of
        clean_bars_snapshot_id long snapshot of silver.clean_bars behind them
        bars_snapshot_id long snapshot of bronze.bars behind them
        built_at timestamp when the row was written
        """
    ),
)
RUNS = Table(
    "rl",
    "runs",
    _RUN
    + columns_of(
        """
        experiment string name of the experiment
        partition_key string name@hash8
        kind string walk_forward, replay or paper
        parent_run_id string the run whose policies were replayed or carried on; null for a walk_forward
        window_first date first session of the test windows
        window_last date last session of the test windows
        source string market source
        panel_digest string SHA-256 of the panel's arrays
        snapshot_ids string JSON of table to snapshot id the panel was read at
        seeds list<int> random seeds it was trained with, one policy each per fold
        n_policies long trained policies
        policies_sha256 string digest of the run's policy files
        code_version string version of this package
        mlflow_run_id string MLflow run, where it was tracked
        warnings list<string> what a reader of the results must know
        finished_at timestamp when the run was judged
        """
    ),
)
TRAINING_CURVES = Table(
    "rl",
    "training_curves",
    _RUN
    + columns_of(
        """
        fold int number of the walk-forward fold
        seed int random seed of the training
        timesteps long environment steps so far
        mean_reward double mean reward of a step over the rollout
        """
    ),
    _BY_RUN,
)
TRAJECTORIES = Table(
    "rl",
    "trajectories",
    _RUN
    + _STEP
    + columns_of(
        """
        phase string train (a sampled episode of a training), test, replay or paper
        seed int seed of the policy that decided; null for averages and baselines
        episode int 0 for a walk through test windows; the number of the sampled episode in training
        """
    )
    + _DECISION
    + columns_of(
        """
        fill_session date session at which the order filled; null where that is not known yet
        observation_hash long XXH64 of the observation's bytes, as a signed number
        action list<float> raw action of the network
        reward double reward of the step: the sum of its terms
        value float the critic's estimate
        log_prob float log-probability of the action
        equity double equity after the step, net of costs; 1 at the start
        drawdown double loss from the highest equity so far, positive
        turnover double one-way turnover of the step
        terminated boolean equity was gone
        truncated boolean the walk or the episode ended here
        info string JSON: reward_terms, and the termination that struck
        """
    ),
    _BY_RUN,
)
EQUITY_CURVES = Table(
    "rl",
    "equity_curves",
    _RUN
    + _STEP
    + columns_of(
        """
        session date session of the exchange (XNYS), at whose close the row holds
        equity double equity at the close, net of costs; 1 at the start
        net_return double simple return over the session, net of costs
        drawdown double loss from the highest equity so far, positive
        turnover double one-way turnover at this session's fill
        cost double cost paid at this session's fill, fraction of equity
        cash double weight of cash at the close
        """
    ),
    _BY_RUN,
)
ACTION_LOGS = Table(
    "rl",
    "action_logs",
    _RUN
    + _STEP
    + _DECISION
    + columns_of(
        """
        symbols list<string> names in the order of the weights, cash last
        target_weights list<double> weights wanted
        executed_weights list<double> weights just after the fill
        trades list<double> change of weights by trading
        """
    ),
    _BY_RUN,
)
REWARD_DECOMPOSITION = Table(
    "rl",
    "reward_decomposition",
    _RUN
    + _STEP
    + _DECISION
    + columns_of(
        """
        term string reward term
        contribution double its part of the step's reward, weight included
        """
    ),
    _BY_RUN,
)
EVALUATIONS = Table(
    "evaluation",
    "walk_forward_evaluation",
    _RUN
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
        cagr double compound annual growth
        volatility double annualised standard deviation
        max_drawdown double largest loss from a peak, positive
        turnover_per_year double one-way turnover per year
        cost_per_year double costs per year, fraction of equity
        best_baseline string baseline with the highest Sharpe ratio over the period, known only afterwards
        sharpe_difference double Sharpe ratio less that of the best baseline
        difference_low double 2.5 % bound of the difference, paired bootstrap
        difference_high double 97.5 % bound of the difference, paired bootstrap
        """
    ),
    _BY_RUN,
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
PREFERENCE_PAIRS = Table(
    "preferences",
    "preference_pairs",
    _RUN
    + columns_of(
        """
        pair_id string identity of the pair
        session date session of the decision
        outcome_session date session at which the outcome is known
        chosen string account whose weights did better
        rejected string account whose weights did worse
        symbols list<string> names in the order of the weights, cash last
        chosen_weights list<double> the better weights
        rejected_weights list<double> the worse weights
        chosen_outcome double return over five sessions net of cost
        rejected_outcome double return over five sessions net of cost
        margin double difference of the outcomes
        holdout boolean never to be trained on: the last 20 % by time
        """
    ),
    _BY_RUN,
)
PINNED = (BARS, CLEAN_BARS, RETURNS, FEATURES)  # panels and runs name the snapshots of these that they read
TABLES = (
    BARS,
    DELIVERIES,
    CLEAN_BARS,
    QUARANTINE,
    RETURNS,
    FEATURES,
    MARKET_PANEL,
    RUNS,
    TRAINING_CURVES,
    TRAJECTORIES,
    EQUITY_CURVES,
    ACTION_LOGS,
    REWARD_DECOMPOSITION,
    EVALUATIONS,
    RATIO_CURVE,
    PREFERENCE_PAIRS,
)
