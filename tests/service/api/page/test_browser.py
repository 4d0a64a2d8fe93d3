"""The page in Chromium: what a person sees and does."""

from itertools import product

import pytest
from playwright.sync_api import expect

from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
from tests.homes import copy_home

pytestmark = pytest.mark.slow
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]


def axe_findings(page):
    """Findings of axe-core, as rule and first place."""
    from axe_playwright_python.sync_playwright import Axe

    findings = Axe().run(page, options={"runOnly": AXE_RULES}).response["violations"]
    return [(finding["id"], finding["nodes"][0]["html"][:200], len(finding["nodes"])) for finding in findings]


@pytest.mark.parametrize(("scheme", "width"), list(product(["light", "dark"], [1280, 390])))
def test_page_is_accessible_and_never_scrolls_sideways(look, shared_url, scheme, width):
    page = look(shared_url, width=width, scheme=scheme)
    page.locator("#ratio").scroll_into_view_if_needed()
    expect(page.locator("#plot-ratio .main-svg").first).to_be_attached()
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_halt_and_resume_are_shown_at_once(serve, look, built_home, tmp_path):
    home = copy_home(built_home, tmp_path / "home")
    _, url, _ = serve(home)
    page = look(url)
    page.keyboard.press("h")
    page.get_by_label("Reason (may stay empty)").fill("prices look wrong")
    page.keyboard.press("Enter")
    expect(page.locator(".band.halted")).to_contain_text("prices look wrong")
    assert "prices look wrong" in FileKillSwitch(home).halt_reason()
    page.get_by_role("button", name="Resume trading").click()
    page.locator("#resume").get_by_label("Reason").fill("they are right")
    page.locator("#resume").get_by_role("button", name="Resume trading").click()
    expect(page.locator(".band.halted")).to_have_count(0)
    expect(page.get_by_role("button", name="Halt trading").first).to_be_visible()
    assert FileKillSwitch(home).halt_reason() is None
