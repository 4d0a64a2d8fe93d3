"""Builder of the Lab: its form, its YAML and its checks."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from pydantic import BaseModel

from nvtrader_pipelines.storage.specs import read_experiment
from tests.homes import EXPERIMENT_FILES
from tests.runs.small_runs import market_home
from tests.service.api.conftest import AUTHORIZED, client_of
from tests.service.api.page.test_browser import axe_findings

ROOT = Path(__file__).parents[4]


def test_builder_previews_what_an_agent_would_see(look, shared_url, learned):
    page = look(shared_url, f"/lab/build?like={learned.partition_key}")
    for kind in ("reward", "observation"):
        with page.expect_response(f"**/rl/lab/preview-{kind}"):
            page.get_by_role("button", name=f"Preview the {kind}").click()
        expect(page.locator("#previewed tbody tr").first).to_be_visible()
        assert axe_findings(page) == []


def test_builder_begins_with_few_fields_of_a_version_and_shows_problems(look, shared_url, learned):
    page = look(shared_url, f"/lab/build?like={learned.partition_key}")
    labels = page.locator("#draft > .fields label").all_inner_texts()
    assert labels[:5] == ["Name", "Source", "Symbols", "Agent", "Total timesteps total_timesteps"]
    expect(page.locator("#field-environment-rewards")).to_be_visible()
    expect(page.locator("#state")).to_contain_text(f"valid: {learned.experiment}-2@")
    assert axe_findings(page) == []
    page.get_by_text("All settings", exact=True).last.click()
    assert axe_findings(page) == []
    field = page.locator(".field", has=page.locator("#field-agent-gae_lambda"))
    expect(field.locator("label")).to_have_text("GAE lambda gae_lambda")
    expect(field.locator("small")).to_contain_text("between 0 and 1")
    hints = " ".join(page.locator("#draft small").all_inner_texts())
    assert "a whole number between 5 and 60" in hints  # of lookback
    assert "undefined" not in hints
    lookback = page.locator("#field-environment-lookback")
    lookback.fill("999")
    lookback.press("Tab")
    error = page.locator("#field-environment .error[data-path='environment.lookback']")
    expect(error).to_contain_text("999")
    expect(lookback).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#run")).to_have_attribute("aria-disabled", "true")
    lookback.fill("7")
    lookback.press("Tab")
    expect(page.locator("#state")).to_contain_text("valid:")
    expect(page.locator("#yaml")).to_have_value(re.compile(r"lookback: 7\n"))
    page.reload()
    expect(lookback).to_have_value("7")
    expect(lookback).to_be_hidden()
    expect(page.locator("#yaml")).to_have_value(re.compile(r"lookback: 7\n"))


def test_yaml_and_form_of_the_builder_are_one_experiment(look, shared_url, learned):
    page = look(shared_url, f"/lab/build?like={learned.partition_key}")
    yaml = page.locator("#yaml")
    yaml.fill(re.sub(r"rebal_freq: \d+", "rebal_freq: 3", yaml.input_value()))
    yaml.press("Tab")
    expect(page.locator("#field-environment-rebal_freq")).to_have_value("3")
    page.get_by_label("Agent").select_option("equal_weight")
    expect(page.locator(".error[data-path='seeds']")).to_contain_text("one seed")  # All settings open by it
    page.locator("#field-seeds").fill("0")
    page.locator("#field-seeds").press("Tab")
    expect(page.locator("#state")).to_contain_text("valid:")
    n_rewards = page.locator("#field-environment-rewards > fieldset").count()
    page.get_by_role("button", name="Add to rewards").click()
    expect(page.locator("#field-environment-rewards > fieldset")).to_have_count(n_rewards + 1)
    with page.tolerant():
        yaml.fill("<script>window.hacked=1</script>: [")
        yaml.press("Tab")
        expect(page.locator("#problems")).to_contain_text("not valid YAML")
    assert page.evaluate("window.hacked") is None


def leaves(part, path=()):
    """Settings of a resolved spec as the form shows them: identifier of the field to text."""
    if isinstance(part, BaseModel):
        names = [name for name in type(part).model_fields if name != "kind"]
        kind = {f"kind-{'-'.join(path)}": part.kind} if hasattr(part, "kind") and path else {}
        return kind | {k: v for name in names for k, v in leaves(getattr(part, name), (*path, name)).items()}
    if isinstance(part, tuple) and part and isinstance(part[0], BaseModel):
        return {k: v for i, each in enumerate(part) for k, v in leaves(each, (*path, str(i))).items()}
    return {
        f"field-{'-'.join(path)}": ", ".join(map(shown_text, part)) if isinstance(part, tuple) else shown_text(part)
    }


def shown_text(value):
    """Value as JavaScript writes it: 1, not 1.0; true, not True; nothing for None."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: ""}[value]
    if isinstance(value, float) and value != int(value) and abs(value) >= 1e-6:
        return np.format_float_positional(value)
    return f"{value:.17g}" if isinstance(value, float) and value == int(value) else str(value).replace("e-0", "e-")


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.nightly)])
def test_form_of_the_builder_shows_the_resolved_spec(look, empty_url, step):
    """Of every tenth shipped file, at night of every one, also the fields that the canonical form leaves out."""
    page = look(empty_url, "/lab/build")
    files = [*(ROOT / "data/experiments").rglob("*.yaml"), *EXPERIMENT_FILES]
    assert len(files) >= 13
    for spec in (read_experiment(path) for path in sorted(files)[::step] if path.name != "base.yaml"):
        posted = json.dumps(spec.model_dump(mode="json"))
        page.evaluate("async (yaml) => { await check({ yaml }); }", posted)
        shown = page.evaluate(
            "() => Object.fromEntries([...document.querySelectorAll('#draft :is(input, select, textarea)')]"
            ".map(({ id, value }) => [id, value]))"
        )
        fields = {name: text for name, text in leaves(spec).items() if name in shown or name.startswith("field-")}
        assert {name: shown.get(name, "") for name in fields} == fields


