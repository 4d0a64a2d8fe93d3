"""Build the documentation site from the pages of `docs/` and those beside the code."""

import re
import shutil
import subprocess
import sys
from importlib.resources import files
from os.path import relpath
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES, SITE = ROOT / "build" / "docs", ROOT / "site"  # `docs_dir` and `site_dir` of zensical.toml
ELSEWHERE = {  # pages that lie outside `docs/`, for people who read the repository
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "data/accounts/README.md": "reference/accounts.md",
    "data/bots/README.md": "reference/bots.md",
    "data/compliance/README.md": "reference/compliance.md",
}


def lay_out() -> None:
    """Put every page into one folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES, ignore=shutil.ignore_patterns("theme"))
    sources = {page.relative_to(DOCS).as_posix(): page for page in DOCS.rglob("*.md")}
    for page, source in (sources | {page: ROOT / source for source, page in ELSEWHERE.items()}).items():
        (PAGES / page).write_text(with_site_links(source, page))
    script = PAGES / "javascripts" / "mermaid.js"  # so that diagrams are drawn without a network
    script.write_bytes((files("mermaidx") / "assets" / "mermaid.js").read_bytes())


def with_site_links(source: Path, page: str) -> str:
    """Text of a page of the repository, with its links to pages that lie elsewhere on the site."""

    def link(match: re.Match[str]) -> str:
        target = (source.parent / match[1]).resolve()
        if not target.is_relative_to(ROOT):
            return match[0]
        path = target.relative_to(ROOT).as_posix()
        return f"]({relpath(ELSEWHERE.get(path, path.removeprefix('docs/')), Path(page).parent)}"

    return re.sub(r"\]\(([^)#:]+)", link, source.read_text())


def build() -> None:
    """Build the site, and make it load nothing from elsewhere.

    Raises:
        ValueError: if a page loads a script or a style from elsewhere.
    """
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT, check=True)
    for page in SITE.rglob("*.html"):
        up = "../" * (len(page.relative_to(SITE).parts) - 1)
        text = page.read_text().replace("https://unpkg.com/iframe-worker/shim", f"{up}javascripts/iframe-worker.js")
        if found := re.search(r"<(script|link|img)[^>]* (src|href)=\"?https?://[^>]*>", text):
            raise ValueError(f"a page must load nothing from elsewhere, but {page} has {found[0]}")
        page.write_text(text)


if __name__ == "__main__":
    lay_out()
    build()
