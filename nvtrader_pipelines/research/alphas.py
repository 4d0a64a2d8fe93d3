"""Alphas: formulas that may predict returns, and their evaluation over all that were ever tried."""

import json
import re
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import polars as pl
import yaml

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.document import Document, row_model
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.components.text import Text
from nvtrader_pipelines.evaluation.multiple_testing import adjusted_p_values
from nvtrader_pipelines.evaluation.rank_ic import RankIc, rank_ic
from nvtrader_pipelines.experiments.progress import Progress, Stage
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.features import Formula
from nvtrader_pipelines.market.features.formula import FormulaTree, MissingFieldError
from nvtrader_pipelines.market.history import PriceHistory
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest, values_on_panel
from nvtrader_pipelines.policies.baselines import FactorRank
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.documents import parse_document, read_document, validate_document
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.files import escape_name, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.panels import read_history
from nvtrader_pipelines.storage.read_sources import note_read
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Row, to_frame
from nvtrader_pipelines.storage.tables import ALPHAS

ALPHA_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
FALSE_DISCOVERY_RATE = 0.05  # largest adjusted p value of a significant alpha
NOT_EVALUATED = "not evaluated"


class AlphaSpec(Component):
    """Alpha: a formula whose values may predict the returns of names."""

    description: Text = ""
    formula: FormulaTree

    @property
    def feature(self) -> Formula:
        """Feature of the formula."""
        return Formula(formula=self.formula)


class ListedAlpha(row_model(ALPHAS.schema.without("panel_digest"))):
    """Alpha, with its evaluation on a source."""


class NewAlpha(Document):
    """File of a new alpha."""

    name: str
    path: Path


class FoundAlphas(NamedTuple):
    """Content of `data/alphas`: the usable alphas, and the problem of each other file."""

    specs: dict[str, AlphaSpec]  # by name
    problems: dict[str, str]  # by name


def read_alphas(home: Home) -> FoundAlphas:
    """Read the files of `data/alphas`, sorted by name."""
    note_read(home.alphas)
    alphas = FoundAlphas({}, {})
    for path in sorted(home.alphas.glob("*.yaml")):
        try:
            alphas.specs[path.stem] = _read_file(path)
        except StorageError as error:
            alphas.problems[escape_name(Path(path.stem))] = str(error)
    return alphas


def read_alpha(home: Home, name: str) -> AlphaSpec:
    """Read an alpha.

    Raises:
        NotFoundError: if there is no such alpha.
        StorageError: if its file is not a valid alpha.
    """
    alphas = read_alphas(home)
    if name in alphas.problems:
        raise StorageError(alphas.problems[name])
    if name not in alphas.specs:
        names = f", or use one of: {', '.join(alphas.specs)}{suggest(name, [*alphas.specs])}" if alphas.specs else ""
        raise NotFoundError(f"there is no alpha {name!r}; write data/alphas/<name>.yaml{names}")
    return alphas.specs[name]


def _read_file(path: Path) -> AlphaSpec:
    _require_name(path.stem, "rename its file")
    return validate_document(read_document(path), AlphaSpec, f"{path.name} is not a valid alpha")


def _require_name(name: str, remedy: str) -> None:
    if not ALPHA_NAME.fullmatch(name):
        raise StorageError(
            "the name of an alpha must be up to 63 lowercase letters, digits and -, not starting with -, but is "
            f"{name!r}; {remedy}"
        )


def write_alpha(home: Home, name: str, formula: str, description: str = "") -> NewAlpha:
    """Write the file of a new alpha.

    Args:
        home: home of the file.
        name: of the alpha.
        formula: in YAML or JSON.
        description: in a line.

    Raises:
        StorageError: if the name is invalid or taken, or the formula is not valid.
    """
    _require_name(name, "name it otherwise")
    path = home.alphas / f"{name}.yaml"
    if path.exists():
        raise StorageError(f"alpha {name} already exists in {path}; choose another name")
    content = parse_document(f"formula: {formula}".encode(), "the formula") | {"description": description}
    alpha = validate_document(content, AlphaSpec, "the formula is not valid")
    text = yaml.safe_dump(alpha.model_dump(mode="json"), sort_keys=False, default_flow_style=None)
    write_atomically(path, text.encode())
    return NewAlpha(name=name, path=path)


def alpha_experiment(home: Home, name: str) -> dict[str, Any]:
    """Fields of an experiment whose agent holds the names with the highest values of an alpha.

    Raises:
        NotFoundError: if there is no such alpha.
        StorageError: if its file is not a valid alpha.
    """
    feature = read_alpha(home, name).feature
    return {
        "description": f"Alpha {name}.",
        "market": {"features": [feature.model_dump(mode="json")]},
        "agent": FactorRank(feature=feature).model_dump(mode="json"),
        "seeds": [0],
    }


