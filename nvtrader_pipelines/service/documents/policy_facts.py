"""Documents of policies: the list, and a card with the decisions of the promotion gate."""

from typing import Any

import polars as pl

from nvtrader_pipelines.promotion.policy_cards import Library, LibraryCard
from nvtrader_pipelines.service.documents.document import Document, row_model, rows_of
from nvtrader_pipelines.service.documents.short_samples import mask_short
from nvtrader_pipelines.storage.tables import PROMOTION_DECISIONS


class PromotionDecision(row_model(PROMOTION_DECISIONS.schema)):
    """Decision on a policy, by the gate or a person."""


class PolicyDocument(LibraryCard):
    """Card of a policy, with the decisions on it; annualized figures are null for a short sample."""

    promotions: tuple[PromotionDecision, ...]  # newest first


class PolicyList(Document):
    """Cards of policies, newest run first."""

    policies: tuple[LibraryCard, ...]
    newer: str | None  # message on a newer run of the active policy's experiment
    problems: tuple[str, ...]  # of damaged files


def policy_list(library: Library, newer: str | None) -> PolicyList:
    """Describe a library."""
    cards = tuple(card.model_copy(update=_masked_rows(card)) for card in library.cards)
    return PolicyList(policies=cards, newer=newer, problems=library.problems)


def policy_document(card: LibraryCard, promotions: pl.DataFrame) -> PolicyDocument:
    """Describe a policy and the decisions on it."""
    decisions = rows_of(PromotionDecision, promotions)
    return PolicyDocument.model_validate({**dict(card), **_masked_rows(card), "promotions": decisions})


def _masked_rows(card: LibraryCard) -> dict[str, Any]:
    """Scores of a card and its baselines, without annualized figures of short samples."""
    kinds = {"scores": card.scores, "baselines": card.baselines}
    return {
        name: tuple(mask_short(pl.DataFrame(rows, infer_schema_length=None)).to_dicts())
        for name, rows in kinds.items()
        if rows
    }
