import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.experiments.plan_kinds import VALIDATION_ONLY
from nvtrader_pipelines.runs.run_document import summary_rows
from nvtrader_pipelines.runs.run_tables import complete_run, replace_run
from nvtrader_pipelines.service.cli.summary import print_period, print_summary
from nvtrader_pipelines.service.consoles import plain_console
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS
from tests.runs.test_run_tables import FOLDS, FORESEEING, run_named
from tests.storage.table_rows import AT, conform

pytestmark = pytest.mark.slow

FIGURES = {"sharpe": 0.5, "sharpe_low": 0.1, "sharpe_high": 0.9, "cagr": 0.1, "max_drawdown": 0.2, "cost_per_year": 0.0}


@pytest.fixture
def evaluated_home(tmp_path):
    """A home with two evaluated experiments, one of them for validation only."""
    home = Home(tmp_path)
    store = Store(home)
    for run_id, name, folds in (("1" * 16, "ppo", FOLDS), ("2" * 16, "cv", FORESEEING)):
        warnings = ("a common warning", *([VALIDATION_ONLY] if name == "cv" else []))
        run = run_named(run_id, folds=folds).model_copy(update={"experiment": name, "warnings": warnings})
        verdict = {"policy": [name], "kind": ["ensemble"], "period": ["all"], "turnover_per_year": [1.0]}
        rows = pl.DataFrame(verdict).with_columns(pl.lit(value).alias(figure) for figure, value in FIGURES.items())
        replace_run(store, EVALUATIONS, conform(EVALUATIONS, rows), run)
        complete_run(store, run, AT)
    return home


def test_summary_marks_accounts_and_names_validation_only_runs(evaluated_home):
    console = plain_console(width=200)
    with console.capture() as shown:
        print_summary(Store(evaluated_home), (), console)
    lines = [line.split("0.50")[0].strip() for line in shown.get().splitlines() if "[0.10, 0.90]" in line]
    assert sorted(lines) == ["cv (validation only)", "ppo"]
    assert f"note: cv (run 22222222): {VALIDATION_ONLY}" in shown.get()
    assert "note: a common warning" in shown.get()


def test_summary_rows_flag_validation_only_runs(evaluated_home):
    assert dict(summary_rows(Store(evaluated_home)).select("policy", "validation_only").rows()) == {
        "ppo": False,
        "cv": True,
    }


def test_period_prints_the_best_experiments_and_every_baseline():
    names = [f"sweep-{i:02}" for i in range(20)]
    verdicts = pl.DataFrame(
        {
            "policy": [*names, "equal_weight"],
            "kind": ["ensemble"] * 20 + ["baseline"],
            "period": "all",
            "first_session": dt.date(2020, 1, 2),
            "last_session": dt.date(2021, 1, 4),
            "n_sessions": 252,
            "turnover_per_year": 1.0,
            **{name: [value] * 21 for name, value in FIGURES.items() if name != "sharpe"},
            "sharpe": [i / 10 for i in range(20)] + [0.05],
            **dict.fromkeys(("sharpe_difference", "sharpe_difference_low", "sharpe_difference_high")),
        }
    )
    console = plain_console(width=200)
    with console.capture() as shown:
        print_period(verdicts, "all", console)
    lines = [line.split()[0] for line in shown.get().splitlines()[2:]]
    assert lines == [*reversed(names[8:]), "equal_weight", "…"]
    assert "… 8 more experiments; `nvtrader scoreboard` and `nvtrader report` show all" in shown.get()


def test_summary_has_a_table_per_market(evaluated_home, monkeypatch):
    rows = summary_rows(Store(evaluated_home))
    two = rows.with_columns(market=pl.when(pl.col("policy") == "cv").then(pl.lit("coins")).otherwise("market"))
    monkeypatch.setattr("nvtrader_pipelines.service.cli.summary.summary_rows", lambda *_: two)
    console = plain_console(width=200)
    with console.capture() as shown:
        print_summary(Store(evaluated_home), (), console)
    titles = [line.split(" (")[0] for line in shown.get().splitlines() if line.endswith("net of costs")]
    assert sorted(titles) == ["coins, all", f"{rows['source'][0]}, all"]
