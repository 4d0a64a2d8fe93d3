import json
import re

import pytest

from benchmarks.harness import Benchmark, find_benchmarks
from benchmarks.page import BEGIN, END, FOLDER, PAGE, render_figures, write_page

MACHINE = {
    "cpu": "Some CPU",
    "cores": 2,
    "memory_gib": 8.0,
    "system": "Linux x86_64",
    "python": "3.11.7",
    "threads": "OMP_NUM_THREADS=1",
    "libraries": {"numpy": "2.4.1"},
    "peers": {"bt": "1.1.2"},
}
FIGURE = {
    "name": "env-steps",
    "value": 1234567.8,
    "unit": "steps/s",
    "ratio": 12.345,
    "goal": ">=10x",
    "ok": True,
    "verdict": "ok",
    "note": "8 names | wall",
    "benchmark": "environment",
    "measured_at": "2026-01-02T03:04:05+00:00",
    "load": 0.25,
    "commit": "0123abcd",
    "machine": MACHINE,
}
SHORT = {**FIGURE, "name": "reset", "value": 0.01234, "ratio": None, "goal": "<=0.01", "ok": False, "verdict": "short"}
BENCHMARKS = [Benchmark("environment", "How fast it steps."), Benchmark("learning_curves", "How fast it learns.")]


def test_page_has_a_row_per_figure_under_its_benchmark(tmp_path):
    text = render_figures([FIGURE, SHORT], BENCHMARKS, tmp_path)
    assert "| `env-steps` | 1,234,568 | steps/s | 12.3 | ≥ 10x | ok | 8 names \\| wall |" in text
    assert "| `reset` | 0.0123 | steps/s |  | ≤ 0.01 | **short** |" in text
    environment, learning = text.split("### `")[1:]
    assert "How fast it steps." in environment
    assert "Not measured." in learning


def test_page_states_machine_libraries_and_dates(tmp_path):
    text = render_figures(
        [FIGURE, {**SHORT, "measured_at": "2026-01-03T00:00:00+00:00", "load": 1.5}], BENCHMARKS, tmp_path
    )
    for said in (
        "Some CPU, 2 cores, 8 GiB",
        "2026-01-02 to 2026-01-03",
        "0.2 to 1.5",
        "numpy 2.4.1",
        "bt 1.1.2",
        "0123abcd",
    ):
        assert said in text
    assert "1 of 2 reached" in text


def test_page_shows_the_picture_of_a_benchmark(tmp_path):
    assert "![" not in render_figures([FIGURE], BENCHMARKS, tmp_path)
    (tmp_path / "learning-curves.png").touch()
    assert "![How fast it learns.](images/learning-curves.png)" in render_figures([FIGURE], BENCHMARKS, tmp_path)


def test_figures_of_two_machines_raise(tmp_path):
    other = {**SHORT, "machine": {**MACHINE, "libraries": {"numpy": "2.5.0"}}}
    with pytest.raises(ValueError):
        render_figures([FIGURE, other], BENCHMARKS, tmp_path)


def test_figures_of_deleted_benchmarks_are_omitted(tmp_path):
    gone = {**SHORT, "benchmark": "gone", "machine": {**MACHINE, "cpu": "Another CPU"}}
    text = render_figures([gone, FIGURE], BENCHMARKS, tmp_path)
    assert "1 of 1 reached" in text
    assert "gone" not in text


def test_page_without_figures_raises(tmp_path):
    with pytest.raises(ValueError):
        render_figures([], BENCHMARKS, tmp_path)


def test_write_page_replaces_only_the_text_between_markers(tmp_path, fakes):
    page, folder = tmp_path / "page.md", fakes("environment", "pass")
    page.write_text(f"# By hand\n\n{BEGIN}\nold\n{END}\n\nBy hand too\n")
    (folder / "results").mkdir()
    (folder / "results" / "env-steps.json").write_text(json.dumps(FIGURE))
    for _ in range(2):
        write_page(page, folder)
    text = page.read_text()
    assert text.startswith(f"# By hand\n\n{BEGIN}\n\n| | |\n")
    assert text.endswith(f"\n{END}\n\nBy hand too\n")
    assert "old" not in text
    assert "How environment it is." in text
    assert "| `env-steps` |" in text


def test_write_page_without_markers_raises(tmp_path, fakes):
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n")
    with pytest.raises(ValueError):
        write_page(page, fakes("environment", "pass"))
    assert page.read_text() == f"{BEGIN}\n"


def test_documentation_page_has_its_markers():
    text = PAGE.read_text()
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    assert text.index(BEGIN) < text.index(END)


def test_benchmarks_named_by_the_page_exist():
    (named,) = re.findall(r'make bench NAMES="([^"]+)"', PAGE.read_text())
    assert set(named.split()) <= {each.name for each in find_benchmarks(FOLDER)}
