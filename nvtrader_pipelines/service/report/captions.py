"""Captions of the report's pictures, in words and in the order in which they are shown."""

CAPTIONS = {  # by the beginning of the picture's name
    "equity": "Equity of one unit after costs, on a logarithmic scale, with the drawdown below: the policy thick, its "
    "seeds thin, the baselines in dashes. The reported period is shaded.",
    "exposure": "Gross of the policy's account at each close, before the cap at the close and after it, with its "
    "limits; below, interest and borrow fees paid so far, and the decisions in which guards fired, with their shares.",
    "ratio_curve": "Net Sharpe ratio of every completed run in the order of their ends, with its 95 % interval; below, "
    "the probability that it exceeds what the best of all trials reaches by luck, and the largest drawdown. "
    "Small points are the trials of searches on their validation.",
    "information_ratio": "Information ratio of every trial against its best baseline and against its anchor or 1/N, "
    "with 95 % intervals; the dashed line is what the best of all trials would reach without skill.",
    "overfitting": "Left: how the trial that is best in one half of the sessions ranks in the other; right: its "
    "information ratio in both halves.",
    "regimes": "Results by market state; the states are labeled with hindsight.",
    "compass": "Scores on the six axes of PRUDEX; 50 is 1/N. Filled fields of the ring were computed.",
    "pride_star": "Profit, risk, universality, diversity and reliability of each account, relative to the others.",
    "performance_profile": "Share of test windows in which an account's score exceeds a threshold; higher is better.",
    "rank_distribution": "Share of test windows in which each account has each rank.",
    "extreme_markets": "Returns in the most extreme market windows.",
    "actions": "Decisions embedded in a plane by t-SNE: neighbors hold similar weights, large distances mean nothing.",
    "weights": "Mean weight by name and year; white is 1/N, blue is more, brown is less.",
    "total_return": "Total return of each account in each stressed market, net of costs; blue is a gain, red a loss.",
    "max_drawdown": "Largest drawdown of each account in each stressed market.",
    "scoreboard": "Net Sharpe ratios with 95 % intervals, the best rank on top.",
}


def find_caption(name: str) -> str:
    """Caption of a picture; empty without one."""
    return next((caption for start, caption in CAPTIONS.items() if name.startswith(start)), "")


def caption_order(name: str) -> tuple[int, str]:
    """Sort key of pictures: the order of the captions, then the name."""
    starts = list(CAPTIONS)
    return next((i for i, start in enumerate(starts) if name.startswith(start)), len(starts)), name
