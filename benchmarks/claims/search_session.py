"""A search of 50 trials on two processes: its wall clock, and what is not trainings."""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from benchmarks.claim import Goal, report
from benchmarks.harness import print_comment
from benchmarks.sample_store import store_with
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.orchestration.mlflow_search import track_session
from nvtrader_pipelines.orchestration.search_spans import trace_session
from nvtrader_pipelines.research.journal import BaseJudged, TrialJudged, TrialRerun
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.search_settings import TIMESTEPS
from nvtrader_pipelines.research.session import run_session
from nvtrader_pipelines.research.session_store import create_session, session_base
from nvtrader_pipelines.storage.home import Home

N_TRIALS, N_WORKERS = 50, 2


def main() -> None:
    """Run a session from its creation to its verdict, with everything that the command writes."""
    with TemporaryDirectory(prefix="search-session-", dir="/var/tmp") as folder:
        store = store_with(Home(Path(folder)), sample_panel())
        wall, cpu = perf_counter(), process_time()
        session = create_session(store, session_base(SearchMode.PPO_ONLY), budget=N_TRIALS, workers=N_WORKERS)
        steps = trace_session(store.home, session, run_session(store, session.session_id), print_comment)
        lines = list(track_session(store.home, session, [], steps, print_comment))
        wall, cpu = perf_counter() - wall, process_time() - cpu
    busy = sum(line.seconds for line in lines)
    n_trainings = N_TRIALS + sum(len(line.seeds) for line in lines if isinstance(line, BaseJudged | TrialRerun))
    trials = [line for line in lines if isinstance(line, TrialJudged) and line.status != "known"]
    if len(trials) != N_TRIALS:
        raise AssertionError(f"the session must judge {N_TRIALS} trials, but judged {len(trials)}")
    size = (
        f"{N_TRIALS} trials of `ppo_only`, {TIMESTEPS:,} steps, 20 names, {N_WORKERS} processes; with the base's five "
        f"seeds and reruns {n_trainings} trainings of {busy:.0f} s in all"
    )
    note = f"wall clock from a new session to its verdict, tables, report and MLflow included; {size}"
    report("search_session_50", wall, "s", Goal(value_at_most=150.0), note=note)
    overhead = 100.0 * (1.0 - busy / (N_WORKERS * wall))
    note = (
        f"share of the wall clock in which a process trains nothing: start, imports, session, journal, tables, MLflow, "
        f"and processes that wait for the last training of the base, of a rerun and of all; the session itself takes "
        f"{cpu:.1f} s of CPU, beside the trainings"
    )
    report("search_session_overhead", overhead, "%", Goal(value_at_most=15.0), note=note)


if __name__ == "__main__":
    main()
