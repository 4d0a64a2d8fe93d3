"""Evidence of the report: shared tables, read once, and pictures."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import polars as pl

from nvtrader_pipelines.evaluation.verdict_tables import reported_period
from nvtrader_pipelines.promotion.gate import PromotionGate
from nvtrader_pipelines.promotion.promote import read_gate
from nvtrader_pipelines.runs.run_tables import walk_forward_runs
from nvtrader_pipelines.service.documents.universes import with_market
from nvtrader_pipelines.service.report.captions import caption_order, find_caption
from nvtrader_pipelines.service.report.cell_formats import pluralize, to_words
from nvtrader_pipelines.service.report.contents import Plot
from nvtrader_pipelines.storage.specs import read_experiments
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import OVERFITTING, RATIO_CURVE, VALIDATION

N_BEST_RUNS = 8  # experiments with pictures, the best ranked: a picture is a tenth to half of a megabyte
N_OPEN = 3  # pictures of experiments that are shown at once
N_ROWS = 12  # experiments of a table that are shown at once


@dataclass(frozen=True)
class Evidence:
    """Tables that several parts share, read once."""

    store: Store
    runs: pl.DataFrame  # completed runs, oldest first
    latest: pl.DataFrame  # newest run of each experiment and market, best rank first, with its label, group and rank
    curve: pl.DataFrame  # the Sharpe ratio curve
    validation: pl.DataFrame
    overfitting: pl.DataFrame
    gate: PromotionGate  # in force

    @classmethod
    def of(cls, store: Store) -> Self:
        """Read the tables that several parts share."""
        runs, curve = walk_forward_runs(store).sort("finished_at", "run_id"), store.tables.read(RATIO_CURVE)
        latest = with_market(store, runs.group_by("experiment", "source", maintain_order=True).last())
        return cls(
            store,
            runs,
            rank_runs(label_runs(latest), curve, ablation_names(store)),
            curve,
            store.tables.read(VALIDATION),
            store.tables.read(OVERFITTING),
            read_gate(store.home),
        )

    @property
    def best_runs(self) -> pl.DataFrame:
        """Best ranked runs, of which the report has pictures."""
        return self.latest.head(N_BEST_RUNS)

    @cached_property
    def omitted_runs_note(self) -> list[str]:
        """Sentence that names the other runs, as a list; empty if there are none."""
        names = self.latest["label"].to_list()[N_BEST_RUNS:]
        shown = ", ".join(names[:N_BEST_RUNS]) + (" …" if len(names) > N_BEST_RUNS else "")
        more = f"… {pluralize(len(names), 'more experiment')} of lower rank: {shown}."
        return [f"{more} nvtrader policies tear-sheet NAME draws one."] if names else []

    def plots(self, asset: str) -> list[Plot]:
        """List the pictures of an asset that has no partitions."""
        paths = sorted((self.store.home.pictures / asset).glob("*.svg"), key=lambda path: caption_order(path.stem))
        return [Plot(to_words(path.stem), find_caption(path.stem) or to_words(path.stem), path) for path in paths]

    def run_plots(self, asset: str, label: str, partition_key: str) -> list[Plot]:
        """List the pictures of an asset for one run."""
        folder = self.store.home.pictures / asset / partition_key
        paths = sorted(folder.glob("*.svg"), key=lambda path: caption_order(path.stem))
        return [Plot(f"{label}: {to_words(path.stem)}", f"{label}. {find_caption(path.stem)}", path) for path in paths]


def label_runs(latest: pl.DataFrame) -> pl.DataFrame:
    """Add a label: the experiment, its market if it has several, and "(validation only)"."""
    market = pl.when(pl.len().over("experiment") > 1).then(pl.format(" on {}", "source")).otherwise(pl.lit(""))
    mark = pl.when("validation_only").then(pl.lit(" (validation only)")).otherwise(pl.lit(""))
    return latest.with_columns(pl.concat_str("experiment", market, mark).alias("label"))


def rank_runs(latest: pl.DataFrame, curve: pl.DataFrame, ablations: dict[str, str]) -> pl.DataFrame:
    """Add the rank in the reported period and the ablation (`group`); sort the best rank first.

    Variants of an ablation follow one another, at the place of the best; without an ablation the group is the label.
    """
    parts = [
        rows.filter(period=reported_period(rows["period"])).select("run_id", "rank")
        for rows in curve.partition_by("source")
    ]
    ranks = pl.concat([curve.clear().select("run_id", "rank"), *parts])
    group = pl.col("experiment").replace_strict(ablations, default=pl.col("label"), return_dtype=pl.String)
    grouped = latest.join(ranks, on="run_id", how="left", maintain_order="left").with_columns(group.alias("group"))
    best, first = (value.min().over("source", "group") for value in (pl.col("rank"), pl.int_range(pl.len())))
    return grouped.sort(best, first, "rank", nulls_last=True, maintain_order=True)


def ablation_names(store: Store) -> dict[str, str]:
    """Ablation of each variant, by the variant's name, from the files of the experiments."""
    return {
        variant.name: spec.name
        for spec in read_experiments(store.home).specs
        for variant in spec.variants()
        if variant.name != spec.name
    }
