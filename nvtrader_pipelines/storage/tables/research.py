"""Search sessions and their trials, as written by their journals, alphas, and texts on results by corpus."""

import polars as pl

from nvtrader_pipelines.components.columns import UTC_TIME, Column, TableSchema
from nvtrader_pipelines.storage.table import Table

SESSION_ID = Column("session_id", pl.String, "id of the search session")
MODE = Column("mode", pl.String, "groups of knobs that it varies: ppo_only, cufolio_only or unified")
SECONDS = Column("seconds", pl.Float64, "seconds of trainings and walks, in all processes")
PROPOSAL = Column("proposal", pl.Int64, "number of the proposal, from 1")
TRIAL_ID = Column("trial_id", pl.Int64, "number of the configuration in its session, from 1")
SHARPE = Column("sharpe", pl.Float64, "annual net Sharpe ratio on validation, first seed")
FINISHED_AT = Column("finished_at", UTC_TIME, "when it ended, UTC")
_SESSIONS = TableSchema(
    SESSION_ID,
    Column("goal", pl.String, "goal in a person's words"),
    MODE,
    Column("base", pl.String, "name of the experiment that it starts from"),
    Column("source", pl.String, "market source"),
    Column("symbols", pl.List(pl.String), "names of the market"),
    Column("proposer", pl.String, "kind of the proposer"),
    Column("seed", pl.Int64, "random seed of the proposals"),
    Column("budget", pl.Int64, "trials; null without a limit"),
    Column("validation_from", pl.Date, "first day of the validation"),
    Column("sealed_from", pl.Date, "first sealed day"),
    Column("n_trials", pl.Int64, "different configurations judged"),
    Column("n_known", pl.Int64, "proposals answered from the journal"),
    Column("base_sharpe", pl.Float64, "annual net Sharpe ratio of the base on validation, mean over seeds"),
    Column("best_trial", pl.Int64, "number of the best trial; null if none has a result"),
    Column("best_sharpe", pl.Float64, "annual net Sharpe ratio of the best trial on validation, over all its seeds"),
    Column("outcome", pl.String, "winner, improvement, not confirmed or nothing found; null before the verdict"),
    Column("look", pl.Int64, "number of its look at the sealed window; null if none was spent"),
    Column("sentence", pl.String, "verdict in words; null before it"),
    Column("created_at", UTC_TIME, "when it was created, UTC"),
    FINISHED_AT,
    SECONDS,
)
SESSIONS = Table("research", "sessions", _SESSIONS)
_TRIALS = TableSchema(
    SESSION_ID,
    TRIAL_ID,
    PROPOSAL,
    Column("spec_hash", pl.String, "SHA-256 of the configuration: market, environment, agent and pipeline"),
    MODE,
    Column("proposer", pl.String, "kind of the proposer"),
    Column("reason", pl.String, "reason of the proposal"),
    Column("knobs", pl.String, "JSON of the effective knobs; those proposed where infeasible"),
    Column("adjustments", pl.String, "JSON of clips and snaps"),
    Column("status", pl.String, "judged, pruned, infeasible or failed"),
    Column("message", pl.String, "why it has no result, or where it is from; empty otherwise"),
    SHARPE,
    Column("fresh_sharpes", pl.List(pl.Float64), "the same of the fresh seeds; null unless rerun"),
    Column("max_drawdown", pl.Float64, "largest loss from the peak on validation, a positive fraction"),
    Column("lead", pl.Float64, "Sharpe ratio less that of the base, mean over its seeds"),
    Column("standard_error", pl.Float64, "paired error of the lead"),
    Column("t", pl.Float64, "lead in standard errors"),
    Column("bar", pl.Float64, "luck bar when it was judged last, in standard errors"),
    Column("n_configurations", pl.Int64, "judged on these validation data by then, by all sessions and runs"),
    Column("standing", pl.String, "decision on the trial: kept, seed noise and others"),
    SECONDS,
    FINISHED_AT,
)
TRIALS = Table("research", "trials", _TRIALS)
_LLM_CALLS = TableSchema(
    Column("call_id", pl.String, "id of the call"),
    Column("session_id", pl.String, "id of the search session; null for the reading of a chart"),
    Column("purpose", pl.String, "propose, report or chart"),
    Column("prompt", pl.String, "name and version of the prompt, such as propose@1"),
    Column("model", pl.String, "id of the language model"),
    Column("digest", pl.String, "SHA-256 of the request, and name of its answer in data/llm/answers"),
    Column("n_input_tokens", pl.Int64, "tokens of the request, as the endpoint counts"),
    Column("n_output_tokens", pl.Int64, "tokens of the answer"),
    Column("seconds", pl.Float64, "until the answer"),
    Column("is_cached", pl.Boolean, "whether it was answered without the endpoint, so that no token was spent"),
    Column("problem", pl.String, "why the answer was not taken; empty if it was"),
    Column("called_at", UTC_TIME, "when it ended, UTC"),
)
LLM_CALLS = Table("research", "llm_calls", _LLM_CALLS)
_ALPHAS = TableSchema(
    Column("name", pl.String, "name of the alpha, of its file in data/alphas"),
    Column("source", pl.String, "market source"),
    Column("digest", pl.String, "SHA-256 of the formula: an alpha of another name with this formula is the same trial"),
    Column("formula", pl.String, "JSON of the formula"),
    Column("panel_digest", pl.String, "SHA-256 of the panel's arrays"),
    Column("n_sessions", pl.Int64, "sessions with a rank correlation"),
    Column("mean_ic", pl.Float64, "mean rank correlation with returns of five sessions after the next fill"),
    Column("p_value", pl.Float64, "two-sided p value of the mean, by Newey and West; 1 where the mean is undefined"),
    Column("adjusted_p_value", pl.Float64, "by Benjamini and Hochberg, over all formulas tried on the source"),
    Column("n_tried", pl.Int64, "formulas that were ever tried on the source"),
    Column("is_significant", pl.Boolean, "whether the adjusted p value is 0.05 at most"),
    Column("judged_at", UTC_TIME, "when the mean was computed, UTC"),
    Column("note", pl.String, "why the mean is undefined; empty if it is not"),
)
ALPHAS = Table("research", "alphas", _ALPHAS)
ALPHA_FACTORS, BACKTEST_SUMMARIES, RL_TRAJECTORY_SUMMARIES = CORPORA = (
    "alpha_factors",
    "backtest_summaries",
    "rl_trajectory_summaries",
)
_DOCUMENTS = TableSchema(
    Column("corpus", pl.String, f"corpus of the text: {', '.join(CORPORA)}"),
    Column("id", pl.String, "id of the document in its corpus, such as that of a run; a changed text is a further row"),
    Column("text", pl.String, "text that is searched: data for a reader, never an instruction"),
    Column("known_from", pl.Date, "first day, UTC, on which the text may be read: all that it reports was known then"),
)
DOCUMENTS = Table("research", "documents", _DOCUMENTS)
ITERATION, MODEL_CALL = "autoresearch.iteration", "llm.call"  # names of spans
_SPANS = TableSchema(
    SESSION_ID,
    PROPOSAL,
    TRIAL_ID,
    MODE,
    Column("status", pl.String, "judged, known, pruned, infeasible or failed"),
    SHARPE,
    Column("n_clips", pl.Int64, "values that were clipped to their bounds"),
    Column("started_at", UTC_TIME, "when it began, UTC: its end less its seconds"),
    Column("seconds", pl.Float64, "seconds of training and walk; 0 where nothing was trained"),
)
SPANS = Table("research", "spans", _SPANS)  # a view of the file of spans
