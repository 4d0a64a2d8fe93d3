"""Tuning to 10,000 pairs: its seconds, and the AUC of a known judge whose labels are flipped."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from benchmarks.claim import Goal, report
from benchmarks.known_judge import AGENT, SPEC, START, WINDOW, clean_auc, judged_pairs, robust, tune
from nvtrader_pipelines.market.sample import sample_panel

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "preferences.png"
N_PAIRS, SEEDS = 10_000, range(5)
FLIPS = (0.0, 0.2, 0.4, 0.5)


def main() -> None:
    """Report seconds of a training, and AUCs by the share of flipped labels and the loss."""
    panel = sample_panel()
    start = START.train(panel, SPEC, WINDOW, 0)
    seconds: list[float] = []
    plain: dict[float, list[float]] = {}
    unbiased: dict[float, list[float]] = {}
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
    draw({"sigmoid (DPO)": plain, "robust": unbiased}, PICTURE)


def draw(aucs: Mapping[str, Mapping[float, Sequence[float]]], picture: Path) -> None:
    """Draw the AUC over the share of flipped labels by loss: the median, and all seeds as dots."""
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
        for (name, by_flips), color in zip(aucs.items(), ("#0072B2", "#D55E00"), strict=True):
            axes.plot(list(by_flips), [median(several) for several in by_flips.values()], "-", color=color, label=name)
            for flips, several in by_flips.items():
                axes.plot([flips] * len(several), several, ".", color=color, alpha=0.6)
        axes.set_xlabel("share of labels that are flipped")
        axes.set_ylabel("AUC on other pairs, with right labels")
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend(frameon=False, title="loss; line: median of 5 seeds")
        axes.set_title("What a policy learns from a judge of known utility; dotted: chance", loc="left", fontsize=11)
        figure.savefig(picture, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
