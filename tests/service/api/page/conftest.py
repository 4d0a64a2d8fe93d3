"""Pages in Chromium; without it, tests that need it are skipped."""

import os
import shutil
from contextlib import ExitStack, contextmanager

import pytest

from nvtrader_pipelines.storage.home import Home
from tests.service.api.conftest import TOKEN
from tests.service.api.servers import served

CHROMIUM = os.environ.get("NVTRADER_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--font-render-hinting=none")


@pytest.fixture(scope="module")  # Playwright's event loop would be in the way of tests of other modules
def chromium():
    """Chromium, started once."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: make dev")
    if not CHROMIUM:
        pytest.skip("there is no Chromium: apt-get install chromium, or set $NVTRADER_CHROMIUM")
    api.expect.set_options(timeout=20_000)  # this machine may be busy
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def serve(fast_nvtrader):
    """Start services, which end after the pages that look at them."""
    with ExitStack() as stack:
        yield lambda home, **options: stack.enter_context(served(home, **{"command": fast_nvtrader, **options}))


@pytest.fixture
def look(serve, chromium):
    """Open the page of a service; nothing may leave the machine, and no script may fail."""
    from playwright.sync_api import expect

    contexts, outside, errors = [], [], []

    @contextmanager
    def tolerant():
        """Forget the errors of requests that are to fail."""
        n_errors = len(errors)
        yield
        del errors[n_errors:]

    def open_page(url, path="/continuous-rl.html", width=1280, scheme="light", token=TOKEN):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", locale="en-US"
        )
        contexts.append(context)

        def block(route):
            outside.append(route.request.url)
            route.abort()

        context.route(lambda address: not address.startswith((url, "data:", "blob:")), block)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        context.on("console", lambda message: message.type == "error" and errors.append(message.text))
        context.request.get(f"{url}/?token={token}")  # lets the browser in as the link of the start does
        page = context.new_page()
        page.clock.install()  # it runs, and tests move it over intervals that they would wait for
        page.goto(url + path, wait_until="domcontentloaded")
        expect(page.locator(".skeleton")).to_have_count(0)  # every section is read
        page.tolerant = tolerant
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert outside == []
    assert errors == []


@pytest.fixture(scope="module")
def shared_url(built_home, fast_nvtrader):
    """Service of the shared home, only to be read."""
    with served(built_home, command=fast_nvtrader) as (_, url, _):
        yield url


@pytest.fixture(scope="module")
def empty_url(fast_nvtrader, tmp_path_factory):
    """Service of an empty home, only to be read."""
    home = Home(tmp_path_factory.mktemp("empty") / "home")
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    with served(home, command=fast_nvtrader) as (_, url, _):
        yield url


@pytest.fixture(scope="module")
def learned(built_home):
    """Run of the shared home that learned."""
    from nvtrader_pipelines.runs.run_library import library_runs
    from nvtrader_pipelines.storage.store import Store

    return next(run for run in library_runs(Store(built_home)) if run.agent == "ppo")
