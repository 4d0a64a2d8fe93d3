import csv
import io
import json
import re

import polars as pl
import pytest
import yaml

from nvtrader_pipelines.runs.training_time import TrainingEstimate
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT, USAGE
from nvtrader_pipelines.service.cli.experiment_commands import confirm_long
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from tests.homes import KEY, SPEC, SWEEP, SWEPT, small_home, write_experiment
from tests.runs.small_runs import land
from tests.service.cli.error_lines import is_one_line_error
from tests.storage.ledger.run_rows import run_row

BAR = "━"
FORMATS = ["table", "csv", "json"]


@pytest.fixture
def home(tmp_path):
    """A home with an experiment without runs."""
    return small_home(tmp_path / "home")


@pytest.fixture
def at_home(home, command):
    return command(home)


def specs(home):
    """Read the experiments of the files, by name."""
    return {spec.name: spec for spec in read_experiments(home).specs}


def test_new_writes_file_with_defaults_and_prints_next_command(home, at_home):
    found = at_home("experiments", "new", "first")
    path = home.experiments / "first.yaml"
    assert found.exit_code == 0
    assert found.stdout == f"{path}\nedit it, then: nvtrader experiments run first\n"
    assert specs(home)["first"].agent.kind == yaml.safe_load(path.read_text())["agent"]["kind"]


def test_new_with_like_extends_the_other_file(home, at_home):
    written = json.loads(at_home("experiments", "new", "second", "--like", "tiny", "--json").stdout)
    assert written == {"name": "second", "path": str(home.experiments / "second.yaml")}
    assert specs(home)["second"] == SPEC.model_copy(update={"name": "second"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("new", "tiny"), "experiment tiny already exists in "),
        (("new", "Bad Name"), "'Bad Name' cannot be the name of an experiment"),
        (("new", "other", "--like", "tinny"), "there is no experiment 'tinny'; there are tiny; did you mean 'tiny'?"),
        (("diff", "huge"), "no experiment is named 'huge'; there are: tiny"),
        (("diff", "tiny", "tiny@00000000"), "version tiny@00000000 is not registered; `nvtrader experiments list`"),
        (("diff", "tiny@00000000"), "version tiny@00000000 is not registered"),
        (("diff", "tiny", "nowhere.yaml"), "nowhere.yaml cannot be read: No such file"),
        (("run", "huge"), "no experiment is named 'huge'; there are: tiny"),
        (("run", "data/experiments/tiny.yaml"), "there are: tiny; did you mean 'tiny'?"),
        (("validate", ""), "no experiment is named ''; there are: tiny"),
        (("new", "ÄB"), "must have 1 to 63 lower-case letters a to z, digits and dashes (such as my-first), begin"),
    ],
)
def test_invalid_request_exits_with_3_in_one_line(home, at_home, arguments, words):
    before = {path: path.read_bytes() for path in home.experiments.iterdir()}
    found = at_home("experiments", *arguments)
    assert found.exit_code == BAD_INPUT
    assert words in found.stderr
    assert is_one_line_error(found.stderr)
    assert found.stdout == ""
    assert {path: path.read_bytes() for path in home.experiments.iterdir()} == before


def test_run_without_name_exits_with_2(at_home):
    assert at_home("experiments", "run").exit_code == USAGE


def test_list_shows_unregistered_files(at_home):
    (row,) = json.loads(at_home("experiments", "list", "--json").stdout)
    known = {"partition_key": KEY, "in_files": True, "agent": "ppo", "design": "walk_forward"}
    assert row == {**known, "registered_at": None, "runs": 0, "last_status": None}


def test_list_shows_a_template_as_draft(at_home):
    at_home("experiments", "new", "mine")
    rows = json.loads(at_home("experiments", "list", "--json").stdout)
    states = {row["partition_key"].partition("@")[0]: row["last_status"] for row in rows}
    assert states == {"mine": "draft", "tiny": None}


