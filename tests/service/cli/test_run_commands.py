import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.orchestration.mlflow_tracking import MlflowTracking
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, INTERRUPTED, USAGE
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, REWARD_DECOMPOSITION, RUNS, TRAJECTORIES
from tests.homes import KEY, N_POLICIES, SPEC, SWEPT, run_on_terminal, small_home
from tests.service.cli.error_lines import is_one_line_error
from tests.storage.ledger.run_rows import run_row

FREE = SWEPT[0].partition("@")[0]  # the experiment without costs


@pytest.fixture(scope="module")
def run(built_home):
    """The sealed run of the built home."""
    return Store(built_home).policies.read_latest(KEY)


@pytest.fixture(scope="module")
def swept_run(swept_home):
    """A sealed run of the swept home."""
    return Store(swept_home).policies.read_latest(SWEPT[0])


@pytest.fixture
def sweep(swept_home, command):
    """The command on the swept home."""
    return command(swept_home)


@pytest.fixture
def failed_home(tmp_path):
    """A home with a failed run and one in progress, both without policies."""
    home = small_home(tmp_path / "home")
    ledger = Store(home).ledger
    for run_id in ("aa11" + "0" * 12, "aa22" + "0" * 12):
        ledger.begin(run_row(ledger, SPEC, run_id=run_id, kind="walk_forward"))
    ledger.finish("aa11" + "0" * 12, "failed", message="no data")
    return home


def test_runs_table_is_at_most_130_wide(invoke, run):
    found = invoke("runs")
    heads, line, count = found.stdout.splitlines()[:3]
    assert (
        " ".join(heads.split()) == "run experiment net Sharpe, all tests status Sharpe 95 % kind window started parent"
    )
    assert line.split()[:2] == [run.run_id[:8], KEY]
    assert {"walk_forward", "done"} <= set(line.split())
    assert " to ".join(map(str, run.as_parent.window)) in line
    assert len(line.rstrip()) < 130
    assert count == "1 row"


@pytest.mark.parametrize("arguments", [("--json",), ("list", "--json"), ("-f", "json"), ("list", "-f", "json")])
def test_runs_json_holds_full_ids_and_intervals(invoke, run, arguments):
    (row,) = json.loads(invoke("runs", *arguments).stdout)
    assert (row["run_id"], row["partition_key"], row["source"]) == (run.run_id, KEY, "landing")
    assert row["sharpe_low"] < row["sharpe"] < row["sharpe_high"]


def test_runs_csv_has_all_columns(invoke, run):
    heads, line = invoke("runs", "list", "-f", "csv").stdout.splitlines()
    assert heads.startswith("run_id,kind,status,partition_key,source,window_first,window_last,parent_run_id,started_at")
    assert line.startswith(f"{run.run_id},walk_forward,done,{KEY},landing,")


def test_runs_of_empty_home_show_next_command(tmp_path, command):
    assert command(Home(tmp_path))("runs").stdout == "no run yet: nvtrader materialize\n"
    assert json.loads(command(Home(tmp_path))("runs", "--json").stdout) == []


def test_message_of_failed_run_is_below_the_table(failed_home, command):
    assert "\naa110000 failed: no data\n" in command(failed_home)("runs").stdout


def test_message_of_several_runs_is_shown_once(failed_home, command):
    Store(failed_home).ledger.finish("aa22" + "0" * 12, "failed", message="no data")
    shown = command(failed_home)("runs").stdout
    assert shown.count("no data") == 1
    assert {"aa110000", "aa220000"} < set(shown.replace(",", "").split())


def test_show_prints_verdict_and_figures_and_names_the_details(invoke, run):
    shown = invoke("runs", "show", run.run_id[:6]).stdout
    assert shown.startswith("tiny is not shown to beat its best baseline, ")
    assert shown.endswith("\nmore: --spec, --files, --events\n")
    assert "all (2016-10-04 to 2018-01-02), net of costs" in shown
    assert "agent.total_timesteps" not in shown
    assert run.spec_hash not in shown


def test_show_prints_spec_policies_events_and_views_on_request(invoke, run):
    shown = invoke("runs", "show", run.run_id[:6], "--spec", "--files", "--events").stdout
    assert shown.startswith("tiny is not shown to beat its best baseline, ")
    assert f"\nrun_id               {run.run_id}\n" in shown
    assert run.spec_hash in shown
    for digest in run.policies.values():
        assert digest in shown
    assert " agent.total_timesteps " in shown
    assert "all (2016-10-04 to 2018-01-02), net of costs" in shown
    assert "net Sharpe" in shown
    assert " fold 2 seed 2: trained" in shown
    assert f"\n  rl_trajectories_run_{run.run_id[:8]}\n" in shown
    policies = shown.partition("\npolicies\n")[2]
    assert policies.split()[:4] == ["file", "sha256", "fold", "seed"]  # without the run id on every line


