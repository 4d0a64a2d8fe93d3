import json
import os
import subprocess
import sys
from datetime import date

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.designs import BasicDesign
from nvtrader_pipelines.experiments.spec import SAMPLE_REPORT_FROM, ExperimentSpec, MarketChoice
from nvtrader_pipelines.policies.agents import PpoAgent
from nvtrader_pipelines.policies.baselines import AnchorPortfolio, BuyAndHold, EqualWeight
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor, VolatilityTargetAnchor
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.storage.documents import DocumentLoader
from tests.experiments.hashes import HOW_TO_ACCEPT, SHIPPED, accepted, current

SPEC = ExperimentSpec(name="a-test")
OTHER = {
    "name": "another",
    "description": "said",
    "market": MarketChoice(source="landing"),
    "environment": EnvSpec(lookback=21),
    "agent": PpoAgent(gamma=0.5),
    "pipeline": WeightPipeline(risk_limits=RiskLimits(max_position=0.2)),
    "splitter": WalkForward(purge_size=7),
    "design": BasicDesign(),
    "training_sample_rate": 0.02,
    "baselines": (EqualWeight(),),
    "seeds": (0, 1, 3),
    "report_from": date(2011, 1, 1),
}


def read(text):
    """The experiment of a YAML text."""
    return ExperimentSpec.model_validate(yaml.load(text, DocumentLoader))


