"""Empty and torn files of a built home: what doctor and an everyday command answer, and what the remedies make."""

import contextlib
import json
import shlex
import shutil
import sqlite3
import subprocess

import pytest

from nvtrader_pipelines.storage.file_problems import find_damage
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.publishing import publish
from tests.homes import KEY, NVTRADER, copy_home, environment, nvtrader, table_contents

DAMAGES = {
    "empty": lambda _: b"",
    "torn": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}
MLFLOW = "warehouse/mlflow/mlflow.db"  # a mirror: only doctor names it
RUN, LIST = ("experiments", "run", "tiny", "--no-judge"), ("runs", "list")
DELETED = {  # files that are made anew once they are deleted, and commands that read them
    "warehouse/market.json": RUN,
    "warehouse/pipeline.json": ("materialize",),
    "warehouse/dagster/dagster.yaml": RUN,
    "warehouse/dagster/history/runs.db": RUN,
    "warehouse/dagster/history/runs/index.db": RUN,
    "warehouse/dagster/schedules/schedules.db": RUN,
}
REBUILT = {  # files that only a backup or a new warehouse restores
    "warehouse/catalog.db": LIST,
    "warehouse/ledger.db": LIST,
    "warehouse/iceberg/gold/returns/metadata/*.metadata.json": ("tables",),
    "warehouse/iceberg/rl/runs/metadata/snap-*.avro": LIST,
    "warehouse/iceberg/rl/runs/metadata/*-m0.avro": LIST,
    "warehouse/iceberg/rl/runs/data/**/*.parquet": LIST,
}
TRAINED = dict.fromkeys(
    (f"data/rl/policies/{KEY}/*/fold-0-seed-0.zip", f"data/rl/policies/{KEY}/*/manifest.json"),
    ("policies", "activate", "tiny"),
)
CASES = [  # one damage of each file; the others nightly
    pytest.param(file, kind, everyday, remedy, marks=[pytest.mark.nightly] if kind != "zeros" else [])
    for files, remedy in [(DELETED, "materialize"), (REBUILT, "materialize"), (TRAINED, "experiments run tiny")]
    for file, everyday in files.items()
    for kind in DAMAGES
    if (file, kind) != ("warehouse/dagster/dagster.yaml", "torn")  # people change it, so half of it may be all of it
]


@pytest.fixture(scope="module")
def damaged_home(built_home, tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged") / "home"
    shutil.copytree(built_home.root, root)
    return Home(root)


@pytest.mark.parametrize(("pattern", "kind", "everyday", "remedy"), CASES)
def test_damaged_file_has_a_sentence_with_the_remedy(pattern, kind, everyday, remedy, damaged_home, command):
    path = max(damaged_home.root.glob(pattern))
    before, invoke = path.read_bytes(), command(damaged_home)
    path.write_bytes(DAMAGES[kind](before))
    try:
        found, answer = invoke("doctor", "--json"), invoke(*everyday)
    finally:
        path.write_bytes(before)
    assert found.exit_code == 1
    assert remedy in found.stdout
    assert answer.exit_code == 3, answer.output
    assert answer.stderr.count("\n") == 1
    assert f"nvtrader {remedy}" in answer.stderr
    assert "unexpected" not in found.output + answer.output


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.nightly) for kind in DAMAGES), "half-migrated"]
)
def test_damaged_mlflow_database_is_named_by_doctor_only(kind, damaged_home, command):
    path, invoke = damaged_home.root / MLFLOW, command(damaged_home)
    before = path.read_bytes()
    if kind == "half-migrated":
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE _alembic_tmp_experiments (n)")
            database.execute("DROP TABLE runs")
    else:
        path.write_bytes(DAMAGES[kind](before))
    try:
        found, answer = invoke("doctor", "--json"), invoke("experiments", "list")
        assert path.exists()
    finally:
        path.write_bytes(before)
    assert (found.exit_code, answer.exit_code) == (1, 0)
    assert str(path) in found.stdout
    assert "unexpected" not in found.output + answer.output


@pytest.mark.nightly
def test_deleted_files_are_made_anew(built_home, tmp_path, fast_nvtrader):
    home = Home(tmp_path / "home")
    shutil.copytree(built_home.root, home.root)
    for file in DELETED:
        (home.root / file).write_bytes(b"")
    errors = list(find_damage(home))
    assert {str(error.path.relative_to(home.root)) for error in errors} == set(DELETED)
    for error in errors:
        (remedy,) = [part for part in error.remedy.split("`") if part.startswith("rm ")]
        subprocess.run(["bash", "-c", remedy.partition(" && ")[0]], check=True)
    done = nvtrader(home, "materialize", command=fast_nvtrader)
    assert done.returncode == 0, done.stderr
    assert list(find_damage(home)) == []
    expected, found = table_contents(built_home), table_contents(home)
    assert [name for name, rows in expected.items() if not found[name].equals(rows)] == []


