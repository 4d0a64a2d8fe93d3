"""Mean-CVaR of 20 names on 5,000 scenarios, against three peers on the same scenarios."""

from benchmarks.claim import Goal
from benchmarks.portfolio_peers import report_against_peers


def main() -> None:
    """Report the ratio to each peer."""
    report_against_peers(20, 0.15, 10, Goal(ratio_at_least=12.0))
    report_against_peers(20, 0.15, 5, Goal(ratio_at_least=12.0), rebalances=True)


if __name__ == "__main__":
    main()
