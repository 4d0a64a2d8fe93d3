"""The page of the service: its first paint, and the time from a change of the home to the pixel."""

import os
import shutil
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from benchmarks.claim import Goal, import_peer, report
from benchmarks.service_home import N_RUNS, TOKEN, URL, build_home, request_seconds, served
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.training_curve_file import append_point

PAGE = "/continuous-rl.html"
N_REQUESTS, N_POINTS, PAUSE_SECONDS = 20, 40, 0.25
CHROMIUM = os.environ.get("NVTRADER_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
WATCH = """
window.shown = {};
const part = document.querySelector("[data-part=training]");
new MutationObserver(() => requestAnimationFrame(() => {
  const text = part.querySelector("dd")?.firstChild.data.trim();
  if (text) window.shown[text] ??= Date.now();
})).observe(part, { subtree: true, childList: true, characterData: true });
"""


def main() -> None:
    """Build a home of many runs, then measure its page."""
    with TemporaryDirectory(prefix="nvtrader-page-") as folder:
        home = Home(Path(folder))
        build_home(home)
        with served(home):
            first = request_seconds(PAGE)
            seconds = median(request_seconds(PAGE) for _ in range(N_REQUESTS))
            latencies = _latencies(home)
    report(
        "page_first_paint",
        1000 * seconds,
        "ms",
        Goal(value_at_most=300.0),
        note=f"GET {PAGE} on a home of {N_RUNS} runs, median of {N_REQUESTS} requests; the first one after a start, "
        f"read from the home, took {1000 * first:.0f} ms",
    )
    if latencies:
        report(
            "page_event_to_pixel",
            quantiles(latencies, n=20)[-1],
            "ms",
            Goal(value_at_most=250.0),
            note=f"95 % of {N_POINTS} points that are added to a learning curve at {1 / PAUSE_SECONDS:g} a second are "
            f"shown in Chromium in less; median {median(latencies):.0f} ms, longest {max(latencies):.0f} ms",
        )


def _latencies(home: Home) -> list[float]:
    """Milliseconds from the append of each point to the frame that shows it; none without a browser."""
    playwright = import_peer("playwright.sync_api")
    if playwright is None or CHROMIUM is None:
        sys.stderr.write("page_event_to_pixel needs Playwright and Chromium: `make dev`, `apt-get install chromium`\n")
        return []
    run_id = Store(home).ledger.runs()["run_id"][0]
    with playwright.sync_playwright() as api:
        browser = api.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{URL}/?token={TOKEN}")
        _append(home, run_id, 1)
        page.locator("#plot-curve").scroll_into_view_if_needed()
        page.locator("#plot-curve .main-svg").first.wait_for()
        page.evaluate(WATCH)
        appended = {}
        for number in range(2, N_POINTS + 2):
            page.wait_for_timeout(1000 * PAUSE_SECONDS)
            appended[str(number)] = 1000 * time.time()
            _append(home, run_id, number)
        page.wait_for_timeout(2000)
        shown = page.evaluate("window.shown")
        browser.close()
    return [shown[number] - at for number, at in appended.items()]


def _append(home: Home, run_id: str, timesteps: int) -> None:
    progress = Progress(
        task_id="",
        run_id=run_id,
        stage="train.step",
        message="",
        timestamp=now(),
        fold=0,
        seed=0,
        timesteps=timesteps,
        total_timesteps=N_POINTS + 1,
        metrics={"mean_reward": 1e-5 * timesteps},
    )
    append_point(home, progress)


if __name__ == "__main__":
    main()
