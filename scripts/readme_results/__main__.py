"""Write the results of a built home to README.md and docs/results.md, or render the stored results again."""

import sys
from pathlib import Path

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from scripts.readme_results.markdown import render_results, render_summary, replace_block
from scripts.readme_results.results import Results, read_results

ROOT = Path(__file__).resolve().parents[2]
ROWS, README, PAGE = ROOT / "benchmarks" / "results.json", ROOT / "README.md", ROOT / "docs" / "results.md"
BESIDE = (  # they differ only in the risk terms of the reward, and in the agent
    ("ppo-cvar", "ppo-growth"),
    ("pathwise", "ppo-residual"),
)


def main(home: str | None = None) -> None:
    """Write the rows, if a home is given, and both texts."""
    if home is not None:
        results = read_results(Store(Home(Path(home))), "sample", BESIDE)
        ROWS.write_text(f"{results.model_dump_json(indent=1)}\n")
    results = Results.model_validate_json(ROWS.read_bytes())
    for path, render in ((README, render_summary), (PAGE, render_results)):
        path.write_text(replace_block(path.read_text(), render(results)))


if __name__ == "__main__":
    main(*sys.argv[1:])
