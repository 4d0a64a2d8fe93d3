"""Accounts are files, and their keys are not."""

import sys

import pytest

from nvtrader_pipelines.desk.accounts import connect, held_account, read_account, require_same
from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec, SimulatedAccountSpec
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
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


def test_the_paper_account_is_there_without_a_file(home):
    assert read_account(home) == SimulatedAccountSpec()


def test_read_account_dangling_symlink_is_not_the_default(home, tmp_path):
    home.accounts.mkdir(parents=True)
    (home.accounts / "paper.yaml").symlink_to(tmp_path / "an unmounted disk")
    with pytest.raises(StorageError, match=r"paper\.yaml cannot be read"):
        read_account(home)


def test_an_account_is_what_its_file_says(home):
    write(home, "paper", "kind: simulated\ncapital: 25_000\nwhole_shares: true\n")
    write(home, "desk-2", "kind: alpaca\ntimeout_s: 5\n")
    assert read_account(home, "paper") == SimulatedAccountSpec(capital=25_000.0, whole_shares=True)
    assert read_account(home, "desk-2") == AlpacaAccountSpec(timeout_s=5.0)


@pytest.mark.parametrize("name", ["", "Paper", "-paper", "a/b", "..", "a b", "a" * 64, "paper\n"])
def test_a_name_that_is_no_files_is_refused(home, name):
    with pytest.raises(StorageError, match="an account's name is up to 63 small letters, digits and -"):
        read_account(home, name)


def test_an_account_that_is_not_there_is_told_beside_those_that_are(home):
    write(home, "desk", "kind: alpaca\n")
    with pytest.raises(
        StorageError, match=r"no account 'dek'; write data/accounts/dek\.yaml, or take one of: desk, paper"
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
        ("kind: simulated\nkind: alpaca\n", "there twice"),
    ],
)
def test_a_file_that_is_no_account_says_why(home, text, sentence):
    write(home, "paper", text)
    with pytest.raises(StorageError, match=sentence) as told:
        read_account(home)
    assert "paper.yaml" in str(told.value)


@pytest.mark.parametrize("name", ["../home", "../../../../outside", "Foo", "unknown", "broken"])
def test_an_account_that_is_refused_writes_nothing(tmp_path, name):
    home = Home(tmp_path / "home")
    write(home, "broken", "kind: simulated\ncapital: -5\n")
    before = sorted(tmp_path.rglob("*"))
    refused = r"an account's name is|there is no account|broken\.yaml is no valid account"
    with pytest.raises(StorageError, match=refused), held_account(home, name):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_no_name_leads_to_the_book_of_another_home(tmp_path):
    home, other = Home(tmp_path / "home"), Home(tmp_path / "other")
    SqliteBook(other, "paper").settle(state())
    before = sorted(other.root.rglob("*"))
    (home.runtime / "accounts").mkdir(parents=True)
    strange = "../../../../other/data/runtime/accounts/paper"
    with pytest.raises(StorageError, match="an account's name is"), held_account(home, strange):
        pass
    assert sorted(other.root.rglob("*")) == before


def test_a_book_is_held_whatever_became_of_its_accounts_file(home):
    SqliteBook(home, "gone").settle(state())
    with held_account(home, "gone") as book:
        assert book.last() == state()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            AlpacaAccountSpec(paper=False),
            "kept at Alpaca, on paper and .* it is kept at Alpaca, with money",
        ),
        (SimulatedAccountSpec(), r"kept at Alpaca, on paper with .* it is kept here with a capital of 1,000,000\.0"),
    ],
)
def test_an_account_is_not_moved_from_one_place_to_another(changed, sentence):
    opened = AlpacaAccountSpec()
    book = state(kept_at=opened.kept_at)
    require_same("desk", opened, book)
    require_same("desk", AlpacaAccountSpec(min_order=5.0), book)
    require_same("desk", changed, None)
    with pytest.raises(StorageError, match=sentence):
        require_same("desk", changed, book)


def test_an_account_is_connected_with_the_keys_of_the_environment(keys):
    with serving(AlpacaStub(cash=500.0)) as stub:
        assert connect("desk", AlpacaAccountSpec(base_url=stub.url)).holdings().cash == 500.0


def test_missing_keys_are_named(monkeypatch, keys):
    monkeypatch.setenv("APCA_API_SECRET_KEY", "")
    with pytest.raises(ExecutionError, match="but APCA_API_SECRET_KEY is not set") as told:
        connect("desk", AlpacaAccountSpec())
    assert KEYS[0] not in str(told.value)
    monkeypatch.delenv("APCA_API_KEY_ID")
    with pytest.raises(ExecutionError, match="but APCA_API_KEY_ID and APCA_API_SECRET_KEY are not set"):
        connect("desk", AlpacaAccountSpec())


def test_an_account_with_money_in_it_needs_a_variable_that_names_it(monkeypatch, keys):
    live = AlpacaAccountSpec(paper=False)
    for value in ("", "1", "another"):
        monkeypatch.setenv("NVTRADER_LIVE_TRADING", value)
        with pytest.raises(ExecutionError, match=r"trades with money .* NVTRADER_LIVE_TRADING=desk"):
            connect("desk", live)
    monkeypatch.setenv("NVTRADER_LIVE_TRADING", "desk")
    assert connect("desk", live).client._base_url.value == "https://api.alpaca.markets"
    assert connect("other", AlpacaAccountSpec()).client._base_url.value == "https://paper-api.alpaca.markets"


def test_without_alpaca_py_a_sentence_says_how_to_install_it(monkeypatch, keys):
    monkeypatch.delitem(sys.modules, "nvtrader_pipelines.execution.brokers.alpaca", raising=False)
    for module in [name for name in sys.modules if name.partition(".")[0] == "alpaca"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "alpaca", None)
    with pytest.raises(ExecutionError, match=r"needs alpaca-py: install it with pip install .*\[alpaca\]"):
        connect("desk", AlpacaAccountSpec())
