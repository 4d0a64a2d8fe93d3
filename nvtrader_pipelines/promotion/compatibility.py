"""Whether the market as it is now is the one that a run's policies know."""

from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.archive import PolicyCard, read_card
from nvtrader_pipelines.policies.learned import require_same_market
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from nvtrader_pipelines.storage.store import Store


def require_market(store: Store, spec: ExperimentSpec, run: SealedRun, policy: str) -> MarketPanel:
    """The market as it is now, of the names and features that a run's policies, all of them still there, know.

    Raises:
        StorageError: if it is another, or a file is missing or changed.
    """
    library = store.policies
    library.require_untampered(run)
    try:
        panel = store.panels.read(spec.market)
        require_same_market(_any_card(library, run), panel)
    except ValueError as error:  # what does not make a panel, and policies of another one
        raise market_mismatch(run, policy, error) from error
    return panel


def market_mismatch(run: SealedRun, policy: str, why: ValueError) -> StorageError:
    """What is said of a policy that does not fit the market as it is now."""
    said = " ".join(str(why).split())
    return StorageError(f"{policy} of run {run.run_id} cannot trade on the market as it is now: {said}")


def _any_card(library: PolicyLibrary, run: SealedRun) -> PolicyCard:
    """The card of one policy: all of a run are trained on the same market."""
    return read_card((library.folder(run.partition_key, run.run_id) / min(run.policies)).read_bytes())
