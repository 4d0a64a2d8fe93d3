"""What was preferred to what."""

from nvtrader_pipelines.storage.table import Table, columns_of
from nvtrader_pipelines.storage.tables.columns import BY_RUN, RUN

PREFERENCE_PAIRS = Table(
    "preferences",
    "preference_pairs",
    RUN
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
    BY_RUN,
)