def policy_files(home):
    return {path.relative_to(home.root): path.read_bytes() for path in home.policies.rglob("*.*")}


@pytest.mark.nightly
@pytest.mark.parametrize("damage", ["torn", "removed"])
def test_damaged_policy_is_trained_again_to_the_same_bytes(damage, built_home, tmp_path, fast_nvtrader):
    home, expected = Home(tmp_path / "home"), policy_files(built_home)
    shutil.copytree(built_home.root, home.root)
    for name in ("fold-0-seed-0.zip", "latest.json") if damage == "removed" else ("fold-0-seed-0.zip", "manifest.json"):
        (path,) = home.policies.rglob(name)
        path.unlink()
        if damage == "torn":
            path.write_bytes(b"PK torn")
    again = nvtrader(home, "experiments", "run", "tiny", "--no-judge", command=fast_nvtrader)
    assert again.returncode == 0, again.stderr
    assert policy_files(home) == expected
    assert Store(home).policies.is_intact(*Store(home).ledger.runs().select("partition_key", "run_id").row(0))


@pytest.mark.nightly
def test_training_without_mlflow_gives_the_same_bytes_and_one_warning(built_home, tmp_path, fast_nvtrader):
    home, expected = Home(tmp_path / "home"), policy_files(built_home)
    shutil.copytree(built_home.root, home.root)
    next(home.policies.rglob("fold-0-seed-0.zip")).unlink()
    shutil.rmtree(home.mlflow)
    home.mlflow.write_bytes(b"")
    again = nvtrader(home, "experiments", "run", "tiny", "--no-judge", command=fast_nvtrader)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("MLflow's store failed") == 1
    assert policy_files(home) == expected
    assert Store(home).ledger.runs()["status"].to_list() == ["done"]


@pytest.mark.nightly
def test_tampered_active_policy_is_refused_until_it_is_trained_again(built_home, tmp_path, fast_nvtrader):
    home, expected = Home(tmp_path / "home"), policy_files(built_home)
    shutil.copytree(built_home.root, home.root)
    first = nvtrader(home, "policies", "activate", "tiny", command=fast_nvtrader)
    assert first.returncode == 0, first.stderr
    path = next(home.policies.rglob("fold-0-seed-0.zip"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    refused = nvtrader(home, "policies", "activate", "tiny", command=fast_nvtrader)
    assert refused.returncode == 3
    (remedy,) = [part for part in refused.stderr.split("`") if part.startswith("nvtrader")]
    assert nvtrader(home, *shlex.split(remedy)[1:], command=fast_nvtrader).returncode == 0
    assert policy_files(home) == expected
    assert nvtrader(home, "policies", "activate", "tiny", command=fast_nvtrader).returncode == 0


@pytest.mark.nightly
def test_removed_warehouse_is_built_again_with_its_training_episodes(built_home, tmp_path, fast_nvtrader):
    home = Home(tmp_path / "home")
    shutil.copytree(built_home.root, home.root)
    home.ledger.write_bytes(b"")
    refused = nvtrader(home, "runs", "list", command=fast_nvtrader)
    (remedy,) = [part for part in refused.stderr.split("`") if part.startswith("rm -r ")]
    script = remedy.replace("nvtrader materialize", f"{shlex.quote(str(fast_nvtrader))} materialize")
    done = subprocess.run(["bash", "-c", script], env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected, found = table_contents(built_home), table_contents(home)
    assert [name for name, rows in expected.items() if not found[name].equals(rows)] == []


@pytest.mark.nightly
def test_read_only_home_answers(built_home, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    publish(Store(home))  # views name the folder of the home
    steps = f"mount --bind {home.root} {home.root} && mount -o remount,ro,bind {home.root} && exec "
    for words in ("doctor --json", "status --json", "runs --json", "sql --json 'SELECT kind FROM portfolio.audit'"):
        shell = ["unshare", "-m", "sh", "-c", f"{steps}{NVTRADER} {words}"]
        finished = subprocess.run(shell, capture_output=True, text=True, check=False, env=environment(home))
        if "mount" in finished.stderr or "unshare" in finished.stderr:
            pytest.skip("only root may mount")
        assert finished.returncode in ((0, 1) if words.startswith("doctor") else (0,)), finished.stderr
        assert isinstance(json.loads(finished.stdout), list | dict)
