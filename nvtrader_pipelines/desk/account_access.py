"""Access to accounts: their YAML files, the lock on their books, and connections to brokers."""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from pydantic import RootModel, SecretStr

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.brokers.account_spec import (
    KEY_ID,
    SECRET_KEY,
    AccountSpec,
    AlpacaAccountSpec,
    SimulatedAccountSpec,
)
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.storage.account_book import AccountBook, book_path
from nvtrader_pipelines.storage.documents import read_document, validate_document
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.files import has_file, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.locks import try_lock
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.execution.brokers.alpaca import AlpacaBroker

DEFAULT_ACCOUNT = "paper"  # exists without a file
ACCOUNT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")  # part of file names and ids
LIVE_TRADING_VARIABLE = "NVTRADER_LIVE_TRADING"  # must hold the name of the account that trades with money


class AccountFile(RootModel[AccountSpec]):
    """File of `data/accounts`."""


class AccountInUse(StorageError):  # noqa: N818 - named after the state
    """Error of an account that another process trades at the moment."""


class AccountChanged(StorageError):  # noqa: N818 - named after the state
    """Error of an account whose file names another broker or capital than its book."""


def read_account(home: Home, name: str = DEFAULT_ACCOUNT) -> AccountSpec:
    """Read the spec of an account; `paper` exists without a file, with defaults.

    Raises:
        NotFoundError: if the name is invalid, or there is no such account.
        StorageError: if its file is not a valid account.
    """
    if not ACCOUNT_NAME.fullmatch(name):
        raise NotFoundError(
            f"an account's name must be up to 63 lowercase letters, digits and -, not starting with -, but is {name!r}"
        )
    path = home.accounts / f"{name}.yaml"
    if not has_file(path):
        if name == DEFAULT_ACCOUNT:
            return SimulatedAccountSpec()
        known = account_names(home)
        raise NotFoundError(
            f"there is no account {name!r}; write data/accounts/{path.name}, or use one of: {', '.join(known)}"
            f"{suggest(name, known)}"
        )
    return validate_document(read_document(path), AccountFile, f"{path.name} is not a valid account").root


def add_simulated_account(home: Home, name: str) -> None:
    """Write the file of a simulated account with defaults, unless there is an account of this name."""
    path = home.accounts / f"{name}.yaml"
    if not has_file(path):
        write_atomically(path, b"kind: simulated\n")


def account_names(home: Home) -> list[str]:
    """Names of all accounts, sorted."""
    note_read(home.accounts)
    return sorted({DEFAULT_ACCOUNT, *(path.stem for path in home.accounts.glob("*.yaml"))})


def require_same_account(name: str, spec: AccountSpec, state: AccountState | None) -> None:
    """Raise if the book of an account was opened at another broker or with another capital.

    Args:
        name: name of the account.
        spec: its current spec.
        state: last state of its book; None before it is open.

    Raises:
        AccountChanged: if broker or capital differ.
    """
    if state is None:
        return
    opened, current = spec.custody(state), spec.custody()
    if opened != current:
        raise AccountChanged(
            f"broker and capital of an account are fixed once it is open, but {name} was opened as one {opened} and "
            f"data/accounts now says {current}; restore its file, and use another name for a new account"
        )


@contextmanager
def lock_account(store: Store, name: str) -> Iterator[AccountBook]:
    """Lock an account against other processes and open its book.

    Raises:
        AccountInUse: if another process holds the lock.
        StorageError: if it has no book yet and its name or file is invalid; then nothing is written.
    """
    book = store.book(name)
    if not book.exists:  # a name with a path, or a new account
        read_account(store.home, name)
    path = book_path(store.home, name).with_suffix(".lock")
    with closing(book), try_lock(store.home, f"account {name}", path) as require_held:
        if require_held is None:
            raise AccountInUse(
                f"the account {name} is traded by another process at this moment; wait until it has ended"
            )
        book.fence(require_held)
        yield book


def connect_account(name: str, spec: AlpacaAccountSpec) -> "AlpacaBroker":
    """Create the client of an account at Alpaca with the keys of the environment; sends no request.

    Raises:
        ExecutionError: if alpaca-py is not installed, keys are missing, or an account that trades with money is not
            allowed by the environment variable.
    """
    if not spec.paper and os.environ.get(LIVE_TRADING_VARIABLE) != name:
        raise ExecutionError(
            f"the account {name!r} trades with money (paper: false), which {LIVE_TRADING_VARIABLE}={name} in the "
            "environment must allow; set it, or set paper: true"
        )
    missing = [variable for variable in (KEY_ID, SECRET_KEY) if not os.environ.get(variable)]
    if missing:
        raise ExecutionError(
            f"the account {name!r} needs Alpaca's keys in the environment, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set; create keys in Alpaca's dashboard and export them"
        )
    try:
        from nvtrader_pipelines.execution.brokers.alpaca import AlpacaBroker
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "alpaca":
            raise
        raise ExecutionError(
            f"the account {name!r} needs alpaca-py: install it with pip install 'nvtrader-pipelines[alpaca]'"
        ) from error
    return AlpacaBroker.connect(spec, SecretStr(os.environ[KEY_ID]), SecretStr(os.environ[SECRET_KEY]))
