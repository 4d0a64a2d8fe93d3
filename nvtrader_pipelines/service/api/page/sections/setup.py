"""Environment and markets that everything is trained and judged on."""

import polars as pl

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.experiments.plan import SURVIVORSHIP
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.market_summary import read_panel_rows
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.specs import read_market


def read_setup(shared: Context) -> Content:
    """Read the environment, and the markets that are built."""
    problem, names = "", set[str]()
    try:
        names = {source.name for source in read_market(shared.home).sources}
    except StorageError as error:
        problem = str(error)
    markets = read_panel_rows(shared.store)
    spec = ExperimentSpec(name="defaults")
    part = render(
        "setup",
        markets=markets.filter(pl.col("source").is_in(names)).to_dicts() if names else markets.to_dicts(),
        environment=EnvSpec(),
        splitter=spec.splitter,
        n_seeds=len(spec.seeds),
        problem=problem,
        survivorship=SURVIVORSHIP,
    )
    return Content({"setup": part}, values={"sources": ",".join(markets["source"])})
