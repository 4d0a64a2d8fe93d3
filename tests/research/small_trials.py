"""Small experiments and jobs of a search, for tests that judge trials."""

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.policies.baselines import Cufolio, EqualWeight
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PartialAdjustment, PositionCap
from nvtrader_pipelines.portfolio.pipeline.regime_guard import RegimeGuard
from nvtrader_pipelines.portfolio.pipeline.timings import VolatilityTargetTiming
from nvtrader_pipelines.research.trial_judgement import TrialJob
from tests.markets import synthetic_panel
from tests.policies.small_learners import AGENT, RESIDUAL_AGENT, RESIDUAL_SPEC, SPEC, endless

PANEL = synthetic_panel(300, 6)
DIGEST = panel_digest(PANEL)
FOLDS = (Fold(0, 0, 149, 155, 219), Fold(1, 0, 214, 220, 299))
COSTLY = SPEC.model_copy(update={"turnover_cost_bps": 40.0, "rebal_freq": 3})
PPO = ExperimentSpec(name="ppo", environment=COSTLY, agent=AGENT)
RESIDUAL = ExperimentSpec(
    name="residual",
    environment=RESIDUAL_SPEC,
    agent=RESIDUAL_AGENT,
    pipeline=WeightPipeline(
        timing=VolatilityTargetTiming(), limits=(PartialAdjustment(), PositionCap(), GrossExposure())
    ),
)
GUARDED = ExperimentSpec(
    name="guarded", environment=COSTLY, agent=AGENT, pipeline=WeightPipeline(timing=RegimeGuard(quantile=0.6))
)
CUFOLIO = ExperimentSpec(
    name="classical", agent=Cufolio(n_scenarios=1000, history=63, cufolio_hold_days=20, max_position_pct=0.25)
)
EQUAL = ExperimentSpec(name="equal", agent=EqualWeight())
ALLOCATED = EQUAL.model_copy(
    update={
        "pipeline": WeightPipeline(
            allocator=CufolioAllocator(n_scenarios=1000, history=63, cufolio_hold_days=20, max_position_pct=0.25)
        )
    }
)
ENDLESS = ExperimentSpec(name="endless", environment=SPEC, agent=endless(AGENT))


def job_of(spec: ExperimentSpec, number: int = 1, **settings) -> TrialJob:
    """Return the job of a trial."""
    return TrialJob(**{"number": number, "spec": spec, "seed": spec.seeds[0], "folds": FOLDS, **settings})
