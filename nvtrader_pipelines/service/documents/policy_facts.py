"""Documents of policies: the list, and a card with the decisions of the promotion gate."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.components.document import Document, row_model, rows_of
from nvtrader_pipelines.evaluation.short_samples import mask_short
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.policy_cards import Library, LibraryCard
from nvtrader_pipelines.storage.tables import PROMOTION_DECISIONS

if TYPE_CHECKING:  # slow to import
    from nvtrader_pipelines.evaluation.tear_sheet import TearSheet

YEAR = Column("year", pl.Int32, "year of the sessions")
RETURN = Column("return", pl.Float64, "compounded, net of costs")


class PromotionDecision(row_model(PROMOTION_DECISIONS.schema)):
    """Decision on a policy, by the gate or a person."""


class NewDecision(PromotionDecision):
    """Decision that was just made, with what the candidate's run warns of."""

    warning: str | None  # null if there is none


class YearlyReturn(row_model(TableSchema(YEAR, RETURN))):
    """Return of a policy in a year."""


class MonthlyReturn(row_model(TableSchema(YEAR, Column("month", pl.Int8, "month, from 1"), RETURN))):
    """Return of a policy in a month."""


class DeepDrawdown(Document):
    """One of the deepest drawdowns of a policy."""

    start: date  # first session below the peak
    trough: date
    recovery: date | None  # first session back at the peak; null until then
    depth: float
    n_sessions: int  # from the start to before the recovery


class TearSheetDocument(Document):
    """Figures of a policy over all its tests, net of costs, and the path of their picture."""

    run_id: str
    policy: str
    picture: Path
    monthly: tuple[MonthlyReturn, ...]
    yearly: tuple[YearlyReturn, ...]
    drawdowns: tuple[DeepDrawdown, ...]  # deepest first


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


def tear_sheet_document(ref: PolicyRef, sheet: "TearSheet", picture: Path) -> TearSheetDocument:
    """Describe a tear sheet."""
    tables = {name: getattr(sheet, name).to_dicts() for name in ("monthly", "yearly", "drawdowns")}
    return TearSheetDocument.model_validate({**ref._asdict(), "picture": picture, **tables})


def _masked_rows(card: LibraryCard) -> dict[str, Any]:
    """Scores of a card and its baselines, without annualized figures of short samples."""
    kinds = {"scores": card.scores, "baselines": card.baselines}
    return {
        name: tuple(mask_short(pl.DataFrame(rows, infer_schema_length=None)).to_dicts())
        for name, rows in kinds.items()
        if rows
    }
