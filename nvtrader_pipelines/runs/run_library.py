"""Library of the RL Lab: runs with agent and verdict."""

from datetime import datetime

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.runs.run_queries import list_runs
from nvtrader_pipelines.runs.run_verdict import Claim, read_verdicts
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.store import Store


class LibraryRun(Document):
    """Run of the library."""

    run_id: str
    experiment: str
    partition_key: str
    kind: str
    status: str
    agent: str
    source: str
    sharpe: float | None  # of its account over all tests, annual, net
    sharpe_low: float | None
    sharpe_high: float | None
    max_drawdown: float | None
    n_sessions: int | None
    claim: Claim
    started_at: datetime
    message: str | None
    tags: str  # separated by a comma and a blank


def library_runs(store: Store, *, everything: bool = False) -> list[LibraryRun]:
    """Runs that are neither deleted nor of archived experiments, or every run; newest first."""
    verdicts, agents = read_verdicts(store), dict[str, str]()
    rows = []
    for row in list_runs(store, everything=everything).iter_rows(named=True):
        key = row["partition_key"]
        if key not in agents:
            agents[key] = version_content(store.ledger, key, with_worlds=True).get("agent", {}).get("kind", "")
        names = [name for name in LibraryRun.model_fields if name in row]
        facts = {name: row[name] for name in names} | {"experiment": key.partition("@")[0], "agent": agents[key]}
        verdict = None if row["sharpe"] is None else verdicts.get(row["run_id"])
        rows.append(LibraryRun(**facts, claim=verdict.claim if verdict else Claim.NONE))
    return rows
