"""Trained policies: their cards, the active one, and the promotion gate."""

from typing import TYPE_CHECKING

from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    from nvtrader_pipelines.promotion.decision_log import PromotionRow
    from nvtrader_pipelines.service.documents.policy_facts import NewDecision, PolicyDocument, PolicyList


@operation
def list_policies(home: OpenHome, *, seeds: bool = False) -> "PolicyList":
    """List all trained policies, newest run first, the active one marked.

    Args:
        home: the home.
        seeds: also single seeds, archived experiments, and versions that must be run again.
    """
    from nvtrader_pipelines.promotion.policy_cards import read_library
    from nvtrader_pipelines.promotion.rounds import newer_run_message
    from nvtrader_pipelines.service.documents.policy_facts import policy_list

    library = read_library(home.store, seeds=seeds)
    return policy_list(library, newer_run_message(home.store, library.active) if library.active else None)


@operation
def show_policy(home: OpenHome, policy: str) -> "PolicyDocument":
    """Show the card of a policy: scores, files, origin, and decisions of the promotion gate.

    Args:
        home: the home.
        policy: experiment (its latest run) or beginning of a run's id; with /seed-K, a single seed.

    Raises:
        StorageError: if there is no such policy.
    """
    from nvtrader_pipelines.promotion.decision_log import read_promotions_of
    from nvtrader_pipelines.promotion.policy_cards import find_policy, read_library_card
    from nvtrader_pipelines.service.documents.policy_facts import policy_document

    card = read_library_card(home.store, find_policy(home.store, policy))
    return policy_document(card, read_promotions_of(home.store, card.ref))


@operation
def activate(home: OpenHome, policy: str, reason: str = "") -> "NewDecision":
    """Activate a policy from the next close on; the gate's verdict is only recorded.

    A policy that is already active is checked again, and nothing is recorded.

    Args:
        home: the home.
        policy: experiment (its latest run) or beginning of a run's id; with /seed-K, a single seed.
        reason: why; recorded in the audit.

    Raises:
        StorageError: if there is no such policy, or it cannot trade.
    """
    from nvtrader_pipelines.promotion.promote import activate_manually
    from nvtrader_pipelines.runs.lifecycle import now

    return _publish(home, activate_manually(home.store, policy, home.by, reason, now))


@operation
def promote(home: OpenHome, policy: str) -> "NewDecision":
    """Submit a policy to the promotion gate; if it passes, it is active from the next close on.

    Args:
        home: the home.
        policy: experiment (its latest run) or beginning of a run's id; with /seed-K, a single seed.

    Raises:
        StorageError: if there is no such policy.
    """
    from nvtrader_pipelines.promotion.promote import evaluate_candidate
    from nvtrader_pipelines.runs.lifecycle import now

    return _publish(home, evaluate_candidate(home.store, policy, home.by, now))


def _publish(home: OpenHome, row: "PromotionRow") -> "NewDecision":
    """Show a decision in the views, and describe it."""
    from nvtrader_pipelines.desk.mirror import publish_home_events
    from nvtrader_pipelines.service.documents.policy_facts import NewDecision

    publish_home_events(home.store)
    return NewDecision.model_validate({**row.row(), "warning": row.warning})


class Policies(Family):
    """Trained policies: their cards, the active one, and the promotion gate."""

    list, show, activate, promote = list_policies, show_policy, activate, promote
