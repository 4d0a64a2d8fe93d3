import re

import pytest

from nvtrader_pipelines.desk.bot_files import BotSpec, read_bot, read_bots
from nvtrader_pipelines.execution.protections import CooldownProtection, DrawdownProtection, NameProtection
from nvtrader_pipelines.service.doctor import check_bots
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.home import PACKAGE, Home
from nvtrader_pipelines.storage.read_sources import is_unchanged, recording
from nvtrader_pipelines.storage.store import Store

COINS = """
policy: ppo-growth/seed-0
account: coins
schedule: "30 18 * * 1-5"
limits:
  - {kind: max_drawdown, fraction: 0.3}
  - {kind: loss_cooldown}
  - {kind: name_pause, pause: 3}
"""


@pytest.fixture
def home(tmp_path) -> Home:
    home = Home(tmp_path)
    home.accounts.mkdir(parents=True)
    for name in ("coins", "stocks"):
        (home.accounts / f"{name}.yaml").write_text("kind: simulated\n")
    return home


def write(home: Home, name: str, text: str) -> None:
    home.bots.mkdir(parents=True, exist_ok=True)
    (home.bots / f"{name}.yaml").write_text(text)


def test_home_without_bots_has_none(home):
    assert read_bots(home) == ({}, {})
    assert check_bots(Store(home)) == []


def test_bot_file_is_read_with_its_protections(home):
    write(home, "coins", COINS)
    write(home, "paper-2", "policy: active\naccount: paper\n")  # the account needs no file
    coins = BotSpec(
        policy="ppo-growth/seed-0",
        account="coins",
        schedule="30 18 * * 1-5",
        limits=(DrawdownProtection(fraction=0.3), CooldownProtection(), NameProtection(pause=3)),
    )
    assert read_bot(home, "coins") == coins
    paper = BotSpec(policy="active", account="paper", schedule="after_close", limits=())
    assert read_bots(home) == ({"coins": coins, "paper-2": paper}, {})


def test_example_of_the_readme_is_a_bot_with_the_defaults(home):
    (example,) = re.findall(r"```yaml\n(.*?)```", (PACKAGE.parent / "data/bots/README.md").read_text(), re.DOTALL)
    write(home, "example", example)
    limits = (DrawdownProtection(), CooldownProtection(), NameProtection())
    assert read_bot(home, "example") == BotSpec(policy="active", account="paper", limits=limits)


@pytest.mark.parametrize(
    "schedule",
    ["after_close", "0 0 29 2 *", "*/5 * * * *", "0 18 * * mon-fri", "0 0 L * *", "0 0 1 jul *", "0 9 * * 1#2"],
)
def test_schedule_that_fires_is_valid(schedule):
    assert BotSpec(policy="active", account="paper", schedule=schedule).schedule == schedule


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("schedule: 0 0 31 2 *", "schedule"),  # no such day
        ("schedule: 0 0 31 2 1", "schedule"),  # refused by Dagster, like the next two
        ("schedule: 0 0 * * 1,5#3", "schedule"),
        ("schedule: '*/70 * * * *'", "schedule"),
        ("schedule: 60 18 * * *", "schedule"),
        ("schedule: 30 18 * *", "schedule"),
        ("schedule: 0 30 18 * * 1-5", "schedule"),  # with seconds
        ("schedule: '@daily'", "schedule"),
        ("schedule: 0 0 LW * *", "schedule"),  # refused by Dagster
        ("schedule: 0 0 * * 5L", "schedule"),
        ("schedule: at_close", "schedule"),
        ("schedule: 5", "schedule"),
        ("policy: ppo-growth/0", "policy"),
        ("policy: ''", "policy"),
        ("name: coins", "name"),
        ("limit: []", "limit"),
        ("limits: {kind: max_drawdown}", "limits"),
        ("limits: [{kind: max_drawdown, fraction: 1.5}]", "limits.0.fraction"),
        ("limits: [{kind: drawdown}]", "limits.0.kind"),
        ("account: euros", "euros"),  # there is none
        ("account: ../coins", "coins"),
        ("account:", "account"),
        ("policy:", "policy"),
    ],
)
def test_invalid_bot_is_refused_with_file_and_place(home, line, place):
    lines = {"policy": "policy: active", "account": "account: coins", line.partition(":")[0]: line}
    write(home, "bad", "\n".join(lines.values()))
    write(home, "good", "policy: active\naccount: stocks\n")
    with pytest.raises(StorageError, match=rf"^bad\.yaml .*\b{re.escape(place)}"):
        read_bot(home, "bad")
    bots = read_bots(home)
    assert list(bots.specs) == ["good"]
    assert list(bots.problems) == [home.bots / "bad.yaml"]
    assert [(row.check, row.problem) for row in check_bots(Store(home))] == [("bot bad", *bots.problems.values())]


def test_bots_on_one_account_are_refused_and_name_each_other(home):
    for name in ("one", "two", "three"):
        write(home, name, f"policy: active\naccount: {'stocks' if name == 'three' else 'coins'}\n")
    specs, problems = read_bots(home)
    assert list(specs) == ["three"]
    assert problems.keys() == {home.bots / "one.yaml", home.bots / "two.yaml"}
    for name, other in (("one", "two"), ("two", "one")):
        assert f"as {other}.yaml" in problems[home.bots / f"{name}.yaml"]
        with pytest.raises(StorageError, match="coins"):
            read_bot(home, name)


@pytest.mark.parametrize("name", ["Coins", "-a", "a b", "a" * 32, "ä"])
def test_file_with_an_invalid_name_is_a_problem(home, name):
    write(home, name, COINS)
    assert [path.stem for path in read_bots(home).problems] == [name]


@pytest.mark.parametrize("name", ["coin", "", "..", "a/b", "Coins"])
def test_unknown_bot_error_lists_the_bots(home, name):
    write(home, "coins", COINS)
    with pytest.raises(NotFoundError, match="use one of: coins"):
        read_bot(home, name)


def test_page_caches_notice_new_and_changed_bots(home):
    for text in (COINS, COINS.replace("seed-0", "seed-11")):
        with recording() as sources:
            read_bots(home)
        assert is_unchanged(sources)
        write(home, "coins", text)
        assert not is_unchanged(sources)
