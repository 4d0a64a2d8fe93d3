"""What runs leave: what every account saw, did and earned."""

from nvtrader_pipelines.storage.table import Table, columns_of
from nvtrader_pipelines.storage.tables.columns import BY_RUN, DECISION, RUN, STEP

RUNS = Table(
    "rl",
    "runs",
    RUN
    + columns_of(
        """
        experiment string name of the experiment
        partition_key string name@hash8
        kind string walk_forward, replay or forward
        parent_run_id string the run whose policies were replayed or carried on; null for a walk_forward
        window_first date first session of the test windows
        window_last date last session of the test windows
        source string market source
        panel_digest string SHA-256 of the panel's arrays
        snapshot_ids string JSON of table to snapshot id the panel was read at
        seeds list<int> random seeds it was trained with, one policy each per fold
        n_policies long trained policies
        policies_sha256 string digest of the run's manifest: policy files, folds, seeds chosen, thresholds
        code_version string version of this package
        mlflow_run_id string MLflow run, where it was tracked
        warnings list<string> what a reader of the results must know
        finished_at timestamp when the run was judged
        validation_only boolean whether policies were trained on what came after their tests: it counts, unranked
        """
    ),
)
TRAINING_CURVES = Table(
    "rl",
    "training_curves",
    RUN
    + columns_of(
        """
        fold int number of the fold that was trained
        seed int random seed of the training
        timesteps long environment steps so far
        mean_reward double mean reward of a step over the rollout
        """
    ),
    BY_RUN,
)
TRAJECTORIES = Table(
    "rl",
    "trajectories",
    RUN
    + STEP
    + columns_of(
        """
        phase string train (a sampled episode of a training), test, replay or forward
        seed int seed of the policy that decided; null for averages and baselines
        episode int 0 for a walk through test windows; the number of the sampled episode in training
        """
    )
    + DECISION
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
    BY_RUN,
)
EQUITY_CURVES = Table(
    "rl",
    "equity_curves",
    RUN
    + STEP
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
    BY_RUN,
)
ACTION_LOGS = Table(
    "rl",
    "action_logs",
    RUN
    + STEP
    + DECISION
    + columns_of(
        """
        symbols list<string> names in the order of the weights, cash last
        target_weights list<double> weights wanted
        executed_weights list<double> weights just after the fill
        trades list<double> change of weights by trading
        """
    ),
    BY_RUN,
)
REWARD_DECOMPOSITION = Table(
    "rl",
    "reward_decomposition",
    RUN
    + STEP
    + DECISION
    + columns_of(
        """
        term string reward term
        contribution double its part of the step's reward, weight included
        """
    ),
    BY_RUN,
)
