"""Check that the current market has the symbols and features of a run's policies."""

from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.archive import PolicyCard, read_card
from nvtrader_pipelines.policies.learned import require_same_market
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from nvtrader_pipelines.storage.store import Store


def require_market(store: Store, spec: ExperimentSpec, run: SealedRun, policy: str) -> MarketPanel:
    """Read the current market of a run, whose policy files must be complete and unchanged.

    Raises:
        StorageError: if symbols or features differ, or a file is missing or changed.
    """
    library = store.policies
    library.require_untampered(run)
    try:
        panel = store.panels.read(spec.market)
        require_same_market(_first_card(library, run), panel)
    except ValueError as error:  # no panel can be made, or it differs from that of the training
        raise market_mismatch_error(run, policy, error) from error
    return panel


def market_mismatch_error(run: SealedRun, policy: str, why: ValueError) -> StorageError:
    """Build the error of a policy that does not fit the current market."""
    reason = " ".join(str(why).split())
    return StorageError(f"{policy} of run {run.run_id} cannot trade on the current market: {reason}")


def _first_card(library: PolicyLibrary, run: SealedRun) -> PolicyCard:
    """Read the card of one policy; all policies of a run are trained on the same market."""
    return read_card((library.folder(run.partition_key, run.run_id) / min(run.policies)).read_bytes())
