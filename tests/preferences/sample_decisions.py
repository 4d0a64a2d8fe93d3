"""Decisions on plans of two names."""

import datetime as dt

from nvtrader_pipelines.preferences.decisions import DecisionRow


def a_decision(n: int, **fields: object) -> DecisionRow:
    """Make the n-th decision, an approval unless the fields say otherwise."""
    row = {
        "decision_id": f"{n:016x}",
        "plan_id": f"{n + 1000:016x}",
        "parent_id": None,
        "account": "paper",
        "session": dt.date(2024, 1, 2),
        "by": "ann",
        "at": dt.datetime(2024, 1, 2, 22, tzinfo=dt.UTC),
        "decision": "approved",
        "reason": "",
        "symbols": ("AAA", "BBB", "cash"),
        "held_weights": (0.25, 0.0, 0.75),
        "proposed_weights": (0.5, 0.25, 0.25),
        "chosen_weights": (0.5, 0.25, 0.25),
        "orders": (
            {"symbol": "AAA", "side": "buy", "change": 0.25, "amount": 250.0},
            {"symbol": "BBB", "side": "buy", "change": 0.25, "amount": 250.0},
        ),
        "policy": "tiny",
        "run_id": "ab" * 8,
        "partition_key": "tiny@01234567",
        "observation_hash": -5,
        "snapshot_ids": {"gold.returns": 11},
        "outcome_known": False,
    }
    return DecisionRow.model_validate({**row, **fields})
