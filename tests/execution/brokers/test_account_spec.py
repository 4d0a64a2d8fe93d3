"""What an account may be."""

import pytest
from pydantic import ValidationError

from nvtrader_pipelines.components.component import field_comments, members
from nvtrader_pipelines.execution.brokers.account_spec import AccountSpec, AlpacaAccountSpec, PaperAccountSpec


def test_the_default_account_is_fractional_and_as_the_back_test_is():
    account = PaperAccountSpec()
    assert (account.capital, account.whole_shares, account.min_order, account.skip_below) == (1_000_000.0, False, 0, 0)
    assert (account.slippage_bps, account.volume_share) == (0.0, None)


def test_an_account_at_alpaca_trades_on_paper_unless_it_says_otherwise():
    assert AlpacaAccountSpec().paper is True


@pytest.mark.parametrize("member", members(AccountSpec), ids=lambda member: member.__name__)
def test_every_field_says_what_it_is(member):
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
def test_an_account_outside_its_bounds_is_refused(wrong):
    with pytest.raises(ValidationError):
        PaperAccountSpec(**wrong)


@pytest.mark.parametrize(
    "address",
    ["http://broker.example", "broker.example", "ftp://broker.example", "https://", "https://k@broker.example"],
)
def test_keys_are_sent_only_where_nobody_reads_them(address):
    with pytest.raises(ValidationError, match="must be an https address, since keys are sent to it"):
        AlpacaAccountSpec(base_url=address)


@pytest.mark.parametrize("address", ["https://broker.example", "http://127.0.0.1:8080", "http://[::1]:8080"])
def test_another_server_may_be_named(address):
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
def test_the_server_that_trades_with_money_is_no_paper_account_however_it_is_written(address):
    with pytest.raises(ValidationError, match="trades with money, but paper is true"):
        AlpacaAccountSpec(base_url=address)


def test_the_server_that_trades_with_money_may_be_named_where_money_is_traded():
    assert AlpacaAccountSpec(base_url="https://api.alpaca.markets", paper=False).paper is False