def test_field_that_is_left_out_by_default_is_changed_and_changed_back(look, empty_url):
    page = look(empty_url, "/lab/build")
    page.get_by_text("All settings", exact=True).last.click()
    select, yaml = page.locator("#field-environment-pipeline"), page.locator("#yaml")
    expect(select).to_have_value("false")
    select.select_option("true")
    expect(yaml).to_have_value(re.compile(r"pipeline: true\n"))
    select.select_option("false")
    expect(yaml).not_to_have_value(re.compile(r"pipeline: true\n"))
    financing = page.locator("#kind-environment-financing")
    expect(financing).to_have_value("margin_loan")
    financing.select_option("gross_above_one")
    expect(yaml).to_have_value(re.compile(r"kind: gross_above_one\n"))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"content": []}, 422),
        ({"yaml": "!!python/object:os.system x"}, 422),
        ({"else": 1}, 422),
        ({"content": {}}, 200),
    ],
)
def test_check_of_a_draft_refuses_what_is_no_draft(client, body, status):
    answer = client.post("/lab/build/check", json=body, headers=AUTHORIZED)
    assert answer.status_code == status
    assert client.post("/lab/build/check", json=body).status_code == 401


@pytest.mark.slow
def test_builder_begins_with_a_fit_to_the_only_market(tmp_path):
    page = client_of(market_home(tmp_path / "market").home).get("/lab/build").text
    draft = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["draft"]
    assert (draft["content"]["market"]["source"], draft["market_problem"]) == ("landing", "")
    assert draft["content"]["agent"]["backbone"]["kind"] == "shared_asset"


def test_builder_of_an_unknown_version_is_not_found(client):
    assert client.get("/lab/build?like=none@00000000").status_code == 404
