"""Accounts at brokers: one YAML file each, and the keys of those that need some from the environment."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import RootModel, SecretStr, ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.brokers.account_spec import (
    KEY_ID,
    SECRET_KEY,
    AccountSpec,
    AlpacaAccountSpec,
    SimulatedAccountSpec,
)
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:
    from nvtrader_pipelines.execution.brokers.alpaca import AlpacaBroker

DEFAULT = "paper"  # the account that is there without a file
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")  # it names files and is a part of ids
LIVE = "NVTRADER_LIVE_TRADING"  # must name the account that trades with money


class AccountDocument(RootModel[AccountSpec]):
    """One file of `data/accounts`."""


class AccountInUse(StorageError):  # noqa: N818 - the name says what is the matter
    """Another process trades the account at this moment."""


def read_account(home: Home, name: str = DEFAULT) -> AccountSpec:
    """The account of a name; `paper` is there without a file, with its defaults.

    Raises:
        StorageError: if no account can have the name, there is none, or its file is no valid account.
    """
    if not NAME.fullmatch(name):
        raise StorageError(
            f"an account's name is up to 63 small letters, digits and -, not first a -, but is {name!r}; name it so"
        )
    path = home.accounts / f"{name}.yaml"
    if not os.path.lexists(path):  # a dangling symlink is an error, not a missing file
        if name == DEFAULT:
            return SimulatedAccountSpec()
        known = ", ".join(sorted({DEFAULT, *(each.stem for each in home.accounts.glob("*.yaml"))}))
        raise StorageError(f"there is no account {name!r}; write data/accounts/{path.name}, or take one of: {known}")
    try:
        return AccountDocument.model_validate(read_document(path)).root
    except ValidationError as error:
        raise StorageError(f"{path.name} is no valid account: {explain(error, AccountDocument)}") from error


def require_same(name: str, spec: AccountSpec, state: AccountState | None) -> None:
    """Refuse an account whose book is of another: its equity, its shares and its open orders are those of one place.

    Args:
        name: the account's.
        spec: what its file says now.
        state: where its book stands; None where it is not open.

    Raises:
        StorageError: if it was opened elsewhere, or with another capital.
    """
    if state is None:
        return
    opened, said = f"kept {state.kept_at}", f"kept {spec.kept_at}"
    if isinstance(spec, SimulatedAccountSpec):
        opened, said = f"{opened} with a capital of {state.capital:,}", f"{said} with a capital of {spec.capital:,}"
    if opened != said:
        raise StorageError(
            f"an account stays what it was opened as, but {name} was opened as one {opened} and data/accounts says it "
            f"is {said}; put its file back, and name another account for what it says now"
        )


@contextmanager
def held_account(home: Home, name: str) -> Iterator[SqliteBook]:
    """The account's book while no other process moves the account.

    Raises:
        AccountInUse: if another one does.
        StorageError: if it has no book yet, and its name or its file is refused; nothing is written then.
    """
    path = book_path(home, name)
    if path.name != f"{name}.db" or not path.exists():  # a name that leads elsewhere is no book's
        read_account(home, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AccountInUse(
                f"the account {name} is traded by another process at this moment; wait until it is done"
            ) from error
        book = SqliteBook(home, name)
        try:
            yield book
        finally:
            book.close()


def connect(name: str, spec: AlpacaAccountSpec) -> "AlpacaBroker":
    """The account at Alpaca, with the keys of the environment; nothing is asked of it yet.

    Raises:
        ExecutionError: if alpaca-py is not installed, keys are missing, or an account that trades with money is not
            named by the variable that allows it.
    """
    if not spec.paper and os.environ.get(LIVE) != name:
        raise ExecutionError(
            f"the account {name!r} trades with money (paper: false), which {LIVE}={name} in the environment must "
            "allow; set it, or set paper: true"
        )
    missing = [variable for variable in (KEY_ID, SECRET_KEY) if not os.environ.get(variable)]
    if missing:
        raise ExecutionError(
            f"the account {name!r} needs Alpaca's keys in the environment, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set; make keys in Alpaca's dashboard and export them"
        )
    try:
        from nvtrader_pipelines.execution.brokers.alpaca import AlpacaBroker
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "alpaca":
            raise
        raise ExecutionError(
            f"the account {name!r} needs alpaca-py: install it with pip install -c constraints.txt -e '.[alpaca]'"
        ) from error
    return AlpacaBroker.connect(spec, SecretStr(os.environ[KEY_ID]), SecretStr(os.environ[SECRET_KEY]))