@pytest.mark.parametrize("name", ["tiny", KEY])
def test_show_by_experiment_or_version_finds_newest_training_run(invoke, run, name):
    document = json.loads(invoke("runs", "show", name, "--json").stdout)
    assert document["run"]["run_id"] == run.run_id
    assert next(iter(document)) == "verdict"
    assert document["spec"] == SPEC.model_dump(mode="json")
    assert {policy["file"]: policy["sha256"] for policy in document["policies"]} == run.policies
    assert len(document["policies"]) == N_POLICIES
    assert {row["period"] for row in document["figures"]} == {"before_2017", "from_2017", "all"}
    assert document["events"][-1]["stage"] == "done"
    assert document["warnings"] == list(run.warnings)


def test_a_run_without_a_verdict_can_be_shown(failed_home, command):
    shown = command(failed_home)("runs", "show", "aa11", "--files", "--events").stdout
    for message in ("no trained policy yet", "no verdict yet", "no event yet"):
        assert message in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "zz"), "no run's id begins with 'zz', and no experiment of that name has a run; see `nvtrader runs`"),
        (("show", ""), "a run is named by its id or an experiment, but the name is empty"),
        (("delete", " ", "--yes"), "the name is empty"),
        (("show", "tinny"), "did you mean 'tiny'?"),
        (("show", "aa12"), "did you mean 'aa22'?"),
        (("show", "aa"), "2 runs begin with 'aa' (aa11"),
        (("replay", "aa11"), "must be trained, but it is failed; `nvtrader experiments run tiny` resumes it"),
        (("forward", "tiny"), "must be trained, but it is failed; `nvtrader experiments run tiny` resumes it"),
        (("compare", "aa11"), "a comparison needs at least two runs"),
        (("compare", "aa11", "aa110"), "one is named twice"),
        (("compare", "aa11", "zz"), "no run's id begins with 'zz'"),
    ],
)
def test_invalid_request_exits_with_3_in_one_line(failed_home, command, arguments, words):
    found = command(failed_home)("runs", *arguments)
    assert found.exit_code == BAD_INPUT
    assert words in found.stderr
    assert is_one_line_error(found.stderr)
    assert found.stdout == ""


@pytest.mark.parametrize("arguments", [("show",), ("replay", "x", "--from", "yesterday"), ("compare",)])
def test_wrong_usage_exits_with_2(invoke, arguments):
    assert invoke("runs", *arguments).exit_code == USAGE


@pytest.mark.parametrize("command_line", [("runs", "replay", "x", "--from"), ("trade", "--to")])
def test_day_that_does_not_exist_is_refused_with_an_example(failed_home, command, command_line):
    found = command(failed_home)(*command_line, "2017-02-30", "--json")
    assert found.exit_code == USAGE
    assert "must be a date such as 2017-02-28, found '2017-02-30'" in json.loads(found.stderr)["error"]


@pytest.mark.slow
def test_runs_are_compared_side_by_side(sweep):
    names = [key.partition("@")[0] for key in SWEPT]
    shown = sweep("runs", "compare", *names, env={"COLUMNS": "240"}).stdout
    assert {"experiment", "CAGR", "turnover/y", "kind", "window"} <= set(" ".join(shown.splitlines()[:2]).split())
    assert [words[1] for words in map(str.split, shown.splitlines()) if "walk_forward" in words] == SWEPT
    assert "  environment.turnover_cost_bps: 0.0 -> 20.0\n" in shown.partition("differences of the specs\n")[2]
    document = json.loads(sweep("runs", "compare", *names, "--json").stdout)
    assert [row["partition_key"] for row in document["runs"]] == SWEPT
    assert all(isinstance(row["sharpe"], float) for row in document["runs"])
    assert [row["account"] for row in document["shared"]["figures"]] == names
    assert [row["total_return"] for row in document["shared"]["figures"]] == pytest.approx(
        [row["total_return"] for row in document["runs"]]
    )
    assert Path(document["shared"]["picture"]).read_bytes().startswith(b"\x89PNG")
    assert shown.splitlines()[-1] == f"picture  {document['shared']['picture']}"
    fields = {row["field"]: (row["left"], row["right"]) for row in document["spec_differences"]}
    assert fields == {"name": tuple(names), "environment.turnover_cost_bps": ("0.0", "20.0")}


