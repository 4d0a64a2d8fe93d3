"""PRUDEX and validation of all runs, computed once per contest."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import polars as pl

from nvtrader_pipelines.components.executor_choice import make_executor
from nvtrader_pipelines.evaluation.prudex import prudex_compass
from nvtrader_pipelines.evaluation.trial_validation import validate_sources
from nvtrader_pipelines.experiments.code_digest import code_digest
from nvtrader_pipelines.figures import prudex_figures
from nvtrader_pipelines.figures.canvas import Picture, RenderedPicture
from nvtrader_pipelines.policies.training import PRELOADED
from nvtrader_pipelines.scoreboard.prudex_rows import read_prudex_record, stored_surrogate
from nvtrader_pipelines.scoreboard.trial_history import trial_curves, trial_runs
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.judgements import Result
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS, OVERFITTING, PRUDEX, VALIDATION

_PICTURES = "pictures"


def prudex_result(store: Store, contest: str) -> Result:
    """Rows of PRUDEX over all runs, and their pictures, by the digest of the contest."""
    return store.judgements.compute_once(_digest("prudex", contest, "figures"), lambda: _compute_prudex(store))


def validation_result(store: Store, contest: str) -> Result:
    """Rows of VALIDATION and OVERFITTING, by the digest of the contest."""
    return store.judgements.compute_once(_digest("validation", contest), lambda: _compute_validation(store))


def pictures_of(result: Result) -> dict[str, RenderedPicture]:
    """Pictures of a result by name."""
    return {name: RenderedPicture(png, svg) for name, png, svg in result.frames[_PICTURES].iter_rows()}


@contextmanager
def precompute_results(home: Home, contest: str) -> Iterator[None]:
    """Compute both results on another core, if there is one, while the context runs."""
    if (os.cpu_count() or 1) < 2:
        yield
        return
    with make_executor(1, PRELOADED) as executor:  # as the shards of scorecards, whose server it may start
        executor.submit(compute_results, home, contest)
        yield


def compute_results(home: Home, contest: str) -> None:
    """Compute the results that are not stored yet."""
    store = Store(home)
    validation_result(store, contest)  # first: its asset draws pictures while PRUDEX is computed
    prudex_result(store, contest)


def _compute_prudex(store: Store) -> Result:
    compass = prudex_compass(read_prudex_record(store), surrogate=stored_surrogate(store.judgements))
    return Result(None, {PRUDEX.table: compass.table, _PICTURES: _rows(prudex_figures(compass))})


def _compute_validation(store: Store) -> Result:
    runs = trial_runs(store)
    curves, evaluations = trial_curves(store, runs), store.tables.read(EVALUATIONS)
    judged = validate_sources(runs, curves, evaluations, store.read_calendars())
    return Result(None, {VALIDATION.table: judged.trials, OVERFITTING.table: judged.overfitting})


def _rows(pictures: Mapping[str, Picture]) -> pl.DataFrame:
    rows = [(name, picture.png(), picture.svg()) for name, picture in pictures.items()]
    return pl.DataFrame(rows, {"name": pl.String, "png": pl.Binary, "svg": pl.Binary}, orient="row")


def _digest(what: str, contest: str, *folders: str) -> str:
    code = code_digest(("scoreboard.overall_results",), frozenset(), "scoreboard", *folders)
    return hashlib.sha256(f"{what}|{contest}|{code}".encode()).hexdigest()
