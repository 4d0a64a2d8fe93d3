import dagster as dg

from nvtrader_pipelines.desk.account_holds import EVERY_ACCOUNT, hold_account, release_account
from nvtrader_pipelines.orchestration.rebalance_steps import require_checks_passed

CHECK = "portfolio.orders.no_nan"


def trades(home, account="paper") -> bool:
    try:
        require_checks_passed(home, account)
    except dg.Failure as refusal:
        return CHECK not in f"{refusal}"
    return True


def test_require_checks_passed_without_evaluations_passes(home):
    assert trades(home)


def test_require_checks_passed_raises_until_the_failed_check_passes(home):
    for _ in range(2):
        hold_account(home, "paper", CHECK)
    assert not trades(home)
    assert trades(home, "another")
    release_account(home, "another", CHECK)
    assert not trades(home)
    release_account(home, "paper", CHECK)
    assert trades(home)


def test_require_checks_passed_failed_audit_check_holds_all_accounts(home):
    hold_account(home, EVERY_ACCOUNT, CHECK)
    assert not trades(home)
    assert not trades(home, "another")
