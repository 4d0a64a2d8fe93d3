import polars as pl
import pytest
from rich.console import Console

from nvtrader_pipelines.experiments.plan import VALIDATION_ONLY
from nvtrader_pipelines.runs.run_tables import complete_run, replace_run
from nvtrader_pipelines.service.cli.summary import print_summary, summary
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS
from tests.runs.test_tables import FOLDS, FORESEEING, run_named
from tests.storage.frames import AT, in_shape

FIGURES = {"sharpe": 0.5, "sharpe_low": 0.1, "sharpe_high": 0.9, "cagr": 0.1, "max_drawdown": 0.2, "cost_per_year": 0.0}


@pytest.fixture
def judged_home(tmp_path):
    """A home with two judged experiments, one of them for validation only."""
    home = Home(tmp_path)
    store = Store(home)
    for run_id, name, folds in (("1" * 16, "ppo", FOLDS), ("2" * 16, "cv", FORESEEING)):
        warnings = ("everybody reads this", *([VALIDATION_ONLY] if name == "cv" else []))
        run = run_named(run_id, folds=folds).model_copy(update={"experiment": name, "warnings": warnings})
        verdict = {"policy": [name], "kind": ["ensemble"], "period": ["all"], "turnover_per_year": [1.0]}
        rows = pl.DataFrame(verdict).with_columns(pl.lit(value).alias(figure) for figure, value in FIGURES.items())
        replace_run(store, EVALUATIONS, in_shape(EVALUATIONS, rows), run)
        complete_run(store, run, AT)
    return home


def test_accounts_of_a_run_for_validation_only_are_marked_and_the_note_names_it(judged_home):
    console = Console(width=200)
    with console.capture() as shown:
        print_summary(Store(judged_home), (), console)
    lines = [line.split("0.50 [0.10, 0.90]")[0].strip() for line in shown.get().splitlines() if "0.50 [" in line]
    assert sorted(lines) == ["cv (validation only)", "ppo"]
    assert f"note: cv (run 22222222): {VALIDATION_ONLY}" in shown.get()
    assert "note: everybody reads this" in shown.get()


def test_the_summary_says_which_runs_are_for_validation_only(judged_home):
    assert dict(summary(Store(judged_home)).select("policy", "validation_only").rows()) == {"ppo": False, "cv": True}
