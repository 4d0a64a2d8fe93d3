"""A small experiment of two folds by three seeds on random walks."""

from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.experiments.plan import RunPlan, policy_card
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import write_archive
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from tests.experiments.memory import MemoryStore, whole
from tests.markets import synthetic_panel
from tests.policies.small_learners import AGENT, SPEC

EXPERIMENT = ExperimentSpec(
    name="tiny",
    environment=SPEC,
    agent=AGENT,
    pipeline=WeightPipeline(risk_limits=RiskLimits(max_position=1.0)),  # nothing binds on three names
    splitter=WalkForward(train_months=12, test_months=12),
    baselines=(EqualWeight(), BuyAndHold()),
    seeds=(0, 1, 5),
    training_sample_rate=0.25,
)
KEYS = [(fold, seed) for fold in (0, 1) for seed in (0, 1, 5)]
TABLES = ("trajectories", "equity_curves", "action_logs", "reward_decomposition")


def planned(spec=EXPERIMENT, panel=None) -> RunPlan:
    return RunPlan.of(spec, panel or synthetic_panel(700, 3))


def trained(plan) -> MemoryStore:
    """The store of a whole run."""
    store = MemoryStore()
    store.reported = list(whole(plan, store))
    return store


def archives_of_rule(plan) -> dict[tuple[int, int], bytes]:
    """What a run of a rule keeps, which trains nothing."""
    fit = Fit({}, ObservationScaler(), [])
    return {key: write_archive(policy_card(plan, plan.task(key), fit), {}) for key in plan.keys}
