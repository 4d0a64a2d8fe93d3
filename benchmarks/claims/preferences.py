"""Tuning to 10,000 pairs: its seconds, and the AUC of a known judge whose labels are flipped."""

from statistics import median
from time import perf_counter

from benchmarks.claim import Goal, report
from benchmarks.known_judge import AGENT, SPEC, START, WINDOW, clean_auc, judged_pairs, robust, tune
from nvtrader_pipelines.market.sample import sample_panel

N_PAIRS, SEEDS = 10_000, range(5)
FLIPS = (0.0, 0.2, 0.4, 0.5)


def main() -> None:
    """Report seconds of a training, and AUCs by the share of flipped labels and the loss."""
    panel = sample_panel()
    start = START.train(panel, SPEC, WINDOW, 0)
    seconds, plain, unbiased = [], {}, {}
    for flips in FLIPS:
        for losses, agent in ((plain, AGENT), (unbiased, robust(AGENT, min(flips, 0.49)))):
            for seed in SEEDS:
                pairs = judged_pairs(panel, N_PAIRS, flips, seed)
                begun = perf_counter()
                tuned = tune(panel, start, pairs, agent, seed)
                seconds.append(perf_counter() - begun)
                losses.setdefault(flips, []).append(clean_auc(panel, start, tuned, seed).auc)
    report(
        "dpo_10000",
        max(seconds),
        "s",
        Goal(value_at_most=60.0),
        note=f"slowest of {len(seconds)} trainings by {N_PAIRS:,} pairs of 20 names, one thread, wall clock",
    )
    shown = "; ".join(
        f"{flips:.0%} flipped: sigmoid {median(plain[flips]):.3f}, robust {median(unbiased[flips]):.3f}"
        for flips in FLIPS
    )
    sizes = f"{N_PAIRS:,} pairs to learn from, 4,000 others with right labels to tell, median of {len(SEEDS)} seeds"
    report(
        "dpo_flipped",
        median(plain[0.2]),
        "AUC",
        Goal(value_at_least=0.72),
        note=f"a fifth of the labels of a judge of known utility flipped; {sizes}; {shown}",
    )
    report(
        "dpo_robust",
        median(unbiased[0.2]),
        "AUC",
        Goal(ratio_at_least=1.0),
        ratio=median(unbiased[0.2]) / median(plain[0.2]),
        note="the same with the robust loss, which knows the rate of flips; ratio: to the sigmoid loss",
    )


if __name__ == "__main__":
    main()
