"""What the loop wanted, what was found, and what was done: projections of the audit and of the accounts' own books."""

from nvtrader_pipelines.storage.table import Table, columns_of

OF_ACCOUNT = columns_of(
    """
    account string name of the account
    year int year of the session; the partition
    session date session of the exchange (XNYS); of plans and weights the one at whose close it was decided
    """
)
OF_PLAN = columns_of(
    """
    plan_id string identity of the plan, 16 hexadecimal digits
    policy string name that the policy's account had in the evaluation
    run_id string run that trained the policy, 16 hexadecimal digits
    spec_hash string SHA-256 of the experiment's spec
    snapshot_ids string JSON of table to snapshot id of the panel decided on
    """
)
BY_YEAR = ("account", "year")
REBALANCE_PLAN = Table(
    "portfolio",
    "rebalance_plan",
    OF_ACCOUNT
    + OF_PLAN
    + columns_of(
        """
        partition_key string experiment, name@hash8
        fold int fold of the walk-forward whose policies decided
        seeds list<int> random seeds of those policies
        symbols list<string> names in the order of the weights, cash last
        held_weights list<double> weights at the close of the decision
        target_weights list<double> weights wanted
        turnover double one-way: half the sum of absolute changes from held to target, cash included
        truncated boolean whether a limit of the pipeline that marks it cut the weights
        status string constructed, blocked, waiting, cleared, approved, overridden, rejected, cancelled, placed, filled
        n_hard long findings that block it
        n_soft long findings that wait for acknowledgement
        n_warn long findings that are only kept
        findings string JSON list of rule, level, symbol, figure, bound and sentence
        reason string of the last decision, block or cancellation
        decided_by string who approved, overrode or rejected it; null where nobody did
        constructed_at timestamp when it was constructed
        cleared_at timestamp when compliance looked at it
        decided_at timestamp when it was approved, overridden or rejected
        """
    ),
    BY_YEAR,
)
TARGET_WEIGHTS = Table(
    "portfolio",
    "target_weights",
    OF_ACCOUNT
    + OF_PLAN
    + columns_of(
        """
        step int number of the stage: 0 is the policy's proposal, the last is traded
        stage string policy, then the kinds of selector, allocator, timing and limits
        symbol string name; cash for what is in none
        weight double weight after the stage
        change double weight less that after the stage before; of the proposal less what is held
        reason string what the stage changed and why; empty where it changed nothing
        """
    ),
    BY_YEAR,
)
ORDERS = Table(
    "portfolio",
    "orders",
    OF_ACCOUNT
    + OF_PLAN
    + columns_of(
        """
        order_id string plan and symbol: a retried plan makes the same orders
        broker_order_id string the broker's own name for it
        symbol string name
        side string buy or sell
        quantity double shares, positive
        quote double price in account currency that the quantity was made with
        target_weight double weight wanted, fraction of equity
        status string placed, filled (whole), partial or cancelled
        filled_quantity double shares filled so far
        reason string why it was cancelled; empty where it was not
        placed_at timestamp when the broker had it; null where it was cancelled before
        """
    ),
    BY_YEAR,
)
FILLS = Table(
    "portfolio",
    "fills",
    OF_ACCOUNT
    + OF_PLAN
    + columns_of(
        """
        order_id string order that was filled
        symbol string name
        side string buy or sell
        quantity double shares, positive
        price double average price in account currency, slippage included
        cost double fees in account currency
        complete boolean whether the whole order is filled
        filled_at timestamp when the fill was recorded
        """
    ),
    BY_YEAR,
)
PORTFOLIO_STATE = Table(
    "portfolio",
    "portfolio_state",
    OF_ACCOUNT
    + OF_PLAN
    + columns_of(
        """
        equity double equity at the close, net of costs; 1 at the opening
        value double the same in account currency
        net_return double simple return over the session, net of costs
        drawdown double loss from the highest equity so far, positive
        turnover double one-way turnover at this session's fill
        cost double cost paid at this session's fill and fees booked since the last close, fraction of equity
        flow double paid in, or out if negative, since the last close, account currency; no part of the return
        income double dividends and interest booked since the last close, account currency; a part of the return
        cash double weight of cash at the close
        symbols list<string> names in the order of the weights, cash last
        weights list<double> weights at the close
        n_differences long names not held as expected, by reconciliation
        differences list<string> each as a sentence
        """
    ),
    BY_YEAR,
)
AUDIT = Table(
    "portfolio",
    "audit",
    columns_of(
        """
        line long number of the row in the audit, from 1
        year int year of the moment it happened; the partition
        event_id string identity of the event, 16 hexadecimal digits
        kind string proposed, constructed, cleared, blocked, approved, overridden, rejected, placed, filled and so on
        at timestamp when it happened
        by string who: a person, or the component that acted
        account string name of the account; null where it is about none
        session date session it is about
        plan_id string plan it is about
        order_id string order it is about
        symbol string name it is about
        policy string name that the policy's account had in the evaluation
        run_id string run that trained the policy
        spec_hash string SHA-256 of the experiment's spec
        snapshot_ids string JSON of table to snapshot id of the panel decided on
        reason string why, as a sentence
        detail string JSON of what else was said: plan, findings, order, fill
        chain string SHA-256 of the row and of the chain of the row before it
        """
    ),
    ("year",),
)
ACTIVE_POLICY = Table(
    "portfolio",
    "active_policy",
    columns_of(
        """
        event_id string identity of the activation in the audit, 16 hexadecimal digits
        run_id string run that trained the policy, 16 hexadecimal digits
        policy string name that the policy's account had in the evaluation
        partition_key string experiment, name@hash8
        spec_hash string SHA-256 of the experiment's spec
        snapshot_ids string JSON of table to snapshot id of the panel it was trained on
        policies_sha256 string digest of the run's manifest: policy files, folds, seeds chosen, thresholds
        activated_at timestamp when it was activated
        by string who: a person, or the component that acted
        reason string why
        previous_run_id string run of the policy that traded before; null where none did
        previous_policy string name of that policy's account
        active boolean whether it is the one that trades now
        """
    ),
)
PROMOTIONS = Table(
    "portfolio",
    "promotions",
    columns_of(
        """
        promotion_id string identity of the answer: who decides, the two policies, figures and rule, or what it replaced
        decision string gate (it decides) or person (the gate is heard and a person decides)
        run_id string run of the candidate, 16 hexadecimal digits
        policy string name that the candidate's account had in the evaluation
        partition_key string experiment of the candidate, name@hash8
        spec_hash string SHA-256 of the candidate's spec
        active_run_id string run of the policy that traded then; null where none did
        active_policy string name of that policy's account
        passed boolean whether the candidate passed the gate
        activated boolean whether it then took the other's place
        sentence string what the gate said, with its figures
        n_sessions long sessions that both were tested on
        first_session date first of them
        last_session date last of them
        sharpe double annualised Sharpe ratio of the candidate on them, net of costs
        active_sharpe double that of the policy that traded
        active_difference double Sharpe ratio of the candidate less that one
        active_low double lower bound of the difference, paired stationary bootstrap
        active_high double upper bound
        best_baseline string baseline of the candidate's run with the highest Sharpe ratio on the same sessions
        baseline_sharpe double its Sharpe ratio
        baseline_difference double Sharpe ratio of the candidate less that one
        baseline_low double lower bound of the difference, paired stationary bootstrap
        baseline_high double upper bound
        deflated_sharpe double active deflated Sharpe ratio of the run over its best baseline; null where not known
        gate string JSON of the gate's settings
        by string who asked
        reason string why a person decided so; empty where none did
        considered_at timestamp when the gate said so first
        """
    ),
)
