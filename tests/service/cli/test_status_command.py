import datetime as dt
import json

from nvtrader_pipelines.notifications.send_due import record_command
from tests.service.cli.sample_plans import AT, SESSION, TURNOVER, append_plan, plan, write_book


def test_status_of_a_busy_home_fits_80_by_24(home, command):
    invoke = command(home)
    write_book(home, 1.0, 1.1)
    for days in range(9):
        append_plan(home, plan(SESSION + dt.timedelta(days)), TURNOVER)
        record_command(home, f"nvtrader trade --account a{days}", "no bars " * 40, AT)
    assert invoke("halt", "--reason", "the prices look wrong " * 9).exit_code == 0
    lines = invoke("status", env={"COLUMNS": "80"}).stdout.splitlines()
    assert len(lines) < 24
    assert max(len(line) for line in lines if not line.startswith("home")) <= 80
    labels = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert labels == ["home", "trades", "runs", "waits", "failed", "ui", "halted", "next"]
    document = json.loads(invoke("status", "--json").stdout)
    assert (len(document["waiting_plans"]), len(document["failed_commands"])) == (9, 9)
    assert lines[-1].split(maxsplit=1)[1] == document["next_command"]
