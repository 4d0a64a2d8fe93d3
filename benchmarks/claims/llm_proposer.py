"""Search with a scripted language model: the best trial, lost seconds, and the time of its notes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.claim import Goal, report
from benchmarks.sample_store import store_with
from benchmarks.scripted_model import competent, lying, poor, served
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.baselines import Cufolio
from nvtrader_pipelines.research.journal import Line, ModelAsked, SessionSummarized, TrialJudged, work_seconds
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.proposers import LlmProposer
from nvtrader_pipelines.research.search_notes import search_notes
from nvtrader_pipelines.research.session import run_session
from nvtrader_pipelines.research.session_spec import Session
from nvtrader_pipelines.research.session_store import create_session
from nvtrader_pipelines.research.study import Study
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.testing.synthetic_panels import synthetic_panel

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "llm-proposer.png"
N_TRIALS, SEEDS = 50, range(5)
N_LOST_TRIALS, N_ROUNDS = 20, 20  # of a session that loses time, and timed turns of the model
N_NAMES, N_SESSIONS, PERIOD, EDGE = 8, 1800, 120, 0.002  # half the names earn more by the edge, the other half next
QUICK = {"n_scenarios": 1000, "cufolio_hold_days": 40, "max_position_pct": 0.2, "history": 252}
LONG = {**QUICK, "n_scenarios": 5000, "cufolio_hold_days": 10}
BOUNDS = {
    "agent.history": {"low": 63, "high": 504},
    "agent.max_position_pct": {"low": 0.125, "high": 0.25},
    "agent.cash_floor": {"low": 0.0, "high": 0.5},
    "agent.risk_aversion": {"low": 0.1, "high": 5.0},
    "agent.volatility_penalty": {"low": 0.0, "high": 5.0},
    "agent.cost_bps": {"low": 0.0, "high": 100.0},
}
HYBRID = {"kind": "llm"}
N_WARMUP = LlmProposer().n_warmup_trials


class Search(NamedTuple):
    """Session that has ended."""

    session: Session
    lines: list[Line]
    seconds: float  # by wall clock

    @property
    def trials(self) -> list[TrialJudged]:
        """Trials, known ones left out."""
        return [line for line in self.lines if isinstance(line, TrialJudged) and line.status != "known"]

    @property
    def best_so_far(self) -> NDArray[np.float64]:
        """Largest Sharpe ratio on validation by trial."""
        return np.fmax.accumulate([np.nan if line.sharpe is None else line.sharpe for line in self.trials])

    @property
    def lost_seconds(self) -> float:
        """Seconds of calls whose answers were not taken."""
        asked = [line for line in self.lines if isinstance(line, ModelAsked) and line.outcome != "proposed"]
        summaries = [line for line in self.lines if isinstance(line, SessionSummarized) and not line.paragraph]
        return sum(line.seconds for line in (*asked, *summaries))

    @property
    def own_seconds(self) -> float:
        """Seconds in which no trial and no base ran."""
        return self.seconds - work_seconds(self.lines)

    @property
    def trial_seconds(self) -> float:
        """Mean seconds of a trial."""
        return fmean(line.seconds for line in self.trials)


def main() -> None:
    """Report what a good, a poor and a failing model are worth to a search."""
    panel = market()
    start = perf_counter()
    import_module("nvtrader_pipelines.llm.chat")
    import_seconds = perf_counter() - start
    alone = [search(panel, seed) for seed in SEEDS]
    with served(competent) as url:
        hybrid = [search(panel, seed, url) for seed in SEEDS]
    with served(poor) as url:
        misled = [search(panel, seed, url) for seed in SEEDS]
    stepping = "a scripted model that steps from the best trials of its prompt, away from the worst or along the trend"
    report_best("llm_best_50", alone, hybrid, Goal(ratio_at_least=1.0), stepping)
    report_best(
        "llm_best_50_poor", alone, misled, Goal(ratio_at_least=0.95), "a scripted model that proposes at random"
    )
    report_lost_seconds(panel, import_seconds)
    report_turn(hybrid[-1])
    draw({"optimizer alone": alone, "with a competent model": hybrid, "with a poor model": misled}, PICTURE)


def market() -> MarketPanel:
    """Market of eight names whose better half changes every few months."""
    panel = synthetic_panel(N_SESSIONS, N_NAMES, opens=False)
    sign = (-1.0) ** (np.arange(N_SESSIONS) // PERIOD)
    half = np.where(np.arange(N_NAMES) < N_NAMES // 2, 0.5, -0.5)
    returns = panel.close_returns + EDGE * sign[:, None] * half
    return replace(panel, source="landing", close_returns=returns)


def search(
    panel: MarketPanel, seed: int, url: str | None = None, budget: int = N_TRIALS, agent: Mapping[str, Any] = QUICK
) -> Search:
    """Run a session in a home of its own, with the hybrid if it has an endpoint."""
    with TemporaryDirectory(prefix="llm-proposer-", dir="/var/tmp") as folder:
        home = Home(Path(folder))
        store = store_with(home, panel)
        if url:
            home.llm_file.parent.mkdir(parents=True, exist_ok=True)
            home.llm_file.write_text(f"base_url: {url}\n")
        base = ExperimentSpec(name="search", market=MarketChoice(source="landing"), agent=Cufolio(**agent))
        settings = {
            "eval_mode": SearchMode.CUFOLIO_ONLY,
            "bounds": BOUNDS,
            "budget": budget,
            "workers": 1,
            "seed": seed,
        }
        session = create_session(store, base, proposer=HYBRID if url else None, **settings)
        start = perf_counter()
        lines = list(run_session(store, session.session_id))
        ended = Search(session, lines, perf_counter() - start)
    if len(ended.trials) != budget:
        raise AssertionError(f"the session must judge {budget} trials, but judged {len(ended.trials)}")
    return ended


def report_best(name: str, alone: Sequence[Search], hybrid: Sequence[Search], goal: Goal, model: str) -> None:
    """Report the best Sharpe ratio after all trials with a model, against the optimizer alone."""
    best, plain = ([float(ended.best_so_far[-1]) for ended in several] for several in (hybrid, alone))
    n_taken = sum(trial.proposer == "llm" for ended in hybrid for trial in ended.trials)
    differences = ", ".join(f"{one - other:+.3f}" for one, other in zip(best, plain, strict=True))
    report(
        name,
        median(best),
        "Sharpe",
        goal,
        ratio=median(best) / median(plain),
        note=f"{model}: median of {len(SEEDS)} seeds of the best annual Sharpe ratio on validation after {N_TRIALS} "
        f"trials of {len(BOUNDS)} knobs of cufolio, {n_taken} of {len(SEEDS) * N_TRIALS} by the model; {N_NAMES} "
        f"synthetic names of which another half leads every {PERIOD} sessions; ratio: to the optimizer alone with the "
        f"same seeds, {median(plain):.3f}; differences by seed: {differences}",
    )


def report_lost_seconds(panel: MarketPanel, import_seconds: float) -> None:
    """Report what endpoints that fail cost a session."""
    alone = search(panel, 0, None, N_LOST_TRIALS, LONG)
    with served(lying) as url:
        failing = {"nonsense": search(panel, 0, url, N_LOST_TRIALS, LONG)}
    failing["refused connections"] = search(panel, 0, url, N_LOST_TRIALS, LONG)
    with served(lying, is_slow=True) as url:
        failing["a byte at a time"] = search(panel, 0, url, N_LOST_TRIALS, LONG)
    proposed = [line.proposed for line in alone.trials]
    if any([line.proposed for line in ended.trials] != proposed for ended in failing.values()):
        raise AssertionError("a failing endpoint must leave the proposals as they are")
    shown = "; ".join(
        f"{name} {ended.lost_seconds:.2f} s ({ended.lost_seconds / ended.trial_seconds:.2f} trials, the session "
        f"{ended.own_seconds - alone.own_seconds:+.1f} s)"
        for name, ended in failing.items()
    )
    report(
        "llm_lost_trials",
        max(ended.lost_seconds / ended.trial_seconds for ended in failing.values()),
        "trials",
        Goal(value_at_most=1.1),
        note="seconds of answers that were not taken, in mean times of a trial, for the worst of three endpoints; by "
        f"default settings, {N_LOST_TRIALS} trials of {alone.trial_seconds:.2f} s, the session {alone.seconds:.1f} s "
        f"with the optimizer alone; {shown}; the first call of a process takes {import_seconds:.1f} s more, to import "
        "the client",
    )


def report_turn(ended: Search) -> None:
    """Report the time in which a turn of the model is prepared, after all trials."""
    spec, number = ended.session.spec, len(ended.trials) + 1
    space = spec.space()
    study = Study(spec.proposer, space.knobs, spec.seed)
    study.restore(line for line in ended.lines if isinstance(line, TrialJudged))
    proposed = study.ask(number)
    seconds = []
    for _ in range(N_ROUNDS):
        start = perf_counter()
        search_notes(spec.goal, space.knobs, ended.lines, proposed, study.outlook(number))
        seconds.append(perf_counter() - start)
    report(
        "llm_turn_50",
        1000.0 * median(seconds),
        "ms",
        Goal(value_at_most=300.0),
        note=f"wall clock, median of {N_ROUNDS}: notes on a search of {N_TRIALS} trials and {len(BOUNDS)} knobs, "
        "center and spread of 16 draws of TPE among them; once before each call of the model",
    )


def draw(searches: Mapping[str, Sequence[Search]], picture: Path) -> None:
    """Draw the best Sharpe ratio so far by trial: the median, and all seeds as thin lines."""
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        axes = figure.subplots()
        numbers = np.arange(N_WARMUP, N_TRIALS + 1)
        for (name, several), color in zip(searches.items(), ("black", "#0072B2", "#D55E00"), strict=True):
            curves = np.array([ended.best_so_far[N_WARMUP - 1 :] for ended in several])
            axes.step(numbers, curves.T, where="post", color=color, alpha=0.3, linewidth=0.8)
            axes.step(numbers, np.median(curves, axis=0), where="post", color=color, linewidth=2.0, label=name)
        axes.set_xlim(N_WARMUP, N_TRIALS)
        axes.set_xlabel("trial")
        axes.set_ylabel("best Sharpe ratio on validation so far")
        figure.legend(frameon=False, loc="outside lower center", ncols=3)
        axes.set_title("Best trial of a search; bold: median of 5 seeds, equal up to trial 10", loc="left", fontsize=11)
        figure.savefig(picture, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
