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
    with pytest.raises(StorageError, match=r"paper\.yaml must be a regular file, but is a dangling symlink"):
        read_account(home)


def test_read_account_reads_its_file(home):
    write(home, "paper", "kind: simulated\ncapital: 25_000\nwhole_shares: true\n")
    write(home, "desk-2", "kind: alpaca\ntimeout_s: 5\n")
    assert read_account(home, "paper") == SimulatedAccountSpec(capital=25_000.0, whole_shares=True)
    assert read_account(home, "desk-2") == AlpacaAccountSpec(timeout_s=5.0)


@pytest.mark.parametrize("name", ["", "Paper", "-paper", "a/b", "..", "a b", "a" * 64, "paper\n"])
def test_invalid_account_name_is_refused(home, name):
    with pytest.raises(StorageError, match="an account's name must be up to 63 lowercase letters"):
        read_account(home, name)


def test_unknown_account_error_lists_known_accounts(home):
    write(home, "desk", "kind: alpaca\n")
    with pytest.raises(
        StorageError, match=r"no account 'dek'; write data/accounts/dek\.yaml, or use one of: desk, paper"
    ):
        read_account(home, "dek")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kind: aplaca\n", r"kind: found 'aplaca', but must be one of alpaca, simulated; did you mean 'alpaca'"),
        ("capital: 1000\n", "kind: is missing; must be one of alpaca, simulated"),
        ("kind: simulated\ncapitol: 1000\n", "there is no field 'capitol'; did you mean 'capital'"),
        ("kind: simulated\ncapital: -1\n", r"capital: found -1, but must be"),
        ("kind: alpaca\napi_key: PK\n", "there is no field 'api_key'"),
        ("- kind: simulated\n", "must hold a mapping"),
        ("kind: simulated\nkind: alpaca\n", "occurs twice"),
    ],
)
def test_invalid_account_file_is_refused_with_the_field(home, text, sentence):
    write(home, "paper", text)
    with pytest.raises(StorageError, match=sentence) as told:
        read_account(home)
    assert "paper.yaml" in str(told.value)


@pytest.mark.parametrize("name", ["../home", "../../../../outside", "Foo", "unknown", "broken"])
def test_refused_account_writes_nothing(tmp_path, name):
    home = Home(tmp_path / "home")
    write(home, "broken", "kind: simulated\ncapital: -5\n")
    before = sorted(tmp_path.rglob("*"))
    refused = r"an account's name must|there is no account|broken\.yaml is not a valid account"
    with pytest.raises(StorageError, match=refused), lock_account(Store(home), name):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_account_name_cannot_reach_a_book_of_another_home(tmp_path):
    home, other = Home(tmp_path / "home"), Home(tmp_path / "other")
    SqliteBook(other, "paper").settle(state())
    before = sorted(other.root.rglob("*"))
    (home.runtime / "accounts").mkdir(parents=True)
    strange = "../../../../other/data/runtime/accounts/paper"
    with pytest.raises(StorageError, match="an account's name must be"), lock_account(Store(home), strange):
        pass
    assert sorted(other.root.rglob("*")) == before


def test_lock_account_does_not_need_a_valid_account_file(home):
    SqliteBook(home, "gone").settle(state())
    with lock_account(Store(home), "gone") as book:
        assert book.last() == state()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (AlpacaAccountSpec(paper=False), "kept at Alpaca, on paper and .* kept at Alpaca, with money"),
        (SimulatedAccountSpec(), r"kept at Alpaca, on paper with .* kept here with a capital of 1,000,000\.0"),
    ],
)
def test_account_with_changed_broker_or_capital_is_refused(changed, sentence):
    opened = AlpacaAccountSpec()
    book = state(kept_at=opened.kept_at)
    require_same_account("desk", opened, book)
    require_same_account("desk", AlpacaAccountSpec(min_order=5.0), book)
    require_same_account("desk", changed, None)
    with pytest.raises(StorageError, match=sentence):
        require_same_account("desk", changed, book)


def test_connect_account_uses_keys_of_the_environment(keys):
    with serving(AlpacaStub(cash=500.0)) as stub:
        assert connect_account("desk", AlpacaAccountSpec(base_url=stub.url)).holdings().cash == 500.0


def test_connect_account_names_missing_keys(monkeypatch, keys):
    monkeypatch.setenv("APCA_API_SECRET_KEY", "")
    with pytest.raises(ExecutionError, match="but APCA_API_SECRET_KEY is not set") as told:
        connect_account("desk", AlpacaAccountSpec())
    assert KEYS[0] not in str(told.value)
    monkeypatch.delenv("APCA_API_KEY_ID")
    with pytest.raises(ExecutionError, match="but APCA_API_KEY_ID and APCA_API_SECRET_KEY are not set"):
        connect_account("desk", AlpacaAccountSpec())


def test_live_account_must_be_named_by_the_environment(monkeypatch, keys):
    live = AlpacaAccountSpec(paper=False)
    for value in ("", "1", "another"):
        monkeypatch.setenv("NVTRADER_LIVE_TRADING", value)
        with pytest.raises(ExecutionError, match=r"trades with money .* NVTRADER_LIVE_TRADING=desk"):
            connect_account("desk", live)
    monkeypatch.setenv("NVTRADER_LIVE_TRADING", "desk")
    assert connect_account("desk", live).client._base_url.value == "https://api.alpaca.markets"
    assert connect_account("other", AlpacaAccountSpec()).client._base_url.value == "https://paper-api.alpaca.markets"


def test_missing_alpaca_py_raises_with_install_command(monkeypatch, keys):
    monkeypatch.delitem(sys.modules, "nvtrader_pipelines.execution.brokers.alpaca", raising=False)
    for module in [name for name in sys.modules if name.partition(".")[0] == "alpaca"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "alpaca", None)
    with pytest.raises(ExecutionError, match=r"needs alpaca-py: install it with pip install .*\[alpaca\]"):
        connect_account("desk", AlpacaAccountSpec())
