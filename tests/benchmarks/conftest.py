"""Benchmarks of no time at all, in a folder of their own."""

from pathlib import Path

import pytest

from benchmarks import claim

PACKAGE = """from pathlib import Path

from benchmarks import claim

claim.RESULTS = Path(__file__).parent / "results"
"""
CODE = '''"""{summary}"""

{head}

def main() -> None:
    """Report."""
    {body}


if __name__ == "__main__":
    main()
'''
REPORT = """from benchmarks.claim import Goal, report"""


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Where this process keeps its figures."""
    monkeypatch.setattr(claim, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """A package of benchmarks, and what adds one to it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(claim.__file__).parents[1]))
    folder = tmp_path / "fakes"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)

    def add(name: str, body: str, head: str = REPORT) -> Path:
        (folder / f"{name}.py").write_text(CODE.format(summary=f"How {name} it is.", head=head, body=body))
        return folder

    return add
