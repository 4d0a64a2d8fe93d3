"""Bots: files that name a policy, the account it trades, its schedule and its protections."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.execution.protections import Protection
from nvtrader_pipelines.storage.documents import read_document, validate_document
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.files import escape_name
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.read_sources import note_read

BOT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
ACTIVE = "active"  # policy: that of all accounts, or of the account
AFTER_CLOSE = "after_close"  # schedule: once a session of the market has ended
LARGEST = (59, 23, 31, 12, 7)  # value of each field
STEP = re.compile(r"/(\d+)")
ONLY_IN_CRONSIM = re.compile(r"\dL|LW|L/|,.*#|#.*,", re.IGNORECASE)  # Dagster's schedules refuse these days
ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # whether an expression ever fires does not depend on it
PolicyReference = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9@-]*(/seed-\d+)?$", max_length=200)]


def _fires(cron: str) -> bool:
    """Whether a cron expression ever fires, and Dagster takes it: it wants days of the month that come."""
    fields = cron.split()
    if len(fields) != len(LARGEST) or ONLY_IN_CRONSIM.search(cron):
        return False
    steps = [(int(step), most) for field, most in zip(fields, LARGEST, strict=True) for step in STEP.findall(field)]
    with suppress(CronSimError):
        on_any_weekday = CronSim(" ".join([*fields[:-1], "*"]), ANY_TIME)
        is_some_day = bool(next(CronSim(cron, ANY_TIME), None) and next(on_any_weekday, None))
        return is_some_day and all(step <= most for step, most in steps)
    return False


def _require_schedule(schedule: str) -> str:
    if schedule == AFTER_CLOSE or _fires(schedule):
        return schedule
    raise ValueError(
        f"must be {AFTER_CLOSE} or a cron expression of five fields that ever fires, but is {schedule!r}; "
        'write, for example, "30 18 * * 1-5"'
    )


class BotSpec(Component):
    """Bot: a policy that trades an account on a schedule, within protections."""

    policy: PolicyReference  # active, or an experiment, or a run id or its beginning; each with /seed-K for one seed
    account: str  # of data/accounts; no other bot trades it
    schedule: Annotated[str, AfterValidator(_require_schedule)] = AFTER_CLOSE  # or cron, in the market's time zone
    limits: tuple[Protection, ...] = ()  # protections


class FoundBots(NamedTuple):
    """Content of `data/bots`: the usable bots, and the problem of each other file."""

    specs: dict[str, BotSpec]  # by name
    problems: dict[Path, str]


def read_bots(home: Home) -> FoundBots:
    """Read the files of `data/bots`, sorted by name; bots that share an account are all refused."""
    note_read(home.bots)
    bots = FoundBots({}, {})
    for path in sorted(home.bots.glob("*.yaml")):
        try:
            bots.specs[path.stem] = _read_file(home, path)
        except StorageError as error:
            bots.problems[Path(escape_name(path))] = str(error)
    accounts = {name: _custodian(home, spec.account) for name, spec in bots.specs.items()}
    for name, account in accounts.items():
        if others := [other for other in accounts if other != name and accounts[other] == account]:
            bots.problems[home.bots / f"{name}.yaml"] = (
                f"an account must have one bot at most, but {name}.yaml names {bots.specs[name].account}, as "
                f"{' and '.join(f'{other}.yaml' for other in others)} does; name another account, or delete a file"
            )
            del bots.specs[name]
    return bots


def read_bot(home: Home, name: str) -> BotSpec:
    """Read a bot.

    Raises:
        NotFoundError: if there is no such bot.
        StorageError: if its file is not a valid bot, or another bot has its account.
    """
    bots, path = read_bots(home), home.bots / f"{name}.yaml"
    if path in bots.problems:
        raise StorageError(bots.problems[path])
    if name not in bots.specs:
        names = f", or use one of: {', '.join(bots.specs)}{suggest(name, [*bots.specs])}" if bots.specs else ""
        raise NotFoundError(f"there is no bot {name!r}; write data/bots/<name>.yaml{names}")
    return bots.specs[name]


def _custodian(home: Home, account: str) -> str:
    """Name of a simulated account, or the broker's account, whose keys are those of the environment."""
    spec = read_account(home, account)
    return account if spec.kind == "simulated" else f"{spec.kept_at} {spec.base_url}"


def _read_file(home: Home, path: Path) -> BotSpec:
    if not BOT_NAME.fullmatch(path.stem):
        raise StorageError(
            "the name of a bot must be up to 31 lowercase letters, digits and -, not starting with -, but its file is "
            f"{path.name!r}; rename it"
        )
    spec = validate_document(read_document(path), BotSpec, f"{path.name} is not a valid bot")
    try:
        read_account(home, spec.account)
    except StorageError as error:
        raise StorageError(f"{path.name} needs an account that can be read: {error}") from error
    return spec