@pytest.mark.parametrize("form", FORMATS)
def test_versions_are_listed_with_their_runs(invoke, form):
    found = invoke("experiments", "list", "-f", form)
    assert found.exit_code == 0
    assert KEY in found.stdout
    assert "done" in found.stdout


def test_list_skips_invalid_file_with_reason(home, at_home):
    write_experiment(home, "broken.yaml", name="broken", seeds=[1])
    found = at_home("experiments", "list", "--json")
    assert [row["partition_key"] for row in json.loads(found.stdout)] == [KEY]
    assert "skipped: broken.yaml is not a valid experiment: seeds" in found.stderr


def test_list_all_keeps_version_whose_file_has_changed(home, at_home):
    Store(home).ledger.register(SPEC)
    write_experiment(home, seeds=[3, 4, 5])
    rows = json.loads(at_home("experiments", "list", "--all", "--json").stdout)
    assert {row["partition_key"]: row["in_files"] for row in rows} == {
        KEY: False,
        specs(home)["tiny"].partition_key: True,
    }


@pytest.mark.parametrize("right", ["name", "version", "file"])
def test_diff_accepts_name_version_or_file(home, at_home, right):
    Store(home).ledger.register(SPEC)
    write_experiment(home, "other.yaml", name="other", report_from="2018-01-01")
    path = home.experiments / "other.yaml"
    version = Store(home).ledger.register(specs(home)["other"])
    named = {"name": "other", "version": version, "file": str(path)}[right]
    rows = json.loads(at_home("experiments", "diff", KEY, named, "--json").stdout)
    assert rows == [
        {"field": "name", "left": "tiny", "right": "other"},
        {"field": "report_from", "left": "2017-01-01", "right": "2018-01-01"},
    ]
    shown = at_home("experiments", "diff", KEY, named).stdout
    assert shown.splitlines() == [
        f"{KEY} -> {named}",
        "  name: tiny -> other",
        "  report_from: 2017-01-01 -> 2018-01-01",
    ]
    comma = list(csv.DictReader(io.StringIO(at_home("experiments", "diff", KEY, named, "-f", "csv").stdout)))
    assert comma == rows


def test_diff_of_changed_file_uses_version_before_it(home, at_home):
    ledger = Store(home).ledger
    ledger.register(SPEC)
    write_experiment(home, seeds=[0, 1, 5])
    expected = [{"field": "seeds.2", "left": "2", "right": "5"}]
    assert json.loads(at_home("experiments", "diff", "tiny", "--json").stdout) == expected
    version = ledger.register(specs(home)["tiny"])
    assert json.loads(at_home("experiments", "diff", "tiny", "--json").stdout) == expected
    assert json.loads(at_home("experiments", "diff", version, "--json").stdout) == expected
    assert at_home("experiments", "diff", "tiny").stdout == f"{KEY} -> tiny\n  seeds.2: 2 -> 5\n"


def test_diff_of_equal_experiments_prints_the_same(at_home):
    assert at_home("experiments", "diff", "tiny", "tiny").stdout == "tiny and tiny are the same\n"


def test_diff_of_first_version_is_empty(at_home, invoke):
    assert at_home("experiments", "diff", "tiny").stdout == "tiny has no earlier registered version\n"
    assert json.loads(invoke("experiments", "diff", KEY, "--json").stdout) == []


@pytest.mark.slow
def test_ablation_has_one_child_version_and_run_per_value(swept_home):
    ledger = Store(swept_home).ledger
    versions = ledger.versions()
    (parent,) = versions.filter(name="sweep")["spec_hash"]
    variants = versions.filter(pl.col("partition_key").is_in(SWEPT))
    assert variants["parent_hash"].to_list() == [parent] * 2
    runs = ledger.runs().filter(kind="walk_forward")
    assert sorted(runs["partition_key"]) == sorted([KEY, *SWEPT])
    assert set(runs["status"]) == {"done"}
    costs = [ledger.read(key).environment.turnover_cost_bps for key in SWEPT]
    assert costs == [0.0, 20.0]


