"""Trained policies: their cards, the active one, and the promotion gate."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.components.text import Flags
from nvtrader_pipelines.service.operations.arguments import AuditNote, OneAccount, Picture, PolicyName
from nvtrader_pipelines.service.operations.operation import Family, operation
from nvtrader_pipelines.service.output_paths import picture_path

if TYPE_CHECKING:
    from nvtrader_pipelines.experiments.deployment import Deployment
    from nvtrader_pipelines.promotion.decision_log import PromotionRow
    from nvtrader_pipelines.service.documents.policy_facts import (
        NewDecision,
        PolicyDocument,
        PolicyList,
        TearSheetDocument,
    )


class Policies(Family):
    """Trained policies: their cards, the active one, and the promotion gate."""

    command, alone = "policies", "list"
    examples = ("nvtrader policies", "nvtrader policies --all --json", "nvtrader policies show ppo-residual")

    @operation("nvtrader policies list", "nvtrader policies list --all", route="GET /api/policies", is_kept=True)
    def list(
        self,
        *,
        seeds: Annotated[
            bool,
            Field(description="Also single seeds, archived experiments, and versions that must be run again."),
            Flags(("--all",)),
        ] = False,
    ) -> "PolicyList":
        """List all trained policies, newest first, the active one marked."""
        from nvtrader_pipelines.promotion.policy_cards import read_library
        from nvtrader_pipelines.promotion.rounds import newer_run_message
        from nvtrader_pipelines.service.documents.policy_facts import policy_list

        library = read_library(self.store, seeds=seeds)
        return policy_list(library, newer_run_message(self.store, library.active) if library.active else None)

    @operation(
        "nvtrader policies show ppo-residual",
        "nvtrader policies show ppo-residual/seed-0",
        route="GET /api/policies/{policy:path}",
        is_kept=True,
    )
    def show(self, policy: PolicyName) -> "PolicyDocument":
        """Show the card of a policy: scores, files, origin, and decisions of the promotion gate.

        Raises:
            NotFoundError: if there is no such policy.
        """
        from nvtrader_pipelines.promotion.decision_log import read_promotions_of
        from nvtrader_pipelines.promotion.policy_cards import find_policy, read_library_card
        from nvtrader_pipelines.service.documents.policy_facts import policy_document

        card = read_library_card(self.store, find_policy(self.store, policy))
        return policy_document(card, read_promotions_of(self.store, card.ref))

    @operation(
        "nvtrader policies tear-sheet ppo-residual",
        "nvtrader policies tear-sheet ppo-residual/seed-0 -o seed-0.svg",
    )
    def tear_sheet(self, policy: PolicyName, *, output: Picture = None) -> "TearSheetDocument":
        """Draw a policy's tear sheet: returns by month, rolling figures, worst drawdowns.

        Raises:
            NotFoundError: if there is no such policy.
        """
        from nvtrader_pipelines.promotion.policy_cards import find_policy
        from nvtrader_pipelines.runs.run_pictures import draw_tear_sheet, tear_sheet_path
        from nvtrader_pipelines.service.documents.policy_facts import tear_sheet_document

        ref = find_policy(self.store, policy)
        path = picture_path(output, tear_sheet_path(self.store, ref))
        return tear_sheet_document(ref, draw_tear_sheet(self.store, ref, path), path)

    @operation(
        "nvtrader policies activate ppo-residual",
        'nvtrader policies activate 3f2a --reason "a longer history"',
        "nvtrader policies activate coin-trend --account coins",
        route="POST /api/policies/activate",
        writes=True,
    )
    def activate(self, policy: PolicyName, *, reason: AuditNote = "", account: OneAccount = None) -> "NewDecision":
        """Activate a policy from the next close on; the gate's verdict is only recorded.

        For one account it replaces the policy of all accounts there, until all or it have a newer one.

        A policy that is already active is checked again, and nothing is recorded.

        Raises:
            NotFoundError: if there is no such policy or account.
            StorageError: if it cannot trade, or the account's bot names another policy.
        """
        from nvtrader_pipelines.desk.traded_policy import require_own_policy
        from nvtrader_pipelines.promotion.promote import activate_manually
        from nvtrader_pipelines.runs.lifecycle import now

        if account is not None:
            require_own_policy(self.store, account)
        return self._record(activate_manually(self.store, policy, self.opened.by, reason, now, account))

    @operation("nvtrader policies promote ppo-residual", route="POST /api/policies/promote", writes=True)
    def promote(self, policy: PolicyName) -> "NewDecision":
        """Submit a policy to the promotion gate; if it passes, it is active from the next close on.

        If the gate rejects it, the command exits with 1.

        Raises:
            NotFoundError: if there is no such policy.
        """
        from nvtrader_pipelines.promotion.promote import evaluate_candidate
        from nvtrader_pipelines.runs.lifecycle import now

        return self._record(evaluate_candidate(self.store, policy, self.opened.by, now))

    def open(self, policy: PolicyName) -> "Deployment":
        """Open a trained policy on the current market; its `decide` returns target weights.

        Raises:
            NotFoundError: if there is no such policy.
            StorageError: if its files changed.
            ValueError: if it cannot decide on this market.
        """
        from nvtrader_pipelines.desk.account_backtests import open_deployment
        from nvtrader_pipelines.promotion.policy_cards import find_policy

        return open_deployment(self.store, *find_policy(self.store, policy))

    def _record(self, row: "PromotionRow") -> "NewDecision":
        """Write a decision to the tables, and describe it."""
        from nvtrader_pipelines.desk.mirror import mirror_home_events
        from nvtrader_pipelines.service.documents.policy_facts import NewDecision

        mirror_home_events(self.store)
        return NewDecision.model_validate({**row.row(), "warning": row.warning})
