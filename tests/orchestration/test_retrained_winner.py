import dagster as dg
import pytest

from nvtrader_pipelines.feedback.retraining import MIN_WINNER_SESSIONS
from nvtrader_pipelines.orchestration import sensors
from nvtrader_pipelines.orchestration.jobs import RETRAINED_BECAUSE
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS
from nvtrader_pipelines.policies.archive import read_card
from nvtrader_pipelines.research.recorded_session import handed_on
from nvtrader_pipelines.storage.specs import read_experiment
from nvtrader_pipelines.storage.store import Store
from tests.research.search_homes import (
    CAP,
    EVEN,
    N_SESSIONS,
    bars_of,
    cufolio,
    land,
    market,
    new_session,
    run,
    run_handed_on,
    search_home,
)

pytestmark = pytest.mark.slow


def tick(store, instance) -> list[dg.RunRequest]:
    """Requests of one tick of `market_grew`, whose partitions the daemon adds."""
    with (
        dg.partition_loading_context(dynamic_partitions_store=instance),
        dg.build_sensor_context(instance=instance, sensor_name="market_grew") as context,
    ):
        result = sensors.market_grew(context, store=store)
    for request in result.dynamic_partitions_requests or ():
        instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
    return result.run_requests or []


def grow(store, n_sessions) -> None:
    land(store, bars_of(market(drift=0.004, n_sessions=n_sessions)))


def test_winner_is_retrained_and_tested_on_new_sessions_after_a_year(tmp_path):
    home = search_home(tmp_path / "home", market(drift=0.004))
    store, folder = Store(home), new_session(home, cufolio(EVEN), proposer={"kind": "grid"}, bounds=CAP, budget=10)
    run(home, folder)
    spec = read_experiment(handed_on(home, folder.session_id))
    first = run_handed_on(store, spec)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(EXPERIMENTS.name, [spec.partition_key])
        grow(store, N_SESSIONS + MIN_WINNER_SESSIONS - 1)
        assert tick(store, instance) == []
        grow(store, N_SESSIONS + MIN_WINNER_SESSIONS)
        (request,) = tick(store, instance)
        assert tick(store, instance) == []  # it was asked for
    successor = read_experiment(home.experiments / f"{folder.session_id}-winner-2.yaml")
    second = run_handed_on(store, successor)
    day = store.panels.read(spec.market).sessions[-MIN_WINNER_SESSIONS].item()
    assert (request.partition_key, bool(request.tags[RETRAINED_BECAUSE])) == (successor.partition_key, True)
    assert (successor.splitter.test_first, successor.report_from) == (day, day)
    assert successor.model_dump(exclude={"name", "splitter", "report_from"}) == spec.model_dump(
        exclude={"name", "splitter", "report_from"}
    )
    ends = [read_card(*store.policies.read_run(sealed).values()).stretches[-1][1] for sealed in (first, second)]
    assert ends[0] < str(spec.splitter.test_first) < ends[1] < str(successor.splitter.test_first)
    retrained = [event.run_id for event in store.audit.events() if event.kind == "PolicyRetrained"]
    assert retrained == [first.run_id, second.run_id]
