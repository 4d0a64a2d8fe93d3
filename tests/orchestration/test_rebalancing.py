import dagster as dg
import pytest

from nvtrader_pipelines.orchestration.rebalancing import ACCOUNT, require_passed

KEY = dg.AssetKey(["portfolio", "rows"])
CHECK = dg.AssetCheckKey(KEY, "whole")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def evening(instance, account="paper", *, says: bool | None, writes=True, alone=False) -> str:
    """A run that writes an account's rows and has them checked, or only the check; `says` None is one that crashes."""

    @dg.asset(key=KEY)
    def written() -> dg.MaterializeResult:
        if not writes:
            raise RuntimeError("the bars are not there")
        return dg.MaterializeResult(metadata={ACCOUNT: account})

    @dg.asset_check(asset=KEY, name="whole")
    def checked() -> dg.AssetCheckResult:
        if says is None:
            raise RuntimeError("the table cannot be read")
        return dg.AssetCheckResult(passed=says, metadata={ACCOUNT: account})

    job = dg.define_asset_job("evening", dg.AssetSelection.checks(CHECK) if alone else "*")
    resolved = dg.Definitions([written], asset_checks=[checked], jobs=[job]).resolve_job_def("evening")
    return resolved.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False).run_id


def trades(instance, account="paper", run_id="the run that asks") -> bool:
    try:
        require_passed(instance, [CHECK], account, run_id)
    except dg.Failure as refusal:
        return "whole of portfolio/rows did not pass when last evaluated, or came to no end" not in f"{refusal}"
    return True


def test_an_account_without_evaluations_trades(instance):
    assert trades(instance)


def test_the_last_evaluation_of_an_account_decides_for_it(instance):
    evening(instance, says=False)
    evening(instance, "another", says=True)
    assert not trades(instance)
    assert trades(instance, "another")
    evening(instance, says=True, alone=True)
    assert trades(instance)


def test_a_check_that_crashed_did_not_pass_whatever_was_said_before(instance):
    evening(instance, "another", says=True)
    evening(instance, says=True)
    crashed = evening(instance, says=None)
    assert not trades(instance)
    assert trades(instance, "another")
    assert trades(instance, run_id=crashed)  # its own checks come later
    evening(instance, says=True, alone=True)
    assert trades(instance)
    evening(instance, says=None, alone=True)
    assert not trades(instance)
    assert not trades(instance, "another")  # nobody can tell whose rows it looked at


def test_a_check_that_was_never_reached_leaves_what_was_said_before(instance):
    evening(instance, says=True)
    evening(instance, says=True, writes=False)
    assert trades(instance)
    evening(instance, says=False)
    evening(instance, says=True, writes=False)
    assert not trades(instance)


def test_a_failed_check_is_found_behind_any_number_of_evaluations_of_others(instance):
    evening(instance, says=False)
    for _ in range(21):
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=KEY, check_name="whole", passed=True, metadata={ACCOUNT: "another"})
        )
    assert not trades(instance)
    assert trades(instance, "another")
