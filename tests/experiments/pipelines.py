"""The small experiment behind other pipelines, with the policies it trained once: training does not see a pipeline."""

from dataclasses import replace

from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.policies.archive import read_archive, write_archive
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.regime_guard import RegimeGuard
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming
from tests.experiments.memory import MemoryStore, whole
from tests.experiments.small import EXPERIMENT

TIMINGS = {
    "constant": ConstantTiming(exposure=0.7),
    "turbulence": TurbulenceTiming(threshold=None, history=40, quantile=0.8, cooldown_scale=0.3, cooldown=2),
    "regime_guard": RegimeGuard(window=10, quantile=0.5),
}


def timed(timing) -> WeightPipeline:
    """The small experiment's pipeline with a timing."""
    return EXPERIMENT.pipeline.model_copy(update={"timing": timing})


def piped(plan, run, pipeline) -> tuple[RunPlan, MemoryStore]:
    """The plan of the experiment behind another pipeline, and the store of its whole run on the same networks."""
    spec = plan.spec.model_copy(update={"pipeline": pipeline})
    other, store = replace(plan, spec=spec), MemoryStore()
    for key, policy in run.policies.items():
        card, tensors = read_archive(policy.archive)
        archive = write_archive(card.model_copy(update={"spec_hash": spec.spec_hash}), tensors)
        store.policies[key] = replace(policy, archive=archive)
    store.reported = list(whole(other, store))
    return other, store
