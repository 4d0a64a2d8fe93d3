import logging

import dagster as dg
import pytest

from nvtrader_pipelines.orchestration.console import console_logger


@pytest.fixture
def printed(capsys):
    """What a person sees of a run of these assets and checks."""

    def lines(*definitions) -> list[str]:
        assets = [each for each in definitions if not isinstance(each, dg.AssetChecksDefinition)]
        checks = [each for each in definitions if isinstance(each, dg.AssetChecksDefinition)]
        jobs = [dg.define_asset_job("job", "*")]
        defs = dg.Definitions(assets, asset_checks=checks, jobs=jobs, loggers={"console": console_logger})
        settings = {"loggers": {"console": {}}}
        defs.resolve_job_def("job").execute_in_process(run_config=settings, raise_on_error=False)
        logging.getLogger("nvtrader_pipelines.progress").handlers = []
        return capsys.readouterr().out.splitlines()

    return lines


def test_console_prints_messages_then_one_line_per_step(printed):
    @dg.asset(key=["gold", "returns"])
    def returns(context: dg.AssetExecutionContext) -> None:
        context.log.info("3 names")
        context.log.debug("too much")

    said, done = printed(returns)
    assert said == "    3 names"
    assert done.startswith("  gold.returns  ")
    assert done.endswith(" s")


@pytest.mark.slow
def test_console_prints_failures_and_omits_passed_checks(printed):
    @dg.asset
    def good() -> None: ...

    @dg.asset
    def bad() -> None:
        raise ValueError("no")

    @dg.asset_check(asset=good)
    def holds() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=good)
    def does_not() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    @dg.asset_check(asset=good)
    def says_why() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, description="one figure is low\nanother is missing")

    lines = printed(good, bad, holds, does_not, says_why)
    assert "  bad  failed" in lines
    assert [line for line in lines if "did not pass" in line] == [
        "  good_does_not  check did not pass",
        "  good_says_why  check did not pass",
    ]
    why = lines.index("  good_says_why  check did not pass")
    assert lines[why + 1 : why + 3] == ["    one figure is low", "    another is missing"]
