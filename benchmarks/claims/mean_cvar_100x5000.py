"""Mean-CVaR of 100 names on 5,000 scenarios, against three peers on the same scenarios."""

from benchmarks.claim import Goal
from benchmarks.portfolio_peers import report_against_peers


def main() -> None:
    """Report the ratio to each peer."""
    report_against_peers(100, 0.05, 3, Goal(ratio_at_least=30.0))


if __name__ == "__main__":
    main()
