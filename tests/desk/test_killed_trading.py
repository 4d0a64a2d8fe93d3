"""Trading processes killed between any two durable effects of a rebalance."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.home import Home
from tests.desk.killed_trading import LEVERED, N_KILLS

SEED = 7
ROOT = Path(__file__).parents[2]


KINDS = [  # one filled in full and one in part, one with leverage and one without
    ("short", "whole"),
    pytest.param(("fractions", "levered"), marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module", params=KINDS, ids=",".join)
def traded(tmp_path_factory, request):
    """Final accounts, killed twenty times at random and never killed."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.desk.killed_trading", str(folder), str(SEED), *request.param]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert tuple(found) == request.param
    return folder, found


@pytest.mark.slow
def test_account_killed_twenty_times_ends_as_an_unkilled_one(traded):
    folder, accounts = traded
    for kind, found in accounts.items():
        assert found["ended"] == [-signal.SIGKILL] * N_KILLS + [0]
        whole, killed = found["whole"], found["killed"]
        assert whole["fills"]
        assert (max(sum(map(abs, state["weights"][:-1])) for state in whole["states"]) > 1.2) == (kind in LEVERED)
        for what in ("states", "orders", "fills", "events"):
            assert killed[what] == whole[what]
        assert killed["n_events"] == len(killed["events"]) == whole["n_events"]
        JsonlAudit(Home(folder / f"{kind}-killed")).verify()


@pytest.mark.slow
def test_kills_neither_duplicate_nor_lose_orders_and_events(traded):
    for killed in (found["killed"] for found in traded[1].values()):
        of_kind = {
            name: [e["order_id"] for e in killed["events"].values() if e["kind"] == name]
            for name in ("placed", "filled", "cancelled")
        }
        booked = [each["order"]["order_id"] for each in killed["orders"]]
        assert max(Counter(booked).values()) == max(Counter(of_kind["placed"]).values()) == 1
        assert set(booked) == set(of_kind["placed"])
        assert {fill["order_id"] for fill in killed["fills"]} == set(of_kind["filled"])
        in_part = {fill["order_id"] for fill in killed["fills"] if not fill["complete"]}
        assert in_part <= set(of_kind["cancelled"])