def list_alphas(store: Store) -> pl.DataFrame:
    """List every formula that was ever tried, by source, then alphas that were not; raises as `Warehouse.read`."""
    alphas, rows = read_alphas(store.home), store.tables.read(ALPHAS).to_dicts()
    names = {spec.feature.digest: name for name, spec in alphas.specs.items()}
    tried = [row | {"name": names.get(row["digest"], row["name"])} for row in rows]
    digests = {row["digest"] for row in rows}
    waiting = [
        _unjudged(name, spec.feature) | {"note": NOT_EVALUATED}
        for name, spec in alphas.specs.items()
        if spec.feature.digest not in digests
    ]
    broken = [dict.fromkeys(ALPHAS.schema) | {"name": name, "note": text} for name, text in alphas.problems.items()]
    tried.sort(key=lambda row: (row["source"], row["p_value"], row["name"]))
    return to_frame(ALPHAS, [*tried, *waiting, *broken]).drop("panel_digest")


def evaluate_alphas(
    store: Store, names: Sequence[str], source: str | None = None
) -> Generator[Progress, None, pl.DataFrame]:
    """Correlate alphas with later returns on a source, and correct the p values of all formulas ever tried on it.

    Args:
        store: store of the home.
        names: of alphas; none: all.
        source: source of prices; default: the only ingested one, or sample.

    Returns:
        The rows of these alphas, as `list_alphas` has them.

    Raises:
        NotFoundError: if there is no such alpha, or none at all.
        StorageError: if a file is not a valid alpha, or the source is not ingested.
    """
    alphas = {name: read_alpha(store.home, name) for name in names or read_alphas(store.home).specs}
    if not alphas:
        raise NotFoundError("there is no alpha to evaluate; write data/alphas/<name>.yaml")
    sources = store.panels.sources()
    choice = {"source": source or (sources[0] if len(sources) == 1 else "sample")}
    panel = store.panels.read(validate_document(choice, MarketChoice, "the source is not valid"))
    history, task_id = read_history(store.tables, panel), uuid4().hex

    def progress(stage: Stage, message: str, n_done: int) -> Progress:
        share = n_done / len(alphas)
        return Progress(task_id=task_id, run_id=task_id, stage=stage, message=message, timestamp=now(), share=share)

    yield progress("start", f"{len(alphas)} alphas on {panel.source}", 0)
    judged: dict[str, Row] = {}
    for number, (name, spec) in enumerate(alphas.items(), start=1):
        row = _unjudged(name, spec.feature) | vars(_judge(spec.feature, history, panel))
        judged[row["digest"]] = row | {"source": panel.source, "panel_digest": panel_digest(panel), "judged_at": now()}
        yield progress("evaluate.step", f"{name}: {number} of {len(alphas)}", number)
    rows = _store(store, panel.source, judged)
    yield progress("done", f"{len(alphas)} alphas were evaluated, of {len(rows)} ever tried", len(alphas))
    digests = [spec.feature.digest for spec in alphas.values()]
    return list_alphas(store).filter(pl.col("digest").is_in(digests), source=panel.source)


def _judge(feature: Formula, history: PriceHistory, panel: MarketPanel) -> RankIc:
    """Correlate a formula with later returns; undefined, but a trial, where the source lacks a field."""
    try:
        values = feature.values(history)
    except MissingFieldError as error:
        return RankIc(0, None, 1.0, str(error))
    return rank_ic(values_on_panel(values, history, panel), panel)


def _unjudged(name: str, feature: Formula) -> Row:
    formula = json.dumps(feature.model_dump(mode="json")["formula"])
    return dict.fromkeys(ALPHAS.schema) | {"name": name, "digest": feature.digest, "formula": formula}


def _store(store: Store, source: str, judged: dict[str, Row]) -> list[Row]:
    """Replace the rows of these formulas on a source, and adjust the p values of all its rows."""
    with store.lock("alphas"):
        before = store.tables.read(ALPHAS, {"source": [source]}).to_dicts()
        rows = list(({row["digest"]: row for row in before} | judged).values())
        adjusted = adjusted_p_values(np.array([row["p_value"] for row in rows]), "benjamini_hochberg").tolist()
        rows = [
            row | {"adjusted_p_value": value, "n_tried": len(rows), "is_significant": value <= FALSE_DISCOVERY_RATE}
            for row, value in zip(rows, adjusted, strict=True)
        ]
        store.tables.replace(ALPHAS, to_frame(ALPHAS, rows), {"source": [source]})
    return rows
