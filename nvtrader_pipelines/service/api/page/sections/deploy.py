"""Policy library: what may trade, how it was judged, and what trades."""

from typing import Any

from nvtrader_pipelines.evaluation.findings import describe_period
from nvtrader_pipelines.promotion.decision_log import gate_decisions
from nvtrader_pipelines.promotion.policy_cards import LibraryCard, read_library, read_library_card
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render
from nvtrader_pipelines.service.documents.policy_facts import policy_list
from nvtrader_pipelines.storage.errors import StorageError


def read_deploy(shared: Context) -> Content:
    """Read the cards of policies, and what the gate said about each."""
    library = read_library(shared.store)
    cards, problems = [*policy_list(library, None).policies], [*library.problems]
    if library.active and not any(card.active for card in cards):  # the policy of one seed
        try:
            cards.insert(0, read_library_card(shared.store, library.active.ref))
        except StorageError as error:
            problems.append(str(error))
    gate = gate_decisions(shared.store)
    rows = [_row(card, gate.get(card.run_id)) for card in cards]
    scored = [row["score"] for row in rows if row["score"] and row["score"]["sharpe_low"] is not None]
    low = min([0.0, *(score["sharpe_low"] for score in scored)])
    high = max([1.0, *(score["sharpe_high"] for score in scored)])
    part = render("policies", rows=rows, active=library.active, problems=problems, low=low, high=high)
    return Content({"policies": part}, values={"policies": str(len(cards)) if cards else ""})


def _row(card: LibraryCard, decision: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "card": card,
        "score": card.score,
        "period": describe_period(card.period) if card.score else "",
        "gate": decision and ("passes" if decision["passed"] else "rejects"),
        "sentence": decision["sentence"] if decision else "The gate has not considered it yet",
    }