def test_compare_of_runs_without_verdict_has_empty_figures(failed_home, command):
    shown = command(failed_home)("runs", "compare", "aa11", "aa22").stdout
    assert " are the same\n" in shown
    lines = [line.split() for line in shown.splitlines() if "walk_forward" in line]
    assert [(cells[0], cells[2]) for cells in lines] == [("aa110000", "walk_forward"), ("aa220000", "walk_forward")]


@pytest.mark.slow
def test_compare_of_runs_without_sessions_has_no_picture(failed_home, command):
    found = command(failed_home)("runs", "compare", "aa11", "aa22")
    assert found.stdout.splitlines()[-1].startswith("no picture: at least 2 sessions must be in all runs")
    shared = json.loads(command(failed_home)("runs", "compare", "aa11", "aa22", "--json").stdout)["shared"]
    assert (shared["figures"], shared["picture"]) == ([], None)


def test_compare_into_file_of_unknown_format_is_refused(failed_home, command, tmp_path):
    found = command(failed_home)("runs", "compare", "aa11", "aa22", "-o", str(tmp_path / "both.pdf"))
    assert found.exit_code == BAD_INPUT
    assert "must end in .png or .svg, but both.pdf ends in .pdf" in found.stderr


@pytest.mark.slow
def test_deleted_run_is_deleted_in_every_command(failed_home, command):
    at_home, run_id = command(failed_home), "aa11" + "0" * 12
    deletion = json.loads(at_home("runs", "delete", "aa11", "--yes", "--json").stdout)
    assert (deletion["run"], deletion["n_files"], deletion["is_trial"]) == (run_id, 0, False)
    again = at_home("runs", "delete", "aa11")
    assert (again.exit_code, len(again.stdout.splitlines())) == (0, 1)
    assert again.stdout.endswith("there is nothing left to delete\n")
    statuses = {row["run_id"]: row["status"] for row in json.loads(at_home("runs", "--all", "--json").stdout)}
    assert statuses[run_id] == "deleted"
    assert "no data" not in at_home("runs", "--all").stdout  # why it failed matters no more
    document = json.loads(at_home("runs", "show", "aa11", "--json").stdout)
    assert (document["run"]["status"], document["verdict"]) == ("deleted", "no verdict: the run is deleted")
    compared = json.loads(at_home("runs", "compare", "aa11", "aa22", "--json").stdout)["runs"]
    assert [row["status"] for row in compared] == ["deleted", "running"]
    assert (
        "but it is deleted; `nvtrader experiments run tiny` trains it again" in at_home("runs", "replay", "aa11").stderr
    )
    assert json.loads(at_home("runs", "show", "tiny", "--json").stdout)["run"]["run_id"] != run_id


def rows_of(home, run_id) -> dict[str, pl.DataFrame]:
    """Read the rows of a run's tests, by table."""
    found = {}
    for table in (TRAJECTORIES, EQUITY_CURVES, ACTION_LOGS, REWARD_DECOMPOSITION):
        rows = Store(home).tables.read(table, {"run_id": [run_id]})
        tested = rows.filter(pl.col("phase") != "train") if "phase" in rows.columns else rows
        plain = [name for name, kind in tested.schema.items() if not kind.is_nested()]
        found[table.name] = tested.drop("run_id", "phase", strict=False).sort(set(plain) - {"run_id", "phase"})
    return found


def assert_tracked(home, row) -> None:
    """Require that a walk of stored policies is a finished run of MLflow with its figures."""
    client, *_ = MlflowTracking.at(home).open()
    run = client.get_run(row["mlflow_run_id"])
    assert (run.info.status, run.data.tags["kind"], run.data.tags["nvtrader.run_id"]) == (
        "FINISHED",
        row["kind"],
        row["run_id"],
    )
    figures = row["metrics"] or {}  # the market ends with the tests, so a forward run has none
    assert run.data.metrics.get("all/sharpe") == figures.get("all/sharpe")
    runs = Store(home).tables.read(RUNS).filter(pl.col("run_id") == row["run_id"])
    assert runs["mlflow_run_id"].to_list() == [row["mlflow_run_id"]]


@pytest.mark.slow
def test_replay_of_own_tests_is_idempotent_with_equal_rows(swept_home, sweep, swept_run):
    first, again = (json.loads(sweep("runs", "replay", FREE, "--json").stdout) for _ in range(2))
    assert first["run"]["run_id"] == again["run"]["run_id"] != swept_run.run_id
    assert first["figures"] == again["figures"]
    assert (first["run"]["kind"], first["run"]["status"]) == ("replay", "done")
    assert first["run"]["parent_run_id"] == swept_run.run_id
    assert first["run"]["spec_hash"] == swept_run.spec_hash
    assert_tracked(swept_home, first["run"])
    tested, replayed = (rows_of(swept_home, run_id) for run_id in (swept_run.run_id, first["run"]["run_id"]))
    for name, rows in tested.items():
        assert len(rows), name
        assert_frame_equal(replayed[name], rows, check_exact=True)


