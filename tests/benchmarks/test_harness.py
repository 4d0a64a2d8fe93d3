import json
import operator
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks import __main__ as harness
from benchmarks.claim import RESULTS
from benchmarks.harness import find_benchmarks
from tests.benchmarks.conftest import REPORT

FAST = 'report("fast", 1.0, "s", Goal(value_at_most=2))'
SLOW = 'report("slow", 3.0, "s", Goal(value_at_most=2))'
NAME = operator.attrgetter("name")
OURS = [each.name for each in find_benchmarks(RESULTS.parent)]


@pytest.mark.parametrize("name", OURS)
def test_every_benchmark_has_a_one_sentence_summary(name):
    (benchmark,) = [each for each in find_benchmarks(RESULTS.parent) if each.name == name]
    assert benchmark.summary.endswith(".")


def test_benchmarks_are_modules_with_main_in_order(fakes):
    for name in ("of_20", "of_8", "environment"):
        folder = fakes(name, FAST)
    (folder / "no_benchmark.py").write_text("import a_peer_that_is_missing\n")
    assert [each.name for each in find_benchmarks(folder)] == ["environment", "of_8", "of_20"]
    assert find_benchmarks(folder)[0].summary == "How environment it is."


@pytest.mark.slow
def test_failing_benchmark_does_not_stop_the_others(fakes, tmp_path, capfd):
    fakes("b_broken", f'{FAST.replace("fast", "before")}; raise OSError("the disk is full")')
    fakes("c_silent", "pass")
    folder = fakes("d_slow", SLOW)
    assert harness.main(["--json", str(tmp_path / "run.json")], folder) == harness.FAILED
    out, err = capfd.readouterr()
    lines = [line for line in out.splitlines() if not line.startswith("# ")]
    assert lines == ["before 1 s - <=2 ok", "slow 3 s - <=2 short"]
    assert "# 1 of 3: b_broken: How b_broken it is." in out
    assert "Traceback" in err
    assert "1 ok, 1 short, 2 failed" in out.splitlines()[-1]
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["machine"]["cores"] >= 1
    found = {
        each["benchmark"]: (each["error"], [one["name"] for one in each["figures"]]) for each in document["benchmarks"]
    }
    assert found == {
        "b_broken": ("OSError: the disk is full", ["before"]),
        "c_silent": ("it reported no figure", []),
        "d_slow": (None, ["slow"]),
    }


@pytest.mark.slow
def test_named_benchmarks_alone_replace_results_and_may_miss_goals(fakes, capfd):
    folder = fakes("slow", SLOW.replace("slow", "old-name"))
    assert harness.main([], folder) == harness.OK
    fakes("slow", SLOW)
    fakes("fast", FAST)
    old = folder / "results" / "old-name.json"
    old.with_name("other.json").write_text(old.read_text().replace('"benchmark": "slow"', '"benchmark": "other"'))
    assert harness.main(["slow"], folder) == harness.OK
    assert {path.stem for path in old.parent.iterdir()} == {"other", "slow"}


def test_unknown_benchmark_suggests_the_nearest_name(fakes, capsys):
    with pytest.raises(SystemExit, match="2"):
        harness.main(["environmant"], fakes("environment", FAST))
    assert "did you mean environment?" in capsys.readouterr().err


def test_list_runs_no_benchmark(fakes, capsys):
    folder = fakes("environment", FAST)
    assert harness.main(["--list"], folder) == harness.OK
    assert capsys.readouterr().out == "environment  How environment it is.\n"
    assert not (folder / "results").exists()


@pytest.mark.slow
def test_missing_peer_fails_with_remedy(fakes, capfd):
    assert harness.main([], fakes("environment", "pass", head="import no_such_peer")) == harness.FAILED
    assert "`make bench` installs the peers, perhaps no_such_peer among them" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)], ids=NAME)
@pytest.mark.usefixtures("interruptible")
def test_stopped_run_leaves_no_process_and_keeps_results(fakes, tmp_path, how):
    body = f"""{FAST}
    Path(__file__).with_name("pid").write_text(str(os.getpid()))
    time.sleep(60)"""
    folder = fakes("endless", body, head=f"import os, time\nfrom pathlib import Path\n{REPORT}")
    fakes("later", FAST)
    code = (
        "import sys; from pathlib import Path; from benchmarks.__main__ import main; "
        f"sys.exit(main(['--json', {str(tmp_path / 'run.json')!r}], Path({str(folder)!r})))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        while not (folder / "pid").exists() or not (folder / "pid").read_text():
            assert run.poll() is None
            time.sleep(0.02)
        run.send_signal(how)
        out = run.communicate()[0]
    assert run.returncode == harness.STOPPED
    assert "1 ok, 0 short, 1 failed" in out
    (only,) = json.loads((tmp_path / "run.json").read_text())["benchmarks"]
    assert (only["error"], len(only["figures"])) == ("interrupted", 1)
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)
