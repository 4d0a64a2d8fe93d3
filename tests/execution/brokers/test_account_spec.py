"""What an account may be."""

import pytest
from pydantic import ValidationError

from nvtrader_pipelines.components.component import field_comments, members
from nvtrader_pipelines.execution.brokers.account_spec import AccountSpec, AlpacaAccountSpec, SimulatedAccountSpec


def test_default_account_trades_fractions_as_the_back_test():
    account = SimulatedAccountSpec()
    assert (account.capital, account.whole_shares, account.min_order, account.skip_below) == (1_000_000.0, False, 0, 0)
    assert (account.slippage_bps, account.volume_share) == (0.0, None)


def test_alpaca_account_defaults_to_paper_trading():
    assert AlpacaAccountSpec().paper is True


@pytest.mark.parametrize("member", members(AccountSpec), ids=lambda member: member.__name__)
def test_every_account_field_has_a_description(member):
    assert member.model_fields.keys() - field_comments(member).keys() == {"kind"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"capital": 0.0},
        {"capital": float("inf")},
        {"min_order": -1.0},
        {"skip_below": 1.5},
        {"slippage_bps": 501.0},
        {"volume_share": 0.0},
        {"volume_share": 1.1},
        {"api_key": "PK"},
    ],
    ids=str,
)
def test_account_outside_its_bounds_is_invalid(wrong):
    with pytest.raises(ValidationError):
        SimulatedAccountSpec(**wrong)


@pytest.mark.parametrize(
    "address",
    ["http://broker.example", "broker.example", "ftp://broker.example", "https://", "https://k@broker.example"],
)
def test_base_url_must_be_https_or_loopback(address):
    with pytest.raises(ValidationError):
        AlpacaAccountSpec(base_url=address)


@pytest.mark.parametrize("address", ["https://broker.example", "http://127.0.0.1:8080", "http://[::1]:8080"])
def test_base_url_may_name_another_server(address):
    assert AlpacaAccountSpec(base_url=address).base_url == address


@pytest.mark.parametrize(
    "address",
    [
        "https://api.alpaca.markets",
        "https://api.alpaca.markets.",
        "https://API.Alpaca.Markets",
        "https://api.alpaca.markets:443",
        "https://api.alpaca.markets./v2",
        "https://api\u3002alpaca\u3002markets",
        "https://api.alpaca.markets\\@127.0.0.1",
    ],
)
def test_paper_account_rejects_every_spelling_of_the_live_host(address):
    with pytest.raises(ValidationError, match="money"):
        AlpacaAccountSpec(base_url=address)


def test_live_account_may_name_the_live_host():
    assert AlpacaAccountSpec(base_url="https://api.alpaca.markets", paper=False).paper is False
