"""Period of a verdict that is reported and that the promotion gate judges."""

import polars as pl


def reported_period(periods: pl.Series) -> str:
    """Reported period among those of verdicts: the last `from_<year>`, else `all`."""
    reported = periods.filter(periods.str.starts_with("from_")).sort()
    return str(reported[-1]) if len(reported) else "all"
