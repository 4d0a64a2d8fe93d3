"""The rows of a trajectory: what was seen, done and earned at one decision, in training and in tests alike."""

import polars as pl

STEP = {
    "episode": pl.Int32,  # 0 for a walk through test windows; the number of the sampled episode in training
    "step": pl.Int32,
    "session": pl.Date,
    "fill_session": pl.Date,
    "observation_hash": pl.Int64,
    "action": pl.List(pl.Float32),
    "reward": pl.Float64,
    "value": pl.Float32,
    "log_prob": pl.Float32,
    "equity": pl.Float64,  # after the step
    "drawdown": pl.Float64,
    "turnover": pl.Float64,  # one-way
    "terminated": pl.Boolean,
    "truncated": pl.Boolean,
    "info": pl.String,  # JSON: reward_terms, and the termination that struck
}
TRAJECTORY = {
    "policy": pl.String,
    "kind": pl.String,  # policy, ensemble or baseline
    "phase": pl.String,  # train, test, replay or paper
    "fold": pl.Int32,
    "seed": pl.Int32,
    **STEP,
}