@pytest.mark.slow
def test_run_on_terminal_shows_bar_and_then_results(swept_home):
    shown = (swept_home.root.parent / "swept-home.txt").read_text()
    assert re.search(rf"{BAR}.*\b\d+%", shown)
    assert "fold 0 seed" in shown
    result = shown[shown.rindex(BAR) :]
    assert "\x1b[?25h" in result  # shows the cursor again
    assert "net Sharpe" in result
    assert all(f"equal_weight ({key.partition('@')[0]})" in result for key in SWEPT)


@pytest.mark.slow
def test_completed_ablation_is_not_run_again(swept_home, command):
    before = Store(swept_home).ledger.runs().filter(kind="walk_forward")
    found = command(swept_home)("experiments", "run", "sweep", "--no-judge", "--json")
    assert found.exit_code == 0
    rows = json.loads(found.stdout)
    assert {row["experiment"] for row in rows} == {key.partition("@")[0] for key in SWEPT}
    assert Store(swept_home).ledger.runs().filter(kind="walk_forward").equals(before)


@pytest.mark.slow
def test_run_in_a_pipe_shows_no_bar(swept_home, command):
    found = command(swept_home)("experiments", "run", "sweep", "--no-judge")
    assert BAR not in found.stdout
    assert "\x1b" not in found.stdout
    assert f"experiment 2 of 2: {SWEPT[1]} is up to date" in found.stdout


def test_validate_reports_each_file_and_registers_nothing(home, at_home):
    write_experiment(home, "broken.yaml", name="broken", seeds=[1])
    found = at_home("experiments", "validate", "--json")
    assert found.exit_code == BAD_INPUT
    problems = {row["experiment"]: row["problem"] for row in json.loads(found.stdout)}
    assert problems["broken"].startswith("broken.yaml is not a valid experiment: seeds")
    assert problems["tiny"].startswith("there is no panel of source 'landing'")
    lines = at_home("experiments", "validate", env={"COLUMNS": "80"}).stdout.splitlines()
    assert {f"{name}: {problem}" for name, problem in problems.items()} <= set(lines)
    assert Store(home).ledger.versions().is_empty()
    assert at_home("experiments", "validate", "tinny").exit_code == BAD_INPUT


def test_show_of_an_invalid_file_is_refused_with_its_problem(home, at_home):
    write_experiment(home, "broken.yaml", name="broken", seeds=[1])
    found = at_home("experiments", "show", "broken")
    assert found.exit_code == BAD_INPUT
    assert "error: broken.yaml is not a valid experiment: seeds" in found.stderr


def test_validate_without_any_experiment_is_refused(tmp_path, command):
    (tmp_path / "data" / "experiments").mkdir(parents=True)
    found = command(Home(tmp_path))("experiments", "validate")
    assert found.exit_code == BAD_INPUT
    assert "there is no experiment to check in " in found.stderr


def test_validate_of_a_plannable_experiment_exits_with_0(invoke):
    found = invoke("experiments", "validate", "tiny", "--json")
    (row,) = json.loads(found.stdout)
    assert (found.exit_code, row["runs"], row["folds"], row["seeds"], row["problem"]) == (0, 1, 3, 3, None)
    assert row["training"].startswith("training tiny takes about ")


def test_show_holds_spec_state_and_last_run(invoke):
    document = json.loads(invoke("experiments", "show", "tiny", "--json").stdout)
    assert (document["version"], document["spec_hash"]) == (KEY, SPEC.spec_hash)
    assert (document["is_registered"], document["is_archived"]) == (True, False)
    assert document["last_run"]["status"] == "done"
    assert document["spec"] == SPEC.model_dump(mode="json")
    assert "hash             " + SPEC.spec_hash in invoke("experiments", "show", "tiny").stdout


def test_archived_experiment_leaves_the_list_until_unarchived(home, at_home):
    def listed(*options):
        return [row["partition_key"] for row in json.loads(at_home("experiments", "list", "--json", *options).stdout)]

    assert listed() == [KEY]
    assert json.loads(at_home("experiments", "archive", "tiny", "--json").stdout)["names"] == ["tiny"]
    assert (listed(), listed("--all")) == ([], [KEY])
    found = at_home("experiments", "run", "tiny")
    assert found.exit_code == BAD_INPUT
    assert "tiny is archived; `nvtrader experiments unarchive tiny`" in found.stderr
    at_home("experiments", "unarchive", "tiny")
    assert listed() == [KEY]


