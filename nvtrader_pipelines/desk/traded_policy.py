"""Policy that trades an account: the active one, or that with which its bot was started."""

from datetime import date
from typing import Literal, NamedTuple

from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.desk.bot_files import ACTIVE, BotSpec, read_bot, read_bots
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_activation, read_active
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store

BotState = Literal["stopped", "active", "reducing", "halted"]  # stopped: no person has started it


class Bot(NamedTuple):
    """Bot of an account."""

    name: str
    spec: BotSpec
    start: "BotStart | None"  # None: not started

    @property
    def problem(self) -> str:
        """Why it is not started, as a sentence; empty if it is."""
        remedy = f"a person starts it: `nvtrader bots start {self.name}`"
        if self.start is None or self.start.bot != self.name:
            return f"the bot {self.name} was not started; {remedy}"
        if self.start.policy != self.spec.policy:
            changed = f"was started with the policy {self.start.policy}, but its file names {self.spec.policy}"
            return f"the bot {self.name} {changed}; {remedy}"
        return ""

    def state(self, store: Store) -> BotState:
        """State of its trading."""
        return "stopped" if self.problem else store.switch_of(self.spec.account).state().state


class BotStart(NamedTuple):
    """Start of a bot by a person."""

    bot: str
    policy: str  # as its file named it
    activation: str  # event of the policy that it trades; empty: the active one
    since: date  # close from which its protections count


def bot_of(store: Store, account: str) -> Bot | None:
    """Bot that trades an account; None without one.

    Raises:
        StorageError: if the bot that was started on it has a file that cannot be used.
    """
    bots, start = read_bots(store.home), _last_start(store, account)
    for name, spec in bots.specs.items():
        if spec.account == account:
            return Bot(name, spec, start)
    problems = {path.stem: problem for path, problem in bots.problems.items()}
    if start and start.bot in problems:
        raise StorageError(
            f"the bot {start.bot} trades the account {account}, so its file must be usable: {problems[start.bot]}"
        )
    return None


def read_bot_states(store: Store) -> dict[str, BotState]:
    """State of each bot whose file can be used.

    Raises:
        StorageError: if the audit is damaged.
    """
    bots = [Bot(name, spec, _last_start(store, spec.account)) for name, spec in read_bots(store.home).specs.items()]
    return {bot.name: bot.state(store) for bot in bots}


def read_traded(store: Store, account: str) -> ActivePolicy | None:
    """Read the policy that trades an account; None without one.

    A bot that names its policy trades what it was started with, whatever becomes active for all accounts.

    Raises:
        StorageError: as `bot_of` and `read_active`.
    """
    bot = bot_of(store, account)
    if bot is None or bot.spec.policy == ACTIVE:
        return read_active(store, account)
    return None if bot.problem or bot.start is None else read_activation(store, bot.start.activation)


def account_of_bot(store: Store, name: str) -> str:
    """Account of a bot, also of one that was started and whose file cannot be used or is gone.

    Raises:
        NotFoundError: if there is no such bot.
        StorageError: if its file is not valid, and it was never started.
    """
    try:
        return read_bot(store.home, name).account
    except StorageError:
        for row in reversed(store.audit.rows()):
            if row.kind == "started" and row.account and row.event.detail["bot"] == name:
                return row.account
        raise


def require_own_policy(store: Store, account: str) -> None:
    """Raise unless a policy may be activated for an account: its bot must not name one.

    Raises:
        NotFoundError: if there is no such account.
        StorageError: if its bot names a policy, or cannot be read.
    """
    read_account(store.home, account)
    bot = bot_of(store, account)
    if bot and bot.spec.policy != ACTIVE:
        raise StorageError(
            f"the bot {bot.name} trades the account {account} with the policy {bot.spec.policy} of its file; name "
            f"another there, or policy: active, and start it: `nvtrader bots start {bot.name}`"
        )


def _last_start(store: Store, account: str) -> BotStart | None:
    is_reset = False  # since: the account began anew
    for row in reversed(store.audit.rows()):
        is_reset |= row.kind == "reset" and row.account == account
        if row.kind == "started" and row.account == account:
            detail = row.event.detail
            since = date.min if is_reset else date.fromisoformat(detail["since"])
            return BotStart(detail["bot"], detail["policy"], detail["activation"], since)
    return None
