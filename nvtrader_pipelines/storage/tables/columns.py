"""Columns that several tables share."""

from nvtrader_pipelines.storage.table import columns_of

BAR = columns_of(
    """
    source string which source delivered the bar
    symbol string name of the instrument
    session date session of the exchange (XNYS)
    year int year of the session; the partition
    """
)
RUN = columns_of(
    """
    spec_hash string SHA-256 of the experiment's spec
    run_id string identity of the run, 16 hexadecimal digits
    """
)
STEP = columns_of(
    """
    policy string account: an experiment's ensemble, one of its seeds, or a baseline
    kind string policy (one seed), ensemble or baseline
    fold int number of the fold; of tests of folds that share sessions, number of the block
    """
)
DECISION = columns_of(
    """
    step int number of the decision in the account's walk
    session date session at whose close the decision was made
    """
)
BY_RUN = ("spec_hash", "run_id")
