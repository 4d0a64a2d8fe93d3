"""The columns of the tables of rollouts: every step of an account, and the learning curves of trainings."""

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema

ACCOUNT = TableSchema(
    Column("policy", pl.String, "account: an experiment's ensemble, one of its seeds, or a baseline"),
    Column("kind", pl.String, "policy (one seed), ensemble or baseline"),
    Column("fold", pl.Int32, "number of the fold; of tests of folds that share sessions, number of the block"),
)
DECISION = TableSchema(
    Column("step", pl.Int32, "number of the decision in the account's walk"),
    Column("session", pl.Date, "session at whose close the decision was made"),
)
STEP = TableSchema(
    Column("episode", pl.Int32, "of a walk, how often accounts were opened anew; in training, the sampled episode"),
    DECISION,
    Column("fill_session", pl.Date, "session at which the order filled; null where that is not known yet"),
    Column("observation_hash", pl.Int64, "XXH64 of the observation's bytes, as a signed number"),
    Column(
        "action",
        pl.List(pl.Float32),
        "raw action of the network; of choices a score each, in training 1 for the chosen one",
    ),  # brought within the bounds of the action space
    Column("reward", pl.Float64, "reward of the step: the sum of its terms"),
    Column("value", pl.Float32, "the critic's estimate"),
    Column("log_prob", pl.Float32, "log-probability of the action"),  # before it was brought within bounds
    Column("equity", pl.Float64, "equity after the step, net of costs; 1 at the start"),
    Column("drawdown", pl.Float64, "loss from the highest equity so far, positive"),
    Column("turnover", pl.Float64, "one-way turnover of the step"),
    Column("terminated", pl.Boolean, "equity was gone"),
    Column("truncated", pl.Boolean, "the walk or the episode ended here"),
    Column(
        "info",
        pl.String,
        "JSON: reward_terms, termination that struck; of tests also reasons for cut or held weights, and guards: which "
        "guards of the timing fired and what they applied (columns of rl.guards), null without guards; of trainings "
        "through the pipeline also truncated: whether a limit cut the weights; of worlds also what the world reports, "
        "such as the inventory",
    ),
)
TRAJECTORY = TableSchema(
    ACCOUNT,
    Column("phase", pl.String, "train (a sampled episode of a training), test, replay or forward"),
    Column("seed", pl.Int32, "seed of the policy that decided; null for averages and baselines"),
    STEP,
)
TRAINING_CURVE = TableSchema(
    Column("fold", pl.Int32, "number of the fold that was trained"),
    Column("seed", pl.Int32, "random seed of the training"),
    Column("timesteps", pl.Int64, "environment steps so far"),
    Column("mean_reward", pl.Float64, "mean reward of a step over the rollout"),
)
PREFERENCE_EPOCH = TableSchema(
    Column("epoch", pl.Int32, "passes over the pairs so far; 0 is the policy that the training starts from"),
    Column("split", pl.String, "train, or stop: pairs that end the training"),
    Column("n_pairs", pl.Int64, "number of pairs"),
    Column("loss", pl.Float64, "mean loss of a pair, by its weight"),
    Column("log_ratio_chosen", pl.Float64, "mean log-probability of the chosen portfolio less that under the start"),
    Column("log_ratio_rejected", pl.Float64, "the same of the rejected portfolio"),
    Column("margin", pl.Float64, "mean of beta times the difference of the two"),
    Column("accuracy", pl.Float64, "share of pairs whose chosen portfolio gained more than the rejected one"),
    Column("kl", pl.Float64, "mean Kullback-Leibler divergence from the start, nats a decision"),
)
