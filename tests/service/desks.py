"""An audit with plans in every state a person may meet, without anything that was trained."""

import datetime as dt

from nvtrader_pipelines.execution.audit import About, plan_event
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, Stage, plan_id
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.home import Home

AT = dt.datetime(2024, 1, 2, 21, 30, tzinfo=dt.UTC)
SESSION = dt.date(2024, 1, 2)
RUN = "ab" * 8
TOO_MUCH = Finding(rule="max_position_pct", level="hard", symbol="AAA", figure=0.5, bound=0.25, sentence="AAA is 50 %")
TURNOVER = Finding(
    rule="turnover_pct_warn", level="soft", figure=0.75, bound=0.2, sentence="75 % is turned over, above the 20 %"
)
FEW = Finding(rule="min_diversification", level="warn", figure=2, bound=4, sentence="2 names are held, fewer than 4")


def plan(session: dt.date = SESSION, account: str = "paper") -> RebalancePlan:
    """From cash to a half and a quarter, of which a limit leaves a quarter each."""
    return RebalancePlan(
        plan_id=plan_id(account, session, RUN, "tiny"),
        account=account,
        session=session,
        policy="tiny",
        run_id=RUN,
        partition_key="tiny@01234567",
        spec_hash="5" * 64,
        fold=0,
        seeds=(0, 1, 2),
        symbols=("AAA", "BBB", "CCC", "cash"),
        held=(0.0, 0.0, 0.0, 1.0),
        stages=(
            Stage(name="policy", weights=(0.5, 0.25, 0.0, 0.25)),
            Stage(name="static_universe", weights=(0.5, 0.25, 0.0, 0.25)),
            Stage(name="position_cap", weights=(0.25, 0.25, 0.0, 0.5), reason="AAA cut to 25.0%"),
        ),
        truncated=True,
    )


def keep(home: Home, found: RebalancePlan, *findings: Finding) -> RebalancePlan:
    """Put a plan into the audit, with what compliance says of it."""
    blocks = any(finding.level == "hard" for finding in findings)
    about = About(detail={"findings": [finding.model_dump(mode="json") for finding in findings]})
    JsonlAudit(home).append(
        [
            plan_event("constructed", found, AT, "desk", About(detail={"plan": found.model_dump(mode="json")})),
            plan_event("blocked" if blocks else "cleared", found, AT, "compliance", about),
        ]
    )
    return found
