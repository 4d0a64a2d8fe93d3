import dagster as dg

from nvtrader_pipelines.desk.account_holds import EVERY_ACCOUNT, hold_account, release_account
from nvtrader_pipelines.orchestration.rebalancing import require_passed

CHECK = "portfolio.orders.no_nan"


def trades(home, account="paper") -> bool:
    try:
        require_passed(home, account)
    except dg.Failure as refusal:
        return CHECK not in f"{refusal}"
    return True


def test_require_passed_without_evaluations_trades(home):
    assert trades(home)


def test_require_passed_failed_check_holds_its_account_until_it_passes(home):
    for _ in range(2):
        hold_account(home, "paper", CHECK)
    assert not trades(home)
    assert trades(home, "another")
    release_account(home, "another", CHECK)
    assert not trades(home)
    release_account(home, "paper", CHECK)
    assert trades(home)


def test_require_passed_failed_check_of_every_account_holds_all(home):
    hold_account(home, EVERY_ACCOUNT, CHECK)
    assert not trades(home)
    assert not trades(home, "another")
