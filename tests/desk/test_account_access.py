import sys

import pytest

from nvtrader_pipelines.desk.account_access import connect_account, lock_account, read_account, require_same_account
from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec, SimulatedAccountSpec
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.execution.brokers.alpaca_stub import KEYS, AlpacaStub, serving
from tests.storage.test_account_book import state


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.setenv("APCA_API_KEY_ID", KEYS[0])
    monkeypatch.setenv("APCA_API_SECRET_KEY", KEYS[1])


def write(home: Home, name: str, text: str) -> None:
    home.accounts.mkdir(parents=True, exist_ok=True)
    (home.accounts / f"{name}.yaml").write_text(text)


def test_paper_account_exists_without_a_file(home):
    assert read_account(home) == SimulatedAccountSpec()


def test_read_account_dangling_symlink_is_not_the_default(home, tmp_path):
    home.accounts.mkdir(parents=True)
    (home.accounts / "paper.yaml").symlink_to(tmp_path / "an unmounted disk")
    with pytest.raises(StorageError):
        read_account(home)


def test_read_account_reads_its_file(home):
    write(home, "paper", "kind: simulated\ncapital: 25_000\nwhole_shares: true\n")
    write(home, "desk-2", "kind: alpaca\ntimeout_s: 5\n")
    assert read_account(home, "paper") == SimulatedAccountSpec(capital=25_000.0, whole_shares=True)
    assert read_account(home, "desk-2") == AlpacaAccountSpec(timeout_s=5.0)


@pytest.mark.parametrize("name", ["", "Paper", "-paper", "a/b", "..", "a b", "a" * 64, "paper\n"])
def test_invalid_account_name_is_refused(home, name):
    with pytest.raises(StorageError):
        read_account(home, name)


def test_unknown_account_error_lists_known_accounts(home):
    write(home, "desk", "kind: alpaca\n")
    with pytest.raises(StorageError, match="desk, paper"):
        read_account(home, "dek")


@pytest.mark.parametrize(
    "text",
    [
        "kind: aplaca\n",
        "capital: 1000\n",
        "kind: simulated\ncapitol: 1000\n",
        "kind: simulated\ncapital: -1\n",
        "kind: alpaca\napi_key: PK\n",
        "- kind: simulated\n",
        "kind: simulated\nkind: alpaca\n",
    ],
)
def test_invalid_account_file_is_refused_with_its_name(home, text):
    write(home, "paper", text)
    with pytest.raises(StorageError, match=r"paper\.yaml"):
        read_account(home)


@pytest.mark.parametrize("name", ["../home", "../../../../outside", "Foo", "unknown", "broken"])
def test_refused_account_writes_nothing(tmp_path, name):
    home = Home(tmp_path / "home")
    write(home, "broken", "kind: simulated\ncapital: -5\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageError), lock_account(Store(home), name):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_account_name_cannot_reach_a_book_of_another_home(tmp_path):
    home, other = Home(tmp_path / "home"), Home(tmp_path / "other")
    SqliteBook(other, "paper").settle(state())
    before = sorted(other.root.rglob("*"))
    (home.runtime / "accounts").mkdir(parents=True)
    strange = "../../../../other/data/runtime/accounts/paper"
    with pytest.raises(StorageError), lock_account(Store(home), strange):
        pass
    assert sorted(other.root.rglob("*")) == before


def test_lock_account_does_not_need_a_valid_account_file(home):
    SqliteBook(home, "gone").settle(state())
    with lock_account(Store(home), "gone") as book:
        assert book.last() == state()


@pytest.mark.parametrize("changed", [AlpacaAccountSpec(paper=False), SimulatedAccountSpec()])
def test_account_with_changed_broker_or_capital_is_refused(changed):
    opened = AlpacaAccountSpec()
    book = state(kept_at=opened.kept_at)
    require_same_account("desk", opened, book)
    require_same_account("desk", AlpacaAccountSpec(min_order=5.0), book)
    require_same_account("desk", changed, None)
    with pytest.raises(StorageError):
        require_same_account("desk", changed, book)


def test_connect_account_uses_keys_of_the_environment(keys):
    with serving(AlpacaStub(cash=500.0)) as stub:
        assert connect_account("desk", AlpacaAccountSpec(base_url=stub.url)).holdings().cash == 500.0


def test_connect_account_names_missing_keys(monkeypatch, keys):
    monkeypatch.setenv("APCA_API_SECRET_KEY", "")
    with pytest.raises(ExecutionError, match="APCA_API_SECRET_KEY") as told:
        connect_account("desk", AlpacaAccountSpec())
    assert KEYS[0] not in str(told.value)
    monkeypatch.delenv("APCA_API_KEY_ID")
    with pytest.raises(ExecutionError, match="APCA_API_KEY_ID and APCA_API_SECRET_KEY"):
        connect_account("desk", AlpacaAccountSpec())


def test_live_account_must_be_named_by_the_environment(monkeypatch, keys):
    live = AlpacaAccountSpec(paper=False)
    for value in ("", "1", "another"):
        monkeypatch.setenv("NVTRADER_LIVE_TRADING", value)
        with pytest.raises(ExecutionError):
            connect_account("desk", live)
    monkeypatch.setenv("NVTRADER_LIVE_TRADING", "desk")
    assert connect_account("desk", live).client._base_url.value == "https://api.alpaca.markets"
    assert connect_account("other", AlpacaAccountSpec()).client._base_url.value == "https://paper-api.alpaca.markets"


def test_missing_alpaca_py_raises_with_install_command(monkeypatch, keys):
    monkeypatch.delitem(sys.modules, "nvtrader_pipelines.execution.brokers.alpaca", raising=False)
    for module in [name for name in sys.modules if name.partition(".")[0] == "alpaca"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "alpaca", None)
    with pytest.raises(ExecutionError, match="pip install"):
        connect_account("desk", AlpacaAccountSpec())
