"""Weight pipeline from a policy's proposal to target weights: select, allocate, time, limit."""

from nvtrader_pipelines.portfolio.pipeline.allocators import Allocator
from nvtrader_pipelines.portfolio.pipeline.limits import Limit
from nvtrader_pipelines.portfolio.pipeline.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.risk_limits import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.selectors import Selector
from nvtrader_pipelines.portfolio.pipeline.stage import AccountPath, PipelineResult, Situation, StageWeights, Thresholds
from nvtrader_pipelines.portfolio.pipeline.timings import Timing

__all__ = [
    "AccountPath",
    "Allocator",
    "Limit",
    "PipelineResult",
    "RiskLimits",
    "Selector",
    "Situation",
    "StageWeights",
    "Thresholds",
    "Timing",
    "WeightPipeline",
]
