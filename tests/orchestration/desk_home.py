"""Home with two untrained experiments of which one passes the promotion gate."""

from pathlib import Path

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.baselines import EqualWeight, MinimumVariance
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.storage.store import Store
from tests.runs.small_runs import EXPERIMENT, small_home
from tests.runs.untrained import evaluate_sealed, planned, sealed

GATE = "least_sessions: 20\nintervals:\n  confidence_level: 0.02\n"  # whose interval is hardly wider than its point
PIPELINE = WeightPipeline(risk_limits=RiskLimits(max_position=0.4, max_turnover=1.0, min_names=0))
SECTORS = "symbol,sector\nAAA,one\nBBB,two\nCCC,three\n"
LIMITS = "max_position: 0.4\nmax_turnover: 1.0\nmin_names: 0\n"  # three names that are held whole


def spec_of(name, agent, baseline) -> ExperimentSpec:
    every = EXPERIMENT.environment.model_copy(update={"rebal_freq": 2})
    changes = {
        "environment": every,
        "name": name,
        "agent": agent,
        "baselines": (baseline,),
        "seeds": (0,),
        "pipeline": PIPELINE,
    }
    return ExperimentSpec.model_validate({**EXPERIMENT.model_dump(), **changes})


BETTER = spec_of("better", EqualWeight(), MinimumVariance(history=42))  # on these random walks
WORSE = spec_of("worse", MinimumVariance(history=42), EqualWeight())


def desk_home(root: Path, *specs: ExperimentSpec) -> Store:
    """The home, in which the experiments were run in this order."""
    store = small_home(root)
    (root / "data" / "promotion.yaml").write_text(GATE)
    store.home.compliance.mkdir(parents=True)
    (store.home.compliance / "limits.yaml").write_text(LIMITS)
    (store.home.compliance / "sectors.csv").write_text(SECTORS)
    for spec in specs:
        run = sealed(store, planned(store, spec))
        evaluate_sealed(store, run)
    return store
