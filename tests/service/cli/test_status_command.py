import datetime as dt
import json

from nvtrader_pipelines.notifications.send_due import record_command
from tests.research.sessions import a_journal, a_session, write_session
from tests.service.cli.sample_plans import AT, SESSION, TURNOVER, append_plan, plan, write_book


def test_status_of_a_busy_home_fits_80_by_24(home, command):
    invoke = command(home)
    write_book(home, 1.0, 1.1)
    for days in range(9):
        append_plan(home, plan(SESSION + dt.timedelta(days)), TURNOVER)
        record_command(home, f"nvtrader trade --account a{days}", "no bars " * 40, AT)
    searches = [write_session(home, a_session(f"20260302-09000{i}-aaaa"), a_journal(12).lines) for i in range(3)]
    assert invoke("halt", "--reason", "the prices look wrong " * 9).exit_code == 0
    with searches[0].lock():
        lines = invoke("status", env={"COLUMNS": "80"}).stdout.splitlines()
    assert len(lines) < 24
    assert max(len(line) for line in lines if not line.startswith("home")) <= 80
    assert [line.split()[:6] for line in lines if "search" in line] == [
        ["runs", "search", "20260302-090000-aaaa:", "12", "of", "30"]
    ]
    labels = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert labels == ["home", "trades", "runs", "waits", "failed", "ui", "halted", "next"]
    document = json.loads(invoke("status", "--json").stdout)
    assert (len(document["waiting_plans"]), len(document["failed_commands"])) == (9, 9)
    assert lines[-1].split(maxsplit=1)[1] == "{sentence}: {command}".format(**document["next_step"])