def test_archive_takes_several_names_and_checks_all_first(home, at_home):
    write_experiment(home, "other.yaml", name="other")
    ledger = Store(home).ledger
    found = at_home("experiments", "archive", "tiny", "nope")
    assert (found.exit_code, ledger.archived_names()) == (BAD_INPUT, set())
    assert "no experiment is named 'nope'" in found.stderr
    assert at_home("experiments", "archive", "tiny", "other", "tiny").stdout == "archived: tiny, other\n"
    assert ledger.archived_names() == {"tiny", "other"}
    at_home("experiments", "unarchive", "other", "tiny")
    assert ledger.archived_names() == set()


def test_deleted_run_is_deleted_in_list_and_show(home, at_home):
    ledger = Store(home).ledger
    ledger.begin(run_row(ledger, SPEC, run_id="aa11" + "0" * 12))
    ledger.finish("aa11" + "0" * 12, "interrupted")
    ledger.mark_deleted("aa11" + "0" * 12)
    (row,) = json.loads(at_home("experiments", "list", "--json").stdout)
    assert (row["last_status"], row["runs"]) == ("deleted", 0)
    assert json.loads(at_home("experiments", "show", "tiny", "--json").stdout)["last_run"]["status"] == "deleted"


@pytest.mark.slow
def test_validate_warns_of_a_long_training(home, at_home):
    land(Store(home))
    write_experiment(home, agent={"kind": "ppo", "total_timesteps": 10**15})
    found = at_home("experiments", "validate", "--json")
    (row,) = json.loads(found.stdout)
    assert (found.exit_code, row["problem"]) == (0, None)
    assert row["warnings"][0].startswith("a training of more than a day needs --yes, but training tiny takes about ")


def test_list_hides_versions_without_file_and_run(home, at_home):
    Store(home).ledger.register(SPEC.model_copy(update={"name": "typo"}))
    found = at_home("experiments", "list", "--json")
    assert [row["partition_key"] for row in json.loads(found.stdout)] == [KEY]
    assert found.stderr.startswith("1 not listed, archived or without file and run")


def test_long_training_without_a_terminal_needs_yes(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(ValueError):
        confirm_long([TrainingEstimate("big", 10**9, 1000.0, is_measured=False)])


def test_diff_compares_variants_by_name(home, at_home):
    write_experiment(home, "sweep.yaml", **SWEEP)
    names = [key.partition("@")[0] for key in SWEPT]
    rows = json.loads(at_home("experiments", "diff", *names, "--json").stdout)
    assert [(row["field"], row["left"], row["right"]) for row in rows] == [
        ("name", *names),
        ("environment.turnover_cost_bps", "0.0", "20.0"),
    ]


@pytest.mark.slow
def test_variant_run_alone_keeps_parent_version(swept_home, command):
    name = SWEPT[1].partition("@")[0]
    assert (
        f"experiment 1 of 1: {SWEPT[1]} is up to date"
        in command(swept_home)("experiments", "run", name, "--no-judge").stdout
    )
    versions = Store(swept_home).ledger.versions()
    (parent,) = versions.filter(name="sweep")["spec_hash"]
    assert versions.filter(name=name)["parent_hash"].to_list() == [parent]


@pytest.mark.slow
def test_list_marks_variants_of_a_sweep_as_in_files(swept_home, command):
    rows = json.loads(command(swept_home)("experiments", "list", "--json").stdout)
    listed = {row["partition_key"]: (row["in_files"], row["runs"] > 0) for row in rows}
    assert all(listed[key] == (True, True) for key in SWEPT)
    (sweep,) = (row for row in rows if row["design"] == "ablation")
    assert (sweep["runs"], sweep["last_status"]) == (0, None)  # the parent of a sweep has no runs
