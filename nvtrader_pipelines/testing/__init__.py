"""Contract checks of components, for the tests of a package with parts of its own."""

from collections.abc import Callable
from typing import Any

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.testing.agent_checks import AGENTS
from nvtrader_pipelines.testing.environment_checks import ACTIONS, ANCHORS, COSTS, OBSERVATIONS
from nvtrader_pipelines.testing.feature_checks import FEATURES
from nvtrader_pipelines.testing.part_checks import EVERY_PART
from nvtrader_pipelines.testing.reward_checks import REWARDS
from nvtrader_pipelines.testing.stage_checks import ALLOCATORS, LIMITS, SELECTORS, TIMINGS

Check = Callable[[Any], None]  # raises an AssertionError with what must hold
CHECKS: dict[str, tuple[Check, ...]] = {
    "features": FEATURES,
    "observations": OBSERVATIONS,
    "actions": ACTIONS,
    "rewards": REWARDS,
    "costs": COSTS,
    "anchors": ANCHORS,
    "selectors": SELECTORS,
    "allocators": ALLOCATORS,
    "timings": TIMINGS,
    "limits": LIMITS,
    "agents": AGENTS,
    "baselines": AGENTS,
}


def contract(family: str) -> tuple[Check, ...]:
    """Checks to call with a member of a family: those of every part, and the family's own."""
    return (*EVERY_PART, *CHECKS.get(family, ()))


def check_part(family: str, component: Component) -> None:
    """Run every check of a family on a component.

    Raises:
        AssertionError: with what must hold and was found.
        LookAheadError: if a feature looks ahead.
    """
    for check in contract(family):
        check(component)


__all__ = ["CHECKS", "Check", "check_part", "contract"]
