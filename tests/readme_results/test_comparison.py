"""README's table compared with a run of the sample: a figure of another run is found, a rounded one is not."""

import re
from pathlib import Path

import pytest

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from scripts.readme_results.comparison import find_mismatches
from scripts.readme_results.markdown import render_summary, replace_block
from scripts.readme_results.results import SOLVED, TRAINED, AccountRow, Results, read_results
from tests.homes import nvtrader

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
STORED = Results.model_validate_json((ROOT / "benchmarks" / "results.json").read_bytes())
LINES = re.findall(r"^\|.*\[.?\d\.\d.*", README, flags=re.MULTILINE)  # of accounts


def with_first(**changes) -> Results:
    """Stored rows, with other figures of the first account."""
    first: AccountRow = STORED.accounts[0].model_copy(update=changes)
    return STORED.model_copy(update={"accounts": (first, *STORED.accounts[1:])})


def test_table_is_that_of_its_rows():
    assert len(LINES) == len(STORED.accounts) == 11
    assert find_mismatches(README, STORED) == []


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split("|")[1].strip())
def test_any_changed_digit_of_an_account_is_found(line):
    start = line.index("|", 1)  # the name of an account may have digits, too
    digits = [at for at, character in enumerate(line) if at > start and character.isdigit()]
    assert len(digits) >= 9 * 2  # nine figures and more
    for at in digits:
        changed = f"{line[:at]}{(int(line[at]) + 5) % 10}{line[at + 1 :]}"
        (mismatch,) = find_mismatches(README.replace(line, changed), STORED)
        assert mismatch.account == line.split("|")[1].strip()
        assert mismatch.printed in changed


def test_account_that_only_one_side_has_is_found():
    fewer = STORED.model_copy(update={"accounts": STORED.accounts[1:]})
    (name,) = {mismatch.account for mismatch in find_mismatches(README, fewer)}
    assert name == {mismatch.account for mismatch in find_mismatches(README.replace(LINES[0], ""), STORED)}.pop()


@pytest.mark.parametrize(("is_trained", "tolerance"), [(True, TRAINED), (False, SOLVED)])
def test_figure_may_differ_by_rounding_and_processor_only(is_trained, tolerance):
    table = replace_block(README, render_summary(with_first(turnover_per_year=2.0)))
    limit = 2.0 + 0.05 + tolerance.turnover_per_year
    for figure, n_mismatches in ((limit - 1e-6, 0), (limit + 1e-6, 1)):
        rows = with_first(turnover_per_year=figure, is_trained=is_trained)
        assert len(find_mismatches(table, rows)) == n_mismatches


@pytest.mark.nightly
def test_fresh_run_of_the_sample_gives_the_printed_table(tmp_path):
    home = Home(tmp_path / "home")
    for words in (("init", str(home.root)), ("materialize",)):
        finished = nvtrader(home, *words, timeout=3600)
        assert finished.returncode == 0, finished.stdout + finished.stderr
    results = read_results(Store(home), "sample")
    assert find_mismatches(README, results) == []