@pytest.mark.slow
def test_replay_while_halted_exits_with_130_and_is_interrupted(swept_home, sweep, monkeypatch):
    monkeypatch.setenv("NVTRADER_KILL_SWITCH", "1")
    found = sweep("runs", "replay", FREE, "--from", "2017-04-03")
    assert found.exit_code == INTERRUPTED
    (line,) = found.stderr.splitlines()
    row = Store(swept_home).ledger.runs().sort("started_at").tail(1)
    assert row.select("kind", "status", "message").rows() == [("replay", "interrupted", line)]


@pytest.mark.slow
def test_replay_of_window_prints_its_run_id_and_is_its_own_replay(swept_home, sweep, swept_run):
    window = ("--from", "2017-03-01", "--to", "2017-05-31")
    found = sweep("runs", "replay", swept_run.run_id[:8], *window)
    assert found.exit_code == 0
    run_id = found.stdout.rpartition("\nrun ")[2].partition(":")[0]
    row = Store(swept_home).ledger.run(run_id)
    assert (str(row.window_first), str(row.window_last)) == ("2017-03-01", "2017-05-31")
    lines = found.stdout.splitlines()
    assert lines[0].endswith(f"start: {SWEPT[0]}: replay of {swept_run.run_id} over 2017-03-01 to 2017-05-31")
    assert "net Sharpe" in found.stdout
    assert lines[-1] == f"run {run_id}: nvtrader runs show {run_id[:8]}"
    assert "━" not in found.stdout
    view = f"SELECT count(*) AS n FROM rl_equity_curves_run_{run_id[:8]}"
    (counted,) = json.loads(sweep("sql", view, "-f", "json").stdout)
    assert counted["n"] > 0
    again = json.loads(sweep("runs", "replay", run_id, *window, "--pinned", "--json").stdout)["run"]
    assert (again["run_id"], again["parent_run_id"]) == (run_id, swept_run.run_id)


@pytest.mark.slow
def test_replay_on_terminal_shows_bar_unless_json(swept_home, fast_nvtrader):
    window = ("--from", "2017-09-01", "--to", "2017-10-31")
    code, shown = run_on_terminal(swept_home, "runs", "replay", FREE, *window, command=fast_nvtrader)
    assert code == 0, shown
    assert "━" in shown
    assert "too short for annualized figures: 42 of 63 sessions" in shown
    code, plain = run_on_terminal(swept_home, "runs", "replay", FREE, *window, "--json", command=fast_nvtrader)
    assert code == 0, plain
    document = json.loads(plain)
    assert document["run"]["window_first"] == "2017-09-01"
    figures = document["figures"]
    assert {row[name] for row in figures for name in ("sharpe", "sortino", "calmar", "cagr", "cost_per_year")} == {None}
    assert all(row["n_sessions"] == 42 and row["max_drawdown"] > 0.0 for row in figures)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "words"),
    [
        (("--from", "2016-09-30"), "a replay must begin on 2016-10-04, the first out-of-sample session"),
        (("--from", "2018-03-01"), "has no session that can be replayed: the market runs from 2016-01-04 to"),
        (("--from", "2017-06-01", "--to", "2017-03-01"), "has no session that can be replayed"),
    ],
)
def test_replay_of_invalid_window_exits_with_3_and_records_no_run(swept_home, sweep, window, words):
    before = set(Store(swept_home).ledger.runs().filter(status="failed")["run_id"])
    found = sweep("runs", "replay", FREE, *window)
    assert found.exit_code == BAD_INPUT
    assert words in found.stderr
    assert is_one_line_error(found.stderr)
    assert set(Store(swept_home).ledger.runs().filter(status="failed")["run_id"]) == before


@pytest.mark.slow
def test_forward_run_shows_last_signal_and_is_idempotent(swept_home, sweep, swept_run):
    shown = sweep("runs", "forward", FREE)
    assert shown.exit_code == 0
    account = shown.stdout.partition("\nthe account\n")[2]
    assert "signal.emitted" in account
    assert "2018-01-02: order for the next fill" in account
    again = json.loads(sweep("runs", "forward", FREE, "--json").stdout)["run"]
    assert f"\nrun {again['run_id']}: " in shown.stdout
    assert (again["kind"], again["parent_run_id"]) == ("forward", swept_run.run_id)
    assert_tracked(swept_home, again)
