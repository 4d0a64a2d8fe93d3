"""The contract checks that packages call, on every member of the families that have them."""

import pytest

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.policies.agents import Agent, PpoAgent
from nvtrader_pipelines.service.documents.catalogue import FAMILIES
from nvtrader_pipelines.testing import CHECKS, contract
from nvtrader_pipelines.testing.part_checks import EVERY_PART
from tests.contracts.families import members
from tests.portfolio.pipeline import situations

STAGES = {  # with short histories
    "selectors": situations.SELECTORS,
    "allocators": situations.ALLOCATORS,
    "timings": situations.TIMINGS,
    "limits": [limit for limit in situations.LIMITS if limit.kind not in {"position_cap", "gross_exposure"}],
}
LEARNERS = {  # as PPO; their own tests train them
    kind_of(member) for member in members(Agent) if not member.is_classical and member is not PpoAgent
}


def components(family):
    return STAGES.get(family) or [member() for member in members(FAMILIES[family]) if kind_of(member) not in LEARNERS]


CASES = [
    pytest.param(component, check, id=f"{family}-{component.kind}-{check.__name__}")
    for family in CHECKS
    for component in components(family)
    for check in CHECKS[family]
]
EVERY_MEMBER = [
    pytest.param(member(), id=f"{family}-{kind_of(member)}")
    for family, union in FAMILIES.items()
    for member in members(union)
]


@pytest.mark.slow
@pytest.mark.parametrize(("component", "check"), CASES)
def test_member_keeps_the_contract_of_its_family(component, check):
    check(component)


@pytest.mark.parametrize("component", EVERY_MEMBER)
def test_member_keeps_the_contract_of_every_part(component):
    for check in EVERY_PART:
        check(component)


def test_contract_of_a_family_contains_that_of_every_part():
    assert contract("rewards")[: len(EVERY_PART)] == EVERY_PART
    assert contract("stresses") == EVERY_PART