def shuffled(value, draw):
    """The same document with the keys of every mapping in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


def commented(text, draw):
    """The same YAML with comments and blank lines."""
    remarks = draw(st.lists(st.sampled_from(["", "# a remark", "  # more: of it"]), min_size=1, max_size=5))
    lines = [f"{line}  # said" if i % 3 == 0 else line for i, line in enumerate(text.splitlines())]
    return "\n".join(part for i, line in enumerate(lines) for part in (remarks[i % len(remarks)], line))


@pytest.mark.slow
@given(data=st.data())
def test_hash_ignores_key_order_comments_and_round_trips(data):
    document = shuffled(SPEC.model_dump(mode="json"), data.draw)
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=data.draw(st.booleans()), width=10_000)
    assert read(text).spec_hash == SPEC.spec_hash
    assert read(commented(text, data.draw)).spec_hash == SPEC.spec_hash
    assert ExperimentSpec.model_validate_json(json.dumps(document)).spec_hash == SPEC.spec_hash


def spellings(value):
    """One float in every way that YAML of version 1.1 or 1.2 knows."""
    exact, scientific = repr(value), f"{value:.17e}"
    mantissa, exponent = scientific.split("e")
    texts = [exact, scientific, scientific.upper(), f"{mantissa}000e{int(exponent)}", f"{mantissa}e{exponent}"]
    return [*texts, *(f"+{text}" for text in texts), *([str(int(value))] if value.is_integer() else [])]


@pytest.mark.slow
@given(value=st.floats(0.0, 5.0) | st.integers(0, 5).map(float))
def test_the_hash_does_not_depend_on_how_a_number_is_spelled(value):
    expected = ExperimentSpec(name="a", environment=EnvSpec(vol_penalty=value)).spec_hash
    for spelling in spellings(value):
        text = f"{{name: a, environment: {{vol_penalty: {spelling}}}}}"
        assert read(text).spec_hash == expected, spelling
        assert ExperimentSpec.model_validate(yaml.safe_load(text)).spec_hash == expected, spelling


@pytest.mark.parametrize("spelling", ["3e-3", "0.003", "3.0e-03", "3E-3", "30.0e-4", ".003", "+3e-3", "'3e-3'"])
def test_learning_rate_spellings_give_equal_hashes(spelling):
    assert read(f"{{name: a-test, agent: {{kind: ppo, learning_rate: {spelling}}}}}").spec_hash == SPEC.spec_hash


ALIASED = """
name: a-test
environment: {{observation: {{kind: {regime}}}, rewards: [{{kind: {utility}}}]}}
agent: {{kind: {ppo}}}
design: {{kind: ablation, field: agent.kind, values: [a2c, {ppo}]}}
"""


def test_experiment_with_aliases_has_hash_and_code_of_the_kinds():
    kinds = read(ALIASED.format(regime="regime", utility="exponential_utility", ppo="grouped_ppo"))
    aliases = read(ALIASED.format(regime="RegimeAwareObservation", utility="exp_utility", ppo="ppo_inhouse"))
    assert aliases.model_dump() == kinds.model_dump()
    assert aliases.spec_hash == kinds.spec_hash
    assert code_of(aliases) == code_of(kinds)


@pytest.mark.parametrize("spelling", ["81920", "81920.0", "8.192e4", "8.1920E+4", "81_920", "0x14000"])
def test_a_whole_number_is_the_default_however_it_is_spelled(spelling):
    assert read(f"{{name: a-test, agent: {{kind: ppo, total_timesteps: {spelling}}}}}").spec_hash == SPEC.spec_hash


def test_zero_has_no_sign():
    assert read("{name: a, environment: {vol_penalty: -0.0}}").spec_hash == (
        read("{name: a, environment: {vol_penalty: 0}}").spec_hash
    )


@pytest.mark.slow
def test_the_hash_does_not_depend_on_the_machine():
    code = (
        "from nvtrader_pipelines.experiments.spec import *;"
        "print(ExperimentSpec(name='a', description=chr(0x20AC)).spec_hash)"
    )
    elsewhere = {"PYTHONHASHSEED": "7", "LC_ALL": "C", "PYTHONUTF8": "0", "TZ": "Asia/Tokyo"}
    ran = subprocess.run([sys.executable, "-c", code], env=os.environ | elsewhere, capture_output=True, check=True)
    assert ran.stdout.decode().strip() == ExperimentSpec(name="a", description=chr(0x20AC)).spec_hash


def test_the_hashes_are_those_that_were_accepted():
    assert current() == accepted(), HOW_TO_ACCEPT


def test_changed_default_changes_hash_of_specs_that_omit_it():
    class LaterAgent(PpoAgent):
        gae_lambda: float = 0.95

    class LaterSpec(ExperimentSpec):
        agent: LaterAgent = LaterAgent()

    assert LaterSpec(name="a-test").spec_hash != SPEC.spec_hash
    assert LaterSpec(name="a-test", agent=LaterAgent(gae_lambda=0.9)).spec_hash == SPEC.spec_hash


def test_a_default_that_is_written_out_is_the_same_experiment():
    written = ExperimentSpec.model_validate({"name": "a-test", "environment": {"lookback": 20, "vol_penalty": 0.5}})
    assert written.spec_hash == SPEC.spec_hash


def test_a_version_has_the_name_and_eight_digits_of_the_hash():
    assert len(SPEC.spec_hash) == 64
    assert SPEC.partition_key == f"a-test@{SPEC.spec_hash[:8]}"


def test_every_field_is_tried():
    assert ExperimentSpec.model_fields.keys() == OTHER.keys()


@pytest.mark.parametrize("field", OTHER)
def test_any_field_changes_the_hash(field):
    changed = ExperimentSpec.model_validate({**SPEC.model_dump(), field: OTHER[field]})
    assert changed.spec_hash != SPEC.spec_hash


@given(name=st.sampled_from(["turnover_cost_bps", "vol_penalty"]), value=st.floats(0.0, 5.0))
def test_the_hash_tells_floats_apart_to_the_last_bit(name, value):
    first, second = (EnvSpec.model_validate({name: v}) for v in (value, min(5.0, value + 1e-15 + value * 1e-15)))
    hashes = {SPEC.model_copy(update={"environment": environment}).spec_hash for environment in (first, second)}
    assert len(hashes) == len({first, second})


@pytest.mark.parametrize("name", ["", "Upper", "under_score", "-dash", "a/b", "a@b", "x" * 64])
def test_a_name_is_fit_for_a_partition_and_a_folder(name):
    with pytest.raises(ValidationError):
        ExperimentSpec(name=name)


@pytest.mark.parametrize("seeds", [(0, 1), (0, 1, 1), (-1, 0, 1), (0, 1, 2**32), ()])
def test_three_seeds_or_more_differ_and_are_numbers_a_generator_takes(seeds):
    with pytest.raises(ValidationError):
        ExperimentSpec(name="a", seeds=seeds)


def test_a_learner_has_three_seeds_by_default_and_a_rule_one():
    assert SPEC.seeds == (0, 1, 2)
    rule = ExperimentSpec(name="a", agent=BuyAndHold())
    assert rule.seeds == (0,)
    assert ExperimentSpec.model_validate_json(rule.model_dump_json()) == rule


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_experiment_is_valid_and_named_as_its_file(path):
    spec = read(path.read_text())
    assert spec.name == path.stem
    assert spec.description
    assert spec.report_from == date(2010, 1, 1)
    assert (spec.design.kind, spec.splitter.kind) == ("walk_forward", "walk_forward")


def test_reported_period_is_null_unless_set_or_of_the_sample():
    market = {"market": {"source": "landing"}}
    assert ExperimentSpec(name="a").report_from == SAMPLE_REPORT_FROM
    assert ExperimentSpec.model_validate({"name": "a", **market}).report_from is None
    explicit = ExperimentSpec.model_validate({"name": "a", **market, "report_from": "2010-01-01"})
    assert explicit.report_from == SAMPLE_REPORT_FROM


TILT = EnvSpec(action=ResidualAction(anchor=VolatilityTargetAnchor(volatility=0.08)))


def test_action_anchor_is_a_baseline_without_being_listed():
    spec = ExperimentSpec(name="a", environment=TILT, baselines=(EqualWeight(),))
    assert spec.all_baselines == (EqualWeight(), AnchorPortfolio(anchor=TILT.action.anchor))
    listed = ExperimentSpec(name="a", environment=TILT, baselines=spec.all_baselines)
    assert listed.all_baselines == listed.baselines
    assert SPEC.all_baselines == SPEC.baselines  # logits tilt nothing


def test_action_anchor_takes_the_place_of_another_listed_one():
    other = AnchorPortfolio(anchor=EqualWeightAnchor())
    spec = ExperimentSpec(name="a", environment=TILT, baselines=(other, EqualWeight()))
    assert spec.all_baselines == (AnchorPortfolio(anchor=TILT.action.anchor), EqualWeight())


def test_experiment_cannot_have_the_name_of_its_anchor():
    with pytest.raises(ValidationError):
        ExperimentSpec(name="anchor", environment=TILT)
